/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * docstream.h - the large JSON documents of a repository, element by element
 *
 * Index documents, directories and manifest collections are objects with one long list, "entries". Such a document may
 * be of any length (gigabytes for the index of a large volume): it is pulled through a callback and only one element is
 * held. The scanner checks the top level and that brackets and strings of an element close; the contents of an element
 * are checked by its parser.
 */
#ifndef SNAPFERRY_REPO_DOCSTREAM_H
#define SNAPFERRY_REPO_DOCSTREAM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct docstream;

/* Fills buf with 1..len bytes and returns how many; 0: end; negative: error with e set. */
typedef int64_t docstream_read_fn(void *arg, void *buf, size_t len, struct err *e);

/*
 * `stream`: the value that the member "stream" must have (sections 11.2 and 12.5); other members are then skipped.
 * NULL: the document may have no member but "entries" (manifest collections, section 12.1: stock clients fail on any
 * other). `max_elem`: longest element or member, bytes; memory is up to that plus 64 KiB.
 */
int docstream_new(struct docstream **ret, const char *stream, size_t max_elem, docstream_read_fn *read, void *arg,
                  struct err *e);
void docstream_free(struct docstream *d);
static inline void docstream_freep(struct docstream **d)
{
    docstream_free(*d);
}

/*
 * 1: the text of the next element, valid until the next call; 0: the document has ended and was well-formed; negative:
 * an error of the callback, or ERR_DAMAGE (-EBADMSG): not such a document, truncated, an element that is too long.
 */
int docstream_next(struct docstream *d, const char **elem, size_t *len, struct err *e);

/*
 * Whether the element last delivered is the one before it but for the number that it begins with: {"s":NUMBER and the
 * same bytes behind that. The index of a sparse volume has millions of these; they are recognised without being
 * scanned, and need not be parsed but for the number.
 */
bool docstream_repeats(const struct docstream *d);

/*
 * Passes over elements behind the last one that are like it, with the numbers `first`, `first + step` and so on: at
 * most `most`, and not more than are in memory. Returns how many. `step` > 0; the last number must not exceed 2^63.
 */
uint64_t docstream_skip_repeats(struct docstream *d, uint64_t first, uint64_t step, uint64_t most);

/* Text of the member "summary", NULL if there was none. Complete only after docstream_next() returned 0. */
const char *docstream_summary(const struct docstream *d, size_t *len);

/*
 * Members of one object held in memory, without building a tree. Start with {text, text + len, 0}. 1: key (NUL
 * terminated; "" if it does not fit) and the text of its value; 0: end; -EINVAL: not an object.
 */
struct json_cursor {
    const char *at, *end;
    int state;
};
#define JSON_KEY_MAX 64
int json_cursor_next(struct json_cursor *c, char key[JSON_KEY_MAX], const char **value, size_t *len);

#endif
