/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fields.c - structs by their table: made, copied, compared, loaded */
#include "daemon/records/fields-impl.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/records/records-test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words of enums ---- */

const char *enum_name(const struct enum_names *e, int v)
{
    return v > 0 && (unsigned)v < e->n ? e->names[v] : "";
}

int enum_value(const struct enum_names *e, const char *name)
{
    for (unsigned i = 1; i < e->n; i++)
        if (!strcmp(e->names[i], name))
            return (int)i;
    return 0;
}

/* ---- finding a field ---- */

struct field_index {
    unsigned mask;
    uint8_t slots[]; /* number of the field + 1, 0: none */
};

static unsigned name_hash(const char *s)
{
    unsigned h = 5381;
    for (; *s; s++)
        h = h * 33 + (unsigned char)*s;
    return h ^ h >> 7;
}

static bool has_name(const struct field_desc *f)
{
    return f->name[0] != '\0';
}

static struct field_index *make_index(const struct fields *t)
{
    unsigned n = 16;
    while (n < 2 * t->n)
        n *= 2;
    struct field_index *x = calloc(1, sizeof *x + n);
    if (!x)
        return NULL;
    x->mask = n - 1;
    for (unsigned i = 0; i < t->n; i++) {
        unsigned at = name_hash(t->v[i].name) & x->mask;
        while (x->slots[at])
            at = (at + 1) & x->mask;
        x->slots[at] = (uint8_t)(i + 1);
    }
    return *t->index = x;
}

const struct field_desc *field_find(const struct fields *t, const char *name)
{
    const struct field_index *x = *t->index ? *t->index : make_index(t);
    if (!x) { /* no memory for the index: one by one */
        for (unsigned i = 0; i < t->n; i++)
            if (has_name(&t->v[i]) && !strcmp(t->v[i].name, name))
                return &t->v[i];
        return NULL;
    }
    for (unsigned at = name_hash(name) & x->mask; x->slots[at]; at = (at + 1) & x->mask) {
        const struct field_desc *f = &t->v[x->slots[at] - 1];
        if (has_name(f) && !strcmp(f->name, name))
            return f;
    }
    return NULL;
}

/* ---- places ---- */

static void *place(const struct field_desc *f, void *s)
{
    return (char *)s + f->offset;
}
static const void *place_in(const struct field_desc *f, const void *s)
{
    return (const char *)s + f->offset;
}
static json_t **unknown_of(const struct fields *t, void *s)
{
    return (json_t **)(void *)((char *)s + t->unknown);
}
static json_t *const *unknown_in(const struct fields *t, const void *s)
{
    return (json_t *const *)(const void *)((const char *)s + t->unknown);
}

static bool is_shared(const struct fields *t)
{
    return t->none != NULL;
}

static void *element(const struct list_of_structs *l, const struct fields *t, unsigned i)
{
    return (char *)l->v + i * t->size;
}

/* ---- making and clearing ---- */

static void init_field(const struct field_desc *f, void *p)
{
    switch ((enum field_type)f->type) {
    case FIELD_STR:
    case FIELD_TEXT:
    case FIELD_REST:
        *(char **)p = str_empty;
        break;
    case FIELD_INT:
        *(int64_t *)p = f->unset;
        break;
    case FIELD_REAL:
        *(double *)p = f->unset;
        break;
    case FIELD_STRUCT:
        fields_init(f->of, p);
        break;
    case FIELD_SHARED:
        *(const void **)p = f->of->none;
        break;
    case FIELD_UINT:
        *(uint64_t *)p = 0;
        break;
    case FIELD_BOOL:
        *(bool *)p = false;
        break;
    case FIELD_ENUM:
    case FIELD_ERR:
        *(int *)p = 0;
        break;
    case FIELD_STRS:
        *(struct strs *)p = (struct strs){NULL, 0};
        break;
    case FIELD_JSON:
    case FIELD_OBJECT:
    case FIELD_ARRAY:
        *(json_t **)p = NULL;
        break;
    case FIELD_STRUCTS:
        *(struct list_of_structs *)p = (struct list_of_structs){NULL, 0};
        break;
    }
}

