/* SPDX-License-Identifier: GPL-2.0-or-later */
/* maintain-result.c - a run of maintenance as a document: of the command's --json, and of a mover's result */
#include "daemon/mover/maintain.h"

#include "base/time.h"

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

static json_t *manifests_json(const struct manifest_compacted *m)
{
    return json_pack("{s:I, s:I, s:{s:I, s:I}, s:{s:I, s:I}, s:I, s:I}", "contents", (json_int_t)m->contents, "bytes",
                     (json_int_t)m->bytes, "merged", "count", (json_int_t)m->merged, "bytes",
                     (json_int_t)m->merged_bytes, "written", "count", (json_int_t)m->written, "bytes",
                     (json_int_t)m->written_bytes, "entries", (json_int_t)m->entries, "tombstonesDropped",
                     (json_int_t)m->dropped);
}

json_t *maintain_result_json(const struct maintain_result *r, bool full, bool dry_run)
{
    const bool drops = r->watermark_ns != INT64_MIN, waits = r->waiting.n > 0 || r->marked.n > 0;
    json_t *kept = json_pack(
        "{s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "young", sum_json(&r->young), "youngUntil",
        time_json(r->young_until_ns, r->young.n), "markedEarlier", sum_json(&r->waiting), "droppedFrom",
        time_json(r->drop_from_ns, waits), "droppedAfterRuns", (json_int_t)(waits ? r->drop_runs : 0), "freshPacks",
        sum_json(&r->fresh), "freshPacksUntil", time_json(r->fresh_until_ns, r->fresh.n), "sessionPacks",
        sum_json(&r->session), "sessionPacksUntil", time_json(r->session_until_ns, r->session.n), "unknownPacks",
        sum_json(&r->unknown), "unknownPacksUntil", time_json(r->unknown_until_ns, r->unknown.n), "trappedBytes",
        (json_int_t)r->trapped, "deletePacksFrom", time_json(r->delete_from_ns, r->delete_from_ns != INT64_MIN));
    json_t *all = json_pack(
        "{s:b, s:b, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:o, s:o, s:I, s:o, "
        "s:f, s:o, s:I, s:o, s:o, s:o}",
        "full", (int)full, "dryRun", (int)dry_run, "started", time_json(r->started_ns, true), "snapshots",
        (json_int_t)r->snapshots, "incompleteSnapshots", (json_int_t)r->incomplete, "used", sum_json(&r->used),
        "marked", sum_json(&r->marked), "restored", sum_json(&r->restored), "dropped", sum_json(&r->dropped),
        "droppedUntil", time_json(r->watermark_ns, drops), "packs", sum_json(&r->packs), "deletedPacks",
        sum_json(&r->deleted), "deletedMarkers", (json_int_t)r->markers.n, "deletedLogs", sum_json(&r->logs), "damaged",
        (json_int_t)r->damaged, "kept", kept, "index", index_json(&r->index), "collections", (json_int_t)r->collections,
        "nextFull", time_json(r->next_full_ns, r->next_full_ns != INT64_MIN), "seconds", r->seconds, "rewritten",
        sum_json(&r->rewritten), "rewrittenPacks", (json_int_t)r->rewritten_packs, "renewed", sum_json(&r->renewed),
        "unreadable", sum_json(&r->unreadable), "extendedLocks", sum_json(&r->locks));
    if (all)
        json_object_set_new(all, "manifests", manifests_json(&r->manifests));
    if (all && r->leftovers.n)
        json_object_set_new(all, "leftovers", sum_json(&r->leftovers));
    if (all && r->needs) { /* of a run that had little room */
        json_object_set_new(all, "unmarked", sum_json(&r->unmarked));
        json_object_set_new(all, "needsBytes", json_integer((json_int_t)r->needs));
        json_object_set_new(all, "freeBytes", json_integer((json_int_t)r->free));
    }
    return all;
}

uint64_t maintain_reclaimable(const struct maintain_result *r)
{
    return r->young.bytes + r->marked.bytes + r->waiting.bytes + r->held.bytes;
}

int64_t maintain_back_from(const struct maintain_result *r)
{
    const struct {
        bool there;
        int64_t ns;
    } times[] = {{r->marked.n || r->waiting.n, r->drop_from_ns},
                 {r->young.n > 0, r->young_until_ns},
                 {r->fresh.n > 0, r->fresh_until_ns},
                 {r->session.n > 0, r->session_until_ns},
                 {r->unknown.n > 0, r->unknown_until_ns}};
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (times[i].there && times[i].ns < first)
            first = times[i].ns;
    return first == INT64_MAX ? INT64_MIN : first;
}
