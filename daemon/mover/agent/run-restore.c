/* SPDX-License-Identifier: GPL-2.0-or-later */
/* run-restore.c - a mover's restore and verify */
#include "daemon/mover/agent/agent.h"
#include "daemon/mover/stages.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

#define DAMAGES_MAX 1000 /* listed individually; all are counted */

static int find_file(const struct job *j, struct repo *r, struct dir_entry *ret, struct err *e)
{
    struct snapshot s;
    int rc = snapshot_find(r, j->snapshot, NULL, &s, e);
    if (rc < 0)
        return rc;
    if (s.incomplete[0] && !j->allow_incomplete) {
        rc = err_set(e, ERR_NOT_FOUND, 0, "snapshot %s is incomplete (%s)", s.id, s.incomplete);
        err_hint(e, "an incomplete image is restored only on explicit request");
    } else {
        rc = dir_lookup(r, &s.root, j->path ? j->path : "volume.img", ret, e);
    }
    if (rc >= 0 && ret->type != 'f') {
        rc = err_set(e, ERR_USAGE, 0, "\"%s\" of snapshot %s is not a regular file", j->path ? j->path : "volume.img",
                     s.id);
        dir_entry_clear(ret);
    }
    snapshot_clear(&s);
    return rc;
}

static void restore_result_json(json_t *o, const struct job *j, const struct restore_result *t)
{
    const struct {
        const char *name;
        uint64_t n;
    } numbers[] = {
        {"totalBytes", t->size},
        {"fetchedBytes", t->fetched_bytes},
        {"writtenBytes", t->written_bytes},
        {"zeroBytes", t->zero_bytes},
        {"punchedBytes", t->punched_bytes},
        {"equalBytes", t->equal_bytes},
        {"verifiedBytes", t->verified_bytes},
        {"resumedBytes", t->resumed_bytes},
        {"resumedFrom", t->resumed_from},
        {"contents", t->contents},
        {"packsRead", t->packs_read},
    };
    json_object_set_new(o, "snapshotID", json_string(j->snapshot));
    json_object_set_new(o, "path", json_string(j->path ? j->path : "volume.img"));
    json_object_set_new(o, "target", json_pack("{s:s}", "path", j->target_name));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(o, numbers[i].name, json_integer((json_int_t)numbers[i].n));
    json_object_set_new(o, "seconds", json_real(t->seconds));
    json_object_set_new(o, "stages", stages_json(t->stages, t->n_stages));
    json_object_set_new(o, "bottleneck", json_string(t->bottleneck ? t->bottleneck : ""));
}

int run_restore(struct run_context *x, struct repo *r, struct err *e)
{
    const struct job *j = x->job;
    if (x->device < 0)
        return err_set(e, ERR_USAGE, 0, "no target received with the restore job");
    struct dir_entry entry = {0};
    int rc = find_file(j, r, &entry, e);
    if (rc < 0)
        return rc;
    const uint64_t size = entry.size < 0 ? 0 : (uint64_t)entry.size;
    if (j->size > 0 && (uint64_t)j->size != size) {
        dir_entry_clear(&entry);
        return err_set(e, ERR_USAGE, 0, "snapshot %s has %llu bytes, the target was prepared for %lld", j->snapshot,
                       (unsigned long long)size, (long long)j->size);
    }
    const struct restore_opts ro = {
        .limits = j->limits,
        .force = j->overwrite,
        .differential = j->differential,
        .verify = j->verify,
        .offset = j->offset > 0 ? (uint64_t)j->offset : 0,
        .length = j->length > 0 ? (uint64_t)j->length : 0,
        .ranged = j->offset >= 0 || j->length > 0,
        .progress = x->progress,
        .cancel = x->cancel,
    };
    struct restore_result t = {0};
    json_object_del(x->result, "targetUntouched");
    rc = restore_run_fd(r, &entry.obj, size, x->device, j->target_name, &ro, &t, e);
    restore_result_json(x->result, j, &t);
    dir_entry_clear(&entry);
    return rc;
}

/* ---- verify ---- */

struct damages {
    struct run_context *run;
    json_t *list;
};

static void note_damage(const struct verify_damage *d, void *arg)
{
    struct damages *x = arg;
    log_line(LOG_LVL_ERROR, "damage: %s %s %s: %s", d->kind, d->content, d->pack, d->why);
    if (json_array_size(x->list) < DAMAGES_MAX)
        list_add(x->run, x->list,
                 json_pack("{s:s, s:s, s:s, s:s, s:s*, s:s*, s:I, s:I, s:s*}", "kind", d->kind, "pack", d->pack,
                           "content", d->content, "snapshot", d->snapshot, "source", d->source, "path", d->path,
                           "offset", (json_int_t)d->start, "length", (json_int_t)d->len, "why", d->why));
}

int run_verify(struct run_context *x, struct repo *r, struct err *e)
{
    const struct job *j = x->job;
    CLEANUP_FREE char(*ids)[33] = NULL;
    size_t n = 0;
    int rc = j->snapshots ? job_ids(j->snapshots, "snapshots", &ids, &n, e) : 0;
    if (rc < 0)
        return rc;
    struct damages damages = {x, json_array()};
    const struct verify_opts vo = {
        .limits = j->limits,
        .read_percent = j->read_percent,
        .read_from = j->read_from,
        .anew_ns = j->anew_ns,
        .resume = true,
        .progress = x->progress,
        .cancel = x->cancel,
        .on_damage = note_damage,
        .on_damage_arg = &damages,
    };
    struct verify_result v = {0};
    rc = verify_run(r, ids, n, &vo, &v, e);
    const struct {
        const char *name;
        uint64_t n;
    } numbers[] = {
        {"indexEntries", v.index_entries},
        {"indexBytes", v.index_bytes},
        {"packs", v.packs},
        {"packsNotIndexed", v.packs_not_indexed},
        {"snapshots", v.snapshots},
        {"objects", v.objects},
        {"contents", v.contents},
        {"contentsRead", v.contents_read},
        {"bytesRead", v.bytes_read},
        {"resumedContents", v.resumed_contents},
        {"resumedBytes", v.resumed_bytes},
        {"readSinceNs", (uint64_t)v.since_ns},
        {"damages", v.damages},
        {"snapshotsDamaged", v.snapshots_damaged},
        {"corrected", v.corrected},
        {"correctedPacks", v.corrected_packs},
        {"correctedIndexBlobs", v.corrected_indexes},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(x->result, numbers[i].name, json_integer((json_int_t)numbers[i].n));
    if (!v.index_whole) /* else what was seen before it failed would count as what the repository holds */
        json_object_del(x->result, "indexBytes");
    json_object_set_new(x->result, "seconds", json_real(v.seconds));
    json_object_set_new(x->result, "stages", stages_json(v.stages, v.n_stages));
    json_object_set_new(x->result, "bottleneck", json_string(v.bottleneck ? v.bottleneck : ""));
    json_object_set_new(x->result, "damageList", damages.list);
    return rc;
}
