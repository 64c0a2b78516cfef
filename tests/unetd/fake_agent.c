/* See fake_agent.h: cm.h and owners.h, without a device. */
#include "tests/unetd/fake_agent.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "unetd/agent/owners.h"
#include "unetd/daemon/daemon.h"

#define ASKED 256u /* questions without an answer */

static struct sockaddr_un asker[ASKED];
static socklen_t asker_len[ASKED];

static void ready(struct loop_source *s, uint32_t events)
{
        static uint32_t ids;
        struct cm *cm = (struct cm *)s;
        struct fake_question q;
        uint32_t id = ++ids;
        ssize_t n;

        asker_len[id % ASKED] = sizeof asker[0];
        n = recvfrom(s->fd, &q, sizeof q, MSG_DONTWAIT, (struct sockaddr *)&asker[id % ASKED],
                     &asker_len[id % ASKED]);
        if (n >= (ssize_t)sizeof q.from)
                cm->ops->asked(cm, id, q.from, q.data, (size_t)n - sizeof q.from);
}

int cm_open(struct cm *cm, struct loop *loop, uint32_t addr, const struct cm_ops *ops)
{
        struct sockaddr_un sun;
        socklen_t len = fake_agent_name(&sun, unetd.cfg.domain, addr);

        *cm = (struct cm){.ops = ops, .addr = addr, .source.ready = ready};
        cm->source.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (cm->source.fd < 0 || bind(cm->source.fd, (struct sockaddr *)&sun, len) < 0)
                return -errno;
        return loop_add(loop, &cm->source, EPOLLIN);
}

void cm_close(struct cm *cm)
{
        close(cm->source.fd);
        cm->source.fd = -1;
}

struct cm_question *cm_ask(struct cm *cm, uint32_t uid, uint32_t to, const void *data, size_t len,
                           void (*answered)(void *arg, int err, const void *data, size_t len),
                           void *arg)
{
        return NULL;
}

void cm_forget(struct cm_question *q)
{
}

int cm_answer(struct cm *cm, uint32_t id, const void *data, size_t len)
{
        return sendto(cm->source.fd, data, len, MSG_DONTWAIT, (struct sockaddr *)&asker[id % ASKED],
                      asker_len[id % ASKED]) < 0
                       ? -errno
                       : 0;
}

nstime cm_tick(struct cm *cm)
{
        return NSTIME_NEVER;
}

int owner_of(uint32_t addr, uint32_t qpn, int32_t *tid)
{
        *tid = (int32_t)qpn;
        return 0;
}
