/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * sweep.c - what is looked at without being asked: our objects on the storage, native snapshots, movers
 *
 * The storage sweep compares both sides: objects that carry our tag but that no record knows (orphans, removed after a
 * grace, or adopted where a backup refers to them), and records whose object is gone. It never touches what has no tag.
 */
#include "daemon/engine/facts.h"
#include "daemon/engine/orphans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SWEEP_STORAGE_S                                                                                                \
    600            /* listing a storage may cost; what the engine itself made is released by intents, not by this */
#define AGAIN_S 30 /* after something went missing: a file system may be mounted late */
#define AGAIN_FOR_S 1800

/* ---- the storage ---- */

/* A native snapshot without a record that is to have one again; part of `seen` below. */
struct adoption {
    const struct class_desc *klass;
    const struct native_desc *native;
};
/* What a look at the storage has found, until it is recorded. */
struct sweep {
    struct engine *engine;
    struct storage_seen seen;
    json_t *aliases; /* alias -> true, of everything on the storage of the classes that answered */
    json_t *classes; /* name -> true: those that answered */
    bool lately;     /* something is missing that was there not long ago */
    /* to be recorded */
    struct adoption *adopt;
    size_t n_adopt;
    bool used;                 /* native snapshots hold more, or less, alone than is recorded */
    struct strs back, missing; /* aliases of records */
};

static void sweep_free(struct sweep *w)
{
    storage_seen_clear(&w->seen);
    json_decref(w->aliases);
    json_decref(w->classes);
    free(w->adopt);
    strs_clear(&w->back);
    strs_clear(&w->missing);
    free(w);
}

/* NULL: no memory. */
static struct sweep *sweep_new(struct engine *g, const json_t *found)
{
    struct sweep *w = calloc(1, sizeof *w);
    size_t n = 1;
    if (!w)
        return NULL;
    w->engine = g;
    storage_seen_init(&w->seen);
    const int rc = storage_seen_load(&w->seen, found);
    const struct class_swept *k = w->seen.classes.v;
    for (unsigned i = 0; i < w->seen.classes.n; i++)
        n += k[i].natives.n;
    w->adopt = calloc(n, sizeof *w->adopt);
    w->aliases = json_object();
    w->classes = json_object();
    if (rc == 0 && w->adopt && w->aliases && w->classes)
        return w;
    sweep_free(w);
    return NULL;
}

/* What a scan that came before it has found of its data in the repository. Else that is not known: it counts as the
 * only copy until a scan says more. */
static void adopt_rebuilt(const struct operation *op, struct native_row *n)
{
    char source[SOURCE_TEXT];
    if (op->lost || op->gone_ns || op->unverified[0] || op->state != OP_COMPLETED || !op->result.snapshot[0])
        return;
    n->moved = n->moved_verified = true;
    str_set(&n->snapshot, op->result.snapshot);
    if (!op->result.as[0])
        return;
    operation_source(op, source);
    str_set(&n->source, source);
}

/* Its own operation is in the records: it was away with its file system, and is as it was. */
static void adopt_remembered(const struct operation *op, struct native_row *n)
{
    policy_set(&n->policy, op->policy);
    n->effective_retain = op->policy->snapshots_to_retain;
    n->job_retain = op->policy->job_retain;
    n->snapshot_only = !op->policy->move_data;
    str_set(&n->job, op->job);
    n->adopted = false;
    if (op->policy->move_data)
        adopt_rebuilt(op, n);
    n->failed = op->policy->move_data && op_state_terminal(op->state) && op->state != OP_COMPLETED;
}