static bool owns(const struct field_desc *f)
{
    switch ((enum field_type)f->type) {
    case FIELD_STR:
    case FIELD_TEXT:
    case FIELD_REST:
    case FIELD_STRS:
    case FIELD_JSON:
    case FIELD_OBJECT:
    case FIELD_ARRAY:
    case FIELD_STRUCT:
    case FIELD_STRUCTS:
    case FIELD_SHARED:
        return true;
    case FIELD_INT:
    case FIELD_UINT:
    case FIELD_BOOL:
    case FIELD_REAL:
    case FIELD_ENUM:
    case FIELD_ERR:
        break;
    }
    return false;
}

static const struct field_plan *plan_of(const struct fields *t)
{
    struct field_plan *plan = t->plan;
    if (plan->made)
        return plan;
    plan->n = 0;
    for (unsigned i = 0; i < t->n; i++) {
        init_field(&t->v[i], place(&t->v[i], plan->image));
        if (owns(&t->v[i]))
            plan->owned[plan->n++] = (uint8_t)i;
    }
    plan->made = true;
    return plan;
}

/* Nothing of it is set, and it owns nothing. False says nothing: the bytes between its members may differ. */
static bool is_unset(const struct fields *t, const void *s)
{
    return !memcmp(s, plan_of(t)->image, t->size);
}

void fields_init(const struct fields *t, void *s)
{
    memcpy(s, plan_of(t)->image, t->size);
}

static void release_all(const struct fields *t, void *s);

/* Gives back what the field owns. Its bytes stay as they are: the caller writes them or frees the struct. */
static void release_field(const struct field_desc *f, void *p)
{
    switch ((enum field_type)f->type) {
    case FIELD_STR:
    case FIELD_TEXT:
    case FIELD_REST:
        str_clear(p);
        break;
    case FIELD_STRS:
        strs_clear(p);
        break;
    case FIELD_JSON:
    case FIELD_OBJECT:
    case FIELD_ARRAY:
        json_decref(*(json_t **)p);
        break;
    case FIELD_STRUCT:
        if (!is_unset(f->of, p))
            release_all(f->of, p);
        break;
    case FIELD_STRUCTS: {
        struct list_of_structs *l = p;
        for (unsigned i = 0; i < l->n; i++)
            release_all(f->of, element(l, f->of, i));
        free(l->v);
        break;
    }
    case FIELD_SHARED:
        shared_unref(*(const void **)p);
        break;
    case FIELD_INT:
    case FIELD_UINT:
    case FIELD_BOOL:
    case FIELD_REAL:
    case FIELD_ENUM:
    case FIELD_ERR:
        break;
    }
}

void field_reset(const struct field_desc *f, void *p)
{
    release_field(f, p);
    init_field(f, p);
}

static void release_all(const struct fields *t, void *s)
{
    const struct field_plan *plan = plan_of(t);
    for (unsigned i = 0; i < plan->n; i++)
        release_field(&t->v[plan->owned[i]], place(&t->v[plan->owned[i]], s));
    json_decref(*unknown_of(t, s));
    if (is_shared(t))
        free(((struct shared *)s)->text);
}

void fields_clear(const struct fields *t, void *s)
{
    release_all(t, s);
    fields_init(t, s);
}

/* ---- copying ---- */

