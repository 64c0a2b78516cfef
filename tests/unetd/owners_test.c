/* Whose a queue pair is: what the kernel's answers look like, and what is no answer. The rest is
 * tested where there is a device (tests/vm). */
#include <stdlib.h>
#include <string.h>

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include "unetd/agent/owners.h"
#include "tests/unit.h"

struct message {
        uint8_t bytes[512];
        size_t len;
};

static void put(struct message *m, uint16_t attr, const void *value, size_t bytes)
{
        struct nlattr a = {.nla_len = (uint16_t)(NLA_HDRLEN + bytes), .nla_type = attr};

        memcpy(m->bytes + m->len, &a, sizeof a);
        memcpy(m->bytes + m->len + NLA_HDRLEN, value, bytes);
        m->len += NLA_ALIGN(NLA_HDRLEN + bytes);
}

/* A queue pair as Linux 6.1 describes it. */
static struct message sample(uint32_t qpn, uint32_t pid)
{
        struct message m = {.len = NLMSG_HDRLEN};
        uint32_t index = 3;
        uint8_t type = 4;

        put(&m, RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof index);
        put(&m, RDMA_NLDEV_ATTR_DEV_NAME, "rxe0", 5);
        put(&m, RDMA_NLDEV_ATTR_RES_TYPE, &type, sizeof type);
        put(&m, RDMA_NLDEV_ATTR_RES_LQPN, &qpn, sizeof qpn);
        put(&m, RDMA_NLDEV_ATTR_RES_PID, &pid, sizeof pid);
        return m;
}

static void attributes_are_found(void **state)
{
        struct message m = sample(17, 4711);
        char name[OWNER_NAME];
        uint32_t v;

        assert_true(owner_attr_u32(m.bytes, m.len, RDMA_NLDEV_ATTR_RES_LQPN, &v));
        assert_int_equal(v, 17);
        assert_true(owner_attr_u32(m.bytes, m.len, RDMA_NLDEV_ATTR_RES_PID, &v));
        assert_int_equal(v, 4711);
        assert_true(owner_attr_text(m.bytes, m.len, RDMA_NLDEV_ATTR_DEV_NAME, name));
        assert_string_equal(name, "rxe0");
}

static void what_is_not_there_is_not_found(void **state)
{
        struct message m = sample(17, 4711);
        uint32_t v;

        assert_false(owner_attr_u32(m.bytes, m.len, RDMA_NLDEV_ATTR_RES_KERN_NAME, &v));
        assert_false(owner_attr_u32(m.bytes, m.len, RDMA_NLDEV_ATTR_RES_TYPE, &v)); /* one byte */
        assert_false(owner_attr_u32(m.bytes, 3, RDMA_NLDEV_ATTR_RES_LQPN, &v));
}

/* Each length, in memory of just that many bytes. */
static void what_is_cut_short_is_not_read_beyond(void **state)
{
        struct message m = sample(17, 4711);
        uint32_t v;

        for (size_t len = 0; len < m.len; len++) {
                uint8_t *exact = malloc(len != 0 ? len : 1);
                memcpy(exact, m.bytes, len);
                assert_false(owner_attr_u32(exact, len, RDMA_NLDEV_ATTR_RES_PID, &v));
                free(exact);
        }
}

static void a_gid_is_an_ipv4_address_or_not(void **state)
{
        assert_true(owner_gid_is("0000:0000:0000:0000:0000:ffff:0a4d:0001\n", 0x0a4d0001));
        assert_false(owner_gid_is("0000:0000:0000:0000:0000:ffff:0a4d:0002\n", 0x0a4d0001));
        assert_false(owner_gid_is("fe80:0000:0000:0000:0000:ffff:0a4d:0001\n", 0x0a4d0001));
        assert_false(owner_gid_is("0000:0000:0000:0000:0000:0000:0a4d:0001\n", 0x0a4d0001));
        assert_false(owner_gid_is("", 0));
        assert_false(owner_gid_is("0000:0000", 0));
}

/* Where there is no RDMA, or no such device. */
static void nobody_has_an_address_that_no_device_has(void **state)
{
        int32_t tid;

        assert_true(owner_of(0, 17, &tid) < 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(attributes_are_found),
                cmocka_unit_test(what_is_not_there_is_not_found),
                cmocka_unit_test(what_is_cut_short_is_not_read_beyond),
                cmocka_unit_test(a_gid_is_an_ipv4_address_or_not),
                cmocka_unit_test(nobody_has_an_address_that_no_device_has),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
