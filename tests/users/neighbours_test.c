/*
 * What a hostile user can do with what everybody has: sockets of each kind that share a port
 * number, names that all can see, namespaces, limits, signals to his own keeper, connections that
 * are passed on, shared or dropped. The victim's transfers go on meanwhile; afterwards unetd
 * answers and has no more descriptors than before. All in a network namespace of its own: all names
 * are flooded.
 */
#include "tests/users/users.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "unet/sock.h"
#include "unetd/client/name.h"

/* Each attack has a user of its own, who has no keeper yet; what he signals and limits is his. */
#define NEIGHBOURS 64100u
#define LOOPBACK   0x7f000001u
#define LOOPBACK_2 0x7f000002u

/* ---- sockets that do not have the port ---- */

static int client;
static struct hostile_stack own;

static uint32_t victims_stack(void)
{
        struct dir_hit hit = {.stack = 0};

        must_eventually(directory_lookup(hostile_dir, IPPROTO_TCP, ip_addr_v4(LOOPBACK),
                                         (uint16_t)table->port, 0, &hit) == 1);
        return hit.stack;
}

static void comes(void)
{
        must(hostile_keeper(HOSTILE_ANSWERS) >= 0);
        client = hostile_client();
        must(hostile_stack(client, &own) == 0);
}

/* His socket vouches for none of the victim's names, and the victim's are found as before. */
static void vouches_for_nothing(uint8_t proto, uint32_t addr, uint16_t port, int sock)
{
        must(sock >= 0);
        must(hostile_listen(client, own.id, proto, addr, port, sock) < 0);
        for (uint32_t hint = 0; hint < 16; hint++)
                must(hostile_sees(proto, addr, port, hint) != geteuid());
}

static int socket6(int type, int protocol, bool only6, struct in6_addr addr, uint16_t port)
{
        struct sockaddr_in6 sin6 = {
                .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = addr};
        int s = socket(AF_INET6, type | SOCK_CLOEXEC, protocol), only = only6;

        if (s < 0)
                return -1;
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
        if (bind(s, (struct sockaddr *)&sin6, sizeof sin6) == 0 &&
            (type != SOCK_STREAM || listen(s, 4) == 0))
                return s;
        close(s);
        return -1;
}

/* A wildcard of IPv6 alone beside the victim's socket of IPv4. */
static int has_the_port_of_ipv6(void)
{
        static const uint8_t protos[] = {IPPROTO_TCP, IPPROTO_UDP};

        comes();
        for (int i = 0; i < 2; i++) {
                int s = socket6(protos[i] == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM, 0, true,
                                in6addr_any, (uint16_t)table->port);

                if (s < 0) {
                        fprintf(stderr, "not shown: %s\n", strerror(errno));
                        continue;
                }
                vouches_for_nothing(protos[i], 0, (uint16_t)table->port, s);
                vouches_for_nothing(protos[i], LOOPBACK, (uint16_t)table->port, s);
        }
        return 0;
}

static int has_the_port_of_a_mapped_address(void)
{
        struct in6_addr mapped = {.s6_addr = {[10] = 0xff, 0xff, 127, 0, 0, 2}};
        int s;

        comes();
        s = socket6(SOCK_STREAM, 0, false, mapped, (uint16_t)table->port);
        if (s >= 0)
                vouches_for_nothing(IPPROTO_TCP, LOOPBACK, (uint16_t)table->port, s);
        else
                fprintf(stderr, "not shown: %s\n", strerror(errno));
        return 0;
}

/* A UDP socket's address is another one when it is connected. */
static int has_connected_the_socket(void)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
        uint16_t port = 0;
        int s = hostile_socket(IPPROTO_UDP, 0, &port, false);

        comes();
        to.sin_addr.s_addr = htonl(LOOPBACK_2);
        must(s >= 0 && connect(s, (struct sockaddr *)&to, sizeof to) == 0);
        vouches_for_nothing(IPPROTO_UDP, 0, port, s);
        return 0;
}

