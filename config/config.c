/* Which keys there are, what values they take, and where the file is. */
#include "config/config.h"
#include "config/plain.h"
#include "config/route_text.h"
#include "config/rule_text.h"
#include "config/sections.h"
#include "tcp/tcp_cc.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum kind { NUMBER, SIGNED, TEXT, YES_NO, ECN, CONGESTION };

struct key {
        const char *section, *name, *text;
        enum kind kind;
        size_t off;
        long min, max; /* of numbers; TEXT: max is the size of the buffer */
};

// clang-format off
#define COUNT(section, name, field, min, max, text) \
        {section, name, text, NUMBER, offsetof(struct unetd_config, field), min, max}

#define YES(section, name, field, text) \
        {section, name, text, YES_NO, offsetof(struct unetd_config, field), 0, 1}
// clang-format on

static const char *const yes_no[] = {"no", "yes"};
static const char *const ecn[] = {
        [TCP_ECN_ACCEPT] = "accept", [TCP_ECN_NO] = "no", [TCP_ECN_ASK] = "ask"};
static const char *const congestion[] = {[TCP_CC_CUBIC] = "cubic",
                                         [TCP_CC_RENO] = "reno",
                                         [TCP_CC_BBR] = "bbr",
                                         [TCP_CC_DCTCP] = "dctcp"};
static_assert(ARRAY_LEN(congestion) == TCP_CC_COUNT, "each has its name");

/* Of which there is one, in a byte. */
static const struct {
        const char *const *name;
        unsigned n;
        const char *all;
} word_kinds[] = {
        [ECN] = {ecn, ARRAY_LEN(ecn), "accept, no or ask"},
        [CONGESTION] = {congestion, ARRAY_LEN(congestion), "cubic, reno, bbr or dctcp"},
};

static const struct key keys[] = {
        {"daemon", "idle", "seconds without clients and stacks after which unetd leaves; -1: never",
         SIGNED, offsetof(struct unetd_config, idle_s), -1, 86400},
        {"daemon", "log", "file that unetd writes what happens to; empty: none", TEXT,
         offsetof(struct unetd_config, log), 0, sizeof(((struct unetd_config *)0)->log)},
        COUNT("daemon", "lease_ports", lease_ports, 1, 4096,
              "client ports that a stack gets at once"),
        COUNT("daemon", "queue", queue_max, 1, 65536,
              "replies kept for a client that does not read them"),
        COUNT("limits", "clients", per_uid.clients, 1, 1048576, "connections to unetd of one user"),
        COUNT("limits", "stacks", per_uid.stacks, 1, 1048576, "stacks of one user"),
        COUNT("limits", "processes", per_uid.procs, 1, 1048576,
              "processes in all stacks of one user"),
        COUNT("limits", "channels", per_uid.chans, 1, 1048576, "channels of one user"),
        COUNT("limits", "channels_per_stack", per_uid.chans_per_stack, 1, 1024,
              "channels of one stack"),
        COUNT("limits", "listeners", per_uid.listeners, 1, 12288, "listening ports of one user"),
        COUNT("limits", "holds", per_uid.holds, 1, 65536, "ports held in the kernel for one user"),
        COUNT("limits", "leases", per_uid.leases, 4, 65536, "client ports of one user"),
        COUNT("limits", "emulated", per_uid.emul_endpoints, 1, 1023,
              "emulated endpoints of one user"),
        COUNT("limits", "emulated_names", per_uid.emul_names, 1, 65536,
              "names that emulated endpoints listen on"),
        COUNT("limits", "emulated_channels", per_uid.emul_chans, 2, 4096,
              "ends of channels between emulated endpoints"),
        COUNT("limits", "emulated_waiting_kb", per_uid.emul_kb, 64, 4194304,
              "KB of messages of emulated endpoints that wait for their receivers"),
        COUNT("limits", "emulated_waiting", per_uid.emul_msgs, 1, 1048576,
              "such messages with more than a descriptor"),
        COUNT("ip", "ttl", ip_ttl, 1, 255,
              "time to live of packets for which no socket says another"),
        YES("ip", "source_routes", source_routes,
            "whether packets that came by a source route are taken, and answered along it"),
        YES("ip", "redirects", redirects,
            "whether gateways on interfaces may name better ones (ICMP redirects)"),
        COUNT("ip", "arp_reachable", arp_reachable_s, 1, 86400,
              "seconds that a neighbour is good without a sign of life"),
        {"tcp", "ecn",
         "marks of congestion instead of losses (RFC 3168): accept where peers ask for them, no, "
         "or ask",
         ECN, offsetof(struct unetd_config, tcp_ecn), 0, 0},
        {"tcp", "congestion",
         "congestion control of connections that choose none: cubic, reno, bbr or dctcp",
         CONGESTION, offsetof(struct unetd_config, tcp_cc), 0, 0},
        COUNT("memory", "large_frames", geom.count[FRAME_LARGE], 16, 65536,
              "64 KB frames that a channel can send from, each way"),
        COUNT("memory", "small_frames", geom.count[FRAME_SMALL], 64, 1048576,
              "2 KB frames that a channel can send from, each way"),
};

