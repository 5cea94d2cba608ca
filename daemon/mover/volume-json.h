/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * volume-json.h - the document volume.json beside an image (docs/volume-json.md; internal to the mover)
 */
#ifndef SNAPFERRY_DAEMON_MOVER_VOLUME_JSON_H
#define SNAPFERRY_DAEMON_MOVER_VOLUME_JSON_H

#include "chunker/splitter.h"
#include "daemon/mover/mover.h"
#include "daemon/mover/pipeline.h"

#define VOLUME_JSON_NAME "volume.json"
#define VOLUME_IMAGE_NAME "volume.img"
#define VOLUME_JSON_MAX (64u << 10)

struct volume_doc {
    const struct source_info *source;
    const struct splitter *splitter;
    uint64_t section; /* UINT64_MAX: none */
    uint32_t compression;
    const char *parent; /* manifest id, "" none */
    int64_t start_ns, end_ns;
    bool complete;
    uint64_t read_bytes; /* from the device */
    const struct pipeline_stats *stats;
    const struct bad_range *bad;
    size_t n_bad;
    uint64_t bad_bytes;
    json_t *facts; /* more members, or ones that replace ours; NULL: none; borrowed */
};

/* New reference, or NULL: no memory. */
json_t *volume_json_new(const struct volume_doc *v);

/* What a new backup needs of an older snapshot. */
struct volume_parent {
    bool usable; /* has an image and a volume.json of a known form */
    struct object_id image;
    char splitter[32];
    uint64_t section; /* UINT64_MAX: none */
    char state[256];  /* change id of the native snapshot that it was made of, "": none is known */
    uint64_t covered; /* bytes of the volume that the image has; less than its size in a checkpoint */
};
/* Reads a snapshot. One that cannot be read is not usable, with a warning; never an error. `bad` (NULL allowed) gets
 * the ranges whose data it does not have, because they were unreadable; a list of them that cannot be read makes it not
 * usable. */
void volume_parent_read(struct volume_parent *ret, struct repo *r, const struct snapshot *s, struct changes *bad);

#endif
