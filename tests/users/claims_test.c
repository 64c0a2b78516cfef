/*
 * Who may have an address and port on the fabric: who has it in the kernel, compared whole, at the
 * moment of the claim and for as long as it stands (unetd/daemon/claims.h).
 */
#include "tests/users/users.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define LOOPBACK   0x7f000001u
#define LOOPBACK_2 0x7f000002u

/* ---- a claim that is not the socket's ---- */

/* The user's keeper offers (proto, 127.0.0.1, the victim's port), having that port of 127.0.0.2. */
static int offers_anothers(void)
{
        static const uint8_t protos[] = {IPPROTO_TCP, IPPROTO_UDP};
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        uint16_t port = (uint16_t)table->port;
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (size_t i = 0; i < ARRAY_LEN(protos); i++) {
                struct unetd_msg offer = {.type = UNETD_LISTEN_ADD,
                                          .port = {.stack = st.id,
                                                   .proto = protos[i],
                                                   .port = port,
                                                   .addr = ip_addr_v4(LOOPBACK)}};
                int sock = hostile_socket(protos[i], LOOPBACK_2, &port, false);

                must(sock >= 0);
                must(hostile_send(k, &offer, NULL, 0) == 0);
                offer.port.addr = ip_addr_v4(0);
                must(hostile_send(k, &offer, NULL, 0) == 0);
                must(hostile_listen(c, st.id, protos[i], LOOPBACK, port, sock) == -EINVAL);
                must(hostile_listen(c, st.id, protos[i], 0, port, sock) == -EINVAL);
                must(hostile_listen(c, st.id, protos[i], LOOPBACK, port, -1) < 0);
                /* Its own. */
                must(hostile_listen(c, st.id, protos[i], LOOPBACK_2, port, sock) == 0);
                for (uint32_t hint = 0; hint < 16; hint++)
                        must(hostile_sees(protos[i], LOOPBACK, port, hint) == VICTIM);
                must(hostile_sees(protos[i], LOOPBACK_2, port, 0) == HOSTILE);
        }
        return 0;
}

static void an_offer_is_compared_whole(void **state)
{
        if (users_cannot_run())
                skip();
        users_victim_start();
        users_run(HOSTILE, offers_anothers);
        users_victim_goes_on();
        users_unetd_answers();
}

/* ---- a claim that outlives its socket ---- */

/* Claims a port, keeps the claim as well as it can, and lets go of the port in the kernel. */
static int leaves_claims(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), shut, aloft, shared;
        uint16_t shut_port = 0, aloft_port = 0, shared_port = 0;
        struct unetd_msg said = {.type = UNETD_K_ALOFT};
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        shut = hostile_socket(IPPROTO_TCP, LOOPBACK, &shut_port, true);
        aloft = hostile_socket(IPPROTO_TCP, LOOPBACK, &aloft_port, false);
        shared = hostile_socket(IPPROTO_UDP, LOOPBACK, &shared_port, true);
        must(shut >= 0 && aloft >= 0 && shared >= 0);
        must(hostile_listen(c, st.id, IPPROTO_TCP, LOOPBACK, shut_port, shut) == 0);
        must(hostile_listen(c, st.id, IPPROTO_TCP, LOOPBACK, aloft_port, aloft) == 0);
        must(hostile_listen(c, st.id, IPPROTO_UDP, LOOPBACK, shared_port, shared) == 0);
        said.port = (struct unetd_port){.stack = st.id,
                                        .proto = IPPROTO_TCP,
                                        .port = aloft_port,
                                        .addr = ip_addr_v4(LOOPBACK)};
        must(hostile_send(k, &said, NULL, 0) == 0);
        must(hostile_sees(IPPROTO_TCP, LOOPBACK, shut_port, 0) == HOSTILE);
        must(hostile_sees(IPPROTO_TCP, LOOPBACK, aloft_port, 0) == HOSTILE);
        must(hostile_sees(IPPROTO_UDP, LOOPBACK, shared_port, 0) == HOSTILE);
        must(shutdown(shut, SHUT_RD) == 0 && close(aloft) == 0 && close(shared) == 0);
        table->value[0] = shut_port;
        table->value[1] = aloft_port;
        table->value[2] = shared_port;
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

