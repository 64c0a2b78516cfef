/*
 * What a fuzz target is: one function that must survive any bytes, and a few inputs that reach
 * deep.
 *
 * Built with -DUNET_FUZZ=ON (clang) it is a libFuzzer target: `x_fuzz CORPUS`. Else driver.c is its
 * main: it mutates the seeds by a generator of its own, the same inputs for the same seed on every
 * machine:
 *
 *      x_fuzz [-runs=N] [-long-runs=N] [-seed=S] [-only=RUN] [-corpus=DIR] [-expect-crash]
 *
 * With UNET_LONG=1 there are -long-runs (tests/long_run.h).
 * On a crash it prints seed, run and the input; -only replays that run alone; -corpus writes the
 * seeds as files, for libFuzzer; -expect-crash succeeds when a bug is found (base/planted.h).
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_MAX_INPUT 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Writes seed number i (from 0) of at most FUZZ_MAX_INPUT bytes; returns its length, 0 when there
 * are no more. */
size_t fuzz_seed(unsigned i, uint8_t *buf);

#endif
