/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * sweep.c - what is looked at without being asked: our objects on the storage, native snapshots, movers
 *
 * The storage sweep compares both sides: objects that carry our tag but that no record knows (orphans, removed after a
 * grace, or adopted where a backup refers to them), and records whose object is gone. It never touches what has no tag.
 */
#include "daemon/engine/facts.h"

#include <errno.h>
#include <string.h>

#define SWEEP_STORAGE_S                                                                                                \
    600            /* listing a storage may cost; what the engine itself made is released by intents, not by this */
#define AGAIN_S 30 /* after something went missing: a file system may be mounted late */
#define AGAIN_FOR_S 1800

/* ---- the storage ---- */

struct seen {
    json_t *aliases; /* alias -> true, of everything on the storage of the classes that answered */
    json_t *drivers; /* class name -> true: those that answered */
    /* to be recorded */
    json_t *adopt;   /* [{"class", "native"}] */
    json_t *used;    /* alias -> bytes that it holds alone */
    json_t *changed; /* alias -> whether it is there */
};

static bool expired(struct engine *g, int64_t created)
{
    return now_ns() - created > cfg_daemon(g->cfg)->orphan_grace_s * NS_PER_S;
}

/* Recorded again as it was found. */
static int adopt(struct engine *g, const json_t *klass, const json_t *native, struct err *e)
{
    const json_t *tag = jobj(native, "tag") ? jobj(native, "tag") : native;
    const char *alias = jstr(tag, "alias");
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    struct volume_desc volume;
    struct cfg_policy p = {.effective = NULL};
    if (native_row_peek(g->records, alias))
        return 0;
    native_row_init(&n);
    volume_desc_init(&volume);
    str_set(&n.id, alias);
    str_set(&n.parent, jstr(tag, "backup"));
    str_set(&n.volume_id, jstr(tag, "volume_id"));
    n.state = NATIVE_PRESENT;
    class_desc_take(&n.klass, class_desc_from_json(klass));
    native_desc_take(&n.native, native_desc_from_json(native));
    str_set(&volume.id, jstr(tag, "volume_id"));
    str_set(&volume.name, jstr(tag, "volume_name"));
    volume.size = jint(native, "size");
    volume_desc_take(&n.volume, volume_desc_make(&volume));
    str_set(&n.driver, jstr(klass, "driver"));
    n.adopted = true;
    /* Whether its data is in a repository is not known: it counts as the only copy until a scan says more. */
    n.moved = false;
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
    records_seq_at_least(g->records, (uint64_t)jint(tag, "seq"), NULL);
    const int rc = native_row_add(g->records, &n, e);
    if (rc == 0)
        plan_log(&g->d, LOG_LVL_INFO, "native snapshot %s of %s was found on the storage and is recorded again", alias,
                 jstr(tag, "volume_name"));
    return rc;
}

/* A native without a record: adopted where its backup is known here or it was the volume's only one (a node that was
 * installed anew), else it is an orphan that goes after its grace. */
