/* Namespaces and veth pairs. */
#include "tests/netns/bed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int home = -1; /* the namespace the program was started in */

static int current(void)
{
        int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

        assert_true(fd >= 0);
        return fd;
}

const char *bed_impossible(void)
{
        if (home < 0)
                home = current();
        if (geteuid() != 0)
                return "only root can make network namespaces";
        if (unshare(CLONE_NEWNET) != 0 || setns(home, CLONE_NEWNET) != 0)
                return "network namespaces cannot be made here";
        return NULL;
}

void bed_needs_root(void)
{
        const char *why = bed_impossible();

        if (why == NULL)
                return;
        print_message("skipped: %s\n", why);
        skip();
}

void bed_enter(int ns)
{
        assert_int_equal(setns(ns, CLONE_NEWNET), 0);
}

int bed_ns(void)
{
        int was = current(), ns;

        assert_int_equal(unshare(CLONE_NEWNET), 0);
        ns = current();
        bed_enter(was);
        close(was);
        bed_run(ns,
                "ip link set lo up; ! [ -d /proc/sys/net/ipv6 ] ||"
                " for c in all default; do echo 1 >/proc/sys/net/ipv6/conf/$c/disable_ipv6; done");
        return ns;
}

void bed_run(int ns, const char *fmt, ...)
{
        char cmd[1024];
        va_list ap;
        int status;
        pid_t pid;

        va_start(ap, fmt);
        assert_true((size_t)vsnprintf(cmd, sizeof cmd, fmt, ap) < sizeof cmd);
        va_end(ap);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (setns(ns, CLONE_NEWNET) == 0)
                        execl("/bin/sh", "sh", "-c", cmd, (char *)NULL);
                _exit(127);
        }
        while (waitpid(pid, &status, 0) < 0)
                assert_int_equal(errno, EINTR);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                fail_msg("failed: %s", cmd);
}

static void up(int ns, const char *name)
{
        bed_run(ns,
                "ethtool -K %s tx off rx off sg off tso off gso off gro off >/dev/null 2>&1; ip "
                "link set dev %s up",
                name, name);
}

/* Until then the kernel drops what it is given to send. */
static void wait_up(int ns, const char *name)
{
        bed_run(ns,
                "for i in $(seq 1000); do ip link show dev %s | grep -q 'state UP' && exit 0; "
                "sleep 0.01; done; exit 1",
                name);
}

void bed_veth(int ns_a, const char *a, int ns_b, const char *b, unsigned mtu, unsigned queues)
{
        bed_run(ns_a,
                "ip link add name %s numtxqueues %u numrxqueues %u mtu %u type veth"
                " peer name %s numtxqueues %u numrxqueues %u mtu %u",
                a, queues, queues, mtu, b, queues, queues, mtu);
        bed_run(ns_a, "ip link set dev %s netns /proc/%d/fd/%d", b, (int)getpid(), ns_b);
        up(ns_a, a);
        up(ns_b, b);
        wait_up(ns_a, a);
        wait_up(ns_b, b);
}

/* From another namespace that is no more a NIC comes back when the kernel gets round to it. */
static void plug(const char *device, int ns, const char *name, unsigned mtu)
{
        bed_run(home,
                "for i in $(seq 1000); do set -- /sys/bus/*/devices/%s/net/*; [ -e $1 ] && break; "
                "sleep 0.01; done;"
                " ip link set dev ${1##*/} netns /proc/%d/fd/%d name %s mtu %u",
                device, (int)getpid(), ns, name, mtu);
        up(ns, name);
}

const char *bed_nics(void)
{
        const char *nics = getenv("UNET_TEST_NICS");

        return nics != NULL && nics[0] != 0 ? nics : NULL;
}

void bed_wire(int ns_a, const char *a, int ns_b, const char *b, unsigned mtu)
{
        char first[64], second[64];

        if (bed_nics() == NULL) {
                bed_veth(ns_a, a, ns_b, b, mtu, 1);
                return;
        }
        assert_int_equal(sscanf(bed_nics(), "%63s %63s", first, second), 2);
        plug(first, ns_a, a, mtu);
        plug(second, ns_b, b, mtu);
        wait_up(ns_a, a);
        wait_up(ns_b, b);
}

int bed_packet_socket(int ns, const char *ifname)
{
        struct sockaddr_ll ll = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
        int was = current(), fd, one = 1, bytes = 32 << 20;

        bed_enter(ns);
        fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
        ll.sll_ifindex = (int)if_nametoindex(ifname);
        assert_true(fd >= 0 && ll.sll_ifindex != 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&ll, sizeof ll), 0);
        assert_int_equal(setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one), 0);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
        bed_enter(was);
        close(was);
        return fd;
}
