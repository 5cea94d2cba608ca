/* SPDX-License-Identifier: GPL-2.0-or-later */
/* moves.c - backup, restore and verify with -r */
#include "daemon/cli/confirm.h"
#include "base/units.h"
#include "daemon/cli/live.h"
#include "daemon/cli/stages.h"
#include "daemon/mover/history.h"
#include "io/nbd-uri.h"
#include "io/volume-id.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static double per_second(uint64_t bytes, double seconds)
{
    return seconds > 1e-6 ? (double)bytes / seconds : 0;
}

/* ---- backup ---- */

#define SAMPLE_S 60 /* seconds at most for reading a sample of what has not changed */

static json_t *backup_json(const struct backup_result *b, const struct snapshot_source *src)
{
    char image[OBJECT_ID_TEXT] = "";
    if (b->image.content.len)
        object_id_text(&b->image, image);
    json_t *j = json_pack("{s:s, s:s, s:s, s:{s:s, s:s, s:s}, s:b, s:s, s:s}", "type", "result", "verb", "backup",
                          "snapshot", b->manifest_id, "source", "host", src->host, "userName", src->user, "path",
                          src->path, "incomplete", (int)b->incomplete, "object", image, "parent", b->parent_id);
    const struct {
        const char *name;
        uint64_t n;
    } numbers[] = {
        {"sizeBytes", b->size},
        {"scannedBytes", b->scanned},
        {"holeBytes", b->hole_bytes},
        {"zeroBytes", b->zero_bytes},
        {"readBytes", b->read_bytes},
        {"duplicateBytes", b->duplicate_bytes},
        {"newBytes", b->new_bytes},
        {"storedBytes", b->stored_bytes},
        {"badBytes", b->bad_bytes},
        {"changedBytes", b->changed_bytes},
        {"clonedBytes", b->cloned_bytes},
        {"sampledBytes", b->sampled_bytes},
        {"chunks", b->chunks},
        {"zeroChunks", b->zero_chunks},
        {"duplicateChunks", b->duplicate_chunks},
        {"newChunks", b->new_chunks},
        {"hintedChunks", b->hinted_chunks},
        {"clonedChunks", b->cloned_chunks},
        {"packs", b->packs},
        {"adoptedPacks", b->adopted_packs},
        {"indexFlushes", b->flushes},
        {"checkpoints", b->checkpoints},
        {"workers", b->workers},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(j, numbers[i].name, json_integer((json_int_t)numbers[i].n));
    json_object_set_new(j, "seconds", json_real(b->seconds));
    json_object_set_new(j, "bytesPerSecond", json_real(per_second(b->scanned, b->seconds)));
    json_t *bad = json_array();
    for (size_t i = 0; i < b->n_bad; i++)
        json_array_append_new(bad, json_pack("{s:I, s:I, s:s}", "offset", (json_int_t)b->bad[i].pos, "length",
                                             (json_int_t)b->bad[i].len, "error", strerror(b->bad[i].sys)));
    json_object_set_new(j, "badRanges", bad);
    json_object_set_new(j, "stages", stages_json(b->stages, b->n_stages));
    json_object_set_new(j, "incremental", json_boolean(b->incremental));
    json_object_set_new(j, "fallbackReason", b->fallback[0] ? json_string(b->fallback) : json_null());
    json_object_set_new(j, "bottleneck", json_string(b->bottleneck ? b->bottleneck : ""));
    json_object_set_new(j, "reader",
                        json_pack("{s:b, s:b, s:b, s:s}", "ioUring", (int)b->reader.uring, "direct",
                                  (int)b->reader.direct, "fixedBuffers", (int)b->reader.fixed_buffers, "fallback",
                                  b->reader.fallback));
    return j;
}

static void print_backup_details(const struct backup_result *b)
{
    if (b->parent_id[0])
        printf("Parent      %s\n", b->parent_id);
    printf("Read        %s; %s of holes skipped, %s of zeros found\n", text_bytes(b->read_bytes),
           text_bytes(b->hole_bytes), text_bytes(b->zero_bytes));
    if (b->incremental)
        printf("Unchanged   %s in %lu chunk%s, taken over from the parent; %s of that read and compared\n",
               text_bytes(b->cloned_bytes), (unsigned long)b->cloned_chunks, plural(b->cloned_chunks),
               text_bytes(b->sampled_bytes));
    printf("Duplicate   %s in %lu chunk%s\n", text_bytes(b->duplicate_bytes), (unsigned long)b->duplicate_chunks,
           plural(b->duplicate_chunks));
    printf("New         %s in %lu chunk%s, stored in %lu pack%s\n", text_bytes(b->new_bytes),
           (unsigned long)b->new_chunks, plural(b->new_chunks), (unsigned long)b->packs, plural(b->packs));
    if (b->adopted_packs)
        printf("Adopted     %lu pack%s of an interrupted run\n", (unsigned long)b->adopted_packs,
               plural(b->adopted_packs));
    stages_print(b->stages, b->n_stages, b->bottleneck);
}

static void print_backup(const struct options *o, const struct backup_result *b, const struct snapshot_source *src)
{
    char text[4500];
    printf("%s %s of %s\n", b->incomplete ? "Checkpoint" : "Snapshot", b->manifest_id,
           text_name(snapshot_source_text(src, text, sizeof text)));
    printf("%s in %s (%s), %s new, %s stored\n", text_bytes(b->scanned), text_seconds(b->seconds),
           text_rate(per_second(b->scanned, b->seconds)), text_bytes(b->new_bytes), text_bytes(b->stored_bytes));
    if (b->incremental)
        printf("%s read, %s unchanged since snapshot %s\n", text_bytes(b->read_bytes), text_bytes(b->cloned_bytes),
               b->parent_id);
    if (b->fallback[0])
        printf("Read fully: %s\n", b->fallback);
    if (o->verbose)
        print_backup_details(b);
    for (size_t i = 0; i < b->n_bad; i++)
        printf("UNREADABLE  bytes %lu to %lu: %s (stored as zeros)\n", (unsigned long)b->bad[i].pos,
               (unsigned long)(b->bad[i].pos + b->bad[i].len - 1), strerror(b->bad[i].sys));
}

static int backup_source(const struct options *o, const struct source *src, struct repo *r, struct snapshot_source *as,
                         struct err *e)
{
    if (o->as)
        return snapshot_source_parse(as, o->as, e);
    const struct source_info *i = source_info(src);
    if (!i->id[0]) {
        err_set(e, ERR_USAGE, 0, "%s has no persistent id", text_name(i->path));
        return err_hint(e, "set the source with --as USER@HOST:/PATH");
    }
    snprintf(as->user, sizeof as->user, "snapferry");
    int rc = cli_node_name(o, as->host, e);
    if (rc < 0)
        return rc;
    char id[DEVICE_ID_MAX] = "";
    CLEANUP_FREE char *real = i->is_block && i->path[0] != '/' ? realpath(i->path, NULL) : NULL;
    if (i->is_block)
        device_id_text(i->id, id);
    const struct history h = {.volume_id = id,
                              .name = !i->is_block ? i->id
                                      : real       ? real
                                                   : i->path,
                              .block = i->is_block};
    return history_find(r, &h, as, e);
}

static int read_changes(struct changes **ret, const char *path, struct err *e)
{
    int rc = changes_new(ret, e);
    if (rc == 0)
        rc = changes_read(*ret, path, e);
    if (rc == 0)
        changes_finish(*ret);
    return rc;
}

int cli_backup(const struct options *o, struct err *e)
{
    char splitter[40], compression[40];
    int rc = cli_defaults(o, splitter, compression, e);
    if (rc < 0)
        return rc;
    int64_t compression_id = compress_id_by_name(compression, e);
    if (compression_id < 0)
        return (int)compression_id;
    struct splitter sp;
    if (splitter[0] && splitter_by_name(&sp, splitter) < 0)
        return err_set(e, ERR_USAGE, 0, "unknown splitter %s", text_name(splitter));
    struct mover_progress progress = {0};
    struct mover_cancel *cancel = cli_cancel();
    CLEANUP(source_freep) struct source *src = NULL;
    rc = source_open(&src, o->args[0], e);
    if (rc < 0)
        return rc;
    CLEANUP(repo_freep) struct repo *r = NULL;
    rc = cli_open_repo(o, &r, e);
    if (rc < 0)
        return rc;
    struct backup_opts b = {
        .limits = {.memory = o->memory,
                   .workers = o->workers,
                   .read_limit = o->read_limit,
                   .write_limit = o->write_limit},
        .compression = (uint32_t)compression_id,
        .splitter = splitter[0] ? splitter : NULL,
        .description = o->description,
        .tags = o->tags,
        .bad_read = o->map_bad ? BAD_READ_MAP : BAD_READ_FAIL,
        .depth = o->depth,
        .no_uring = o->no_uring,
        .no_direct = o->no_direct,
        .no_parent = o->no_parent,
        .full_scan = o->full_scan,
        .checkpoint_s = o->checkpoint_s,
        .progress = &progress,
        .cancel = cancel,
    };
    rc = backup_source(o, src, r, &b.as, e);
    if (rc < 0)
        return rc;
    CLEANUP(changes_freep) struct changes *changes = NULL;
    rc = o->changed_ranges ? read_changes(&changes, o->changed_ranges, e) : 0;
    if (rc < 0)
        return rc;
    const struct backup_incremental incremental = {
        .parent = o->parent, .changes = changes, .sample = o->verify_sample / 100, .sample_s = SAMPLE_S};
    b.incremental = changes ? &incremental : NULL;
    if (source_info(src)->mounted_rw)
        log_warning("%s is mounted read-write: the image will be as after a crash at best, and may mix moments",
                    source_info(src)->path);
    struct progress_view *view;
    rc = progress_start(&view, o, "backup", &progress, e);
    if (rc < 0)
        return rc;
    struct stat st;
    if (!source_info(src)->is_block && fstat(source_fd(src), &st) == 0)
        progress_allocated(view, (uint64_t)st.st_blocks * 512);
    struct backup_result result = {0};
    rc = backup_run(r, src, &b, &result, e);
    progress_stop(view);
    if (rc >= 0 || result.manifest_id[0]) {
        if (o->json)
            print_json(backup_json(&result, &b.as));
        else if (!o->quiet)
            print_backup(o, &result, &b.as);
    }
    if (rc >= 0)
        rc = result.n_bad ? ERR_PARTIAL : 0;
    backup_result_clear(&result);
    return rc;
}

/* ---- restore ---- */

static int find_image(const struct options *o, struct repo *r, const struct snapshot *s, struct dir_entry *entry,
                      struct err *e)
{
    if (entry->type == 'f')
        return 0;
    dir_entry_clear(entry);
    struct err ignored = ERR_INIT;
    int rc = dir_lookup(r, &s->root, "volume.img", entry, &ignored);
    if (rc >= 0)
        return 0;
    if (ignored.cls != ERR_NOT_FOUND) {
        *e = ignored;
        return rc;
    }
    if (s->incomplete[0])
        err_set(e, ERR_NOT_FOUND, 0, "snapshot %s is incomplete (%s): it does not contain volume.img", s->id,
                s->incomplete);
    else
        err_set(e, ERR_NOT_FOUND, 0, "snapshot %s does not contain volume.img: it was created by another client",
                s->id);
    return err_hint(e, "give a file, SNAPSHOT/PATH; %s ls %s lists them", cli_how(o), s->id);
}

static void print_restore(const struct options *o, const struct restore_result *t, const char *target)
{
    const struct {
        uint64_t bytes;
        const char *what;
    } more[] = {{t->equal_bytes, "unchanged"}, {t->resumed_bytes, "restored before"}, {t->verified_bytes, "verified"}};
    bool any = false;
    printf("Restored %s to %s in %s (%s)\n", text_bytes(t->size), text_name(target), text_seconds(t->seconds),
           text_rate(per_second(t->size, t->seconds)));
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        if (more[i].bytes)
            printf("%s%s %s", any ? ", " : "", text_bytes(more[i].bytes), more[i].what);
        any |= more[i].bytes > 0;
    }
    if (any)
        putchar('\n');
    if (!o->verbose)
        return;
    printf("Fetched     %s in %lu content%s\n", text_bytes(t->fetched_bytes), (unsigned long)t->contents,
           plural(t->contents));
    printf("Written     %s, zeros %s\n", text_bytes(t->written_bytes), text_bytes(t->zero_bytes));
    stages_print(t->stages, t->n_stages, t->bottleneck);
}

