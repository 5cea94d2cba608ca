/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * expect.c - since when a job with a schedule names a volume
 *
 * The age of a backup tells whether one is overdue; where there is none yet, only this does. It is kept with the
 * volume, since the daemon may be started more often than a job runs.
 */
#include "daemon/engine/facts.h"

static void other_than_kept(struct fact *v, void *arg)
{
    if (!v->gone && (v->interval_s > 0) != (v->expected_ns > 0))
        json_array_append_new(arg, json_string(v->id));
}

static int write_expected(struct engine *g, const json_t *ids, struct err *e)
{
    const json_t *id;
    size_t i;
    int rc = 0;
    json_array_foreach(ids, i, id)
    {
        CLEANUP(volume_row_clear) struct volume_row v;
        volume_row_init(&v);
        if (rc < 0 || volume_row_read(&g->d, json_string_value(id), &v) < 0)
            continue;
        v.unscheduled_ns = v.expected_ns ? decide_now(&g->d) : 0;
        v.expected_ns = v.expected_ns ? 0 : decide_now(&g->d);
        rc = volume_row_save(g->records, &v, e);
    }
    return rc;
}

void volumes_expect(struct engine *g)
{
    CLEANUP_JSON json_t *change = json_array();
    facts_refresh(g);
    facts_each(g, ROW_VOLUME, other_than_kept, change);
    if (json_array_size(change) && !records_degraded(g->records))
        engine_record(g, "since when volumes should have backups", write_expected, json_incref(change));
}
