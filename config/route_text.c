/* See route_text.h. */
#include "config/route_text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool addr_of(const char *text, uint32_t *addr)
{
        struct in_addr in;

        if (inet_pton(AF_INET, text, &in) != 1)
                return false;
        *addr = ntohl(in.s_addr);
        return true;
}

bool text_host_addr(const char *text, uint32_t *addr)
{
        uint32_t a;

        if (!addr_of(text, &a) || a >> 24 == 0 || a >> 24 == 127 || a >> 28 >= 0xe)
                return false;
        *addr = a;
        return true;
}

static bool number(const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
        char *end;
        unsigned long v;

        errno = 0;
        v = strtoul(text, &end, 10);
        if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || v < min || v > max)
                return false;
        *out = (uint32_t)v;
        return true;
}

static bool prefix_of(char *word, struct route *r)
{
        char *slash = strchr(word, '/');
        uint32_t bits = 32;

        if (strcmp(word, "default") == 0)
                return true;
        if (slash != NULL) {
                *slash = '\0';
                if (!number(slash + 1, 0, 32, &bits))
                        return false;
        }
        r->prefix = (uint8_t)bits;
        return addr_of(word, &r->dst) && (r->dst & (bits != 0 ? ~0u << (32 - bits) : 0)) == r->dst;
}

static bool set_dev(char dev[16], const char *word)
{
        if (strlen(word) >= 16 || strchr(word, '/') != NULL)
                return false;
        strcpy(dev, word);
        return true;
}

/* One of the words behind the prefix, with its value. NULL: taken. */
static const char *option(struct route_text *o, const char *word, const char *value)
{
        if (strcmp(word, "via") == 0)
                return text_host_addr(value, &o->r.gateway)
                               ? NULL
                               : "wants an IPv4 address behind \"via\"";
        if (strcmp(word, "dev") == 0)
                return set_dev(o->dev, value) ? NULL : "wants an interface behind \"dev\"";
        if (strcmp(word, "src") == 0)
                return text_host_addr(value, &o->r.src) ? NULL
                                                        : "wants an IPv4 address behind \"src\"";
        if (strcmp(word, "mtu") == 0)
                return number(value, 68, 65535, &o->r.mtu)
                               ? NULL
                               : "wants a number from 68 to 65535 behind \"mtu\"";
        if (strcmp(word, "metric") == 0) {
                o->metric_said = true;
                return number(value, 0, UINT32_MAX, &o->r.metric)
                               ? NULL
                               : "wants a number behind \"metric\"";
        }
        return "knows via, dev, metric, src, mtu and onlink behind the prefix";
}

const char *route_text_parse(const char *text, struct route_text *out)
{
        struct route_text o = {.dev = ""};
        char copy[256], *at, *word, *value;
        const char *why;

        if (strlen(text) >= sizeof copy)
                return "is too long";
        strcpy(copy, text);
        word = strtok_r(copy, " \t", &at);
        if (word == NULL || !prefix_of(word, &o.r))
                return "wants a prefix without bits behind it, as in 192.0.2.0/24, or \"default\"";
        while ((word = strtok_r(NULL, " \t", &at)) != NULL) {
                if (strcmp(word, "onlink") == 0) {
                        o.r.flags |= ROUTE_F_ONLINK;
                        continue;
                }
                value = strtok_r(NULL, " \t", &at);
                why = option(&o, word, value != NULL ? value : "");
                if (why != NULL)
                        return why;
        }
        *out = o;
        return NULL;
}

static bool mac_of(const char *word, uint8_t mac[6])
{
        unsigned v[6];
        int n = 0;

        if (sscanf(word, "%2x:%2x:%2x:%2x:%2x:%2x%n", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5],
                   &n) != 6 ||
            word[n] != '\0' || v[0] & 1)
                return false;
        for (int i = 0; i < 6; i++)
                mac[i] = (uint8_t)v[i];
        return true;
}

const char *neigh_text_parse(const char *text, bool no_mac, struct neigh_text *out)
{
        struct neigh_text o = {.dev = ""};
        char copy[256], *at, *word;

        if (strlen(text) >= sizeof copy)
                return "is too long";
        strcpy(copy, text);
        word = strtok_r(copy, " \t", &at);
        if (word == NULL || !text_host_addr(word, &o.n.addr))
                return "wants an IPv4 address";
        if (!no_mac)
                word = strtok_r(NULL, " \t", &at);
        if (!no_mac && (word == NULL || !mac_of(word, o.n.mac)))
                return "wants a link address of one host behind it, as in 02:00:00:12:34:56";
        word = strtok_r(NULL, " \t", &at);
        if (word != NULL) {
                const char *dev = strtok_r(NULL, " \t", &at);
                if (strcmp(word, "dev") != 0 || dev == NULL || !set_dev(o.dev, dev) ||
                    strtok_r(NULL, " \t", &at) != NULL)
                        return "knows dev and an interface behind that";
        }
        *out = o;
        return NULL;
}

static const char *put_addr(uint32_t addr, char out[INET_ADDRSTRLEN])
{
        struct in_addr in = {htonl(addr)};

        return inet_ntop(AF_INET, &in, out, INET_ADDRSTRLEN);
}

void route_text_prefix(const struct route *r, char out[32])
{
        char addr[INET_ADDRSTRLEN];

        if (r->prefix == 0)
                strcpy(out, "default");
        else
                snprintf(out, 32, "%s/%u", put_addr(r->dst, addr), r->prefix);
}

void route_text_put(const struct route *r, const char *dev, char out[ROUTE_TEXT_MAX])
{
        char addr[INET_ADDRSTRLEN];
        size_t n;

        route_text_prefix(r, out);
        n = strlen(out);
        if (r->gateway != 0)
                n += (size_t)snprintf(out + n, ROUTE_TEXT_MAX - n, " via %s",
                                      put_addr(r->gateway, addr));
        if (dev != NULL)
                n += (size_t)snprintf(out + n, ROUTE_TEXT_MAX - n, " dev %.15s", dev);
        if (r->metric != 0)
                n += (size_t)snprintf(out + n, ROUTE_TEXT_MAX - n, " metric %u", r->metric);
        if (r->src != 0)
                n += (size_t)snprintf(out + n, ROUTE_TEXT_MAX - n, " src %s",
                                      put_addr(r->src, addr));
        if (r->mtu != 0)
                n += (size_t)snprintf(out + n, ROUTE_TEXT_MAX - n, " mtu %u", r->mtu);
        if (r->flags & ROUTE_F_ONLINK)
                snprintf(out + n, ROUTE_TEXT_MAX - n, " onlink");
}
