/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * parser.h - documents of other processes are read and parsed in a thread, while the event loop goes on
 *
 * One thread for each parser, started with its first document. It has the job (a file or a text) and nothing else; the
 * event loop gets the document back with an eventfd, in the order in which they were begun. All functions belong to
 * the event loop's thread. Without a thread (there is none to be had) the loop parses them itself.
 */
#ifndef SNAPFERRY_PROC_PARSER_H
#define SNAPFERRY_PROC_PARSER_H

#include "base/err.h"
#include "base/json-bounds.h"

#include <jansson.h>
#include <systemd/sd-event.h>

struct parser;
struct parse;

struct parse_limits {
    size_t bytes;
    struct json_bounds bounds;
    size_t flags; /* of json_loadb() */
};

/* Called once, from the event loop, never from within the function that began it. `doc`: a new reference, or NULL and
 * `why`, a few words ("empty", "size of 5 bytes", "more than 9 values"; "missing": there is no such file). */
typedef void parse_done_fn(json_t *doc, const char *why, void *arg);

int parser_new(struct parser **ret, sd_event *loop, struct err *e);
/* Waits for the document that is being parsed. No callbacks are called. Not from within one. */
void parser_free(struct parser *p);

/* Begins with the file at `path`, not through a link. `limits` is copied. NULL: no memory. */
struct parse *parse_file(struct parser *p, const char *path, const struct parse_limits *limits, parse_done_fn *done,
                         void *arg);
/* The same with `len` bytes at `at` of a file, whose descriptor is duplicated. */
struct parse *parse_part(struct parser *p, int fd, uint64_t at, size_t len, const struct parse_limits *limits,
                         parse_done_fn *done, void *arg);
/* The same with a text in memory (malloc), which it takes, in any case. */
struct parse *parse_text(struct parser *p, char *text, size_t len, const struct parse_limits *limits,
                         parse_done_fn *done, void *arg);
/* Nobody waits for it any more: `done` is not called. NULL is allowed. Not after `done` was called. */
void parse_drop(struct parse *x);

#endif
