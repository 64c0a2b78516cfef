/* The privileged half of packet_link.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unet/packet/ifinfo.h"
#include "unet/packet/packet_link.h"

#define RCVBUF (4 << 20) /* bytes received that nobody has read yet; the kernel doubles it */

/* Only frames from the peer to us; and nobody who is passed the socket can change that. */
static int hear_peer_only(int fd, const uint8_t mac[6], const uint8_t peer[6])
{
        struct sock_filter how[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
                                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, be32_at(mac), 0, 7),
                                    BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 4),
                                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, be16_at(mac + 4), 0, 5),
                                    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 6),
                                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, be32_at(peer), 0, 3),
                                    BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 10),
                                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, be16_at(peer + 4), 0, 1),
                                    BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
                                    BPF_STMT(BPF_RET | BPF_K, 0)};
        struct sock_fprog prog = {ARRAY_LEN(how), how};
        int on = 1;

        if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog) != 0 ||
            setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on) != 0)
                return -errno;
        return 0;
}

/* Bound at last, when the filter is there. */
static int set_up(int fd, const struct ifinfo *info, const uint8_t peer[6])
{
        struct sockaddr_ll ll = {.sll_family = AF_PACKET,
                                 .sll_protocol = htons(ETHER_MSG_TYPE),
                                 .sll_ifindex = (int)info->ifindex};
        int rcvbuf = RCVBUF, on = 1, err = hear_peer_only(fd, info->mac, peer);

        if (err == 0 && (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
                         setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &rcvbuf, sizeof rcvbuf) != 0 ||
                         bind(fd, (struct sockaddr *)&ll, sizeof ll) != 0))
                err = -errno;
        return err;
}

int packet_sock_open(struct packet_sock *s, const char *ifname, const uint8_t peer[6])
{
        struct ifinfo info;
        int err = ifinfo_get(&info, ifname);

        if (err == 0 && info.mtu > PACKET_MTU_MAX)
                err = -EMSGSIZE;
        if (err != 0)
                return err;
        s->mtu = info.mtu;
        memcpy(s->mac, info.mac, sizeof s->mac);
        s->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s->fd < 0)
                return -errno;
        err = set_up(s->fd, &info, peer);
        if (err != 0)
                close(s->fd);
        return err;
}
