#include "config/rule_text.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
        const char *name, *text;
} keys[RULE_KEYS] = {
        [RULE_KEY_PROGRAM] = {"program",
                              "file that runs: its path, or its name alone; empty: every program"},
        [RULE_KEY_ROLE] =
                {"role",
                 "sockets that listen (or are bound, of UDP), that connect (or send), or both"},
        [RULE_KEY_PROTOCOL] = {"protocol", "tcp, udp or both"},
        [RULE_KEY_ADDRESS] = {"address", "own one of sockets that listen, the peer's of others: "
                                         "ADDRESS, ADDRESS/PREFIX, or any"},
        [RULE_KEY_PORT] =
                {"port",
                 "own one of sockets that listen, the peer's of others: a number, FROM-TO, or any"},
        [RULE_KEY_CARRIER] =
                {"carrier", "what carries sockets that it fits: unet, where it can, or the kernel"},
};

struct word {
        const char *text;
        uint8_t value;
};

static const struct word roles[] = {
        {"both", RULE_BOTH}, {"listen", RULE_LISTENS}, {"connect", RULE_CONNECTS}, {NULL, 0}};
static const struct word protocols[] = {
        {"both", 0}, {"tcp", IPPROTO_TCP}, {"udp", IPPROTO_UDP}, {NULL, 0}};
static const struct word carriers[] = {{"unet", RULE_UNET}, {"kernel", RULE_KERNEL}, {NULL, 0}};

static const char *set_word(uint8_t *out, const struct word *words, const char *value,
                            const char *wanted)
{
        for (; words->text != NULL; words++) {
                if (strcmp(words->text, value) == 0) {
                        *out = words->value;
                        return NULL;
                }
        }
        return wanted;
}

static const char *word_of(const struct word *words, uint8_t value)
{
        while (words->text != NULL && words->value != value)
                words++;
        return words->text != NULL ? words->text : "";
}

const char *rule_key_name(enum rule_key key)
{
        return keys[key].name;
}

const char *rule_key_text(enum rule_key key)
{
        return keys[key].text;
}

static const char *set_program(struct rule *r, const char *value)
{
        if (strlen(value) >= sizeof r->program)
                return "is too long";
        if (strchr(value, '/') != NULL && value[0] != '/')
                return "wants a file's name alone, or its whole path";
        strcpy(r->program, value);
        return NULL;
}

/* A whole number; *end is what follows. */
static bool number(const char *text, long low, long high, const char **end, long *out)
{
        char *after;

        if (!isdigit((unsigned char)*text))
                return false;
        *out = strtol(text, &after, 10);
        *end = after;
        return *out >= low && *out <= high;
}

static const char *set_address(struct rule *r, const char *value)
{
        static const char wanted[] =
                "wants an address, as 127.0.0.1, a network, as 192.0.2.0/24, or any";
        char addr[INET_ADDRSTRLEN] = "";
        size_t len = strcspn(value, "/");
        const char *end = "";
        struct in_addr in;
        long prefix = 32;

        if (strcmp(value, "any") == 0) {
                r->addr = r->prefix = 0;
                return NULL;
        }
        if (len >= sizeof addr)
                return wanted;
        memcpy(addr, value, len);
        if (inet_pton(AF_INET, addr, &in) != 1 ||
            (value[len] == '/' && (!number(value + len + 1, 1, 32, &end, &prefix) || *end)))
                return wanted;
        if (in.s_addr == 0)
                return "wants no address for all of them: that is any";
        if (prefix < 32 && (ntohl(in.s_addr) & (~0u >> prefix)) != 0)
                return "has bits behind its prefix";
        r->addr = ntohl(in.s_addr);
        r->prefix = (uint8_t)prefix;
        return NULL;
}

static const char *set_port(struct rule *r, const char *value)
{
        static const char wanted[] =
                "wants a number from 1 to 65535, two of them as in 8000-8099, or any";
        const char *end = value;
        long low = 0, high;

        if (strcmp(value, "any") == 0) {
                r->port_low = 0;
                r->port_high = 65535;
                return NULL;
        }
        if (!number(value, 1, 65535, &end, &low))
                return wanted;
        high = low;
        if (*end == '-' && (!number(end + 1, 1, 65535, &end, &high) || high < low))
                return wanted;
        if (*end != '\0')
                return wanted;
        r->port_low = (uint16_t)low;
        r->port_high = (uint16_t)high;
        return NULL;
}

const char *rule_set(struct rule *r, enum rule_key key, const char *value)
{
        switch (key) {
        case RULE_KEY_PROGRAM:
                return set_program(r, value);
        case RULE_KEY_ROLE:
                return set_word(&r->role, roles, value, "is listen, connect or both");
        case RULE_KEY_PROTOCOL:
                return set_word(&r->proto, protocols, value, "is tcp, udp or both");
        case RULE_KEY_ADDRESS:
                return set_address(r, value);
        case RULE_KEY_PORT:
                return set_port(r, value);
        default:
                return set_word(&r->carrier, carriers, value, "is unet or kernel");
        }
}

static void put_address(const struct rule *r, char out[RULE_PROGRAM])
{
        struct in_addr in = {htonl(r->addr)};
        char addr[INET_ADDRSTRLEN];

        inet_ntop(AF_INET, &in, addr, sizeof addr);
        if (r->prefix == 0)
                snprintf(out, RULE_PROGRAM, "any");
        else if (r->prefix == 32)
                snprintf(out, RULE_PROGRAM, "%s", addr);
        else
                snprintf(out, RULE_PROGRAM, "%s/%u", addr, r->prefix);
}

static void put_port(const struct rule *r, char out[RULE_PROGRAM])
{
        if (r->port_low == 0)
                snprintf(out, RULE_PROGRAM, "any");
        else if (r->port_low == r->port_high)
                snprintf(out, RULE_PROGRAM, "%u", r->port_low);
        else
                snprintf(out, RULE_PROGRAM, "%u-%u", r->port_low, r->port_high);
}

void rule_put(const struct rule *r, enum rule_key key, char out[RULE_PROGRAM])
{
        switch (key) {
        case RULE_KEY_PROGRAM:
                snprintf(out, RULE_PROGRAM, "%s", r->program);
                break;
        case RULE_KEY_ROLE:
                snprintf(out, RULE_PROGRAM, "%s", word_of(roles, r->role));
                break;
        case RULE_KEY_PROTOCOL:
                snprintf(out, RULE_PROGRAM, "%s", word_of(protocols, r->proto));
                break;
        case RULE_KEY_ADDRESS:
                put_address(r, out);
                break;
        case RULE_KEY_PORT:
                put_port(r, out);
                break;
        default:
                snprintf(out, RULE_PROGRAM, "%s", word_of(carriers, r->carrier));
                break;
        }
}
