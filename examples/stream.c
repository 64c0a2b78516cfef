/*
 * Raw U-Net, stream: the parent sends messages as fast as they are taken, the child counts them.
 * Prints bandwidth and messages a second for each size. What the child's free queue could not take
 * in is lost and told.
 *
 *      unet_stream [--provider shm|direct|emul|verbs] [--batch N] [--read] [--json]
 */
#include <errno.h>
#include <string.h>

#include "example.h"

#define PIECES 32u /* of the transmit part, used in turn */

#define PATIENCE 100000000 /* ns for an answer */

/* One byte, its number, ends a measurement: the child answers with what it got. Where messages may
 * be lost, so may these: the parent asks again. Two bytes end the program. */
struct report {
        uint64_t number, msgs, bytes;
};

static volatile uint64_t sink; /* so that reading is not optimised away */

/* Asked a second time, it answers the same. */
static void answer(struct side *s, uint8_t number, struct report *r, struct report *last)
{
        if (last->number != number) {
                *last = *r;
                last->number = number;
                *r = (struct report){0};
        }
        memcpy(s->seg.base, last, sizeof *last);
        send_all(s, 0, sizeof *last);
}

static void count(struct side *s, const struct options *o)
{
        struct report r = {0}, last = {0};
        struct unet_recv m[BATCH_MAX];

        for (;;) {
                int n = receive(s, m, BATCH_MAX);
                for (int i = 0; i < n; i++) {
                        if (m[i].len == 2)
                                return;
                        if (m[i].len == 1) {
                                answer(s, m[i].inl[0], &r, &last);
                                continue;
                        }
                        r.msgs++;
                        r.bytes += m[i].len;
                }
                if (o->read)
                        sink = read_all(m, n);
                give_back(s, m, n);
        }
}

static void fill(struct side *s, struct unet_send m[BATCH_MAX], int batch, uint32_t size,
                 uint32_t *piece)
{
        for (int i = 0; i < batch; i++) {
                uint32_t off = (*piece)++ % PIECES * 65536u;
                m[i] = (struct unet_send){.chan = s->chan};
                if (size <= UNET_EP_INLINE) {
                        m[i].inl = s->seg.base + off;
                        m[i].inl_len = (uint16_t)size;
                } else {
                        m[i].nfrags = 1;
                        m[i].frag[0] = (struct unet_frag){off, size};
                }
        }
}

/* Sends a batch whole, waiting when the queue is full. Which piece is still under way is not asked:
 * the example sends the same bytes over and over. */
static void send_batch(struct side *s, const struct unet_send m[BATCH_MAX], int batch)
{
        int done = 0, n;

        while (done < batch) {
                n = unet_ep_send(s->ep, m + done, batch - done);
                if (n > 0)
                        done += n;
                else if (n == -EAGAIN)
                        unet_ep_wait(s->ep, UNET_WRITABLE | UNET_CLOSED, UNET_FOREVER);
                else
                        die("unet_ep_send", n);
        }
}

static void print(const struct options *o, uint32_t size, uint64_t sent, const struct report *r,
                  double seconds)
{
        double gbps = (double)r->bytes * 8 / seconds / 1e9, mmsgs = (double)r->msgs / seconds / 1e6;

        if (o->json)
                printf("{\"bytes\": %u, \"gbps\": %.3f, \"mmsgs\": %.3f, \"sent\": %llu, \"lost\": "
                       "%llu}\n",
                       size, gbps, mmsgs, (unsigned long long)sent,
                       (unsigned long long)(sent - r->msgs));
        else
                printf("%8u %12.2f %12.3f %12llu\n", size, gbps, mmsgs,
                       (unsigned long long)(sent - r->msgs));
}

/* Asks for the report until it comes. */
static struct report ask(struct side *s)
{
        static uint8_t number;
        struct report r = {0};
        struct unet_recv back;

        number = number % 255 + 1;
        do {
                s->seg.base[0] = number;
                send_all(s, 0, 1);
                while (r.number != number && unet_ep_wait(s->ep, UNET_READABLE, PATIENCE) > 0) {
                        receive(s, &back, 1);
                        memcpy(&r, back.inl, sizeof r);
                        give_back(s, &back, 1);
                }
        } while (r.number != number);
        return r;
}

static void measure(struct side *s, const struct options *o, uint32_t size)
{
        struct unet_send m[BATCH_MAX];
        struct report r;
        uint32_t piece = 0;
        uint64_t sent = 0;
        double start = now();

        do {
                for (int i = 0; i < 16; i++, sent += (uint64_t)o->batch) {
                        fill(s, m, o->batch, size, &piece);
                        send_batch(s, m, o->batch);
                }
        } while (now() < start + o->seconds);
        r = ask(s);
        print(o, size, sent, &r, now() - start);
}

int main(int argc, char **argv)
{
        struct options o = options_read(
                argc, argv, "A stream of messages between two processes, over raw U-Net.");
        struct side s = start(&o);

        if (s.child) {
                count(&s, &o);
                finish(&s);
        }
        if (!o.json)
                printf("%8s %12s %12s %12s   (%s%s)\n", "bytes", "Gb/s", "M msg/s", "lost",
                       o.provider, o.read ? ", every byte read" : "");
        each_size(&s, &o, measure);
        send_all(&s, 0, 2);
        finish(&s);
        return 0;
}
