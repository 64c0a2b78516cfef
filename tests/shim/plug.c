/* A plug-in that opens and uses connections. */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t say(int fd, const char *text);
int dial(const struct sockaddr_in *to);

static ssize_t (*const through_a_pointer)(int, const void *, size_t, int) = send;

ssize_t say(int fd, const char *text)
{
        char b[64];
        ssize_t r = through_a_pointer(fd, text, strlen(text), 0);

        return r < 0 ? r : read(fd, b, sizeof(b));
}

int dial(const struct sockaddr_in *to)
{
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0 ||
            write(fd, "dialled", 7) != 7)
                return -1;
        return fd;
}

int shutdown(int fd, int how)
{
        return fd + 1;
}
