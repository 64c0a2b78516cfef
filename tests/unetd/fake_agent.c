/* See fake_agent.h: cm.h and owners.h, without a device. */
#include "tests/unetd/fake_agent.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "unetd/agent/agent_wire.h"
#include "unetd/agent/owners.h"
#include "unetd/daemon/daemon.h"

#define ASKED  256u             /* questions without an answer */
#define SILENT (50 * NS_PER_MS) /* a question's time */

static struct sockaddr_un asker[ASKED];
static socklen_t asker_len[ASKED];

static struct {
        void (*answered)(void *arg, int err, const void *data, size_t len); /* NULL: none */
        void *arg;
        uint32_t number;
        nstime end;
} question[ASKED];

static void ready(struct loop_source *s, uint32_t events)
{
        static uint32_t ids;
        struct cm *cm = (struct cm *)s;
        struct fake_question q = {.from = 0};
        uint32_t id = ++ids;
        struct chan *all;
        ssize_t n;

        asker_len[id % ASKED] = sizeof asker[0];
        n = recvfrom(s->fd, &q, sizeof q, MSG_DONTWAIT, (struct sockaddr *)&asker[id % ASKED],
                     &asker_len[id % ASKED]);
        if (n < (ssize_t)sizeof q.from)
                return;
        /* Users may have many channels: whether a host's is there is answered without a look at
         * them. */
        all = LIST_FIRST(&unetd.chans);
        if (q.data[4] == AGENT_HERE)
                LIST_INIT(&unetd.chans);
        cm->ops->asked(cm, id, q.from, q.data, (size_t)n - sizeof q.from);
        if (q.data[4] == AGENT_HERE)
                LIST_FIRST(&unetd.chans) = all;
}

static void end(uint32_t i, int err, const void *data, size_t len)
{
        void (*answered)(void *, int, const void *, size_t) = question[i].answered;

        question[i].answered = NULL;
        answered(question[i].arg, err, data, len);
}

static void hears(struct loop_source *s, uint32_t events)
{
        struct fake_word w;
        ssize_t n = recv(s->fd, &w, sizeof w, MSG_DONTWAIT);
        uint32_t i = w.number % ASKED;

        if (n >= (ssize_t)sizeof w.number && question[i].answered && question[i].number == w.number)
                end(i, 0, w.data, (size_t)n - sizeof w.number);
}

static int open_socket(struct loop_source *s, struct loop *loop, const struct sockaddr_un *sun,
                       socklen_t len)
{
        s->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s->fd < 0 || bind(s->fd, (const struct sockaddr *)sun, len) < 0)
                return -errno;
        return loop_add(loop, s, EPOLLIN);
}

int cm_open(struct cm *cm, struct loop *loop, uint32_t addr, const struct cm_ops *ops)
{
        struct sockaddr_un sun, nameless = {.sun_family = AF_UNIX};
        socklen_t len = fake_agent_name(&sun, unetd.cfg.domain, addr);
        int r;

        *cm = (struct cm){
                .ops = ops, .addr = addr, .source.ready = ready, .knock.source.ready = hears};
        r = open_socket(&cm->source, loop, &sun, len);
        return r < 0 ? r
                     : open_socket(&cm->knock.source, loop, &nameless, sizeof nameless.sun_family);
}

void cm_close(struct cm *cm)
{
        close(cm->source.fd);
        close(cm->knock.source.fd);
        cm->source.fd = -1;
}

struct cm_question *cm_ask(struct cm *cm, uint32_t uid, uint32_t to, const void *data, size_t len,
                           void (*answered)(void *arg, int err, const void *data, size_t len),
                           void *arg)
{
        static uint32_t numbers;
        struct fake_word w = {.number = ++numbers};
        uint32_t i = w.number % ASKED;
        struct sockaddr_un sun;
        socklen_t name_len = fake_host_name(&sun, unetd.cfg.domain, to);

        if (question[i].answered)
                return NULL;
        question[i].answered = answered;
        question[i].arg = arg;
        question[i].number = w.number;
        question[i].end = loop_clock() + SILENT;
        memcpy(w.data, data, len);
        sendto(cm->knock.source.fd, &w, sizeof w.number + len, MSG_DONTWAIT,
               (struct sockaddr *)&sun, name_len);
        return (struct cm_question *)&question[i];
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
        nstime next = NSTIME_NEVER;

        for (uint32_t i = 0; i < ASKED; i++) {
                if (question[i].answered && question[i].end <= loop_clock())
                        end(i, -ETIMEDOUT, NULL, 0);
                if (question[i].answered)
                        next = nstime_min(next, question[i].end);
        }
        return next;
}

int owner_of(uint32_t addr, uint32_t qpn, int32_t *tid)
{
        *tid = (int32_t)qpn;
        return 0;
}
