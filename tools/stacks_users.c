/*
 * Stacks of all users, for root. A stack's memory is its user's, who may have written anything
 * there; so those of other users are looked at by a process that is such a user's and nobody
 * else's, asks unetd as they would, and hands on rows of JSON. No more comes of what is wrong there
 * than wrong rows, or none.
 */
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/stacks.h"
#include "unetd/client/name.h"

#define USERS_MAX   256u
#define PATIENCE_MS 10000       /* a user can stop processes of its own */
#define ROWS_MAX    (64u << 20) /* bytes */

struct look {
        stacks_row_fn *add;
        void *arg;
        json_t *rows;
};

struct users {
        uint32_t uid[USERS_MAX];
        unsigned flags; /* for unetd_open(), as each of them */
        size_t n;
};

static bool add_stack(void *arg, const struct seen_stack *s)
{
        struct look *l = arg;

        l->add(l->arg, s, l->rows);
        return true;
}

/* ---- the process that is another user's ---- */

static bool become(uint32_t uid)
{
        const struct passwd *pw = getpwuid(uid);
        gid_t gid = pw ? pw->pw_gid : uid;

        return setgroups(0, NULL) == 0 && setresgid(gid, gid, gid) == 0 &&
               setresuid(uid, uid, uid) == 0;
}

static void look_as(uint32_t uid, unsigned flags, struct look *l, int out)
{
        if (!become(uid))
                _exit(1);
        stacks_each_of(flags, add_stack, l);
        _exit(json_dumpfd(l->rows, out, 0) != 0);
}

/* ---- and what it hands on ---- */

/* All that comes in time; *n bytes. */
static char *take(int in, size_t *n)
{
        struct pollfd p = {.fd = in, .events = POLLIN};
        char *text = malloc(ROWS_MAX);
        ssize_t r = 1;

        *n = 0;
        while (text && r > 0 && *n < ROWS_MAX && poll(&p, 1, PATIENCE_MS) == 1) {
                r = read(in, text + *n, ROWS_MAX - *n);
                if (r > 0)
                        *n += (size_t)r;
        }
        return text;
}

/* The user of these rows is known here; what the rows themselves say of it is not believed. */
static void take_rows(uint32_t uid, json_t *rows, json_t *all)
{
        json_t *row;
        size_t i;

        json_array_foreach (rows, i, row) {
                if (!json_is_object(row))
                        continue;
                json_object_set_new(row, "uid", json_integer(uid));
                json_array_append(all, row);
        }
}

void stacks_rows_as(uint32_t uid, unsigned flags, stacks_row_fn *add, void *arg, json_t *all)
{
        struct look theirs = {add, arg, json_array()};
        int fd[2], status;
        json_t *rows;
        char *text;
        size_t n;
        pid_t pid;

        if (pipe(fd) != 0)
                return;
        pid = fork();
        if (pid == 0)
                look_as(uid, flags, &theirs, fd[1]);
        close(fd[1]);
        text = take(fd[0], &n);
        close(fd[0]);
        if (pid > 0) {
                kill(pid, SIGKILL);
                waitpid(pid, &status, 0);
        }
        rows = text ? json_loadb(text, n, 0, NULL) : NULL;
        if (json_is_array(rows))
                take_rows(uid, rows, all);
        json_decref(rows);
        json_decref(theirs.rows);
        free(text);
}

/* ---- who has any ---- */

static void note(struct users *u, uint32_t uid)
{
        size_t i = 0;

        while (i < u->n && u->uid[i] != uid)
                i++;
        if (i == u->n && u->n < USERS_MAX && uid != geteuid())
                u->uid[u->n++] = uid;
}

static bool note_user(void *arg, const struct unetd_status_item *item)
{
        if (item->kind == UNETD_S_STACK)
                note(arg, item->uid);
        return item->kind <= UNETD_S_STACK;
}

static void find_others(struct users *u)
{
        struct unetd_client c = {0};

        if (unetd_open(&c, UNETD_NO_START) != 0)
                return;
        unetd_status(&c, note_user, u);
        unetd_close(&c);
}

/* Anybody may take a name with another's number in it. */
static bool is_his(uint32_t uid, unsigned i)
{
        struct sockaddr_un sun;
        socklen_t len = unetd_name(&sun, uid, unetd_domain(), i), clen = sizeof(struct ucred);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        struct ucred cred = {.uid = UINT32_MAX};
        bool his = fd >= 0 && connect(fd, (struct sockaddr *)&sun, len) == 0 &&
                   getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &clen) == 0 && cred.uid == uid;

        if (fd >= 0)
                close(fd);
        return his;
}

/* Users with unetds of their own, in this network namespace. */
static void find_private(struct users *u)
{
        char line[512], domain[UNETD_DOMAIN_MAX + 1];
        FILE *f = unetd_domain() ? fopen("/proc/net/unix", "re") : NULL;
        unsigned uid, abi, i;

        while (f && fgets(line, sizeof line, f)) {
                const char *name = strstr(line, " @unet/");

                if (name && sscanf(name, " @unet/%u/%u/%32[^/]/%u", &uid, &abi, domain, &i) == 4 &&
                    abi == UNETD_ABI && strcmp(domain, unetd_domain()) == 0 && i < UNETD_NAMES &&
                    is_his(uid, i))
                        note(u, uid);
        }
        if (f)
                fclose(f);
}

static void add_users(const struct users *u, const struct look *l)
{
        for (size_t i = 0; i < u->n; i++)
                stacks_rows_as(u->uid[i], u->flags, l->add, l->arg, l->rows);
}

const char *stacks_rows(stacks_row_fn *add, void *arg, json_t *rows)
{
        struct look l = {add, arg, rows};
        struct users others = {.n = 0}, private = {.flags = UNETD_PRIVATE};
        const char *why = stacks_each(add_stack, &l);
        size_t own = json_array_size(rows);

        if (geteuid() != 0)
                return why;
        find_others(&others);
        add_users(&others, &l);
        find_private(&private);
        add_users(&private, &l);
        return json_array_size(rows) != own ? NULL : why;
}
