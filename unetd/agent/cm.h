/*
 * Questions to the same program on other hosts, over RDMA devices: rdma_cm's service-ID resolution
 * (SIDR, InfiniBand Architecture Specification volume 1, §12.11), by the kernel's own interface
 * (rdma/rdma_user_cm.h), without a library and without waiting.
 *
 * A question and its answer are private data of one SIDR exchange, so that neither side has a queue
 * pair for it. Both ends use port numbers that only root may have (rdma_cm knows the rule of
 * TCP's): who is asked is the other host's agent, and so is who asks. The kernel repeats what is
 * lost, seldom; who asks repeats it sooner, so questions must bear to be answered twice.
 */
#ifndef UNETD_CM_H
#define UNETD_CM_H

#include <sys/queue.h>

#include "unetd/agent/knock.h"
#include "unetd/loop/loop.h"

#define CM_PORT       913u /* in rdma_cm's space of UDP; it is nothing else's there */
#define CM_ASK_MAX    180u /* bytes of private data */
#define CM_ANSWER_MAX 136u
#define CM_TRY        (250 * NS_PER_MS) /* without an answer, then asked again */
#define CM_TRIES      5u
/* ... where the host's kernel says that nobody there has RoCE: longer than an agent needs. */
#define CM_REFUSED (50 * NS_PER_MS)

/* Those that questions come from: below 1024, as rlogin's did. One of them is CM_PORT. */
#define CM_PORT_LOW 512u
#define CM_PORT_END 1024u
#define CM_PORTS    (CM_PORT_END - CM_PORT_LOW - 1)
#define CM_WAITING  1024u /* questions of one user that wait for a port */

struct cm;
struct cm_asker;
struct cm_question;

struct cm_ops {
        /* A host asks, from its agent's port. Answered now or later by cm_answer() with this
         * `id`, once. */
        void (*asked)(struct cm *cm, uint32_t id, uint32_t from, const void *data, size_t len);
        /* The device is being removed: nobody asks or is answered any more. To be closed. */
        void (*gone)(struct cm *cm);
};

struct cm {
        struct loop_source source; /* first: handlers cast */
        struct knock knock;        /* at those who are asked */
        const struct cm_ops *ops;
        uint32_t addr; /* of the device, IPv4 in host order */
        uint32_t listening;
        TAILQ_HEAD(, cm_question) questions; /* oldest first */
        LIST_HEAD(, cm_asker) askers;
        uint32_t under_way; /* questions that have a port, or try to get one */
        uint16_t next_port; /* where the search for a free one begins */
};

/* Listens at the address of an RDMA device. 0, or a negative errno: -EACCES also without
 * the privilege. */
int cm_open(struct cm *cm, struct loop *loop, uint32_t addr, const struct cm_ops *ops);
/* Questions are answered -ENETDOWN; from then on none can be asked. */
void cm_close(struct cm *cm);

/*
 * Asks the agent of a host, for a user of this one. `answered` is called once, unless cm_forget()
 * comes first: err 0 with the answer, or -ETIMEDOUT, -EHOSTUNREACH, -ECONNREFUSED (no agent listens
 * there), -EBUSY (the question never left), -ENETDOWN (closed) and len 0. NULL: no memory, closed,
 * or CM_WAITING of his questions wait.
 *
 * A question to a silent host keeps its port until the last try is over. So a user's questions have
 * at most as many ports as they leave to others'. What comes beyond that waits its turn, for as
 * long as a question may take.
 */
struct cm_question *cm_ask(struct cm *cm, uint32_t uid, uint32_t to, const void *data, size_t len,
                           void (*answered)(void *arg, int err, const void *data, size_t len),
                           void *arg);
void cm_forget(struct cm_question *q);

int cm_answer(struct cm *cm, uint32_t id, const void *data, size_t len);

/* Asks what has waited for a port, and again what has waited long enough; returns when to be called
 * again. */
nstime cm_tick(struct cm *cm);

#endif
