/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * scan.c - what a repository has of this node is compared with the records (RS-15)
 *
 * The outcomes that it has of backups are taken over first (scan-records.c). A snapshot that no record knows then
 * becomes a backup of the records again, whose outcome is not known; a backup whose snapshot is not there any more
 * (somebody else deleted it) no longer counts as one. Another node's backups become records as well when asked for:
 * they can be listed and restored, and count for nothing of this node's.
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "base/units.h"
#include "daemon/engine/scan-impl.h"
#include "daemon/protocol/mover-wire.h"
#include "daemon/records/outcome-record.h"
#include "daemon/records/scanned.h"
#include "proc/descriptors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TAG_MAX 255

/* Anybody who can write the repository can write tags. */
static bool is_ours(struct engine *g, const struct scanned_snapshot *t)
{
    if (!record_is_text(t->backup, TAG_MAX - 64) || !record_is_text(t->operation, TAG_MAX) ||
        !record_is_text(t->volume_id, TAG_MAX) || (t->klass[0] && !record_is_text(t->klass, TAG_MAX)) ||
        strlen(t->volume) >= VOLUME_NAME_MAX || (t->native[0] && !record_is_text(t->native, ALIAS_TEXT - 1)))
        return false;
    /* Nothing is added to a backup that is under way. */
    const struct backup *b = backup_peek(g->records, t->backup);
    return !b || backup_state_terminal(b->state) || operation_peek(g->records, t->operation);
}

static void describe_rebuilt(const struct scan *x, struct operation *op, const struct scanned_snapshot *t)
{
    const char *volume = t->volume_id, *name = t->volume;
    const int64_t size = strtoll(t->size, NULL, 10);
    struct policy policy;
    struct class_desc own;
    struct volume_desc desc;
    operation_init(op);
    str_set(&op->id, t->operation);
    str_set(&op->parent, t->backup);
    str_set(&op->volume_id, volume);
    op->state = OP_COMPLETED;
    op->outcome = OUTCOME_COMPLETED;
    op->kind = KIND_BACKUP;
    op->rebuilt = true;
    if (time_parse(&op->completed_ns, t->ended) < 0)
        op->completed_ns = 0;
    op->completed_ns = scan_past(x, op->completed_ns);
    str_set(&op->native, x->foreign ? "" : t->native);
    op->result.there = true;
    str_set(&op->result.snapshot, t->id);
    str_set(&op->result.as, t->as);
    op->result.total = size;
    policy_init(&policy);
    str_set(&policy.repository, x->repository);
    policy.move_data = true;
    policy_take(&op->policy, policy_make(&policy));
    class_desc_init(&own);
    str_set(&own.name, t->klass);
    str_set(&own.node, x->foreign ? x->node : "");
    class_desc_take(&op->own, class_desc_make(&own));
    volume_desc_init(&desc);
    str_set(&desc.id, volume);
    str_set(&desc.name, name[0] ? name : volume);
    desc.size = size;
    volume_desc_take(&op->volume, volume_desc_make(&desc));
}

static int add_rebuilt(struct scan *x, const struct scanned_snapshot *t, struct operation *op)
{
    struct engine *g = x->engine;
    struct err e = ERR_INIT;
    describe_rebuilt(x, op, t);
    if (scan_add_backup(x, t->backup, t->job, op->completed_ns, &e) < 0 || operation_add(g->records, op, &e) < 0) {
        plan_log(&g->d, LOG_LVL_WARNING, "%s: %s", op->id, e.msg);
        return -1;
    }
    scan_note_volume(x, op);
    return 0;
}

/* Its record was made from the repository, which has the snapshot under that id now: a pin gives it another one. */
static void note_id(struct scan *x, struct operation *op, const struct scanned_snapshot *t)
{
    if (!op->rebuilt || !strcmp(op->result.snapshot, t->id) || op->state != OP_COMPLETED)
        return;
    op->result.there = true;
    str_set(&op->result.snapshot, t->id);
    str_set(&op->result.as, t->as);
    operation_write(&x->engine->d, op);
}

