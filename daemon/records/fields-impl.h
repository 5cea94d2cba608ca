/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fields-impl.h - what loading and storing share */
#ifndef SNAPFERRY_DAEMON_RECORDS_FIELDS_IMPL_H
#define SNAPFERRY_DAEMON_RECORDS_FIELDS_IMPL_H

#include "base/json-text.h"
#include "daemon/records/fields.h"

/* NULL: the table has none of that name. */
const struct field_desc *field_find(const struct fields *t, const char *name);
/* Whether the field of `s` differs from its unset value. */
bool field_is_set(const struct field_desc *f, const void *s);

/* Loads member `v`; f is its field, NULL: the table has none. What is not of the field's type is kept. 0 or -ENOMEM. */
int field_load_member(const struct fields *t, void *s, const struct field_desc *f, const char *name, const json_t *v);
/* After all members: of an error the word of its class, NULL: there is none. */
int field_load_class(const struct fields *t, void *s, const json_t *v);
/* Of a struct that is a member of another one, and was loaded: it is there. */
void field_is_there(const struct fields *t, void *s);
/*
 * Where the text of the members lies that the table does not know (FIELD_REST); NULL: it has no such field. Collected
 * in a buffer, a member after the other: its name, then its value (text_put()), and set at the end, which frees the
 * buffer. 0 or -ENOMEM.
 */
char **field_rest(const struct fields *t, void *s);
void field_rest_name(struct text_buf *rest, const char *name, size_t n);
int field_rest_end(char **at, struct text_buf *rest);
/* Unset again; `p` is its place. */
void field_reset(const struct field_desc *f, void *p);

/* The shared struct of which this is the text, without a reference; NULL: it is not known. */
const void *shared_by_text(const struct fields *t, const char *text, size_t n);
/* It was made of that text: if it is written as the same, it is found by it from now on. */
void shared_note_text(const void *p, const char *text, size_t n);

#endif
