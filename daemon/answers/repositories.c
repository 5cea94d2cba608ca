/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repositories.c - state and contents of repositories */
#include "base/time.h"
#include "daemon/answers/answers-impl.h"
#include "daemon/answers/counted.h"
#include "daemon/decide/maintain.h"
#include "daemon/decide/damaged.h"
#include "daemon/decide/verification.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct answer_repository *find_repository(const struct answer_facts *f, const char *name)
{
    for (unsigned i = 0; i < f->n_repositories; i++)
        if (!strcmp(f->repositories[i].name, name))
            return &f->repositories[i];
    return NULL;
}

/* What the counters know: stored, backed_up, added, dedup, verified. */
static void put_contents(struct records *r, const char *name, json_t *repository)
{
    CLEANUP_JSON json_t *labels = json_pack("{s:s}", "repository", name);
    int64_t stored, backed_up, added, at_ns, damages = 0;
    double ratio = 1;
    if (counted(r, "repository_stored_bytes", labels, 1, &stored))
        jset_int(repository, "stored", stored);
    if (counted(r, "repository_backed_up_bytes_total", labels, 1, &backed_up) &&
        counted(r, "repository_added_bytes_total", labels, 1, &added)) {
        jset_int(repository, "backed_up", backed_up);
        jset_int(repository, "added", added);
        CLEANUP_JSON json_t *none = json_object();
        /* What rebuilt records have counted is little of what is there: the first incremental run adds next to nothing.
         */
        if (added > 0 && !counted(r, RECORDS_REBUILT, none, 1e9, &at_ns))
            json_object_set_new(repository, "dedup", json_real((double)backed_up / (double)added));
    }
    if (!counted(r, "verify_last_end_timestamp_seconds", labels, 1e9, &at_ns))
        return;
    counted(r, "verify_last_damages", labels, 1, &damages);
    if (!records_counter_get(r, "verify_last_read_ratio", labels, &ratio))
        ratio = 1;
    json_object_set_new(
        repository, "verified",
        json_pack("{s:I, s:I, s:f}", "at_ns", (json_int_t)at_ns, "damages", (json_int_t)damages, "read_ratio", ratio));
}

/* ---- the cache ---- */

#define CACHE_NEARLY_FULL 0.8 /* of its limit */

/* One that does not fit is refused by each mover: said while there is time. */
static void put_cache(const struct answer_facts *f, const char *name, json_t *o, json_t *problems)
{
    CLEANUP_JSON json_t *labels = json_pack("{s:s}", "repository", name);
    const uint64_t limit = cfg_cache_part(f->cfg);
    int64_t bytes;
    if (!counted(f->records, "repository_index_cache_bytes", labels, 1, &bytes))
        return;
    json_object_set_new(o, "cache", json_pack("{s:I, s:I}", "index", (json_int_t)bytes, "limit", (json_int_t)limit));
    if ((double)bytes >= CACHE_NEARLY_FULL * (double)limit)
        add_problem(problems, "warning", "raise cache-max in [daemon], and `snapferry reload`; see docs/sizing.md",
                    "repository \"%s\": its index takes %" PRIu64 " MiB of %" PRIu64
                    " MiB that it may use in the cache: backups and restores are refused when it no longer fits",
                    name, ((uint64_t)bytes + (1 << 20) - 1) >> 20, limit >> 20);
}

/* ---- outcomes that are not recorded in it yet ---- */

#define OWED_LONG_NS NS_PER_H

static void put_owed(const struct answer_facts *f, const char *name, const struct answer_repository *s, json_t *o,
                     json_t *problems)
{
    const struct overview_owed x = overview_owed(f->overview, name);
    const struct operation *op = x.oldest ? operation_peek(f->records, x.oldest) : NULL;
    const char *why = !op ? "" : op->error.code ? op->error.message : op->waiting;
    if (!x.backups)
        return;
    json_object_set_new(
        o, "owed",
        json_pack("{s:I,s:I,s:s}", "backups", (json_int_t)x.backups, "since_ns", (json_int_t)x.since_ns, "why", why));
    /* One that is not available is a problem of its own. */
    if ((!s || s->up) && f->now_ns - x.since_ns > OWED_LONG_NS)
        add_problem(problems, "warning",
                    "it is retried automatically; after a loss of this node their outcome is unknown",
                    "repository \"%s\": the outcome of %" PRId64 " backup%s is not recorded in it yet%s%s", name,
                    x.backups, x.backups == 1 ? "" : "s", why[0] ? ": " : "", why);
}

