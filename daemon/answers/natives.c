/* SPDX-License-Identifier: GPL-2.0-or-later */
/* natives.c - native snapshots: which there are, and which are pruned when */
#include "daemon/answers/answers-impl.h"
#include "daemon/records/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *native_details(const struct native_row *n)
{
    static const char *const members[] = {
        "moved",  "moved_verified", "snapshot_only", "failed",      "effective_retain", "job",
        "driver", "adopted",        "remove_error",  "why_removed", "snapshot"};
    CLEANUP_JSON json_t *d = native_row_to_json(n);
    json_t *o = json_object();
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++)
        copy_member(o, members[i], d, members[i]);
    return o;
}

/* What is kept for inspection since its backup failed, and is removed once it is released. */
static void put_kept(json_t *o, const struct native_kept *k)
{
    if (!k->there)
        return;
    json_t *kept = json_object();
    jset_int(kept, "since_ns", k->at_ns);
    put_text(kept, "operation", k->operation);
    put_text(kept, "why", k->why);
    put_text(kept, "intermediate", k->alias);
    put_text(kept, "class", k->into->name);
    copy_member(kept, "path", k->exposure, "path");
    copy_member(kept, "mechanism", k->exposure, "mechanism");
    copy_member(kept, "size", k->exposure, "size");
    jset_bool(kept, "released", k->released);
    put_text(kept, "error", k->error);
    json_object_set_new(o, "kept", kept);
}

static json_t *native_document(const struct native_row *n)
{
    CLEANUP_JSON json_t *d = native_desc_to_json(n->native);
    json_t *o = json_object();
    jset_str(o, "alias", n->id);
    jset_str(o, "volume", n->volume->name[0] ? n->volume->name : n->volume_id);
    put_text(o, "volume_id", n->volume_id);
    put_text(o, "class", n->klass->name);
    put_text(o, "backup", n->parent);
    jset_str(o, "state", native_state_name(n->state));
    jset_int(o, "created_ns", n->native->created_ns ? n->native->created_ns : n->created_ns);
    copy_member(o, "size", d, "size");
    if (native_row_is_bookmark(n))
        jset_bool(o, "bookmark", true);
    else
        copy_member(o, "used", d, "used");
    jset_bool(o, "hold", n->hold.held);
    put_text(o, "note", n->hold.note);
    put_text(o, "handle", n->native->handle);
    put_kept(o, &n->kept);
    return o;
}

static void put_verdict(json_t *o, const struct native_facts *f)
{
    char reasons[160];
    jset_str(o, "reasons", native_reasons_text(f->reasons, reasons, sizeof reasons));
    jset_str(o, "why", f->why);
    jset_bool(o, "prune", f->prune);
    if (f->for_pool)
        jset_bool(o, "for_pool", true);
}

json_t *answer_native_planned(const struct native_row *n, const struct native_facts *fact)
{
    json_t *o = native_document(n);
    json_object_set_new(o, "details", native_details(n));
    if (fact)
        put_verdict(o, fact);
    return o;
}

/* Each is judged by the rules in force for its job, or those it was taken under: rows with the same ones need one plan.
 */
static bool same_rules(const struct native_row *a, const struct native_row *b)
{
    return a && a->policy == b->policy && (!a->policy->job_retain || !strcmp(a->job, b->job));
}

static void plan_in_force(const struct answer_facts *f, const struct native_row *n, struct native_facts *facts,
                          size_t count)
{
    struct native_rules rules;
    struct native_verdict v;
    CLEANUP(policy_unrefp) const struct policy *policy = native_policy(f->records, f->cfg, n, true);
    const json_t *ratio = json_object_get(f->pools, n->volume_id);
    native_rules(&rules, policy, n->job, ratio ? json_number_value(ratio) : -1, false, f->now_ns);
    rules.ended = volume_ended_why(f->records, f->cfg, n->volume_id);
    natives_note_jobs(f->records, f->cfg, &rules, facts, count);
    natives_plan(&rules, facts, count, &v);
}

