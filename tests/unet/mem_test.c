/* Messages that are put together out of a region: whole, and in parts of any size. */
#include "unet/mem.h"
#include "tests/unit.h"

#define BYTES 4096u

static uint8_t segment[BYTES];
static const uint8_t head[54] = {1, 2, 3};

static void parts_are_as(const struct unet_mem *m, const struct unet_tx *tx)
{
        uint8_t whole[BYTES], part[BYTES + 1];
        uint32_t bytes = (uint32_t)unet_tx_bytes(tx);

        assert_true(unet_mem_gather(m, tx, whole));
        for (uint32_t from = 0; from <= bytes; from++)
                for (uint32_t len = 0; len <= bytes - from; len += len < 8 ? 1 : 61) {
                        part[len] = 0xa5;
                        assert_true(unet_mem_gather_part(m, tx, from, len, part));
                        assert_memory_equal(part, whole + from, len);
                        assert_int_equal(part[len], 0xa5);
                }
}

static void a_part_is_what_stands_there_in_the_whole(void **state)
{
        static const struct unet_range more[] = {{3000, 300}, {7, 0}, {90, 1}};
        const struct unet_mem flat = unet_mem_flat(segment, sizeof segment);
        const struct unet_mem frames =
                unet_mem_frames(segment, (struct frame_geom){{[FRAME_SMALL] = 2}});

        for (uint32_t i = 0; i < BYTES; i++)
                segment[i] = (uint8_t)(i * 7 + (i >> 8));
        parts_are_as(&flat, &(struct unet_tx){.inl = head, .inl_len = sizeof head});
        parts_are_as(&flat, &(struct unet_tx){
                                    .inl = head, .inl_len = 0, .frame = 1, .off = 100, .len = 200});
        parts_are_as(&flat, &(struct unet_tx){.inl = head,
                                              .inl_len = 20,
                                              .frame = 1,
                                              .off = 100,
                                              .len = 200,
                                              .nmore = 3,
                                              .more = more});
        parts_are_as(
                &frames,
                &(struct unet_tx){
                        .inl = head, .inl_len = sizeof head, .frame = 2, .off = 8, .len = 700});
}

static void what_is_outside_the_region_is_refused(void **state)
{
        const struct unet_mem flat = unet_mem_flat(segment, sizeof segment);
        const struct unet_range beyond = {BYTES - 1, 2};
        const struct unet_tx no_more = {.inl = head, .inl_len = 10},
                             behind = {.inl = head,
                                       .inl_len = 10,
                                       .frame = 1,
                                       .off = BYTES,
                                       .len = 1},
                             second = {.inl = head,
                                       .inl_len = 10,
                                       .frame = 1,
                                       .len = 1,
                                       .nmore = 1,
                                       .more = &beyond};
        uint8_t to[BYTES];

        assert_false(unet_mem_gather_part(&flat, &no_more, 0, 11, to));
        assert_false(unet_mem_gather_part(&flat, &behind, 5, 6, to));
        assert_false(unet_mem_gather_part(&flat, &second, 0, 13, to));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_part_is_what_stands_there_in_the_whole),
                cmocka_unit_test(what_is_outside_the_region_is_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