static int has_a_protocol_that_looks_alike(void)
{
        static const struct {
                int type, protocol;
                uint8_t as;
        } v[] = {{SOCK_STREAM, 262, IPPROTO_TCP}, /* MPTCP */
                 {SOCK_STREAM, 132, IPPROTO_TCP}, /* SCTP */
                 {SOCK_DGRAM, 136, IPPROTO_UDP},  /* UDP-Lite */
                 {SOCK_DGRAM, IPPROTO_ICMP, IPPROTO_UDP}};

        comes();
        for (size_t i = 0; i < ARRAY_LEN(v); i++) {
                struct sockaddr_in at = {.sin_family = AF_INET};
                int s = socket(AF_INET, v[i].type | SOCK_CLOEXEC, v[i].protocol);
                socklen_t len = sizeof at;

                at.sin_addr.s_addr = htonl(LOOPBACK_2);
                if (s < 0 || bind(s, (struct sockaddr *)&at, len) < 0) {
                        fprintf(stderr, "not shown: protocol %d, which this kernel has not\n",
                                v[i].protocol);
                        continue;
                }
                if (v[i].type == SOCK_STREAM)
                        listen(s, 4);
                must(getsockname(s, (struct sockaddr *)&at, &len) == 0);
                vouches_for_nothing(v[i].as, LOOPBACK_2, ntohs(at.sin_port), s);
        }
        return 0;
}

/* Another user may have the same port at another device, or at none. */
static int has_bound_it_to_a_device(void)
{
        static const uint8_t protos[] = {IPPROTO_TCP, IPPROTO_UDP};

        comes();
        for (int k = 0; k < 2; k++) {
                struct sockaddr_in at = {.sin_family = AF_INET};
                int s = socket(AF_INET, k == 0 ? SOCK_STREAM : SOCK_DGRAM, 0);
                socklen_t len = sizeof at;

                must(s >= 0 && setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "unet0", 5) == 0);
                must(bind(s, (struct sockaddr *)&at, len) == 0 &&
                     getsockname(s, (struct sockaddr *)&at, &len) == 0);
                must(k == 1 || listen(s, 4) == 0);
                vouches_for_nothing(protos[k], 0, ntohs(at.sin_port), s);
        }
        return 0;
}

/* Made in a network namespace of his own, where he has every port. */
static int has_it_in_another_namespace(void)
{
        int pair[2], s;
        struct wire_in in;
        pid_t pid;

        comes();
        must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
        pid = fork();
        if (pid == 0) {
                struct unetd_msg msg = {.type = UNETD_HELLO};
                uint16_t port = (uint16_t)table->port;

                prctl(PR_SET_DUMPABLE, 1);
                if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
                        _exit(77);
                s = hostile_socket(IPPROTO_TCP, 0, &port, false); /* lo is down there */
                must(s >= 0);
                must(wire_send(pair[1], &msg, &s, 1, 0) == 0);
                _exit(0);
        }
        close(pair[1]);
        if (wire_recv(pair[0], &in, 0) == 0 && in.n == 1) {
                vouches_for_nothing(IPPROTO_TCP, 0, (uint16_t)table->port, in.fds[0]);
                vouches_for_nothing(IPPROTO_TCP, LOOPBACK, (uint16_t)table->port, in.fds[0]);
        } else {
                fprintf(stderr, "not shown: users make no namespaces here\n");
        }
        waitpid(pid, NULL, 0);
        return 0;
}

/* A connection to the victim's own port. */
static int has_a_connection_to_it(void)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)table->port)};
        int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        comes();
        to.sin_addr.s_addr = htonl(LOOPBACK);
        must(s >= 0 && connect(s, (struct sockaddr *)&to, sizeof to) == 0);
        vouches_for_nothing(IPPROTO_TCP, LOOPBACK, (uint16_t)table->port, s);
        return 0;
}

/* ---- names that all can see ---- */

/* Each abstract name of /proc/net/unix: what fn does with it. */
static unsigned each_name(void (*fn)(const struct sockaddr_un *un, socklen_t len, int type))
{
        FILE *f = fopen("/proc/net/unix", "re");
        char line[512], name[200];
        unsigned n = 0;
        int type;

        must(f != NULL);
        while (fgets(line, sizeof line, f) != NULL) {
                struct sockaddr_un un = {.sun_family = AF_UNIX};

                if (sscanf(line, "%*s %*s %*s %*s %x %*s %*s @%107s", (unsigned *)&type, name) != 2)
                        continue;
                memcpy(un.sun_path + 1, name, strlen(name));
                fn(&un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)),
                   type);
                n++;
        }
        fclose(f);
        return n;
}

