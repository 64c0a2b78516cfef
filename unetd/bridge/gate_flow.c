/* See gate_flow.h. */
#include "unetd/bridge/gate_flow.h"

#include <netinet/in.h>

#include "unetd/client/proto.h"

void gate_flows_init(struct gate_flows *t, const uint8_t seed[16])
{
        memcpy(&t->key, seed, sizeof t->key);
}

uint32_t gate_flow_hash(const struct gate_flows *t, const struct gate_key *k)
{
        uint64_t word[2] = {(uint64_t)k->raddr << 32 | (uint32_t)k->local << 16 | k->remote,
                            k->proto};

        return (uint32_t)siphash13(&t->key, word, sizeof word);
}

static bool same(const struct gate_key *a, const struct gate_key *b)
{
        return a->raddr == b->raddr && a->local == b->local && a->remote == b->remote &&
               a->proto == b->proto;
}

static struct gate_flow *bucket_of(struct gate_flows *t, const struct gate_key *k)
{
        uint32_t n = k->proto == IPPROTO_ICMP ? GATE_ECHOES : GATE_FLOWS;

        return &t->slot[gate_flow_hash(t, k) % (n / GATE_WAYS) * GATE_WAYS];
}

static struct gate_flow *find(struct gate_flow *bucket, const struct gate_key *k)
{
        for (uint32_t i = 0; i < GATE_WAYS; i++)
                if (bucket[i].stack != 0 && same(&bucket[i].key, k))
                        return &bucket[i];
        return NULL;
}

struct gate_flow *gate_flow_find(struct gate_flows *t, const struct gate_key *k, uint32_t sec)
{
        struct gate_flow *f = find(bucket_of(t, k), k);

        if (f != NULL && f->used != sec)
                f->used = sec;
        return f;
}

const struct gate_flow *gate_flow_peek(struct gate_flows *t, const struct gate_key *k)
{
        return find(bucket_of(t, k), k);
}

/* Returns true if `a` gives way before `b`. */
static bool before(const struct gate_flow *a, const struct gate_flow *b)
{
        if (a->stack == 0 || b->stack == 0)
                return a->stack == 0 && b->stack != 0;
        return a->stage != b->stage ? a->stage < b->stage : (int32_t)(a->used - b->used) < 0;
}

/* Returns true if nothing is lost with it. */
static bool is_over(const struct gate_flow *f)
{
        return f->stack == 0 || f->stage == GATE_ENDED;
}

/* How many in the bucket are of the user of `stack`. */
static uint32_t crowd(const struct gate_flow *bucket, uint32_t stack)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < GATE_WAYS; i++)
                n += !is_over(&bucket[i]) && unetd_of_one_user(bucket[i].stack, stack);
        return n;
}

/* The one of the most gives way to another one of `stack`. */
static uint32_t way(const struct gate_flow *bucket, const struct gate_flow *at, uint32_t stack,
                    enum gate_stage stage)
{
        bool own = unetd_of_one_user(at->stack, stack);

        if (is_over(at))
                return GATE_WAYS + 4;
        if (stage == GATE_ASKED && at->stage == GATE_ASKED)
                return GATE_WAYS + 2 + own;
        return crowd(bucket, at->stack) + own;
}

static struct gate_flow *make_room(struct gate_flow *bucket, uint32_t stack, enum gate_stage stage)
{
        struct gate_flow *f = NULL;
        uint32_t most = 0;

        for (uint32_t i = 0; i < GATE_WAYS; i++) {
                struct gate_flow *at = &bucket[i];
                uint32_t n = way(bucket, at, stack, stage);

                if (n > most || (n == most && before(at, f))) {
                        most = n;
                        f = at;
                }
        }
        return f;
}

void gate_flow_note(struct gate_flows *t, const struct gate_key *k, uint32_t stack,
                    enum gate_stage stage, uint32_t sec)
{
        struct gate_flow *bucket = bucket_of(t, k), *f = find(bucket, k);

        assert(stack != 0);
        if (f != NULL && f->stack == stack) {
                f->used = sec;
                if (stage == GATE_ENDED || stage > f->stage)
                        f->stage = (uint8_t)stage;
                return;
        }
        if (f == NULL)
                f = make_room(bucket, stack, stage);
        *f = (struct gate_flow){.key = *k, .stage = (uint8_t)stage, .stack = stack, .used = sec};
}

void gate_flows_forget(struct gate_flows *t, uint32_t stack)
{
        assert(stack != 0);
        for (uint32_t i = 0; i < GATE_FLOWS; i++)
                if (t->slot[i].stack == stack)
                        t->slot[i].stack = 0;
}

static bool has_port(const struct gate_flow *f, uint16_t first, uint32_t count)
{
        return f->stack != 0 && f->key.proto == IPPROTO_TCP &&
               (uint16_t)(f->key.local - first) < count;
}

bool gate_flows_of_others(const struct gate_flows *t, uint32_t stack, uint16_t first,
                          uint32_t count)
{
        for (uint32_t i = 0; i < GATE_FLOWS; i++)
                if (t->slot[i].stack != stack && t->slot[i].stage != GATE_ENDED &&
                    has_port(&t->slot[i], first, count))
                        return true;
        return false;
}
