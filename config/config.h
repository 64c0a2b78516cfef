/*
 * The config file: found, read and checked in one place, whoever needs it.
 *
 * It is an INI file. The tables of config.c, iface_section.c and rule_text.c have each key; what
 * the file says of it fills in struct unetd_config. A file that says anything else is refused
 * whole, with the line. No key has to be set.
 *
 * The first of these that exists is read, and no other:
 *
 *   $UNET_CONFIG                                    must exist when it is set; empty: no file at
 *                                                   all
 *   $XDG_CONFIG_HOME/unet.conf, or ~/.config/unet.conf
 *   /etc/unet.conf
 *   /etc/unet/unet.conf                             where packages put an example
 *
 * A unetd that was started on demand sees only the UNET_* part of its program's environment; `unet
 * run` therefore sets UNET_CONFIG to the file it found.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "config/settings.h"

#define CONFIG_PATH_MAX 4096

struct config_error {
        char path[CONFIG_PATH_MAX];
        int line; /* 0: the file as a whole */
        char text[256];
};

/* The file that would be read, in `path`; false when there is none. */
bool config_find(char path[CONFIG_PATH_MAX]);
/* Reads one file over what *c holds. 0; -EINVAL or the errno of opening it, with *err filled in,
 * and *c as it was. */
int config_read(const char *path, struct unetd_config *c, struct config_error *err);
/* Finds and reads the file, if there is one. As config_read(). */
int config_load(struct unetd_config *c, struct config_error *err);
/* "file:line: what is wrong" on standard error. */
void config_complain(const struct config_error *err);

/* An interface's settings as `unet if add` has them: an address with its prefix, then keys of
 * [interface NAME] and their values by turns, but for routes and neighbours. 0, or -EINVAL with
 * what is wrong in err->text. */
int config_iface(const char *name, int n, char *const word[], struct unetd_iface_config *out,
                 struct config_error *err);
/* The route by the gateway of interface k. */
struct route config_gateway(const struct unetd_config *c, uint32_t k);

/* One key that can be set, with its value and what it means. */
typedef void config_row_fn(void *arg, const char *section, const char *key, const char *value,
                           const char *text);
void config_each(const struct unetd_config *c, config_row_fn *row, void *arg);

#endif
