/* What the routes and neighbours of the interfaces mean together: a second reading of the file. */
#include "config/iface_section.h"
#include "config/route_text.h"
#include "ip/route.h"

#include <errno.h>
#include <ini.h>
#include <stdlib.h>

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
        return err == 0 ? 1 : reading_complain(r, "\"%s\" %s", "route", route_wrong(err));
}

static int check_neighbour_line(struct reading *r, const struct unetd_iface_config *i,
                                const char *value)
{
        uint32_t mask = i->prefix ? ~0u << (32 - i->prefix) : 0;
        struct neigh_text t;

        neigh_text_parse(value, false, &t);
        if (((t.n.addr ^ i->addr) & mask) == 0 && t.n.addr != i->addr)
                return 1;
        return reading_complain(r, "\"%s\" %s", "neighbour",
                                "is no other host on the interface's network");
}

static int line_again(void *arg, const char *section, const char *name, const char *value)
{
        struct reading *r = arg;
        const struct unetd_iface_config *i;

        if (strncmp(section, IFACE_SECTION, strlen(IFACE_SECTION)) != 0)
                return 1;
        i = iface_section_get(r, section + strlen(IFACE_SECTION));
        if (strcmp(name, "route") == 0)
                return check_route_line(r, i, value);
        if (strcmp(name, "neighbour") == 0)
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

int iface_routes_check(struct reading *r, const char *path)
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
