/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench_kernels - how fast the splitters and hashes are, each kernel against its scalar twin
 *
 *   bench_kernels [--size MIB] [--runs N] [--json]
 *
 * Every kernel of perf/kernels.h that this CPU runs, beside two references: "byte loop" is the splitter as the format
 * defines it (a circular window, one byte after another), and BLAKE2b has OpenSSL's BLAKE2BMAC on one stream. Each
 * works on the same MIB (default 32) of noise, N times (default 9), all of them in turn; printed is the median of CPU
 * time on one core (and the slowest and fastest run), its ratio to the scalar kernel, and for BLAKE2b the ratio to
 * OpenSSL.
 */
#include "base/cleanup.h"
#include "perf/kernels.h"

#include <openssl/evp.h>

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int begin_nothing(struct bench_work *w, struct err *e)
{
    (void)w;
    (void)e;
    return 0;
}

static void end_nothing(struct bench_work *w)
{
    (void)w;
}

/* Section 11.4 of the format, without the cuts; no hash of random data is 0 in all 32 bits for long. */
static int64_t buzhash_byte_loop(struct bench_work *w, struct err *e)
{
    (void)e;
    const uint8_t *bytes = w->sample->random;
    uint8_t window[ROLLING_WINDOW] = {0};
    uint32_t h = 0, count = 0;
    for (size_t i = 0; i < w->sample->len; i++) {
        uint8_t *oldest = &window[count++ % ROLLING_WINDOW];
        h = (h << 1 | h >> 31) ^ buzhash_table[*oldest] ^ buzhash_table[bytes[i]];
        *oldest = bytes[i];
        if (h == 0)
            w->sink++;
    }
    return (int64_t)w->sample->len;
}

static uint64_t rabin_out[256], rabin_mod[256];

static int make_rabin_tables(struct bench_work *w, struct err *e)
{
    (void)w;
    (void)e;
    for (unsigned v = 0; v < 256; v++) {
        uint8_t window[ROLLING_WINDOW] = {0}, shifted[8] = {0};
        window[0] = (uint8_t)v;
        rabin_out[v] = rabinkarp_residue(window, sizeof window);
        /* v * x^53 = (v << 5) * x^48: two bytes and six of zeros. */
        shifted[0] = (uint8_t)(v >> 3);
        shifted[1] = (uint8_t)(v << 5);
        rabin_mod[v] = rabinkarp_residue(shifted, sizeof shifted) ^ (uint64_t)v << 53;
    }
    return 0;
}

static int64_t rabinkarp_byte_loop(struct bench_work *w, struct err *e)
{
    const uint8_t *bytes = w->sample->random;
    const size_t len = w->sample->len;
    uint8_t window[ROLLING_WINDOW] = {0};
    uint64_t h = 0;
    uint32_t count = 0;
    for (size_t i = 0; i < len; i++) {
        uint8_t *oldest = &window[count++ % ROLLING_WINDOW];
        h ^= rabin_out[*oldest];
        h = (h << 8 | bytes[i]) ^ rabin_mod[h >> 45];
        *oldest = bytes[i];
        if ((uint32_t)h == 0)
            w->sink++;
    }
    if (h != rabinkarp_residue(bytes + len - ROLLING_WINDOW, ROLLING_WINDOW))
        return err_set(e, ERR_GENERIC, EINVAL, "the byte loop and the kernel disagree");
    return (int64_t)len;
}

static int64_t blake2b_of_openssl(struct bench_work *w, struct err *e)
{
    uint8_t out[64];
    size_t size = 32;
    OSSL_PARAM p[2] = {OSSL_PARAM_construct_size_t("size", &size), OSSL_PARAM_construct_end()};
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "BLAKE2BMAC", NULL);
    EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;
    bool ok = ctx && EVP_MAC_init(ctx, (const uint8_t *)"key", 3, p) &&
              EVP_MAC_update(ctx, w->sample->random, w->sample->len) && EVP_MAC_final(ctx, out, &size, sizeof out);
    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(mac);
    if (!ok)
        return err_set(e, ERR_GENERIC, EINVAL, "OpenSSL has no BLAKE2BMAC");
    w->sink += out[0];
    return (int64_t)w->sample->len;
}

static const struct bench_kind buzhash_reference = {begin_nothing, buzhash_byte_loop, end_nothing, NULL},
                               rabinkarp_reference = {make_rabin_tables, rabinkarp_byte_loop, end_nothing, NULL},
                               blake2b_reference = {begin_nothing, blake2b_of_openssl, end_nothing, NULL};

