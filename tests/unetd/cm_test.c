/*
 * Questions to agents of other hosts (unetd/agent/cm.h), over a kernel's rdma_cm that this test
 * plays: it has ids, each bound to a port or to none, and hosts that are all silent.
 */
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "unetd/agent/cm.h"
#include "tests/unit.h"

#define HERE    0x7f000001u
#define NOWHERE 0x7f000204u /* loopback has all of 127/8 */
#define ASKS    1200u
#define IDS     2048u

struct id {
        bool made;
        uint16_t port;
        uint64_t number;
};

struct scene {
        struct loop loop;
        struct cm cm;
        int device;
        struct id id[IDS];
        unsigned taken[65536]; /* ids that have the port */
        uint32_t asked;        /* questions on their way */
        uint16_t last[4];      /* ports that were bound last */
        unsigned binds;        /* calls */
        bool full;             /* somebody else has all ports */
        unsigned ended, busy;  /* questions */
};

static struct scene *the_scene;

int __real_open(const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *data, size_t len);
int __wrap_open(const char *path, int flags, ...);
ssize_t __wrap_write(int fd, const void *data, size_t len);

int __wrap_open(const char *path, int flags, ...)
{
        if (strcmp(path, "/dev/infiniband/rdma_cm") != 0)
                return __real_open(path, flags);
        return the_scene->device = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static int create(struct scene *s, const struct rdma_ucm_create_id *m)
{
        uint32_t i = 1;

        while (s->id[i].made)
                i++;
        assert_true(i < IDS - 1);
        s->id[i] = (struct id){.made = true, .number = m->uid};
        ((struct rdma_ucm_create_id_resp *)(uintptr_t)m->response)->id = i;
        return 0;
}

static int bind_port(struct scene *s, const struct rdma_ucm_bind *m)
{
        struct sockaddr_in sin;
        uint16_t port;

        memcpy(&sin, &m->addr, sizeof sin);
        port = ntohs(sin.sin_port);
        s->binds++;
        assert_true(s->id[m->id].made && port < 1024);
        if (port != CM_PORT && (s->full || s->taken[port] != 0))
                return EADDRINUSE;
        s->taken[port]++;
        s->id[m->id].port = port;
        memmove(s->last + 1, s->last, sizeof s->last - sizeof *s->last);
        s->last[0] = port;
        return 0;
}

static void destroy(struct scene *s, uint32_t id)
{
        assert_true(s->id[id].made);
        if (s->id[id].port != 0)
                s->taken[s->id[id].port]--;
        s->id[id].made = false;
}

static int command(struct scene *s, const struct rdma_ucm_cmd_hdr *hdr, const void *body)
{
        switch (hdr->cmd) {
        case RDMA_USER_CM_CMD_CREATE_ID:
                return create(s, body);
        case RDMA_USER_CM_CMD_BIND:
                return bind_port(s, body);
        case RDMA_USER_CM_CMD_DESTROY_ID:
                destroy(s, ((const struct rdma_ucm_destroy_id *)body)->id);
                return 0;
        case RDMA_USER_CM_CMD_RESOLVE_ADDR:
                s->asked++;
                return 0;
        case RDMA_USER_CM_CMD_LISTEN:
                return 0;
        default:
                return ENOSYS;
        }
}

ssize_t __wrap_write(int fd, const void *data, size_t len)
{
        struct {
                struct rdma_ucm_cmd_hdr hdr;
                _Alignas(8) uint8_t body[512];
        } m;

        if (fd != the_scene->device)
                return __real_write(fd, data, len);
        memcpy(&m.hdr, data, sizeof m.hdr);
        memcpy(m.body, (const uint8_t *)data + sizeof m.hdr, len - sizeof m.hdr);
        errno = command(the_scene, &m.hdr, m.body);
        return errno == 0 ? (ssize_t)len : -1;
}

static void ended(void *arg, int err, const void *data, size_t len)
{
        struct scene *s = arg;

        s->ended++;
        s->busy += err == -EBUSY;
}

static void asked(struct cm *cm, uint32_t id, uint32_t from, const void *data, size_t len)
{
}

static void gone(struct cm *cm)
{
}

static nstime after(struct loop *l)
{
        return NSTIME_NEVER;
}

static int setup(void **state)
{
        static const struct cm_ops ops = {.asked = asked, .gone = gone};
        struct scene *s = *state = the_scene = calloc(1, sizeof *s);

        s->device = -1;
        assert_int_equal(loop_init(&s->loop, after), 0);
        assert_int_equal(cm_open(&s->cm, &s->loop, HERE, &ops), 0);
        return 0;
}

static int teardown(void **state)
{
        struct scene *s = *state;

        if (s->cm.source.fd >= 0)
                cm_close(&s->cm);
        close(s->loop.epoll);
        free(s);
        return 0;
}

static struct cm_question *ask(struct scene *s, uint32_t uid)
{
        return cm_ask(&s->cm, uid, NOWHERE, "?", 1, ended, s);
}

/* As many as go at once. */
static uint32_t ask_many(struct scene *s, uint32_t uid)
{
        uint32_t before = s->asked;

        for (uint32_t i = 0; i < ASKS; i++)
                ask(s, uid);
        return s->asked - before;
}

/* Until the tries of all questions are over. */
static void wait_for_the_end(struct scene *s, unsigned questions)
{
        while (s->ended < questions) {
                nstime when = cm_tick(&s->cm);

                if (when != NSTIME_NEVER && when > loop_clock())
                        usleep((useconds_t)((when - loop_clock()) / NS_PER_US) + 1);
        }
}

static void silent_hosts_of_one_user_leave_ports_to_the_next(void **state)
{
        struct scene *s = *state;
        uint32_t first = ask_many(s, 1), second = ask_many(s, 2), third = ask_many(s, 3);

        print_message("questions under way: %u of one user, %u, %u\n", first, second, third);
        assert_int_equal(first, (CM_PORTS + 1) / 2);
        assert_in_range(second, CM_PORTS / 4, first);
        assert_in_range(third, CM_PORTS / 8, second);
        assert_true(first + second + third <= CM_PORTS);
}

static void a_user_has_so_many_questions_and_no_more(void **state)
{
        struct scene *s = *state;
        unsigned n = 0;

        while (n <= 2 * ASKS && ask(s, 1) != NULL)
                n++;
        assert_int_equal(n, (CM_PORTS + 1) / 2 + CM_WAITING);
        assert_non_null(ask(s, 2));
}

/* What waits has its turn when others end, in the order of their coming. */
static void what_waits_goes_when_another_ends(void **state)
{
        struct scene *s = *state;
        uint32_t most = (CM_PORTS + 1) / 2;
        struct cm_question *first = ask(s, 1);

        for (uint32_t i = 1; i < most + 2; i++)
                assert_non_null(ask(s, 1));
        assert_int_equal(s->asked, most);
        cm_tick(&s->cm);
        assert_int_equal(s->asked, most);
        cm_forget(first);
        cm_tick(&s->cm);
        assert_int_equal(s->asked, most + 1);
}

/* A late answer to one that is over is so for none that came just after it. */
static void ports_are_taken_in_turn(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 3; i++)
                cm_forget(ask(s, 1));
        assert_int_equal(s->binds, 4); /* with the one that listens */
        assert_int_not_equal(s->last[0], s->last[1]);
        assert_int_not_equal(s->last[1], s->last[2]);
        for (uint32_t i = 0; i < 2 * CM_PORTS; i++)
                cm_forget(ask(s, 1));
        assert_int_equal(s->binds, 4 + 2 * CM_PORTS);
}

/* That the hosts are silent nobody knows then. */
static void what_never_left_is_no_silence(void **state)
{
        struct scene *s = *state;

        s->full = true;
        ask(s, 1);
        assert_int_equal(s->asked, 0);
        wait_for_the_end(s, 1);
        assert_int_equal(s->busy, 1);
        s->full = false;
        ask(s, 1);
        wait_for_the_end(s, 2);
        assert_int_equal(s->busy, 1);
}

static void all_end_with_the_device(void **state)
{
        struct scene *s = *state;
        unsigned n = 0;

        for (uint32_t i = 0; i < ASKS; i++)
                n += ask(s, i % 3) != NULL;
        cm_close(&s->cm);
        assert_int_equal(s->ended, n);
        assert_null(ask(s, 1));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(silent_hosts_of_one_user_leave_ports_to_the_next,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(a_user_has_so_many_questions_and_no_more, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(what_waits_goes_when_another_ends, setup, teardown),
                cmocka_unit_test_setup_teardown(ports_are_taken_in_turn, setup, teardown),
                cmocka_unit_test_setup_teardown(what_never_left_is_no_silence, setup, teardown),
                cmocka_unit_test_setup_teardown(all_end_with_the_device, setup, teardown),
        };

        alarm(120);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
