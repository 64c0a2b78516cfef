/*
 * The bell: how a sender knows whether the other side must be woken, and whom to wake.
 *
 * One page a stack (or raw endpoint), written by its owner and mapped read-only by its peers. While
 * somebody polls, a message costs no system call; otherwise the sender rings one of two sockets
 * (bell_fd.h), for which it was given ringers with the channel: the leader's, when a waiter sleeps,
 * or the keeper's, when nobody waits at all.
 *
 * No wake-up is lost. Sleeper: (1) store ASLEEP, (2) full fence, (3) look at all queues, (4) sleep
 * on the socket. Sender: (a) store the message, (b) full fence, (c) load the word, (d) ring if it
 * is not POLLED. If (3) missed the message, (3) came before (a) in the order of fences, so (1)
 * comes before (c) and the sender rings; and a ring stays in the socket until it is read. The word
 * carries a count besides the mode, so that a sender rings once for each time the other side went
 * to sleep, and not once a message until it has woken.
 *
 * Between (c) and (d) a stack's process leaves its lock (struct shm_late). If it dies there the
 * keeper rings in its stead.
 *
 * For the keeper the count is its own: it grows when the keeper goes back to sleep, not when a
 * process leaves. One ring is enough for everything that is sent until the keeper has been awake,
 * however often processes come and go meanwhile.
 */
#ifndef UNET_BELL_H
#define UNET_BELL_H

#include <stdatomic.h>

#include "base/base.h"

enum bell_mode {
        BELL_POLLED = 0,     /* queues are looked at: ring nobody */
        BELL_ASLEEP = 1,     /* the leader sleeps */
        BELL_UNATTENDED = 2, /* nobody waits: the keeper sleeps */
};

struct bell {
        _Alignas(CACHE_LINE) _Atomic uint32_t word; /* count << 2 | mode */
        _Atomic uint32_t cpu; /* where the owner last polled: spinning is for other CPUs */
};
#define BELL_BYTES 4096u

static inline enum bell_mode bell_mode(uint32_t word)
{
        return (enum bell_mode)(word & 3);
}

/* Owner, under its lock: before looking at the queues once more and going to sleep. Includes the
 * full fence. bell_arm() is for owners with one mode only; who uses both keeps a count of each,
 * since a count that came again would go unrung. */
static inline void bell_arm_count(struct bell *b, enum bell_mode m, uint32_t count)
{
        atomic_store_explicit(&b->word, count << 2 | m, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
}
static inline void bell_arm(struct bell *b, enum bell_mode m)
{
        bell_arm_count(b, m, (atomic_load_explicit(&b->word, memory_order_relaxed) >> 2) + 1);
}

/* Owner, under its lock: whether the bell has been armed so since whoever armed it looked at the
 * queues. A message that came later than that look was or will be rung for: there is nothing to
 * store, no fence, nothing to look at. */
static inline bool bell_is_armed(const struct bell *b, enum bell_mode m, uint32_t count)
{
        return atomic_load_explicit(&b->word, memory_order_relaxed) == (count << 2 | m);
}

/* Owner, under its lock: somebody polls from now on. No fence needed: a late ring is a
 * spurious wake-up. */
static inline void bell_disarm(struct bell *b)
{
        uint32_t w = atomic_load_explicit(&b->word, memory_order_relaxed);

        if (bell_mode(w) != BELL_POLLED)
                atomic_store_explicit(&b->word, w & ~3u, memory_order_relaxed);
}

#endif
