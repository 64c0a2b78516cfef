/*
 * How ranks of several hosts meet: by TCP, at an address of the host where `unet am run --hosts`
 * runs.
 *
 *      rank                                            unet am run --hosts (tools/am_hosts.c)
 *        opens a door of its own
 *        connects, says its hello  ------------------>   takes a hello of each rank
 *        <------------------  where all ranks' doors are
 *
 *   rank 5                                          rank 2
 *     connects to 2's door, says its hello  ------>   takes rank 5's hello, whoever else came first
 *     the socket is unet_verbs_over()'s               and so is this end
 *
 * A hello bears the job's key, 128 random bits that ranks get in their environment. Who does not
 * know it is shut out, and holds nobody up: a door waits for all who came at once, and lets the
 * oldest without a hello go for a new one.
 */
#ifndef AM_MEET_H
#define AM_MEET_H

#include <sys/socket.h>

#include "am/am_job.h"
#include "base/base.h"
#include "base/clock.h"

#define AM_KEY    16u
#define AM_ANYONE UINT32_MAX

struct am_hello { /* on the wire */
        be32 magic, rank;
        be32 port; /* of the rank's door; to another rank: 0 */
        be32 zero;
        uint8_t key[AM_KEY];
};
static_assert(sizeof(struct am_hello) == 32, "the same in every build");

struct am_address {   /* on the wire: a door */
        ip_addr addr; /* IPv4: mapped */
        be32 port, zero;
};
static_assert(sizeof(struct am_address) == 24, "the same in every build");

#define AM_KNOCKERS (AM_JOB_MOST + 64u)

struct am_door {
        int fd;
        uint32_t n;
        /* Came and not taken; AM_ANYONE: has not said its hello. */
        struct {
                int sock;
                uint32_t rank;
        } who[AM_KNOCKERS];
};

/* "ADDRESS PORT", numeric. -EINVAL. */
int am_address_read(const char *text, struct am_address *out);
void am_address_write(const struct am_address *a, char *text, size_t max);
/* Of this end of a socket, or of the other. */
int am_address_of(int sock, bool peer, struct am_address *out);
/* Key and text of 2 * AM_KEY hexadecimal digits. */
bool am_key_read(const char *text, uint8_t key[AM_KEY]);
void am_key_write(const uint8_t key[AM_KEY], char text[2 * AM_KEY + 1]);

/* Listens at the address, on a port of the system's choice. */
int am_door_open(struct am_door *d, const struct am_address *at);
/* The next socket whose hello has the key and is of the rank (AM_ANYONE), its hello
 * read. -ETIMEDOUT. */
int am_door_take(struct am_door *d, const uint8_t key[AM_KEY], uint32_t rank, nstime until,
                 struct am_hello *hello);
void am_door_close(struct am_door *d);

/* A rank's part. */
struct am_meeting {
        uint32_t rank, ranks;
        uint8_t key[AM_KEY];
        struct am_door door;
        struct am_address at[AM_JOB_MOST];
};
/* Goes to the address, and comes back when all ranks have been there. */
int am_meet(struct am_meeting *m, const struct am_address *where, nstime until);
/* A socket to the rank, which calls this too. */
int am_meet_rank(struct am_meeting *m, uint32_t with, nstime until);

/* All of a socket's next bytes, or that many, in time. 0, -ETIMEDOUT, -EPIPE. */
int am_receive_all(int sock, void *to, size_t len, nstime until);

#endif
