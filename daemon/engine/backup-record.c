/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * backup-record.c - the outcome of a backup as documents for its repositories (AO-16 to AO-18)
 *
 * They are made when a mover is started, from the rows as they are then or a moment before, and are in no row
 * themselves. The final ones
 * are those of an operation of kind admin, and are made a part at a time; a provisional one goes with the movers of the
 * backup until one of them has written it: which has is known in memory only, and a mover that finds one writes none.
 */
#include "base/json-text.h"
#include "base/machine.h"
#include "base/time.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/records/opaque.h"
#include "daemon/records/outcome-record.h"
#include "proc/descriptors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_KEPT 500                  /* bytes of a reason */
#define CHECKS_MAX 32768               /* snapshots: what is found of them has to fit into a result */
#define PROVISIONAL_BYTES (200u << 10) /* it goes with the documents of a snapshot */

const char *record_machine(void)
{
    static bool warned;
    if (machine_text()[0])
        return machine_text();
    if (!warned)
        log_warning("/etc/machine-id is missing: the records of backups are written without it");
    warned = true;
    return "00000000000000000000000000000000";
}

static void set_time(char **at, int64_t ns)
{
    char text[TIME_TEXT];
    str_set(at, ns > 0 ? time_text(ns, text) : "");
}

static void set_reason(char **at, const char *text)
{
    char kept[TEXT_KEPT];
    snprintf(kept, sizeof kept, "%s", text);
    str_set(at, kept);
}

/* ---- a volume ---- */

static void native_of(struct record_volume *v, const struct backup *b, const struct operation *op)
{
    const struct native_seen *seen = backup_native_seen(b, op->native);
    struct record_native *n = op->native[0] && seen ? calloc(1, sizeof *n) : NULL;
    if (!n)
        return;
    fields_init(&record_native_fields, n);
    str_set(&n->alias, op->native);
    str_set(&n->handle, op->native_doc->handle);
    set_time(&n->created, op->native_doc->created_ns);
    n->state = seen->state;
    set_reason(&n->why, seen->why);
    n->size = op->native_doc->size;
    v->preserved = n->state == SEEN_PRESENT;
    v->natives = (struct list_of_structs){n, 1};
}

static void volume_of(struct record_volume *v, const struct backup *b, const struct operation *op)
{
    struct record_movement *m = &v->movement;
    fields_init(&record_volume_fields, v);
    str_set(&v->name, op->volume->name);
    str_set(&v->id, op->volume_id);
    str_set(&v->klass, op->own->name);
    str_set(&v->driver, op->own->driver);
    str_set(&v->path, op->result.as);
    v->size = op->volume->size;
    set_time(&v->started, op->started_ns);
    set_time(&v->ended, op->completed_ns);
    set_time(&v->snapshot_at, op->snapshot_ns);
    v->outcome = op_state_terminal(op->state) ? op->outcome : OUTCOME_NONE;
    v->degraded = op->degraded;
    v->skipped = op->state == OP_SKIPPED;
    set_reason(&v->skipped_reason, op->skip_reason);
    if (op->unverified[0]) /* as those will see it who look for its snapshot */
        v->outcome = OUTCOME_FAILED;
    if (op->error.code && (op->state != OP_COMPLETED || op->unverified[0])) {
        set_reason(&v->failure, op->error.message);
        str_set(&v->stage, op->error.stage);
    }
    native_of(v, b, op);
    str_set(&m->operation, op->id);
    if (!op->policy->move_data || op->policy->mover[0])
        return;
    v->moved = op->state == OP_COMPLETED && !op->unverified[0] && op->result.snapshot[0];
    str_set(&m->repository, op->policy->repository);
    m->phase = v->outcome;
    m->incremental = -1;
    if (v->moved) {
        str_set(&m->snapshot, op->result.snapshot);
        str_set(&m->retained, v->preserved ? op->native : "");
        str_set(&m->handle, v->preserved ? op->native_doc->handle : "");
        m->size = result_bytes(op->result.total);
        m->incremental = operation_changed_bytes(op);
    }
}

/* ---- a part ---- */

static void part_begin(struct backup_record *r, const struct backup *b, const char *node, const char *repository)
{
    fields_init(&backup_record_fields, r);
    r->version = RECORD_VERSION;
    str_set(&r->backup, b->id);
    str_set(&r->job, b->job);
    str_set(&r->node, node);
    str_set(&r->repository, repository);
    str_set(&r->machine, record_machine());
    set_reason(&r->description, b->description);
    r->reason = b->origin;
    r->state = RECORD_STATE_PROVISIONAL;
    set_time(&r->started, b->started_ns ? b->started_ns : b->created_ns);
    set_time(&r->snapshots_done, b->snapshots_done_ns);
}

