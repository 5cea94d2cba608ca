/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * json-text.h - documents as compact text, the same bytes as json_dumps(JSON_COMPACT | JSON_ENCODE_ANY)
 *
 * For documents that no foreign code has made: that they contain themselves is not looked for, which is what costs
 * json_dumps() most of its time.
 */
#ifndef SNAPFERRY_BASE_JSON_TEXT_H
#define SNAPFERRY_BASE_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Text that grows; zero-terminated. `failed`: no memory, and what follows is not added. */
struct text_buf {
    char *v;
    size_t n, cap;
    bool failed;
};

void text_put(struct text_buf *x, const char *s, size_t n);
void text_put_int(struct text_buf *x, int64_t v);
/* JSON has no infinity: 0. Others are read back as they were. */
void text_put_real(struct text_buf *x, double v);
/* In quotes. */
void text_put_string(struct text_buf *x, const char *s, size_t n);
void text_put_json(struct text_buf *x, const json_t *v);

/* malloc()ed; NULL: no memory, or `v` is NULL. `len` may be NULL. */
char *json_text(const json_t *v, size_t *len);

#endif
