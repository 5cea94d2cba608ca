/* SPDX-License-Identifier: GPL-2.0-or-later */
/* typed.c - typed rows by way of the untyped ones, as long as both are in use */
#include "daemon/engine/engine-impl.h"

static int save_row(struct engine *g, enum row_kind k, void *row, const char *state)
{
    CLEANUP(rec_clearp) struct rec rec = REC_INIT;
    struct err e = ERR_INIT;
    int rc = row_to_rec(k, row, &rec, &e);
    if (rc < 0) {
        log_warning("the record of %s cannot be saved, it is tried again: %s", ((const struct row *)row)->id, e.msg);
        return rc;
    }
    rc = state ? save_state(g, (enum rec_kind)k, &rec, state) : save(g, (enum rec_kind)k, &rec);
    int back = row_from_rec(k, &rec, row, NULL);
    return rc < 0 ? rc : back;
}

static int read_row(struct engine *g, enum row_kind k, const char *id, void *ret)
{
    struct err e = ERR_INIT;
    int rc = row_get(g->records, k, id, ret, &e);
    if (rc < 0 && e.cls != ERR_NOT_FOUND)
        log_warning("%s", e.msg);
    return rc;
}

int save_operation(struct engine *g, struct operation *op)
{
    return save_row(g, ROW_OPERATION, op, NULL);
}

int save_operation_state(struct engine *g, struct operation *op, enum op_state s)
{
    return save_row(g, ROW_OPERATION, op, op_state_name(s));
}

int save_backup(struct engine *g, struct backup *b)
{
    return save_row(g, ROW_BACKUP, b, NULL);
}

int save_backup_state(struct engine *g, struct backup *b, enum backup_state s)
{
    return save_row(g, ROW_BACKUP, b, backup_state_name(s));
}

int save_native(struct engine *g, struct native_row *n)
{
    return save_row(g, ROW_NATIVE, n, NULL);
}

int save_native_state(struct engine *g, struct native_row *n, enum native_state s)
{
    return save_row(g, ROW_NATIVE, n, native_state_name(s));
}

int save_volume(struct engine *g, struct volume_row *v)
{
    return save_row(g, ROW_VOLUME, v, NULL);
}

int read_operation(struct engine *g, const char *id, struct operation *ret)
{
    return read_row(g, ROW_OPERATION, id, ret);
}

int read_backup(struct engine *g, const char *id, struct backup *ret)
{
    return read_row(g, ROW_BACKUP, id, ret);
}

int read_native(struct engine *g, const char *id, struct native_row *ret)
{
    return read_row(g, ROW_NATIVE, id, ret);
}

int read_volume(struct engine *g, const char *id, struct volume_row *ret)
{
    return read_row(g, ROW_VOLUME, id, ret);
}

void operation_error(struct operation *op, const char *stage, const struct err *e)
{
    op_error_set(&op->error, stage, e, now_ns(), op->attempt);
}
