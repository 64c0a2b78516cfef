/*
 * Ports that nobody gets by chance: none of those that the kernel chooses from, and no other
 * test's, whoever runs beside it. For who gives a port up and takes it again, or expects that
 * nobody has it.
 */
#ifndef TESTS_OWN_PORT_H
#define TESTS_OWN_PORT_H

#include <stdint.h>

/* Another one with each call, this process's until it and all its children have ended. Aborts, and
 * says why, where there is none. */
uint16_t own_port(void);

#endif
