/* What a config file must be before anybody looks at its keys: lines of text, none longer than inih
 * reads in one piece (the rest of a longer one would count as the next). */
#ifndef CONFIG_PLAIN_H
#define CONFIG_PLAIN_H

#define CONFIG_SIZE_MAX (1 << 20) /* bytes of a file */

/* 0; -errno: it cannot be read; -EINVAL: *why says what is wrong with line *line, or with the whole
 * (0). Never waits: a pipe is refused. */
int config_plain(const char *path, int *line, const char **why);

#endif
