/* SPDX-License-Identifier: GPL-2.0-or-later */
/* store.h - the store of a repository, by its kind: the one place where stores are opened */
#ifndef SNAPFERRY_REPO_STORE_H
#define SNAPFERRY_REPO_STORE_H

#include "repo/blob-s3.h"

enum store_type { STORE_DIR, STORE_S3 };

struct store_place {
    enum store_type type;
    const char *dir; /* of STORE_DIR */
    struct s3_place s3;
};

/* As blobs_open_dir() or blobs_open_s3(); shards and n_shards are of directories. */
int store_open(struct blobs **ret, const struct store_place *p, enum blobs_open_mode mode, const int *shards,
               size_t n_shards, struct err *e);

#endif
