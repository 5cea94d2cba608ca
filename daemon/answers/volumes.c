/* SPDX-License-Identifier: GPL-2.0-or-later */
/* volumes.c - volumes: whether they are protected, their last backup, next run and native snapshots */
#include "daemon/answers/answers-impl.h"

#include "base/nearest.h"
#include "base/time.h"
#include "daemon/records/step-answer.h"

#include <errno.h>
#include <stdlib.h>

/* ---- lines ---- */

void volume_lines_init(struct volume_lines *x, const struct answer_facts *f)
{
    *x = (struct volume_lines){.facts = f};
    x->jobs = calloc(f->jobs.n + 1, sizeof *x->jobs);
    x->failed = !x->jobs;
    for (unsigned i = 0; x->jobs && f->cfg && i < f->jobs.n; i++)
        x->jobs[i] = cfg_job(f->cfg, f->jobs.v[i].name);
}

void volume_lines_clear(struct volume_lines *x)
{
    for (size_t i = 0; i < x->n; i++) {
        struct volume_line *l = &x->line[i];
        json_decref(l->doc);
        str_clear(&l->name);
        str_clear(&l->why);
        str_clear(&l->failure);
        str_clear(&l->hint);
    }
    free(x->line);
    free(x->jobs);
}

/* What the jobs that have a volume make of it. */
struct volume_jobs {
    json_t *names;
    int64_t next_ns, interval_s;
};

static struct volume_jobs jobs_of(const struct volume_lines *x, const struct cfg_class *k, struct cfg_subject s)
{
    struct volume_jobs j = {.names = json_array()};
    for (unsigned i = 0; x->jobs && i < x->facts->jobs.n; i++) {
        const struct job_view *v = &x->facts->jobs.v[i];
        if (!x->jobs[i] || !cfg_job_names(x->jobs[i], k, s))
            continue;
        json_array_append_new(j.names, json_string(v->name));
        if (v->next_ns > 0 && (!j.next_ns || v->next_ns < j.next_ns))
            j.next_ns = v->next_ns;
        j.interval_s = job_interval(v, j.interval_s);
    }
    return j;
}

struct native_sum {
    unsigned n, adopted;
    int64_t used;
};
static int sum_native(const struct native_row *n, void *arg)
{
    struct native_sum *s = arg;
    if (n->state == NATIVE_MISSING)
        return 0;
    s->n++;
    s->adopted += n->adopted;
    if (n->native->used > 0)
        s->used += n->native->used;
    return 0;
}

static void put_record(json_t *o, const struct volume_row *v, int64_t now_ns)
{
    if (v->last_success_ns) {
        jset_int(o, "last_success_ns", v->last_success_ns);
        json_object_set_new(o, "age_s", json_real((double)(now_ns - v->last_success_ns) / NS_PER_S));
    }
    put_text(o, "last_backup", v->last_backup);
    put_text(o, "last_state", outcome_name(v->last_status));
    put_error(o, &v->last_error);
}

/* It came when all others of its class were recorded: its backups would be, too. */
static bool is_new(const struct answer_facts *f, const struct volume_row *v, const char *klass)
{
    return v ? v->appeared_ns : f->source && f->source->is_new(klass, f->arg);
}

/* Nothing is recorded of its backups: the records have not caught up with a repository, or its native snapshots alone
 * have been found again, or nothing: a snapshot that was never moved, and is gone, has left no trace but in records. */
static void put_unknown(const struct answer_facts *f, const struct volume_row *v, const char *klass, unsigned natives,
                        bool has_job, char *out, size_t cap)
{
    double at;
    if (v && (v->last_success_ns || v->last_good_lost[0] || v->last_error.code || v->last_status != OUTCOME_NONE))
        return;
    if (!is_new(f, v, klass) && records_counter_get(f->records, RECORDS_REBUILT, NULL, &at))
        snprintf(out, cap, "no backup of it is known since the records were rebuilt%s",
                 has_job ? "" : ", and no job names it");
    if (natives)
        snprintf(out, cap, "no backup is recorded; %u native snapshot%s found on the storage", natives,
                 natives == 1 ? " was" : "s were");
    for (unsigned i = 0; i < f->n_repositories; i++)
        if (f->repositories[i].unscanned) {
            snprintf(out, cap, "no backup is known: repository \"%s\" has not been scanned since the records began",
                     f->repositories[i].name);
            return;
        }
}

