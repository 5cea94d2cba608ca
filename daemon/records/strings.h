/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * strings.h - shared strings: equal texts are one
 *
 * Rows name the same volumes, backups and repositories again and again. A shared string is counted, never written into
 * and never NULL; a member that holds one is a `char *`, so that the compiler refuses a literal, and is set with
 * str_set(). Not thread-safe.
 *
 * A function that cannot allocate leaves what it was to set, returns -ENOMEM and notes it, so that the next add or save
 * of a row fails (strings_nomem()): callers that do not look lose nothing.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_STRINGS_H
#define SNAPFERRY_DAEMON_RECORDS_STRINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The empty string; what a member holds that was never set. */
extern char str_empty[1];
/* *at becomes `text` (NULL: ""); what is not UTF-8 is kept as \xHH. */
int str_set(char **at, const char *text);
/* The same of n bytes of ASCII without a NUL, which need not end with one. */
int str_set_plain(char **at, const char *text, size_t n);
int str_setf(char **at, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Another reference to one that str_set() made. */
char *str_ref(char *s);
/* Gives the reference back; *at is "" then. A NULL becomes "". */
void str_clear(char **at);
/* Of one that str_set() made, or str_empty. */
uint32_t str_hash(const char *s);

/* A list of strings: its copies share one array, which belongs to these functions, until one of them is changed. */
struct strs {
    char **v; /* n strings, of strs_add(); NULL if there is none */
    unsigned n;
};
int strs_add(struct strs *s, const char *text);
/* Takes over a reference of str_set(), also if it fails. */
int strs_take(struct strs *s, char *one);
/* `ret` is empty. Takes the same time however long the list is. */
void strs_copy(struct strs *ret, const struct strs *s);
/* From a JSON array: what is no string is left out. `s` is emptied first. */
int strs_from_json(struct strs *s, const json_t *array);
bool strs_equal(const struct strs *a, const struct strs *b);
void strs_clear(struct strs *s);

/* Whether an allocation failed since it was asked last. */
bool strings_nomem(void);
/* Notes one; returns -ENOMEM. */
int strings_set_nomem(void);

#endif
