/* SPDX-License-Identifier: GPL-2.0-or-later */
/* model-cells.h - how often each event came in each state; for model-world.h */
#ifndef SNAPFERRY_TESTS_UNIT_MODEL_CELLS_H
#define SNAPFERRY_TESTS_UNIT_MODEL_CELLS_H

/* What happens to an operation. To a backup or restore happens what does to one of its operations, or to itself; to a
 * native snapshot what does to the operation that made it, reads it or removes it. */
enum cell {
    CELL_LOOK,
    CELL_CANCEL,
    CELL_WORK,
    CELL_WORK_FAILED,
    CELL_READY,
    CELL_OK,
    CELL_FAILED,
    CELL_RESTART,
    CELLS
};
static const char *const cell_names[CELLS] = {"sweep", "cancel", "work-done",   "work-failed",
                                              "ready", "moved",  "move-failed", "restart"};
static uint64_t cells[KINDS][OP_STATES][CELLS], backup_cells[KINDS][BACKUP_STATES][CELLS],
    native_cells[NATIVE_STATES][CELLS];

static void count_native_cell(const char *alias, enum cell c)
{
    const struct native_row *n = alias[0] ? native_row_peek(m.records, alias) : NULL;
    if (n)
        native_cells[n->state][c]++;
}

static void count_backup_cell(const char *id, enum cell c)
{
    const struct backup *b = id[0] ? backup_peek(m.records, id) : NULL;
    if (b)
        backup_cells[b->kind][b->state][c]++;
}

static void count_cell(const char *id, enum cell c)
{
    const struct operation *op = operation_peek(m.records, id);
    cells[op ? op->kind : KIND_NONE][op ? op->state : OP_NONE][c]++;
    if (!op)
        return;
    count_backup_cell(op->parent, c);
    count_native_cell(op->native, c);
}

static void count_work(const struct model_work *w, enum cell c)
{
    const json_t *item;
    size_t i;
    if (w->row == ROW_OPERATION)
        count_cell(w->id, c);
    else
        count_backup_cell(w->id, c);
    json_array_foreach(jarr(w->in, "items"), i, item) count_native_cell(jstr(item, "alias"), c);
}

static int count_operation(const struct operation *op, void *arg)
{
    cells[op->kind][op->state][*(enum cell *)arg]++;
    return 0;
}
static int count_backup(const struct backup *b, void *arg)
{
    backup_cells[b->kind][b->state][*(enum cell *)arg]++;
    return 0;
}
static int count_native(const struct native_row *n, void *arg)
{
    native_cells[n->state][*(enum cell *)arg]++;
    return 0;
}
/* Of all that have not ended, and of each native snapshot. */
static void count_all(enum cell c)
{
    const struct operation_filter live = {.live = true};
    const struct backup_filter backups = {.live = true};
    operation_each(m.records, &live, count_operation, &c, NULL);
    backup_each(m.records, &backups, count_backup, &c, NULL);
    native_row_each(m.records, NULL, count_native, &c, NULL);
}

#endif
