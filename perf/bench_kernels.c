/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench_kernels - how fast the splitters and hashes are, each kernel against its scalar twin
 *
 *   bench_kernels [--size MIB] [--runs N] [--json]
 *
 * Each kernel works on the same MIB (default 32) of random bytes, N times (default 9), all of them in turn so that a
 * slow spell of the machine hits every one; printed is the median of CPU time on one core (and the fastest and slowest
 * run), its ratio to the scalar kernel, and for BLAKE2b the ratio to OpenSSL's BLAKE2BMAC on one stream. "byte loop" is
 * the splitter as the format defines it: a circular window, one byte after another.
 */
#include "base/cleanup.h"
#include "chunker/hash.h"
#include "chunker/kernel.h"
#include "chunker/rolling.h"

#include <openssl/evp.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS_MAX 101
#define PARTS 16 /* messages of a batch */

struct data {
    uint8_t *bytes;
    size_t len;
    uint64_t sink; /* keeps results in use */
};

struct bench {
    const char *group, *kernel;
    const char *hash;                                  /* a hasher, or */
    void (*fn)(const struct bench *b, struct data *d); /* a function */
    rolling_scan_fn *scan;
    enum kernel_level level;
    bool batch;
    struct hasher *hasher;
    double gbps[RUNS_MAX];
    double median, low, high;
};

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The definition of section 11.4 of the format, without the cuts; no hash of random data is 0 in all 32 bits for long.
 */
static void buzhash_byte_loop(const struct bench *b, struct data *d)
{
    (void)b;
    uint8_t window[ROLLING_WINDOW] = {0};
    uint32_t h = 0, count = 0;
    for (size_t i = 0; i < d->len; i++) {
        uint8_t *oldest = &window[count++ % ROLLING_WINDOW];
        h = (h << 1 | h >> 31) ^ buzhash_table[*oldest] ^ buzhash_table[d->bytes[i]];
        *oldest = d->bytes[i];
        if (h == 0)
            d->sink++;
    }
}

static uint64_t rabin_out[256], rabin_mod[256];

static void make_rabin_tables(void)
{
    static const uint8_t zeros[ROLLING_WINDOW];
    for (unsigned v = 0; v < 256; v++) {
        uint8_t window[ROLLING_WINDOW], shifted[8] = {0};
        memcpy(window, zeros, sizeof window);
        window[0] = (uint8_t)v;
        rabin_out[v] = rabinkarp_residue(window, sizeof window);
        /* v * x^53 = (v << 5) * x^48: two bytes and six of zeros. */
        shifted[0] = (uint8_t)(v >> 3);
        shifted[1] = (uint8_t)(v << 5);
        rabin_mod[v] = rabinkarp_residue(shifted, sizeof shifted) ^ (uint64_t)v << 53;
    }
}

static void rabinkarp_byte_loop(const struct bench *b, struct data *d)
{
    (void)b;
    uint8_t window[ROLLING_WINDOW] = {0};
    uint64_t h = 0;
    uint32_t count = 0;
    for (size_t i = 0; i < d->len; i++) {
        uint8_t *oldest = &window[count++ % ROLLING_WINDOW];
        h ^= rabin_out[*oldest];
        h = (h << 8 | d->bytes[i]) ^ rabin_mod[h >> 45];
        *oldest = d->bytes[i];
        if ((uint32_t)h == 0)
            d->sink++;
    }
    if (h != rabinkarp_residue(d->bytes + d->len - ROLLING_WINDOW, ROLLING_WINDOW)) {
        fprintf(stderr, "bench_kernels: the byte loop and the kernel disagree\n");
        exit(1);
    }
}

static void scan(const struct bench *b, struct data *d)
{
    size_t from = ROLLING_WINDOW, cut;
    while ((cut = b->scan(d->bytes, from, d->len, 0xffffffff)) != 0) {
        d->sink++;
        from = cut + 1;
    }
}

static void digest(const struct bench *b, struct data *d)
{
    uint8_t out[HASH_MAX];
    if (!b->batch) {
        hasher_digest(b->hasher, d->bytes, d->len, out);
        d->sink += out[0];
        return;
    }
    /* Messages of different lengths, as contents are. */
    struct hash_job jobs[PARTS];
    size_t part = d->len / PARTS, pos = 0;
    for (size_t i = 0; i < PARTS; i++) {
        size_t len = i % 2 ? 2 * part - jobs[i - 1].len : part / 2 + i * (part / PARTS);
        jobs[i] = (struct hash_job){.data = d->bytes + pos, .len = len};
        pos += len;
    }
    hasher_digest_many(b->hasher, jobs, PARTS);
    d->sink += jobs[0].out[0];
}

