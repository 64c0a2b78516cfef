/*
 * Who may have an address and port on the fabric: who has it in the kernel, compared whole, at the moment of the claim and for as
 * long as it stands (unetd/daemon/claims.h).
 */
#include "tests/users/users.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
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
                                          .port = {.stack = st.id, .proto = protos[i], .port = port, .addr = ip_addr_v4(LOOPBACK)}};
                int sock = hostile_socket(protos[i], LOOPBACK_2, &port, false);

                must(sock >= 0);
                must(hostile_send(k, &offer, NULL, 0) == 0);
                offer.port.addr = ip_addr_v4(0);
                must(hostile_send(k, &offer, NULL, 0) == 0);
                must(hostile_listen(c, st.id, protos[i], LOOPBACK, port, sock) == -EINVAL);
                must(hostile_listen(c, st.id, protos[i], 0, port, sock) == -EINVAL);
                must(hostile_listen(c, st.id, protos[i], LOOPBACK, port, -1) < 0);
                must(hostile_listen(c, st.id, protos[i], LOOPBACK_2, port, sock) == 0);         /* its own */
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

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(an_offer_is_compared_whole, users_setup, users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
