/* How ranks of several hosts meet (am/am_meet.h), and who does not get in. */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "am/am_meet.h"
#include "tests/unit.h"

#define RANKS 5u

static const uint8_t key[AM_KEY] = "fifteen letters";

static nstime soon(void)
{
        return clock_now() + 60 * NS_PER_S;
}

static struct am_address here(struct am_door *d)
{
        struct am_address at;

        assert_int_equal(am_address_read("127.0.0.1 9", &at), 0);
        assert_int_equal(am_door_open(d, &at), 0);
        assert_int_equal(am_address_of(d->fd, false, &at), 0);
        return at;
}

/* What unet am run does: takes all, tells all. */
static void *usher(void *arg)
{
        struct am_address at[RANKS];
        int sock[RANKS];

        for (uint32_t i = 0; i < RANKS; i++) {
                struct am_hello h;
                int s = am_door_take(arg, key, AM_ANYONE, soon(), &h);
                uint32_t rank = be32_get(h.rank);
                assert_true(s >= 0 && rank < RANKS);
                assert_int_equal(am_address_of(s, true, &at[rank]), 0);
                at[rank].port = h.port;
                sock[rank] = s;
        }
        for (uint32_t i = 0; i < RANKS; i++) {
                assert_int_equal(send(sock[i], at, sizeof at, MSG_NOSIGNAL), sizeof at);
                close(sock[i]);
        }
        return NULL;
}

struct member {
        struct am_meeting m;
        struct am_address where;
};

/* Meets all others, in the order of am_job.c, and each says who it is. */
static void *member(void *arg)
{
        struct member *x = arg;

        assert_int_equal(am_meet(&x->m, &x->where, soon()), 0);
        for (uint32_t sum = 0; sum < 2 * RANKS; sum++) {
                uint32_t with = sum - x->m.rank, said = x->m.rank, heard = UINT32_MAX;
                int s;
                if (with >= RANKS || with == x->m.rank)
                        continue;
                s = am_meet_rank(&x->m, with, soon());
                assert_true(s >= 0);
                assert_int_equal(send(s, &said, sizeof said, MSG_NOSIGNAL), sizeof said);
                assert_int_equal(am_receive_all(s, &heard, sizeof heard, soon()), 0);
                assert_int_equal(heard, with);
                close(s);
        }
        am_door_close(&x->m.door);
        return NULL;
}

static int dial(const struct am_address *to)
{
        struct sockaddr_in sa = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)be32_get(to->port)),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_int_equal(connect(s, (struct sockaddr *)&sa, sizeof sa), 0);
        return s;
}

static void all_ranks_meet(void **state)
{
        struct member x[RANKS];
        pthread_t t[RANKS + 1];
        struct am_door d;
        struct am_address at = here(&d);

        pthread_create(&t[RANKS], NULL, usher, &d);
        for (uint32_t i = 0; i < RANKS; i++) {
                x[i] = (struct member){.m = {.rank = i, .ranks = RANKS}, .where = at};
                memcpy(x[i].m.key, key, AM_KEY);
                pthread_create(&t[i], NULL, member, &x[i]);
        }
        for (uint32_t i = 0; i <= RANKS; i++)
                pthread_join(t[i], NULL);
        am_door_close(&d);
}

/* Who says nothing, something else, or another key is not taken, however many they are; and the
 * rank gets in all the same. */