/* Recorded again as it was found. `rebuilt`: of what the records had of it nothing is left. */
static int adopt(struct engine *g, const struct adoption *a, bool *rebuilt, struct err *e)
{
    const struct native_desc *found = a->native;
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct native_desc native;
    struct volume_desc volume;
    struct cfg_policy p = {.effective = NULL};
    const struct native_row *waits = native_row_peek(g->records, found->alias);
    if (waits && !native_row_awaited(waits))
        return 0;
    if (!waits)
        native_row_init(&n);
    else if (native_row_copy(&n, waits) < 0)
        return err_nomem(e);
    volume_desc_init(&volume);
    str_set(&n.id, found->alias);
    str_set(&n.parent, found->backup);
    str_set(&n.volume_id, found->volume_id);
    n.state = NATIVE_PRESENT;
    n.state_since_ns = decide_now(&g->d);
    class_desc_set(&n.klass, a->klass);
    if (native_desc_copy(&native, found) < 0)
        return err_nomem(e);
    native_desc_take(&n.native, native_desc_make(&native));
    str_set(&volume.id, found->volume_id);
    str_set(&volume.name, found->volume_name);
    volume.size = found->size;
    volume_desc_take(&n.volume, volume_desc_make(&volume));
    str_set(&n.driver, a->klass->driver);
    n.adopted = true;
    n.moved = false;
    const bool known_operation =
        found->operation[0] && operation_read(&g->d, found->operation, &op) == 0 && !strcmp(op.native, found->alias);
    const struct volume_row *known = volume_row_peek(g->records, n.volume_id);
    const struct cfg_subject s = {n.volume->name, known ? known->volume->labels : NULL};
    if (cfg_policy(g->cfg, s, NULL, &p, NULL) == 0) {
        struct policy policy;
        policy_from_cfg(&policy, &p);
        policy_take(&n.policy, policy_make(&policy));
        n.effective_retain = p.snapshots_to_retain;
        n.snapshot_only = !p.move_data;
        cfg_policy_clear(&p);
    }
    if (known_operation) {
        str_set(&n.operation, op.id);
        (op.rebuilt ? adopt_rebuilt : adopt_remembered)(&op, &n);
    }
    *rebuilt |= !known_operation || op.rebuilt;
    records_seq_at_least(g->records, found->seq, NULL);
    const int rc = waits ? native_row_save(g->records, &n, e) : native_row_add(g->records, &n, e);
    if (rc == 0)
        plan_log(&g->d, LOG_LVL_INFO, "native snapshot %s of %s was found on the storage and is recorded again%s",
                 found->alias, found->volume_name, n.hold.held ? "; it is held" : "");
    if (rc == 0 && n.snapshot_only)
        volume_backup_found(&g->d, n.volume_id);
    return rc;
}

struct find_intent {
    const char *alias;
    bool found;
};
static int match_intent(struct intent *i, void *arg)
{
    struct find_intent *x = arg;
    x->found |= !strcmp(i->name, x->alias);
    return 0;
}

static bool has_intent(struct engine *g, const char *alias)
{
    struct find_intent intent = {alias, false};
    records_intents(g->records, NULL, match_intent, &intent, NULL);
    return intent.found;
}

/* `bookmark`: of this native snapshot. */
static void list_orphan(struct engine *g, const struct class_desc *klass, const struct native_desc *native,
                        bool bookmark)
{
    const struct orphan x = {.kind = bookmark ? ORPHAN_BOOKMARK : ORPHAN_NATIVE,
                             .alias = native->alias,
                             .klass = klass->name,
                             .volume = native->volume_name,
                             .handle = native->handle,
                             .created_ns = native->created_ns,
                             .made = has_intent(g, native->alias),
                             .error = str_empty,
                             .hint = str_empty};
    orphans_add(g, &x,
                json_pack("{s:s,s:o,s:o,s:b}", "alias", native->alias, "class", class_desc_to_json(klass), "native",
                          native_desc_to_json(native), "bookmark", (int)bookmark));
}

/* A native without a record: adopted where its backup is known here or other records had it (a node that was installed
 * anew, records that were lost or are older than it), else it is an orphan that goes after its grace. When it is seen
 * does not matter: its class may be configured, and its file system mounted, long after the records began anew. */
static void unknown_native(struct sweep *w, const struct class_desc *klass, const struct native_desc *native)
{
    struct engine *g = w->engine;
    CLEANUP(backup_clear) struct backup b;
    backup_init(&b);
    if (!native->alias[0])
        return;
    const bool known_backup = native->backup[0] && backup_read(&g->d, native->backup, &b) == 0;
    if (known_backup || !records_may_have_given(g->records, native->seq, native->created_ns)) {
        w->adopt[w->n_adopt++] = (struct adoption){klass, native};
        return;
    }
    list_orphan(g, klass, native, false);
}

