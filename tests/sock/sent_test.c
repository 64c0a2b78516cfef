/* <unet/flow.h>: memory of the program's own, sent where it lies and as often as it likes, and the
 * cookies that say when nobody reads it any more. */
#include "tests/sock/sides.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/frame.h"
#include "unet/flow.h"

#define BYTES (1u << 20)
#define MANY  512

static uint8_t *memory_of(size_t bytes)
{
        void *p = NULL;

        CHECK(unet_memory_new(bytes, &p) == 0 && p != NULL);
        return p;
}

/* Sleeps until there is a cookie. */
static void waits_for_one(int c)
{
        struct unet_pollset *set = unet_pollset_create();
        struct unet_event ev;

        CHECK(set != NULL && unet_pollset_add(set, c, UNET_EV_SENT, 7) == 0);
        CHECK(unet_pollset_wait(set, &ev, 1, PATIENCE_MS) == 1);
        CHECK(ev.data == 7 && ev.events & UNET_EV_SENT);
        unet_pollset_destroy(set);
}

static uint64_t next_cookie(int c)
{
        uint64_t cookie = 0;

        waits_for_one(c);
        CHECK(unet_memory_reap(c, &cookie, 1) == 1);
        return cookie;
}

/* ---- many times ---- */

#define TIMES 40

static void sends_it_many_times(struct side *s)
{
        uint8_t *p = memory_of(BYTES);
        int c = side_connect(s), first = 0;
        uint64_t got[4];

        fill(p, BYTES, s->arg, 0);
        for (int i = 0; i < TIMES; i++) {
                int n = unet_memory_reap(c, got, 4);
                CHECK(n >= 0);
                for (int k = 0; k < n; k++)
                        CHECK(got[k] == 100u + (uint64_t)first++);
                CHECK(unet_memory_send(c, p + i, BYTES - (size_t)i, 0, 100u + (uint64_t)i) ==
                      (ssize_t)BYTES - i);
        }
        for (; first < TIMES; first++)
                CHECK(next_cookie(c) == 100u + (uint64_t)first);
        CHECK(unet_memory_reap(c, got, 4) == 0);
        memset(p, 0, BYTES);
        CHECK(unet_memory_free(p) == 0);
        CHECK(unet_close(c) == 0);
}

static void reads_all(int c, uint8_t *p, size_t bytes)
{
        CHECK(unet_recv(c, p, bytes, MSG_WAITALL) == (ssize_t)bytes);
}

/* A loan, and how much of it was taken. */
struct taken {
        struct unet_loan v;
        size_t at;
};

static size_t takes_of_loan(int c, struct taken *t, uint8_t *p, size_t most)
{
        size_t n = t->v.len - t->at < most ? t->v.len - t->at : most;

        memcpy(p, (const uint8_t *)t->v.ptr + t->at, n);
        t->at += n;
        if (t->at == t->v.len) {
                CHECK(unet_recv_return(c, &t->v, 1) == 0);
                *t = (struct taken){0};
        }
        return n;
}

/* Where there was no name left bytes of two calls come in one piece. */
static void takes_all(int c, struct taken *t, uint8_t *p, size_t bytes, bool by_loan)
{
        for (size_t done = 0; done < bytes;) {
                if (t->v.len == 0 && !by_loan) {
                        reads_all(c, p + done, bytes - done);
                        return;
                }
                CHECK(t->v.len != 0 || unet_recv_lend(c, &t->v, 1, 0) == 1);
                done += takes_of_loan(c, t, p + done, bytes - done);
        }
}

