/* SPDX-License-Identifier: GPL-2.0-or-later */
/* run-backup.c - a mover's backup: a descriptor into the repository, and its result */
#include "daemon/mover/agent/agent.h"
#include "daemon/mover/history.h"
#include "daemon/mover/sample.h"
#include "daemon/mover/stages.h"

#include "base/cleanup.h"
#include "chunker/splitter.h"
#include "repo/expire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void jsonp(json_t **j)
{
    json_decref(*j);
}

/* Members of volume.json in addition to those of the data path. */
static json_t *volume_facts(const struct job *j)
{
    static const struct {
        const char *member, *as;
    } copied[] = {
        {"driver", "driver"}, {"class", "storageClass"},  {"name", "volume"},
        {"id", "volumeId"},   {"mechanism", "mechanism"}, {"crash_consistent", "crashConsistent"},
        {"native", "native"}, {"change_id", "changeId"},
    };
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        json_t *v = json_object_get(j->source, copied[i].member);
        if (v && !json_is_null(v) && !(json_is_string(v) && !json_string_length(v)))
            json_object_set(o, copied[i].as, v);
    }
    json_object_set_new(o, "operation", json_string(j->operation));
    if (j->backup)
        json_object_set_new(o, "backup", json_string(j->backup));
    json_object_set_new(o, "node", json_string(j->node));
    return o;
}

static void set_number(json_t *o, const char *name, uint64_t n)
{
    json_object_set_new(o, name, json_integer((json_int_t)n));
}

