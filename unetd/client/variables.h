/* The variables UNET_* of the environment that this process began with. */
#ifndef UNETD_VARIABLES_H
#define UNETD_VARIABLES_H

/* As getenv(3); a variable that the program has taken away is as it was at the start. NULL: there
 * was none. */
const char *unetd_variable(const char *name);
/* The n-th that there was, "UNET_NAME=value"; NULL: there were fewer. */
const char *unetd_variable_at_start(unsigned n);

#endif
