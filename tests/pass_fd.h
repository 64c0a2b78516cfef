/* One descriptor in a message of one byte over a Unix socket (SCM_RIGHTS). */
#ifndef TESTS_PASS_FD_H
#define TESTS_PASS_FD_H

/* Returns 0 or -1 with errno. */
int pass_fd(int sock, int fd);
/* The descriptor of the next message; -1: there is none, or no message. */
int take_fd(int sock);

#endif
