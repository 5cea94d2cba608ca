/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * count_kernels - one splitter or hash kernel over a fixed input, for a tool that counts instructions
 *
 *   count_kernels --list            each kernel: its name and whether this CPU runs it ("yes") or not ("no")
 *   count_kernels --compiler        what built the kernels
 *   count_kernels --bytes           how many bytes a kernel works on
 *   count_kernels KERNEL            "buzhash/avx2": runs it, its work alone within the function measured()
 *
 * perf/instructions.sh uses it: valgrind --tool=callgrind --toggle-collect=measured. Tables and choices that are made
 * once are made before, by a short run of the same kernel. The input is the same on every machine.
 */
#include "chunker/hash.h"
#include "chunker/kernel.h"
#include "chunker/rolling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (1U << 20)
#define WARM_UP (1U << 16)
#define PARTS 16 /* messages of a batch */

struct kernel {
    const char *name;
    enum kernel_level level;
    rolling_scan_fn *scan; /* or */
    const char *hash;
};

static const struct kernel kernels[] = {
    {"buzhash/scalar", KERNEL_SCALAR, buzhash_scan_scalar, NULL},
    {"buzhash/avx2", KERNEL_AVX2, buzhash_scan_avx2, NULL},
    {"buzhash/avx512", KERNEL_AVX512, buzhash_scan_avx512, NULL},
    {"rabinkarp/scalar", KERNEL_SCALAR, rabinkarp_scan_scalar, NULL},
    {"rabinkarp/avx2", KERNEL_AVX2, rabinkarp_scan_avx2, NULL},
    {"blake2b/scalar", KERNEL_SCALAR, NULL, "BLAKE2B-256"},
    {"blake2b/avx2", KERNEL_AVX2, NULL, "BLAKE2B-256"},
    {"blake2b/avx512", KERNEL_AVX512, NULL, "BLAKE2B-256"},
    {"blake3/scalar", KERNEL_SCALAR, NULL, "BLAKE3-256"},
    {"blake3/avx2", KERNEL_AVX2, NULL, "BLAKE3-256"},
    {"blake3/avx512", KERNEL_AVX512, NULL, "BLAKE3-256"},
    {"blake2s/scalar", KERNEL_SCALAR, NULL, "BLAKE2S-256"},
    {"blake2s/avx2", KERNEL_AVX2, NULL, "BLAKE2S-256"},
};

#define N_KERNELS (sizeof kernels / sizeof kernels[0])

static uint64_t sink;

/* What is counted. Scans: all 32 bits of a hash of noise are not 0 within a mebibyte, so the whole input is passed.
 * Hashes: messages of different lengths, as contents are, in one batch. */
__attribute__((noinline)) void measured(const struct kernel *k, const struct hasher *h, const uint8_t *data,
                                        size_t len);
void measured(const struct kernel *k, const struct hasher *h, const uint8_t *data, size_t len)
{
    if (k->scan) {
        sink += k->scan(data, ROLLING_WINDOW, len, 0xffffffff);
        return;
    }
    struct hash_job jobs[PARTS];
    size_t part = len / PARTS, pos = 0;
    for (size_t i = 0; i < PARTS; i++) {
        size_t n = i % 2 ? 2 * part - jobs[i - 1].len : part / 2 + i * (part / PARTS);
        jobs[i] = (struct hash_job){.data = data + pos, .len = n};
        pos += n;
    }
    hasher_digest_many(h, jobs, PARTS);
    sink += jobs[0].out[0];
}

static int run(const struct kernel *k)
{
    static uint8_t data[BYTES];
    uint64_t x = 1;
    for (size_t i = 0; i < BYTES; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data[i] = (uint8_t)(x >> 56);
    }
    struct err e = ERR_INIT;
    struct hasher *h = NULL;
    if (k->hash) {
        setenv("SNAPFERRY_KERNEL_BLAKE2B", kernel_level_name(k->level), 1);
        setenv("SNAPFERRY_KERNEL_BLAKE2S", k->level == KERNEL_SCALAR ? "scalar" : "avx2", 1);
        setenv("SNAPFERRY_KERNEL_BLAKE3", kernel_level_name(k->level), 1);
        if (kernels_check(&e) < 0 || hasher_new(&h, k->hash, (const uint8_t *)"key", 3, &e) < 0) {
            fprintf(stderr, "count_kernels: %s\n", e.msg);
            return 1;
        }
    }
    /* The same work, small, outside of measured(): it is not counted. */
    if (k->scan) {
        sink += k->scan(data, ROLLING_WINDOW, WARM_UP, 0xffffffff);
    } else {
        struct hash_job jobs[PARTS];
        for (size_t i = 0; i < PARTS; i++)
            jobs[i] = (struct hash_job){.data = data, .len = WARM_UP / PARTS};
        hasher_digest_many(h, jobs, PARTS);
        sink += jobs[0].out[0];
    }
    measured(k, h, data, BYTES);
    hasher_free(h);
    fprintf(stderr, "check value %llu\n", (unsigned long long)sink);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    if (!strcmp(what, "--list")) {
        for (size_t i = 0; i < N_KERNELS; i++)
            printf("%s %s\n", kernels[i].name, kernels[i].level <= kernel_cpu_level() ? "yes" : "no");
        return 0;
    }
    if (!strcmp(what, "--compiler")) {
#if defined(__clang__)
        printf("clang %s\n", __clang_version__);
#else
        printf("gcc %s\n", __VERSION__);
#endif
        return 0;
    }
    if (!strcmp(what, "--bytes")) {
        printf("%u\n", BYTES);
        return 0;
    }
    for (size_t i = 0; i < N_KERNELS; i++)
        if (!strcmp(what, kernels[i].name) && kernels[i].level <= kernel_cpu_level())
            return run(&kernels[i]);
    fprintf(stderr, "usage: count_kernels --list|--compiler|--bytes|KERNEL (one that this CPU runs)\n");
    return 2;
}
