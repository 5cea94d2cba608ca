/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/protocol/mover-outcome.h"

const char *mover_outcome_name(enum mover_outcome o)
{
    static const char *const names[] = {
        [MOVER_OK] = "ok",
        [MOVER_FAILED] = "failed",
        [MOVER_CANCELED] = "canceled",
        [MOVER_TRANSIENT] = "transient",
        [MOVER_SOURCE_LOST] = "source-lost",
        [MOVER_NEVER_STARTED] = "never-started",
        [MOVER_DIED] = "died",
        [MOVER_OOM] = "out-of-memory",
        [MOVER_HUNG] = "hung",
        [MOVER_MISMATCH] = "mismatch",
    };
    return o <= MOVER_MISMATCH ? names[o] : "unknown";
}
