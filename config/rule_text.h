/* [rule NAME], line by line, as people write it. */
#ifndef CONFIG_RULE_TEXT_H
#define CONFIG_RULE_TEXT_H

#include "config/rule.h"

enum rule_key {
        RULE_KEY_PROGRAM,
        RULE_KEY_ROLE,
        RULE_KEY_PROTOCOL,
        RULE_KEY_ADDRESS,
        RULE_KEY_PORT,
        RULE_KEY_CARRIER,
        RULE_KEYS
};

/* A rule before its first line: it fits everything, and says nothing. */
#define RULE_BLANK ((struct rule){.role = RULE_BOTH, .port_high = 65535})

const char *rule_key_name(enum rule_key key);
const char *rule_key_text(enum rule_key key);
/* NULL, and it is set; or what is wrong: a sentence's end as in "... wants a port". */
const char *rule_set(struct rule *r, enum rule_key key, const char *value);
/* The value of a key in these words. */
void rule_put(const struct rule *r, enum rule_key key, char out[RULE_PROGRAM]);

#endif
