/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/maintenance.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "repo/format-parse.h"
#include "repo/gojson.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#define SCHEDULE MAINTENANCE_SCHEDULE
#define SCHEDULE_MAX ((size_t)16 << 20)
#define RUNS_KEPT 50
#define DOCUMENT_COMPRESSION 0x1101

/* Section 14.3. */
const struct maintenance_safety maintenance_safety_full = {
    .content_age = 24 * NS_PER_H,
    .gc_margin = 4 * NS_PER_H,
    .drop_margin = NS_PER_H,
    .pack_age = 24 * NS_PER_H,
    .session_age = 96 * NS_PER_H,
    .rewrite_age = 2 * NS_PER_H,
    .rewrite_to_delete = NS_PER_H,
    .two_collections = true,
};
const struct maintenance_safety maintenance_safety_none = {.two_collections = false};

const char *maintenance_task_name(enum maintenance_task t)
{
    static const char *const names[MAINT_TASKS] = {
        [MAINT_SNAPSHOT_GC] = "snapshot-gc",
        [MAINT_DROP_DELETED] = "full-drop-deleted-content",
        [MAINT_DELETE_BLOBS] = "full-delete-blobs",
        [MAINT_REWRITE] = "full-rewrite-contents",
        [MAINT_SINGLE_EPOCH] = "compact-single-epoch",
        [MAINT_ADVANCE_EPOCH] = "advance-epoch",
        [MAINT_RANGE] = "generate-epoch-range-index",
        [MAINT_MARKERS] = "cleanup-epoch-markers",
        [MAINT_SUPERSEDED] = "delete-superseded-epoch-indexes",
        [MAINT_CLEANUP_LOGS] = "cleanup-logs",
        [MAINT_EXTEND_LOCKS] = "extend-blob-retention-time",
        [MAINT_MANIFESTS] = "compact-manifests",
    };
    return names[t];
}

/* ---- parameters ---- */

struct params_search {
    struct maintenance_params *ret;
    int64_t modified_ns;
    json_t *doc; /* of the newest */
    char (*ids)[33];
    size_t n;
    struct err *e;
};

static void params_search_clear(struct params_search *s)
{
    json_decref(s->doc);
    free(s->ids);
}

static int params_find(const struct manifest *m, void *arg)
{
    struct params_search *s = arg;
    void *p = realloc(s->ids, (s->n + 1) * sizeof *s->ids);
    if (!p)
        return err_nomem(s->e);
    s->ids = p;
    memcpy(s->ids[s->n++], m->id, sizeof m->id);
    if (s->doc && m->modified_ns <= s->modified_ns)
        return 0;
    json_decref(s->doc);
    s->doc = json_incref(m->data);
    s->modified_ns = m->modified_ns;
    return 0;
}

