/* See tcx_link.h. */
#include "unet/xdp/tcx_link.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "unet/xdp/bpf_obj.h"
#include "tap_prog.h" /* made from tap_prog.bpf.c: tap_prog[] */

/* enum bpf_attach_type, Linux 6.6 */
static const enum bpf_attach_type where[] = {
        [TCX_IN] = (enum bpf_attach_type)46, [TCX_OUT] = (enum bpf_attach_type)47};
#define PROGRAMS 64u /* the kernel's most (BPF_MPROG_MAX) */

int tcx_link(int prog, uint32_t ifindex)
{
        int fd = bpf_link_create(prog, (int)ifindex, where[TCX_IN], NULL);

        if (fd >= 0)
                return fd;
        return errno == EINVAL ? -EOPNOTSUPP : -errno;
}

/* Its descriptor, if it has the name; else -1. */
static int named(uint32_t id, const char *name)
{
        struct bpf_prog_info info = {0};
        uint32_t len = sizeof info;
        int fd = bpf_prog_get_fd_by_id(id);

        if (fd < 0 || (bpf_obj_get_info_by_fd(fd, &info, &len) == 0 &&
                       strncmp(info.name, name, sizeof info.name) == 0))
                return fd;
        close(fd);
        return -1;
}

int tcx_find(enum tcx_way way, const char *name, uint32_t ifindex)
{
        uint32_t id[PROGRAMS], n = PROGRAMS;
        int fd = -1;

        if (bpf_prog_query((int)ifindex, where[way], 0, NULL, id, &n) != 0)
                return -1;
        for (uint32_t i = 0; i < n && fd < 0; i++)
                fd = named(id[i], name);
        return fd;
}

bool tcx_has(const char *name, uint32_t ifindex)
{
        int fd = tcx_find(TCX_IN, name, ifindex);

        if (fd >= 0)
                close(fd);
        return fd >= 0;
}

int tcx_attach_out(int prog, int old, uint32_t ifindex)
{
        LIBBPF_OPTS(bpf_prog_attach_opts, opts, .flags = old >= 0 ? BPF_F_REPLACE : 0,
                    .replace_prog_fd = old >= 0 ? old : 0);

        if (bpf_prog_attach_opts(prog, (int)ifindex, where[TCX_OUT], &opts) == 0)
                return 0;
        return errno == EINVAL ? -EOPNOTSUPP : -errno;
}

int tcx_detach_out(int prog, uint32_t ifindex)
{
        return bpf_prog_detach2(prog, (int)ifindex, where[TCX_OUT]) == 0 ? 0 : -errno;
}

int tcx_link_tap(const char *name, uint32_t ifindex)
{
        struct bpf_object *obj = bpf_obj_open("unet_tap", tap_prog, sizeof tap_prog);
        int r;

        if (obj == NULL)
                return -errno;
        r = bpf_object__load(obj);
        if (r == 0)
                r = tcx_link(bpf_program__fd(bpf_object__find_program_by_name(obj, name)), ifindex);
        bpf_object__close(obj);
        return r;
}
