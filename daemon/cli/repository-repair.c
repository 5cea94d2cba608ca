/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repository-repair.c - `repo repair`: the index rebuilt from the packs */
#include "daemon/cli/cli.h"

#include "base/cleanup.h"
#include "base/units.h"
#include "daemon/mover/repair.h"

#include <string.h>

static const char *const kinds[] = {
    [REPAIR_BAD_INDEX] = "damaged-index",     [REPAIR_ASIDE] = "set-aside",
    [REPAIR_PACK] = "pack-not-indexed",       [REPAIR_UNREADABLE] = "damaged-local-index",
    [REPAIR_UNKNOWN] = "damaged-local-index", [REPAIR_MANIFESTS] = "unreadable-manifests"};

static void print_found(enum repair_kind kind, const char *name, const char *why, uint64_t contents, void *arg)
{
    const struct options *o = arg;
    if (o->json) {
        json_t *j = json_pack("{s:s, s:s, s:s, s:s}", "type", "repair", "kind", kinds[kind], "blob", name, "why", why);
        if (j && (kind == REPAIR_PACK || kind == REPAIR_MANIFESTS))
            json_object_set_new(j, "contents", json_integer((json_int_t)contents));
        if (j && (kind == REPAIR_UNREADABLE || kind == REPAIR_UNKNOWN))
            json_object_set_new(j, "indexed", json_boolean(kind == REPAIR_UNREADABLE));
        print_json(j);
        return;
    }
    if (o->quiet && kind != REPAIR_UNKNOWN && kind != REPAIR_MANIFESTS)
        return;
    switch (kind) {
    case REPAIR_BAD_INDEX:
        printf("damaged: %s\n", why);
        break;
    case REPAIR_ASIDE:
        printf("%s as %s\n", o->dry_run ? "would be set aside" : "set aside", name);
        break;
    case REPAIR_PACK:
        printf("pack %s: %llu content%s that no index has\n", name, (unsigned long long)contents, plural(contents));
        break;
    case REPAIR_UNREADABLE:
        printf("%s; an index has contents of this pack\n", why);
        break;
    case REPAIR_UNKNOWN:
        printf("%s; no index has this pack, and the number of its contents is not known\n", why);
        break;
    case REPAIR_MANIFESTS:
        printf("pack %s: %llu content%s of manifests that no index has %s left out: %s\n", name,
               (unsigned long long)contents, plural(contents), contents == 1 ? "is" : "are", why);
        break;
    }
}

static void print_json_result(const struct options *o, const struct repair_result *r)
{
    print_json(json_pack(
        "{s:s, s:s, s:b, s:{s:I, s:I, s:I, s:I}, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}, s:{s:I, s:I}, s:{s:I, s:I}, "
        "s:I, s:I, s:I, s:I, s:I, s:f}",
        "type", "result", "verb", "repo repair", "dryRun", (int)o->dry_run, "indexBlobs", "read",
        (json_int_t)r->indexes, "damaged", (json_int_t)r->bad, "setAside", (json_int_t)r->aside, "written",
        (json_int_t)r->written, "packs", "count", (json_int_t)r->packs, "read", (json_int_t)r->read, "notIndexed",
        (json_int_t)r->found, "ofSessions", (json_int_t)r->waiting, "damagedIndexed", (json_int_t)r->unreadable,
        "damagedUnknown", (json_int_t)r->unknown, "vanished", (json_int_t)r->vanished, "contents", "count",
        (json_int_t)r->contents.n, "bytes", (json_int_t)r->contents.bytes, "copies", "count",
        (json_int_t)r->elsewhere.n, "bytes", (json_int_t)r->elsewhere.bytes, "deletionMarks", (json_int_t)r->marks,
        "missing", (json_int_t)r->missing, "manifestsLeftOut", (json_int_t)r->manifests, "writeEpoch",
        (json_int_t)r->write_epoch, "emptyEpochs", (json_int_t)r->epochs, "seconds", r->seconds));
}

