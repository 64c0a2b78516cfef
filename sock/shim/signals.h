/* Handlers of the program's run outside the library, and signals of ours: signal.c, async.c. */
#ifndef SHIM_SIGNALS_H
#define SHIM_SIGNALS_H

#include "sock/shim/shim.h"

/* Handlers set before the first socket come under our trampoline; the others did when they
 * were set. */
void signals_start(void);
void signals_fork_child(void);
void raise_sigpipe(void);
/* A handler of the program's waits for this thread to leave. */
bool signals_put_off(void);

/* Our side begins: it sends the signals that the kernel's was asked for. */
void async_engage(struct file *f);
/* F_SETFL: the kernel's side is told, where there is one of the file's own; then, when ours knows
 * the flags, it follows. */
int async_flags(struct file *f, long flags);
void async_changed(struct file *f, long flags);
/* Calls about signals. */
bool async_fcntl(int cmd);
int async_do_fcntl(struct file *f, int cmd, long arg);
bool async_ioctl(unsigned long req);
int async_do_ioctl(struct file *f, unsigned long req, void *arg);

#endif
