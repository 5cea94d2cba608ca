/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * json-bounds.h - how much a document of another process may have, before it is parsed
 *
 * Thread-safe. A document in memory costs what its values cost, some hundred bytes and the time to allocate and to free
 * them, so that its length in bytes says little: "[],[],[]," has a value for each three bytes.
 */
#ifndef SNAPFERRY_BASE_JSON_BOUNDS_H
#define SNAPFERRY_BASE_JSON_BOUNDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct json_bounds {
    size_t values; /* of all kinds; an object and its members each count */
    unsigned depth;
};

/* Whether text of `len` bytes has no more than that, if it is JSON: a walk over its bytes. Of other text, whether a
 * parser that stops at the first fault can have met more. */
bool json_within(const char *text, size_t len, const struct json_bounds *b);
/* Values in a document, itself included, as json_within() counts them. */
size_t json_values(const json_t *doc);

#endif
