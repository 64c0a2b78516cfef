/* See agent_wire.h. */
#include "unetd/agent/agent_wire.h"

#include <string.h>

static uint8_t *put16(uint8_t *p, uint16_t v)
{
        be16_put(p, v);
        return p + sizeof(be16);
}

static uint8_t *put32(uint8_t *p, uint32_t v)
{
        be32_put(p, v);
        return p + sizeof(be32);
}

static uint16_t get16(const uint8_t **p)
{
        *p += sizeof(be16);
        return be16_at(*p - sizeof(be16));
}

static uint32_t get32(const uint8_t **p)
{
        *p += sizeof(be32);
        return be32_at(*p - sizeof(be32));
}

size_t agent_write(const struct agent_msg *m, bool answer, uint8_t *p, size_t room)
{
        uint16_t n = (uint16_t)MIN(m->nranges, (room - AGENT_FIXED) / AGENT_RANGE);
        uint8_t *at = put32(p, AGENT_MAGIC);

        *at++ = m->op;
        *at++ = m->proto;
        at = put16(at, m->port);
        at = put32(at, answer ? m->err : m->addr);
        at = put32(at, m->instance);
        at = put32(at, m->stack);
        at = put32(at, m->mine);
        at = put32(at, m->yours);
        at = put32(at, m->qpn);
        at = put32(at, m->qkey);
        at = put32(at, m->mtu);
        at = put32(at, m->version);
        at = put16(at, m->flags | (n < m->nranges ? AGENT_MORE : 0));
        at = put16(at, n);
        for (uint16_t i = 0; i < n; i++) {
                *at++ = m->range[i].proto;
                at = put16(at, m->range[i].first);
                at = put16(at, m->range[i].count);
        }
        return (size_t)(at - p);
}

bool agent_read(struct agent_msg *m, bool answer, const uint8_t *p, size_t len)
{
        const uint8_t *at = p;

        *m = (struct agent_msg){.op = 0};
        if (len < AGENT_FIXED || get32(&at) != AGENT_MAGIC)
                return false;
        m->op = *at++;
        m->proto = *at++;
        m->port = get16(&at);
        *(answer ? &m->err : &m->addr) = get32(&at);
        m->instance = get32(&at);
        m->stack = get32(&at);
        m->mine = get32(&at);
        m->yours = get32(&at);
        m->qpn = get32(&at);
        m->qkey = get32(&at);
        m->mtu = get32(&at);
        m->version = get32(&at);
        m->flags = get16(&at);
        m->nranges = get16(&at);
        if (m->nranges > AGENT_RANGES || len - AGENT_FIXED < m->nranges * AGENT_RANGE)
                return false;
        for (uint16_t i = 0; i < m->nranges; i++) {
                m->range[i].proto = *at++;
                m->range[i].first = get16(&at);
                m->range[i].count = get16(&at);
        }
        return true;
}
