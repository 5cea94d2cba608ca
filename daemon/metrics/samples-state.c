/* SPDX-License-Identifier: GPL-2.0-or-later */
/* samples-state.c - the current state: operations, queue, slots, progress, movers; volumes and their natives */
#include "daemon/engine/orphans.h"
#include "daemon/metrics/samples.h"

#include <stdlib.h>

/* ---- operations ---- */

struct going {
    struct samples *samples;
    unsigned n[FACT_DIRECTIONS][FACT_STATES], runs[2][FACT_PHASES], slots_used;
    int64_t oldest[FACT_STATES];
    json_t *by_volume; /* direction and volume -> sums of what runs */
};

static void add_number(json_t *o, const char *member, double v)
{
    json_object_set_new(o, member, json_real(json_number_value(json_object_get(o, member)) + v));
}

/* Two restores of one volume are one series: their bytes and memory are added. */
static json_t *row_of(struct going *x, const char *direction, const char *volume)
{
    char key[600];
    snprintf(key, sizeof key, "%s %s", direction, volume);
    json_t *o = json_object_get(x->by_volume, key);
    if (!o) {
        o = json_object();
        jset_str(o, "direction", direction);
        jset_str(o, "volume", volume);
        json_object_set_new(x->by_volume, key, o);
    }
    return o;
}

static void running(struct going *x, const struct fact *f)
{
    struct engine *g = x->samples->engine;
    const struct live *l = live_find(&g->d, f->id);
    const char *direction = fact_directions[f->direction];
    json_t *row = row_of(x, direction, f->name ? f->name : "");
    if (f->direction < 3) {
        /* A mover without messages yet counts from its start, or from the daemon's: one that hangs there is visible,
         * too. */
        int64_t since = f->since_ns > g->started_ns ? f->since_ns : g->started_ns;
        double at = (double)(l && l->moved_ns > since ? l->moved_ns : since) / 1e9;
        if (at > json_number_value(json_object_get(row, "at")))
            json_object_set_new(row, "at", json_real(at));
    }
    if (l && l->progress && f->direction < 3) {
        if (jint(l->progress, "total") > 0)
            add_number(row, "expected", (double)jint(l->progress, "total"));
        add_number(row, "done", (double)jint(l->progress, "done"));
    }
    CLEANUP_JSON json_t *m = movers_to_json(g->movers, f->id);
    if (!m)
        return;
    const json_t *limits = jobj(m, "limits");
    add_number(row, "memory", (double)jint(m, "memory"));
    if (jbool(limits, "memoryEnforced") && jint(limits, "memoryMax") > 0)
        add_number(row, "limit", (double)jint(limits, "memoryMax"));
}

static void see_operation(struct fact *f, void *arg)
{
    struct going *x = arg;
    if (f->direction >= FACT_DIRECTIONS || f->state >= FACT_STATES)
        return;
    const unsigned state = f->waits ? 0 : f->state; /* as in status */
    x->n[f->direction][state]++;
    if (!x->oldest[state] || f->since_ns < x->oldest[state])
        x->oldest[state] = f->since_ns;
    const enum op_state is = fact_op_state(f);
    const bool moves = is == OP_STARTING || is == OP_RUNNING || is == OP_CANCELLING;
    x->slots_used += moves && f->direction < 2;
    if (moves)
        running(x, f);
}

static void see_run(struct fact *f, void *arg)
{
    struct going *x = arg;
    if (f->state < FACT_PHASES)
        x->runs[f->direction][f->state]++;
}

static void put_rows(struct samples *s, const json_t *rows)
{
    static const char *const names[][2] = {{"expected", "operation_expected_bytes"},
                                           {"done", "operation_done_bytes"},
                                           {"at", "operation_last_progress_timestamp_seconds"},
                                           {"memory", "mover_memory_bytes"},
                                           {"limit", "mover_memory_limit_bytes"}};
    const char *key;
    json_t *row;
    json_object_foreach((json_t *)rows, key, row)
    {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const json_t *v = json_object_get(row, names[i][0]);
            if (v)
                sample(s, names[i][1], json_number_value(v), "direction", jstr(row, "direction"), "volume",
                       jstr(row, "volume"), NULL);
        }
    }
}

