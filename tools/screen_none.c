/* See screen.h: built without ncurses. */
#include "tools/screen.h"

bool screen_begin(void)
{
        return false;
}

void screen_draw(const char *text)
{
}

enum screen_event screen_wait(nstime until)
{
        return SCREEN_QUIT;
}

void screen_end(void)
{
}
