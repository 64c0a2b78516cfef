/*
 * Whose a socket is to be by the words of others than the program: rules of unet.conf(5), which unetd's directory has for everybody.
 */
#include "sock/attach/ustack.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/auxv.h>

#include "base/sys.h"

/* ---- rules ---- */

/* The file that runs, as the kernel has it; an upgrade may have taken its name away. */
static const char *running_file(void)
{
        static char path[PATH_MAX];
        static _Atomic bool known;
        char now[PATH_MAX];
        long n;

        if (!atomic_load_explicit(&known, memory_order_acquire)) {
                static const char gone[] = " (deleted)";

                n = sys4(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", now, sizeof now - 1);
                now[MAX(n, 0)] = '\0';
                if (n > (long)strlen(gone) && strcmp(now + n - strlen(gone), gone) == 0)
                        now[n - (long)strlen(gone)] = '\0';
                memcpy(path, now, sizeof path);                 /* whoever else is here writes the same */
                atomic_store_explicit(&known, true, memory_order_release);
        }
        return path[0] != '\0' ? path : NULL;
}

/* What `unet why` shows. It stays for as long as the process. */
static const char *said(uint32_t i, const char *name)
{
        static char text[RULES_MAX][RULE_NAME + 32];
        char now[sizeof text[0]];

        snprintf(now, sizeof now, "[rule %.*s] of the configuration", (int)RULE_NAME - 1, name);
        if (strcmp(text[i], now) != 0)
                memcpy(text[i], now, sizeof now);
        return text[i];
}

static const char *rule_for(const struct directory *dir, uint8_t proto, enum rule_role role, ip_addr addr, uint16_t port)
{
        struct rule_asked q = {.role = role, .proto = proto, .port = port};
        const struct rule *r;

        q.addr = ip_addr_is_v4(addr) ? ip_addr_get_v4(addr) : 0;
        q.program[0] = running_file();
        q.program[1] = (const char *)getauxval(AT_EXECFN);      /* of a script its own name */
        r = rule_against(dir->rule, dir->nrules, &q);
        return r == NULL ? NULL : said((uint32_t)(r - dir->rule), r->name);
}

const char *ustack_rule(const struct directory *dir, uint8_t proto, enum rule_role role, ip_addr addr, uint16_t port)
{
        return likely(dir == NULL || dir->nrules == 0) ? NULL : rule_for(dir, proto, role, addr, port);
}

const char *usock_rule_listens(int kind, const struct sockaddr *sa, socklen_t len)
{
        uint8_t proto = kind == USOCK_TCP ? IPPROTO_TCP : IPPROTO_UDP;
        ip_addr addr;
        uint16_t port;

        if (usock_addr_in(sa, len, &addr, &port) != 0)
                return NULL;
        return ustack_rule(ustack_directory_anyway(), proto, RULE_LISTENS, addr, port);
}
