/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/mapped.h"

#include "base/bytes.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

/*
 * What may be resident of a table: so many windows, and of one that is no larger all. A fault maps more than its page:
 * all of the page cache's folio, which lies in one window (Linux 6.18 and later), or what is there of the AROUND bytes
 * around it, on both sides of a border if the map does not begin at one.
 */
#define WINDOW ((size_t)2 << 20)
#define WINDOWS (MAPPED_RESIDENT / WINDOW)
#define AROUND ((size_t)64 << 10)

/* A growing file without a name, mapped whole. */
struct area {
    int fd;
    uint8_t *at;
    size_t size;
    unsigned touched; /* windows that may be resident; */
    size_t window[WINDOWS];
};

/* Where the cache directory is full, as it is where it lies beside a full repository, tables of this size are in
 * memory.
 */
#define IN_MEMORY ((size_t)24 << 20)

static bool is_full(int sys)
{
    return sys == ENOSPC || sys == EDQUOT;
}

/* Moves it into memory; 0 or errno. */
static int area_to_memory(struct area *a, size_t size)
{
    CLEANUP_CLOSE int fd = memfd_create("snapferry-table", MFD_CLOEXEC);
    void *p = MAP_FAILED;
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        return errno;
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return errno;
    if (a->at) {
        memcpy(p, a->at, a->size < size ? a->size : size);
        munmap(a->at, a->size);
    }
    if (a->fd >= 0)
        close(a->fd);
    a->fd = take_fd(&fd);
    a->at = p;
    a->size = size;
    return 0;
}

static int area_resize(struct area *a, size_t size, struct err *e)
{
    /* Backed by disk space first: a full disk must be an error here, not a signal when the map is written. */
    int sys = size > a->size ? posix_fallocate(a->fd, (off_t)a->size, (off_t)(size - a->size)) : 0;
    if (sys == 0 && ftruncate(a->fd, (off_t)size) < 0)
        sys = errno;
    if (is_full(sys) && size <= IN_MEMORY && area_to_memory(a, size) == 0)
        return 0;
    if (sys) {
        err_set(e, ERR_GENERIC, sys, "cannot grow a table in the cache directory to %zu bytes", size);
        return err_hint(e, "free space there, or use another cache directory");
    }
    void *p = a->at ? mremap(a->at, a->size, size, MREMAP_MAYMOVE)
                    : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    if (p == MAP_FAILED)
        return err_set(e, ERR_MEMORY, errno, "cannot map a table of %zu bytes", size);
    a->at = p;
    a->size = size;
    /* While it was small its pages were not counted. */
    a->touched = 0;
    madvise(a->at, a->size, MADV_DONTNEED);
    return 0;
}

static int area_open(struct area *a, const char *dir, size_t size, struct err *e)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/table.XXXXXX", dir);
    a->fd = mkostemp(path, O_CLOEXEC);
    if (a->fd < 0 && is_full(errno) && size <= IN_MEMORY && area_to_memory(a, size) == 0)
        return 0;
    if (a->fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create a table in %s", dir);
    unlink(path);
    return area_resize(a, size, e);
}

static void area_close(struct area *a)
{
    if (a->at)
        munmap(a->at, a->size);
    if (a->fd >= 0)
        close(a->fd);
}

/* The data stay in the file: what is mapped is shared, never memory of its own. */
static void area_release(struct area *a)
{
    for (unsigned i = 0; i < a->touched; i++) {
        const size_t at = a->window[i] * WINDOW, from = at > AROUND ? at - AROUND : 0, to = at + WINDOW + AROUND;
        madvise(a->at + from, (to < a->size ? to : a->size) - from, MADV_DONTNEED);
    }
    a->touched = 0;
}

/* Before what lies there is read or written. */
static void area_touch(struct area *a, size_t at)
{
    const size_t window = at / WINDOW;
    if (a->size <= WINDOWS * WINDOW)
        return;
    for (unsigned i = a->touched; i-- > 0;)
        if (a->window[i] == window)
            return;
    if (a->touched == WINDOWS)
        area_release(a);
    a->window[a->touched++] = window;
}

static uint64_t fnv1a(const void *data, size_t len, uint64_t h)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h ^ h >> 29;
}
#define FNV_START 14695981039346656037u

/* ---- packs ---- */

struct pack_table {
    struct area records, slots; /* slots: u32 record number + 1, open addressing */
    uint64_t n, mask;
};