static json_t *restore_json(const struct restore_result *t, const char *snapshot, const char *path, const char *target)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, "
                     "s:s}",
                     "type", "result", "verb", "restore", "snapshot", snapshot, "path", path, "target", target,
                     "sizeBytes", (json_int_t)t->size, "fetchedBytes", (json_int_t)t->fetched_bytes, "writtenBytes",
                     (json_int_t)t->written_bytes, "zeroBytes", (json_int_t)t->zero_bytes, "punchedBytes",
                     (json_int_t)t->punched_bytes, "equalBytes", (json_int_t)t->equal_bytes, "verifiedBytes",
                     (json_int_t)t->verified_bytes, "resumedBytes", (json_int_t)t->resumed_bytes, "resumedFrom",
                     (json_int_t)t->resumed_from, "contents", (json_int_t)t->contents, "seconds", t->seconds,
                     "bytesPerSecond", per_second(t->size, t->seconds), "stages", stages_json(t->stages, t->n_stages),
                     "bottleneck", t->bottleneck ? t->bottleneck : "");
}

/* Restores overwrite devices that are not in use without --force, and exports. */
static bool is_device(const char *path)
{
    struct stat st;
    return nbd_uri_is(path) || (stat(path, &st) == 0 && S_ISBLK(st.st_mode));
}

