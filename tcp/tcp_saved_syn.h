/*
 * TCP_SAVE_SYN: the headers of the SYN that opened a connection.
 */
#ifndef TCP_TCP_SAVED_SYN_H
#define TCP_TCP_SAVED_SYN_H

#include "base/base.h"

struct tcp;
struct tcp_conn;

/* A SYN's headers as they came. */
struct tcp_syn {
        const uint8_t *ip, *tcp;
        uint8_t ip_len, tcp_len;
};
#define TCP_SAVED_SYN_MOST 134u /* Ethernet's header, IP's and TCP's */

/* Copies the headers, TCP_SAVED_SYN_MOST bytes at most, and returns how many; 0: none are kept.
 * They are kept no longer. */
uint32_t tcp_saved_syn(const struct tcp *t, const struct tcp_conn *tc, uint8_t *out);
void tcp_saved_syn_forget(struct tcp *t, struct tcp_conn *tc);

#endif
