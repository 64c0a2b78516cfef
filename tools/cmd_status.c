/* unet status: what unetd and the keepers hold, as far as this user may see it. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "tools/address.h"
#include "tools/command.h"
#include "tools/show.h"
#include "tools/stacks.h"
#include "unetd/client/client.h"

/* A kind of item: the JSON list it goes to, and the columns of its table. */
struct section {
        const char *name;
        struct show_column cols[12];
};

static const struct section sections[UNETD_S_KINDS] = {
        [UNETD_S_DAEMON] = {"daemon",
                            {{"pid", "pid", SHOW_PLAIN},
                             {"uid", "uid", SHOW_PLAIN},
                             {"shared", "shared", SHOW_PLAIN},
                             {"clients", "clients", SHOW_PLAIN},
                             {"stacks", "stacks", SHOW_PLAIN},
                             {"channels", "channels", SHOW_PLAIN},
                             {"listeners", "listeners", SHOW_PLAIN}}},
        [UNETD_S_KEEPER] = {"keepers", {{"pid", "pid", SHOW_PLAIN}, {"uid", "uid", SHOW_PLAIN}}},
        [UNETD_S_STACK] = {"stacks",
                           {{"stack", "stack", SHOW_PLAIN},
                            {"uid", "uid", SHOW_PLAIN},
                            {"pid", "pid", SHOW_PLAIN},
                            {"program", "program", SHOW_PLAIN},
                            {"orphan", "orphan", SHOW_PLAIN}}},
        [UNETD_S_CHAN] = {"channels",
                          {{"stack", "stack", SHOW_PLAIN},
                           {"channel", "channel", SHOW_PLAIN},
                           {"peer_stack", "peer stack", SHOW_PLAIN},
                           {"peer_channel", "peer channel", SHOW_PLAIN},
                           {"uid", "uid", SHOW_PLAIN},
                           {"peer_uid", "peer uid", SHOW_PLAIN}}},
        [UNETD_S_LISTENER] = {"listeners",
                              {{"stack", "stack", SHOW_PLAIN},
                               {"protocol", "protocol", SHOW_PLAIN},
                               {"address", "address", SHOW_PLAIN},
                               {"port", "port", SHOW_PLAIN},
                               {"uid", "uid", SHOW_PLAIN}}},
        [UNETD_S_HOLD] = {"holds",
                          {{"stack", "stack", SHOW_PLAIN},
                           {"protocol", "protocol", SHOW_PLAIN},
                           {"address", "address", SHOW_PLAIN},
                           {"port", "port", SHOW_PLAIN},
                           {"uid", "uid", SHOW_PLAIN}}},
        [UNETD_S_LEASE] = {"leases",
                           {{"stack", "stack", SHOW_PLAIN},
                            {"first", "first port", SHOW_PLAIN},
                            {"ports", "ports", SHOW_PLAIN},
                            {"uid", "uid", SHOW_PLAIN}}},
        [UNETD_S_EMUL] = {"emulated",
                          {{"endpoint", "endpoint", SHOW_PLAIN},
                           {"uid", "uid", SHOW_PLAIN},
                           {"pid", "pid", SHOW_PLAIN},
                           {"sent", "sent", SHOW_PLAIN},
                           {"received", "received", SHOW_PLAIN},
                           {"waiting_kb", "waiting KB", SHOW_PLAIN},
                           {"bad_source", "bad source", SHOW_PLAIN},
                           {"no_channel", "no channel", SHOW_PLAIN},
                           {"malformed", "malformed", SHOW_PLAIN},
                           {"quota", "quota", SHOW_PLAIN},
                           {"queue_full", "queue full", SHOW_PLAIN},
                           {"no_buffer", "no buffer", SHOW_PLAIN}}},
        [UNETD_S_LINK] = {"queue_pairs",
                          {{"stack", "stack", SHOW_PLAIN},
                           {"interface", "interface", SHOW_PLAIN},
                           {"address", "address", SHOW_PLAIN},
                           {"queue_pair", "queue pair", SHOW_PLAIN},
                           {"mtu", "mtu", SHOW_PLAIN},
                           {"pinned_kb", "pinned KB", SHOW_PLAIN},
                           {"refused", "refused", SHOW_PLAIN},
                           {"uid", "uid", SHOW_PLAIN}}},
        [UNETD_S_REMOTE] = {"neighbours",
                            {{"stack", "stack", SHOW_PLAIN},
                             {"channel", "channel", SHOW_PLAIN},
                             {"interface", "interface", SHOW_PLAIN},
                             {"address", "address", SHOW_PLAIN},
                             {"queue_pair", "queue pair", SHOW_PLAIN},
                             {"mtu", "mtu", SHOW_PLAIN},
                             {"checksum", "checksum", SHOW_PLAIN},
                             {"ports", "vouched ports", SHOW_PLAIN}}},
        [UNETD_S_GATE] = {"bridge",
                          {{"stack", "stack", SHOW_PLAIN},
                           {"uid", "uid", SHOW_PLAIN},
                           {"program", "program", SHOW_PLAIN},
                           {"sent", "sent", SHOW_PLAIN},
                           {"received", "received", SHOW_PLAIN},
                           {"bad_source", "bad source", SHOW_PLAIN},
                           {"malformed", "malformed", SHOW_PLAIN},
                           {"queue_full", "queue full", SHOW_PLAIN},
                           {"no_buffer", "no buffer", SHOW_PLAIN}}},
        [UNETD_S_SOCKET] = {"sockets",
                            {{"stack", "stack", SHOW_PLAIN},
                             {"uid", "uid", SHOW_PLAIN},
                             {"interface", "interface", SHOW_PLAIN},
                             {"no_buffer", "no buffer", SHOW_PLAIN},
                             {"queue_full", "queue full", SHOW_PLAIN},
                             {"hopeless_fragments", "hopeless fragments", SHOW_PLAIN},
                             {"odd", "odd", SHOW_PLAIN},
                             {"bad_source", "bad source", SHOW_PLAIN}}},
};

