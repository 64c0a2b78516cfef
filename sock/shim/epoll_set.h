/*
 * An epoll set with two halves, for the files that make it up; nobody else includes it. epoll.c
 * tells how it works.
 *
 *      epoll.c         the program's calls
 *      epoll_set.c     members, the queue, coming and going
 *      epoll_ready.c   what is ready in both halves
 *      epoll_wait.c    sleeping until something may be
 *      epoll_image.c   sets that go over exec
 *      epoll_pass.c    sets that go in a message, or to a child of posix_spawn()
 */
#ifndef SOCK_SHIM_EPOLL_SET_H
#define SOCK_SHIM_EPOLL_SET_H

#include <sys/queue.h>

#include "sock/shim/shim.h"
#include "sock/shim/wait.h"

#define PRIVATE_BITS \
        (EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE | (uint32_t)USOCK_POLL_OWN)
#define IN_BITS  (EPOLLIN | EPOLLRDNORM | EPOLLRDBAND | EPOLLPRI | EPOLLRDHUP)
#define OUT_BITS (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND)
#define ON_STACK 64
#define BUCKETS  (1u << 12)

struct epoll_item {
        TAILQ_ENTRY(epoll_item) of_set;
        TAILQ_ENTRY(epoll_item) queue;
        LIST_ENTRY(epoll_item) bucket; /* of the set's, by the number of its socket */
        LIST_ENTRY(epoll_item) full;   /* le_prev NULL: it is not among them */
        struct epoll_item *same_file;  /* or the next that is free */
        struct epoll_set *set;         /* NULL: free */
        struct file *f;
        int fd;
        uint32_t events;
        uint64_t data;
        uint32_t in, out; /* edges that were reported */
        bool off;         /* one-shot, fired */
        bool fresh;       /* new or re-armed: an edge in itself */
        bool in_kernel;
        bool elsewhere; /* ... where another process has it, too */
        bool queued;
        uint64_t tag;     /* that the kernel knows it by */
        uint32_t asked;   /* of the kernel, if it is there */
        struct usock *us; /* that it is in a bucket for */
        unsigned round;   /* the round of its set that reported it, */
        int slot;         /* and where */
};

struct epoll_set {
        pthread_mutex_t lock;
        struct file *owner;     /* whose number is the kernel's half: epoll_kernel_fd() */
        _Atomic int sleepers;   /* threads in set_wait() */
        _Atomic bool kick_once; /* somebody may sleep in the kernel whom nobody has counted */
        TAILQ_HEAD(epoll_members, epoll_item) members;
        int count;
        int nested; /* of them, epoll descriptors */
        /* Of them, datagram sockets of ours that had no room when they were looked at. */
        LIST_HEAD(, epoll_item) full;
        TAILQ_HEAD(, epoll_item) queue;
        int queued;
        struct usock_news seen;
        /* Grows when a member comes to the queue by news: the edge of a set in a set. */
        uint32_t stirred;
        bool kernel_half; /* something was put there */
        bool undecided;   /* a member may be, which another process can decide */
        bool abroad;      /* another process has the kernel's half, too */
        bool tags;        /* ... and members have tags that are that one's */
        unsigned round;   /* grows with each call that reports */
        unsigned nobodys; /* answers in a row of the kernel's with nothing for anybody here */
        struct kernel_watch watch; /* of the kernel's half */
        _Atomic int kick;          /* eventfd in the kernel's half, see kick(); -1: not made */
        int mark, image;           /* epoll_pass.c; -1: not made */
        struct epoll_set *next_free;
        bool live;
        LIST_HEAD(epoll_bucket, epoll_item) bucket[BUCKETS];
};

/* A member, as it goes to another image or process. */
struct epoll_kept {
        int epfd, fd;
        uint32_t events, in, out;
        bool off, fresh, in_kernel;
        uint64_t data, tag, cookie;
        uint64_t inner; /* epoll_pass_name() of a member that is a set; 0: it is none */
};

/* Such members in memory that others can read, and nobody can change any more: a head, then
 * these. */
struct epoll_list {
        int fd;
        void *at;
        unsigned n, most;
};

/* What a call has found. */
struct harvest {
        struct epoll_event *ev;
        int n, max;
        bool fault;             /* the program's memory was not there */
        struct usock_news seen; /* all that happened before this was looked at */
};

/* The kernel's side has something to say: all but a connection of ours, and an epoll set that only
 * has ours. */
static inline bool has_kernel_side(const struct file *f)
{
        return f->mode != MODE_TCP;
}

static inline bool has_our_side(const struct file *f)
{
        return f->mode >= MODE_TCP || (f->mode == MODE_EPOLL && f->set);
}

/* ---- epoll_set.c ---- */

/* A set for an epoll file that is to hold one of ours, NULL: no memory. shim.lock held, as for all
 * that changes members. */
struct epoll_set *epoll_set_new(struct file *owner);
/* Any of its numbers that there are still. */
static inline int epoll_kernel_fd(const struct epoll_set *set)
{
        return set->owner->kfd;
}
/*
 * What the kernel is told of a member: a word of ours, a number that no other process or image has
 * that may have the same set, nor this one had before another had it, and the place in the table.
 * The number is odd. No address, nor half of one beside a number, since among the kernel's answers
 * are the program's own data, and some programs set only the lower half (Python's number of a file;
 * above it is what the stack had).
 */