static void part_is_final(struct backup_record *r, const struct backup *b, int64_t ended_ns)
{
    r->state = RECORD_STATE_FINAL;
    set_time(&r->ended, ended_ns);
    r->outcome = b->outcome;
    set_reason(&r->failure, b->error.code ? b->error.message : "");
    r->counts = b->counts;
    r->counts.unknown = NULL;
}

static struct record_volume *part_volume(struct backup_record *r)
{
    struct record_volume *v = r->volumes.v;
    if (!v)
        r->volumes.v = v = calloc(RECORD_VOLUMES, sizeof *v);
    if (!v || r->volumes.n >= RECORD_VOLUMES)
        return NULL;
    return &v[r->volumes.n++];
}

/* ---- final: the text of a mover's job, of which a part is made at a time ---- */

struct records_text {
    struct engine *engine;
    struct strs backups;
    char *repository;
    int fd;
    struct text_buf text;   /* what is not in the file yet */
    json_t *checked;        /* ids of the snapshots that are checked when the outcomes are written: id -> true */
    struct text_buf expect; /* what each of them must be */
    bool any;               /* there is a record in it */
    unsigned at;            /* which of the backups */
    enum { RECORD_BEGIN, RECORD_OPERATIONS, RECORD_SKIPPED } stage;
    /* of the backup */
    struct backup b;
    struct backup_record now; /* the part that is being filled */
    int64_t part, parts, ended_ns;
    uint64_t after; /* number of the last operation */
    size_t skipped; /* of those that were skipped, how many were added */
    unsigned seen;  /* in this call */
};

static void final_begin(struct records_text *t)
{
    part_begin(&t->now, &t->b, cfg_daemon(t->engine->cfg)->node_name, t->repository);
    part_is_final(&t->now, &t->b, t->ended_ns);
    t->now.part = t->part;
    t->now.parts = t->parts;
}

static void final_end(struct records_text *t)
{
    json_t *doc = backup_record_to_json(&t->now);
    if (!doc)
        t->text.failed = true;
    if (t->any)
        text_put(&t->text, ",", 1);
    text_put_json(&t->text, doc);
    json_decref(doc);
    backup_record_clear(&t->now);
    t->any = true;
    t->part++;
}

static struct record_volume *final_volume(struct records_text *t)
{
    if (t->now.volumes.n == RECORD_VOLUMES) {
        final_end(t);
        final_begin(t);
    }
    return part_volume(&t->now);
}

/* As text: documents of ten thousand would take more memory than all else. */
static int add_check(struct records_text *t, const struct operation *op)
{
    const char *snapshot = op->result.snapshot;
    /* Of two that name one snapshot the second waits for its own answer. */
    if (json_object_size(t->checked) >= CHECKS_MAX || (snapshot[0] && json_object_get(t->checked, snapshot)))
        return 0;
    json_t *expected = operation_expected(t->engine->records, op, t->repository);
    if (!expected)
        return 0;
    if (t->expect.n)
        text_put(&t->expect, ",", 1);
    text_put_string(&t->expect, snapshot, strlen(snapshot));
    text_put(&t->expect, ":", 1);
    text_put_json(&t->expect, expected);
    json_decref(expected);
    return t->expect.failed || json_object_set_new(t->checked, snapshot, json_true()) < 0 ? -ENOMEM : 0;
}

static int add_operation(const struct operation *op, void *arg)
{
    struct records_text *t = arg;
    t->after = op->seq;
    t->seen++;
    if (op->kind != KIND_BACKUP)
        return 0;
    struct record_volume *v = final_volume(t);
    if (!v)
        return -ENOMEM;
    volume_of(v, &t->b, op);
    t->now.snapshots += v->moved;
    return add_check(t, op);
}

static int add_operations(struct records_text *t, struct err *e)
{
    const struct operation_filter f = {.parent = t->b.id, .after = t->after, .limit = ENGINE_PART};
    const int rc = operation_each(t->engine->records, &f, add_operation, t, e);
    if (rc == -ENOMEM)
        err_nomem(e);
    if (rc >= 0 && t->seen < ENGINE_PART)
        t->stage = RECORD_SKIPPED;
    return rc < 0 ? rc : 0;
}

static int add_skipped(struct records_text *t, struct err *e)
{
    const size_t n = json_array_size(t->b.skipped);
    for (unsigned i = 0; t->skipped < n && i < ENGINE_PART; i++, t->skipped++) {
        const struct skipped s = skipped_at(t->b.skipped, t->skipped);
        struct record_volume *v = final_volume(t);
        if (!v)
            return err_nomem(e);
        fields_init(&record_volume_fields, v);
        str_set(&v->name, s.volume);
        v->skipped = true;
        v->outcome = OUTCOME_SKIPPED;
        set_reason(&v->skipped_reason, s.reason);
    }
    if (t->skipped < n)
        return 0;
    final_end(t);
    backup_clear(&t->b);
    t->stage = RECORD_BEGIN;
    t->at++;
    return 0;
}

