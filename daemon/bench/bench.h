/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench.h - the measuring core of `snapferry bench` and perf/
 *
 * A row is one thing that a core can do to bytes ("hash BLAKE3-256"). It is measured on one thread by the thread's own
 * CPU clock, which other work on the machine hardly disturbs, and on all threads at once by the wall clock, which is
 * what a run would see. Sizes are bytes, rates 10^9 bytes of plaintext per second.
 */
#ifndef SNAPFERRY_DAEMON_BENCH_BENCH_H
#define SNAPFERRY_DAEMON_BENCH_BENCH_H

#include "base/err.h"
#include "io/source.h"

#include <stdatomic.h>

#define BENCH_SEED UINT64_C(0x736e617066657272) /* all data are made from it: the same on every machine */
#define BENCH_ROWS_MAX 160

/* ---- data (sample.c) ---- */

struct bench_sample {
    uint8_t *random; /* cannot be compressed */
    uint8_t *mixed;  /* text, records, zeros and random bytes in turn; may be NULL */
    uint8_t *zero;   /* `piece` bytes, really written, not shared zero pages */
    size_t len;      /* of random and mixed, a multiple of piece */
    size_t piece;    /* one content */
    size_t memory;   /* bytes that rows of BENCH_MEMORY read and write, at most len */
};

int bench_sample_new(struct bench_sample *s, size_t len, size_t piece, bool mixed, struct err *e);
void bench_sample_clear(struct bench_sample *s);
/* Fills out[0..len) from `pos` of an infinite stream of that kind; pos and len are multiples of 64 KiB. */
void bench_fill_random(uint8_t *out, size_t len, uint64_t pos);
void bench_fill_mixed(uint8_t *out, size_t len, uint64_t pos);

/* ---- rows (rows.c, memory.c, codecs.c) ---- */

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
/* NULL for BENCH_GROUPS. */
const char *bench_group_name(enum bench_group g);

struct bench_row;

/* One thread working on a row. */
struct bench_work {
    const struct bench_row *row;
    const struct bench_sample *sample;
    unsigned index, threads; /* which of how many */
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
    void (*end)(struct bench_work *w); /* after begin() failed too */
    /* Of one of so many threads, sample aside. */
    size_t (*memory)(const struct bench_row *r, const struct bench_sample *s, unsigned threads);
};

struct bench_row {
    enum bench_group group;
    char name[48], variant[16]; /* "zstd-fastest", "mixed" */
    char kernel[24];            /* "avx2", "openssl", ... */
    const struct bench_kind *kind;
    unsigned number;  /* percentage, header id: what the kind needs */
    const void *what; /* likewise */
    /* measured; 0: not yet, or interrupted */
    double core, core_best, core_worst; /* one thread by its CPU clock: median, best and worst run */
    double all;                         /* all threads by the wall clock, 0 if they do not fit into memory */
    unsigned runs, threads;
    double share;  /* of the CPUs, what the threads really got: below 1 where others work too */
    double stored; /* compressors: stored bytes per byte of the sample's first piece, else 0 */
    bool done;
};

/* All rows of the groups in the mask (1 << group), with the kernels that are in use. Returns how many. */
unsigned bench_rows(struct bench_row rows[BENCH_ROWS_MAX], unsigned groups, struct err *e);
extern const struct bench_kind bench_compress, bench_expand, bench_ecc_encode, bench_ecc_decode;
extern const struct bench_kind bench_memory_read, bench_memory_write, bench_memory_copy;
/* Several messages of different lengths, as contents are, hashed as one batch; `hasher` is a struct hasher. */
int64_t bench_hash_batch(struct bench_work *w, const void *hasher);

/* ---- measuring (measure.c) ---- */

struct bench_limits {
    double seconds;   /* per row and way of measuring */
    unsigned runs;    /* short runs that make the median, at most BENCH_RUNS_MAX */
    unsigned threads; /* for "all cores"; 0: not measured */
    uint64_t memory;  /* for the threads of a row, sample aside */
    const _Atomic bool *cancel;
};
#define BENCH_RUNS_MAX 101

/* Fills the measured members. 0, -ECANCELED (ERR_INTERRUPTED) or an error. */
int bench_measure(struct bench_row *r, const struct bench_sample *s, const struct bench_limits *l, struct err *e);
/* One core alone, run by run through all rows, so that a slow spell of the machine hits each of them. Each run is at
 * least one step; with seconds 0, one step. */
int bench_measure_core(struct bench_row *rows, unsigned n, const struct bench_sample *s, const struct bench_limits *l,
                       struct err *e);
double bench_wall(void);                                     /* seconds, monotonic */
double bench_process_cpu(void);                              /* core-seconds of all threads */
int bench_interrupted(const _Atomic bool *c, struct err *e); /* 0 or -ECANCELED */
double bench_median(double *values, unsigned n);             /* sorts them */
unsigned bench_cpus(void);                                   /* that this process may use */

/* ---- reading (read.c) ---- */

struct bench_read {
    size_t block; /* 0: the reader's default */
    unsigned depth;
    bool no_uring, no_direct;
    /* measured */
    uint64_t bytes;
    double rate, cost; /* 10^9 bytes a second, core-seconds per 10^9 bytes */
    bool uring, direct, fixed_buffers;
    char fallback[160];
};
/*
 * Reads a source as backups do, from *pos for some seconds or to `end`; *pos is then where it ended. With warm_up the
 * ring is filled once before the clock is started, as far as that takes no more than half of the time: the first touch
 * of its pages costs more than the reading.
 */
int bench_read(struct bench_read *t, struct source *s, uint64_t *pos, uint64_t end, double seconds, bool warm_up,
               const _Atomic bool *cancel, struct err *e);

#endif
