/* SPDX-License-Identifier: GPL-2.0-or-later */
/* overview.c - see overview.h: volumes and native snapshots */
#include "daemon/answers/answers-impl.h"
#include "daemon/answers/overview-impl.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/decide/natives-plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A volume that the records know, or of which there are native snapshots. */
struct place {
    struct ranked_node by_id, need, failing, distrusted, clock, due;
    struct place *next_noted;
    char *id;                                         /* shared text */
    const struct volume_desc *volume;                 /* reference */
    bool noted, recorded;                             /* recorded: it has a row, so that it is in `need` and counted */
    bool is_failing, is_distrusted, is_timed, is_due; /* in these lists */
    enum volume_state state;
    int64_t good_ns, until_ns; /* until: when it is to be looked at again */
    unsigned klass;            /* number of its class + 1; 0: it is not configured */
    unsigned *jobs, n_jobs;    /* numbers; as long as the configuration and its name stay */
    bool jobs_known;
    int64_t interval_s;
    const char *excluded;
    struct overview_natives natives;
    uint64_t oldest; /* seq of the oldest native snapshot */
};

struct job {
    const struct cfg_job *cfg;
    int64_t interval_s;
    bool paused;
    unsigned volumes; /* that there are to back up */
};

struct overview {
    struct records *records;
    struct cfg *cfg;
    struct ranked by_id, need, failing, distrusted, clock, due;
    struct place *noted, **noted_end;
    size_t n_noted;
    json_t *backups; /* ids: what is known of their native snapshots has changed */
    unsigned states[VOLUME_STATES], *there, *gone, n_classes;
    struct job *jobs;
    unsigned n_jobs;
    struct overview_natives natives;
    struct overview_ops ops;
    uint64_t looks;
    bool replaced; /* anything may have changed */
};

#define BY_ID(node) RANKED_OF(node, struct place, by_id)

/* ---- orders ---- */

static bool id_before(const struct ranked_node *a, const struct ranked_node *b)
{
    return strcmp(BY_ID(a)->id, BY_ID(b)->id) < 0;
}

static bool needs_first(const struct place *a, const struct place *b)
{
    static const int rank[VOLUME_STATES] = {
        [VOLUME_UNPROTECTED] = 0, [VOLUME_PROTECTED] = 1, [VOLUME_GONE] = 2, [VOLUME_EXCLUDED] = 3};
    if (a->state != b->state)
        return rank[a->state] < rank[b->state];
    if (a->good_ns != b->good_ns)
        return a->good_ns < b->good_ns;
    const int names = strcmp(a->volume->name, b->volume->name);
    return names ? names < 0 : strcmp(a->id, b->id) < 0;
}

static bool need_before(const struct ranked_node *a, const struct ranked_node *b)
{
    return needs_first(RANKED_OF(a, struct place, need), RANKED_OF(b, struct place, need));
}

static bool distrusted_before(const struct ranked_node *a, const struct ranked_node *b)
{
    return needs_first(RANKED_OF(a, struct place, distrusted), RANKED_OF(b, struct place, distrusted));
}

static bool failing_before(const struct ranked_node *a, const struct ranked_node *b)
{
    return needs_first(RANKED_OF(a, struct place, failing), RANKED_OF(b, struct place, failing));
}

static bool clock_before(const struct ranked_node *a, const struct ranked_node *b)
{
    const struct place *x = RANKED_OF(a, struct place, clock), *y = RANKED_OF(b, struct place, clock);
    return x->until_ns != y->until_ns ? x->until_ns < y->until_ns : strcmp(x->id, y->id) < 0;
}

static bool due_before(const struct ranked_node *a, const struct ranked_node *b)
{
    const struct place *x = RANKED_OF(a, struct place, due), *y = RANKED_OF(b, struct place, due);
    return x->oldest != y->oldest ? x->oldest < y->oldest : strcmp(x->id, y->id) < 0;
}

/* ---- what is noted ---- */

static struct place *place_find(const struct overview *s, const char *id)
{
    const struct place like = {.id = (char *)(uintptr_t)id};
    struct ranked_node *node = ranked_find(&s->by_id, &like.by_id);
    return node ? BY_ID(node) : NULL;
}

static void note_place(struct overview *s, struct place *p)
{
    if (p->noted)
        return;
    p->noted = true;
    p->next_noted = NULL;
    *s->noted_end = p;
    s->noted_end = &p->next_noted;
    s->n_noted++;
}

static struct place *place_new(const char *id)
{
    struct place *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->id = str_empty;
    volume_desc_set(&p->volume, NULL);
    p->until_ns = INT64_MAX;
    if (str_set(&p->id, id) == 0)
        return p;
    free(p);
    return NULL;
}

