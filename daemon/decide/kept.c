/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * kept.c - what a failed backup leaves for inspection (expose-keep-on-failure, PVC-11)
 *
 * The native snapshot and what was made of it stay until somebody releases them. That is noted in the record of the
 * native snapshot in the transaction that decides the outcome: there the intermediate changes hands, from the
 * operation's intent to that record, so that at no time nobody knows of it, nor two would remove it. After the release
 * the intermediate is removed first, by the sweep and again after a crash, and then the native snapshot is judged as
 * any other one. Of each volume the first failure is kept: a job that fails each night does not fill the pool.
 *
 * Crash points: engine-kept, engine-kept-released, engine-unexposed (in the child).
 */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"
#include "daemon/records/step-answer.h"
#include "daemon/records/opaque.h"

#include <string.h>

struct find_exposure {
    uint64_t id;
    json_t *doc;
    char alias[ALIAS_TEXT];
};

static int find_exposure(struct intent *i, void *arg)
{
    struct find_exposure *x = arg;
    if (strcmp(i->kind, "exposure") != 0)
        return 0;
    x->id = i->id;
    snprintf(x->alias, sizeof x->alias, "%s", i->name);
    json_set(&x->doc, i->doc);
    return 0;
}

struct other {
    const char *than;
    char alias[ALIAS_TEXT];
};

static int find_other(const struct native_row *n, void *arg)
{
    struct other *x = arg;
    if (n->kept.there && !n->kept.released && strcmp(n->id, x->than) != 0)
        snprintf(x->alias, sizeof x->alias, "%s", n->id);
    return 0;
}

/* One that is kept of the same volume; "": none. What was released is not any more, though it may not be removed yet.
 */
static struct other other_kept(struct decide *d, const struct native_row *n)
{
    const struct native_row_filter of_volume = {.volume_id = n->volume_id};
    struct other x = {.than = n->id};
    native_row_each(d->records, &of_volume, find_other, &x, NULL);
    return x;
}

void kept_note(struct decide *d, const struct operation *op, struct native_row *n)
{
    struct find_exposure x = {.id = 0};
    const struct backup *b = backup_peek(d->records, op->parent);
    if (!op->policy->expose_keep_on_failure || !op->expose_alias[0] || n->state == NATIVE_CREATING || n->kept.there)
        return;
    if (b && b->deleting[0]) /* with all that it owns */
        return;
    const struct other other = other_kept(d, n);
    if (other.alias[0]) {
        plan_log(d, LOG_LVL_INFO,
                 "%s: not kept for inspection: native snapshot %s of the volume is; `snapferry unhold %s` releases it",
                 operation_label(op), other.alias, other.alias);
        return;
    }
    records_intents(d->records, op->id, find_exposure, &x, NULL);
    if (!x.id && driver_is_raw(n->driver)) /* it has no snapshot, and nothing was made of it */
        return;
    n->kept.there = true;
    n->kept.at_ns = decide_now(d);
    str_set(&n->kept.operation, op->id);
    str_set(&n->kept.why, op->error.message);
    if (x.id) {
        str_set(&n->kept.alias, x.alias);
        const struct exposure_intent made = exposure_intent_read(x.doc);
        class_desc_take(&n->kept.into, class_desc_from_json(made.into));
        json_set(&n->kept.exposure, made.exposure);
        records_intent_resolve(d->records, x.id, NULL);
    }
    json_decref(x.doc);
    plan_log(d, LOG_LVL_WARNING, "%s: kept for inspection: native snapshot %s%s%s; `snapferry unhold %s` releases it",
             operation_label(op), n->id, x.id ? " with its intermediate " : "", x.alias, n->id);
    plan_crash_point(d, "engine-kept");
}

const struct native_row *kept_of(struct records *r, const struct operation *op)
{
    const struct native_row *n = op->native[0] ? native_row_peek(r, op->native) : NULL;
    return n && n->kept.there && !strcmp(n->kept.operation, op->id) ? n : NULL;
}

