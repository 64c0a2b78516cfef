/*
 * The application in control of a TCP socket: windows, and what a sender keeps to. Beside <unet/sock.h>, with the same sockets;
 * errors are -1 and errno.
 *
 *      struct unet_window w = {.size = sizeof w, .mode = UNET_WINDOW_CREDIT, .bytes = 0};
 *      unet_window_set(s, &w);                 the peer may send nothing
 *      unet_window_grant(s, 1000);             1,000 bytes, whatever is read meanwhile
 *
 * A setting is the socket's, not the process's: shared after fork(), inherited from a listener, kept when a process dies. Every
 * struct begins with `size`, which the caller sets to its sizeof, so that it may grow. A socket that is not TCP's: EOPNOTSUPP.
 */
#ifndef UNET_FLOW_H
#define UNET_FLOW_H

#include <unet/sock.h>

#ifdef __cplusplus
extern "C" {
#endif

enum unet_window_mode {
        UNET_WINDOW_AUTO,               /* the stack sizes the buffer; offered is what is free of it */
        UNET_WINDOW_SIZE,               /* a buffer of `bytes`, as of unet_set_buffers() */
        UNET_WINDOW_CREDIT              /* offered is what was granted and has not come; reading grants nothing */
};

struct unet_window {
        uint32_t size;                  /* sizeof(struct unet_window) */
        uint32_t mode;                  /* enum unet_window_mode */
        uint32_t bytes;                 /* SIZE: the buffer. CREDIT: granted to begin with, may be 0. Told by AUTO: the buffer now */
        uint32_t most;                  /* the largest window that is ever offered; 0: 65,535 by credit, else what the buffer may become */
        uint32_t unit;                  /* told: windows are said in multiples of it, rounded down; 1 when `most` is below 65,536 */
        uint32_t offered;               /* told: what the peer may send, as the next segment to it says */
        uint32_t granted;               /* told, CREDIT: granted, and has not come */
};

/*
 * Sets mode, bytes and most. Before connect() and on a listener `most` chooses the scale (RFC 7323 §2.2), and with it the unit; on a
 * connection the scale stays. What the peer was told is never taken back (RFC 9293 §3.8.6): a smaller size offers nothing new until
 * that has come, and credit begins with it: where the peer may send more than `bytes` already, `granted` is more.
 * EINVAL: no such mode; bytes 0 as a size; bytes above most; most, or a size, that cannot be said by the connection's scale.
 */
UNET_API int unet_window_set(int sock, const struct unet_window *w);
UNET_API int unet_window_get(int sock, struct unet_window *w);
/*
 * By credit, on a connection or before connect(): the peer may send `bytes` more, and is told so before the call returns. To hold it,
 * grant nothing. EOVERFLOW: what is granted and has not come would be more than `most`. EINVAL: not by credit, or a listener.
 * A peer that sends whole segments may wait for a segment's worth: see unet_flow(3).
 */
UNET_API int unet_window_grant(int sock, uint32_t bytes);

/* What a sender, and who acknowledges, keeps to. Times are nanoseconds. */
struct unet_flow {
        uint32_t size;                  /* sizeof(struct unet_flow) */
        uint32_t send_window;           /* never more in flight, whatever the peer offers; 0: no such limit */
        uint64_t rate;                  /* bytes a second, as SO_MAX_PACING_RATE; 0: as fast as it goes */
        int64_t rto_min, rto_max;       /* of the retransmission timeout: 1 to 200 ms, 1 to 120 s; 0 in a call: as it is */
        int64_t ack_delay;              /* an acknowledgement waits no longer; 1 to 200 ms; 0: as long as the stack lets it */
};
/*
 * At any time; what is in flight already is not taken back. Tells what holds: of rto_min and rto_max what is in force. By
 * setsockopt() they are SO_MAX_PACING_RATE, TCP_RTO_MIN_US, TCP_RTO_MAX_MS and TCP_DELACK_MAX_US.
 * What send_window holds up is UNET_LIMIT_CLAMP in unet_feedback(). EINVAL: out of these bounds.
 */
UNET_API int unet_flow_set(int sock, const struct unet_flow *f);
UNET_API int unet_flow_get(int sock, struct unet_flow *f);

#ifdef __cplusplus
}
#endif

#endif