static int sender;

static void floods(const struct sockaddr_un *un, socklen_t len, int type)
{
        char junk[200] = "";

        if (type == SOCK_DGRAM)
                for (int i = 0; i < 64; i++)
                        sendto(sender, junk, (size_t)i * 3, MSG_DONTWAIT, (struct sockaddr *)un,
                               len);
}

/* Bells of stacks, and places that threads sleep in. */
static int floods_all_names(void)
{
        unsigned names = 0;

        sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        must(sender >= 0);
        for (int i = 0; i < 50; i++)
                names += each_name(floods);
        must(names > 0);
        return 0;
}

static void passes_rights(const struct sockaddr_un *un, socklen_t len, int type)
{
        char control[CMSG_SPACE(sizeof(int))] = "", byte = 0;
        struct iovec v = {&byte, 1};
        struct msghdr m = {.msg_name = (void *)un,
                           .msg_namelen = len,
                           .msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof control};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &sender, sizeof sender);
        if (type == SOCK_DGRAM)
                sendmsg(sender, &m, MSG_DONTWAIT);
}

static int passes_rights_to_all_names(void)
{
        sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        must(sender >= 0);
        for (int i = 0; i < 20; i++)
                must(each_name(passes_rights) > 0);
        return 0;
}

static int called[1024];
static unsigned ncalled;

