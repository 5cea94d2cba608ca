/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fields-text.c - structs by their table, as JSON */
#include "daemon/records/fields-impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_char(struct text_buf *x, char c)
{
    text_put(x, &c, 1);
}

static void put_string(struct text_buf *x, const char *s)
{
    text_put_string(x, s, strlen(s));
}

static void put_fields(struct text_buf *x, const struct fields *t, const void *s);

static void put_strs(struct text_buf *x, const struct strs *s)
{
    put_char(x, '[');
    for (unsigned i = 0; i < s->n; i++) {
        if (i)
            put_char(x, ',');
        put_string(x, s->v[i]);
    }
    put_char(x, ']');
}

static void put_structs(struct text_buf *x, const struct fields *t, const struct list_of_structs *l)
{
    put_char(x, '[');
    for (unsigned i = 0; i < l->n; i++) {
        if (i)
            put_char(x, ',');
        put_fields(x, t, (const char *)l->v + i * t->size);
    }
    put_char(x, ']');
}

static bool shared_keeps_text(const struct fields *t, const struct shared *s)
{
    return t->keep_text && s->refs;
}

static int shared_make_text(const struct fields *t, const struct shared *s)
{
    struct shared *own = (struct shared *)(uintptr_t)s;
    struct text_buf made = {.v = NULL};
    put_fields(&made, t, s);
    if (made.failed) {
        free(made.v);
        return -ENOMEM;
    }
    own->text = made.v;
    own->text_len = made.n;
    return 0;
}

static void put_shared(struct text_buf *x, const struct fields *t, const struct shared *s)
{
    /* In this order: of one that has a text the thread of commits does not read the references. */
    if (!s->text && shared_keeps_text(t, s) && shared_make_text(t, s) < 0) {
        x->failed = true;
        return;
    }
    if (s->text)
        text_put(x, s->text, s->text_len);
    else
        put_fields(x, t, s);
}

static void put_value(struct text_buf *x, const struct field_desc *f, const void *p)
{
    switch ((enum field_type)f->type) {
    case FIELD_STR:
        put_string(x, *(char *const *)p);
        break;
    case FIELD_INT:
        text_put_int(x, *(const int64_t *)p);
        break;
    case FIELD_UINT:
        text_put_int(x, (int64_t) * (const uint64_t *)p);
        break;
    case FIELD_BOOL:
        text_put(x, *(const bool *)p ? "true" : "false", *(const bool *)p ? 4 : 5);
        break;
    case FIELD_REAL:
        text_put_real(x, *(const double *)p);
        break;
    case FIELD_ENUM:
        put_string(x, enum_name(f->names, *(const int *)p));
        break;
    case FIELD_ERR:
        text_put_int(x, (int64_t) * (const enum err_class *)p);
        break;
    case FIELD_STRS:
        put_strs(x, p);
        break;
    case FIELD_JSON:
    case FIELD_OBJECT:
    case FIELD_ARRAY:
        if (*(json_t *const *)p)
            text_put_json(x, *(json_t *const *)p);
        else
            text_put(x, f->type == FIELD_ARRAY ? "[]" : "{}", 2);
        break;
    case FIELD_TEXT:
        text_put(x, *(char *const *)p, strlen(*(char *const *)p));
        break;
    case FIELD_REST: /* put_fields() */
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

static void put_comma(struct text_buf *x)
{
    if (x->n && x->v[x->n - 1] != '{')
        put_char(x, ',');
}

static void put_name(struct text_buf *x, const char *name)
{
    put_comma(x);
    put_string(x, name);
    put_char(x, ':');
}

static void put_fields(struct text_buf *x, const struct fields *t, const void *s)
{
    json_t *unknown = *(json_t *const *)(const void *)((const char *)s + t->unknown), *v;
    const char *name;
    put_char(x, '{');
    for (unsigned i = 0; i < t->n; i++) {
        const struct field_desc *f = &t->v[i];
        bool set = field_is_set(f, s);
        if (f->flags & FIELD_THERE || (!set && (!(f->flags & FIELD_ALWAYS) || json_object_get(unknown, f->name))))
            continue;
        if (f->type == FIELD_REST) {
            const char *rest = *(char *const *)(const void *)((const char *)s + f->offset);
            put_comma(x);
            text_put(x, rest, strlen(rest));
            continue;
        }
        put_name(x, f->name);
        if (!set && f->flags & FIELD_NULL)
            text_put(x, "null", 4);
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
        text_put_json(x, v);
    }
    put_char(x, '}');
}

static int share_value(const struct field_desc *f, const void *p)
{
    const struct list_of_structs *l = p;
    const struct shared *s;
    int rc = 0;
    switch ((enum field_type)f->type) {
    case FIELD_STRUCT:
        return fields_share_texts(f->of, p);
    case FIELD_STRUCTS:
        for (unsigned i = 0; i < l->n && rc == 0; i++)
            rc = fields_share_texts(f->of, (const char *)l->v + i * f->of->size);
        return rc;
    case FIELD_SHARED:
        s = *(const struct shared *const *)p;
        if (!shared_keeps_text(f->of, s))
            return fields_share_texts(f->of, s);
        return s->text ? 0 : shared_make_text(f->of, s);
    case FIELD_STR:
    case FIELD_INT:
    case FIELD_UINT:
    case FIELD_BOOL:
    case FIELD_REAL:
    case FIELD_ENUM:
    case FIELD_ERR:
    case FIELD_STRS:
    case FIELD_JSON:
    case FIELD_OBJECT:
    case FIELD_ARRAY:
    case FIELD_TEXT:
    case FIELD_REST:
        break;
    }
    return 0;
}

int fields_share_texts(const struct fields *t, const void *s)
{
    int rc = 0;
    for (unsigned i = 0; i < t->n && rc == 0; i++)
        if (field_is_set(&t->v[i], s))
            rc = share_value(&t->v[i], (const char *)s + t->v[i].offset);
    return rc;
}

char *fields_text(const struct fields *t, const void *s, size_t *len)
{
    struct text_buf x = {.v = NULL};
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