/* ---- other nodes ---- */

#define SCAN_LONG_NS (3 * NS_PER_H) /* it is hourly */

static void put_others(const struct answer_facts *f, const struct cfg_repository *r, const struct answer_repository *s,
                       json_t *o, json_t *problems)
{
    json_t *list = json_array();
    char hint[700];
    for (const char *const *n = r->other_nodes; n && *n; n++) {
        CLEANUP_JSON json_t *labels = json_pack("{s:s,s:s}", "repository", r->name, "node", *n);
        int64_t at_ns = 0, since_ns = 0;
        counted(f->records, "other_node_scan_timestamp_seconds", labels, 1e9, &at_ns);
        counted(f->records, "other_node_since_timestamp_seconds", labels, 1e9, &since_ns);
        const bool never = !at_ns;
        const int64_t last_ns = never ? since_ns : at_ns;
        json_array_append_new(list, json_pack("{s:s,s:I}", "node", *n, "scanned_ns", (json_int_t)at_ns));
        /* While the daemon is down, or the repository is not available, nobody scans: problems of their own. */
        if (!s || !s->up || !last_ns || f->now_ns - last_ns <= SCAN_LONG_NS)
            continue;
        snprintf(hint, sizeof hint, "`snapferry scan %s --node %s` shows why; it is retried automatically", r->name,
                 *n);
        add_problem(problems, "warning", hint, "repository \"%s\": the backups of node %s %s %s%s", r->name, *n,
                    never ? "could not be listed yet, for" : "were last listed",
                    hours_words(f->now_ns - last_ns, (char[24]){0}), never ? "" : " ago");
    }
    if (json_array_size(list))
        json_object_set(o, "other_nodes", list);
    json_decref(list);
}

/* ---- maintenance ---- */

static void put_cycle(json_t *o, const char *key, const struct maintain_cycle *x, int64_t next_ns)
{
    json_t *c = json_object();
    put_ns(c, "last_ns", x->tried_ns);
    put_text(c, "last_state", outcome_name(x->outcome));
    put_ns(c, "success_ns", x->good_ns);
    put_text(c, "operation", x->operation);
    put_text(c, "error", x->error);
    if (next_ns != INT64_MAX)
        put_ns(c, "next_ns", next_ns);
    json_object_set_new(o, key, c);
}

static void put_space(json_t *o, const struct maintain_memory *m)
{
    if (!m->full.good_ns)
        return;
    jset_int(o, "freed", m->freed);
    jset_int(o, "packs", m->packs);
    jset_int(o, "reclaimable", m->reclaimable);
    jset_int(o, "trapped", m->trapped);
    put_ns(o, "back_from_ns", m->back_from_ns);
}

static void add_late(const struct answer_facts *f, const char *name, const char *kind, int64_t last_ns, bool never,
                     json_t *problems)
{
    char hint[700];
    snprintf(hint, sizeof hint, "`snapferry maintenance %s%s --wait` shows why", name,
             !strcmp(kind, "full") ? " --full" : "");
    if (last_ns)
        add_problem(problems, "warning", hint, "repository \"%s\": %s maintenance is overdue: %s %s%s", name, kind,
                    never ? "never done, for" : "last done", hours_words(f->now_ns - last_ns, (char[24]){0}),
                    never ? "" : " ago");
}

static void add_failed(const char *name, const char *kind, const struct maintain_cycle *x, json_t *problems)
{
    char hint[700];
    snprintf(hint, sizeof hint, "it is tried again at the next time; `snapferry describe %.500s` shows the run",
             x->operation);
    if (x->outcome == OUTCOME_FAILED)
        add_problem(problems, "error", hint, "repository \"%s\": %s maintenance failed: %s", name, kind, x->error);
}

