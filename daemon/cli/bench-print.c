/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench-print.c - the report of bench as text and JSON */
#include "daemon/cli/bench.h"

#include "base/units.h"
#include "chunker/kernel.h"
#include "daemon/cli/stages.h"

#include <string.h>
#include <sys/utsname.h>

extern char **environ;

#define FREE 1000 /* GB/s: the data are not read */

/* ---- the machine ---- */

static void cpu_model(char *out, size_t cap)
{
    CLEANUP_FCLOSE FILE *f = fopen("/proc/cpuinfo", "re");
    char line[512];
    snprintf(out, cap, "unknown CPU");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(out, cap, "%s", colon);
        return;
    }
}

/* Kernels selected by the environment. */
static json_t *forced_kernels(void)
{
    static const char prefix[] = "SNAPFERRY_KERNEL_";
    json_t *o = json_object();
    for (char **v = environ; v && *v; v++) {
        const char *eq = strchr(*v, '=');
        if (strncmp(*v, prefix, strlen(prefix)) != 0 || !eq)
            continue;
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(eq - *v - (long)strlen(prefix)), *v + strlen(prefix));
        json_object_set_new(o, name, json_string(eq + 1));
    }
    return o;
}

/* Below 1: other processes used the CPUs. */
static double lowest_share(const struct bench_report *r)
{
    double sum = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < r->n_rows; i++) {
        if (r->rows[i].threads) {
            sum += r->rows[i].share;
            n++;
        }
    }
    return n ? sum / n : 1;
}

static void print_machine(const struct bench_report *r)
{
    char model[256];
    struct utsname u;
    cpu_model(model, sizeof model);
    uname(&u);
    printf("%s, %u CPUs, instructions up to %s; Linux %s\n", text_name(model), r->limits->threads,
           kernel_level_name(kernel_cpu_level()), u.release);
    CLEANUP_JSON json_t *forced = forced_kernels();
    const char *key;
    json_t *v;
    json_object_foreach(forced, key, v)
        printf("SNAPFERRY_KERNEL_%s selects %s\n", text_name(key), text_name(json_string_value(v)));
    if (!r->n_rows)
        return;
    printf("GB/s (10^9 bytes) of plaintext in memory: a sample of %s in contents of %s, generated.\n"
           "1 core: CPU time of one thread, median of up to %u runs; %u cores: wall clock.\n",
           text_bytes(r->sample_len), text_bytes(r->sample_piece), r->limits->runs, r->limits->threads);
}

/* ---- tables ---- */

static const char *rate_text(double r)
{
    static char buf[8][24];
    static unsigned turn;
    char *out = buf[turn++ % 8];
    if (r <= 0)
        return "-";
    if (r >= FREE)
        return "free";
    snprintf(out, sizeof buf[0], r < 0.1 ? "%.3f" : r < 100 ? "%.2f" : "%.0f", r);
    return out;
}

/* Fastest first, by the first variant. */
static int by_rate(const void *pa, const void *pb)
{
    const struct bench_row *a = *(const struct bench_row *const *)pa, *b = *(const struct bench_row *const *)pb;
    bool equal = a->core == b->core || (a->core >= FREE && b->core >= FREE);
    return equal ? (a > b) - (a < b) : a->core < b->core ? 1 : -1;
}

static const struct bench_row *variant_of(const struct bench_report *r, const struct bench_row *x, const char *variant)
{
    for (unsigned i = 0; i < r->n_rows; i++)
        if (r->rows[i].group == x->group && r->rows[i].done && !strcmp(r->rows[i].name, x->name) &&
            !strcmp(r->rows[i].variant, variant))
            return &r->rows[i];
    return NULL;
}

struct layout {
    const char *title;
    const char *heads[8];
    const char *kinds;
    const char *variants[3]; /* the first has two columns: one core and all */
    bool stored, best;
};

static const struct layout layouts[] = {
    [BENCH_MEMORY] = {"Memory", {"ACCESS", "BY", "1 CORE", "BEST", "ALL"}, "llrrr", {""}, false, true},
    [BENCH_ZEROS] = {"Zeros", {"TEST", "BY", "1 CORE", "BEST", "ALL"}, "llrrr", {""}, false, true},
    [BENCH_SPLITTERS] = {"Splitters", {"NAME", "KERNEL", "1 CORE", "BEST", "ALL"}, "llrrr", {""}, false, true},
    [BENCH_HASHES] = {"Hashes", {"NAME", "KERNEL", "1 CORE", "BEST", "ALL"}, "llrrr", {""}, false, true},
    [BENCH_CIPHERS] =
        {"Ciphers", {"NAME", "BY", "SEAL", "ALL", "OPEN", "ALL"}, "llrrrr", {"seal", "open"}, false, false},
    [BENCH_COMPRESSORS] = {"Compressors",
                           {"NAME", "BY", "MIXED", "ALL", "STORED", "RANDOM", "EXPAND"},
                           "llrrrrr",
                           {"mixed", "random", "expand"},
                           true,
                           false},
    [BENCH_ECC] = {"Error correction",
                   {"NAME", "BY", "ENCODE", "ALL", "DECODE", "ALL"},
                   "llrrrr",
                   {"encode", "decode"},
                   false,
                   false},
};