int pack_table_new(struct pack_table **ret, const char *dir, struct err *e)
{
    struct pack_table *t = calloc(1, sizeof *t);
    if (!t)
        return err_nomem(e);
    t->records.fd = t->slots.fd = -1;
    int rc = area_open(&t->records, dir, 1u << 20, e);
    if (rc >= 0)
        rc = area_open(&t->slots, dir, 4096, e);
    if (rc < 0) {
        pack_table_free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

void pack_table_free(struct pack_table *t)
{
    if (!t)
        return;
    area_close(&t->records);
    area_close(&t->slots);
    free(t);
}

static struct pack_record *record(struct pack_table *t, uint64_t i)
{
    return (struct pack_record *)(void *)t->records.at + i;
}

static struct pack_record *record_touched(struct pack_table *t, uint64_t i)
{
    area_touch(&t->records, i * sizeof(struct pack_record));
    area_touch(&t->records, (i + 1) * sizeof(struct pack_record) - 1);
    return record(t, i);
}

int pack_table_add(struct pack_table *t, const char *name, uint64_t length, struct err *e)
{
    if (strlen(name) >= sizeof record(t, 0)->name || t->n >= UINT32_MAX - 1)
        return err_set(e, ERR_GENERIC, ENAMETOOLONG, "cannot record pack %s", name);
    if ((t->n + 1) * sizeof(struct pack_record) > t->records.size) {
        int rc = area_resize(&t->records, t->records.size * 2, e);
        if (rc < 0)
            return rc;
    }
    struct pack_record *r = record_touched(t, t->n++);
    r->length = length;
    r->dead = r->live = 0;
    r->time_ns = 0;
    r->damage = 0;
    snprintf(r->name, sizeof r->name, "%s", name);
    return 0;
}

int pack_table_index(struct pack_table *t, struct err *e)
{
    uint64_t slots = 1024;
    while (slots < 2 * t->n)
        slots *= 2;
    int rc = area_resize(&t->slots, slots * sizeof(uint32_t), e);
    if (rc < 0)
        return rc;
    t->mask = slots - 1;
    for (uint64_t i = 0; i < t->n; i++) {
        const struct pack_record *r = record_touched(t, i);
        uint64_t at = fnv1a(r->name, strlen(r->name), FNV_START) & t->mask;
        area_touch(&t->slots, at * sizeof(uint32_t));
        uint32_t *s = (uint32_t *)(void *)t->slots.at;
        while (s[at]) {
            at = (at + 1) & t->mask;
            area_touch(&t->slots, at * sizeof(uint32_t));
        }
        s[at] = (uint32_t)i + 1;
    }
    return 0;
}

struct pack_record *pack_table_find(struct pack_table *t, const char *name)
{
    const uint32_t *s = (const uint32_t *)(const void *)t->slots.at;
    uint64_t at = fnv1a(name, strlen(name), FNV_START) & t->mask;
    for (;; at = (at + 1) & t->mask) {
        area_touch(&t->slots, at * sizeof *s);
        if (!s[at])
            return NULL;
        struct pack_record *r = record_touched(t, s[at] - 1);
        if (!strcmp(r->name, name))
            return r;
    }
}

const char *pack_table_name(struct pack_table *t, const struct pack_record *r)
{
    return record_touched(t, (uint64_t)(r - record(t, 0)))->name;
}

uint64_t pack_table_count(const struct pack_table *t)
{
    return t->n;
}

/* ---- ids ---- */

/* 24 bytes of the keyed hash distinguish contents as well as the whole hash. */
struct id_slot {
    uint8_t used, tag, prefix, len;
    uint8_t hash[24];
};

struct id_set {
    struct area slots;
    uint64_t n, mask;
    struct id_slot *later; /* to be added in order; NULL: none yet */
    size_t n_later;
    char dir[4200];
};
#define LATER ((size_t)1 << 19) /* 16 MiB */

static uint64_t slots_for(uint64_t expected)
{
    uint64_t n = 1024;
    while (n < expected + expected / 2)
        n *= 2;
    return n;
}

int id_set_new(struct id_set **ret, const char *dir, uint64_t expected, struct err *e)
{
    struct id_set *s = calloc(1, sizeof *s);
    if (!s)
        return err_nomem(e);
    s->slots.fd = -1;
    snprintf(s->dir, sizeof s->dir, "%s", dir);
    uint64_t n = slots_for(expected);
    int rc = area_open(&s->slots, dir, n * sizeof(struct id_slot), e);
    if (rc < 0) {
        id_set_free(s);
        return rc;
    }
    s->mask = n - 1;
    *ret = s;
    return 0;
}

void id_set_free(struct id_set *s)
{
    if (!s)
        return;
    area_close(&s->slots);
    free(s->later);
    free(s);
}

static struct id_slot slot_of(const struct content_id *id, uint8_t tag)
{
    struct id_slot k = {.used = 1, .tag = tag, .prefix = (uint8_t)id->prefix, .len = id->len};
    memcpy(k.hash, id->hash, sizeof k.hash);
    return k;
}

/* In the order of the ids, which are hashes: whoever looks them up in their order, as the index has them, reads the
 * table from its beginning to its end. */
static uint64_t slot_first(const struct id_set *s, const struct id_slot *k)
{
    return get_be64(k->hash) >> (64 - __builtin_popcountll(s->mask));
}

static struct id_slot *slot_find(struct id_set *s, const struct id_slot *k)
{
    struct id_slot *slots = (struct id_slot *)(void *)s->slots.at;
    for (uint64_t at = slot_first(s, k);; at = (at + 1) & s->mask) {
        area_touch(&s->slots, at * sizeof *slots);
        if (!slots[at].used || memcmp(&slots[at], k, sizeof *k) == 0)
            return &slots[at];
    }
}

static int grow(struct id_set *s, struct err *e)
{
    struct id_set bigger = {.slots = {.fd = -1}, .mask = 2 * (s->mask + 1) - 1, .n = s->n};
    int rc = area_open(&bigger.slots, s->dir, (bigger.mask + 1) * sizeof(struct id_slot), e);
    if (rc < 0) {
        area_close(&bigger.slots);
        return rc;
    }
    const struct id_slot *old = (const struct id_slot *)(const void *)s->slots.at;
    for (uint64_t i = 0; i <= s->mask; i++) {
        area_touch(&s->slots, i * sizeof *old);
        if (!old[i].used)
            continue;
        *slot_find(&bigger, &old[i]) = old[i];
    }
    area_close(&s->slots);
    s->slots = bigger.slots;
    s->mask = bigger.mask;
    return 0;
}

/* So that `more` can be added. */
static int make_room(struct id_set *s, size_t more, struct err *e)
{
    int rc = 0;
    while (rc >= 0 && s->n + more > (s->mask + 1) / 4 * 3)
        rc = grow(s, e);
    return rc;
}

static int slot_add(struct id_set *s, const struct id_slot *k, struct err *e)
{
    const int rc = make_room(s, 1, e);
    if (rc < 0)
        return rc;
    struct id_slot *at = slot_find(s, k);
    if (at->used)
        return 0;
    *at = *k;
    s->n++;
    return 1;
}

int id_set_add(struct id_set *s, const struct content_id *id, uint8_t tag, struct err *e)
{
    const struct id_slot k = slot_of(id, tag);
    return slot_add(s, &k, e);
}

static int by_hash(const void *a, const void *b)
{
    return memcmp(((const struct id_slot *)a)->hash, ((const struct id_slot *)b)->hash,
                  sizeof((struct id_slot *)0)->hash);
}

static int add_in_order(struct id_set *s, struct err *e)
{
    /* Before: in a table that grows meanwhile the lower half would be filled first, and each probe be long. */
    int rc = make_room(s, s->n_later, e);
    if (s->n_later > 1)
        qsort(s->later, s->n_later, sizeof *s->later, by_hash);
    for (size_t i = 0; i < s->n_later && rc >= 0; i++)
        rc = slot_add(s, &s->later[i], e);
    s->n_later = 0;
    return rc < 0 ? rc : 0;
}

int id_set_add_later(struct id_set *s, const struct content_id *id, uint8_t tag, struct err *e)
{
    if (!s->later && !(s->later = malloc(LATER * sizeof *s->later)))
        return err_nomem(e);
    s->later[s->n_later++] = slot_of(id, tag);
    return s->n_later < LATER ? 0 : add_in_order(s, e);
}

int id_set_settle(struct id_set *s, struct err *e)
{
    const int rc = add_in_order(s, e);
    free(s->later);
    s->later = NULL;
    return rc;
}

bool id_set_has(struct id_set *s, const struct content_id *id, uint8_t tag)
{
    const struct id_slot k = slot_of(id, tag);
    return slot_find(s, &k)->used;
}

uint64_t id_set_count(const struct id_set *s)
{
    return s->n + s->n_later; /* too many, rather than too few, for who has forgotten to settle it */
}
