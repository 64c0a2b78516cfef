/* Which keys there are, what values they take, and the one reading of a file. */
#include "config/config.h"
#include "config/iface_section.h"
#include "config/plain.h"
#include "config/reading.h"
#include "config/rule_section.h"
#include "config/sections.h"
#include "tcp/tcp_cc.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>

enum kind { NUMBER, SIGNED, TEXT, YES_NO, ECN, CONGESTION };

struct key {
        const char *section, *name, *text;
        enum kind kind;
        size_t off;
        long min, max; /* of numbers; TEXT: max is the size of the buffer */
};

// clang-format off
#define COUNT(section, name, field, min, max, text) \
        {section, name, text, NUMBER, offsetof(struct unetd_config, field), min, max}

#define YES(section, name, field, text) \
        {section, name, text, YES_NO, offsetof(struct unetd_config, field), 0, 1}
// clang-format on

static const char *const yes_no[] = {"no", "yes"};
static const char *const ecn[] = {
        [TCP_ECN_ACCEPT] = "accept", [TCP_ECN_NO] = "no", [TCP_ECN_ASK] = "ask"};
static const char *const congestion[] = {[TCP_CC_CUBIC] = "cubic",
                                         [TCP_CC_RENO] = "reno",
                                         [TCP_CC_BBR] = "bbr",
                                         [TCP_CC_DCTCP] = "dctcp"};
static_assert(ARRAY_LEN(congestion) == TCP_CC_COUNT, "each has its name");

/* Of which there is one, in a byte. */
static const struct {
        const char *const *name;
        unsigned n;
        const char *all;
} word_kinds[] = {
        [ECN] = {ecn, ARRAY_LEN(ecn), "accept, no or ask"},
        [CONGESTION] = {congestion, ARRAY_LEN(congestion), "cubic, reno, bbr or dctcp"},
};

static const struct key keys[] = {
        {"daemon", "idle", "seconds without clients and stacks after which unetd leaves; -1: never",
         SIGNED, offsetof(struct unetd_config, idle_s), -1, 86400},
        {"daemon", "log", "file that unetd writes what happens to; empty: none", TEXT,
         offsetof(struct unetd_config, log), 0, sizeof(((struct unetd_config *)0)->log)},
        COUNT("daemon", "lease_ports", lease_ports, 1, 4096,
              "client ports that a stack gets at once"),
        COUNT("daemon", "queue", queue_max, 1, 65536,
              "replies kept for a client that does not read them"),
        COUNT("limits", "clients", per_uid.clients, 1, 1048576, "connections to unetd of one user"),
        COUNT("limits", "stacks", per_uid.stacks, 1, 1048576, "stacks of one user"),
        COUNT("limits", "processes", per_uid.procs, 1, 1048576,
              "processes in all stacks of one user"),
        COUNT("limits", "channels", per_uid.chans, 1, 1048576, "channels of one user"),
        COUNT("limits", "channels_per_stack", per_uid.chans_per_stack, 1, 1024,
              "channels of one stack"),
        COUNT("limits", "listeners", per_uid.listeners, 1, 12288, "listening ports of one user"),
        COUNT("limits", "holds", per_uid.holds, 1, 65536, "ports held in the kernel for one user"),
        COUNT("limits", "leases", per_uid.leases, 4, 65536, "client ports of one user"),
        COUNT("limits", "emulated", per_uid.emul_endpoints, 1, 1023,
              "emulated endpoints of one user"),
        COUNT("limits", "emulated_names", per_uid.emul_names, 1, 65536,
              "names that emulated endpoints listen on"),
        COUNT("limits", "emulated_channels", per_uid.emul_chans, 2, 4096,
              "ends of channels between emulated endpoints"),
        COUNT("limits", "emulated_waiting_kb", per_uid.emul_kb, 64, 4194304,
              "KB of messages of emulated endpoints that wait for their receivers"),
        COUNT("limits", "emulated_waiting", per_uid.emul_msgs, 1, 1048576,
              "such messages with more than a descriptor"),
        COUNT("ip", "ttl", ip_ttl, 1, 255,
              "time to live of packets for which no socket says another"),
        YES("ip", "source_routes", source_routes,
            "whether packets that came by a source route are taken, and answered along it"),
        YES("ip", "redirects", redirects,
            "whether gateways on interfaces may name better ones (ICMP redirects)"),
        COUNT("ip", "arp_reachable", arp_reachable_s, 1, 86400,
              "seconds that a neighbour is good without a sign of life"),
        {"tcp", "ecn",
         "marks of congestion instead of losses (RFC 3168): accept where peers ask for them, no, "
         "or ask",
         ECN, offsetof(struct unetd_config, tcp_ecn), 0, 0},
        {"tcp", "congestion",
         "congestion control of connections that choose none: cubic, reno, bbr or dctcp",
         CONGESTION, offsetof(struct unetd_config, tcp_cc), 0, 0},
        COUNT("memory", "large_frames", geom.count[FRAME_LARGE], 16, 65536,
              "64 KB frames that a channel can send from, each way"),
        COUNT("memory", "small_frames", geom.count[FRAME_SMALL], 64, 1048576,
              "2 KB frames that a channel can send from, each way"),
};

