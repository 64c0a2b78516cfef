/*
 * Neighbours: hostile users beside a victim, for tests of what each can do with what everybody has.
 * The victim's transfers go on meanwhile; afterwards unetd answers and has no more descriptors than
 * before. All in a network namespace of its own: some flood all names.
 */
#ifndef TESTS_USERS_NEIGHBOUR_H
#define TESTS_USERS_NEIGHBOUR_H

#include "tests/users/users.h"

#define LOOPBACK   0x7f000001u
#define LOOPBACK_2 0x7f000002u

/* ---- for attacks ---- */

extern int client;               /* his connection to unetd, and ... */
extern struct hostile_stack own; /* ... his stack, since comes() */
void comes(void);
/* The number of the stack that has the victim's port. */
uint32_t victims_stack(void);

/* ---- for scenes ---- */

/* False: this test cannot run here, and has said why. With a device besides lo, and ICMP sockets
 * for everybody. */
bool neighbours_have_own_network(void);
/* The first scene of each test. */
void the_victim_begins(void **state);
/* Each attack has a user of its own, who has no keeper yet; what he signals and limits is his. */
extern uint32_t neighbour; /* the next one */
void look_before(void);
void is_as_before(void);
void harms_nobody(int (*attack)(void));
/* The victim goes on while the attacker is there (table->ready, table->done), too. */
void harms_nobody_meanwhile(int (*attack)(void), int (*beside)(void));

/* For a list of attacks, as ATTACKS(X): their scenes, and the rows of those. */
#define ATTACK_SCENE(attack)                   \
        static void who_##attack(void **state) \
        {                                      \
                harms_nobody(attack);          \
        }
#define ATTACK_ROW(attack) cmocka_unit_test(who_##attack),

#endif
