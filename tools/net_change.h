/* What `unet route`, `unet arp` and `unet if` have in common: a verb, words behind it, and a change
 * that unetd makes. */
#ifndef TOOLS_NET_CHANGE_H
#define TOOLS_NET_CHANGE_H

#include "tools/command.h"
#include "unetd/client/client.h"

/* Options, a verb, options and words: optind is at the first word then. The verb; "show" when there
 * is none. */
const char *net_verb(const struct command *cmd, int argc, char **argv, bool *json);
/* A command whose verbs are show, add and remove. An exit status. */
int net_table(const struct command *cmd, int argc, char **argv, int (*show)(bool json),
              int (*change)(const struct command *cmd, int argc, char **argv, bool add, bool json));
/* The words from optind on, with blanks between; false: too long. */
bool net_words(int argc, char **argv, char text[256]);
/* Has unetd make the change and says why not; with `json`, either way. An exit status. */
int net_change(const char *what, enum unetd_type type, const struct unetd_net *net, bool json);
/* Says how a change ended, with `json` either way. An exit status. */
int net_changed(const char *what, int r, bool json);
/* What unetd publishes of the network: false and *why when there is none. */
bool net_published(struct unetd_client *c, struct netconf *net, const char **why);
/* The name of interface `ifindex`, or "?". */
const char *net_ifname(const struct directory *d, uint32_t ifindex, char name[16]);

#endif
