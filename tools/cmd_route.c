/* unet route: where packets go by the interfaces that unetd owns. */
#include <stdio.h>
#include <string.h>

#include "config/route_text.h"
#include "tools/address.h"
#include "tools/net_change.h"
#include "tools/show.h"

static json_t *address_or_null(uint32_t a)
{
        return a != 0 ? address_json(ip_addr_v4(a)) : json_null();
}

static json_t *row_of(const struct directory *d, const struct route *r, const char *state)
{
        char prefix[32], name[16];

        route_text_prefix(r, prefix);
        return json_pack("{ss so ss si so so ss}", "prefix", prefix, "gateway",
                         address_or_null(r->gateway), "interface", net_ifname(d, r->ifindex, name),
                         "metric", r->metric, "source", address_or_null(r->src), "mtu",
                         r->mtu != 0 ? json_integer(r->mtu) : json_null(), "state", state);
}

static const char *state_of(const struct netconf *net, uint8_t ifindex, const char *up)
{
        return ifindex >= 1 && ifindex <= NETCONF_IFS && net->ifs[ifindex - 1].flags & NETCONF_IF_UP
                       ? up
                       : "down";
}

/* Networks that interfaces are on first, as they come with them. */
static void add_connected(json_t *rows, const struct directory *d, const struct netconf *net)
{
        for (uint32_t i = 0; i < NETCONF_IFS; i++) {
                const struct netconf_if *f = &net->ifs[i];
                uint32_t mask = f->prefix ? ~0u << (32 - f->prefix) : 0;
                struct route r = {.dst = f->addr & mask,
                                  .prefix = f->prefix,
                                  .src = f->addr,
                                  .ifindex = (uint8_t)(i + 1)};

                if (f->flags & NETCONF_IF_THERE && f->prefix < 32)
                        json_array_append_new(rows,
                                              row_of(d, &r, state_of(net, r.ifindex, "connected")));
        }
}

static int show(bool json)
{
        static const struct show_column cols[] = {
                {"prefix", "prefix", SHOW_PLAIN},       {"gateway", "gateway", SHOW_PLAIN},
                {"interface", "interface", SHOW_PLAIN}, {"metric", "metric", SHOW_PLAIN},
                {"source", "source", SHOW_PLAIN},       {"mtu", "mtu", SHOW_PLAIN},
                {"state", "state", SHOW_PLAIN}};
        struct unetd_client c = {0};
        json_t *rows = json_array();
        struct netconf net;
        const char *why = NULL;

        if (net_published(&c, &net, &why)) {
                add_connected(rows, c.dir, &net);
                for (uint32_t i = 0; i < MIN(net.nroutes, NETCONF_ROUTES); i++)
                        json_array_append_new(rows,
                                              row_of(c.dir, &net.route[i],
                                                     state_of(&net, net.route[i].ifindex, "set")));
                unetd_close(&c);
        }
        if (!why && json_array_size(rows) == 0)
                why = "unetd owns no interface (unet.conf(5) says how it gets one)";
        show_rows(rows, cols, ARRAY_LEN(cols), json);
        return why ? command_fail("%s", why) : EXIT_DONE;
}

static int change(const struct command *cmd, int argc, char **argv, bool add, bool json)
{
        struct unetd_net net = {.flags = 0};
        const char *why = "is too long";
        struct route_text t;
        char text[256];

        if (!net_words(argc, argv, text) || (why = route_text_parse(text, &t)) != NULL)
                return command_usage(cmd, "the route %s", why);
        if (add && t.r.gateway == 0 && t.dev[0] == '\0')
                return command_usage(cmd, "by which gateway (via) or interface (dev)?");
        net.route = t.r;
        net.flags = t.metric_said ? UNETD_NET_METRIC : 0;
        strcpy(net.iface, t.dev);
        return net_change(text, add ? UNETD_ROUTE_ADD : UNETD_ROUTE_DEL, &net, json);
}

static int run(const struct command *cmd, int argc, char **argv)
{
        return net_table(cmd, argc, argv, show, change);
}

const struct command cmd_route = {
        "route",
        "[show] [--json] | add|remove [--json] ROUTE",
        "where packets go by the interfaces that unetd owns",
        "  show     all routes (also without a verb)\n"
        "  add      adds ROUTE: PREFIX [via GATEWAY] [dev INTERFACE] [metric NUMBER]\n"
        "           [src ADDRESS] [mtu BYTES] [onlink]; PREFIX is as 192.0.2.0/24, or \"default\"\n"
        "  remove   removes the route to PREFIX; via, dev and metric say which of several\n"
        "  --json   as JSON\n"
        "\n"
        "Programs that run follow at once. Only root and the user whose unetd it is may add\n"
        "and remove. What is to stay belongs into unet.conf(5).\n",
        run,
};
