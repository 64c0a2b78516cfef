/* [rule NAME] of a config file. */
#ifndef CONFIG_RULE_SECTION_H
#define CONFIG_RULE_SECTION_H

#include "config/reading.h"

#define RULE_SECTION "rule "

/* The rule of that name, which it makes; NULL after a complaint. */
struct rule *rule_section_get(struct reading *r, const char *name);
/* One key. Returns 1; or 0 after a complaint. */
int rule_section_line(struct reading *r, const char *section, const char *name, const char *value);
/* Complains about a rule that says nothing. Returns 0 or -EINVAL. */
int rule_section_check(struct reading *r);
void rule_section_rows(const struct rule *rule, config_row_fn *row, void *arg);

#endif
