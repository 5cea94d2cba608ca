/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fields-text.c - structs by their table, as JSON */
#include "daemon/records/fields-impl.h"

#include "base/json-text.h"

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

static void put_shared(struct text_buf *x, const struct fields *t, const struct shared *s)
{
    struct shared *own = (struct shared *)(uintptr_t)s;
    if (t->keep_text && !s->text && s->refs) {
        struct text_buf made = {.v = NULL};
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

static void put_name(struct text_buf *x, const char *name)
{
    if (x->n && x->v[x->n - 1] != '{')
        put_char(x, ',');
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
