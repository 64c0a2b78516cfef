/*
 * getaddrinfo(): AI_ADDRCONFIG asks for IPv4 addresses only where the system has one itself,
 * loopback apart. libc asks the kernel, which knows nothing of unetd's interfaces.
 */
#include "sock/shim/addrs.h"
#include "sock/shim/shim.h"
#include "sock/usock_ifaces.h"

#include <netdb.h>
#include <netinet/in.h>

static bool is_ipv4(const struct ifaddrs *a)
{
        const struct sockaddr_in *sin = (const struct sockaddr_in *)a->ifa_addr;

        return sin != NULL && sin->sin_family == AF_INET &&
               sin->sin_addr.s_addr != htonl(INADDR_LOOPBACK);
}

static bool kernel_has_ipv4(void)
{
        struct ifaddrs *all, *a;

        if (REAL(getifaddrs)(&all) != 0)
                return true; /* as libc takes it */
        for (a = all; a != NULL && !is_ipv4(a);)
                a = a->ifa_next;
        REAL(freeifaddrs)(all);
        return a != NULL;
}

static bool only_we_have_ipv4(void)
{
        struct usock_iface v[USOCK_IFACES];

        return !kernel_has_ipv4() && shim_ifaces(v) != 0;
}

int h_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                  struct addrinfo **res)
{
        /* What no hints mean to libc. */
        struct addrinfo h = {.ai_flags = AI_V4MAPPED | AI_ADDRCONFIG};
        int err = errno;

        if (hints != NULL)
                h = *hints;
        if (h.ai_flags & AI_ADDRCONFIG && (h.ai_family == AF_UNSPEC || h.ai_family == AF_INET) &&
            !usock_tls.inside && only_we_have_ipv4()) {
                h.ai_flags &= ~AI_ADDRCONFIG;
                hints = &h;
        }
        errno = err;
        return REAL(getaddrinfo)(node, service, hints, res);
}
