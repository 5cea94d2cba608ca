/* SPDX-License-Identifier: GPL-2.0-or-later */
/* run-records.c - outcomes of backups are written into the repository, and listed (AO-16 to AO-18) */
#include "daemon/mover/agent/agent.h"

#include "base/time.h"
#include "daemon/mover/backup-records.h"
#include "daemon/protocol/mover-wire.h"

#include <errno.h>

#define PAGE_ROOM (WIRE_LIST_MAX - (8u << 10))

int admin_record(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e)
{
    const json_t *records = json_object_get(step, "records");
    (void)x;
    if (!json_is_array(records))
        return err_set(e, ERR_USAGE, EINVAL, "admin step \"record\": records are not a list");
    int rc = backup_records_write(r, records, e);
    json_object_set_new(answer, "written", json_integer(rc == 0 ? (json_int_t)json_array_size(records) : 0));
    return rc;
}

/* Of "node", this one if none is named. Provisional ones of others that were written before "stale_ns" are counted,
 * with "remove" they are removed first. */
int admin_records(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e)
{
    const char *node = json_string_value(json_object_get(step, "node"));
    const char *after = json_string_value(json_object_get(step, "after"));
    const json_int_t stale = json_integer_value(json_object_get(step, "stale_ns"));
    struct backup_records_page p = {.records = NULL};
    unsigned removed = 0;
    int rc = 0;
    if (stale > 0 && json_is_true(json_object_get(step, "remove")))
        rc = backup_records_remove_stale(r, x->job->node, stale, &removed, e);
    if (rc == 0)
        rc = backup_records_page(r, node && *node ? node : x->job->node, after ? after : "", stale, PAGE_ROOM, &p, e);
    if (p.records)
        json_object_set_new(answer, "records", p.records);
    json_object_set_new(answer, "malformed", json_integer(p.malformed));
    json_object_set_new(answer, "other", json_integer(p.other));
    json_object_set_new(answer, "stale", json_integer(p.stale));
    json_object_set_new(answer, "removed", json_integer(removed));
    json_object_set_new(answer, "next", json_string(p.next));
    return rc;
}

void admin_records_tidy(struct run_context *x, struct repo *r, json_t *answer)
{
    struct err e = ERR_INIT;
    unsigned n = 0;
    if (backup_records_tidy(r, x->job->node, now_ns(), &n, &e) < 0)
        log_warning("records of backups without snapshots are left to the next expiry: %s", e.msg);
    json_object_set_new(answer, "records", json_integer(n));
}
