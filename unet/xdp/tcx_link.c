/* See tcx_link.h. */
#include "unet/xdp/tcx_link.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "unet/xdp/bpf_obj.h"
#include "tap_prog.h"                   /* made from tap_prog.bpf.c: tap_prog[] */

#define TCX_INGRESS 46                  /* enum bpf_attach_type, Linux 6.6 */
#define PROGRAMS    64u                 /* the kernel's most (BPF_MPROG_MAX) */

int tcx_link(int prog, uint32_t ifindex)
{
        int fd = bpf_link_create(prog, (int)ifindex, (enum bpf_attach_type)TCX_INGRESS, NULL);

        if (fd >= 0)
                return fd;
        return errno == EINVAL ? -EOPNOTSUPP : -errno;
}

static bool is_named(uint32_t id, const char *name)
{
        struct bpf_prog_info info = {0};
        uint32_t len = sizeof info;
        int fd = bpf_prog_get_fd_by_id(id), err;

        if (fd < 0)
                return false;
        err = bpf_obj_get_info_by_fd(fd, &info, &len);
        close(fd);
        return err == 0 && strncmp(info.name, name, sizeof info.name) == 0;
}

bool tcx_has(const char *name, uint32_t ifindex)
{
        uint32_t id[PROGRAMS], n = PROGRAMS;

        if (bpf_prog_query((int)ifindex, (enum bpf_attach_type)TCX_INGRESS, 0, NULL, id, &n) != 0)
                return false;
        for (uint32_t i = 0; i < n; i++)
                if (is_named(id[i], name))
                        return true;
        return false;
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
