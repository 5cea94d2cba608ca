/* SPDX-License-Identifier: GPL-2.0-or-later */
/* json-fields.c - members of JSON documents, validated strictly */
#include "io/native/json-fields.h"

#include <errno.h>
#include <string.h>

int field_bad(const char *what, const char *key, const char *why, struct err *e)
{
    return err_set(e, ERR_GENERIC, EINVAL, "%s: member \"%s\" %s", what, key, why);
}

int field_text(const json_t *j, const char *what, const char *key, char *out, size_t size, bool required, struct err *e)
{
    const json_t *v = json_object_get(j, key);
    out[0] = '\0';
    if (!v && !required)
        return 0;
    if (!v)
        return field_bad(what, key, "is missing", e);
    if (!json_is_string(v))
        return field_bad(what, key, "is not a string", e);
    size_t n = json_string_length(v);
    if (n >= size)
        return field_bad(what, key, "is too long", e);
    if (memchr(json_string_value(v), '\0', n))
        return field_bad(what, key, "contains a NUL byte", e);
    memcpy(out, json_string_value(v), n + 1);
    return 0;
}

int field_u64(const json_t *j, const char *what, const char *key, uint64_t *ret, bool required, struct err *e)
{
    const json_t *v = json_object_get(j, key);
    *ret = required ? 0 : UINT64_MAX;
    if (!v || json_is_null(v))
        return required ? field_bad(what, key, "is missing", e) : 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return field_bad(what, key, "is not a count", e);
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

int field_i64(const json_t *j, const char *what, const char *key, int64_t *ret, struct err *e)
{
    const json_t *v = json_object_get(j, key);
    if (!v)
        return field_bad(what, key, "is missing", e);
    if (!json_is_integer(v))
        return field_bad(what, key, "is not an integer", e);
    *ret = json_integer_value(v);
    return 0;
}

int field_bool(const json_t *j, const char *what, const char *key, bool *ret, struct err *e)
{
    const json_t *v = json_object_get(j, key);
    if (!v)
        return field_bad(what, key, "is missing", e);
    if (!json_is_boolean(v))
        return field_bad(what, key, "is neither true nor false", e);
    *ret = json_is_true(v);
    return 0;
}

int field_real(const json_t *j, const char *what, const char *key, double *ret, struct err *e)
{
    const json_t *v = json_object_get(j, key);
    if (!v)
        return field_bad(what, key, "is missing", e);
    if (!json_is_number(v))
        return field_bad(what, key, "is not a number", e);
    *ret = json_number_value(v);
    return 0;
}

int field_mechanism(const json_t *j, const char *what, const char *key, enum expose_mechanism *ret, struct err *e)
{
    char text[16];
    int rc = field_text(j, what, key, text, sizeof text, true, e);
    for (int m = EXPOSE_NATIVE; rc == 0 && m <= EXPOSE_COPY; m++) {
        if (strcmp(text, expose_mechanism_name((enum expose_mechanism)m)) == 0) {
            *ret = (enum expose_mechanism)m;
            return 0;
        }
    }
    return rc < 0 ? rc : field_bad(what, key, "is not a mechanism", e);
}

int field_alias(const json_t *j, const char *what, const char *key, char out[ALIAS_LEN + 1], bool required,
                struct err *e)
{
    int rc = field_text(j, what, key, out, ALIAS_LEN + 1, required, e);
    if (rc == 0 && (required || out[0]) && !alias_valid(out))
        return field_bad(what, key, "is not an alias", e);
    return rc;
}

json_t *u64_json(uint64_t v)
{
    return v > INT64_MAX ? json_null() : json_integer((json_int_t)v);
}
