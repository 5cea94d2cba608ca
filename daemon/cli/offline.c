/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * offline.c - answers while the daemon is down (AO-21)
 *
 * From the records and the files of the configuration. Answers have the form of the daemon's, with "offline" and
 * "offline_why"; the state of storage is that last recorded.
 */
#include "base/time.h"
#include "daemon/cli/daemon.h"

#include "cfg/cfg.h"
#include "daemon/answers/answers.h"
#include "daemon/records/names.h"

#include <errno.h>
#include <string.h>

/* ---- records as documents ---- */

static void keep_text(json_t *to, const char *key, const char *text)
{
    if (*text)
        json_object_set_new(to, key, json_string(text));
}

static void keep_int(json_t *to, const char *key, int64_t v)
{
    if (v)
        json_object_set_new(to, key, json_integer(v));
}

static void copy_member(json_t *to, const char *key, const json_t *from, const char *member)
{
    json_t *v = json_object_get(from, member);
    if (v && !json_is_null(v))
        json_object_set(to, key, v);
}

static int count_native(const struct native_row *n, void *arg)
{
    *(int64_t *)arg += n->state != NATIVE_MISSING;
    return 0;
}

static json_t *volume_json(struct records *records, const struct volume_row *r, bool details)
{
    const struct native_row_filter of_it = {.volume_id = r->id};
    CLEANUP_JSON json_t *doc = volume_row_to_json(r);
    int64_t natives = 0;
    const bool gone = r->state == VOL_GONE;
    const int64_t good = r->last_success_ns;
    json_t *j = json_pack("{s:s, s:s, s:b}", "name", r->volume->name[0] ? r->volume->name : r->id, "id", r->id,
                          "protected", good > 0 && !gone);
    if (!j)
        return NULL;
    if (native_row_each(records, &of_it, count_native, &natives, NULL) >= 0)
        json_object_set_new(j, "natives", json_integer(natives));
    keep_text(j, "state", gone ? "gone" : good > 0 ? "protected" : "unprotected");
    keep_text(j, "class", r->klass);
    copy_member(j, "size", jobj(doc, "volume"), "size");
    keep_int(j, "last_success_ns", good);
    keep_text(j, "last_backup", r->last_backup);
    keep_text(j, "last_state", outcome_name(r->last_status));
    copy_member(j, "error", doc, "last_error");
    if (good > 0)
        json_object_set_new(j, "age_s", json_real((double)(now_ns() - good) * 1e-9));
    if (gone)
        json_object_set_new(j, "why", json_string("gone: no longer in its class"));
    else if (good <= 0)
        json_object_set_new(j, "why", json_string("no successful backup exists"));
    if (details)
        json_object_set(j, "details", doc);
    return j;
}

/* Details only on request. */
static json_t *row_json(struct records *r, enum row_kind k, const void *row, bool details)
{
    json_t *j = k == ROW_OPERATION ? answer_operation(row)
                : k == ROW_BACKUP  ? answer_backup(r, row, details)
                : k == ROW_NATIVE  ? answer_native(row)
                                   : volume_json(r, row, details);
    if (j && !details)
        json_object_del(j, "details");
    return j;
}

/* ---- lists ---- */

struct rows {
    struct records *records;
    json_t *list;
    enum row_kind kind;
    const json_t *args;
    size_t limit;
    bool live, live_only;
};

static bool text_matches(const json_t *args, const char *key, const char *a, const char *b)
{
    const char *want = jstr(args, key);
    return !*want || !strcmp(want, a) || !strcmp(want, b);
}

static const char *volume_of(enum row_kind k, const void *row)
{
    return k == ROW_OPERATION ? ((const struct operation *)row)->volume->name
           : k == ROW_NATIVE  ? ((const struct native_row *)row)->volume->name
           : k == ROW_VOLUME  ? ((const struct volume_row *)row)->volume->name
                              : "";
}

static bool has_ended(enum row_kind k, const void *row)
{
    const int state = row_state(k, row);
    return k == ROW_OPERATION ? op_state_terminal((enum op_state)state)
                              : backup_state_terminal((enum backup_state)state);
}

static int add_row(const void *row, void *arg)
{
    const struct row *r = row;
    struct rows *w = arg;
    const char *state = enum_name(row_types[w->kind].states, row_state(w->kind, row));
    bool paged = w->kind == ROW_OPERATION || w->kind == ROW_BACKUP;
    if (paged && has_ended(w->kind, row) == w->live)
        return 0;
    if (!text_matches(w->args, "volume", r->volume_id, volume_of(w->kind, row)) ||
        !text_matches(w->args, "backup", r->parent, r->parent) || !text_matches(w->args, "state", state, state) ||
        (w->kind == ROW_VOLUME && !text_matches(w->args, "class", ((const struct volume_row *)row)->klass, "")))
        return 0;
    if (w->limit && json_array_size(w->list) >= w->limit)
        return 1;
    return json_array_append_new(w->list, row_json(w->records, w->kind, row, false)) < 0 ? -ENOMEM : 0;
}