/* Records whose object is gone: the administrator removed it, or the storage lost it (RS-26). */
static int seen_again(struct engine *g, const char *alias, bool there, struct err *e)
{
    CLEANUP(native_row_clear) struct native_row n;
    if (native_row_read(&g->d, alias, &n) < 0 || n.state != (there ? NATIVE_MISSING : NATIVE_PRESENT))
        return 0;
    if (!there)
        plan_log(&g->d, LOG_LVL_WARNING, "native snapshot %s of %s is no longer found on the storage", n.id,
                 n.volume->name);
    const int rc = there ? native_seen_again(&g->d, &n) : native_row_become(&g->d, &n, NATIVE_MISSING);
    if (!n.snapshot_only || rc < 0)
        return rc;
    if (!there)
        return volume_backup_lost(&g->d, n.volume_id, n.parent,
                                  "was a native snapshot alone, which is no longer on the storage", e);
    volume_backup_found(&g->d, n.volume_id);
    return 0;
}

static int look_missing(const struct native_row *n, void *arg)
{
    struct sweep *w = arg;
    const int64_t since_ns = n->state_since_ns;
    if (n->state != NATIVE_PRESENT && n->state != NATIVE_MISSING)
        return 0;
    if (!json_object_get(w->classes, n->klass->name) || driver_is_raw(n->driver))
        return 0;
    /* Made while the storage was looked at (a plugin may take its time): whoever looked may have come too early. */
    if (since_ns >= w->engine->looked_ns && since_ns <= now_ns()) /* else the clock was set back since */
        return 0;
    const bool there = json_object_get(w->aliases, n->id) != NULL, changed = there != (n->state == NATIVE_PRESENT);
    if (changed)
        strs_add(there ? &w->back : &w->missing, n->id);
    w->lately |=
        !there && !native_row_is_bookmark(n) && (changed || llabs(now_ns() - since_ns) < AGAIN_FOR_S * NS_PER_S);
    return 0;
}

/* What a native holds alone grows while its volume is written. */
static bool used_is_new(const struct engine *g, const struct native_desc *native)
{
    const struct native_row *n = native_row_peek(g->records, native->alias);
    return native->used >= 0 && n && !is_none(n->native) && n->native->used != native->used;
}

static int write_used(struct engine *g, const char *alias, int64_t used, struct err *e)
{
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    struct native_desc desc;
    if (native_row_read(&g->d, alias, &n) < 0 || is_none(n.native) || native_desc_copy(&desc, n.native) < 0)
        return 0;
    desc.used = used;
    native_desc_take(&n.native, native_desc_make(&desc));
    return native_row_save(g->records, &n, e);
}

static int write_storage(struct decide *d, void *arg, struct err *e)
{
    const struct sweep *w = arg;
    struct engine *g = w->engine;
    const struct class_swept *k = w->seen.classes.v;
    int rc = 0;
    bool rebuilt = false;
    (void)d;
    for (size_t i = 0; rc >= 0 && i < w->n_adopt; i++)
        rc = adopt(g, &w->adopt[i], &rebuilt, e);
    if (rebuilt)
        records_are_rebuilt(g);
    for (unsigned i = 0; w->used && i < w->seen.classes.n; i++) {
        const struct native_desc *native = k[i].natives.v;
        for (unsigned j = 0; rc >= 0 && j < k[i].natives.n; j++)
            if (used_is_new(g, &native[j]))
                rc = write_used(g, native[j].alias, native[j].used, e);
    }
    for (unsigned i = 0; rc >= 0 && i < w->back.n; i++)
        rc = seen_again(g, w->back.v[i], true, e);
    for (unsigned i = 0; rc >= 0 && i < w->missing.n; i++)
        rc = seen_again(g, w->missing.v[i], false, e);
    return rc;
}

static void storage_written(const struct err *e, void *arg)
{
    struct sweep *w = arg;
    if (e->cls && !w->engine->stopping)
        log_warning("native snapshots on the storage: cannot be recorded: %s", e->msg);
    sweep_free(w);
}

/* A row that was removed while the storage was listed: the list may still have what is gone. */
void sweep_row(struct engine *g, enum row_kind k, const char *id, const void *was, const void *now)
{
    if (g->orphans_running && k == ROW_NATIVE && was && !now)
        strs_add(&g->removed, id);
}

static bool was_removed(const struct engine *g, const char *alias)
{
    for (unsigned i = 0; i < g->removed.n; i++)
        if (!strcmp(g->removed.v[i], alias))
            return true;
    return false;
}

