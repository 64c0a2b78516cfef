/*
 * [rule NAME] of unet.conf(5): which sockets are carried by this stack, and which by the kernel
 * alone. The first one that fits holds, in the file's order; where none does a socket is ours if it
 * can be.
 */
#ifndef CONFIG_RULE_H
#define CONFIG_RULE_H

#include "base/base.h"

#define RULES_MAX    32u
#define RULE_NAME    24u /* bytes, with the zero behind it */
#define RULE_PROGRAM 104u

enum rule_role { RULE_LISTENS = 1, RULE_CONNECTS = 2, RULE_BOTH = 3 };
enum rule_carrier { RULE_UNSAID, RULE_UNET, RULE_KERNEL };

struct rule {
        char name[RULE_NAME];
        /* Path of the file that runs, or what follows its last slash; empty: any. */
        char program[RULE_PROGRAM];
        uint32_t addr;   /* IPv4, host order */
        uint8_t prefix;  /* bits of addr that count; 0: any */
        uint8_t proto;   /* IPPROTO_TCP, IPPROTO_UDP; 0: both */
        uint8_t role;    /* enum rule_role */
        uint8_t carrier; /* enum rule_carrier */
        uint16_t port_low, port_high;
};

/* A socket that begins to listen, or is bound (UDP), with its own address; or one that connects or
 * sends, with the peer's. */
struct rule_asked {
        enum rule_role role; /* one of two */
        uint8_t proto;
        uint32_t addr; /* 0: all addresses, of which only rules without an address speak */
        uint16_t port;
        const char *program[2]; /* names of what runs; NULL: unknown */
};

static inline bool rule_is_program(const char *wanted, const char *path)
{
        const char *last = path != NULL ? strrchr(path, '/') : NULL;

        return path != NULL &&
               (strcmp(wanted, path) == 0 || (last != NULL && strcmp(wanted, last + 1) == 0));
}

static inline bool rule_fits(const struct rule *r, const struct rule_asked *q)
{
        uint32_t mask = r->prefix != 0 ? ~0u << (32 - r->prefix) : 0;

        return (r->role & q->role) != 0 && (r->proto == 0 || r->proto == q->proto) &&
               q->port >= r->port_low && q->port <= r->port_high &&
               ((q->addr ^ r->addr) & mask) == 0 &&
               (r->program[0] == '\0' || rule_is_program(r->program, q->program[0]) ||
                rule_is_program(r->program, q->program[1]));
}

/* The rule that gives it to the kernel; NULL: none does. */
static inline const struct rule *rule_against(const struct rule *rules, uint32_t n,
                                              const struct rule_asked *q)
{
        for (uint32_t i = 0; i < MIN(n, RULES_MAX); i++)
                if (rule_fits(&rules[i], q))
                        return rules[i].carrier == RULE_KERNEL ? &rules[i] : NULL;
        return NULL;
}

/* The same of sockets of a program that cannot be told: a rule that gives it to the kernel for all
 * of them. */
static inline const struct rule *rule_against_all(const struct rule *rules, uint32_t n,
                                                  const struct rule_asked *q)
{
        for (uint32_t i = 0; i < MIN(n, RULES_MAX); i++) {
                struct rule anyones = rules[i];

                anyones.program[0] = '\0';
                if (rule_fits(&anyones, q) &&
                    (rules[i].program[0] == '\0' || rules[i].carrier == RULE_UNET))
                        return rules[i].carrier == RULE_KERNEL ? &rules[i] : NULL;
        }
        return NULL;
}

#endif
