/*
 * Memory of programs' own, that they send from without a copy, and as often as they like.
 *
 * It lies in the file of the state segment, behind the state. A process maps it when it makes its
 * first memory; the others of the stack and its keeper never look at it. Stacks of the same user
 * map it for reading, each with its channel to this stack, if the channel began after the first
 * memory (STACK_NAMES_OUT). So it takes no address space where nobody has any. Each time some of it
 * is sent it has a name (base/frame.h), by which the connection and the peer hold it.
 *
 * A piece of memory is one process's. It outlives that process while a name of it is in use. All
 * calls need the stack's lock.
 */
#ifndef NETSTACK_STACK_MEMORY_H
#define NETSTACK_STACK_MEMORY_H

#include "netstack/stack.h"

#define STACK_MEMORY_UNIT 65536u

/* How long the state's file is: what is mapped of it first, and the memory. */
static inline size_t stack_file_bytes(const struct stack_limits *l)
{
        return ALIGN_UP(stack_bytes(l), 65536) + FRAME_NAMED_BYTES;
}

/* Takes `bytes` for a process (slot + 1) that has s->memory; what is in it is left. NULL: there is
 * no room. */
uint8_t *stack_memory_take(struct stack *s, size_t bytes, uint32_t proc);
/* Its size. Ends it. -EINVAL: that process has no memory that begins there; -EBUSY: some of it is
 * under way. */
int64_t stack_memory_give(struct stack *s, const void *p, uint32_t proc);
/* The process is gone. */
void stack_memory_end(struct stack_state *st, uint32_t proc);
/* Returns true if the bytes lie in one memory of the process's. */
bool stack_memory_holds(const struct stack *s, const void *p, size_t bytes, uint32_t proc);
/* A name on channel k for sending from there, with refs 1, which the connection hears of when it is
 * over (frame_name()); 0: there is none. *off: of the byte at p by that name. */
uint32_t stack_memory_name(struct stack *s, uint32_t k, const struct tcp_conn *tc, const void *p,
                           uint32_t *off, uint32_t *serial);

#endif