int cli_restore(const struct options *o, struct err *e)
{
    struct mover_progress progress = {0};
    struct mover_cancel *cancel = cli_cancel();
    CLEANUP(repo_freep) struct repo *r = NULL;
    int rc = cli_open_repo(o, &r, e);
    if (rc < 0)
        return rc;
    struct snapshot s;
    struct dir_entry entry;
    const char *path;
    rc = cli_find(o, r, o->args[0], &s, &entry, &path, e);
    if (rc < 0)
        return rc;
    if (!*path)
        rc = find_image(o, r, &s, &entry, e);
    else if (entry.type != 'f')
        rc = err_set(e, ERR_USAGE, 0, "\"%s\" is not a regular file: only files can be restored", text_name(path));
    if (rc >= 0 && entry.size < 0)
        entry.size = 0;
    if (rc >= 0 && (o->force || o->differential || o->ranged || is_device(o->args[1])))
        rc = confirm_target(o, o->args[1], e);
    struct restore_result result = {0};
    if (rc >= 0) {
        const struct restore_opts ro = {
            .limits = {.memory = o->memory,
                       .workers = o->workers,
                       .read_limit = o->read_limit,
                       .write_limit = o->write_limit},
            .force = o->force,
            .differential = o->differential,
            .verify = o->verify,
            .resume = o->resume,
            .no_uring = o->no_uring,
            .offset = o->offset,
            .length = o->length,
            .ranged = o->ranged,
            .progress = &progress,
            .cancel = cancel,
        };
        struct progress_view *view;
        rc = progress_start(&view, o, "restore", &progress, e);
        if (rc >= 0) {
            rc = restore_run(r, &entry.obj, (uint64_t)entry.size, o->args[1], &ro, &result, e);
            progress_stop(view);
        }
    }
    if (rc >= 0 && o->json)
        print_json(restore_json(&result, s.id, *path ? path : entry.name ? entry.name : "", o->args[1]));
    else if (rc >= 0 && !o->quiet)
        print_restore(o, &result, o->args[1]);
    dir_entry_clear(&entry);
    snapshot_clear(&s);
    return rc;
}

