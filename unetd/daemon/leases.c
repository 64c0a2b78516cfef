/* See leases.h. */
#include "unetd/daemon/leases.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unetd/daemon/ifaces.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/ports.h"
#include "unetd/daemon/shares.h"
#include "unetd/daemon/stacks.h"
#include "unetd/daemon/users.h"

#define LEASE_MOST 4096u /* ports a lease: the maximum of the setting lease_ports */

/* Sets the client ports: the whole blocks of the kernel's own range. */
static void choose_range(void)
{
        unsigned low = 32768, high = 60999;
        FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

        if (f) {
                if (fscanf(f, "%u %u", &low, &high) != 2 || low == 0 || low > high || high > 65535)
                        low = 32768, high = 60999;
                fclose(f);
        }
        unetd.lease_low = ALIGN_UP(low, DIR_BLOCK_PORTS);
        unetd.lease_end = (high + 1) / DIR_BLOCK_PORTS * DIR_BLOCK_PORTS;
        if (unetd.lease_end <= unetd.lease_low)
                unetd.lease_end = unetd.lease_low;
        else /* lease_next is random */
                unetd.lease_next = unetd.lease_low + unetd.lease_next %
                                                             (unetd.lease_end - unetd.lease_low) /
                                                             DIR_BLOCK_PORTS * DIR_BLOCK_PORTS;
}

uint32_t port_lessee(uint8_t proto, uint16_t port)
{
        return proto == IPPROTO_TCP ? directory_lessee_of(unetd.dir.d, port) : 0;
}

static struct vlink_range range_of(const struct lease *l)
{
        return (struct vlink_range){.proto = IPPROTO_TCP, .first = l->first, .count = l->count};
}

/* ---- whose they are, and were ---- */

/*
 * The lessee of each block of ports. `user` is his uid plus one; 0: nobody. A system-wide unetd
 * keeps this table in a file of root's. So after a restart it does not lease to others what a
 * user's stacks had with the last unetd. His keepers bring it back within KEPT; after that it is
 * free, however often unetd is restarted.
 */
struct lessee {
        uint32_t user;
        uint32_t until; /* in seconds of the clock; 0: this unetd has leased it */
};

static struct lessee of_nobody[DIR_BLOCKS], *lessees = of_nobody;

#define KEPT 600u /* seconds */

/* Maps the file. posix_fallocate() allocates it first: a store into a hole of a full file system
 * would kill unetd. 0 or a negative errno. */
static int lessees_open(const char *path)
{
        int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600), err;
        void *p = MAP_FAILED;

        if (fd < 0)
                return -errno;
        err = posix_fallocate(fd, 0, sizeof of_nobody);
        if (err == 0)
                p = mmap(NULL, sizeof of_nobody, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED)
                lessees = p;
        else if (err == 0)
                err = errno;
        close(fd);
        return -err;
}

void leases_remember(const char *path)
{
        int r = lessees_open(path);

        if (r < 0)
                log_line("client ports of the next unetd are for who comes first: %s: %s", path,
                         strerror(-r));
}

/* Bounds what the last unetd had leased until it ended, too. */
static void keep_the_last(void)
{
        uint32_t until = (uint32_t)(loop_clock() / NS_PER_S) + KEPT;

        for (struct lessee *l = lessees; l < lessees + DIR_BLOCKS; l++)
                if (l->until == 0 || l->until > until)
                        l->until = until;
}

void leases_init(void)
{
        keep_the_last();
        choose_range();
}

static uint32_t lessee_at(uint32_t port)
{
        const struct lessee *l = &lessees[port / DIR_BLOCK_PORTS];

        return l->until != 0 && l->until <= unetd.loop.now / NS_PER_S ? 0 : l->user;
}

bool leases_are_none(void)
{
        for (uint32_t port = 0; port < 65536; port += DIR_BLOCK_PORTS)
                if (lessee_at(port) != 0)
                        return false;
        return true;
}

static uint32_t mark_of(const struct user *u)
{
        return u->uid + 1;
}

static void leased(const struct lease *l, const struct stack *st)
{
        for (uint32_t i = 0; i < l->count; i += DIR_BLOCK_PORTS)
                lessees[(l->first + i) / DIR_BLOCK_PORTS] =
                        (struct lessee){.user = st ? mark_of(st->user) : 0};
        directory_lease(&unetd.dir, l->first, l->count, st ? st->id : 0);
}

static bool was_of_others(const struct user *u, uint32_t first, uint32_t count)
{
        for (uint32_t i = 0; i < count; i += DIR_BLOCK_PORTS) {
                uint32_t of = lessee_at(first + i);

                if (of != 0 && of != mark_of(u))
                        return true;
        }
        return false;
}

