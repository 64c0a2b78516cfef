/* Building names without stdio: used between fork and exec, and inside a shim. */
#include "unetd/client/name.h"

#include <stdlib.h>

#include "unetd/client/proto.h"

bool unetd_domain_valid(const char *domain)
{
        size_t n = 0;

        for (; domain[n]; n++) {
                char c = domain[n];
                bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                          c == '-' || c == '_' || c == '.';
                if (!ok || n == UNETD_DOMAIN_MAX)
                        return false;
        }
        return n > 0;
}

const char *unetd_domain(void)
{
        const char *domain = getenv("UNET_DOMAIN");

        if (!domain || !*domain)
                return UNETD_DOMAIN_DEFAULT;
        return unetd_domain_valid(domain) ? domain : NULL;
}

static char *put(char *at, const char *s)
{
        while (*s)
                *at++ = *s++;
        return at;
}

static char *put_number(char *at, uint32_t v)
{
        char digits[10];
        int n = 0;

        do
                digits[n++] = (char)('0' + v % 10);
        while ((v /= 10) > 0);
        while (n > 0)
                *at++ = digits[--n];
        return at;
}

socklen_t unetd_name(struct sockaddr_un *sun, uint32_t uid, const char *domain, unsigned i)
{
        char *at = sun->sun_path;

        memset(sun, 0, sizeof *sun);
        sun->sun_family = AF_UNIX;
        *at++ = 0;
        at = put_number(put(at, "unet/"), uid);
        at = put_number(put(at, "/"), UNETD_ABI);
        at = put(put(at, "/"), domain);
        at = put_number(put(at, "/"), i);
        return (socklen_t)(at - (char *)sun);
}
