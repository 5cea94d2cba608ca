/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/zero-ids.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define KNOWN_MAX 64

struct zero_ids {
    const struct hasher *h;
    const uint8_t *zeros;
    unsigned n;
    struct {
        size_t len;
        struct content_id id;
    } known[KNOWN_MAX];
    unsigned turn; /* replaced next by zero_id() when all are in use */
};

int zero_ids_new(struct zero_ids **ret, const struct hasher *h, struct err *e)
{
    struct zero_ids *z = calloc(1, sizeof *z);
    if (!z)
        return err_nomem(e);
    void *p = mmap(NULL, ZERO_LEN_MAX, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        free(z);
        return err_nomem(e);
    }
    /* A huge zero page would count as memory of this process. */
    madvise(p, ZERO_LEN_MAX, MADV_NOHUGEPAGE);
    z->h = h;
    z->zeros = p;
    *ret = z;
    return 0;
}

void zero_ids_free(struct zero_ids *z)
{
    if (!z)
        return;
    munmap((void *)(uintptr_t)z->zeros, ZERO_LEN_MAX);
    free(z);
}

static int look_up(const struct zero_ids *z, size_t len)
{
    for (unsigned i = 0; i < z->n; i++)
        if (z->known[i].len == len)
            return (int)i;
    return -1;
}

static unsigned compute(struct zero_ids *z, size_t len)
{
    unsigned i = z->n < KNOWN_MAX ? z->n++ : z->turn++ % KNOWN_MAX;
    struct content_id *id = &z->known[i].id;
    *id = (struct content_id){.len = (uint8_t)hasher_size(z->h)};
    z->known[i].len = len;
    hasher_digest(z->h, z->zeros, len, id->hash);
    return i;
}

int zero_id(struct zero_ids *z, size_t len, struct content_id *ret, struct err *e)
{
    if (len > ZERO_LEN_MAX)
        return err_set(e, ERR_GENERIC, ERANGE, "a run of %zu zero bytes is too long for one content", len);
    int i = look_up(z, len);
    *ret = z->known[i >= 0 ? (unsigned)i : compute(z, len)].id;
    return 0;
}

static bool whole_chunk(size_t len)
{
    return len >= 64u << 10 && len <= 8u << 20 && !(len & (len - 1));
}

bool zero_id_is(struct zero_ids *z, const struct content_id *id, size_t len, bool likely)
{
    if (len == 0 || len > ZERO_LEN_MAX)
        return false;
    int i = look_up(z, len);
    if (i < 0) {
        if (!whole_chunk(len) && (!likely || z->n + 8 >= KNOWN_MAX))
            return false;
        i = (int)compute(z, len);
    }
    return content_id_equal(&z->known[i].id, id);
}

const uint8_t *zero_bytes(const struct zero_ids *z)
{
    return z->zeros;
}