static void print_result(const struct options *o, const struct repair_result *r)
{
    const char *would = o->dry_run ? "would be " : "";
    printf("Index blobs       %llu read, %llu damaged", (unsigned long long)r->indexes, (unsigned long long)r->bad);
    printf(r->aside ? ", %llu %sset aside\n" : "\n", (unsigned long long)r->aside, would);
    if (r->write_epoch >= 0)
        printf("Write epoch       its marker was lost: %lld %sput again\n", (long long)r->write_epoch, would);
    printf("Packs             %llu of %llu read, %llu with contents that no index had\n", (unsigned long long)r->read,
           (unsigned long long)r->packs, (unsigned long long)r->found);
    if (r->waiting)
        printf("Left to writers   %llu pack%s of sessions that have given a sign of life within 96 hours\n",
               (unsigned long long)r->waiting, plural(r->waiting));
    printf("Contents          %llu, %s, %sput into the index again\n", (unsigned long long)r->contents.n,
           text_bytes(r->contents.bytes), would);
    if (r->elsewhere.n)
        printf("Copies            %llu of them, %s, whose pack is missing where the index had them\n",
               (unsigned long long)r->elsewhere.n, text_bytes(r->elsewhere.bytes));
    if (r->marks)
        printf("Deleted           %llu mark%s of deleted contents %sput into the index again\n",
               (unsigned long long)r->marks, plural(r->marks), would);
    if (r->epochs)
        printf("Epochs            %llu had lost all their index blobs, and %s one\n", (unsigned long long)r->epochs,
               o->dry_run ? "would get" : "have");
    if (r->missing)
        printf("MISSING           %llu content%s whose index was damaged, and whose pack%s missing\n",
               (unsigned long long)r->missing, plural(r->missing), r->missing == 1 ? " is" : "s are");
    if (r->unreadable)
        printf("Local indexes     those of %llu pack%s cannot be read; the index has contents of %s\n",
               (unsigned long long)r->unreadable, plural(r->unreadable), r->unreadable == 1 ? "it" : "these packs");
    if (r->unknown)
        printf("UNKNOWN           %llu pack%s that cannot be read, and no index has %s contents\n",
               (unsigned long long)r->unknown, r->unknown == 1 ? " has a local index" : "s have local indexes",
               r->unknown == 1 ? "its" : "their");
    if (r->manifests)
        printf(
            "LEFT OUT          %llu content%s of manifests that cannot be read, and that no index has: which snapshots "
            "%s had is not known\n",
            (unsigned long long)r->manifests, plural(r->manifests), r->manifests == 1 ? "it" : "they");
    if (o->dry_run)
        puts("Nothing was changed.");
    else if (!r->written && !r->aside && !r->epochs && r->write_epoch < 0)
        puts("Nothing had to be repaired.");
    else
        printf("%llu index blob%s written. Next: %s verify\n", (unsigned long long)r->written,
               r->written == 1 ? " was" : "s were", cli_how(o));
}

int cli_repo_repair(const struct options *o, struct err *e)
{
    struct mover_progress progress = {0};
    CLEANUP(repo_freep) struct repo *r = NULL;
    struct repair_result res;
    struct progress_view *view;
    atomic_store(&progress.phase, PHASE_CHECKING);
    struct mover_cancel *cancel = cli_cancel();
    int rc = cli_open_repo(o, &r, e);
    if (rc == 0)
        rc = progress_start(&view, o, "repo repair", &progress, e);
    if (rc < 0)
        return rc;
    const struct repair_opts ro = {.dry_run = o->dry_run,
                                   .missing_only = o->packs_missing,
                                   .progress = &progress,
                                   .cancel = cancel,
                                   .report = print_found,
                                   .arg = (void *)(uintptr_t)o};
    rc = repair_run(r, &ro, &res, e);
    progress_stop(view);
    if (!res.complete)
        return rc;
    if (o->json)
        print_json_result(o, &res);
    else if (!o->quiet)
        print_result(o, &res);
    return rc;
}
