/* See sockets.h. */
#include "tools/sockets.h"

#include "tcp/tcp_cc.h"
#include "tcp/tcp_group.h"
#include "tcp/tcp_info.h"
#include "tools/address.h"

static const char *limit_name(enum tcp_limit l)
{
        static const char *const names[] = {"-",      "application", "receiver", "cwnd", "queue",
                                            "buffer", "pacing",      "peer",     "clamp"};

        return (size_t)l < ARRAY_LEN(names) ? names[l] : "?";
}

/* Nanoseconds, or null for "not known" and "never". */
static json_t *time_json(nstime t)
{
        return t <= 0 || t == NSTIME_NEVER ? json_null() : json_integer(t);
}

static json_t *limited_json(const struct tcp_report *r)
{
        json_t *o = json_object();

        for (int l = TCP_LIM_APP; l < TCP_LIMITS; l++)
                json_object_set_new(o, limit_name((enum tcp_limit)l), json_integer(r->limited[l]));
        return o;
}

/* A mark that is 0 is none. */
static json_t *watch_json(const struct tcp_marks *m)
{
        return json_pack("{sI sI sI so si}", "acked", (json_int_t)m->acked, "unsent_below",
                         (json_int_t)m->unsent_below, "unread_above", (json_int_t)m->unread_above,
                         "rtt", time_json(m->rtt), "limits", (int)m->limits);
}

/* What the application controls, where it does (<unet/flow.h>). */
static void add_controls(json_t *row, const struct tcp_report *r, nstime now)
{
        if (r->credit)
                json_object_set_new(row, "granted", json_integer(r->rcv_wnd));
        if (r->send_limit != 0)
                json_object_set_new(row, "send_window_limit", json_integer(r->send_limit));
        if (r->group != 0)
                json_object_set_new(
                        row, "group",
                        json_pack("{si sI}", "number", r->group, "share", (json_int_t)r->share));
        if (r->watched)
                json_object_set_new(row, "watch", watch_json(&r->watch));
        if (r->plan.until != 0)
                json_object_set_new(row, "plan",
                                    json_pack("{sI sI}", "window", (json_int_t)r->plan.cwnd,
                                              "good_for", (json_int_t)MAX(r->plan.until - now, 0)));
}

static json_t *tcp_row(const struct seen_stack *s, uint32_t conn, const struct tcp_report *r)
{
        json_t *row = json_pack("{ss si si ss so so so}", "protocol", "tcp", "stack", s->id,
                                "object", conn, "state", tcp_state_name(r->state), "local",
                                address_port_json(r->tuple.laddr, r->tuple.lport), "peer",
                                address_port_json(r->tuple.raddr, r->tuple.rport), "holders",
                                stacks_holders(s, r->sock));
        json_t *sender = json_pack(
                "{sI sI sI sI sI so so so so so si si ss ss sI sI so}", "recv_q",
                (json_int_t)r->unread, "send_q", (json_int_t)r->unacked + r->unsent, "unsent",
                (json_int_t)r->unsent, "cwnd", (json_int_t)r->cwnd, "ssthresh",
                (json_int_t)r->ssthresh, "rtt", time_json(r->srtt), "rttvar", time_json(r->rttvar),
                "min_rtt", time_json(r->min_rtt), "rto", time_json(r->rto), "limited",
                limited_json(r), "backoff", r->backoff, "probes", r->probes, "congestion",
                tcp_cc_name(r->cc), "limit", limit_name(r->limit), "delivery_rate",
                (json_int_t)r->delivery_rate, "pacing_rate", (json_int_t)r->pacing_rate, "orphan",
                json_boolean(r->sock == 0));
        json_t *totals = json_pack(
                "{sI sI sI sI sI sI sI sI sI sI sI sI sI sI sI}", "retransmits",
                (json_int_t)r->retrans, "bytes_retransmitted", (json_int_t)r->bytes_retrans,
                "bytes_sent", (json_int_t)r->bytes_sent, "bytes_acked", (json_int_t)r->bytes_acked,
                "bytes_received", (json_int_t)r->bytes_received, "segments_out",
                (json_int_t)r->segs_out, "segments_in", (json_int_t)r->segs_in, "memory",
                (json_int_t)r->memory, "send_buffer", (json_int_t)r->sndbuf, "receive_buffer",
                (json_int_t)r->rcvbuf, "send_window", (json_int_t)r->snd_wnd, "receive_window",
                (json_int_t)r->rcv_wnd, "mss", (json_int_t)r->mss, "reordering",
                (json_int_t)r->reordering, "dsack_duplicates", (json_int_t)r->dsack_dups);

        add_controls(row, r, s->now);
        json_object_update_new(row, sender);
        json_object_update_new(row, totals);
        return row;
}

void sockets_connections(const struct seen_stack *s, json_t *rows)
{
        const struct tcp *t = &s->view.tcp;

        for (uint32_t i = 1; i < t->sh->conns.fresh && i < t->sh->conns.cap; i++) {
                const struct tcp_conn *tc = tcp_conn_at(t, i);
                struct tcp_report r;

                if (!tc->live)
                        continue;
                tcp_get_report(t, tc, &r, s->now);
                json_array_append_new(rows, tcp_row(s, i, &r));
        }
}

/* What it accepts is in it. */
static json_t *group_json(const struct tcp *t, uint32_t group)
{
        struct tcp_group_report r;

        tcp_group_get(t, group, &r);
        return json_pack("{si sI sI sI sI sI sI}", "number", group, "members",
                         (json_int_t)r.members, "members_most", (json_int_t)r.limits.members,
                         "receive", (json_int_t)r.limits.receive, "least",
                         (json_int_t)r.limits.least, "held", (json_int_t)r.held, "rate",
                         (json_int_t)r.limits.rate);
}

void sockets_listeners(const struct seen_stack *s, json_t *rows)
{
        const struct tcp *t = &s->view.tcp;

        for (uint32_t i = 1; i < t->sh->listeners.fresh && i < t->sh->listeners.cap; i++) {
                const struct tcp_listener *l = tcp_listener_at(t, i);
                json_t *row;

                if (!l->live)
                        continue;
                row = json_pack("{ss si ss so ss so sI sI}", "protocol", "tcp", "stack", s->id,
                                "state", "LISTEN", "local", address_port_json(l->addr, l->port),
                                "peer", "*:*", "holders", stacks_holders(s, l->sock), "recv_q",
                                (json_int_t)l->queued, "send_q", (json_int_t)l->backlog);
                if (l->group != 0)
                        json_object_set_new(row, "group", group_json(t, l->group));
                json_array_append_new(rows, row);
        }
}

void sockets_udp(const struct seen_stack *s, json_t *rows)
{
        const struct udp *u = &s->view.udp;

        for (uint32_t i = 1; i < udp_pcb_cap(u); i++) {
                struct udp_report r;

                if (!udp_get_report(u, i, &r))
                        continue;
                json_array_append_new(
                        rows, json_pack("{ss si si ss so so so sI si sI sI sI sI}", "protocol",
                                        "udp", "stack", s->id, "object", i, "state",
                                        r.connected ? "CONNECTED" : "-", "local",
                                        address_port_json(r.tuple.laddr, r.tuple.lport), "peer",
                                        address_port_json(r.tuple.raddr, r.tuple.rport), "holders",
                                        stacks_holders(s, r.sock), "recv_q", (json_int_t)r.queued,
                                        "send_q", 0, "memory", (json_int_t)r.memory, "datagrams_in",
                                        (json_int_t)r.in, "datagrams_out", (json_int_t)r.out,
                                        "dropped", (json_int_t)r.dropped));
        }
}
