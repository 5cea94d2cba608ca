/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rates.c - the limits of reads and writes while a mover works: they may have times, and change with a reload */
#include "daemon/movers/builtin-impl.h"

#include "base/time.h"

void rates_set(struct mover *v, const struct mover_limits *l)
{
    const char *why;
    if (!l)
        return;
    v->rates = (struct rates){.known = true, .read = l->read_limit, .write = l->write_limit};
    if (cfg_parse_times(&v->rates.times, l->limit_times, &why) < 0)
        v->rates.times.n = 0; /* checked when it was configured: of another version, the limits hold always */
}

static bool hold_now(const struct mover *v)
{
    return cfg_times_hold_at(&v->rates.times, (time_t)(now_ns() / NS_PER_S));
}

int rates_begin(struct mover *v, json_t *job, struct err *e)
{
    if (!v->rates.known)
        return 0;
    const bool hold = hold_now(v);
    v->told_read = hold ? v->rates.read : 0;
    v->told_write = hold ? v->rates.write : 0;
    return json_object_set_new(job, "read_limit", json_integer(v->told_read)) < 0 ||
                   json_object_set_new(job, "write_limit", json_integer(v->told_write)) < 0
               ? err_nomem(e)
               : 0;
}

void rates_tell(struct mover *v)
{
    if (!v->rates.known || !v->go || v->gone || !v->conn)
        return;
    const bool hold = hold_now(v);
    const int64_t read = hold ? v->rates.read : 0, write = hold ? v->rates.write : 0;
    if ((read == v->told_read && write == v->told_write) || mover_send_limits(v, read, write) < 0)
        return;
    v->told_read = read;
    v->told_write = write;
}
