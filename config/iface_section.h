/* [interface NAME] of a config file. */
#ifndef CONFIG_IFACE_SECTION_H
#define CONFIG_IFACE_SECTION_H

#include "config/reading.h"

#define IFACE_SECTION "interface "

/* The interface of that name, which it makes; NULL after a complaint. */
struct unetd_iface_config *iface_section_get(struct reading *r, const char *name);
/* One key. Returns 1; or 0 after a complaint. */
int iface_section_line(struct reading *r, const char *section, const char *name, const char *value);
/* Complains about what only the whole file shows. Returns 0 or -EINVAL. */
int iface_section_check(struct reading *r);
/* Reads the file again, once all interfaces are known, and complains about routes and neighbours
 * that do not fit them. Returns 0, -EINVAL or -ENOMEM. */
int iface_routes_check(struct reading *r, const char *path);
void iface_section_rows(const struct unetd_config *c, uint32_t number, config_row_fn *row,
                        void *arg);

#endif