/* `p` is a copy byte by byte of `from`; what cannot be copied is empty then. */
static int copy_field(const struct field_desc *f, void *p, const void *from)
{
    switch ((enum field_type)f->type) {
    case FIELD_STR:
    case FIELD_TEXT:
    case FIELD_REST:
        *(char **)p = str_ref(*(char *const *)from);
        return 0;
    case FIELD_STRS:
        strs_copy(p, from);
        return 0;
    case FIELD_JSON:
    case FIELD_OBJECT:
    case FIELD_ARRAY:
        json_incref(*(json_t **)p);
        return 0;
    case FIELD_STRUCT:
        return is_unset(f->of, from) ? 0 : fields_copy(f->of, p, from);
    case FIELD_STRUCTS: {
        const struct list_of_structs *src = from;
        struct list_of_structs *l = p;
        *l = (struct list_of_structs){NULL, 0};
        if (!src->n)
            return 0;
        if (!(l->v = calloc(src->n, f->of->size)))
            return strings_set_nomem();
        int rc = 0;
        for (; l->n < src->n; l->n++)
            if (fields_copy(f->of, element(l, f->of, l->n), element(src, f->of, l->n)) < 0)
                rc = -ENOMEM;
        return rc;
    }
    case FIELD_SHARED:
        *(const void **)p = shared_ref(*(const void *const *)from);
        return 0;
    case FIELD_INT:
    case FIELD_UINT:
    case FIELD_BOOL:
    case FIELD_REAL:
    case FIELD_ENUM:
    case FIELD_ERR:
        return 0;
    }
    return 0;
}

int fields_copy(const struct fields *t, void *ret, const void *s)
{
    const struct field_plan *plan = plan_of(t);
    int rc = 0;
    memcpy(ret, s, t->size);
    for (unsigned i = 0; i < plan->n; i++) {
        const struct field_desc *f = &t->v[plan->owned[i]];
        if (copy_field(f, place(f, ret), place_in(f, s)) < 0)
            rc = -ENOMEM;
    }
    json_incref(*unknown_of(t, ret));
    if (is_shared(t))
        *(struct shared *)ret = (struct shared){.refs = 0};
    if (rc < 0)
        fields_clear(t, ret);
    return rc;
}

/* ---- comparing ---- */

static bool json_same(const json_t *a, const json_t *b)
{
    return a == b || (a && b && json_equal(a, b));
}

/* Texts of the same object may differ in how they are written. */
static bool text_same(const char *a, const char *b)
{
    if (a == b)
        return true;
    CLEANUP_JSON json_t *x = json_loads(a, JSON_ALLOW_NUL, NULL), *y = json_loads(b, JSON_ALLOW_NUL, NULL);
    return x && y && json_equal(x, y);
}

static bool rest_same(const char *a, const char *b)
{
    CLEANUP_FREE char *x = NULL, *y = NULL;
    if (a == b)
        return true;
    if (asprintf(&x, "{%s}", a) < 0 || asprintf(&y, "{%s}", b) < 0) {
        strings_set_nomem();
        return false;
    }
    return text_same(x, y);
}

static bool field_equal(const struct field_desc *f, const void *a, const void *b)
{
    switch ((enum field_type)f->type) {
    case FIELD_STR:
        return *(char *const *)a == *(char *const *)b;
    case FIELD_TEXT:
        return text_same(*(char *const *)a, *(char *const *)b);
    case FIELD_REST:
        return rest_same(*(char *const *)a, *(char *const *)b);
    case FIELD_INT:
        return *(const int64_t *)a == *(const int64_t *)b;
    case FIELD_UINT:
        return *(const uint64_t *)a == *(const uint64_t *)b;
    case FIELD_BOOL:
        return *(const bool *)a == *(const bool *)b;
    case FIELD_REAL: {
        double x = *(const double *)a, y = *(const double *)b;
        return !(x < y) && !(x > y);
    }
    case FIELD_ENUM:
    case FIELD_ERR:
        return *(const int *)a == *(const int *)b;
    case FIELD_STRS:
        return strs_equal(a, b);
    case FIELD_JSON:
    case FIELD_OBJECT:
    case FIELD_ARRAY:
        return json_same(*(json_t *const *)a, *(json_t *const *)b);
    case FIELD_STRUCT:
        return fields_equal(f->of, a, b);
    case FIELD_STRUCTS: {
        const struct list_of_structs *x = a, *y = b;
        bool same = x->n == y->n;
        for (unsigned i = 0; same && i < x->n; i++)
            same = fields_equal(f->of, element(x, f->of, i), element(y, f->of, i));
        return same;
    }
    case FIELD_SHARED:
        return *(const void *const *)a == *(const void *const *)b;
    }
    return false;
}

