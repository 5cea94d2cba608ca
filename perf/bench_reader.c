/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench_reader - how fast a file or device is read, and what that costs
 *
 *     bench_reader [--json] [--runs N] [--limit MIB] [--depth N]... SOURCE
 *
 * Each way of reading at each depth is run N times (default 5), in turn so that a drifting machine hurts all alike, and
 * the median is printed: rate, core-seconds per 10^9 bytes (user and system, those of io_uring's kernel threads as far
 * as they are charged to the process), and the ratio to plain preadv through the page cache. The cache of a file is
 * dropped before each run. --limit stops after so many MiB.
 */
#include "base/cleanup.h"
#include "daemon/bench/bench.h"

#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define RUNS_MAX 99

struct way {
    const char *name;
    bool no_uring, no_direct;
};

static const struct way ways[] = {{"uring+direct+fixed", false, false},
                                  {"uring+buffered", false, true},
                                  {"preadv+direct", true, false},
                                  {"preadv+buffered", true, true}};
#define WAYS (sizeof ways / sizeof ways[0])
#define DEPTHS_MAX 8

static double median(const struct bench_read *t, unsigned n, bool cost)
{
    double v[RUNS_MAX];
    for (unsigned i = 0; i < n; i++)
        v[i] = cost ? t[i].cost : t[i].rate;
    return bench_median(v, n);
}

static int read_once(const char *path, uint64_t limit, struct bench_read *t, struct err *e)
{
    CLEANUP(source_freep) struct source *s = NULL;
    uint64_t pos = 0;
    int rc = source_open(&s, path, e);
    if (rc < 0)
        return rc;
    posix_fadvise(source_fd(s), 0, 0, POSIX_FADV_DONTNEED);
    uint64_t size = source_info(s)->size;
    return bench_read(t, s, &pos, limit && limit < size ? limit : size, INFINITY, false, NULL, e);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"runs", required_argument, NULL, 'r'},
                                            {"limit", required_argument, NULL, 'l'},
                                            {"depth", required_argument, NULL, 'd'},
                                            {NULL, 0, NULL, 0}};
    static struct bench_read reads[WAYS][DEPTHS_MAX][RUNS_MAX];
    unsigned depth[DEPTHS_MAX], depths = 0, runs = 5;
    uint64_t limit = 0;
    bool json = false;
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'j')
            json = true;
        else if (c == 'r')
            runs = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 'l')
            limit = strtoull(optarg, NULL, 10) * MIB;
        else if (c == 'd' && depths < DEPTHS_MAX)
            depth[depths++] = (unsigned)strtoul(optarg, NULL, 10);
        else
            return 2;
    }
    if (optind + 1 != argc || runs < 1 || runs > RUNS_MAX) {
        fprintf(stderr, "usage: bench_reader [--json] [--runs N] [--limit MIB] [--depth N]... SOURCE\n");
        return 2;
    }
    if (depths == 0) {
        depth[depths++] = 1;
        depth[depths++] = 4;
        depth[depths++] = 16;
    }
    struct err e = ERR_INIT;
    for (unsigned run = 0; run < runs; run++)
        for (unsigned d = 0; d < depths; d++)
            for (size_t w = 0; w < WAYS; w++) {
                struct bench_read *t = &reads[w][d][run];
                *t = (struct bench_read){
                    .depth = depth[d], .no_uring = ways[w].no_uring, .no_direct = ways[w].no_direct};
                if (read_once(argv[optind], limit, t, &e) < 0) {
                    fprintf(stderr, "bench_reader: %s\n", e.msg);
                    return 1;
                }
            }
    double base = median(reads[WAYS - 1][0], runs, true);
    if (!json)
        printf("%-20s %5s %10s %10s %10s  %s\n", "way", "depth", "MB/s", "core-s/GB", "cost ratio", "not as asked");
    for (size_t w = 0; w < WAYS; w++)
        for (unsigned d = 0; d < depths; d++) {
            struct bench_read *of = reads[w][d];
            const struct bench_read *x = &of[runs - 1];
            double rate = median(of, runs, false) * 1e3, cost = median(of, runs, true);
            bool odd = (!ways[w].no_uring && !x->uring) || (!ways[w].no_direct && !x->direct);
            if (json)
                printf("{\"way\":\"%s\",\"depth\":%u,\"runs\":%u,\"read_bytes\":%" PRIu64
                       ",\"mb_per_s\":%.1f,\"core_s_per_gb\":%.4f,\"uring\":%s,\"direct\":%s,\"fixed_buffers\":%s}\n",
                       ways[w].name, depth[d], runs, x->bytes, rate, cost, x->uring ? "true" : "false",
                       x->direct ? "true" : "false", x->fixed_buffers ? "true" : "false");
            else
                printf("%-20s %5u %10.0f %10.4f %9.2fx  %s\n", ways[w].name, depth[d], rate, cost,
                       base > 0 ? cost / base : 0, odd ? x->fallback : "");
        }
    return 0;
}