static void calls(const struct sockaddr_un *un, socklen_t len, int type)
{
        int s = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        if (s >= 0 && connect(s, (struct sockaddr *)un, len) == 0 && ncalled < ARRAY_LEN(called)) {
                called[ncalled++] = s;
                send(s, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        } else if (s >= 0) {
                close(s);
        }
}

/* ... and stays connected, saying nothing that has a form. */
static int calls_all_names(void)
{
        for (int i = 0; i < 8; i++)
                each_name(calls);
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

/* Root's file is no place for others' names. */
static int makes_the_systems_file(void)
{
        struct sockaddr_un un;
        int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        socklen_t len = unetd_system_name(&un, unetd_domain(), s);

        must(s >= 0 && len != 0);
        must(unlink(un.sun_path) < 0 && rename(un.sun_path, "/tmp/unet-stolen") < 0);
        must(bind(s, (struct sockaddr *)&un, len) < 0);
        must(open(UNETD_RUN_DIR "/mine", O_CREAT | O_WRONLY, 0600) < 0);
        return 0;
}

/* ---- connections ---- */

static int says_nothing_a_thousand_times(void)
{
        struct rlimit many = {1100, 4096};

        setrlimit(RLIMIT_NOFILE, &many);
        for (int i = 0; i < 1000; i++)
                must(hostile_dial() >= 0);
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

/* Before the answer comes, with a stack's descriptors on their way. */
static int closes_midway(void)
{
        struct unetd_msg hello = {.type = UNETD_HELLO, .seq = 1, .hello = {.abi = UNETD_ABI}};
        struct unetd_msg msg = {.type = UNETD_STACK_NEW, .seq = 2};
        struct hostile_stack st;
        int fds[UNETD_STACK_FDS];

        must(unetd_stack_fds_make(&st.fds, 1 << 20) == 0);
        fds[UNETD_FD_STATE] = st.fds.state;
        fds[UNETD_FD_BELL] = st.fds.bell;
        fds[UNETD_FD_LEADER] = st.fds.leader;
        fds[UNETD_FD_RING_LEADER] = st.fds.ring_leader;
        fds[UNETD_FD_KEEPER] = st.fds.keeper;
        fds[UNETD_FD_RING_KEEPER] = st.fds.ring_keeper;
        for (int i = 0; i < 500; i++) {
                int fd = hostile_dial();

                must(fd >= 0 && hostile_send(fd, &hello, NULL, 0) == 0);
                hostile_send(fd, &msg, fds, UNETD_STACK_FDS);
                if (i % 3 == 1)
                        shutdown(fd, SHUT_RD);
                if (i % 3 == 2)
                        shutdown(fd, SHUT_WR);
                close(fd);
        }
        return 0;
}

static int asks_and_cannot_hear(void)
{
        int fd = hostile_client(), r = 0;

        must(shutdown(fd, SHUT_RD) == 0);
        for (int i = 0; i < 2000 && r == 0; i++) {
                struct unetd_msg msg = {.type = UNETD_STATUS, .seq = (uint32_t)i + 10};

                r = hostile_send(fd, &msg, NULL, 0);
        }
        return 0;
}

/* One connection, and eight processes that say what they like on it. */
static int shares_a_connection(void)
{
        int fd, pid[8];

        comes();
        fd = client;
        for (unsigned k = 0; k < ARRAY_LEN(pid); k++) {
                pid[k] = fork();
                if (pid[k] != 0)
                        continue;
                for (unsigned i = 0; i < 500; i++) {
                        struct unetd_msg msg = {.type = (uint16_t)(1 + (i * 7 + k) % UNETD_TYPES),
                                                .seq = i};

                        msg.stack.stack = i % 2 ? own.id : victims_stack();
                        if (wire_send(fd, &msg, &fd, i % 2, MSG_DONTWAIT) < 0)
                                recv(fd, &msg, sizeof msg, MSG_DONTWAIT);
                }
                _exit(0);
        }
        for (unsigned k = 0; k < ARRAY_LEN(pid); k++)
                waitpid(pid[k], NULL, 0);
        return 0;
}

/* Who made it is no more; who speaks is his child, with a stack. */
static int leaves_it_to_a_child(void)
{
        int fd = hostile_dial(), status;
        pid_t pid = fork();

        must(fd >= 0);
        if (pid == 0) {
                pid_t grandchild = fork();

                if (grandchild != 0)
                        _exit(0);
                while (getppid() == pid)
                        usleep(1000);
                hostile_hello(fd);
                hostile_stack(fd, &own);
                _exit(0);
        }
        close(fd);
        must(waitpid(pid, &status, 0) == pid);
        return 0;
}

/* A bystander speaks on it: it is the hostile one's still. */
static int passed[2];

static int passes_it_on(void)
{
        struct unetd_msg msg = {.type = UNETD_HELLO};
        int fd = hostile_client();

        table->value[1] = geteuid();
        must(wire_send(passed[1], &msg, &fd, 1, 0) == 0);
        must_eventually(table->done == 1);
        return 0;
}

static int speaks_on_it(void)
{
        struct hostile_stack st;
        struct wire_in in;

        must(wire_recv(passed[0], &in, 0) == 0 && in.n == 1);
        hostile_stack(in.fds[0], &st);
        must(st.id == 0 ||
             st.id - unetd_stacks_of((uint32_t)table->value[1]) < UNETD_STACKS_OF_USER);
        return 0;
}

/* ---- memory ---- */

static int gives_memory_of_each_size(void)
{
        static const off_t sizes[] = {0, 1, 4095, 4096, 1 << 20, (off_t)1 << 40, (off_t)1 << 52};
        struct unetd_msg msg = {.type = UNETD_STACK_NEW};

        comes();
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
                for (int which = 0; which < 2; which++) {
                        int fds[UNETD_STACK_FDS] = {own.fds.state,  own.fds.bell,
                                                    own.fds.leader, own.fds.ring_leader,
                                                    own.fds.keeper, own.fds.ring_keeper};
                        int fd = memfd_create("unet-state", MFD_ALLOW_SEALING | MFD_CLOEXEC);

                        must(fd >= 0);
                        if (ftruncate(fd, sizes[i]) == 0)
                                fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
                        fds[which == 0 ? UNETD_FD_STATE : UNETD_FD_BELL] = fd;
                        hostile_ask(client, &msg, fds, UNETD_STACK_FDS);
                        close(fd);
                }
        return 0;
}

/* His end of a channel to the victim, without a page of it. */
static int empties_his_region(void)
{
        struct unetd_msg msg = {.type = UNETD_CHAN_OPEN};
        struct unetd_chan_info info;
        int fds[UNETD_CHAN_FDS_MAX], n = 0;
        struct stat st;

        comes();
        msg.chan.stack = own.id;
        msg.chan.peer_stack = victims_stack();
        must(hostile_ask(client, &msg, NULL, 0) == 0);
        must_eventually((n = (int)hostile_channel(&info, fds)) > 0);
        must(fstat(fds[UNETD_FD_TX], &st) == 0);
        for (int i = 0; i < 300; i++) {
                char junk[4096];

                memset(junk, i, sizeof junk);
                pwrite(fds[UNETD_FD_TX], junk, sizeof junk, i * 4096 % st.st_size);
                fallocate(fds[UNETD_FD_TX], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                          st.st_size);
                must(ftruncate(fds[UNETD_FD_TX], 0) < 0);
                must(ftruncate(fds[UNETD_FD_RX], 0) < 0 && write(fds[UNETD_FD_RX], "x", 1) < 0);
        }
        return 0;
}

/* What the victim gave may not be opened for writing, by any road. */
static int opens_the_victims_region(void)
{
        struct unetd_msg msg = {.type = UNETD_CHAN_OPEN};
        struct unetd_chan_info info;
        int fds[UNETD_CHAN_FDS_MAX], n = 0;
        char path[64];

        comes();
        prctl(PR_SET_DUMPABLE, 1);
        msg.chan.stack = own.id;
        msg.chan.peer_stack = victims_stack();
        must(hostile_ask(client, &msg, NULL, 0) == 0);
        must_eventually((n = (int)hostile_channel(&info, fds)) > 0);
        for (int i = UNETD_FD_RX; i <= UNETD_FD_PEER_BELL; i++) {
                snprintf(path, sizeof path, "/proc/self/fd/%d", fds[i]);
                must(open(path, O_RDWR | O_CLOEXEC) < 0);
                must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0) == MAP_FAILED);
                must(fchmod(fds[i], 0666) < 0 && fchown(fds[i], geteuid(), geteuid()) < 0);
                must(fcntl(fds[i], F_ADD_SEALS, F_SEAL_WRITE) < 0);
                must(fallocate(fds[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
        }
        return 0;
}

/* ---- signals, limits, priorities ---- */

/* They are to be killed when his sockets have something: unetd, and all of the victim's. */
static bool is_aimed_at(pid_t pid)
{
        char path[32];
        struct stat st;

        snprintf(path, sizeof path, "/proc/%d", (int)pid);
        return pid == users_unetd() || pid == users_broker() ||
               (pid > 0 && stat(path, &st) == 0 && st.st_uid == VICTIM);
}

static void aims(int fd, pid_t pid)
{
        must(fcntl(fd, F_SETSIG, SIGKILL) == 0);
        must(fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK | O_RDWR) == 0);
        fcntl(fd, F_SETOWN, pid);
}

static int sends_signals_by_sockets(void)
{
        struct sockaddr_in at = {.sin_family = AF_INET};
        struct dirent *e;
        uint16_t port = 0;
        int s = hostile_socket(IPPROTO_TCP, LOOPBACK_2, &port, false), to;
        DIR *d = opendir("/proc");

        comes();
        must(d != NULL && s >= 0);
        must(hostile_listen(client, own.id, IPPROTO_TCP, LOOPBACK_2, port, s) == 0);
        at.sin_addr.s_addr = htonl(LOOPBACK_2);
        at.sin_port = htons(port);
        while ((e = readdir(d)) != NULL) {
                if (!is_aimed_at(atoi(e->d_name)))
                        continue;
                aims(s, atoi(e->d_name));
                aims(own.fds.leader, atoi(e->d_name));
                to = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
                connect(to, (struct sockaddr *)&at, sizeof at);
                send(own.fds.ring_leader, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
                close(to);
        }
        closedir(d);
        return 0;
}

/* His real keeper, which root's unetd started. */
static pid_t keeper_of_his(void)
{
        char path[300], comm[32];
        struct dirent *e;
        DIR *d = opendir("/proc");
        pid_t found = 0;

        must(d != NULL);
        while (found == 0 && (e = readdir(d)) != NULL) {
                struct stat st;
                FILE *f;

                snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
                if (atoi(e->d_name) == 0 || (f = fopen(path, "re")) == NULL)
                        continue;
                snprintf(path, sizeof path, "/proc/%s", e->d_name);
                if (fscanf(f, "%*d (%31[^)])", comm) == 1 &&
                    strncmp(comm, "unet-keeper", 11) == 0 && kill(atoi(e->d_name), 0) == 0 &&
                    stat(path, &st) == 0)
                        found = atoi(e->d_name);
                fclose(f);
        }
        closedir(d);
        return found;
}

/* Listens by the native interface: whom the stack belongs to matters to the kernel alone. */
static pid_t comes_with_a_keeper(void)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(LOOPBACK)};
        int l = unet_socket(AF_INET, SOCK_STREAM, 0);
        socklen_t len = sizeof at;
        pid_t pid = 0;

        must(l >= 0 && unet_bind(l, (struct sockaddr *)&at, len) == 0 && unet_listen(l, 4) == 0);
        must(unet_getsockname(l, (struct sockaddr *)&at, &len) == 0);
        table->value[0] = ntohs(at.sin_port);
        must_eventually((pid = keeper_of_his()) != 0);
        return pid;
}

static int kills_his_keeper_again_and_again(void)
{
        for (int i = 0; i < 20; i++) {
                pid_t pid;
                struct hostile_stack st;
                int fd = hostile_client();

                hostile_stack(fd, &st);
                pid = keeper_of_his();
                if (pid != 0)
                        kill(pid, SIGKILL);
                hostile_stack_close(&st);
                close(fd);
        }
        return 0;
}

static int stops_his_keeper(void)
{
        pid_t pid = comes_with_a_keeper();

        must(kill(pid, SIGSTOP) == 0);
        table->ready = 1;
        must_eventually(table->done == 1);
        kill(pid, SIGKILL);
        return 0;
}

static int limits_his_keeper(void)
{
        static const int limits[] = {RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_FSIZE,
                                     RLIMIT_MSGQUEUE};
        const struct rlimit none = {0, 0};
        pid_t pid = comes_with_a_keeper();

        for (size_t i = 0; i < ARRAY_LEN(limits); i++)
                prlimit(pid, limits[i], &none, NULL);
        sched_setscheduler(pid, SCHED_IDLE, &(struct sched_param){0});
        setpriority(PRIO_PROCESS, (id_t)pid, 19);
        table->ready = 1;
        must_eventually(table->done == 1);
        kill(pid, SIGKILL);
        return 0;
}

/* A bystander, who gets an answer, whatever it is. */
static int calls_whom_the_keeper_keeps(void)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(LOOPBACK)};
        int s = unet_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

        to.sin_port = htons((uint16_t)table->value[0]);
        must(s >= 0);
        unet_connect(s, (struct sockaddr *)&to, sizeof to);
        return 0;
}