static void print_cells(struct table *t, const struct bench_report *r, const struct layout *l,
                        const struct bench_row *x)
{
    table_cell(t, TINT_NONE, "%s", x->name);
    table_cell(t, TINT_NONE, "%s", x->kernel);
    for (unsigned v = 0; v < 3 && l->variants[v]; v++) {
        const struct bench_row *y = variant_of(r, x, l->variants[v]);
        table_cell(t, TINT_NONE, "%s", rate_text(y ? y->core : 0));
        if (l->best)
            table_cell(t, TINT_NONE, "%s", rate_text(y ? y->core_best : 0));
        if (!l->stored || v == 0)
            table_cell(t, TINT_NONE, "%s%s", rate_text(y ? y->all : 0),
                       y && y->threads && y->threads < r->limits->threads ? "*" : "");
        if (l->stored && v == 0)
            table_cell(t, TINT_NONE, y ? "%.0f%%" : "-", y ? 100 * y->stored : 0.0);
    }
}

static void print_group(const struct bench_report *r, enum bench_group g)
{
    const struct layout *l = &layouts[g];
    const struct bench_row *sorted[BENCH_ROWS_MAX];
    unsigned n = 0;
    bool fewer = false;
    for (unsigned i = 0; i < r->n_rows; i++) {
        const struct bench_row *x = &r->rows[i];
        if (x->group != g || !x->done)
            continue;
        fewer |= x->threads < r->limits->threads;
        if (!strcmp(x->variant, l->variants[0]))
            sorted[n++] = x;
    }
    if (!n)
        return;
    qsort(sorted, n, sizeof *sorted, by_rate);
    struct table *t = table_new(l->heads, l->kinds);
    for (unsigned i = 0; i < n; i++)
        print_cells(t, r, l, sorted[i]);
    printf("\n%s\n", l->title);
    table_print(t, stdout, "  ");
    if (fewer)
        puts("  * fewer threads, or none: limited by --memory");
}

static void print_device(const struct bench_device *d)
{
    static const char *const heads[] = {"BLOCK", "DEPTH", "GB/s", "CORE-S/GB", "READ"};
    printf("\nDevice %s: %s, %s, %s%s%s\n", text_name(d->path), text_bytes(d->size), d->is_block ? d->media : "file",
           d->uring ? "io_uring" : "preadv", d->direct ? ", direct" : ", page cache",
           d->is_block || d->direct ? "" : " (a cached file measures memory)");
    if (d->fallback[0])
        printf("  %s\n", text_name(d->fallback));
    struct table *t = table_new(heads, "rrrrr");
    for (unsigned i = 0; i < d->n; i++) {
        const struct bench_read *x = &d->reads[i];
        table_cell(t, TINT_NONE, "%s", text_bytes(x->block));
        table_cell(t, TINT_NONE, "%u%s", x->depth, i == d->usual ? " (usual)" : "");
        table_cell(t, TINT_NONE, "%s", rate_text(x->rate));
        table_cell(t, TINT_NONE, "%.3f", x->cost);
        table_cell(t, TINT_NONE, "%s", text_bytes(x->bytes));
    }
    table_print(t, stdout, "  ");
}

static void print_pipeline(const struct bench_pipeline *p)
{
    static const char *const heads[] = {"WORK", "SECONDS", "RATE", "CORE-S/GiB"};
    printf("\nPipeline: %s, %s, %s, %s, %u worker%s; plus %.2f s to open the repository\n", text_bytes(p->size),
           p->hash, p->splitter, p->encryption, p->workers, plural(p->workers), p->open_seconds);
    struct table *t = table_new(heads, "lrrr");
    for (unsigned i = 0; i < p->n; i++) {
        const struct bench_move *m = &p->moves[i];
        double gib = (double)m->bytes / (1u << 30);
        char note[1024] = "";
        table_cell(t, TINT_NONE, "%s", m->name);
        table_cell(t, TINT_NONE, "%.2f", m->seconds);
        table_cell(t, TINT_NONE, "%s", m->seconds > 0 ? text_rate((double)m->bytes / m->seconds) : "-");
        table_cell(t, TINT_NONE, "%.2f", gib > 0 ? m->core_seconds / gib : 0.0);
        if (m->n_stages)
            stages_text(note, sizeof note, m->stages, m->n_stages, m->bottleneck);
        table_note(t, TINT_DIM, note);
    }
    table_print(t, stdout, "  ");
}

static void print_advice(const struct bench_advice *a)
{
    if (!a->n)
        return;
    puts("\nAdvice");
    for (unsigned i = 0; i < a->n; i++) {
        const struct bench_advice_line *l = &a->lines[i];
        char text[640];
        snprintf(text, sizeof text, "%s: %s.", l->choice, l->why);
        printf("  %-13s", l->topic);
        print_paragraph(stdout, text, 15, 15);
    }
    if (a->command[0]) {
        puts("");
        printf("  ");
        print_paragraph(stdout, a->command, 2, 6);
    }
}

