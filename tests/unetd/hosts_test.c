/* Other hosts of an RDMA network, which ask for channels, and users of this one: what one of them
 * leaves to the next. */
#include <netinet/in.h>
#include <pthread.h>
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
#include "unetd/client/wire.h"

#define HERE   0x0a4e0001u /* 10.78.0.1 */
#define FIRST  0x0a4e0002u
#define SECOND 0x0a4e0003u
#define POSED  0x0a4e0064u /* and the next ones: nobody's */
#define AWAY   0x0a4f0002u /* of another network */
#define FEW    3u          /* channels of the user's, where they are few */
#define HOSTS  2u

/* Another host's agent, which answers. */
struct host {
        int fd; /* 0: none */
        pthread_t thread;
        uint32_t err;           /* of its answers */
        _Atomic uint32_t asked; /* how often */
};

struct scene {
        struct host host[HOSTS];
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

static void *answers(void *arg)
{
        struct host *h = arg;
        struct sockaddr_un from;
        socklen_t len = sizeof from;
        struct fake_word w;
        struct agent_msg m;
        ssize_t n;

        while ((n = recvfrom(h->fd, &w, sizeof w, 0, (struct sockaddr *)&from, &len)) > 0) {
                h->asked++;
                if (!agent_read(&m, false, w.data, (size_t)n - sizeof w.number))
                        abort();
                m = (struct agent_msg){
                        .op = m.op, .err = h->err, .instance = 7, .mine = m.yours, .yours = m.mine};
                n = (ssize_t)agent_write(&m, true, w.data, sizeof w.data);
                sendto(h->fd, &w, sizeof w.number + (size_t)n, 0, (struct sockaddr *)&from, len);
                len = sizeof from;
        }
        return NULL;
}

static struct host *host_is_there(struct scene *s, uint32_t addr, uint32_t err)
{
        struct host *h = s->host[0].fd == 0 ? &s->host[0] : &s->host[1];
        struct sockaddr_un sun;
        socklen_t len = fake_host_name(&sun, getenv("UNET_DOMAIN"), addr);

        h->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(h->fd, (struct sockaddr *)&sun, len), 0);
        h->err = err;
        assert_int_equal(pthread_create(&h->thread, NULL, answers, h), 0);
        return h;
}

static void hosts_go(struct scene *s)
{
        for (struct host *h = s->host; h < s->host + HOSTS && h->fd != 0; h++) {
                shutdown(h->fd, SHUT_RDWR);
                pthread_join(h->thread, NULL);
                close(h->fd);
        }
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

        hosts_go(s);
        munmap(s->book, sizeof *s->book);
        close(s->listener);
        close(s->agent);
        fake_stack_forget(&s->st);
        unetd_close(&s->c);
        world_teardown(state);
        forget_config(s);
        return 0;
}

static int says(const struct scene *s, uint32_t host, struct agent_msg m)
{
        struct fake_question q = {.from = host};
        size_t len = agent_write(&m, false, q.data, sizeof q.data);
        uint8_t answer[CM_ANSWER_MAX];
        ssize_t n;

        assert_true(send(s->agent, &q, sizeof q.from + len, 0) > 0);
        n = recv(s->agent, answer, sizeof answer, 0);
        assert_true(n > 0 && agent_read(&m, true, answer, (size_t)n));
        return (int)m.err;
}

/* That host's stack asks for a channel to who listens here. 0, or what the agent answers. */
static int asks(const struct scene *s, uint32_t host, uint32_t stack)
{
        return says(s, host,
                    (struct agent_msg){.op = AGENT_OPEN,
                                       .proto = IPPROTO_TCP,
                                       .port = s->port,
                                       .addr = HERE,
                                       .instance = 7,
                                       .stack = stack,
                                       .mine = stack,
                                       .qpn = stack,
                                       .mtu = 4096});
}

/* ... whether the channel with this number of ours is there still. */
static int asks_whether(const struct scene *s, uint32_t host, uint32_t stack, uint32_t yours)
{
        return says(
                s, host,
                (struct agent_msg){.op = AGENT_HERE, .instance = 7, .mine = stack, .yours = yours});
}

/* As an agent does: again, if it is told to. */
static int asks_again(const struct scene *s, uint32_t host, uint32_t stack)
{
        int r = EAGAIN;

        for (int tries = 0; tries < 1000 && r == EAGAIN; tries++) {
                if (tries > 0)
                        world_sleep_ms(5);
                r = asks(s, host, stack);
        }
        return r;
}

static unsigned channels_for(const struct scene *s, uint32_t host)
{
        uint32_t n = 0;

        while (n <= VLINK_CHANS && asks_again(s, host, n + 1) == 0)
                n++;
        return n;
}

