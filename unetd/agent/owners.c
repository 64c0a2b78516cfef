/* See owners.h. One question and one answer at a time; the kernel answers at once. */
#include "unetd/agent/owners.h"

#include <dirent.h>
#include <errno.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEVICES "/sys/class/infiniband"
#define GIDS    1024 /* of a port; more are not looked at */
#define ANSWER  8192

/* ---- answers ---- */

static const struct nlattr *find(const void *msg, size_t len, uint16_t attr, size_t *bytes)
{
        const uint8_t *at = (const uint8_t *)msg + NLMSG_HDRLEN, *end = (const uint8_t *)msg + len;

        while (end - at >= (ptrdiff_t)NLA_HDRLEN) {
                const struct nlattr *a = (const struct nlattr *)at;
                size_t step = NLA_ALIGN((size_t)a->nla_len);

                if (a->nla_len < NLA_HDRLEN || a->nla_len > end - at)
                        return NULL;
                if ((a->nla_type & NLA_TYPE_MASK) == attr) {
                        *bytes = a->nla_len - (size_t)NLA_HDRLEN;
                        return a;
                }
                if (step > (size_t)(end - at))
                        return NULL;
                at += step;
        }
        return NULL;
}

bool owner_attr_u32(const void *msg, size_t len, uint16_t attr, uint32_t *out)
{
        size_t bytes;
        const struct nlattr *a = len >= NLMSG_HDRLEN ? find(msg, len, attr, &bytes) : NULL;

        if (!a || bytes < sizeof *out)
                return false;
        memcpy(out, (const uint8_t *)a + NLA_HDRLEN, sizeof *out);
        return true;
}

bool owner_attr_text(const void *msg, size_t len, uint16_t attr, char text[OWNER_NAME])
{
        size_t bytes;
        const struct nlattr *a = len >= NLMSG_HDRLEN ? find(msg, len, attr, &bytes) : NULL;

        if (!a || bytes == 0 || bytes > OWNER_NAME ||
            ((const char *)a)[NLA_HDRLEN + bytes - 1] != '\0')
                return false;
        memcpy(text, (const uint8_t *)a + NLA_HDRLEN, bytes);
        return true;
}

/* ---- questions ---- */

#define QUESTION_ARGS 3

struct question {
        struct nlmsghdr hdr;
        struct {
                struct nlattr attr;
                uint32_t value;
        } arg[QUESTION_ARGS];
};

static int ask(unsigned cmd, uint16_t flags, const uint32_t args[][2], unsigned n)
{
        struct question q = {.hdr = {.nlmsg_len = (uint32_t)(NLMSG_HDRLEN + n * sizeof q.arg[0]),
                                     .nlmsg_type = (uint16_t)RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, cmd),
                                     .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags)}};
        struct timeval patience = {.tv_sec = 1};
        int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);

        if (fd < 0)
                return -errno;
        for (unsigned i = 0; i < n; i++) {
                q.arg[i].attr = (struct nlattr){.nla_len = sizeof q.arg[i],
                                                .nla_type = (uint16_t)args[i][0]};
                q.arg[i].value = args[i][1];
        }
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (send(fd, &q, q.hdr.nlmsg_len, 0) < 0) {
                int err = errno;
                close(fd);
                return -err;
        }
        return fd;
}

/* NLMSG_OK() with both sides of its comparison of one kind. */
static bool is_whole(const struct nlmsghdr *h, int left)
{
        return left >= (int)sizeof *h && h->nlmsg_len >= sizeof *h &&
               h->nlmsg_len <= (uint32_t)left;
}

/* Calls fn for each message of the answer until it says true. 0: it did; -ENOENT: it never did; or
 * the kernel's error. */
static int each(int fd, bool (*fn)(void *arg, const void *msg, size_t len), void *arg)
{
        _Alignas(struct nlmsghdr) char answer[ANSWER];

        for (;;) {
                ssize_t got = recv(fd, answer, sizeof answer, 0);
                int left = (int)got;

                if (got < 0)
                        return -errno;
                for (const struct nlmsghdr *h = (const void *)answer; is_whole(h, left);
                     h = NLMSG_NEXT(h, left)) {
                        const struct nlmsgerr *e = (const void *)((const char *)h + NLMSG_HDRLEN);

                        if (h->nlmsg_type == NLMSG_ERROR)
                                return h->nlmsg_len >= NLMSG_LENGTH(sizeof *e) && e->error < 0
                                               ? e->error
                                               : -ENOENT;
                        if (h->nlmsg_type == NLMSG_DONE)
                                return -ENOENT;
                        if (fn(arg, h, h->nlmsg_len))
                                return 0;
                        if (!(h->nlmsg_flags & NLM_F_MULTI))
                                return -ENOENT;
                }
        }
}

