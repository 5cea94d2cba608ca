/* SPDX-License-Identifier: GPL-2.0-or-later */
/* model-kept.h - what is kept of backups that failed: released, and tried again; include it behind model-requests.h */
#ifndef SNAPFERRY_TESTS_UNIT_MODEL_KEPT_H
#define SNAPFERRY_TESTS_UNIT_MODEL_KEPT_H

#include "tests/unit/model-requests.h"

/* `unhold` of what was kept for inspection. */
static bool release_kept(const char *alias)
{
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    return native_row_get(m.records, alias, &n, NULL) == 0 && kept_release(&m.d, &n) &&
           native_row_save(m.records, &n, NULL) == 0;
}

/* PVC-11: only what was released is removed. */
static int check_released(const struct native_row *n, void *arg)
{
    if (n->kept.there && !n->kept.released && !strcmp(n->kept.alias, arg))
        violated("PVC-11", "intermediate %s is removed, which native snapshot %s is kept for inspection with",
                 (char *)arg, n->id);
    return 0;
}

/*
 * The sweep removes the intermediates that were released. A daemon that dies (`dies`) has removed them and has not
 * recorded that.
 */
static void sweep_kept(bool dies)
{
    CLEANUP_JSON json_t *in = json_object(), *list = kept_released(m.records);
    const json_t *intent;
    size_t i;
    if (!list)
        return;
    json_array_foreach(list, i, intent)
        native_row_each(m.records, NULL, check_released, (void *)(uintptr_t)jstr(intent, "name"), NULL);
    json_object_set(in, "intents", list);
    CLEANUP_JSON json_t *out = apply_undo(in);
    if (dies)
        return;
    records_begin(m.records, NULL);
    kept_removed(&m.d, out);
    records_commit(m.records, NULL);
}

/* As the daemon looks at the storage before. */
static json_t *see_natives(const json_t *look)
{
    json_t *seen = json_array(), *v;
    size_t i;
    json_array_foreach(jarr(look, "aliases"), i, v) json_array_append_new(
        seen, json_pack("{s:O,s:s}", "alias", v, "state",
                        json_object_get(m.natives, json_string_value(v)) ? "present" : "missing"));
    return seen;
}

/* `retry`. *answer: a new reference. */
static int submit_retry(const char *backup, const char *volume, json_t **answer, struct err *e)
{
    CLEANUP_JSON json_t *look = retry_look(&m.d, backup, volume, e);
    *answer = NULL;
    if (!look)
        return -1;
    CLEANUP_JSON json_t *found = json_pack("{s:o}", "natives", see_natives(look));
    CLEANUP(step_answer_clear) struct step_answer seen;
    step_answer_init(&seen);
    step_answer_load(&seen, found);
    records_begin(m.records, NULL);
    const int rc = retry_submit(&m.d, backup, volume, &seen, answer, e);
    if (rc < 0)
        records_rollback(m.records);
    else if (records_commit(m.records, NULL) < 0)
        violated("the model", "a retry cannot be recorded");
    return rc;
}

#endif