static int64_t whole(const json_t *of, const char *name, int64_t otherwise)
{
    const json_t *v = go_member(of, name);
    return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

static int64_t interval(const json_t *doc, const char *name)
{
    const json_t *c = go_member(doc, name);
    int64_t ns = whole(c, "interval", 0);
    return json_is_true(go_member(c, "enabled")) && ns > 0 ? ns_bounded(ns) : 0;
}

#define TAKEN "snapferryTaken" /* member: when one of us became the owner */

static int params_parse(const json_t *doc, struct maintenance_params *ret, struct err *e)
{
    const json_t *logs = go_member(doc, "logRetention");
    const char *owner = "", *machine = "", *taken = NULL;
    if (!json_is_object(doc) || go_string(doc, "owner", &owner) < 0 || strlen(owner) >= sizeof ret->owner)
        return err_set(e, ERR_DAMAGE, EBADMSG, "malformed maintenance parameters in the repository");
    ret->present = true;
    snprintf(ret->owner, sizeof ret->owner, "%s", owner);
    if (go_string(doc, MAINTENANCE_MACHINE, &machine) < 0 || strlen(machine) >= sizeof ret->machine)
        return err_set(e, ERR_DAMAGE, EBADMSG, "malformed machine of the owner in the maintenance parameters");
    snprintf(ret->machine, sizeof ret->machine, "%s", machine);
    ret->quick_ns = interval(doc, "quick");
    ret->full_ns = interval(doc, "full");
    ret->log_bytes = whole(logs, "maxTotalSize", ret->log_bytes);
    ret->log_count = whole(logs, "maxCount", ret->log_count);
    ret->log_age_ns = whole(logs, "maxAge", ret->log_age_ns);
    ret->extend_locks = json_is_true(go_member(doc, "extendObjectLocks"));
    if (go_string(doc, TAKEN, &taken) == 0 && taken && time_parse(&ret->taken_ns, taken) < 0)
        return err_set(e, ERR_DAMAGE, EBADMSG, "malformed time of the owner in the maintenance parameters");
    if (taken)
        ret->taken_ns = ns_bounded(ret->taken_ns);
    return 0;
}

static int params_search(struct repo *r, struct params_search *s, struct err *e)
{
    s->e = e;
    *s->ret = (struct maintenance_params){.log_bytes = INT64_C(1) << 30,
                                          .log_count = 10000,
                                          .log_age_ns = 30 * NS_PER_DAY,
                                          .taken_ns = INT64_MIN,
                                          .modified_ns = INT64_MIN};
    int rc = manifests_each(r, "maintenance", params_find, s, e);
    if (rc < 0 || !s->doc)
        return rc;
    s->ret->modified_ns = s->modified_ns;
    return params_parse(s->doc, s->ret, e);
}

int maintenance_params_load(struct repo *r, struct maintenance_params *ret, struct err *e)
{
    CLEANUP(params_search_clear) struct params_search s = {.ret = ret};
    return params_search(r, &s, e);
}

static json_t *params_default(void)
{
    return json_pack("{s:s, s:{s:b, s:I}, s:{s:b, s:I}, s:{s:I, s:I, s:I}, s:b, s:i}", "owner", "", "quick", "enabled",
                     1, "interval", (json_int_t)NS_PER_H, "full", "enabled", 1, "interval", (json_int_t)NS_PER_DAY,
                     "logRetention", "maxTotalSize", (json_int_t)1 << 30, "maxCount", (json_int_t)10000, "maxAge",
                     (json_int_t)(30 * NS_PER_DAY), "extendObjectLocks", 0, "listParallelism", 0);
}

static int params_write(struct repo *r, const struct params_search *old, json_t *doc, struct err *e)
{
    json_t *type CLEANUP(json_decrefp) = json_pack("{s:s}", "type", "maintenance");
    struct session *s CLEANUP(session_freep) = NULL;
    struct put_scratch *p CLEANUP(put_scratch_freep) = NULL;
    struct manifest_batch *b CLEANUP(manifest_batch_freep) = NULL;
    int rc = type ? manifest_batch_new(&b, e) : err_nomem(e);
    for (size_t i = 0; rc == 0 && i < old->n; i++)
        rc = manifest_batch_delete(b, old->ids[i], e);
    if (rc == 0)
        rc = manifest_batch_add(b, type, doc, NULL, e);
    if (rc == 0)
        rc = session_new(&s, r, NULL, e);
    if (rc == 0)
        rc = put_scratch_new(&p, r, DOCUMENT_COMPRESSION, (size_t)1 << 20, e);
    if (rc == 0)
        rc = manifest_batch_put(b, s, p, e);
    return rc == 0 ? session_flush(s, e) : rc;
}

int maintenance_take(struct repo *r, const char *owner, const char *machine, struct err *e)
{
    struct maintenance_params now;
    CLEANUP(params_search_clear) struct params_search s = {.ret = &now};
    char text[TIME_TEXT];
    int rc = params_search(r, &s, e);
    if (rc < 0)
        return rc;
    json_t *doc CLEANUP(json_decrefp) = s.doc ? json_deep_copy(s.doc) : params_default();
    if (!doc || json_object_set_new(doc, TAKEN, json_string(time_text(now_ns(), text))) < 0)
        return err_nomem(e);
    if (go_set(doc, "owner", json_string(owner)) < 0)
        return err_set(e, ERR_USAGE, EINVAL, "maintenance owner is not valid UTF-8");
    json_object_del(doc, MAINTENANCE_MACHINE);
    if (*machine && json_object_set_new(doc, MAINTENANCE_MACHINE, json_string(machine)) < 0)
        return err_nomem(e);
    const bool before = blobs_use_reserve(repo_blobs(r), true);
    rc = params_write(r, &s, doc, e);
    blobs_use_reserve(repo_blobs(r), before);
    return rc;
}

int maintenance_note_machine(struct repo *r, const char *owner, const char *machine, struct err *e)
{
    struct maintenance_params now;
    CLEANUP(params_search_clear) struct params_search s = {.ret = &now};
    const int rc = params_search(r, &s, e);
    if (rc < 0 || now.machine[0] || strcmp(now.owner, owner) != 0)
        return rc;
    json_t *doc CLEANUP(json_decrefp) = json_deep_copy(s.doc);
    if (!doc || json_object_set_new(doc, MAINTENANCE_MACHINE, json_string(machine)) < 0)
        return err_nomem(e);
    return params_write(r, &s, doc, e);
}

/* ---- the schedule ---- */

static int schedule_key(const struct repo_format *f, uint8_t key[32], struct err *e)
{
    const bool master = f->password_change;
    return hkdf_sha256(master ? f->master_key : f->format_key, master ? f->master_key_len : sizeof f->format_key,
                       f->unique_id, f->unique_id_len, "maintenance schedule", key, 32, e);
}

static const char aad[] = "maintenance";

static int malformed(struct err *e)
{
    err_set(e, ERR_DAMAGE, EBADMSG, "malformed maintenance history in blob " SCHEDULE);
    return err_hint(e, "maintenance depends on the times of earlier runs; nothing was changed");
}

/* One run of a task. False: malformed. */
struct run {
    int64_t start_ns, end_ns;
    bool success;
};

static bool run_parse(const json_t *v, struct run *ret)
{
    const char *start = json_string_value(json_object_get(v, "start"));
    const char *end = json_string_value(json_object_get(v, "end"));
    ret->success = json_is_true(json_object_get(v, "success"));
    if (!start || !end || time_parse(&ret->start_ns, start) < 0 || time_parse(&ret->end_ns, end) < 0)
        return false;
    ret->start_ns = ns_bounded(ret->start_ns);
    ret->end_ns = ns_bounded(ret->end_ns);
    return true;
}

static const json_t *task_runs(const json_t *schedule, const char *task)
{
    return json_object_get(json_object_get(schedule, "runs"), task);
}

/* The gates may then rely on every entry. */
static int schedule_check(const json_t *doc, struct err *e)
{
    const json_t *runs = json_object_get(doc, "runs");
    const char *task;
    json_t *list;
    if (!json_is_object(doc) || (runs && !json_is_null(runs) && !json_is_object(runs)))
        return malformed(e);
    json_object_foreach((json_t *)(uintptr_t)runs, task, list)
    {
        struct run r;
        if (!json_is_array(list) && !json_is_null(list))
            return malformed(e);
        for (size_t i = 0; i < json_array_size(list); i++)
            if (!run_parse(json_array_get(list, i), &r))
                return malformed(e);
    }
    return 0;
}

int maintenance_load(struct repo *r, struct maintenance_schedule *ret, struct err *e)
{
    CLEANUP_FREE uint8_t *sealed = NULL, *text = NULL;
    struct blob_info info;
    uint8_t key[32];
    size_t len;
    struct err own = ERR_INIT;
    *ret = (struct maintenance_schedule){.mtime_ns = INT64_MIN};
    int rc = blobs_stat(repo_blobs(r), SCHEDULE, &info, &own);
    if (rc == -ENOENT) {
        ret->doc = json_object();
        return ret->doc ? 0 : err_nomem(e);
    }
    if (rc < 0) {
        *e = own;
        return rc;
    }
    rc = blobs_get(repo_blobs(r), SCHEDULE, SCHEDULE_MAX, &sealed, &len, e);
    if (rc == 0)
        rc = schedule_key(repo_format(r), key, e);
    if (rc < 0)
        return rc;
    text = malloc(len + 1);
    int64_t n = text ? document_open(key, aad, sizeof aad - 1, sealed, len, text, e) : err_nomem(e);
    OPENSSL_cleanse(key, sizeof key);
    if (n < 0)
        return err_wrap(e, "blob " SCHEDULE);
    ret->doc = json_loadb((const char *)text, (size_t)n, 0, NULL);
    rc = schedule_check(ret->doc, e);
    if (rc < 0)
        maintenance_clear(ret);
    else
        ret->mtime_ns = info.mtime_ns;
    if (rc == 0)
        memcpy(ret->nonce, sealed, sizeof ret->nonce);
    return rc;
}

void maintenance_clear(struct maintenance_schedule *s)
{
    json_decref(s->doc);
    s->doc = NULL;
}

int maintenance_current(struct repo *r, const struct maintenance_schedule *s, struct err *e)
{
    static const uint8_t none[sizeof s->nonce];
    uint8_t nonce[sizeof s->nonce] = {0};
    struct err own = ERR_INIT;
    int rc = blobs_read(repo_blobs(r), SCHEDULE, 0, nonce, sizeof nonce, &own);
    if (rc < 0 && rc != -ENOENT) {
        *e = own;
        return rc;
    }
    if (!memcmp(rc == -ENOENT ? none : nonce, s->nonce, sizeof nonce))
        return 0;
    err_plain(e, ERR_BUSY, ESTALE, "another client began maintenance of repository %s meanwhile; this run was stopped",
              blobs_location(repo_blobs(r)));
    err_hint(e, "what it has done is complete; run it again when the other one has ended");
    return -ESTALE;
}

int maintenance_store(struct repo *r, struct maintenance_schedule *s, struct err *e)
{
    size_t len;
    uint8_t key[32];
    struct blob_info info;
    CLEANUP_FREE char *text = json_go_text(s->doc, false, &len);
    CLEANUP_FREE uint8_t *sealed = malloc((text ? len : 0) + FORMAT_LAYER_OVERHEAD);
    if (!text || !sealed)
        return err_nomem(e);
    int rc = maintenance_current(r, s, e);
    if (rc == 0)
        rc = schedule_key(repo_format(r), key, e);
    if (rc < 0)
        return rc;
    rc = document_seal(key, aad, sizeof aad - 1, text, len, sealed, e);
    OPENSSL_cleanse(key, sizeof key);
    if (rc == 0)
        rc = blobs_put(repo_blobs(r), SCHEDULE, sealed, len + FORMAT_LAYER_OVERHEAD, e);
    if (rc == 0)
        rc = blobs_stat(repo_blobs(r), SCHEDULE, &info, e);
    if (rc < 0)
        return rc;
    s->mtime_ns = info.mtime_ns;
    memcpy(s->nonce, sealed, sizeof s->nonce);
    crash_point("maintenance-recorded");
    return 0;
}

int maintenance_note(struct maintenance_schedule *s, enum maintenance_task t, int64_t start_ns, int64_t end_ns,
                     const char *error, struct err *e)
{
    char start[TIME_TEXT], end[TIME_TEXT];
    json_t *runs = json_object_get(s->doc, "runs");
    if (!json_is_object(runs)) {
        runs = json_object();
        if (!runs || json_object_set_new(s->doc, "runs", runs) < 0)
            return err_nomem(e);
    }
    json_t *list = json_object_get(runs, maintenance_task_name(t));
    if (!json_is_array(list)) {
        list = json_array();
        if (!list || json_object_set_new(runs, maintenance_task_name(t), list) < 0)
            return err_nomem(e);
    }
    json_t *run = json_pack("{s:s, s:s}", "start", time_text(start_ns, start), "end", time_text(end_ns, end));
    if (run && error)
        json_object_set_new(run, "error", json_string(error));
    else if (run)
        json_object_set_new(run, "success", json_true());
    if (!run || json_array_insert_new(list, 0, run) < 0)
        return err_nomem(e);
    while (json_array_size(list) > RUNS_KEPT)
        json_array_remove(list, json_array_size(list) - 1);
    return 0;
}

int maintenance_next(struct maintenance_schedule *s, const struct maintenance_params *p, bool full, int64_t now,
                     struct err *e)
{
    char text[TIME_TEXT];
    int rc = 0;
    if (full)
        rc = json_object_set_new(s->doc, "nextFullMaintenance",
                                 json_string(time_text(now + (p->full_ns ? p->full_ns : NS_PER_DAY), text)));
    if (rc == 0)
        rc = json_object_set_new(s->doc, "nextQuickMaintenance",
                                 json_string(time_text(now + (p->quick_ns ? p->quick_ns : NS_PER_H), text)));
    return rc < 0 ? err_nomem(e) : 0;
}

/* ---- gates ---- */

int64_t maintenance_drop_time(const json_t *schedule, const struct maintenance_safety *s, int64_t now_ns)
{
    const json_t *list = task_runs(schedule, maintenance_task_name(MAINT_SNAPSHOT_GC));
    struct run last = {.start_ns = INT64_MIN}, r, best = {.start_ns = INT64_MIN};
    for (size_t i = 0; i < json_array_size(list); i++)
        if (run_parse(json_array_get(list, i), &r) && r.success && r.start_ns <= now_ns && r.start_ns > last.start_ns)
            last = r;
    if (last.start_ns == INT64_MIN)
        return INT64_MIN;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (run_parse(json_array_get(list, i), &r) && r.success && r.start_ns < last.start_ns &&
            last.start_ns - r.end_ns > s->gc_margin && r.start_ns > best.start_ns)
            best = r;
    return best.start_ns == INT64_MIN ? INT64_MIN : best.start_ns - s->drop_margin;
}

/* When a task last succeeded, full or quick; INT64_MIN: never. */
static int64_t last_success(const json_t *schedule, const char *full, const char *quick)
{
    const char *const tasks[] = {full, quick};
    int64_t end = INT64_MIN;
    for (size_t k = 0; k < sizeof tasks / sizeof *tasks; k++) {
        const json_t *list = tasks[k] ? task_runs(schedule, tasks[k]) : NULL;
        struct run r;
        for (size_t i = 0; i < json_array_size(list); i++)
            if (run_parse(json_array_get(list, i), &r) && r.success && r.end_ns > end)
                end = r.end_ns;
    }
    return end;
}

int64_t maintenance_delete_time(const json_t *schedule, const struct maintenance_safety *s)
{
    int64_t end = last_success(schedule, "full-rewrite-contents", "quick-rewrite-contents");
    return end == INT64_MIN ? INT64_MIN : end + s->rewrite_to_delete;
}

bool maintenance_rewrite_due(const json_t *schedule)
{
    int64_t rewritten = last_success(schedule, "full-rewrite-contents", NULL);
    return rewritten == INT64_MIN || last_success(schedule, "full-delete-blobs", "quick-delete-blobs") >= rewritten;
}

#define SILENT_NS (72 * NS_PER_H)
#define SILENT_INTERVALS 3
#define CLOCKS_DIFFER_NS (5 * NS_PER_MIN) /* more is refused wherever something is written */

static int64_t newer(int64_t a, int64_t b, int64_t now_ns)
{
    return b > a && b <= now_ns + CLOCKS_DIFFER_NS ? b : a;
}

int64_t maintenance_silent_since(const struct maintenance_params *p, const struct maintenance_schedule *s,
                                 int64_t now_ns)
{
    const int64_t shortest = !p->full_ns || (p->quick_ns && p->quick_ns < p->full_ns) ? p->quick_ns : p->full_ns;
    if (shortest <= 0 || shortest > INT64_MAX / SILENT_INTERVALS)
        return INT64_MIN;
    const int64_t limit = shortest * SILENT_INTERVALS > SILENT_NS ? shortest * SILENT_INTERVALS : SILENT_NS;
    int64_t last = newer(newer(0, p->modified_ns, now_ns), s->mtime_ns, now_ns);
    const json_t *runs = json_object_get(s->doc, "runs");
    const char *task;
    json_t *list;
    json_object_foreach((json_t *)(uintptr_t)runs, task, list)
    {
        struct run r;
        for (size_t i = 0; i < json_array_size(list); i++)
            if (run_parse(json_array_get(list, i), &r))
                last = newer(newer(last, r.start_ns, now_ns), r.end_ns, now_ns);
    }
    return last && now_ns - last > limit ? last : INT64_MIN;
}

int64_t maintenance_drop_from(const json_t *schedule, const struct maintenance_safety *s, int64_t marked_ns,
                              unsigned *runs)
{
    const json_t *list = task_runs(schedule, maintenance_task_name(MAINT_SNAPSHOT_GC));
    int64_t first = INT64_MAX;
    struct run r;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (run_parse(json_array_get(list, i), &r) && r.success && r.start_ns - s->drop_margin >= marked_ns &&
            r.end_ns < first)
            first = r.end_ns;
    *runs = first == INT64_MAX ? 2 : 1;
    return first == INT64_MAX ? marked_ns + s->drop_margin + s->gc_margin : first + s->gc_margin;
}
