/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench.c - snapferry bench: performance of the data path, and advice */
#include "daemon/cli/bench.h"

#include "chunker/kernel.h"
#include "daemon/mover/budget.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#define MIB (UINT64_C(1) << 20)
#define SAMPLE_MIN (8 * MIB)
#define SAMPLE_MAX (1024 * MIB)
#define MEMORY_ROWS ((size_t)32 << 20) /* what rows of memory may take beside the sample */
#define PIPELINE_TIMES 16              /* samples that the pipeline moves */

struct bench {
    const struct options *o;
    unsigned groups;
    bool device, pipeline;
    struct bench_limits limits;
    size_t sample, piece;
    struct bench_row rows[BENCH_ROWS_MAX];
    unsigned n_rows;
    struct bench_device d;
    struct bench_pipeline p;
};

/* ---- selection ---- */

static int unknown_word(const char *word, struct err *e)
{
    char list[256] = "";
    size_t n = 0;
    for (unsigned g = 0; g < BENCH_GROUPS && n < sizeof list; g++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s, ", bench_group_name(g));
    err_set(e, ERR_USAGE, EINVAL, "unknown benchmark \"%s\"", text_name(word));
    return err_hint(e, "use one of %sdevice, pipeline", list);
}

static int choose_word(struct bench *b, const char *word, struct err *e)
{
    for (unsigned g = 0; g < BENCH_GROUPS; g++) {
        if (!strcmp(word, bench_group_name(g))) {
            b->groups |= 1u << g;
            return 0;
        }
    }
    if (!strcmp(word, "device")) {
        if (!b->o->device) {
            err_set(e, ERR_USAGE, EINVAL, "bench device requires --device PATH");
            return err_hint(e, "it is only read");
        }
        return 0;
    }
    if (strcmp(word, "pipeline") != 0)
        return unknown_word(word, e);
    b->pipeline = true;
    return 0;
}

static int choose_parts(struct bench *b, struct err *e)
{
    const struct options *o = b->o;
    b->device = o->device;
    b->pipeline = o->pipeline;
    for (int i = 0; i < o->n_args; i++)
        if (choose_word(b, o->args[i], e) < 0)
            return -EINVAL;
    if (!o->n_args)
        b->groups = (1u << BENCH_GROUPS) - 1;
    if (b->pipeline && !o->dir) {
        err_set(e, ERR_USAGE, EINVAL, "the pipeline requires --dir DIR for a temporary repository");
        return err_hint(e, "use the file system of future repositories, or a tmpfs to measure CPU and memory alone");
    }
    if (!b->pipeline && o->dir)
        return err_set(e, ERR_USAGE, EINVAL, "--dir requires --pipeline");
    return 0;
}

/* Two samples and the memory of one thread must fit into the budget. */
static int choose_sizes(struct bench *b, struct err *e)
{
    const struct options *o = b->o;
    uint64_t memory = o->memory ? o->memory : MEMORY_DEFAULT;
    uint64_t sample = o->size ? o->size : o->quick ? 8 * MIB : 32 * MIB;
    if (sample < SAMPLE_MIN || sample > SAMPLE_MAX)
        return err_set(e, ERR_USAGE, EINVAL, "--size requires 8MiB to 1GiB, not %s", text_bytes(sample));
    b->piece = o->quick ? MIB / 2 : 4 * MIB;
    b->sample = sample / b->piece * b->piece;
    uint64_t used = 2 * b->sample + b->piece + (8 << 20);
    if (b->groups && used + 32 * MIB > memory) {
        err_set(e, ERR_USAGE, EINVAL, "two samples of %s do not fit into %s of memory", text_bytes(b->sample),
                text_bytes(memory));
        return err_hint(e, "use a smaller --size or a larger --memory");
    }
    b->limits = (struct bench_limits){.seconds = o->seconds > 0 ? o->seconds
                                                 : o->quick     ? 0.03
                                                                : 0.25,
                                      .runs = o->quick ? 3 : 5,
                                      .threads = o->workers ? o->workers : bench_cpus(),
                                      .memory = memory - used,
                                      .cancel = &cli_cancel()->requested};
    return 0;
}

/* ---- measurement ---- */

static void show_progress(const struct bench *b, const char *what, unsigned i)
{
    bool tty = isatty(STDERR_FILENO);
    if (b->o->progress == PROGRESS_OFF || b->o->quiet || b->o->json || (!tty && b->o->progress != PROGRESS_ON))
        return;
    char line[160];
    if (i < b->n_rows)
        snprintf(line, sizeof line, "bench: %u of %u, %s %s %s", i + 1, b->n_rows, what, b->rows[i].name,
                 b->rows[i].variant);
    else
        snprintf(line, sizeof line, "bench: %s", what);
    struct winsize ws;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 1 && ws.ws_col <= strlen(line))
        line[ws.ws_col - 1] = '\0';
    fprintf(stderr, tty ? "\r\033[K%s" : "%s\n", line);
    fflush(stderr);
}

