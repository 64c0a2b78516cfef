/* What the makers of programs do alike with libbpf: opening an object that is carried in the
 * binary, and keeping a map of it. */
#ifndef UNET_BPF_OBJ_H
#define UNET_BPF_OBJ_H

#include <errno.h>
#include <fcntl.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static inline int bpf_obj_silent(enum libbpf_print_level level, const char *fmt, va_list ap)
{
        return 0;
}

/* NULL: errno says why. libbpf says nothing from here on. */
static inline struct bpf_object *bpf_obj_open(const char *name, const void *bytes, size_t len)
{
        LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = name);

        libbpf_set_print(bpf_obj_silent);
        return bpf_object__open_mem(bytes, len, &opts);
}

/* The object is closed; a map of it goes on. 0 or a negative errno. */
static inline int bpf_obj_keep(const struct bpf_object *obj, const char *map, int *fd)
{
        *fd = fcntl(bpf_object__find_map_fd_by_name(obj, map), F_DUPFD_CLOEXEC, 3);
        return *fd < 0 ? -errno : 0;
}

#endif
