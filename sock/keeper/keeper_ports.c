/* What a keeper tells the next unetd of a stack's ports (unetd/keeper/keeper_ops.h, port_next). */
#include "sock/attach/handle.h"
#include "sock/keeper/keeper_side.h"

#define BLOCKS 0x80000000u /* where these begin, in what port_next() counts */

/* Its port may be one that unetd holds for it; not that of a connection which was accepted, whose
 * listener may be gone. */
static bool may_be_held(const struct sock_rec *rec)
{
        return rec->bound && (rec->kind == USOCK_UDP || rec->registered);
}

/* Sockets twice, once for the port that unetd may hold and once for the name; then the blocks of
 * client ports. What of it is another's by now unetd refuses. */
bool keeper_port_next(const struct stack_state *st, uint32_t *at, struct unetd_msg *msg)
{
        struct pool *p = (struct pool *)(uintptr_t)&st->socks;
        uint32_t nsocks = 2 * (MAX(p->fresh, 1u) - 1), i;

        while (*at < BLOCKS && (i = *at) < nsocks) {
                const struct sock_rec *rec = pool_at(p, i / 2 + 1);

                ++*at;
                if (!sock_held(rec) || rec->lport == 0 ||
                    !(i % 2 == 0 ? may_be_held(rec) : rec->registered))
                        continue;
                *msg = (struct unetd_msg){
                        .type = i % 2 == 0 ? UNETD_PORT_HOLD : UNETD_LISTEN_ADD,
                        .port = {.proto = i % 2 == 0 ? (rec->kind == USOCK_UDP ? IP_PROTO_UDP
                                                                               : IP_PROTO_TCP)
                                                     : ustack_entry_proto(rec),
                                 .port = rec->lport,
                                 .addr = i % 2 == 0 ? rec->laddr : rec->reg_addr,
                                 .sock = i % 2 == 0 ? 0 : ustack_entry_sock(rec)}};
                return true;
        }
        i = *at < BLOCKS ? 0 : *at - BLOCKS;
        if (i >= MIN(st->nblocks, (uint32_t)STACK_PORT_BLOCKS))
                return false;
        *msg = (struct unetd_msg){
                .type = UNETD_PORT_LEASE,
                .lease = {.first = st->block[i].first, .count = st->block[i].count}};
        *at = BLOCKS + i + 1;
        return true;
}
