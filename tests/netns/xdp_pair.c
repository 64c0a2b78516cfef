/* See xdp_pair.h. */
#include "tests/netns/xdp_pair.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- packets ---- */

void make_packet(uint8_t *p, uint32_t number, uint32_t len)
{
        static const uint8_t head[14] = {
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff,           2,
                0,    0,    0,    0,    1,    ETHERTYPE >> 8, ETHERTYPE & 0xff};
        uint32_t x = number * 2654435761u + len;

        memcpy(p, head, sizeof head);
        for (uint32_t i = sizeof head; i < len; i++) {
                x = x * 1664525 + 1013904223;
                p[i] = (uint8_t)(x >> 24);
        }
}

void check_packet(const uint8_t *p, uint32_t len, uint32_t number, uint32_t want)
{
        uint8_t expected[FRAME_MAX];

        make_packet(expected, number, want);
        assert_int_equal(len, want);
        assert_memory_equal(p, expected, len);
}

/* ---- an end ---- */

void end_attach(struct end *e)
{
        size_t bytes = frame_geom_bytes(tx_geom);

        e->frames = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(e->frames != MAP_FAILED);
        assert_int_equal(
                ni_xdp_attach(&e->ni,
                              (struct ni_xdp_fds){e->sock.xsk, e->sock.mem, e->sock.packet.sock,
                                                  e->sock.ring, e->sock.sender},
                              unet_mem_frames(e->frames, tx_geom), &e->cnt),
                0);
}

void skip_unless_possible(int err, const char *line)
{
        if (err != -ENOSYS && err != -EPERM)
                return;
        print_message("skipped: %s\n",
                      err == -EPERM ? "XDP programs may not be loaded here" : line);
        skip();
}

struct end *end_open(int ns, const char *ifname, enum xdp_want want, struct xdp_sizes sizes)
{
        struct end *e = calloc(1, sizeof *e);
        int err;

        assert_non_null(e);
        bed_enter(ns);
        err = xdp_dev_open(&e->dev, ifname, want, e->line);
        skip_unless_possible(err, e->line);
        if (err == 0)
                err = xdp_sock_open(&e->sock, &e->dev, 0, sizes, e->line);
        if (err != 0)
                fail_msg("%d: %s", err, e->line);
        end_attach(e);
        return e;
}

void end_close(struct end *e)
{
        ni_xdp_detach(&e->ni);
        munmap(e->frames, frame_geom_bytes(tx_geom));
        xdp_sock_close(&e->sock);
        xdp_dev_close(&e->dev);
        free(e);
}

bool offer(struct end *e, uint32_t number, uint32_t len)
{
        uint8_t p[FRAME_MAX];
        uint32_t inl = len <= UNET_INLINE_MAX ? len : 14 + number % 100,
                 frame = 2 + number % FRAMES;
        struct unet_tx tx = {.inl = p, .inl_len = (uint16_t)inl};

        make_packet(p, number, len);
        if (inl < len) {
                tx.frame = len - inl <= FRAME_SMALL_BYTES ? frame : 1;
                tx.off = len - inl < FRAME_SMALL_BYTES - 8 ? number % 8 : 0;
                tx.len = len - inl;
                memcpy(e->frames + frame_geom_offset(tx_geom, tx.frame) + tx.off, p + inl, tx.len);
        }
        if (e->ni.base.ops->send(&e->ni.base, &tx, 1) != 1)
                return false;
        if (tx.frame != 0) {
                uint32_t back[2] = {0};
                assert_int_equal(e->ni.base.ops->reap(&e->ni.base, back, 2), 1);
                assert_int_equal(back[0], tx.frame);
                /* It is ours again. */
                memset(e->frames + frame_geom_offset(tx_geom, tx.frame), 0xee, FRAME_SMALL_BYTES);
        }
        return true;
}

void flush(struct end *e)
{
        e->ni.base.ops->flush(&e->ni.base);
}

uint32_t whole(struct end *e, const struct unet_rx *rx, uint8_t *to)
{
        memcpy(to, rx->inl, rx->inl_len);
        if (rx->frame != 0) {
                const uint8_t *p = ni_xdp_rx_frames(&e->ni) +
                                   frame_geom_offset(xdp_frame_geom(&e->ni.geom), rx->frame) +
                                   rx->off;
                assert_int_equal(rx->inl_len, UNET_INLINE_MAX);
                assert_memory_equal(p - rx->inl_len, rx->inl, rx->inl_len);
                memcpy(to + rx->inl_len, p, rx->len);
        }
        return rx->inl_len + rx->len;
}

bool take(struct end *e, struct unet_rx *rx)
{
        return e->ni.base.ops->recv(&e->ni.base, rx, 1) == 1;
}

/* Whoever sleeps arms the bell first, and looks again: a tcx program rings it once for each time
 * that it was armed. */
bool wait_for_packet(struct end *e, int ms)
{
        struct pollfd p = {.fd = e->sock.xsk, .events = POLLIN};

        e->ni.base.ops->arm(&e->ni.base);
        return e->ni.base.ops->pending(&e->ni.base) || poll(&p, 1, ms) == 1;
}

/* And a flush, as after every turn of a stack. */
void await(struct end *e, struct unet_rx *rx)
{
        while (!take(e, rx)) {
                flush(e);
                assert_true(wait_for_packet(e, PATIENCE));
        }
        flush(e);
}

void give_back(struct end *e, const struct unet_rx *rx)
{
        if (rx->frame != 0)
                e->ni.base.ops->release(&e->ni.base, &rx->frame, 1);
}

void expect(struct end *e, uint32_t number, uint32_t len)
{
        uint8_t p[FRAME_MAX];
        struct unet_rx rx;

        await(e, &rx);
        check_packet(p, whole(e, &rx, p), number, len);
        give_back(e, &rx);
}

/* ---- the kernel's side ---- */

void kernel_sends(int fd, uint32_t number, uint32_t len)
{
        uint8_t p[FRAME_MAX];

        make_packet(p, number, len);
        assert_int_equal(send(fd, p, len, 0), len);
}

void kernel_gets(int fd, uint32_t number, uint32_t len)
{
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        uint8_t p[FRAME_MAX];
        ssize_t n;

        assert_int_equal(poll(&poll_fd, 1, PATIENCE), 1);
        n = recv(fd, p, sizeof p, MSG_DONTWAIT);
        check_packet(p, (uint32_t)n, number, len);
}

bool kernel_has_some(int fd, int ms)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};

        return poll(&p, 1, ms) == 1;
}

/* ---- a pair: ours in one namespace, the kernel in another ---- */

struct pair pair_make(enum xdp_want want, unsigned mtu, struct xdp_sizes sizes)
{
        struct pair p;

        bed_needs_root();
        p.ns[0] = bed_ns();
        p.ns[1] = bed_ns();
        bed_wire(p.ns[0], "ours", p.ns[1], "theirs", mtu);
        p.beside = bed_packet_socket(p.ns[0], "ours");
        p.peer = bed_packet_socket(p.ns[1], "theirs");
        p.e = end_open(p.ns[0], "ours", want, sizes);
        return p;
}

void pair_end(struct pair *p)
{
        end_close(p->e);
        close(p->peer);
        close(p->beside);
        close(p->ns[0]);
        close(p->ns[1]);
}
