/* SPDX-License-Identifier: GPL-2.0-or-later */
/* answers.c - see answers.h and docs/control.md */
#include "daemon/answers/answers.h"
#include "base/json.h"

#include <string.h>

static void copy(json_t *to, const char *key, const json_t *from, const char *member)
{
    json_t *v = json_object_get(from, member);
    if (v && !json_is_null(v) && !(json_is_string(v) && !json_string_value(v)[0]))
        json_object_set(to, key, v);
}

static void copy_ns(json_t *to, const char *key, const json_t *from, const char *member)
{
    if (jint(from, member) > 0)
        jset_int(to, key, jint(from, member));
}

static void copy_text(json_t *to, const char *key, const char *text)
{
    if (text[0])
        jset_str(to, key, text);
}

/* What the documented members do not say; never what is long or secret. */
static json_t *operation_details(const json_t *d)
{
    static const char *const members[] = {
        "exposure", "native",        "native_doc",  "target_name",   "from",          "of",
        "attempts", "identity",      "snapshot_ns", "snapshot_ms",   "group_skew_ms", "frozen_ms",
        "cancel",   "cancel_reason", "outcome",     "cleanup_error", "reason",        "do",
        "policy",   "into",          "own",         "prune_rounds",  "job",           "rebuilt",
        "size",     "snapshot",      "plugin_id"};
    json_t *o = json_object();
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++)
        copy(o, members[i], d, members[i]);
    return o;
}

json_t *answer_operation(const struct rec *op)
{
    const json_t *d = op->doc, *v = jobj(d, "volume");
    json_t *o = json_object();
    jset_str(o, "id", op->id);
    jset_str(o, "kind", jstr(d, "kind"));
    jset_str(o, "state", op->state);
    copy_text(o, "backup", op->parent);
    copy(o, "volume", v, "name");
    copy_text(o, "volume_id", op->volume);
    copy(o, "class", jobj(d, "own"), "name");
    copy(o, "repository", jobj(d, "policy"), "repository");
    copy(o, "does", json_array_get(jarr(d, "do"), 0), "verb");
    copy(o, "deletes", d, "deletes");
    jset_int(o, "created_ns", op->created_ns);
    copy_ns(o, "started_ns", d, "started_ns");
    copy_ns(o, "ended_ns", d, "completed_ns");
    if (jint(d, "attempt"))
        jset_int(o, "attempt", jint(d, "attempt") + 1);
    if (!state_terminal(op->state) && jobj(d, "progress"))
        copy(o, "progress", d, "progress");
    const char *why = jstr(d, "cleanup_error")[0] ? jstr(d, "cleanup_error") : jstr(d, "waiting");
    if (!strcmp(op->state, "Skipped"))
        why = jstr(d, "skip_reason");
    else if (state_terminal(op->state))
        why = "";
    copy_text(o, "why", why);
    copy(o, "error", d, "error");
    copy(o, "mover", d, "mover");
    copy(o, "result", d, "result");
    json_object_set_new(o, "details", operation_details(d));
    return o;
}

const char *velero_phase(const char *state, bool degraded)
{
    static const struct {
        const char *ours, *velero, *degraded;
    } names[] = {
        {"Queued", "Queued", "Queued"},
        {"Snapshotting", "InProgress", "InProgress"},
        {"Moving", "WaitingForPluginOperations", "WaitingForPluginOperationsPartiallyFailed"},
        {"Finalizing", "Finalizing", "FinalizingPartiallyFailed"},
        {"Deleting", "Deleting", "Deleting"},
        {"Completed", "Completed", "PartiallyFailed"},
        {"PartiallyFailed", "PartiallyFailed", "PartiallyFailed"},
        {"Failed", "Failed", "Failed"},
        {"Canceled", "Failed", "Failed"},
    };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].ours, state))
            return degraded ? names[i].degraded : names[i].velero;
    return "";
}

struct sum {
    json_t *volumes, *operations;
    unsigned n, completed, failed;
    int64_t size, fresh;
};

