/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench_memory - what the memory of this machine gives: the ceiling for everything that touches each byte
 *
 *   bench_memory [--size MIB] [--runs N] [--json]
 *
 * Reads (sums), writes (memset) and copies (memcpy; counted once) MIB (default 256) with one thread and with one for
 * each CPU, each on its own part, all in turn, N times (default 5), and prints medians in 10^9 bytes per second. Also
 * the CPU seconds that the first touch of a GiB takes, of memory as it comes and of the same once more: on a machine
 * whose hypervisor takes free memory back the first is dearer, and a benchmark has to touch its memory before it
 * measures.
 */
#include "base/cleanup.h"

#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define RUNS_MAX 99
#define THREADS_MAX 512

typedef uint64_t wide __attribute__((vector_size(16)));
enum how { READ, WRITE, COPY, HOWS };
static const char *const how_names[HOWS] = {"read", "write", "copy"};

struct part {
    pthread_t thread;
    pthread_barrier_t *start;
    enum how how;
    uint8_t *from, *to;
    size_t len;
    double began, ended;
    wide sum; /* keeps what was read in use */
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static wide sum_of(const uint8_t *bytes, size_t len)
{
    const wide *p = (const wide *)(const void *)bytes;
    wide a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i + 4 <= len / sizeof *p; i += 4) {
        a ^= p[i];
        b ^= p[i + 1];
        c ^= p[i + 2];
        d ^= p[i + 3];
    }
    return a ^ b ^ c ^ d;
}

static void *work(void *arg)
{
    struct part *p = arg;
    pthread_barrier_wait(p->start);
    p->began = seconds();
    if (p->how == READ)
        p->sum ^= sum_of(p->from, p->len);
    else if (p->how == WRITE)
        memset(p->to, (int)p->len & 0xff, p->len);
    else
        memcpy(p->to, p->from, p->len);
    p->ended = seconds();
    return NULL;
}

/* Bytes per second of all threads together; 0 if threads cannot be made. */
static double measure(enum how how, unsigned threads, uint8_t *from, uint8_t *to, size_t len)
{
    static struct part parts[THREADS_MAX];
    pthread_barrier_t start;
    unsigned made = 0;
    pthread_barrier_init(&start, NULL, threads);
    size_t share = len / threads / 4096 * 4096;
    for (; made < threads; made++) {
        size_t at = share * made;
        parts[made] = (struct part){.start = &start, .how = how, .from = from + at, .to = to + at, .len = share};
        if (pthread_create(&parts[made].thread, NULL, work, &parts[made]) != 0) {
            fprintf(stderr, "bench_memory: cannot make %u threads\n", threads);
            exit(1);
        }
    }
    double began = 0, ended = 0;
    for (unsigned i = 0; i < made; i++) {
        pthread_join(parts[i].thread, NULL);
        began = i == 0 || parts[i].began < began ? parts[i].began : began;
        ended = i == 0 || parts[i].ended > ended ? parts[i].ended : ended;
    }
    pthread_barrier_destroy(&start);
    return (double)(share * threads) / (ended - began);
}

/* CPU seconds for a GiB, each page touched for the first time. */
static double first_touch(size_t len)
{
    uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return 0;
    double t = cpu_seconds();
    for (size_t i = 0; i < len; i += 4096)
        p[i] = 1;
    t = cpu_seconds() - t;
    munmap(p, len);
    return t * (double)(1 << 30) / (double)len;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static unsigned cpus(void)
{
    cpu_set_t set;
    unsigned n = sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
    return n > THREADS_MAX ? THREADS_MAX : n;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"size", required_argument, NULL, 's'},
                                            {"runs", required_argument, NULL, 'r'},
                                            {"json", no_argument, NULL, 'j'},
                                            {NULL, 0, NULL, 0}};
    static double rate[2][HOWS][RUNS_MAX];
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
    if (optind != argc || mib < 8 || mib > 65536 || runs < 1 || runs > RUNS_MAX) {
        fprintf(stderr, "usage: bench_memory [--size 8..65536] [--runs 1..%d] [--json]\n", RUNS_MAX);
        return 2;
    }
    size_t len = (size_t)mib << 20;
    double fresh = first_touch(len), again = first_touch(len);
    uint8_t *from = aligned_alloc(4096, len), *to = aligned_alloc(4096, len);
    if (!from || !to) {
        fprintf(stderr, "bench_memory: no memory for twice %lu MiB\n", mib);
        return 1;
    }
    memset(from, 1, len);
    memset(to, 2, len);
    unsigned threads[2] = {1, cpus()};
    for (unsigned long r = 0; r < runs; r++)
        for (unsigned t = 0; t < 2; t++)
            for (unsigned h = 0; h < HOWS; h++)
                rate[t][h][r] = measure((enum how)h, threads[t], from, to, len);
    free(from);
    free(to);
    if (json)
        printf(
            "{\"mib\":%lu,\"runs\":%lu,\"firstTouchSecondsPerGiB\":%.3f,\"touchAgainSecondsPerGiB\":%.3f,\"rates\":[",
            mib, runs, fresh, again);
    else
        printf("first touch %.3f s/GiB, the same again %.3f s/GiB\n", fresh, again);
    for (unsigned t = 0; t < 2; t++)
        for (unsigned h = 0; h < HOWS; h++) {
            qsort(rate[t][h], runs, sizeof rate[t][h][0], by_value);
            double median = rate[t][h][runs / 2] / 1e9;
            if (json)
                printf("%s{\"how\":\"%s\",\"threads\":%u,\"gbPerSecond\":%.3f}", t || h ? "," : "", how_names[h],
                       threads[t], median);
            else
                printf("%-6s %4u thread%s %8.2f GB/s\n", how_names[h], threads[t], threads[t] > 1 ? "s" : " ", median);
        }
    if (json)
        printf("]}\n");
    return 0;
}
