/* What ni_xdp.c asks of ni_xdp_answer.c. */
#ifndef UNET_NI_XDP_ANSWER_H
#define UNET_NI_XDP_ANSWER_H

#include "base/base.h"
#include "unet/ni_answer.h"

struct ni_xdp;
struct xdp_desc;

extern const struct unet_answer_ops ni_xdp_answer_ops;

/* A descriptor of RX that says more than where its packet is; `addr` lies in a chunk. False: it
 * says nothing that we know of. */
bool ni_xdp_note(struct ni_xdp *x, const struct xdp_desc *d);
/* The stack has seen the SYNs that there are notes of: all of them, or those that it has
 * asked for. */
void ni_xdp_notes_done(struct ni_xdp *x, bool all);
void ni_xdp_answers_repair(struct ni_xdp *x);

#endif
