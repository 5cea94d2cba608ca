/* SPDX-License-Identifier: GPL-2.0-or-later */
/* image.c - see image.h */
#include "daemon/records/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- hash tables of pointers, chained by a member of what they hold ---- */

/* The link to the next one of the same bucket, and the hash, of an entry. */
typedef void **next_fn(void *entry);
typedef size_t hash_fn(const void *entry);

static void table_grow(struct table *t, next_fn *next, hash_fn *hash)
{
    size_t n = t->n_buckets ? 2 * t->n_buckets : 16;
    void **fresh = calloc(n, sizeof *fresh);
    if (!fresh)
        return; /* only slower */
    for (size_t i = 0; i < t->n_buckets; i++) {
        for (void *x = t->buckets[i], *after; x; x = after) {
            void **link = next(x);
            after = *link;
            *link = fresh[hash(x) & (n - 1)];
            fresh[hash(x) & (n - 1)] = x;
        }
    }
    free(t->buckets);
    t->buckets = fresh;
    t->n_buckets = n;
}

/* Makes sure that there is a bucket. */
static int table_reserve(struct table *t, next_fn *next, hash_fn *hash)
{
    if (t->n >= t->n_buckets)
        table_grow(t, next, hash);
    return t->n_buckets ? 0 : strings_set_nomem();
}

static void table_add(struct table *t, void *x, next_fn *next, hash_fn *hash)
{
    void **bucket = &t->buckets[hash(x) & (t->n_buckets - 1)];
    *next(x) = *bucket;
    *bucket = x;
    t->n++;
}

static void table_remove(struct table *t, void *x, next_fn *next, hash_fn *hash)
{
    void **link = &t->buckets[hash(x) & (t->n_buckets - 1)];
    while (*link != x)
        link = next(*link);
    *link = *next(x);
    t->n--;
}

static void *table_first(const struct table *t, size_t hash)
{
    return t->n_buckets ? t->buckets[hash & (t->n_buckets - 1)] : NULL;
}

static size_t hash_number(uint64_t n)
{
    n *= 0x9e3779b97f4a7c15u;
    return (size_t)(n ^ n >> 32);
}

