/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * live.h - progress of running operations, with -r and of the daemon
 *
 * One line for an operation: phase, percentage, amounts, rate, time left, and amounts of zeros, skipped and duplicate
 * data. On a terminal the lines are updated in place, otherwise appended.
 */
#ifndef SNAPFERRY_DAEMON_CLI_LIVE_H
#define SNAPFERRY_DAEMON_CLI_LIVE_H

#include "daemon/cli/daemon.h"

/* ---- one line (progress-line.c) ---- */

struct shown {
    const char *what;                              /* "backup", "vg0/db1"; not escaped */
    const char *phase;                             /* "moving"; "" for none */
    int64_t total, done, zero, skipped, duplicate; /* bytes; total 0: unknown */
    double rate;                                   /* of data; <= 0: not shown */
    double left;                                   /* seconds; < 0: unknown */
    double stalled;                                /* seconds without progress; shown from LIVE_STALL */
    uint64_t errors;
    const char *rest; /* additional text, or "" */
};
#define LIVE_STALL 15.0

/* The line in at most `width` columns. Omitted in this order: duplicate, zero and skipped amounts, a part of the name,
 * amounts, the rate. Phase, time left and errors are always there; below 40 columns live_draw() truncates the line. */
void progress_line(const struct shown *s, unsigned width, char *out, size_t cap);
/* From a progress document of the daemon (docs/control.md). */
void shown_from_json(struct shown *s, const json_t *progress);

/* ---- lines updated in place (live.c), on standard error ---- */

#define LIVE_LINES 12

struct live {
    bool on; /* standard error is such a terminal */
    unsigned n, columns;
    unsigned widths[LIVE_LINES]; /* of the lines on the screen */
};

/* True if standard error is a terminal on which lines can be rewritten (TERM is not dumb). */
bool live_possible(void);
/* Columns and lines of standard error, 80 and 24 if unknown. */
void live_size(unsigned *columns, unsigned *rows);
/* Replaces the lines on the screen; truncates each, and omits those that do not fit. `lines` are escaped. */
void live_draw(struct live *l, char *const *lines, unsigned n);
/* Removes the lines; the next output starts in their place. */
void live_clear(struct live *l);
/* Prints a permanent line above them. From any thread; escaped. */
void live_print(const char *escaped);

/* ---- progress with -r (progress.c) ---- */

/* Allocated bytes of the source, for the time left. */
void progress_allocated(struct progress_view *v, uint64_t bytes);

#endif
