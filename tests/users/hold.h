/*
 * In a hostile child: each descriptor that he gave to unetd or got from it is at the end of a
 * splice() that waits for a socket in which nothing comes, read, locked, and punched full of holes,
 * until he ends.
 */
#ifndef TESTS_USERS_HOLD_H
#define TESTS_USERS_HOLD_H

/* Returns when all that waits does. table->value[7] counts what was read. */
void hold_all(const int *fds, unsigned n);

#endif
