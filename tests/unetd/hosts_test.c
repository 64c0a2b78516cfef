/* Other hosts of an RDMA network, which ask for channels, and users of this one: what one of them
 * leaves to the next. */
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unetd/fake_agent.h"
#include "tests/unetd/two_users.h"
#include "unet/verbs/vlink.h"
#include "unetd/agent/agent_wire.h"

#define HERE   0x0a4e0001u /* 10.78.0.1 */
#define FIRST  0x0a4e0002u
#define SECOND 0x0a4e0003u
#define FEW    3u /* channels of the user's, where they are few */

struct scene {
        char config[64];
        struct unetd_client c;
        struct fake_stack st;
        struct vlink_book *book;
        uint16_t port;
        int listener, agent; /* ... of another host's */
};

static void set_config(struct scene *s, const char *more)
{
        FILE *f;

        snprintf(s->config, sizeof s->config, "/tmp/unet-hosts-test-%d.conf", (int)getpid());
        f = fopen(s->config, "we");
        assert_non_null(f);
        fprintf(f, "[interface rdma0]\nprovider = verbs\naddress = 10.78.0.1/24\n%s", more);
        fclose(f);
        setenv("UNET_CONFIG", s->config, 1);
}

static void forget_config(const struct scene *s)
{
        unlink(s->config);
        unsetenv("UNET_CONFIG");
}

static void listen_everywhere(struct scene *s)
{
        struct sockaddr_in sin = {.sin_family = AF_INET};
        socklen_t len = sizeof sin;

        s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(s->listener, (struct sockaddr *)&sin, len), 0);
        assert_int_equal(listen(s->listener, 4), 0);
        assert_int_equal(getsockname(s->listener, (struct sockaddr *)&sin, &len), 0);
        s->port = ntohs(sin.sin_port);
        assert_int_equal(unetd_listen_add(&s->c, s->st.id, IPPROTO_TCP, (ip_addr){{0, 0}}, s->port,
                                          1, s->listener),
                         0);
}

static void drive_a_link(struct scene *s)
{
        int mem, book;

        assert_int_equal(unetd_link_open(&s->c, s->st.id, UNETD_IFACE, &mem, &book), 0);
        s->book = mmap(NULL, sizeof *s->book, PROT_READ, MAP_SHARED, book, 0);
        assert_ptr_not_equal(s->book, MAP_FAILED);
        close(mem);
        close(book);
        assert_int_equal(unetd_link_drive(&s->c, s->st.id, UNETD_IFACE,
                                          (uint32_t)syscall(SYS_gettid), 1, 4096, 3328),
                         0);
}

static void be_an_agent(struct scene *s)
{
        struct sockaddr_un sun;
        socklen_t len = fake_agent_name(&sun, getenv("UNET_DOMAIN"), HERE);
        struct timeval patience = {.tv_sec = 60};

        s->agent = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(
                bind(s->agent, (struct sockaddr *)&(sa_family_t){AF_UNIX}, sizeof(sa_family_t)),
                0); /* a name of its own, for answers */
        assert_int_equal(connect(s->agent, (struct sockaddr *)&sun, len), 0);
        assert_int_equal(setsockopt(s->agent, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience),
                         0);
}

static int setup_with(void **state, const char *more)
{
        static struct scene s;

        s = (struct scene){.listener = -1};
        *state = &s;
        world_setup(state);
        set_config(&s, more);
        setenv("UNET_LIBEXEC", TEST_HOSTS_LIBEXEC, 1);
        world_client(&s.c);
        fake_stack_new(&s.c, &s.st);
        listen_everywhere(&s);
        drive_a_link(&s);
        be_an_agent(&s);
        return 0;
}

static int setup(void **state)
{
        return setup_with(state, "");
}

static int setup_few(void **state)
{
        char more[64];

        snprintf(more, sizeof more, "[limits]\nchannels = %u\n", FEW);
        return setup_with(state, more);
}

static int teardown(void **state)
{
        struct scene *s = *state;

        munmap(s->book, sizeof *s->book);
        close(s->listener);
        close(s->agent);
        fake_stack_forget(&s->st);
        unetd_close(&s->c);
        world_teardown(state);
        forget_config(s);
        return 0;
}

/* That host's stack asks for a channel to who listens here. 0, or what the agent answers. */
static int asks(const struct scene *s, uint32_t host, uint32_t stack)
{
        struct fake_question q = {.from = host};
        struct agent_msg m = {.op = AGENT_OPEN,
                              .proto = IPPROTO_TCP,
                              .port = s->port,
                              .addr = HERE,
                              .instance = 7,
                              .stack = stack,
                              .mine = stack,
                              .qpn = stack,
                              .mtu = 4096};
        size_t len = agent_write(&m, false, q.data, sizeof q.data);
        uint8_t answer[CM_ANSWER_MAX];
        ssize_t n;

        assert_true(send(s->agent, &q, sizeof q.from + len, 0) > 0);
        n = recv(s->agent, answer, sizeof answer, 0);
        assert_true(n > 0 && agent_read(&m, true, answer, (size_t)n));
        return (int)m.err;
}

