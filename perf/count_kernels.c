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
 * once are made before, by a run of the same kernel. The input is the same on every machine.
 */
#include "perf/kernels.h"

#include <stdio.h>
#include <string.h>

#define BYTES ((size_t)1 << 20)

/* What is counted: one step of the row. */
__attribute__((noinline)) int64_t measured(struct bench_work *w, struct err *e);
int64_t measured(struct bench_work *w, struct err *e)
{
    return w->row->kind->step(w, e);
}

/* Of OpenSSL's and the SHA extensions' code there is nothing to compare. */
static bool counted(const struct kernel *k)
{
    return strncmp(k->group, "hmac", 4) != 0 && strcmp(k->name, "openssl") != 0;
}

static int run(const struct kernel *k)
{
    struct err e = ERR_INIT;
    struct bench_sample s;
    struct bench_row row;
    struct bench_work w = {.row = &row, .sample = &s, .threads = 1};
    kernel_row(&row, k);
    int64_t n = bench_sample_new(&s, BYTES, BYTES, false, &e);
    if (n >= 0) {
        n = row.kind->begin(&w, &e);
        if (n >= 0) /* outside of measured(), it is not counted */
            n = row.kind->step(&w, &e);
        if (n >= 0)
            n = measured(&w, &e);
        row.kind->end(&w);
    }
    bench_sample_clear(&s);
    if (n < 0) {
        fprintf(stderr, "count_kernels: %s\n", e.msg);
        return 1;
    }
    fprintf(stderr, "check value %llu\n", (unsigned long long)w.sink);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    if (!strcmp(what, "--list")) {
        for (size_t i = 0; i < N_KERNELS; i++)
            if (counted(&kernels[i]))
                printf("%s/%s %s\n", kernels[i].group, kernels[i].name, kernel_runs(&kernels[i]) ? "yes" : "no");
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
        printf("%zu\n", BYTES);
        return 0;
    }
    for (size_t i = 0; i < N_KERNELS; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/%s", kernels[i].group, kernels[i].name);
        if (counted(&kernels[i]) && !strcmp(what, name) && kernel_runs(&kernels[i]))
            return run(&kernels[i]);
    }
    fprintf(stderr, "usage: count_kernels --list|--compiler|--bytes|KERNEL (one that this CPU runs)\n");
    return 2;
}
