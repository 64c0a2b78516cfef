/*
 * A live stack read from outside, as `unet ss` does it: its state mapped read-only, without its
 * lock, a million reports while connections open, carry data and close. Nothing crashes, and every
 * number is one that the connection may have had.
 */
#include "tests/sock/sides.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sock/attach/ustack.h"
#include "tcp/tcp_cc.h"
#include "tcp/tcp_info.h"

#define REPORTS (1000000u / SLOWER)
#define LASTING 6 /* connections; others come and go */
/* Bytes that no queue has; a difference taken the wrong way round has more. */
#define MOST ((1u << 30) + 1)

static _Atomic uint64_t *read_so_far;

/* ---- the stack that is read ---- */

static void a_round(int c, uint64_t *rng)
{
        static uint8_t buf[30000];
        ssize_t n = 1 + (ssize_t)(rnd(rng) % sizeof buf);

        CHECK(unet_send(c, buf, (size_t)n, 0) == n);
        CHECK(unet_recv(c, buf, (size_t)n, MSG_WAITALL) == n);
}

static void passing(uint16_t port, uint64_t *rng)
{
        int c = tcp_connect_to(port);

        a_round(c, rng);
        CHECK(unet_close(c) == 0);
}

static void datagram(uint64_t *rng)
{
        struct sockaddr_in a = loopback(0);
        socklen_t len = sizeof a;
        int u = unet_socket(AF_INET, SOCK_DGRAM, 0);

        CHECK(unet_bind(u, (struct sockaddr *)&a, sizeof a) == 0);
        CHECK(unet_getsockname(u, (struct sockaddr *)&a, &len) == 0);
        CHECK(unet_sendto(u, "datagram", 1 + rnd(rng) % 8, 0, (struct sockaddr *)&a, len) > 0);
        CHECK(unet_close(u) == 0);
}

static void busy_side(struct side *s)
{
        uint16_t port = (uint16_t)hear(s);
        uint64_t rng = test_seed();
        int c[LASTING], err;

        for (int i = 0; i < LASTING; i++)
                c[i] = tcp_connect_to(port);
        tell(s, ustack_mine(&err)->id);
        for (uint64_t i = 0; atomic_load(read_so_far) < REPORTS; i++) {
                a_round(c[rnd(&rng) % LASTING], &rng);
                if (i % 4 == 0)
                        passing(port, &rng);
                if (i % 16 == 0)
                        datagram(&rng);
        }
        for (int i = 0; i < LASTING; i++)
                CHECK(unet_close(c[i]) == 0);
        tell(s, 0);
}

/* ---- the other end: echoes on every connection ---- */

static void echo(int *sock)
{
        static char buf[30000];
        ssize_t n = unet_recv(*sock, buf, sizeof buf, 0);

        if (n > 0) {
                CHECK(unet_send(*sock, buf, (size_t)n, 0) == n);
                return;
        }
        CHECK(n == 0 && unet_close(*sock) == 0);
        *sock = -1;
}

static void echoes(int l)
{
        struct unet_pollfd v[LASTING + 3];
        const int n = LASTING + 2;

        for (int i = 0; i < n; i++)
                v[i] = (struct unet_pollfd){.sock = -1, .fd = -1, .events = POLLIN};
        v[n] = (struct unet_pollfd){.sock = l, .fd = -1, .events = POLLIN};
        for (;;) {
                CHECK(unet_poll(v, (unsigned)n + 1, -1) > 0);
                for (int i = 0; i < n; i++)
                        if (v[i].sock >= 0 && v[i].revents)
                                echo(&v[i].sock);
                for (int i = 0; v[n].revents && i < n; i++)
                        if (v[i].sock < 0) {
                                v[i].sock = unet_accept(l, NULL, NULL);
                                break;
                        }
        }
}

/* ---- the reader ---- */

static struct stack_state *map_stack(uint32_t id, size_t *bytes)
{
        struct unetd_client c = {0};
        struct unetd_stack_fds fds;
        struct stack_state *st;
        struct stat info;

        CHECK(unetd_open(&c, UNETD_NO_START) == 0);
        CHECK(unetd_stack_get(&c, id, &fds) == 0);
        unetd_close(&c);
        CHECK(fstat(fds.state, &info) == 0);
        *bytes = (size_t)info.st_size;
        st = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, fds.state, 0);
        CHECK(st != MAP_FAILED);
        unetd_stack_fds_close(&fds);
        return st;
}

static void check_tcp(const struct tcp_report *r)
{
        CHECK(strcmp(tcp_state_name(r->state), "?") != 0 && tcp_cc_name(r->cc) != NULL);
        CHECK(r->limit <= TCP_LIM_PACING && r->ca_state <= 4);
        CHECK(r->unacked < MOST && r->unsent < MOST && r->unread < MOST);
        CHECK(r->snd_wnd < MOST && r->rcv_wnd < MOST && r->memory < MOST);
        CHECK(r->srtt >= 0 && r->srtt < 100 * NS_PER_S && r->rto >= 0);
        for (uint32_t l = 0; l <= TCP_LIM_PACING; l++)
                CHECK(r->limited[l] > -NS_PER_S && r->limited[l] < 1000 * NS_PER_S);
        CHECK(r->bytes_acked <= r->bytes_sent + MOST);
}

static uint32_t look_once(struct stack *s)
{
        uint32_t seen = 0;

        for (uint32_t i = 1; i < s->tcp.sh->conns.fresh; i++) {
                const struct tcp_conn *tc = tcp_conn_at(&s->tcp, i);
                uint32_t gen = tc->gen;
                struct tcp_report r;
                if (!tc->live)
                        continue;
                tcp_get_report(&s->tcp, tc, &r, ustack_now());
                if (tc->live && tc->gen == gen) /* the same connection all the while */
                        check_tcp(&r);
                seen++;
        }
        for (uint32_t i = 1; i < udp_pcb_cap(&s->udp); i++) {
                struct udp_report r;
                if (!udp_get_report(&s->udp, i, &r))
                        continue;
                CHECK(r.queued < 100000 && r.memory < MOST);
                seen++;
        }
        return seen;
}

static void reader(uint32_t id)
{
        struct stack s;
        size_t bytes;
        struct stack_state *st = map_stack(id, &bytes);

        CHECK(stack_view_init(&s, st, bytes, NULL) == 0);
        while (atomic_load(read_so_far) < REPORTS)
                atomic_fetch_add(read_so_far, look_once(&s));
        stack_view_fini(&s);
}

static void serve_and_read(struct side *s)
{
        int l = tcp_listen_any(), status;
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0) {
                alarm(PATIENCE_MS / 1000);
                tell(s, port_of(l));
                echoes(l);
        }
        CHECK(unet_close(l) == 0);
        reader((uint32_t)hear(s));
        hear(s);
        CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
}

static void a_million_reports_of_a_stack_at_work(void **state)
{
        test_seed();
        play(TWO_PROCESSES, busy_side, serve_and_read, 0);
        print_message("%llu reports\n", (unsigned long long)*read_so_far);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_million_reports_of_a_stack_at_work),
        };

        read_so_far = mmap(NULL, sizeof *read_so_far, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return read_so_far == MAP_FAILED ? 1 : run_sides(tests);
}
