/* SPDX-License-Identifier: GPL-2.0-or-later */
/* states.c - which state may follow which */
#include "daemon/records/states.h"

#define B(state) (1u << BACKUP_##state)
#define O(state) (1u << OP_##state)
#define N(state) (1u << NATIVE_##state)
#define COUNT(a) (sizeof(a) / sizeof *(a))

#define BACKUP_ENDS (B(COMPLETED) | B(PARTIALLY_FAILED) | B(FAILED) | B(CANCELED) | B(SKIPPED))
#define OP_ENDS (O(COMPLETED) | O(PARTIALLY_FAILED) | O(FAILED) | O(CANCELED) | O(SKIPPED))

/* A restore has no snapshots. One whose operations have all ended, begun or not, is finalized. */
static const struct states_row backup_rows[] = {
    {B(QUEUED), B(SNAPSHOTTING) | B(MOVING) | B(FINALIZING)},
    {B(SNAPSHOTTING), B(MOVING) | B(FINALIZING)},
    {B(MOVING), B(FINALIZING)},
    {B(FINALIZING), BACKUP_ENDS},
};

/* Every way out leads through CleaningUp, where the outcome is durable and what was made is released (E-04). */
static const struct states_row operation_rows[] = {
    {O(QUEUED), O(SNAPSHOTTING) | O(EXPOSING) | O(STARTING) | O(CLEANING_UP)},
    {O(SNAPSHOTTING), O(QUEUED) | O(RETRYING) | O(CLEANING_UP)},
    {O(EXPOSING), O(STARTING) | O(RUNNING) | O(RETRYING) | O(CLEANING_UP)},
    {O(STARTING), O(RUNNING) | O(RETRYING) | O(CANCELLING) | O(CLEANING_UP)},
    {O(RUNNING), O(RETRYING) | O(CANCELLING) | O(CLEANING_UP)},
    {O(RETRYING), O(QUEUED) | O(SNAPSHOTTING) | O(CLEANING_UP)},
    {O(CANCELLING), O(RUNNING) | O(CLEANING_UP)}, /* Running: a restore that was complete before the cancel */
    {O(CLEANING_UP), OP_ENDS},
};

/* It makes nothing that could be left. */
static const struct states_row delete_rows[] = {
    {O(QUEUED), O(RUNNING) | O(CANCELED)},
    {O(RUNNING), O(COMPLETED) | O(FAILED)},
};

/* The record of one that was removed goes with it. */
static const struct states_row native_rows[] = {
    {N(CREATING), N(PRESENT)},
    {N(PRESENT), N(REMOVING) | N(MISSING)},
    {N(REMOVING), N(MISSING)}, /* what is there in its place does not have its tag */
    {N(MISSING), N(PRESENT)},
};

const struct states_machine states_machines[MACHINES] = {
    [MACHINE_BACKUP] = {"backup, restore", &backup_state_names, backup_rows, COUNT(backup_rows)},
    [MACHINE_OPERATION] = {"operation", &op_state_names, operation_rows, COUNT(operation_rows)},
    [MACHINE_DELETE] = {"operation of kind delete", &op_state_names, delete_rows, COUNT(delete_rows)},
    [MACHINE_NATIVE] = {"native snapshot", &native_state_names, native_rows, COUNT(native_rows)},
};

bool states_allow(enum machine m, int from, int to)
{
    const struct states_machine *s = &states_machines[m];
    if (from == to)
        return true;
    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i].from == 1u << from)
            return s->rows[i].to & 1u << to;
    return false;
}