/* ---- namespaces ---- */

/* Whose the stack is says the kernel, to which he is the same as ever. */
static void comes_as(uint32_t uid)
{
        client = hostile_client();
        hostile_stack(client, &own);
        must(own.id == 0 || own.id - unetd_stacks_of(uid) < UNETD_STACKS_OF_USER);
}

static int comes_from_namespaces(void)
{
        static const int kinds[] = {CLONE_NEWUSER, CLONE_NEWUSER | CLONE_NEWPID,
                                    CLONE_NEWUSER | CLONE_NEWNS, CLONE_NEWUSER | CLONE_NEWUTS,
                                    CLONE_NEWUSER | CLONE_NEWIPC | CLONE_NEWPID};
        uint32_t uid = geteuid();
        int status;

        must(hostile_keeper(HOSTILE_ANSWERS) >= 0);
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
                pid_t pid = fork();

                if (pid == 0) {
                        prctl(PR_SET_DUMPABLE, 1);
                        if (unshare(kinds[i]) < 0)
                                _exit(0);
                        pid = fork(); /* the first in its namespace of processes */
                        if (pid == 0) {
                                comes_as(uid);
                                _exit(0);
                        }
                        must(waitpid(pid, &status, 0) == pid && status == 0);
                        _exit(0);
                }
                must(waitpid(pid, &status, 0) == pid && status == 0);
        }
        return 0;
}

