/*
 * A terminal that is drawn anew whenever there is news or its size changes. Built without ncurses,
 * or where standard output is no terminal, there is none.
 */
#ifndef TOOLS_SCREEN_H
#define TOOLS_SCREEN_H

#include <stdbool.h>

#include "base/base.h"

enum screen_event { SCREEN_TIME, SCREEN_RESIZED, SCREEN_QUIT };

/* Takes the terminal over. False: there is none that can be drawn on. */
bool screen_begin(void);
/* Draws lines of text, cut at the edges. */
void screen_draw(const char *text);
/* Waits until the time (base/clock.h), a new size, the key q, or a signal that ends the program. */
enum screen_event screen_wait(nstime until);
/* Gives the terminal back as it was. */
void screen_end(void);

#endif
