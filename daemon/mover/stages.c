/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/stages.h"

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

enum { READ, ZERO, SPLIT, HASH, LOOKUP, COMPRESS, ENCRYPT, WRITE, COMMIT, N_STAGES };

/* The stage in which the workers spent most time: a worker that waits for room in packs waits for the disk. */
static unsigned busiest_worker(const struct pipeline_stats *p)
{
    const struct {
        unsigned stage;
        uint64_t ns;
    } of[] = {{HASH, p->hash_ns},         {SPLIT, p->worker_split_ns}, {LOOKUP, p->lookup_ns},
              {COMPRESS, p->compress_ns}, {ENCRYPT, p->seal_ns},       {WRITE, p->write_ns}};
    unsigned best = 0;
    for (unsigned i = 1; i < sizeof of / sizeof *of; i++)
        if (of[i].ns > of[best].ns)
            best = i;
    return of[best].stage;
}

static unsigned busiest_finder(const struct pipeline_stats *p)
{
    if (p->table_ns > p->split_ns + p->zero_ns)
        return COMMIT;
    return p->zero_ns > p->split_ns ? ZERO : SPLIT;
}

/* The bottleneck is what was busy for the largest share of the run: the device (the others waited for data), the
 * thread that finds chunks, the workers, or the commits that everything waited for at the end. */
static unsigned bound_by(const struct backup_result *ret, const struct pipeline_stats *p, double commit_s)
{
    const struct {
        unsigned stage;
        double seconds;
    } of[] = {{READ, seconds(ret->reader.wait_ns)},
              {busiest_finder(p), seconds(p->zero_ns + p->split_ns + p->table_ns)},
              {busiest_worker(p), ret->workers ? seconds(p->busy_ns) / ret->workers : 0},
              {COMMIT, commit_s}};
    unsigned best = 0;
    for (unsigned i = 1; i < sizeof of / sizeof *of; i++)
        if (of[i].seconds > of[best].seconds)
            best = i;
    return of[best].stage;
}

void stages_fill(struct backup_result *ret, const struct pipeline_stats *p, double commit_s, double pack_s)
{
    struct stage_time *s = ret->stages;
    double full = seconds(ret->reader.full_ns), wait = seconds(ret->reader.wait_ns);
    /* The reader runs from the beginning to the commit, except when it has no room; and at least while it is waited
     * for. */
    double reading = ret->seconds - commit_s - full;
    if (reading < wait)
        reading = wait;
    s[READ] = (struct stage_time){"read", ret->reader.reads ? reading : 0, full, ret->reader.read_bytes};
    s[ZERO] = (struct stage_time){"zero", seconds(p->zero_ns), 0, p->zero_tested};
    s[SPLIT] = (struct stage_time){"split", seconds(p->split_ns + p->worker_split_ns), seconds(p->wait_ns) + wait,
                                   p->split_scanned};
    s[HASH] = (struct stage_time){"hash", seconds(p->hash_ns), seconds(p->idle_ns), p->hashed_bytes};
    s[LOOKUP] = (struct stage_time){"lookup", seconds(p->lookup_ns), 0, p->hashed_bytes};
    s[COMPRESS] = (struct stage_time){"compress", seconds(p->compress_ns), 0, p->new_bytes};
    s[ENCRYPT] = (struct stage_time){"encrypt", seconds(p->seal_ns), 0, p->stored_bytes};
    s[WRITE] = (struct stage_time){"write", pack_s, seconds(p->write_ns), p->stored_bytes};
    s[COMMIT] = (struct stage_time){"commit", commit_s, 0, p->stored_bytes};
    ret->n_stages = N_STAGES;
    ret->bottleneck = s[bound_by(ret, p, commit_s)].name;
}

json_t *stages_json(const struct stage_time *s, unsigned n)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:I}", "name", s[i].name, "busySeconds", s[i].busy,
                                              "stalledSeconds", s[i].stalled, "bytes", (json_int_t)s[i].bytes));
    return list;
}