static void strangers_hold_nobody_up(void **state)
{
        struct am_door d;
        struct am_address at = here(&d);
        struct am_hello h = {.magic = be32_of(0x554e616du)}, got;
        int silent[2 * AM_KNOCKERS], wrong = dial(&at), s;
        char end;

        for (uint32_t i = 0; i < 2 * AM_KNOCKERS; i++) {
                silent[i] = dial(&at);
                am_door_take(&d, key, AM_ANYONE, 0, &got);
        }
        assert_int_equal(send(wrong, &h, sizeof h, MSG_NOSIGNAL), sizeof h);
        assert_int_equal(am_door_take(&d, key, AM_ANYONE, clock_now() + NS_PER_MS, &got),
                         -ETIMEDOUT);
        assert_true(recv(wrong, &end, 1, 0) <= 0); /* it is shut out */
        s = dial(&at);
        memcpy(h.key, key, AM_KEY);
        h.rank = be32_of(3);
        assert_int_equal(send(s, &h, sizeof h, MSG_NOSIGNAL), sizeof h);
        close(s);
        s = am_door_take(&d, key, 3, soon(), &got);
        assert_true(s >= 0);
        assert_int_equal(be32_get(got.rank), 3);
        close(s);
        for (uint32_t i = 0; i < 2 * AM_KNOCKERS; i++)
                close(silent[i]);
        close(wrong);
        am_door_close(&d);
}

/* A rank that comes before its turn waits. */
static void ranks_are_taken_in_their_turn(void **state)
{
        struct am_door d;
        struct am_address at = here(&d);
        struct am_hello h = {.magic = be32_of(0x554e616du)}, got;
        int s[2];

        memcpy(h.key, key, AM_KEY);
        for (uint32_t i = 0; i < 2; i++) {
                s[i] = dial(&at);
                h.rank = be32_of(i);
                assert_int_equal(send(s[i], &h, sizeof h, MSG_NOSIGNAL), sizeof h);
        }
        for (uint32_t i = 2; i-- > 0;) {
                int took = am_door_take(&d, key, i, soon(), &got);
                assert_true(took >= 0);
                assert_int_equal(be32_get(got.rank), i);
                close(took);
                close(s[i]);
        }
        am_door_close(&d);
}

static struct am_door full; /* by who came before */
static volatile sig_atomic_t before;

static void make_room(int sig)
{
        static int times;

        if (++times == 10 && before == 0)
                before = accept(full.fd, NULL, NULL);
}

/* A rank whose timer rings all the time gets there as another. */
static void a_signal_ends_no_connect(void **state)
{
        struct am_meeting m = {.rank = 1, .ranks = 2, .at = {here(&full)}};
        struct sigaction sa = {.sa_handler = make_room}, was; /* no SA_RESTART */
        struct itimerval every = {{0, 5000}, {0, 5000}}, never = {0};
        int first, s;

        assert_int_equal(listen(full.fd, 0), 0); /* one may wait */
        first = dial(&m.at[0]);
        sigaction(SIGALRM, &sa, &was);
        setitimer(ITIMER_REAL, &every, NULL);
        s = am_meet_rank(&m, 0, soon());
        setitimer(ITIMER_REAL, &never, NULL);
        sigaction(SIGALRM, &was, NULL);
        assert_true(s >= 0);
        assert_true(before > 0);
        close(s);
        close(first);
        close(before);
        am_door_close(&full);
}

static void addresses_and_keys(void **state)
{
        static const char *const wrong[] = {"", "127.0.0.1", "127.0.0.1 0", "127.0.0.1 65536",
                                            "host 7"};
        char text[64], hex[2 * AM_KEY + 1];
        uint8_t back[AM_KEY];
        struct am_address at;

        for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
                assert_int_equal(am_address_read(wrong[i], &at), -EINVAL);
        assert_int_equal(am_address_read("fd00::1 7", &at), 0);
        am_address_write(&at, text, sizeof text);
        assert_string_equal(text, "fd00::1 7");
        am_key_write(key, hex);
        assert_true(am_key_read(hex, back));
        assert_memory_equal(back, key, AM_KEY);
        hex[31] = '\0';
        assert_false(am_key_read(hex, back));
        assert_false(am_key_read("", back));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(all_ranks_meet),
                cmocka_unit_test(strangers_hold_nobody_up),
                cmocka_unit_test(ranks_are_taken_in_their_turn),
                cmocka_unit_test(a_signal_ends_no_connect),
                cmocka_unit_test(addresses_and_keys),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
