/* unet ping: ICMP echo from a stack of the tool's own, to whoever U-Net reaches. */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_directory.h"
#include "sock/usock_ready.h"
#include "tools/address.h"
#include "tools/command.h"
#include "tools/show.h"

#define LOOK_EVERY (5 * NS_PER_MS)
#define TOLD_MAX   10000u /* packets that are listed in JSON */

struct pinging {
        /* what is asked for */
        uint32_t count; /* 0: until interrupted */
        nstime interval, patience;
        uint32_t size;
        uint8_t ttl;
        bool dont_frag, json;
        uint32_t stack; /* of this host; 0: any */
        ip_addr dst, src;
        /* what it comes to */
        struct usock *us;
        uint32_t chan;
        uint32_t heard;   /* news read */
        uint32_t refused; /* requests that were too long to be sent */
        json_t *packets;
};

/* ---- whom, and how ---- */

static bool find_host(const char *name, ip_addr *dst)
{
        struct addrinfo hints = {.ai_family = AF_INET}, *list;
        const struct sockaddr_in *in;

        if (getaddrinfo(name, NULL, &hints, &list) != 0)
                return false;
        in = (const struct sockaddr_in *)(const void *)list->ai_addr;
        *dst = ip_addr_v4(ntohl(in->sin_addr.s_addr));
        freeaddrinfo(list);
        return true;
}

/* Any live stack of this host but ours. */
static bool pick_stack(void *arg, const struct unetd_status_item *item)
{
        struct pinging *p = arg;

        if (item->kind == UNETD_S_STACK && item->stack != p->us->u->id &&
            !(item->flags & UNETD_ORPHAN) && p->stack == 0)
                p->stack = item->stack;
        return item->kind <= UNETD_S_STACK;
}

static const char *way_local(struct pinging *p)
{
        int chan;

        if (p->stack == 0) {
                int r = unetd_status(ustack_client(), pick_stack, p);
                ustack_client_done();
                if (r != 0)
                        return strerror(-r);
        }
        if (p->stack == 0)
                return "no stack of this host is there to answer (the kernel's loopback is not "
                       "ours)";
        chan = ustack_chan_to(p->us->u, p->stack);
        if (chan < 0)
                return "no channel to that stack";
        p->chan = (uint32_t)chan;
        p->src = p->dst;
        return NULL;
}

static const char *find_way(struct pinging *p)
{
        const char *why;
        int r = usock_open(USOCK_UDP, AF_INET, -1, &p->us);

        if (r != 0)
                return strerror(-r);
        if (p->stack != 0 || directory_is_local(ustack_directory(), p->dst) == 1)
                return way_local(p);
        r = ustack_way_out(p->us->u, IP_PROTO_ICMP, p->dst, 0, p->src, 0, &p->src, &why);
        p->chan = (uint32_t)r;
        return r >= 0 ? NULL : why;
}

/* ---- asking and hearing ---- */

static const char *error_text(const struct stack_ping_news *n, char text[64])
{
        static const char *const unreachable[] = {"network unreachable", "host unreachable",
                                                  "protocol unreachable", "port unreachable"};

        if (n->type == ICMP_UNREACHABLE && n->code < ARRAY_LEN(unreachable))
                return unreachable[n->code];
        if (n->type == ICMP_UNREACHABLE && n->code == ICMP_FRAG_NEEDED) {
                snprintf(text, 64, "too long, %u bytes get through", n->mtu);
                return text;
        }
        if (n->type == ICMP_TIME_EXCEEDED)
                return n->code == 0 ? "time to live exceeded" : "reassembly time exceeded";
        snprintf(text, 64, "ICMP type %u code %u", n->type, n->code);
        return text;
}

static void tell(struct pinging *p, const struct stack_ping_news *n)
{
        const char *dup = n->what == STACK_PING_DUPLICATE ? " (duplicate)" : "";
        char from[ADDRESS_TEXT], text[64];

        address_format(n->from, from);
        if (n->what == STACK_PING_ERROR)
                printf("from %s: seq=%u %s\n", from, n->seq, error_text(n, text));
        else
                printf("%u bytes from %s: seq=%u ttl=%u time=%.3f ms%s\n", n->len, from, n->seq,
                       n->ttl, (double)n->rtt / NS_PER_MS, dup);
        fflush(stdout);
}

