/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fields-text.c - structs by their table, as JSON */
#include "daemon/records/fields-impl.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    char *v;
    size_t n, cap;
    bool failed;
};

static char *room(struct text *x, size_t more)
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

static void put(struct text *x, const char *s, size_t n)
{
    char *p = room(x, n);
    if (!p)
        return;
    memcpy(p, s, n);
    x->n += n;
    x->v[x->n] = '\0';
}

static void put_char(struct text *x, char c)
{
    put(x, &c, 1);
}

static void putf(struct text *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void putf(struct text *x, const char *fmt, ...)
{
    char s[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(s, sizeof s, fmt, ap);
    va_end(ap);
    put(x, s, n < 0 ? 0 : (size_t)n < sizeof s ? (size_t)n : sizeof s - 1);
}

static void put_string(struct text *x, const char *s)
{
    static const char *const names[0x20] = {
        ['\b'] = "\\b", ['\f'] = "\\f", ['\n'] = "\\n", ['\r'] = "\\r", ['\t'] = "\\t"};
    put_char(x, '"');
    while (*s) {
        size_t plain = 0;
        while ((unsigned char)s[plain] >= 0x20 && s[plain] != '"' && s[plain] != '\\')
            plain++;
        put(x, s, plain);
        s += plain;
        if (!*s)
            break;
        if (*s == '"' || *s == '\\')
            putf(x, "\\%c", *s);
        else if (names[(unsigned char)*s])
            put(x, names[(unsigned char)*s], 2);
        else
            putf(x, "\\u%04x", (unsigned char)*s);
        s++;
    }
    put_char(x, '"');
}

static void put_int(struct text *x, int64_t v)
{
    char s[24];
    put(x, s, (size_t)snprintf(s, sizeof s, "%lld", (long long)v));
}

/* JSON has no infinity; all of them are read back as they were. */
static void put_real(struct text *x, double v)
{
    char s[40];
    int n = snprintf(s, sizeof s, "%.17g", isfinite(v) ? v : 0);
    if (!strpbrk(s, ".e"))
        n += snprintf(s + n, sizeof s - (size_t)n, ".0");
    put(x, s, (size_t)n);
}

static int dump_more(const char *s, size_t n, void *arg)
{
    struct text *x = arg;
    put(x, s, n);
    return x->failed ? -1 : 0;
}

static void put_json(struct text *x, const json_t *v)
{
    if (json_dump_callback(v, dump_more, x, JSON_COMPACT | JSON_ENCODE_ANY) < 0)
        x->failed = true;
}

static void put_fields(struct text *x, const struct fields *t, const void *s);

static void put_strs(struct text *x, const struct strs *s)
{
    put_char(x, '[');
    for (unsigned i = 0; i < s->n; i++) {
        if (i)
            put_char(x, ',');
        put_string(x, s->v[i]);
    }
    put_char(x, ']');
}

static void put_structs(struct text *x, const struct fields *t, const struct list_of_structs *l)
{
    put_char(x, '[');
    for (unsigned i = 0; i < l->n; i++) {
        if (i)
            put_char(x, ',');
        put_fields(x, t, (const char *)l->v + i * t->size);
    }
    put_char(x, ']');
}

static void put_shared(struct text *x, const struct fields *t, const struct shared *s)
{
    struct shared *own = (struct shared *)(uintptr_t)s;
    if (t->keep_text && !s->text && s->refs) {
        struct text made = {.v = NULL};
        put_fields(&made, t, s);
        if (made.failed) {
            free(made.v);
            x->failed = true;
            return;
        }
        own->text = made.v;
        own->text_len = made.n;
    }
    if (s->text)
        put(x, s->text, s->text_len);
    else
        put_fields(x, t, s);
}

static void put_value(struct text *x, const struct field_desc *f, const void *p)
{
    switch ((enum field_type)f->type) {
    case FIELD_STR:
        put_string(x, *(char *const *)p);
        break;
    case FIELD_INT:
        put_int(x, *(const int64_t *)p);
        break;
    case FIELD_UINT:
        put_int(x, (int64_t) * (const uint64_t *)p);
        break;
    case FIELD_BOOL:
        put(x, *(const bool *)p ? "true" : "false", *(const bool *)p ? 4 : 5);
        break;
    case FIELD_REAL:
        put_real(x, *(const double *)p);
        break;
    case FIELD_ENUM:
        put_string(x, enum_name(f->names, *(const int *)p));
        break;
    case FIELD_ERR:
        put_int(x, (int64_t) * (const enum err_class *)p);
        break;
    case FIELD_STRS:
        put_strs(x, p);
        break;
    case FIELD_JSON:
    case FIELD_OBJECT:
    case FIELD_ARRAY:
        if (*(json_t *const *)p)
            put_json(x, *(json_t *const *)p);
        else
            put(x, f->type == FIELD_ARRAY ? "[]" : "{}", 2);
        break;
    case FIELD_STRUCT:
        put_fields(x, f->of, p);
        break;
    case FIELD_STRUCTS:
        put_structs(x, f->of, p);
        break;
    case FIELD_SHARED:
        put_shared(x, f->of, *(const void *const *)p);
        break;
    }
}

static void put_name(struct text *x, const char *name)
{
    if (x->n && x->v[x->n - 1] != '{')
        put_char(x, ',');
    put_string(x, name);
    put_char(x, ':');
}

static void put_fields(struct text *x, const struct fields *t, const void *s)
{
    json_t *unknown = *(json_t *const *)(const void *)((const char *)s + t->unknown), *v;
    const char *name;
    put_char(x, '{');
    for (unsigned i = 0; i < t->n; i++) {
        const struct field_desc *f = &t->v[i];
        bool set = field_is_set(f, s);
        if (f->flags & FIELD_THERE || (!set && (!(f->flags & FIELD_ALWAYS) || json_object_get(unknown, f->name))))
            continue;
        put_name(x, f->name);
        if (!set && f->flags & FIELD_NULL)
            put(x, "null", 4);
        else
            put_value(x, f, (const char *)s + f->offset);
        if (f->type == FIELD_ERR && !json_object_get(unknown, "class")) {
            put_name(x, "class");
            put_string(x, err_class_name(*(const enum err_class *)(const void *)((const char *)s + f->offset)));
        }
    }
    json_object_foreach(unknown, name, v)
    {
        /* One of another type than the table says stays until the field is set. */
        const struct field_desc *f = field_find(t, name);
        if (f && field_is_set(f, s))
            continue;
        put_name(x, name);
        put_json(x, v);
    }
    put_char(x, '}');
}

char *fields_text(const struct fields *t, const void *s, size_t *len)
{
    struct text x = {.v = NULL};
    put_fields(&x, t, s);
    if (x.failed) {
        free(x.v);
        return NULL;
    }
    if (len)
        *len = x.n;
    return x.v;
}

json_t *fields_to_json(const struct fields *t, const void *s)
{
    size_t n = 0;
    char *text = fields_text(t, s, &n);
    json_t *ret = text ? json_loadb(text, n, JSON_ALLOW_NUL, NULL) : NULL;
    free(text);
    return ret;
}
