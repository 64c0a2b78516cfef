/*
 * Get: each piece is a request with its place and length, and a reply that brings the data.
 *
 *   uam_get() -> AM_ID_GET (offset, length, number)
 *   am_serve_get() -> AM_CAT_GOT, off = number -> am_got()
 *
 * The number stands for the piece's address here, so that nobody can name another.
 */
#include <errno.h>
#include <stdlib.h>

#include "am/am_int.h"

/* 0: no memory. */
static uint32_t get_take(struct uam *am)
{
        uint32_t i = am->free_get;

        if (i == 0) {
                uint32_t more = am->ngets != 0 ? am->ngets * 2 : 64;
                struct am_get *bigger = realloc(am->gets, (more + 1) * sizeof *bigger);
                if (bigger == NULL)
                        return 0;
                am->gets = bigger;
                for (i = more; i > am->ngets; i--) {
                        am->gets[i] = (struct am_get){.next = am->free_get};
                        am->free_get = i;
                }
                am->ngets = more;
                i = am->free_get;
        }
        am->free_get = am->gets[i].next;
        return i;
}

static void get_free(struct uam *am, uint32_t i)
{
        am->gets[i] = (struct am_get){.next = am->free_get};
        am->free_get = i;
}

static void get_done(struct uam *am, uint32_t i, int err)
{
        struct uam_event *e = am->gets[i].event;

        e->left--;
        if (e->err == 0)
                e->err = err;
        get_free(am, i);
}

static int get_piece(struct uam *am, uint32_t rank, uint64_t off, uint8_t *to, uint32_t len,
                     struct uam_event *event)
{
        uint32_t i = get_take(am);
        uam_arg arg[3] = {off, len, i};
        int err;

        if (i == 0)
                return -ENOMEM;
        am->gets[i] = (struct am_get){.to = to, .len = len, .rank = rank, .event = event};
        event->left++;
        err = am_request_own(am, rank, AM_ID_GET, arg, 3);
        if (err != 0 &&
            am->gets[i].event == event) { /* a peer that was lost meanwhile has ended it already */
                event->left--;
                get_free(am, i);
        }
        return err;
}

int uam_get(struct uam *am, uint32_t rank, uint64_t off, void *to, size_t len,
            struct uam_event *event)
{
        size_t most = uam_max_medium(am, rank);
        uint8_t *at = to;

        if (most == 0 || event == NULL)
                return -EINVAL;
        while (len > 0) {
                uint32_t k = (uint32_t)MIN(len, most);
                int err = get_piece(am, rank, off, at, k, event);
                if (err != 0)
                        return err;
                off += k;
                at += k;
                len -= k;
        }
        return 0;
}

void am_serve_get(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                  void *ctx)
{
        struct am_peer *p = t->peer;
        struct uam *am = p->am;
        struct am_msg m = {.kind = AM_REP, .cat = AM_CAT_GOT, .lend = true};

        if (nargs != 3 || arg[0] > am->mem_len || arg[1] > am->mem_len - arg[0]) {
                am_cut_off(p, -ERANGE);
                return;
        }
        m.data = am->mem + arg[0];
        if (arg[1] > (am_lendable(am, m.data, arg[1]) ? am_max_lent(p, AM_CAT_GOT, 0)
                                                      : am_max_payload(p, AM_CAT_GOT, 0))) {
                am_cut_off(p, -EMSGSIZE);
                return;
        }
        m.len = (uint32_t)arg[1];
        m.total = arg[1];
        m.off = arg[2];
        am_reply(t, &m);
}

bool am_got(struct am_peer *p, const struct am_pkt *pkt, const struct am_pieces *data)
{
        struct uam *am = p->am;
        uint64_t i = pkt->off;

        if (i == 0 || i > am->ngets || am->gets[i].event == NULL || am->gets[i].rank != p->rank ||
            am->gets[i].len != pkt->h.len)
                return false;
        am_pieces_copy(data, am->gets[i].to);
        get_done(am, (uint32_t)i, 0);
        return true;
}

void am_fail_gets(struct am_peer *p, int err)
{
        for (uint32_t i = 1; i <= p->am->ngets; i++)
                if (p->am->gets[i].event != NULL && p->am->gets[i].rank == p->rank)
                        get_done(p->am, i, err);
}
