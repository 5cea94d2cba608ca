/* SPDX-License-Identifier: GPL-2.0-or-later */
/* counted.h - values of the counters in the records, as integers */
#ifndef SNAPFERRY_DAEMON_ANSWERS_COUNTED_H
#define SNAPFERRY_DAEMON_ANSWERS_COUNTED_H

#include "daemon/records/records.h"

/* False if it was never counted, or is no such number. */
static inline bool counted(struct records *r, const char *name, const json_t *labels, double scale, int64_t *value)
{
    double d;
    if (!labels || !records_counter_get(r, name, labels, &d) || !(d >= 0 && d * scale < 9e18))
        return false;
    *value = (int64_t)(d * scale);
    return true;
}

#endif