static void note(struct overview *s, const char *id)
{
    struct place *p = id[0] ? place_find(s, id) : NULL;
    if (!id[0])
        return;
    if (!p && (p = place_new(id)))
        ranked_add(&s->by_id, &p->by_id);
    if (p)
        note_place(s, p);
    else
        s->replaced = true; /* no memory now: read again later */
}

static void note_use(struct overview *s, const struct operation *was, const struct operation *now)
{
    const struct operation *used = was && !op_state_terminal(was->state) && !was->releasing ? was : NULL,
                           *uses = now && !op_state_terminal(now->state) && !now->releasing ? now : NULL;
    const char *before = used ? used->native : "", *after = uses ? uses->native : "";
    if (!strcmp(before, after))
        return;
    if (before[0])
        note(s, was->volume_id);
    if (after[0])
        note(s, now->volume_id);
}

/* As the plan asks: 0 finished or not there, 1 under way, 2 being deleted. */
static int backup_matters(const struct backup *b)
{
    return !b || backup_state_terminal(b->state) ? 0 : b->state == BACKUP_DELETING ? 2 : 1;
}

void overview_row(enum row_kind k, const char *id, const void *was, const void *now, void *arg)
{
    struct overview *s = arg;
    const struct native_row *before = was, *after = now;
    switch (k) {
    case ROW_OPERATION:
        overview_ops_row(&s->ops, id, now);
        note_use(s, was, now);
        break;
    case ROW_BACKUP:
        if (backup_matters(was) != backup_matters(now))
            json_object_set_new(s->backups, id, json_true());
        break;
    case ROW_NATIVE:
        if (before)
            note(s, before->volume_id);
        if (after && (!before || strcmp(before->volume_id, after->volume_id) != 0))
            note(s, after->volume_id);
        break;
    case ROW_VOLUME:
        note(s, id);
        break;
    case ROW_JOB:
        break;
    case ROW_KINDS:
        s->replaced = true;
        break;
    }
}

/* ---- one volume ---- */

/* n 1: it is counted; -1: no longer. */
static void count_place(struct overview *s, const struct place *p, unsigned n)
{
    s->natives.n += n * p->natives.n;
    s->natives.next += n * p->natives.next;
    s->natives.removing += n * p->natives.removing;
    s->natives.used += n == 1 ? p->natives.used : -p->natives.used;
    s->natives.kept += n * p->natives.kept;
    s->natives.unremoved += n * p->natives.unremoved;
    s->natives.intermediates += n * p->natives.intermediates;
    s->natives.kept_used += n == 1 ? p->natives.kept_used : -p->natives.kept_used;
    if (!p->recorded)
        return;
    s->states[p->state] += n;
    if (p->klass)
        *(p->state == VOLUME_GONE ? &s->gone[p->klass - 1] : &s->there[p->klass - 1]) += n;
    for (unsigned i = 0; i < p->n_jobs && p->state != VOLUME_GONE && p->state != VOLUME_EXCLUDED; i++)
        s->jobs[p->jobs[i]].volumes += n;
}

static void unlist_place(struct overview *s, struct place *p)
{
    count_place(s, p, -1u);
    if (p->recorded)
        ranked_remove(&s->need, &p->need);
    if (p->is_failing)
        ranked_remove(&s->failing, &p->failing);
    if (p->is_distrusted)
        ranked_remove(&s->distrusted, &p->distrusted);
    if (p->is_timed)
        ranked_remove(&s->clock, &p->clock);
    if (p->is_due)
        ranked_remove(&s->due, &p->due);
    p->recorded = p->is_failing = p->is_distrusted = p->is_timed = p->is_due = false;
    p->natives = (struct overview_natives){.n = 0};
    p->until_ns = INT64_MAX;
}

static void list_place(struct overview *s, struct place *p, bool failed, bool distrusted)
{
    p->is_failing = p->recorded && failed && p->state == VOLUME_PROTECTED;
    p->is_distrusted = p->recorded && distrusted && p->state != VOLUME_GONE;
    p->is_timed = p->until_ns != INT64_MAX;
    p->is_due = p->natives.next > 0;
    if (p->recorded)
        ranked_add(&s->need, &p->need);
    if (p->is_failing)
        ranked_add(&s->failing, &p->failing);
    if (p->is_distrusted)
        ranked_add(&s->distrusted, &p->distrusted);
    if (p->is_timed)
        ranked_add(&s->clock, &p->clock);
    if (p->is_due)
        ranked_add(&s->due, &p->due);
    count_place(s, p, 1);
}

