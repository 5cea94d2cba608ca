/* SPDX-License-Identifier: GPL-2.0-or-later */
/* model-requests.h - a model begins as new, with operations of backups; include it behind model.h in one file */
#ifndef SNAPFERRY_TESTS_UNIT_MODEL_REQUESTS_H
#define SNAPFERRY_TESTS_UNIT_MODEL_REQUESTS_H

#include "tests/unit/model.h"

/* ---- as new ---- */

static void write_text(const char *dir, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/snapferry.ini", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void sets_new(void)
{
    json_t **sets[] = {&m.natives,  &m.exposures,     &m.targets,    &m.frozen,         &m.snapshots, &m.results,
                       &m.outcomes, &m.ended,         &m.last_ended, &m.last_completed, &m.answered,  &m.unprepared,
                       &m.late,     &m.pruned,        &m.refused,    &m.liars,          &m.read,      &m.recorded,
                       &m.given_up, &m.first_exposed, &m.whole,      &m.forced,         &m.bookmarks};
    json_decref(m.ending);
    m.ending = json_array();
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        json_decref(*sets[i]);
        *sets[i] = json_object();
    }
}

/* Empty records, made once: a copy takes less time than a schema. */
static void copy_empty_records(void)
{
    static char *empty;
    static size_t size;
    char path[128];
    struct stat st;
    snprintf(path, sizeof path, "%s/records.db", m.dir);
    if (!empty) {
        records_start();
        records_close(m.records);
        m.records = NULL;
        FILE *f = stat(path, &st) == 0 ? fopen(path, "r") : NULL;
        empty = f ? malloc((size_t)st.st_size) : NULL;
        if (!empty || fread(empty, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
            violated("the model", "%s cannot be read", path);
        size = (size_t)st.st_size;
        fclose(f);
        return;
    }
    FILE *f = fopen(path, "w");
    if (!f || fwrite(empty, 1, size, f) != size || fclose(f) != 0)
        violated("the model", "%s cannot be written", path);
}

static void forget_all(void)
{
    char path[128];
    static const char *const files[] = {"records.db", "records.db-wal", "records.db-shm", "holds"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", m.dir, files[i]);
        unlink(path);
    }
    while (m.n_works)
        drop_work(0);
    while (m.n_movers)
        drop_mover(&m.movers[0]);
    sets_new();
    copy_empty_records();
}

/* ---- requests ---- */

/* An operation of a backup as a request makes it. */
static void add_operation(const struct cfg *c, const char *backup, const char *volume, const char *name,
                          const char *pool, const char *job)
{
    CLEANUP(operation_clear) struct operation op;
    struct cfg_policy p = {.effective = NULL};
    struct policy policy;
    struct err e = ERR_INIT;
    operation_init(&op);
    if (cfg_policy(c, cfg_named(name), job[0] ? job : NULL, &p, &e) < 0)
        violated("the model", "%s", e.msg);
    const struct cfg_class *k = cfg_class_of(c, cfg_named(name)), *into = NULL;
    policy_from_cfg(&policy, &p);
    policy_take(&op.policy, policy_make(&policy));
    class_desc_take(&op.own, class_from_cfg(c, k, &p));
    if (p.backup_storage_class[0] && (into = cfg_class(c, p.backup_storage_class)) && into != k)
        class_desc_take(&op.into, class_from_cfg(c, into, &p));
    cfg_policy_clear(&p);
    str_setf(&op.id, "up-%s.%s", backup, volume);
    str_set(&op.parent, backup);
    str_set(&op.volume_id, volume);
    op.state = OP_QUEUED;
    op.kind = KIND_BACKUP;
    str_set(&op.job, job);
    struct volume_desc v;
    volume_desc_init(&v);
    str_set(&v.name, name);
    str_set(&v.id, volume);
    str_set(&v.pool, pool);
    v.size = 1 << 20;
    volume_desc_take(&op.volume, volume_desc_make(&v));
    operation_add(m.records, &op, NULL);
    volume_note(&m.d, op.volume, k->name, NULL, NULL);
}

#endif
