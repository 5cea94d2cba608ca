/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/json-text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *room(struct text_buf *x, size_t more)
{
    if (x->failed)
        return NULL;
    if (x->n + more + 1 > x->cap) {
        size_t cap = x->cap ? x->cap : 1024;
        while (cap < x->n + more + 1)
            cap *= 2;
        char *v = realloc(x->v, cap);
        if (!v) {
            x->failed = true;
            return NULL;
        }
        x->v = v;
        x->cap = cap;
    }
    return x->v + x->n;
}

void text_put(struct text_buf *x, const char *s, size_t n)
{
    char *p = room(x, n);
    if (!p)
        return;
    memcpy(p, s, n);
    x->n += n;
    x->v[x->n] = '\0';
}

void text_put_int(struct text_buf *x, int64_t v)
{
    char s[24], *p = s + sizeof s;
    uint64_t left = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do
        *--p = (char)('0' + left % 10);
    while (left /= 10);
    if (v < 0)
        *--p = '-';
    text_put(x, p, (size_t)(s + sizeof s - p));
}

/* "1e+20" is 1e20, "1e-05" is 1e-5. */
static size_t plain_exponent(char *s, size_t n)
{
    char *e = strchr(s, 'e'), *from = e ? e + 1 : NULL;
    if (!e)
        return n;
    char *to = e + 1 + (*from == '-');
    from += *from == '-' || *from == '+';
    from += strspn(from, "0");
    memmove(to, from, strlen(from) + 1);
    return (size_t)(to - s) + strlen(to);
}

void text_put_real(struct text_buf *x, double v)
{
    char s[40];
    size_t n = (size_t)snprintf(s, sizeof s, "%.17g", isfinite(v) ? v : 0);
    if (!strpbrk(s, ".e"))
        n += (size_t)snprintf(s + n, sizeof s - n, ".0");
    text_put(x, s, plain_exponent(s, n));
}

static void put_escaped(struct text_buf *x, unsigned char c)
{
    static const char names[0x20] = {['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    const char two[] = {'\\', c >= 0x20 ? (char)c : names[c]};
    char six[8];
    if (two[1])
        text_put(x, two, sizeof two);
    else
        text_put(x, six, (size_t)snprintf(six, sizeof six, "\\u%04X", c));
}

void text_put_string(struct text_buf *x, const char *s, size_t n)
{
    text_put(x, "\"", 1);
    for (const char *end = s + n, *from = s; s < end || from < end; from = ++s) {
        while (s < end && (unsigned char)*s >= 0x20 && *s != '"' && *s != '\\')
            s++;
        text_put(x, from, (size_t)(s - from));
        if (s == end)
            break;
        put_escaped(x, (unsigned char)*s);
    }
    text_put(x, "\"", 1);
}

static void put_object(struct text_buf *x, const json_t *v)
{
    json_t *o = (json_t *)(uintptr_t)v; /* its iterators take no const one */
    const char *between = "{";
    for (void *i = json_object_iter(o); i; i = json_object_iter_next(o, i)) {
        const char *key = json_object_iter_key(i);
        text_put(x, between, 1);
        text_put_string(x, key, strlen(key));
        text_put(x, ":", 1);
        text_put_json(x, json_object_iter_value(i));
        between = ",";
    }
    text_put(x, *between == '{' ? "{}" : "}", *between == '{' ? 2 : 1);
}

static void put_array(struct text_buf *x, const json_t *v)
{
    const size_t n = json_array_size(v);
    text_put(x, "[", 1);
    for (size_t i = 0; i < n; i++) {
        if (i)
            text_put(x, ",", 1);
        text_put_json(x, json_array_get(v, i));
    }
    text_put(x, "]", 1);
}

void text_put_json(struct text_buf *x, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        put_object(x, v);
        break;
    case JSON_ARRAY:
        put_array(x, v);
        break;
    case JSON_STRING:
        text_put_string(x, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        text_put_int(x, json_integer_value(v));
        break;
    case JSON_REAL:
        text_put_real(x, json_real_value(v));
        break;
    case JSON_TRUE:
        text_put(x, "true", 4);
        break;
    case JSON_FALSE:
        text_put(x, "false", 5);
        break;
    case JSON_NULL:
        text_put(x, "null", 4);
        break;
    }
}

char *json_text(const json_t *v, size_t *len)
{
    struct text_buf x = {.v = NULL};
    if (v)
        text_put_json(&x, v);
    if (x.failed || !v) {
        free(x.v);
        return NULL;
    }
    if (len)
        *len = x.n;
    return x.v;
}