/* A snapshot of the repository that no record knows becomes a record of a volume's backup again. */
static void scan_one(struct scan *x, const struct scanned_snapshot *t)
{
    struct engine *g = x->engine;
    CLEANUP(operation_clear) struct operation op;
    CLEANUP(native_row_clear) struct native_row n;
    operation_init(&op);
    native_row_init(&n);
    if (t->incomplete[0] || !t->backup[0] || !t->operation[0] || !t->volume_id[0]) {
        *(t->incomplete[0] ? &x->page.incomplete : &x->page.untagged) += 1;
        return;
    }
    if (operation_read(&g->d, t->operation, &op) == 0) {
        /* Its record, which this scan took over first, may have named it. */
        const bool fresh = op.rebuilt && op.created_ns >= x->began_ns && !json_object_get(x->there, op.id);
        *(fresh ? &x->page.recorded : &x->page.matched) += 1;
        note_id(x, &op, t);
    } else {
        if (x->known_only)
            return;
        if (x->total.added + x->page.added >= SNAPSHOTS_MAX || !is_ours(g, t)) {
            x->page.passed++;
            return;
        }
        if (add_rebuilt(x, t, &op) < 0) {
            x->page.passed++;
            return;
        }
        x->page.added++;
        x->page.recorded++;
    }
    json_object_set_new(x->there, op.id, json_true());
    if (x->foreign)
        return;
    if (op.rebuilt)
        volume_backup_there(&g->d, &op);
    /* A native snapshot that was found on the storage: its data is safe in the repository after all. */
    const char *alias = t->native;
    if (alias[0] && native_row_read(&g->d, alias, &n) == 0 && !n.moved) {
        n.moved = true;
        n.moved_verified = true;
        n.failed = false;
        str_set(&n.snapshot, t->id);
        str_set(&n.operation, op.id);
        if (op.result.as[0]) {
            char source[SOURCE_TEXT];
            operation_source(&op, source);
            str_set(&n.source, source);
        }
        native_row_write(&g->d, &n);
    }
}

/* ---- backups whose snapshot is gone ---- */

struct missing {
    struct engine *engine;
    const char *repository;
    const char *whose;   /* another node; "": this one */
    const json_t *there; /* operation -> true */
    int64_t before_ns;   /* what ended later the scan may not have seen */
    unsigned lost, seen;
    uint64_t reached; /* number of the last row */
};

/* What was made again from the repository has the node in its source alone. */
static bool is_by(const struct operation *row, const char *node)
{
    char source[300];
    if (row->own->node[0] || !row->result.as[0])
        return !row->own->node[0] || !strcmp(row->own->node, node);
    snprintf(source, sizeof source, "snapferry@%s:", node);
    return !strncmp(row->result.as, source, strlen(source));
}

/* The scan is of what carries one node's name. */
static bool was_scanned_for(const struct missing *m, const struct operation *row)
{
    if (row->kind != KIND_BACKUP || row->state != OP_COMPLETED || row->policy->mover[0] ||
        strcmp(row->policy->repository, m->repository) != 0 || !row->result.snapshot[0] ||
        row->completed_ns >= m->before_ns)
        return false;
    return m->whose[0] ? !strcmp(row->own->node, m->whose) : is_by(row, cfg_daemon(m->engine->cfg)->node_name);
}

static bool was_not_found(const struct operation *row, void *arg)
{
    const struct missing *m = arg;
    return was_scanned_for(m, row) && !json_object_get(m->there, row->id);
}

/* Older ones are removed by retention, here or by another client: only of what a volume is restored from first it is
 * said that it is missing. */
static bool is_newest(const struct missing *m, const struct operation *row)
{
    const struct volume_row *v = volume_row_peek(m->engine->records, row->volume_id);
    return !v || !v->last_good_backup[0] || !strcmp(v->last_good_backup, row->parent) ||
           row->completed_ns >= v->last_success_ns;
}

