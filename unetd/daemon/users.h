/* Users, their keepers, and the asks: requests to a keeper. */
#ifndef UNETD_USERS_H
#define UNETD_USERS_H

#include "unetd/daemon/daemon.h"

/* Finds or makes the record of a user. users_tick() frees it when it has nothing left. NULL: no
 * memory. */
struct user *user_get(uint32_t uid, uint32_t gid);
/* As log_line(), for events that a user can cause as often as he likes: a line a second and
 * USER_LINES at once. The log is on somebody else's disk. `u` NULL: it is not known who. */
#define USER_LINES 20u
bool user_may_log(const struct user *u);
#define user_log(u, ...)                       \
        do {                                   \
                if (user_may_log(u))           \
                        log_line(__VA_ARGS__); \
        } while (0)
/* Makes sure that a keeper runs, starts, or is waited for. 0 or a negative errno. `awaited`: one
 * may still come. */
int user_need_keeper(struct user *u, bool awaited);
void user_client_left(const struct client *cl);
int user_keeper_get(struct client *cl, struct unetd_msg *msg);
/* The client says that it is a keeper. */
int user_adopt(struct client *cl, struct unetd_msg *msg);
/* Handles what a keeper says unasked that hands over its stacks. */
void keeper_hands_over(const struct client *cl, struct wire_in *in);
/* Asks the user's keeper; the ask is numbered and remembered. NULL: no memory. */
struct ask *ask_send(struct user *u, struct unetd_msg *msg, const int *fds, unsigned n);
/* Takes the channel out of its asks, which go on. */
void asks_forget_chan(struct chan *ch);
void users_tick(void);
/* Returns true if the user's keeper owes an answer and is stopped. */
bool user_keeper_stopped(struct user *u);
/* The same, if somebody has waited for the keeper in vain: who needs it is refused at once
 * (-ETIMEDOUT), and the log says so. */
bool user_keeper_silent(struct user *u);
/* The same for another user, `asks`: the keeper owes an answer for a while, or has much to read.
 * Requests of `asks` are refused at once (-ETIMEDOUT) and go by the kernel; the keeper is left
 * alone. */
bool user_keeper_late(const struct user *u, const struct user *asks);
/* The same for channels that the keeper is to part with: others have waited for that long enough.
 */
bool user_parts_late(const struct user *u, const struct user *asks);
/* Shortens the waiter's deadline to what a user waits for another's keeper. */
void waiter_hurries(struct waiter *w);
nstime users_deadline(void);

#endif
