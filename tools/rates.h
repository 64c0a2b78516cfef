/*
 * What stacks did between two samples (sample.h), a second. A stack that is in the later one alone
 * has null for its rates: it may be old, and was not seen. A socket that is in the later one alone,
 * or whose totals have gone back, began meanwhile: all is of this time.
 */
#ifndef TOOLS_RATES_H
#define TOOLS_RATES_H

#include <jansson.h>

/*
 * {"stacks": [...], "flows": [...]}, the busiest flow first. `before` may be NULL.
 *
 * A stack: "stack", "uid", "pid", "program"; "seconds" between the samples; "rx_bytes", "tx_bytes",
 * "rx_messages", "tx_messages", "retransmits", "bells" (wake-ups of others), "drops" a second;
 * "drop_reason", of most of these drops; "cpu", how many processors its processes kept busy, for
 * all that they did. A flow: "stack", "uid", "protocol", "state", "local", "peer", "holders";
 * "rx_bytes", "tx_bytes" (TCP's), "rx_messages", "tx_messages", "retransmits" (TCP's), "drops"
 * (UDP's) a second; "limit", what held the sender up most, and "limited", the share of the time
 * that this was; "rtt" in nanoseconds, "cwnd", "recv_q", "send_q" as they are.
 */
json_t *rates_between(const json_t *before, const json_t *after);

#endif