json_t *answer_native(const struct answer_facts *f, const struct native_row *n)
{
    CLEANUP_FREE struct native_facts *facts = NULL;
    const struct native_facts *fact = NULL;
    size_t count = 0;
    if (natives_gather(f->records, n->volume_id, &facts, &count, NULL) < 0)
        return answer_native_planned(n, NULL);
    plan_in_force(f, n, facts, count);
    for (size_t i = 0; i < count && !fact; i++)
        fact = strcmp(facts[i].alias, n->id) ? NULL : &facts[i];
    return answer_native_planned(n, fact);
}

json_t *natives_of_volume(const struct answer_facts *f, const char *volume_id, json_t *text)
{
    CLEANUP_FREE struct native_facts *facts = NULL;
    const struct native_row *planned = NULL;
    json_t *list = json_array();
    size_t count = 0;
    natives_gather(f->records, volume_id, &facts, &count, NULL);
    for (size_t i = 0; i < count; i++) {
        const struct native_row *n = native_row_peek(f->records, facts[i].alias);
        if (n && !same_rules(planned, n))
            plan_in_force(f, planned = n, facts, count);
        if (!n)
            continue;
        json_array_append_new(list, answer_native_planned(n, &facts[i]));
        add_text(text, "Native snapshot %s: %s", n->id, facts[i].why);
    }
    return list;
}

/* ---- what is in no record ---- */

json_t *answer_orphan(const struct answer_orphan *x)
{
    json_t *o = json_object();
    jset_str(o, "kind", x->kind);
    jset_str(o, "alias", x->alias);
    jset_str(o, "class", x->klass);
    put_text(o, "volume", x->volume);
    put_text(o, "handle", x->handle);
    if (x->created_ns)
        jset_int(o, "created_ns", x->created_ns);
    if (x->due_ns)
        jset_int(o, "due_ns", x->due_ns);
    if (x->in_use)
        jset_bool(o, "in_use", true);
    if (x->stale)
        jset_bool(o, "stale", true);
    put_text(o, "error", x->error);
    put_text(o, "hint", x->hint);
    return o;
}

json_t *answer_orphans(const struct answer_orphan *v, unsigned n)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < n; i++)
        json_array_append_new(list, answer_orphan(&v[i]));
    return list;
}

/* ---- the list ---- */

struct native_page {
    const struct answer_facts *facts;
    const char *volume;
    size_t limit;
    json_t *list;
    uint64_t last; /* number of the last one */
    bool more;
};

/* 1: the page is full. */
static int add_native_line(const void *row, void *arg)
{
    const struct native_row *n = row;
    struct native_page *p = arg;
    CLEANUP_FREE struct native_facts *facts = NULL;
    size_t count = 0;
    if (*p->volume && strcmp(p->volume, n->volume_id) != 0 && strcmp(p->volume, n->volume->name) != 0)
        return 0;
    if (p->limit && json_array_size(p->list) >= p->limit) {
        p->more = true;
        return 1;
    }
    json_t *doc = native_document(n);
    if (natives_gather(p->facts->records, n->volume_id, &facts, &count, NULL) >= 0)
        plan_in_force(p->facts, n, facts, count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(facts[i].alias, n->id))
            put_verdict(doc, &facts[i]);
    p->last = n->seq;
    return json_array_append_new(p->list, doc) < 0 ? -ENOMEM : 0;
}

int answer_natives(const struct answer_facts *f, const struct answer_query *q, json_t **ret, struct err *e)
{
    const struct row_filter newest = {.newest_first = true, .before = q->before};
    struct native_page p = {.facts = f, .volume = q->volume, .limit = q->limit, .list = json_array()};
    int rc = row_each(f->records, ROW_NATIVE, &newest, add_native_line, &p, e);
    if (rc >= 0 && !json_array_size(p.list) && *q->volume)
        rc = volume_known(f->records, q->volume, e);
    *ret = rc < 0 ? NULL : json_pack("{s:O, s:b}", "natives", p.list, "more", (int)p.more);
    json_decref(p.list);
    if (*ret && f->orphans && !*q->volume && !q->before)
        json_object_set_new(*ret, "orphans", answer_orphans(f->orphans, f->n_orphans));
    if (*ret && p.more)
        jset_int(*ret, "next", (int64_t)p.last);
    return rc < 0 ? e->cls ? rc : err_nomem(e) : *ret ? 0 : err_nomem(e);
}

/* ---- the summary ---- */

#define NEXT_SHOWN 5

