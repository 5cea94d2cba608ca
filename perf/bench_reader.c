/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench_reader - how fast a file or device is read, and what that costs
 *
 *     bench_reader [--json] [--runs N] [--limit MIB] [--depth N]... SOURCE
 *
 * Each way of reading at each depth is run N times (default 5), in turn so that a drifting machine hurts all alike, and
 * the median is told: rate, core-seconds per 10^9 bytes (user and system, io_uring's kernel threads included as far as
 * the kernel charges them to us), and the ratio to plain preadv through the page cache. The cache of a file is dropped
 * before each run. --limit stops after so many MiB.
 */
#include "io/reader.h"

#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

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

struct sample {
    double rate, cost; /* 10^6 bytes per second, core-seconds per 10^9 bytes */
};

static double clock_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6 + (double)u.ru_stime.tv_sec +
           (double)u.ru_stime.tv_usec / 1e6;
}

static int read_once(const char *path, const struct way *w, unsigned depth, uint64_t limit, struct sample *out,
                     struct reader_stats *st, struct err *e)
{
    struct source *s;
    struct reader *r;
    struct view v;
    struct reader_opts o = {
        .ring = 64 * MIB, .window = 8 * MIB, .depth = depth, .no_uring = w->no_uring, .no_direct = w->no_direct};
    int rc = source_open(&s, path, e);
    if (rc < 0)
        return rc;
    posix_fadvise(source_fd(s), 0, 0, POSIX_FADV_DONTNEED);
    uint64_t end = source_info(s)->size, pos = 0;
    if (limit && limit < end)
        end = limit;
    double t = clock_s(), c = cpu_s();
    rc = reader_new(&r, s, &o, e);
    while (rc == 0 && pos < end) {
        rc = reader_peek(r, pos, MIB, &v, e);
        if (rc == 0) {
            pos = v.avail < MIB && v.zero_end > pos + v.avail && v.zero_end - pos > o.window ? v.zero_end - o.window
                                                                                             : pos + v.avail;
            reader_release(r, pos);
        }
    }
    if (rc == 0) {
        t = clock_s() - t;
        reader_stats(r, st);
        reader_free(r);
        c = cpu_s() - c;
        double bytes = st->read_bytes ? (double)st->read_bytes : 1;
        *out = (struct sample){bytes / 1e6 / t, c / (bytes / 1e9)};
    }
    source_free(s);
    return rc;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const struct sample *s, unsigned n, bool cost)
{
    double v[RUNS_MAX];
    for (unsigned i = 0; i < n; i++)
        v[i] = cost ? s[i].cost : s[i].rate;
    qsort(v, n, sizeof v[0], by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"runs", required_argument, NULL, 'r'},
                                            {"limit", required_argument, NULL, 'l'},
                                            {"depth", required_argument, NULL, 'd'},
                                            {NULL, 0, NULL, 0}};
    static struct sample sample[WAYS][DEPTHS_MAX][RUNS_MAX];
    static struct reader_stats st[WAYS][DEPTHS_MAX];
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
            for (size_t w = 0; w < WAYS; w++)
                if (read_once(argv[optind], &ways[w], depth[d], limit, &sample[w][d][run], &st[w][d], &e) < 0) {
                    fprintf(stderr, "bench_reader: %s\n", e.msg);
                    return 1;
                }
    double base = median(sample[WAYS - 1][0], runs, true);
    if (!json)
        printf("%-20s %5s %10s %10s %10s  %s\n", "way", "depth", "MB/s", "core-s/GB", "cost ratio", "not as asked");
    for (size_t w = 0; w < WAYS; w++)
        for (unsigned d = 0; d < depths; d++) {
            const struct reader_stats *x = &st[w][d];
            double rate = median(sample[w][d], runs, false), cost = median(sample[w][d], runs, true);
            bool odd = (!ways[w].no_uring && !x->uring) || (!ways[w].no_direct && !x->direct);
            if (json)
                printf("{\"way\":\"%s\",\"depth\":%u,\"runs\":%u,\"read_bytes\":%" PRIu64
                       ",\"mb_per_s\":%.1f,\"core_s_per_gb\":%.4f,\"uring\":%s,\"direct\":%s,\"fixed_buffers\":%s}\n",
                       ways[w].name, depth[d], runs, x->read_bytes, rate, cost, x->uring ? "true" : "false",
                       x->direct ? "true" : "false", x->fixed_buffers ? "true" : "false");
            else
                printf("%-20s %5u %10.0f %10.4f %9.2fx  %s\n", ways[w].name, depth[d], rate, cost,
                       base > 0 ? cost / base : 0, odd ? x->fallback : "");
        }
    return 0;
}