/* ---- zones ---- */

/*
 * Users lease in zones of their own, so that no user cuts the ports into pieces for the others:
 *
 *      | hers  her | his    | free     | hers     |
 *
 * A zone belongs to the user who has the lowest lease in it. A user may have as many zones as he
 * leaves to others (shares.h). From ZONES_SOME on he goes round in his own, and begins another when
 * they have no run of ports that is long enough. A user who has none and finds none leases
 * anywhere, and so does one who has filled his own when all are taken.
 */
#define ZONE_PORTS 128u
#define ZONES      (65536u / ZONE_PORTS)
#define ZONES_SOME 8u /* enough for a port to rest long before it is leased again */

struct zones {
        uint32_t of[ZONES];  /* mark_of() the user; 0: free */
        uint32_t user;       /* mark_of() the asking user; 0: he may lease anywhere */
        uint32_t mine, more; /* the asking user's zones, and the free ones that he may begin */
        bool taken;          /* no zone is free */
};

static uint32_t zone_at(uint32_t port)
{
        return (port - unetd.lease_low) / ZONE_PORTS;
}

static void zones_look(struct zones *z, const struct user *u)
{
        uint32_t all = zone_at(unetd.lease_end + ZONE_PORTS - 1), others = 0;

        *z = (struct zones){.user = 0};
        if (!unetd.cfg.shared)
                return;
        for (uint32_t port = unetd.lease_low; port < unetd.lease_end; port += DIR_BLOCK_PORTS)
                if (z->of[zone_at(port)] == 0)
                        z->of[zone_at(port)] = lessee_at(port);
        for (uint32_t i = 0; i < all; i++) {
                z->mine += z->of[i] == mark_of(u);
                others += z->of[i] != 0 && z->of[i] != mark_of(u);
        }
        z->taken = z->mine + others == all;
        while (share_may_take(z->mine + z->more, z->mine + others + z->more, all))
                z->more++;
        if (z->mine + z->more != 0)
                z->user = mark_of(u);
}

/* Returns true if a run of ports that has begun so many zones may go on at this port. */
static bool zone_may_lease(const struct zones *z, uint32_t port, uint32_t *begun)
{
        uint32_t of = z->of[zone_at(port)];

        if (z->user == 0 || of == z->user)
                return true;
        *begun += port == unetd.lease_low || zone_at(port - 1) != zone_at(port) || *begun == 0;
        return of == 0 && *begun <= z->more;
}

/* ---- free ports ---- */

/* Returns how many ports from there on nobody has leased, `want` at most. `clear`: nor claimed, nor
 * leased from the last unetd. */
static uint32_t free_run(const struct zones *z, uint32_t port, uint32_t want, bool clear)
{
        uint32_t n = 0, begun = 0;

        assert(port >= unetd.lease_low);
        while (n < want && port + n < unetd.lease_end &&
               directory_lessee_of(unetd.dir.d, (uint16_t)(port + n)) == 0 &&
               zone_may_lease(z, port + n, &begun) &&
               !(clear && (lessee_at(port + n) != 0 ||
                           ports_claimed((uint16_t)(port + n), DIR_BLOCK_PORTS, NULL))))
                n += DIR_BLOCK_PORTS;
        return n;
}

/* Returns the first run of so many ports, or else the longest. The search goes round, so that a
 * port that came back rests before it is used again. */
static struct lease longest_run(const struct zones *z, uint32_t want, bool clear)
{
        uint32_t all = unetd.lease_end - unetd.lease_low, n;
        struct lease best = {.count = 0};

        for (uint32_t i = 0; i < all && best.count < want;) {
                uint32_t port = unetd.lease_low + (unetd.lease_next - unetd.lease_low + i) % all;

                n = free_run(z, port, want, clear);
                if (n > best.count)
                        best = (struct lease){.first = (uint16_t)port, .count = (uint16_t)n};
                /* Skip a block that is not free. */
                i += n + (port + n < unetd.lease_end ? DIR_BLOCK_PORTS : 0);
        }
        return best;
}

/* Returns a run of ports at which nobody has a socket. */
static struct lease clear_run(struct zones *z, uint32_t want)
{
        struct lease found = {.count = 0};
        uint32_t more = z->more;

        if (z->mine >= ZONES_SOME) {
                z->more = 0;
                found = longest_run(z, want, true);
                z->more = more;
        }
        if (found.count < want)
                found = longest_run(z, want, true);
        if (found.count == 0 && z->taken) {
                z->user = 0;
                found = longest_run(z, want, true);
        }
        return found;
}

