/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/zeros.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define KNOWN_MAX 64

struct zeros {
    uint8_t *data;
    size_t longest;
    struct {
        size_t len;
        struct content_id id;
    } known[KNOWN_MAX];
    unsigned n, oldest; /* the shortest chunk comes first and is in use all the time: it is never evicted */
};

int zeros_new(struct zeros **ret, size_t longest, struct err *e)
{
    struct zeros *z = calloc(1, sizeof *z);
    if (!z)
        return err_nomem(e);
    z->longest = longest ? longest : 1;
    z->data = mmap(NULL, z->longest, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (z->data == MAP_FAILED) {
        int rc = err_set(e, ERR_MEMORY, errno, "cannot map %zu zero bytes", z->longest);
        free(z);
        return rc;
    }
    *ret = z;
    return 0;
}

void zeros_free(struct zeros *z)
{
    if (!z)
        return;
    munmap(z->data, z->longest);
    free(z);
}

const uint8_t *zeros_data(const struct zeros *z)
{
    return z->data;
}

bool zeros_find(const struct zeros *z, size_t len, struct content_id *ret)
{
    for (unsigned i = 0; i < z->n; i++) {
        if (z->known[i].len == len) {
            *ret = z->known[i].id;
            return true;
        }
    }
    return false;
}

void zeros_learn(struct zeros *z, size_t len, const struct content_id *id)
{
    unsigned i = z->n;
    if (z->n < KNOWN_MAX) {
        z->n++;
    } else {
        i = 1 + z->oldest;
        z->oldest = (z->oldest + 1) % (KNOWN_MAX - 1);
    }
    z->known[i].len = len;
    z->known[i].id = *id;
}

static bool whole_chunk(size_t len)
{
    return len >= 64u << 10 && len <= 8u << 20 && !(len & (len - 1));
}

bool zeros_recognise(struct zeros *z, const struct hasher *h, const struct content_id *id, size_t len, bool likely)
{
    struct content_id known;
    if (len == 0 || len > z->longest)
        return false;
    if (!zeros_find(z, len, &known)) {
        if (!whole_chunk(len) && !likely)
            return false;
        known = (struct content_id){.len = (uint8_t)hasher_size(h)};
        hasher_digest(h, z->data, len, known.hash);
        zeros_learn(z, len, &known);
    }
    return content_id_equal(&known, id);
}
