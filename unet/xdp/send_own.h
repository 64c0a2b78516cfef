/* What send_prog.bpf.c and send_check.c agree on. */
#ifndef UNET_SEND_OWN_H
#define UNET_SEND_OWN_H

#include <linux/types.h>

#define SEND_MARK 0x756e6574u /* of packets that are to be checked: "unet" */

struct send_own {
        __u32 addr; /* as on the wire */
        __u8 mac[6];
        __u16 zero;
};

#endif
