/* Groups on interfaces of unetd's. */
#ifndef SHIM_GROUP_H
#define SHIM_GROUP_H

#include "sock/shim/shim.h"

/* Returns true if an option of the file's is one of these: group_setsockopt() decides whose it is.
 */
bool group_opt(const struct file *f, int level, int name);
int group_setsockopt(struct file *f, int name, const void *val, socklen_t len);
int group_getsockopt(struct file *f, int name, void *val, socklen_t *len);

#endif
