/*
 * The whole source filter of a socket in a group at once (RFC 3678 §4.2 and §5.2), as Linux's
 * ip_mc_msfilter(), ip_mc_msfget() and ip_mc_gsfget(): IP_MSFILTER with addresses, MCAST_MSFILTER
 * with struct sockaddr_storage.
 *
 * A filter is one of a member; without sources to include it is the end of the membership. Reports
 * follow from it (ip/igmp.h).
 */
#include "sock/attach/handle.h"
#include "sock/udp/usock_group.h"

#include <errno.h>
#include <netinet/in.h>

#include "sock/attach/user.h"

#define OLD_HEAD offsetof(struct ip_msfilter, imsf_slist)
#define NEW_HEAD offsetof(struct group_filter, gf_slist)

/* Either form's value, with as many sources as a filter may have. */
union filter_value {
        struct ip_msfilter old;
        struct group_filter new;
        uint8_t bytes[NEW_HEAD + IGMP_SOURCES * sizeof(struct sockaddr_storage)];
};

struct filter {
        struct group_call at;
        uint32_t mode, n;
        uint32_t src[IGMP_SOURCES];
};

bool filter_is_opt(int name)
{
        return name == IP_MSFILTER || name == MCAST_MSFILTER;
}

static size_t head_len(int name)
{
        return name == IP_MSFILTER ? OLD_HEAD : NEW_HEAD;
}

static size_t source_len(int name)
{
        return name == IP_MSFILTER ? sizeof(struct in_addr) : sizeof(struct sockaddr_storage);
}

/* ---- reading ---- */

static bool is_v4(const struct sockaddr_storage *ss)
{
        return ss->ss_family == AF_INET;
}

static uint32_t v4_of(const struct sockaddr_storage *ss)
{
        struct sockaddr_in in;

        memcpy(&in, ss, sizeof in);
        return ntohl(in.sin_addr.s_addr);
}

static int read_old(const union filter_value *v, struct filter *f)
{
        f->at = (struct group_call){.group = ntohl(v->old.imsf_multiaddr.s_addr),
                                    .ifaddr = ntohl(v->old.imsf_interface.s_addr)};
        f->mode = v->old.imsf_fmode;
        f->n = v->old.imsf_numsrc;
        return 0;
}

static int read_new(const union filter_value *v, struct filter *f)
{
        if (!is_v4(&v->new.gf_group))
                return -EADDRNOTAVAIL;
        f->at = (struct group_call){.group = v4_of(&v->new.gf_group),
                                    .ifindex = v->new.gf_interface};
        f->mode = v->new.gf_fmode;
        f->n = v->new.gf_numsrc;
        return 0;
}

static int read_sources(int name, const union filter_value *v, struct filter *f)
{
        assert(filter_is_opt(name) && f->n <= IGMP_SOURCES);
        for (uint32_t i = 0; i < f->n; i++) {
                if (name == IP_MSFILTER) {
                        memcpy(&f->src[i], v->bytes + OLD_HEAD + i * sizeof f->src[i],
                               sizeof f->src[i]);
                        f->src[i] = ntohl(f->src[i]);
                        continue;
                }
                if (!is_v4(&v->new.gf_slist[i]))
                        return -EADDRNOTAVAIL;
                f->src[i] = v4_of(&v->new.gf_slist[i]);
        }
        return 0;
}

static int read_head(int name, const union filter_value *v, struct filter *f)
{
        return name == IP_MSFILTER ? read_old(v, f) : read_new(v, f);
}

int filter_read_head(int name, const void *val, socklen_t len, struct group_call *g)
{
        union filter_value v;
        struct filter f;
        int err;

        if (len < head_len(name))
                return -EINVAL;
        memcpy(&v, val, head_len(name));
        err = read_head(name, &v, &f);
        if (err == 0)
                *g = f.at;
        return err;
}

/* ---- the calls ---- */

