/* SPDX-License-Identifier: GPL-2.0-or-later */
/* maintenance.c - `maintenance` on a repository: what was freed, what will be, and why not yet */
#include "daemon/cli/confirm.h"
#include "daemon/cli/daemon.h"
#include "daemon/mover/maintain.h"

#include "base/machine.h"
#include "base/time.h"
#include "base/units.h"
#include "repo/copy.h"

#include <string.h>

/* All index blobs are read side by side: with less, pages of hundreds of them are released and read again and again. */
#define INDEX_MEMORY (UINT64_C(96) << 20)

static json_t *result_json(const char *verb, const struct options *o, const struct maintain_result *r, bool ok)
{
    json_t *j = json_pack("{s:s, s:s, s:b}", "type", "result", "verb", verb, "ok", (int)ok);
    CLEANUP_JSON json_t *numbers = maintain_result_json(r, o->full, o->dry_run);
    if (!j || !numbers || json_object_update(j, numbers) < 0) {
        json_decref(j);
        return NULL;
    }
    return j;
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
        printf("  %s in %llu pack%s younger than 24 hours: until %s\n", text_bytes(r->fresh.bytes),
               (unsigned long long)r->fresh.n, r->fresh.n == 1 ? " that is" : "s that are",
               text_local_time(r->fresh_until_ns));
    if (r->session.n)
        printf("  %s in %llu pack%s of sessions that may still be writing: until %s\n", text_bytes(r->session.bytes),
               (unsigned long long)r->session.n, plural(r->session.n), text_local_time(r->session_until_ns));
    if (r->unknown.n)
        printf("  %s in %llu pack%s that no index has, and no session accounts for: until %s\n",
               text_bytes(r->unknown.bytes), (unsigned long long)r->unknown.n, plural(r->unknown.n),
               text_local_time(r->unknown_until_ns));
    if (r->trapped)
        printf("  %s of unneeded data in packs that also contain needed data: until these are under 60 %% full\n",
               text_bytes(r->trapped));
    if (r->delete_from_ns != INT64_MIN && r->delete_from_ns > r->started_ns)
        printf("  all packs, because contents were rewritten a short time ago: until %s\n",
               text_local_time(r->delete_from_ns));
}

static void explain_marked(const struct maintain_result *r, const struct maintain_sum *s, const char *what)
{
    printf("  %s in %llu content%s %s: until %s, not before %s\n", text_bytes(s->bytes), (unsigned long long)s->n,
           plural(s->n), what, r->drop_runs > 1 ? "the second full maintenance from now" : "the next full maintenance",
           text_local_time(r->drop_from_ns));
}

