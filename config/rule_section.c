#include "config/rule_section.h"
#include "config/rule_text.h"

#include <errno.h>
#include <stdio.h>

struct rule *rule_section_get(struct reading *r, const char *name)
{
        struct unetd_config *c = r->c;
        size_t len = strlen(name);

        for (uint32_t i = 0; i < c->nrules; i++)
                if (strcmp(c->rule[i].name, name) == 0)
                        return &c->rule[i];
        if (len == 0 || len >= RULE_NAME) {
                reading_complain(r, "\"%s\" is not a rule's name: 1 to 23 bytes%s", name, "");
                return NULL;
        }
        if (c->nrules == RULES_MAX) {
                reading_complain(r, "there are too many rules%s%s", "", "");
                return NULL;
        }
        c->rule[c->nrules] = RULE_BLANK;
        memcpy(c->rule[c->nrules].name, name, len + 1);
        return &c->rule[c->nrules++];
}

int rule_section_line(struct reading *r, const char *section, const char *name, const char *value)
{
        struct rule *rule = rule_section_get(r, section + strlen(RULE_SECTION));
        unsigned k = 0;
        const char *wrong;

        if (!rule)
                return 0;
        while (k < RULE_KEYS && strcmp(rule_key_name(k), name) != 0)
                k++;
        if (k == RULE_KEYS)
                return reading_complain(r, "unknown key \"%s\" in [%s]", name, section);
        if (r->seen_rule[rule - r->c->rule] >> k & 1)
                return reading_complain(r, "\"%s\" is set twice%s", name, "");
        r->seen_rule[rule - r->c->rule] |= 1u << k;
        wrong = rule_set(rule, k, value);
        return wrong ? reading_complain(r, "\"%s\" %s", name, wrong) : 1;
}

int rule_section_check(struct reading *r)
{
        for (uint32_t k = 0; k < r->c->nrules; k++) {
                if (r->c->rule[k].carrier != RULE_UNSAID)
                        continue;
                reading_complain(r, "[rule %s] has no \"%s\"", r->c->rule[k].name,
                                 rule_key_name(RULE_KEY_CARRIER));
                r->err->line = r->line_of_rule[k];
                return -EINVAL;
        }
        return 0;
}

void rule_section_rows(const struct rule *rule, config_row_fn *row, void *arg)
{
        char section[sizeof RULE_SECTION + RULE_NAME], value[RULE_PROGRAM];

        snprintf(section, sizeof section, RULE_SECTION "%s", rule->name);
        for (unsigned k = 0; k < RULE_KEYS; k++) {
                rule_put(rule, k, value);
                row(arg, section, rule_key_name(k), value, rule_key_text(k));
        }
}
