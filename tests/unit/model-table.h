/* SPDX-License-Identifier: GPL-2.0-or-later */
/* model-table.h - what may happen in each state, and how often it did; include it behind model.h in one file */
#ifndef SNAPFERRY_TESTS_UNIT_MODEL_TABLE_H
#define SNAPFERRY_TESTS_UNIT_MODEL_TABLE_H

#include "tests/unit/model.h"

/* docs/architecture.md has the states as a table. Events are one letter each: l(ook) c(ancel) w(ork) W(ork failed)
 * r(eady) o(k) f(ailed) R(estart). What an event is to a backup and to a native snapshot says model-cells.h. */
static const char cell_letters[] = "lcwWrofR";

struct row_of_cells {
    enum op_kind kind;
    enum op_state state;
    const char *events;
};
static const struct row_of_cells operation_table[] = {
    {KIND_BACKUP, OP_QUEUED, "lcR"},         {KIND_BACKUP, OP_SNAPSHOTTING, "lcwWR"},
    {KIND_BACKUP, OP_EXPOSING, "lcwWR"},     {KIND_BACKUP, OP_STARTING, "lcwWrfR"},
    {KIND_BACKUP, OP_RUNNING, "lcofR"},      {KIND_BACKUP, OP_RETRYING, "lcR"},
    {KIND_BACKUP, OP_CANCELLING, "lofR"},    {KIND_BACKUP, OP_CLEANING_UP, "lcwWR"},
    {KIND_RESTORE, OP_QUEUED, "lcR"},        {KIND_RESTORE, OP_EXPOSING, "lcwWR"},
    {KIND_RESTORE, OP_STARTING, "lcwWrfR"},  {KIND_RESTORE, OP_RUNNING, "lcwWofR"},
    {KIND_RESTORE, OP_RETRYING, "lcR"},      {KIND_RESTORE, OP_CANCELLING, "lofR"},
    {KIND_RESTORE, OP_CLEANING_UP, "lcwWR"}, {KIND_ADMIN, OP_QUEUED, "lcR"},
    {KIND_ADMIN, OP_STARTING, "lcrfR"},      {KIND_ADMIN, OP_RUNNING, "lcofR"},
    {KIND_ADMIN, OP_RETRYING, "lcR"},        {KIND_ADMIN, OP_CANCELLING, "lofR"},
    {KIND_VERIFY, OP_QUEUED, "lcR"},         {KIND_VERIFY, OP_STARTING, "lcrfR"},
    {KIND_VERIFY, OP_RUNNING, "lcofR"},      {KIND_VERIFY, OP_RETRYING, "lcR"},
    {KIND_VERIFY, OP_CANCELLING, "lofR"},    {KIND_DELETE, OP_QUEUED, "lcR"},
    {KIND_DELETE, OP_RUNNING, "lcwWR"},      {KIND_MAINTAIN, OP_QUEUED, "lcR"},
    {KIND_MAINTAIN, OP_STARTING, "lcrfR"},   {KIND_MAINTAIN, OP_RUNNING, "lcofR"},
    {KIND_MAINTAIN, OP_RETRYING, "lcR"},     {KIND_MAINTAIN, OP_CANCELLING, "lofR"},
    {KIND_COPY, OP_QUEUED, "lcR"},           {KIND_COPY, OP_STARTING, "lcrfR"},
    {KIND_COPY, OP_RUNNING, "lcofR"},        {KIND_COPY, OP_RETRYING, "lcR"},
    {KIND_COPY, OP_CANCELLING, "lofR"},
};

struct row_of_backup_cells {
    enum op_kind kind;
    enum backup_state state;
    const char *events;
};
static const struct row_of_backup_cells backup_table[] = {
    {KIND_BACKUP, BACKUP_QUEUED, "lcR"},       {KIND_BACKUP, BACKUP_SNAPSHOTTING, "lcwWrofR"},
    {KIND_BACKUP, BACKUP_MOVING, "lcwWrofR"},  {KIND_BACKUP, BACKUP_FINALIZING, "lcwWrofR"},
    {KIND_RESTORE, BACKUP_QUEUED, "lcR"},      {KIND_RESTORE, BACKUP_MOVING, "lcwWrofR"},
    {KIND_RESTORE, BACKUP_FINALIZING, "lcwR"},
};