void samples_of_operations(struct samples *s)
{
    const struct cfg_daemon *d = cfg_daemon(s->engine->cfg);
    CLEANUP_JSON json_t *rows = json_object();
    struct going x = {.samples = s, .by_volume = rows};
    facts_each(s->engine, ROW_OPERATION, see_operation, &x);
    facts_each(s->engine, ROW_BACKUP, see_run, &x);
    for (unsigned i = 0; i < FACT_DIRECTIONS; i++) {
        for (unsigned k = 0; k < FACT_STATES; k++)
            sample(s, "operations", x.n[i][k], "direction", fact_directions[i], "state", fact_states[k], NULL);
        sample(s, "queue_length", x.n[i][0], "direction", fact_directions[i], NULL);
    }
    for (unsigned k = 0; k < FACT_STATES; k++) {
        double age = x.oldest[k] ? (double)(s->now_ns - x.oldest[k]) / 1e9 : 0;
        sample(s, "operation_state_age_seconds", age > 0 ? age : 0, "state", fact_states[k], NULL);
    }
    for (unsigned i = 0; i < 2; i++)
        for (unsigned k = 0; k < FACT_PHASES; k++)
            sample(s, "backups", x.runs[i][k], "direction", fact_directions[i], "phase", fact_phases[k], NULL);
    sample(s, "slots", d->slots, NULL);
    sample(s, "slots_used", x.slots_used, NULL);
    sample(s, "slots_restore_reserved", d->restore_reserved, NULL);
    put_rows(s, rows);
}

/* ---- volumes ---- */

struct by_name {
    json_t *newest; /* name -> number of the newest record of that name */
    json_t *pools;  /* class and pool -> row */
    struct samples *samples;
    unsigned n[VOLUME_STATES];
};

/* A volume that was created again under its old name is another one: the newest is shown. */
static void see_name(struct fact *f, void *arg)
{
    struct by_name *x = arg;
    json_int_t have = json_integer_value(json_object_get(x->newest, f->name ? f->name : ""));
    if (f->name && !f->gone && f->used_here && (json_int_t)f->seq > have)
        json_object_set_new(x->newest, f->name, json_integer((json_int_t)f->seq));
}

static void put_pool(struct by_name *x, const struct fact *f)
{
    const json_t *ratio = json_object_get(x->samples->engine->pools, f->id);
    char key[600];
    if (!ratio || !f->pool || !f->pool[0])
        return;
    snprintf(key, sizeof key, "%s %s", f->klass, f->pool);
    json_t *row = json_object_get(x->pools, key);
    if (!row) {
        row = json_pack("{s:s,s:s}", "class", f->klass, "pool", f->pool);
        json_object_set_new(x->pools, key, row);
    }
    if (json_number_value(ratio) >= json_number_value(json_object_get(row, "ratio")))
        json_object_set_new(row, "ratio", json_real(json_number_value(ratio)));
}

static double unix_time(int64_t ns)
{
    return ns > 0 ? (double)ns / 1e9 : 0;
}