/* Whoever the owner is: it is this repository that no space comes back to. */
static void add_silent(const struct answer_facts *f, const char *name, const struct maintain_memory *m,
                       int64_t silent_ns, json_t *problems)
{
    char hint[700];
    if (m->refused == REFUSED_MACHINE)
        add_problem(problems, "error", m->hint, "repository \"%s\": %s", name, m->why);
    snprintf(
        hint, sizeof hint,
        "let it run there; if it does not any more: `snapferry -r %s maintenance --take-ownership` makes this node "
        "the owner",
        name);
    if (silent_ns && *m->owner)
        add_problem(problems, "warning", hint,
                    "repository \"%s\": its maintenance is owned by %.512s, which has not run it for %" PRId64
                    " days: no space comes back",
                    name, m->owner, (f->now_ns - silent_ns) / NS_PER_DAY);
    else if (silent_ns)
        add_problem(problems, "warning", hint,
                    "repository \"%s\": its maintenance has no owner, and was not run for %" PRId64
                    " days: no space comes back",
                    name, (f->now_ns - silent_ns) / NS_PER_DAY);
}

static void put_maintenance(const struct answer_facts *f, const struct cfg_repository *r,
                            const struct answer_repository *s, json_t *o, json_t *problems)
{
    static const char *const standings[] = {
        [MAINTAIN_OFF] = "off", [MAINTAIN_NEW] = "new", [MAINTAIN_OURS] = "own", [MAINTAIN_OTHERS] = "other"};
    const struct maintain_memory *m = maintain_known(f->records, r->name);
    struct maintain_times t;
    json_t *x = json_object();
    maintain_times(f->cfg, r, m, f->now_ns, &t);
    jset_str(x, "standing", standings[t.standing]);
    if (m) {
        put_text(x, "owner", m->owner);
        put_text(x, "why", m->refused ? m->why : "");
        put_text(x, "hint", m->refused ? m->hint : "");
        put_ns(x, "silent_ns", t.silent_ns);
        put_cycle(x, "quick", &m->quick, t.quick_ns);
        put_cycle(x, "full", &m->full, t.full_ns);
        put_space(x, m);
    }
    json_object_set_new(o, "maintenance", x);
    if (m && t.standing == MAINTAIN_OTHERS)
        add_silent(f, r->name, m, t.silent_ns, problems);
    if (!m || t.standing != MAINTAIN_OURS)
        return;
    add_failed(r->name, "full", &m->full, problems);
    if (m->quick.tried_ns > m->full.tried_ns)
        add_failed(r->name, "quick", &m->quick, problems);
    if (!s || !s->up) /* nothing can be done, which is a problem of its own */
        return;
    if (m->full.outcome != OUTCOME_FAILED)
        add_late(f, r->name, "full", t.full_late_ns, !m->full.good_ns, problems);
    if (!t.full_late_ns)
        add_late(f, r->name, "quick", t.quick_late_ns, !m->quick.good_ns, problems);
}

/* ---- verification ---- */

/* What checks before native snapshots are pruned have found. */
static void put_affected(const struct answer_facts *f, const char *name, const struct verify_memory *m, json_t *o,
                         json_t *problems)
{
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    const unsigned n = damaged_known(f->records, m, &op);
    if (!n)
        return;
    jset_int(o, "affected", n);
    add_problem(problems, "error",
                "back up the volume again, and read all with `snapferry verify`; see snapferry-recovery(7)",
                "repository \"%s\": %u snapshot%s %s: %.200s (%.300s), found %s ago: %.600s", name, n,
                n == 1 ? " of a backup is" : "s of backups are",
                n > 1              ? "damaged or not what was backed up, the last one"
                : op.unverified[0] ? "not what was backed up"
                                   : "damaged",
                op.parent, op.volume->name, hours_words(f->now_ns - op.gone_ns, (char[24]){0}), op.gone_why);
}

