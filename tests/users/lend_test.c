/*
 * Without copies between users: what a process is lent nobody can change, and what it has reserved,
 * or in memory that it sends from, and not sent nobody can see. Which memory that is says
 * /proc/self/maps: a peer's frames are mapped for reading only, and our own for writing, shared
 * with the peer.
 */
#include "tests/users/users.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "unet/flow.h"

#define BYTES (4u << 20)

static uint8_t byte_at(uint64_t pos)
{
        return (uint8_t)(pos * 31 + pos / 253);
}

/* How the memory at p is mapped, as "rw-s". */
static void mapped(const void *p, char perms[5])
{
        FILE *f = fopen("/proc/self/maps", "re");
        char line[512];

        must(f != NULL);
        perms[0] = '\0';
        while (fgets(line, sizeof line, f) != NULL) {
                unsigned long from, to;
                if (sscanf(line, "%lx-%lx %4s", &from, &to, perms) == 3 && (uintptr_t)p >= from &&
                    (uintptr_t)p < to)
                        break;
        }
        fclose(f);
}

/* value[0]: the peer is another user. */
static int receives(void)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof at;
        int l = unet_socket(AF_INET, SOCK_STREAM, 0), s, n;
        struct unet_loan v[16];
        uint64_t pos = 0;
        char perms[5];

        must(l >= 0 && unet_bind(l, (struct sockaddr *)&at, len) == 0 && unet_listen(l, 4) == 0);
        must(unet_getsockname(l, (struct sockaddr *)&at, &len) == 0);
        table->port = ntohs(at.sin_port);
        s = unet_accept(l, NULL, NULL);
        must(s >= 0);
        while ((n = unet_recv_lend(s, v, 16, 0)) > 0) {
                for (int i = 0; i < n; i++) {
                        for (uint32_t k = 0; k < v[i].len; k++)
                                must(((const uint8_t *)v[i].ptr)[k] == byte_at(pos + k));
                        pos += v[i].len;
                        mapped(v[i].ptr, perms);
                        must(table->value[0] == 0 || strcmp(perms, "rw-s") == 0);
                        if (strcmp(perms, "r--s") == 0)
                                table->value[1]++;
                }
                must(unet_recv_return(s, v, n) == 0);
        }
        must(n == 0 && pos == BYTES);
        return 0;
}

static int connects(void)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);

        must_eventually(table->port != 0);
        to.sin_port = htons((uint16_t)table->port);
        must(s >= 0 && unet_connect(s, (struct sockaddr *)&to, sizeof to) == 0);
        return s;
}

#define PIECE 200000u

/* Towards another user each cookie is there at once, and what is written then he does not see. */
static int sends_from_memory(void)
{
        int s = connects();
        uint64_t cookie = 0;
        void *out;
        uint8_t *p;

        must(unet_memory_new(PIECE, &out) == 0);
        p = out;
        for (uint64_t pos = 0, n; pos < BYTES; pos += n) {
                n = BYTES - pos < PIECE ? BYTES - pos : PIECE;
                for (uint64_t k = 0; k < n; k++)
                        p[k] = byte_at(pos + k);
                must(unet_memory_send(s, p, n, 0, pos + 1) == (ssize_t)n);
                if (table->value[0] != 0)
                        must(unet_memory_reap(s, &cookie, 1) == 1);
                else
                        must_eventually(unet_memory_reap(s, &cookie, 1) == 1);
                must(cookie == pos + 1);
                memset(p, 0xee, PIECE);
        }
        must(unet_close(s) == 0);
        return 0;
}

static int sends(void)
{
        struct iovec v[UNET_RESERVE_MOST];
        char perms[5];
        int s = connects(), n;

        for (uint64_t pos = 0, sum; pos < BYTES; pos += sum) {
                n = unet_send_reserve(s, BYTES - pos, v, UNET_RESERVE_MOST, 0);
                must(n > 0);
                sum = 0;
                for (int i = 0; i < n; i++) {
                        mapped(v[i].iov_base, perms);
                        must(strcmp(perms, table->value[0] != 0 ? "rw-p" : "rw-s") == 0);
                        for (size_t k = 0; k < v[i].iov_len; k++)
                                ((uint8_t *)v[i].iov_base)[k] = byte_at(pos + sum + k);
                        sum += v[i].iov_len;
                }
                must(unet_send_commit(s, sum, 0) == (ssize_t)sum);
        }
        must(unet_close(s) == 0);
        return 0;
}

static void streams(uint32_t from, uint32_t to, int (*sends_so)(void))
{
        pid_t receiver, sender;

        table->port = 0;
        table->value[0] = from != to;
        table->value[1] = 0;
        receiver = users_begin(to, receives);
        sender = users_begin(from, sends_so);
        users_wait(sender);
        users_wait(receiver);
}

static void another_user_neither_changes_what_is_lent_nor_sees_what_is_reserved(void **state)
{
        if (users_cannot_run())
                skip();
        streams(HOSTILE, VICTIM, sends);
        assert_int_equal(table->value[1], 0);
}

static void another_user_gets_a_copy_of_what_is_sent_from_memory(void **state)
{
        if (users_cannot_run())
                skip();
        streams(HOSTILE, VICTIM, sends_from_memory);
        assert_int_equal(table->value[1], 0);
}

static void processes_of_one_user_share_frames(void **state)
{
        if (users_cannot_run())
                skip();
        streams(VICTIM, VICTIM, sends);
        assert_true(table->value[1] > 0);
        streams(VICTIM, VICTIM, sends_from_memory);
        assert_true(table->value[1] > 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(
                        another_user_neither_changes_what_is_lent_nor_sees_what_is_reserved,
                        users_setup, users_teardown),
                cmocka_unit_test_setup_teardown(
                        another_user_gets_a_copy_of_what_is_sent_from_memory, users_setup,
                        users_teardown),
                cmocka_unit_test_setup_teardown(processes_of_one_user_share_frames, users_setup,
                                                users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
