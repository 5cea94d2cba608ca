/* SPDX-License-Identifier: GPL-2.0-or-later */
/* model-states.h - changes of states: how often each, and those that are in no table; for model.h */
#ifndef SNAPFERRY_TESTS_UNIT_MODEL_STATES_H
#define SNAPFERRY_TESTS_UNIT_MODEL_STATES_H

#include "daemon/records/states.h"

#include <stdio.h>

static bool rows_undone;    /* changes of rows are being taken back */
static char odd_state[256]; /* the last change that is in no table */
enum { STATES_MOST = 16 };
_Static_assert((int)OP_STATES <= STATES_MOST && (int)BACKUP_STATES <= STATES_MOST && (int)NATIVE_STATES <= STATES_MOST,
               "each state has its place");
static uint64_t state_changes[MACHINES][STATES_MOST][STATES_MOST];

/* Once the transaction is over, turn() reports it. */
static void note_state_change(enum row_kind k, const char *id, const void *was, const void *now)
{
    int from, to;
    enum machine machine;
    if (!was || !now || rows_undone)
        return;
    switch (k) {
    case ROW_BACKUP:
        machine = MACHINE_BACKUP;
        from = (int)((const struct backup *)was)->state;
        to = (int)((const struct backup *)now)->state;
        break;
    case ROW_OPERATION:
        machine = states_machine_of(((const struct operation *)now)->kind);
        from = (int)((const struct operation *)was)->state;
        to = (int)((const struct operation *)now)->state;
        break;
    case ROW_NATIVE:
        machine = MACHINE_NATIVE;
        from = (int)((const struct native_row *)was)->state;
        to = (int)((const struct native_row *)now)->state;
        break;
    default:
        return;
    }
    if (from != to)
        state_changes[machine][from][to]++;
    if (!states_allow(machine, from, to))
        snprintf(odd_state, sizeof odd_state, "%s became %s and was %s", id,
                 enum_name(states_machines[machine].names, to), enum_name(states_machines[machine].names, from));
}

#endif
