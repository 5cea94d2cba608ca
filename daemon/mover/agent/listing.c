/* SPDX-License-Identifier: GPL-2.0-or-later */
/* listing.c - see listing.h */
#include "daemon/mover/agent/listing.h"

#include "base/bytes.h"
#include "base/json-bounds.h"
#include "daemon/protocol/mover-wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIME_DIGITS 20

struct listed {
    int64_t time_ns;
    uint8_t id[16];
    uint64_t at; /* in the file */
    uint32_t len, values;
    bool ends_page, put;
};

struct listing {
    struct run_context *run;
    const char *name;
    bool behind; /* behind: `after` is given */
    struct listed after;
    struct listed *v;
    size_t n, cap, placed, put;
    uint64_t room;
    json_t *pages, **items; /* items: of a single page */
};

static int compare(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    return x->time_ns != y->time_ns ? (x->time_ns < y->time_ns ? -1 : 1) : memcmp(x->id, y->id, sizeof x->id);
}

/* "TIME ID", which sorts like the list. */
static void place_text(const struct listed *of, char out[64])
{
    char id[33];
    hex_encode(id, of->id, sizeof of->id);
    snprintf(out, 64, "%0*llu %s", TIME_DIGITS, (unsigned long long)of->time_ns + (1ull << 63), id);
}

static bool place_parse(const char *text, struct listed *ret)
{
    char *end;
    *ret = (struct listed){.time_ns = 0};
    if (strspn(text, "0123456789") != TIME_DIGITS || text[TIME_DIGITS] != ' ')
        return false;
    errno = 0;
    ret->time_ns = (int64_t)(strtoull(text, &end, 10) - (1ull << 63));
    text += TIME_DIGITS + 1;
    return !errno && strlen(text) == 32 && hex_decode(ret->id, text, 32) == 0;
}

int listing_new(struct listing **ret, struct run_context *x, const char *name, const char *after, struct err *e)
{
    struct listing *l = calloc(1, sizeof *l);
    struct stat st;
    if (!l)
        return err_nomem(e);
    *l = (struct listing){.run = x, .name = name, .behind = *after, .pages = json_array()};
    int rc = 0;
    if (!l->pages)
        rc = err_nomem(e);
    else if (*after && !place_parse(after, &l->after))
        rc = err_set(e, ERR_USAGE, EINVAL, "\"%.60s\" is no place in a list of %s", after, name);
    else if (x->listing >= 0 && fstat(x->listing, &st) < 0)
        rc = err_set(e, ERR_GENERIC, errno, "the size of the file for lists is not known");
    if (rc < 0) {
        listing_free(l);
        return rc;
    }
    l->room = x->listing >= 0 ? (uint64_t)st.st_size : WIRE_LIST_MAX - x->listed;
    *ret = l;
    return 0;
}

void listing_free(struct listing *l)
{
    if (!l)
        return;
    for (size_t i = 0; l->items && i < l->placed; i++)
        json_decref(l->items[i]);
    json_decref(l->pages);
    free(l->items);
    free(l->v);
    free(l);
}

static bool listed_key(struct listed *ret, int64_t time_ns, const char *id)
{
    *ret = (struct listed){.time_ns = time_ns};
    return strlen(id) == 32 && hex_decode(ret->id, id, 32) == 0;
}

int listing_note(struct listing *l, int64_t time_ns, const char *id, const json_t *item)
{
    struct listed key;
    if (!listed_key(&key, time_ns, id) || (l->behind && compare(&key, &l->after) <= 0))
        return 0;
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 64;
        struct listed *v = reallocarray(l->v, cap, sizeof *v);
        if (!v)
            return -ENOMEM;
        l->v = v;
        l->cap = cap;
    }
    const size_t len = json_dumpb(item, NULL, 0, JSON_COMPACT);
    if (!len)
        return -ENOMEM;
    key.len = (uint32_t)len;
    key.values = (uint32_t)json_values(item);
    l->v[l->n++] = key;
    return 0;
}

static uint64_t head_len(const struct listing *l)
{
    return strlen(l->name) + strlen("{\"\":[");
}

