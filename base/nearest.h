/* SPDX-License-Identifier: GPL-2.0-or-later */
/* nearest.h - which known word a mistyped one was meant to be */
#ifndef SNAPFERRY_BASE_NEAREST_H
#define SNAPFERRY_BASE_NEAREST_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Word `i` of those that are known; NULL ends them. */
typedef const char *nearest_fn(unsigned i, void *arg);

/* The known word that needs the fewest edits, NULL if none is known. */
const char *nearest_word(const char *word, nearest_fn *known, void *arg);
/* The same of a space-separated list. */
void nearest_listed(const char *word, const char *list, char *out, size_t cap);

/* Edits from one to the other are so few that it may be a slip: one in three letters, at least one. */
bool nearest_is_slip(const char *word, const char *known);
/* The nearest word if it may have been meant, else NULL: for "did you mean". */
const char *nearest_meant(const char *word, nearest_fn *known, void *arg);
/* Sets the hint: 'did you mean "NEAR"? LISTED'; LISTED alone without one (NULL). Returns as err_hint(). */
int nearest_hint(struct err *e, const char *near, const char *listed);

#endif
