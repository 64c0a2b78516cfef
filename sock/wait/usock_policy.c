/* See usock_policy.h. */
#include "sock/wait/usock_policy.h"

#include <assert.h>

#define WEIGHT 32 /* one wait's share of an average is the 32nd part */
#define NEAR                                                                                 \
        8 /* of two lengths that save nearly the same, to an eighth of the price, the longer \
           */

/* What was polled in so much time, or twice that, says whether others want the processor. A fair
 * neighbour has half of it. */
#define SPAN     (20 * NS_PER_MS)
#define WANTED   3          /* of that, the part that others have */
#define LOST_MAX (SPAN / 4) /* in one go: a machine may stand still for longer */

/* Every 67 ms for one: a sixty-fourth of the time. Two of the clock's powers of two. */
#define TRIAL_EVERY (1ll << 26)
#define TRIAL       (1ll << 20)

static const nstime lengths[POLICY_LENGTHS] = {3 * NS_PER_US, 12 * NS_PER_US, 50 * NS_PER_US,
                                               100 * NS_PER_US};

/* How many of the lengths, and what a sleep may cost: by road, and where the processor is wanted.
 * The kernel's own threads want it where they bring what comes by a device or a wire. */
static const struct {
        uint32_t lengths;
        nstime price, price_wanted;
        nstime least; /* ... and the shortest poll: behind a device it offers the processor */
} roads[POLICY_ROADS] = {
        [POLICY_NONE] = {0},
        [POLICY_MEMORY] = {3, 50 * NS_PER_US, 20 * NS_PER_US, 0},
        [POLICY_DEVICE] = {3, 50 * NS_PER_US, 50 * NS_PER_US, 3 * NS_PER_US},
        [POLICY_WIRE] = {4, 100 * NS_PER_US, 100 * NS_PER_US, 0},
};

static void average(int32_t *avg, nstime value)
{
        *avg += ((int32_t)value - *avg) / WEIGHT;
}

bool policy_is_wanted(const struct policy *p)
{
        return p->lost > p->polled / WANTED;
}

static bool on_trial(nstime now)
{
        return (now & (TRIAL_EVERY - 1)) < TRIAL;
}

nstime policy_length(const struct policy *p, enum policy_road road, nstime now)
{
        nstime price = policy_is_wanted(p) ? roads[road].price_wanted : roads[road].price;
        nstime best = roads[road].least, most = 0;

        assert(road < POLICY_ROADS);
        if (roads[road].lengths != 0 && on_trial(now))
                return lengths[roads[road].lengths - 1];
        for (uint32_t i = 0; i < roads[road].lengths; i++) {
                nstime saved = (p->of[i].came * price >> POLICY_BITS) - p->of[i].spent;
                if (saved <= 0 || saved + price / NEAR < most)
                        continue;
                most = MAX(most, saved);
                best = lengths[i];
        }
        return best;
}

void policy_waited(struct policy *p, nstime took, bool came)
{
        assert(took >= 0);
        for (uint32_t i = 0; i < POLICY_LENGTHS; i++) {
                bool within = came && took <= lengths[i];
                average(&p->of[i].came, within ? POLICY_ALL : 0);
                average(&p->of[i].spent, within ? took : lengths[i]);
        }
}

void policy_polled(struct policy *p, nstime length, nstime lost)
{
        assert(length >= 0 && lost >= 0);
        p->lost += MIN(lost, LOST_MAX);
        p->polled += MIN(length, LOST_MAX);
        if (p->polled > SPAN) {
                p->polled /= 2;
                p->lost /= 2;
        }
}