/* A backup that is gone, or has no outcome, has no record. */
static int begin_backup(struct records_text *t)
{
    struct backup *b = &t->b;
    backup_clear(b);
    if (backup_get(t->engine->records, t->backups.v[t->at], b, NULL) < 0 || b->outcome == OUTCOME_NONE) {
        t->at++;
        return 0;
    }
    const int64_t volumes = b->volume_ids.n + (int64_t)json_array_size(b->skipped);
    t->parts = volumes ? (volumes + RECORD_VOLUMES - 1) / RECORD_VOLUMES : 1;
    if (t->parts > RECORD_PARTS_MAX) {
        log_warning("%s: its outcome is not recorded in the repository: it has more than %d volumes", b->id,
                    RECORD_PARTS_MAX * RECORD_VOLUMES);
        t->at++;
        return 0;
    }
    t->part = 0;
    t->after = t->skipped = 0;
    t->ended_ns = b->completed_ns ? b->completed_ns : now_ns();
    final_begin(t);
    t->stage = RECORD_OPERATIONS;
    return 0;
}

static int add_part(struct records_text *t, struct err *e)
{
    switch (t->stage) {
    case RECORD_OPERATIONS:
        return add_operations(t, e);
    case RECORD_SKIPPED:
        return add_skipped(t, e);
    case RECORD_BEGIN:
        break;
    }
    return begin_backup(t);
}

static int text_write(struct records_text *t, struct err *e)
{
    if (t->text.failed)
        return err_nomem(e);
    const int rc = memory_append(t->fd, "job", t->text.v, t->text.n, e);
    t->text.n = 0;
    return rc;
}

static void put(struct records_text *t, const char *s)
{
    text_put(&t->text, s, strlen(s));
}

