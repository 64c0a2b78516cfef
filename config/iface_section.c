/* Which keys an interface has, what values they take, and how these are written. */
#include "config/iface_section.h"
#include "config/route_text.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const yes_no[] = {"no", "yes"};
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

struct unetd_iface_config *iface_section_get(struct reading *r, const char *name)
{
        struct unetd_config *c = r->c;
        size_t len = strlen(name);

        for (uint32_t i = 0; i < c->nifaces; i++)
                if (strcmp(c->iface[i].name, name) == 0)
                        return &c->iface[i];
        if (len == 0 || len >= sizeof c->iface[0].name || strpbrk(name, "/ \t")) {
                reading_complain(r, "\"%s\" is not an interface's name%s", name, "");
                return NULL;
        }
        if (c->nifaces == UNETD_IFACES) {
                reading_complain(r, "there are too many interfaces%s%s", "", "");
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
        return reading_complain(r, "\"%s\" wants an address and a prefix, as in 192.0.2.1/24%s",
                                "address", "");
}

static int set_number(struct reading *r, struct unetd_iface_config *i, size_t key,
                      const char *value)
{
        static const long most[] = {[KEY_METRIC] = UINT32_MAX,
                                    [KEY_QUEUE] = 4095,
                                    [KEY_PINNED] = 1 << 20,
                                    [KEY_SILENCE] = 1 << 30};
        long v;

        if (!reading_number(r, iface_keys[key].name, value, 0, most[key], &v))
                return 0;
        if (key == KEY_METRIC)
                i->metric = (uint32_t)v;
        else if (key == KEY_QUEUE)
                i->queue = (uint16_t)v;
        else if (key == KEY_PINNED)
                i->pinned_mb = (uint32_t)v;
        else
                i->silence_s = v;
        return 1;
}

/* The words only; iface_routes_check() looks whether they make sense together. */
static int add_route(struct reading *r, const struct unetd_iface_config *i, const char *value)
{
        struct unetd_config *c = r->c;
        struct route_text t;
        const char *why = route_text_parse(value, &t);

        if (!why && t.dev[0] != '\0')
                why = "is of its section's interface, and takes no \"dev\"";
        if (why)
                return reading_complain(r, "\"%s\" %s", "route", why);
        if (c->nroutes == NETCONF_ROUTES - UNETD_IFACES)
                return reading_complain(r, "there are too many routes%s%s", "", "");
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
                return reading_complain(r, "\"%s\" %s", "neighbour", why);
        if (c->nneighs == NETCONF_NEIGHS)
                return reading_complain(r, "there are too many neighbours%s%s", "", "");
        t.n.ifindex = (uint8_t)(i - c->iface + 1);
        c->neigh[c->nneighs++] = t.n;
        return 1;
}

/* The older name of `provider`, for interfaces that are not of verbs: there it said nothing. */
static int set_link(struct reading *r, struct unetd_iface_config *i, const char *value)
{
        uint8_t provider = IFACE_BEST;
        int ok = reading_word(r, &provider, "link", value, providers, IFACE_VERBS,
                              "auto, xdp or packet");

        if (ok && i->provider != IFACE_VERBS)
                i->provider = provider;
        r->c->said_link = true;
        return ok;
}

int iface_section_line(struct reading *r, const char *section, const char *name, const char *value)
{
        struct unetd_iface_config *i = iface_section_get(r, section + strlen(IFACE_SECTION));
        uint32_t *seen;
        size_t k = 0;

        if (!i)
                return 0;
        if (strcmp(name, "link") == 0)
                return set_link(r, i, value);
        while (k < ARRAY_LEN(iface_keys) && strcmp(iface_keys[k].name, name) != 0)
                k++;
        if (k == ARRAY_LEN(iface_keys))
                return reading_complain(r, "unknown key \"%s\" in [%s]", name, section);
        seen = &r->seen_iface[i - r->c->iface];
        if (*seen >> k & 1 && !is_list(k))
                return reading_complain(r, "\"%s\" is set twice%s", name, "");
        *seen |= 1u << k;
        switch (k) {
        case KEY_ADDRESS:
                return set_address(r, i, value);
        case KEY_GATEWAY:
                if (*value == '\0' || text_host_addr(value, &i->gateway))
                        return 1;
                return reading_complain(r, "\"%s\" wants an IPv4 address%s", name, "");
        case KEY_ROUTE:
                return add_route(r, i, value);
        case KEY_NEIGHBOUR:
                return add_neighbour(r, i, value);
        case KEY_MODE:
                return reading_word(r, &i->mode, name, value, modes, ARRAY_LEN(modes),
                                    "auto, native, generic or tcx");
        case KEY_CHECK:
                return reading_word(r, &i->check, name, value, checks, ARRAY_LEN(checks),
                                    "auto, yes or no");
        case KEY_PROBE:
                return reading_word(r, &i->probe, name, value, probes, ARRAY_LEN(probes),
                                    "quick, full or no");
        case KEY_PROVIDER:
                return reading_word(r, &i->provider, name, value, providers, ARRAY_LEN(providers),
                                    "auto, xdp, packet or verbs");
        case KEY_CHECKSUM:
                return reading_word(r, &i->checksum, name, value, yes_no, ARRAY_LEN(yes_no),
                                    "yes or no");
        default:
                return set_number(r, i, k, value);
        }
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
                        reading_complain(&r, "\"%s\" is for `unet route` and `unet arp`%s", word[i],
                                         "");
                else if (i > 0 && i + 1 == n)
                        reading_complain(&r, "\"%s\" wants a value%s", word[i], "");
                else
                        iface_section_line(&r, section, i == 0 ? "address" : word[i],
                                           word[i == 0 ? 0 : i + 1]);
        }
        why = r.failed ? NULL : c.nifaces == 0 ? "has no address" : iface_wrong(&c.iface[0]);
        if (why)
                reading_complain(&r, "the interface %s%s", why, "");
        if (r.failed)
                return -EINVAL;
        *out = c.iface[0];
        return 0;
}

int iface_section_check(struct reading *r)
{
        for (uint32_t k = 0; k < r->c->nifaces; k++) {
                const struct unetd_iface_config *i = &r->c->iface[k];
                const char *wrong = iface_wrong(i);
                for (uint32_t other = 0; !wrong && other < k; other++)
                        if (r->c->iface[other].addr == i->addr)
                                wrong = "has another one's address";
                if (wrong) {
                        reading_complain(r, "[interface %s] %s", i->name, wrong);
                        r->err->line = r->line_of[k];
                        return -EINVAL;
                }
        }
        return 0;
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

static void each_route(const struct unetd_config *c, uint8_t ifindex, const char *section,
                       config_row_fn *row, void *arg)
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

void iface_section_rows(const struct unetd_config *c, uint32_t number, config_row_fn *row,
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