static void show_end(const struct bench *b)
{
    if (isatty(STDERR_FILENO) && b->o->progress != PROGRESS_OFF && !b->o->quiet && !b->o->json)
        fputs("\r\033[K", stderr);
}

static int run_rows(struct bench *b, struct err *e)
{
    if (!b->groups)
        return 0;
    b->n_rows = bench_rows(b->rows, b->groups, e);
    if (!b->n_rows)
        return -EIO;
    struct bench_sample s;
    int rc = bench_sample_new(&s, b->sample, b->piece, b->groups & 1u << BENCH_COMPRESSORS, e);
    s.memory = s.len < MEMORY_ROWS ? s.len : MEMORY_ROWS;
    for (unsigned i = 0; rc >= 0 && i < b->n_rows; i++) {
        show_progress(b, bench_group_name(b->rows[i].group), i);
        rc = bench_measure(&b->rows[i], &s, &b->limits, e);
    }
    bench_sample_clear(&s);
    return rc;
}

/* A device is measured longer than a core. */
static double device_seconds(const struct bench *b)
{
    double s = b->limits.seconds * 4;
    return s < 0.25 ? 0.25 : s;
}

static int run_all(struct bench *b, struct err *e)
{
    int rc = run_rows(b, e);
    if (rc >= 0 && b->device) {
        show_progress(b, "the device", b->n_rows);
        rc = bench_device(&b->d, b->o, device_seconds(b), b->limits.cancel, e);
    }
    if (rc >= 0 && b->pipeline) {
        show_progress(b, "the pipeline", b->n_rows);
        rc = bench_pipeline(&b->p, b->o, b->sample * PIPELINE_TIMES, e);
    }
    show_end(b);
    return rc;
}

static void print_report(const struct bench *b, bool interrupted)
{
    const struct bench_report r = {.rows = b->rows,
                                   .n_rows = b->n_rows,
                                   .sample_len = b->sample,
                                   .sample_piece = b->piece,
                                   .limits = &b->limits,
                                   .device = b->device ? &b->d : NULL,
                                   .pipeline = b->pipeline ? &b->p : NULL,
                                   .interrupted = interrupted};
    struct bench_advice a;
    bench_advise(&a, &r);
    if (b->o->json)
        print_json(bench_json(&r, &a));
    else
        bench_print(&r, &a);
}

int cli_bench(const struct options *o, struct err *e)
{
    CLEANUP_FREE struct bench *b = calloc(1, sizeof *b);
    if (!b)
        return err_nomem(e);
    b->o = o;
    int rc = kernels_check(e);
    if (rc >= 0)
        rc = choose_parts(b, e);
    if (rc >= 0)
        rc = choose_sizes(b, e);
    if (rc < 0)
        return rc;
    budget_tame_malloc(); /* or memory freed by one row would be kept while the next allocates */
    rc = run_all(b, e);
    /* Partial results are printed. */
    bool interrupted = rc < 0 && e->cls == ERR_INTERRUPTED;
    if (rc >= 0 || interrupted)
        print_report(b, interrupted);
    return rc;
}
