/* Gathering a message out of a region. */
#include "unet/mem.h"

bool unet_mem_gather(const struct unet_mem *m, const struct unet_tx *tx, uint8_t *to)
{
        const uint8_t *from;

        memcpy(to, tx->inl, tx->inl_len);
        to += tx->inl_len;
        if (tx->frame == 0)
                return true;
        from = unet_mem_at(m, tx->frame, tx->off, tx->len);
        if (from == NULL)
                return false;
        memcpy(to, from, tx->len);
        to += tx->len;
        for (int i = 0; i < tx->nmore; i++) {
                from = unet_mem_at(m, tx->frame, tx->more[i].off, tx->more[i].len);
                if (from == NULL)
                        return false;
                memcpy(to, from, tx->more[i].len);
                to += tx->more[i].len;
        }
        return true;
}
