/*
 * Live stacks, seen from outside: their state is mapped read-only and read while they run, without
 * their lock. A number may be a moment old or, for a multi-word value, torn; nothing here can
 * disturb a stack.
 */
#ifndef TOOLS_STACKS_H
#define TOOLS_STACKS_H

#include <jansson.h>

#include "netstack/stack.h"
#include "netstack/stack_refs.h"
#include "unetd/client/client.h"

/* A state segment that is mapped. */
struct stacks_map {
        struct stack_state *st;
        size_t bytes;
};
/* Maps a stack of this user's, and makes a view of it. False: it is gone, or not ours to read. */
bool stacks_map(struct unetd_client *c, uint32_t id, int prot, struct stacks_map *m,
                struct stack *view);

struct seen_stack {
        uint32_t id, uid;
        int32_t pid; /* the process that made it */
        bool orphan; /* its processes are gone, the keeper finishes */
        struct stack view;
        nstime now;
};

/*
 * Calls each() for every stack of this user, until it returns false; other users' are not shown.
 * Returns NULL, or why there is none to see. `flags`: of unetd_open().
 */
const char *stacks_each(bool (*each)(void *arg, const struct seen_stack *s), void *arg);
const char *stacks_each_of(unsigned flags, bool (*each)(void *arg, const struct seen_stack *s),
                           void *arg);

/*
 * Calls add() for each stack of this user, and of all users where root asks, for the rows that are
 * to be shown of it; of other users' in another process, so that it can leave nothing but rows.
 * Those are of the unetd that root asks, and of the users' own ones. Returns as stacks_each().
 */
typedef void stacks_row_fn(void *arg, const struct seen_stack *s, json_t *rows);
const char *stacks_rows(stacks_row_fn *add, void *arg, json_t *rows);
/* The same for one user; with UNETD_PRIVATE by his own unetd. */
void stacks_rows_as(uint32_t uid, unsigned flags, stacks_row_fn *add, void *arg, json_t *rows);

/* The processes that hold a socket record, as "iperf3/1234"; null when it is the keeper's alone. */
json_t *stacks_holders(const struct seen_stack *s, uint32_t sock);
/* The name of a process, null when it is gone. */
json_t *stacks_program(int32_t pid);

#endif
