/* Built with a sanitizer a program does a tenth in the same time: what is only a matter of quantity
 * is divided by this. */
#ifndef TESTS_SLOWER_H
#define TESTS_SLOWER_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 8u
#elif defined(__has_feature)
#define SLOWER (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ? 8u : 1u)
#else
#define SLOWER 1u
#endif

#endif
