/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/budget.h"

#include "repo/item.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

/* Memory of the process before it reads a byte: libraries, stacks, format, manifests, libc's slack. Measured as 4
 * MiB; the rest is reserve. tests/unit/test_backup.c asserts the whole. */
#define BASE_MEMORY (8 * MIB)
/* Bytes of heap per content that the session holds until the next index flush: entry and hash slots; and the table that
 * is built from some of them at a time. */
#define PENDING_BYTES 96
#define PENDING_MAX 131072
#define PENDING_TABLE (7 * MIB)
/* Text of one entry in an index document, approximately. */
#define TABLE_ENTRY 112
#define METADATA_COMPRESSION 0x1101

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Memory of the table of a volume of this size: the text after the last cut of each level (doubled as it grows), and
 * what storing a document needs. Entries are compressed to less than 60 % (half of their hex digits are redundant),
 * so that much of the buffers for results is never touched. object_table_memory() is the bound for any volume. */
static uint64_t table_memory(struct repo *r, const struct splitter *s, uint64_t size)
{
    struct splitter own = *s; /* documents are cut by the repository's own */
    splitter_by_name(&own, repo_format(r)->splitter);
    uint64_t text = size / s->min * TABLE_ENTRY, shrunk = (uint64_t)own.max * 4 / 5;
    const uint64_t put = put_scratch_memory(r, METADATA_COMPRESSION, own.max);
    uint64_t sum = min_u64(put > shrunk ? put - shrunk : put, 2 * text + 3 * MIB / 2);
    for (; text > own.max; text = text / own.min * TABLE_ENTRY)
        sum += own.max + MIB / 4;
    sum += min_u64(2 * text, own.max) + MIB / 4;
    return min_u64(object_table_memory(r), sum);
}

/* An average chunk of random data: the first cut behind `min`, at most `max`. */
static uint64_t average_chunk(const struct splitter *s)
{
    return s->kind == SPLITTER_FIXED ? s->max : s->min + ((uint64_t)s->mask + 1) * 3 / 4;
}

/* Ring and mirror window: the minimum with which `workers` are busy while the next chunk is searched for. */
static uint64_t ring_min(const struct splitter *s, size_t block, unsigned workers)
{
    return 2 * (uint64_t)s->max + 2 * block + (uint64_t)(workers - 1) * s->max;
}

void budget_tame_malloc(void)
{
    mallopt(M_ARENA_MAX, 2);
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
}

int budget_plan(struct budget *ret, struct repo *r, const struct splitter *s, const struct backup_opts *o,
                uint64_t size, const struct hints *hints, struct err *e)
{
    const uint64_t memory = o->limits.memory ? o->limits.memory : MEMORY_DEFAULT;
    if (memory < MEMORY_MIN) {
        err_set(e, ERR_USAGE, EINVAL, "memory budget of %" PRIu64 " bytes is too small for a backup", memory);
        return err_hint(e, "use at least %u MiB", (unsigned)(MEMORY_MIN >> 20));
    }
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned wanted = o->limits.workers ? o->limits.workers : cpus > 0 ? (unsigned)cpus : 1;
    const unsigned lanes = hasher_lanes(sealer_hasher(repo_sealer(r)));
    /* Packs being filled take two pieces for each worker and some for all, smaller ones if memory is short. */
    const uint64_t piece = memory < 2 * MEMORY_MIN ? MIB / 4 : MIB;
    const uint64_t scratch = put_scratch_memory(r, o->compression, s->max) + 2 * piece + MIB / 4;
    const uint64_t pending = min_u64(memory / 24, PENDING_MAX * PENDING_BYTES);
    const uint64_t parents = hints ? hints_memory(hints, s->max) : 0;
    *ret = (struct budget){.reserved = ret->reserved,
                           .block_max = ret->block_max,
                           .memory = memory,
                           .window = s->max,
                           .hints = hints != NULL};
    ret->max_pending = (size_t)(pending / PENDING_BYTES);
    ret->block = (size_t)(memory < 2 * MEMORY_MIN ? MIB / 2 : MIB);
    while (ret->block > 128 << 10 && (ret->block > s->max || (ret->block_max && ret->block > ret->block_max)))
        ret->block /= 2;

    const uint64_t fixed = BASE_MEMORY + PENDING_TABLE + pending + 4 * piece + table_memory(r, s, size) +
                           ret->reserved + s->max; /* the ring's mirror */
    uint64_t least = 0;
    for (unsigned with_hints = ret->hints; !ret->workers; with_hints = 0) {
        for (unsigned w = wanted; w > 0 && !ret->workers; w--) {
            least = fixed + (with_hints ? parents : 0) + w * scratch + ring_min(s, ret->block, w);
            if (least <= memory) {
                ret->workers = w;
                ret->hints = with_hints;
            }
        }
        if (!with_hints)
            break;
    }
    if (!ret->workers) {
        /* A larger budget holds more contents until the index is flushed, and larger blocks. */
        uint64_t need = (least - pending) * 24 / 23 + 1;
        if (need >= 2 * MEMORY_MIN && ret->block == MIB / 2)
            need += 2 * MIB;
        need = (need + MIB - 1) / MIB;
        err_set(e, ERR_MEMORY, 0,
                "a repository with splitter %s (chunks of up to %u MiB) needs %" PRIu64
                " MiB of memory for this backup, the budget is %" PRIu64 " MiB",
                s->name, (unsigned)(s->max >> 20), need, memory / MIB);
        err_hint(e, "use --memory %" PRIu64 "MiB or more", need);
        return -ENOMEM;
    }
    if (hints && !ret->hints)
        log_info("the parent's chunk list does not fit into %" PRIu64 " MiB: all data is scanned", memory / MIB);

    ret->pack_buffer = (4 + 2 * ret->workers) * piece;
    const uint64_t w = ret->workers, mean = average_chunk(s);
    const uint64_t spare = memory - (least - ring_min(s, ret->block, ret->workers));
    /* Enough to keep all lanes of all workers busy while a worker's share is read and searched; more only causes
     * page faults and cache misses. */
    const uint64_t batch_bytes = max_u64(lanes * mean, 4 * MIB);
    const uint64_t most =
        max_u64((w + 1) * batch_bytes + 2 * s->max + 16 * ret->block, ring_min(s, ret->block, ret->workers));
    uint64_t ring = min_u64(spare, most);
    /* A volume does not need a ring longer than itself. */
    ring = min_u64(ring, max_u64((size + ret->block - 1) / ret->block * ret->block + 2 * s->max + 2 * ret->block,
                                 ring_min(s, ret->block, 1)));
    ret->ring = (size_t)(ring / ret->block * ret->block);
    uint64_t batch = (ret->ring - s->max) / ((w + 1) * mean);
    ret->batch = (unsigned)max_u64(1, min_u64(batch, lanes));
    ret->slots = ret->ring / s->min + 64;
    return 0;
}