/* All but what depends on the time alone. */
static json_t *samples_of_volume(struct engine *g, const struct fact *f)
{
    struct samples own = {.engine = g, .list = json_array()}, *s = &own;
    const struct cfg_class *k = cfg_class(g->cfg, f->klass);
    sample(s, "volume_info", 1, "volume", f->name, "id", f->id, "class", f->klass, "driver", k ? k->driver : "", NULL);
    sample(s, "volume_last_success_timestamp_seconds", unix_time(f->last_success_ns), "volume", f->name, NULL);
    sample(s, "volume_last_attempt_timestamp_seconds", unix_time(f->last_end_ns), "volume", f->name, NULL);
    sample(s, "volume_last_snapshot_timestamp_seconds", unix_time(f->last_snapshot_ns), "volume", f->name, NULL);
    if (f->tried)
        sample(s, "volume_last_status", f->good, "volume", f->name, NULL);
    if (f->interval_s)
        sample(s, "volume_expected_interval_seconds", (double)f->interval_s, "volume", f->name, NULL);
    if (f->interval_s && f->expected_ns)
        sample(s, "volume_expected_since_timestamp_seconds", unix_time(f->expected_ns), "volume", f->name, NULL);
    sample(s, "volume_size_bytes", (double)f->size, "volume", f->name, NULL);
    if (f->allocated > 0)
        sample(s, "volume_allocated_bytes", (double)f->allocated, "volume", f->name, NULL);
    if (f->last_changed >= 0)
        sample(s, "volume_last_changed_bytes", (double)f->last_changed, "volume", f->name, NULL);
    return own.list;
}

static void see_volume(struct fact *f, void *arg)
{
    struct by_name *x = arg;
    struct samples *s = x->samples;
    if (!f->name || json_integer_value(json_object_get(x->newest, f->name)) != (json_int_t)f->seq)
        return;
    if (!f->samples)
        f->samples = samples_of_volume(s->engine, f);
    json_array_extend(s->list, f->samples);
    sample(s, "volume_protected", fact_volume_state(f, s->now_ns) == VOLUME_PROTECTED, "volume", f->name, NULL);
    put_pool(x, f);
}

static void count_volume(struct fact *f, void *arg)
{
    struct by_name *x = arg;
    x->n[fact_volume_state(f, x->samples->now_ns)]++;
}

void samples_of_volumes(struct samples *s)
{
    CLEANUP_JSON json_t *newest = json_object(), *pools = json_object();
    struct by_name x = {.newest = newest, .pools = pools, .samples = s};
    const char *key;
    json_t *row;
    facts_each(s->engine, ROW_VOLUME, see_name, &x);
    facts_each(s->engine, ROW_VOLUME, see_volume, &x);
    facts_each(s->engine, ROW_VOLUME, count_volume, &x);
    for (unsigned i = 0; i < VOLUME_STATES; i++)
        sample(s, "volumes", x.n[i], "state", volume_states[i], NULL);
    json_object_foreach(pools, key, row) sample(s, "pool_used_ratio", json_number_value(json_object_get(row, "ratio")),
                                                "class", jstr(row, "class"), "pool", jstr(row, "pool"), NULL);
}

/* ---- native snapshots ---- */

enum keep { IN_USE, HELD, INSPECTION, CBT_PARENT, RETAINED, KEEP_ON_FAILURE, SNAPSHOT_ONLY, ONLY_COPY, NONE, KEEPS };
static const char *const keep_names[KEEPS] = {
    "in_use", "held", "inspection", "cbt_parent", "retained", "keep_on_failure", "snapshot_only", "only_copy", "none"};

/* The strongest reason; before the first plan that of the record itself. */
static enum keep keep_of(const struct fact *f)
{
    static const struct {
        unsigned bit;
        enum keep keep;
    } order[] = {{NATIVE_IN_USE, IN_USE},
                 {NATIVE_HOLD, HELD},
                 {NATIVE_INSPECTION, INSPECTION},
                 {NATIVE_CBT_PARENT, CBT_PARENT},
                 {NATIVE_RETAINED, RETAINED},
                 {NATIVE_KEEP_ON_FAILURE, KEEP_ON_FAILURE},
                 {NATIVE_SNAPSHOT_ONLY, SNAPSHOT_ONLY},
                 {NATIVE_ONLY_COPY, ONLY_COPY}};
    if (f->hold && !(f->planned && f->reasons & NATIVE_IN_USE))
        return HELD;
    if (!f->planned)
        return f->inspection      ? INSPECTION
               : f->snapshot_only ? SNAPSHOT_ONLY
               : f->moved         ? RETAINED
               : f->failed        ? KEEP_ON_FAILURE
                                  : IN_USE;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (f->reasons & order[i].bit && (order[i].bit != NATIVE_HOLD || f->hold))
            return order[i].keep;
    return NONE;
}

