/* Functions looked up by a handle (handle.c); who calls is told by jump.S. */
#ifndef SHIM_HANDLE_H
#define SHIM_HANDLE_H

#include <stdbool.h>

struct handle_answer {
        void *symbol; /* NULL: libc is to be asked */
        void *libcs;
};

__attribute__((visibility("hidden"))) struct handle_answer
handle_lookup(void *handle, const char *name, const void *caller);
__attribute__((visibility("hidden"))) struct handle_answer
handle_lookup_version(void *handle, const char *name, const char *version, const void *caller);
__attribute__((visibility("hidden"))) void *handle_open(int flags);
__attribute__((visibility("hidden"))) void *handle_open_apart(long space);
/* A second libc has been loaded (dlmopen()), whose functions nobody sees. */
bool handle_has_second_libc(void);

#endif
