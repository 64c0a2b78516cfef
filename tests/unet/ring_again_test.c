/* A region that is used once more (shm_pos_begin()): what an earlier use has left in it is no
 * message and no return, whatever that was. The other side's region is a new one each time. */
#include <stdlib.h>
#include <string.h>

#include "unet/shm/shm_ring.h"
#include "tests/unit.h"

struct use {
        struct shm_pos stack, bridge;
        struct shm_region *mine; /* the stack's, which stays */
        struct shm_region *peer;
};

static void stack_sends(struct use *u, uint32_t number)
{
        struct unet_tx tx = {.inl = (const uint8_t *)&number, .inl_len = sizeof number};

        assert_true(shm_tx_room(&u->stack, u->peer) > 0);
        shm_tx_push(&u->stack, u->mine, &tx);
}

static void bridge_takes(struct use *u, uint32_t number)
{
        struct unet_rx rx;
        uint32_t got;

        assert_true(shm_rx_ready(&u->bridge, u->mine));
        assert_true(shm_rx_pull(&u->bridge, u->mine, &rx));
        memcpy(&got, rx.inl, sizeof got);
        assert_int_equal(got, number);
        assert_false(shm_rx_ready(&u->bridge, u->mine));
        shm_rx_publish(&u->bridge, u->peer);
}

/* A message with a frame, which comes back. */
static void bridge_sends(struct use *u, uint32_t number)
{
        struct unet_tx tx = {.frame = 1 + number % 50};
        struct unet_rx rx;

        assert_true(shm_tx_room(&u->bridge, u->mine) > 0);
        shm_tx_push(&u->bridge, u->peer, &tx);
        assert_true(shm_rx_ready(&u->stack, u->peer));
        assert_true(shm_rx_pull(&u->stack, u->peer, &rx));
        shm_ret_push(&u->stack, u->mine, rx.frame);
        if (shm_rx_unpublished(&u->stack, u->mine) >= SHM_PUBLISH_EVERY)
                shm_rx_publish(&u->stack, u->mine);
        assert_true(shm_ret_ready(&u->bridge, u->mine));
        assert_int_equal(shm_ret_pull(&u->bridge, u->mine), tx.frame);
        assert_false(shm_ret_ready(&u->bridge, u->mine));
}

static void use_it(struct shm_region *mine, uint32_t nth, uint32_t messages)
{
        struct use u = {.stack = shm_pos_begin(nth), .bridge = shm_pos_begin(nth), .mine = mine};

        u.peer = aligned_alloc(4096, sizeof *u.peer);
        memset(u.peer, 0, sizeof *u.peer);
        assert_false(shm_rx_ready(&u.bridge, u.mine) || shm_ret_ready(&u.bridge, u.mine));
        assert_false(shm_rx_ready(&u.stack, u.peer) || shm_ret_ready(&u.stack, u.peer));
        for (uint32_t i = 0; i < messages; i++) {
                stack_sends(&u, i);
                bridge_takes(&u, i);
                bridge_sends(&u, i);
        }
        free(u.peer);
}

static void what_is_left_means_nothing(void **state)
{
        static const uint32_t messages[] = {1,    3,    64,   500,  SHM_SLOTS, SHM_SLOTS + 1,
                                            5000, 8000, 9000, 20000};
        struct shm_region *mine = aligned_alloc(4096, sizeof *mine);
        uint32_t nth = 4000000000u; /* it begins anywhere, and wraps */

        memset(mine, 0, sizeof *mine);
        for (unsigned i = 0; i < ARRAY_LEN(messages); i++)
                for (unsigned k = 0; k < ARRAY_LEN(messages); k++) {
                        use_it(mine, nth++, messages[i]);
                        use_it(mine, nth++, messages[k]);
                }
        free(mine);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_left_means_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