static int list_rows(struct records *r, enum row_kind k, const json_t *args, bool live_only, json_t **ret,
                     struct err *e)
{
    struct rows w = {.records = r, .list = json_array(), .kind = k, .args = args, .limit = (size_t)jint(args, "limit")};
    const struct row_filter f = {.newest_first = true};
    bool paged = k == ROW_OPERATION || k == ROW_BACKUP;
    int rc = w.list ? 0 : err_nomem(e);
    for (int pass = 0; pass < (paged && !live_only ? 2 : 1) && rc >= 0; pass++) {
        w.live = pass == 0;
        rc = row_each(r, k, &f, add_row, &w, e);
    }
    if (rc < 0) {
        json_decref(w.list);
        return e->cls ? rc : err_nomem(e);
    }
    *ret = w.list;
    return 0;
}

/* ---- describe ---- */

static int put_document(json_t *answer, const char *kind, json_t *doc, struct err *e)
{
    if (!doc)
        return err_nomem(e);
    json_object_set_new(answer, "kind", json_string(kind));
    json_object_set_new(answer, kind, doc);
    return 0;
}

struct volume_search {
    struct records *records;
    const char *name;
    json_t *found;
};

static int search_volume(const struct volume_row *r, void *arg)
{
    struct volume_search *v = arg;
    if (strcmp(v->name, r->id) != 0 && strcmp(v->name, r->volume->name) != 0)
        return 0;
    v->found = volume_json(v->records, r, true);
    return 1;
}

static json_t *found_json(struct records *r, enum row_kind k, const char *id)
{
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op;
    CLEANUP(native_row_clear) struct native_row n;
    backup_init(&b);
    operation_init(&op);
    native_row_init(&n);
    if (k == ROW_BACKUP)
        return backup_get(r, id, &b, NULL) < 0 ? NULL : row_json(r, k, &b, true);
    if (k == ROW_OPERATION)
        return operation_get(r, id, &op, NULL) < 0 ? NULL : row_json(r, k, &op, true);
    return native_row_get(r, id, &n, NULL) < 0 ? NULL : row_json(r, k, &n, true);
}

static int offline_describe(struct records *r, const char *name, json_t *answer, struct err *e)
{
    static const char *const kinds[] = {
        [ROW_BACKUP] = "backup", [ROW_OPERATION] = "operation", [ROW_NATIVE] = "native"};
    char id[NAME_ID_MAX];
    enum row_kind k;
    int rc = name_find(r, name, NAME_BACKUP | NAME_OPERATION | NAME_NATIVE, &k, id, e);
    if (rc >= 0)
        return put_document(answer, kinds[k], found_json(r, k, id), e);
    struct volume_search s = {.records = r, .name = name};
    struct err ignored = ERR_INIT;
    if (e->cls == ERR_NOT_FOUND && volume_row_each(r, NULL, search_volume, &s, &ignored) >= 0 && s.found)
        return put_document(answer, "volume", s.found, e);
    return rc;
}

/* ---- status ---- */

static json_t *config_state(const struct cfg *c, bool ok, const struct err *e)
{
    json_t *j =
        json_pack("{s:b, s:s, s:I}", "ok", (int)ok, "hash", c && ok ? cfg_hash(c) : "", "loaded_ns", (json_int_t)0);
    if (j && !ok)
        json_object_set_new(j, "error", json_string(e->msg));
    return j;
}

/* Repositories of the configuration, with what the counters know of them. */
static json_t *offline_repositories(const struct cfg *c, struct records *r)
{
    json_t *list = json_array(), *o;
    const struct cfg_repository *x;
    for (unsigned i = 0; c && (x = cfg_repository_at(c, i)); i++) {
        if (!(o = json_pack("{s:s, s:s}", "name", x->name, "path", x->path)))
            continue;
        answer_repository_counts(r, o);
        json_array_append_new(list, o);
    }
    return list;
}

static int offline_status(const struct options *o, struct records *r, const struct err *why, bool silent,
                          json_t *answer, struct err *e)
{
    CLEANUP_JSON json_t *none = json_object(), *operations = NULL, *volumes = NULL, *natives = NULL;
    int rc = list_rows(r, ROW_OPERATION, none, true, &operations, e);
    if (rc >= 0)
        rc = list_rows(r, ROW_VOLUME, none, false, &volumes, e);
    if (rc >= 0)
        rc = list_rows(r, ROW_NATIVE, none, false, &natives, e);
    if (rc < 0)
        return rc;
    CLEANUP(cfg_freep) struct cfg *c = NULL;
    struct err refused = ERR_INIT;
    const char *state = silent ? "the daemon does not answer" : "the daemon is not running";
    const bool ok = cfg_load_dir(&c, o->config_dir, &refused) >= 0;
    json_t *running = json_array(), *queue = json_array(), *op;
    size_t i;
    json_array_foreach(operations, i, op)
        json_array_append(strcmp(jstr(op, "state"), "Queued") != 0 ? running : queue, op);
    CLEANUP_JSON json_t *more =
        json_pack("{s:{s:s, s:i, s:s, s:i, s:b, s:b}, s:o, s:o, s:{s:i, s:i, s:i, s:I}, s:o, s:o, s:O, s:o, s:{s:I, "
                  "s:s}, s:[{s:s, s:s, s:s}]}",
                  "daemon", "version", "", "pid", 0, "node", "", "started_ns", 0, "degraded", 0, "maintenance", 0,
                  "config", config_state(c, ok, &refused), "repositories", offline_repositories(c, r), "slots", "total",
                  0, "used", 0, "restore_reserved", 0, "queued", (json_int_t)json_array_size(queue), "running", running,
                  "queue", queue, "volumes", volumes, "jobs", answer_jobs_offline(ok ? c : NULL, r, now_ns()),
                  "natives", "count", (json_int_t)json_array_size(natives), "text", "", "problems", "severity", "error",
                  "text", state, "hint", why->hint);
    if (!more || json_object_update(answer, more) < 0)
        return err_nomem(e);
    return 0;
}