bool fields_equal(const struct fields *t, const void *a, const void *b)
{
    if (!memcmp(a, b, t->size))
        return true;
    for (unsigned i = 0; i < t->n; i++)
        if (!field_equal(&t->v[i], place_in(&t->v[i], a), place_in(&t->v[i], b)))
            return false;
    return json_same(*unknown_in(t, a), *unknown_in(t, b));
}

bool field_is_set(const struct field_desc *f, const void *s)
{
    const void *p = place_in(f, s);
    switch ((enum field_type)f->type) {
    case FIELD_STR:
    case FIELD_TEXT:
    case FIELD_REST:
        return **(char *const *)p != '\0';
    case FIELD_INT:
        return *(const int64_t *)p != f->unset;
    case FIELD_UINT:
        return *(const uint64_t *)p != 0;
    case FIELD_BOOL:
        return *(const bool *)p;
    case FIELD_REAL:
        return *(const double *)p < f->unset || *(const double *)p > f->unset;
    case FIELD_ENUM:
    case FIELD_ERR:
        return *(const int *)p != 0;
    case FIELD_STRS:
        return ((const struct strs *)p)->n != 0;
    case FIELD_JSON:
    case FIELD_OBJECT:
    case FIELD_ARRAY:
        return *(json_t *const *)p != NULL;
    case FIELD_STRUCT:
        return fields_set(f->of, p);
    case FIELD_STRUCTS:
        return ((const struct list_of_structs *)p)->n != 0;
    case FIELD_SHARED:
        return *(const void *const *)p != f->of->none;
    }
    return false;
}

/* The field that says whether the struct is there at all; NULL: any of them does. */
static const struct field_desc *there_of(const struct fields *t)
{
    const struct field_desc *f = &t->v[0];
    return f->type == FIELD_ERR || f->flags & FIELD_THERE ? f : NULL;
}

bool fields_set(const struct fields *t, const void *s)
{
    const struct field_desc *there = there_of(t);
    if (there)
        return field_is_set(there, s);
    for (unsigned i = 0; i < t->n; i++)
        if (field_is_set(&t->v[i], s))
            return true;
    return json_object_size(*unknown_in(t, s)) > 0;
}

/* ---- loading ---- */

static int load_object(const struct field_desc *f, json_t **p, const json_t *v, bool right)
{
    if (!right)
        return -EINVAL;
    /* Of what is always written an empty one means none. */
    bool empty = f->flags & FIELD_ALWAYS && !json_object_size(v) && !json_array_size(v);
    json_decref(*p);
    *p = empty ? NULL : json_incref((json_t *)(uintptr_t)v);
    return 0;
}

int text_set(char **at, const json_t *v)
{
    CLEANUP_FREE char *text = json_text(v, NULL);
    return text || !v ? str_set(at, text) : strings_set_nomem();
}

json_t *text_document(const char *text)
{
    return text[0] ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;
}

void field_is_there(const struct fields *t, void *s)
{
    const struct field_desc *there = there_of(t);
    if (there && there->flags & FIELD_THERE)
        *(bool *)place(there, s) = true;
    else if (there && !field_is_set(there, s))
        *(enum err_class *)place(there, s) = ERR_GENERIC;
}

