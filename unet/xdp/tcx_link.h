/*
 * Hanging programs behind an interface's driver, where packets come in (tcx, Linux 6.6), on links that nobody pins: when the last
 * descriptor of a link is closed, also by the death of its holder, the interface is as before. For the privileged half only.
 */
#ifndef UNET_TCX_LINK_H
#define UNET_TCX_LINK_H

#include <stdbool.h>
#include <stdint.h>

/* The descriptor of the link, or a negative errno; -EOPNOTSUPP: the kernel has no tcx. Programs that were there before come first. */
int tcx_link(int prog, uint32_t ifindex);
/* Whether a program of this name is there. */
bool tcx_has(const char *name, uint32_t ifindex);
/* A program of tap_prog.bpf.c, by its name. */
int tcx_link_tap(const char *name, uint32_t ifindex);

#endif
