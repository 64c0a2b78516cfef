/* unet if: the interfaces that unetd owns, and what the stacks that use one have seen of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "tools/address.h"
#include "tools/net_change.h"
#include "tools/show.h"
#include "tools/stacks.h"

/* Interfaces by the directory; rows are completed by the stacks that have them. */
static const char *list(json_t *rows)
{
        struct unetd_client c = {0};
        struct netconf net;
        const char *why;

        if (!net_published(&c, &net, &why))
                return why;
        for (uint32_t i = 0; i < DIR_IFACES; i++) {
                struct dir_iface at, *f = &at;
                if (!directory_iface_at(c.dir, i, f))
                        continue;
                const struct netconf_if *n = &net.ifs[(f->peer & ~UNETD_IFACE) % NETCONF_IFS];
                json_t *row = json_pack(
                        "{so so si so so si ss so so}", "name", show_text(f->name, sizeof f->name),
                        "address", address_json(ip_addr_v4(f->addr)), "prefix", f->prefix,
                        "gateway",
                        f->gateway != 0 ? address_json(ip_addr_v4(f->gateway)) : json_null(),
                        "stack", f->stack != 0 ? json_integer(f->stack) : json_null(), "stacks",
                        f->users, "state", n->flags & NETCONF_IF_UP ? "up" : "down", "mtu",
                        n->mtu != 0 ? json_integer(n->mtu) : json_null(), "how",
                        f->how[0] != '\0' ? show_text(f->how, sizeof f->how) : json_null());
                json_array_append_new(rows, row);
        }
        for (uint32_t i = 0; i < MIN(c.dir->nverbs, DIR_IFACES); i++) {
                const struct dir_iface *f = &c.dir->verbs[i];
                bool works = f->how[0] == '\0';
                json_array_append_new(rows, json_pack("{so so si sn sn sn ss sn so}", "name",
                                                      show_text(f->name, sizeof f->name), "address",
                                                      address_json(ip_addr_v4(f->addr)), "prefix",
                                                      f->prefix, "gateway", "stack", "stacks",
                                                      "state", works ? "up" : "down", "mtu", "how",
                                                      works ? json_string("verbs (unet status)")
                                                            : show_text(f->how, sizeof f->how)));
        }
        unetd_close(&c);
        return NULL;
}

static json_t *row_of(json_t *rows, const char name[NETIF_NAME])
{
        json_t *row;
        size_t i;

        json_array_foreach (rows, i, row)
                if (strncmp(json_string_value(json_object_get(row, "name")), name, NETIF_NAME) == 0)
                        return row;
        return NULL;
}

/* One program, or those of all stacks; null only while none is known: one may have
 * ended meanwhile. */
static void add_program(json_t *row, json_t *program)
{
        json_t *before = json_object_get(row, "program");

        if (json_is_string(before) && json_is_string(program))
                json_object_set_new(row, "program",
                                    json_sprintf("%s, %s", json_string_value(before),
                                                 json_string_value(program)));
        else if (!json_is_string(before))
                json_object_set(row, "program", program);
        json_decref(program);
}

static json_t *mac_json(const uint8_t mac[6])
{
        char text[18];

        snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
                 mac[4], mac[5]);
        return json_string(text);
}

static bool complete(void *arg, const struct seen_stack *s)
{
        for (uint32_t i = 0; i < MIN(s->view.st->netifs, NETIF_MAX); i++) {
                const struct netif *n = stack_netif(s->view.st, i);
                json_t *row = n->chan != 0 ? row_of(arg, n->cfg.name) : NULL;

                if (!row)
                        continue;
                json_object_set_new(row, "mac", mac_json(n->cfg.mac));
                json_object_set_new(row, "mtu", json_integer(n->cfg.mtu));
                add_program(row, stacks_program(s->pid));
        }
        return true;
}

static int show(bool json)
{
        static const struct show_column cols[] = {
                {"name", "interface", SHOW_PLAIN}, {"address", "address", SHOW_PLAIN},
                {"prefix", "prefix", SHOW_PLAIN},  {"gateway", "gateway", SHOW_PLAIN},
                {"state", "state", SHOW_PLAIN},    {"mac", "mac", SHOW_PLAIN},
                {"mtu", "mtu", SHOW_PLAIN},        {"stack", "stack", SHOW_PLAIN},
                {"stacks", "stacks", SHOW_PLAIN},  {"program", "program", SHOW_PLAIN},
                {"how", "goes by", SHOW_PLAIN}};
        json_t *rows = json_array();
        const char *why = list(rows);

        if (!why && json_array_size(rows) == 0)
                why = "unetd owns no interface (unet.conf(5) says how it gets one)";
        if (!why)
                stacks_each(complete, rows);
        show_rows(rows, cols, ARRAY_LEN(cols), json);
        return why ? command_fail("%s", why) : EXIT_DONE;
}

static int change(const struct command *cmd, int argc, char **argv, enum unetd_type type, bool json)
{
        struct unetd_net net = {.flags = 0};

        if (argc - optind != 1 || strlen(argv[optind]) >= sizeof net.iface)
                return command_usage(cmd, "which interface?");
        strcpy(net.iface, argv[optind]);
        return net_change(net.iface, type, &net, json);
}

static int add(const struct command *cmd, int argc, char **argv, bool json)
{
        struct unetd_iface_config iface;
        struct unetd_client c = {0};
        struct config_error err;
        int r;

        if (argc - optind < 2)
                return command_usage(cmd, "which interface, and with which address?");
        if (config_iface(argv[optind], argc - optind - 1, argv + optind + 1, &iface, &err) != 0)
                return command_usage(cmd, "%s", err.text);
        r = unetd_open(&c, UNETD_NO_START);
        if (r == 0) {
                r = unetd_iface_add(&c, &iface);
                unetd_close(&c);
        }
        return net_changed(argv[optind], r, json);
}

static int run(const struct command *cmd, int argc, char **argv)
{
        bool json = false;
        const char *verb = net_verb(cmd, argc, argv, &json);

        if (strcmp(verb, "show") == 0)
                return optind < argc ? command_usage(cmd, "show takes no arguments") : show(json);
        if (strcmp(verb, "up") == 0 || strcmp(verb, "down") == 0)
                return change(cmd, argc, argv, verb[0] == 'u' ? UNETD_IFACE_UP : UNETD_IFACE_DOWN,
                              json);
        if (strcmp(verb, "remove") == 0)
                return change(cmd, argc, argv, UNETD_IFACE_DEL, json);
        if (strcmp(verb, "add") == 0)
                return add(cmd, argc, argv, json);
        return command_usage(cmd, "show, up, down, add or remove?");
}

const struct command cmd_if = {
        "if",
        "[show] [--json] | up|down|remove [--json] INTERFACE |\n"
        "               add [--json] INTERFACE ADDRESS/PREFIX [KEY VALUE]...",
        "interfaces that unetd owns, and who has them",
        "  show     all of them (also without a verb)\n"
        "  down     its address and routes are not used by what begins from now on;\n"
        "           connections stay, and wait\n"
        "  up       they are again\n"
        "  add      takes one more of the kernel's interfaces; KEY is gateway, metric, provider, "
        "mode,\n"
        "           check, queue or probe, as in unet.conf(5)\n"
        "  remove   gives it back: its connections end with ENETDOWN, its routes go\n"
        "  --json   as JSON\n"
        "\n"
        "An interface is also down while the kernel says so. Only root and the user whose unetd\n"
        "it is may change it. unet.conf(5) says which ones unetd owns at first.\n"
        "Exit status 1 of show: there is none.\n",
        run,
};
