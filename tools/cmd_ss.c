/* unet ss: every socket of every stack, read from outside while it runs. */
#include "base/base.h"
#include "tools/command.h"
#include "tools/show.h"
#include "tools/sockets.h"
#include "tools/stacks.h"

struct want {
        bool tcp, udp, listening; /* none set: all */
};

static void add_stack(void *arg, const struct seen_stack *s, json_t *rows)
{
        const struct want *w = arg;
        bool all = !w->tcp && !w->udp && !w->listening;

        if (all || w->listening)
                sockets_listeners(s, rows);
        if (all || w->tcp)
                sockets_connections(s, rows);
        if (all || w->udp)
                sockets_udp(s, rows);
}

static int run(const struct command *cmd, int argc, char **argv)
{
        static const struct option extra[] = {{"tcp", no_argument, NULL, 't'},
                                              {"udp", no_argument, NULL, 'u'},
                                              {"listening", no_argument, NULL, 'l'},
                                              {NULL, 0, NULL, 0}};
        static const struct show_column cols[] = {
                {"protocol", "proto", SHOW_PLAIN},   {"state", "state", SHOW_PLAIN},
                {"recv_q", "recv-q", SHOW_PLAIN},    {"send_q", "send-q", SHOW_PLAIN},
                {"local", "local", SHOW_PLAIN},      {"peer", "peer", SHOW_PLAIN},
                {"cwnd", "cwnd", SHOW_BYTES},        {"rtt", "rtt us", SHOW_US},
                {"retransmits", "retr", SHOW_PLAIN}, {"limit", "limited by", SHOW_PLAIN},
                {"memory", "memory", SHOW_BYTES},    {"holders", "held by", SHOW_PLAIN},
        };
        struct want w = {0};
        bool json = false;
        const char *why;
        json_t *rows;
        int opt;

        while ((opt = command_option(cmd, argc, argv, extra, &json)) != -1) {
                w.tcp = w.tcp || opt == 't';
                w.udp = w.udp || opt == 'u';
                w.listening = w.listening || opt == 'l';
        }
        if (optind < argc)
                return command_usage(cmd, "no arguments are taken");
        rows = json_array();
        why = stacks_rows(add_stack, &w, rows);
        if (!why && json_array_size(rows) == 0)
                why = "there are no such sockets";
        show_rows(rows, cols, ARRAY_LEN(cols), json);
        return why ? command_fail("%s", why) : EXIT_DONE;
}

const struct command cmd_ss = {
        "ss",
        "[--tcp] [--udp] [--listening] [--json]",
        "every socket of every stack of this user, as root of all users: queues, cwnd, rtt, what "
        "limits the sender",
        "  --tcp        connections\n"
        "  --udp        UDP sockets\n"
        "  --listening  listeners (recv-q: waiting to be accepted, send-q: backlog)\n"
        "  --json       as JSON: all that is known of each; times in nanoseconds\n"
        "\n"
        "What \"limited by\" says is in unet(1).\n"
        "Exit status 1: there is nothing to show.\n",
        run,
};
