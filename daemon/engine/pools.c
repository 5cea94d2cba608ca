/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pools.c - how full the pools of volumes with native snapshots are
 *
 * Each sweep of the storage looks, which is too seldom for who asks for the status: a pool that has room again would be
 * called full for minutes, and one that is full would not. Who asks waits for a look, within the time that they wait
 * for the repositories (status-asked.c).
 */
#include "base/time.h"
#include "cfg/cfg.h"
#include "daemon/engine/engine-impl.h"

#define LOOK_S 60     /* between looks for who asks */
#define LOOK_FULL_S 1 /* likewise, while one is over its high-water mark */
#define LOOK_SHARE 20 /* a look that takes 1 s is made every 20 s at most */

struct pool_items {
    json_t *items, *seen;
};
static int pool_item(const struct native_row *n, void *arg)
{
    struct pool_items *x = arg;
    if (json_object_get(x->seen, n->volume_id) || n->state != NATIVE_PRESENT)
        return 0;
    json_object_set_new(x->seen, n->volume_id, json_true());
    return json_array_append_new(x->items, json_pack("{s:o,s:o}", "class", class_desc_to_json(n->klass), "volume",
                                                     volume_desc_to_json(n->volume)));
}

json_t *pools_to_ask(struct engine *g)
{
    CLEANUP_JSON json_t *seen = json_object();
    struct pool_items x = {json_array(), seen};
    native_row_each(g->records, NULL, pool_item, &x, NULL);
    return x.items;
}

json_t *pools_note(struct engine *g, const json_t *out, int64_t began_ns)
{
    CLEANUP(step_answer_clear) struct step_answer answer;
    json_t *ratios = json_object();
    step_answer_init(&answer);
    step_answer_load(&answer, out);
    const struct step_item *pool = answer.items.v;
    for (unsigned i = 0; i < answer.items.n; i++)
        if (pool[i].used_ratio >= 0)
            json_object_set_new(ratios, pool[i].volume_id, json_real(pool[i].used_ratio));
    if (began_ns >= g->pools_ns) {
        json_decref(g->pools);
        g->pools = json_deep_copy(ratios);
        g->pools_ns = began_ns;
    }
    return ratios;
}

static bool any_full(const struct engine *g)
{
    const char *id;
    json_t *ratio;
    json_object_foreach(g->pools, id, ratio)
    {
        const struct volume_row *v = volume_row_peek(g->records, id);
        const unsigned limit = v ? cfg_pool_high_water(g->cfg, volume_subject(v->volume)) : 0;
        if (limit && json_number_value(ratio) * 100 >= limit)
            return true;
    }
    return false;
}

static bool pools_due(const struct engine *g, int64_t now_ns)
{
    const int64_t period = (any_full(g) ? LOOK_FULL_S : LOOK_S) * NS_PER_S, share = g->pools_took_ns * LOOK_SHARE;
    return !g->pools_ns || g->pools_stale || now_ns - g->pools_ns >= (period > share ? period : share);
}

void pools_row(struct engine *g, enum row_kind k, const void *now)
{
    g->pools_stale |= k == ROW_NATIVE && !now;
}

static void pools_seen(struct step_result *s, void *arg)
{
    struct engine *g = arg;
    g->pools_running = false;
    g->pools_took_ns = boot_ns() - g->pools_began_ns;
    if (!s->err.cls && s->out)
        json_decref(pools_note(g, s->out, g->pools_began_ns));
    else
        g->pools_ns = g->pools_began_ns; /* not tried again at once */
    if (g->status_asked)
        sd_event_source_set_time_relative(g->status_due, 0);
}

void pools_look(struct engine *g)
{
    const int64_t now = boot_ns();
    if (g->pools_running || !pools_due(g, now))
        return;
    CLEANUP_JSON json_t *items = pools_to_ask(g);
    CLEANUP_JSON json_t *in = json_pack("{s:O}", "items", items);
    g->pools_began_ns = now;
    g->pools_stale = false;
    if (!json_array_size(items))
        json_decref(pools_note(g, NULL, now)); /* nobody's is looked at */
    else if (step_start(g->steps, "look at the pools", step_pool, in, 60, pools_seen, g, NULL, NULL) == 0)
        g->pools_running = true;
}
