/* See gate_share.h. */
#include "unetd/bridge/gate_share.h"

#include "unetd/client/proto.h"

uint32_t gate_share_add(struct gate_asker *v, uint32_t n, struct gate_asker a, uint32_t turn)
{
        for (uint32_t i = 0; i < n; i++) {
                if (!unetd_of_one_user(v[i].stack, a.stack))
                        continue;
                if (turn - a.last > turn - v[i].last)
                        v[i] = a;
                return n;
        }
        v[n] = a;
        return n + 1;
}
