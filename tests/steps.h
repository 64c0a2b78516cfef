/*
 * A process dies after each of its stores. A child does something on shared memory, one instruction
 * at a time; after each instruction that changed the memory, a copy of it at another address, as
 * another process has it mapped, is handed to the test, which recovers it and looks whether it is
 * whole.
 */
#ifndef TESTS_STEPS_H
#define TESTS_STEPS_H

#include <stddef.h>

/* Zeroed memory that a child shares with its parent. */
void *steps_memory(size_t bytes);
void steps_free(void *mem, size_t bytes);

/* `act` is run by a child on `mem`; `after` by the caller on the copy, once for each store. Prints
 * how many there were and fails the test when there was none. Where a child cannot be traced it
 * says so and skips the test. */
void steps_die(void *mem, size_t bytes, void (*act)(void *mem), void (*after)(void *copy));

#endif