static unsigned channels_for(const struct scene *s, uint32_t host)
{
        uint32_t n = 0;

        while (n <= VLINK_CHANS && asks(s, host, n + 1) == 0)
                n++;
        return n;
}

static void one_host_leaves_numbers_to_the_next(void **state)
{
        const struct scene *s = *state;
        unsigned first = channels_for(s, FIRST), second = channels_for(s, SECOND);

        print_message("channels to a stack: %u for one host, %u for the next\n", first, second);
        assert_int_equal(first, VLINK_CHANS / 2);
        assert_int_equal(second, VLINK_CHANS / 4);
        assert_int_equal(asks(s, FIRST, 1), 0); /* there is one */
}

/* A channel that nobody gets has no number: it is not to take a place in the book, another's. */
static void a_channel_that_is_refused_takes_no_place(void **state)
{
        const struct scene *s = *state;
        struct vlink_peer p;

        for (uint32_t i = 0; i < FEW; i++)
                assert_int_equal(asks(s, FIRST, i + 1), 0);
        assert_int_not_equal(asks(s, SECOND, 1), 0);
        for (uint32_t i = 0; i < FEW; i++)
                assert_true(vlink_read(s->book, i, &p) && p.addr == FIRST && p.stack == i + 1);
}

/* Where the keeper of who listens is slow, or mute, its host is not silent: nobody else's question
 * is kept from going there. */
static void a_keeper_that_is_slow_makes_no_host_silent(void **state)
{
        struct scene *s = *state;

        s->st.s->again = UINT32_MAX;
        assert_int_equal(asks(s, FIRST, 1), EAGAIN);
        s->st.s->again = 0;
        eventually(asks(s, FIRST, 1) == 0);
}

/* ---- users ---- */

static int setup_users(void **state)
{
        static struct scene s;

        s = (struct scene){.listener = -1};
        *state = &s;
        set_config(&s, "");
        return users_setup_in(TEST_HOSTS_LIBEXEC);
}

static int teardown_users(void **state)
{
        int r = users_teardown(state);

        forget_config(*state);
        return r;
}

/* A new stack, which stays, opens a link. */
static int opens_link(struct unetd_client *c, struct fake_stack *st)
{
        int mem, book, r;

        *c = (struct unetd_client){.pid = 0};
        must_stack(c, st);
        r = unetd_link_open(c, st->id, UNETD_IFACE, &mem, &book);
        if (r == 0) {
                close(mem);
                close(book);
        }
        return r;
}

/* How many there are until there is no room for one more. */
static uint32_t links_there_are(void)
{
        struct unetd_client c;
        struct fake_stack st;
        uint32_t n = 0;

        while (opens_link(&c, &st) == 0)
                n++;
        return n;
}

static void alice_pins_all(void)
{
        table->alice_stack = links_there_are();
        table->ready = 1;
        pause();
}

static void alice_boasts(void)
{
        struct unetd_client c;
        struct fake_stack st;

        must(opens_link(&c, &st) == 0);
        must(unetd_link_drive(&c, st.id, UNETD_IFACE, (uint32_t)syscall(SYS_gettid), 1, 4096,
                              UINT32_MAX) == 0);
        table->ready = 1;
        pause();
}

/* How many links Bob gets after what Alice has done, and keeps. */
static uint32_t bob_gets(void (*alice)(void))
{
        pid_t a = fork(), b;

        if (a == 0) {
                become(ALICE);
                alice();
        }
        eventually(table->ready == 1);
        b = fork();
        if (b == 0) {
                become(BOB);
                table->bob_stack = links_there_are();
                _exit(0);
        }
        must_child(b);
        kill(a, SIGKILL);
        waitpid(a, NULL, 0);
        return table->bob_stack;
}

static void memory_for_the_device_is_left_to_others(void **state)
{
        uint32_t his;

        if (cannot_run())
                skip();
        his = bob_gets(alice_pins_all);
        print_message("links to a device: %u of one user, %u of the next\n",
                      (unsigned)table->alice_stack, (unsigned)his);
        assert_true(his != 0 && his >= table->alice_stack / 3);
}

/* How much its queue pair has pinned a process says by itself. */
static void who_says_that_he_has_pinned_all_takes_nothing(void **state)
{
        if (cannot_run())
                skip();
        assert_in_range(bob_gets(alice_boasts), 10, 1000);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(one_host_leaves_numbers_to_the_next, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_channel_that_is_refused_takes_no_place, setup_few,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_keeper_that_is_slow_makes_no_host_silent, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(memory_for_the_device_is_left_to_others,
                                                setup_users, teardown_users),
                cmocka_unit_test_setup_teardown(who_says_that_he_has_pinned_all_takes_nothing,
                                                setup_users, teardown_users),
        };

        alarm(300);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
