/*
 * What a hostile user can do to the names that all can see: flood them, pass rights to them, call
 * all of them.
 */
#include "tests/users/neighbour.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "unetd/client/name.h"

/* Each abstract name of /proc/net/unix: what fn does with it. */
static unsigned each_name(void (*fn)(const struct sockaddr_un *un, socklen_t len, int type))
{
        FILE *f = fopen("/proc/net/unix", "re");
        char line[512], name[200];
        unsigned n = 0;
        int type;

        must(f != NULL);
        while (fgets(line, sizeof line, f) != NULL) {
                struct sockaddr_un un = {.sun_family = AF_UNIX};

                if (sscanf(line, "%*s %*s %*s %*s %x %*s %*s @%107s", (unsigned *)&type, name) != 2)
                        continue;
                memcpy(un.sun_path + 1, name, strlen(name));
                fn(&un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)),
                   type);
                n++;
        }
        fclose(f);
        return n;
}

static int sender;

static void floods(const struct sockaddr_un *un, socklen_t len, int type)
{
        char junk[200] = "";

        if (type == SOCK_DGRAM)
                for (int i = 0; i < 64; i++)
                        sendto(sender, junk, (size_t)i * 3, MSG_DONTWAIT, (struct sockaddr *)un,
                               len);
}

/* Bells of stacks, and places that threads sleep in. */
static int floods_all_names(void)
{
        unsigned names = 0;

        sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        must(sender >= 0);
        for (int i = 0; i < 50; i++)
                names += each_name(floods);
        must(names > 0);
        return 0;
}

static void passes_rights(const struct sockaddr_un *un, socklen_t len, int type)
{
        char control[CMSG_SPACE(sizeof(int))] = "", byte = 0;
        struct iovec v = {&byte, 1};
        struct msghdr m = {.msg_name = (void *)un,
                           .msg_namelen = len,
                           .msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof control};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &sender, sizeof sender);
        if (type == SOCK_DGRAM)
                sendmsg(sender, &m, MSG_DONTWAIT);
}

static int passes_rights_to_all_names(void)
{
        sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        must(sender >= 0);
        for (int i = 0; i < 20; i++)
                must(each_name(passes_rights) > 0);
        return 0;
}

static int called[1024];
static unsigned ncalled;

static void calls(const struct sockaddr_un *un, socklen_t len, int type)
{
        int s = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        if (s >= 0 && connect(s, (struct sockaddr *)un, len) == 0 && ncalled < ARRAY_LEN(called)) {
                called[ncalled++] = s;
                send(s, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        } else if (s >= 0) {
                close(s);
        }
}

/* ... and stays connected, saying nothing that has a form. */
static int calls_all_names(void)
{
        for (int i = 0; i < 8; i++)
                each_name(calls);
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

/* Root's file is no place for others' names. */
static int makes_the_systems_file(void)
{
        struct sockaddr_un un;
        int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        socklen_t len = unetd_system_name(&un, unetd_domain(), s);

        must(s >= 0 && len != 0);
        must(unlink(un.sun_path) < 0 && rename(un.sun_path, "/tmp/unet-stolen") < 0);
        must(bind(s, (struct sockaddr *)&un, len) < 0);
        must(open(UNETD_RUN_DIR "/mine", O_CREAT | O_WRONLY, 0600) < 0);
        return 0;
}

#define ATTACKS(X)                    \
        X(floods_all_names)           \
        X(passes_rights_to_all_names) \
        X(makes_the_systems_file)

ATTACKS(ATTACK_SCENE)

static void who_calls_all_names(void **state)
{
        harms_nobody_meanwhile(calls_all_names, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_victim_begins),
                ATTACKS(ATTACK_ROW) cmocka_unit_test(who_calls_all_names),
        };

        if (users_cannot_run() || !neighbours_have_own_network())
                return 77;
        return cmocka_run_group_tests(tests, users_setup, users_teardown);
}
