/*
 * RDMA devices, for the files that deal with them only: links.c, remotes.c, opens.c.
 *
 *   links.c    this host's agent on each device, the links of stacks to them
 *   remotes.c  channels to stacks of other hosts: what is known of the far end, and what the agents
 *              say to each other of it
 *   opens.c    asking another host's agent for such a channel, and being asked
 *   owners.c   whose a queue pair is
 */
#ifndef UNETD_LINKS_INT_H
#define UNETD_LINKS_INT_H

#include "unetd/agent/agent_wire.h"
#include "unetd/agent/cm.h"
#include "unetd/daemon/daemon.h"

#define SILENT_HOSTS 16u /* without an agent, remembered */
/* A unetd that has begun since may yet be told of a port, for which a caller waits. */
#define AGENT_YOUNG_PORTS (2 * NS_PER_S)
/* ... or of a channel: who is told too early that there is none ends it. */
#define AGENT_YOUNG_CHANS (15 * NS_PER_S)
#define LINK_MTU_MIN      256u /* as long as the smallest datagram of RDMA */

struct agent {
        struct cm cm; /* first: handlers cast */
        const struct unetd_iface_config *cfg;
        uint32_t index; /* of the interface */
        bool works;
        bool listed;  /* in the directory */
        int failed;   /* why not, as last tried */
        nstime again; /* ... and when to try next */
        struct {
                uint32_t addr;  /* 0: none */
                unsigned times; /* before, in a row */
                nstime until;
        } silent[SILENT_HOSTS];
};

/* ---- links.c ---- */
struct agent *agent_at(uint32_t addr);
/* The one that a request names in a stack's place; NULL: none. */
struct agent *agent_find(uint32_t peer);
/* By the interface's number. */
struct rlink *link_numbered(const struct stack *st, uint32_t index);
/* What others are told of it has changed. */
void link_changed(struct rlink *l);
struct rlink *link_find(const struct stack *st, const struct agent *a);
/* The stack, interface and link that a request names; *l is NULL when there is no link yet. 0 or a
 * negative errno. */
int link_named(struct user *u, const struct unetd_msg *msg, struct stack **st, struct agent **a,
               struct rlink **l);

/* ---- remotes.c ---- */
/* A message to another agent, with who we are; with AGENT_OPEN also what the stack may send from.
 */
struct agent_msg link_says(const struct rlink *l, enum agent_op op);
/* The stack has another queue pair: agents that know the old one are told. */
void remotes_moved(const struct rlink *l);
struct chan *remote_find(const struct rlink *l, uint32_t addr, const struct agent_msg *m);
/* `mine`: our number of the channel. NULL: no memory. */
struct remote *remote_new(struct rlink *l, uint32_t addr, uint32_t mine, const struct agent_msg *m);
void remote_learn(struct chan *ch, const struct agent_msg *m);
/* What another host's agent says of a channel that there is. 0 or a negative errno, which it is to
 * be answered; or REPLY_LATER. */
int remote_told(struct agent *a, uint32_t id, uint32_t from, const struct agent_msg *m);
/* What who asks for something unknown is answered: a unetd that has just begun may be about to hear
 * of it from a keeper. */
int agent_knows_not(nstime patience);
/* A number for a channel. */
uint32_t remote_number(void);
/* Asks after channels; when to be called again. */
nstime remotes_tick(void);

/* ---- opens.c ---- */
/* Another host's agent asks: struct cm_ops. */
void agent_asked(struct cm *cm, uint32_t id, uint32_t from, const void *data, size_t len);
/* The channel that a question was about is up; or is not to be, and why. */
void agent_answer_open(const struct chan *ch, uint32_t id, uint8_t proto, uint16_t port);
void agent_answer_here(const struct chan *ch, uint32_t id);
void agent_refuse(struct agent *a, uint32_t id, int err);
/* Asks again; when to be called again. */
nstime openings_tick(void);
/* The link goes: nobody's question is its any more. */
void openings_forget_link(const struct rlink *l);

#endif