/* ---- one line ---- */

struct reading {
        struct unetd_config *c;
        struct config_error *err;
        uint64_t seen;                     /* bit of each key */
        uint32_t seen_iface[UNETD_IFACES]; /* ... of each interface's */
        int line_of[UNETD_IFACES]; /* where each interface's section begins; 0: not from a file */
        uint32_t seen_rule[RULES_MAX]; /* bit of each key of a rule's, ... */
        int line_of_rule[RULES_MAX];   /* ... and where its section begins */
        struct route_table *routes;    /* second reading: what the routes are checked against */
        bool failed;
};
static_assert(ARRAY_LEN(keys) <= 64, "one bit each in struct reading");

/* Keeps the first complaint; inih reports the line of the same one. */
static int complain(struct reading *r, const char *format, const char *a, const char *b)
{
        if (!r->failed)
                snprintf(r->err->text, sizeof r->err->text, format, a, b);
        r->failed = true;
        return 0;
}

static const struct key *find_key(const char *section, const char *name)
{
        for (size_t i = 0; i < ARRAY_LEN(keys); i++)
                if (strcmp(keys[i].section, section) == 0 && strcmp(keys[i].name, name) == 0)
                        return &keys[i];
        return NULL;
}

static bool known_section(const char *section)
{
        for (size_t i = 0; i < ARRAY_LEN(keys); i++)
                if (strcmp(keys[i].section, section) == 0)
                        return true;
        return false;
}

static int set_text(struct reading *r, const struct key *k, const char *value)
{
        if (strlen(value) >= (size_t)k->max)
                return complain(r, "the value of \"%s\" is too long%s", k->name, "");
        memcpy((char *)r->c + k->off, value, strlen(value) + 1);
        return 1;
}

static int set_number(struct reading *r, const struct key *k, const char *value)
{
        char range[64], *end;
        long v;

        errno = 0;
        v = strtol(value, &end, 10);
        if (end == value || *end || errno != 0 || v < k->min || v > k->max) {
                snprintf(range, sizeof range, "%ld to %ld", k->min, k->max);
                return complain(r, "\"%s\" wants a number from %s", k->name, range);
        }
        *(int32_t *)((char *)r->c + k->off) = (int32_t)v;
        return 1;
}

static int set_yes_no(struct reading *r, const struct key *k, const char *value)
{
        bool yes = strcmp(value, "yes") == 0;

        if (!yes && strcmp(value, "no") != 0)
                return complain(r, "\"%s\" is yes or no%s", k->name, "");
        *(uint32_t *)((char *)r->c + k->off) = yes;
        return 1;
}

/* ---- [interface NAME] ---- */

#define IFACE_SECTION "interface "

static const char *const probes[] = {
        [IFACE_PROBE_QUICK] = "quick", [IFACE_PROBE_FULL] = "full", [IFACE_PROBE_NO] = "no"};
static const char *const checks[] = {
        [IFACE_CHECK_AUTO] = "auto", [IFACE_CHECK_YES] = "yes", [IFACE_CHECK_NO] = "no"};
static const char *const modes[] = {[IFACE_AUTO] = "auto",
                                    [IFACE_NATIVE] = "native",
                                    [IFACE_GENERIC] = "generic",
                                    [IFACE_TCX] = "tcx"};

static const char *const providers[] = {[IFACE_BEST] = "auto",
                                        [IFACE_XDP] = "xdp",
                                        [IFACE_PACKET] = "packet",
                                        [IFACE_VERBS] = "verbs"};

