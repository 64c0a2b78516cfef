/* A page over HTTP, for who collects metrics: GET / or /metrics, one page a connection. */
#ifndef TOOLS_SERVE_H
#define TOOLS_SERVE_H

#include <stdio.h>

/*
 * Serves at "ADDRESS:PORT", "PORT" (of 127.0.0.1), or the path of a Unix socket, which has a "/",
 * until SIGINT or SIGTERM. Each page is made and sent by a child, which has ten seconds for it.
 * Returns NULL, or why it cannot serve.
 */
const char *serve_page(const char *where, const char *type, void (*page)(FILE *out));

#endif