/* Channels that there are to these addresses. */
static uint32_t in_book(const struct scene *s, uint32_t low, uint32_t high)
{
        struct vlink_peer p;
        uint32_t n = 0;

        for (uint32_t i = 0; i < VLINK_CHANS; i++)
                n += vlink_read(s->book, i, &p) && p.addr >= low && p.addr <= high;
        return n;
}

static void one_host_leaves_numbers_to_the_next(void **state)
{
        struct scene *s = *state;
        unsigned first, second;

        host_is_there(s, FIRST, 0);
        host_is_there(s, SECOND, 0);
        first = channels_for(s, FIRST);
        second = channels_for(s, SECOND);
        print_message("channels to a stack: %u for one host, %u for the next\n", first, second);
        assert_int_equal(first, VLINK_CHANS / 2);
        assert_int_equal(second, VLINK_CHANS / 4);
        assert_int_equal(asks(s, FIRST, 1), 0); /* there is one */
}

/* Who asks is known by what he says. That has half of the places, whatever the names, until they
 * have been asked. */
static void who_poses_as_many_hosts_leaves_numbers_to_one_that_is_there(void **state)
{
        struct scene *s = *state;

        host_is_there(s, SECOND, 0);
        for (uint32_t i = 0; i < 2 * VLINK_CHANS; i++) {
                asks(s, POSED + i % 32, i + 1);
                assert_in_range(in_book(s, POSED, POSED + 31), 0, VLINK_CHANS / 2);
        }
        assert_int_equal(asks_again(s, SECOND, 1), 0);
        eventually(in_book(s, POSED, POSED + 31) == 0);
        assert_int_equal(in_book(s, SECOND, SECOND), 1);
}

static void who_poses_as_a_host_that_is_there_gets_nothing(void **state)
{
        struct scene *s = *state;
        const struct host *h = host_is_there(s, FIRST, ENOENT);

        assert_int_equal(asks(s, FIRST, 1), 0);
        eventually(h->asked != 0 && in_book(s, FIRST, FIRST) == 0);
}

/* The stand-in for the device hides all channels meanwhile (fake_agent.c). */
static void what_a_host_says_is_not_looked_up_among_all_channels(void **state)
{
        struct scene *s = *state;
        struct vlink_peer p = {.addr = 0};

        host_is_there(s, FIRST, 0);
        for (uint32_t stack = 1; stack <= 3; stack++)
                assert_int_equal(asks(s, FIRST, stack), 0);
        for (uint32_t i = 0; i < 3; i++) {
                assert_true(vlink_read(s->book, i, &p));
                assert_int_equal(asks_whether(s, FIRST, p.stack, p.mine), 0);
                assert_int_not_equal(asks_whether(s, SECOND, p.stack, p.mine), 0);
                assert_int_not_equal(asks_whether(s, FIRST, p.stack, p.mine + 100), 0);
        }
}

static void who_is_of_another_network_is_refused(void **state)
{
        const struct scene *s = *state;

        assert_int_equal(asks(s, AWAY, 1), EPERM);
        assert_int_equal(in_book(s, 0, UINT32_MAX), 0);
}

/* A channel that nobody gets has no number: it is not to take a place in the book, another's. */
static void a_channel_that_is_refused_takes_no_place(void **state)
{
        struct scene *s = *state;
        struct vlink_peer p;

        host_is_there(s, FIRST, 0);
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

        host_is_there(s, FIRST, 0);
        s->st.s->again = UINT32_MAX;
        assert_int_equal(asks(s, FIRST, 1), EAGAIN);
        s->st.s->again = 0;
        eventually(asks(s, FIRST, 1) == 0);
}

/* ---- asking ---- */

static int opens(struct scene *s, uint32_t addr)
{
        uint32_t chan;

        return unetd_remote_open(&s->c, s->st.id, UNETD_IFACE, IPPROTO_TCP, addr, 80, &chan);
}

/* A host that says again and again: ask again. */
static void who_is_to_ask_again_gives_up(void **state)
{
        struct scene *s = *state;
        const struct host *h = host_is_there(s, FIRST, EAGAIN);
        uint32_t asked;

        assert_int_not_equal(opens(s, FIRST), 0);
        asked = h->asked;
        assert_in_range(asked, 2, 20);
        world_sleep_ms(300);
        assert_in_range(h->asked, asked, asked + 1); /* one that was under way */
}

#define AT_ONCE 64u /* requests of one connection that wait: `queue` of unet.conf */

