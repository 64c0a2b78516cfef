/* What the scenes of epoll(7) share. */
#ifndef TESTS_SHIM_CALLS_EPOLL_H
#define TESTS_SHIM_CALLS_EPOLL_H

#include "tests/shim/calls.h"

int set_ctl(int ep, int op, int fd, uint32_t events, uint32_t data);
#define ADD(ep, fd, events, data) set_ctl(ep, EPOLL_CTL_ADD, fd, events, data)
#define MOD(ep, fd, events, data) set_ctl(ep, EPOLL_CTL_MOD, fd, events, data)

/* Waits, and prints what comes in the order of its data. */
void set_show(int ep, int ms);
#define READY(ep) set_show(ep, LONG) /* something must come */
#define QUIET(ep) set_show(ep, 20)   /* nothing must */

/* A byte to the other end, and there. */
void put_byte(const int v[2]);

#endif