/* ---- verify ---- */

static void show_damage(const struct verify_damage *d, void *arg)
{
    const struct options *o = arg;
    if (o->json) {
        print_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:s}", "type", "damage", "kind", d->kind,
                             "pack", d->pack, "content", d->content, "snapshot", d->snapshot, "source", d->source,
                             "path", d->path, "offset", (json_int_t)d->start, "length", (json_int_t)d->len, "why",
                             d->why));
        return;
    }
    printf("DAMAGE %s", d->kind);
    if (*d->content)
        printf(" content %s", d->content);
    if (*d->pack)
        printf(" pack %s", d->pack);
    if (*d->snapshot)
        printf(" affects %s of snapshot %.16s (%s), bytes %lu to %lu", text_name(*d->path ? d->path : "/"), d->snapshot,
               text_name(d->source), (unsigned long)d->start, (unsigned long)(d->start + (d->len ? d->len - 1 : 0)));
    printf(": %s\n", text_name(d->why));
}

static int chosen_snapshots(const struct options *o, struct repo *r, char (**ids)[33], struct err *e)
{
    *ids = calloc((size_t)o->n_args + 1, sizeof **ids);
    if (!*ids)
        return err_nomem(e);
    struct snapshot_source src;
    if (o->as && snapshot_source_parse(&src, o->as, e) < 0)
        return -EINVAL;
    for (int i = 0; i < o->n_args; i++) {
        struct snapshot s;
        int rc = cli_find_snapshot(o, r, o->args[i], o->as ? &src : NULL, &s, e);
        if (rc < 0)
            return rc;
        memcpy((*ids)[i], s.id, sizeof s.id);
        snapshot_clear(&s);
    }
    return 0;
}