static int add_operation(struct rec *op, void *arg)
{
    struct sum *s = arg;
    const char *kind = jstr(op->doc, "kind"), *name = jstr(jobj(op->doc, "volume"), "name");
    const json_t *r = jobj(op->doc, "result");
    if (strcmp(kind, "backup") && strcmp(kind, "restore"))
        return 0;
    s->n++;
    s->completed += !strcmp(op->state, "Completed");
    s->failed += !strcmp(op->state, "Failed") || !strcmp(op->state, "Canceled");
    s->size += jint(r, "totalBytes");
    s->fresh += jint(r, "incrementalBytes");
    if (json_array_size(s->volumes) < 1000)
        json_array_append_new(s->volumes, json_string(name));
    if (s->operations)
        json_array_append_new(s->operations, answer_operation(op));
    return 0;
}

json_t *answer_backup(struct records *r, const struct rec *b, bool with_operations)
{
    const json_t *d = b->doc;
    struct rec_filter f = {.parent = b->id};
    struct sum s = {.volumes = json_array(), .operations = with_operations ? json_array() : NULL};
    json_t *o = json_object(), *details = json_object();
    bool deleting = jstr(d, "deleting")[0] != '\0';
    const char *state = deleting ? "Deleting" : b->state;
    records_each(r, REC_OPERATION, &f, add_operation, &s, NULL);
    jset_str(o, "id", b->id);
    jset_str(o, "kind", jstr(d, "kind")[0] ? jstr(d, "kind") : "backup");
    jset_str(o, "state", state);
    copy_text(o, "velero", velero_phase(state, jbool(d, "degraded_phase")));
    copy(o, "job", d, "job");
    copy(o, "description", d, "description");
    jset_bool(o, "degraded", jbool(d, "degraded_phase") || jbool(d, "degraded"));
    jset_int(o, "created_ns", b->created_ns);
    copy_ns(o, "snapshots_done_ns", d, "snapshots_done_ns");
    copy_ns(o, "started_ns", d, "started_ns");
    copy_ns(o, "ended_ns", d, "completed_ns");
    json_object_set_new(o, "volumes", s.volumes);
    jset_int(o, "total", s.n);
    jset_int(o, "completed", s.completed);
    jset_int(o, "failed", s.failed);
    jset_int(o, "size", s.size);
    jset_int(o, "new", s.fresh);
    if (!state_terminal(b->state)) {
        if (jint(d, "position"))
            jset_int(o, "position", jint(d, "position"));
        copy(o, "blocked_by", d, "blocked_by");
    }
    copy(o, "target", d, "target");
    copy(o, "from", d, "from");
    copy(o, "error", d, "error");
    if (deleting) {
        struct rec del = REC_INIT;
        if (records_get(r, REC_OPERATION, jstr(d, "deleting"), &del, NULL) == 0)
            copy(o, "why", del.doc, "waiting");
        rec_clear(&del);
    }
    if (s.operations)
        json_object_set_new(o, "operations", s.operations);
    static const char *const members[] = {"skipped",   "counts", "bytes",  "failed_volumes", "errors",  "origin",
                                          "caught_up", "of",     "cancel", "rebuilt",        "deleting"};
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++)
        copy(details, members[i], d, members[i]);
    json_object_set_new(o, "details", details);
    return o;
}

json_t *answer_native(const struct rec *n)
{
    const json_t *d = n->doc, *x = jobj(d, "native"), *v = jobj(d, "volume");
    json_t *o = json_object(), *details = json_object();
    jset_str(o, "alias", n->id);
    jset_str(o, "volume", jstr(v, "name")[0] ? jstr(v, "name") : n->volume);
    copy_text(o, "volume_id", n->volume);
    copy(o, "class", jobj(d, "class"), "name");
    copy_text(o, "backup", n->parent);
    jset_str(o, "state", n->state);
    jset_int(o, "created_ns", jint(x, "created_ns") ? jint(x, "created_ns") : n->created_ns);
    copy(o, "size", x, "size");
    copy(o, "used", x, "used");
    jset_bool(o, "hold", jobj(d, "hold") != NULL);
    copy(o, "note", jobj(d, "hold"), "note");
    copy(o, "handle", x, "handle");
    static const char *const members[] = {
        "moved",  "moved_verified", "snapshot_only", "failed",      "effective_retain", "job",
        "driver", "adopted",        "remove_error",  "why_removed", "snapshot"};
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++)
        copy(details, members[i], d, members[i]);
    json_object_set_new(o, "details", details);
    return o;
}