static void sort_out_native(struct sweep *w, const struct class_desc *klass, const struct native_desc *native)
{
    struct engine *g = w->engine;
    if (was_removed(g, native->alias))
        return;
    const bool again = json_object_get(w->aliases, native->alias) != NULL;
    const struct native_row *known = native_row_peek(g->records, native->alias);
    json_object_set_new(w->aliases, native->alias, json_true());
    if (!again && known && native_row_awaited(known))
        w->adopt[w->n_adopt++] = (struct adoption){klass, native};
    else if (!again && !known)
        unknown_native(w, klass, native);
    else
        w->used |= used_is_new(g, native);
}

/* One that no record knows serves nobody. */
static void sort_out_bookmark(struct sweep *w, const struct class_desc *klass, const struct native_desc *of)
{
    struct engine *g = w->engine;
    if (was_removed(g, of->alias) || native_row_peek(g->records, of->alias) || json_object_get(w->aliases, of->alias))
        return;
    json_object_set_new(w->aliases, of->alias, json_true());
    list_orphan(g, klass, of, true);
}

static void sort_out_exposure(struct sweep *w, const struct class_desc *klass, const struct exposure_seen *x)
{
    struct engine *g = w->engine;
    if (json_object_get(w->aliases, x->alias))
        return;
    json_object_set_new(w->aliases, x->alias, json_true());
    if (has_intent(g, x->alias) || kept_has(g->records, x->alias))
        return;
    const struct orphan o = {.kind = ORPHAN_INTERMEDIATE,
                             .alias = x->alias,
                             .klass = klass->name,
                             .volume = str_empty,
                             .handle = x->handle,
                             .created_ns = x->created_ns,
                             .error = str_empty,
                             .hint = str_empty};
    orphans_add(g, &o,
                json_pack("{s:i,s:s,s:s,s:{s:o,s:o}}", "id", 0, "kind", "exposure", "name", x->alias, "doc", "into",
                          class_desc_to_json(klass), "exposure", fields_to_json(&exposure_seen_fields, x)));
}

static void sort_out_class(struct sweep *w, const struct class_swept *k)
{
    const struct native_desc *native = k->natives.v;
    const struct exposure_seen *exposure = k->exposures.v;
    const struct native_desc *bookmark = k->bookmarks.v;
    if (k->error.code) {
        orphans_unswept(w->engine, k->klass->name, k->error.message);
        return;
    }
    json_object_set_new(w->classes, k->klass->name, json_true());
    for (unsigned i = 0; i < k->natives.n; i++)
        sort_out_native(w, k->klass, &native[i]);
    for (unsigned i = 0; i < k->exposures.n; i++)
        sort_out_exposure(w, k->klass, &exposure[i]);
    for (unsigned i = 0; i < k->bookmarks.n; i++)
        sort_out_bookmark(w, k->klass, &bookmark[i]);
}

static void sort_out(struct sweep *w)
{
    struct engine *g = w->engine;
    const struct class_swept *k = w->seen.classes.v;
    orphans_begin(g);
    for (unsigned i = 0; i < w->seen.classes.n; i++)
        sort_out_class(w, &k[i]);
    native_row_each(g->records, NULL, look_missing, w, NULL);
    if (w->lately)
        g->orphans_ns = now_ns() - (SWEEP_STORAGE_S - AGAIN_S) * NS_PER_S;
    orphans_listed(g);
}

static void storage_swept(struct step_result *s, void *arg)
{
    struct engine *g = arg;
    struct sweep *w = NULL;
    struct err why = s->err;
    g->orphans_running = false;
    if (!why.cls && !(w = sweep_new(g, s->out)))
        err_nomem(&why);
    if (w) {
        sort_out(w);
    } else {
        err_wrap(&why, "the storage cannot be swept");
        log_warning("%s", why.msg);
        orphans_not_listed(g, &why);
    }
    if (orphans_asked(g)) { /* since it began */
        g->orphans_ns = 0;
        g->storage_wanted = true;
    }
    strs_clear(&g->removed);
    if (w) {
        if (w->n_adopt || w->used || w->back.n || w->missing.n)
            engine_request(g, write_storage, storage_written, w);
        else
            sweep_free(w);
        g->news.created = g->news.recovered = false; /* all has been looked for */
    }
    engine_kick(g);
}