static void blake2b_of_openssl(const struct bench *b, struct data *d)
{
    (void)b;
    uint8_t out[64];
    size_t size = 32;
    OSSL_PARAM p[2] = {OSSL_PARAM_construct_size_t("size", &size), OSSL_PARAM_construct_end()};
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "BLAKE2BMAC", NULL);
    EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;
    if (!ctx || !EVP_MAC_init(ctx, (const uint8_t *)"key", 3, p) || !EVP_MAC_update(ctx, d->bytes, d->len) ||
        !EVP_MAC_final(ctx, out, &size, sizeof out)) {
        fprintf(stderr, "bench_kernels: OpenSSL has no BLAKE2BMAC\n");
        exit(1);
    }
    d->sink += out[0];
    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(mac);
}

static struct bench benches[] = {
    {.group = "buzhash", .kernel = "byte loop", .fn = buzhash_byte_loop},
    {.group = "buzhash", .kernel = "scalar", .fn = scan, .scan = buzhash_scan_scalar},
    {.group = "buzhash", .kernel = "avx2", .fn = scan, .scan = buzhash_scan_avx2, .level = KERNEL_AVX2},
    {.group = "buzhash", .kernel = "avx512", .fn = scan, .scan = buzhash_scan_avx512, .level = KERNEL_AVX512},
    {.group = "rabinkarp", .kernel = "byte loop", .fn = rabinkarp_byte_loop},
    {.group = "rabinkarp", .kernel = "scalar", .fn = scan, .scan = rabinkarp_scan_scalar},
    {.group = "rabinkarp", .kernel = "avx2", .fn = scan, .scan = rabinkarp_scan_avx2, .level = KERNEL_AVX2},
    {.group = "blake2b", .kernel = "openssl", .fn = blake2b_of_openssl},
    {.group = "blake2b", .kernel = "scalar", .fn = digest, .hash = "BLAKE2B-256"},
    {.group = "blake2b", .kernel = "avx2", .fn = digest, .hash = "BLAKE2B-256", .level = KERNEL_AVX2, .batch = true},
    {.group = "blake2b",
     .kernel = "avx512",
     .fn = digest,
     .hash = "BLAKE2B-256",
     .level = KERNEL_AVX512,
     .batch = true},
    {.group = "blake3", .kernel = "scalar", .fn = digest, .hash = "BLAKE3-256"},
    {.group = "blake3", .kernel = "avx2", .fn = digest, .hash = "BLAKE3-256", .level = KERNEL_AVX2},
    {.group = "blake3", .kernel = "avx512", .fn = digest, .hash = "BLAKE3-256", .level = KERNEL_AVX512},
    {.group = "blake2s", .kernel = "scalar", .fn = digest, .hash = "BLAKE2S-256"},
    {.group = "blake2s", .kernel = "avx2", .fn = digest, .hash = "BLAKE2S-256", .level = KERNEL_AVX2, .batch = true},
    {.group = "hmac-sha256", .kernel = "openssl", .fn = digest, .hash = "HMAC-SHA256"},
    {.group = "hmac-sha256",
     .kernel = "avx2",
     .fn = digest,
     .hash = "HMAC-SHA256",
     .level = KERNEL_AVX2,
     .batch = true},
    {.group = "hmac-sha3-256", .kernel = "openssl", .fn = digest, .hash = "HMAC-SHA3-256"},
};

#define N_BENCHES (sizeof benches / sizeof benches[0])

static bool runs_here(const struct bench *b)
{
    if (!strcmp(b->group, "hmac-sha256")) {
        unsetenv("SNAPFERRY_KERNEL_SHA256");
        return b->level <= kernel_level("SHA256", KERNEL_AVX2);
    }
    return b->level <= kernel_cpu_level();
}