static const struct {
        const char *name, *text;
} iface_keys[] = {
        {"address", "IPv4 address and length of its network's prefix, as in 192.0.2.1/24"},
        {"gateway", "IPv4 address of the router to everywhere else"},
        {"metric", "of the route by the gateway; among several, the smallest is taken first"},
        {"route",
         "another route: PREFIX [via GATEWAY] [metric NUMBER] [src ADDRESS] [mtu BYTES] [onlink]"},
        {"neighbour",
         "address of a host on the network and its link address, for which ARP is not asked"},
        {"mode",
         "how the program that takes its packets is attached: auto, native, generic or tcx"},
        {"check", "whether what a program sends must be from the host's own addresses: yes, no, or "
                  "auto: of other users"},
        {"queue", "receive queue that is taken over"},
        {"probe", "whether somebody else has the address is asked first: quick, full (RFC 5227's "
                  "times) or no"},
        {"provider", "how packets travel: xdp, packet, or auto: xdp, and packet where that cannot "
                     "be; verbs: to hosts that run unetd, over "
                     "its RDMA device"},
        {"checksum",
         "verbs: whether transports sum all the same; no: not where the other host says so too"},
        {"pinned", "verbs: MB of memory that stacks may let the device touch"},
        {"silence", "verbs: seconds that another host's unetd may be silent before channels there "
                    "end; 0: for ever"},
};
enum {
        KEY_ADDRESS,
        KEY_GATEWAY,
        KEY_METRIC,
        KEY_ROUTE,
        KEY_NEIGHBOUR,
        KEY_MODE,
        KEY_CHECK,
        KEY_QUEUE,
        KEY_PROBE,
        KEY_PROVIDER,
        KEY_CHECKSUM,
        KEY_PINNED,
        KEY_SILENCE
};
static_assert(ARRAY_LEN(iface_keys) <= 32, "one bit each in struct reading");

/* May stand there again and again. */
static bool is_list(size_t key)
{
        return key == KEY_ROUTE || key == KEY_NEIGHBOUR;
}

static struct unetd_iface_config *iface_get(struct reading *r, const char *name)
{
        struct unetd_config *c = r->c;
        size_t len = strlen(name);

        for (uint32_t i = 0; i < c->nifaces; i++)
                if (strcmp(c->iface[i].name, name) == 0)
                        return &c->iface[i];
        if (len == 0 || len >= sizeof c->iface[0].name || strpbrk(name, "/ \t")) {
                complain(r, "\"%s\" is not an interface's name%s", name, "");
                return NULL;
        }
        if (c->nifaces == UNETD_IFACES) {
                complain(r, "there are too many interfaces%s%s", "", "");
                return NULL;
        }
        c->iface[c->nifaces] = (struct unetd_iface_config){
                .checksum = true, .pinned_mb = UNETD_PINNED_MB, .silence_s = UNETD_SILENCE_S};
        memcpy(c->iface[c->nifaces].name, name, len + 1);
        return &c->iface[c->nifaces++];
}

static int set_address(struct reading *r, struct unetd_iface_config *i, const char *value)
{
        char addr[INET_ADDRSTRLEN], *end;
        const char *slash = strchr(value, '/');
        long prefix;

        if (slash && slash > value && (size_t)(slash - value) < sizeof addr &&
            isdigit((unsigned char)slash[1])) {
                memcpy(addr, value, (size_t)(slash - value));
                addr[slash - value] = '\0';
                prefix = strtol(slash + 1, &end, 10);
                if (!*end && prefix >= 1 && prefix <= 32 && text_host_addr(addr, &i->addr)) {
                        i->prefix = (uint8_t)prefix;
                        return 1;
                }
        }
        return complain(r, "\"%s\" wants an address and a prefix, as in 192.0.2.1/24%s", "address",
                        "");
}

/* One of a few words, by its number. */
static int set_word(struct reading *r, uint8_t *out, const char *key, const char *value,
                    const char *const words[], size_t n, const char *wanted)
{
        for (size_t i = 0; i < n; i++) {
                if (strcmp(value, words[i]) == 0) {
                        *out = (uint8_t)i;
                        return 1;
                }
        }
        return complain(r, "\"%s\" wants %s", key, wanted);
}

static int number_from(struct reading *r, const char *key, const char *value, long low, long high,
                       const char *range, long *out)
{
        char *end;
        long v = strtol(value, &end, 10);

        if (end == value || *end || v < low || v > high)
                return complain(r, "\"%s\" wants a number from %s", key, range);
        *out = v;
        return 1;
}

static int set_queue(struct reading *r, struct unetd_iface_config *i, const char *value)
{
        long v;
        int set = number_from(r, "queue", value, 0, 4095, "0 to 4095", &v);

        if (set)
                i->queue = (uint16_t)v;
        return set;
}

static int set_pinned(struct reading *r, struct unetd_iface_config *i, const char *value)
{
        long v;
        int set = number_from(r, "pinned", value, 0, 1 << 20, "0 to 1048576", &v);

        if (set)
                i->pinned_mb = (uint32_t)v;
        return set;
}