bool kept_release(struct decide *d, struct native_row *n)
{
    if (!n->kept.there || n->kept.released)
        return false;
    if (n->kept.alias[0])
        n->kept.released = true;
    else
        native_kept_clear(&n->kept);
    plan_crash_point(d, "engine-kept-released");
    plan_sweep_kept(d);
    return true;
}

/* ---- their intermediates ---- */

struct has {
    const char *alias;
    bool found;
};

static int match_kept(const struct native_row *n, void *arg)
{
    struct has *x = arg;
    x->found |= n->kept.there && !strcmp(n->kept.alias, x->alias);
    return 0;
}

bool kept_has(struct records *r, const char *alias)
{
    struct has x = {alias, false};
    native_row_each(r, NULL, match_kept, &x, NULL);
    return x.found;
}

/* As an intent to undo. */
static json_t *kept_intent(const struct native_row *n)
{
    json_t *doc = json_pack("{s:o}", "into", class_desc_to_json(n->kept.into));
    if (doc && n->kept.exposure)
        json_object_set(doc, "exposure", n->kept.exposure);
    return json_pack("{s:I,s:s,s:s,s:o}", "id", (json_int_t)n->seq, "kind", "exposure", "name", n->kept.alias, "doc",
                     doc);
}

static int add_released(const struct native_row *n, void *arg)
{
    return n->kept.there && n->kept.released ? json_array_append_new(arg, kept_intent(n)) : 0;
}

json_t *kept_released(struct records *r)
{
    json_t *list = json_array();
    native_row_each(r, NULL, add_released, list, NULL);
    if (json_array_size(list))
        return list;
    json_decref(list);
    return NULL;
}

struct removed {
    struct decide *decide;
    const struct step_answer *answer;
    bool any;
};

static int note_removed(const struct native_row *row, void *arg)
{
    struct removed *x = arg;
    const struct step_item *items = x->answer->intents.v, *answer = NULL;
    if (!row->kept.there || !row->kept.released)
        return 0;
    for (unsigned i = 0; i < x->answer->intents.n; i++)
        if (items[i].id == row->seq)
            answer = &items[i];
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    if (!answer || native_row_copy(&n, row) < 0)
        return 0;
    if (answer->error.code) {
        const char *why = answer->error.message;
        if (!strcmp(n.kept.error, why))
            return 0;
        str_set(&n.kept.error, why);
        plan_log(x->decide, LOG_LVL_WARNING, "intermediate %s of native snapshot %s cannot be removed, retrying: %s",
                 n.kept.alias, n.id, why);
    } else {
        plan_log(x->decide, LOG_LVL_INFO,
                 "intermediate %s of native snapshot %s, which was kept for inspection, is "
                 "removed",
                 n.kept.alias, n.id);
        native_kept_clear(&n.kept);
        x->any = true;
    }
    return native_row_write(x->decide, &n);
}

bool kept_removed(struct decide *d, const json_t *out)
{
    CLEANUP(step_answer_clear) struct step_answer answer;
    struct removed x = {d, &answer, false};
    step_answer_init(&answer);
    if (step_answer_load(&answer, out) < 0)
        return false; /* the intermediates are removed once more */
    native_row_each(d->records, NULL, note_removed, &x, NULL);
    return x.any;
}

json_t *native_removal(const struct native_row *n)
{
    json_t *item = json_pack("{s:s,s:o,s:o}", "alias", n->id, "class", class_desc_to_json(n->klass), "native",
                             native_desc_to_json(n->native));
    if (item && n->kept.there && n->kept.alias[0])
        json_object_set_new(item, "kept", kept_intent(n));
    if (item && native_row_awaited(n)) /* its storage is not known */
        jset_bool(item, "unseen", true);
    if (item && n->bookmark)
        jset_bool(item, "bookmark", true);
    return item;
}

json_t *native_pruning(const struct native_row *n)
{
    json_t *item = native_removal(n);
    if (item && n->bookmark && n->cbt_parent && n->state == NATIVE_REMOVING)
        jset_bool(item, "leave_bookmark", true);
    if (item && n->bookmark && n->state == NATIVE_MISSING && n->why_removed[0] && !native_is_foreign(n))
        jset_bool(item, "only_bookmark", true); /* it was removed, and need not be searched for */
    return item;
}
