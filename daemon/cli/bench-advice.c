/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench-advice.c - what the figures say about a new repository on this machine, and about --workers and --queue-depth
 *
 * Each byte of unchanged data is read, tested for zeros and hashed; new data are cut, perhaps compressed, and encrypted
 * on top. The core-seconds of these per byte add up, and all cores share them. Packing, the index and the kernel come
 * on top, so the rates of backups told here are upper bounds. A default is left only for something that is clearly
 * better.
 */
#include "daemon/cli/bench.h"

#include "chunker/hash.h"
#include "repo/format.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#define BETTER 1.15 /* so many times as fast, or the default stays */
#define SHRINKS 0.97

struct choice {
    const struct bench_report *r;
    struct bench_advice *a;
    const struct bench_row *hash, *splitter, *seal, *pack, *copy, *zeros; /* NULL: not measured */
};

static void say(struct bench_advice *a, const char *topic, const char *choice, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void say(struct bench_advice *a, const char *topic, const char *choice, const char *fmt, ...)
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

static const struct bench_row *row(const struct bench_report *r, enum bench_group g, const char *name,
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
static const struct bench_row *choose(const struct bench_report *r, enum bench_group g, const char *usual,
                                      const char *variant)
{
    const struct bench_row *keep = row(r, g, usual, variant), *best = keep;
    for (unsigned i = 0; keep && i < r->n_rows; i++) {
        const struct bench_row *x = &r->rows[i];
        if (x->done && x->group == g && !strcmp(x->variant, variant) &&
            x->core_best > best->core_best * (best == keep ? BETTER : 1))
            best = x;
    }
    if (!best)
        return NULL;
    /* Of the same function with more and fewer bits, the shorter names make the smaller index. */
    char shorter[64];
    snprintf(shorter, sizeof shorter, "%s-128", best->name);
    const struct bench_row *x = row(r, g, shorter, variant);
    return x && x->core_best * BETTER > best->core_best ? x : best;
}

static void advise_hash(struct choice *c)
{
    const struct bench_row *usual = row(c->r, BENCH_HASHES, hash_name(0), "");
    c->hash = choose(c->r, BENCH_HASHES, hash_name(0), "");
    if (!c->hash)
        return;
    if (c->hash == usual)
        say(c->a, "hash", usual->name, "the default: %.2f GB/s a core, and none is clearly faster here", usual->core);
    else
        say(c->a, "hash", c->hash->name, "%.2f GB/s a core, %.1f times as fast as %s, the default", c->hash->core,
            c->hash->core / usual->core, usual->name);
}

static void advise_splitter(struct choice *c)
{
    const struct bench_row *s = row(c->r, BENCH_SPLITTERS, splitter_name(0), "");
    if (!(c->splitter = s))
        return;
    const struct bench_row *rk = row(c->r, BENCH_SPLITTERS, "DYNAMIC-4M-RABINKARP", "");
    if (rk && rk->core > s->core * BETTER)
        c->splitter = s = rk;
    char share[48] = "";
    if (c->hash)
        snprintf(share, sizeof share, ", %.0f %% of cutting and hashing together",
                 100 / s->core / (1 / s->core + 1 / c->hash->core));
    say(c->a, "splitter", s->name,
        "%.2f GB/s a core%s; it finds equal data wherever it lies. FIXED-4M costs nothing, but finds data only where "
        "it "
        "was: enough for volumes whose blocks do not move",
        s->core, share);
}

static void advise_cipher(struct choice *c)
{
    const struct bench_row *usual = row(c->r, BENCH_CIPHERS, encryption_name(0), "seal");
    c->seal = choose(c->r, BENCH_CIPHERS, encryption_name(0), "seal");
    if (!c->seal)
        return;
    if (c->seal == usual)
        say(c->a, "encryption", usual->name, "the default: %.2f GB/s a core", usual->core);
    else
        say(c->a, "encryption", c->seal->name, "%.2f GB/s a core, %.1f times as fast as %s, the default", c->seal->core,
            c->seal->core / usual->core, usual->name);
}

static double cost(const struct bench_row *r)
{
    return r && r->core > 0 ? 1 / r->core : 0;
}

static double cores(const struct choice *c)
{
    return c->r->limits->threads;
}

/* Core-seconds per 10^9 bytes. */
static double cost_unchanged(const struct choice *c)
{
    return cost(c->hash) + cost(c->zeros) + cost(c->copy);
}

static double cost_new(const struct choice *c, const struct bench_row *pack)
{
    return cost_unchanged(c) + cost(c->splitter) + cost(pack) + cost(c->seal) * (pack ? pack->stored : 1);
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
static bool beats(const struct bench_row *x, const struct bench_row *usual)
{
    return x->core_best > usual->core_best * BETTER && x->stored <= usual->stored * 1.01;
}

/* Without a device zstd's fastest level, which few can beat in both; with one the strongest that keeps up with it. */
static void advise_compression(struct choice *c)
{
    const struct bench_row *usual = row(c->r, BENCH_COMPRESSORS, "zstd-fastest", "mixed"), *strong = NULL;
    double device = device_rate(c->r);
    c->pack = usual;
    for (unsigned i = 0; usual && i < c->r->n_rows; i++) {
        const struct bench_row *x = &c->r->rows[i];
        if (!x->done || x->group != BENCH_COMPRESSORS || strcmp(x->variant, "mixed") != 0)
            continue;
        if (beats(x, c->pack))
            c->pack = x;
        if (device > 0 && cores(c) / cost_new(c, x) >= device && x->stored < SHRINKS * (strong ? strong->stored : 1))
            strong = x;
    }
    if (!c->pack)
        return;
    if (strong)
        c->pack = strong;
    const struct bench_row *random = row(c->r, BENCH_COMPRESSORS, c->pack->name, "random");
    say(c->a, "compression", c->pack->name,
        "%s: stores the mixed sample in %.0f %% at %.2f GB/s a core, and passes over what cannot be compressed at "
        "%.1f GB/s. \"none\" where the data are encrypted or compressed already",
        strong             ? "the strongest that keeps up with the device"
        : c->pack == usual ? "the usual choice"
                           : "clearly faster than zstd-fastest, and stores no more",
        100 * c->pack->stored, c->pack->core, random ? random->core : 0.0);
}

static void advise_limit(struct choice *c)
{
    if (!c->hash || !c->splitter || !c->seal)
        return;
    double device = device_rate(c->r), same = cores(c) / cost_unchanged(c), fresh = cores(c) / cost_new(c, c->pack);
    char with[64] = "";
    if (c->pack)
        snprintf(with, sizeof with, " (with %s)", c->pack->name);
    if (device <= 0) {
        say(c->a, "limit", "CPU",
            "at most %.2f GB/s of unchanged and %.2f GB/s of new data%s on %.0f cores; --device tells whether a device "
            "reads as fast",
            same, fresh, with, cores(c));
        return;
    }
    say(c->a, "limit",
        device < fresh  ? "device"
        : device < same ? "device or CPU"
                        : "CPU",
        "the device gives %.2f GB/s, the CPUs take at most %.2f GB/s of unchanged and %.2f GB/s of new data%s", device,
        same, fresh, with);
    double need = ceil(device * cost_new(c, c->pack) * 1.25);
    if (need < 1)
        need = 1;
    char n[32];
    snprintf(n, sizeof n, "--workers %.0f", need < cores(c) ? need : cores(c));
    say(c->a, "workers", n, "%s",
        need < cores(c) ? "enough for this device, a quarter to spare; the other CPUs stay free"
                        : "all of them: the default");
}

/* The least depth that comes within 5 % of the best, at the size of block that was best. */
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
    say(c->a, "depth", text, "%.2f GB/s with blocks of %s; the best of all was %.2f GB/s, the default depth is %u",
        least->rate, text_bytes(least->block), best, d->reads[d->usual].depth);
}

void bench_advise(struct bench_advice *a, const struct bench_report *r)
{
    memset(a, 0, sizeof *a);
    struct choice c = {.r = r, .a = a};
    c.copy = row(r, BENCH_MEMORY, "copy", "");
    c.zeros = row(r, BENCH_ZEROS, NULL, "");
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