/* ---- one line ---- */

static_assert(ARRAY_LEN(keys) <= 64, "one bit each in struct reading");

static const struct key *find_key(const char *section, const char *name)
{
        for (size_t i = 0; i < ARRAY_LEN(keys); i++)
                if (strcmp(keys[i].section, section) == 0 && strcmp(keys[i].name, name) == 0)
                        return &keys[i];
        return NULL;
}

static bool known_section(const char *section)
{
        for (size_t i = 0; i < ARRAY_LEN(keys); i++)
                if (strcmp(keys[i].section, section) == 0)
                        return true;
        return false;
}

static int set_text(struct reading *r, const struct key *k, const char *value)
{
        if (strlen(value) >= (size_t)k->max)
                return reading_complain(r, "the value of \"%s\" is too long%s", k->name, "");
        memcpy((char *)r->c + k->off, value, strlen(value) + 1);
        return 1;
}

static int set_number(struct reading *r, const struct key *k, const char *value)
{
        long v;

        if (!reading_number(r, k->name, value, k->min, k->max, &v))
                return 0;
        *(int32_t *)((char *)r->c + k->off) = (int32_t)v;
        return 1;
}

static int set_yes_no(struct reading *r, const struct key *k, const char *value)
{
        bool yes = strcmp(value, "yes") == 0;

        if (!yes && strcmp(value, "no") != 0)
                return reading_complain(r, "\"%s\" is yes or no%s", k->name, "");
        *(uint32_t *)((char *)r->c + k->off) = yes;
        return 1;
}

static bool is_section_of(const char *section, const char *kind)
{
        return strncmp(section, kind, strlen(kind)) == 0;
}

static int one_line(void *arg, const char *section, const char *name, const char *value)
{
        struct reading *r = arg;
        const struct key *k = find_key(section, name);

        if (strncmp(section, IFACE_SECTION, strlen(IFACE_SECTION)) == 0)
                return iface_section_line(r, section, name, value);
        if (is_section_of(section, RULE_SECTION))
                return rule_section_line(r, section, name, value);
        if (!k && *section == '\0')
                return reading_complain(r, "\"%s\" stands before any [section]%s", name, "");
        if (!k && !known_section(section))
                return reading_complain(r, "there is no section [%s]%s", section, "");
        if (!k)
                return reading_complain(r, "unknown key \"%s\" in [%s]", name, section);
        if (r->seen >> (k - keys) & 1)
                return reading_complain(r, "\"%s\" is set twice%s", name, "");
        r->seen |= (uint64_t)1 << (k - keys);
        if (k->kind == YES_NO)
                return set_yes_no(r, k, value);
        if (k->kind >= ECN)
                return reading_word(r, (uint8_t *)r->c + k->off, name, value,
                                    word_kinds[k->kind].name, word_kinds[k->kind].n,
                                    word_kinds[k->kind].all);
        return k->kind == TEXT ? set_text(r, k, value) : set_number(r, k, value);
}

