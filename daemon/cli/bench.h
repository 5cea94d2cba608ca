/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench.h - declarations of `snapferry bench`; the measuring core is daemon/bench/bench.h */
#ifndef SNAPFERRY_DAEMON_CLI_BENCH_H
#define SNAPFERRY_DAEMON_CLI_BENCH_H

#include "daemon/bench/bench.h"
#include "daemon/cli/daemon.h"

/* ---- the device (bench-device.c) ---- */

#define BENCH_READS_MAX 16
struct bench_device {
    char path[4096];
    uint64_t size;
    bool is_block, uring, direct;
    char media[16], fallback[160];
    struct bench_read reads[BENCH_READS_MAX];
    unsigned n, usual; /* `usual`: index of the reader's default */
};
/* Reads only. Members are valid as far as measured. */
int bench_device(struct bench_device *d, const struct options *o, double seconds, const _Atomic bool *cancel,
                 struct err *e);

/* ---- the pipeline (bench-pipeline.c) ---- */

#define BENCH_MOVES_MAX 8
struct bench_move {
    const char *name;
    uint64_t bytes, stored;
    double seconds, core_seconds;
    struct stage_time stages[STAGES_MAX];
    unsigned n_stages;
    const char *bottleneck;
};
struct bench_pipeline {
    char hash[40], splitter[40], encryption[48];
    uint64_t size;
    unsigned workers;
    double open_seconds; /* of the repository, with key derivation */
    struct bench_move moves[BENCH_MOVES_MAX];
    unsigned n;
};
/* In a new directory below o->dir, which is always removed. */
int bench_pipeline(struct bench_pipeline *p, const struct options *o, uint64_t size, struct err *e);

/* ---- results (bench-advice.c, bench-print.c) ---- */

struct bench_report {
    const struct bench_row *rows;
    unsigned n_rows;
    size_t sample_len, sample_piece;
    const struct bench_limits *limits;
    const struct bench_device *device;     /* NULL: not measured */
    const struct bench_pipeline *pipeline; /* NULL: not measured */
    bool interrupted;
};

#define BENCH_ADVICE_MAX 10
struct bench_advice {
    struct bench_advice_line {
        const char *topic; /* "hash", "splitter", ... */
        char choice[64], why[512];
    } lines[BENCH_ADVICE_MAX];
    unsigned n;
    char command[512]; /* to create such a repository, "" without enough results */
};
/* Based on measured rows only. */
void bench_advise(struct bench_advice *a, const struct bench_report *r);

void bench_print(const struct bench_report *r, const struct bench_advice *a);
json_t *bench_json(const struct bench_report *r, const struct bench_advice *a);

#endif