/* Natives whose removal was decided but not done: by a crash, or because the storage refused. */
struct leftovers {
    struct engine *engine;
    json_t *items;
};
static int look_removing(const struct native_row *n, void *arg)
{
    struct leftovers *x = arg;
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    const char *by = n->operation;
    if (n->state != NATIVE_REMOVING)
        return 0;
    if (operation_read(&x->engine->d, by, &op) == 0 && !op_state_terminal(op.state))
        return 0; /* its own operation sees to it */
    return json_array_append_new(x->items, native_pruning(n));
}

static void leftovers_done(struct step_result *s, void *arg)
{
    struct engine *g = arg;
    g->leftovers_running = false;
    engine_record_removed(g, s);
}

/* ---- what was kept for inspection and is released ---- */

/* What is left of it is a native snapshot as any other one: it is judged now, and not with the next sweep. */
static void judge_all(struct engine *g)
{
    CLEANUP(request_args_clear) struct request_args all;
    request_args_init(&all);
    engine_native_prune(g, &all, NULL, NULL);
}

static int write_kept_removed(struct decide *d, void *arg, struct err *e)
{
    const struct engine *g = arg;
    (void)e;
    if (kept_removed(d, g->kept_out))
        plan_crash_point(d, "engine-kept-removed");
    return 0;
}

static void kept_recorded(const struct err *e, void *arg)
{
    struct engine *g = arg;
    g->kept_running = false;
    json_take(&g->kept_out, NULL);
    if (!e->cls)
        judge_all(g);
}

static void kept_undone(struct step_result *s, void *arg)
{
    struct engine *g = arg;
    if (s->err.cls) {
        g->kept_running = false;
        log_warning("what was kept for inspection cannot be removed yet: %s", s->err.msg);
        return;
    }
    json_take(&g->kept_out, json_incref(s->out));
    engine_request(g, write_kept_removed, kept_recorded, g);
}

static void sweep_kept(struct engine *g)
{
    CLEANUP_JSON json_t *list = g->kept_running ? NULL : kept_released(g->records);
    CLEANUP_JSON json_t *in = list ? json_pack("{s:O}", "intents", list) : NULL;
    if (in && step_start(g->steps, "remove what was kept for inspection", step_undo, in, 600, kept_undone, g, NULL,
                         NULL) == 0)
        g->kept_running = true;
}

void sweep_released(struct engine *g)
{
    sweep_kept(g);
    if (!g->kept_running)
        judge_all(g);
}

static void room_seen(struct step_result *s, void *arg)
{
    struct engine *g = arg;
    const struct room_found r = room_found_of(s->out);
    g->room_running = false;
    if (!s->err.cls)
        facts_room(g, (uint64_t)r.free, (uint64_t)r.total);
}

void sweep_room(struct engine *g)
{
    CLEANUP_JSON json_t *in = json_pack("{s:s}", "path", g->paths.state_dir);
    if (!g->room_running && step_start(g->steps, "look at the room of the state directory", step_room, in, 20,
                                       room_seen, g, NULL, NULL) == 0)
        g->room_running = true;
}

/* ---- movers ---- */

/* Unfinished, or its record cannot be read now: unknown is not absent. */
static bool may_have_a_mover(struct engine *g, const char *id)
{
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    const int rc = operation_read(&g->d, id, &op);
    return rc == 0 ? !op_state_terminal(op.state) : rc != -ENOENT;
}

/* Left by records that were lost, or by a daemon that died between an operation's end and what comes behind it. */
static void end_stray(struct engine *g, const struct mover_listed *l)
{
    struct err e = ERR_INIT;
    if (movers_has(g->movers, l->operation) || may_have_a_mover(g, l->operation))
        return;
    const int killed = movers_end_stray(g->movers, l, &e);
    if (killed < 0)
        log_warning("the mover of %s, which no unfinished operation has, cannot be ended: %s", l->operation, e.msg);
    if (killed > 0) {
        /* What a unit leaves can be removed once systemd has seen its end. */
        g->strays_ns = now_ns() - (SWEEP_STORAGE_S - AGAIN_S) * NS_PER_S;
        log_warning("the mover of %s was terminated: no unfinished operation of that name is recorded", l->operation);
    }
}

