/* See send_check.h. */
#include "unet/xdp/send_check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "unet/xdp/bpf_obj.h"
#include "unet/xdp/tcx_link.h"
#include "unet/packet/line.h"
#include "send_prog.h" /* made from send_prog.bpf.c: send_prog[] */

#define PROGRAM "send_check"

/* In the place of one that an earlier process left there. */
static int attach(struct send_check *c)
{
        int left = tcx_find(TCX_OUT, PROGRAM, c->ifindex), err;

        c->stays = left >= 0;
        err = tcx_attach_out(c->prog, left, c->ifindex);
        if (left >= 0)
                close(left);
        return err;
}

static int load(struct send_check *c, struct bpf_object *obj, uint32_t addr, const uint8_t mac[6])
{
        int err = bpf_object__load(obj);

        if (err == 0)
                err = bpf_obj_keep(obj, "own", &c->own);
        if (err == 0)
                err = bpf_obj_keep(obj, "refused", &c->refused);
        if (err == 0)
                err = send_check_set(c, addr, mac);
        if (err == 0) {
                c->prog = fcntl(bpf_program__fd(bpf_object__find_program_by_name(obj, PROGRAM)),
                                F_DUPFD_CLOEXEC, 3);
                err = c->prog < 0 ? -errno : attach(c);
        }
        return err;
}

int send_check_open(struct send_check *c, uint32_t ifindex, uint32_t addr, const uint8_t mac[6],
                    char line[XDP_LINE_MAX])
{
        struct bpf_object *obj = bpf_obj_open("unet_send", send_prog, sizeof send_prog);
        int err;

        *c = SEND_CHECK_NONE;
        c->ifindex = ifindex;
        if (obj == NULL)
                return -errno;
        err = load(c, obj, addr, mac);
        bpf_object__close(obj);
        if (err == 0)
                return 0;
        say(line, "no program that checks what is sent: %s%s", strerror(-err),
            err == -EOPNOTSUPP || err == -ESRCH ? " (Linux 6.6 with BTF can)" : "");
        send_check_close(c, false);
        return err;
}

int send_check_set(struct send_check *c, uint32_t addr, const uint8_t mac[6])
{
        struct send_own o = {.addr = htonl(addr)};
        uint32_t key = 0;

        memcpy(o.mac, mac, sizeof o.mac);
        return bpf_map_update_elem(c->own, &key, &o, 0) == 0 ? 0 : -errno;
}

uint64_t send_check_refused(const struct send_check *c)
{
        uint32_t key = 0;
        uint64_t n = 0;

        if (c->refused >= 0)
                bpf_map_lookup_elem(c->refused, &key, &n);
        return n;
}

void send_check_close(struct send_check *c, bool ended)
{
        if (c->prog >= 0 && ended && !c->stays)
                tcx_detach_out(c->prog, c->ifindex);
        if (c->prog >= 0)
                close(c->prog);
        if (c->own >= 0)
                close(c->own);
        if (c->refused >= 0)
                close(c->refused);
        *c = SEND_CHECK_NONE;
}
