/* SPDX-License-Identifier: GPL-2.0-or-later */
/* screen.c - size and colours of the screen, and wrapped text */
#include "daemon/cli/daemon.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

/* ---- size ---- */

static bool wide;

void screen_set_wide(bool on)
{
    wide = on;
}

static unsigned from_environment(const char *name, unsigned least)
{
    const char *text = getenv(name);
    char *end;
    if (!text || *text < '0' || *text > '9')
        return 0;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    return !errno && !*end && n >= least && n <= 10000 ? (unsigned)n : 0;
}

unsigned screen_width(void)
{
    struct winsize ws;
    if (wide)
        return SCREEN_ENDLESS;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col >= SCREEN_MIN)
        return ws.ws_col;
    unsigned n = from_environment("COLUMNS", SCREEN_MIN);
    /* In a pipe values are complete, and each row is one line. */
    return n ? n : isatty(STDOUT_FILENO) ? 80 : SCREEN_ENDLESS;
}

unsigned screen_rows(void)
{
    struct winsize ws;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_row > 0)
        return ws.ws_row;
    unsigned n = from_environment("LINES", 1);
    return n ? n : 24;
}

/* ---- colour ---- */

static bool colour_wanted(void)
{
    static int known = -1;
    if (known < 0) {
        const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
        known = isatty(STDOUT_FILENO) && !(no && *no) && term && *term && strcmp(term, "dumb") != 0;
    }
    return known;
}

const char *tint_on(enum tint t)
{
    static const char *const codes[] = {[TINT_NONE] = "",
                                        [TINT_GOOD] = "\033[32m",
                                        [TINT_WARN] = "\033[33m",
                                        [TINT_BAD] = "\033[31m",
                                        [TINT_DIM] = "\033[2m"};
    return colour_wanted() ? codes[t] : "";
}

const char *tint_off(enum tint t)
{
    return t != TINT_NONE && colour_wanted() ? "\033[0m" : "";
}

enum tint tint_of_state(const char *state)
{
    static const struct {
        const char *state;
        enum tint tint;
    } tints[] = {{"Completed", TINT_GOOD},  {"Failed", TINT_BAD},  {"PartiallyFailed", TINT_BAD},
                 {"Canceled", TINT_WARN},   {"Skipped", TINT_DIM}, {"Retrying", TINT_WARN},
                 {"Cancelling", TINT_WARN}, {"Queued", TINT_DIM},  {"missing", TINT_BAD},
                 {"removing", TINT_DIM},    {"Unknown", TINT_WARN}};
    for (size_t i = 0; i < sizeof tints / sizeof *tints; i++)
        if (!strcmp(state, tints[i].state))
            return tints[i].tint;
    return TINT_NONE;
}

/* ---- wrapped text ---- */

void print_within(FILE *f, const char *text, unsigned column, unsigned indent, unsigned width)
{
    unsigned at = column;
    text += strspn(text, " ");
    while (*text) {
        size_t n = strcspn(text, " ");
        char word[4096];
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        unsigned w = text_width(word);
        if (at > column && at + 1 + w > width) {
            fprintf(f, "\n%*s", (int)indent, "");
            at = column = indent;
        } else if (at > column) {
            fputc(' ', f);
            at++;
        }
        /* A word longer than a line is continued on the next. */
        const char *rest = word;
        while (at + text_width(rest) > width && width > indent + 1) {
            size_t head = text_head(rest, width > at ? width - at : 0);
            fprintf(f, "%.*s\n%*s", (int)head, rest, (int)indent, "");
            rest += head;
            at = column = indent;
        }
        fputs(rest, f);
        at += text_width(rest);
        text += n + strspn(text + n, " ");
    }
    fputc('\n', f);
}

void print_escaped(FILE *f, const char *text, unsigned column, unsigned indent)
{
    print_within(f, text, column, indent, screen_width());
}

void print_paragraph(FILE *f, const char *text, unsigned column, unsigned indent)
{
    print_escaped(f, text_name(text), column, indent);
}