static int set_silence(struct reading *r, struct unetd_iface_config *i, const char *value)
{
        long v;
        int set = number_from(r, "silence", value, 0, 1 << 30, "0 to 1073741824", &v);

        if (set)
                i->silence_s = v;
        return set;
}

static int set_metric(struct reading *r, struct unetd_iface_config *i, const char *value)
{
        long v;
        int set = number_from(r, "metric", value, 0, UINT32_MAX, "0 to 4294967295", &v);

        if (set)
                i->metric = (uint32_t)v;
        return set;
}

/* The words only; check_routes() looks whether they make sense together. */
static int add_route(struct reading *r, const struct unetd_iface_config *i, const char *value)
{
        struct unetd_config *c = r->c;
        struct route_text t;
        const char *why = route_text_parse(value, &t);

        if (!why && t.dev[0] != '\0')
                why = "is of its section's interface, and takes no \"dev\"";
        if (why)
                return complain(r, "\"%s\" %s", "route", why);
        if (c->nroutes == NETCONF_ROUTES - UNETD_IFACES)
                return complain(r, "there are too many routes%s%s", "", "");
        t.r.ifindex = (uint8_t)(i - c->iface + 1);
        c->route[c->nroutes++] = t.r;
        return 1;
}

static int add_neighbour(struct reading *r, const struct unetd_iface_config *i, const char *value)
{
        struct unetd_config *c = r->c;
        struct neigh_text t;
        const char *why = neigh_text_parse(value, false, &t);

        if (!why && t.dev[0] != '\0')
                why = "is on its section's interface, and takes no \"dev\"";
        if (why)
                return complain(r, "\"%s\" %s", "neighbour", why);
        if (c->nneighs == NETCONF_NEIGHS)
                return complain(r, "there are too many neighbours%s%s", "", "");
        t.n.ifindex = (uint8_t)(i - c->iface + 1);
        c->neigh[c->nneighs++] = t.n;
        return 1;
}

/* The older name of `provider`, for interfaces that are not of verbs: there it said nothing. */
static int set_link(struct reading *r, struct unetd_iface_config *i, const char *value)
{
        uint8_t provider = IFACE_BEST;
        int ok = set_word(r, &provider, "link", value, providers, IFACE_VERBS,
                          "auto, xdp or packet");

        if (ok && i->provider != IFACE_VERBS)
                i->provider = provider;
        r->c->said_link = true;
        return ok;
}

static int iface_line(struct reading *r, const char *section, const char *name, const char *value)
{
        struct unetd_iface_config *i = iface_get(r, section + strlen(IFACE_SECTION));
        uint32_t *seen;
        size_t k = 0;

        if (!i)
                return 0;
        if (strcmp(name, "link") == 0)
                return set_link(r, i, value);
        while (k < ARRAY_LEN(iface_keys) && strcmp(iface_keys[k].name, name) != 0)
                k++;
        if (k == ARRAY_LEN(iface_keys))
                return complain(r, "unknown key \"%s\" in [%s]", name, section);
        seen = &r->seen_iface[i - r->c->iface];
        if (*seen >> k & 1 && !is_list(k))
                return complain(r, "\"%s\" is set twice%s", name, "");
        *seen |= 1u << k;
        switch (k) {
        case KEY_ADDRESS:
                return set_address(r, i, value);
        case KEY_GATEWAY:
                if (*value == '\0' || text_host_addr(value, &i->gateway))
                        return 1;
                return complain(r, "\"%s\" wants an IPv4 address%s", name, "");
        case KEY_METRIC:
                return set_metric(r, i, value);
        case KEY_ROUTE:
                return add_route(r, i, value);
        case KEY_NEIGHBOUR:
                return add_neighbour(r, i, value);
        case KEY_MODE:
                return set_word(r, &i->mode, name, value, modes, ARRAY_LEN(modes),
                                "auto, native, generic or tcx");
        case KEY_CHECK:
                return set_word(r, &i->check, name, value, checks, ARRAY_LEN(checks),
                                "auto, yes or no");
        case KEY_PROBE:
                return set_word(r, &i->probe, name, value, probes, ARRAY_LEN(probes),
                                "quick, full or no");
        case KEY_PROVIDER:
                return set_word(r, &i->provider, name, value, providers, ARRAY_LEN(providers),
                                "auto, xdp, packet or verbs");
        case KEY_CHECKSUM:
                return set_word(r, &i->checksum, name, value, yes_no, ARRAY_LEN(yes_no),
                                "yes or no");
        case KEY_PINNED:
                return set_pinned(r, i, value);
        case KEY_SILENCE:
                return set_silence(r, i, value);
        default:
                return set_queue(r, i, value);
        }
}

/* ---- [rule NAME] ---- */