static void result_explain(const struct options *o, const struct maintain_result *r)
{
    const bool marked = r->marked.n > 0;
    if (!r->young.n && !r->waiting.n && !r->held.n && !r->trapped && !marked) {
        puts("Nothing else could be freed.");
        return;
    }
    puts("Kept for now:");
    if (r->young.n)
        printf("  %s in %llu content%s that no snapshot needs, younger than 24 hours: until %s\n",
               text_bytes(r->young.bytes), (unsigned long long)r->young.n, plural(r->young.n),
               text_local_time(r->young_until_ns));
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

/* Also what is there, with `explain`. */
static void print_manifests(const struct options *o, const struct manifest_compacted *m)
{
    if (m->merged && o->dry_run)
        printf("%-18s%llu of %llu contents (%s) would be stored together\n", "Manifests", (unsigned long long)m->merged,
               (unsigned long long)m->contents, text_bytes(m->merged_bytes));
    else if (m->merged)
        printf("%-18s%llu of %llu contents (%s) stored together in %llu (%s)\n", "Manifests",
               (unsigned long long)m->merged, (unsigned long long)m->contents, text_bytes(m->merged_bytes),
               (unsigned long long)m->written, text_bytes(m->written_bytes));
    else if (o->explain)
        printf("%-18s%llu content%s, %s; stored together when 16 of them are small\n", "Manifests",
               (unsigned long long)m->contents, plural(m->contents), text_bytes(m->bytes));
}

static void print_result(const struct options *o, const struct maintain_result *r)
{
    if (!o->full) {
        print_manifests(o, &r->manifests);
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
        printf("%-18s%s in %llu content%s of %llu short pack%s stored again together\n", "Rewritten",
               text_bytes(r->rewritten.bytes), (unsigned long long)r->rewritten.n, plural(r->rewritten.n),
               (unsigned long long)r->rewritten_packs, r->rewritten_packs == 1 ? "" : "s");
    if (r->renewed.n)
        printf("%-18s%s in %llu content%s that error correction had to restore stored again\n", "Renewed",
               text_bytes(r->renewed.bytes), (unsigned long long)r->renewed.n, plural(r->renewed.n));
    if (r->logs.n)
        print_sum("Logs deleted", &r->logs, "log");
    if (r->leftovers.n)
        print_sum("Of killed writers", &r->leftovers, "file");
    if (r->locks.n)
        print_sum("Locks extended", &r->locks, "blob");
    print_manifests(o, &r->manifests);
    print_index(&r->index);
    if (r->damaged)
        printf("DAMAGED           %llu needed content%s, marked deleted, cannot be read\n",
               (unsigned long long)r->damaged, plural(r->damaged));
    if (r->unreadable.n)
        printf("DAMAGED           %llu content%s of short packs cannot be read\n", (unsigned long long)r->unreadable.n,
               plural(r->unreadable.n));
    if (r->unmarked.n)
        print_sum("Not yet marked", &r->unmarked, "content");
    if (r->needs)
        printf("Left undone       for lack of room: %s are free, %s are needed\n", text_bytes(r->free),
               text_bytes(r->needs));
    if (o->explain)
        result_explain(o, r);
    printf("%s %s of %s in packs", o->dry_run ? "Would free" : "Freed", text_bytes(r->deleted.bytes),
           text_bytes(r->packs.bytes));
    if (r->rewritten.n && !o->dry_run)
        printf(", stored %s again", text_bytes(r->rewritten.bytes));
    puts(o->dry_run ? "; nothing was changed." : ".");
}

/* For an identity that was given nobody knows the machine. */
static const char *own_machine(const struct options *o)
{
    return o->owner ? "" : machine_text();
}

static int ownership_take(const struct options *o, struct repo *r, const char *owner, struct err *e)
{
    struct maintenance_params p = {.present = false};
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
    const bool ours = rc == 0 && !strcmp(p.owner, owner), cloned = maintain_of_another_machine(&p, own_machine(o));
    if (rc == 0 && (!ours || cloned)) {
        rc = confirm(o, e, "Maintenance of repository %s will belong to %s instead of %s%s.", o->repo, owner,
                     *p.owner ? p.owner : "nobody", ours ? " on another machine" : "");
        if (rc == 0)
            rc = maintenance_take(r, owner, own_machine(o), e);
    }
    if (rc < 0)
        return rc;
    if (o->json)
        print_json(json_pack("{s:s, s:s, s:s, s:s}", "type", "result", "verb", "maintenance", "owner", owner, "before",
                             p.owner));
    else if (!o->quiet && ours && !cloned)
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
        snprintf(owner, sizeof owner, MAINTAIN_OWNER "%s", node);
    struct options with = *o;
    with.index_memory = o->index_memory ? o->index_memory : INDEX_MEMORY;
    rc = cli_open_repo(&with, &r, e);
    if (rc < 0)
        return rc;
    if (o->take_ownership)
        return ownership_take(o, r, owner, e);
    if (o->unsafe && !o->dry_run) {
        log_warning("--safety=none: data of backups that run now, by any client, would be lost");
        rc = confirm(o, e, "Repository %s will be maintained without safety delays: no client may use it meanwhile.",
                     o->repo);
        if (rc < 0)
            return rc;
    }
    struct maintain_result res;
    const struct maintain_opts how = {.owner = owner,
                                      .machine = own_machine(o),
                                      .full = o->full,
                                      .dry_run = o->dry_run,
                                      .unsafe = o->unsafe,
                                      .read_limit = o->read_limit,
                                      .write_limit = o->write_limit,
                                      .cancel = cancel};
    rc = maintain_run(r, &how, &res, e);
    if (rc < 0 && !res.damaged && !res.unreadable.n)
        return rc;
    if (o->json)
        print_json(result_json("maintenance", o, &res, rc == 0));
    else if (!o->quiet)
        print_result(o, &res);
    return rc;
}

/* ---- by the daemon ---- */

/* The inverse of maintain_result_json(), as far as it is printed. */
static struct maintain_sum sum_of(const json_t *j, const char *name)
{
    const json_t *s = jobj(j, name);
    return (struct maintain_sum){(uint64_t)jint(s, "count"), (uint64_t)jint(s, "bytes")};
}

static int64_t time_of(const json_t *j, const char *name)
{
    int64_t ns;
    return *jstr(j, name) && time_parse(&ns, jstr(j, name)) == 0 ? ns : INT64_MIN;
}

static struct maintain_result result_of(const json_t *j)
{
    const json_t *kept = jobj(j, "kept"), *index = jobj(j, "index"), *manifests = jobj(j, "manifests");
    const struct maintain_sum merged = sum_of(manifests, "merged"), written = sum_of(manifests, "written");
    return (struct maintain_result){
        .started_ns = time_of(j, "started"),
        .snapshots = (uint64_t)jint(j, "snapshots"),
        .incomplete = (uint64_t)jint(j, "incompleteSnapshots"),
        .used = sum_of(j, "used"),
        .marked = sum_of(j, "marked"),
        .restored = sum_of(j, "restored"),
        .dropped = sum_of(j, "dropped"),
        .packs = sum_of(j, "packs"),
        .deleted = sum_of(j, "deletedPacks"),
        .rewritten = sum_of(j, "rewritten"),
        .rewritten_packs = (uint64_t)jint(j, "rewrittenPacks"),
        .renewed = sum_of(j, "renewed"),
        .unreadable = sum_of(j, "unreadable"),
        .damaged = (uint64_t)jint(j, "damaged"),
        .logs = sum_of(j, "deletedLogs"),
        .leftovers = sum_of(j, "leftovers"),
        .unmarked = sum_of(j, "unmarked"),
        .needs = (uint64_t)jint(j, "needsBytes"),
        .free = (uint64_t)jint(j, "freeBytes"),
        .locks = sum_of(j, "extendedLocks"),
        .young = sum_of(kept, "young"),
        .young_until_ns = time_of(kept, "youngUntil"),
        .waiting = sum_of(kept, "markedEarlier"),
        .drop_from_ns = time_of(kept, "droppedFrom"),
        .drop_runs = (unsigned)jint(kept, "droppedAfterRuns"),
        .fresh = sum_of(kept, "freshPacks"),
        .fresh_until_ns = time_of(kept, "freshPacksUntil"),
        .session = sum_of(kept, "sessionPacks"),
        .session_until_ns = time_of(kept, "sessionPacksUntil"),
        .unknown = sum_of(kept, "unknownPacks"),
        .unknown_until_ns = time_of(kept, "unknownPacksUntil"),
        .held = {.n = sum_of(kept, "freshPacks").n + sum_of(kept, "sessionPacks").n + sum_of(kept, "unknownPacks").n},
        .trapped = (uint64_t)jint(kept, "trappedBytes"),
        .delete_from_ns = time_of(kept, "deletePacksFrom"),
        .manifests = {.contents = (uint64_t)jint(manifests, "contents"),
                      .bytes = (uint64_t)jint(manifests, "bytes"),
                      .merged = merged.n,
                      .merged_bytes = merged.bytes,
                      .written = written.n,
                      .written_bytes = written.bytes},
        .index = {.write_epoch = jint(index, "writeEpoch"),
                  .compacted = (uint64_t)jint(index, "epochsCompacted"),
                  .advanced = jbool(index, "advanced"),
                  .ranged = jbool(index, "rangeCompacted"),
                  .superseded = (uint64_t)jint(index, "blobsDeleted"),
                  .bytes = (uint64_t)jint(index, "bytesDeleted")},
    };
}

void maintenance_print(const json_t *op, bool explained)
{
    const json_t *summary = jobj(jobj(jobj(op, "result"), "maintenance"), "summary");
    const struct options o = {
        .full = jbool(summary, "full"), .dry_run = jbool(summary, "dryRun"), .explain = explained};
    const struct maintain_result r = result_of(summary);
    if (summary)
        print_result(&o, &r);
}

/* That it was refused is an answer for the daemon, and a failure for who has asked for it. */
static int refusal_of(const json_t *ended, struct err *e)
{
    const json_t *m = jobj(jobj(ended, "result"), "maintenance");
    const char *why = jstr(m, "refused");
    if (strcmp(jstr(ended, "state"), "Skipped") != 0)
        return 0;
    err_set(e,
            !strcmp(why, "owner") || !strcmp(why, "machine") ? ERR_PERMISSION
            : !strcmp(why, "busy")                           ? ERR_BUSY
                                                             : ERR_FORMAT,
            0, "%s", jstr(ended, "why"));
    return err_hint(e, "%s", jstr(m, "hint"));
}

static int wait_for_run(const struct options *o, const char *id, struct err *e)
{
    CLEANUP_JSON json_t *ended = NULL;
    int rc = wait_until_ended(o, id, &ended, e);
    if (rc < 0)
        return rc;
    rc = refusal_of(ended, e);
    if (rc == 0)
        rc = exit_code_of(o, ended, e);
    if (o->json)
        print_answer(o, ended);
    else if (!o->quiet)
        maintenance_print(ended, o->explain);
    return rc;
}

int ask_maintenance(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *args =
        json_pack("{s:b, s:b, s:b}", "full", (int)o->full, "dry_run", (int)o->dry_run, "unsafe", (int)o->unsafe);
    CLEANUP_JSON json_t *answer = NULL;
    if (!args || (o->n_args && json_object_set_new(args, "repository", json_string(o->args[0])) < 0))
        return err_nomem(e);
    int rc = 0;
    if (o->unsafe && !o->dry_run)
        rc = confirm(o, e, "The repository will be maintained without safety delays: no client may use it meanwhile.");
    if (rc == 0)
        rc = daemon_ask(o, "maintenance", json_incref(args), &answer, e);
    if (rc < 0)
        return rc;
    const char *op = jstr(answer, "operation");
    /* Who wants to know what would happen, or why, waits for it. */
    if (o->wait || o->dry_run || o->explain)
        return wait_for_run(o, op, e);
    if (o->json)
        print_answer(o, answer);
    else if (!o->quiet)
        printf("Maintenance: %s\nShow progress: snapferry wait %s\n", text_name(op), text_name(op));
    return 0;
}

/* ---- repo usage ---- */

static void print_usage(const char *name, const struct maintain_sum *s, const char *what)
{
    printf("%-18s%s%s%s\n", name, text_bytes(s->bytes), *what ? "  " : "", what);
}

static const char *until_text(int64_t ns, bool known)
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
    if (rc == 0 && o->volumes)
        return cli_usage_volumes(o, r, e);
    struct mover_progress progress = {0};
    struct progress_view *view = NULL;
    if (rc == 0)
        rc = progress_start(&view, o, "repo usage", &progress, e);
    if (rc == 0)
        rc =
            maintain_run(r,
                         &(struct maintain_opts){
                             .owner = "", .full = true, .dry_run = true, .progress = &progress, .cancel = cli_cancel()},
                         &res, e);
    progress_stop(view);
    if (rc < 0)
        return rc;
    if (o->json) {
        print_json(result_json("repo usage", &with, &res, true));
        return 0;
    }
    struct maintain_sum marked = {res.marked.n + res.waiting.n, res.marked.bytes + res.waiting.bytes};
    print_usage("Packs", &res.packs, "");
    print_usage("In use", &res.used, "");
    print_usage("Unneeded, young", &res.young, until_text(res.young_until_ns, res.young.n));
    print_usage("Unneeded", &marked,
                !marked.n           ? ""
                : res.drop_runs > 1 ? "freed by the third full maintenance"
                                    : "freed by the second full maintenance");
    print_usage("In kept packs", &(struct maintain_sum){0, res.trapped}, "");
    print_usage("Packs kept", &res.held, "");
    print_usage("Free at once", &res.deleted, res.deleted.n ? "by the next full maintenance" : "");
    return 0;
}