static json_t *gate_item(const struct unetd_status_item *i)
{
        const struct unetd_emul_counts *n = &i->emul;

        return json_pack("{si si so sI sI si si si si}", "stack", i->stack, "uid", i->uid,
                         "program", stacks_program(i->pid), "sent", (json_int_t)n->sent, "received",
                         (json_int_t)n->received, "bad_source", n->bad_source, "malformed",
                         n->malformed, "queue_full", n->queue_full, "no_buffer", n->no_buffer);
}

static json_t *qp_json(const struct unetd_status_item *i)
{
        return i->qp.qpn != 0 ? json_integer(i->qp.qpn) : json_null();
}

static json_t *emul_item(const struct unetd_status_item *i)
{
        const struct unetd_emul_counts *n = &i->emul;

        return json_pack("{si si si sI sI si si si si si si si}", "endpoint", i->stack, "uid",
                         i->uid, "pid", i->pid, "sent", (json_int_t)n->sent, "received",
                         (json_int_t)n->received, "waiting_kb", n->waiting_kb, "bad_source",
                         n->bad_source, "no_channel", n->no_channel, "malformed", n->malformed,
                         "quota", n->quota, "queue_full", n->queue_full, "no_buffer", n->no_buffer);
}

static json_t *port_item(const struct unetd_status_item *i)
{
        return json_pack("{si ss so si si}", "stack", i->stack, "protocol",
                         i->proto == IPPROTO_TCP ? "tcp" : "udp", "address", address_json(i->addr),
                         "port", i->port, "uid", i->uid);
}