static void fill_result(json_t *o, const struct job *j, const struct snapshot_source *as, const struct backup_result *b,
                        bool list_failed)
{
    char image[OBJECT_ID_TEXT] = "", source[sizeof *as + 8];
    if (b->image.content.len)
        object_id_text(&b->image, image);
    json_object_set_new(o, "snapshotID", json_string(b->manifest_id));
    json_object_set_new(o, "incomplete", json_boolean(b->incomplete));
    if (b->recorded)
        json_object_set_new(o, "recorded", json_true());
    json_object_set_new(o, "objectID", json_string(image));
    json_object_set_new(o, "parent", b->parent_id[0] ? json_string(b->parent_id) : json_null());
    json_object_set_new(o, "emptySnapshot", json_boolean(!b->incomplete && b->hole_bytes + b->zero_bytes >= b->size));
    json_object_set_new(o, "source",
                        json_pack("{s:s, s:s}", "path", j->source_name, "mode",
                                  json_is_true(json_object_get(j->source, "block")) ? "block" : "file"));
    json_object_set_new(o, "as", json_string(snapshot_source_text(as, source, sizeof source)));
    const struct {
        const char *name;
        uint64_t n;
    } numbers[] = {
        {"totalBytes", b->size},
        {"doneBytes", b->scanned},
        {"incrementalBytes", b->new_bytes},
        {"readBytes", b->read_bytes},
        {"uploadedBytes", b->stored_bytes},
        {"zeroBytes", b->zero_bytes},
        {"holeBytes", b->hole_bytes},
        {"dedupedBytes", b->duplicate_bytes},
        {"badBytes", b->bad_bytes},
        {"chunks", b->chunks},
        {"newChunks", b->new_chunks},
        {"hintedChunks", b->hinted_chunks},
        {"packs", b->packs},
        {"adoptedPacks", b->adopted_packs},
        {"checkpoints", b->checkpoints},
        {"workers", b->workers},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        set_number(o, numbers[i].name, numbers[i].n);
    json_object_set_new(o, "seconds", json_real(b->seconds));
    json_object_set_new(o, "stages", stages_json(b->stages, b->n_stages));
    json_object_set_new(o, "bottleneck", json_string(b->bottleneck ? b->bottleneck : ""));
    json_object_set_new(o, "cbtSource", b->incremental && j->tracker ? json_string(j->tracker) : json_null());
    json_object_set_new(o, "fallbackReason", b->reader.fallback[0] ? json_string(b->reader.fallback) : json_null());
    if (j->parent || j->allocated)
        json_object_set_new(o, "incremental",
                            json_pack("{s:b, s:b, s:b, s:I, s:I, s:I, s:s}", "used", (int)b->incremental, "distrusted",
                                      (int)b->distrusted, "failed", (int)list_failed, "changedBytes",
                                      (json_int_t)b->changed_bytes, "clonedBytes", (json_int_t)b->cloned_bytes,
                                      "sampledBytes", (json_int_t)b->sampled_bytes, "why", b->fallback));
    json_object_set_new(o, "reader",
                        json_pack("{s:b, s:b, s:b, s:i, s:I}", "ioUring", (int)b->reader.uring, "direct",
                                  (int)b->reader.direct, "fixedBuffers", (int)b->reader.fixed_buffers, "inflightMax",
                                  (int)b->reader.inflight_max, "skippedBytes", (json_int_t)b->reader.hole_bytes));
    json_t *bad = json_array();
    for (size_t i = 0; i < b->n_bad; i++)
        json_array_append_new(
            bad, json_pack("[I, I, i]", (json_int_t)b->bad[i].pos, (json_int_t)b->bad[i].len, b->bad[i].sys));
    json_object_set_new(o, "badRanges", bad);
    json_object_set_new(o, "partial", json_boolean(b->n_bad > 0));
}

/* Retention belongs to the source: it is written where stock clients look for it. The snapshot exists already, so a
 * failure is logged and does not undo it. */
static void write_policy(struct run_context *x, struct repo *r, const struct snapshot_source *as)
{
    const struct job_keep *k = &x->job->keep;
    const struct retention_policy keep = {.latest = k->latest,
                                          .hourly = k->hourly,
                                          .daily = k->daily,
                                          .weekly = k->weekly,
                                          .monthly = k->monthly,
                                          .annual = k->annual};
    struct err e = ERR_INIT;
    int rc = policy_write(r, as, &keep, &e);
    json_object_set_new(x->result, "policyError", rc < 0 ? json_string(e.msg) : json_null());
    if (rc < 0)
        log_warning("cannot write the retention of %s: %s", as->path, e.msg);
}

static int check_source(const struct job *j, const struct source *src, struct err *e)
{
    const struct source_info *i = source_info(src);
    if (j->source_size > 0 && (uint64_t)j->source_size != i->size) {
        err_set(e, ERR_SOURCE, 0, "%s has %llu bytes, %lld expected", j->source_name, (unsigned long long)i->size,
                (long long)j->source_size);
        return err_hint(e, "the volume was resized while its backup was prepared; the next attempt uses the new size");
    }
    return 0;
}

/* The list that came with the job: sealed, since the mover trusts it. */
static int list_read(struct changes **ret, enum changes_kind kind, const struct run_context *x, struct err *e)
{
    const int want = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    struct stat st;
    const int seals = x->changes < 0 ? -1 : fcntl(x->changes, F_GET_SEALS);
    if (seals < 0 || (seals & want) != want || fstat(x->changes, &st) < 0 || st.st_size <= 0)
        return err_set(e, ERR_USAGE, EINVAL, "no sealed list of ranges received with the job");
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, x->changes, 0);
    if (p == MAP_FAILED)
        return err_set(e, ERR_GENERIC, errno, "cannot map the list of changes");
    int rc = changes_new(ret, e);
    if (rc == 0)
        rc = changes_unpack(*ret, kind, p, (size_t)st.st_size, (uint64_t)x->job->source_size, e);
    munmap(p, (size_t)st.st_size);
    if (rc == 0)
        changes_finish(*ret);
    return rc;
}

/* What is not allocated is not read, unless a random look at it shows that it is not all zeros. False: it does, or
 * could not be had. */
static bool use_allocated(struct source *src, const struct changes *list, const struct job *j,
                          struct backup_result *ret, struct err *unread)
{
    const struct sample_zeros_setup s = {
        .source = src, .allocated = list, .share = (double)j->sample_ppm / 1e6, .seconds = (unsigned)j->sample_s};
    struct sample_result found;
    int rc = sample_zeros(&s, &found, unread);
    if (rc == 0 && !found.differs) {
        source_set_allocated(src, list);
        return true;
    }
    ret->distrusted = rc == 0;
    if (rc == 0)
        err_plain(unread, ERR_GENERIC, ESTALE,
                  "%llu bytes at %llu of %s are not zeros, as they should be by what the storage lists",
                  (unsigned long long)found.len, (unsigned long long)found.start, j->source_name);
    log_warning("%s: the whole volume is read: %s", j->source_name, unread->msg);
    return false;
}