/* What the configuration makes of it: asked again only if it is another one, or the volume has another name, size or
 * label. */
static void look_at_jobs(struct overview *s, struct place *p, struct cfg_subject v, int64_t size)
{
    const struct cfg_class *k = s->cfg ? cfg_class_of(s->cfg, v) : NULL;
    unsigned n = 0;
    p->interval_s = 0;
    p->excluded = s->cfg ? volume_excluded(s->cfg, v, size) : NULL;
    for (unsigned pass = 0; pass < 2; pass++) {
        n = 0;
        for (unsigned i = 0; i < s->n_jobs; i++) {
            const struct job *j = &s->jobs[i];
            if (!j->cfg || !cfg_job_names(j->cfg, k, v))
                continue;
            if (pass)
                p->jobs[n] = i;
            else if (j->interval_s > 0 && !j->paused && (!p->interval_s || j->interval_s < p->interval_s))
                p->interval_s = j->interval_s;
            n++;
        }
        if (pass)
            break;
        free(p->jobs);
        p->jobs = n ? calloc(n, sizeof *p->jobs) : NULL;
        if (!p->jobs)
            break;
    }
    p->n_jobs = p->jobs ? n : 0;
    p->jobs_known = true;
}

static void look_at_row(struct overview *s, struct place *p, const struct volume_row *v, int64_t now_ns, bool *failed)
{
    const char *name = v->volume->name[0] ? v->volume->name : v->id;
    const bool changed = strcmp(p->volume->name, v->volume->name) != 0 || p->volume->size != v->volume->size ||
                         strcmp(p->volume->labels, v->volume->labels) != 0;
    volume_desc_set(&p->volume, v->volume);
    if (changed || !p->jobs_known)
        look_at_jobs(s, p, (struct cfg_subject){name, v->volume->labels}, v->volume->size);
    p->klass = 0;
    for (unsigned i = 0; i < s->n_classes && !p->klass; i++)
        p->klass = strcmp(v->klass, cfg_class_at(s->cfg, i)->name) ? 0 : i + 1;
    p->recorded = true;
    p->good_ns = v->last_success_ns;
    p->state = volume_judge(v->state == VOL_GONE, p->excluded != NULL, p->good_ns, p->interval_s, now_ns);
    *failed = volume_failed(v) || volume_unscheduled(v, p->n_jobs > 0) || v->half_restored[0];
    /* volume_judge() judges it otherwise from the first ns after. */
    const int64_t most = p->interval_s * 5 / 2 * NS_PER_S;
    if (p->state == VOLUME_PROTECTED && p->interval_s > 0)
        p->until_ns = p->good_ns + most + 1;
    else if (p->state == VOLUME_UNPROTECTED && p->good_ns - most > now_ns)
        p->until_ns = p->good_ns - most;
}

static void place_until(struct place *p, int64_t created_ns, int64_t age_s, int64_t now_ns)
{
    const int64_t at = created_ns + age_s * NS_PER_S + 1;
    if (age_s > 0 && at > now_ns && at < p->until_ns)
        p->until_ns = at;
}

bool native_is_unremoved(const struct native_row *n)
{
    return n->remove_error.message[0] &&
           (n->state == NATIVE_REMOVING || (n->state == NATIVE_MISSING && native_is_foreign(n)));
}

/* What the next backup of the volume prunes to make room for its own snapshot. */
static void look_at_natives(struct overview *s, struct place *p, int64_t now_ns)
{
    CLEANUP_FREE struct native_facts *f = NULL;
    const struct native_row *first = NULL;
    struct native_rules rules;
    struct native_verdict v;
    size_t n = 0;
    p->oldest = 0;
    natives_gather(s->records, p->id, &f, &n, NULL);
    for (size_t i = 0; i < n; i++) {
        const struct native_row *row = native_row_peek(s->records, f[i].alias);
        if (row && !p->oldest)
            p->oldest = row->seq;
        p->natives.unremoved += row && native_is_unremoved(row);
        if (row && row->kept.there) {
            p->natives.kept++;
            p->natives.intermediates += row->kept.alias[0] != '\0';
            p->natives.kept_used += kept_used(row);
        }
        if (!row || row->state == NATIVE_MISSING)
            continue;
        first = first ? first : row;
        p->natives.n++;
        p->natives.used += row->native->used > 0 ? row->native->used : 0;
    }
    if (!first)
        return;
    CLEANUP(policy_unrefp) const struct policy *policy = native_policy(s->records, s->cfg, first, true);
    native_rules(&rules, policy, first->job, -1, true, now_ns);
    natives_plan(&rules, f, n, &v);
    for (size_t i = 0; i < n; i++) {
        p->natives.next += native_is_next(&f[i]);
        p->natives.removing += f[i].removing && !f[i].missing;
        place_until(p, f[i].created_ns, rules.retain_max_age_s, now_ns);
        place_until(p, f[i].created_ns, rules.snapshot_only_max_age_s, now_ns);
    }
}