static bool is_recorded(const struct answer_facts *f, const char *backup)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    return backup_get(f->records, backup, &b, NULL) == 0;
}

static struct volume_line make_line(const struct volume_lines *x, const struct volume_row *v,
                                    const struct volume_desc *volume, const char *klass)
{
    const struct answer_facts *f = x->facts;
    const char *name = volume->name[0] || !v ? volume->name : v->id;
    const struct cfg_subject s = {name, volume->labels};
    const struct cfg_class *k = f->cfg ? cfg_class_of(f->cfg, s) : NULL;
    const char *excluded = f->cfg ? volume_excluded(f->cfg, s, volume->size) : NULL;
    const struct volume_jobs jobs = jobs_of(x, k, s);
    const struct native_row_filter its = {.volume_id = v ? v->id : volume->id};
    struct native_sum natives = {0};
    struct volume_line l = {.doc = json_object(),
                            .good_ns = v ? v->last_success_ns : 0,
                            .name = str_empty,
                            .why = str_empty,
                            .failure = str_empty,
                            .hint = str_empty};
    char why[1400];
    l.state = volume_judge(v && v->state == VOL_GONE, excluded != NULL, l.good_ns, jobs.interval_s, f->now_ns);
    const bool has_job = !f->jobs.v || json_array_size(jobs.names) > 0;
    volume_why(l.state, v, excluded, has_job, f->now_ns, why, sizeof why);
    native_row_each(f->records, &its, sum_native, &natives, NULL);
    l.unscheduled = l.state == VOLUME_PROTECTED && volume_unscheduled(v, has_job);
    l.failed = v && volume_failed(v);
    l.half = v && v->half_restored[0] && is_recorded(f, v->half_restored) ? v->half_restored : NULL;
    if (l.half) {
        const size_t n = strlen(why);
        snprintf(why + n, sizeof why - n, "%s%s left it incomplete", n ? ", " : "", l.half);
    }
    if (l.unscheduled) {
        const size_t n = strlen(why);
        snprintf(why + n, sizeof why - n, "%sthough no job backs it up any more", n ? ", " : "");
    }
    if (l.state == VOLUME_UNPROTECTED)
        put_unknown(f, v, klass, natives.adopted, has_job, why, sizeof why);
    jset_str(l.doc, "name", name);
    jset_str(l.doc, "id", v ? v->id : volume->id);
    jset_str(l.doc, "class", klass);
    jset_int(l.doc, "size", volume->size);
    put_ns(l.doc, "allocated", volume->allocated);
    put_text(l.doc, "labels", volume->labels);
    jset_bool(l.doc, "protected", l.state == VOLUME_PROTECTED);
    jset_str(l.doc, "state", volume_states[l.state]);
    put_text(l.doc, "why", why);
    if (v)
        put_record(l.doc, v, f->now_ns);
    if (l.state < VOLUME_GONE)
        l.next_ns = jobs.next_ns;
    if (l.next_ns)
        jset_int(l.doc, "next_ns", l.next_ns);
    json_object_set_new(l.doc, "jobs", jobs.names);
    jset_int(l.doc, "natives", natives.n);
    jset_int(l.doc, "used", natives.used);
    str_set(&l.name, name);
    str_set(&l.why, why);
    if (v && v->last_error.code) {
        str_set(&l.failure, v->last_error.message);
        str_set(&l.hint, v->last_error.hint);
    }
    return l;
}

const struct volume_line *volume_lines_add(struct volume_lines *x, const struct volume_row *row,
                                           const struct volume_desc *volume, const char *klass)
{
    if (x->n == x->cap) {
        const size_t cap = x->cap ? 2 * x->cap : 64;
        struct volume_line *more = reallocarray(x->line, cap, sizeof *more);
        if (!more) {
            x->failed = true;
            return NULL;
        }
        x->line = more;
        x->cap = cap;
    }
    x->line[x->n] = make_line(x, row, volume, klass);
    return &x->line[x->n++];
}