static json_t *item_json(const struct unetd_status_item *i)
{
        switch (i->kind) {
        case UNETD_S_DAEMON:
                return json_pack("{si si sb si si si si}", "pid", i->pid, "uid", i->uid, "shared",
                                 (i->flags & UNETD_SHARED) != 0, "clients", i->clients, "stacks",
                                 i->stacks, "channels", i->chans, "listeners", i->listeners);
        case UNETD_S_KEEPER:
                return json_pack("{si si}", "pid", i->pid, "uid", i->uid);
        case UNETD_S_STACK:
                return json_pack("{si si si so sb}", "stack", i->stack, "uid", i->uid, "pid",
                                 i->pid, "program", stacks_program(i->pid), "orphan",
                                 (i->flags & UNETD_ORPHAN) != 0);
        case UNETD_S_CHAN:
                return json_pack("{si si si si si si}", "stack", i->stack, "channel", i->chan,
                                 "peer_stack", i->peer_stack, "peer_channel", i->peer_chan, "uid",
                                 i->uid, "peer_uid", i->peer_uid);
        case UNETD_S_LEASE:
                return json_pack("{si si si si}", "stack", i->stack, "first", i->port, "ports",
                                 i->count, "uid", i->uid);
        case UNETD_S_EMUL:
                return emul_item(i);
        case UNETD_S_LINK:
                return json_pack("{si so so so si si si si}", "stack", i->stack, "interface",
                                 show_text(i->qp.iface, sizeof i->qp.iface), "address",
                                 address_json(ip_addr_v4(i->qp.at)), "queue_pair", qp_json(i),
                                 "mtu", i->qp.mtu, "pinned_kb", i->qp.pinned_kb, "refused",
                                 i->qp.refused, "uid", i->uid);
        case UNETD_S_REMOTE:
                return json_pack("{si si so so so si sb si}", "stack", i->stack, "channel", i->chan,
                                 "interface", show_text(i->qp.iface, sizeof i->qp.iface), "address",
                                 address_json(ip_addr_v4(i->qp.at)), "queue_pair", qp_json(i),
                                 "mtu", i->qp.mtu, "checksum", !i->qp.no_csum, "ports",
                                 i->qp.ranges);
        case UNETD_S_GATE:
                return gate_item(i);
        case UNETD_S_SOCKET:
                return json_pack("{si si so sI sI sI sI sI}", "stack", i->stack, "uid", i->uid,
                                 "interface", show_text(i->xsk.iface, sizeof i->xsk.iface),
                                 "no_buffer", (json_int_t)i->xsk.no_buffer, "queue_full",
                                 (json_int_t)i->xsk.queue_full, "hopeless_fragments",
                                 (json_int_t)i->xsk.fragments, "odd", (json_int_t)i->xsk.odd,
                                 "bad_source", (json_int_t)i->xsk.bad_source);
        default:
                return port_item(i);
        }
}

static bool add_item(void *arg, const struct unetd_status_item *item)
{
        json_t **lists = arg;

        if (item->kind < UNETD_S_KINDS)
                json_array_append_new(lists[item->kind], item_json(item));
        return true;
}

static size_t columns(const struct section *s)
{
        size_t n = 0;

        while (n < ARRAY_LEN(s->cols) && s->cols[n].key)
                n++;
        return n;
}

/* As JSON the same shape always; `why`: what there is to say instead, or NULL. */
static void show_all(json_t *lists[UNETD_S_KINDS], const char *why, bool json)
{
        json_t *all = why ? json_pack("{ss}", "error", why) : json_object();

        for (int k = 0; k < UNETD_S_KINDS; k++)
                json_object_set_new(all, sections[k].name, lists[k]);
        if (json) {
                show_json(all);
                return;
        }
        for (int k = 0; k < UNETD_S_KINDS; k++) {
                if (json_array_size(lists[k]) == 0)
                        continue;
                printf("%s%s\n", k ? "\n" : "", sections[k].name);
                show_rows(json_incref(lists[k]), sections[k].cols, columns(&sections[k]), false);
        }
        json_decref(all);
}

static int run(const struct command *cmd, int argc, char **argv)
{
        struct unetd_client c = {0};
        json_t *lists[UNETD_S_KINDS];
        const char *why = NULL;
        bool json = false;
        int r;

        while (command_option(cmd, argc, argv, NULL, &json) != -1)
                continue;
        if (optind < argc)
                return command_usage(cmd, "no arguments are taken");
        for (int k = 0; k < UNETD_S_KINDS; k++)
                lists[k] = json_array();
        r = unetd_open(&c, UNETD_NO_START);
        if (r == -ECONNREFUSED)
                why = "no unetd runs for this user (the first program starts one)";
        if (r == 0) {
                r = unetd_status(&c, add_item, lists);
                unetd_close(&c);
        }
        if (r != 0 && !why)
                why = strerror(-r);
        show_all(lists, why, json);
        return why ? command_fail("%s", why) : EXIT_DONE;
}

const struct command cmd_status = {
        "status",
        "[--json]",
        "what unetd and the keepers hold: stacks, channels, ports",
        "  --json   as JSON\n"
        "\n"
        "Exit status 1: no unetd runs for this user.\n",
        run,
};
