/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * backup-records.c - outcomes of backups in the repository
 *
 * Crash points: backup-records-decided, backup-records-written.
 */
#include "daemon/mover/backup-records.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/json-bounds.h"
#include "base/time.h"
#include "daemon/protocol/backup-record.h"
#include "repo/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define METADATA_COMPRESSION 0x1101 /* zstd-fastest */
#define BATCH_MAX (8u << 20)        /* all records of one flush, compressed */
#define LABELS_MAX (8u << 10)       /* of one record, as compact JSON */

static const char *label(const json_t *labels, const char *name)
{
    const char *s = json_string_value(json_object_get(labels, name));
    return s ? s : "";
}

static bool is_name(const char *s, size_t max)
{
    size_t n = 0;
    for (; s[n]; n++)
        if ((unsigned char)s[n] < 0x20 || s[n] == 0x7f || n >= max)
            return false;
    return n > 0;
}

static bool is_part(const char *s)
{
    return *s && strlen(s) <= 3 && strspn(s, "0123456789") == strlen(s) && atoi(s) < RECORD_PARTS_MAX;
}

static bool is_provisional(const json_t *labels)
{
    return !strcmp(label(labels, RECORD_LABEL_STATE), RECORD_PROVISIONAL);
}

const char *backup_record_malformed(const json_t *labels, const json_t *data)
{
    const char *machine = label(labels, RECORD_LABEL_MACHINE);
    if (!is_name(label(labels, RECORD_LABEL_BACKUP), RECORD_ID_MAX))
        return "its label \"backup\" is no id";
    if (!is_name(label(labels, RECORD_LABEL_NODE), RECORD_NODE_MAX))
        return "its label \"node\" is no name";
    if (strlen(machine) != 32 || strspn(machine, "0123456789abcdef") != 32)
        return "its label \"machine\" is no id";
    if (!is_part(label(labels, RECORD_LABEL_PART)))
        return "its label \"part\" is no number";
    if (!is_provisional(labels) && strcmp(label(labels, RECORD_LABEL_STATE), RECORD_FINAL) != 0)
        return "its label \"state\" is neither provisional nor final";
    if (json_dumpb(labels, NULL, 0, JSON_COMPACT) > LABELS_MAX)
        return "its labels are too large";
    const size_t len = json_is_object(data) ? json_dumpb(data, NULL, 0, JSON_COMPACT) : 0;
    if (!len)
        return "it is no object";
    return len > RECORD_BYTES_MAX || json_values(data) > RECORD_VALUES_MAX ? "it is too large" : NULL;
}

/* ---- writing ---- */

static int record_add(struct manifest_batch *b, const json_t *record, struct err *e)
{
    json_t *labels = json_object_get(record, "labels"), *data = json_object_get(record, "data");
    const char *bad = backup_record_malformed(labels, data);
    char id[33];
    if (bad)
        return err_set(e, ERR_USAGE, EINVAL, "the record of a backup is not written: %s", bad);
    json_t *all CLEANUP(json_decrefp) = json_copy(labels);
    if (!all || json_object_set_new(all, "type", json_string(RECORD_TYPE)) < 0)
        return err_nomem(e);
    return manifest_batch_add(b, all, data, id, e);
}

struct same {
    const json_t *labels;
    bool found;
};
static int find_same(const struct manifest *m, void *arg)
{
    static const char *const names[] = {RECORD_LABEL_BACKUP, RECORD_LABEL_NODE, RECORD_LABEL_PART};
    struct same *x = arg;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(label(m->labels, names[i]), label(x->labels, names[i])) != 0)
            return 0;
    x->found = true;
    return 1;
}

int backup_record_provisional(struct repo *r, json_t *record, struct manifest_batch *b, bool *added, struct err *e)
{
    struct same x = {json_object_get(record, "labels"), false};
    *added = false;
    int rc = manifests_each(r, RECORD_TYPE, find_same, &x, e);
    if (rc < 0 || x.found)
        return rc < 0 ? rc : 0;
    rc = record_add(b, record, e);
    *added = rc == 0;
    return rc;
}