static int by_need(const void *a, const void *b)
{
    static const int rank[VOLUME_STATES] = {
        [VOLUME_UNPROTECTED] = 0, [VOLUME_PROTECTED] = 1, [VOLUME_GONE] = 2, [VOLUME_EXCLUDED] = 3};
    const struct volume_line *x = a, *y = b;
    if (x->state != y->state)
        return rank[x->state] - rank[y->state];
    return x->good_ns != y->good_ns ? (x->good_ns > y->good_ns) - (x->good_ns < y->good_ns) : strcmp(x->name, y->name);
}

void volume_lines_sort(struct volume_lines *x)
{
    if (x->n)
        qsort(x->line, x->n, sizeof *x->line, by_need);
}

json_t *volume_lines_list(const struct volume_lines *x)
{
    json_t *list = json_array();
    for (size_t i = 0; i < x->n; i++)
        json_array_append(list, x->line[i].doc);
    return list;
}

int64_t volume_next_ns(const struct answer_facts *f, const char *volume_id)
{
    const struct volume_row *v = volume_row_peek(f->records, volume_id);
    struct volume_lines x;
    int64_t next_ns = 0;
    volume_lines_init(&x, f);
    const struct volume_line *l = v ? volume_lines_add(&x, v, v->volume, v->klass) : NULL;
    if (l)
        next_ns = l->next_ns;
    volume_lines_clear(&x);
    return next_ns;
}

/* ---- the list ---- */

struct volume_list {
    struct volume_lines lines;
    const char *klass, *only; /* "": any; only: of this name or id */
    json_t *seen, *unsure;
    json_t *found; /* ids that a class has, whosever they are */
    json_t *whole; /* classes that were listed completely */
};

/* The records follow when the list of the storage has been recorded: it counts already. */
static void add_line(struct volume_list *x, const struct volume_row *v, enum known_state state,
                     const struct volume_desc *volume, const char *klass)
{
    struct volume_row now;
    if (v) {
        now = *v;
        now.state = state;
    }
    volume_lines_add(&x->lines, v ? &now : NULL, volume, klass);
}

static bool is_wanted(const struct volume_list *x, const char *id, const char *name)
{
    return !*x->only || !strcmp(x->only, id) || !strcmp(x->only, name);
}

/* One that its class no longer has. */
static bool is_missed(const struct volume_list *x, const struct volume_row *v)
{
    const struct cfg *cfg = x->lines.facts->cfg;
    const struct cfg_class *own = cfg && v->state != VOL_GONE ? cfg_class_of(cfg, volume_subject(v->volume)) : NULL;
    return own && json_object_get(x->whole, own->name) && !json_object_get(x->found, v->id);
}

/* Volumes that were backed up and are gone are still of interest, as are those of classes that nobody looked at. */
static int add_recorded(const struct volume_row *v, void *arg)
{
    struct volume_list *x = arg;
    const bool missed = is_missed(x, v);
    if (json_object_get(x->seen, v->id) || (*x->klass && strcmp(x->klass, v->klass) != 0) ||
        !is_wanted(x, v->id, v->volume->name) || (missed && v->last_status == OUTCOME_NONE))
        return 0;
    add_line(x, v, missed ? VOL_GONE : v->state, v->volume, v->klass);
    return x->lines.failed ? -ENOMEM : 0;
}

/* What the storage could not be asked is said: of these classes the records are all there is. */
static void add_unsure(json_t *unsure, const char *klass, const char *message)
{
    add_text(unsure, "%s%s%s%s; its volumes are shown as the records have them",
             *klass ? "storage class \"" : "the storage could not be asked: ", klass, *klass ? "\": " : "",
             class_message(klass, message));
}

/* Many volumes may have one reason. */
static void add_once(json_t *list, const char *text)
{
    const json_t *v;
    size_t i;
    json_array_foreach(list, i, v) if (!strcmp(json_string_value(v), text)) return;
    add_text(list, "%s", text);
}