/* The rows of a group stand together, its reference first. */
static unsigned all_rows(struct bench_row rows[BENCH_ROWS_MAX])
{
    static const struct {
        const char *group, *name;
        const struct bench_kind *kind;
    } references[] = {{"buzhash", "byte loop", &buzhash_reference},
                      {"rabinkarp", "byte loop", &rabinkarp_reference},
                      {"blake2b", "openssl", &blake2b_reference}};
    unsigned n = 0;
    for (size_t i = 0; i < N_KERNELS; i++) {
        bool first = i == 0 || strcmp(kernels[i].group, kernels[i - 1].group) != 0;
        for (size_t k = 0; first && k < sizeof references / sizeof *references; k++) {
            if (strcmp(references[k].group, kernels[i].group) != 0)
                continue;
            rows[n] = (struct bench_row){.kind = references[k].kind};
            snprintf(rows[n].name, sizeof rows[n].name, "%s", references[k].group);
            snprintf(rows[n++].kernel, sizeof rows[0].kernel, "%s", references[k].name);
        }
        if (kernel_runs(&kernels[i]))
            kernel_row(&rows[n++], &kernels[i]);
    }
    return n;
}

static double median_of(const struct bench_row *rows, unsigned n, const char *group, const char *kernel)
{
    for (unsigned i = 0; i < n; i++)
        if (!strcmp(rows[i].name, group) && !strcmp(rows[i].kernel, kernel))
            return rows[i].core;
    return 0;
}

static void print_text(const struct bench_row *rows, unsigned n, const struct bench_row *r)
{
    double scalar = median_of(rows, n, r->name, "scalar");
    printf("%-14s %-9s %7.3f GB/s  (%.3f - %.3f)", r->name, r->kernel, r->core, r->core_worst, r->core_best);
    if (scalar > 0)
        printf("  %5.2f x scalar", r->core / scalar);
    if (!strcmp(r->name, "blake2b"))
        printf("  %5.2f x OpenSSL", r->core / median_of(rows, n, "blake2b", "openssl"));
    putchar('\n');
}

static void print_json(const struct bench_row *rows, unsigned n, const struct bench_row *r)
{
    double scalar = median_of(rows, n, r->name, "scalar");
    printf("%s{\"group\":\"%s\",\"kernel\":\"%s\",\"gbPerSecond\":%.3f,\"min\":%.3f,\"max\":%.3f", r == rows ? "" : ",",
           r->name, r->kernel, r->core, r->core_worst, r->core_best);
    if (scalar > 0)
        printf(",\"ratioToScalar\":%.3f", r->core / scalar);
    if (!strcmp(r->name, "blake2b"))
        printf(",\"ratioToOpenSSL\":%.3f", r->core / median_of(rows, n, "blake2b", "openssl"));
    putchar('}');
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"size", required_argument, NULL, 's'},
                                            {"runs", required_argument, NULL, 'r'},
                                            {"json", no_argument, NULL, 'j'},
                                            {NULL, 0, NULL, 0}};
    static struct bench_row rows[BENCH_ROWS_MAX];
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
    if (optind != argc || mib < 1 || mib > 4096 || runs < 1 || runs > BENCH_RUNS_MAX) {
        fprintf(stderr, "usage: bench_kernels [--size 1..4096] [--runs 1..%d] [--json]\n", BENCH_RUNS_MAX);
        return 2;
    }
    struct err e = ERR_INIT;
    struct bench_sample s;
    const struct bench_limits l = {.runs = (unsigned)runs};
    unsigned n = all_rows(rows);
    int rc = bench_sample_new(&s, mib << 20, 1 << 20, false, &e);
    if (rc >= 0)
        rc = bench_measure_core(rows, n, &s, &l, &e);
    bench_sample_clear(&s);
    if (rc < 0) {
        fprintf(stderr, "bench_kernels: %s\n", e.msg);
        return 1;
    }
    if (json)
        printf("{\"cpuLevel\":\"%s\",\"mib\":%lu,\"runs\":%lu,\"kernels\":[", kernel_level_name(kernel_cpu_level()),
               mib, runs);
    for (unsigned i = 0; i < n; i++) {
        if (json)
            print_json(rows, n, &rows[i]);
        else
            print_text(rows, n, &rows[i]);
    }
    if (json)
        printf("]}\n");
    return 0;
}