struct row_of_native_cells {
    enum native_state state;
    const char *events;
};
static const struct row_of_native_cells native_table[] = {
    {NATIVE_CREATING, "lcwWR"},
    {NATIVE_PRESENT, "lcwWrofR"},
    {NATIVE_REMOVING, "lcwWR"},
    {NATIVE_MISSING, "lwR"},
};

/* Changes of states.c that nothing makes. This list only gets shorter: one that is made fails the test. */
static const struct {
    enum machine machine;
    int from, to;
    const char *why;
} never_made[] = {
    {MACHINE_BACKUP, BACKUP_FINALIZING, BACKUP_SKIPPED,
     "a backup whose operations were all skipped is Completed (outcome_of()); the word is that of operations, and "
     "shown"},
    {MACHINE_OPERATION, OP_CLEANING_UP, OP_PARTIALLY_FAILED,
     "an operation is one volume, of which nothing is half done; the outcomes of both have the same order"},
};
static const char *const machine_words[MACHINES] = {[MACHINE_BACKUP] = "backup",
                                                    [MACHINE_OPERATION] = "operation",
                                                    [MACHINE_DELETE] = "delete",
                                                    [MACHINE_NATIVE] = "native"};

struct judge {
    uint64_t least;
    bool show, judges;
    unsigned poor;
};

/* `make model` adds up those of its parts by the three words. */
static void judge_cell(struct judge *j, const char *what, const char *state, const char *event, uint64_t n)
{
    const bool poor = j->judges && n < j->least;
    j->poor += poor;
    if (j->show || poor)
        printf("# cell %s %s %s %llu\n", what, state, event, (unsigned long long)n);
}

static void judge_row(struct judge *j, const char *what, const char *state, const char *events, const uint64_t *row)
{
    for (unsigned c = 0; c < CELLS; c++)
        if (strchr(events, cell_letters[c]))
            judge_cell(j, what, state, cell_names[c], row[c]);
}

/* NULL: something makes that change. */
static const char *why_not_made(enum machine k, int from, int to)
{
    for (size_t i = 0; i < sizeof never_made / sizeof *never_made; i++)
        if (never_made[i].machine == k && never_made[i].from == from && never_made[i].to == to)
            return never_made[i].why;
    return NULL;
}

static void judge_changes(struct judge *j, enum machine k)
{
    const struct enum_names *names = states_machines[k].names;
    char what[32];
    snprintf(what, sizeof what, "change:%s", machine_words[k]);
    for (int from = 0; from < STATES_MOST; from++)
        for (int to = 0; to < STATES_MOST; to++) {
            const uint64_t n = state_changes[k][from][to];
            if (from == to || !states_allow(k, from, to))
                continue;
            if (!why_not_made(k, from, to))
                judge_cell(j, what, enum_name(names, from), enum_name(names, to), n);
            else if (n)
                fail_msg("a change that was never made (%s): strike it off never_made", why_not_made(k, from, to));
        }
}

static void judge_all(struct judge *j)
{
    char what[32];
    for (size_t i = 0; i < sizeof operation_table / sizeof *operation_table; i++) {
        const struct row_of_cells *r = &operation_table[i];
        judge_row(j, op_kind_name(r->kind), op_state_name(r->state), r->events, cells[r->kind][r->state]);
    }
    for (size_t i = 0; i < sizeof backup_table / sizeof *backup_table; i++) {
        const struct row_of_backup_cells *r = &backup_table[i];
        snprintf(what, sizeof what, "whole:%s", op_kind_name(r->kind));
        judge_row(j, what, backup_state_name(r->state), r->events, backup_cells[r->kind][r->state]);
    }
    for (size_t i = 0; i < sizeof native_table / sizeof *native_table; i++)
        judge_row(j, "native", native_state_name(native_table[i].state), native_table[i].events,
                  native_cells[native_table[i].state]);
    for (enum machine k = 0; k < MACHINES; k++)
        judge_changes(j, k);
}

#endif