static void add_class(struct volume_list *x, const json_t *looked)
{
    const struct answer_facts *f = x->lines.facts;
    const struct class_seen seen = class_seen_of(looked);
    const char *klass = seen.name;
    const json_t *v;
    size_t i;
    if (seen.failed)
        add_unsure(x->unsure, klass, seen.error.message);
    else if (seen.whole)
        json_object_set_new(x->whole, klass, json_true());
    json_array_extend(x->unsure, seen.passed);
    json_array_foreach(seen.missing, i, v)
    {
        json_object_set_new(x->found, unseen_of(v).id, json_true());
        add_once(x->unsure, unseen_of(v).message);
    }
    json_array_foreach(seen.volumes, i, v)
    {
        CLEANUP(volume_desc_unrefp) const struct volume_desc *desc = volume_desc_from_json(v);
        json_object_set_new(x->found, desc->id, json_true());
        const struct cfg_class *own = f->cfg ? cfg_class_of(f->cfg, volume_subject(desc)) : NULL;
        if (!own || strcmp(own->name, klass) != 0 || json_object_get(x->seen, desc->id) ||
            !is_wanted(x, desc->id, desc->name))
            continue;
        json_object_set_new(x->seen, desc->id, json_true());
        add_line(x, volume_row_peek(f->records, desc->id), VOL_KNOWN, desc, klass);
    }
}

static json_t *list_volumes(const struct answer_facts *f, const char *klass, const char *only, const json_t *looked,
                            const char *failed)
{
    CLEANUP_JSON json_t *seen = json_object(), *unsure = json_array(), *found = json_object(), *whole = json_object();
    struct volume_list x = {
        .klass = klass, .only = only, .seen = seen, .unsure = unsure, .found = found, .whole = whole};
    const json_t *a;
    size_t i;
    volume_lines_init(&x.lines, f);
    if (failed)
        add_unsure(unsure, "", failed);
    json_array_foreach(looked, i, a) add_class(&x, a);
    volume_row_each(f->records, NULL, add_recorded, &x, NULL);
    volume_lines_sort(&x.lines);
    json_t *answer = x.lines.failed ? NULL : json_pack("{s:o}", "volumes", volume_lines_list(&x.lines));
    if (answer && json_array_size(unsure))
        json_object_set(answer, "unsure", unsure);
    volume_lines_clear(&x.lines);
    return answer;
}

json_t *answer_volumes(const struct answer_facts *f, const char *klass, const json_t *looked, const char *failed)
{
    return list_volumes(f, klass, "", looked, failed);
}

json_t *answer_volume(const struct answer_facts *f, const char *what, const json_t *looked, const char *failed)
{
    return list_volumes(f, "", what, looked, failed);
}

json_t *answer_volumes_recorded(const struct answer_facts *facts, const char *klass, const char *after, size_t limit)
{
    struct answer_facts own = *facts;
    const struct answer_facts *f = &own;
    CLEANUP(overview_freep) struct overview *made = overview_of_facts(&own);
    (void)made;
    struct volume_lines x;
    const char *id = after;
    if (!own.overview)
        return NULL;
    if (made)
        overview_work(made, SIZE_MAX, f->now_ns);
    volume_lines_init(&x, f);
    while (x.n < limit && (id = overview_volume_after(f->overview, id))) {
        const struct volume_row *v = volume_row_peek(f->records, id);
        if (v && (!*klass || !strcmp(klass, v->klass)) && !volume_lines_add(&x, v, v->volume, v->klass))
            break;
    }
    const bool more = id && overview_volume_after(f->overview, id);
    json_t *o = x.failed ? NULL : json_pack("{s:o, s:b}", "volumes", volume_lines_list(&x), "more", (int)more);
    if (more && o)
        jset_str(o, "next", id);
    volume_lines_clear(&x);
    return o;
}

int answer_class_known(const struct answer_facts *f, const char *klass, struct err *e)
{
    if (!*klass || !f->cfg || cfg_class(f->cfg, klass))
        return 0;
    int rc = err_set(e, ERR_NOT_FOUND, 0, "there is no storage class \"%s\"", klass);
    nearest_hint(e, cfg_near_class(f->cfg, klass), "`snapferry check-config` lists the classes");
    return rc;
}
