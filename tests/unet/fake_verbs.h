/*
 * libibverbs, played: two devices in this process, with addresses of one's choice, that carry
 * datagrams between their queue pairs at once and do whatever a test wants them to do wrong. Linked
 * in the place of unet/verbs/verbs_lib.c.
 */
#ifndef TESTS_UNET_FAKE_VERBS_H
#define TESTS_UNET_FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_DEVICES 2

/* Devices 0 and 1 have these IPv4 addresses (host order), are up, and do no wrong. */
void fake_reset(uint32_t a, uint32_t b);
/* Objects that were made and not destroyed: contexts, domains, regions, queues,
 * handles, channels. */
int fake_live(void);

/* The device says so of itself. */
void fake_event(int device, enum ibv_event_type type);
/* Somebody has still to hear of some. */
bool fake_unheard(int device);
/* Without a word the device's queue pair stops: an event or the next completion is all
 * that tells. */
void fake_stop_qp(int device);
void fake_port(int device, bool up);
/* The address has another place in the device's table; handles with an older one lead nowhere. */
void fake_move_gid(int device);
/* The device has the address no more. */
void fake_lose_gid(int device);

/* Devices stand still: what is posted they look at when they go on, handles included. */
void fake_hold(bool on);

/* The next datagram that is sent by the device ends so, and its queue pair is in the
 * error state. */
void fake_send_status(int device, enum ibv_wc_status status);
/* The next one that it receives: as above. */
void fake_recv_status(int device, enum ibv_wc_status status);
/* The next one that it receives is told of with these flags and this length. */
void fake_recv_odd(int device, unsigned flags, uint32_t byte_len);
/* Posting ends with ENOMEM after n more work requests; < 0: it does not. */
void fake_post_send_limit(int device, int n);
void fake_post_recv_limit(int device, int n);
/* The n-th call from now on that makes or changes an object fails, once; 0: none does. Whether it
 * came to that: fake_failed(). */
void fake_fail_call(int n);
bool fake_failed(void);
/* Of a queue pair of the device: receive buffers that are posted. */
int fake_posted(int device);

#endif