static int load_struct(const struct field_desc *f, void *p, const json_t *v)
{
    bool just_there = f->flags & FIELD_TRUE && json_is_true(v);
    if (f->flags & FIELD_TRUE && json_is_false(v))
        return 0;
    if (!json_is_object(v) && !just_there)
        return -EINVAL;
    int rc = just_there ? 0 : fields_load(f->of, p, v);
    field_is_there(f->of, p);
    return rc;
}

static int load_structs(const struct field_desc *f, struct list_of_structs *l, const json_t *v)
{
    size_t n = json_array_size(v);
    for (size_t i = 0; i < n; i++)
        if (!json_is_object(json_array_get(v, i)))
            return -EINVAL;
    if (!json_is_array(v))
        return -EINVAL;
    if (n && !(l->v = calloc(n, f->of->size)))
        return strings_set_nomem();
    const struct field_desc one = {.name = f->name, .type = FIELD_STRUCT, .of = f->of};
    int rc = 0;
    for (; l->n < n && rc == 0; l->n++) {
        fields_init(f->of, element(l, f->of, l->n));
        rc = load_struct(&one, element(l, f->of, l->n), json_array_get(v, l->n));
    }
    return rc;
}

/* Every element is a string; else the whole member counts as one of another type. */
static bool all_strings(const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i)))
            return false;
    return json_is_array(v);
}

/* -EINVAL: not of the field's type. */
static int load_field(const struct field_desc *f, void *p, const json_t *v)
{
    switch ((enum field_type)f->type) {
    case FIELD_STR:
        /* Text with a NUL in it cannot be held. */
        return json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v)
                   ? str_set(p, json_string_value(v))
                   : -EINVAL;
    case FIELD_INT:
        if (!json_is_integer(v))
            return -EINVAL;
        *(int64_t *)p = json_integer_value(v);
        return 0;
    case FIELD_UINT:
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return -EINVAL;
        *(uint64_t *)p = (uint64_t)json_integer_value(v);
        return 0;
    case FIELD_BOOL:
        if (!json_is_boolean(v))
            return -EINVAL;
        *(bool *)p = json_is_true(v);
        return 0;
    case FIELD_REAL:
        if (!json_is_number(v))
            return -EINVAL;
        *(double *)p = json_number_value(v);
        return 0;
    case FIELD_ENUM: {
        const char *word = json_string_value(v);
        int n = word ? enum_value(f->names, word) : 0;
        if (!word || (!n && word[0]))
            return -EINVAL;
        *(int *)p = n;
        return 0;
    }
    case FIELD_ERR:
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT8_MAX)
            return -EINVAL;
        *(enum err_class *)p = (enum err_class)json_integer_value(v);
        return 0;
    case FIELD_STRS:
        return all_strings(v) ? strs_from_json(p, v) : -EINVAL;
    case FIELD_JSON:
        return load_object(f, p, v, true);
    case FIELD_OBJECT:
        return load_object(f, p, v, json_is_object(v));
    case FIELD_ARRAY:
        return load_object(f, p, v, json_is_array(v));
    case FIELD_TEXT:
        return json_is_object(v) ? text_set(p, v) : -EINVAL;
    case FIELD_STRUCT:
        return load_struct(f, p, v);
    case FIELD_STRUCTS:
        return load_structs(f, p, v);
    case FIELD_SHARED:
        if (!json_is_object(v))
            return -EINVAL;
        shared_unref(*(const void **)p);
        *(const void **)p = shared_from_json(f->of, v);
        return 0;
    case FIELD_REST: /* no member has its name */
        break;
    }
    return -EINVAL;
}

static int keep_unknown(json_t **unknown, const char *name, const json_t *v)
{
    if (!*unknown && !(*unknown = json_object()))
        return strings_set_nomem();
    return json_object_set(*unknown, name, (json_t *)(uintptr_t)v) < 0 ? strings_set_nomem() : 0;
}

/* The word of an error's class is made from its number, unless it is another one; steps write the number under that
 * name. */
