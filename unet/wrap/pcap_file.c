/* The pcap file format: a header of 24 bytes, then 16 bytes and the packet, each in the writer's
 * byte order. */
#include "unet/wrap/pcap_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC        0xa1b23c4du /* times in nanoseconds */
#define LINKTYPE_RAW 101u
#define SNAPLEN_ALL  262144u

struct pcap_file {
        FILE *out;
        uint32_t snaplen;
        uint32_t left; /* bytes of the packet still to come */
        int err;
};

static void put(struct pcap_file *f, const void *bytes, size_t n)
{
        if (f->err == 0 && fwrite(bytes, 1, n, f->out) != n)
                f->err = errno != 0 ? -errno : -EIO;
}

int pcap_file_open(const char *path, uint32_t snaplen, struct pcap_file **out)
{
        uint32_t snap = snaplen != 0 ? snaplen : SNAPLEN_ALL;
        uint32_t head[6] = {MAGIC, 4u << 16 | 2u, 0, 0, snap, LINKTYPE_RAW};
        struct pcap_file *f = calloc(1, sizeof *f);
        int err;

        if (f == NULL)
                return -ENOMEM;
        f->snaplen = snap;
        f->out = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
        if (f->out == NULL) {
                err = -errno;
                free(f);
                return err;
        }
        put(f, head, sizeof head);
        *out = f;
        return 0;
}

static void begin(struct pcap_file *f, nstime at, uint32_t kept, uint32_t len)
{
        uint32_t head[4] = {(uint32_t)(at / NS_PER_S), (uint32_t)(at % NS_PER_S),
                            MIN(kept, f->snaplen), len};

        f->left = head[2];
        put(f, head, sizeof head);
}

void pcap_file_begin(struct pcap_file *f, nstime at, uint32_t len)
{
        begin(f, at, len, len);
}

void pcap_file_add(struct pcap_file *f, const void *bytes, size_t n)
{
        uint32_t k = (uint32_t)MIN(n, (size_t)f->left);

        put(f, bytes, k);
        f->left -= k;
}

void pcap_file_packet(struct pcap_file *f, nstime at, const void *bytes, uint32_t kept,
                      uint32_t len)
{
        begin(f, at, kept, len);
        pcap_file_add(f, bytes, kept);
}

int pcap_file_close(struct pcap_file *f)
{
        int err = f->err;

        if ((f->out == stdout ? fflush(stdout) : fclose(f->out)) != 0 && err == 0)
                err = -errno;
        free(f);
        return err;
}