static void unknown_native(struct engine *g, const json_t *klass, json_t *native, struct seen *seen, json_t *remove)
{
    const json_t *tag = jobj(native, "tag") ? jobj(native, "tag") : native;
    const char *alias = jstr(tag, "alias");
    CLEANUP(backup_clear) struct backup b;
    backup_init(&b);
    if (!alias[0])
        return;
    bool known_backup = jstr(tag, "backup")[0] && backup_read(&g->d, jstr(tag, "backup"), &b) == 0;
    if (known_backup || g->news.created || g->news.recovered) {
        json_array_append_new(seen->adopt, json_pack("{s:O,s:O}", "class", (json_t *)klass, "native", native));
        return;
    }
    g->orphans++;
    json_array_append_new(g->orphan_list, json_pack("{s:s,s:s,s:s,s:s,s:I}", "kind", "native", "alias", alias, "volume",
                                                    jstr(tag, "volume_name"), "handle", jstr(native, "handle"),
                                                    "created_ns", (json_int_t)jint(tag, "created_ns")));
    if (expired(g, jint(tag, "created_ns")))
        json_array_append_new(remove,
                              json_pack("{s:s,s:O,s:O}", "alias", alias, "class", (json_t *)klass, "native", native));
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

static void orphans_removed(struct step_result *s, void *arg)
{
    struct engine *g = arg;
    const json_t *a;
    size_t i;
    json_array_foreach(json_object_get(s->out, "items"), i, a) if (!jobj(a, "error"))
        log_warning("native snapshot %s had the tag of this node and was in no record: removed", jstr(a, "alias"));
    json_array_foreach(json_object_get(s->out, "intents"), i, a) if (!jobj(a, "error"))
        log_warning("an intermediate that was in no record: removed");
    engine_kick(g);
}

/* Records whose object is gone: the administrator removed it, or the storage lost it (RS-26). */
struct missing {
    struct engine *engine;
    const struct seen *seen;
    bool lately; /* something is missing that was there not long ago */
};
static int seen_again(struct engine *g, const char *alias, bool there, struct err *e)
{
    CLEANUP(native_row_clear) struct native_row n;
    if (native_row_read(&g->d, alias, &n) < 0 || n.state != (there ? NATIVE_MISSING : NATIVE_PRESENT))
        return 0;
    if (!there)
        plan_log(&g->d, LOG_LVL_WARNING, "native snapshot %s of %s is no longer on the storage", n.id, n.volume->name);
    const int rc = native_row_become(&g->d, &n, there ? NATIVE_PRESENT : NATIVE_MISSING);
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
    struct missing *m = arg;
    const int64_t since_ns = n->state_since_ns;
    if (n->state != NATIVE_PRESENT && n->state != NATIVE_MISSING)
        return 0;
    if (!json_object_get(m->seen->drivers, n->klass->name) || !strcmp(n->driver, "device"))
        return 0;
    /* Made while the storage was looked at (a plugin may take its time): whoever looked may have come too early. */
    if (since_ns >= m->engine->looked_ns)
        return 0;
    const bool there = json_object_get(m->seen->aliases, n->id) != NULL,
               changed = there != (n->state == NATIVE_PRESENT);
    if (changed)
        json_object_set_new(m->seen->changed, n->id, json_boolean(there));
    m->lately |= !there && (changed || now_ns() - since_ns < AGAIN_FOR_S * NS_PER_S);
    return 0;
}

/* What a native holds alone grows while its volume is written. */
static void note_used(struct engine *g, const json_t *native, struct seen *seen)
{
    const json_t *tag = jobj(native, "tag") ? jobj(native, "tag") : native;
    json_t *used = json_object_get(native, "used");
    const struct native_row *n = native_row_peek(g->records, jstr(tag, "alias"));
    if (json_is_integer(used) && n && !is_none(n->native) && n->native->used != json_integer_value(used))
        json_object_set(seen->used, n->id, used);
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

static int write_storage(struct engine *g, const json_t *doc, struct err *e)
{
    const char *alias;
    json_t *v;
    size_t i;
    int rc = 0;
    json_array_foreach(jarr(doc, "adopt"), i, v) if (rc >= 0) rc = adopt(g, jobj(v, "class"), jobj(v, "native"), e);
    json_object_foreach(jobj(doc, "used"), alias, v) if (rc >= 0) rc = write_used(g, alias, json_integer_value(v), e);
    json_object_foreach(jobj(doc, "changed"), alias, v) if (rc >= 0) rc = seen_again(g, alias, json_is_true(v), e);
    return rc;
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

static void sort_out_class(struct engine *g, const json_t *answer, struct seen *seen, json_t *remove, json_t *undo)
{
    const json_t *klass = jobj(answer, "class");
    json_t *v;
    size_t i;
    if (jobj(answer, "error")) {
        log_debug("class \"%s\" cannot be swept: %s", jstr(klass, "name"), jstr(jobj(answer, "error"), "message"));
        return;
    }
    json_object_set_new(seen->drivers, jstr(klass, "name"), json_true());
    json_array_foreach(json_object_get(answer, "natives"), i, v)
    {
        const json_t *tag = jobj(v, "tag") ? jobj(v, "tag") : v;
        CLEANUP(native_row_clear) struct native_row n;
        native_row_init(&n);
        const char *alias = jstr(tag, "alias");
        if (was_removed(g, alias))
            continue;
        bool again = json_object_get(seen->aliases, alias) != NULL;
        json_object_set_new(seen->aliases, alias, json_true());
        if (!again && native_row_read(&g->d, alias, &n) < 0)
            unknown_native(g, klass, v, seen, remove);
        else
            note_used(g, v, seen);
    }
    json_array_foreach(json_object_get(answer, "exposures"), i, v)
    {
        struct find_intent x = {jstr(v, "alias"), false};
        if (json_object_get(seen->aliases, x.alias))
            continue;
        json_object_set_new(seen->aliases, x.alias, json_true());
        records_intents(g->records, NULL, match_intent, &x, NULL);
        if (x.found || kept_has(g->records, x.alias))
            continue;
        g->orphans++;
        json_array_append_new(g->orphan_list,
                              json_pack("{s:s,s:s,s:s,s:I}", "kind", "intermediate", "alias", x.alias, "handle",
                                        jstr(v, "handle"), "created_ns", (json_int_t)jint(v, "created_ns")));
        if (expired(g, jint(v, "created_ns")))
            json_array_append_new(undo, json_pack("{s:i,s:s,s:s,s:{s:O,s:O}}", "id", 0, "kind", "exposure", "name",
                                                  x.alias, "doc", "into", (json_t *)klass, "exposure", v));
    }
}

/* Records that are new or were damaged: what the repositories have of this node is recorded again (RS-15). */
static void rebuild(struct engine *g)
{
    const struct cfg_repository *r;
    g->news.created = g->news.recovered = false;
    for (unsigned i = 0; (r = cfg_repository_at(g->cfg, i)); i++) {
        CLEANUP(request_args_clear) struct request_args req;
        request_args_init(&req);
        str_set(&req.repository, r->name);
        if (!strcmp(r->type, "filesystem"))
            engine_scan(g, &req, NULL, NULL);
    }
}

static void storage_seen(struct step_result *s, void *arg)
{
    struct engine *g = arg;
    CLEANUP_JSON json_t *remove = json_array(), *undo = json_array();
    struct seen seen = {json_object(), json_object(), json_array(), json_object(), json_object()};
    struct missing m = {g, &seen, false};
    const json_t *a;
    size_t i;
    g->orphans_running = false;
    if (s->err.cls) {
        log_warning("the storage cannot be swept: %s", s->err.msg);
    } else {
        g->orphans = 0;
        json_decref(g->orphan_list);
        g->orphan_list = json_array();
        json_array_foreach(json_object_get(s->out, "classes"), i, a) sort_out_class(g, a, &seen, remove, undo);
        native_row_each(g->records, NULL, look_missing, &m, NULL);
        if (json_array_size(seen.adopt) || json_object_size(seen.used) || json_object_size(seen.changed))
            engine_record(g, "native snapshots on the storage", write_storage,
                          json_pack("{s:O,s:O,s:O}", "adopt", seen.adopt, "used", seen.used, "changed", seen.changed));
        if (m.lately)
            g->orphans_ns = now_ns() - (SWEEP_STORAGE_S - AGAIN_S) * NS_PER_S;
        if (g->news.created || g->news.recovered)
            rebuild(g);
    }
    if (json_array_size(remove)) {
        CLEANUP_JSON json_t *in = json_pack("{s:O}", "items", remove);
        step_start(g->steps, "remove orphans", step_remove, in, 600, orphans_removed, g, NULL, NULL);
    }
    if (json_array_size(undo)) {
        CLEANUP_JSON json_t *in = json_pack("{s:O}", "intents", undo);
        step_start(g->steps, "remove orphans", step_undo, in, 600, orphans_removed, g, NULL, NULL);
    }
    strs_clear(&g->removed);
    json_decref(seen.aliases);
    json_decref(seen.drivers);
    json_decref(seen.adopt);
    json_decref(seen.used);
    json_decref(seen.changed);
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
    return json_array_append_new(x->items, native_removal(n));
}

static void leftovers_done(struct step_result *s, void *arg)
{
    engine_record_removed(arg, s);
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
    g->room_running = false;
    if (!s->err.cls)
        facts_room(g, (uint64_t)jint(s->out, "free"), (uint64_t)jint(s->out, "total"));
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
static void movers_listed(struct step_result *s, void *arg)
{
    struct engine *g = arg;
    const char *id;
    json_t *processes;
    g->strays_running = false;
    if (s->err.cls)
        log_debug("movers cannot be listed: %s", s->err.msg);
    json_object_foreach(jobj(s->out, "movers"), id, processes)
    {
        struct err e = ERR_INIT;
        if (movers_has(g->movers, id) || may_have_a_mover(g, id))
            continue;
        const int killed = movers_end_stray(g->movers, id, processes, &e);
        if (killed < 0)
            log_warning("the mover of %s, which no unfinished operation has, cannot be ended: %s", id, e.msg);
        if (killed > 0) {
            /* What a unit leaves can be removed once systemd has seen its end. */
            g->strays_ns = now_ns() - (SWEEP_STORAGE_S - AGAIN_S) * NS_PER_S;
            log_warning("the mover of %s was terminated: no unfinished operation of that name is recorded", id);
        }
    }
}

void sweep_movers(struct engine *g)
{
    CLEANUP_JSON json_t *in = json_pack("{s:s}", "runtime_dir", g->paths.runtime_dir);
    if (g->strays_running || (g->strays_ns && now_ns() - g->strays_ns < SWEEP_STORAGE_S * NS_PER_S))
        return;
    if (step_start(g->steps, "look for stray movers", movers_list_step, in, 60, movers_listed, g, NULL, NULL) == 0) {
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
    native_row_each(g->records, NULL, look_removing, &x, NULL);
    if (json_array_size(items)) {
        CLEANUP_JSON json_t *in = json_pack("{s:O}", "items", items);
        step_start(g->steps, "remove what was left", step_remove, in, 600, leftovers_done, g, NULL, NULL);
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
        step_start(g->steps, "sweep the storage", step_storage, in, 600, storage_seen, g, NULL, &e) == 0) {
        g->orphans_running = true;
        g->looked_ns = g->orphans_ns;
    } else if (e.cls) {
        log_warning("%s", e.msg);
    }
}
