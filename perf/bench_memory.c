/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench_memory - what the memory of this machine gives: the ceiling for everything that touches each byte
 *
 *   bench_memory [--size MIB] [--runs N] [--json]
 *
 * Reads (sums), writes (memset) and copies (memcpy; counted once) MIB (default 256) with one thread and with one for
 * each CPU, each on its own part: the rows of `snapferry bench memory`, on more memory than caches hold. Printed are
 * the median of N runs (default 5) of one thread and the rate of all threads, in 10^9 bytes per second. Also the CPU
 * seconds that the first touch of a GiB takes, of memory as it comes and of the same once more: on a machine whose
 * hypervisor takes free memory back the first is dearer, and a benchmark has to touch its memory before it measures.
 */
#include "daemon/bench/bench.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define RUN_S 0.1

/* CPU seconds of touching a GiB of fresh memory, each page for the first time. */
static double first_touch(size_t len)
{
    struct timespec from, to;
    uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (size_t i = 0; i < len; i += 4096)
        p[i] = 1;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    munmap(p, len);
    double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    return seconds * (double)(1u << 30) / (double)len;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"size", required_argument, NULL, 's'},
                                            {"runs", required_argument, NULL, 'r'},
                                            {"json", no_argument, NULL, 'j'},
                                            {NULL, 0, NULL, 0}};
    static struct bench_row rows[BENCH_ROWS_MAX];
    unsigned long mib = 256, runs = 5;
    bool json = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's')
            mib = strtoul(optarg, NULL, 10);
        else if (c == 'r')
            runs = strtoul(optarg, NULL, 10);
        else if (c == 'j')
            json = true;
        else
            return 2;
    }
    if (optind != argc || mib < 8 || mib > 65536 || runs < 1 || runs > BENCH_RUNS_MAX) {
        fprintf(stderr, "usage: bench_memory [--size 8..65536] [--runs 1..%d] [--json]\n", BENCH_RUNS_MAX);
        return 2;
    }
    const size_t len = (size_t)mib << 20;
    double fresh = first_touch(len), again = first_touch(len);
    struct err e = ERR_INIT;
    struct bench_sample s;
    const struct bench_limits l = {
        .seconds = RUN_S * (double)runs, .runs = (unsigned)runs, .threads = bench_cpus(), .memory = UINT64_MAX};
    unsigned n = bench_rows(rows, 1u << BENCH_MEMORY, &e);
    int rc = n ? bench_sample_new(&s, len, 1 << 20, false, &e) : -1;
    for (unsigned i = 0; rc >= 0 && i < n; i++)
        rc = bench_measure(&rows[i], &s, &l, &e);
    if (rc < 0) {
        fprintf(stderr, "bench_memory: %s\n", e.msg);
        return 1;
    }
    bench_sample_clear(&s);
    if (json)
        printf(
            "{\"mib\":%lu,\"runs\":%lu,\"firstTouchSecondsPerGiB\":%.3f,\"touchAgainSecondsPerGiB\":%.3f,\"rates\":[",
            mib, runs, fresh, again);
    else
        printf("first touch %.3f s/GiB, the same again %.3f s/GiB\n", fresh, again);
    for (unsigned all = 0; all < 2; all++)
        for (unsigned i = 0; i < n; i++) {
            unsigned threads = all ? rows[i].threads : 1;
            double rate = all ? rows[i].all : rows[i].core;
            if (json)
                printf("%s{\"how\":\"%s\",\"threads\":%u,\"gbPerSecond\":%.3f}", all || i ? "," : "", rows[i].name,
                       threads, rate);
            else
                printf("%-6s %4u thread%s %8.2f GB/s\n", rows[i].name, threads, threads > 1 ? "s" : " ", rate);
        }
    if (json)
        printf("]}\n");
    return 0;
}
