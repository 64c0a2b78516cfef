/* An interface's bridge, in a network namespace of the test's own: one user's stacks leave places
 * to others, and hold nobody up. */
#include "tests/users/users.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/checksum.h"
#include "tests/users/hold.h"
#include "unet/bell.h"

#define ADDRESS 0x0a4f0001u /* 10.79.0.1 */

static int enters(int fd, const struct hostile_stack *st)
{
        struct unetd_msg msg = {.type = UNETD_CHAN_OPEN};

        msg.chan.stack = st->id;
        msg.chan.peer_stack = UNETD_IFACE;
        return hostile_ask(fd, &msg, NULL, 0);
}

static int enters_the_interface(int fd)
{
        struct hostile_stack st;

        must(hostile_stack(fd, &st) == 0);
        hostile_stack_close(&st);
        return enters(fd, &st);
}

static int takes_all_places(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), r;
        uint32_t n = 0;

        must(k >= 0);
        while ((r = enters_the_interface(c)) == 0)
                n++;
        must(r == -EDQUOT);
        table->value[table->ready] = n;
        table->ready++;
        must_eventually(table->done == 1);
        return 0;
}

static void places_are_left_to_others(void **state)
{
        pid_t first, second;

        first = users_begin(HOSTILE, takes_all_places);
        eventually(table->ready == 1);
        second = users_begin(BYSTANDER, takes_all_places);
        eventually(table->ready == 2);
        print_message("places at a bridge: %d, then %d\n", (int)table->value[0],
                      (int)table->value[1]);
        assert_true(table->value[1] > 0 && table->value[1] >= table->value[0] / 3);
        users_unetd_answers();
        table->done = 1;
        users_wait(first);
        users_wait(second);
}

/* ---- a keeper that tries the way of before ---- */

static int enters_alone(void)
{
        must(hostile_keeper(HOSTILE_LATE) >= 0);
        must(enters_the_interface(hostile_client()) == 0);
        table->done = 1;
        return 0;
}

static int enters_second(void)
{
        must(hostile_keeper(HOSTILE_ANSWERS) >= 0);
        must(enters_the_interface(hostile_client()) == 0);
        must_eventually(table->done == 1);
        return 0;
}

/* The interface becomes shared before the first user's keeper has attached it. The keeper finds
 * that what it was given first is no more, and then attaches what it was given next. */
static void a_way_of_before_may_fail(void **state)
{
        pid_t first = users_begin(VICTIM, enters_alone), second;

        eventually(table->ready == 1);
        second = users_begin(BYSTANDER, enters_second);
        users_wait(second);
        users_wait(first);
        users_unetd_answers();
}

/* ---- who holds his own is rung ---- */

/* Asleep again and again, so that each datagram rings. */
static void *sleeps(void *arg)
{
        struct bell *bell = arg;

        for (uint32_t n = 1;; n++) {
                bell_arm_count(bell, n % 2 ? BELL_ASLEEP : BELL_UNATTENDED, n);
                usleep(100);
        }
        return NULL;
}

static int holds_what_the_bridge_rings(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), own[UNETD_STACK_FDS],
            fds[UNETD_CHAN_FDS_MAX], sock;
        uint16_t port = 0;
        struct unetd_chan_info info;
        struct hostile_stack st;
        pthread_t thread;
        unsigned n;
        void *bell;

        prctl(PR_SET_DUMPABLE, 1);
        must(k >= 0 && hostile_stack(c, &st) == 0 && enters(c, &st) == 0);
        must_eventually((n = hostile_channel(&info, fds)) > 0);
        sock = hostile_socket(IPPROTO_UDP, INADDR_ANY, &port, false);
        must(sock >= 0 && hostile_listen(c, st.id, IPPROTO_UDP, INADDR_ANY, port, sock) == 0);
        memcpy(own, &st.fds, sizeof own);
        bell = mmap(NULL, BELL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, st.fds.bell, 0);
        must(bell != MAP_FAILED && pthread_create(&thread, NULL, sleeps, bell) == 0);
        hold_all(own, UNETD_STACK_FDS);
        hold_all(fds, n);
        table->port = port;
        table->ready = 1;
        pause();
        return 0;
}

/* A datagram to that port, from the other end of the wire. */
static void send_datagram(int sock, uint16_t port)
{
        struct {
                struct ether_header eth;
                struct iphdr ip;
                struct udphdr udp;
                char data[4];
        } __attribute__((packed)) f = {
                .eth = {.ether_dhost = "\xff\xff\xff\xff\xff\xff",
                        .ether_shost = "\2\0\0\0\0\7",
                        .ether_type = htons(ETHERTYPE_IP)},
                .ip = {.version = 4,
                       .ihl = 5,
                       .tot_len = htons(32),
                       .ttl = 64,
                       .protocol = IPPROTO_UDP,
                       .saddr = htonl(ADDRESS + 1),
                       .daddr = htonl(ADDRESS)},
                .udp = {.source = htons(7), .dest = htons(port), .len = htons(12)},
        };
        struct sockaddr_ll to = {.sll_family = AF_PACKET,
                                 .sll_ifindex = (int)if_nametoindex("unet1")};
        be16 sum = csum_finish(csum_partial(&f.ip, sizeof f.ip, 0));

        memcpy(&f.ip.check, &sum, sizeof sum);
        assert_int_equal(sendto(sock, &f, sizeof f, 0, (struct sockaddr *)&to, sizeof to),
                         sizeof f);
}

static bool is_rung(int sock)
{
        send_datagram(sock, (uint16_t)table->port);
        return table->value[7] > 0;
}

