#include "tests/sim/death.h"
#include "tests/long_run.h"
#include "tcp/tcp_group.h"
#include "tcp/tcp_lend.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_watch.h"
#include "tcp/tcp_window.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/unit.h"

void writes_much(struct view *v)
{
        write_bytes(v, 0, 0, 3000);
}

void reads_all(struct view *v)
{
        read_bytes(v, 0, 0, 100000);
}

void grants(struct view *v)
{
        struct stack *s = &v->s[0];

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        assert_int_equal(tcp_window_grant(&s->tcp, conn(v, 0, 0), 65536, v->w->now), 0);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

void runs_with_input(struct view *v)
{
        stack_run(&v->s[0], v->w->now);
        stack_flush_acks(&v->s[0], v->w->now);
}

void prepare_input(struct view *v)
{
        write_bytes(v, 0, 1, 900);
        write_bytes(v, 0, 0, 90);
        write_bytes(v, 1, 0, 40);
        write_bytes(v, 1, 1, 2500);
        stack_run(&v->s[1], v->w->now);
        read_bytes(v, 1, 1, 2000);
        stack_flush_acks(&v->s[1], v->w->now);
}

void prepare_tail(struct view *v)
{
        write_bytes(v, 0, 0, 100);
        write_bytes(v, 0, 0, 100);
}

void changes_window(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_opts o;

        s->now = v->w->now;
        tcp_get_opts(conn(v, 0, 0), &o);
        o.credit = !o.credit;
        o.window_most = 65535u << 14;
        stack_begin(s->st, v->w->conn[0][0]);
        tcp_set_opts(&s->tcp, conn(v, 0, 0), &o, v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

void closes(struct view *v)
{
        struct stack *s = &v->s[0];

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        tcp_set_sock(&s->tcp, v->w->conn[0][0], 0);
        tcp_close(&s->tcp, conn(v, 0, 0), v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

void prepare_close(struct view *v)
{
        read_bytes(v, 0, 0, 100000);
        settle(v);
        write_bytes(v, 0, 0, 2000);
        prepare_tail(v);
}

/* ---- the survivors ---- */

struct tcp_loan *loan(struct view *v, uint32_t i)
{
        return pool_at(&v->s[0].tcp.sh->loans, i);
}

/* What is lent is what was sent, and its memory comes back when its process is gone. */
static void loans_end(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);
        uint32_t sum = 0;

        if (s->tcp.sh->loans.fresh == 1)
                return;
        for (uint32_t i = 1; i < s->tcp.sh->loans.fresh; i++) {
                const struct tcp_loan *l = loan(v, i);
                if (l->proc == 0)
                        continue;
                sum += l->data.len;
                assert_memory_equal(frame_addr(s->frames, l->data.id) + l->data.off,
                                    &stream[1][0][l->seq - tc->irs - 1], l->data.len);
        }
        assert_int_equal(tc->rcv_lent, sum);
        s->now = v->w->now;
        stack_begin(s->st, tc->self);
        tcp_loans_end(&s->tcp, NULL, LENDS, v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
        assert_true(tc->rcv_lent == 0 && tc->rcv_limit == tc->rcv_size);
        assert_int_equal(s->tcp.sh->loans.used, 0);
}

/* Time goes on until everything written has been read, or clearly never will be. */
static void finish(struct view *v, int n)
{
        for (int round = 0; round < 400; round++) {
                nstime next;
                settle(v);
                read_bytes(v, 0, n, 100000);
                read_bytes(v, 1, n, 100000);
                settle(v);
                if (conn(v, 0, n)->snd_una == conn(v, 0, n)->snd_end &&
                    conn(v, 1, n)->snd_una == conn(v, 1, n)->snd_end &&
                    conn(v, 0, n)->rcv_unread == 0 && conn(v, 1, n)->rcv_unread == 0)
                        return;
                next = nstime_min(stack_deadline(&v->s[0]), stack_deadline(&v->s[1]));
                if (next == NSTIME_NEVER)
                        break;
                v->w->now = MAX(v->w->now + 1, next);
        }
        for (int i = 0; i < 2; i++) {
                const struct tcp_conn *tc = conn(v, i, n);
                print_error(
                        "side %d: %s una %u nxt %u end %u, unread %u, rcv_nxt %u, deadline %lld\n",
                        i, tcp_state_name(tc->state), tc->snd_una - tc->iss, tc->snd_nxt - tc->iss,
                        tc->snd_end - tc->iss, tc->rcv_unread, tc->rcv_nxt - tc->irs,
                        (long long)tcp_deadline(tc));
        }
        fail_msg("connection %d did not go on", n);
}

/* Whoever watches is told what is so. */
static void tells_the_truth(const struct tcp_conn *tc)
{
        uint32_t marks = tcp_watch_marks(tc);

        if (!(tc->watch.holds & TCP_WATCH_ON) || tc->watch.acked == 0)
                return; /* none, or hardly begun */
        assert_int_equal(!!(marks & TCP_WATCH_ACKED), tcp_stream_acked(tc) >= tc->watch.acked);
        assert_int_equal(!!(marks & TCP_WATCH_UNSENT), tcp_unsent(tc) < tc->watch.unsent_below);
}

static void goes_on(struct view *v, int n)
{
        assert_int_equal(conn(v, 0, n)->state, TCPS_ESTABLISHED);
        write_bytes(v, 0, n, 2000);
        write_bytes(v, 1, n, 2000);
        finish(v, n);
        tells_the_truth(conn(v, 0, n));
        tcp_conn_check(&v->s[0].tcp, conn(v, 0, n));
}

static void new_one_works(struct view *v)
{
        uint32_t c = open_from(v, 0, 42000);

        for (int round = 0; round < 40 && tcp_conn_at(&v->s[0].tcp, c)->state != TCPS_ESTABLISHED;
             round++) {
                settle(v);
                v->w->now += 100 * NS_PER_MS;
        }
        assert_int_equal(tcp_conn_at(&v->s[0].tcp, c)->state, TCPS_ESTABLISHED);
}

static bool both_ended(struct view *v)
{
        const struct tcp_conn *tc = conn(v, 0, 0), *peer = conn(v, 1, 0);

        return peer->flags & TCF_FIN_RCVD && peer->rcv_unread == 0 &&
               tc->state == (peer->state == TCPS_CLOSE_WAIT ? TCPS_FIN_WAIT_2 : TCPS_TIME_WAIT);
}

/* The first connection, that was being closed: the peer has every byte, and then the end. */
static void ends_well(struct view *v)
{
        struct tcp_conn *peer = conn(v, 1, 0);

        if (conn(v, 0, 0)->state == TCPS_ESTABLISHED &&
            !(conn(v, 0, 0)->flags & TCF_CLOSED_BY_APP)) {
                goes_on(v, 0); /* the call had hardly begun */
                return;
        }
        for (int round = 0; round < 400 && !both_ended(v); round++) {
                nstime next;
                settle(v);
                assert_int_equal(peer->err, 0);
                read_bytes(v, 1, 0, 100000);
                settle(v);
                next = nstime_min(stack_deadline(&v->s[0]), stack_deadline(&v->s[1]));
                v->w->now = next == NSTIME_NEVER ? v->w->now + 1 : MAX(v->w->now + 1, next);
        }
        assert_true(both_ended(v) && peer->err == 0);
        assert_int_equal(copied_seq(peer), v->w->end);
        assert_int_equal(conn(v, 0, 0)->err, 0);
}

/* Nothing that was written or received before is missing, and nothing was read that nobody
 * asked for. */
static void lost_nothing(struct view *v)
{
        const struct tcp_conn *tc = conn(v, 0, 0);

        assert_true(tc->live);
        assert_true(seq_geq(tc->snd_end, v->w->end));
        assert_true(seq_geq(tc->rcv_nxt, v->w->rcvd));
        assert_true(seq_geq(copied_seq(tc), v->w->read) && seq_leq(copied_seq(tc), v->w->aimed));
}

/* A copy of the dead process's memory, as its successor finds it. */
static void succeed(const struct world *dead, struct world *copy, enum after after)
{
        struct view *v;

        memcpy(copy, dead, dead->bytes);
        v = view_of(copy);
        v->s[0].now = copy->now;
        stack_recover(&v->s[0], copy->now);
        assert_int_equal(v->s[0].st->gen & 1, 0);
        for (uint32_t i = 1; i < v->s[0].tcp.sh->conns.fresh; i++)
                if (tcp_conn_at(&v->s[0].tcp, i)->live)
                        tcp_conn_check(&v->s[0].tcp, tcp_conn_at(&v->s[0].tcp, i));
        tcp_group_check(&v->s[0].tcp, 1);
        loans_end(v);
        if (after == GOES_ON) {
                lost_nothing(v);
                goes_on(v, 0);
        } else if (after == CLOSES) {
                ends_well(v);
        }
        goes_on(v, 1);
        new_one_works(v);
        tcp_group_check(&v->s[0].tcp, 1);
        view_free(v);
}

/* ---- death ---- */

static void child(struct world *w, void (*act)(struct view *))
{
        struct view *v = view_of(w);

        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        act(v);
        _exit(0);
}

/* Whether anything but payload differs. Payload is not looked at until it is committed, and copying
 * it is one instruction a byte to the debugger. */
static bool changed(const struct world *a, const struct world *b)
{
        const struct stack_state *st = at((struct world *)(uintptr_t)a, a->state[0]);
        size_t records = st->rxframes_off, ring = offsetof(struct shm_region, frames);

        return memcmp((const char *)a + a->state[0], (const char *)b + b->state[0], records) != 0 ||
               memcmp((const char *)a + a->region[0], (const char *)b + b->region[0], ring) != 0;
}

/* Of what the steps have changed the first is survived, and one in so many, which is another each
 * time. */
#define ONE_OF (long_run() ? 1 : 6)

void die_everywhere(const struct dying *d)
{
        struct world *w = scene(), *copy, *last;
        struct view *v = view_of(w);
        unsigned long steps = 0, changes = (unsigned long)getpid() % ONE_OF, survived = 0;
        int status;
        pid_t pid;

        if (d->prepare != NULL)
                d->prepare(v);
        w->end = conn(v, 0, 0)->snd_end;
        w->rcvd = conn(v, 0, 0)->rcv_nxt;
        w->read = copied_seq(conn(v, 0, 0)) - d->gives_back;
        w->aimed = d->reads ? w->rcvd : copied_seq(conn(v, 0, 0));
        view_free(v);
        copy = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        last = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(copy != MAP_FAILED && last != MAP_FAILED);
        memcpy(last, w, w->bytes);
        pid = fork();
        if (pid == 0)
                child(w, d->act);
        waitpid(pid, &status, 0);
        while (WIFSTOPPED(status)) {
                if (changed(last, w)) {
                        memcpy(last, w, w->bytes);
                        if (changes++ % ONE_OF == 0 || survived == 0) {
                                succeed(w, copy, d->after);
                                survived++;
                        }
                }
                steps++;
                if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0)
                        fail_msg("ptrace: %s", strerror(errno));
                waitpid(pid, &status, 0);
        }
        print_message("%lu instructions, %lu deaths survived\n", steps, survived);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_true(survived > (long_run() ? 3 : 0));
        munmap(copy, w->bytes);
        munmap(last, w->bytes);
        world_free(w);
}
