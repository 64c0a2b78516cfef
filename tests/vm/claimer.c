/*
 * claimer QPN: a stack of its own names queue pairs as its own: QPN, which is another process's,
 * one that there is none of, and its own. Succeeds when only the last is taken.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unet/sock.h>

#include "sock/attach/ustack.h"
#include "sock/attach/ustack_daemon.h"

#define NOBODYS 0xfffff0u

/* 0 or a negative errno, as unetd says. */
static int claim(struct ustack *u, uint32_t qpn)
{
        int err = unetd_link_drive(ustack_client(), u->id, UNETD_IFACE, qpn, 1, 4096, 1);

        ustack_client_done();
        printf("claimer: queue pair %u: %s\n", qpn, strerror(-err));
        return err;
}

int main(int argc, char **argv)
{
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(7999)};
        struct ustack *u = NULL;
        int err = 0, sock;

        if (argc != 2)
                return 2;
        sock = unet_socket(AF_INET, SOCK_DGRAM, 0);
        if (unet_bind(sock, (struct sockaddr *)&any, sizeof any) == 0)
                u = ustack_mine(&err);
        if (!u || !u->link[0]) {
                fprintf(stderr, "claimer: no queue pair: %s\n", strerror(err != 0 ? -err : errno));
                return 1;
        }
        if (claim(u, (uint32_t)strtoul(argv[1], NULL, 0)) != -EPERM || claim(u, NOBODYS) != -EPERM)
                return 1;
        return claim(u, vlink_shared(u->link[0])->qpn) != 0;
}
