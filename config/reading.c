#include "config/reading.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int reading_complain(struct reading *r, const char *format, const char *a, const char *b)
{
        if (!r->failed)
                snprintf(r->err->text, sizeof r->err->text, format, a, b);
        r->failed = true;
        return 0;
}

int reading_word(struct reading *r, uint8_t *out, const char *key, const char *value,
                 const char *const words[], size_t n, const char *wanted)
{
        for (size_t i = 0; i < n; i++) {
                if (strcmp(value, words[i]) == 0) {
                        *out = (uint8_t)i;
                        return 1;
                }
        }
        return reading_complain(r, "\"%s\" wants %s", key, wanted);
}

int reading_number(struct reading *r, const char *key, const char *value, long low, long high,
                   long *out)
{
        char range[64], *end;

        errno = 0;
        *out = strtol(value, &end, 10);
        if (end != value && !*end && errno == 0 && *out >= low && *out <= high)
                return 1;
        snprintf(range, sizeof range, "%ld to %ld", low, high);
        return reading_complain(r, "\"%s\" wants a number from %s", key, range);
}