/* Each item is followed by a comma, the last one of a page by the page's end, and that by a line feed. */
static void place_in_file(struct listing *l)
{
    uint64_t at = 0, page = 0;
    size_t values = 0;
    while (l->placed < l->n) {
        struct listed *x = &l->v[l->placed], *last = l->placed ? x - 1 : NULL;
        const bool more = last && !last->ends_page && at - page + x->len <= WIRE_LISTING_PAGE &&
                          values + x->values + 1 <= WIRE_LIST_VALUES_MAX;
        const uint64_t begin = more ? at : at + (last ? 2 : 0);
        if (begin + (more ? 0 : head_len(l)) + x->len + 3 > l->room)
            break;
        if (!more) {
            if (last) {
                last->ends_page = true;
                json_array_append_new(l->pages, json_integer((json_int_t)(begin - page)));
            }
            page = begin;
            at = begin + head_len(l);
            values = 4;
        }
        x->at = at;
        at += x->len + 1;
        values += x->values + 1;
        l->placed++;
    }
    if (l->placed) {
        l->v[l->placed - 1].ends_page = true;
        json_array_append_new(l->pages, json_integer((json_int_t)(at + 2 - page)));
    }
}

static void place_in_answer(struct listing *l)
{
    struct run_context *x = l->run;
    while (l->placed < l->n && x->listed + l->v[l->placed].len + 1 <= WIRE_LIST_MAX &&
           x->listed_values + l->v[l->placed].values + 1 <= WIRE_LIST_VALUES_MAX) {
        x->listed += l->v[l->placed].len + 1;
        x->listed_values += l->v[l->placed++].values + 1;
    }
}

void listing_place(struct listing *l)
{
    if (l->n)
        qsort(l->v, l->n, sizeof *l->v, compare);
    if (l->run->listing >= 0)
        place_in_file(l);
    else
        place_in_answer(l);
}

static int write_at(int fd, const char *data, size_t len, uint64_t at)
{
    while (len > 0) {
        const ssize_t n = pwrite(fd, data, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data += n;
        len -= (size_t)n;
        at += (uint64_t)n;
    }
    return 0;
}

static int put_in_file(const struct listing *l, const struct listed *x, bool begins_page, const json_t *item)
{
    const size_t head = begins_page ? head_len(l) : 0;
    char *text = malloc(head + x->len + 4);
    if (!text)
        return -ENOMEM;
    if (begins_page)
        sprintf(text, "{\"%s\":[", l->name);
    int rc = -ESTALE;
    if (json_dumpb(item, text + head, x->len, JSON_COMPACT) == x->len) {
        strcpy(text + head + x->len, x->ends_page ? "]}\n" : ",");
        rc = write_at(l->run->listing, text, head + x->len + (x->ends_page ? 3 : 1), x->at - head);
    }
    free(text);
    return rc;
}

int listing_put(struct listing *l, int64_t time_ns, const char *id, const json_t *item)
{
    struct listed key;
    if (!l->placed || !listed_key(&key, time_ns, id))
        return 0;
    struct listed *x = bsearch(&key, l->v, l->placed, sizeof key, compare);
    if (!x || x->put)
        return 0;
    int rc = 0;
    if (l->run->listing >= 0) {
        rc = put_in_file(l, x, x == l->v || x[-1].ends_page, item);
    } else {
        if (!l->items)
            l->items = calloc(l->placed, sizeof(json_t *));
        if (!l->items)
            return -ENOMEM;
        l->items[x - l->v] = json_incref((json_t *)(uintptr_t)item);
    }
    if (rc < 0)
        return rc;
    x->put = true;
    l->put++;
    return 0;
}

static json_t *page_of(const struct listing *l)
{
    json_t *list = json_array();
    for (size_t i = 0; i < l->placed; i++)
        json_array_append(list, l->items[i]);
    return list;
}

int listing_end(struct listing *l, json_t *answer, struct err *e)
{
    char next[64] = "";
    if (l->put != l->placed)
        return err_set(e, ERR_GENERIC, ESTALE, "%zu of %zu %s of a list were not found a second time",
                       l->placed - l->put, l->placed, l->name);
    if (l->placed && l->placed < l->n)
        place_text(&l->v[l->placed - 1], next);
    if (l->run->listing >= 0)
        json_object_set(answer, "pages", l->pages);
    else
        json_object_set_new(answer, l->name, page_of(l));
    return json_object_set_new(answer, "next", json_string(next)) < 0 ? err_nomem(e) : 0;
}
