/* SPDX-License-Identifier: GPL-2.0-or-later */
/* mover-outcome.h - how a mover ended, as records, metrics and answers name it */
#ifndef SNAPFERRY_DAEMON_PROTOCOL_MOVER_OUTCOME_H
#define SNAPFERRY_DAEMON_PROTOCOL_MOVER_OUTCOME_H

enum mover_outcome {
    MOVER_OK,            /* result code 0 */
    MOVER_FAILED,        /* 1 */
    MOVER_CANCELED,      /* 2 */
    MOVER_TRANSIENT,     /* 3: worth a retry */
    MOVER_SOURCE_LOST,   /* 4 */
    MOVER_NEVER_STARTED, /* died or was refused before START (MS-31) */
    MOVER_DIED,          /* killed by a signal, without a result */
    MOVER_OOM,           /* killed by its memory limit */
    MOVER_HUNG,          /* stalled: killed by the daemon */
    MOVER_MISMATCH       /* result file and exit status contradict each other (MS-27) */
};

/* "ok", "never-started", "out-of-memory" ...; "unknown" for a value out of range. Static. */
const char *mover_outcome_name(enum mover_outcome o);

#endif