/* ---- the file ---- */

/* Where the section of that name begins. */
static int *line_of_section(struct reading *r, const char *section)
{
        static int nowhere;
        const struct unetd_iface_config *i;
        const struct rule *rule;

        if (is_section_of(section, IFACE_SECTION)) {
                i = iface_section_get(r, section + strlen(IFACE_SECTION));
                return i != NULL ? &r->line_of[i - r->c->iface] : &nowhere;
        }
        if (is_section_of(section, RULE_SECTION)) {
                rule = rule_section_get(r, section + strlen(RULE_SECTION));
                return rule != NULL ? &r->line_of_rule[rule - r->c->rule] : &nowhere;
        }
        if (!known_section(section))
                reading_complain(r, "there is no section [%s]%s", section, "");
        return &nowhere;
}

static bool one_section(void *arg, const char *section, int line)
{
        struct reading *r = arg;
        int *begins = line_of_section(r, section);

        if (r->failed)
                r->err->line = line;
        else if (*begins == 0)
                *begins = line;
        return !r->failed;
}

int config_read(const char *path, struct unetd_config *c, struct config_error *err)
{
        struct unetd_config copy = *c;
        struct reading r = {.c = &copy, .err = err};
        const char *wrong;
        int line, why;

        *err = (struct config_error){0};
        snprintf(err->path, sizeof err->path, "%s", path);
        why = config_plain(path, &line, &wrong);
        if (why < 0) {
                bool text = why == -EINVAL;

                err->line = text ? line : 0;
                snprintf(err->text, sizeof err->text, "%s", text ? wrong : strerror(-why));
                return why;
        }
        errno = 0;
        line = ini_parse(path, one_line, &r);
        if (line < 0) {
                why = errno ? errno : ENOMEM;
                snprintf(err->text, sizeof err->text, "%s", strerror(why));
                return -why;
        }
        if (line > 0) {
                err->line = line;
                if (!r.failed)
                        snprintf(err->text, sizeof err->text,
                                 "not \"key = value\" and not \"[section]\"");
                return -EINVAL;
        }
        line = config_sections(path, one_section, &r);
        if (line < 0) {
                snprintf(err->text, sizeof err->text, "%s", strerror(-line));
                return line;
        }
        if (r.failed || iface_section_check(&r) < 0 || rule_section_check(&r) < 0 ||
            iface_routes_check(&r, path) < 0)
                return -EINVAL;
        *c = copy;
        return 0;
}

void config_each(const struct unetd_config *c, config_row_fn *row, void *arg)
{
        for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
                const char *at = (const char *)c + keys[i].off;
                char number[16];

                snprintf(number, sizeof number, "%d",
                         keys[i].kind == TEXT || keys[i].kind >= ECN ? 0 : *(const int32_t *)at);
                if (keys[i].kind == YES_NO)
                        row(arg, keys[i].section, keys[i].name, yes_no[*(const uint32_t *)at],
                            keys[i].text);
                else if (keys[i].kind >= ECN)
                        row(arg, keys[i].section, keys[i].name,
                            word_kinds[keys[i].kind].name[*(const uint8_t *)at], keys[i].text);
                else
                        row(arg, keys[i].section, keys[i].name, keys[i].kind == TEXT ? at : number,
                            keys[i].text);
        }
        for (uint32_t i = 0; i < c->nifaces; i++)
                iface_section_rows(c, i, row, arg);
        for (uint32_t i = 0; i < c->nrules; i++)
                rule_section_rows(&c->rule[i], row, arg);
}