int records_text_new(struct records_text **ret, struct engine *g, const struct operation *op, struct err *e)
{
    struct records_text *t = calloc(1, sizeof *t);
    if (!t)
        return err_nomem(e);
    *t = (struct records_text){
        .engine = g, .b = ROW_INIT, .repository = strdup(op->policy->repository), .checked = json_object()};
    t->fd = memory_new("job", e);
    for (unsigned i = 0; i < op->records.n; i++)
        if (strs_add(&t->backups, op->records.v[i]) < 0)
            t->text.failed = true;
    put(t, "{\"do\":[{\"verb\":\"record\",\"records\":[");
    if (t->fd < 0 || !t->repository || !t->checked || t->text.failed) {
        const int rc = t->fd < 0 ? t->fd : err_nomem(e);
        records_text_free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

/* Of what has to be proven a sample is read, so that the backup does not wait for long. */
static void put_end(struct records_text *t)
{
    const char *id;
    json_t *v;
    bool any = false;
    put(t, "]}");
    if (json_object_size(t->checked)) {
        put(t, ",{\"verb\":\"check\",\"quick\":true,\"numbers\":true,\"snapshots\":[");
        json_object_foreach(t->checked, id, v)
        {
            if (any)
                put(t, ",");
            text_put_string(&t->text, id, strlen(id));
            any = true;
        }
        put(t, "],\"expect\":{");
        text_put(&t->text, t->expect.v, t->expect.n);
        put(t, "}}");
    }
    put(t, "]");
}

int records_text_part(struct records_text *t, struct err *e)
{
    t->seen = 0;
    int rc = t->at < t->backups.n ? add_part(t, e) : 0;
    const bool over = rc == 0 && t->at == t->backups.n;
    if (over)
        put_end(t);
    if (rc == 0)
        rc = text_write(t, e);
    return rc < 0 ? rc : !over;
}

int records_text_fd(const struct records_text *t)
{
    return t->fd;
}

void records_text_free(struct records_text *t)
{
    if (!t)
        return;
    if (t->stage != RECORD_BEGIN)
        backup_record_clear(&t->now);
    backup_clear(&t->b);
    strs_clear(&t->backups);
    json_decref(t->checked);
    free(t->expect.v);
    free(t->repository);
    free(t->text.v);
    closep(&t->fd);
    free(t);
}

/* ---- provisional ---- */

#define MADE_KEPT_NS (2 * NS_PER_S) /* a document: movers that are started together get the same */

struct recorded_parts {
    struct recorded_parts *next;
    uint64_t parts[RECORD_PARTS_MAX / 64];
    /* the document that was made last, NULL: none */
    json_t *made;
    int made_part;
    int64_t made_ns;       /* CLOCK_MONOTONIC */
    char *made_repository; /* shared string */
    char backup[];
};

static void made_forget(struct recorded_parts *p)
{
    json_take(&p->made, NULL);
    str_clear(&p->made_repository);
}

static void parts_free(struct recorded_parts *p)
{
    made_forget(p);
    free(p);
}

static bool is_over(struct engine *g, const char *backup)
{
    const struct backup *b = backup_peek(g->records, backup);
    return !b || backup_state_terminal(b->state);
}

/* Those of backups that have ended go. */
static struct recorded_parts *parts_find(struct engine *g, const char *backup)
{
    for (struct recorded_parts **at = &g->recorded, *p; (p = *at);) {
        if (!strcmp(p->backup, backup))
            return p;
        if (is_over(g, p->backup)) {
            *at = p->next;
            parts_free(p);
        } else {
            at = &p->next;
        }
    }
    return NULL;
}

void recorded_free(struct engine *g)
{
    while (g->recorded) {
        struct recorded_parts *p = g->recorded;
        g->recorded = p->next;
        parts_free(p);
    }
}

/* NULL: no memory. */
static struct recorded_parts *parts_get(struct engine *g, const char *backup)
{
    struct recorded_parts *p = parts_find(g, backup);
    if (p || !(p = calloc(1, sizeof *p + strlen(backup) + 1)))
        return p;
    strcpy(p->backup, backup);
    p->made_repository = str_empty;
    p->next = g->recorded;
    return g->recorded = p;
}

/* Equal ids of rows are one (strings.h): ten thousand are compared in some microseconds. */
static int part_of(const struct backup *b, const struct operation *op)
{
    for (unsigned i = 0; i < b->volume_ids.n; i++)
        if (b->volume_ids.v[i] == op->volume_id)
            return (int)(i / RECORD_VOLUMES);
    return -1;
}

void record_written(struct engine *g, const struct operation *op)
{
    const struct backup *b = backup_peek(g->records, op->parent);
    const int part = b ? part_of(b, op) : -1;
    struct recorded_parts *p = part >= 0 && part < RECORD_PARTS_MAX ? parts_get(g, b->id) : NULL;
    if (!p)
        return;
    p->parts[part / 64] |= UINT64_C(1) << part % 64;
    if (p->made_part == part)
        made_forget(p);
}

static void add_known(struct engine *g, const struct backup *b, const char *volume_id, struct backup_record *r)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    char id[BOARD_ID_MAX];
    struct record_volume *v = part_volume(r);
    if (!v)
        return;
    snprintf(id, sizeof id, "up-%s.%s", b->id, volume_id);
    if (operation_get(g->records, id, &op, NULL) == 0) {
        volume_of(v, b, &op);
        return;
    }
    fields_init(&record_volume_fields, v);
    str_set(&v->id, volume_id);
}

static json_t *make_provisional(struct engine *g, const struct backup *b, const struct operation *op, int part,
                                unsigned parts)
{
    struct backup_record r;
    part_begin(&r, b, op->own->node, op->policy->repository);
    r.part = part;
    r.parts = parts;
    for (unsigned i = (unsigned)part * RECORD_VOLUMES; i < b->volume_ids.n && i < (part + 1u) * RECORD_VOLUMES; i++)
        add_known(g, b, b->volume_ids.v[i], &r);
    json_t *doc = backup_record_to_json(&r);
    backup_record_clear(&r);
    if (doc && json_dumpb(doc, NULL, 0, JSON_COMPACT) > PROVISIONAL_BYTES)
        json_take(&doc, NULL);
    return doc;
}

json_t *record_provisional(struct engine *g, const struct operation *op)
{
    const struct backup *b = backup_peek(g->records, op->parent);
    const int part = b ? part_of(b, op) : -1;
    const unsigned parts = b ? (b->volume_ids.n + RECORD_VOLUMES - 1) / RECORD_VOLUMES : 0;
    struct recorded_parts *p = part >= 0 && parts <= RECORD_PARTS_MAX ? parts_get(g, b->id) : NULL;
    if (!p || p->parts[part / 64] >> part % 64 & 1)
        return NULL;
    const int64_t now = mono_ns();
    if (!p->made || p->made_part != part || now - p->made_ns > MADE_KEPT_NS ||
        strcmp(p->made_repository, op->policy->repository) != 0) {
        json_take(&p->made, make_provisional(g, b, op, part, parts));
        p->made_part = part;
        p->made_ns = now;
        str_set(&p->made_repository, op->policy->repository);
    }
    return json_incref(p->made);
}
