/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blob-stats.c - requests of a store: results and latencies; two clock reads and three additions each */
#include "base/time.h"
#include "repo/blob-ops.h"

#include <errno.h>

const char *const blob_request_names[BLOB_REQUESTS] = {"get", "put", "list", "delete", "stat"};
const char *const blob_code_names[BLOB_CODES] = {"ok", "not-found", "no-space", "permission", "damage", "error"};
const double blob_bounds[BLOB_BOUNDS] = {0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60};

static enum blob_code code_of(int rc)
{
    switch (rc < 0 ? -rc : 0) {
    case 0:
        return BLOB_OK;
    case ENOENT:
        return BLOB_NOT_FOUND;
    case ENOSPC:
    case EDQUOT:
        return BLOB_NO_SPACE;
    case EACCES:
    case EPERM:
    case EROFS:
        return BLOB_PERMISSION;
    case EBADMSG:
        return BLOB_DAMAGE;
    default:
        return BLOB_ERROR;
    }
}

static void counter_add(uint64_t *counter, uint64_t n)
{
    __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

void blob_count(struct blobs *b, enum blob_request q, uint64_t since_ns, int rc)
{
    if (rc >= 0)
        blob_activity(b);
    const uint64_t took = mono_ns() - since_ns;
    const double seconds = (double)took / 1e9;
    unsigned i = 0;
    while (i < BLOB_BOUNDS && seconds > blob_bounds[i])
        i++;
    counter_add(&b->requests.of[q].codes[code_of(rc)], 1);
    counter_add(&b->requests.of[q].ns, took);
    counter_add(&b->requests.of[q].took[i], 1);
}

void blobs_request_stats(struct blobs *b, struct blob_request_stats *ret)
{
    for (unsigned q = 0; q < BLOB_REQUESTS; q++) {
        for (unsigned i = 0; i < BLOB_CODES; i++)
            ret->of[q].codes[i] = __atomic_load_n(&b->requests.of[q].codes[i], __ATOMIC_RELAXED);
        for (unsigned i = 0; i <= BLOB_BOUNDS; i++)
            ret->of[q].took[i] = __atomic_load_n(&b->requests.of[q].took[i], __ATOMIC_RELAXED);
        ret->of[q].ns = __atomic_load_n(&b->requests.of[q].ns, __ATOMIC_RELAXED);
    }
    ret->retries = __atomic_load_n(&b->requests.retries, __ATOMIC_RELAXED);
}
