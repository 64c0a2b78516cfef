/*
 * A program that has one connection, and children that have inherited it, as many as the stack has
 * process slots for: each answers in its turn, and the fork after the last is refused.
 *
 *     shim_forks PORT     to a server that echoes; prints how many children there were
 *
 * Then one of them is killed, and there is room for another.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST  5000 /* children */
#define TRIES 10000

static pid_t child[MOST];
static int turn[2], done[2]; /* pipes */

static void must(int right, const char *what)
{
        if (right)
                return;
        perror(what);
        exit(1);
}

static int connect_to(uint16_t port)
{
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons(port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int c = socket(AF_INET, SOCK_STREAM, 0);

        must(c >= 0 && connect(c, (struct sockaddr *)&to, sizeof to) == 0, "connect");
        return c;
}

/* One question and its answer for each byte that comes by the pipe; which child takes it is all the
 * same. */
static void answers(int c)
{
        char byte, back;

        while (read(turn[0], &byte, 1) == 1) {
                must(send(c, &byte, 1, 0) == 1 && recv(c, &back, 1, 0) == 1 && back == byte,
                     "answer");
                must(write(done[1], &byte, 1) == 1, "write");
                if (byte == 'l')
                        _exit(0);
        }
        _exit(1);
}

static pid_t begin(int c)
{
        pid_t pid = fork();

        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                answers(c);
        }
        return pid;
}

int main(int argc, char **argv)
{
        int c, n = 0, more = -1;
        char byte;

        must(argc == 2 && pipe(turn) == 0 && pipe(done) == 0, "pipe");
        c = connect_to((uint16_t)atoi(argv[1]));
        while (n < MOST && (child[n] = begin(c)) > 0)
                n++;
        must(n < MOST && errno == EAGAIN, "fork");
        kill(child[0], SIGKILL);
        waitpid(child[0], NULL, 0);
        for (int i = 0; i < TRIES && (more = begin(c)) < 0; i++)
                usleep(1000);
        must(more > 0, "the fork after an end");
        child[0] = more;
        for (int i = 0; i < n; i++) /* each takes one, and ends */
                must(write(turn[1], "l", 1) == 1 && read(done[0], &byte, 1) == 1, "turn");
        for (int i = 0; i < n; i++) {
                int status;
                must(waitpid(child[i], &status, 0) == child[i] && status == 0, "child");
        }
        printf("%d\n", n);
        return 0;
}
