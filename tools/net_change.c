/* See net_change.h. */
#include "tools/net_change.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/show.h"

/* No word of these tables is "--json": it is an option wherever it stands. */
static void json_first(int argc, char **argv)
{
        for (int i = optind; i < argc; i++) {
                char *word = argv[i];

                if (strcmp(word, "--json") != 0)
                        continue;
                memmove(&argv[optind + 1], &argv[optind], (size_t)(i - optind) * sizeof *argv);
                argv[optind] = word;
        }
}

const char *net_verb(const struct command *cmd, int argc, char **argv, bool *json)
{
        const char *verb = "show";

        while (command_option(cmd, argc, argv, NULL, json) != -1)
                continue;
        if (optind < argc)
                verb = argv[optind++];
        json_first(argc, argv);
        while (command_option(cmd, argc, argv, NULL, json) != -1)
                continue;
        return verb;
}

int net_table(const struct command *cmd, int argc, char **argv, int (*show)(bool json),
              int (*change)(const struct command *cmd, int argc, char **argv, bool add, bool json))
{
        bool json = false;
        const char *verb = net_verb(cmd, argc, argv, &json);

        if (strcmp(verb, "show") == 0)
                return optind < argc ? command_usage(cmd, "show takes no arguments") : show(json);
        if (strcmp(verb, "add") == 0 || strcmp(verb, "remove") == 0)
                return change(cmd, argc, argv, verb[0] == 'a', json);
        return command_usage(cmd, "show, add or remove?");
}

bool net_words(int argc, char **argv, char text[256])
{
        size_t at = 0;

        text[0] = '\0';
        for (int i = optind; i < argc; i++) {
                at += (size_t)snprintf(text + at, 256 - at, "%s%s", i > optind ? " " : "", argv[i]);
                if (at >= 256)
                        return false;
        }
        return true;
}

static const char *reason(int err)
{
        switch (err) {
        case -ECONNREFUSED:
                return "no unetd runs for this user (the first program starts one)";
        case -EPERM:
                return "only root and the user whose unetd it is may change that";
        case -ENODEV:
                return "unetd has no such interface";
        case -ENETUNREACH:
                return "that is on no network of the interface";
        case -EEXIST:
                return "it is there already";
        case -ESRCH:
                return "there is no such";
        case -ENOTUNIQ:
                return "several are like that: say which (via, dev, metric)";
        case -EADDRNOTAVAIL:
                return "the source is no interface's address";
        case -EINVAL:
                return "an address in it is not one that another host can have";
        case -ENOSPC:
                return "there are too many";
        case -ENXIO:
                return "there is no such device";
        case -EADDRINUSE:
                return "another host, or another interface, has that address";
        case -ENODATA:
                return "it cannot be had: unetd's log says why";
        case -EOPNOTSUPP:
                return "only interfaces over AF_XDP or packet sockets come and go";
        default:
                return strerror(-err);
        }
}

int net_changed(const char *what, int r, bool json)
{
        if (json)
                show_json(
                        json_pack("{sb ss?}", "done", r == 0, "error", r == 0 ? NULL : reason(r)));
        return r == 0 ? EXIT_DONE : command_fail("%s: %s", what, reason(r));
}

int net_change(const char *what, enum unetd_type type, const struct unetd_net *net, bool json)
{
        struct unetd_client c = {0};
        int r = unetd_open(&c, UNETD_NO_START);

        if (r == 0) {
                r = unetd_net_change(&c, type, net);
                unetd_close(&c);
        }
        return net_changed(what, r, json);
}

bool net_published(struct unetd_client *c, struct netconf *net, const char **why)
{
        int r = unetd_open(c, UNETD_NO_START);

        if (r != 0) {
                *why = reason(r);
                return false;
        }
        if (directory_net(c->dir, net))
                return true;
        unetd_close(c);
        *why = "unetd is busy writing";
        return false;
}

const char *net_ifname(const struct directory *d, uint32_t ifindex, char name[16])
{
        struct dir_iface f;

        strcpy(name, "?");
        if (directory_iface(d, UNETD_IFACE | (ifindex - 1), &f))
                snprintf(name, 16, "%.15s", f.name);
        return name;
}
