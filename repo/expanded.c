/* SPDX-License-Identifier: GPL-2.0-or-later */
/* expanded.c - entries of small collections of manifests, kept in memory */
#include "repo/expanded.h"

#include "repo/gojson.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PARSED 5 /* memory of parsed labels and their text, in lengths of the text */

struct expanded {
    pthread_mutex_t lock;
    struct expanded_content **list; /* in the order of their ids */
    size_t n, cap;
    size_t bytes;
};

struct expanded *expanded_new(void)
{
    struct expanded *x = calloc(1, sizeof *x);
    if (x)
        pthread_mutex_init(&x->lock, NULL);
    return x;
}

void expanded_content_clear(struct expanded_content *c)
{
    for (size_t i = 0; i < c->n; i++) {
        json_decref(c->entries[i].labels_json);
        free(c->entries[i].text);
    }
    free(c->entries);
    c->entries = NULL;
    c->n = c->cap = 0;
    c->whole = false;
}

void expanded_free(struct expanded *x)
{
    if (!x)
        return;
    for (size_t i = 0; i < x->n; i++) {
        expanded_content_clear(x->list[i]);
        free(x->list[i]);
    }
    free(x->list);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

/* The place of the first one that is not before `id`. */
static size_t lower_bound(const struct expanded *x, const struct content_id *id)
{
    size_t from = 0, to = x->n;
    while (from < to) {
        const size_t at = from + (to - from) / 2;
        if (content_id_cmp(&x->list[at]->id, id) < 0)
            from = at + 1;
        else
            to = at;
    }
    return from;
}

const struct expanded_content *expanded_find(struct expanded *x, const struct content_id *id)
{
    pthread_mutex_lock(&x->lock);
    const size_t at = lower_bound(x, id);
    const struct expanded_content *c = at < x->n && content_id_equal(&x->list[at]->id, id) ? x->list[at] : NULL;
    pthread_mutex_unlock(&x->lock);
    return c;
}

void expanded_begin(struct expanded *x, struct expanded_content *c, const struct content_id *id)
{
    pthread_mutex_lock(&x->lock);
    *c = (struct expanded_content){.id = *id, .bytes = sizeof *c, .whole = x->bytes + sizeof *c < EXPANDED_MAX};
    pthread_mutex_unlock(&x->lock);
}

void expanded_entry(struct expanded_content *c, const struct raw_manifest *entry)
{
    if (!c->whole)
        return;
    const size_t labels = entry->labels ? entry->labels_len : 0, data = entry->data ? entry->data_len : 0;
    c->bytes += sizeof *entry + PARSED * labels + data + 1;
    if (c->n == c->cap) {
        const size_t cap = c->cap ? c->cap * 2 : 1;
        struct raw_manifest *more = c->bytes <= EXPANDED_MAX ? reallocarray(c->entries, cap, sizeof *more) : NULL;
        if (!more) {
            expanded_content_clear(c);
            return;
        }
        c->entries = more;
        c->cap = cap;
    }
    char *text = c->bytes <= EXPANDED_MAX ? malloc(labels + data + 1) : NULL;
    if (!text) {
        expanded_content_clear(c);
        return;
    }
    struct raw_manifest *own = &c->entries[c->n++];
    *own = *entry;
    if (labels)
        memcpy(text, entry->labels, labels);
    if (data)
        memcpy(text + labels, entry->data, data);
    own->text = text;
    own->whole = NULL;
    own->whole_len = 0;
    own->labels = entry->labels ? text : NULL;
    own->data = entry->data ? text + labels : NULL;
    own->labels_len = labels;
    own->data_len = data;
    own->labels_json = own->labels ? go_parse(own->labels, labels) : NULL;
}

/* False: it stays with the caller. */
static bool take(struct expanded *x, const struct expanded_content *c)
{
    const size_t at = lower_bound(x, &c->id);
    if (x->bytes + c->bytes > EXPANDED_MAX || (at < x->n && content_id_equal(&x->list[at]->id, &c->id)))
        return false;
    if (x->n == x->cap) {
        const size_t cap = x->cap ? x->cap * 2 : 64;
        struct expanded_content **more = reallocarray(x->list, cap, sizeof *more);
        if (!more)
            return false;
        x->list = more;
        x->cap = cap;
    }
    struct expanded_content *own = malloc(sizeof *own);
    if (!own)
        return false;
    *own = *c;
    memmove(x->list + at + 1, x->list + at, (x->n - at) * sizeof *x->list);
    x->list[at] = own;
    x->n++;
    x->bytes += c->bytes;
    return true;
}

void expanded_put(struct expanded *x, struct expanded_content *c)
{
    pthread_mutex_lock(&x->lock);
    const bool taken = c->whole && take(x, c);
    pthread_mutex_unlock(&x->lock);
    if (!taken)
        expanded_content_clear(c);
}
