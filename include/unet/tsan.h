/*
 * For programs that are compiled with ThreadSanitizer, whose libunet is not. What one thread did
 * before it sent is before what another does after it received, as with sockets of the kernel's.
 * <unet/sock.h> includes this; it is nothing for other programs, and costs them nothing.
 *
 * A program that starts unetd does so by a child in its own memory. ThreadSanitizer takes that for
 * a mutex that is locked twice. Set TSAN_OPTIONS=report_mutex_bugs=0, or let unetd run before.
 */
#ifndef UNET_TSAN_H
#define UNET_TSAN_H

#include <stdint.h>
#include <sys/types.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNET_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define UNET_TSAN 1
#endif

#if defined(UNET_TSAN) && !defined(UNET_IS_INSTRUMENTED)

#ifdef __cplusplus
extern "C" {
#endif

void __tsan_acquire(void *at);
void __tsan_release(void *at);

/* One for all sockets, as in ThreadSanitizer itself. */
static inline void *unet_tsan_at(void)
{
        return (void *)(uintptr_t)0x756e6574;
}
static inline int unet_tsan_before(void)
{
        __tsan_release(unet_tsan_at());
        return 0;
}
static inline ssize_t unet_tsan_after(ssize_t result)
{
        __tsan_acquire(unet_tsan_at());
        return result;
}

#ifdef __cplusplus
}
#endif

/* What sends. */
#define unet_connect(...)  ((void)unet_tsan_before(), unet_connect(__VA_ARGS__))
#define unet_send(...)     ((void)unet_tsan_before(), unet_send(__VA_ARGS__))
#define unet_sendto(...)   ((void)unet_tsan_before(), unet_sendto(__VA_ARGS__))
#define unet_sendmsg(...)  ((void)unet_tsan_before(), unet_sendmsg(__VA_ARGS__))
#define unet_sendmmsg(...) ((void)unet_tsan_before(), unet_sendmmsg(__VA_ARGS__))
#define unet_writev(...)   ((void)unet_tsan_before(), unet_writev(__VA_ARGS__))
#define unet_sendfile(...) ((void)unet_tsan_before(), unet_sendfile(__VA_ARGS__))
#define unet_shutdown(...) ((void)unet_tsan_before(), unet_shutdown(__VA_ARGS__))
#define unet_close(...)    ((void)unet_tsan_before(), unet_close(__VA_ARGS__))

/* What receives, or hears of it. */
#define unet_accept(...)       ((int)unet_tsan_after(unet_accept(__VA_ARGS__)))
#define unet_accept4(...)      ((int)unet_tsan_after(unet_accept4(__VA_ARGS__)))
#define unet_recv(...)         unet_tsan_after(unet_recv(__VA_ARGS__))
#define unet_recvfrom(...)     unet_tsan_after(unet_recvfrom(__VA_ARGS__))
#define unet_recvmsg(...)      unet_tsan_after(unet_recvmsg(__VA_ARGS__))
#define unet_readv(...)        unet_tsan_after(unet_readv(__VA_ARGS__))
#define unet_recvmmsg(...)     ((int)unet_tsan_after(unet_recvmmsg(__VA_ARGS__)))
#define unet_poll(...)         ((int)unet_tsan_after(unet_poll(__VA_ARGS__)))
#define unet_ppoll(...)        ((int)unet_tsan_after(unet_ppoll(__VA_ARGS__)))
#define unet_pollset_wait(...) ((int)unet_tsan_after(unet_pollset_wait(__VA_ARGS__)))

#endif
#endif