static void list(struct pinging *p, const struct stack_ping_news *n)
{
        static const char *const what[] = {"reply", "duplicate", "error"};
        json_t *row = json_pack("{ss si so}", "what", what[n->what], "seq", n->seq, "from",
                                address_json(n->from));
        char text[64];

        if (n->what == STACK_PING_ERROR) {
                json_object_set_new(row, "error", json_string(error_text(n, text)));
                json_object_set_new(row, "type", json_integer(n->type));
                json_object_set_new(row, "code", json_integer(n->code));
        } else {
                json_object_set_new(row, "ns", json_integer(n->rtt));
                json_object_set_new(row, "ttl", json_integer(n->ttl));
                json_object_set_new(row, "bytes", json_integer(n->len));
        }
        json_array_append_new(p->packets, row);
}

static void hear(struct pinging *p)
{
        struct ustack *u = p->us->u;
        struct stack_ping_news n;
        bool any = true;

        while (any) {
                ustack_lock(u);
                any = stack_ping_next(&u->s, &p->heard, &n);
                ustack_leave(u);
                if (any && !p->json)
                        tell(p, &n);
                else if (any && json_array_size(p->packets) < TOLD_MAX)
                        list(p, &n);
        }
}

static bool all_answered(const struct pinging *p)
{
        const struct ping *g = stack_ping_sum(&p->us->u->s);

        return g->replies + g->errors >= g->requests;
}

/* What comes until then; behind the last request, until all are answered. */
static void hear_until(struct pinging *p, nstime until, bool last)
{
        nstime left;

        for (;;) {
                /* Asked first: what is answered now is heard below. */
                bool all = last && all_answered(p);

                hear(p);
                left = until - ustack_now();
                if (left <= 0 || command_stopped || all)
                        return;
                usock_wait1(p->us, POLLIN, nstime_min(left, LOOK_EVERY));
        }
}

static int ask(struct pinging *p, uint32_t *seq)
{
        struct ustack *u = p->us->u;
        int r;

        ustack_lock(u);
        u->s.now = ustack_now();
        r = stack_ping_ask(&u->s, p->chan, p->src, p->size, p->ttl, p->dont_frag, seq);
        ustack_leave(u);
        return r;
}

/* NULL, or what went wrong for good. */
static const char *run_pings(struct pinging *p)
{
        nstime at = ustack_now();

        for (uint32_t i = 0; (p->count == 0 || i < p->count) && !command_stopped; i++) {
                bool last = p->count != 0 && i + 1 == p->count;
                uint32_t seq = 0;
                int r = ask(p, &seq);

                if (r == -ENETUNREACH)
                        return "the interface, or the stack, is gone";
                if (r == -EMSGSIZE) {
                        p->refused++;
                        if (!p->json)
                                printf("not sent: longer than what gets through\n");
                }
                at += p->interval;
                hear_until(p, last ? ustack_now() + p->patience : at, last);
        }
        return NULL;
}

/* ---- the end ---- */

static double deviation(const struct ping *g)
{
        double mean = (double)g->sum / g->replies, square = g->sum_sq / g->replies - mean * mean;

        return square > 0 ? sqrt(square) : 0;
}

static void sum_json(const struct pinging *p, const struct ping *g, const char *host)
{
        json_t *rtt = g->replies == 0 ? json_null()
                                      : json_pack("{sI sI sI sf}", "min", (json_int_t)g->min, "avg",
                                                  (json_int_t)(g->sum / g->replies), "max",
                                                  (json_int_t)g->max, "mdev", deviation(g));

        show_json(json_pack("{so so so si si si si si si so sO}", "host", show_string(host),
                            "address", address_json(p->dst), "source", address_json(p->src), "size",
                            p->size, "sent", g->requests, "received", g->replies, "duplicates",
                            g->duplicates, "errors", g->errors, "refused", p->refused, "rtt_ns",
                            rtt, "packets", p->packets));
}

static void sum_text(const struct pinging *p, const struct ping *g, const char *host)
{
        uint32_t lost = g->requests - MIN(g->replies, g->requests);

        printf("\n%s: %u sent, %u received, %u%% lost", host, g->requests, g->replies,
               g->requests != 0 ? lost * 100 / g->requests : 0);
        if (g->duplicates != 0)
                printf(", %u duplicates", g->duplicates);
        if (g->errors != 0)
                printf(", %u errors", g->errors);
        if (p->refused != 0)
                printf(", %u too long to be sent", p->refused);
        if (g->replies != 0)
                printf("\nround trip min/avg/max/mdev %.3f/%.3f/%.3f/%.3f ms",
                       (double)g->min / NS_PER_MS, (double)g->sum / g->replies / NS_PER_MS,
                       (double)g->max / NS_PER_MS, deviation(g) / NS_PER_MS);
        putchar('\n');
}

/* ---- what is asked for ---- */

static bool number(const char *text, double min, double max, double *out)
{
        char *end;

        *out = strtod(text, &end);
        return end != text && *end == '\0' && *out >= min && *out <= max;
}