/* Nothing is lost, and what happens next is no secret. */
static void corrected_problem(const struct answer_facts *f, const char *name, const struct verify_memory *m,
                              json_t *problems)
{
    char contents[64] = "", blobs[64] = "";
    if (m->corrected)
        snprintf(contents, sizeof contents, "%" PRId64 " content%s", m->corrected, m->corrected == 1 ? "" : "s");
    if (m->corrected_indexes)
        snprintf(blobs, sizeof blobs, "%s%" PRId64 " index blob%s", m->corrected ? " and " : "", m->corrected_indexes,
                 m->corrected_indexes == 1 ? "" : "s");
    if (!*contents && !*blobs)
        return;
    add_problem(
        problems, "warning",
        "look at the disks of the storage; the next backup that meets them and the next full maintenance by "
        "this node store contents again, compaction of the index its blobs: see snapferry-recovery(7)",
        "repository \"%s\": a verification found %s%s that had decayed, %s ago; all could be corrected, nothing "
        "is lost",
        name, contents, blobs, hours_words(f->now_ns - m->corrected_ns, (char[24]){0}));
}

static void verification_problems(const struct answer_facts *f, const char *name, const struct verify_memory *m,
                                  const struct verification_times *t, bool up, json_t *problems)
{
    char hint[700];
    if (m->damages) {
        snprintf(hint, sizeof hint, "`snapferry describe %.400s` shows what is affected; see snapferry-recovery(7)",
                 m->damaged_by);
        add_problem(problems, "error", hint,
                    "repository \"%s\": %s found %" PRId64 " damaged or missing "
                    "piece%s, %s ago",
                    name, strncmp(m->damaged_by, "admin-", 6) != 0 ? "a verification" : m->damaged_by, m->damages,
                    m->damages == 1 ? "" : "s", hours_words(f->now_ns - m->damaged_ns, (char[24]){0}));
    }
    if (m->outcome == OUTCOME_FAILED && m->error[0]) {
        snprintf(hint, sizeof hint, "`snapferry describe %.500s` shows the run", m->operation);
        add_problem(problems, "warning", hint, "repository \"%s\": verification failed: %s", name, m->error);
    } else if (t->late_ns && up) {
        snprintf(hint, sizeof hint, "`snapferry verify %s --wait` shows why", name);
        add_problem(problems, "warning", hint, "repository \"%s\": verification is overdue: %s %s%s", name,
                    m->done_ns ? "last done" : "never done, for", hours_words(f->now_ns - t->late_ns, (char[24]){0}),
                    m->done_ns ? " ago" : "");
    }
}

static void put_verification(const struct answer_facts *f, const struct cfg_repository *r,
                             const struct answer_repository *s, json_t *o, json_t *problems)
{
    const struct verify_memory *m = verification_known(f->records, r->name);
    struct verification_times t;
    verification_times(r, m, f->now_ns, &t);
    if (!m && t.next_ns == INT64_MAX)
        return;
    json_t *x = json_object();
    put_text(x, "schedule", r->verification);
    if (r->verification[0])
        json_object_set_new(x, "read_ratio", json_real((double)r->verification_read_ppm / VERIFY_SHARES));
    if (t.next_ns != INT64_MAX)
        put_ns(x, "next_ns", t.next_ns);
    json_object_set_new(o, "verification", x);
    if (!m)
        return;
    put_ns(x, "last_ns", m->tried_ns);
    put_text(x, "last_state", outcome_name(m->outcome));
    put_ns(x, "done_ns", m->done_ns);
    put_text(x, "operation", m->operation);
    put_text(x, "error", m->error);
    put_ns(x, "all_ns", m->all_ns);
    put_ns(x, "all_began_ns", m->all_began_ns);
    if (m->damages) {
        jset_int(x, "damages", m->damages);
        put_ns(x, "damaged_ns", m->damaged_ns);
        put_text(x, "damaged_by", m->damaged_by);
    }
    if (m->corrected + m->corrected_indexes) {
        jset_int(x, "corrected", m->corrected);
        jset_int(x, "corrected_indexes", m->corrected_indexes);
        put_ns(x, "corrected_ns", m->corrected_ns);
        put_text(x, "corrected_by", m->corrected_by);
    }
    put_affected(f, r->name, m, x, problems);
    corrected_problem(f, r->name, m, problems);
    verification_problems(f, r->name, m, &t, s && s->up, problems);
}