static int make_hasher(struct bench *b, struct err *e)
{
    setenv("SNAPFERRY_KERNEL_BLAKE2B", kernel_level_name(b->level), 1);
    setenv("SNAPFERRY_KERNEL_BLAKE3", kernel_level_name(b->level), 1);
    setenv("SNAPFERRY_KERNEL_BLAKE2S", b->level == KERNEL_SCALAR ? "scalar" : "avx2", 1);
    setenv("SNAPFERRY_KERNEL_SHA256", b->level == KERNEL_SCALAR ? "scalar" : "avx2", 1);
    return hasher_new(&b->hasher, b->hash, (const uint8_t *)"key", 3, e);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const char *group, const char *kernel)
{
    for (size_t i = 0; i < N_BENCHES; i++)
        if (!strcmp(benches[i].group, group) && !strcmp(benches[i].kernel, kernel))
            return benches[i].median;
    return 0;
}

static void print_text(const struct bench *b)
{
    double scalar = median_of(b->group, "scalar");
    printf("%-14s %-9s %7.3f GB/s  (%.3f - %.3f)", b->group, b->kernel, b->median, b->low, b->high);
    if (scalar > 0)
        printf("  %5.2f x scalar", b->median / scalar);
    if (!strcmp(b->group, "blake2b"))
        printf("  %5.2f x OpenSSL", b->median / median_of("blake2b", "openssl"));
    putchar('\n');
}

static void print_json(const struct bench *b, bool first)
{
    double scalar = median_of(b->group, "scalar");
    printf("%s{\"group\":\"%s\",\"kernel\":\"%s\",\"gbPerSecond\":%.3f,\"min\":%.3f,\"max\":%.3f", first ? "" : ",",
           b->group, b->kernel, b->median, b->low, b->high);
    if (scalar > 0)
        printf(",\"ratioToScalar\":%.3f", b->median / scalar);
    if (!strcmp(b->group, "blake2b"))
        printf(",\"ratioToOpenSSL\":%.3f", b->median / median_of("blake2b", "openssl"));
    putchar('}');
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"size", required_argument, NULL, 's'},
                                            {"runs", required_argument, NULL, 'r'},
                                            {"json", no_argument, NULL, 'j'},
                                            {NULL, 0, NULL, 0}};
    unsigned long mib = 32, runs = 9;
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
    if (optind != argc || mib < 1 || mib > 4096 || runs < 1 || runs > RUNS_MAX) {
        fprintf(stderr, "usage: bench_kernels [--size 1..4096] [--runs 1..%d] [--json]\n", RUNS_MAX);
        return 2;
    }

    struct err e = ERR_INIT;
    struct data d = {.bytes = malloc(mib << 20), .len = mib << 20};
    if (!d.bytes) {
        fprintf(stderr, "bench_kernels: no memory for %lu MiB\n", mib);
        return 1;
    }
    uint64_t x = 1;
    for (size_t i = 0; i < d.len; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        d.bytes[i] = (uint8_t)(x >> 56);
    }
    make_rabin_tables();
    for (size_t i = 0; i < N_BENCHES; i++) {
        if (runs_here(&benches[i]) && benches[i].hash && make_hasher(&benches[i], &e) < 0) {
            fprintf(stderr, "bench_kernels: %s\n", e.msg);
            return 1;
        }
    }

    for (unsigned long r = 0; r < runs; r++) {
        for (size_t i = 0; i < N_BENCHES; i++) {
            if (!runs_here(&benches[i]))
                continue;
            double t = cpu_seconds();
            benches[i].fn(&benches[i], &d);
            benches[i].gbps[r] = (double)d.len / (cpu_seconds() - t) * 1e-9;
        }
    }
    for (size_t i = 0; i < N_BENCHES; i++) {
        struct bench *b = &benches[i];
        qsort(b->gbps, runs, sizeof b->gbps[0], by_value);
        b->median = b->gbps[runs / 2];
        b->low = b->gbps[0];
        b->high = b->gbps[runs - 1];
    }

    if (json)
        printf("{\"cpuLevel\":\"%s\",\"mib\":%lu,\"runs\":%lu,\"kernels\":[", kernel_level_name(kernel_cpu_level()),
               mib, runs);
    bool first = true;
    for (size_t i = 0; i < N_BENCHES; i++) {
        if (!runs_here(&benches[i]))
            continue;
        if (json)
            print_json(&benches[i], first);
        else
            print_text(&benches[i]);
        first = false;
        hasher_free(benches[i].hasher);
    }
    if (json)
        printf("]}\n");
    fprintf(stderr, "check value %" PRIu64 "\n", d.sink);
    free(d.bytes);
    return 0;
}
