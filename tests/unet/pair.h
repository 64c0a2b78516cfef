/*
 * Two endpoints joined by one channel over some provider: what the conformance suite runs on.
 *
 * A provider is a row of a table: how to join, and how to make what was sent arrive ("settle": a
 * switch is stepped, virtual time goes on, shared memory needs nothing).
 */
#ifndef TESTS_UNET_PAIR_H
#define TESTS_UNET_PAIR_H

#include <stdlib.h>

#include <unet/unet.h>

#include "unet/ep.h"
#include "tests/unit.h"

struct sim;
struct unet_switch;
struct unet_switch_account;
struct via;

struct pair {
        const struct provider *how;
        struct unet_ep *a, *b;
        uint32_t ca, cb;
        struct unet_segment sa, sb;
        struct sim *sim;
        struct unet_switch *sw;
        uint32_t la, lb; /* links to the switch */
        struct via *via; /* pair_unetd.c */
};

struct provider {
        const char *name;
        bool direct;
        bool drops_behind; /* a full receiver drops inside the provider, not at the endpoint */
        bool hears_close;  /* the peer's close is seen */
        void (*join)(struct pair *p);
        void (*settle)(struct pair *p); /* NULL: nothing to do */
        /* Nothing moves until the next settle; NULL: it does not anyway. */
        void (*hold)(struct pair *p);
        void (*leave)(struct pair *p); /* before the endpoints close; NULL: nothing to do */
};

extern const struct provider providers[];
extern const int nproviders;

/* Endpoints of the provider's kind; zero sizes are the test's: 256 KB each part, rx_slots 64. No
 * buffers provided. */
struct pair *pair_new(const struct provider *how, struct unet_ep_opts opts);
void pair_free(struct pair *p);
void pair_settle(struct pair *p);
void pair_hold(struct pair *p);

/* Attaches the endpoint to the switch, as unetd does; `account` may be NULL. Its port. */
uint32_t switch_join(struct unet_switch *sw, struct unet_switch_account *account,
                     struct unet_ep *ep, uint32_t *link);

/* Fills b's free queue with n buffers of `size` bytes from the start of its receive part. */
void pair_provide(struct pair *p, uint32_t n, uint32_t size);
/* Sends a message of `len` bytes that can be recognised by its number, as `unet_ep_send`:
 * up to `inl` bytes in the descriptor, the rest as one piece at `off` of a's segment, which
 * is written. */
int pair_send(struct pair *p, uint32_t number, uint32_t len, uint32_t inl, uint32_t off);
/* Settles, receives one message, which must be there and be number/len; gives its buffers or
 * loan back. */
void pair_expect(struct pair *p, uint32_t number, uint32_t len);
/* Settles; there must be nothing to receive. */
void pair_expect_none(struct pair *p);
/* Whether the message's bytes are those of number. */
bool message_is(const struct unet_recv *m, uint32_t number);
/* Gives the buffers of a message back to the free queue, or the loan. */
void pair_give_back(struct pair *p, const struct unet_recv *m);

#endif