static int look_missing(const struct operation *row, void *arg)
{
    struct missing *m = arg;
    m->seen++;
    m->reached = row->seq;
    CLEANUP(operation_clear) struct operation op;
    struct err e = ERR_INIT;
    char why[200];
    operation_init(&op);
    const bool lost = was_not_found(row, m), gone = lost && is_newest(m, row);
    if (!was_scanned_for(m, row) || (lost == row->lost && (!gone || row->gone_ns)) || operation_copy(&op, row) < 0)
        return 0;
    snprintf(why, sizeof why, "is no longer in repository \"%s\"", m->repository);
    if (gone)
        operation_is_gone(&m->engine->d, &op, "a scan of the repository did not find its snapshot");
    if (lost)
        operation_is_lost(&m->engine->d, &op, "a scan of the repository did not find it");
    else
        operation_is_there(&m->engine->d, &op);
    if (operation_save(m->engine->records, &op, &e) < 0) {
        log_warning("%s: %s", op.id, e.msg);
        return 0;
    }
    m->lost += lost;
    if (m->whose[0])
        return 0;
    if (!lost) {
        volume_backup_there(&m->engine->d, &op);
        return 0;
    }
    log_warning("%s: its snapshot is no longer in repository \"%s\"", op.id, m->repository);
    if (volume_backup_lost_of(&m->engine->d, op.volume_id, op.parent, why, was_not_found, m, &e) < 0)
        log_warning("%s: %s", op.id, e.msg);
    return 0;
}

/* The next rows. Not told by a scan that could not read all: a manifest that cannot be read may be the one. */
static void find_missing(struct scan *s)
{
    const struct operation_filter f = {.state = OP_COMPLETED, .after = s->looked, .limit = ENGINE_PART};
    struct missing m = {.engine = s->engine,
                        .repository = s->repository,
                        .whose = s->foreign ? s->node : "",
                        .there = s->there,
                        .before_ns = s->began_ns};
    s->lost_now = 0;
    s->more = false;
    if (s->total.unreadable)
        return;
    operation_each(s->engine->records, &f, look_missing, &m, NULL);
    s->lost_now = m.lost;
    s->reached = m.reached;
    s->more = m.seen == ENGINE_PART;
}

/* ---- the whole ---- */

static void scan_free(struct scan *s)
{
    struct scan **at = &s->engine->scans;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    parse_drop(s->reading);
    closep(&s->listing);
    json_decref(s->answer);
    json_decref(s->doc);
    json_decref(s->there);
    json_decref(s->provisional);
    free(s);
}

static void scan_finish(struct scan *s, const struct err *e)
{
    const struct scan_counts *n = &s->total;
    if (n->passed)
        log_warning("repository \"%s\": %u snapshot%s passed over, with malformed tags or too many", s->repository,
                    n->passed, plural(n->passed));
    if (n->malformed)
        log_warning("repository \"%s\": %u malformed record%s of backups passed over", s->repository, n->malformed,
                    plural(n->malformed));
    CLEANUP_JSON json_t *out =
        json_pack("{s:s,s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "operation", s->operation,
                  "repository", s->repository, "node", s->node, "snapshots", (int)n->snapshots, "known",
                  (int)n->matched, "recorded", (int)n->recorded, "incomplete", (int)n->incomplete, "untagged",
                  (int)n->untagged, "passed", (int)n->passed, "added", (int)n->added, "lost", (int)s->lost, "outcomes",
                  (int)n->records, "malformed", (int)n->malformed, "stale", (int)s->stale, "removed", (int)s->removed,
                  "elsewhere", (int)n->elsewhere, "unreadable", (int)n->unreadable);
    if (n->unreadable)
        log_warning(
            "repository \"%s\": %u snapshot%s of it cannot be read: whether recorded ones are missing is not known",
            s->repository, n->unreadable, n->unreadable == 1 ? "" : "s");
    if (n->elsewhere)
        log_warning("repository \"%s\": another machine has recorded %u backup%s as node %s lately", s->repository,
                    n->elsewhere, plural(n->elsewhere), s->node);
    if (n->added && !s->foreign && !s->engine->stopping)
        volumes_look_again(s->engine); /* which of them are still there */
    if (s->done)
        s->done(n->added, e->cls ? e : NULL, s->arg);
    else if (s->reply)
        s->reply(e->cls ? NULL : out, e->cls ? e : NULL, s->arg);
    else if (e->cls && !s->engine->stopping)
        log_warning("repository \"%s\" cannot be scanned: %s", s->repository, e->msg);
    else if (n->added)
        log_info("repository \"%s\" has %u volume%s of backups of node %s that %s not in the records: %s now",
                 s->repository, n->added, plural(n->added), s->node, n->added == 1 ? "was" : "were",
                 n->added == 1 ? "it is" : "they are");
    scan_free(s);
}

