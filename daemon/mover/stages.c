/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/stages.h"

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static const char *busiest(const struct stage_time *a, unsigned n)
{
    const struct stage_time *best = a;
    for (unsigned i = 1; i < n; i++)
        if (a[i].busy > best->busy)
            best = &a[i];
    return best->name;
}

enum { READ, ZERO, SPLIT, HASH, LOOKUP, COMPRESS, ENCRYPT, WRITE, COMMIT, N_STAGES };

void stages_fill(struct backup_result *ret, const struct pipeline_stats *p, double commit_s, double pack_s)
{
    struct stage_time *s = ret->stages;
    double read_full = seconds(ret->reader.full_ns), wait = seconds(p->wait_ns);
    double reading = ret->seconds > read_full ? ret->seconds - read_full : 0;
    s[READ] = (struct stage_time){"read", reading, read_full, ret->reader.read_bytes};
    s[ZERO] = (struct stage_time){"zero", seconds(p->zero_ns), 0, p->zero_tested};
    s[SPLIT] = (struct stage_time){"split", seconds(p->split_ns + p->worker_split_ns), wait, p->split_scanned};
    s[HASH] = (struct stage_time){"hash", seconds(p->hash_ns), seconds(p->idle_ns), p->hashed_bytes};
    s[LOOKUP] = (struct stage_time){"lookup", seconds(p->lookup_ns), 0, p->hashed_bytes};
    s[COMPRESS] = (struct stage_time){"compress", seconds(p->compress_ns), 0, p->new_bytes};
    s[ENCRYPT] = (struct stage_time){"encrypt", seconds(p->seal_ns), 0, p->stored_bytes};
    s[WRITE] = (struct stage_time){"write", seconds(p->write_ns) + pack_s, 0, p->stored_bytes};
    s[COMMIT] = (struct stage_time){"commit", commit_s, 0, p->stored_bytes};
    ret->n_stages = N_STAGES;

    /* Whoever was busy for the largest share of the run bound it: the device (the others waited for data), the thread
     * that finds chunks, the workers, or the commits that everything waited for at the end. */
    double all = ret->seconds > 0 ? ret->seconds : 1;
    double device = seconds(ret->reader.wait_ns) / all;
    double finder = seconds(p->zero_ns + p->split_ns + p->table_ns) / all;
    double workers = ret->workers ? seconds(p->busy_ns) / ret->workers / all : 0;
    double commit = commit_s / all;
    double most = device;
    ret->bottleneck = s[READ].name;
    if (finder > most) {
        most = finder;
        ret->bottleneck = p->table_ns > p->split_ns + p->zero_ns ? s[COMMIT].name : busiest(&s[ZERO], 2);
    }
    if (workers > most) {
        most = workers;
        ret->bottleneck = busiest(&s[HASH], WRITE - HASH + 1);
    }
    if (commit > most)
        ret->bottleneck = s[COMMIT].name;
}

json_t *stages_json(const struct stage_time *s, unsigned n)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:I}", "name", s[i].name, "busySeconds", s[i].busy,
                                              "stalledSeconds", s[i].stalled, "bytes", (json_int_t)s[i].bytes));
    return list;
}
