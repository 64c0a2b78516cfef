/*
 * Bugs planted on purpose. A build with -DUNET_PLANTED_BUG leaves out one check of each parser; the
 * tests in tests/fuzz compile the parsers so and demand that the fuzzers find it. A fuzzer that
 * finds nothing is otherwise hard to tell from one that looks at nothing.
 */
#ifndef BASE_PLANTED_H
#define BASE_PLANTED_H

#ifdef UNET_PLANTED_BUG
#define CHECKED(cond) ((void)(cond), false)
#else
#define CHECKED(cond) (cond)
#endif

#endif
