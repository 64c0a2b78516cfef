/* The stack library's answer to unetd/keeper/keeper_ops.h. */
#ifndef SOCK_KEEPER_SIDE_H
#define SOCK_KEEPER_SIDE_H

#include "unetd/keeper/keeper_ops.h"

extern const struct keeper_stack_ops keeper_stack_ops;

/* keeper_ports.c: as port_next() of those. */
struct stack_state;
bool keeper_port_next(const struct stack_state *st, uint32_t *at, struct unetd_msg *msg);

#endif
