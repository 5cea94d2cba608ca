/* SPDX-License-Identifier: GPL-2.0-or-later */
/* nearest.h - the known word nearest to a mistyped one */
#ifndef SNAPFERRY_BASE_NEAREST_H
#define SNAPFERRY_BASE_NEAREST_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Known word number `i`; NULL past the end. */
typedef const char *nearest_fn(unsigned i, void *arg);

/* The word of a space-separated list that needs the fewest edits. */
void nearest_listed(const char *word, const char *list, char *out, size_t cap);

/* Whether the number of edits is small enough for a typing error: one in three letters, at least one. */
bool nearest_is_slip(const char *word, const char *known);
/* The nearest word if it may be a typing error, else NULL: for "did you mean". */
const char *nearest_meant(const char *word, nearest_fn *known, void *arg);
/* Sets the hint: 'did you mean "NEAR"? LISTED'; LISTED alone without one (NULL). Returns as err_hint(). */
int nearest_hint(struct err *e, const char *near, const char *listed);

#endif
