/* See usock_nap.h. */
#include "sock/wait/usock_nap.h"

#include "base/base.h"

#define SLEEPS_MAX 1024u /* in a row, before a nap is tried again */

static __thread struct {
        bool shared;
        uint32_t sleeps, left; /* after a nap that was no use; of them still to come */
} nap __attribute__((tls_model("initial-exec")));

void usock_nap_shared(void)
{
        nap.shared = true;
}

bool usock_nap_pays(void)
{
        if (!nap.shared)
                return false;
        if (nap.left == 0)
                return true;
        nap.left--;
        return false;
}

void usock_nap_over(bool came)
{
        if (came) {
                nap.sleeps = 0;
                return;
        }
        nap.sleeps = MIN(MAX(nap.sleeps * 2, 1u), SLEEPS_MAX);
        nap.left = nap.sleeps;
}
