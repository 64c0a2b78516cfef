/* The stack library's answer to unetd/keeper_ops.h. */
#ifndef SOCK_KEEPER_SIDE_H
#define SOCK_KEEPER_SIDE_H

#include "unetd/keeper_ops.h"

extern const struct keeper_stack_ops keeper_stack_ops;

#endif