struct of_class {
    const char *name;
    unsigned n[KEEPS], missing, there, told; /* told: of those there the driver says what they hold */
    int64_t oldest, used;
};
struct classes {
    struct of_class *of;
    unsigned n;
    unsigned inspected, intermediates; /* kept for inspection */
    int64_t kept_ns, kept_used;
};

static void see_kept(struct classes *x, const struct fact *f)
{
    if (!f->inspection)
        return;
    x->inspected++;
    x->intermediates += f->intermediate;
    x->kept_used += f->kept_used;
    if (!x->kept_ns || f->kept_ns < x->kept_ns)
        x->kept_ns = f->kept_ns;
}

static void see_native(struct fact *f, void *arg)
{
    struct classes *x = arg;
    see_kept(x, f);
    for (unsigned i = 0; i < x->n; i++) {
        struct of_class *c = &x->of[i];
        if (!f->klass || strcmp(c->name, f->klass))
            continue;
        if (f->gone) {
            c->missing += !f->bookmark;
        } else if (!f->state) {
            c->n[keep_of(f)]++;
            c->there++;
            c->told += f->used >= 0;
            c->used += f->used > 0 ? f->used : 0;
            if (!c->oldest || f->since_ns < c->oldest)
                c->oldest = f->since_ns;
        }
        return;
    }
}

static void put_class(struct samples *s, const struct of_class *c)
{
    struct cfg_policy p = {.effective = NULL};
    for (unsigned k = 0; k < KEEPS; k++)
        sample(s, "snapshots", c->n[k], "class", c->name, "reason", keep_names[k], NULL);
    sample(s, "snapshots_missing", c->missing, "class", c->name, NULL);
    if (c->told || !c->there)
        sample(s, "snapshot_used_bytes", (double)c->used, "class", c->name, NULL);
    if (c->oldest)
        sample(s, "snapshot_oldest_timestamp_seconds", (double)c->oldest / 1e9, "class", c->name, NULL);
    if (cfg_policy_of_class(s->engine->cfg, c->name, &p, NULL) == 0) {
        sample(s, "snapshot_limit", p.snapshots_to_retain, "class", c->name, NULL);
        sample(s, "snapshot_max", p.max_snapshots_per_volume, "class", c->name, NULL);
        cfg_policy_clear(&p);
    }
}

void samples_of_natives(struct samples *s)
{
    static const char *const kinds[] = {"native", "intermediate"};
    const struct cfg_class *k;
    struct classes x = {.n = 0};
    while (cfg_class_at(s->engine->cfg, x.n))
        x.n++;
    CLEANUP_FREE struct of_class *of = calloc(x.n + 1, sizeof *of);
    x.of = of;
    if (!of)
        return;
    for (unsigned n = 0; n < x.n && (k = cfg_class_at(s->engine->cfg, n)); n++)
        of[n].name = k->name;
    facts_each(s->engine, ROW_NATIVE, see_native, &x);
    for (unsigned n = 0; n < x.n; n++)
        put_class(s, &of[n]);
    sample(s, "inspection_objects", x.inspected, "kind", kinds[0], NULL);
    sample(s, "inspection_objects", x.intermediates, "kind", kinds[1], NULL);
    sample(s, "inspection_used_bytes", (double)x.kept_used, NULL);
    if (x.kept_ns)
        sample(s, "inspection_oldest_timestamp_seconds", (double)x.kept_ns / 1e9, NULL);
    sample(s, "orphans", orphans_count(s->engine, ORPHAN_NATIVE) + orphans_count(s->engine, ORPHAN_BOOKMARK), "kind",
           kinds[0], NULL);
    sample(s, "orphans", orphans_count(s->engine, ORPHAN_INTERMEDIATE), "kind", kinds[1], NULL);
}