/* What the list of changes knows to be zeros is not read either. Where that is not so, the list is not used at all. */
static int use_zeros(struct source *src, const struct changes *list, struct changes **rest, const struct job *j,
                     struct backup_result *ret, bool *usable, struct err *unread, struct err *e)
{
    *usable = true;
    if (!changes_zero_bytes(list))
        return 0;
    int rc = changes_new(rest, e);
    if (rc == 0)
        rc = changes_add_unknown(*rest, list, (uint64_t)j->source_size, e);
    if (rc < 0)
        return rc;
    changes_finish(*rest);
    *usable = use_allocated(src, *rest, j, ret, unread);
    return 0;
}

int run_backup(struct run_context *x, struct repo *r, struct err *e)
{
    const struct job *j = x->job;
    if (x->device < 0)
        return err_set(e, ERR_USAGE, 0, "no source received with the backup job");
    int64_t compression = j->compression ? compress_id_by_name(j->compression, e) : 0;
    if (compression < 0)
        return (int)compression;
    struct splitter sp;
    if (j->splitter && splitter_by_name(&sp, j->splitter) < 0)
        return err_set(e, ERR_USAGE, 0, "unknown splitter %s", j->splitter);
    json_t *f CLEANUP(jsonp) = volume_facts(j);
    struct backup_opts b = {
        .limits = j->limits,
        .compression = (uint32_t)compression,
        .splitter = j->splitter,
        .description = j->description,
        .tags = j->tags,
        .record = j->record,
        .facts = f,
        .bad_read = j->map_bad ? BAD_READ_MAP : BAD_READ_FAIL,
        .no_parent = j->full,
        .progress = x->progress,
        .cancel = x->cancel,
    };
    int rc = snapshot_source_parse(&b.as, j->as, e);
    const struct history h = {
        .volume_id = json_string_value(json_object_get(j->source, "id")) ?: "",
        .name = j->source_name,
        .block = json_is_true(json_object_get(j->source, "block")),
    };
    if (rc == 0 && h.volume_id[0])
        rc = history_find(r, &h, &b.as, e);
    if (rc < 0)
        return rc;
    int fd = fcntl(x->device, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot duplicate the source's descriptor");
    CLEANUP(source_freep) struct source *src = NULL;
    rc = source_from_fd(&src, fd, j->source_address ? j->source_address : j->source_name, b.as.path, e);
    if (rc == 0)
        rc = check_source(j, src, e);
    if (rc < 0)
        return rc;
    struct changes *list CLEANUP(changes_freep) = NULL, *rest CLEANUP(changes_freep) = NULL;
    struct backup_incremental inc = {.parent = j->parent,
                                     .state = j->parent_state,
                                     .sample = (double)j->sample_ppm / 1e6,
                                     .sample_s = (unsigned)j->sample_s};
    struct err unread = ERR_INIT; /* a list that cannot be used means a full read, never a failure */
    struct backup_result result = {0};
    if ((j->parent || j->allocated) &&
        list_read(&list, j->parent ? CHANGES_DIFFER : CHANGES_ALLOCATED, x, &unread) < 0) {
        log_warning("%s: the whole volume is read: %s", j->source_name, unread.msg);
    } else if (j->parent) {
        bool usable;
        rc = use_zeros(src, list, &rest, j, &result, &usable, &unread, e);
        if (rc < 0)
            return rc;
        inc.changes = list;
        b.incremental = usable ? &inc : NULL;
    } else if (j->allocated) {
        use_allocated(src, list, j, &result, &unread);
    }
    const bool zeros_wrong = result.distrusted;
    rc = backup_run(r, src, &b, &result, e);
    result.distrusted |= zeros_wrong;
    if (unread.cls)
        snprintf(result.fallback, sizeof result.fallback, "%.*s", (int)sizeof result.fallback - 1, unread.msg);
    fill_result(x->result, j, &b.as, &result, unread.cls != ERR_NONE);
    backup_result_clear(&result);
    if (rc >= 0 && j->has_keep)
        write_policy(x, r, &b.as);
    return rc;
}