/* What the next backup of a volume prunes to make room for its own snapshot. Returns the first one; NULL: none. */
static const struct native_row *add_next(const struct answer_facts *f, const char *volume_id, json_t *list)
{
    CLEANUP_FREE struct native_facts *facts = NULL;
    const struct native_row *first = NULL, *row, *ret = NULL;
    struct native_rules rules;
    struct native_verdict v;
    size_t n = 0;
    natives_gather(f->records, volume_id, &facts, &n, NULL);
    for (size_t i = 0; i < n && !first; i++)
        if ((row = native_row_peek(f->records, facts[i].alias)) && row->state != NATIVE_MISSING)
            first = row;
    if (!first)
        return NULL;
    CLEANUP(policy_unrefp) const struct policy *policy = native_policy(f->records, f->cfg, first, true);
    native_rules(&rules, policy, first->job, -1, true, f->now_ns);
    natives_plan(&rules, facts, n, &v);
    for (size_t i = 0; i < n && json_array_size(list) < NEXT_SHOWN; i++)
        if (native_is_next(&facts[i]) && (row = native_row_peek(f->records, facts[i].alias))) {
            json_array_append_new(list, answer_native_planned(row, &facts[i]));
            ret = ret ? ret : row;
        }
    return ret;
}

static int see_oldest_kept(const struct native_row *n, void *arg)
{
    int64_t *oldest = arg;
    if (n->kept.there && (!*oldest || n->kept.at_ns < *oldest))
        *oldest = n->kept.at_ns;
    return 0;
}

/* What is kept for inspection. It is rare: only then is the oldest one looked for. */
static void put_inspection(const struct answer_facts *f, const struct overview_natives *x, json_t *o)
{
    int64_t oldest = 0;
    if (!x->kept)
        return;
    native_row_each(f->records, NULL, see_oldest_kept, &oldest, NULL);
    json_object_set_new(o, "inspection",
                        json_pack("{s:i,s:i,s:I,s:I}", "count", (int)x->kept, "intermediates", (int)x->intermediates,
                                  "since_ns", (json_int_t)oldest, "used", (json_int_t)x->kept_used));
}

static int add_unremoved(const struct native_row *n, void *arg)
{
    json_t *problems = arg;
    if (native_is_unremoved(n) && json_array_size(problems) < PROBLEMS_MAX)
        add_problem(problems, "warning",
                    n->remove_error.hint[0] ? n->remove_error.hint
                                            : "it is tried again with each look at the storage; see its reason",
                    "native snapshot %.8s of %s cannot be removed: %s", n->id,
                    n->volume->name[0] ? n->volume->name : n->volume_id, n->remove_error.message);
    return 0;
}

void add_native_problems(const struct answer_facts *f, json_t *problems)
{
    if (f->overview && overview_natives(f->overview).unremoved)
        native_row_each(f->records, NULL, add_unremoved, problems, NULL);
}

json_t *natives_summary(const struct answer_facts *f)
{
    char text[700], removing[40] = "";
    const struct overview_natives x = overview_natives(f->overview);
    json_t *next = json_array();
    const struct native_row *first = NULL;
    const char *volume;
    for (size_t i = 0; i < NEXT_SHOWN && json_array_size(next) < NEXT_SHOWN; i++) {
        const struct native_row *n = (volume = overview_due_at(f->overview, i)) ? add_next(f, volume, next) : NULL;
        first = first ? first : n;
    }
    if (x.removing)
        snprintf(removing, sizeof removing, "%u being removed; ", x.removing);
    if (!x.n)
        snprintf(text, sizeof text, "none");
    else if (!first)
        snprintf(text, sizeof text, "%s%s due for pruning", removing, x.removing ? "no others" : "none");
    else
        snprintf(text, sizeof text, "%s%u pruned by the next backups, first %.8s of %.400s", removing, x.next,
                 first->id, first->volume->name[0] ? first->volume->name : first->volume_id);
    json_t *o =
        json_pack("{s:i,s:I,s:o,s:s}", "count", (int)x.n, "used", (json_int_t)x.used, "next", next, "text", text);
    put_ns(o, "next_ns", first ? volume_next_ns(f, first->volume_id) : 0);
    put_inspection(f, &x, o);
    return o;
}