#define RULE_SECTION "rule "

static bool is_section_of(const char *section, const char *kind)
{
        return strncmp(section, kind, strlen(kind)) == 0;
}

static struct rule *rule_get(struct reading *r, const char *name)
{
        struct unetd_config *c = r->c;
        size_t len = strlen(name);

        for (uint32_t i = 0; i < c->nrules; i++)
                if (strcmp(c->rule[i].name, name) == 0)
                        return &c->rule[i];
        if (len == 0 || len >= RULE_NAME) {
                complain(r, "\"%s\" is not a rule's name: 1 to 23 bytes%s", name, "");
                return NULL;
        }
        if (c->nrules == RULES_MAX) {
                complain(r, "there are too many rules%s%s", "", "");
                return NULL;
        }
        c->rule[c->nrules] = RULE_BLANK;
        memcpy(c->rule[c->nrules].name, name, len + 1);
        return &c->rule[c->nrules++];
}

static int rule_line(struct reading *r, const char *section, const char *name, const char *value)
{
        struct rule *rule = rule_get(r, section + strlen(RULE_SECTION));
        unsigned k = 0;
        const char *wrong;

        if (!rule)
                return 0;
        while (k < RULE_KEYS && strcmp(rule_key_name(k), name) != 0)
                k++;
        if (k == RULE_KEYS)
                return complain(r, "unknown key \"%s\" in [%s]", name, section);
        if (r->seen_rule[rule - r->c->rule] >> k & 1)
                return complain(r, "\"%s\" is set twice%s", name, "");
        r->seen_rule[rule - r->c->rule] |= 1u << k;
        wrong = rule_set(rule, k, value);
        return wrong ? complain(r, "\"%s\" %s", name, wrong) : 1;
}

/* One that says nothing is a mistake. */
static int check_rules(struct reading *r)
{
        for (uint32_t k = 0; k < r->c->nrules; k++) {
                if (r->c->rule[k].carrier != RULE_UNSAID)
                        continue;
                complain(r, "[rule %s] has no \"%s\"", r->c->rule[k].name,
                         rule_key_name(RULE_KEY_CARRIER));
                r->err->line = r->line_of_rule[k];
                return -EINVAL;
        }
        return 0;
}

/* What only the whole file can show. */
static const char *iface_wrong(const struct unetd_iface_config *i)
{
        uint32_t mask = i->prefix ? ~0u << (32 - i->prefix) : 0;

        if (i->addr == 0)
                return "has no address";
        if (i->prefix < 31 && (i->addr & ~mask) == 0)
                return "has its network's address, not a host's";
        if (i->prefix < 31 && (i->addr | mask) == ~0u)
                return "has its network's broadcast address, not a host's";
        if (i->gateway != 0 && i->prefix != 32 && (i->gateway & mask) != (i->addr & mask))
                return "has a gateway outside its network";
        if (i->gateway == i->addr)
                return "is its own gateway";
        if (i->gateway != 0 && i->provider == IFACE_VERBS)
                return "has a gateway: hosts are met over verbs on their own network";
        return NULL;
}

int config_iface(const char *name, int n, char *const word[], struct unetd_iface_config *out,
                 struct config_error *err)
{
        struct unetd_config c = UNETD_CONFIG_DEFAULT;
        struct reading r = {.c = &c, .err = err};
        char section[64];
        const char *why;

        snprintf(section, sizeof section, IFACE_SECTION "%s", name);
        for (int i = 0; i < n && !r.failed; i += i == 0 ? 1 : 2) {
                if (i > 0 && (strcmp(word[i], "route") == 0 || strcmp(word[i], "neighbour") == 0))
                        complain(&r, "\"%s\" is for `unet route` and `unet arp`%s", word[i], "");
                else if (i > 0 && i + 1 == n)
                        complain(&r, "\"%s\" wants a value%s", word[i], "");
                else
                        iface_line(&r, section, i == 0 ? "address" : word[i],
                                   word[i == 0 ? 0 : i + 1]);
        }
        why = r.failed ? NULL : c.nifaces == 0 ? "has no address" : iface_wrong(&c.iface[0]);
        if (why)
                complain(&r, "the interface %s%s", why, "");
        if (r.failed)
                return -EINVAL;
        *out = c.iface[0];
        return 0;
}

static int check_ifaces(struct reading *r)
{
        for (uint32_t k = 0; k < r->c->nifaces; k++) {
                const struct unetd_iface_config *i = &r->c->iface[k];
                const char *wrong = iface_wrong(i);
                for (uint32_t other = 0; !wrong && other < k; other++)
                        if (r->c->iface[other].addr == i->addr)
                                wrong = "has another one's address";
                if (wrong) {
                        complain(r, "[interface %s] %s", i->name, wrong);
                        r->err->line = r->line_of[k];
                        return -EINVAL;
                }
        }
        return 0;
}