/* ---- the device that has an address ---- */

bool owner_gid_is(const char *gid, uint32_t addr)
{
        unsigned w[8];
        bool mapped = sscanf(gid, "%4x:%4x:%4x:%4x:%4x:%4x:%4x:%4x", &w[0], &w[1], &w[2], &w[3],
                             &w[4], &w[5], &w[6], &w[7]) == 8 &&
                      (w[0] | w[1] | w[2] | w[3] | w[4]) == 0 && w[5] == 0xffff;

        return mapped && (w[6] << 16 | w[7]) == addr;
}

/* Reads a file of one line. Returns false if it cannot be read. */
static bool read_line(const char *path, char line[OWNER_NAME])
{
        FILE *f = fopen(path, "re");
        bool got = f && fgets(line, OWNER_NAME, f);

        if (f)
                fclose(f);
        return got;
}

static bool port_has(const char *dev, const char *port, uint32_t addr)
{
        char path[256], gid[OWNER_NAME];

        for (int i = 0; i < GIDS; i++) {
                int n = snprintf(path, sizeof path, DEVICES "/%s/ports/%s/gids/%d", dev, port, i);

                if (n >= (int)sizeof path || access(path, F_OK) != 0)
                        return false;
                if (read_line(path, gid) &&
                    owner_gid_is(gid, addr)) /* empty places cannot be read */
                        return true;
        }
        return false;
}

/* The port, 0: none. */
static uint32_t device_port(const char *dev, uint32_t addr)
{
        char path[128];
        const struct dirent *e;
        uint32_t port = 0;
        DIR *d;

        if (snprintf(path, sizeof path, DEVICES "/%s/ports", dev) >= (int)sizeof path)
                return 0;
        d = opendir(path);
        while (d && port == 0 && (e = readdir(d)))
                if (e->d_name[0] != '.' && port_has(dev, e->d_name, addr))
                        port = (uint32_t)strtoul(e->d_name, NULL, 10);
        if (d)
                closedir(d);
        return port;
}

struct place {
        uint32_t addr, index, port;
};

static bool is_place(void *arg, const void *msg, size_t len)
{
        struct place *p = arg;
        char name[OWNER_NAME];

        if (!owner_attr_text(msg, len, RDMA_NLDEV_ATTR_DEV_NAME, name))
                return false;
        p->port = device_port(name, p->addr);
        return p->port != 0 && owner_attr_u32(msg, len, RDMA_NLDEV_ATTR_DEV_INDEX, &p->index);
}

static int find_place(struct place *p)
{
        int fd = ask(RDMA_NLDEV_CMD_GET, NLM_F_DUMP, NULL, 0), r;

        if (fd < 0)
                return fd;
        r = each(fd, is_place, p);
        close(fd);
        return r == -ENOENT ? -ENODEV : r;
}

/* ---- the queue pair ---- */

struct found {
        uint32_t qpn, tid;
};

/* Returns true if the answer is about the queue pair; f->tid is then 0 if it names no thread that
 * lives. */
static bool is_queue_pair(void *arg, const void *msg, size_t len)
{
        struct found *f = arg;
        uint32_t qpn;

        if (!owner_attr_u32(msg, len, RDMA_NLDEV_ATTR_RES_LQPN, &qpn) || qpn != f->qpn)
                return false;
        if (!owner_attr_u32(msg, len, RDMA_NLDEV_ATTR_RES_PID, &f->tid))
                f->tid = 0;
        return true;
}

int owner_of(uint32_t addr, uint32_t qpn, int32_t *tid)
{
        struct place p = {.addr = addr};
        struct found f = {.qpn = qpn};
        int r = find_place(&p), fd;

        if (r < 0)
                return r;
        uint32_t args[QUESTION_ARGS][2] = {{RDMA_NLDEV_ATTR_DEV_INDEX, p.index},
                                           {RDMA_NLDEV_ATTR_PORT_INDEX, p.port},
                                           {RDMA_NLDEV_ATTR_RES_LQPN, qpn}};
        fd = ask(RDMA_NLDEV_CMD_RES_QP_GET, 0, (const uint32_t(*)[2])args, QUESTION_ARGS);
        if (fd < 0)
                return fd;
        r = each(fd, is_queue_pair, &f);
        close(fd);
        if (r < 0)
                return r;
        *tid = (int32_t)f.tid;
        return f.tid == 0 ? -ESRCH : 0;
}