static int batch_flush(struct repo *r, struct manifest_batch *b, struct err *e)
{
    CLEANUP(session_freep) struct session *s = NULL;
    CLEANUP(put_scratch_freep) struct put_scratch *p = NULL;
    int rc = session_new(&s, r, &(struct session_opts){.no_adopt = true}, e);
    if (rc == 0)
        rc = put_scratch_new(&p, r, METADATA_COMPRESSION, BATCH_MAX, e);
    if (rc == 0)
        rc = manifest_batch_put(b, s, p, e);
    crash_point("backup-records-decided");
    if (rc == 0)
        rc = session_flush(s, e);
    crash_point("backup-records-written");
    return rc;
}

struct drop {
    struct manifest_batch *batch;
    json_t *backups;  /* "node\nid" -> anything: those that go */
    const char *node; /* whose stale ones stay */
    int64_t stale_ns; /* 0: not wanted */
    const char *all;  /* all of this node; NULL: of none */
    unsigned n;
    struct err *e;
};

static char *backup_key(const char *node, const char *backup, char out[RECORD_NODE_MAX + RECORD_ID_MAX + 8])
{
    snprintf(out, RECORD_NODE_MAX + RECORD_ID_MAX + 8, "%s\n%s", node, backup);
    return out;
}

static int drop_one(const struct manifest *m, void *arg)
{
    struct drop *x = arg;
    char key[RECORD_NODE_MAX + RECORD_ID_MAX + 8];
    const bool stale = x->stale_ns && is_provisional(m->labels) && m->modified_ns < x->stale_ns &&
                       strcmp(label(m->labels, RECORD_LABEL_NODE), x->node) != 0;
    backup_key(label(m->labels, RECORD_LABEL_NODE), label(m->labels, RECORD_LABEL_BACKUP), key);
    if (!stale && !json_object_get(x->backups, key) &&
        (!x->all || strcmp(label(m->labels, RECORD_LABEL_NODE), x->all) != 0))
        return 0;
    x->n++;
    return manifest_batch_delete(x->batch, m->id, x->e);
}

int backup_records_write(struct repo *r, const json_t *records, struct err *e)
{
    CLEANUP(manifest_batch_freep) struct manifest_batch *b = NULL;
    json_t *backups CLEANUP(json_decrefp) = json_object();
    char key[RECORD_NODE_MAX + RECORD_ID_MAX + 8];
    const json_t *v;
    size_t i;
    int rc = backups ? manifest_batch_new(&b, e) : err_nomem(e);
    json_array_foreach(records, i, v)
    {
        const json_t *labels = json_object_get(v, "labels");
        if (rc == 0)
            rc = record_add(b, v, e);
        backup_key(label(labels, RECORD_LABEL_NODE), label(labels, RECORD_LABEL_BACKUP), key);
        if (rc == 0 && json_object_set_new(backups, key, json_true()) < 0)
            rc = err_nomem(e);
    }
    struct drop x = {.batch = b, .backups = backups, .e = e};
    if (rc == 0)
        rc = manifests_each(r, RECORD_TYPE, drop_one, &x, e);
    return rc == 0 && json_array_size(records) ? batch_flush(r, b, e) : rc;
}

static int drop_these(struct repo *r, struct drop x, unsigned *removed, struct err *e)
{
    CLEANUP(manifest_batch_freep) struct manifest_batch *b = NULL;
    *removed = 0;
    int rc = manifest_batch_new(&b, e);
    x.batch = b;
    x.e = e;
    if (rc == 0)
        rc = manifests_each(r, RECORD_TYPE, drop_one, &x, e);
    if (rc == 0 && x.n)
        rc = batch_flush(r, b, e);
    if (rc == 0)
        *removed = x.n;
    return rc;
}

static int drop_all(struct repo *r, json_t *backups, const char *node, int64_t stale_ns, unsigned *removed,
                    struct err *e)
{
    return drop_these(r, (struct drop){.backups = backups, .node = node, .stale_ns = stale_ns}, removed, e);
}

int backup_records_forget(struct repo *r, const char *node, unsigned *removed, struct err *e)
{
    return drop_these(r, (struct drop){.node = "", .all = node}, removed, e);
}

int backup_records_remove(struct repo *r, const char *node, const char *backup, unsigned *removed, struct err *e)
{
    char key[RECORD_NODE_MAX + RECORD_ID_MAX + 8];
    json_t *backups CLEANUP(json_decrefp) = json_object();
    if (!backups || json_object_set_new(backups, backup_key(node, backup, key), json_true()) < 0)
        return err_nomem(e);
    return drop_all(r, backups, "", 0, removed, e);
}

int backup_records_remove_stale(struct repo *r, const char *node, int64_t before_ns, unsigned *removed, struct err *e)
{
    return drop_all(r, NULL, node, before_ns, removed, e);
}