/* ---- the second reading: what an interface's lines mean together ---- */

static const char *route_wrong(int err)
{
        switch (err) {
        case -ENETUNREACH:
                return "has a gateway outside the interface's networks";
        case -EADDRNOTAVAIL:
                return "has a source that is no interface's address";
        case -EEXIST:
                return "is there already";
        case -ENOSPC:
                return "is one too many";
        default:
                return "has a gateway that is no other host's address";
        }
}

/* The routes are taken up again, in their order. */
static int check_route_line(struct reading *r, const struct unetd_iface_config *i,
                            const char *value)
{
        struct route_text t;
        int err;

        route_text_parse(value, &t);
        t.r.ifindex = (uint8_t)(i - r->c->iface + 1);
        err = route_add(r->routes, &t.r);
        return err == 0 ? 1 : complain(r, "\"%s\" %s", "route", route_wrong(err));
}

static int check_neighbour_line(struct reading *r, const struct unetd_iface_config *i,
                                const char *value)
{
        uint32_t mask = i->prefix ? ~0u << (32 - i->prefix) : 0;
        struct neigh_text t;

        neigh_text_parse(value, false, &t);
        if (((t.n.addr ^ i->addr) & mask) == 0 && t.n.addr != i->addr)
                return 1;
        return complain(r, "\"%s\" %s", "neighbour", "is no other host on the interface's network");
}

static int line_again(void *arg, const char *section, const char *name, const char *value)
{
        struct reading *r = arg;
        const struct unetd_iface_config *i;

        if (strncmp(section, IFACE_SECTION, strlen(IFACE_SECTION)) != 0)
                return 1;
        i = iface_get(r, section + strlen(IFACE_SECTION));
        if (strcmp(name, iface_keys[KEY_ROUTE].name) == 0)
                return check_route_line(r, i, value);
        if (strcmp(name, iface_keys[KEY_NEIGHBOUR].name) == 0)
                return check_neighbour_line(r, i, value);
        return 1;
}

static void add_ifaces(const struct unetd_config *c, struct route_table *t)
{
        static const uint8_t any[16];

        route_format(t, any);
        for (uint32_t k = 0; k < c->nifaces; k++) {
                const struct unetd_iface_config *i = &c->iface[k];
                struct route r = config_gateway(c, k);

                route_if_set(t, k + 1, ROUTE_IF_UP | ROUTE_IF_BROADCAST, 1500);
                route_addr_add(t, k + 1, i->addr, i->prefix);
                if (i->gateway != 0)
                        route_add(t, &r);
        }
}

static int check_routes(struct reading *r, const char *path)
{
        int line;

        if (r->c->nroutes == 0 && r->c->nneighs == 0)
                return 0;
        r->routes = malloc(sizeof *r->routes);
        if (!r->routes)
                return -ENOMEM;
        add_ifaces(r->c, r->routes);
        line = ini_parse(path, line_again, r);
        free(r->routes);
        r->err->line = MAX(line, 0);
        return line == 0 ? 0 : -EINVAL;
}

struct route config_gateway(const struct unetd_config *c, uint32_t k)
{
        const struct unetd_iface_config *i = &c->iface[k];

        return (struct route){.gateway = i->gateway,
                              .metric = i->metric,
                              .ifindex = (uint8_t)(k + 1),
                              .flags = i->prefix == 32 ? ROUTE_F_ONLINK : 0};
}

static int one_line(void *arg, const char *section, const char *name, const char *value)
{
        struct reading *r = arg;
        const struct key *k = find_key(section, name);

        if (strncmp(section, IFACE_SECTION, strlen(IFACE_SECTION)) == 0)
                return iface_line(r, section, name, value);
        if (is_section_of(section, RULE_SECTION))
                return rule_line(r, section, name, value);
        if (!k && *section == '\0')
                return complain(r, "\"%s\" stands before any [section]%s", name, "");
        if (!k && !known_section(section))
                return complain(r, "there is no section [%s]%s", section, "");
        if (!k)
                return complain(r, "unknown key \"%s\" in [%s]", name, section);
        if (r->seen >> (k - keys) & 1)
                return complain(r, "\"%s\" is set twice%s", name, "");
        r->seen |= (uint64_t)1 << (k - keys);
        if (k->kind == YES_NO)
                return set_yes_no(r, k, value);
        if (k->kind >= ECN)
                return set_word(r, (uint8_t *)r->c + k->off, name, value, word_kinds[k->kind].name,
                                word_kinds[k->kind].n, word_kinds[k->kind].all);
        return k->kind == TEXT ? set_text(r, k, value) : set_number(r, k, value);
}