static int load_class(const struct fields *t, void *s, const json_t *v)
{
    const struct field_desc *f = &t->v[0];
    if (!v || json_is_null(v))
        return 0;
    if (json_is_integer(v) && !field_is_set(f, s) && load_field(f, place(f, s), v) == 0)
        return 0;
    const enum err_class code = *(const enum err_class *)place_in(f, s);
    return json_is_string(v) && !strcmp(json_string_value(v), err_class_name(code))
               ? 0
               : keep_unknown(unknown_of(t, s), "class", v);
}

static bool has_class(const struct fields *t)
{
    return t->n && t->v[0].type == FIELD_ERR;
}

char **field_rest(const struct fields *t, void *s)
{
    const struct field_desc *last = t->n ? &t->v[t->n - 1] : NULL;
    return last && last->type == FIELD_REST ? place(last, s) : NULL;
}

void field_rest_name(struct text_buf *rest, const char *name, size_t n)
{
    if (rest->n)
        text_put(rest, ",", 1);
    text_put_string(rest, name, n);
    text_put(rest, ":", 1);
}

int field_rest_end(char **at, struct text_buf *rest)
{
    const int rc = rest->failed ? strings_set_nomem() : rest->n ? str_set(at, rest->v) : 0;
    free(rest->v);
    *rest = (struct text_buf){.v = NULL};
    return rc;
}

int field_load_class(const struct fields *t, void *s, const json_t *v)
{
    return has_class(t) ? load_class(t, s, v) : 0;
}

int field_load_member(const struct fields *t, void *s, const struct field_desc *f, const char *name, const json_t *v)
{
    const int rc = f ? load_field(f, place(f, s), v) : -EINVAL;
    return rc == -EINVAL ? keep_unknown(unknown_of(t, s), name, v) : rc;
}

int fields_load(const struct fields *t, void *s, const json_t *doc)
{
    const char *name;
    json_t *v;
    char **rest_at = field_rest(t, s);
    struct text_buf rest = {.v = NULL};
    int rc = 0;
    fields_clear(t, s);
    json_object_foreach((json_t *)(uintptr_t)doc, name, v)
    {
        const struct field_desc *f = field_find(t, name);
        if ((json_is_null(v) && f) || (has_class(t) && !strcmp(name, "class")))
            continue;
        if (!f && rest_at) {
            field_rest_name(&rest, name, strlen(name));
            text_put_json(&rest, v);
            continue;
        }
        const int loaded = field_load_member(t, s, f, name, v);
        if (loaded < 0)
            rc = loaded;
    }
    if (rest_at && field_rest_end(rest_at, &rest) < 0)
        rc = -ENOMEM;
    const int loaded = field_load_class(t, s, json_object_get(doc, "class"));
    return loaded < 0 ? loaded : rc;
}

/* ---- shared structs ---- */

static struct shared **buckets;
static size_t n_buckets, n_shared;

static uint32_t mix(uint32_t h, uint64_t v)
{
    h = (h ^ (uint32_t)v) * 0x9e3779b1u;
    h = (h ^ (uint32_t)(v >> 32)) * 0x85ebca6bu;
    return h ^ h >> 15;
}

/* Of what is quickly compared; equal structs have the same. */
static uint32_t fields_hash(const struct fields *t, const void *s, uint32_t h)
{
    for (unsigned i = 0; i < t->n; i++) {
        const struct field_desc *f = &t->v[i];
        const void *p = place_in(f, s);
        if (f->type == FIELD_STR)
            h = mix(h, str_hash(*(char *const *)p));
        else if (f->type == FIELD_INT || f->type == FIELD_UINT)
            h = mix(h, *(const uint64_t *)p);
        else if (f->type == FIELD_BOOL)
            h = mix(h, *(const bool *)p);
        else if (f->type == FIELD_STRS)
            h = mix(h, ((const struct strs *)p)->n);
        else if (f->type == FIELD_STRUCT)
            h = fields_hash(f->of, p, h);
    }
    return h;
}