/* Why space does not come back to a full repository, and what to do. */
static void full_hint(const struct answer_facts *f, const struct cfg_repository *r, char *out, size_t cap)
{
    const struct maintain_memory *m = maintain_known(f->records, r->name);
    struct maintain_times t;
    char from[TIME_TEXT];
    maintain_times(f->cfg, r, m, f->now_ns, &t);
    if (t.standing == MAINTAIN_OFF)
        snprintf(
            out, cap,
            "give it room, or delete snapshots and run `snapferry maintenance %s --full`: maintenance = no, so nothing "
            "else frees their space",
            r->name);
    else if (t.standing == MAINTAIN_OTHERS)
        snprintf(out, cap, "give it room, or delete snapshots: maintenance of %.200s frees their space some days later",
                 m->owner && *m->owner ? m->owner : "nobody");
    else if (m && m->full.outcome == OUTCOME_FAILED)
        snprintf(out, cap,
                 "give it room, or keep less (keep-*); no space comes back, because full maintenance fails: see "
                 "below");
    else if (m && m->full.good_ns && m->reclaimable > 0)
        snprintf(out, cap,
                 "give it room: %" PRId64 " MiB that no snapshot needs come back by full maintenance, not before %s",
                 m->reclaimable >> 20,
                 m->back_from_ns ? time_text(m->back_from_ns / NS_PER_S * NS_PER_S, from) : "later");
    else
        snprintf(out, cap,
                 "give it room, or keep less (keep-*) or delete snapshots, which is possible while it is full: the "
                 "third full maintenance after that frees their space");
}

static void put_storage(const struct answer_facts *f, const struct cfg_repository *r, const struct answer_repository *s,
                        json_t *o, json_t *problems)
{
    char hint[600];
    jset_bool(o, "up", s->up);
    jset_int(o, "since_ns", s->since_ns);
    put_ns(o, "seen_ns", s->seen_ns);
    if (s->unscanned)
        jset_bool(o, "unscanned", true);
    if (!s->up) {
        jset_str(o, "why", s->why);
        snprintf(hint, sizeof hint, "%s%sbackups into the repository wait until it can be used", s->hint,
                 s->hint[0] ? "; " : "");
        add_problem(problems, "error", hint, "repository \"%s\": %s", s->name, s->why);
    }
    if (s->up && s->size_bytes > 0) {
        jset_int(o, "free", s->free_bytes);
        jset_int(o, "size", s->size_bytes);
        jset_bool(o, "full", s->full);
    }
    if (s->read_only) {
        jset_bool(o, "read_only", true);
        add_problem(problems, "error", "remount it for writing; what is there can be restored meanwhile",
                    "repository \"%s\": its file system is mounted read-only, no backup into it can succeed", s->name);
    }
    if (!s->full)
        return;
    full_hint(f, r, hint, sizeof hint);
    add_problem(problems, "error", hint,
                "repository \"%s\" is full: %.1f %% of its file system (%" PRId64 " MiB) are free", s->name,
                100 * (double)s->free_bytes / (double)s->size_bytes, s->free_bytes >> 20);
}

json_t *list_repositories(const struct answer_facts *f, json_t *problems)
{
    json_t *list = json_array(), *o;
    const struct cfg_repository *r;
    char hint[sizeof r->password_file + 16], place[CFG_PLACE_MAX];
    for (unsigned i = 0; f->cfg && (r = cfg_repository_at(f->cfg, i)); i++) {
        const struct answer_repository *s = find_repository(f, r->name);
        if (!(o = json_pack("{s:s,s:s}", "name", r->name, "path", cfg_repository_place(r, place))))
            continue;
        if (s)
            put_storage(f, r, s, o, problems);
        if (s && s->exposed) {
            snprintf(hint, sizeof hint, "chmod 600 %s", r->password_file);
            add_problem(problems, "warning", hint, "repository \"%s\": password file %s is readable by others", r->name,
                        r->password_file);
        }
        put_contents(f->records, r->name, o);
        put_cache(f, r->name, o, problems);
        put_owed(f, r->name, s, o, problems);
        put_others(f, r, s, o, problems);
        put_maintenance(f, r, s, o, problems);
        put_verification(f, r, s, o, problems);
        json_array_append_new(list, o);
    }
    return list;
}
