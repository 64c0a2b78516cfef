/* unet arp: the neighbours that stacks know on their interfaces. */
#include <stdio.h>
#include <string.h>

#include "tools/address.h"
#include "tools/command.h"
#include "tools/show.h"
#include "tools/stacks.h"

static json_t *ll_json(const struct arp_report *r)
{
        char text[3 * ARP_LL_MAX] = "";

        if (r->state < ARP_STALE)
                return json_null();
        for (unsigned i = 0; i < MIN(r->ll_len, ARP_LL_MAX); i++)
                snprintf(text + strlen(text), sizeof text - strlen(text), "%s%02x", i ? ":" : "", r->ll[i]);
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
                        rows, json_pack("{so so so ss sb sI so si}", "interface", show_text(n->cfg.name, NETIF_NAME),
                                        "address", address_json(ip_addr_v4(r.ip)), "mac", ll_json(&r), "state",
                                        arp_state_name(r.state), "used", r.used, "waiting", (json_int_t)r.held_pkts,
                                        "confirmed",
                                        r.confirmed != 0 ? json_integer(s->now - r.confirmed) : json_null(), "stack",
                                        s->id));
        }
}

static bool add_stack(void *arg, const struct seen_stack *s)
{
        for (uint32_t i = 0; i < MIN(s->view.st->netifs, NETIF_MAX); i++)
                if (stack_netif(s->view.st, i)->chan != 0)
                        add_neighbours(arg, s, stack_netif(s->view.st, i));
        return true;
}

static int run(const struct command *cmd, int argc, char **argv)
{
        static const struct show_column cols[] = {
                {"interface", "interface", SHOW_PLAIN}, {"address", "address", SHOW_PLAIN},
                {"mac", "mac", SHOW_PLAIN}, {"state", "state", SHOW_PLAIN}, {"confirmed", "confirmed us", SHOW_US},
                {"waiting", "waiting", SHOW_PLAIN}, {"stack", "stack", SHOW_PLAIN}};
        json_t *rows = json_array();
        bool json = false;
        const char *why;

        while (command_option(cmd, argc, argv, NULL, &json) != -1)
                continue;
        if (optind < argc)
                return command_usage(cmd, "no arguments are taken");
        why = stacks_each(add_stack, rows);
        if (why) {
                json_decref(rows);
                return command_fail("%s", why);
        }
        show_rows(rows, cols, ARRAY_LEN(cols), json);
        return EXIT_DONE;
}

const struct command cmd_arp = {
        "arp", "[--json]",
        "neighbours on the interfaces of this user's stacks",
        "  --json   as JSON; times in nanoseconds\n"
        "\n"
        "Exit status 1: there are no stacks.\n",
        run,
};
