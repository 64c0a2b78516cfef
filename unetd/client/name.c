/* Building names without stdio: used between fork and exec, and inside a shim. */
#include "unetd/client/name.h"

#include "unetd/client/proto.h"
#include "unetd/client/sys.h"
#include "unetd/client/variables.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

bool unetd_domain_valid(const char *domain)
{
        size_t n = 0;

        for (; domain[n]; n++) {
                char c = domain[n];
                bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
                if (!ok || n == UNETD_DOMAIN_MAX)
                        return false;
        }
        return n > 0;
}

const char *unetd_domain(void)
{
        const char *domain = unetd_variable("UNET_DOMAIN");

        if (!domain || !*domain)
                return UNETD_DOMAIN_DEFAULT;
        return unetd_domain_valid(domain) ? domain : NULL;
}

#define DIGITS 20 /* of a uint64_t */
static_assert(sizeof(UNETD_RUN_DIR "/"
                                   "."
                                   ".") +
                                      UNETD_DOMAIN_MAX + 2 * DIGITS <=
                              sizeof(((struct sockaddr_un *)0)->sun_path) &&
                      sizeof("#unet////") + UNETD_DOMAIN_MAX + 3 * DIGITS <=
                              sizeof(((struct sockaddr_un *)0)->sun_path),
              "names have room");

static char *put(char *at, const char *s)
{
        while (*s)
                *at++ = *s++;
        return at;
}

static char *put_number(char *at, uint64_t v)
{
        char digits[DIGITS];
        int n = 0;

        do
                digits[n++] = (char)('0' + v % 10);
        while ((v /= 10) > 0);
        while (n > 0)
                *at++ = digits[--n];
        return at;
}

socklen_t unetd_system_name(struct sockaddr_un *sun, const char *domain, int sock)
{
        uint64_t cookie = 0;
        socklen_t len = sizeof cookie;
        char *at = sun->sun_path;

        assert(unetd_domain_valid(domain));
        memset(sun, 0, sizeof *sun);
        sun->sun_family = AF_UNIX;
        if (sys_getsockopt(sock, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) < 0)
                return 0;
        at = put(put(at, UNETD_RUN_DIR "/"), domain);
        at = put_number(put(at, "."), UNETD_ABI);
        at = put_number(put(at, "."), cookie);
        return (socklen_t)(at + 1 - (char *)sun);
}

socklen_t unetd_name(struct sockaddr_un *sun, uint32_t uid, const char *domain, unsigned i)
{
        char *at = sun->sun_path;

        assert(unetd_domain_valid(domain) && i < UNETD_NAMES);
        memset(sun, 0, sizeof *sun);
        sun->sun_family = AF_UNIX;
        *at++ = 0;
        at = put_number(put(at, "unet/"), uid);
        at = put_number(put(at, "/"), UNETD_ABI);
        at = put(put(at, "/"), domain);
        at = put_number(put(at, "/"), i);
        return (socklen_t)(at - (char *)sun);
}
