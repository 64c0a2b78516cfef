/* The daemons' log: to stderr in the foreground, to a file when one was named, else nowhere. */
#ifndef UNETD_LOG_H
#define UNETD_LOG_H

#include <stdbool.h>

void log_open(const char *file, bool foreground);
void log_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