static void who_holds_his_own_is_rung_by_the_bridge(void **state)
{
        int sock = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
        pid_t hostile = users_begin(HOSTILE, holds_what_the_bridge_rings);

        eventually(table->ready == 1);
        eventually(is_rung(sock));
        for (int i = 0; i < 200; i++) {
                send_datagram(sock, (uint16_t)table->port);
                usleep(200);
        }
        users_unetd_answers();
        users_kill(hostile);
        users_unetd_answers();
        close(sock);
}

/* ---- a port that another has at another device ---- */

static const uint8_t protos[] = {IPPROTO_TCP, IPPROTO_UDP};

static int at_device(const char *device, uint8_t proto, uint16_t *port)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(*port)};
        int s = socket(AF_INET, proto == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM, 0);
        socklen_t len = sizeof at;

        must(s >= 0 &&
             setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t)strlen(device)) == 0);
        must(bind(s, (struct sockaddr *)&at, len) == 0 &&
             getsockname(s, (struct sockaddr *)&at, &len) == 0);
        must(proto == IPPROTO_UDP || listen(s, 4) == 0);
        *port = ntohs(at.sin_port);
        return s;
}

/* The victim is at `lo`, where connections from this host come; then he is not, and is again. */
static int is_at_lo(void)
{
        int s[2];
        uint16_t port[2] = {0, 0};

        for (int again = 0; again < 2; again++) {
                for (int k = 0; k < 2; k++) {
                        s[k] = at_device("lo", protos[k], &port[k]);
                        table->value[k] = port[k];
                }
                table->ready = 1 + 2 * (uint32_t)again;
                must_eventually(table->done == 1 + 2 * (uint32_t)again);
                for (int k = 0; k < 2; k++)
                        close(s[k]);
                table->ready = 2 + 2 * (uint32_t)again;
                must_eventually(table->done == 2 + 2 * (uint32_t)again);
        }
        return 0;
}

static int is_at_the_interface(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), s[2];
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        must_eventually(table->ready == 1);
        for (int i = 0; i < 2; i++) {
                uint16_t port = (uint16_t)table->value[i];

                s[i] = at_device("unet0", protos[i], &port);
                must(hostile_listen(c, st.id, protos[i], 0, port, s[i]) < 0);
        }
        table->done = 1;
        must_eventually(table->ready == 2);
        for (int i = 0; i < 2; i++) {
                must(hostile_listen(c, st.id, protos[i], 0, (uint16_t)table->value[i], s[i]) == 0);
                must(hostile_sees(protos[i], 0x7f000001, (uint16_t)table->value[i], 0) == HOSTILE);
        }
        table->done = 2;
        must_eventually(table->ready == 3);
        for (int i = 0; i < 2; i++)
                must_eventually(hostile_sees(protos[i], 0x7f000001, (uint16_t)table->value[i], 0) ==
                                UINT32_MAX);
        table->done = 3;
        must_eventually(table->ready == 4);
        table->done = 4;
        return 0;
}

static void who_is_at_an_interface_takes_nothing_of_who_is_at_another(void **state)
{
        pid_t victim = users_begin(VICTIM, is_at_lo);

        users_run(HOSTILE, is_at_the_interface);
        users_wait(victim);
}

/* ---- the log is on somebody else's disk ---- */

#define OFTEN 60

static char log_path[64];

static int is_refused_often(void)
{
        struct hostile_stack st;
        int c;

        must(hostile_keeper(HOSTILE_REFUSES) >= 0);
        c = hostile_client();
        must(hostile_stack(c, &st) == 0);
        for (int i = 0; i < OFTEN; i++)
                must(enters(c, &st) < 0);
        return 0;
}

/* He causes two lines each time. He gets a line a second, and some at once. */
static void who_comes_again_and_again_does_not_fill_the_log(void **state)
{
        int64_t began = users_now_ms();
        int lines, may;

        users_run(HOSTILE, is_refused_often);
        lines = (int)users_lines_logged(log_path, " stack "); /* at the interface */
        may = 20 + (int)((users_now_ms() - began) / 1000) + 1;
        print_message("%d times refused: %d lines, at most %d\n", OFTEN, lines, may);
        assert_in_range(lines, 1, may);
        unlink(log_path);
}

static int setup_logged(void **state)
{
        char config[200];

        snprintf(log_path, sizeof log_path, "/tmp/unet-bridge-test-%d.log", (int)getpid());
        snprintf(config, sizeof config,
                 "[daemon]\nlog = %s\n"
                 "[interface unet0]\naddress = 10.79.0.1/24\nprovider = packet\nprobe = no\n",
                 log_path);
        return users_setup_with(config);
}

static int setup(void **state)
{
        return users_setup_with(
                "[interface unet0]\naddress = 10.79.0.1/24\nprovider = packet\nprobe = no\n");
}

/* Who is alone has the interface to himself. */
static int setup_alone(void **state)
{
        return users_setup_with("[interface unet0]\naddress = 10.79.0.1/24\nprobe = no\n");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(places_are_left_to_others, setup, users_teardown),
                cmocka_unit_test_setup_teardown(a_way_of_before_may_fail, setup_alone,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(who_holds_his_own_is_rung_by_the_bridge, setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(
                        who_is_at_an_interface_takes_nothing_of_who_is_at_another, setup,
                        users_teardown),
                cmocka_unit_test_setup_teardown(who_comes_again_and_again_does_not_fill_the_log,
                                                setup_logged, users_teardown),
        };

        if (users_cannot_run())
                return 77;
        if (unshare(CLONE_NEWNET) < 0 ||
            system("ip link set lo up && ip link add unet0 type veth peer name unet1 && "
                   "ip link set unet0 up && ip link set unet1 up") != 0) {
                print_message("skipped: network namespaces cannot be made here\n");
                return 77;
        }
        return cmocka_run_group_tests(tests, NULL, NULL);
}
