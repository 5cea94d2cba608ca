/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gojson.h - how Go's JSON package reads and writes values, over jansson (Kopia repository format, section 0.1)
 *
 * Readers match keys without regard to ASCII case, treat null as absent, and reject the whole document when a number
 * does not fit its field. The functions here do the same, so that snapferry never accepts what a stock client rejects
 * (pitfall P1). Pure functions; thread-safe.
 */
#ifndef SNAPFERRY_REPO_GOJSON_H
#define SNAPFERRY_REPO_GOJSON_H

#include "repo/manifest.h"

/* The time of a JSON null or of Go's zero time (year 1), as int64 nanoseconds wrap it. */
#define GO_ZERO_TIME_NS (-6795364578871345152)

/* JSON text into a value, by Go's rules of acceptance (any value at the top). NULL: not JSON. New reference. */
json_t *go_parse(const char *text, size_t len);

/* Member of an object, borrowed; the last of several spellings. NULL: absent or JSON null. */
json_t *go_member(const json_t *obj, const char *key);
/* True if the member is there, also as null (types with a decoder of their own see nulls). */
bool go_has(const json_t *obj, const char *key);

/* Each leaves *ret unchanged when the member is absent or null. -EINVAL: wrong type or out of range. The string is
 * borrowed; one that contains a NUL is refused. */
int go_string(const json_t *obj, const char *key, const char **ret);
int go_int(const json_t *obj, const char *key, int64_t min, int64_t max, int64_t *ret);
int go_bool(const json_t *obj, const char *key, bool *ret);
int go_time(const json_t *obj, const char *key, int64_t *ret); /* null: GO_ZERO_TIME_NS */

/* Value of an integer with a C-style prefix (0x, 0o, 0b, leading 0: octal; underscores between digits) that fits 32
 * bits. -EINVAL, -ERANGE. */
int go_parse_int32(const char *text, int32_t *ret);
/* Go's mode bits (section 12.4) and Unix's 07777. */
uint32_t go_mode_to_unix(int32_t mode);
int32_t go_mode_from_unix(uint32_t mode);
/* "0755", "04000777": the text of a Unix mode, never empty ("00" for 0, which writers omit). */
#define GO_MODE_TEXT 16
char *go_mode_text(uint32_t unix_mode, char out[GO_MODE_TEXT]);

/* A copy of an object with its keys in byte order, as Go writes maps. New reference; values are shared. */
json_t *go_sorted_map(const json_t *obj);

/* As much of a UTF-8 text as fits, without splitting a character. */
void go_copy_cut(char *out, size_t cap, const char *text);

/* Sets a member to a new value; -1 if `value` is NULL (no memory, or a string that is not UTF-8). Takes the
 * reference. */
int go_set(json_t *obj, const char *key, json_t *value);

#endif
