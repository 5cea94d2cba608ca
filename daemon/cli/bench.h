/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench.h - what the files of `snapferry bench` share
 *
 * A row is one thing that a core can do to bytes ("hash BLAKE3-256"). It is measured twice: on one thread by the
 * thread's own CPU clock, which other work on the machine does not disturb much, and on all threads at a time by the
 * wall clock, which is what a run would see. Sizes are bytes, rates 10^9 bytes of plaintext per second.
 */
#ifndef SNAPFERRY_DAEMON_CLI_BENCH_H
#define SNAPFERRY_DAEMON_CLI_BENCH_H

#include "daemon/cli/daemon.h"

#define BENCH_SEED UINT64_C(0x736e617066657272) /* all data are made from it: the same on every machine */
#define BENCH_ROWS_MAX 160

/* ---- data (bench-sample.c) ---- */

struct bench_sample {
    uint8_t *random; /* cannot be compressed */
    uint8_t *mixed;  /* text, records, zeros and random bytes in turn */
    uint8_t *zero;   /* `piece` bytes, really written, not shared zero pages */
    size_t len;      /* of random and mixed, a multiple of piece */
    size_t piece;    /* one content */
};

int bench_sample_new(struct bench_sample *s, size_t len, size_t piece, struct err *e);
void bench_sample_clear(struct bench_sample *s);
/* Fills out[0..len) with what lies at `pos` of an endless stream of that kind; pos and len are multiples of 64 KiB. */
void bench_fill_random(uint8_t *out, size_t len, uint64_t pos);
void bench_fill_mixed(uint8_t *out, size_t len, uint64_t pos);

/* ---- rows (bench-rows.c, bench-codecs.c) ---- */

enum bench_group {
    BENCH_MEMORY,
    BENCH_ZEROS,
    BENCH_SPLITTERS,
    BENCH_HASHES,
    BENCH_CIPHERS,
    BENCH_COMPRESSORS,
    BENCH_ECC,
    BENCH_GROUPS
};
/* What `snapferry bench` takes as words, in the order of the enum, and the words "device" and "pipeline" behind. */
const char *bench_group_name(enum bench_group g);

struct bench_row;

/* One thread at work on a row. */
struct bench_work {
    const struct bench_row *row;
    const struct bench_sample *sample;
    void *state;
    size_t at;     /* where in the sample the next step begins */
    uint64_t sink; /* keeps results in use */
    size_t stored; /* compressors: bytes that the first piece took */
};

/* What rows of one kind do. */
struct bench_kind {
    int (*begin)(struct bench_work *w, struct err *e);
    /* Some milliseconds of work, if the machine is not very slow: bytes of plaintext, or negative. */
    int64_t (*step)(struct bench_work *w, struct err *e);
    void (*end)(struct bench_work *w);                                         /* after begin() failed too */
    size_t (*memory)(const struct bench_row *r, const struct bench_sample *s); /* of one thread, sample aside */
};

struct bench_row {
    enum bench_group group;
    char name[48], variant[16]; /* "zstd-fastest", "mixed" */
    char kernel[24];            /* what does the work: "avx2", "openssl", ... */
    const struct bench_kind *kind;
    unsigned number; /* percentage, header id: what the kind needs */
    /* measured; 0: not yet, or interrupted */
    double core, core_best; /* one thread by its CPU clock: median and best run */
    double all;             /* all threads by the wall clock, 0 if they do not fit into the memory budget */
    unsigned runs, threads;
    double share;  /* of the CPUs, what the threads really got: below 1 where others work too */
    double stored; /* compressors: stored bytes per byte of the sample's first piece, else 0 */
    bool done;
};

/* All rows of the groups in the mask (1 << group). Returns how many. */
unsigned bench_rows(struct bench_row rows[BENCH_ROWS_MAX], unsigned groups, struct err *e);
extern const struct bench_kind bench_compress, bench_expand, bench_ecc_encode, bench_ecc_decode;

/* ---- measuring (bench-measure.c) ---- */

struct bench_limits {
    double seconds;   /* per row and way of measuring */
    unsigned runs;    /* short runs that make the median */
    unsigned threads; /* for "all cores" */
    uint64_t memory;  /* for the threads of a row, sample aside */
    const struct mover_cancel *cancel;
};

/* Fills the measured members. 0, -ECANCELED (ERR_INTERRUPTED) or an error. */
int bench_measure(struct bench_row *r, const struct bench_sample *s, const struct bench_limits *l, struct err *e);
double bench_wall(void);                                            /* seconds, monotonic */
double bench_process_cpu(void);                                     /* core-seconds of all threads */
int bench_interrupted(const struct mover_cancel *c, struct err *e); /* 0 or -ECANCELED */

/* ---- the device (bench-device.c) ---- */

#define BENCH_READS_MAX 16
struct bench_read {
    size_t block;
    unsigned depth;
    uint64_t bytes;
    double rate, cost; /* 10^9 bytes a second, core-seconds per 10^9 bytes */
};
struct bench_device {
    char path[4096];
    uint64_t size;
    bool is_block, uring, direct;
    char media[16], fallback[160];
    struct bench_read reads[BENCH_READS_MAX];
    unsigned n, usual; /* `usual`: index of the reader's default */
};
/* Reads only. Members are valid for as far as it got. */
int bench_device(struct bench_device *d, const struct options *o, double seconds, const struct mover_cancel *cancel,
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
    double open_seconds; /* of the repository: the key is derived from the password */
    struct bench_move moves[BENCH_MOVES_MAX];
    unsigned n;
};
/* In a new directory below o->dir, which is removed again whatever happens. */
int bench_pipeline(struct bench_pipeline *p, const struct options *o, uint64_t size, struct err *e);

/* ---- telling (bench-advice.c, bench-print.c) ---- */

struct bench_report {
    const struct bench_row *rows;
    unsigned n_rows;
    size_t sample_len, sample_piece;
    const struct bench_limits *limits;
    const struct bench_device *device;     /* NULL: not asked for */
    const struct bench_pipeline *pipeline; /* NULL: not asked for */
    bool interrupted;
};

#define BENCH_ADVICE_MAX 10
struct bench_advice {
    struct bench_advice_line {
        const char *topic; /* "hash", "splitter", ... */
        char choice[64], why[512];
    } lines[BENCH_ADVICE_MAX];
    unsigned n;
    char command[512]; /* that makes such a repository, "" if too little was measured */
};
/* Says only what the rows that were measured bear out. */
void bench_advise(struct bench_advice *a, const struct bench_report *r);

void bench_print(const struct bench_report *r, const struct bench_advice *a);
json_t *bench_json(const struct bench_report *r, const struct bench_advice *a);

#endif
