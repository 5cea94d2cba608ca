/* SPDX-License-Identifier: GPL-2.0-or-later */
/* maintenance.c - `maintenance` on a repository: what was freed, what will be, and why not yet */
#include "daemon/cli/confirm.h"
#include "daemon/mover/maintain.h"

#include "base/time.h"
#include "repo/copy.h"

#include <string.h>

/* All index blobs are read side by side: with less, pages of hundreds of them are released and read again and again. */
#define INDEX_MEMORY (UINT64_C(128) << 20)

static json_t *sum_json(const struct maintain_sum *s)
{
    return json_pack("{s:I, s:I}", "count", (json_int_t)s->n, "bytes", (json_int_t)s->bytes);
}

/* "": no such time. */
static json_t *time_json(int64_t ns, bool known)
{
    char text[TIME_TEXT];
    return json_string(known ? time_text(ns / NS_PER_S * NS_PER_S, text) : "");
}

static json_t *index_json(const struct epoch_tidied *t)
{
    return json_pack("{s:I, s:I, s:b, s:b, s:I, s:I, s:I}", "writeEpoch", (json_int_t)t->write_epoch, "epochsCompacted",
                     (json_int_t)t->compacted, "advanced", (int)t->advanced, "rangeCompacted", (int)t->ranged,
                     "markersDeleted", (json_int_t)t->markers, "blobsDeleted", (json_int_t)t->superseded,
                     "bytesDeleted", (json_int_t)t->bytes);
}

static json_t *result_json(const struct options *o, const struct maintain_result *r, bool ok)
{
    const bool drops = r->watermark_ns != INT64_MIN, waits = r->waiting.n > 0 || r->marked.n > 0;
    json_t *kept = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "young", sum_json(&r->young), "youngUntil",
        time_json(r->young_until_ns, r->young.n), "markedEarlier", sum_json(&r->waiting), "droppedFrom",
        time_json(r->drop_from_ns, waits), "freshPacks", sum_json(&r->fresh), "freshPacksUntil",
        time_json(r->fresh_until_ns, r->fresh.n), "sessionPacks", sum_json(&r->session), "sessionPacksUntil",
        time_json(r->session_until_ns, r->session.n), "unknownPacks", sum_json(&r->unknown), "unknownPacksUntil",
        time_json(r->unknown_until_ns, r->unknown.n), "trappedBytes", (json_int_t)r->trapped, "deletePacksFrom",
        time_json(r->delete_from_ns, r->delete_from_ns != INT64_MIN));
    return json_pack("{s:s, s:s, s:b, s:b, s:b, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:o, "
                     "s:o, s:I, s:o, s:f, s:o, s:I, s:o}",
                     "type", "result", "verb", "maintenance", "ok", (int)ok, "full", (int)o->full, "dryRun",
                     (int)o->dry_run, "started", time_json(r->started_ns, true), "snapshots", (json_int_t)r->snapshots,
                     "incompleteSnapshots", (json_int_t)r->incomplete, "used", sum_json(&r->used), "marked",
                     sum_json(&r->marked), "restored", sum_json(&r->restored), "dropped", sum_json(&r->dropped),
                     "droppedUntil", time_json(r->watermark_ns, drops), "packs", sum_json(&r->packs), "deletedPacks",
                     sum_json(&r->deleted), "deletedMarkers", (json_int_t)r->markers.n, "deletedLogs",
                     sum_json(&r->logs), "damaged", (json_int_t)r->damaged, "kept", kept, "index",
                     index_json(&r->index), "collections", (json_int_t)r->collections, "nextFull",
                     time_json(r->next_full_ns, r->next_full_ns != INT64_MIN), "seconds", r->seconds, "rewritten",
                     sum_json(&r->rewritten), "rewrittenPacks", (json_int_t)r->rewritten_packs, "unreadable",
                     sum_json(&r->unreadable));
}

static void print_sum(const char *name, const struct maintain_sum *s, const char *what)
{
    char n[64];
    snprintf(n, sizeof n, "%llu %s%s", (unsigned long long)s->n, what, s->n == 1 ? "" : "s");
    printf("%-18s%s, %s\n", name, n, text_bytes(s->bytes));
}

