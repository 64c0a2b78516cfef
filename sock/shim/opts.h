/* Options: what the program has set, and how it is answered: opt_log.c, opt.c. */
#ifndef SHIM_OPTS_H
#define SHIM_OPTS_H

#include "sock/shim/shim.h"

/* Before the decision, or on a listener. */
void opts_remember(struct file *f, int level, int name, const void *val, socklen_t len);
bool opts_has(const struct file *f, int level, int name);
/* A connection has what its listener has. */
void opts_share(struct file *f, const struct file *listener);
/* All of it is set on our side; on another kernel socket. */
void opts_replay(struct file *f);
void opts_replay_kernel(const struct file *f, int fd);
void opts_free(struct file *f);
void opts_fork_lock(void);
void opts_fork_unlock(void);

int file_fcntl_dup(int fd, int cmd, int low);
/* The value of an option of getsockopt(). */
int opt_give_int(void *val, socklen_t *len, int v);

#endif
