/*
 * A stand-in for RDMA devices: an unetd with it (tests/unetd/CMakeLists.txt) takes for another
 * host's agent who sends a datagram to its socket, and for the maker of a queue pair the thread of
 * that number. A host that it asks is who has bound that host's name, and sends the answer back
 * with the same number. One of a name that nobody has is silent.
 */
#ifndef TESTS_UNETD_FAKE_AGENT_H
#define TESTS_UNETD_FAKE_AGENT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "unetd/agent/cm.h"

struct fake_question {
        uint32_t from; /* the host, IPv4 in host order */
        uint8_t data[CM_ASK_MAX];
};

/* From that unetd, or back. */
struct fake_word {
        uint32_t number;
        uint8_t data[CM_ASK_MAX];
};

static inline socklen_t fake_name(struct sockaddr_un *sun, const char *what, const char *domain,
                                  uint32_t addr)
{
        *sun = (struct sockaddr_un){.sun_family = AF_UNIX};
        snprintf(sun->sun_path + 1, sizeof sun->sun_path - 1, "unet-fake-%s-%s-%08x", what, domain,
                 addr);
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(sun->sun_path + 1));
}

/* The socket of a device, by its address. The answer comes back to who sent. */
static inline socklen_t fake_agent_name(struct sockaddr_un *sun, const char *domain, uint32_t addr)
{
        return fake_name(sun, "agent", domain, addr);
}

/* The socket of another host. */
static inline socklen_t fake_host_name(struct sockaddr_un *sun, const char *domain, uint32_t addr)
{
        return fake_name(sun, "host", domain, addr);
}

#endif