static void movers_found(struct step_result *s, void *arg)
{
    struct engine *g = arg;
    CLEANUP(movers_listed_clear) struct movers_listed found;
    g->strays_running = false;
    if (s->err.cls)
        log_debug("movers cannot be listed: %s", s->err.msg);
    movers_listed_init(&found);
    movers_listed_load(&found, s->out);
    const struct mover_listed *l = found.movers.v;
    for (unsigned i = 0; i < found.movers.n; i++)
        end_stray(g, &l[i]);
}

static int keep_result(const struct operation *op, void *arg)
{
    left_results_keep(arg, op->id);
    return 0;
}

/* Of what is unfinished in the records nothing is removed, and an end counts when it is durable: not during a turn. */
void sweep_results(struct engine *g)
{
    const struct operation_filter live = {.live = true};
    struct left_results *l = movers_left_results(g->movers);
    struct err e = ERR_INIT;
    if (!l)
        return;
    if (operation_each(g->records, &live, keep_result, l, &e) < 0) {
        log_warning("result files of operations that have ended stay: %s", e.msg);
        left_results_free(l);
        return;
    }
    const unsigned n = left_results_remove(l);
    if (n)
        log_info("%u result file%s of operations that have ended %s removed", n, n == 1 ? "" : "s",
                 n == 1 ? "was" : "were");
}

void sweep_movers(struct engine *g)
{
    CLEANUP_JSON json_t *in = json_pack("{s:s}", "path", g->paths.runtime_dir);
    g->results_wanted = true;
    if (g->strays_running || (g->strays_ns && now_ns() - g->strays_ns < SWEEP_STORAGE_S * NS_PER_S))
        return;
    if (step_start(g->steps, "look for stray movers", movers_list_step, in, 60, movers_found, g, NULL, NULL) == 0) {
        g->strays_running = true;
        g->strays_ns = now_ns();
    }
}

/* ---- all of it ---- */

void sweep_storage(struct engine *g)
{
    CLEANUP_JSON json_t *classes = json_array(), *items = json_array();
    const struct cfg_class *k;
    struct leftovers x = {g, items};
    struct err e = ERR_INIT;
    sweep_kept(g);
    /* One at a time: where storage takes longer than from one sweep to the next they would pile up. */
    if (!g->leftovers_running)
        native_row_each(g->records, NULL, look_removing, &x, NULL);
    if (json_array_size(items)) {
        CLEANUP_JSON json_t *in = json_pack("{s:O}", "items", items);
        g->leftovers_running =
            step_start(g->steps, "remove what was left", step_remove, in, 600, leftovers_done, g, NULL, NULL) == 0;
    }
    if (g->orphans_running || (g->orphans_ns && now_ns() - g->orphans_ns < SWEEP_STORAGE_S * NS_PER_S))
        return;
    g->orphans_ns = now_ns();
    /* Ages pass and pools fill without a backup: what is retained is looked at here too (RS-24, RS-30). */
    uint64_t natives = 0;
    if (native_row_count(g->records, NULL, &natives, NULL) == 0 && natives > 0)
        judge_all(g);
    for (unsigned i = 0; (k = cfg_class_at(g->cfg, i)); i++) {
        struct cfg_policy p = {.effective = NULL};
        if (!driver_by_name(k->driver))
            continue;
        json_array_append_new(classes, class_doc(g->cfg, k, &p));
    }
    CLEANUP_JSON json_t *in = json_pack("{s:O}", "classes", classes);
    if (json_array_size(classes) &&
        step_start(g->steps, "sweep the storage", step_storage, in, 600, storage_swept, g, NULL, &e) == 0) {
        g->orphans_running = true;
        g->looked_ns = g->orphans_ns;
        orphans_looking(g);
        return;
    }
    if (e.cls)
        log_warning("%s", e.msg);
    else
        err_set(&e, ERR_NOT_FOUND, 0, "no storage class is configured whose storage could be looked at");
    orphans_looking(g);
    orphans_not_listed(g, &e);
}

/* By a look at the storage that begins behind it. */
void engine_native_release(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    if (!orphans_ask(g, req, reply, arg))
        return;
    g->orphans_ns = 0;
    g->storage_wanted = true;
    engine_kick(g);
}
