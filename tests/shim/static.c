/* A program without a loader, so without the library: what it inherits is the kernel's socket. Says
 * that it runs, and serves one. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* The last two arguments: the listener, and where to say it. */
int main(int argc, char **argv)
{
        char b[16];
        ssize_t n;
        int fd;

        if (argc < 3 || write(atoi(argv[argc - 1]), "", 1) != 1)
                return 2;
        fd = accept(atoi(argv[argc - 2]), NULL, NULL);
        n = read(fd, b, sizeof(b));
        return n > 0 && write(fd, b, (size_t)n) == n ? 0 : 1;
}
