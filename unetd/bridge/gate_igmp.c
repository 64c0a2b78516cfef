/* See gate_igmp.h. RFC 2236 §2, RFC 3376 §4.2. */
#include "unetd/bridge/gate_igmp.h"

#include "ip/igmp.h"
#include "unetd/client/proto.h"

enum { V1_REPORT = 0x12, V2_REPORT = 0x16, V2_LEAVE = 0x17, V3_REPORT = 0x22, V2_LEN = 8 };
enum { TO_IN = 3, BLOCK = 6, RECORDS_AT = 8, RECORD = 8 };

static bool others_have(const struct gate_groups *t, uint32_t stack, uint32_t group)
{
        for (uint32_t i = 0; i < t->n; i++)
                if (t->at[i].stack != 0 && t->at[i].stack != stack && t->at[i].group == group)
                        return true;
        return false;
}

static void note(struct gate_groups *t, uint32_t stack, uint32_t group)
{
        uint32_t has = 0, his = 0, others = 0, room = GATE_GROUPS;

        assert(stack != 0 && t->n <= GATE_GROUPS);
        for (uint32_t i = t->n; i-- > 0;) {
                if (t->at[i].stack == 0)
                        room = i;
                else if (t->at[i].stack == stack && ++has != 0 && t->at[i].group == group)
                        return;
                else if (unetd_of_one_user(t->at[i].stack, stack))
                        his++;
                else
                        others++;
        }
        if (room == GATE_GROUPS)
                room = t->n;
        if (has >= GATE_GROUPS_EACH || room == GATE_GROUPS ||
            his + 1 > (GATE_GROUPS - others + 1) / 2)
                return;
        t->at[room] = (struct gate_group){stack, group};
        t->n = MAX(t->n, room + 1);
}

static void forget(struct gate_groups *t, uint32_t stack, uint32_t group)
{
        for (uint32_t i = 0; i < t->n; i++)
                if (t->at[i].stack == stack && t->at[i].group == group)
                        t->at[i].stack = 0;
}

void gate_groups_forget(struct gate_groups *t, uint32_t stack)
{
        for (uint32_t i = 0; i < t->n; i++)
                if (t->at[i].stack == stack)
                        t->at[i].stack = 0;
}

static bool joins(struct gate_groups *t, uint32_t stack, uint32_t group)
{
        if (!ip_v4_multicast(group))
                return false;
        note(t, stack, group);
        return true;
}

static bool leaves(struct gate_groups *t, uint32_t stack, uint32_t group)
{
        if (!ip_v4_multicast(group) || others_have(t, stack, group))
                return false;
        forget(t, stack, group);
        return true;
}

/* BLOCK takes sources from a group that stays. */
static bool record_passes(struct gate_groups *t, uint32_t stack, uint8_t type, uint32_t group)
{
        if (type == TO_IN)
                return leaves(t, stack, group);
        if (type == BLOCK)
                return ip_v4_multicast(group) && !others_have(t, stack, group);
        return joins(t, stack, group);
}

/* Returns true if all records of the report pass. */
static bool report_passes(struct gate_groups *t, uint32_t stack, const uint8_t *p, uint32_t len)
{
        uint32_t at = RECORDS_AT;

        for (uint32_t n = be16_at(p + 6); n > 0; n--) {
                if (len - at < RECORD || !record_passes(t, stack, p[at], be32_at(p + at + 4)))
                        return false;
                at += RECORD + 4 * (be16_at(p + at + 2) + p[at + 1]);
                if (at > len)
                        return false;
        }
        return at == len;
}

bool gate_igmp_passes(struct gate_groups *t, uint32_t stack, uint32_t dst, const uint8_t *p,
                      uint32_t len)
{
        uint32_t group;

        if (len < V2_LEN)
                return false;
        group = be32_at(p + 4);
        switch (p[0]) {
        case V1_REPORT:
        case V2_REPORT:
                return len == V2_LEN && dst == group && joins(t, stack, group);
        case V2_LEAVE:
                return len == V2_LEN && dst == IGMP_ALL_ROUTERS && leaves(t, stack, group);
        case V3_REPORT:
                return dst == IGMP_ALL_V3 && report_passes(t, stack, p, len);
        default:
                return false;
        }
}
