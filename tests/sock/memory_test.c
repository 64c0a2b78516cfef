/*
 * What a program with one connection has of memory: its own (RssAnon) and shared (RssShmem), beside
 * what it had before its first socket. The bounds are twice what it takes: the kernel maps, beside
 * what is touched, what others have (fault-around).
 */
#include "tests/sock/sides.h"

#include <sys/prctl.h>

/*
 * Private: struct ustack with a view of each channel that there may be. Shared: of the stack's
 * state the tables of processes, waiters and channels that were looked through, a page or two of
 * each pool; of both regions of the channel the rings as far as they have turned, and frames in
 * use; the directory.
 */
#define PRIVATE_KB 460
#define SHARED_KB  1540
#define TIMES      100

static long kilobytes(const char *what)
{
        FILE *f = fopen("/proc/self/status", "re");
        char line[128], name[32];
        long n = -1, kb;

        CHECK(f != NULL);
        while (n < 0 && fgets(line, sizeof line, f) != NULL)
                if (sscanf(line, "%31[^:]: %ld kB", name, &kb) == 2 && strcmp(name, what) == 0)
                        n = kb;
        fclose(f);
        CHECK(n >= 0);
        return n;
}

/* What has how much of it. */
static void print_mappings(void)
{
        FILE *f = fopen("/proc/self/smaps", "re");
        char line[256], name[256] = "";
        long kb;

        while (f != NULL && fgets(line, sizeof line, f) != NULL)
                if (sscanf(line, "Rss: %ld", &kb) == 1 && kb >= 16)
                        printf("%6ld KB %s", kb, name);
                else if (strchr(line, '-') != NULL)
                        snprintf(name, sizeof name, "%s", line);
        fclose(f);
}

struct memory {
        long own, shared;
};

static struct memory memory_now(void)
{
        return (struct memory){kilobytes("RssAnon"), kilobytes("RssShmem")};
}

/* No huge page comes where a small one is touched. */
static struct memory memory_before(void)
{
        CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
        return memory_now();
}

static void takes_little(const char *who, struct memory before)
{
        struct memory now = memory_now();

        now.own -= before.own;
        now.shared -= before.shared;
        printf("%s: %ld KB of its own, %ld KB shared\n", who, now.own, now.shared);
        if (now.own > PRIVATE_KB || now.shared > SHARED_KB)
                print_mappings();
        CHECK(now.own <= PRIVATE_KB && now.shared <= SHARED_KB);
}

static void round_trips(int c, bool begins)
{
        char buf[1000] = {0};

        for (int i = 0; i < TIMES; i++) {
                if (begins)
                        CHECK(unet_send(c, buf, sizeof buf, 0) == sizeof buf);
                CHECK(unet_recv(c, buf, sizeof buf, MSG_WAITALL) == sizeof buf);
                if (!begins)
                        CHECK(unet_send(c, buf, sizeof buf, 0) == sizeof buf);
        }
}

static void client(struct side *s)
{
        struct memory before = memory_before();
        int c = side_connect(s);

        round_trips(c, true);
        takes_little("client", before);
        hear(s);
}

static void server(struct side *s)
{
        struct memory before = memory_before();
        int c = side_accept(s);

        round_trips(c, false);
        takes_little("server", before);
        tell(s, 0);
}

static void a_program_with_one_connection(void **state)
{
        play(TWO_PROCESSES, client, server, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_program_with_one_connection),
        };

        return run_sides(tests);
}
