/* Requests and replies: the rules, the window, and then am_send(). */
#include <errno.h>

#include "am/am_int.h"

/* ---- requests ---- */

static inline struct am_peer *peer_of(const struct uam *am, uint32_t rank)
{
        return rank < am->o.ranks ? am->peer[rank] : NULL;
}

static inline bool window_full(const struct am_peer *p)
{
        const struct am_tx *x = &p->tx[AM_SEQ_REQ];

        return (uint16_t)(x->nxt - x->una) >= p->am->o.window;
}

/* Polls until the window has a place. */
static int wait_window(struct am_peer *p, unsigned flags)
{
        am_count(p->am, UAM_STAT_WINDOW_FULL);
        while (window_full(p)) {
                if (p->err != 0)
                        return -EPIPE;
                if (flags & UAM_IMMEDIATE)
                        return -EAGAIN;
                uam_pause(p->am);
        }
        return p->err != 0 ? -EPIPE : 0;
}

/* §5.1: first what has arrived; who has just polled has done so. */
static inline void receive_first(struct uam *am)
{
        if (unlikely(!am->polled))
                am_receive(am);
        am->polled = false;
}

static inline int sent_request(struct am_peer *p)
{
        am_count(p->am, UAM_STAT_REQUESTS);
        am_link_flush(p->link);
        return 0;
}

/* One message; waits for the window, and for a place in the send queue. */
static int request(struct am_peer *p, unsigned flags, const struct am_msg *m)
{
        struct uam *am = p->am;
        int err;

        receive_first(am);
        if (unlikely(p->err != 0))
                return -EPIPE;
        for (;;) {
                if (unlikely(window_full(p))) {
                        err = wait_window(p, flags);
                        if (err != 0)
                                return err;
                }
                err = am_send(p, m);
                if (likely(err == 0))
                        break;
                if (flags & UAM_IMMEDIATE)
                        return err;
                uam_pause(am);
                if (p->err != 0)
                        return -EPIPE;
        }
        return sent_request(p);
}

static inline int check_request(const struct uam *am, const struct am_peer *p, unsigned id,
                                int nargs)
{
        if (unlikely(am->token.peer != NULL))
                return -EDEADLK;
        if (unlikely(p == NULL || id >= UAM_HANDLERS || nargs < 0 || nargs > UAM_ARGS))
                return -EINVAL;
        return 0;
}

int uam_request_short(struct uam *am, uint32_t rank, unsigned id, unsigned flags,
                      const uam_arg *arg, int nargs)
{
        struct am_peer *p = peer_of(am, rank);
        int err = check_request(am, p, id, nargs);

        if (unlikely(err != 0))
                return err;
        receive_first(am);
        if (likely(p->err == 0 && !window_full(p) && am_send_short(p, AM_REQ, id, arg, nargs) == 0))
                return sent_request(p);
        return request(
                p, flags,
                &(struct am_msg){.kind = AM_REQ, .id = (uint8_t)id, .nargs = nargs, .arg = arg});
}

int uam_request_medium(struct uam *am, uint32_t rank, unsigned id, unsigned flags, const void *data,
                       size_t len, const uam_arg *arg, int nargs)
{
        struct am_peer *p = peer_of(am, rank);
        int err = check_request(am, p, id, nargs);
        struct am_msg m = {.kind = AM_REQ,
                           .cat = AM_CAT_MEDIUM,
                           .id = (uint8_t)id,
                           .nargs = nargs,
                           .arg = arg,
                           .data = data};

        if (err != 0)
                return err;
        if (len > am_max_payload(p, AM_CAT_MEDIUM, nargs))
                return -EMSGSIZE;
        m.len = (uint32_t)len;
        return request(p, flags, &m);
}

/* A piece of a long message: as long as a message can be, where nothing is copied. */
static uint32_t piece_len(const struct am_peer *p, const struct am_msg *m, size_t left)
{
        size_t most = am_max_payload(p, AM_CAT_LONG, m->nargs);

        if (m->lend)
                most = am_max_lent(p, AM_CAT_LONG, m->nargs);
        return (uint32_t)MIN(left, most);
}

/* All pieces carry the handler and its arguments; the last runs it. */
static int request_long(struct am_peer *p, unsigned flags, struct am_msg *m, const void *data,
                        size_t len)
{
        const uint8_t *from = data, *end = from + len;
        int err;

        m->total = len;
        m->lend = m->event != NULL && am_lendable(p->am, data, len);
        if (flags & UAM_IMMEDIATE && piece_len(p, m, len) != len)
                return -EMSGSIZE;
        do {
                m->data = from;
                m->len = piece_len(p, m, (size_t)(end - from));
                from += m->len;
                m->flags = from == end ? AM_F_LAST : 0;
                if (m->event != NULL)
                        m->event->left++;
                err = request(p, flags, m);
                if (err != 0 && m->event != NULL)
                        m->event->left--;
                m->off += m->len;
        } while (err == 0 && from < end);
        return err;
}

int uam_request_long(struct uam *am, uint32_t rank, unsigned id, unsigned flags, const void *data,
                     size_t len, uint64_t off, struct uam_event *event, const uam_arg *arg,
                     int nargs)
{
        struct am_peer *p = peer_of(am, rank);
        int err = check_request(am, p, id, nargs);
        struct am_msg m = {.kind = AM_REQ,
                           .cat = AM_CAT_LONG,
                           .id = (uint8_t)id,
                           .nargs = nargs,
                           .arg = arg,
                           .off = off,
                           .event = event};

        return err != 0 ? err : request_long(p, flags, &m, data, len);
}

