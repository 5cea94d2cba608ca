/* SPDX-License-Identifier: GPL-2.0-or-later */
/* savepoint.c - a part of a transaction that can be undone alone */
#include "daemon/records/records-impl.h"

void records_savepoint(struct records *r)
{
    image_savepoint(&r->image);
    records_counters_savepoint(r);
}

void records_savepoint_keep(struct records *r)
{
    image_savepoint_keep(&r->image);
    records_counters_savepoint_end(r, false);
}

void records_savepoint_undo(struct records *r)
{
    if (r->image.save.set)
        image_savepoint_undo(&r->image, records_report_undone, r);
    records_counters_savepoint_end(r, true);
}
