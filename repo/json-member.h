/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * json-member.h - members of JSON documents as the format's readers find them (Kopia repository format, section 0.1)
 *
 * Keys match without regard to (ASCII) case, the last match counts, null counts as absent, unknown keys are ignored.
 */
#ifndef SNAPFERRY_REPO_JSON_MEMBER_H
#define SNAPFERRY_REPO_JSON_MEMBER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <strings.h>

/* The member's value and, where key_in_doc is not NULL, its spelling in the document; NULL if there is none. */
static inline json_t *json_member_key(const json_t *obj, const char *key, const char **key_in_doc)
{
    json_t *found = NULL;
    json_t *o = (json_t *)(uintptr_t)obj; /* iterating does not change it */
    for (void *i = json_object_iter(o); i; i = json_object_iter_next(o, i)) {
        json_t *v = json_object_iter_value(i);
        if (strcasecmp(json_object_iter_key(i), key) != 0 || json_is_null(v))
            continue;
        found = v;
        if (key_in_doc)
            *key_in_doc = json_object_iter_key(i);
    }
    return found;
}

static inline json_t *json_member(const json_t *obj, const char *key)
{
    return json_member_key(obj, key, NULL);
}

/* Integer member within [min, max]; *ret keeps its value if it is absent. False: another type, or out of range. */
static inline bool json_member_int(const json_t *obj, const char *key, int64_t min, int64_t max, int64_t *ret)
{
    const json_t *v = json_member(obj, key);
    if (!v)
        return true;
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return false;
    *ret = json_integer_value(v);
    return true;
}

static inline bool json_member_bool(const json_t *obj, const char *key, bool *ret)
{
    const json_t *v = json_member(obj, key);
    if (!v)
        return true;
    *ret = json_is_true(v);
    return json_is_boolean(v);
}

/* String member; *ret keeps its value if it is absent. It belongs to the document. */
static inline bool json_member_text(const json_t *obj, const char *key, const char **ret)
{
    const json_t *v = json_member(obj, key);
    if (!v)
        return true;
    if (!json_is_string(v))
        return false;
    *ret = json_string_value(v);
    return true;
}

#endif
