/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/checkpoint.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "daemon/mover/backup-records.h"

#include <stdlib.h>
#include <string.h>

void checkpoints_begin(struct checkpoints *c)
{
    c->committed_wall_ns = now_ns();
    c->committed_boot_ns = boot_ns();
}

void checkpoints_clear(struct checkpoints *c)
{
    free(c->old);
    c->old = NULL;
    c->n_old = 0;
}

int64_t checkpoints_age_ns(const struct checkpoints *c)
{
    int64_t wall = now_ns() - c->committed_wall_ns, boot = boot_ns() - c->committed_boot_ns;
    return wall > boot ? wall : boot;
}

static void jsonp(json_t **j)
{
    json_decref(*j);
}

/* Tombstones for the snapshots that this one replaces. The checkpoint of an earlier run that got further is kept
 * until this run has got as far: it protects the data stored then, and saves as much work after another
 * interruption. */
static int old_supersede(struct checkpoints *c, struct manifest_batch *b, bool complete, uint64_t pos, struct err *e)
{
    int rc = *c->own ? manifest_batch_delete(b, c->own, e) : 0;
    for (size_t i = 0; i < c->n_old && rc == 0; i++) {
        char *id = c->old[i];
        bool passed = strcmp(id, c->resumed) == 0 && pos >= c->resumed_covered;
        if (*id && (complete || passed)) {
            rc = manifest_batch_delete(b, id, e);
            *id = '\0';
        }
    }
    return rc;
}

/* With the first snapshot, in the same flush (AO-16). */
static int record_once(struct checkpoints *c, struct manifest_batch *b, struct err *e)
{
    bool added;
    if (c->recorded || !c->o->record)
        return 0;
    return backup_record_provisional(c->repo, c->o->record, b, &added, e);
}

int checkpoints_commit(struct checkpoints *c, const struct object_id *image, const struct pipeline_stats *stats,
                       const char *incomplete, char manifest_id[33], struct err *e)
{
    int rc = 0;
    if (checkpoints_age_ns(c) >= REFS_SAFE_NS) {
        rc = repo_keep_fresh(c->repo, e);
        if (rc == 0)
            rc = refs_check(c->refs, c->session, image, e);
        if (rc < 0)
            return rc;
    }
    struct volume_doc doc = c->doc;
    struct bad_range *bad CLEANUP_FREE = NULL;
    rc = badmap_copy(c->bad, &bad, &doc.n_bad, &doc.bad_bytes, e);
    if (rc < 0)
        return rc;
    if (c->reader) {
        struct reader_stats rs;
        reader_stats(c->reader, &rs);
        doc.read_bytes = rs.read_bytes;
    }
    doc.bad = bad;
    doc.stats = stats;
    doc.complete = !incomplete;
    doc.end_ns = now_ns();
    json_t *json CLEANUP(jsonp) = volume_json_new(&doc);
    if (!json)
        return err_nomem(e);
    const struct source_info *info = doc.source;
    struct volume_snapshot v = {
        .source = c->o->as,
        .description = c->o->description,
        .start_ns = doc.start_ns,
        .end_ns = doc.end_ns,
        .size = info->size,
        .image = *image,
        .image_mtime_ns = info->is_block ? doc.start_ns : info->mtime_ns,
        .volume_json = json,
        .incomplete = incomplete,
        .errors = (unsigned)doc.n_bad,
        .cached = c->parent_image.content.len && object_id_equal(image, &c->parent_image),
        .tags = c->o->tags,
    };
    struct manifest_batch *batch CLEANUP(manifest_batch_freep) = NULL;
    char id[33];
    rc = manifest_batch_new(&batch, e);
    if (rc == 0)
        rc = volume_snapshot_write(c->session, c->scratch, &v, batch, id, e);
    if (rc == 0)
        rc = old_supersede(c, batch, doc.complete, stats->pos, e);
    if (rc == 0 && doc.complete)
        rc = source_policy_manual(c->repo, &c->o->as, batch, e);
    if (rc == 0)
        rc = record_once(c, batch, e);
    if (rc == 0)
        rc = manifest_batch_put(batch, c->session, c->scratch, e);
    if (rc < 0)
        return rc;
    c->recorded = c->o->record != NULL;
    if (incomplete)
        crash_point("checkpoint-manifest-put");
    memcpy(c->own, id, sizeof c->own);
    memcpy(manifest_id, id, sizeof id);
    rc = refs_clear(c->refs, e);
    checkpoints_begin(c);
    return rc;
}
