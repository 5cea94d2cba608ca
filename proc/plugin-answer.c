/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/plugin-answer.h"

#include "base/plain-path.h"

#include <stdio.h>
#include <string.h>

#define UUID_LEN 36

static bool is_uuid(const char *s)
{
    for (size_t i = 0; i < UUID_LEN; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? s[i] != '-' : !(s[i] && strchr("0123456789abcdef", s[i])))
            return false;
    }
    return s[UUID_LEN] == '\0';
}

static bool is_id(const char *s)
{
    for (; *s; s++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-", *s))
            return false;
    return true;
}

bool answer_is_path(const char *s)
{
    return *s == '/' && s[strlen(s) - 1] != '/' && is_plain_path(s);
}

static bool has_control(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return true;
    return false;
}

static const json_t *answer_member(const struct answer *a, const char *key, unsigned flags, int *rc, struct err *e)
{
    const json_t *v = json_object_get(a->o, key);
    *rc = 0;
    if (json_is_null(v))
        v = NULL;
    if (!v && (flags & ANSWER_REQUIRED))
        *rc = plugin_lies(a->p, a->verb, e, "no \"%s%s\" in its answer", a->at, key);
    return v;
}

int answer_text(const struct answer *a, const char *key, unsigned flags, char *ret, size_t cap, struct err *e)
{
    int rc;
    const json_t *v = answer_member(a, key, flags, &rc, e);
    ret[0] = '\0';
    if (!v)
        return rc;
    const char *s = json_string_value(v), *wrong = NULL;
    if (!s)
        wrong = "is not text";
    else if (!*s)
        wrong = flags & ANSWER_REQUIRED ? "is empty" : NULL;
    else if (json_string_length(v) >= cap)
        wrong = "is too long";
    else if (has_control(s))
        wrong = "has control characters";
    else if ((flags & ANSWER_ID) && !is_id(s))
        wrong = "has characters other than A-Z a-z 0-9 . _ : -";
    else if ((flags & ANSWER_ALIAS) && !is_uuid(s))
        wrong = "is not a UUID in lower case";
    else if ((flags & ANSWER_PATH) && !answer_is_path(s))
        wrong = "is not an absolute path without \"..\"";
    if (wrong)
        return plugin_lies(a->p, a->verb, e, "\"%s%s\" %s", a->at, key, wrong);
    memcpy(ret, s, json_string_length(v) + 1);
    return 0;
}

int answer_u64(const struct answer *a, const char *key, unsigned flags, uint64_t *ret, struct err *e)
{
    int rc;
    const json_t *v = answer_member(a, key, flags, &rc, e);
    if (!v)
        return rc;
    if (!json_is_integer(v))
        return plugin_lies(a->p, a->verb, e, "\"%s%s\" is not an integer", a->at, key);
    if (json_integer_value(v) < 0)
        return plugin_lies(a->p, a->verb, e, "\"%s%s\" is negative", a->at, key);
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

int answer_bool(const struct answer *a, const char *key, unsigned flags, bool *ret, struct err *e)
{
    int rc;
    const json_t *v = answer_member(a, key, flags, &rc, e);
    if (!v)
        return rc;
    if (!json_is_boolean(v))
        return plugin_lies(a->p, a->verb, e, "\"%s%s\" is neither true nor false", a->at, key);
    *ret = json_is_true(v);
    return 0;
}

int answer_ratio(const struct answer *a, const char *key, unsigned flags, double *ret, struct err *e)
{
    int rc;
    const json_t *v = answer_member(a, key, flags, &rc, e);
    if (!v)
        return rc;
    double d = json_number_value(v);
    if (!json_is_number(v) || !(d >= 0 && d <= 1))
        return plugin_lies(a->p, a->verb, e, "\"%s%s\" is not between 0 and 1", a->at, key);
    *ret = d;
    return 0;
}

int answer_object(const struct answer *a, const char *key, const char *at, struct answer *into, struct err *e)
{
    int rc;
    const json_t *v = answer_member(a, key, ANSWER_REQUIRED, &rc, e);
    if (!v)
        return rc;
    if (!json_is_object(v))
        return plugin_lies(a->p, a->verb, e, "\"%s%s\" is not an object", a->at, key);
    *into = (struct answer){a->p, a->verb, v, at};
    return 0;
}
