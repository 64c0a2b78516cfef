/*
 * Starting a private unetd from inside somebody else's program, invisibly.
 */
#ifndef UNETD_START_H
#define UNETD_START_H

/*
 * Starts unetd for this user and `domain`, and returns when it is ready, or has left because
 * another one was first; either way the caller looks again. It gets a session of its own, /dev/null
 * for standard descriptors, no other descriptor, default signals, umask 022, directory /, and of
 * the environment only UNET_* variables.
 *
 * Safe in a program with threads, with a SIGCHLD handler or a wait(-1) loop: the middle process of
 * the double fork has no exit signal, shares no handler, and is collected here. (A program that is
 * a child subreaper does inherit unetd, as any daemon its children start.)
 * 0; -ENOENT: no unetd found; -EPERM: by its hard limits (setrlimit) a daemon of this program's
 * could serve nobody; -ETIMEDOUT: it does not get ready; or an errno of clone, pipe, open.
 */
int unetd_start(const char *domain);

#endif
