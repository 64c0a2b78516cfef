/*
 * SYNs that are answered before they come here: by the interface, or by a promise.
 */
#ifndef TCP_TCP_ANSWERS_H
#define TCP_TCP_ANSWERS_H

#include "tcp/tcp.h"

struct tcp_seg;

/* The answer to a SYN that was given before it came here: our SYN-ACK, of that sequence number,
 * window and scale, timestamps and SACK. */
struct tcp_answer {
        nstime at;
        uint32_t iss;
        uint16_t wnd; /* as on the wire */
        uint8_t wscale;
};

/*
 * A promise (unet/ni_promise.h): a stack of this host says how its listener answers the next SYN.
 * Who connects has that answer when the SYN leaves. The SYN has no ACK flag, but a number in the
 * field: that of the answer, which the side that connects chooses, and whose lower half says which
 * promise it is. No address is forged between stacks of one host, and nothing is lost or repeated,
 * which is what a number of the listener's own would be for.
 */

/* The channels that answer SYNs (netstack/stack_answer.c). `arg` is that of struct tcp. */
struct tcp_answers {
        /* Returns true if this SYN was answered, and how. */
        bool (*took)(void *arg, const struct tcp_tuple *tuple, uint32_t seq, struct tcp_answer *a);
        /* One connection more (1) or less (-1) has these ends. */
        void (*count)(void *arg, const struct tcp_tuple *tuple, int by);
        /* A connection came about; the next SYN of its peer to its port may be answered as its was:
         * tcp_answer_of(). There is room for so many, at least one. */
        void (*learn)(void *arg, const struct tcp_conn *tc, uint32_t room);
        /* Its SYN was answered, and the SYN-ACK has to be repeated: the answer did not arrive. */
        void (*lost)(void *arg, const struct tcp_conn *tc);
        /* The next connections of its peer to its port are promised, as it came about; there is
         * room for so many. */
        void (*promise)(void *arg, const struct tcp_conn *tc, uint32_t room);
        /* Returns what says by which promise the SYN of a connection to be comes, from 1, and its
         * SYN-ACK but for the numbers; 0: nothing is promised. */
        uint16_t (*promised)(void *arg, const struct tcp_tuple *tuple, struct tcp_seg *answer);
        /* Returns true if a SYN that says so is promised, and how. Asked once. */
        bool (*keep)(void *arg, const struct tcp_tuple *tuple, uint16_t said, struct tcp_answer *a);
        /* Forget what SYNs are answered with: it may be another thing now, or nothing. */
        void (*forget)(void *arg);
};

/* The SYN-ACK that a connection was opened with, from outside; numbers and timestamps are
 * its own. */
void tcp_answer_of(const struct tcp_conn *tc, struct tcp_seg *seg);
/* count() of struct tcp_answers, for each connection of a channel. */
void tcp_count_all(struct tcp *t, uint16_t chan);

#endif
