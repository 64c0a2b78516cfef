/*
 * A stand-in for RDMA devices: an unetd with it (tests/unetd/CMakeLists.txt) takes for another
 * host's agent who sends a datagram to its socket, and for the maker of a queue pair the thread of
 * that number. It reaches no other host.
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

/* The socket of a device, by its address. The answer comes back to who sent. */
static inline socklen_t fake_agent_name(struct sockaddr_un *sun, const char *domain, uint32_t addr)
{
        *sun = (struct sockaddr_un){.sun_family = AF_UNIX};
        snprintf(sun->sun_path + 1, sizeof sun->sun_path - 1, "unet-fake-agent-%s-%08x", domain,
                 addr);
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(sun->sun_path + 1));
}

#endif
