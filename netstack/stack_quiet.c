/*
 * Channels that a turn does not look at: a stack with a thousand peers pays for those that speak.
 *
 * A channel is *hot* while it is looked at. In a stack that has had more than QUIET_FEW, one by
 * which nothing has gone for QUIET_AFTER becomes quiet. Its peer rings the keeper then, whether a
 * process polls the stack or not (struct shm_ctrl, quiet). The keeper looks at all quiet channels,
 * and makes those hot by which something has come. So does whoever sends by one. A keeper may be
 * stopped: the peer rings the leader as well, and says for what (BELL_QUIET). Who leads, or does
 * next, then looks at all quiet channels, too.
 *
 * No message is lost sight of. Owner: (1) the channel is not hot, (2) store that it is quiet, (3)
 * full fence, (4) look at it once more. Sender: (a) store the message, (b) full fence, (c) load
 * whether it is quiet, (d) ring. If (4) missed the message, (3) came before (b), and the sender
 * rings. The keeper's look comes after (1) then, so that nothing makes the channel quiet after it
 * was made hot. Who dies between (1) and (2) has the lock: all channels are hot after a repair.
 *
 * A sender rings once while the channel is quiet: the look makes it hot. It does so only for a
 * message that is still there. One stored before (2) may have been taken before (1), and its ring
 * finds nothing. So the sender reads whether the channel is quiet before (a), too. If that has
 * changed at (c), it rings, and the next message rings again.
 *
 * Anybody may ring (unet/bell_fd.h), with nothing in any channel. A look that finds nothing is paid
 * for with time, twenty times what it takes; a few may be paid for later. When no more may be, the
 * next look is put off, for all who ring meanwhile together. It is due in all processes, as who was
 * rung may have gone, or be stopped. Who was rung does it in any case: another may have no room to
 * map the channel that matters.
 */
#include "netstack/stack_road.h"

/* A thread that heats a channel of the same word meanwhile has set its bit before it sets the
 * word's. The word's bit stays while other channels of it are hot: a thread without the lock finds
 * them at any moment. */
void stack_cool(struct stack_state *st, uint32_t k)
{
        uint64_t word = 1ull << k / 64;

        assert(k < STACK_CHANS);
        atomic_fetch_and(&st->hot[k / 64], ~(1ull << k % 64));
        if (atomic_load(&st->hot[k / 64]) != 0)
                return;
        atomic_fetch_and(&st->hot_words, ~word);
        if (atomic_load(&st->hot[k / 64]) != 0)
                atomic_fetch_or(&st->hot_words, word);
}

uint32_t stack_hot_from(const struct stack *s, uint32_t i)
{
        const struct stack_state *st = s->st;
        uint64_t words, word;

        for (; i < STACK_CHANS / 64; i++) {
                words = atomic_load_explicit(&st->hot_words, memory_order_relaxed) >> i;
                if (words == 0)
                        break;
                i += (uint32_t)__builtin_ctzll(words);
                if (i >= STACK_CHANS / 64) /* a hostile process's word */
                        break;
                word = atomic_load_explicit(&st->hot[i], memory_order_relaxed);
                if (word != 0)
                        return i * 64 + (uint32_t)__builtin_ctzll(word);
        }
        return STACK_CHANS;
}

/* Returns true if nobody waits for what comes by channel k without a message: room, or frames of
 * ours. */
static bool may_be_quiet(const struct stack *s, uint32_t k)
{
        const struct chan_slot *slot = &s->st->chan[k];
        const struct frame_pool *p = s->frames->region[FRAME_REGION_TX(k)].pool;

        return s->chan[k].ops != NULL && s->chan[k].ops->quiet != NULL && slot->netif == 0 &&
               atomic_load_explicit(&slot->state, memory_order_relaxed) == CHAN_READY &&
               slot->starved == 0 && slot->stuck_head == 0 && p->loans == 0 && p->starved == 0;
}

static bool is_idle(struct chan_slot *slot)
{
        const struct shm_pos *p = &slot->shm.pos;
        uint32_t gone_by = p->tx_prod + p->rx_cons + p->ret_prod + p->ret_cons,
                 before = slot->swept;

        slot->swept = gone_by;
        return gone_by == before;
}

static void be_quiet(struct stack *s, uint32_t k)
{
        struct stack_chan *c = &s->chan[k];

        assert(c->ops != NULL && c->ops->quiet != NULL);
        stack_cool(s->st, k);
        c->ops->quiet(c->ch);
        if (c->ops->pending(c->ch))
                stack_heat(s->st, k);
}

void stack_sweep(struct stack *s)
{
        s->st->sweep_at = s->now + s->st->quiet_after;
        if (atomic_load_explicit(&s->st->chans, memory_order_relaxed) <= s->st->quiet_few)
                return;
        STACK_FOR_HOT (s, k)
                if (may_be_quiet(s, k) && is_idle(&s->st->chan[k]))
                        be_quiet(s, k);
}

static bool look_at_quiet(struct stack *s)
{
        bool any = false;

        for (uint32_t k = 0; k < READ_ONCE(s->nchan); k++) {
                struct unet_chan *ch = stack_chan_peek(s, k);
                const struct unet_ni_ops *ops = ch != NULL ? READ_ONCE(ch->ops) : NULL;
                if (ops == NULL || stack_is_hot(s->st, k) || !ops->pending(ch))
                        continue;
                stack_heat(s->st, k);
                any = true;
        }
        return any;
}

#define LOOK_COST  NS_PER_US /* a channel, of which a look takes some 50 ns */
#define LOOKS_OWED 16

static nstime cost(const struct stack *s)
{
        return READ_ONCE(s->nchan) * LOOK_COST;
}

static bool look(struct stack *s, nstime now)
{
        if (look_at_quiet(s))
                return true;
        atomic_store(&s->st->looks_paid, MAX(atomic_load(&s->st->looks_paid), now) + cost(s));
        return false;
}

bool stack_heard_quiet(struct stack *s, nstime now)
{
        nstime due = atomic_load(&s->st->looks_paid) - LOOKS_OWED * cost(s);

        if (due <= now)
                return look(s, now);
        WRITE_ONCE(s->look_at, due);
        atomic_store(&s->st->look_at, due);
        return false;
}

nstime stack_look_due(const struct stack *s)
{
        return nstime_min(READ_ONCE(s->look_at),
                          atomic_load_explicit(&s->st->look_at, memory_order_relaxed));
}

/* Who puts one off from here on comes too late for this look, or sees it done. */
void stack_look_put_off(struct stack *s)
{
        WRITE_ONCE(s->look_at, NSTIME_NEVER);
        atomic_store(&s->st->look_at, NSTIME_NEVER);
        look(s, s->now);
}
