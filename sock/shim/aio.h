/* POSIX AIO (aio.c). */
#ifndef SHIM_AIO_H
#define SHIM_AIO_H

#include <stdbool.h>

/* The program has asked for it on a socket: new ones are the kernel's. */
bool aio_is_used(void);

#endif
