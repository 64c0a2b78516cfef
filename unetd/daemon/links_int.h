/*
 * RDMA devices, for the files that deal with them only: links.c, remotes.c, opens.c.
 *
 *   links.c    this host's agent on each device, the links of stacks to them
 *   remotes.c  channels to stacks of other hosts: what is known of the far end, and what the agents
 *              say to each other of it
 *   opens.c    asking another host's agent for such a channel, and being asked
 *   owners.c   who owns a queue pair
 */
#ifndef UNETD_LINKS_INT_H
#define UNETD_LINKS_INT_H

#include "unetd/agent/agent_wire.h"
#include "unetd/agent/cm.h"
#include "unetd/daemon/daemon.h"

#define SILENT_HOSTS 16u /* hosts without an agent that are remembered */
/* A unetd younger than this may yet be told of a port; a caller waits for that. */
#define AGENT_YOUNG_PORTS (2 * NS_PER_S)
/* ... or of a channel. A host that is told too early that there is none ends the channel. */
#define AGENT_YOUNG_CHANS (15 * NS_PER_S)
#define LINK_MTU_MIN      256u /* the smallest MTU of RDMA */

struct agent {
        struct cm cm; /* first: handlers cast */
        const struct unetd_iface_config *cfg;
        uint32_t index; /* its interface's */
        bool works;
        bool listed;  /* in the directory */
        int failed;   /* errno of the last try */
        nstime again; /* time of the next try */
        struct {
                uint32_t addr;  /* 0: none */
                unsigned times; /* silences in a row before */
                nstime until;
        } silent[SILENT_HOSTS];
};

/* ---- links.c ---- */
struct agent *agent_at(uint32_t addr);
/* Finds the stack's link by the interface's number. */
struct rlink *link_numbered(const struct stack *st, uint32_t index);
/* Notes that what others are told of the link has changed. */
void link_changed(struct rlink *l);
struct rlink *link_find(const struct stack *st, const struct agent *a);
/* Finds the stack, the interface and the link that a request names; *l is NULL if there is no link
 * yet. 0 or a negative errno. */
int link_named(struct user *u, const struct unetd_msg *msg, struct stack **st, struct agent **a,
               struct rlink **l);

/* ---- remotes.c ---- */
/* Returns a message to another agent that says who we are; with AGENT_OPEN also from which ports
 * the stack may send. */
struct agent_msg link_says(const struct rlink *l, enum agent_op op);
/* Tells the agents that know the stack's old queue pair of the new one. */
void remotes_moved(const struct rlink *l);
struct chan *remote_find(const struct rlink *l, uint32_t addr, const struct agent_msg *m);
/* Makes the record of a far end. `mine`: our number of the channel. NULL: no memory. */
struct remote *remote_new(struct rlink *l, uint32_t addr, uint32_t mine, const struct agent_msg *m);
void remote_learn(struct chan *ch, const struct agent_msg *m);
/* Handles what another host's agent says of a channel that exists. 0 or a negative errno, to be
 * answered; or REPLY_LATER. */
int remote_told(struct agent *a, uint32_t id, uint32_t from, const struct agent_msg *m);
/* A question is answered when the channel is up, or after a while: ask again. Who heard nothing
 * would take the host for silent, and it is one user's keeper. */
void remote_asked(struct remote *r, uint32_t id);
/* Returns the answer to an agent that asks for something unknown. A unetd that has just begun may
 * yet hear of it from a keeper: it answers "busy" until it is older than `patience`. */
int agent_knows_not(nstime patience);
/* Returns a number for a new channel. */
uint32_t remote_number(void);
/* Asks whether far ends are there still. Returns when to be called again. */
nstime remotes_tick(void);

/* ---- opens.c ---- */
/* Serves a question of another host's agent: struct cm_ops. */
void agent_asked(struct cm *cm, uint32_t id, uint32_t from, const void *data, size_t len);
/* Answer an agent's question: the channel that it asked for is up; agent_refuse(): there will be
 * none, and why. */
void agent_answer_open(const struct chan *ch, uint32_t id, uint8_t proto, uint16_t port);
void agent_answer_here(const struct chan *ch, uint32_t id);
void agent_refuse(struct agent *a, uint32_t id, int err);
/* Asks busy agents again. Returns when to be called again. */
nstime openings_tick(void);
/* Takes the link, which goes, out of the questions that wait. */
void openings_forget_link(const struct rlink *l);

#endif