static void explain_packs(const struct maintain_result *r)
{
    if (r->fresh.n)
        printf("  %s in %llu packs that are younger than 24 hours: until %s\n", text_bytes(r->fresh.bytes),
               (unsigned long long)r->fresh.n, text_local_time(r->fresh_until_ns));
    if (r->session.n)
        printf("  %s in %llu packs of sessions that may still be writing: until %s\n", text_bytes(r->session.bytes),
               (unsigned long long)r->session.n, text_local_time(r->session_until_ns));
    if (r->unknown.n)
        printf("  %s in %llu packs that no index has, and no session accounts for: until %s\n",
               text_bytes(r->unknown.bytes), (unsigned long long)r->unknown.n, text_local_time(r->unknown_until_ns));
    if (r->trapped)
        printf("  %s of unneeded data in packs that also contain needed data: until these are under 60 %% full\n",
               text_bytes(r->trapped));
    if (r->delete_from_ns != INT64_MIN && r->delete_from_ns > r->started_ns)
        printf("  all packs, because contents were rewritten a short time ago: until %s\n",
               text_local_time(r->delete_from_ns));
}

static void explain_marked(const struct maintain_result *r, const struct maintain_sum *s, const char *what)
{
    printf("  %s in %llu contents %s: until %s, not before %s\n", text_bytes(s->bytes), (unsigned long long)s->n, what,
           r->drop_runs > 1 ? "the second full maintenance from now" : "the next full maintenance",
           text_local_time(r->drop_from_ns));
}

static void explain(const struct options *o, const struct maintain_result *r)
{
    const bool marked = r->marked.n > 0;
    if (!r->young.n && !r->waiting.n && !r->held.n && !r->trapped && !marked) {
        puts("Nothing else could be freed.");
        return;
    }
    puts("Kept for now:");
    if (r->young.n)
        printf("  %s in %llu contents that no snapshot needs, younger than 24 hours: until %s\n",
               text_bytes(r->young.bytes), (unsigned long long)r->young.n, text_local_time(r->young_until_ns));
    if (marked && !o->unsafe)
        explain_marked(r, &r->marked, o->dry_run ? "marked deleted by the next run" : "marked deleted just now");
    if (r->waiting.n)
        explain_marked(r, &r->waiting, "marked deleted earlier");
    explain_packs(r);
}

static void print_index(const struct epoch_tidied *t)
{
    printf("Index             write epoch %lld%s, %llu epoch%s compacted%s, %llu superseded blob%s deleted (%s)\n",
           (long long)t->write_epoch, t->advanced ? " (advanced)" : "", (unsigned long long)t->compacted,
           t->compacted == 1 ? "" : "s", t->ranged ? ", and a range of them" : "", (unsigned long long)t->superseded,
           t->superseded == 1 ? "" : "s", text_bytes(t->bytes));
}

static void print_result(const struct options *o, const struct maintain_result *r)
{
    if (!o->full) {
        print_index(&r->index);
        if (o->dry_run)
            puts("Nothing was changed.");
        return;
    }
    printf("Snapshots         %llu", (unsigned long long)r->snapshots);
    if (r->incomplete)
        printf(" (%llu incomplete)", (unsigned long long)r->incomplete);
    putchar('\n');
    print_sum("In use", &r->used, "content");
    print_sum("Marked deleted", &r->marked, "content");
    if (r->restored.n)
        print_sum("Needed again", &r->restored, "content");
    print_sum("Dropped", &r->dropped, "content");
    print_sum("Packs deleted", &r->deleted, "pack");
    if (r->rewritten.n)
        printf("%-18s%s in %llu contents of %llu short pack%s stored again together\n", "Rewritten",
               text_bytes(r->rewritten.bytes), (unsigned long long)r->rewritten.n,
               (unsigned long long)r->rewritten_packs, r->rewritten_packs == 1 ? "" : "s");
    if (r->logs.n)
        print_sum("Logs deleted", &r->logs, "log");
    print_index(&r->index);
    if (r->damaged)
        printf("DAMAGED           %llu needed contents, marked deleted, cannot be read\n",
               (unsigned long long)r->damaged);
    if (r->unreadable.n)
        printf("DAMAGED           %llu contents of short packs cannot be read\n", (unsigned long long)r->unreadable.n);
    if (o->explain)
        explain(o, r);
    printf("%s %s of %s in packs", o->dry_run ? "Would free" : "Freed", text_bytes(r->deleted.bytes),
           text_bytes(r->packs.bytes));
    if (r->rewritten.n && !o->dry_run)
        printf(", stored %s again", text_bytes(r->rewritten.bytes));
    puts(o->dry_run ? "; nothing was changed." : ".");
}

