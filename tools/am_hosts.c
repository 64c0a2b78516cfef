/*
 * unet am run --hosts: each host's ranks are started there by `unet am run --part`, which the
 * launch command (ssh) carries. It is
 *
 *      LAUNCH HOST 'cd DIRECTORY && exec unet am run --part ... PROGRAM ...'
 *
 * and its standard input says the job's key, then nothing; at its end those ranks are ended. A
 * child of ours, the usher, takes in all ranks and tells each where the others are.
 */
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "tools/am_launch.h"
#include "tools/command.h"

#define MEET_NS (60 * NS_PER_S) /* for all ranks to come */

/* ---- the usher ---- */

/* Each rank once; a second one of a number knows the key, and is in error. */
static int take_ranks(struct am_door *d, const struct launch *l, int *sock, struct am_address *at)
{
        nstime until = clock_now() + MEET_NS;

        for (uint32_t left = l->ranks; left > 0;) {
                struct am_hello h;
                int s = am_door_take(d, l->key, AM_ANYONE, until, &h);
                uint32_t rank;

                if (s < 0)
                        return s;
                rank = be32_get(h.rank);
                if (rank >= l->ranks || sock[rank] >= 0 || am_address_of(s, true, &at[rank]) != 0) {
                        close(s);
                        continue;
                }
                at[rank].port = h.port;
                sock[rank] = s;
                left--;
        }
        return 0;
}

static _Noreturn void usher(struct am_door *d, const struct launch *l, pid_t parent)
{
        struct am_address at[AM_JOB_MOST] = {0};
        int sock[AM_JOB_MOST];

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(1);
        memset(sock, -1, sizeof sock);
        if (take_ranks(d, l, sock, at) == 0)
                for (uint32_t i = 0; i < l->ranks; i++)
                        send(sock[i], at, l->ranks * sizeof at[0], MSG_NOSIGNAL);
        _exit(0);
}

static int start_usher(struct launch *l)
{
        pid_t parent = getpid(), pid;
        struct am_door d;
        int err = am_door_open(&d, &l->meet);

        if (err == 0)
                err = am_address_of(d.fd, false, &l->meet);
        if (err != 0)
                return err;
        pid = fork();
        if (pid == 0)
                usher(&d, l, parent);
        am_door_close(&d);
        return pid < 0 ? -errno : 0;
}

/* ---- a host ---- */

static uint32_t first_of(const struct launch *l, uint32_t host)
{
        return (uint32_t)((uint64_t)host * l->ranks / l->n);
}

/* In quotes of the shell. */
static void quote(FILE *to, const char *word)
{
        fputs(" '", to);
        for (; *word != '\0'; word++)
                if (*word == '\'')
                        fputs("'\\''", to);
                else
                        fputc(*word, to);
        fputc('\'', to);
}

/* What the host's shell is to do. NULL: no memory, or who are we? */
static char *order(const struct launch *l, uint32_t host)
{
        char own[PATH_MAX], here[PATH_MAX], meet[64], *text = NULL;
        ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
        size_t size;
        FILE *to = open_memstream(&text, &size);

        if (n < 0 || to == NULL || getcwd(here, sizeof here) == NULL)
                return NULL;
        own[n] = '\0';
        am_address_write(&l->meet, meet, sizeof meet);
        fputs("cd", to);
        quote(to, here);
        fputs(" && exec", to);
        quote(to, own);
        fprintf(to, " am run -n %u --part %u:%u --job %u%s --meet", l->ranks, first_of(l, host),
                first_of(l, host + 1) - first_of(l, host), l->job, l->label ? " --label" : "");
        quote(to, meet);
        fputs(" --", to);
        for (char **word = l->program; *word != NULL; word++)
                quote(to, *word);
        return fclose(to) == 0 ? text : NULL;
}

static void become_host(const struct launch *l, uint32_t host)
{
        char *text = order(l, host), *command;

        if (text == NULL || asprintf(&command, "exec %s \"$@\"", l->by) < 0)
                return;
        signal(SIGPIPE, SIG_DFL);
        execl("/bin/sh", "sh", "-c", command, "sh", l->host[host], text, (char *)NULL);
}

static int start_host(struct launch *l, uint32_t host)
{
        char key[2 * AM_KEY + 2];
        int err = launch_child(l, host, true, become_host);

        if (err != 0)
                return err;
        am_key_write(l->key, key);
        strcat(key, "\n");
        /* A child that has ended already has a status that says so. */
        return write(l->child[host].in, key, strlen(key)) < 0 && errno != EPIPE ? -errno : 0;
}

static int start_hosts(struct launch *l)
{
        int err = start_usher(l);

        for (uint32_t i = 0; i < l->n && err == 0; i++)
                err = start_host(l, i);
        return err;
}

/* ---- where ranks meet ---- */

/* The address of ours that leads to a host: where its ranks find us. */
static int own_address(const char *host, struct am_address *out)
{
        static const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
        struct addrinfo *found;
        int sock, err = -EHOSTUNREACH;

        if (strchr(host, '@') != NULL) /* as ssh has it */
                host = strchr(host, '@') + 1;
        if (getaddrinfo(host, "9", &hints, &found) != 0)
                return err;
        sock = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (sock >= 0 && connect(sock, found->ai_addr, found->ai_addrlen) == 0)
                err = am_address_of(sock, false, out);
        if (sock >= 0)
                close(sock);
        freeaddrinfo(found);
        return err;
}

/* ---- the command ---- */

static int read_names(struct launch *l, char *names)
{
        char *save, *name;

        l->host = calloc(l->ranks, sizeof *l->host);
        if (l->host == NULL)
                return -ENOMEM;
        for (name = strtok_r(names, ",", &save); name != NULL; name = strtok_r(NULL, ",", &save)) {
                if (l->n == l->ranks || name[0] == '-')
                        return -EINVAL;
                l->host[l->n++] = name;
        }
        return l->n > 0 ? 0 : -EINVAL;
}

int launch_hosts(struct launch *l, const char *names, const char *at)
{
        char *copy = strdup(names);
        int err = copy == NULL ? -ENOMEM : read_names(l, copy);
        int status = EXIT_NOTHING;

        signal(SIGPIPE, SIG_IGN);
        if (err == -EINVAL)
                status = command_fail(
                        "am: --hosts are names, comma between, at most as many as ranks");
        else if (err != 0 || getrandom(l->key, sizeof l->key, 0) != sizeof l->key)
                status = command_fail("am: %s", strerror(errno));
        else if (own_address(at != NULL ? at : l->host[0], &l->meet) != 0)
                status = command_fail("am: there is no way to %s", at != NULL ? at : l->host[0]);
        else
                status = launch_all(l, start_hosts);
        free(l->host);
        free(copy);
        return status;
}

bool launch_part_key(uint8_t key[AM_KEY])
{
        char text[2 * AM_KEY + 1];
        size_t got = 0;

        while (got < sizeof text) {
                ssize_t n = read(STDIN_FILENO, text + got, sizeof text - got);
                if (n <= 0)
                        return false;
                got += (size_t)n;
        }
        if (text[sizeof text - 1] != '\n')
                return false;
        text[sizeof text - 1] = '\0';
        return am_key_read(text, key);
}