/* ---- what has lost its snapshots ---- */

struct tidy {
    const char *node;
    int64_t alone_ns;
    json_t *left;  /* backup -> true: it has a snapshot */
    json_t *had;   /* backup -> whether a part of its record names a snapshot */
    json_t *young; /* backup -> true: a part is not old */
};

static int note_snapshot(struct snapshot *s, void *arg)
{
    struct tidy *x = arg;
    const char *backup = label(s->tags, "tag:backup");
    if (strcmp(s->source.user, "snapferry") != 0 || strcmp(s->source.host, x->node) != 0 || !*backup)
        return 0;
    return json_object_set_new(x->left, backup, json_true()) < 0 ? -ENOMEM : 0;
}

static int note_record(const struct manifest *m, void *arg)
{
    struct tidy *x = arg;
    const char *backup = label(m->labels, RECORD_LABEL_BACKUP);
    if (strcmp(label(m->labels, RECORD_LABEL_NODE), x->node) != 0 || !*backup || is_provisional(m->labels))
        return 0;
    const bool had =
        json_integer_value(json_object_get(m->data, "snapshots")) > 0 || json_is_true(json_object_get(x->had, backup));
    if (m->modified_ns > x->alone_ns && json_object_set_new(x->young, backup, json_true()) < 0)
        return -ENOMEM;
    return json_object_set_new(x->had, backup, json_boolean(had)) < 0 ? -ENOMEM : 0;
}

static int tidy_drop(struct repo *r, struct tidy *x, unsigned *removed, struct err *e)
{
    json_t *backups CLEANUP(json_decrefp) = json_object();
    char key[RECORD_NODE_MAX + RECORD_ID_MAX + 8];
    const char *backup;
    json_t *had;
    json_object_foreach(x->had, backup, had)
    {
        if (json_object_get(x->left, backup) || (!json_is_true(had) && json_object_get(x->young, backup)))
            continue;
        if (json_object_set_new(backups, backup_key(x->node, backup, key), json_true()) < 0)
            return err_nomem(e);
    }
    return json_object_size(backups) ? drop_all(r, backups, "", 0, removed, e) : 0;
}

int backup_records_tidy(struct repo *r, const char *node, int64_t now_ns, unsigned *removed, struct err *e)
{
    json_t *left CLEANUP(json_decrefp) = json_object();
    json_t *had CLEANUP(json_decrefp) = json_object();
    json_t *young CLEANUP(json_decrefp) = json_object();
    struct tidy x = {node, now_ns - RECORD_ALONE_DAYS * INT64_C(86400) * NS_PER_S, left, had, young};
    unsigned bad = 0;
    *removed = 0;
    if (!left || !had || !young)
        return err_nomem(e);
    /* Records first: a backup that is recorded meanwhile has its snapshots by then. */
    int rc = manifests_each(r, RECORD_TYPE, note_record, &x, e);
    if (rc == 0 && json_object_size(had))
        rc = snapshots_each(r, NULL, false, note_snapshot, &x, &bad, e);
    if (rc < 0)
        return rc == -ENOMEM ? err_nomem(e) : rc;
    return bad ? 0 : tidy_drop(r, &x, removed, e); /* one that cannot be read may be the last one */
}

/* ---- listing ---- */

struct each {
    const char *node;
    int64_t stale_ns;
    manifest_fn *fn;
    void *arg;
    struct backup_records_counts *counts;
};

static int each_one(const struct manifest *m, void *arg)
{
    const struct each *x = arg;
    const char *bad = backup_record_malformed(m->labels, m->data);
    if (bad) {
        if (x->counts->malformed++ == 0)
            x->counts->why = bad;
        return 0;
    }
    if (!strcmp(label(m->labels, RECORD_LABEL_NODE), x->node))
        return x->fn(m, x->arg);
    x->counts->other++;
    x->counts->stale += is_provisional(m->labels) && m->modified_ns < x->stale_ns;
    return 0;
}

int backup_records_each(struct repo *r, const char *node, int64_t stale_ns, manifest_fn *fn, void *arg,
                        struct backup_records_counts *counts, struct err *e)
{
    struct each x = {node, stale_ns, fn, arg, counts};
    int rc = manifests_each(r, RECORD_TYPE, each_one, &x, e);
    return rc == -ENOMEM ? err_nomem(e) : rc;
}
