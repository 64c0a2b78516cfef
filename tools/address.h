/* Addresses as text. */
#ifndef TOOLS_ADDRESS_H
#define TOOLS_ADDRESS_H

#include <jansson.h>

#include "base/base.h"

#define ADDRESS_TEXT 64

/* "10.0.0.2", "2001:db8::1", "*" for the wildcard. */
void address_format(ip_addr a, char text[ADDRESS_TEXT]);
json_t *address_json(ip_addr a);
/* The same with a port: "10.0.0.2:80", "[2001:db8::1]:80", "*:80"; port 0 is "*". */
json_t *address_port_json(ip_addr a, uint16_t port);

#endif
