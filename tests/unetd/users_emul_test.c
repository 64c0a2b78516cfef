/* Two users: emulated endpoints meet where both want. */
#include <unet/unet.h>

#include "two_users.h"

static void alice_listens(void)
{
        struct unet_ep *ep;
        struct unet_recv m;
        uint32_t chan;
        int all, own;

        become(ALICE);
        must(unet_ep_open(NULL, &ep) == 0);
        must(unet_ep_provide(ep, &(struct unet_frag){(uint32_t)unet_ep_segment(ep).tx_bytes, 8192},
                             1) == 1);
        must((all = unet_emul_listen("all", UNET_EMUL_ANYBODY)) >= 0);
        must((own = unet_emul_listen("own", 0)) >= 0);
        table->alice_stack = 1;
        must(unet_emul_accept(ep, all, PATIENCE_MS * NS_PER_MS, &chan) == 0);
        must(unet_ep_wait(ep, UNET_READABLE, PATIENCE_MS * NS_PER_MS) == UNET_READABLE);
        must(unet_ep_recv(ep, &m, 1) == 1 && m.len == 5000);
        must(unet_emul_accept(ep, own, 0, &chan) == -ETIMEDOUT);
        _exit(0);
}

static void bob_calls(void)
{
        struct unet_ep *ep;
        struct unet_send m = {.nfrags = 1, .frag = {{0, 5000}}};
        char name[32];

        become(BOB);
        must_eventually(table->alice_stack == 1);
        must(unet_ep_open(NULL, &ep) == 0);
        /* A name is one user's. */
        must(unet_emul_connect(ep, "all", PATIENCE_MS * NS_PER_MS, &m.chan) == -ECONNREFUSED);
        snprintf(name, sizeof name, "%u/own", ALICE);
        must(unet_emul_connect(ep, name, PATIENCE_MS * NS_PER_MS, &m.chan) == -EACCES);
        snprintf(name, sizeof name, "%u/all", ALICE);
        must(unet_emul_connect(ep, name, PATIENCE_MS * NS_PER_MS, &m.chan) == 0);
        must(unet_ep_send(ep, &m, 1) == 1);
        must(unet_ep_wait(ep, UNET_CLOSED, PATIENCE_MS * NS_PER_MS) == UNET_CLOSED);
        _exit(0);
}

static void emulated_endpoints_meet_where_both_want(void **state)
{
        pid_t alice, bob;

        if (cannot_run())
                skip();
        alice = fork();
        if (alice == 0)
                alice_listens();
        bob = fork();
        if (bob == 0)
                bob_calls();
        must_child(alice);
        must_child(bob);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                USERS_TEST(emulated_endpoints_meet_where_both_want),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
