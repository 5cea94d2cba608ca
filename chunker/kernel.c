/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "chunker/kernel.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define PREFIX "SNAPFERRY_KERNEL_"

extern char **environ;

static const char *const level_names[] = {"scalar", "avx2", "avx512"};

/* CPU features required in addition to the level for kernels other than scalar. */
enum extra { EXTRA_NONE, EXTRA_VAES /* and VPCLMULQDQ */, EXTRA_SHA };
static const char *const extra_names[] = {"", " with VAES", " with SHA extensions"};

/* The kernels, and the levels of each that are built besides the scalar one. */
static const struct {
    const char *name;
    unsigned levels; /* bit 1 << enum kernel_level */
    enum extra extra;
} kernels[] = {
    {"BUZHASH", 1 << KERNEL_SCALAR | 1 << KERNEL_AVX2 | 1 << KERNEL_AVX512, EXTRA_NONE},
    {"RABINKARP", 1 << KERNEL_SCALAR | 1 << KERNEL_AVX2, EXTRA_NONE},
    {"BLAKE2B", 1 << KERNEL_SCALAR | 1 << KERNEL_AVX2 | 1 << KERNEL_AVX512, EXTRA_NONE},
    {"BLAKE2S", 1 << KERNEL_SCALAR | 1 << KERNEL_AVX2, EXTRA_NONE},
    {"BLAKE3", 1 << KERNEL_SCALAR | 1 << KERNEL_AVX2 | 1 << KERNEL_AVX512, EXTRA_NONE},
    {"AESGCM", 1 << KERNEL_SCALAR | 1 << KERNEL_AVX2, EXTRA_VAES},
    {"SHA256", 1 << KERNEL_SCALAR | 1 << KERNEL_AVX2, EXTRA_SHA},
    {"MD5", 1 << KERNEL_SCALAR | 1 << KERNEL_AVX2 | 1 << KERNEL_AVX512, EXTRA_NONE},
};

#define N_KERNELS (sizeof kernels / sizeof kernels[0])
#define N_LEVELS (sizeof level_names / sizeof level_names[0])

#if defined(__x86_64__)
static unsigned long long xgetbv0(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (unsigned long long)hi << 32 | lo;
}

enum kernel_level kernel_cpu_level(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX) || !(c & bit_PCLMUL))
        return KERNEL_SCALAR;
    /* A CPU may have registers that the system does not save on a context switch: bits 1, 2 are XMM and YMM; 5, 6, 7
     * are the mask registers, the upper halves of ZMM0-15 and ZMM16-31. */
    unsigned long long saved = xgetbv0();
    if ((saved & 0x06) != 0x06)
        return KERNEL_SCALAR;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2) || !(b & bit_BMI2))
        return KERNEL_SCALAR;
    const unsigned need = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    if ((saved & 0xe0) != 0xe0 || (b & need) != need || !(c & bit_AVX512VBMI))
        return KERNEL_AVX2;
    return KERNEL_AVX512;
}

static bool cpu_has(enum extra x)
{
    unsigned a, b, c, d;
    if (x == EXTRA_NONE)
        return true;
    if (x == EXTRA_VAES && !(__get_cpuid(1, &a, &b, &c, &d) && (c & bit_AES)))
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    return x == EXTRA_SHA ? (b & bit_SHA) != 0 : (c & bit_VAES) && (c & bit_VPCLMULQDQ);
}
#else
enum kernel_level kernel_cpu_level(void)
{
    return KERNEL_SCALAR;
}

static bool cpu_has(enum extra x)
{
    return x == EXTRA_NONE;
}
#endif

/* Highest level that the CPU supports for a kernel with additional requirements. */
static enum kernel_level cpu_level_for(enum extra x)
{
    return cpu_has(x) ? kernel_cpu_level() : KERNEL_SCALAR;
}

const char *kernel_level_name(enum kernel_level l)
{
    return l < N_LEVELS ? level_names[l] : "unknown";
}

static int level_by_name(const char *word)
{
    for (unsigned i = 0; i < N_LEVELS; i++)
        if (!strcmp(word, level_names[i]))
            return (int)i;
    return -1;
}

/* Checks one "SNAPFERRY_KERNEL_NAME=word". */
static int check_variable(const char *var, struct err *e)
{
    const char *name = var + strlen(PREFIX);
    const char *eq = strchr(name, '=');
    if (!eq)
        return 0;
    int name_len = (int)(eq - name);
    const char *word = eq + 1;
    unsigned k = 0;
    while (k < N_KERNELS &&
           (strncmp(name, kernels[k].name, (size_t)name_len) != 0 || kernels[k].name[name_len] != '\0'))
        k++;
    if (k == N_KERNELS) {
        err_set(e, ERR_USAGE, 0, "environment variable " PREFIX "%.*s: unknown kernel name", name_len, name);
        return err_hint(e, "valid names are BUZHASH, RABINKARP, BLAKE2B, BLAKE2S, BLAKE3, AESGCM, SHA256 and MD5");
    }
    int level = level_by_name(word);
    if (level < 0) {
        err_set(e, ERR_USAGE, 0, "environment variable " PREFIX "%s=%s: unknown level", kernels[k].name, word);
        return err_hint(e, "use scalar, avx2 or avx512, or unset it");
    }
    if (!(kernels[k].levels & 1U << level)) {
        err_set(e, ERR_USAGE, 0, "environment variable " PREFIX "%s=%s: %s has no kernel of this level",
                kernels[k].name, word, kernels[k].name);
        return err_hint(e, "unset it, or use scalar");
    }
    enum kernel_level can = cpu_level_for(kernels[k].extra);
    if (level > (int)can) {
        err_set(e, ERR_USAGE, 0, "environment variable " PREFIX "%s=%s: this CPU or system does not support %s%s",
                kernels[k].name, word, word, extra_names[kernels[k].extra]);
        return err_hint(e, "unset it, or use %s", kernel_level_name(can));
    }
    return 0;
}

int kernels_check(struct err *e)
{
    for (char **v = environ; v && *v; v++) {
        if (strncmp(*v, PREFIX, strlen(PREFIX)) != 0)
            continue;
        int rc = check_variable(*v, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

enum kernel_level kernel_level(const char *name, enum kernel_level have)
{
    enum extra extra = EXTRA_NONE;
    for (unsigned k = 0; k < N_KERNELS; k++)
        if (!strcmp(name, kernels[k].name))
            extra = kernels[k].extra;
    enum kernel_level best = cpu_level_for(extra);
    if (best > have)
        best = have;
    char var[64];
    if (strlen(name) >= sizeof var - strlen(PREFIX))
        return best;
    memcpy(var, PREFIX, strlen(PREFIX));
    strcpy(var + strlen(PREFIX), name);
    const char *word = getenv(var);
    int level = word ? level_by_name(word) : -1;
    return level >= 0 && level < (int)best ? (enum kernel_level)level : best;
}