/* ---- the file ---- */

/* Where the section of that name begins. */
static int *line_of_section(struct reading *r, const char *section)
{
        static int nowhere;
        const struct unetd_iface_config *i;
        const struct rule *rule;

        if (is_section_of(section, IFACE_SECTION)) {
                i = iface_get(r, section + strlen(IFACE_SECTION));
                return i != NULL ? &r->line_of[i - r->c->iface] : &nowhere;
        }
        if (is_section_of(section, RULE_SECTION)) {
                rule = rule_get(r, section + strlen(RULE_SECTION));
                return rule != NULL ? &r->line_of_rule[rule - r->c->rule] : &nowhere;
        }
        if (!known_section(section))
                complain(r, "there is no section [%s]%s", section, "");
        return &nowhere;
}

static bool one_section(void *arg, const char *section, int line)
{
        struct reading *r = arg;
        int *begins = line_of_section(r, section);

        if (r->failed)
                r->err->line = line;
        else if (*begins == 0)
                *begins = line;
        return !r->failed;
}

int config_read(const char *path, struct unetd_config *c, struct config_error *err)
{
        struct unetd_config copy = *c;
        struct reading r = {.c = &copy, .err = err};
        const char *wrong;
        int line, why;

        *err = (struct config_error){0};
        snprintf(err->path, sizeof err->path, "%s", path);
        why = config_plain(path, &line, &wrong);
        if (why < 0) {
                bool text = why == -EINVAL;

                err->line = text ? line : 0;
                snprintf(err->text, sizeof err->text, "%s", text ? wrong : strerror(-why));
                return why;
        }
        errno = 0;
        line = ini_parse(path, one_line, &r);
        if (line < 0) {
                why = errno ? errno : ENOMEM;
                snprintf(err->text, sizeof err->text, "%s", strerror(why));
                return -why;
        }
        if (line > 0) {
                err->line = line;
                if (!r.failed)
                        snprintf(err->text, sizeof err->text,
                                 "not \"key = value\" and not \"[section]\"");
                return -EINVAL;
        }
        line = config_sections(path, one_section, &r);
        if (line < 0) {
                snprintf(err->text, sizeof err->text, "%s", strerror(-line));
                return line;
        }
        if (r.failed || check_ifaces(&r) < 0 || check_rules(&r) < 0 || check_routes(&r, path) < 0)
                return -EINVAL;
        *c = copy;
        return 0;
}

/* dir/unet.conf or dir/sub/unet.conf, if it can be read. */
static bool try_dir(char path[CONFIG_PATH_MAX], const char *dir, const char *sub)
{
        if (!dir || dir[0] != '/')
                return false;
        return snprintf(path, CONFIG_PATH_MAX, "%s%s/unet.conf", dir, sub) < CONFIG_PATH_MAX &&
               access(path, F_OK) == 0;
}

static const char *home(void)
{
        const char *dir = secure_getenv("HOME");
        const struct passwd *pw = dir ? NULL : getpwuid(geteuid());

        return dir ? dir : pw ? pw->pw_dir : NULL;
}

bool config_find(char path[CONFIG_PATH_MAX])
{
        const char *named = secure_getenv("UNET_CONFIG"), *xdg = secure_getenv("XDG_CONFIG_HOME");

        if (named) {
                snprintf(path, CONFIG_PATH_MAX, "%s", named);
                return *named != '\0';
        }
        return (xdg && *xdg ? try_dir(path, xdg, "") : try_dir(path, home(), "/.config")) ||
               try_dir(path, "/etc", "") || try_dir(path, "/etc", "/unet");
}

int config_load(struct unetd_config *c, struct config_error *err)
{
        char path[CONFIG_PATH_MAX];

        return config_find(path) ? config_read(path, c, err) : 0;
}

void config_complain(const struct config_error *err)
{
        if (err->line > 0)
                fprintf(stderr, "%s:%d: %s\n", err->path, err->line, err->text);
        else
                fprintf(stderr, "%s: %s\n", err->path, err->text);
}

static void put_addr(char *out, size_t room, uint32_t addr, int prefix)
{
        struct in_addr in = {htonl(addr)};
        char text[INET_ADDRSTRLEN];

        inet_ntop(AF_INET, &in, text, sizeof text);
        if (addr == 0)
                *out = '\0';
        else if (prefix >= 0)
                snprintf(out, room, "%s/%d", text, prefix);
        else
                snprintf(out, room, "%s", text);
}

