/* Mode XDP_MODE_TCX of xdp_open.h: the program that takes an interface's packets, and its maps.
 * For xdp_sock.c. */
#ifndef UNET_TCX_SOCK_H
#define UNET_TCX_SOCK_H

#include "unet/xdp/xdp_open.h"

/* By s->geom, which is planned: s->ring with all chunks in FILL, s->xsk, s->drops, and at last
 * s->link. 0 or a negative errno, and then `line` says what failed and the caller closes. `mark`:
 * of what the program itself sends (struct xdp_sizes). */
int tcx_sock_open(struct xdp_sock *s, const struct xdp_dev *d, uint32_t mark,
                  char line[XDP_LINE_MAX]);
void tcx_sock_close(struct xdp_sock *s);
void tcx_sock_drops(const struct xdp_sock *s, struct xdp_drops *n);

#endif
