/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * live.c - status lines that are updated in place on a terminal
 *
 * The cursor stays at the end of the last line. Terminals fold lines when the window becomes narrower: the number of
 * lines to move up is counted for the new width.
 */
#include "daemon/cli/live.h"

#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct live *current; /* the one on the screen */

bool live_possible(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

void live_size(unsigned *columns, unsigned *rows)
{
    struct winsize ws;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) == 0;
    *columns = known && ws.ws_col >= SCREEN_MIN ? ws.ws_col : 80;
    *rows = known && ws.ws_row > 0 ? ws.ws_row : 24;
}

/* To the start of the first line. */
static void rewind_cursor(const struct live *l, unsigned columns)
{
    unsigned up = 0;
    for (unsigned i = 0; i < l->n; i++)
        up += l->widths[i] > columns ? (l->widths[i] + columns - 1) / columns : 1;
    fputc('\r', stderr);
    if (up > 1)
        fprintf(stderr, "\033[%uA", up - 1);
}

static void draw_lines(struct live *l, char *const *lines, unsigned n)
{
    unsigned columns, rows;
    live_size(&columns, &rows);
    if (n > LIVE_LINES)
        n = LIVE_LINES;
    if (n >= rows)
        n = rows > 1 ? rows - 1 : 1;
    if (l->n)
        rewind_cursor(l, columns);
    if (l->n && l->columns != columns)
        fputs("\033[J", stderr);
    for (unsigned i = 0; i < n; i++) {
        const char *text = text_cut(lines[i], columns - 1);
        l->widths[i] = text_width(text);
        fprintf(stderr, "%s\033[K%s", text, i + 1 < n ? "\r\n" : "");
    }
    if (n < l->n)
        fputs("\033[J", stderr);
    l->n = n;
    l->columns = columns;
    fflush(stderr);
}

static void clear_lines(struct live *l)
{
    unsigned columns, rows;
    if (!l->n)
        return;
    live_size(&columns, &rows);
    rewind_cursor(l, columns);
    fputs("\033[J", stderr);
    fflush(stderr);
    l->n = 0;
}

void live_draw(struct live *l, char *const *lines, unsigned n)
{
    pthread_mutex_lock(&lock);
    draw_lines(l, lines, n);
    current = l;
    pthread_mutex_unlock(&lock);
}

void live_clear(struct live *l)
{
    pthread_mutex_lock(&lock);
    clear_lines(l);
    if (current == l)
        current = NULL;
    pthread_mutex_unlock(&lock);
}

void live_print(const char *escaped)
{
    pthread_mutex_lock(&lock);
    if (current)
        clear_lines(current);
    unsigned columns = SCREEN_ENDLESS, rows;
    if (isatty(STDERR_FILENO))
        live_size(&columns, &rows);
    print_within(stderr, escaped, 0, 4, columns);
    fflush(stderr);
    pthread_mutex_unlock(&lock);
}
