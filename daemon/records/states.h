/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * states.h - which state may follow which
 *
 * One table for each machine. The decisions check every change of a state against it, the model test fails on one that
 * is not in it, and docs/records.md is compared with it (tests/unit/test_types.c).
 */
#ifndef SNAPFERRY_RECORDS_STATES_H
#define SNAPFERRY_RECORDS_STATES_H

#include "daemon/records/types.h"

struct states_row {
    uint32_t from, to; /* a bit each: 1 << state */
};
struct states_machine {
    const char *what;
    const struct enum_names *names;
    const struct states_row *rows;
    size_t n;
};
enum machine { MACHINE_BACKUP, MACHINE_OPERATION, MACHINE_DELETE, MACHINE_NATIVE, MACHINES };
extern const struct states_machine states_machines[MACHINES];

/* Whether a row of that machine in state `from` may be written with state `to`; the same state always. */
bool states_allow(enum machine m, int from, int to);

static inline enum machine states_machine_of(enum op_kind kind)
{
    return kind == KIND_DELETE ? MACHINE_DELETE : MACHINE_OPERATION;
}

#endif