static int write_missing(struct decide *d, void *arg, struct err *e)
{
    struct scan *s = arg;
    (void)d, (void)e;
    s->page = (struct scan_counts){0};
    if (!s->looked)
        scan_interrupted(s);
    find_missing(s);
    return 0;
}

static void scan_stopped(const struct err *e, void *arg)
{
    struct scan *s = arg;
    s->total.added += s->page.added;
    s->total.records += s->page.records;
    scan_finish(s, e);
}

/* Each part is a request of its own: what it has found is true without the others, and turns go on in between. */
static void missing_written(const struct err *e, void *arg)
{
    struct scan *s = arg;
    s->lost += e->cls ? 0 : s->lost_now;
    if (e->cls || !s->more) {
        scan_stopped(e, s);
        return;
    }
    s->total.added += s->page.added;
    s->total.records += s->page.records;
    s->looked = s->reached;
    engine_request(s->engine, write_missing, missing_written, s);
}

static void scan_ask(struct scan *s);
static void page_next(struct scan *s);

/* The rows of a page are one request. */
static int write_page(struct decide *d, void *arg, struct err *e)
{
    struct scan *s = arg;
    const struct scan_answer all = scan_answer_read(s->answer);
    const struct scan_page p = scan_page_read(s->doc);
    const bool first = s->page_no == 0, last = s->page_no + 1 >= json_array_size(all.pages);
    const json_t *v;
    size_t i;
    s->page = (struct scan_counts){0};
    if (s->records) {
        json_array_foreach(p.records, i, v) scan_record(s, v);
        s->other = (unsigned)all.other;
        s->stale = (unsigned)all.stale;
        s->removed = s->after[0] ? s->removed : (unsigned)all.removed;
        s->page.malformed += s->after[0] || !first ? 0 : (unsigned)all.malformed;
    } else {
        json_array_foreach(p.snapshots, i, v)
        {
            const struct scanned_snapshot t = scanned_snapshot_read(v);
            scan_one(s, &t);
        }
        s->page.snapshots = (unsigned)json_array_size(p.snapshots);
        s->page.unreadable = (unsigned)all.unreadable + (!all.pages && !p.snapshots);
    }
    return s->periodic && last ? operation_delete(d->records, s->operation, e) : 0;
}

/* All pages of an operation are recorded. A list that does not get on would never end. */
static void list_recorded(struct scan *s)
{
    struct scan_counts *n = &s->total;
    const struct scan_answer all = scan_answer_read(s->answer);
    const bool more = all.next[0] != '\0', on = strcmp(all.next, s->after) > 0 && s->operations < OPERATIONS_MAX;
    if (more && on && n->snapshots + n->records < SNAPSHOTS_MAX) {
        snprintf(s->after, sizeof s->after, "%s", all.next);
        scan_ask(s);
        return;
    }
    n->unreadable += more;
    s->after[0] = '\0';
    if (s->records) {
        s->records = false;
        scan_ask(s);
    } else {
        engine_request(s->engine, write_missing, missing_written, s);
    }
}

