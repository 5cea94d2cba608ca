/* SPDX-License-Identifier: GPL-2.0-or-later */
/* run-records.c - outcomes of backups are written into the repository, and listed (AO-16 to AO-18) */
#include "daemon/mover/agent/listing.h"

#include "base/units.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/mover/backup-records.h"

#include <errno.h>

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

struct record_list {
    struct run_context *run;
    struct listing *list;
    bool put; /* the second walk */
    int rc;
};

/* In order of their time, as snapshots: rows that are made of them are listed by their number. */
static int record_one(const struct manifest *m, void *arg)
{
    struct record_list *x = arg;
    if (atomic_load(&x->run->cancel->requested))
        return x->rc = -ECANCELED;
    json_t *j CLEANUP(json_decrefp) = json_pack("{s:s, s:I, s:O, s:O}", "id", m->id, "modifiedNs",
                                                (json_int_t)m->modified_ns, "labels", m->labels, "data", m->data);
    if (!j)
        return x->rc = -ENOMEM;
    return x->rc = x->put ? listing_put(x->list, m->modified_ns, m->id, j)
                          : listing_note(x->list, m->modified_ns, m->id, j);
}

static int records_walk(struct record_list *x, struct repo *r, const char *node, int64_t stale_ns,
                        struct backup_records_counts *n, struct err *e)
{
    int rc = backup_records_each(r, node, stale_ns, record_one, x, n, e);
    if (x->rc == -ECANCELED)
        return err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted while the records of backups were listed");
    if (x->rc < 0)
        return x->rc == -ENOMEM ? err_nomem(e) : err_set(e, ERR_GENERIC, -x->rc, "cannot list the records of backups");
    return rc;
}

/* Of "node", this one if none is named. Provisional ones of others that were written before "stale_ns" are counted,
 * with "remove" they are removed first. */
int admin_records(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e)
{
    CLEANUP(listing_freep) struct listing *list = NULL;
    const char *node = json_string_value(json_object_get(step, "node"));
    const char *after = json_string_value(json_object_get(step, "after"));
    const json_int_t stale = json_integer_value(json_object_get(step, "stale_ns"));
    struct backup_records_counts n = {0};
    unsigned removed = 0;
    int rc = listing_new(&list, x, "records", after ? after : "", e);
    if (rc == 0 && stale > 0 && json_is_true(json_object_get(step, "remove")))
        rc = backup_records_remove_stale(r, x->job->node, stale, &removed, e);
    struct record_list l = {.run = x, .list = list};
    node = node && *node ? node : x->job->node;
    if (rc == 0)
        rc = records_walk(&l, r, node, stale, &n, e);
    if (rc == 0) {
        if (n.malformed && !(after && *after))
            log_warning("%u malformed record%s of backups passed over; the first: %s", n.malformed, plural(n.malformed),
                        n.why);
        listing_place(list);
        l.put = true;
        rc = records_walk(&l, r, node, stale, &(struct backup_records_counts){0}, e);
    }
    json_object_set_new(answer, "malformed", json_integer(n.malformed));
    json_object_set_new(answer, "other", json_integer(n.other));
    json_object_set_new(answer, "stale", json_integer(n.stale));
    json_object_set_new(answer, "removed", json_integer(removed));
    return rc < 0 ? rc : listing_end(list, answer, e);
}

void admin_records_tidy(struct run_context *x, struct repo *r, json_t *answer)
{
    struct err e = ERR_INIT;
    unsigned n = 0;
    if (backup_records_tidy(r, x->job->node, now_ns(), &n, &e) < 0)
        log_warning("records of backups without snapshots are left to the next expiry: %s", e.msg);
    json_object_set_new(answer, "records", json_integer(n));
}
