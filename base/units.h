/* SPDX-License-Identifier: GPL-2.0-or-later */
/* units.h - sizes and durations as text */
#ifndef SNAPFERRY_BASE_UNITS_H
#define SNAPFERRY_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* Digits at *p; leaves *p behind them. 0 or -EINVAL. */
int parse_number(const char **p, uint64_t *ret);
/* "2GiB", "512M", "4096": an integer with an optional unit, powers of 1024. 0 or -EINVAL. */
int parse_bytes(uint64_t *ret, const char *text);
/* "30min", "1h 30min", "90" (seconds), "14d": into seconds; and into milliseconds, which may be written, too. */
int parse_duration(int64_t *ret, const char *text);
int parse_duration_ms(int64_t *ret, const char *text);
/* The units of durations; snapferry.ini(5) lists them. */
struct duration_unit {
    const char *name;
    int64_t ms;
};
extern const struct duration_unit duration_units[];
extern const unsigned n_duration_units;

/* What makes the plural of a word behind a number: "", or "s". */
static inline const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* An amount as written in a file, in the largest unit that divides it: "96MiB", "12h". Static buffers, four in turn
 * for each thread. */
const char *bytes_text(int64_t n);
const char *duration_text(int64_t ms);
/* The same for seconds in a sentence: "12 h". */
const char *duration_words(int64_t s);

/* Rounded, for display: "512 B", "1.5 GiB"; "2.3 s", "4 min 10 s", "3 h 20 min", "2 d 05 h", "-" for none. */
char *amount_text(double bytes, char *out, size_t cap);
char *span_text(double seconds, char *out, size_t cap);

#endif
