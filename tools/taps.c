/* Capture rings of live stacks, merged by time. */
#include "tools/taps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "netstack/stack.h"
#include "tools/stacks.h"
#include "unetd/client/client.h"
#include "unetd/client/timens.h"

#define HOLD_FOR   (100 * NS_PER_MS)
#define HOLD_BYTES (64u << 20)
#define TAPS_MAX   1024
/* Packets of a stack at once: what it says of its ring may be a lie without end. */
#define DRAIN_MAX 100000

/* A packet that waits for its turn: a stack may be found a little after its first packet, so each
 * waits HOLD_FOR, if there is room. */
struct held {
        struct held *next;
        struct capture_rec rec;
        uint8_t bytes[];
};

struct tap {
        uint32_t id;
        struct stacks_map map;
        struct capture *c;
        struct capture_reader reader;
        struct held *first, *last; /* oldest first */
        uint64_t in, out;          /* passed on */
};

struct taps {
        struct taps_want want;
        struct unetd_client unetd;
        struct tap tap[TAPS_MAX];
        uint32_t n;
        size_t held_bytes;
        bool done;
};

struct taps *taps_new(const struct taps_want *want)
{
        struct taps *t = calloc(1, sizeof *t);

        if (t)
                t->want = *want;
        return t;
}

/* ---- stacks come ---- */

static bool map_stack(struct taps *t, struct tap *p)
{
        struct stack view;

        if (!stacks_map(&t->unetd, p->id, PROT_READ | PROT_WRITE, &p->map, &view))
                return false;
        p->c = view.capture;
        stack_view_fini(&view);
        return true;
}

static void add(struct taps *t, uint32_t id)
{
        struct tap *p = &t->tap[t->n];

        *p = (struct tap){.id = id};
        if (t->n == TAPS_MAX || !map_stack(t, p))
                return;
        /* One that captures already was told so when it was made (UNET_CAPTURE): from its first
         * packet on. */
        if (atomic_load(&p->c->snap) == 0)
                capture_reader_init(&p->reader, p->c);
        else
                p->reader.started = true;
        atomic_store(&p->c->snap, t->want.snap);
        t->n++;
        if (t->want.tell)
                fprintf(stderr, "unet: stack %u is watched\n", id);
}

static bool note_stack(void *arg, const struct unetd_status_item *item)
{
        struct taps *t = arg;

        if (item->kind != UNETD_S_STACK)
                return item->kind < UNETD_S_STACK;
        for (uint32_t i = 0; i < t->n; i++)
                if (t->tap[i].id == item->stack)
                        return true;
        if (t->want.stack == 0 || t->want.stack == item->stack)
                add(t, item->stack);
        return true;
}

void taps_scan(struct taps *t)
{
        if (t->unetd.daemon.fd <= 0 && unetd_open(&t->unetd, UNETD_NO_START) != 0)
                return;
        if (unetd_status(&t->unetd, note_stack, t) != 0)
                unetd_close(&t->unetd);
}

/* ---- packets ---- */

static void hold(struct taps *t, struct tap *p, const struct capture_rec *rec, const uint8_t *bytes)
{
        struct held *h;

        if (rec->dir == CAPTURE_IN ? !t->want.in : !t->want.out)
                return;
        h = malloc(sizeof *h + rec->kept);
        if (!h) {
                p->reader.missed++;
                return;
        }
        h->next = NULL;
        h->rec = *rec;
        memcpy(h->bytes, bytes, rec->kept);
        if (p->first)
                p->last->next = h;
        else
                p->first = h;
        p->last = h;
        t->held_bytes += sizeof *h + rec->kept;
}

static void let_go(struct taps *t, struct tap *p)
{
        struct held *h = p->first;

        p->first = h->next;
        t->held_bytes -= sizeof *h + h->rec.kept;
        free(h);
}

static struct tap *with_oldest(struct taps *t)
{
        struct tap *oldest = NULL;

        for (uint32_t i = 0; i < t->n; i++) {
                struct tap *p = &t->tap[i];

                if (p->first && (!oldest || p->first->rec.at < oldest->first->rec.at))
                        oldest = p;
        }
        return oldest;
}

static void pass_on(struct taps *t, nstime before)
{
        struct tap *p;

        while (!t->done && (p = with_oldest(t)) != NULL && p->first->rec.at < before) {
                *(p->first->rec.dir == CAPTURE_IN ? &p->in : &p->out) += 1;
                t->done = !t->want.packet(t->want.arg, &p->first->rec, p->first->bytes);
                let_go(t, p);
        }
}

bool taps_drain(struct taps *t)
{
        static uint8_t bytes[CAPTURE_SNAP_MAX];
        struct capture_rec rec;
        struct timespec ts;
        bool any = false;

        for (uint32_t i = 0; i < t->n; i++) {
                struct tap *p = &t->tap[i];

                for (int n = 0;
                     n < DRAIN_MAX && t->held_bytes < HOLD_BYTES &&
                     capture_read(&p->reader, p->c, STACK_CAPTURE, &rec, bytes, sizeof bytes);
                     n++) {
                        hold(t, p, &rec, bytes);
                        any = true;
                }
                atomic_store(&p->c->drained, p->reader.pos);
        }
        clock_gettime(CLOCK_MONOTONIC, &ts);
        pass_on(t, t->held_bytes < HOLD_BYTES
                           ? ts.tv_sec * NS_PER_S + ts.tv_nsec - timens.monotonic - HOLD_FOR
                           : NSTIME_NEVER);
        return any;
}

void taps_flush(struct taps *t)
{
        taps_drain(t);
        pass_on(t, NSTIME_NEVER);
}

bool taps_done(const struct taps *t)
{
        return t->done;
}

/* ---- the end ---- */

bool taps_total(const struct taps *t, uint32_t i, struct taps_total *out)
{
        const struct tap *p;

        if (i >= t->n)
                return false;
        p = &t->tap[i];
        *out = (struct taps_total){
                .stack = p->id, .in = p->in, .out = p->out, .missed = p->reader.missed};
        /* What was written over and has no successor yet; not what nobody wanted to read
         * any more. */
        if (!t->done && p->reader.started && p->c->seq > p->reader.next_seq)
                out->missed += p->c->seq - p->reader.next_seq;
        return true;
}

void taps_free(struct taps *t)
{
        for (uint32_t i = 0; i < t->n; i++) {
                struct tap *p = &t->tap[i];

                atomic_store(&p->c->snap, 0);
                while (p->first)
                        let_go(t, p);
                munmap(p->map.st, p->map.bytes);
        }
        unetd_close(&t->unetd);
        free(t);
}