static bool set_option(struct pinging *p, int opt, const char *arg)
{
        struct in_addr in;
        double v = 0;

        switch (opt) {
        case 'D':
                p->dont_frag = true;
                return true;
        case 'S':
                p->src = inet_pton(AF_INET, arg, &in) == 1 ? ip_addr_v4(ntohl(in.s_addr)) : p->src;
                return !ip_addr_is_any(p->src);
        case 'c':
                p->count = number(arg, 1, 1e9, &v) ? (uint32_t)v : 0;
                return p->count != 0;
        case 'i':
                p->interval = number(arg, 0.001, 3600, &v) ? (nstime)(v * NS_PER_S) : 0;
                return p->interval != 0;
        case 's':
                p->size = number(arg, 0, PING_MAX_DATA, &v) ? (uint32_t)v : UINT32_MAX;
                return p->size <= PING_MAX_DATA;
        case 't':
                p->ttl = number(arg, 1, 255, &v) ? (uint8_t)v : 0;
                return p->ttl != 0;
        case 'k':
                p->stack = number(arg, 1, INT32_MAX, &v) ? (uint32_t)v : 0;
                return p->stack != 0;
        default:
                p->patience = number(arg, 0.001, 3600, &v) ? (nstime)(v * NS_PER_S) : 0;
                return p->patience != 0;
        }
}

static int ping_host(struct pinging *p, const char *host)
{
        const struct ping *g;
        const char *why = "no such host";
        char text[ADDRESS_TEXT];

        if (!find_host(host, &p->dst) || (why = find_way(p)) != NULL) {
                command_fail("%s: %s", host, why);
                return EXIT_USAGE; /* as ping(8) has it */
        }
        address_format(p->dst, text);
        if (!p->json)
                printf("%s (%s): %u bytes of data over U-Net\n", host, text, p->size);
        command_catch_signals();
        ustack_lock(p->us->u);
        stack_ping_begin(&p->us->u->s, p->dst);
        ustack_leave(p->us->u);
        why = run_pings(p);
        g = stack_ping_sum(&p->us->u->s);
        (p->json ? sum_json : sum_text)(p, g, host);
        if (why != NULL) {
                command_fail("%s: %s", host, why);
                return EXIT_USAGE;
        }
        return g->replies != 0 ? EXIT_DONE : EXIT_NOTHING;
}

static int run(const struct command *cmd, int argc, char **argv)
{
        static const struct option extra[] = {{"count", required_argument, NULL, 'c'},
                                              {"interval", required_argument, NULL, 'i'},
                                              {"size", required_argument, NULL, 's'},
                                              {"ttl", required_argument, NULL, 't'},
                                              {"timeout", required_argument, NULL, 'w'},
                                              {"stack", required_argument, NULL, 'k'},
                                              {"source", required_argument, NULL, 'S'},
                                              {"dont-fragment", no_argument, NULL, 'D'},
                                              {0}};
        struct pinging p = {.interval = NS_PER_S, .patience = 4 * NS_PER_S, .size = 56, .ttl = 64};
        const char *host = NULL;
        int opt, r;

        do {
                while ((opt = command_option(cmd, argc, argv, extra, &p.json)) != -1)
                        if (!set_option(&p, opt, optarg))
                                return command_usage(cmd, "\"%s\" is not a value of that option",
                                                     optarg);
                if (optind < argc && host != NULL)
                        return command_usage(cmd, "one host");
                host = optind < argc ? argv[optind++] : host;
        } while (optind < argc);
        if (host == NULL)
                return command_usage(cmd, "which host?");
        p.packets = json_array();
        r = ping_host(&p, host);
        json_decref(p.packets);
        if (p.us != NULL)
                usock_close(p.us);
        return r;
}

const struct command cmd_ping = {
        "ping",
        "[OPTION...] HOST",
        "asks a host over U-Net whether it is there (ICMP echo)",
        "  --count N          so many requests; until interrupted otherwise\n"
        "  --interval S       seconds between two [1]\n"
        "  --size N           bytes of data in each [56]\n"
        "  --ttl N            time to live [64]\n"
        "  --timeout S        seconds that the last one is waited for [4]\n"
        "  --dont-fragment    what is too long is not cut, and said to be too long\n"
        "  --source ADDRESS   our address to ask from, and so the interface\n"
        "  --stack N          the stack of this host with that number (unet status), whatever HOST "
        "is\n"
        "  --json             as JSON; times in nanoseconds\n"
        "\n"
        "HOST is asked by the interface of unetd's that leads there. An address of this host is\n"
        "asked of one of its stacks. Exit status: 0 when somebody answered, 1 when nobody did,\n"
        "2 for wrong usage and when nobody could be asked.\n",
        run,
};