static size_t hash_text(const char *s)
{
    uint64_t h = 14695981039346656037u;
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

static void **object_next_id(void *x)
{
    return (void **)&((struct object *)x)->next_id;
}
static size_t object_hash_id(const void *x)
{
    return hash_text(((const struct object *)x)->id);
}
static void **object_next_seq(void *x)
{
    return (void **)&((struct object *)x)->next_seq;
}
static size_t object_hash_seq(const void *x)
{
    return hash_number(((const struct object *)x)->seq);
}
static void **group_next(void *x)
{
    return (void **)&((struct group *)x)->next;
}
static size_t hash_key(enum order o, const char *key)
{
    return hash_text(key) * ORDERS + o;
}
static size_t group_hash(const void *x)
{
    return hash_key(((const struct group *)x)->order, ((const struct group *)x)->key);
}
static void **noted_next(void *x)
{
    return (void **)&((struct noted *)x)->next_id;
}
static size_t noted_hash(const void *x)
{
    return hash_number(((const struct noted *)x)->id);
}

static void **owner_next(void *x)
{
    return (void **)&((struct owner *)x)->next;
}
static size_t owner_hash(const void *x)
{
    return hash_text(((const struct owner *)x)->id);
}

/* ---- versions ---- */

static struct version *version_alloc(enum row_kind k)
{
    struct version *v = malloc(sizeof *v + row_types[k].fields->size);
    if (v)
        *v = (struct version){.refs = 1, .kind = k};
    else
        strings_set_nomem();
    return v;
}

struct version *version_blank(enum row_kind k)
{
    struct version *v = version_alloc(k);
    if (v)
        row_init(row_types[k].fields, v->data);
    return v;
}

struct version *version_new(enum row_kind k, const void *row)
{
    struct version *v = version_alloc(k);
    if (!v || row_copy(row_types[k].fields, v->data, row) == 0)
        return v;
    free(v);
    return NULL;
}

struct version *version_ref(struct version *v)
{
    v->refs++;
    return v;
}

void version_unref(struct version *v)
{
    if (!v || --v->refs)
        return;
    row_clear(row_types[v->kind].fields, v->data);
    free(v);
}

/* ---- lists by age ---- */

static struct group *find_group(const struct image *m, enum row_kind k, enum order o, const char *key)
{
    struct group *g = table_first(&m->groups[k], hash_key(o, key));
    while (g && (g->order != o || strcmp(g->key, key) != 0))
        g = g->next;
    return g;
}

static struct group *need_group(struct image *m, enum row_kind k, enum order o, const char *key)
{
    struct group *g = find_group(m, k, o, key);
    if (g || table_reserve(&m->groups[k], group_next, group_hash) < 0)
        return g;
    if (!(g = calloc(1, sizeof *g))) {
        strings_set_nomem();
        return NULL;
    }
    g->order = o;
    g->key = str_empty;
    if (str_set(&g->key, key) < 0) {
        free(g);
        return NULL;
    }
    table_add(&m->groups[k], g, group_next, group_hash);
    return g;
}

static const char *key_of(const struct row *r, enum order o)
{
    return o == BY_AGE ? "" : o == BY_PARENT ? r->parent : r->volume_id;
}

/* A version that leaves the image. */
static void detach(struct image *m, struct version *v)
{
    for (enum order o = 0; v && o < ORDERS; o++) {
        struct group *g = v->group[o];
        v->group[o] = NULL;
        if (!g || --g->users)
            continue;
        table_remove(&m->groups[v->kind], g, group_next, group_hash);
        str_clear(&g->key);
        free(g);
    }
}

/* One that enters it. */
static int attach(struct image *m, struct version *v)
{
    for (enum order o = 0; o < ORDERS; o++) {
        struct group *g = need_group(m, v->kind, o, key_of(version_row(v), o));
        if (!g) {
            detach(m, v);
            return -ENOMEM;
        }
        v->group[o] = g;
        g->users++;
    }
    return 0;
}

/* Most are the youngest. */
static void list_add(struct object *obj, enum order o)
{
    struct group *g = obj->now->group[o];
    struct object *older = g->last;
    while (older && older->seq > obj->seq)
        older = older->older[o];
    obj->older[o] = older;
    obj->younger[o] = older ? older->younger[o] : g->first;
    *(obj->older[o] ? &obj->older[o]->younger[o] : &g->first) = obj;
    *(obj->younger[o] ? &obj->younger[o]->older[o] : &g->last) = obj;
}

static void list_remove(struct object *obj, enum order o)
{
    struct group *g = obj->now->group[o];
    *(obj->older[o] ? &obj->older[o]->younger[o] : &g->first) = obj->younger[o];
    *(obj->younger[o] ? &obj->younger[o]->older[o] : &g->last) = obj->older[o];
}

static void leave_lists(struct image *m, struct object *obj)
{
    for (enum order o = 0; obj->now && o < ORDERS; o++)
        list_remove(obj, o);
    if (obj->now)
        m->states[obj->kind][version_state(obj->now)]--;
}

static void join_lists(struct image *m, struct object *obj)
{
    for (enum order o = 0; obj->now && o < ORDERS; o++)
        list_add(obj, o);
    if (obj->now)
        m->states[obj->kind][version_state(obj->now)]++;
}

/* ---- rows ---- */

bool image_keeps(enum row_kind k, int state)
{
    return state < row_types[k].terminal;
}

struct object *image_find(const struct image *m, enum row_kind k, const char *id)
{
    struct object *obj = table_first(&m->ids[k], hash_text(id));
    while (obj && strcmp(obj->id, id) != 0)
        obj = obj->next_id;
    return obj;
}

struct object *image_find_seq(const struct image *m, enum row_kind k, uint64_t seq)
{
    struct object *obj = table_first(&m->seqs[k], hash_number(seq));
    while (obj && obj->seq != seq)
        obj = obj->next_seq;
    return obj;
}

struct object *image_first(const struct image *m, enum row_kind k, enum order o, const char *key)
{
    const struct group *g = find_group(m, k, o, o == BY_AGE ? "" : key);
    return g ? g->first : NULL;
}

struct object *image_put(struct image *m, struct version *v)
{
    struct object *obj = calloc(1, sizeof *obj);
    enum row_kind k = v->kind;
    if (!obj || table_reserve(&m->ids[k], object_next_id, object_hash_id) < 0 ||
        table_reserve(&m->seqs[k], object_next_seq, object_hash_seq) < 0 || attach(m, v) < 0) {
        strings_set_nomem();
        free(obj);
        version_unref(v);
        return NULL;
    }
    obj->kind = k;
    obj->id = str_ref(version_row(v)->id);
    obj->seq = version_row(v)->seq;
    obj->now = v;
    table_add(&m->ids[k], obj, object_next_id, object_hash_id);
    table_add(&m->seqs[k], obj, object_next_seq, object_hash_seq);
    join_lists(m, obj);
    return obj;
}

/* Out of the image; nothing is now. */
/* ---- those that left lately ---- */

static struct version **recent_at(const struct image *m, uint64_t seq)
{
    return (struct version **)(uintptr_t)&m->recent[seq % RECENT_OPERATIONS];
}

/* Takes the reference over. */
static void keep_recent(struct image *m, struct version *v)
{
    struct version **at = recent_at(m, version_row(v)->seq);
    version_unref(*at);
    *at = v;
    m->recent_hash[at - m->recent] = (uint32_t)hash_text(version_row(v)->id);
}

struct version *image_recent(const struct image *m, enum row_kind k, uint64_t seq)
{
    struct version *v = k == ROW_OPERATION ? *recent_at(m, seq) : NULL;
    return v && version_row(v)->seq == seq ? v : NULL;
}

struct version *image_recent_id(const struct image *m, enum row_kind k, const char *id)
{
    const uint32_t hash = (uint32_t)hash_text(id);
    for (unsigned i = 0; k == ROW_OPERATION && i < RECENT_OPERATIONS; i++)
        if (m->recent_hash[i] == hash && m->recent[i] && !strcmp(version_row(m->recent[i])->id, id))
            return m->recent[i];
    return NULL;
}

void image_note_recent(struct image *m, struct version *v)
{
    if (v->kind == ROW_OPERATION)
        keep_recent(m, version_ref(v));
}

static void drop_recent(struct image *m, enum row_kind k, uint64_t seq)
{
    if (!image_recent(m, k, seq))
        return;
    version_unref(*recent_at(m, seq));
    *recent_at(m, seq) = NULL;
}

void image_forget_recent(struct image *m)
{
    for (unsigned i = 0; i < RECENT_OPERATIONS; i++) {
        version_unref(m->recent[i]);
        m->recent[i] = NULL;
    }
}

static void remove_object(struct image *m, struct object *obj)
{
    enum row_kind k = obj->kind;
    table_remove(&m->ids[k], obj, object_next_id, object_hash_id);
    table_remove(&m->seqs[k], obj, object_next_seq, object_hash_seq);
    str_clear(&obj->id);
    free(obj);
}

static void note_changed(struct image *m, struct object *obj)
{
    obj->changed = true;
    obj->next_changed = NULL;
    *m->changed_end = obj;
    m->changed_end = &obj->next_changed;
}

static void set_seq(struct image *m, struct object *obj, uint64_t seq)
{
    enum row_kind k = obj->kind;
    if (obj->seq == seq)
        return;
    drop_recent(m, k, obj->seq);
    table_remove(&m->seqs[k], obj, object_next_seq, object_hash_seq);
    obj->seq = seq;
    table_add(&m->seqs[k], obj, object_next_seq, object_hash_seq);
}

/* Whether a row keeps its place in all lists. */
static bool same_place(const struct object *obj, struct version *v)
{
    bool same = obj->now && v && version_row(v)->seq == obj->seq;
    for (enum order o = 0; same && o < ORDERS; o++)
        same = v->group[o] == obj->now->group[o];
    return same;
}

/* What is now becomes `v`, which is attached, or NULL; nothing is released. */
static void set_now(struct image *m, struct object *obj, struct version *v)
{
    if (same_place(obj, v)) {
        m->states[obj->kind][version_state(obj->now)]--;
        m->states[obj->kind][version_state(v)]++;
        obj->now = v;
        return;
    }
    leave_lists(m, obj);
    if (v)
        set_seq(m, obj, version_row(v)->seq);
    obj->now = v;
    join_lists(m, obj);
}

/* Makes sure that there is an element of `size` bytes behind the last one. */
static int reserve(void *list, size_t n, size_t *cap, size_t size)
{
    void **at = list;
    if (n < *cap)
        return 0;
    const size_t more = *cap ? 2 * *cap : 16;
    void *fresh = reallocarray(*at, more, size);
    if (!fresh)
        return strings_set_nomem();
    *at = fresh;
    *cap = more;
    return 0;
}

int image_change(struct image *m, struct object *obj, struct version *v)
{
    struct version *old = obj->now;
    struct savepoint *s = &m->save;
    const bool remember = obj->changed && s->set;
    const uint64_t seq = obj->seq;
    if ((remember && reserve(&s->rows, s->n_rows, &s->cap_rows, sizeof *s->rows) < 0) || (v && attach(m, v) < 0)) {
        version_unref(v);
        return -ENOMEM;
    }
    set_now(m, obj, v);
    if (remember) {
        s->rows[s->n_rows++] = (struct replaced_row){obj, old, seq};
    } else if (obj->changed) {
        detach(m, old);
        version_unref(old);
    } else {
        obj->was = old;
        note_changed(m, obj);
    }
    m->replaced += v && obj->was && version_row(obj->was)->seq != obj->seq;
    return 0;
}

bool image_replaces(const struct image *m, enum row_kind k, uint64_t seq)
{
    const struct object *obj = m->replaced ? m->changed : NULL;
    while (obj && (obj->kind != k || !obj->was || version_row(obj->was)->seq != seq || obj->seq == seq))
        obj = obj->next_changed;
    return obj != NULL;
}

int image_add(struct image *m, struct version *v)
{
    struct object *obj = image_find(m, v->kind, version_row(v)->id);
    if (obj) /* the transaction has deleted one of that id */
        return image_change(m, obj, v);
    if (!(obj = image_put(m, v)))
        return -ENOMEM;
    note_changed(m, obj);
    return 0;
}

void image_tidy(struct image *m, struct object *obj)
{
    struct version *v = obj->now;
    if (obj->changed || image_keeps(v->kind, version_state(v)))
        return;
    leave_lists(m, obj);
    detach(m, v);
    remove_object(m, obj);
    if (v->kind == ROW_OPERATION)
        keep_recent(m, v);
    else
        version_unref(v);
}

/* ---- intents ---- */

struct noted *image_intent(const struct image *m, uint64_t id)
{
    struct noted *i = table_first(&m->intents, hash_number(id));
    while (i && i->id != id)
        i = i->next_id;
    return i;
}

static void note_intent(struct image *m, struct noted *i)
{
    i->changed = true;
    i->next_changed = NULL;
    *m->changed_intents_end = i;
    m->changed_intents_end = &i->next_changed;
}

static struct owner *find_owner(const struct image *m, const char *id)
{
    struct owner *o = table_first(&m->owners, hash_text(id));
    while (o && strcmp(o->id, id) != 0)
        o = o->next;
    return o;
}

struct noted *image_intents(const struct image *m, const char *owner)
{
    const struct owner *o = owner ? find_owner(m, owner) : NULL;
    return !owner ? m->newest : o ? o->newest : NULL;
}

static struct owner *need_owner(struct image *m, const char *id)
{
    struct owner *o = find_owner(m, id);
    if (o || table_reserve(&m->owners, owner_next, owner_hash) < 0 || !(o = calloc(1, sizeof *o)))
        return o;
    o->id = str_empty;
    if (str_set(&o->id, id) < 0) {
        free(o);
        return NULL;
    }
    table_add(&m->owners, o, owner_next, owner_hash);
    return o;
}

static void drop_owner(struct image *m, struct owner *o)
{
    if (o->newest)
        return;
    table_remove(&m->owners, o, owner_next, owner_hash);
    str_clear(&o->id);
    free(o);
}

static void free_intent(struct noted *i)
{
    str_clear(&i->kind);
    str_clear(&i->name);
    free(i->doc);
    free(i->was_doc);
    free(i);
}

static void push_intent(struct noted *i, int list, struct noted **newest)
{
    i->older[list] = *newest;
    if (*newest)
        (*newest)->younger[list] = i;
    *newest = i;
}

static void pull_intent(struct noted *i, int list, struct noted **newest)
{
    *(i->younger[list] ? &i->younger[list]->older[list] : newest) = i->older[list];
    if (i->older[list])
        i->older[list]->younger[list] = i->younger[list];
}

int image_intent_add(struct image *m, uint64_t id, const char *owner, const char *kind, const char *name,
                     int64_t created_ns, char *doc, bool on_disk)
{
    struct noted *i = table_reserve(&m->intents, noted_next, noted_hash) < 0 ? NULL : calloc(1, sizeof *i);
    struct owner *o = i ? need_owner(m, owner) : NULL;
    if (!o) {
        free(i);
        free(doc);
        return strings_set_nomem();
    }
    *i = (struct noted){
        .id = id, .owner = o, .kind = str_empty, .name = str_empty, .created_ns = created_ns, .doc = doc};
    if (str_set(&i->kind, kind) < 0 || str_set(&i->name, name) < 0) {
        drop_owner(m, o);
        free_intent(i);
        return -ENOMEM;
    }
    table_add(&m->intents, i, noted_next, noted_hash);
    push_intent(i, 0, &m->newest);
    push_intent(i, 1, &o->newest);
    if (!on_disk)
        note_intent(m, i);
    return 0;
}

int image_intent_change(struct image *m, struct noted *i, char *doc)
{
    struct savepoint *s = &m->save;
    if (i->changed && s->set && reserve(&s->intents, s->n_intents, &s->cap_intents, sizeof *s->intents) < 0) {
        free(doc);
        return -ENOMEM;
    }
    if (i->changed && s->set) {
        s->intents[s->n_intents++] = (struct replaced_intent){i, i->doc};
    } else if (i->changed) {
        free(i->doc);
    } else {
        i->was_doc = i->doc;
        note_intent(m, i);
    }
    i->doc = doc;
    return 0;
}

/* One whose change has ended; without a document it goes. */
static void end_intent(struct image *m, struct noted *i, char *doc, char *other)
{
    free(other);
    i->doc = doc;
    i->was_doc = NULL;
    i->changed = false;
    if (doc)
        return;
    table_remove(&m->intents, i, noted_next, noted_hash);
    pull_intent(i, 0, &m->newest);
    pull_intent(i, 1, &i->owner->newest);
    drop_owner(m, i->owner);
    free_intent(i);
}

/* ---- transactions ---- */

static void take_back(struct image *m, struct object *obj)
{
    struct version *now = obj->now;
    set_now(m, obj, obj->was);
    obj->was = now;
}

/* What is now stays, or what was comes back. */
static void end_object(struct image *m, struct object *obj, bool undo)
{
    if (undo)
        take_back(m, obj);
    struct version *v = obj->now, *gone = obj->was;
    obj->changed = false;
    obj->was = NULL;
    detach(m, gone);
    if (v) {
        image_tidy(m, obj);
    } else {
        drop_recent(m, obj->kind, obj->seq);
        remove_object(m, obj);
    }
    version_unref(gone);
}

static void end_intents(struct image *m, struct noted *first, bool undo)
{
    for (struct noted *i = first, *next; i; i = next) {
        next = i->next_changed;
        end_intent(m, i, undo ? i->was_doc : i->doc, undo ? i->doc : i->was_doc);
    }
}

static void end(struct image *m, bool undo)
{
    struct object *first = m->changed, *next;
    struct noted *intents = m->changed_intents;
    image_savepoint_keep(m);
    for (struct object *obj = first; obj; obj = next) {
        next = obj->next_changed;
        end_object(m, obj, undo);
    }
    end_intents(m, intents, undo);
    m->replaced = 0;
    m->changed = NULL;
    m->changed_end = &m->changed;
    m->changed_intents = NULL;
    m->changed_intents_end = &m->changed_intents;
}

void image_undo(struct image *m)
{
    end(m, true);
}

void image_settle(struct image *m)
{
    end(m, false);
}

/* ---- savepoints ---- */

void image_savepoint(struct image *m)
{
    struct savepoint *s = &m->save;
    s->set = true;
    s->changed_end = m->changed_end;
    s->changed_intents_end = m->changed_intents_end;
    s->replaced = m->replaced;
}

void image_savepoint_keep(struct image *m)
{
    struct savepoint *s = &m->save;
    for (size_t i = 0; i < s->n_rows; i++) {
        detach(m, s->rows[i].was);
        version_unref(s->rows[i].was);
    }
    for (size_t i = 0; i < s->n_intents; i++)
        free(s->intents[i].was);
    s->n_rows = s->n_intents = 0;
    s->set = false;
}

void image_savepoint_undo(struct image *m, image_undo_fn *fn, void *arg)
{
    struct savepoint *s = &m->save;
    struct object *first = *s->changed_end, *next;
    struct noted *intents = *s->changed_intents_end;
    while (s->n_rows) {
        const struct replaced_row *x = &s->rows[--s->n_rows];
        struct version *now = x->obj->now;
        fn(x->obj, now, x->was, arg);
        set_now(m, x->obj, x->was);
        set_seq(m, x->obj, x->seq);
        detach(m, now);
        version_unref(now);
    }
    while (s->n_intents) {
        const struct replaced_intent *x = &s->intents[--s->n_intents];
        free(x->intent->doc);
        x->intent->doc = x->was;
    }
    for (struct object *obj = first; obj; obj = next) {
        next = obj->next_changed;
        fn(obj, obj->now, obj->was, arg);
        end_object(m, obj, true);
    }
    end_intents(m, intents, true);
    *s->changed_end = NULL;
    m->changed_end = s->changed_end;
    *s->changed_intents_end = NULL;
    m->changed_intents_end = s->changed_intents_end;
    m->replaced = s->replaced;
    s->set = false;
}

/* ---- life ---- */

void image_init(struct image *m)
{
    memset(m, 0, sizeof *m);
    m->changed_end = &m->changed;
    m->changed_intents_end = &m->changed_intents;
}

static void free_table(struct table *t)
{
    free(t->buckets);
}

void image_free(struct image *m)
{
    image_undo(m);
    for (enum row_kind k = 0; k < ROW_KINDS; k++) {
        for (struct object *obj; (obj = image_first(m, k, BY_AGE, NULL));) {
            struct version *v = obj->now;
            leave_lists(m, obj);
            detach(m, v);
            remove_object(m, obj);
            version_unref(v);
        }
        free_table(&m->ids[k]);
        free_table(&m->seqs[k]);
        free_table(&m->groups[k]);
    }
    while (m->newest)
        end_intent(m, m->newest, NULL, m->newest->doc);
    free_table(&m->intents);
    free_table(&m->owners);
    free(m->save.rows);
    free(m->save.intents);
    image_forget_recent(m);
    image_init(m);
}