/* An ordinary program has the ports now, and nobody tells unetd. */
static int is_reached_at(uint8_t proto, uint16_t port)
{
        int sock = -1;

        must_eventually((sock = hostile_socket(proto, LOOPBACK, &port, true)) >= 0);
        must_eventually(hostile_sees(proto, LOOPBACK, port, 0) == UINT32_MAX);
        return sock;
}

static int has_them_without_unetd(void)
{
        hostile_client();
        is_reached_at(IPPROTO_TCP, (uint16_t)table->value[0]);
        is_reached_at(IPPROTO_TCP, (uint16_t)table->value[1]);
        is_reached_at(IPPROTO_UDP, (uint16_t)table->value[2]);
        return 0;
}

static void a_claim_ends_with_its_socket(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        hostile = users_begin(HOSTILE, leaves_claims);
        eventually(table->ready == 1);
        users_run(VICTIM, has_them_without_unetd);
        table->done = 1;
        users_wait(hostile);
}

/* Another user's program claims the ports for itself: at once, not at the next look. */
static int has_them_with_unetd(void)
{
        static const uint8_t protos[] = {IPPROTO_TCP, IPPROTO_TCP, IPPROTO_UDP};
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (size_t i = 0; i < ARRAY_LEN(protos); i++) {
                uint16_t port = (uint16_t)table->value[i];
                int sock = -1;

                must_eventually((sock = hostile_socket(protos[i], LOOPBACK, &port, true)) >= 0);
                must(hostile_listen(c, st.id, protos[i], LOOPBACK, port, sock) == 0);
                for (uint32_t hint = 0; hint < 16; hint++)
                        must(hostile_sees(protos[i], LOOPBACK, port, hint) == VICTIM);
        }
        return 0;
}

static void a_claim_without_its_socket_gives_way(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        hostile = users_begin(HOSTILE, leaves_claims);
        eventually(table->ready == 1);
        users_run(VICTIM, has_them_with_unetd);
        table->done = 1;
        users_wait(hostile);
}

/* ---- rules of the operator's ---- */

static int with_rules(void **state)
{
        return users_setup_with(
                "[rule web]\nprogram = web\nprotocol = tcp\naddress = 127.0.0.2\ncarrier = unet\n"
                "[rule all]\nprotocol = tcp\naddress = 127.0.0.0/8\nrole = listen\ncarrier = "
                "kernel\n");
}

/* By the wire itself: no shim asks for rules. What another program may do cannot be told
 * from him. */
static int takes_no_rules(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        uint16_t port = 0, udp_port = 0, second = 0;
        struct hostile_stack st;
        int sock = hostile_socket(IPPROTO_TCP, LOOPBACK, &port, false);

        must(k >= 0 && hostile_stack(c, &st) == 0);
        must(hostile_listen(c, st.id, IPPROTO_TCP, LOOPBACK, port, sock) == -EACCES);
        must(hostile_sees(IPPROTO_TCP, LOOPBACK, port, 0) == UINT32_MAX);
        sock = hostile_socket(IPPROTO_UDP, LOOPBACK, &udp_port, false);
        must(hostile_listen(c, st.id, IPPROTO_UDP, LOOPBACK, udp_port, sock) == 0);
        sock = hostile_socket(IPPROTO_TCP, LOOPBACK_2, &second, false);
        must(hostile_listen(c, st.id, IPPROTO_TCP, LOOPBACK_2, second, sock) == 0);
        return 0;
}

static void a_rule_for_all_programs_holds_for_all(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(HOSTILE, takes_no_rules);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(an_offer_is_compared_whole, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(a_claim_ends_with_its_socket, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(a_claim_without_its_socket_gives_way, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(a_rule_for_all_programs_holds_for_all, with_rules,
                                                users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
