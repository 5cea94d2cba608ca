/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/store.h"

#include <errno.h>

int store_open(struct blobs **ret, const struct store_place *p, enum blobs_open_mode mode, const int *shards,
               size_t n_shards, struct err *e)
{
    switch (p->type) {
    case STORE_DIR:
        return blobs_open_dir(ret, p->dir, mode, shards, n_shards, e);
    case STORE_S3:
        return blobs_open_s3(ret, &p->s3, mode, e);
    }
    return err_set(e, ERR_GENERIC, EINVAL, "unknown type of a repository");
}