static json_t *verify_json(const struct verify_result *v, bool ok)
{
    return json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
                     "s:f, s:f, s:o, s:s}",
                     "type", "result", "verb", "verify", "ok", (int)ok, "indexEntries", (json_int_t)v->index_entries,
                     "packs", (json_int_t)v->packs, "packsNotIndexed", (json_int_t)v->packs_not_indexed, "snapshots",
                     (json_int_t)v->snapshots, "objects", (json_int_t)v->objects, "contents", (json_int_t)v->contents,
                     "contentsRead", (json_int_t)v->contents_read, "bytesRead", (json_int_t)v->bytes_read,
                     "resumedContents", (json_int_t)v->resumed_contents, "resumedBytes", (json_int_t)v->resumed_bytes,
                     "readSinceNs", (json_int_t)v->since_ns, "damages", (json_int_t)v->damages, "snapshotsDamaged",
                     (json_int_t)v->snapshots_damaged, "corrected", (json_int_t)v->corrected, "correctedPacks",
                     (json_int_t)v->corrected_packs, "correctedIndexBlobs", (json_int_t)v->corrected_indexes, "seconds",
                     v->seconds, "bytesPerSecond", per_second(v->bytes_read - v->resumed_bytes, v->seconds), "stages",
                     stages_json(v->stages, v->n_stages), "bottleneck", v->bottleneck ? v->bottleneck : "");
}

static void print_corrected(const struct verify_result *v)
{
    if (v->corrected)
        printf("Corrected   %lu content%s in %lu pack%s had decayed and could be corrected: the next backup of this "
               "machine that meets %s, or the next full maintenance by it, stores %s again\n",
               (unsigned long)v->corrected, plural(v->corrected), (unsigned long)v->corrected_packs,
               plural(v->corrected_packs), v->corrected == 1 ? "it" : "them", v->corrected == 1 ? "it" : "them");
    if (v->corrected_indexes)
        printf("Corrected   %lu index blob%s had decayed and could be corrected: maintenance replaces %s when it "
               "compacts the index, and `repo repair` rebuilds it from the packs if need be\n",
               (unsigned long)v->corrected_indexes, plural(v->corrected_indexes),
               v->corrected_indexes == 1 ? "it" : "them");
}

static void print_verify(const struct options *o, const struct verify_result *v)
{
    const uint64_t now = v->bytes_read - v->resumed_bytes;
    printf("Verified %lu snapshot%s: %s read in %s (%s), ", (unsigned long)v->snapshots, v->snapshots == 1 ? "" : "s",
           text_bytes(now), text_seconds(v->seconds), text_rate(per_second(now, v->seconds)));
    if (v->resumed_bytes)
        printf("%s before the interruption, ", text_bytes(v->resumed_bytes));
    if (v->damages)
        printf("%lu DAMAGED\n", (unsigned long)v->damages);
    else
        puts(v->corrected + v->corrected_indexes ? "nothing is lost" : "no damage found");
    print_corrected(v);
    if (!o->verbose)
        return;
    printf("Contents    %lu of %lu read, in %lu object%s\n", (unsigned long)v->contents_read,
           (unsigned long)v->contents, (unsigned long)v->objects, plural(v->objects));
    printf("Index       %lu %s in %lu pack%s\n", (unsigned long)v->index_entries,
           v->index_entries == 1 ? "entry" : "entries", (unsigned long)v->packs, plural(v->packs));
    if (v->packs_not_indexed)
        printf("Not indexed %lu pack%s, being written or left by an interrupted run, which its next one adopts\n",
               (unsigned long)v->packs_not_indexed, plural(v->packs_not_indexed));
    stages_print(v->stages, v->n_stages, v->bottleneck);
}

int cli_verify(const struct options *o, struct err *e)
{
    struct mover_progress progress = {0};
    struct mover_cancel *cancel = cli_cancel();
    CLEANUP(repo_freep) struct repo *r = NULL;
    int rc = cli_open_repo(o, &r, e);
    if (rc < 0)
        return rc;
    CLEANUP_FREE char(*ids)[33] = NULL;
    rc = chosen_snapshots(o, r, &ids, e);
    if (rc < 0)
        return rc;
    const struct verify_opts vo = {
        .limits = {.memory = o->memory, .workers = o->workers, .read_limit = o->read_limit},
        .read_percent = o->read_percent,
        .read_from = -1,
        .resume = true,
        .anew_ns = o->anew ? now_ns() : 0,
        .progress = &progress,
        .cancel = cancel,
        .on_damage = show_damage,
        .on_damage_arg = (void *)(uintptr_t)o,
    };
    struct progress_view *view;
    rc = progress_start(&view, o, "verify", &progress, e);
    if (rc < 0)
        return rc;
    struct verify_result v = {0};
    rc = verify_run(r, ids, (size_t)o->n_args, &vo, &v, e);
    progress_stop(view);
    if (rc < 0 && e->cls != ERR_DAMAGE)
        return rc;
    if (o->json)
        print_json(verify_json(&v, rc >= 0));
    else if (!o->quiet)
        print_verify(o, &v);
    return rc;
}
