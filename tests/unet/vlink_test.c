/* The book of a link: a unetd that dies at any store leaves something that the next one can end,
 * and readers see a peer as it was or as it is to be. */
#include <stdlib.h>
#include <string.h>

#include "unet/verbs/vlink.h"
#include "tests/unit.h"

#define SLOT 5u

static const struct vlink_peer old = {.addr = 0x0a000001,
                                      .qpn = 17,
                                      .qkey = 1,
                                      .nranges = 1,
                                      .range = {{1000, 64, 6, 0}},
                                      .mine = 3};
static const struct vlink_peer new = {.addr = 0x0a000001,
                                      .qpn = 18,
                                      .qkey = 2,
                                      .nranges = 2,
                                      .range = {{1000, 64, 6, 0}, {53, 1, 17, 0}},
                                      .mine = 3,
                                      .version = 9};

static struct vlink_book *book(void)
{
        struct vlink_book *b = calloc(1, sizeof *b);

        vlink_put(b, SLOT, &old);
        return b;
}

static void expect(struct vlink_book *b, const struct vlink_peer *want)
{
        struct vlink_peer got;

        assert_true(vlink_read(b, SLOT, &got));
        assert_memory_equal(&got, want, sizeof got);
        assert_int_equal(b->seq & 1, 0);
        assert_int_equal(b->redo, 0);
        free(b);
}

static void what_is_put_is_read(void **state)
{
        struct vlink_book *b = book();

        assert_true(vlink_vouches(b, SLOT, 6, 1063));
        assert_false(vlink_vouches(b, SLOT, 6, 1064));
        assert_false(vlink_vouches(b, SLOT, 17, 1063));
        vlink_put(b, SLOT, &new);
        assert_true(vlink_vouches(b, SLOT, 17, 53));
        expect(b, &new);
}

static void nobody_is_read_as_nobody(void **state)
{
        struct vlink_book *b = book();
        struct vlink_peer got;

        vlink_put(b, SLOT, &(struct vlink_peer){.addr = 0});
        assert_false(vlink_read(b, SLOT, &got));
        assert_false(vlink_read(b, SLOT + 1, &got));
        free(b);
}

/* A stack has more channels than the book has peers. */
static void no_channel_has_anothers_peer(void **state)
{
        struct vlink_book *b = book();
        struct vlink_peer got;

        vlink_put(b, SLOT + VLINK_CHANS, &new);
        assert_false(vlink_read(b, SLOT + VLINK_CHANS, &got));
        assert_false(vlink_vouches(b, SLOT + VLINK_CHANS, 6, 1063));
        expect(b, &old);
}

/* Half of what is to be is there, and nobody knows of it. */
static void a_death_before_it_was_decided_changes_nothing(void **state)
{
        struct vlink_book *b = book();

        memcpy(&b->next, &new, sizeof new / 2);
        vlink_redo(b);
        expect(b, &old);
}

static void a_death_after_it_was_decided_is_made_good(void **state)
{
        struct vlink_book *b = book();

        b->next = new;
        b->redo = SLOT + 1;
        vlink_redo(b);
        expect(b, &new);
}

/* Readers see nothing while it is half copied, and everything afterwards. */
static void a_death_while_it_was_copied_is_made_good(void **state)
{
        for (size_t copied = 0; copied <= sizeof new; copied++) {
                struct vlink_book *b = book();
                struct vlink_peer got;

                b->next = new;
                b->redo = SLOT + 1;
                b->seq++;
                memcpy(&b->peer[SLOT], &new, copied);
                assert_false(vlink_read(b, SLOT, &got));
                vlink_redo(b);
                expect(b, &new);
        }
}

static void a_death_after_it_was_copied_is_made_good(void **state)
{
        struct vlink_book *b = book();

        vlink_put(b, SLOT, &new);
        b->redo = SLOT + 1; /* not taken back yet */
        vlink_redo(b);
        expect(b, &new);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_put_is_read),
                cmocka_unit_test(nobody_is_read_as_nobody),
                cmocka_unit_test(no_channel_has_anothers_peer),
                cmocka_unit_test(a_death_before_it_was_decided_changes_nothing),
                cmocka_unit_test(a_death_after_it_was_decided_is_made_good),
                cmocka_unit_test(a_death_while_it_was_copied_is_made_good),
                cmocka_unit_test(a_death_after_it_was_copied_is_made_good),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