static void page_written(const struct err *e, void *arg)
{
    struct scan *s = arg;
    struct scan_counts *n = &s->total;
    json_set(&s->doc, NULL);
    if (e->cls) {
        scan_finish(s, e);
        return;
    }
    n->snapshots += s->page.snapshots;
    n->added += s->page.added;
    n->matched += s->page.matched;
    n->recorded += s->page.recorded;
    n->incomplete += s->page.incomplete;
    n->untagged += s->page.untagged;
    n->passed += s->page.passed;
    if (s->page.unreadable > n->unreadable) /* each list counts all of them */
        n->unreadable = s->page.unreadable;
    n->records += s->page.records;
    n->malformed += s->page.malformed;
    n->elsewhere += s->page.elsewhere;
    const struct scan_answer all = scan_answer_read(s->answer);
    s->page_at += scan_page_len(&all, s->page_no++);
    if (s->page_no < json_array_size(all.pages))
        page_next(s);
    else
        list_recorded(s);
}

static void page_malformed(struct scan *s, const char *why)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_GENERIC, 0, "page %zu of what %s has listed cannot be used: %s", s->page_no + 1, s->operation, why);
    scan_finish(s, &e);
}

static void page_read(json_t *doc, const char *why, void *arg)
{
    struct scan *s = arg;
    s->reading = NULL;
    json_take(&s->doc, doc);
    if (!doc)
        page_malformed(s, why);
    else
        engine_request(s->engine, write_page, page_written, s);
}

/* The word of a mover that others' data has gone through: read beside the loop and within bounds, like its result. */
static void page_next(struct scan *s)
{
    static const struct parse_limits limits = {.bytes = WIRE_RESULT_MAX,
                                               .bounds = {WIRE_RESULT_VALUES_MAX, WIRE_RESULT_DEPTH_MAX},
                                               .flags = JSON_REJECT_DUPLICATES};
    const struct scan_answer all = scan_answer_read(s->answer);
    const size_t len = scan_page_len(&all, s->page_no);
    if (!all.pages || !json_array_size(all.pages)) { /* it is in the answer, or there is none */
        json_set(&s->doc, s->answer);
        engine_request(s->engine, write_page, page_written, s);
        return;
    }
    if (s->listing < 0 || !len || s->page_at + len > WIRE_LISTING_MAX)
        page_malformed(s, "there are no such bytes");
    else if (!(s->reading = parse_part(s->engine->parser, s->listing, s->page_at, len, &limits, page_read, s)))
        page_malformed(s, "no memory");
}

static void list_ended(const json_t *state, bool terminal, void *arg)
{
    struct scan *s = arg;
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct err e = ERR_INIT;
    if (s->told && !terminal)
        s->told(state, false, s->arg);
    if (!terminal)
        return;
    engine_unwait(s->engine, s);
    const int rc = operation_get(s->engine->records, s->operation, &op, &e);
    if (rc == 0 && op.state == OP_CANCELED)
        err_set(&e, ERR_CANCELED, 0, "%s was canceled", s->operation);
    else if (rc == 0 && op.state != OP_COMPLETED)
        err_set(&e, (enum err_class)op.error.code, 0, "%s", op.error.message);
    if (e.cls && op.error.hint[0])
        err_hint(&e, "%s", op.error.hint);
    if (e.cls) {
        scan_finish(s, &e);
        return;
    }
    json_set(&s->answer, admin_answer(&op, 0));
    s->page_no = 0;
    s->page_at = 0;
    page_next(s);
}

static int write_ask(struct decide *d, void *arg, struct err *e)
{
    struct scan *s = arg;
    const int64_t stale = decide_now(d) - cfg_daemon(d->world.cfg)->provisional_ttl_s * NS_PER_S;
    json_t *steps = s->records ? json_pack("[{s:s,s:s,s:s,s:I,s:b}]", "verb", "records", "after", s->after, "node",
                                           s->node, "stale_ns", (json_int_t)stale, "remove", s->remove && !s->after[0])
                               : json_pack("[{s:s,s:s,s:s}]", "verb", "scan", "after", s->after, "node", s->node);
    s->operations++;
    return admin_submit(d, s->repository, steps, NULL, "admin-scan", s->operation, e);
}

