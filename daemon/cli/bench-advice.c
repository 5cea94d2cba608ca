/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench-advice.c - suggestions for a new repository on this machine, and for --workers and --queue-depth
 *
 * Unchanged data are read, tested for zeros and hashed; new data are also split, possibly compressed, and encrypted.
 * The core-seconds per byte of these add up and are shared by all cores. Packing, the index and the kernel are not
 * included: rates of backups are upper bounds. A default is only replaced by something clearly better.
 */
#include "daemon/cli/bench.h"

#include "chunker/hash.h"
#include "repo/format.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#define BETTER 1.15 /* factor by which something must be faster than the default */
#define SHRINKS 0.97

struct choice {
    const struct bench_report *r;
    struct bench_advice *a;
    const struct bench_row *hash, *splitter, *seal, *pack, *copy, *zeros; /* NULL: not measured */
};

static void add_advice(struct bench_advice *a, const char *topic, const char *choice, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void add_advice(struct bench_advice *a, const char *topic, const char *choice, const char *fmt, ...)
{
    if (a->n == BENCH_ADVICE_MAX)
        return;
    struct bench_advice_line *l = &a->lines[a->n++];
    l->topic = topic;
    snprintf(l->choice, sizeof l->choice, "%s", choice);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(l->why, sizeof l->why, fmt, ap);
    va_end(ap);
}

static const struct bench_row *find_row(const struct bench_report *r, enum bench_group g, const char *name,
                                        const char *variant)
{
    for (unsigned i = 0; i < r->n_rows; i++) {
        const struct bench_row *x = &r->rows[i];
        if (x->done && x->group == g && (!name || !strcmp(x->name, name)) && !strcmp(x->variant, variant))
            return x;
    }
    return NULL;
}

/* The fastest of a group, if it is clearly faster than the default; else the default. */
static const struct bench_row *choose_row(const struct bench_report *r, enum bench_group g, const char *usual,
                                          const char *variant)
{
    const struct bench_row *keep = find_row(r, g, usual, variant), *best = keep;
    for (unsigned i = 0; keep && i < r->n_rows; i++) {
        const struct bench_row *x = &r->rows[i];
        if (x->done && x->group == g && !strcmp(x->variant, variant) &&
            x->core_best > best->core_best * (best == keep ? BETTER : 1))
            best = x;
    }
    if (!best)
        return NULL;
    /* Prefer the 128-bit variant of the same function: the index is smaller. */
    char shorter[64];
    snprintf(shorter, sizeof shorter, "%s-128", best->name);
    const struct bench_row *x = find_row(r, g, shorter, variant);
    return x && x->core_best * BETTER > best->core_best ? x : best;
}

static void advise_hash(struct choice *c)
{
    const struct bench_row *usual = find_row(c->r, BENCH_HASHES, hash_name(0), "");
    c->hash = choose_row(c->r, BENCH_HASHES, hash_name(0), "");
    if (!c->hash)
        return;
    if (c->hash == usual)
        add_advice(c->a, "hash", usual->name, "the default: %.2f GB/s per core, none is clearly faster", usual->core);
    else
        add_advice(c->a, "hash", c->hash->name, "%.2f GB/s per core, %.1f times as fast as %s, the default",
                   c->hash->core, c->hash->core / usual->core, usual->name);
}

static void advise_splitter(struct choice *c)
{
    const struct bench_row *s = find_row(c->r, BENCH_SPLITTERS, splitter_name(0), "");
    if (!(c->splitter = s))
        return;
    const struct bench_row *rk = find_row(c->r, BENCH_SPLITTERS, "DYNAMIC-4M-RABINKARP", "");
    if (rk && rk->core > s->core * BETTER)
        c->splitter = s = rk;
    char share[48] = "";
    if (c->hash)
        snprintf(share, sizeof share, ", %.0f %% of splitting and hashing",
                 100 / s->core / (1 / s->core + 1 / c->hash->core));
    add_advice(c->a, "splitter", s->name,
               "%.2f GB/s per core%s; finds duplicate data at any offset. FIXED-4M has no cost, but finds only data at "
               "the same "
               "offset: sufficient for volumes whose blocks do not move",
               s->core, share);
}

static void advise_cipher(struct choice *c)
{
    const struct bench_row *usual = find_row(c->r, BENCH_CIPHERS, encryption_name(0), "seal");
    c->seal = choose_row(c->r, BENCH_CIPHERS, encryption_name(0), "seal");
    if (!c->seal)
        return;
    if (c->seal == usual)
        add_advice(c->a, "encryption", usual->name, "the default: %.2f GB/s per core", usual->core);
    else
        add_advice(c->a, "encryption", c->seal->name, "%.2f GB/s per core, %.1f times as fast as %s, the default",
                   c->seal->core, c->seal->core / usual->core, usual->name);
}

static double row_cost(const struct bench_row *r)
{
    return r && r->core > 0 ? 1 / r->core : 0;
}

static double core_count(const struct choice *c)
{
    return c->r->limits->threads;
}

/* Core-seconds per 10^9 bytes. */
static double cost_unchanged(const struct choice *c)
{
    return row_cost(c->hash) + row_cost(c->zeros) + row_cost(c->copy);
}

static double cost_new(const struct choice *c, const struct bench_row *pack)
{
    return cost_unchanged(c) + row_cost(c->splitter) + row_cost(pack) + row_cost(c->seal) * (pack ? pack->stored : 1);
}

static double device_rate(const struct bench_report *r)
{
    double best = 0;
    for (unsigned i = 0; r->device && i < r->device->n; i++)
        if (r->device->reads[i].rate > best)
            best = r->device->reads[i].rate;
    return best;
}

/* Whether x is clearly faster than `usual` and stores no more. */
static bool is_better(const struct bench_row *x, const struct bench_row *usual)
{
    return x->core_best > usual->core_best * BETTER && x->stored <= usual->stored * 1.01;
}

/* Without a device zstd-fastest unless clearly beaten; with a device the strongest that is as fast as the device. */
static void advise_compression(struct choice *c)
{
    const struct bench_row *usual = find_row(c->r, BENCH_COMPRESSORS, "zstd-fastest", "mixed"), *strong = NULL;
    double device = device_rate(c->r);
    c->pack = usual;
    for (unsigned i = 0; usual && i < c->r->n_rows; i++) {
        const struct bench_row *x = &c->r->rows[i];
        if (!x->done || x->group != BENCH_COMPRESSORS || strcmp(x->variant, "mixed") != 0)
            continue;
        if (is_better(x, c->pack))
            c->pack = x;
        if (device > 0 && core_count(c) / cost_new(c, x) >= device &&
            x->stored < SHRINKS * (strong ? strong->stored : 1))
            strong = x;
    }
    if (!c->pack)
        return;
    if (strong)
        c->pack = strong;
    const struct bench_row *random = find_row(c->r, BENCH_COMPRESSORS, c->pack->name, "random");
    add_advice(
        c->a, "compression", c->pack->name,
        "%s: stores the mixed sample in %.0f %% at %.2f GB/s per core; skips incompressible data at %.1f GB/s. Use "
        "\"none\" for encrypted or compressed data",
        strong             ? "the strongest that is as fast as the device"
        : c->pack == usual ? "the default choice"
                           : "clearly faster than zstd-fastest, with the same size",
        100 * c->pack->stored, c->pack->core, random ? random->core : 0.0);
}

static void advise_limit(struct choice *c)
{
    if (!c->hash || !c->splitter || !c->seal)
        return;
    double device = device_rate(c->r), same = core_count(c) / cost_unchanged(c),
           fresh = core_count(c) / cost_new(c, c->pack);
    char with[64] = "";
    if (c->pack)
        snprintf(with, sizeof with, " (with %s)", c->pack->name);
    if (device <= 0) {
        add_advice(
            c->a, "limit", "CPU",
            "at most %.2f GB/s of unchanged and %.2f GB/s of new data%s on %.0f cores; --device measures a device",
            same, fresh, with, core_count(c));
        return;
    }
    add_advice(
        c->a, "limit",
        device < fresh  ? "device"
        : device < same ? "device or CPU"
                        : "CPU",
        "the device reads %.2f GB/s, the CPUs process at most %.2f GB/s of unchanged and %.2f GB/s of new data%s",
        device, same, fresh, with);
    double need = ceil(device * cost_new(c, c->pack) * 1.25);
    if (need < 1)
        need = 1;
    char n[32];
    snprintf(n, sizeof n, "--workers %.0f", need < core_count(c) ? need : core_count(c));
    add_advice(c->a, "workers", n, "%s",
               need < core_count(c) ? "sufficient for this device with 25 % in reserve; the other CPUs remain free"
                                    : "all CPUs, the default");
}

/* The lowest depth within 5 % of the best, with the best block size. */
static void advise_depth(struct choice *c)
{
    const struct bench_device *d = c->r->device;
    double best = device_rate(c->r);
    if (!d || best <= 0)
        return;
    const struct bench_read *least = NULL;
    for (unsigned i = 0; i < d->n; i++)
        if (d->reads[i].rate >= 0.95 * best && (!least || d->reads[i].depth < least->depth))
            least = &d->reads[i];
    if (!least)
        return;
    char text[32];
    snprintf(text, sizeof text, "--queue-depth %u", least->depth);
    add_advice(c->a, "depth", text, "%.2f GB/s with blocks of %s; the best was %.2f GB/s, the default depth is %u",
               least->rate, text_bytes(least->block), best, d->reads[d->usual].depth);
}

void bench_advise(struct bench_advice *a, const struct bench_report *r)
{
    memset(a, 0, sizeof *a);
    struct choice c = {.r = r, .a = a};
    c.copy = find_row(r, BENCH_MEMORY, "copy", "");
    c.zeros = find_row(r, BENCH_ZEROS, NULL, "");
    advise_hash(&c);
    advise_splitter(&c);
    advise_cipher(&c);
    advise_compression(&c);
    advise_limit(&c);
    advise_depth(&c);
    if (c.hash && c.splitter && c.seal)
        snprintf(a->command, sizeof a->command,
                 "snapferry -r REPO --password-file FILE repo create --block-hash %s --splitter %s --encryption %s",
                 c.hash->name, c.splitter->name, c.seal->name);
}
