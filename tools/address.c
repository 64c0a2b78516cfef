/* Addresses as text. */
#include "tools/address.h"

#include <arpa/inet.h>
#include <stdio.h>

void address_format(ip_addr a, char text[ADDRESS_TEXT])
{
        if (ip_addr_is_any(a))
                strcpy(text, "*");
        else if (ip_addr_is_v4(a))
                inet_ntop(AF_INET, (const uint8_t *)&a + 12, text, ADDRESS_TEXT);
        else
                inet_ntop(AF_INET6, &a, text, ADDRESS_TEXT);
}

static void address_port_format(ip_addr a, uint16_t port, char text[ADDRESS_TEXT])
{
        char addr[ADDRESS_TEXT], number[8] = "*";

        address_format(a, addr);
        if (port != 0)
                snprintf(number, sizeof number, "%u", port);
        snprintf(text, ADDRESS_TEXT, strchr(addr, ':') ? "[%.46s]:%s" : "%.46s:%s", addr, number);
}

json_t *address_json(ip_addr a)
{
        char text[ADDRESS_TEXT];

        address_format(a, text);
        return json_string(text);
}

json_t *address_port_json(ip_addr a, uint16_t port)
{
        char text[ADDRESS_TEXT];

        address_port_format(a, port, text);
        return json_string(text);
}
