/* SO_TIMESTAMPING natively: each way of sending is told of, by the number of its last byte. */
#include "tests/sock/sides.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "unet/flow.h"

#define ASKED                                                                                 \
        (SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_ACK | \
         SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY | SOF_TIMESTAMPING_OPT_ID)

static void reads_all(struct side *s)
{
        static uint8_t got[65536];
        int c = tcp_connect_to((uint16_t)hear(s));

        while (unet_recv(c, got, sizeof got, 0) > 0)
                ;
        CHECK(unet_close(c) == 0);
}

static bool is_told(int c)
{
        struct unet_pollfd p = {.sock = c, .events = 0};

        return unet_poll(&p, 1, 0) == 1 && p.revents & POLLERR;
}

/* The next one: which it is; its number. */
static uint32_t takes_note(int c, uint32_t *number)
{
        _Alignas(struct cmsghdr) char beside[256];
        struct msghdr m = {.msg_control = beside, .msg_controllen = sizeof beside};
        struct sock_extended_err e = {.ee_errno = 0};
        struct timespec at = {0, 0};

        EVENTUALLY(is_told(c));
        CHECK(unet_recvmsg(c, &m, MSG_ERRQUEUE) == 0 && m.msg_flags == MSG_ERRQUEUE);
        for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h != NULL; h = CMSG_NXTHDR(&m, h)) {
                if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SO_TIMESTAMPING)
                        memcpy(&at, CMSG_DATA(h), sizeof at);
                if (h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_RECVERR)
                        memcpy(&e, CMSG_DATA(h), sizeof e);
        }
        CHECK(at.tv_sec != 0);
        CHECK(e.ee_errno == ENOMSG && e.ee_origin == SO_EE_ORIGIN_TIMESTAMPING);
        *number = e.ee_data;
        return e.ee_info;
}

/* The call is told of in this order, and nothing else is. */
static void is_told_of(int c, uint32_t last)
{
        static const uint32_t order[] = {SCM_TSTAMP_SCHED, SCM_TSTAMP_SND, SCM_TSTAMP_ACK};
        struct msghdr m = {.msg_iov = NULL};
        uint32_t number;

        for (int i = 0; i < 3; i++)
                CHECK(takes_note(c, &number) == order[i] && number == last);
        CHECK_ERR(unet_recvmsg(c, &m, MSG_ERRQUEUE), EAGAIN);
        CHECK(!is_told(c));
}

static uint32_t commits(int c)
{
        struct iovec v[UNET_RESERVE_MOST];
        int n = unet_send_reserve(c, 5000, v, UNET_RESERVE_MOST, 0);
        uint32_t sum = 0;

        CHECK(n > 0);
        for (int i = 0; i < n; i++) {
                memset(v[i].iov_base, 1, v[i].iov_len);
                sum += (uint32_t)v[i].iov_len;
        }
        CHECK(unet_send_commit(c, sum, 0) == (ssize_t)sum);
        return sum;
}

static uint32_t sends_file(int c)
{
        int fd = open("/proc/self/exe", O_RDONLY);
        ssize_t n = unet_sendfile(c, fd, NULL, 3000);

        CHECK(fd >= 0 && n == 3000 && close(fd) == 0);
        return 3000;
}

static void sends_in_each_way(struct side *s)
{
        static uint8_t data[1 << 20];
        struct iovec v[2] = {{data, 10}, {data, 20}};
        int l = tcp_listen_any(), c, flags = (int)ASKED, other = SOF_TIMESTAMPING_TX_SOFTWARE;
        uint32_t end = 0;

        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0);
        CHECK_ERR(unet_setsockopt(c, SOL_SOCKET, SO_TIMESTAMPING, &other, sizeof other),
                  EOPNOTSUPP);
        CHECK_ERR(unet_setsockopt(l, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags), EINVAL);
        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags) == 0);
        CHECK(unet_send(c, data, 1, 0) == 1);
        is_told_of(c, (end += 1) - 1);
        CHECK(unet_writev(c, v, 2) == 30);
        is_told_of(c, (end += 30) - 1);
        CHECK(unet_send(c, data, sizeof data, 0) == sizeof data); /* in many turns */
        is_told_of(c, (end += sizeof data) - 1);
        end += commits(c);
        is_told_of(c, end - 1);
        end += sends_file(c);
        is_told_of(c, end - 1);
        CHECK(unet_send(c, data, 100, 0) == 100);
        CHECK(unet_close(c) == 0 && unet_close(l) == 0);
}

static void each_call_is_told_of(void **state)
{
        play_both(reads_all, sends_in_each_way, 0);
}

static int unacknowledged(int c)
{
        int bytes;

        CHECK(unet_ioctl(c, SIOCOUTQ, &bytes) == 0);
        return bytes;
}

/* So many under way, and so many unread: what is asked beyond that is not told, and the stream
 * goes on. */
static void asks_too_much(struct side *s)
{
        int l = tcp_listen_any(), c, flags = (int)ASKED;
        uint8_t any = 0;
        unsigned told = 0;
        uint32_t number;

        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags) == 0);
        for (int i = 0; i < 1000; i++)
                CHECK(unet_send(c, &any, 1, 0) == 1);
        EVENTUALLY(unacknowledged(c) == 0);
        for (; is_told(c); told++)
                takes_note(c, &number);
        CHECK(told == 64);
        CHECK(unet_send(c, &any, 1, 0) == 1); /* there is room again */
        is_told_of(c, 1000);
        CHECK(unet_close(c) == 0 && unet_close(l) == 0);
}

static void what_is_too_much_is_not_told(void **state)
{
        play_both(reads_all, asks_too_much, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_call_is_told_of),
                cmocka_unit_test(what_is_too_much_is_not_told),
        };

        return run_sides(tests);
}