static int offline_jobs(const struct options *o, struct records *r, json_t *answer, struct err *e)
{
    CLEANUP(cfg_freep) struct cfg *c = NULL;
    struct err ignored = ERR_INIT;
    const bool ok = cfg_load_dir(&c, o->config_dir, &ignored) >= 0;
    json_t *list = answer_jobs_offline(ok ? c : NULL, r, now_ns());
    return json_object_set_new(answer, "jobs", list) < 0 ? err_nomem(e) : 0;
}

/* ---- explain ---- */

static int offline_explain(const struct options *o, const char *volume, json_t *answer, struct err *e)
{
    struct cfg *c = NULL;
    int rc = cfg_load_dir(&c, o->config_dir, e);
    struct cfg_policy p = {0};
    if (rc >= 0)
        rc = cfg_policy(c, volume, NULL, &p, e);
    if (rc >= 0) {
        const struct cfg_class *k = cfg_class_of(c, volume);
        json_object_set_new(answer, "volume", json_string(volume));
        if (k)
            json_object_set_new(answer, "class", json_string(k->name));
        else
            json_object_set_new(answer, "notes", json_pack("[s]", "no storage class matches this volume"));
        json_object_set_new(answer, "policy", cfg_policy_json(&p));
        cfg_policy_clear(&p);
    }
    cfg_free(c);
    return rc;
}

static void closep_records(struct records **r)
{
    if (*r)
        records_close(*r);
}

static int from_records(const struct options *o, const char *verb, const json_t *args, const struct err *why,
                        bool silent, json_t *answer, bool *looked, struct err *e)
{
    static const struct {
        const char *verb;
        enum row_kind kind;
    } lists[] = {
        {"operations", ROW_OPERATION}, {"backups", ROW_BACKUP}, {"natives", ROW_NATIVE}, {"volumes", ROW_VOLUME}};
    CLEANUP(closep_records) struct records *r = NULL;
    int rc = records_open_read_only(&r, o->state_dir, e);
    if (rc < 0)
        return rc;
    if (!strcmp(verb, "status"))
        return offline_status(o, r, why, silent, answer, e);
    if (!strcmp(verb, "describe"))
        return offline_describe(r, jstr(args, "id"), answer, e);
    if (!strcmp(verb, "jobs"))
        return offline_jobs(o, r, answer, e);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_t *list = NULL;
        if (strcmp(verb, lists[i].verb) != 0)
            continue;
        rc = list_rows(r, lists[i].kind, args, false, &list, e);
        if (rc >= 0 && !json_array_size(list) && *jstr(args, "volume")) {
            rc = volume_known(r, jstr(args, "volume"), e);
            *looked = true;
        }
        if (rc < 0)
            json_decref(list);
        else
            json_object_set_new(answer, verb, list);
        return rc;
    }
    return err_set(e, ERR_NO_DAEMON, 0, "%s requires the daemon", verb);
}

int offline_ask(const struct options *o, const char *verb, const json_t *args, const struct err *why, bool silent,
                json_t **answer, struct err *e)
{
    CLEANUP_JSON json_t *a = json_object();
    struct err own = ERR_INIT;
    bool looked = !strcmp(verb, "describe"); /* for a given id in the records */
    int rc = !a                         ? err_nomem(&own)
             : !strcmp(verb, "explain") ? offline_explain(o, jstr(args, "volume"), a, &own)
                                        : from_records(o, verb, args, why, silent, a, &looked, &own);
    if (rc < 0) {
        /* Without records, the reason why the daemon is down; an id that does not exist is an error of its own. */
        *e = looked && own.cls == ERR_NOT_FOUND ? own : *why;
        if (e->cls == ERR_NO_DAEMON)
            err_hint(e, "%.150s (the records cannot be read: %.180s)", why->hint, own.msg);
        return -EIO;
    }
    char text[1200];
    snprintf(text, sizeof text, "%s; reading %s instead", why->msg,
             !strcmp(verb, "explain") ? o->config_dir : o->state_dir);
    json_object_set_new(a, "offline", json_true());
    json_object_set_new(a, "offline_why", json_string(text));
    *answer = json_incref(a);
    return 0;
}