#define EPOLL_PLACE_BITS  20
#define EPOLL_NUMBER_BITS 22 /* as PID_MAX_LIMIT */
#define EPOLL_WORD(word, number, place)                               \
        ((uint64_t)(word) << (EPOLL_NUMBER_BITS + EPOLL_PLACE_BITS) | \
         (uint64_t)(number) << EPOLL_PLACE_BITS | (place))
static inline bool epoll_has_word(uint64_t data, uint32_t word)
{
        return data >> (EPOLL_NUMBER_BITS + EPOLL_PLACE_BITS) == word;
}
#define EPOLL_TAGS 0x2d6b53u
/* ... and of what kicks a set, in each process. */
#define EPOLL_KICK EPOLL_WORD(EPOLL_TAGS, 0, 0)

/* What an event of the kernel's is about: the program's own; a member; a kick, which is over;
 * something of another process's, which stays for as long as that one leaves it there. */
enum whose { PROGRAMS, MEMBERS, KICK, NOBODYS };
enum whose epoll_whose(struct epoll_set *set, uint64_t data, struct epoll_item **it);
struct epoll_item *epoll_item_find(const struct epoll_set *set, const struct file *f, int fd);
int epoll_item_add(struct epoll_set *set, struct file *f, int fd, const struct epoll_event *ev);
int epoll_item_mod(struct epoll_set *set, struct epoll_item *it, const struct epoll_event *ev);
void epoll_item_remove(struct epoll_item *it, bool in_kernel_too);
int epoll_kernel_ctl(struct epoll_item *it, int op, uint32_t events);
void epoll_each_item(void (*fn)(struct epoll_item *it));
bool epoll_is_one(int fd);
/* The file of an epoll descriptor, which may be older than our table; NULL: it is none. (epoll.c)
 */
struct file *epoll_file(int epfd);
/* A member of a set of another process, or of a former image, by the file that it is here. False:
 * it is none of ours. */
bool epoll_item_comes(struct file *ef, struct file *f, const struct epoll_kept *k);
struct epoll_kept epoll_item_kept(const struct epoll_item *it);
/* Another process has the kernel's half from now on, and what is in it. shim.lock held. */
void epoll_shared(struct epoll_set *set);
/* Wakes those who sleep on the set: its members have changed. */
void epoll_kick(struct epoll_set *set);
/* The kernel reported a kick. False: another process's. */
bool epoll_kicked(struct epoll_set *set);
/* The queue, under the set's lock. */
void epoll_queue_item(struct epoll_set *set, struct epoll_item *it);
struct epoll_item *epoll_queue_take(struct epoll_set *set);
/* Puts those on the queue that have news; of these alone, the datagram sockets that can
 * send again. */
void epoll_hear_news(struct epoll_set *set);
bool epoll_hear_senders(struct epoll_set *set);
/* One that is to be sent from was looked at: a datagram socket that has room again has an edge; one
 * that has none is remembered. */
void epoll_note_room(struct epoll_item *it);

/* ---- epoll_ready.c ---- */

/* When the kernel's half is asked: by the sleep that follows; if nothing of ours is ready; after
 * ours; or, that it is not starved, before. */
enum kernels_turn { KERNEL_LATER, KERNEL_IF_NOTHING, KERNEL_TOO, KERNEL_FIRST };
/* Fills h with what is ready. How many; -EFAULT. */
int epoll_harvest(struct epoll_set *set, struct harvest *h, enum kernels_turn turn);
/* The kernel reported a member of ours. The set's lock is held, and its round has begun. */
void epoll_harvest_member(struct harvest *h, struct epoll_set *set, struct epoll_item *it,
                          uint32_t revents);

/* ---- epoll_image.c ---- */

#define LIST_NAME "unet-epoll"
/* One for so many members, of this process's; 0 or -errno. What is its descriptor when all are in
 * it; -errno. */
int epoll_list_begin(struct epoll_list *l, uint32_t magic, unsigned most);
void epoll_list_add(struct epoll_list *l, const struct epoll_item *it);
int epoll_list_end(struct epoll_list *l);
/* Returns true if fd is one of that process's. Member i of it; false: there are no more. */
bool epoll_list_is(int fd, uint32_t magic, uint32_t pid);
bool epoll_list_get(int fd, unsigned i, struct epoll_kept *k);

/* ---- epoll_pass.c ---- */

/* What the set has for whoever gets it. */
void epoll_pass_ended(struct epoll_set *set);
bool epoll_pass_owns(int fd);
/* What the set is known by to whoever has been passed it; NULL, or 0: nobody has. */
uint64_t epoll_pass_name(const struct epoll_set *set);

/* ---- epoll_wait.c ---- */

/* epoll_pwait2() on a set with members: how many events, or a negative errno. */
int epoll_set_wait(struct epoll_set *set, struct epoll_event *ev, int max, struct until *u,
                   const sigset_t *mask);

#endif