static void place_free(struct overview *s, struct place *p)
{
    ranked_remove(&s->by_id, &p->by_id);
    str_clear(&p->id);
    volume_desc_unref(p->volume);
    free(p->jobs);
    free(p);
}

static void place_look(struct overview *s, struct place *p, int64_t now_ns)
{
    const struct volume_row *v = volume_row_peek(s->records, p->id);
    const struct native_row_filter its = {.volume_id = p->id};
    uint64_t natives = 0;
    bool failed = false;
    s->looks++;
    unlist_place(s, p);
    native_row_count(s->records, &its, &natives, NULL);
    if (!v && !natives) {
        place_free(s, p);
        return;
    }
    if (v)
        look_at_row(s, p, v, now_ns, &failed);
    if (natives)
        look_at_natives(s, p, now_ns);
    list_place(s, p, failed, v && v->distrusted_ns);
}

/* ---- all of them ---- */

static int read_operation(const struct operation *op, void *arg)
{
    struct overview *s = arg;
    overview_ops_row(&s->ops, op->id, op);
    return 0;
}

static int read_volume(const struct volume_row *v, void *arg)
{
    note(arg, v->id);
    return 0;
}

static int read_native(const struct native_row *n, void *arg)
{
    note(arg, n->volume_id);
    return 0;
}

static void note_all(struct overview *s)
{
    for (size_t i = 0; i < ranked_n(&s->by_id); i++)
        note_place(s, BY_ID(ranked_at(&s->by_id, i)));
}

static void read_all(struct overview *s)
{
    const struct operation_filter live = {.live = true};
    s->replaced = false;
    overview_ops_clear(&s->ops);
    operation_each(s->records, &live, read_operation, s, NULL);
    note_all(s); /* some may be gone */
    volume_row_each(s->records, NULL, read_volume, s, NULL);
    native_row_each(s->records, NULL, read_native, s, NULL);
    s->replaced |= s->ops.failed;
}

struct overview *overview_new(struct records *r)
{
    struct overview *s = calloc(1, sizeof *s);
    if (!s || !(s->backups = json_object())) {
        free(s);
        return NULL;
    }
    s->records = r;
    s->noted_end = &s->noted;
    s->by_id = (struct ranked)RANKED_INIT(id_before);
    s->need = (struct ranked)RANKED_INIT(need_before);
    s->failing = (struct ranked)RANKED_INIT(failing_before);
    s->distrusted = (struct ranked)RANKED_INIT(distrusted_before);
    s->clock = (struct ranked)RANKED_INIT(clock_before);
    s->due = (struct ranked)RANKED_INIT(due_before);
    overview_ops_init(&s->ops);
    read_all(s);
    return s;
}

static void forget_configuration(struct overview *s)
{
    free(s->there);
    free(s->gone);
    free(s->jobs);
    cfg_free(s->cfg);
}

void overview_free(struct overview *s)
{
    if (!s)
        return;
    while (s->by_id.root)
        place_free(s, BY_ID(s->by_id.root));
    overview_ops_clear(&s->ops);
    forget_configuration(s);
    json_decref(s->backups);
    free(s);
}

/* Its jobs and classes have other numbers. */
static void forget_numbers(struct overview *s)
{
    for (size_t i = 0; i < ranked_n(&s->by_id); i++) {
        struct place *p = BY_ID(ranked_at(&s->by_id, i));
        p->jobs_known = false;
        p->klass = p->n_jobs = 0;
    }
}

void overview_configure(struct overview *s, struct cfg *c, const struct jobs_now *jobs)
{
    unsigned classes = 0;
    while (c && cfg_class_at(c, classes))
        classes++;
    unsigned *there = calloc(classes + 1, sizeof *there), *gone = calloc(classes + 1, sizeof *gone);
    struct job *list = calloc(jobs->n + 1, sizeof *list);
    forget_numbers(s);
    forget_configuration(s);
    s->cfg = c ? cfg_ref(c) : NULL;
    s->there = there;
    s->gone = gone;
    s->jobs = list;
    s->n_classes = there && gone ? classes : 0;
    s->n_jobs = list ? jobs->n : 0;
    for (unsigned i = 0; i < s->n_jobs; i++)
        list[i] = (struct job){
            .cfg = c ? cfg_job(c, jobs->v[i].name) : NULL,
            .interval_s = jobs->v[i].interval_s,
            .paused = jobs->v[i].paused,
        };
    note_all(s);
}

