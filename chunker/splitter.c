/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "chunker/splitter.h"
#include "chunker/kernel.h"
#include "chunker/rolling.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Splitters offered by `kopia repository create` (format, section 11.4), the default first. */
static const char *const names[] = {
    "DYNAMIC-4M-BUZHASH",
    "DYNAMIC-128K-BUZHASH",
    "DYNAMIC-256K-BUZHASH",
    "DYNAMIC-512K-BUZHASH",
    "DYNAMIC-1M-BUZHASH",
    "DYNAMIC-2M-BUZHASH",
    "DYNAMIC-8M-BUZHASH",
    "DYNAMIC-128K-RABINKARP",
    "DYNAMIC-256K-RABINKARP",
    "DYNAMIC-512K-RABINKARP",
    "DYNAMIC-1M-RABINKARP",
    "DYNAMIC-2M-RABINKARP",
    "DYNAMIC-4M-RABINKARP",
    "DYNAMIC-8M-RABINKARP",
    "FIXED-128K",
    "FIXED-256K",
    "FIXED-512K",
    "FIXED-1M",
    "FIXED-2M",
    "FIXED-4M",
    "FIXED-8M",
};

static const struct {
    const char *word;
    uint32_t bytes;
} sizes[] = {
    {"128K", 128U << 10}, {"256K", 256U << 10}, {"512K", 512U << 10}, {"1M", 1U << 20},
    {"2M", 2U << 20},     {"4M", 4U << 20},     {"8M", 8U << 20},
};

/* The scans by kernel level. */
static rolling_scan_fn *const buzhash_scans[] = {
    [KERNEL_SCALAR] = buzhash_scan_scalar,
    [KERNEL_AVX2] = buzhash_scan_avx2,
    [KERNEL_AVX512] = buzhash_scan_avx512,
};
static rolling_scan_fn *const rabinkarp_scans[] = {
    [KERNEL_SCALAR] = rabinkarp_scan_scalar,
    [KERNEL_AVX2] = rabinkarp_scan_avx2,
};
#define BEST_OF(scans) ((enum kernel_level)(sizeof(scans) / sizeof(scans)[0] - 1))

static rolling_scan_fn *buzhash_scan, *rabinkarp_scan;
static enum kernel_level buzhash_level, rabinkarp_level;
static pthread_once_t choice_once = PTHREAD_ONCE_INIT;

static void choose_kernels(void)
{
    buzhash_level = kernel_level("BUZHASH", BEST_OF(buzhash_scans));
    rabinkarp_level = kernel_level("RABINKARP", BEST_OF(rabinkarp_scans));
    buzhash_scan = buzhash_scans[buzhash_level];
    rabinkarp_scan = rabinkarp_scans[rabinkarp_level];
}

static uint32_t size_by_word(const char *word, size_t len)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (strlen(sizes[i].word) == len && !memcmp(word, sizes[i].word, len))
            return sizes[i].bytes;
    return 0;
}

int splitter_by_name(struct splitter *s, const char *name)
{
    const char *n = name;
    if (!*n || !strcmp(n, "FIXED"))
        n = "FIXED-4M";
    else if (!strcmp(n, "DYNAMIC"))
        n = "DYNAMIC-4M-BUZHASH";

    struct splitter r = {0};
    uint32_t average;
    if (!strncmp(n, "FIXED-", 6)) {
        average = size_by_word(n + 6, strlen(n + 6));
        r.kind = SPLITTER_FIXED;
        r.min = r.max = average;
    } else if (!strncmp(n, "DYNAMIC-", 8)) {
        const char *size = n + 8;
        const char *dash = strchr(size, '-');
        if (dash && !strcmp(dash, "-BUZHASH"))
            r.kind = SPLITTER_BUZHASH;
        else if (dash && !strcmp(dash, "-RABINKARP"))
            r.kind = SPLITTER_RABINKARP;
        else
            return -EINVAL;
        average = size_by_word(size, (size_t)(dash - size));
        r.min = average / 2;
        r.max = average * 2;
        r.mask = average - 1;
    } else {
        return -EINVAL;
    }
    if (average == 0)
        return -EINVAL;
    snprintf(r.name, sizeof r.name, "%s", name);
    *s = r;
    return 0;
}

const char *splitter_name(unsigned i)
{
    return i < sizeof names / sizeof names[0] ? names[i] : NULL;
}

size_t splitter_cut(const struct splitter *s, const uint8_t *data, size_t len, size_t scanned)
{
    if (len < s->min)
        return 0;
    if (s->kind == SPLITTER_FIXED)
        return s->max;
    pthread_once(&choice_once, choose_kernels);

    /* There are no candidates below min, and max is always a cut. */
    size_t from = scanned < s->min ? s->min : scanned + 1;
    size_t to = len < s->max ? len : s->max - 1;
    rolling_scan_fn *scan = s->kind == SPLITTER_BUZHASH ? buzhash_scan : rabinkarp_scan;
    size_t cut = from <= to ? scan(data, from, to, s->mask) : 0;
    if (cut)
        return cut;
    return len >= s->max ? s->max : 0;
}

const char *splitter_kernel(enum splitter_kind kind)
{
    pthread_once(&choice_once, choose_kernels);
    switch (kind) {
    case SPLITTER_BUZHASH:
        return kernel_level_name(buzhash_level);
    case SPLITTER_RABINKARP:
        return kernel_level_name(rabinkarp_level);
    case SPLITTER_FIXED:
        break;
    }
    return kernel_level_name(KERNEL_SCALAR);
}
