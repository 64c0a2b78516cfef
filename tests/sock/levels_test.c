/* The level checker (sock/attach/ustack_levels.h): what it ends, and what it lets pass. */
#include "tests/sock/sides.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "sock/attach/ustack_levels.h"
#include "sock/attach/ustack_wake.h"

enum how { UNTOLD, TOLD, AGAIN };

static struct sock_rec *only_socket(struct ustack *u, uint32_t *idx)
{
        for (*idx = 1; *idx < u->s.st->socks.fresh; ++*idx)
                if (sock_held(stack_sock(&u->s, *idx)))
                        return stack_sock(&u->s, *idx);
        return NULL;
}

/* An error comes to a datagram socket. Its waiters are told of it or are not, and one hears
 * EAGAIN or does not. */
static void error_comes(struct side *s)
{
        int fd = unet_socket(AF_INET, SOCK_DGRAM, 0), err;
        struct ustack *u = ustack_mine(&err);
        struct sock_rec *rec;
        uint32_t idx;

        CHECK(fd >= 0 && u != NULL);
        CHECK(dup2(open("/dev/null", O_WRONLY), STDERR_FILENO) == STDERR_FILENO);
        ustack_lock(u);
        rec = only_socket(u, &idx);
        CHECK(rec != NULL && rec->role == SOCK_ROLE_UDP);
        ustack_unlock(u); /* without the error it has been seen */
        ustack_lock(u);
        udp_put_error(&u->s.udp, rec->conn, ECONNREFUSED);
        if (s->arg != UNTOLD)
                ustack_event(&u->s, idx, TCP_EV_READABLE);
        ustack_levels_again(u, rec, s->arg == AGAIN ? POLLIN | POLLERR : POLLIN);
        ustack_leave(u);
}

static void an_untold_level_ends_the_process(void **state)
{
        assert_int_equal(play_alone(error_comes, UNTOLD), 256 + SIGABRT);
}

static void a_level_with_its_event_passes(void **state)
{
        assert_int_equal(play_alone(error_comes, TOLD), 0);
}

static void eagain_against_the_level_ends_the_process(void **state)
{
        assert_int_equal(play_alone(error_comes, AGAIN), 256 + SIGABRT);
}

static void it_is_switched_on(void **state)
{
        setenv("UNET_CHECK_LEVELS", "0", 1);
        assert_int_equal(play_alone(error_comes, UNTOLD), 0);
        setenv("UNET_CHECK_LEVELS", "1", 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_untold_level_ends_the_process),
                cmocka_unit_test(a_level_with_its_event_passes),
                cmocka_unit_test(eagain_against_the_level_ends_the_process),
                cmocka_unit_test(it_is_switched_on),
        };

        setenv("UNET_CHECK_LEVELS", "1", 1);
        return run_sides(tests);
}