/* More are refused at once. */
static void so_many_wait_for_hosts_and_no_more(void **state)
{
        struct scene *s = *state;
        struct unetd_msg msg = {
                .type = UNETD_REMOTE_OPEN,
                .link = {
                        .stack = s->st.id, .iface = UNETD_IFACE, .proto = IPPROTO_TCP, .port = 80}};
        uint32_t refused = 0, silent = 0;
        struct wire_in in;

        for (uint32_t i = 0; i < AT_ONCE + 8; i++) {
                msg.seq = 1000 + i;
                msg.link.addr = POSED + i;
                assert_int_equal(wire_send(s->c.daemon.fd, &msg, NULL, 0, 0), 0);
        }
        while (refused + silent < AT_ONCE + 8) {
                int r = wire_recv(s->c.daemon.fd, &in, 0);

                assert_true(r == 0 || r == -EAGAIN);
                if (r == -EAGAIN)
                        world_sleep_ms(1);
                else if (in.msg.err == -ENOBUFS)
                        refused++;
                else
                        silent += in.msg.err == -EHOSTUNREACH;
        }
        print_message("%u waited, %u were refused\n", silent, refused);
        assert_int_equal(silent, AT_ONCE);
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

static int setup_users_with_much(void **state)
{
        static struct scene s;

        *state = &s;
        set_config(&s, "pinned = 60\n");
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

        while (opens_link(&c, &st) == 0)
                must(unetd_link_drive(&c, st.id, UNETD_IFACE, (uint32_t)syscall(SYS_gettid), 1,
                                      4096, UINT32_MAX) == 0);
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

static void bob_pins_what_is_left(void)
{
        table->bob_stack = links_there_are();
        table->ready = 2;
        pause();
}

struct count {
        uint32_t uid, links, stacks;
};

static bool count_links(void *arg, const struct unetd_status_item *item)
{
        struct count *n = arg;

        n->links += item->kind == UNETD_S_LINK && item->uid == n->uid;
        n->stacks += item->kind == UNETD_S_STACK && item->uid == n->uid;
        return true;
}

static struct count count_of(uint32_t uid)
{
        struct unetd_client c = {.pid = 0};
        struct count n = {.uid = uid};

        if (unetd_open(&c, UNETD_NO_START) == 0)
                unetd_status(&c, count_links, &n);
        unetd_close(&c);
        return n;
}

static bool are_all_back(void)
{
        /* Each has one whose link was refused. */
        return count_of(ALICE).stacks == table->alice_stack + 1 &&
               count_of(BOB).stacks == table->bob_stack + 1;
}

/* Of an earlier unetd's links a user brings back as many as one who is alone may have, and not
 * what he had where there was more. So each comes back to his own, whoever comes first. */
static void links_that_come_back_leave_memory_to_others(void **state)
{
        struct scene *s = *state;
        pid_t a, b;

        if (cannot_run())
                skip();
        a = fork();
        if (a == 0) {
                become(ALICE);
                alice_pins_all();
        }
        eventually(table->ready == 1);
        b = fork();
        if (b == 0) {
                become(BOB);
                bob_pins_what_is_left();
        }
        eventually(table->ready == 2);
        print_message("links: %u, %u\n", (unsigned)table->alice_stack, (unsigned)table->bob_stack);
        assert_true(table->alice_stack > 6 && table->bob_stack > 3);
        forget_config(s);
        set_config(s, "pinned = 20\n"); /* room for six */
        users_begin_again();
        eventually(are_all_back());
        eventually(count_of(ALICE).links == 3 && count_of(BOB).links == 3);
        world_sleep_ms(100);
        assert_true(count_of(ALICE).links == 3 && count_of(BOB).links == 3);
        kill(a, SIGKILL);
        kill(b, SIGKILL);
        waitpid(a, NULL, 0);
        waitpid(b, NULL, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(one_host_leaves_numbers_to_the_next, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(
                        who_poses_as_many_hosts_leaves_numbers_to_one_that_is_there, setup,
                        teardown),
                cmocka_unit_test_setup_teardown(who_poses_as_a_host_that_is_there_gets_nothing,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(
                        what_a_host_says_is_not_looked_up_among_all_channels, setup, teardown),
                cmocka_unit_test_setup_teardown(who_is_of_another_network_is_refused, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(who_is_to_ask_again_gives_up, setup, teardown),
                cmocka_unit_test_setup_teardown(so_many_wait_for_hosts_and_no_more, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_channel_that_is_refused_takes_no_place, setup_few,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_keeper_that_is_slow_makes_no_host_silent, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(memory_for_the_device_is_left_to_others,
                                                setup_users, teardown_users),
                cmocka_unit_test_setup_teardown(who_says_that_he_has_pinned_all_takes_nothing,
                                                setup_users, teardown_users),
                cmocka_unit_test_setup_teardown(links_that_come_back_leave_memory_to_others,
                                                setup_users_with_much, teardown_users),
        };

        alarm(300);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
