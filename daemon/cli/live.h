/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * live.h - how what goes on is shown, by the modes with -r and by those that ask the daemon
 *
 * Both tell the same of an operation in one line: phase, share, amounts, rate, time left, and what of it was zero,
 * skipped or known. On a terminal the lines stand still and change, elsewhere they follow one another.
 */
#ifndef SNAPFERRY_DAEMON_CLI_LIVE_H
#define SNAPFERRY_DAEMON_CLI_LIVE_H

#include "daemon/cli/daemon.h"

/* ---- one line (progress-line.c) ---- */

struct shown {
    const char *what;                              /* "backup", "vg0/db1": any text, is escaped */
    const char *phase;                             /* "moving"; "" for none */
    int64_t total, done, zero, skipped, duplicate; /* bytes; total 0: not known */
    double rate;                                   /* of data; <= 0: not told */
    double left;                                   /* seconds; < 0: not known */
    double stalled;                                /* seconds without any progress; told from LIVE_STALL on */
    uint64_t errors;
    const char *rest; /* what else there is to say; "" for nothing */
};
#define LIVE_STALL 15.0

/* The line in at most `width` columns. What is of least use is left out first: known, zero and skipped parts, some of
 * the name, amounts, the rate. Never the phase, the time left or errors: below some 40 columns live_draw() cuts the
 * rest. */
void progress_line(const struct shown *s, unsigned width, char *out, size_t cap);
/* Fills in what a progress document of the daemon tells (docs/control.md). */
void shown_from_json(struct shown *s, const json_t *progress);

/* ---- lines that stand still (live.c); on standard error ---- */

#define LIVE_LINES 12

struct live {
    bool on; /* standard error is a terminal that can do it */
    unsigned n, columns;
    unsigned widths[LIVE_LINES]; /* of what is on the screen */
};

/* Whether standard error is a terminal on which a line can be rewritten (TERM is not dumb). */
bool live_possible(void);
/* Columns and lines of standard error, 80 and 24 if it does not tell. */
void live_size(unsigned *columns, unsigned *rows);
/* Puts `lines` in place of those before; each is cut to the screen, and there are no more than fit. `lines` are escaped
 * already. */
void live_draw(struct live *l, char *const *lines, unsigned n);
/* Takes them away; what is printed next begins where they were. */
void live_clear(struct live *l);
/* A line that stays, above those that stand still if there are any. From any thread; escaped already. */
void live_say(const char *escaped);

/* ---- of the modes with -r (progress.c) ---- */

/* What the source has allocated, for the time left. */
void progress_allocated(struct progress_view *v, uint64_t bytes);

#endif