static int take(const struct options *o, struct repo *r, const char *owner, struct err *e)
{
    struct maintenance_params p;
    const int copy = copy_is_marked(repo_blobs(r), e);
    int rc = copy < 0 ? copy : maintenance_params_load(r, &p, e);
    if (rc == 0 && copy) {
        rc = confirm(o, e,
                     "Repository %s is a copy. It will be a repository of its own, and is not brought up to date any "
                     "more.",
                     o->repo);
        if (rc == 0)
            rc = blobs_delete(repo_blobs(r), COPY_MARK, e);
    }
    if (rc == 0 && strcmp(p.owner, owner) != 0) {
        rc = confirm(o, e, "Maintenance of repository %s will belong to %s instead of %s.", o->repo, owner,
                     *p.owner ? p.owner : "nobody");
        if (rc == 0)
            rc = maintenance_take(r, owner, e);
    }
    if (rc < 0)
        return rc;
    if (o->json)
        print_json(json_pack("{s:s, s:s, s:s, s:s}", "type", "result", "verb", "maintenance", "owner", owner, "before",
                             p.owner));
    else if (!o->quiet && strcmp(p.owner, owner) == 0)
        printf("Nothing to do: %s is the owner already.\n", owner);
    else if (!o->quiet)
        printf("Maintenance belongs to %s now; it can run in 30 minutes, when the former owner has noticed.\n", owner);
    return 0;
}

int cli_maintenance(const struct options *o, struct err *e)
{
    CLEANUP(repo_freep) struct repo *r = NULL;
    struct mover_cancel *cancel = cli_cancel();
    char node[256], owner[300];
    int rc = o->owner ? 0 : cli_node_name(o, node, e);
    if (rc < 0)
        return rc;
    if (o->owner)
        snprintf(owner, sizeof owner, "%s", o->owner);
    else
        snprintf(owner, sizeof owner, "snapferry-maintenance@%s", node);
    struct options with = *o;
    with.index_memory = o->index_memory ? o->index_memory : INDEX_MEMORY;
    rc = cli_open_repo(&with, &r, e);
    if (rc < 0)
        return rc;
    if (o->take_ownership)
        return take(o, r, owner, e);
    if (o->unsafe && !o->dry_run) {
        log_warning("--safety=none: data of backups that run now, by any client, would be lost");
        rc = confirm(o, e, "Repository %s will be maintained without safety delays: no client may use it meanwhile.",
                     o->repo);
        if (rc < 0)
            return rc;
    }
    struct maintain_result res;
    rc =
        maintain_run(r,
                     &(struct maintain_opts){
                         .owner = owner, .full = o->full, .dry_run = o->dry_run, .unsafe = o->unsafe, .cancel = cancel},
                     &res, e);
    if (rc < 0 && !res.damaged && !res.unreadable.n)
        return rc;
    if (o->json)
        print_json(result_json(o, &res, rc == 0));
    else if (!o->quiet)
        print_result(o, &res);
    return rc;
}

/* ---- repo usage ---- */

static void print_usage(const char *name, const struct maintain_sum *s, const char *what)
{
    printf("%-18s%s%s%s\n", name, text_bytes(s->bytes), *what ? "  " : "", what);
}

static const char *until(int64_t ns, bool known)
{
    static char text[128];
    snprintf(text, sizeof text, "until %s", text_local_time(ns));
    return known ? text : "";
}

/* What a full maintenance would find now. */
int cli_repo_usage(const struct options *o, struct err *e)
{
    CLEANUP(repo_freep) struct repo *r = NULL;
    struct maintain_result res;
    struct options with = *o;
    with.index_memory = o->index_memory ? o->index_memory : INDEX_MEMORY;
    with.dry_run = with.full = true;
    int rc = cli_open_repo(&with, &r, e);
    if (rc == 0)
        rc = maintain_run(
            r, &(struct maintain_opts){.owner = "", .full = true, .dry_run = true, .cancel = cli_cancel()}, &res, e);
    if (rc < 0)
        return rc;
    if (o->json) {
        json_t *j = result_json(&with, &res, true);
        if (j)
            json_object_set_new(j, "verb", json_string("repo usage"));
        print_json(j);
        return 0;
    }
    struct maintain_sum marked = {res.marked.n + res.waiting.n, res.marked.bytes + res.waiting.bytes};
    print_usage("Packs", &res.packs, "");
    print_usage("In use", &res.used, "");
    print_usage("Unneeded, young", &res.young, until(res.young_until_ns, res.young.n));
    print_usage("Unneeded", &marked,
                !marked.n           ? ""
                : res.drop_runs > 1 ? "freed by the third full maintenance"
                                    : "freed by the second full maintenance");
    print_usage("In kept packs", &(struct maintain_sum){0, res.trapped}, "");
    print_usage("Packs kept", &res.held, "");
    print_usage("Free at once", &res.deleted, res.deleted.n ? "by the next full maintenance" : "");
    return 0;
}
