/*
 * What one side of a raw shared-memory channel gives the other: its ring and its station, as sealed
 * memory that the receiver checks before it maps it.
 */
#ifndef UNET_SHM_OFFER_H
#define UNET_SHM_OFFER_H

#include "base/frame.h"

struct shm_offer {
        uint64_t region_bytes, station_bytes;
        /* Of the frames in the region; all zero: payload lies in the station. */
        struct frame_geom geom;
        int region, station; /* read-only descriptors */
};

#endif