typedef void row_fn(void *arg, const char *section, const char *key, const char *value,
                    const char *text);

static void each_route(const struct unetd_config *c, uint8_t ifindex, const char *section,
                       row_fn *row, void *arg)
{
        char text[ROUTE_TEXT_MAX];

        for (uint32_t k = 0; k < c->nroutes; k++) {
                if (c->route[k].ifindex != ifindex)
                        continue;
                route_text_put(&c->route[k], NULL, text);
                row(arg, section, iface_keys[KEY_ROUTE].name, text, iface_keys[KEY_ROUTE].text);
        }
        for (uint32_t k = 0; k < c->nneighs; k++) {
                const struct netconf_neigh *n = &c->neigh[k];
                if (n->ifindex != ifindex)
                        continue;
                put_addr(text, sizeof text, n->addr, -1);
                snprintf(text + strlen(text), 20, " %02x:%02x:%02x:%02x:%02x:%02x", n->mac[0],
                         n->mac[1], n->mac[2], n->mac[3], n->mac[4], n->mac[5]);
                row(arg, section, iface_keys[KEY_NEIGHBOUR].name, text,
                    iface_keys[KEY_NEIGHBOUR].text);
        }
}

static void each_of_iface(const struct unetd_config *c, uint32_t number,
                          void (*row)(void *arg, const char *section, const char *key,
                                      const char *value, const char *text),
                          void *arg)
{
        const struct unetd_iface_config *i = &c->iface[number];
        char section[32], value[ARRAY_LEN(iface_keys)][32];

        snprintf(section, sizeof section, IFACE_SECTION "%s", i->name);
        put_addr(value[KEY_ADDRESS], sizeof value[0], i->addr, i->prefix);
        put_addr(value[KEY_GATEWAY], sizeof value[0], i->gateway, -1);
        snprintf(value[KEY_METRIC], sizeof value[0], "%u", i->metric);
        snprintf(value[KEY_MODE], sizeof value[0], "%s", modes[i->mode]);
        snprintf(value[KEY_QUEUE], sizeof value[0], "%u", i->queue);
        snprintf(value[KEY_CHECK], sizeof value[0], "%s", checks[i->check]);
        snprintf(value[KEY_PROBE], sizeof value[0], "%s", probes[i->probe]);
        snprintf(value[KEY_PROVIDER], sizeof value[0], "%s", providers[i->provider]);
        snprintf(value[KEY_CHECKSUM], sizeof value[0], "%s", yes_no[i->checksum]);
        snprintf(value[KEY_PINNED], sizeof value[0], "%u", i->pinned_mb);
        snprintf(value[KEY_SILENCE], sizeof value[0], "%lld", (long long)i->silence_s);
        for (size_t k = 0; k < ARRAY_LEN(iface_keys); k++)
                if (!is_list(k))
                        row(arg, section, iface_keys[k].name, value[k], iface_keys[k].text);
        each_route(c, (uint8_t)(number + 1), section, row, arg);
}

static void each_of_rule(const struct rule *rule, row_fn *row, void *arg)
{
        char section[sizeof RULE_SECTION + RULE_NAME], value[RULE_PROGRAM];

        snprintf(section, sizeof section, RULE_SECTION "%s", rule->name);
        for (unsigned k = 0; k < RULE_KEYS; k++) {
                rule_put(rule, k, value);
                row(arg, section, rule_key_name(k), value, rule_key_text(k));
        }
}

void config_each(const struct unetd_config *c,
                 void (*row)(void *arg, const char *section, const char *key, const char *value,
                             const char *text),
                 void *arg)
{
        for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
                const char *at = (const char *)c + keys[i].off;
                char number[16];

                snprintf(number, sizeof number, "%d",
                         keys[i].kind == TEXT || keys[i].kind >= ECN ? 0 : *(const int32_t *)at);
                if (keys[i].kind == YES_NO)
                        row(arg, keys[i].section, keys[i].name, yes_no[*(const uint32_t *)at],
                            keys[i].text);
                else if (keys[i].kind >= ECN)
                        row(arg, keys[i].section, keys[i].name,
                            word_kinds[keys[i].kind].name[*(const uint8_t *)at], keys[i].text);
                else
                        row(arg, keys[i].section, keys[i].name, keys[i].kind == TEXT ? at : number,
                            keys[i].text);
        }
        for (uint32_t i = 0; i < c->nifaces; i++)
                each_of_iface(c, i, row, arg);
        for (uint32_t i = 0; i < c->nrules; i++)
                each_of_rule(&c->rule[i], row, arg);
}
