/* See probe.h. */
#include "unetd/daemon/probe.h"

#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "arp/arp.h"
#include "arp/ether.h"

#define PROBES_MAX 16u
#define FRAME_MAX  128u /* an ARP packet with its Ethernet header and padding */

struct asking {
        struct probe *p;
        int fd;
        struct arp_cache *cache;
        struct counters cnt;
        uint8_t mac[ETHER_MAC];
        nstime base; /* start of its faster clock */
        bool done;
};

static nstime real_now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static nstime its_now(const struct asking *a)
{
        return a->base + (real_now() - a->base) * (nstime)a->p->speed;
}

/* ---- the socket ---- */

static const char *look_at_link(struct asking *a)
{
        struct ifreq r = {.ifr_flags = 0};

        snprintf(r.ifr_name, sizeof r.ifr_name, "%s", a->p->ifname);
        if (a->fd < 0 || ioctl(a->fd, SIOCGIFHWADDR, &r) < 0)
                return "no packet socket";
        memcpy(a->mac, r.ifr_hwaddr.sa_data, sizeof a->mac);
        if (ioctl(a->fd, SIOCGIFFLAGS, &r) < 0 ||
            (r.ifr_flags & (IFF_UP | IFF_RUNNING)) != (IFF_UP | IFF_RUNNING))
                return "the link is down";
        return NULL;
}

static const char *begin(struct asking *a, struct probe *p)
{
        struct arp_config cfg;
        uint8_t seed[16];
        const char *why;

        *a = (struct asking){
                .p = p, .fd = p->sock, .base = real_now(), .cache = calloc(1, sizeof *a->cache)};
        if (!a->cache || getrandom(seed, sizeof seed, 0) != sizeof seed)
                return "no memory";
        why = look_at_link(a);
        if (why)
                return why;
        arp_config_default(&cfg, a->mac);
        arp_format(a->cache, &cfg, seed, a->base);
        arp_addr_add(&(struct arp){a->cache, &a->cnt}, p->addr, p->prefix, true, a->base);
        return NULL;
}

static void end(struct asking *a)
{
        if (a->fd >= 0)
                close(a->fd);
        free(a->cache);
}

/* ---- asking ---- */

static void settle(struct asking *a, enum probe_result result, const char *why)
{
        struct arp_addr ad;

        a->done = true;
        a->p->result = result;
        a->p->why = why;
        if (result == PROBE_TAKEN && arp_addr_walk(&(struct arp){a->cache, &a->cnt}, 0, &ad))
                memcpy(a->p->rival, ad.rival, sizeof a->p->rival);
}

static void listen_once(struct asking *a)
{
        struct arp arp = {a->cache, &a->cnt};
        uint8_t frame[FRAME_MAX];
        ssize_t n;

        for (int i = 0; i < 64 && (n = recv(a->fd, frame, sizeof frame, 0)) > 0; i++)
                if (n > (ssize_t)ETHER_HDR)
                        arp_input(&arp, frame + ETHER_HDR, (size_t)n - ETHER_HDR, its_now(a));
}

static void send_packet(struct asking *a, const struct arp_out *out)
{
        uint8_t frame[ETHER_HDR + ARP_MAX_PKT];

        ether_write(frame, out->to, a->mac, ETHER_ARP);
        memcpy(frame + ETHER_HDR, out->pkt, out->len);
        if (send(a->fd, frame, ETHER_HDR + out->len, 0) < 0)
                settle(a, PROBE_UNKNOWN, "the link takes nothing");
}

/* Does what is due. After the last probe without an objection the address is free. The stack that
 * takes it sends the announcements. */
static void step(struct asking *a)
{
        struct arp arp = {a->cache, &a->cnt};
        enum arp_addr_state state;
        struct arp_out out;

        listen_once(a);
        arp_expire(&arp, its_now(a));
        state = arp_addr_state(&arp, a->p->addr);
        if (state == ARP_ADDR_LOST)
                settle(a, PROBE_TAKEN, NULL);
        else if (state == ARP_ADDR_ANNOUNCING)
                settle(a, PROBE_FREE, NULL);
        while (!a->done && arp_output(&arp, &out)) {
                if (out.what == ARP_OUT_SEND)
                        send_packet(a, &out);
                arp_output_done(&arp, &out, its_now(a));
        }
}

/* Returns milliseconds until the next deadline; -1: all are done. */
static int patience(const struct asking *a, uint32_t n)
{
        nstime left = NSTIME_NEVER;

        for (uint32_t i = 0; i < n; i++) {
                nstime at;
                if (a[i].done)
                        continue;
                at = arp_deadline(&(struct arp){a[i].cache, NULL});
                left = nstime_min(left, MAX(at - its_now(&a[i]), 0) / (nstime)a[i].p->speed);
        }
        return left == NSTIME_NEVER ? -1 : (int)MIN(left / NS_PER_MS + 1, 1000);
}

void probe_addresses(struct probe *p, uint32_t n, int stop)
{
        struct asking a[PROBES_MAX];
        struct pollfd pfd[PROBES_MAX + 1] = {{.fd = stop, .events = POLLIN}};
        int ms;

        assert(n <= PROBES_MAX);
        for (uint32_t i = 0; i < n; i++) {
                const char *why = begin(&a[i], &p[i]);
                if (why)
                        settle(&a[i], PROBE_UNKNOWN, why);
                pfd[i + 1] = (struct pollfd){.fd = a[i].fd, .events = POLLIN};
        }
        while ((ms = patience(a, n)) >= 0 && !(pfd[0].revents & POLLIN)) {
                if (poll(pfd, n + 1, ms) < 0 && errno != EINTR)
                        break;
                for (uint32_t i = 0; i < n; i++)
                        if (!a[i].done)
                                step(&a[i]);
        }
        for (uint32_t i = 0; i < n; i++) {
                if (!a[i].done)
                        settle(&a[i], PROBE_UNKNOWN, "there was no time");
                end(&a[i]);
        }
}