/* ---- the world, the victim in it ---- */

/* With a device besides lo, and ICMP sockets for everybody. */
static bool has_own_network(void)
{
        if (unshare(CLONE_NEWNET) == 0 &&
            system("ip link set lo up && ip link add unet0 type veth peer name unet1 && "
                   "echo 0 2147483647 >/proc/sys/net/ipv4/ping_group_range") == 0)
                return true;
        print_message("skipped: network namespaces cannot be made here\n");
        return false;
}

static void the_victim_begins(void **state)
{
        users_victim_start();
}

static uint32_t neighbour = NEIGHBOURS;
static struct {
        int monitor, broker;
} before;

static void look_before(void)
{
        table->ready = table->done = 0;
        before.monitor = users_fds(users_unetd());
        before.broker = users_fds(users_broker());
}

/* Of the victim's new connections some come and go. */
#define OF_THE_VICTIMS 8
static void is_as_before(void)
{
        users_victim_goes_on();
        users_unetd_answers();
        eventually(users_fds(users_unetd()) <= before.monitor + OF_THE_VICTIMS);
        eventually(users_fds(users_broker()) <= before.broker + OF_THE_VICTIMS);
}

static void harms_nobody(int (*attack)(void))
{
        look_before();
        users_run(neighbour++, attack);
        is_as_before();
}