static void ask_written(const struct err *e, void *arg)
{
    struct scan *s = arg;
    struct engine *g = s->engine;
    struct err own = *e;
    const bool asked = s->reply && !s->after[0] && s->records && !s->foreign;
    if (own.cls || engine_wait(g, s->operation, list_ended, s, &own) < 0) {
        scan_finish(s, &own);
        return;
    }
    waiters_on_stop(g, s, scan_stopped);
    if (asked) { /* the storage is looked at as well, whenever it was seen last (RS-15) */
        g->storage_wanted = true;
        g->orphans_ns = 0;
        engine_kick(g);
    }
}

static void scan_ask(struct scan *s)
{
    struct err e = ERR_INIT;
    if (!s->engine->parser && parser_new(&s->engine->parser, s->engine->loop, &e) < 0) {
        scan_finish(s, &e);
        return;
    }
    if (s->listing < 0 && (s->listing = memory_shared("list", WIRE_LISTING_MAX, &e)) < 0) {
        scan_finish(s, &e);
        return;
    }
    engine_request(s->engine, write_ask, ask_written, s);
}

/* The mover of the first page must expect the new one: so it is asked after this is durable. */
static int write_replaced(struct decide *d, void *arg, struct err *e)
{
    const struct scan *s = arg;
    (void)d;
    return repository_forget_id(s->engine, s->repository, e);
}

static void replaced_written(const struct err *e, void *arg)
{
    struct scan *s = arg;
    if (e->cls) {
        scan_finish(s, e);
        return;
    }
    repository_replaced(s->engine, s->repository);
    scan_ask(s);
}

int scan_listing(const struct engine *g, const char *operation)
{
    for (const struct scan *s = g->scans; s; s = s->next)
        if (!strcmp(s->operation, operation))
            return s->listing;
    return -1;
}

void scans_stop(struct engine *g, const struct err *e)
{
    for (struct scan *s = g->scans, *next; s; s = next) {
        next = s->next;
        if (s->reading)
            scan_stopped(e, s);
    }
}

static void scan_start(struct engine *g, const struct request_args *req, engine_wait_fn *told, engine_reply_fn *reply,
                       scan_done_fn *done, void *arg)
{
    struct scan *s = calloc(1, sizeof *s);
    struct err e = ERR_INIT;
    const char *name = req->repository;
    const struct cfg_repository *only = cfg_repository_at(g->cfg, 0);
    if (!name[0] && only && !cfg_repository_at(g->cfg, 1))
        name = only->name;
    if (!s) {
        err_nomem(&e);
        if (reply)
            reply(NULL, &e, arg);
        if (done)
            done(0, &e, arg);
        return;
    }
    const char *ours = cfg_daemon(g->cfg)->node_name, *node = req->node;
    *s = (struct scan){.engine = g,
                       .reply = reply,
                       .told = told,
                       .done = done,
                       .arg = arg,
                       .foreign = node[0] && strcmp(node, ours) != 0,
                       .remove = req->remove_stale,
                       .periodic = req->periodic,
                       .known_only = req->periodic && !req->node[0],
                       .records = !req->periodic || req->node[0],
                       .listing = -1,
                       .next = g->scans,
                       .there = json_object(),
                       .provisional = json_array(),
                       .began_ns = now_ns()};
    snprintf(s->repository, sizeof s->repository, "%s", name);
    snprintf(s->node, sizeof s->node, "%s", node[0] ? node : ours);
    s->recorded_ns = repository_recorded_ns(g, name);
    g->scans = s;
    if (req->replaced)
        engine_request(g, write_replaced, replaced_written, s);
    else
        scan_ask(s);
}

void engine_scan(struct engine *g, const struct request_args *req, engine_wait_fn *told, engine_reply_fn *reply,
                 void *arg)
{
    scan_start(g, req, told, reply, NULL, arg);
}

void scan_within(struct engine *g, const struct request_args *req, scan_done_fn *done, void *arg)
{
    scan_start(g, req, NULL, NULL, done, arg);
}
