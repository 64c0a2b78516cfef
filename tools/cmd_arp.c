/* unet arp: the neighbours that stacks know on their interfaces, and those that are told. */
#include <stdio.h>
#include <string.h>

#include "config/route_text.h"
#include "tools/address.h"
#include "tools/net_change.h"
#include "tools/show.h"
#include "tools/stacks.h"

static json_t *ll_json(const struct arp_report *r)
{
        char text[3 * ARP_LL_MAX] = "";

        if (r->state < ARP_STALE)
                return json_null();
        for (unsigned i = 0; i < MIN(r->ll_len, ARP_LL_MAX); i++)
                snprintf(text + strlen(text), sizeof text - strlen(text), "%s%02x", i ? ":" : "",
                         r->ll[i]);
        return json_string(text);
}

static void add_neighbours(json_t *rows, const struct seen_stack *s, struct netif *n)
{
        const struct arp a = {.c = &n->arp};
        struct arp_report r;

        for (uint32_t i = 1; i <= ARP_ENTRIES; i++) {
                if (!arp_walk(&a, i, &r))
                        continue;
                json_array_append_new(
                        rows, json_pack("{so so so ss sb sI so si}", "interface",
                                        show_text(n->cfg.name, NETIF_NAME), "address",
                                        address_json(ip_addr_v4(r.ip)), "mac", ll_json(&r), "state",
                                        arp_state_name(r.state), "used", r.used, "waiting",
                                        (json_int_t)r.held_pkts, "confirmed",
                                        r.confirmed != 0 ? json_integer(s->now - r.confirmed)
                                                         : json_null(),
                                        "stack", s->id));
        }
}

static bool add_stack(void *arg, const struct seen_stack *s)
{
        for (uint32_t i = 0; i < MIN(s->view.st->netifs, NETIF_MAX); i++)
                if (stack_netif(s->view.st, i)->chan != 0)
                        add_neighbours(arg, s, stack_netif(s->view.st, i));
        return true;
}

static bool has_row(json_t *rows, const char *iface, json_t *address)
{
        json_t *row;
        size_t i;

        json_array_foreach (rows, i, row)
                if (strcmp(json_string_value(json_object_get(row, "interface")), iface) == 0 &&
                    json_equal(json_object_get(row, "address"), address))
                        return true;
        return false;
}

/* Told, and no stack has its interface. */
static void add_told(json_t *rows)
{
        struct unetd_client c = {0};
        struct netconf net;
        const char *why;

        if (!net_published(&c, &net, &why))
                return;
        for (uint32_t i = 0; i < MIN(net.nneighs, NETCONF_NEIGHS); i++) {
                const struct netconf_neigh *n = &net.neigh[i];
                struct arp_report r = {.state = ARP_STATIC, .ll_len = sizeof n->mac};
                json_t *address = address_json(ip_addr_v4(n->addr));
                char name[16];

                memcpy(r.ll, n->mac, sizeof n->mac);
                if (!has_row(rows, net_ifname(c.dir, n->ifindex, name), address))
                        json_array_append_new(rows, json_pack("{ss sO so ss sb si sn sn}",
                                                              "interface", name, "address", address,
                                                              "mac", ll_json(&r), "state",
                                                              arp_state_name(r.state), "used", 0,
                                                              "waiting", 0, "confirmed", "stack"));
                json_decref(address);
        }
        unetd_close(&c);
}

/* Stacks of other hosts, over RDMA: their link address is a queue pair, and who vouched for
 * it unetd. */
static bool add_remote(void *arg, const struct unetd_status_item *i)
{
        if (i->kind == UNETD_S_REMOTE)
                json_array_append_new(
                        arg, json_pack("{so so so ss sb si sn si}", "interface",
                                       show_text(i->qp.iface, sizeof i->qp.iface), "address",
                                       address_json(ip_addr_v4(i->qp.at)), "mac",
                                       json_sprintf("queue pair %u", i->qp.qpn), "state", "VOUCHED",
                                       "used", 1, "waiting", 0, "confirmed", "stack", i->stack));
        return true;
}

static void add_remotes(json_t *rows)
{
        struct unetd_client c = {0};

        if (unetd_open(&c, UNETD_NO_START) != 0)
                return;
        unetd_status(&c, add_remote, rows);
        unetd_close(&c);
}

static int show(bool json)
{
        static const struct show_column cols[] = {{"interface", "interface", SHOW_PLAIN},
                                                  {"address", "address", SHOW_PLAIN},
                                                  {"mac", "mac", SHOW_PLAIN},
                                                  {"state", "state", SHOW_PLAIN},
                                                  {"confirmed", "confirmed us", SHOW_US},
                                                  {"waiting", "waiting", SHOW_PLAIN},
                                                  {"stack", "stack", SHOW_PLAIN}};
        json_t *rows = json_array();
        const char *why = stacks_each(add_stack, rows);

        add_told(rows);
        add_remotes(rows);
        if (json_array_size(rows) > 0)
                why = NULL;
        show_rows(rows, cols, ARRAY_LEN(cols), json);
        return why ? command_fail("%s", why) : EXIT_DONE;
}

static int change(const struct command *cmd, int argc, char **argv, bool add, bool json)
{
        struct unetd_net net = {.flags = 0};
        const char *why = "is too long";
        struct neigh_text t;
        char text[256];

        if (!net_words(argc, argv, text) || (why = neigh_text_parse(text, !add, &t)) != NULL)
                return command_usage(cmd, "the neighbour %s", why);
        net.neigh = t.n;
        strcpy(net.iface, t.dev);
        return net_change(text, add ? UNETD_NEIGH_ADD : UNETD_NEIGH_DEL, &net, json);
}

static int run(const struct command *cmd, int argc, char **argv)
{
        return net_table(cmd, argc, argv, show, change);
}

const struct command cmd_arp = {
        "arp",
        "[show] [--json] | add [--json] ADDRESS MAC [dev INTERFACE] | remove [--json] ADDRESS [dev "
        "INTERFACE]",
        "neighbours on the interfaces of this user's stacks",
        "  show     all that are known (also without a verb)\n"
        "  add      tells the link address of a neighbour, whatever ARP says\n"
        "  remove   takes that back\n"
        "  --json   as JSON; times in nanoseconds\n"
        "\n"
        "Programs that run follow at once. Only root and the user whose unetd it is may add\n"
        "and remove. What is to stay belongs into unet.conf(5).\n"
        "Exit status 1 of show: there are no stacks, and nobody was told.\n",
        run,
};
