/*
 * Preloaded into unetd: one of this machine's addresses (HIDE) is not there, so that two daemons on
 * one machine, one for each end of its veth pair, are two hosts to each other.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <string.h>

int getifaddrs(struct ifaddrs **out)
{
        int (*real)(struct ifaddrs **) = (int (*)(struct ifaddrs **))dlsym(RTLD_NEXT, "getifaddrs");
        const char *hidden = getenv("HIDE");
        int err = real(out);

        for (struct ifaddrs *i = err == 0 && hidden ? *out : NULL; i; i = i->ifa_next)
                if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
                    strcmp(inet_ntoa(((struct sockaddr_in *)i->ifa_addr)->sin_addr), hidden) == 0)
                        i->ifa_addr = NULL;
        return err;
}
