/* Preloaded beside the shim, as others are: authbind(1) binds in the place of who may not, and
 * fakeroot(1) asks another process about files, by a connection that has a lock. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

static _Thread_local int connecting;

int connect(int fd, const struct sockaddr *sa, socklen_t len)
{
        int (*next)(int, const struct sockaddr *, socklen_t), r;

        *(void **)&next = dlsym(RTLD_NEXT, "connect");
        connecting++;
        r = next(fd, sa, len);
        connecting--;
        return r;
}

int fstat(int fd, struct stat *st)
{
        int (*next)(int, struct stat *);

        if (connecting)
                abort(); /* the lock would be waited for forever */
        *(void **)&next = dlsym(RTLD_NEXT, "fstat");
        return next(fd, st);
}

/* Who is refused a port gets the one 40,000 above it. */
int bind(int fd, const struct sockaddr *sa, socklen_t len)
{
        int (*next)(int, const struct sockaddr *, socklen_t), r;
        struct sockaddr_in at;

        *(void **)&next = dlsym(RTLD_NEXT, "bind");
        r = next(fd, sa, len);
        if (r == 0 || errno != EACCES || sa->sa_family != AF_INET)
                return r;
        at = *(const struct sockaddr_in *)(const void *)sa;
        at.sin_port = htons((uint16_t)(ntohs(at.sin_port) + 40000));
        return next(fd, (const struct sockaddr *)&at, sizeof at);
}