void bench_print(const struct bench_report *r, const struct bench_advice *a)
{
    print_machine(r);
    for (unsigned g = 0; g < BENCH_GROUPS; g++)
        print_group(r, (enum bench_group)g);
    if (r->device && r->device->path[0])
        print_device(r->device);
    if (r->pipeline && r->pipeline->n)
        print_pipeline(r->pipeline);
    print_advice(a);
    double share = lowest_share(r);
    if (share < 0.9)
        printf("\nOther processes were running: the threads got %.0f %% of the CPUs; rates of all cores are too low.\n",
               100 * share);
    if (r->interrupted)
        puts("\nInterrupted: results are incomplete.");
}

/* ---- JSON ---- */

static json_t *row_json(const struct bench_row *x)
{
    json_t *j =
        json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:f}", "group", bench_group_name(x->group), "name", x->name,
                  "variant", x->variant, "kernel", x->kernel, "coreGBPerSecond", x->core, "coreBestGBPerSecond",
                  x->core_best, "runs", (int)x->runs, "threads", (int)x->threads, "cpuShare", x->share);
    json_object_set_new(j, "allGBPerSecond", x->threads ? json_real(x->all) : json_null());
    if (x->stored > 0)
        json_object_set_new(j, "storedRatio", json_real(x->stored));
    return j;
}

static json_t *device_json(const struct bench_device *d)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < d->n; i++)
        json_array_append_new(list,
                              json_pack("{s:I, s:i, s:f, s:f, s:I}", "blockBytes", (json_int_t)d->reads[i].block,
                                        "depth", (int)d->reads[i].depth, "gbPerSecond", d->reads[i].rate,
                                        "coreSecondsPerGB", d->reads[i].cost, "bytes", (json_int_t)d->reads[i].bytes));
    return json_pack("{s:s, s:I, s:b, s:s, s:b, s:b, s:s, s:i, s:o}", "path", d->path, "sizeBytes", (json_int_t)d->size,
                     "block", (int)d->is_block, "media", d->media, "ioUring", (int)d->uring, "direct", (int)d->direct,
                     "fallback", d->fallback, "usualDepth", d->n ? (int)d->reads[d->usual].depth : 0, "reads", list);
}

static json_t *pipeline_json(const struct bench_pipeline *p)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < p->n; i++) {
        const struct bench_move *m = &p->moves[i];
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:o, s:s}", "name", m->name, "bytes",
                                              (json_int_t)m->bytes, "storedBytes", (json_int_t)m->stored, "seconds",
                                              m->seconds, "bytesPerSecond",
                                              m->seconds > 0 ? (double)m->bytes / m->seconds : 0.0, "coreSeconds",
                                              m->core_seconds, "stages", stages_json(m->stages, m->n_stages),
                                              "bottleneck", m->bottleneck ? m->bottleneck : ""));
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:i, s:f, s:o}", "hash", p->hash, "splitter", p->splitter, "encryption",
                     p->encryption, "sizeBytes", (json_int_t)p->size, "workers", (int)p->workers, "openSeconds",
                     p->open_seconds, "moves", list);
}

json_t *bench_json(const struct bench_report *r, const struct bench_advice *a)
{
    char model[256];
    struct utsname u;
    cpu_model(model, sizeof model);
    uname(&u);
    json_t *rows = json_array(), *advice = json_array();
    for (unsigned i = 0; i < r->n_rows; i++)
        if (r->rows[i].done)
            json_array_append_new(rows, row_json(&r->rows[i]));
    for (unsigned i = 0; i < a->n; i++)
        json_array_append_new(advice, json_pack("{s:s, s:s, s:s}", "topic", a->lines[i].topic, "choice",
                                                a->lines[i].choice, "why", a->lines[i].why));
    json_t *name = json_string(model);
    return json_pack("{s:s, s:s, s:b, s:{s:o, s:i, s:s, s:s, s:o}, s:{s:I, s:I, s:f, s:i}, s:o, s:o, s:o, s:o, s:s}",
                     "type", "result", "verb", "bench", "interrupted", (int)r->interrupted, "machine", "cpu",
                     name ? name : json_string("unknown CPU"), "cpus", (int)r->limits->threads, "level",
                     kernel_level_name(kernel_cpu_level()), "linux", u.release, "forcedKernels", forced_kernels(),
                     "sample", "bytes", (json_int_t)r->sample_len, "contentBytes", (json_int_t)r->sample_piece,
                     "secondsPerRow", r->limits->seconds, "runs", (int)r->limits->runs, "rows", rows, "device",
                     r->device && r->device->path[0] ? device_json(r->device) : json_null(), "pipeline",
                     r->pipeline && r->pipeline->n ? pipeline_json(r->pipeline) : json_null(), "advice", advice,
                     "command", a->command);
}
