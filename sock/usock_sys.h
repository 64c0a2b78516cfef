/*
 * A system call that sleeps, of a thread inside the library. A signal that arrives is put off until
 * the thread has left (sock/shim/signal.c). So none may be put off while the thread sleeps: it
 * would wait for the end of the sleep. The system call is not made when one is. One that arrives
 * between the look and the system call finds the thread at these instructions: its handler says so,
 * and the thread goes on behind the system call. To block all signals before the look would do the
 * same with two more system calls a sleep.
 */
#ifndef SOCK_USOCK_SYS_H
#define SOCK_USOCK_SYS_H

/* As sys6(); -EINTR, too, if a signal is put off (usock_tls.pending), or is while it sleeps. */
long usock_sys6(long nr, long a, long b, long c, long d, long e, long f);

/* By the handler that has put a signal off, with its ucontext_t. A call that the kernel would
 * begin again (SA_RESTART) ends as well. */
void usock_sys_ends(void *ucontext);

#endif
