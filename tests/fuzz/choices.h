/* The input of a fuzzer as a row of choices: bytes and numbers, 0 when it has ended. */
#ifndef TESTS_FUZZ_CHOICES_H
#define TESTS_FUZZ_CHOICES_H

#include <stdint.h>

struct choices {
        const uint8_t *at, *end;
};

static inline unsigned byte(struct choices *c)
{
        return c->at < c->end ? *c->at++ : 0;
}

/* Of so many bytes, the most significant first. */
static inline uint32_t number(struct choices *c, unsigned bytes)
{
        uint32_t v = 0;

        while (bytes-- > 0)
                v = v << 8 | byte(c);
        return v;
}

#endif
