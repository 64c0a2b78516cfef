/*
 * Who holds a socket: a reference each of process slots, and one of all messages that its
 * descriptors are under way in.
 *
 * The references of slots 0 .. 62 are bits of the record itself (sock_rec.refs; bit 63 is
 * SOCK_REF_FLIGHT). Those of slots from 64 on are bits of a row beside the record (struct
 * sock_holders, at holders_off), and rec->more says which words of the row are not 0. So a stack of
 * a few processes never touches a row, and one of thousands looks at as many words as there are.
 *
 * Everything here is called under the stack's lock, but for sock_held(). `more` is derived:
 * stack_recover() makes it anew.
 */
#ifndef NETSTACK_STACK_REFS_H
#define NETSTACK_STACK_REFS_H

#include "netstack/stack.h"

static inline struct sock_holders *sock_holders(const struct stack_state *st,
                                                const struct sock_rec *rec)
{
        struct sock_holders *rows = at_offset(st, st->holders_off);

        return rows + pool_index(&st->socks, rec);
}

/* Anybody holds it. */
static inline bool sock_held(const struct sock_rec *rec)
{
        return (READ_ONCE(rec->refs) | READ_ONCE(rec->more)) != 0;
}

/* The word that has the bit of a slot, and the bit; of who holds it after an exec as well,
 * with `kept`. */
static inline uint64_t *sock_ref_word(const struct stack_state *st, struct sock_rec *rec,
                                      uint32_t slot, bool kept)
{
        struct sock_holders *row;

        if (likely(slot < 64))
                return kept ? &rec->kept : &rec->refs;
        row = sock_holders(st, rec);
        return kept ? &row->kept[slot / 64] : &row->refs[slot / 64];
}
static inline uint64_t sock_ref_bit(uint32_t slot)
{
        return 1ull << slot % 64;
}

static inline bool sock_held_by(const struct stack_state *st, const struct sock_rec *rec,
                                uint32_t slot)
{
        if (slot >= 64 && !(rec->more >> slot / 64 & 1))
                return false;
        return (*sock_ref_word(st, (struct sock_rec *)(uintptr_t)rec, slot, false) &
                sock_ref_bit(slot)) != 0;
}

static inline void sock_hold(const struct stack_state *st, struct sock_rec *rec, uint32_t slot)
{
        *sock_ref_word(st, rec, slot, false) |= sock_ref_bit(slot);
        if (slot >= 64)
                rec->more |= 1ull << slot / 64;
}

/* The slot's reference ends, and that it is kept. */
static inline void sock_let_go(const struct stack_state *st, struct sock_rec *rec, uint32_t slot)
{
        uint64_t *word;

        if (slot >= 64 && !(rec->more >> slot / 64 & 1))
                return;
        word = sock_ref_word(st, rec, slot, false);
        *sock_ref_word(st, rec, slot, true) &= ~sock_ref_bit(slot);
        *word &= ~sock_ref_bit(slot);
        if (slot >= 64 && *word == 0)
                rec->more &= ~(1ull << slot / 64);
}

/* Somebody besides the slot holds it. */
static inline bool sock_held_besides(const struct stack_state *st, const struct sock_rec *rec,
                                     uint32_t slot)
{
        if (likely(slot < 64))
                return (rec->refs & ~sock_ref_bit(slot)) != 0 || rec->more != 0;
        if (rec->refs != 0 || (rec->more & ~(1ull << slot / 64)) != 0)
                return true;
        return rec->more != 0 &&
               (sock_holders(st, rec)->refs[slot / 64] & ~sock_ref_bit(slot)) != 0;
}
static inline bool sock_held_only_by(const struct stack_state *st, const struct sock_rec *rec,
                                     uint32_t slot)
{
        return sock_held_by(st, rec, slot) && !sock_held_besides(st, rec, slot);
}
/* Not more than one does. */
static inline bool sock_held_once(const struct stack_state *st, const struct sock_rec *rec)
{
        uint64_t word;

        if (likely(rec->more == 0))
                return (rec->refs & (rec->refs - 1)) == 0;
        word = sock_holders(st, rec)->refs[__builtin_ctzll(rec->more)];
        return rec->refs == 0 && (rec->more & (rec->more - 1)) == 0 && (word & (word - 1)) == 0;
}

/* Returns true if the slot's reference outlives an exec. */
static inline bool sock_kept_by(const struct stack_state *st, const struct sock_rec *rec,
                                uint32_t slot)
{
        return sock_held_by(st, rec, slot) &&
               (*sock_ref_word(st, (struct sock_rec *)(uintptr_t)rec, slot, true) &
                sock_ref_bit(slot)) != 0;
}
static inline void sock_set_kept(const struct stack_state *st, struct sock_rec *rec, uint32_t slot,
                                 bool kept)
{
        if (!sock_held_by(st, rec, slot))
                return;
        if (kept)
                *sock_ref_word(st, rec, slot, true) |= sock_ref_bit(slot);
        else
                *sock_ref_word(st, rec, slot, true) &= ~sock_ref_bit(slot);
}

/* The first slot from `slot` on that holds it; STACK_PROCS: none does. SOCK_REF_FLIGHT is one. */
static inline uint32_t sock_next_holder(const struct stack_state *st, const struct sock_rec *rec,
                                        uint32_t slot)
{
        for (uint32_t w = slot / 64; w < STACK_PROCS / 64; w++, slot = w * 64) {
                uint64_t word = w == 0               ? rec->refs
                                : rec->more >> w & 1 ? sock_holders(st, rec)->refs[w]
                                                     : 0;

                word &= ~0ull << slot % 64;
                if (word != 0)
                        return w * 64 + (uint32_t)__builtin_ctzll(word);
        }
        return STACK_PROCS;
}

/* Derived state of a record, made anew. */
static inline void sock_refs_recover(const struct stack_state *st, struct sock_rec *rec)
{
        const struct sock_holders *row = sock_holders(st, rec);

        rec->more = 0;
        for (uint32_t w = 1; w <= (stack_procs(st) - 1) / 64 && stack_procs(st) > 64; w++)
                if (row->refs[w] != 0)
                        rec->more |= 1ull << w;
}

#endif
