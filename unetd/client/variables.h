/* The variables UNET_* of the environment that this process began with. */
#ifndef UNETD_VARIABLES_H
#define UNETD_VARIABLES_H

/* As getenv(3); where the program has taken it away, as it was. NULL: there was none. */
const char *unetd_variable(const char *name);
/* The n-th that there was, "UNET_NAME=value"; NULL: there were fewer. */
const char *unetd_variable_at_start(unsigned n);

#endif
