/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rows.h - rows of the records, made from the documents that are on disk; include it in one file of a test program */
#ifndef SNAPFERRY_TESTS_UNIT_ROWS_H
#define SNAPFERRY_TESTS_UNIT_ROWS_H

#include "base/json.h"
#include "daemon/records/records.h"

/* Room for a row of any kind. */
union any_row {
    struct row row;
    struct operation operation;
    struct backup backup;
    struct native_row native;
    struct volume_row volume;
    struct job_run job;
};

/* Fills an uninitialized row; takes over `doc`. `state` in the words of the disk. */
static inline void row_from_doc(union any_row *r, enum row_kind k, const char *id, const char *parent,
                                const char *volume_id, const char *state, json_t *doc)
{
    row_init(row_types[k].fields, r);
    fields_load(row_types[k].fields, r, doc);
    str_set(&r->row.id, id);
    str_set(&r->row.parent, parent);
    str_set(&r->row.volume_id, volume_id);
    row_set_state(k, r, enum_value(row_types[k].states, state));
    json_decref(doc);
}

/* Adds a row; *seq (NULL: not wanted) gets its number. */
static inline int row_add_doc(struct records *records, enum row_kind k, const char *id, const char *parent,
                              const char *volume_id, const char *state, json_t *doc, uint64_t *seq)
{
    union any_row r;
    row_from_doc(&r, k, id, parent, volume_id, state, doc);
    int rc = row_add(records, k, &r, NULL);
    if (seq)
        *seq = r.row.seq;
    row_clear(row_types[k].fields, &r);
    return rc;
}

/* Replaces members of a row's document (`members` is taken over) and its state (NULL: stays). */
static inline int row_update_doc(struct records *records, enum row_kind k, const char *id, const char *state,
                                 json_t *members)
{
    union any_row r, changed;
    int rc = row_get(records, k, id, &r, NULL);
    json_t *doc = rc < 0 ? NULL : fields_to_json(row_types[k].fields, &r);
    if (doc && members)
        json_object_update(doc, members);
    json_decref(members);
    if (rc < 0)
        return rc;
    row_from_doc(&changed, k, r.row.id, r.row.parent, r.row.volume_id,
                 state ? state : enum_name(row_types[k].states, row_state(k, &r)), doc);
    changed.row.seq = r.row.seq;
    changed.row.generation = r.row.generation;
    changed.row.created_ns = r.row.created_ns;
    changed.row.wake_ns = r.row.wake_ns;
    rc = row_save(records, k, &changed, NULL);
    row_clear(row_types[k].fields, &r);
    row_clear(row_types[k].fields, &changed);
    return rc;
}

#endif
