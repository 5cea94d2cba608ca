/* SPDX-License-Identifier: GPL-2.0-or-later */
/* kernels.h - rows of single kernels of splitters, hashes and sums, whichever are in use; for one thread, as the
 * environment selects kernels */
#ifndef SNAPFERRY_PERF_KERNELS_H
#define SNAPFERRY_PERF_KERNELS_H

#include "chunker/hash.h"
#include "chunker/kernel.h"
#include "chunker/rolling.h"
#include "chunker/sums.h"
#include "daemon/bench/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct kernel {
    const char *group; /* "buzhash" */
    const char *name;  /* "scalar", "avx2"; "openssl" where the library stands in for the scalar one */
    enum kernel_level level;
    rolling_scan_fn *scan; /* a splitter's, or */
    const char *hash;      /* a hash of the format; NULL: MD5 of eight files at a time, with */
    const char *setting;   /* the variable that selects its kernel, NULL: there is one only */
};

static const struct kernel kernels[] = {
    {"buzhash", "scalar", KERNEL_SCALAR, buzhash_scan_scalar, NULL, NULL},
    {"buzhash", "avx2", KERNEL_AVX2, buzhash_scan_avx2, NULL, NULL},
    {"buzhash", "avx512", KERNEL_AVX512, buzhash_scan_avx512, NULL, NULL},
    {"rabinkarp", "scalar", KERNEL_SCALAR, rabinkarp_scan_scalar, NULL, NULL},
    {"rabinkarp", "avx2", KERNEL_AVX2, rabinkarp_scan_avx2, NULL, NULL},
    {"blake2b", "scalar", KERNEL_SCALAR, NULL, "BLAKE2B-256", "SNAPFERRY_KERNEL_BLAKE2B"},
    {"blake2b", "avx2", KERNEL_AVX2, NULL, "BLAKE2B-256", "SNAPFERRY_KERNEL_BLAKE2B"},
    {"blake2b", "avx512", KERNEL_AVX512, NULL, "BLAKE2B-256", "SNAPFERRY_KERNEL_BLAKE2B"},
    {"blake3", "scalar", KERNEL_SCALAR, NULL, "BLAKE3-256", "SNAPFERRY_KERNEL_BLAKE3"},
    {"blake3", "avx2", KERNEL_AVX2, NULL, "BLAKE3-256", "SNAPFERRY_KERNEL_BLAKE3"},
    {"blake3", "avx512", KERNEL_AVX512, NULL, "BLAKE3-256", "SNAPFERRY_KERNEL_BLAKE3"},
    {"blake2s", "scalar", KERNEL_SCALAR, NULL, "BLAKE2S-256", "SNAPFERRY_KERNEL_BLAKE2S"},
    {"blake2s", "avx2", KERNEL_AVX2, NULL, "BLAKE2S-256", "SNAPFERRY_KERNEL_BLAKE2S"},
    {"hmac-sha256", "openssl", KERNEL_SCALAR, NULL, "HMAC-SHA256", "SNAPFERRY_KERNEL_SHA256"},
    {"hmac-sha256", "avx2", KERNEL_AVX2, NULL, "HMAC-SHA256", "SNAPFERRY_KERNEL_SHA256"},
    {"hmac-sha3-256", "openssl", KERNEL_SCALAR, NULL, "HMAC-SHA3-256", NULL},
    {"md5", "openssl", KERNEL_SCALAR, NULL, NULL, "SNAPFERRY_KERNEL_MD5"},
    {"md5", "avx2", KERNEL_AVX2, NULL, NULL, "SNAPFERRY_KERNEL_MD5"},
    {"md5", "avx512", KERNEL_AVX512, NULL, NULL, "SNAPFERRY_KERNEL_MD5"},
};
#define N_KERNELS (sizeof kernels / sizeof *kernels)

/* On this CPU. */
static inline bool kernel_runs(const struct kernel *k)
{
    /* The kernel of SHA-256 needs more than its level says. */
    if (k->setting && !strcmp(k->setting, "SNAPFERRY_KERNEL_SHA256")) {
        unsetenv(k->setting);
        return k->level <= kernel_level("SHA256", KERNEL_AVX2);
    }
    return k->level <= kernel_cpu_level();
}

/* A file of the sample, as uploads have. */
static int begin_sums(struct bench_work *w, struct err *e)
{
    int *fd = malloc(sizeof *fd);
    if (!fd)
        return err_nomem(e);
    w->state = fd;
    *fd = memfd_create("bench-kernels", MFD_CLOEXEC);
    const size_t len = w->sample->len / SUMS_BODIES;
    return *fd >= 0 && write(*fd, w->sample->random, len) == (ssize_t)len
               ? 0
               : err_set(e, ERR_GENERIC, errno, "cannot make a file in memory");
}

static int64_t step_sums(struct bench_work *w, const struct kernel *k, struct err *e)
{
    struct sums_body all[SUMS_BODIES];
    const int *fd = w->state;
    for (size_t i = 0; i < SUMS_BODIES; i++)
        all[i] = (struct sums_body){.fd = *fd, .length = w->sample->len / SUMS_BODIES};
    setenv(k->setting, kernel_level_name(k->level), 1);
    const int rc = sums_of_files(all, SUMS_BODIES, false, e);
    unsetenv(k->setting);
    w->sink += all[0].sums.md5[0];
    return rc < 0 || all[0].rc < 0 ? -EIO : (int64_t)(w->sample->len / SUMS_BODIES * SUMS_BODIES);
}

static int begin_kernel(struct bench_work *w, struct err *e)
{
    static const uint8_t key[] = "key";
    const struct kernel *k = w->row->what;
    struct hasher *h = NULL;
    if (k->scan)
        return 0;
    if (!k->hash)
        return begin_sums(w, e);
    if (k->setting)
        setenv(k->setting, kernel_level_name(k->level), 1);
    int rc = hasher_new(&h, k->hash, key, sizeof key - 1, e);
    if (k->setting)
        unsetenv(k->setting);
    w->state = h;
    return rc;
}

/* A pass over the sample. A cut where all 32 bits are 0 is too rare in noise to matter. */
static int64_t step_kernel(struct bench_work *w, struct err *e)
{
    const struct kernel *k = w->row->what;
    if (!k->scan)
        return k->hash ? bench_hash_batch(w, w->state) : step_sums(w, k, e);
    for (size_t from = ROLLING_WINDOW, cut; (cut = k->scan(w->sample->random, from, w->sample->len, 0xffffffff)) != 0;
         from = cut + 1)
        w->sink++;
    return (int64_t)w->sample->len;
}

static void end_kernel(struct bench_work *w)
{
    const struct kernel *k = w->row->what;
    if (k->hash || k->scan) {
        hasher_free(w->state);
    } else if (w->state) {
        close(*(int *)w->state);
        free(w->state);
    }
}

static size_t kernel_memory(const struct bench_row *r, const struct bench_sample *s, unsigned threads)
{
    (void)r;
    (void)s;
    (void)threads;
    return 0;
}

static const struct bench_kind kernel_kind = {begin_kernel, step_kernel, end_kernel, kernel_memory};

static inline void kernel_row(struct bench_row *r, const struct kernel *k)
{
    *r = (struct bench_row){.group = k->scan ? BENCH_SPLITTERS : BENCH_HASHES, .kind = &kernel_kind, .what = k};
    snprintf(r->name, sizeof r->name, "%s", k->group);
    snprintf(r->kernel, sizeof r->kernel, "%s", k->name);
}

#endif
