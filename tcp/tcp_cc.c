/* The registry of congestion controls. */
#include <errno.h>

#include "tcp/tcp_cc.h"
#include "tcp/tcp_send.h"

#define IW_SEGMENTS 10u    /* RFC 6928 §2: ten segments, */
#define IW_BYTES    14600u /* and of long ones no more than this, but two */

static const struct tcp_cc *const table[] = {
#define X(name, cc) [TCP_CC_##name] = &cc,
        TCP_CC_LIST(X)
#undef X
                [TCP_CC_PLAN] = &tcp_plan,
};

const struct tcp_cc *cc_by(unsigned cc)
{
        return table[cc];
}

const struct tcp_cc *cc_of(const struct tcp_conn *tc)
{
        return table[tc->cc];
}

bool cc_has_prr(const struct tcp_conn *tc)
{
        return !(tc->flags & TCF_RATES) || cc_of(tc)->prr;
}

void cc_begin(struct tcp_conn *tc, nstime now)
{
        if (cc_of(tc)->model != NULL && (!tc->link.lossless || cc_of(tc)->lossless_too))
                conn_flag(tc, TCF_RATES);
        else
                conn_unflag(tc, TCF_RATES);
        if (tc->ca_state >= CA_RECOVERY &&
            cc_has_prr(tc)) /* it had begun with one that has no use for ssthresh */
                tc->ssthresh = MIN(tc->ssthresh, MAX(tc->cwnd, 2 * tc->snd_mss));
        pace_set(tc, 0, 1);
        cc_of(tc)->init(tc, now);
}

int tcp_cc_lookup(const char *name)
{
        for (int i = 0; i < TCP_CC_COUNT; i++)
                if (strcmp(table[i]->name, name) == 0)
                        return i;
        return -ENOENT;
}

const char *tcp_cc_name(int cc)
{
        return table[cc]->name;
}

uint32_t cc_initial_window(const struct tcp_conn *tc)
{
        uint32_t most = IW_SEGMENTS * tc->snd_mss;

        return tc->link.lossless ? most : MIN(most, MAX(2 * tc->snd_mss, IW_BYTES));
}