/* ... while it is there, too. */
static void harms_nobody_meanwhile(int (*attack)(void), int (*beside)(void))
{
        pid_t hostile;

        look_before();
        hostile = users_begin(neighbour++, attack);
        eventually(table->ready == 1);
        users_victim_goes_on();
        if (beside != NULL)
                users_run(neighbour++, beside);
        users_unetd_answers();
        table->done = 1;
        users_wait(hostile);
        is_as_before();
}

static void a_passed_connection(void **state)
{
        pid_t hostile;

        look_before();
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, passed), 0);
        hostile = users_begin(neighbour++, passes_it_on);
        users_run(neighbour++, speaks_on_it);
        table->done = 1;
        users_wait(hostile);
        close(passed[0]);
        close(passed[1]);
        is_as_before();
}

#define ATTACKS(X)                          \
        X(has_the_port_of_ipv6)             \
        X(has_the_port_of_a_mapped_address) \
        X(has_connected_the_socket)         \
        X(has_a_protocol_that_looks_alike)  \
        X(has_bound_it_to_a_device)         \
        X(has_it_in_another_namespace)      \
        X(has_a_connection_to_it)           \
        X(floods_all_names)                 \
        X(passes_rights_to_all_names)       \
        X(makes_the_systems_file)           \
        X(closes_midway)                    \
        X(asks_and_cannot_hear)             \
        X(shares_a_connection)              \
        X(leaves_it_to_a_child)             \
        X(gives_memory_of_each_size)        \
        X(empties_his_region)               \
        X(opens_the_victims_region)         \
        X(sends_signals_by_sockets)         \
        X(kills_his_keeper_again_and_again) \
        X(comes_from_namespaces)

#define X(name)                              \
        static void who_##name(void **state) \
        {                                    \
                harms_nobody(name);          \
        }
ATTACKS(X)
#undef X

static void who_calls_all_names(void **state)
{
        harms_nobody_meanwhile(calls_all_names, NULL);
}

static void who_says_nothing_a_thousand_times(void **state)
{
        harms_nobody_meanwhile(says_nothing_a_thousand_times, NULL);
}

static void who_stops_his_keeper(void **state)
{
        harms_nobody_meanwhile(stops_his_keeper, calls_whom_the_keeper_keeps);
}

static void who_limits_his_keeper(void **state)
{
        harms_nobody_meanwhile(limits_his_keeper, calls_whom_the_keeper_keeps);
}

int main(void)
{
#define X(name) cmocka_unit_test(who_##name),
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_victim_begins),
                ATTACKS(X) cmocka_unit_test(who_calls_all_names),
                cmocka_unit_test(who_says_nothing_a_thousand_times),
                cmocka_unit_test(who_stops_his_keeper),
                cmocka_unit_test(who_limits_his_keeper),
                cmocka_unit_test(a_passed_connection),
        };
#undef X

        if (users_cannot_run() || !has_own_network())
                return 77;
        return cmocka_run_group_tests(tests, users_setup, users_teardown);
}
