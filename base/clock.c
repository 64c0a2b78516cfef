#include "base/clock.h"

int (*clock_read)(clockid_t, struct timespec *) = clock_gettime;
