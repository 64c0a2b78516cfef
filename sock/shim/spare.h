/* Kernel sockets that are used again. */
#ifndef SHIM_SPARE_H
#define SHIM_SPARE_H

#include "sock/shim/shim.h"

/* A number for socket() of TCP over IPv4; -1: none, make one. Its place goes to spare_made() with
 * the file of either, or to spare_lost() if there is no file; so does *age, of before there was a
 * number: a child that has come about since has the socket, too. */
int spare_take(int type, uint8_t *spare, uint32_t *age);
void spare_made(struct file *f, uint8_t spare, uint32_t age);
void spare_lost(uint8_t spare, uint32_t age);
/* The last number of a connection of ours is about to be closed. */
void spare_back(struct file *f, int fd);
/* Something is about to be done with the kernel's socket that a new one would not show. */
void spare_end(struct file *f);
static inline void spare_used(struct file *f)
{
        if (f->fresh != 0)
                spare_end(f);
}
/* All end; `off`: for good. */
void spares_over(bool off);
void spares_fork_lock(void);
void spares_fork_unlock(void);
bool spares_own(int fd);

#endif