static void grow(void)
{
    size_t n = n_buckets ? 2 * n_buckets : 64;
    struct shared **fresh = calloc(n, sizeof(struct shared *));
    if (!fresh)
        return;
    for (size_t i = 0; i < n_buckets; i++) {
        for (struct shared *x = buckets[i], *next; x; x = next) {
            next = x->next;
            x->next = fresh[x->hash & (n - 1)];
            fresh[x->hash & (n - 1)] = x;
        }
    }
    free(buckets);
    buckets = fresh;
    n_buckets = n;
}

const void *shared_make(const struct fields *t, void *s)
{
    if (fields_equal(t, s, t->none)) {
        fields_clear(t, s);
        return t->none;
    }
    uint32_t h = fields_hash(t, s, 0);
    if (n_shared >= n_buckets)
        grow();
    for (struct shared *x = n_buckets ? buckets[h & (n_buckets - 1)] : NULL; x; x = x->next) {
        if (x->hash != h || x->type != t || !fields_equal(t, x, s))
            continue;
        fields_clear(t, s);
        x->refs++;
        return x;
    }
    struct shared *x = n_buckets ? malloc(t->size) : NULL;
    if (!x) {
        strings_set_nomem();
        fields_clear(t, s);
        return t->none;
    }
    memcpy(x, s, t->size);
    *x = (struct shared){.refs = 1, .hash = h, .type = t, .next = buckets[h & (n_buckets - 1)]};
    buckets[h & (n_buckets - 1)] = x;
    n_shared++;
    fields_init(t, s);
    return x;
}

const void *shared_ref(const void *p)
{
    struct shared *x = (struct shared *)(uintptr_t)p;
    if (x->refs)
        x->refs++;
    return p;
}

/* ---- found by their text, if they keep one: nearly all rows that are read have the same few ---- */

#define TEXTS 256
static const struct shared *by_text[TEXTS]; /* not counted */

static const struct shared **text_at(const char *text, size_t n)
{
    uint32_t h = (uint32_t)n;
    for (size_t i = 0; i < n; i += 5)
        h = h * 31 + (unsigned char)text[i];
    return &by_text[(h ^ h >> 11) % TEXTS];
}

const void *shared_by_text(const struct fields *t, const char *text, size_t n)
{
    const struct shared *x = t->keep_text ? *text_at(text, n) : NULL;
    return x && x->type == t && x->text_len == n && !memcmp(x->text, text, n) ? x : NULL;
}

void shared_note_text(const void *p, const char *text, size_t n)
{
    const struct shared *x = p;
    if (x->refs && x->text && x->text_len == n && !memcmp(x->text, text, n))
        *text_at(text, n) = x;
}

static void forget_text(const struct shared *x)
{
    const struct shared **at = x->text ? text_at(x->text, x->text_len) : NULL;
    if (at && *at == x)
        *at = NULL;
}

void shared_unref(const void *p)
{
    struct shared *x = (struct shared *)(uintptr_t)p;
    if (!x || !x->refs || --x->refs)
        return;
    const struct fields *t = x->type;
    forget_text(x);
    struct shared **link = &buckets[x->hash & (n_buckets - 1)];
    while (*link != x)
        link = &(*link)->next;
    *link = x->next;
    n_shared--;
    fields_clear(t, x);
    free(x);
}

bool shared_is_none(const void *p)
{
    return ((const struct shared *)p)->refs == 0;
}

size_t shared_count(void)
{
    return n_shared;
}

const void *shared_from_json(const struct fields *t, const json_t *doc)
{
    void *s = malloc(t->size);
    const void *ret = t->none;
    if (!s) {
        strings_set_nomem();
        return ret;
    }
    fields_init(t, s);
    if (fields_load(t, s, doc) == 0)
        ret = shared_make(t, s);
    else
        fields_clear(t, s);
    free(s);
    return ret;
}