int am_request_long(struct uam *am, uint32_t rank, unsigned id, const void *data, size_t len,
                    uint64_t off, struct uam_event *event)
{
        struct am_peer *p = peer_of(am, rank);
        int err = check_request(am, p, 0, 0);
        struct am_msg m = {
                .kind = AM_REQ, .cat = AM_CAT_LONG, .id = (uint8_t)id, .off = off, .event = event};

        return err != 0 ? err : request_long(p, 0, &m, data, len);
}

int uam_put(struct uam *am, uint32_t rank, uint64_t off, const void *data, size_t len,
            struct uam_event *event)
{
        return am_request_long(am, rank, AM_ID_NONE, data, len, off, event);
}

int am_request_own(struct uam *am, uint32_t rank, unsigned id, const uam_arg *arg, int nargs)
{
        struct am_peer *p = peer_of(am, rank);
        int err = check_request(am, p, 0, nargs);
        const struct am_msg m = {
                .kind = AM_REQ, .cat = AM_CAT_SHORT, .id = (uint8_t)id, .nargs = nargs, .arg = arg};

        return err != 0 ? err : request(p, 0, &m);
}

int am_request_data(struct uam *am, uint32_t rank, unsigned id, const void *data, size_t len,
                    const uam_arg *arg, int nargs)
{
        struct am_peer *p = peer_of(am, rank);
        int err = check_request(am, p, 0, nargs);
        const struct am_msg m = {.kind = AM_REQ,
                                 .cat = AM_CAT_MEDIUM,
                                 .id = (uint8_t)id,
                                 .nargs = nargs,
                                 .arg = arg,
                                 .data = data,
                                 .len = (uint32_t)len};

        return err != 0 ? err : request(p, 0, &m);
}

/* ---- replies ---- */

static inline int check_reply(struct uam_token *t, unsigned id, int nargs)
{
        if (unlikely(t == NULL || t->peer == NULL || nargs < 0 || nargs > UAM_ARGS ||
                     id >= UAM_HANDLERS))
                return -EINVAL;
        if (unlikely(t->kind != AM_REQ))
                return -EPERM;
        if (unlikely(t->replied))
                return -EALREADY;
        return unlikely(t->peer->err != 0) ? -EPIPE : 0;
}

/* There is a place for every reply to a peer that keeps to its window. */
static inline int replied(struct uam_token *t, int err)
{
        struct am_peer *p = t->peer;

        if (unlikely(err != 0)) {
                am_peer_ends(p, -EPROTO);
                return -EPIPE;
        }
        t->replied = true;
        am_count(p->am, UAM_STAT_REPLIES);
        return 0;
}

int am_reply(struct uam_token *t, const struct am_msg *m)
{
        return replied(t, am_send(t->peer, m));
}

int am_reply_own(struct uam_token *token, unsigned id, const uam_arg *arg, int nargs)
{
        int err = check_reply(token, 0, nargs);

        return err != 0 ? err : replied(token, am_send_short(token->peer, AM_REP, id, arg, nargs));
}

int uam_reply_short(struct uam_token *token, unsigned id, const uam_arg *arg, int nargs)
{
        int err = check_reply(token, id, nargs);

        return unlikely(err != 0)
                       ? err
                       : replied(token, am_send_short(token->peer, AM_REP, id, arg, nargs));
}

static int reply_data(struct uam_token *token, struct am_msg *m, const void *data, size_t len)
{
        int err = check_reply(token, m->id, m->nargs);

        if (err != 0)
                return err;
        if (len > am_max_payload(token->peer, m->cat, m->nargs))
                return -EMSGSIZE;
        m->data = data;
        m->len = (uint32_t)len;
        return am_reply(token, m);
}

int uam_reply_medium(struct uam_token *token, unsigned id, const void *data, size_t len,
                     const uam_arg *arg, int nargs)
{
        struct am_msg m = {.kind = AM_REP,
                           .cat = AM_CAT_MEDIUM,
                           .id = (uint8_t)id,
                           .nargs = nargs,
                           .arg = arg};

        return reply_data(token, &m, data, len);
}

int uam_reply_long(struct uam_token *token, unsigned id, const void *data, size_t len, uint64_t off,
                   const uam_arg *arg, int nargs)
{
        struct am_msg m = {.kind = AM_REP,
                           .cat = AM_CAT_LONG,
                           .id = (uint8_t)id,
                           .nargs = nargs,
                           .arg = arg,
                           .flags = AM_F_LAST,
                           .off = off,
                           .total = len};

        return reply_data(token, &m, data, len);
}

/* ---- tokens ---- */

uint32_t uam_token_rank(const struct uam_token *token)
{
        return token->peer->rank;
}

struct uam *uam_token_am(const struct uam_token *token)
{
        return token->peer->am;
}

size_t uam_max_medium(const struct uam *am, uint32_t rank)
{
        const struct am_peer *p = peer_of(am, rank);

        return p != NULL ? am_max_payload(p, AM_CAT_LONG, UAM_ARGS) : 0;
}
