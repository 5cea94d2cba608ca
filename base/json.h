/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * json.h - members of documents, read without checks by the caller
 *
 * A missing member or one of another type reads as "", 0, false or NULL: documents come from the records, from movers
 * and from clients, and are never trusted. Returned strings and objects are borrowed.
 */
#ifndef SNAPFERRY_DAEMON_JSON_H
#define SNAPFERRY_DAEMON_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

static inline const char *jstr(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}
static inline int64_t jint(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? json_integer_value(v) : 0;
}
static inline bool jbool(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}
static inline json_t *jobj(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    return json_is_object(v) ? v : NULL;
}
static inline json_t *jarr(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    return json_is_array(v) ? v : NULL;
}
/* Setting members: text that is not UTF-8 (a path of an image) keeps its bytes as far as JSON allows, \xHH else. */
int jset_str(json_t *o, const char *key, const char *text);
static inline int jset_int(json_t *o, const char *key, int64_t v)
{
    return json_object_set_new(o, key, json_integer(v));
}
static inline int jset_bool(json_t *o, const char *key, bool v)
{
    return json_object_set_new(o, key, json_boolean(v));
}

static inline void json_freep(json_t **j)
{
    json_decref(*j);
}
#define CLEANUP_JSON __attribute__((cleanup(json_freep)))

#endif
