/* See screen.h: with ncurses. */
#include "tools/screen.h"

#include <curses.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static SCREEN *screen;
static sigset_t outside; /* the signals that were blocked before: while it waits */
static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
        stop = 1;
}

/* Signals come while it waits and at no other time, so that none is lost. */
static void hold_signals(void)
{
        struct sigaction sa = {.sa_handler = on_signal};
        sigset_t held;

        sigemptyset(&held);
        sigaddset(&held, SIGWINCH);
        sigaddset(&held, SIGINT);
        sigaddset(&held, SIGTERM);
        sigaddset(&held, SIGHUP);
        sigprocmask(SIG_BLOCK, &held, &outside);
        sigaction(SIGINT, &sa, NULL);
        sigaction(SIGTERM, &sa, NULL);
        sigaction(SIGHUP, &sa, NULL);
}

bool screen_begin(void)
{
        if (!isatty(STDOUT_FILENO))
                return false;
        setlocale(LC_CTYPE, "");
        screen = newterm(NULL, stdout, stdin);
        if (!screen)
                return false;
        hold_signals();
        cbreak();
        noecho();
        nonl();
        curs_set(0);
        keypad(stdscr, TRUE);
        nodelay(stdscr, TRUE);
        return true;
}

void screen_draw(const char *text)
{
        erase();
        for (int y = 0; y < LINES && *text; y++) {
                size_t n = strcspn(text, "\n");

                mvaddnstr(y, 0, text, (int)MIN(n, (size_t)COLS));
                text += n + (text[n] == '\n');
        }
        refresh();
}

/* All keys that were pressed; a change of size is one of them. */
static enum screen_event read_keys(void)
{
        enum screen_event e = SCREEN_TIME;
        int key;

        while ((key = getch()) != ERR) {
                if (key == 'q' || key == 'Q')
                        return SCREEN_QUIT;
                if (key == KEY_RESIZE) {
                        /* Who knows what the terminal made of the old picture. */
                        clearok(curscr, TRUE);
                        e = SCREEN_RESIZED;
                }
        }
        return e;
}

enum screen_event screen_wait(nstime until)
{
        enum screen_event e = SCREEN_TIME;

        while (e == SCREEN_TIME && !stop) {
                nstime left = until - clock_now();
                struct timespec ts = {left / NS_PER_S, left % NS_PER_S};
                struct pollfd keys = {.fd = isatty(STDIN_FILENO) ? STDIN_FILENO : -1,
                                      .events = POLLIN};

                if (left <= 0)
                        return SCREEN_TIME;
                ppoll(&keys, 1, &ts, &outside);
                if (keys.revents & (POLLHUP | POLLERR | POLLNVAL))
                        return SCREEN_QUIT;
                e = read_keys();
        }
        return stop ? SCREEN_QUIT : e;
}

void screen_end(void)
{
        endwin();
        delscreen(screen);
}
