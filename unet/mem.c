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

/* What of a piece of n bytes, which is the next of the message, is in the part that is still
 * to come. */
static void take(const uint8_t *piece, uint32_t n, uint32_t *from, uint32_t *len, uint8_t **to)
{
        uint32_t skip = MIN(*from, n), got = MIN(n - skip, *len);

        memcpy(*to, piece + skip, got);
        *to += got;
        *from -= skip;
        *len -= got;
}

bool unet_mem_gather_part(const struct unet_mem *m, const struct unet_tx *tx, uint32_t from,
                          uint32_t len, uint8_t *to)
{
        const uint8_t *piece;

        take(tx->inl, tx->inl_len, &from, &len, &to);
        for (int i = -1; tx->frame != 0 && len > 0 && i < tx->nmore; i++) {
                struct unet_range r = i < 0 ? (struct unet_range){tx->off, tx->len} : tx->more[i];
                piece = unet_mem_at(m, tx->frame, r.off, r.len);
                if (piece == NULL)
                        return false;
                take(piece, r.len, &from, &len, &to);
        }
        return len == 0;
}