static void reads_it_many_times(struct side *s)
{
        static uint8_t got[BYTES];
        struct taken t = {0};
        int c = side_accept(s);

        for (int i = 0; i < TIMES; i++) {
                takes_all(c, &t, got, BYTES - (size_t)i, i % 2 == 0);
                CHECK(filled(got, BYTES - (size_t)i, s->arg, (uint64_t)i));
        }
        CHECK(unet_recv(c, got, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void the_same_memory_is_sent_many_times(void **state)
{
        play_both(sends_it_many_times, reads_it_many_times, test_seed());
}

/* ---- where it lies, and until it is given back ---- */

#define PIECE 50000u

static void writes_while_it_is_lent(struct side *s)
{
        uint8_t *p = memory_of(BYTES);
        int c = side_connect(s);
        uint64_t cookie;

        memset(p, 1, PIECE);
        CHECK(unet_memory_send(c, p, PIECE, 0, 11) == PIECE);
        CHECK(unet_memory_send(c, p, PIECE, 0, 12) == PIECE);
        CHECK(hear(s) == 1); /* all of it is lent */
        CHECK(unet_memory_reap(c, &cookie, 1) == 0);
        CHECK_ERR(unet_memory_free(p), EBUSY);
        p[PIECE / 2] = 99;
        tell(s, 0);
        CHECK(hear(s) == 2); /* the second one was given back */
        CHECK(unet_memory_reap(c, &cookie, 1) == 0);
        tell(s, 0);
        CHECK(next_cookie(c) == 11 && next_cookie(c) == 12);
        CHECK(unet_memory_free(p) == 0);
        CHECK(hear(s) == 3);
        CHECK(unet_close(c) == 0);
}

static int lends_piece(int c, struct unet_loan *v)
{
        size_t sum = 0;
        int n = 0;

        while (sum < PIECE) {
                CHECK(unet_recv_lend(c, &v[n], 1, 0) == 1);
                sum += v[n++].len;
        }
        CHECK(sum == PIECE);
        return n;
}

static uint8_t byte_at(const struct unet_loan *v, size_t at)
{
        for (; at >= v->len; v++)
                at -= v->len;
        return ((const volatile uint8_t *)v->ptr)[at];
}

static void sees_it_change(struct side *s)
{
        static struct unet_loan a[MANY], b[MANY];
        int c = side_accept(s), na = lends_piece(c, a), nb = lends_piece(c, b);

        CHECK(byte_at(a, PIECE / 2) == 1);
        tell(s, 1);
        hear(s);
        CHECK(byte_at(a, PIECE / 2) == 99 && byte_at(b, PIECE / 2) == 99); /* the same byte */
        CHECK(unet_recv_return(c, b, nb) == 0);
        tell(s, 2);
        hear(s);
        CHECK(unet_recv_return(c, a, na) == 0);
        tell(s, 3);
        CHECK(unet_recv(c, &(char){0}, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void a_cookie_comes_when_the_loans_are_given_back(void **state)
{
        play_both(writes_while_it_is_lent, sees_it_change, 0);
}

/* ---- events by the edge ---- */

static void hears_of_each_once(struct side *s)
{
        uint8_t *p = memory_of(BYTES);
        int c = side_connect(s);
        struct unet_pollset *set = unet_pollset_create();
        struct unet_event ev;
        uint64_t cookie;

        CHECK(unet_pollset_add(set, c, UNET_EV_SENT | UNET_EDGE, 0) == 0);
        CHECK(unet_pollset_wait(set, &ev, 1, 0) == 0);
        for (uint64_t i = 0; i < 20; i++) {
                CHECK(unet_memory_send(c, p, i % 3 == 0 ? 10 : PIECE, 0, i) > 0);
                CHECK(unet_pollset_wait(set, &ev, 1, PATIENCE_MS) == 1);
                CHECK(ev.events == UNET_EV_SENT);
                CHECK(unet_pollset_wait(set, &ev, 1, 0) == 0);
                CHECK(unet_memory_reap(c, &cookie, 1) == 1 && cookie == i);
        }
        unet_pollset_destroy(set);
        CHECK(unet_close(c) == 0);
}

static void reads_to_the_end(struct side *s)
{
        static uint8_t buf[65536];
        int c = side_accept(s);

        while (unet_recv(c, buf, sizeof buf, 0) > 0)
                ;
        CHECK(unet_close(c) == 0);
}

static void an_edge_comes_with_each_cookie(void **state)
{
        play(TWO_PROCESSES, hears_of_each_once, reads_to_the_end, 0);
}

/* ---- used wrongly ---- */

static void misuses(struct side *s)
{
        int c = side_connect(s), other;
        uint8_t *p = memory_of(100000), mine[10000] = {0};
        uint64_t got[8];
        void *out;

        CHECK_ERR(unet_memory_new(0, &out), EINVAL);
        CHECK_ERR(unet_memory_new(3ull << 30, &out), ENOMEM);
        CHECK_ERR(unet_memory_new(1, NULL), EFAULT);
        CHECK_ERR(unet_memory_free(p + 1), EINVAL);
        CHECK_ERR(unet_memory_free(mine), EINVAL);
        CHECK_ERR(unet_memory_send(c, mine, sizeof mine, 0, 1), EINVAL);
        CHECK_ERR(unet_memory_send(c, p, 4u << 20, 0, 1), EINVAL);
        CHECK_ERR(unet_memory_send(c, p, 0, 0, 1), EINVAL);
        CHECK_ERR(unet_memory_send(c, p, 1, MSG_OOB, 1), EINVAL);
        CHECK_ERR(unet_memory_send(999, p, 1, 0, 1), EBADF);
        CHECK_ERR(unet_memory_reap(c, NULL, 1), EFAULT);
        CHECK_ERR(unet_memory_reap(c, got, 0), EINVAL);
        other = unet_socket(AF_INET, SOCK_DGRAM, 0);
        CHECK_ERR(unet_memory_send(other, p, 1, 0, 1), EOPNOTSUPP);
        CHECK(unet_close(other) == 0);
        other = unet_socket(AF_INET, SOCK_STREAM, 0);
        CHECK(unet_memory_send(other, p, 1, 0, 1) == -1);
        CHECK(unet_memory_reap(other, got, 1) == 0);
        CHECK(unet_close(other) == 0);
        for (uint64_t i = 0; i < UNET_MEMORY_COOKIES; i++)
                CHECK(unet_memory_send(c, p, 1, 0, i) == 1);
        CHECK_ERR(unet_memory_send(c, p, 1, 0, 1), ENOBUFS);
        CHECK(unet_memory_reap(c, got, 8) == 8 && got[0] == 0 && got[7] == 7);
        CHECK(unet_memory_send(c, p, 1, 0, 77) == 1);
        for (uint64_t i = 8; i < UNET_MEMORY_COOKIES; i++)
                CHECK(unet_memory_reap(c, got, 1) == 1 && got[0] == i);
        CHECK(unet_memory_reap(c, got, 8) == 1 && got[0] == 77);
        CHECK(unet_memory_free(p) == 0);
        CHECK_ERR(unet_memory_free(p), EINVAL);
        CHECK_ERR(unet_memory_send(c, p, 1, 0, 1), EINVAL);
        CHECK(unet_close(c) == 0);
}

static void what_is_no_such_memory_is_refused(void **state)
{
        play(TWO_PROCESSES, misuses, reads_to_the_end, 0);
}

static void has_as_many_as_there_are(struct side *s)
{
        void *p[64], *out;

        for (int i = 0; i < 64; i++)
                p[i] = memory_of(1);
        CHECK_ERR(unet_memory_new(1, &out), ENOMEM);
        for (int i = 63; i >= 0; i--)
                CHECK(unet_memory_free(p[i]) == 0);
        p[0] = memory_of(100u << 20);
        p[1] = memory_of(156u << 20);
        CHECK_ERR(unet_memory_new(1, &out), ENOMEM);
        CHECK(unet_memory_free(p[0]) == 0);
        CHECK_ERR(unet_memory_new((100u << 20) + 1, &out), ENOMEM);
        p[0] = memory_of(100u << 20);
        CHECK(unet_memory_free(p[0]) == 0 && unet_memory_free(p[1]) == 0);
        memory_of(256u << 20);
}

static void there_are_so_many_memories(void **state)
{
        assert_int_equal(play_alone(has_as_many_as_there_are, 0), 0);
}

/* ---- as much as there is room for ---- */

static void fills_without_waiting(struct side *s)
{
        uint8_t *p = memory_of(BYTES);
        int c = side_connect(s);
        uint64_t sum = 0, cookie, n = 0, came = 0;
        ssize_t r;

        while ((r = unet_memory_send(c, p, BYTES, MSG_DONTWAIT, n)) > 0) {
                sum += (uint64_t)r;
                n++;
        }
        CHECK(r == -1 && errno == EAGAIN && n > 0);
        tell(s, sum);
        while (came < n) {
                CHECK(next_cookie(c) == came);
                came++;
        }
        CHECK(unet_memory_reap(c, &cookie, 1) == 0);
        CHECK(unet_close(c) == 0);
}

static void reads_what_it_is_told(struct side *s)
{
        static uint8_t buf[65536];
        int c = side_accept(s);
        uint64_t sum = hear(s);
        ssize_t n;

        while ((n = unet_recv(c, buf, sizeof buf, 0)) > 0)
                sum -= (uint64_t)n;
        CHECK(n == 0 && sum == 0);
        CHECK(unet_close(c) == 0);
}

static void a_full_buffer_takes_no_more(void **state)
{
        play(TWO_PROCESSES, fills_without_waiting, reads_what_it_is_told, 0);
}

/* ---- fork ---- */

static void forks_with_memory(struct side *s)
{
        uint8_t *p = memory_of(BYTES);
        int c = side_connect(s), status;
        uint64_t cookie;
        pid_t child;

        fill(p, BYTES, s->arg, 0);
        CHECK(unet_memory_send(c, p, PIECE, 0, 5) == PIECE);
        child = fork();
        if (child == 0) {
                uint8_t *own;
                CHECK_ERR(unet_memory_send(c, p, PIECE, 0, 6), EINVAL);
                CHECK_ERR(unet_memory_free(p), EINVAL);
                CHECK(unet_memory_reap(c, &cookie, 1) == 0);
                own = memory_of(BYTES); /* its own is another one */
                CHECK(own >= p + BYTES || own + BYTES <= p);
                fill(own, PIECE, s->arg, PIECE);
                CHECK(unet_memory_send(c, own, PIECE, 0, 7) == PIECE);
                CHECK(next_cookie(c) == 7);
                _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(next_cookie(c) == 5);
        CHECK(unet_memory_reap(c, &cookie, 1) == 0);
        CHECK(unet_close(c) == 0);
}

static void reads_both(struct side *s)
{
        static uint8_t got[2 * PIECE];
        int c = side_accept(s);

        reads_all(c, got, sizeof got);
        CHECK(filled(got, sizeof got, s->arg, 0));
        CHECK(unet_recv(c, got, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void a_child_has_none_of_it(void **state)
{
        play(TWO_PROCESSES, forks_with_memory, reads_both, test_seed());
}

/* ---- exec, kill -9 ---- */

#define LIVES 8

/* By exec() and by kill -9. Each child takes more than half of what there is, so each needs what
 * the one before it had. */
static void children_send_and_end(struct side *s)
{
        int c, status;

        CHECK(unet_memory_free(memory_of(1)) == 0); /* there has been some before the channel */
        c = side_connect(s);
        for (uint64_t i = 0; i < LIVES; i++) {
                pid_t child = fork();
                if (child == 0) {
                        void *p = NULL;
                        EVENTUALLY(unet_memory_new(150u << 20, &p) == 0);
                        CHECK(*(uint64_t *)p == 0);
                        fill(p, PIECE, s->arg, i * PIECE);
                        CHECK(unet_memory_send(c, p, PIECE, 0, i) == PIECE);
                        if (i % 2)
                                execl("/bin/true", "true", NULL);
                        kill(getpid(), SIGKILL);
                }
                CHECK(waitpid(child, &status, 0) == child);
                CHECK(i % 2 ? status == 0 : WIFSIGNALED(status));
                tell(s, i);
                CHECK(hear(s) == i);
        }
        CHECK(unet_close(c) == 0);
}

/* What it lent stays what it was while it has it, whatever becomes of the sender's memory. */
static void reads_what_they_sent(struct side *s)
{
        static struct unet_loan v[MANY];
        int c = side_accept(s);

        for (uint64_t i = 0; i < LIVES; i++) {
                uint64_t at = i * PIECE;
                int n = lends_piece(c, v);
                CHECK(hear(s) == i);
                for (int k = 0; k < n; at += v[k++].len)
                        CHECK(filled(v[k].ptr, v[k].len, s->arg, at));
                CHECK(unet_recv_return(c, v, n) == 0);
                tell(s, i);
        }
        CHECK(unet_recv(c, &(char){0}, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void what_an_ended_process_sent_goes_on(void **state)
{
        play(TWO_PROCESSES, children_send_and_end, reads_what_they_sent, test_seed());
}

/* 0: a child that has the loans; 1: all of the receiver. */
static void sends_to_who_dies(struct side *s)
{
        uint8_t *p = memory_of(BYTES);
        int c = side_connect(s);
        uint64_t cookie;

        CHECK(unet_memory_send(c, p, PIECE, 0, 1) == PIECE);
        CHECK(hear(s) == 1);
        CHECK(unet_memory_reap(c, &cookie, 1) == 0);
        tell(s, 1);
        CHECK(next_cookie(c) == 1);
        CHECK(unet_memory_free(p) == 0);
        CHECK(unet_close(c) == 0);
}

static void child_dies_with_it(struct side *s)
{
        static struct unet_loan v[MANY];
        int c = side_accept(s), told[2], status;
        pid_t child;

        CHECK(pipe(told) == 0);
        child = fork();
        if (child == 0) {
                lends_piece(c, v);
                CHECK(write(told[1], "x", 1) == 1);
                pause();
        }
        CHECK(read(told[0], &(char){0}, 1) == 1);
        tell(s, 1);
        CHECK(hear(s) == 1);
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
        CHECK(unet_recv(c, &(char){0}, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void a_reader_that_is_killed_gives_it_back(void **state)
{
        play(TWO_PROCESSES, sends_to_who_dies, child_dies_with_it, 0);
}

/* The receiver is another program's stack, which goes as a whole. */
static void sends_to_a_stack_that_dies(struct side *s)
{
        int l = tcp_listen_any(), c;
        uint8_t *p = memory_of(BYTES);
        uint64_t cookie;

        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0 && unet_close(l) == 0);
        CHECK(unet_memory_send(c, p, PIECE, 0, 1) == PIECE);
        CHECK(unet_memory_send(c, p, PIECE, 0, 2) == PIECE);
        CHECK(hear(s) == 1);
        CHECK(unet_memory_reap(c, &cookie, 1) == 0);
        tell(s, 1);
        CHECK(next_cookie(c) == 1 && next_cookie(c) == 2);
        CHECK(unet_memory_free(p) == 0);
        CHECK(unet_close(c) == 0);
}

static void its_only_process_is_killed(struct side *s)
{
        static struct unet_loan v[MANY];
        uint16_t port = (uint16_t)hear(s);
        int told[2], status;
        pid_t child;

        CHECK(pipe(told) == 0);
        child = fork();
        if (child == 0) { /* no stack was there before */
                lends_piece(tcp_connect_to(port), v);
                CHECK(write(told[1], "x", 1) == 1);
                pause();
        }
        CHECK(read(told[0], &(char){0}, 1) == 1);
        tell(s, 1);
        CHECK(hear(s) == 1);
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
}

static void a_stack_that_is_gone_reads_nothing(void **state)
{
        play(TWO_PROCESSES, sends_to_a_stack_that_dies, its_only_process_is_killed, 0);
}

#define KEEPERS 3

static void kills_the_keeper(void)
{
        pid_t keeper = world_keeper(), next = 0;

        CHECK(keeper > 0 && kill(keeper, SIGKILL) == 0);
        EVENTUALLY((next = world_keeper()) > 0 && next != keeper);
}

static void sends_on_with_another_keeper(struct side *s)
{
        uint8_t *p = memory_of(BYTES);
        int c = side_connect(s);
        uint64_t cookie;

        for (uint64_t i = 0; i < KEEPERS; i++) {
                fill(p, PIECE, s->arg, i * PIECE);
                CHECK(unet_memory_send(c, p, PIECE, 0, i) == PIECE);
                CHECK(hear(s) == i); /* it is lent */
                CHECK(unet_memory_reap(c, &cookie, 1) == 0);
                kills_the_keeper();
                tell(s, i);
                CHECK(next_cookie(c) == i);
        }
        CHECK(unet_close(c) == 0);
}

/* Both it and a child that comes later can read them. */
static void reads_with_another_keeper(struct side *s)
{
        static struct unet_loan v[MANY];
        int c = side_accept(s), status;
        pid_t child;

        for (uint64_t i = 0; i < KEEPERS; i++) {
                child = i % 2 ? fork() : 0;
                if (child == 0) {
                        int n = lends_piece(c, v);
                        uint64_t at = i * PIECE;
                        tell(s, i);
                        CHECK(hear(s) == i);
                        for (int k = 0; k < n; at += v[k++].len)
                                CHECK(filled(v[k].ptr, v[k].len, s->arg, at));
                        CHECK(unet_recv_return(c, v, n) == 0);
                        if (i % 2)
                                _exit(0);
                } else {
                        CHECK(waitpid(child, &status, 0) == child && status == 0);
                }
        }
        CHECK(unet_recv(c, &(char){0}, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void another_keeper_goes_on(void **state)
{
        play(TWO_PROCESSES, sends_on_with_another_keeper, reads_with_another_keeper, test_seed());
}

static void reads_late(struct side *s)
{
        static uint8_t got[PIECE];
        int c = side_accept(s);

        hear(s);
        reads_all(c, got, PIECE);
        CHECK(filled(got, PIECE, s->arg, 0));
        CHECK(unet_recv(c, got, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
}

/* ---- address space ---- */

/* Mappings of this process's that are of such memory, one's own or a peer's. */
static int memories_mapped(void)
{
        FILE *f = fopen("/proc/self/maps", "re");
        unsigned long from, to;
        char line[512];
        int n = 0;

        CHECK(f != NULL);
        while (fgets(line, sizeof line, f) != NULL)
                n += strstr(line, "/memfd:unet") != NULL &&
                     sscanf(line, "%lx-%lx", &from, &to) == 2 && to - from == FRAME_NAMED_BYTES;
        fclose(f);
        return n;
}

static void connects_and_then_has_some(struct side *s)
{
        int c = side_connect(s);

        CHECK(memories_mapped() == 0);
        CHECK(hear(s) == 0);
        CHECK(unet_close(c) == 0);
        memory_of(1);
        CHECK(memories_mapped() == 1);
        memory_of(BYTES);
        CHECK(memories_mapped() == 1);
        tell(s, 1);
}

static void maps_none(struct side *s)
{
        int c = side_accept(s);

        tell(s, (uint64_t)memories_mapped());
        CHECK(hear(s) == 1);
        CHECK(memories_mapped() == 0);
        CHECK(unet_close(c) == 0);
}

static void has_memory_and_connects(struct side *s)
{
        uint8_t *p = memory_of(BYTES);
        int c = side_connect(s);
        uint64_t cookie;

        CHECK(unet_memory_send(c, p, PIECE, 0, s->arg) == PIECE);
        CHECK(memories_mapped() == 1);
        CHECK(hear(s) == 1);
        CHECK(unet_memory_reap(c, &cookie, 1) == 0);
        CHECK(unet_close(c) == 0);
        tell(s, 0);
}

static void maps_one(struct side *s)
{
        int c = side_accept(s);

        CHECK(unet_recv(c, &(char){0}, 1, 0) == 1);
        tell(s, (uint64_t)memories_mapped());
        CHECK(hear(s) == 0);
        CHECK(unet_close(c) == 0);
}

static void address_space_is_taken_by_who_uses_it(void **state)
{
        play(TWO_PROCESSES, connects_and_then_has_some, maps_none, 0);
        play(TWO_PROCESSES, has_memory_and_connects, maps_one, 0);
}

/* The cookie is there at once, which it is when the call has copied. */
static void sends_a_copy(struct side *s, int c, uint8_t *p)
{
        uint64_t cookie;

        fill(p, PIECE, s->arg, 0);
        CHECK(unet_memory_send(c, p, PIECE, 0, 3) == PIECE);
        memset(p, 0, PIECE);
        CHECK(unet_memory_reap(c, &cookie, 1) == 1 && cookie == 3);
        CHECK(unet_memory_free(p) == 0);
        tell(s, 0);
        CHECK(unet_close(c) == 0);
}

static void connects_and_has_memory(struct side *s)
{
        int c = side_connect(s);

        sends_a_copy(s, c, memory_of(BYTES));
}

static void a_channel_from_before_copies(void **state)
{
        play(TWO_PROCESSES, connects_and_has_memory, reads_late, test_seed());
}

static void bounds_its_address_space(void)
{
        struct rlimit rl = {8ull << 30, 8ull << 30};

        CHECK(setrlimit(RLIMIT_AS, &rl) == 0);
}

static void sends_to_a_bounded_one(struct side *s)
{
        uint8_t *p = memory_of(BYTES);

        sends_a_copy(s, side_connect(s), p);
}

static void reads_bounded(struct side *s)
{
        bounds_its_address_space();
        reads_late(s);
        CHECK(memories_mapped() == 0);
}

/* A bounded one may have memory, if there is room for it. */
static void bounded_has_memory(struct side *s)
{
        bounds_its_address_space();
        has_memory_and_connects(s);
}

static void has_no_room(struct side *s)
{
        struct rlimit rl = {0, RLIM_INFINITY};
        int c = side_connect(s);
        unsigned long pages;
        void *p;
        FILE *f = fopen("/proc/self/statm", "re");

        CHECK(f != NULL && fscanf(f, "%lu", &pages) == 1 && fclose(f) == 0);
        rl.rlim_cur = pages * 4096 + (100u << 20);
        CHECK(setrlimit(RLIMIT_AS, &rl) == 0);
        CHECK_ERR(unet_memory_new(1, &p), ENOMEM);
        CHECK_ERR(unet_memory_free(&rl), EINVAL);
        CHECK_ERR(unet_memory_send(c, &rl, 1, 0, 1), EINVAL);
        CHECK(unet_send(c, "x", 1, 0) == 1);
        CHECK(unet_close(c) == 0);
}

static void who_has_little_address_space_gets_copies(void **state)
{
#ifdef __SANITIZE_ADDRESS__
        skip();
#endif
        play(TWO_PROCESSES, sends_to_a_bounded_one, reads_bounded, test_seed());
        play(TWO_PROCESSES, bounded_has_memory, maps_one, 0);
        play(TWO_PROCESSES, has_no_room, reads_to_the_end, 0);
}

/* ---- reset, close ---- */

static void is_reset(struct side *s)
{
        uint8_t *m = memory_of(BYTES);
        int c = side_connect(s);
        struct unet_pollfd p = {.sock = c, .fd = -1};
        uint64_t cookie;

        CHECK(unet_memory_send(c, m, PIECE, 0, 1) == PIECE);
        CHECK(unet_memory_send(c, m, PIECE, 0, 2) == PIECE);
        tell(s, 0);
        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1);
        CHECK(next_cookie(c) == 1 && next_cookie(c) == 2);
        CHECK(unet_memory_reap(c, &cookie, 1) == 0);
        CHECK(unet_memory_send(c, m, PIECE, 0, 3) == -1);
        CHECK(unet_memory_reap(c, &cookie, 1) == 0);
        CHECK(unet_close(c) == 0);
        CHECK(unet_memory_free(m) == 0);
}

static void resets(struct side *s)
{
        int c = side_accept(s);

        hear(s);
        CHECK(unet_close(c) == 0); /* with all of it unread */
}

static void after_a_reset_all_cookies_come(void **state)
{
        play(TWO_PROCESSES, is_reset, resets, 0);
}

static void closes_early(struct side *s)
{
        uint8_t *m = memory_of(BYTES);
        int c = side_connect(s);

        fill(m, PIECE, s->arg, 0);
        CHECK(unet_memory_send(c, m, PIECE, 0, 1) == PIECE);
        CHECK(unet_close(c) == 0);
        tell(s, 0);
        EVENTUALLY(unet_memory_free(m) == 0);
}

static void a_closed_socket_still_sends_it(void **state)
{
        play(TWO_PROCESSES, closes_early, reads_late, test_seed());
}

/* ---- beside other bytes ---- */

static void mixes(struct side *s)
{
        uint8_t *m = memory_of(BYTES), one[3000];
        int c = side_connect(s);
        uint64_t state = s->arg, pos = 0, cookies = 0, got[64], next = 0;

        fill(m, BYTES, s->arg, 0);
        while (pos < BYTES) {
                size_t n = 1 + (size_t)(rnd(&state) % 90000);
                int k;
                n = n < BYTES - pos ? n : BYTES - pos;
                if (rnd(&state) % 3 == 0) {
                        n = n < sizeof one ? n : sizeof one;
                        memcpy(one, m + pos, n);
                        CHECK(unet_send(c, one, n, 0) == (ssize_t)n);
                } else {
                        CHECK(unet_memory_send(c, m + pos, n, rnd(&state) % 2 ? MSG_MORE : 0,
                                               cookies++) == (ssize_t)n);
                }
                pos += n;
                k = unet_memory_reap(c, got, 64);
                for (int i = 0; i < k; i++)
                        CHECK(got[i] == next++);
        }
        CHECK(unet_shutdown(c, SHUT_WR) == 0);
        for (; next < cookies; next++)
                CHECK(next_cookie(c) == next);
        CHECK(hear(s) == 0);
        CHECK(unet_close(c) == 0);
}

static void reads_the_mix(struct side *s)
{
        static uint8_t got[BYTES];
        int c = side_accept(s);
        uint64_t state = s->arg + 1;
        size_t at = 0;

        while (at < BYTES) {
                size_t most = 1 + (size_t)(rnd(&state) % 70000);
                ssize_t n = unet_recv(c, got + at, most < BYTES - at ? most : BYTES - at, 0);
                CHECK(n > 0);
                at += (size_t)n;
        }
        CHECK(filled(got, BYTES, s->arg, 0));
        CHECK(unet_recv(c, got, 1, 0) == 0);
        tell(s, 0);
        CHECK(unet_close(c) == 0);
}

static void it_goes_in_order_with_other_bytes(void **state)
{
        for (uint64_t i = 0; i < 8; i++)
                play_both(mixes, reads_the_mix, test_seed() + i);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_same_memory_is_sent_many_times),
                cmocka_unit_test(a_cookie_comes_when_the_loans_are_given_back),
                cmocka_unit_test(an_edge_comes_with_each_cookie),
                cmocka_unit_test(what_is_no_such_memory_is_refused),
                cmocka_unit_test(there_are_so_many_memories),
                cmocka_unit_test(a_full_buffer_takes_no_more),
                cmocka_unit_test(a_child_has_none_of_it),
                cmocka_unit_test(what_an_ended_process_sent_goes_on),
                cmocka_unit_test(a_reader_that_is_killed_gives_it_back),
                cmocka_unit_test(a_stack_that_is_gone_reads_nothing),
                cmocka_unit_test(another_keeper_goes_on),
                cmocka_unit_test(address_space_is_taken_by_who_uses_it),
                cmocka_unit_test(a_channel_from_before_copies),
                cmocka_unit_test(who_has_little_address_space_gets_copies),
                cmocka_unit_test(after_a_reset_all_cookies_come),
                cmocka_unit_test(a_closed_socket_still_sends_it),
                cmocka_unit_test(it_goes_in_order_with_other_bytes),
        };

        return run_sides(tests);
}
