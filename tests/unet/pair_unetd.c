/* Endpoint pairs over unetd. What was sent has arrived when unetd says that it took all of it; a
 * queue can be filled while it is stopped. */
#include "pair_unetd.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "tests/unetd/world.h"

struct via {
        struct unetd_client c;
        pid_t daemon;
};

static void *connect_a(void *arg)
{
        struct pair *p = arg;

        return (void *)(intptr_t)unet_emul_connect(p->a, "pair", UNET_FOREVER, &p->ca);
}

static void join_unetd(struct pair *p)
{
        struct via *v = calloc(1, sizeof *v);
        int fd = unet_emul_listen("pair", 0);
        pthread_t thread;
        void *err;

        assert_non_null(v);
        assert_true(fd >= 0);
        assert_int_equal(pthread_create(&thread, NULL, connect_a, p), 0);
        assert_int_equal(unet_emul_accept(p->b, fd, UNET_FOREVER, &p->cb), 0);
        assert_int_equal(pthread_join(thread, &err), 0);
        assert_null(err);
        close(fd);
        assert_int_equal(unetd_open(&v->c, UNETD_NO_START), 0);
        v->daemon = world_daemon_pid(&v->c);
        p->via = v;
}

static bool add_taken(void *arg, const struct unetd_status_item *item)
{
        uint64_t *taken = arg;

        if (item->kind == UNETD_S_EMUL)
                *taken += item->emul.sent;
        return true;
}

static bool all_taken(struct pair *p)
{
        uint64_t taken = 0;

        assert_int_equal(unetd_status(&p->via->c, add_taken, &taken), 0);
        return taken == unet_ep_stat(p->a, "NI_TX_MSGS") + unet_ep_stat(p->b, "NI_TX_MSGS");
}

static void settle_unetd(struct pair *p)
{
        kill(p->via->daemon, SIGCONT);
        eventually(all_taken(p));
}

static void hold_unetd(struct pair *p)
{
        kill(p->via->daemon, SIGSTOP);
}

/* The ports must be gone before the next pair counts. */
static void leave_unetd(struct pair *p)
{
        kill(p->via->daemon, SIGCONT);
        unet_ep_close(p->a);
        unet_ep_close(p->b);
        p->a = p->b = NULL;
        eventually(world_count(&p->via->c).n[UNETD_S_EMUL] == 0);
        unetd_close(&p->via->c);
        free(p->via);
}

const struct provider emul_via_unetd = {
        .name = "emul via unetd",
        .drops_behind = true,
        .hears_close = true,
        .join = join_unetd,
        .settle = settle_unetd,
        .hold = hold_unetd,
        .leave = leave_unetd,
};
