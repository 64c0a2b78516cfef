/*
 * Hanging programs behind an interface's driver (tcx, Linux 6.6): where packets come in, on links
 * that nobody pins, so that when the last descriptor of a link is closed, also by the death of its
 * holder, the interface is as before; and where packets leave, until they are taken off. For the
 * privileged half only.
 */
#ifndef UNET_TCX_LINK_H
#define UNET_TCX_LINK_H

#include <stdbool.h>
#include <stdint.h>

/* The descriptor of the link, or a negative errno; -EOPNOTSUPP: the kernel has no tcx. Programs
 * that were there before come first. */
int tcx_link(int prog, uint32_t ifindex);
enum tcx_way { TCX_IN, TCX_OUT };
/* A descriptor of the first program of this name that is there, or -1. */
int tcx_find(enum tcx_way way, const char *name, uint32_t ifindex);
/* Returns true if a program of this name is attached where packets come in. */
bool tcx_has(const char *name, uint32_t ifindex);
/* Where packets leave; in the place of `old`, if that is not -1. 0 or a negative errno; -EOPNOTSUPP
 * as above. */
int tcx_attach_out(int prog, int old, uint32_t ifindex);
int tcx_detach_out(int prog, uint32_t ifindex);
/* A program of tap_prog.bpf.c, by its name. */
int tcx_link_tap(const char *name, uint32_t ifindex);

#endif
