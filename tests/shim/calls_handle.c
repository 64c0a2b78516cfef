/*
 * shim_calls, functions that a program looks up by a handle of libc, and a plug-in that is bound to
 * libc past all others (RTLD_DEEPBIND): they meet the sockets that the other calls have.
 */
#include "tests/shim/calls.h"

#include <limits.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DEEP 0 /* sanitizers refuse RTLD_DEEPBIND */
#else
#define DEEP RTLD_DEEPBIND
#endif

static struct {
        int (*socket)(int, int, int);
        int (*connect)(int, const struct sockaddr *, socklen_t);
        int (*accept)(int, struct sockaddr *, socklen_t *);
        ssize_t (*read)(int, void *, size_t);
        ssize_t (*write)(int, const void *, size_t);
        int (*poll)(struct pollfd *, nfds_t, int);
        int (*setsockopt)(int, int, int, const void *, socklen_t);
        int (*dup)(int);
        int (*close)(int);
} by_handle;

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#else
#define FIRST_VERSION "GLIBC_2.17"
#endif

/* version: NULL, or the one that is asked for. */
static void look_up(void *handle, const char *version)
{
        static const char *const names[] = {"socket", "connect",    "accept", "read", "write",
                                            "poll",   "setsockopt", "dup",    "close"};

        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                void *p = version ? dlvsym(handle, names[i], version) : dlsym(handle, names[i]);

                if (!p)
                        die(names[i]);
                memcpy((char *)&by_handle + i * sizeof(p), &p, sizeof(p));
        }
}

/* One end is used by handle, the other one as everybody does. */
static void converse(int handled, int other)
{
        struct pollfd p = {.fd = handled, .events = POLLIN};
        char b[8];
        int on = 1, copy;
        socklen_t len = sizeof(on);

        SHOW(by_handle.write(handled, "abc", 3));
        show_bytes("the other", b, read(other, b, sizeof(b)));
        SHOW(write(other, "xy", 2));
        SHOW(by_handle.poll(&p, 1, LONG));
        show_bytes("by handle", b, by_handle.read(handled, b, sizeof(b)));
        SHOW(by_handle.setsockopt(handled, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
        on = 0;
        SHOW(getsockopt(handled, IPPROTO_TCP, TCP_NODELAY, &on, &len));
        printf("  set: %d\n", on);
        SHOW_OK(copy = by_handle.dup(handled));
        SHOW(by_handle.close(handled));
        SHOW(write(copy, "still", 5));
        show_bytes("the other", b, read(other, b, sizeof(b)));
        SHOW(by_handle.close(copy));
        show_bytes("its end", b, read(other, b, sizeof(b)));
        close(other);
}

/* The number means something else then, and nothing of the socket is left in it. */
static void closed_by_handle(void)
{
        int v[2], fd;

        tcp_pair(v);
        by_handle.close(v[0]);
        while ((fd = open("/dev/null", O_WRONLY)) < v[0])
                ;
        printf("  the same number: %d\n", fd == v[0]);
        SHOW(write(fd, "x", 1));
        for (; fd > STDERR_FILENO; fd--)
                if (fd != v[1])
                        close(fd);
        close(v[1]);
}

static void made_by_handle(void)
{
        struct sockaddr_in to;
        int l = listener(&to), c = by_handle.socket(AF_INET, SOCK_STREAM, 0), a;

        SHOW(by_handle.connect(c, (const void *)&to, sizeof(to)));
        a = by_handle.accept(l, NULL, NULL);
        converse(a, c);
        close(l);
}

void scene_by_handle(void)
{
        void *libc = dlopen("libc.so.6", RTLD_NOW);
        int v[2];

        look_up(libc, NULL);
        tcp_pair(v);
        converse(v[0], v[1]);
        closed_by_handle();
        made_by_handle();
        printf("  no such function: %d\n", dlsym(libc, "no_such_function") == NULL);
        printf("  told: %d\n", dlerror() != NULL);
        dlclose(libc);
}

void scene_by_version(void)
{
        void *libc = dlopen("libc.so.6", RTLD_NOW);
        int v[2];

        look_up(libc, FIRST_VERSION);
        tcp_pair(v);
        converse(v[0], v[1]);
        closed_by_handle();
        made_by_handle();
        look_up(RTLD_DEFAULT, FIRST_VERSION);
        made_by_handle();
        printf("  no such version: %d\n", dlvsym(libc, "read", "GLIBC_1.0") == NULL);
        printf("  told: %d\n", dlerror() != NULL);
        printf("  no such function: %d\n", dlvsym(libc, "no_such", FIRST_VERSION) == NULL);
        dlclose(libc);
}

/* A library's own function that has a name of libc's stays what its handle answers. */
static void own_functions(void *plug)
{
        int (*own)(int) = (int (*)(int))dlsym(plug, "shutdown");

        printf("  its own shutdown: %d\n", own(7));
}

static const char *plug_path(char path[PATH_MAX])
{
        snprintf(path, PATH_MAX, "%.*s/libshim_plug.so", (int)(strrchr(self, '/') - self), self);
        return path;
}

static void plugged(int flags)
{
        char path[PATH_MAX];
        struct sockaddr_in to;
        int (*dial)(const struct sockaddr_in *);
        ssize_t (*say)(int, const char *);
        void *plug;
        int l = listener(&to), v[2];

        plug = dlopen(plug_path(path), flags | DEEP);
        if (!plug)
                die(dlerror());
        dial = (int (*)(const struct sockaddr_in *))dlsym(plug, "dial");
        say = (ssize_t(*)(int, const char *))dlsym(plug, "say");
        v[0] = dial(&to);
        v[1] = accept(l, NULL, NULL);
        look_up(plug, NULL);
        SHOW(say(v[1], "from the plug"));
        converse(v[0], v[1]);
        own_functions(plug);
        close(l);
        dlclose(plug);
}

void scene_deep_bound(void)
{
        plugged(RTLD_NOW);
        plugged(RTLD_LAZY);
}

/* A plug-in with a libc of its own, which uses connections that are made from then on. */
void scene_second_libc(void)
{
        char path[PATH_MAX], b[64];
        struct sockaddr_in to;
        int (*dial)(const struct sockaddr_in *);
        ssize_t (*say)(int, const char *);
        void *plug;
        int l, v[2];

        tcp_pair(v);
        SHOW(write(v[0], "before", 6));
        show_bytes("before", b, read(v[1], b, sizeof(b)));
        plug = dlmopen(LM_ID_NEWLM, plug_path(path), RTLD_NOW);
        if (!plug)
                die(dlerror());
        SHOW(write(v[0], "after", 5));
        show_bytes("after", b, read(v[1], b, sizeof(b)));
        close2(v);
        dial = (int (*)(const struct sockaddr_in *))dlsym(plug, "dial");
        say = (ssize_t(*)(int, const char *))dlsym(plug, "say");
        tcp_pair(v);
        SHOW(write(v[0], "to the plug", 11));
        SHOW(say(v[1], "from the plug"));
        show_bytes("heard", b, read(v[0], b, sizeof(b)));
        close2(v);
        l = listener(&to);
        v[0] = dial(&to);
        v[1] = accept(l, NULL, NULL);
        show_bytes("heard", b, read(v[1], b, sizeof(b)));
        close2(v);
        close(l);
}
