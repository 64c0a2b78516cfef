/* See serve.h. */
#include "tools/command.h"
#include "tools/serve.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN_MAX 16
#define PATIENCE_S   10
#define REQUEST_MAX  8192

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
        if (sig != SIGCHLD)
                stop = 1;
}

/* ---- where ---- */

/* What an earlier one has left is taken away, nothing else. */
static const char *listen_path(const char *path, int *fd)
{
        struct sockaddr_un sun = {.sun_family = AF_UNIX};
        struct stat st;

        if (strlen(path) >= sizeof sun.sun_path)
                return strerror(ENAMETOOLONG);
        strcpy(sun.sun_path, path);
        if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
                unlink(path);
        *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (*fd < 0 || bind(*fd, (struct sockaddr *)&sun, sizeof sun) < 0 ||
            listen(*fd, CHILDREN_MAX) < 0)
                return strerror(errno);
        fprintf(stderr, "unet: serves at %s\n", path);
        return NULL;
}

static void tell_address(int fd)
{
        struct sockaddr_storage ss;
        socklen_t len = sizeof ss;
        char host[64], port[16];

        if (getsockname(fd, (struct sockaddr *)&ss, &len) == 0 &&
            getnameinfo((struct sockaddr *)&ss, len, host, sizeof host, port, sizeof port,
                        NI_NUMERICHOST | NI_NUMERICSERV) == 0)
                fprintf(stderr, "unet: serves at http://%s%s%s:%s/metrics\n",
                        ss.ss_family == AF_INET6 ? "[" : "", host,
                        ss.ss_family == AF_INET6 ? "]" : "", port);
}

static const char *listen_at(const struct addrinfo *a, int *fd)
{
        int one = 1;

        *fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
            bind(*fd, a->ai_addr, a->ai_addrlen) < 0 || listen(*fd, CHILDREN_MAX) < 0)
                return strerror(errno);
        tell_address(*fd);
        return NULL;
}

/* "ADDRESS:PORT", "[ADDRESS]:PORT" or "PORT". */
static const char *listen_inet(const char *where, int *fd)
{
        static const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                              .ai_socktype = SOCK_STREAM};
        char host[64] = "127.0.0.1";
        const char *colon = strrchr(where, ':'), *port = colon ? colon + 1 : where, *why;
        struct addrinfo *found;
        uint64_t number;

        if (colon) {
                bool brackets = where[0] == '[' && colon > where + 1 && colon[-1] == ']';

                snprintf(host, sizeof host, "%.*s", (int)(colon - where) - 2 * brackets,
                         where + brackets);
        }
        /* getaddrinfo() takes the lower bits of any number. */
        if (!command_number(port, 0, UINT16_MAX, &number) ||
            getaddrinfo(host, port, &hints, &found) != 0)
                return "neither a port, an address and a port, nor a path";
        why = listen_at(found, fd);
        freeaddrinfo(found);
        return why;
}

/* ---- one connection ---- */

/* The head of a request, to its empty line. */
static bool read_request(int fd, char text[REQUEST_MAX])
{
        size_t n = 0;

        while (n < REQUEST_MAX - 1) {
                ssize_t r = read(fd, text + n, REQUEST_MAX - 1 - n);

                if (r <= 0)
                        return false;
                n += (size_t)r;
                text[n] = '\0';
                if (strstr(text, "\r\n\r\n") || strstr(text, "\n\n"))
                        return true;
        }
        return false;
}

/* What is asked for: 200, or why it is not had. */
static const char *judge(const char *request)
{
        static const char *const good[] = {"GET / ", "GET /metrics ", "GET /metrics?"};

        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
                if (strncmp(request, good[i], strlen(good[i])) == 0)
                        return "200 OK";
        return strncmp(request, "GET ", 4) == 0 ? "404 Not Found" : "405 Method Not Allowed";
}

static void answer(int fd, const char *type, void (*page)(FILE *out))
{
        char request[REQUEST_MAX], *text = NULL;
        const char *status;
        size_t n = 0;
        FILE *out, *body;

        if (!read_request(fd, request))
                return;
        status = judge(request);
        out = fdopen(fd, "w");
        body = open_memstream(&text, &n);
        if (!out || !body)
                return;
        if (strcmp(status, "200 OK") == 0)
                page(body);
        fclose(body);
        fprintf(out,
                "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: "
                "close\r\n\r\n",
                status, type, n);
        fwrite(text, 1, n, out);
        fclose(out);
}

/* ---- all ---- */

/* Children that have ended are gone; while there are many, nobody else is served. */
static int reap(int children)
{
        while (children > 0 && waitpid(-1, NULL, WNOHANG) > 0)
                children--;
        return children;
}

static int take(int listening, const char *type, void (*page)(FILE *out))
{
        int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        pid_t pid = fd >= 0 ? fork() : -1;

        if (pid == 0) {
                sigset_t none;

                sigemptyset(&none);
                signal(SIGALRM, SIG_DFL);
                signal(SIGCHLD, SIG_DFL);
                sigprocmask(SIG_SETMASK, &none, NULL);
                alarm(PATIENCE_S);
                close(listening);
                answer(fd, type, page);
                _exit(0);
        }
        if (fd >= 0)
                close(fd);
        return pid > 0;
}

/* Signals come while it waits. */
static void serve_until_stopped(int listening, const char *type, void (*page)(FILE *out))
{
        struct sigaction sa = {.sa_handler = on_signal};
        sigset_t held, outside;
        int children = 0;

        sigemptyset(&held);
        sigaddset(&held, SIGINT);
        sigaddset(&held, SIGTERM);
        sigaddset(&held, SIGCHLD);
        sigprocmask(SIG_BLOCK, &held, &outside);
        sigaction(SIGINT, &sa, NULL);
        sigaction(SIGTERM, &sa, NULL);
        sigaction(SIGCHLD, &sa, NULL);
        while (!stop) {
                struct pollfd p = {.fd = children < CHILDREN_MAX ? listening : -1,
                                   .events = POLLIN};

                if (ppoll(&p, 1, NULL, &outside) > 0)
                        children += take(listening, type, page);
                children = reap(children);
        }
        sigprocmask(SIG_SETMASK, &outside, NULL);
}

const char *serve_page(const char *where, const char *type, void (*page)(FILE *out))
{
        bool is_path = strchr(where, '/') != NULL;
        int fd = -1;
        const char *why = is_path ? listen_path(where, &fd) : listen_inet(where, &fd);

        if (!why)
                serve_until_stopped(fd, type, page);
        if (!why && is_path)
                unlink(where);
        if (fd >= 0)
                close(fd);
        return why;
}
