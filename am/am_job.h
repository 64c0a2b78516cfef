/*
 * What `unet am run` hands to its ranks, in the environment:
 *
 *   UNET_AM_RANK=2  UNET_AM_RANKS=8  UNET_AM_JOB=NUMBER
 *   UNET_AM_SOCKETS=5,6,-1,7,...    shared memory: a socket to each rank, -1 to itself
 *   UNET_AM_NAME=am-PID-NUMBER      through unetd: NAME-LOW-HIGH is where LOW listens for HIGH
 *   UNET_AM_MEET="ADDRESS PORT"     several hosts: where ranks meet (am_meet.h), the job's key. A
 *   UNET_AM_KEY=HEX                 rank of another host has no socket among UNET_AM_SOCKETS: it is
 *                                   talked to over verbs
 *
 * and what the user may: UNET_AM_YIELD=1, a rank that waits gives its processor up at each look.
 */
#ifndef AM_JOB_H
#define AM_JOB_H

#define AM_JOB_RANK    "UNET_AM_RANK"
#define AM_JOB_RANKS   "UNET_AM_RANKS"
#define AM_JOB_NUMBER  "UNET_AM_JOB"
#define AM_JOB_SOCKETS "UNET_AM_SOCKETS"
#define AM_JOB_NAME    "UNET_AM_NAME"
#define AM_JOB_MEET    "UNET_AM_MEET"
#define AM_JOB_KEY     "UNET_AM_KEY"
#define AM_JOB_YIELD   "UNET_AM_YIELD"
#define AM_JOB_MOST    128u /* ranks: a socket for each pair, and a link of the endpoint */

#endif