/* Leases a run of ports. Ports at which somebody has a socket, and those leased from the last
 * unetd, are taken only if there are no others. Their lessee does not connect from these
 * (port_owner() in ifaces.c, open_conn() in sock/core/usock_connect.c). */
static int lease_take(const struct user *u, struct lease *l, uint32_t want)
{
        struct zones z;
        struct lease found;

        assert(want != 0 && want <= LEASE_MOST);
        zones_look(&z, u);
        found = clear_run(&z, want);
        if (found.count == 0)
                found = longest_run(&z, want, false);
        if (found.count == 0)
                return z.user != 0 ? -EDQUOT : -EADDRNOTAVAIL;
        l->first = found.first;
        l->count = found.count;
        unetd.lease_next = l->first + l->count < unetd.lease_end ? (uint32_t)l->first + l->count
                                                                 : unetd.lease_low;
        return 0;
}

/* Leases again what a stack had with an earlier unetd. The ports may be another user's, now or
 * before, or somebody else may have a port or a connection there. */
static int lease_retake(const struct stack *st, struct lease *l, uint16_t first, uint32_t count)
{
        struct zones z;

        if (first < unetd.lease_low || first + count > unetd.lease_end || count > LEASE_MOST ||
            count == 0 || first % DIR_BLOCK_PORTS != 0 || count % DIR_BLOCK_PORTS != 0)
                return -EADDRNOTAVAIL;
        zones_look(&z, st->user);
        if (was_of_others(st->user, first, count) || free_run(&z, first, count, false) < count ||
            ports_claimed(first, count, st) || ifaces_flow_of_others(st->id, first, count))
                return -EADDRNOTAVAIL;
        l->first = first;
        l->count = (uint16_t)count;
        return 0;
}

static void lease_free(struct stack *st, struct lease *l)
{
        leased(l, NULL);
        links_ports(NULL, NULL, st, range_of(l), false);
        assert(st->user->used.leases >= l->count);
        st->user->used.leases -= l->count;
        st->user->ports_said &= st->user->used.leases != 0;
        LIST_REMOVE(l, link);
        free(l);
}

static struct lease *lease_find(struct stack *st, uint16_t first)
{
        struct lease *l;

        LIST_FOREACH (l, &st->leases, link)
                if (first != 0 && l->first == first)
                        return l;
        return NULL;
}

/* Returns how many of the ports that he asks for the user may have; 0: none. */
static uint32_t allowed(const struct user *u, uint32_t want)
{
        while (want > 0 &&
               (u->used.leases + want > unetd.cfg.per_uid.leases || !share_may_lease(u, want)))
                want = want / 2 / DIR_BLOCK_PORTS * DIR_BLOCK_PORTS;
        return want;
}

static int none_left(struct user *u, int err)
{
        if (!u->ports_said)
                user_log(u,
                         "no more client ports for user %u, who has %u (%s): what connects on this "
                         "host goes by the kernel",
                         u->uid, u->used.leases, strerror(-err));
        u->ports_said = true;
        return err;
}

int lease_put(struct user *u, struct client *cl, struct unetd_msg *msg)
{
        uint32_t most = ALIGN_UP(unetd.cfg.lease_ports, DIR_BLOCK_PORTS), want;
        struct stack *st;
        struct lease *l;
        int r = stack_of(u, msg->lease.stack, &st);

        if (r < 0)
                return r;
        l = lease_find(st, msg->lease.first);
        if (l) { /* the keeper brought it before */
                msg->lease.count = l->count;
                return 0;
        }
        want = msg->lease.count == 0 ? most : ALIGN_UP(msg->lease.count, DIR_BLOCK_PORTS);
        if (msg->lease.first == 0)
                want = allowed(u, MIN(want, most));
        else if (allowed(u, want) < want)
                want = 0;
        if (want == 0)
                return msg->lease.first ? -EDQUOT : none_left(u, -EDQUOT);
        l = calloc(1, sizeof *l);
        if (!l)
                return -ENOMEM;
        r = msg->lease.first ? lease_retake(st, l, msg->lease.first, msg->lease.count)
                             : lease_take(u, l, want);
        if (r < 0) {
                free(l);
                return msg->lease.first ? r : none_left(u, r);
        }
        leased(l, st);
        LIST_INSERT_HEAD(&st->leases, l, link);
        u->used.leases += l->count;
        msg->lease.first = l->first;
        msg->lease.count = l->count;
        return links_ports(cl, msg, st, range_of(l), true);
}

int port_lease(struct client *cl, struct unetd_msg *msg)
{
        return lease_put(cl->user, cl, msg);
}

void leases_free(struct stack *st)
{
        struct lease *l;

        while ((l = LIST_FIRST(&st->leases)))
                lease_free(st, l);
}
