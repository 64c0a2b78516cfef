/* Where libibverbs was not there at configure time: the same calls, which say so. */
#include <errno.h>
#include <stdio.h>

#include <unet/unet.h>

int unet_verbs_over(struct unet_ep *ep, int sock, int64_t timeout, uint32_t *chan)
{
        (void)ep;
        (void)sock;
        (void)timeout;
        (void)chan;
        return -ENOSYS;
}

int unet_verbs_describe(char *text, size_t max)
{
        snprintf(text, max, "no RDMA devices: built without libibverbs\n");
        return 0;
}
