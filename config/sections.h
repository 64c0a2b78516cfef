/* Where the sections of unet.conf begin: inih tells of keys only, and of an empty
 * section nothing. */
#ifndef CONFIG_SECTIONS_H
#define CONFIG_SECTIONS_H

#include <stdbool.h>

/* Calls fn for each line "[section]" of the file, in order, with its number from 1; a name longer
 * than 63 bytes is cut. Ends when fn returns false. 0, or -errno (EISDIR: it is a directory). */
int config_sections(const char *path, bool (*fn)(void *arg, const char *section, int line),
                    void *arg);

#endif
