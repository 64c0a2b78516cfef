/* The life of the process: libc's streams, the image that exec runs, fork, the log: stdio.c,
 * image.c, process.c, log.c. */
#ifndef SHIM_PROCESS_H
#define SHIM_PROCESS_H

#include <fcntl.h>

#include "sock/shim/shim.h"

/* Returns true also if fd is not open. */
static inline bool closes_on_exec(int fd)
{
        long flags = sys2(SYS_fcntl, fd, F_GETFD);

        return flags < 0 || flags & FD_CLOEXEC;
}

/* From now on libc's streams read, write and close by our calls. */
void streams_start(void);

/* The program file, or the script's interpreter, is one that will not have the library. What cannot
 * be read will, for all we know. */
bool image_is_deaf(int dir, const char *path);
/* The one that execvp() finds. */
bool image_searched_is_deaf(const char *file);

/* Who connects to it from now on comes by the kernel, for this reason; not where interfaces of
 * unetd's lead to it. */
void listener_left_to_kernel(int fd, struct file *f, const char *why);

void process_start(void);
/* False: there is no process slot for a child, and errno says EAGAIN; true: the fork follows. */
bool fork_may(void);
/* Around a fork of which pthread_atfork() does not hear. */
void fork_begin(void);
void fork_end(bool child);

/* Standard error is another file now, by the program's will. */
void log_to(void);
void log_decision(const struct file *f);
void log_fork_refused(void);

#endif