static int set(struct usock *s, const struct filter *f)
{
        struct stack *st = &s->u->s;
        nstime now = ustack_now();
        int ifc, err;

        if (!ip_v4_multicast(f->at.group) || (f->mode != MCAST_INCLUDE && f->mode != MCAST_EXCLUDE))
                return -EINVAL;
        if (group_is_named(&f->at) && !group_find_named(&f->at, &(struct dir_iface){.peer = 0}))
                return -ENODEV;
        ifc = group_where_member(s, &f->at);
        if (ifc < 0)
                return f->mode == MCAST_INCLUDE && f->n == 0 ? -EADDRNOTAVAIL : -EINVAL;
        ustack_lock(s->u);
        err = igmp_listen(st->igmp, (uint32_t)ifc, f->at.group, s->idx, f->mode == MCAST_EXCLUDE,
                          f->src, f->n, now);
        stack_run(st, now);
        ustack_leave(s->u);
        return err;
}

int filter_set(struct usock *s, int name, const void *val, socklen_t len)
{
        union filter_value v;
        struct filter f;
        int err;

        if (len < head_len(name))
                return -EINVAL;
        if (!user_copy(&v, val, MIN(len, sizeof v)))
                return -EFAULT;
        f.n = name == IP_MSFILTER ? v.old.imsf_numsrc : v.new.gf_numsrc;
        if (f.n > IGMP_SOURCES)
                return -ENOBUFS;
        if (head_len(name) + f.n * source_len(name) > len)
                return -EINVAL;
        err = read_head(name, &v, &f);
        if (err == 0)
                err = read_sources(name, &v, &f);
        return err != 0 ? err : set(s, &f);
}

static void put_source(int name, union filter_value *v, uint32_t i, uint32_t src)
{
        const struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(src)};

        assert(i < IGMP_SOURCES);
        if (name == IP_MSFILTER) {
                memcpy(v->bytes + OLD_HEAD + i * sizeof in.sin_addr, &in.sin_addr,
                       sizeof in.sin_addr);
                return;
        }
        memset(&v->new.gf_slist[i], 0, sizeof v->new.gf_slist[i]);
        memcpy(&v->new.gf_slist[i], &in, sizeof in);
}

/* The membership's filter, as the lock's holder may look at it. */
static int look(struct usock *s, const struct group_call *g, struct igmp_join *out)
{
        int ifc = ip_v4_multicast(g->group) ? group_where_member(s, g) : -1;
        const struct igmp_join *j;

        if (ifc < 0)
                return ip_v4_multicast(g->group) ? -EADDRNOTAVAIL : -EINVAL;
        ustack_lock(s->u);
        j = igmp_membership(s->u->s.igmp, (uint32_t)ifc, g->group, s->idx);
        if (j != NULL)
                *out = *j;
        ustack_leave(s->u);
        return j != NULL ? 0 : -EADDRNOTAVAIL;
}

int filter_get(struct usock *s, int name, void *val, socklen_t *len)
{
        struct igmp_join j;
        union filter_value v;
        struct filter f;
        socklen_t n;
        int err;

        if (*len < head_len(name))
                return -EINVAL;
        if (!user_copy(&v, val, head_len(name)))
                return -EFAULT;
        err = read_head(name, &v, &f);
        if (err != 0)
                return name == MCAST_MSFILTER ? -EINVAL : err;
        if (group_is_named(&f.at) && name == IP_MSFILTER &&
            !group_find_named(&f.at, &(struct dir_iface){.peer = 0}))
                return -ENODEV;
        err = look(s, &f.at, &j);
        if (err != 0)
                return err;
        *(name == IP_MSFILTER ? &v.old.imsf_fmode : &v.new.gf_fmode) =
                j.exclude ? MCAST_EXCLUDE : MCAST_INCLUDE;
        *(name == IP_MSFILTER ? &v.old.imsf_numsrc : &v.new.gf_numsrc) = j.nsrc;
        for (uint32_t i = 0; i < MIN(f.n, j.nsrc); i++)
                put_source(name, &v, i, j.src[i]);
        n = (socklen_t)(head_len(name) + MIN(f.n, j.nsrc) * source_len(name));
        return user_copy(val, &v, n) && user_put32(len, n) ? 0 : -EFAULT;
}
