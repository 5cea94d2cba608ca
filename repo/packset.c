/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/packset.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS_FIRST 4096

struct slot {
    uint64_t key[2];
    uint32_t length; /* bytes; a pack is shorter than 2^31 (section 8.2) */
    uint8_t used, gone;
    uint8_t unused[2];
};
_Static_assert(sizeof(struct slot) == 24, "the size that packset.h gives");

struct pack_set {
    struct blobs *blobs;
    char *dir;
    pthread_mutex_t lock; /* all below */
    struct slot *slots;
    uint64_t n, mask;
    unsigned asked; /* before `listed` */
    bool listed;
};

/* Names are random numbers in hex, but for those of unknown clients: so all of the name is hashed (FNV-1a, 128 bits).
 */
static void key_of(const char *name, uint64_t key[2])
{
    __extension__ typedef unsigned __int128 u128;
    const u128 prime = (u128)1 << 88 | 0x13b;
    u128 h = (u128)0x6c62272e07bb0142 << 64 | 0x62b821756295c58d;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * prime;
    key[0] = (uint64_t)h;
    key[1] = (uint64_t)(h >> 64);
}

static int slots_map(struct slot **ret, const char *dir, uint64_t n, struct err *e)
{
    char path[4400];
    const size_t size = (size_t)n * sizeof **ret;
    snprintf(path, sizeof path, "%s/packs.XXXXXX", dir);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create a table of packs in %s", dir);
    unlink(path);
    const int sys = posix_fallocate(fd, 0, (off_t)size);
    void *p = sys ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const int no_map = errno;
    close(fd);
    if (p != MAP_FAILED) {
        *ret = p;
        return 0;
    }
    err_set(e, ERR_GENERIC, sys ? sys : no_map, "cannot create a table of packs of %zu bytes in %s", size, dir);
    return err_hint(e, "free space there, or use another cache directory");
}

/* The slot of a pack, or the free one where it belongs. */
static struct slot *slot_of(struct slot *slots, uint64_t mask, const uint64_t key[2])
{
    for (uint64_t i = key[0] ^ key[1] >> 7;; i++) {
        struct slot *s = &slots[i & mask];
        if (!s->used || (s->key[0] == key[0] && s->key[1] == key[1]))
            return s;
    }
}

static int slots_grow(struct pack_set *x, struct err *e)
{
    const uint64_t mask = x->mask * 2 + 1;
    struct slot *more;
    int rc = slots_map(&more, x->dir, mask + 1, e);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i <= x->mask; i++)
        if (x->slots[i].used)
            *slot_of(more, mask, x->slots[i].key) = x->slots[i];
    munmap(x->slots, (x->mask + 1) * sizeof *x->slots);
    x->slots = more;
    x->mask = mask;
    return 0;
}

/* With the lock held, once there are several threads. */
static int pack_note(struct pack_set *x, const char *name, uint64_t length, bool gone, struct err *e)
{
    uint64_t key[2];
    if (x->n + x->n / 2 >= x->mask) {
        int rc = slots_grow(x, e);
        if (rc < 0)
            return rc;
    }
    key_of(name, key);
    struct slot *s = slot_of(x->slots, x->mask, key);
    x->n += !s->used;
    *s = (struct slot){.key = {key[0], key[1]},
                       .length = length < UINT32_MAX ? (uint32_t)length : UINT32_MAX,
                       .used = 1,
                       .gone = gone};
    return 0;
}

struct listing {
    struct pack_set *set;
    struct err *e;
};

static int pack_listed(const struct blob_info *i, void *arg)
{
    struct listing *l = arg;
    return pack_note(l->set, i->name, i->length, false, l->e);
}

/* With the lock held: whoever else asks needs the list as well. */
static int packs_list(struct pack_set *x, struct err *e)
{
    struct listing l = {x, e};
    int rc = blobs_list(x->blobs, "p", pack_listed, &l, e);
    if (rc == 0)
        rc = blobs_list(x->blobs, "q", pack_listed, &l, e);
    x->listed |= rc == 0;
    return rc;
}

int pack_set_new(struct pack_set **ret, struct blobs *b, const char *dir, struct err *e)
{
    struct pack_set *x = calloc(1, sizeof *x);
    if (!x)
        return err_nomem(e);
    x->blobs = b;
    x->mask = SLOTS_FIRST - 1;
    pthread_mutex_init(&x->lock, NULL);
    x->dir = strdup(dir);
    int rc = x->dir ? slots_map(&x->slots, dir, SLOTS_FIRST, e) : err_nomem(e);
    if (rc < 0) {
        pack_set_free(x);
        return rc;
    }
    *ret = x;
    return 0;
}

void pack_set_free(struct pack_set *x)
{
    if (!x)
        return;
    if (x->slots)
        munmap(x->slots, (x->mask + 1) * sizeof *x->slots);
    free(x->dir);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

/* Asks the store, without the lock. */
static int pack_ask(struct pack_set *x, const char *name, uint64_t *length, struct err *e)
{
    struct blob_info info;
    struct err why = ERR_INIT;
    int rc = blobs_stat(x->blobs, name, &info, &why);
    if (rc == 0) {
        *length = info.length;
        return 1;
    }
    if (rc == -ENOENT)
        return 0;
    if (e)
        *e = why;
    return rc;
}

static int pack_lost(const char *name, uint64_t length, uint64_t end)
{
    if (!length)
        log_warning("pack %s is missing in the repository: its contents are read and stored again where they are "
                    "still needed",
                    name);
    else
        log_warning("pack %s has %llu bytes, the index expects %llu or more: contents behind its end are read and "
                    "stored again where they are still needed",
                    name, (unsigned long long)length, (unsigned long long)end);
    return 0;
}

int pack_set_has(struct pack_set *x, const char *name, uint64_t end, struct err *e)
{
    uint64_t key[2], length = 0;
    key_of(name, key);
    pthread_mutex_lock(&x->lock);
    if (!x->listed && !slot_of(x->slots, x->mask, key)->used && x->asked++ >= PACKS_ASKED) {
        int rc = packs_list(x, e);
        if (rc < 0) {
            pthread_mutex_unlock(&x->lock);
            return rc;
        }
    }
    struct slot *s = slot_of(x->slots, x->mask, key);
    const bool known = s->used, gone = s->used && s->gone, ok = s->used && s->length >= end;
    length = s->length;
    if (known && !ok && !gone)
        s->gone = 1; /* too short; told once */
    pthread_mutex_unlock(&x->lock);
    if (ok)
        return 1;
    if (known)
        return gone ? 0 : pack_lost(name, length, end);
    int rc = pack_ask(x, name, &length, e);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&x->lock);
    const bool first = !slot_of(x->slots, x->mask, key)->used;
    const int noted = pack_note(x, name, rc ? length : 0, !rc || length < end, e);
    pthread_mutex_unlock(&x->lock);
    if (noted < 0)
        return noted;
    if (rc && length >= end)
        return 1;
    return first ? pack_lost(name, rc ? length : 0, end) : 0;
}