/* Those of whose native snapshots something else is to be said since their backup has begun, ended, or is deleted. */
static void note_backups(struct overview *s)
{
    const char *id;
    json_t *v;
    if (!json_object_size(s->backups))
        return;
    json_object_foreach(s->backups, id, v)
    {
        const struct native_row_filter its = {.parent = id};
        native_row_each(s->records, &its, read_native, s, NULL);
    }
    json_object_clear(s->backups);
}

static void note_due(struct overview *s, int64_t now_ns)
{
    for (const struct ranked_node *node; (node = ranked_at(&s->clock, 0));) {
        struct place *p = RANKED_OF(node, struct place, clock);
        if (p->until_ns > now_ns)
            break;
        ranked_remove(&s->clock, &p->clock);
        p->is_timed = false;
        note_place(s, p);
    }
}

size_t overview_work(struct overview *s, size_t most, int64_t now_ns)
{
    if (s->replaced)
        read_all(s);
    note_backups(s);
    note_due(s, now_ns);
    for (; most && s->noted; most--) {
        struct place *p = s->noted;
        s->noted = p->next_noted;
        if (!s->noted)
            s->noted_end = &s->noted;
        p->noted = false;
        s->n_noted--;
        place_look(s, p, now_ns);
    }
    return s->n_noted;
}

bool overview_is_behind(const struct overview *s)
{
    return s->noted || s->replaced || json_object_size(s->backups);
}

uint64_t overview_looks_test(const struct overview *s)
{
    return s->looks;
}

/* ---- what is read ---- */

unsigned overview_volumes(const struct overview *s, enum volume_state state)
{
    return s->states[state];
}

const char *overview_volume_at(const struct overview *s, size_t place)
{
    const struct ranked_node *node = ranked_at(&s->need, place);
    return node ? RANKED_OF(node, struct place, need)->id : NULL;
}

const char *overview_volume_after(const struct overview *s, const char *id)
{
    const struct place like = {.id = (char *)(uintptr_t)id};
    const struct ranked_node *node;
    size_t at = ranked_place(&s->by_id, &like.by_id);
    /* Of some there are native snapshots only, or they were not looked at yet. */
    while ((node = ranked_at(&s->by_id, at)) && (!BY_ID(node)->recorded || !strcmp(BY_ID(node)->id, id)))
        at++;
    return node ? BY_ID(node)->id : NULL;
}

const char *overview_distrusted_at(const struct overview *s, size_t place)
{
    const struct ranked_node *node = ranked_at(&s->distrusted, place);
    return node ? RANKED_OF(node, struct place, distrusted)->id : NULL;
}

const char *overview_failing_at(const struct overview *s, size_t place)
{
    const struct ranked_node *node = ranked_at(&s->failing, place);
    return node ? RANKED_OF(node, struct place, failing)->id : NULL;
}

void overview_class(const struct overview *s, unsigned number, unsigned *there, unsigned *gone)
{
    *there = number < s->n_classes ? s->there[number] : 0;
    *gone = number < s->n_classes ? s->gone[number] : 0;
}

bool overview_job_is_busy(const struct overview *s, unsigned number)
{
    return number >= s->n_jobs || s->jobs[number].volumes > 0;
}

struct overview_natives overview_natives(const struct overview *s)
{
    return s->natives;
}

const char *overview_due_at(const struct overview *s, size_t place)
{
    const struct ranked_node *node = ranked_at(&s->due, place);
    return node ? RANKED_OF(node, struct place, due)->id : NULL;
}

struct overview_counts overview_counts(const struct overview *s)
{
    return s->ops.counts;
}

const char *overview_queued_at(const struct overview *s, size_t place)
{
    return overview_ops_listed_at(&s->ops.queue, place);
}

const char *overview_running_at(const struct overview *s, size_t place)
{
    return overview_ops_listed_at(&s->ops.running, place);
}

const char *overview_troubled_at(const struct overview *s, size_t place)
{
    return overview_ops_troubled_at(&s->ops, place);
}

unsigned overview_place(const struct overview *s, const struct operation *op)
{
    return overview_ops_place(&s->ops, op);
}

struct overview_owed overview_owed(const struct overview *s, const char *repository)
{
    return overview_owed_in(s->ops.debtors, repository);
}
