/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/metadata-cache.h"
#include "repo/blob.h"

#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <isa-l/crc64.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOT 16384u
#define HEAD (SLOT - METADATA_BLOCK)
#define WAYS 4

/* A slot: this head, then the part. Integers are little endian. */
#define AT_CRC 8    /* 8 bytes: CRC-64 of the head without this, and of the part */
#define AT_BLOCK 16 /* 4 bytes */
#define AT_FROM 20  /* 2 bytes: where in the block the part begins */
#define AT_LEN 22   /* 2 bytes */
#define AT_NAME 24  /* zero-terminated */

_Static_assert(AT_NAME + BLOB_NAME_MAX + 1 <= HEAD, "a name fits into the head");
static const uint8_t magic[8] = "snapmet1";

struct metadata_cache {
    int fd;
    uint64_t sets; /* of WAYS slots */
    atomic_uint turn;
    atomic_bool dropped;
};

static int open_file(const char *dir, bool shared)
{
    char path[4300];
    if (!shared)
        return open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    const int n = snprintf(path, sizeof path, "%s/metadata", dir);
    if (n < 0 || n >= (int)sizeof path)
        return -1;
    const int fd = open(path, flags | O_CREAT, 0600);
    /* Of another user, root for instance, who used this directory by hand. */
    return fd < 0 && errno == EACCES && unlink(path) == 0 ? open(path, flags | O_CREAT | O_EXCL, 0600) : fd;
}

struct metadata_cache *metadata_cache_open(const char *dir, bool shared, uint64_t bytes)
{
    const uint64_t sets = bytes / SLOT / WAYS;
    struct metadata_cache *m = sets ? calloc(1, sizeof *m) : NULL;
    if (!m)
        return NULL;
    m->sets = sets;
    m->fd = open_file(dir, shared);
    struct stat st;
    /* Who may write to the directory, which the owner of movers may, must not lead others to a file elsewhere. With
     * another limit now, what is behind it is in none of these slots. */
    if (m->fd >= 0 && fstat(m->fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink <= 1 &&
        ((uint64_t)st.st_size <= sets * WAYS * SLOT || ftruncate(m->fd, (off_t)(sets * WAYS * SLOT)) == 0))
        return m;
    metadata_cache_free(m);
    return NULL;
}

void metadata_cache_free(struct metadata_cache *m)
{
    if (!m)
        return;
    if (m->fd >= 0)
        close(m->fd);
    free(m);
}

static uint64_t set_of(const struct metadata_cache *m, const char *pack, uint64_t block)
{
    uint8_t number[8];
    put_le64(number, block);
    const uint64_t h = crc64_ecma_refl(crc64_ecma_refl(0, (const uint8_t *)pack, strlen(pack)), number, sizeof number);
    return h % m->sets;
}

static off_t slot_at(uint64_t set, unsigned way)
{
    return (off_t)((set * WAYS + way) * SLOT);
}

static uint64_t crc_of(const uint8_t head[HEAD], const void *part, size_t len)
{
    uint64_t crc = crc64_ecma_refl(0, head, AT_CRC);
    crc = crc64_ecma_refl(crc, head + AT_BLOCK, HEAD - AT_BLOCK);
    return crc64_ecma_refl(crc, part, len);
}

static void head_make(uint8_t head[HEAD], const char *pack, uint32_t block)
{
    memset(head, 0, HEAD);
    memcpy(head, magic, sizeof magic);
    put_le32(head + AT_BLOCK, block);
    memcpy(head + AT_NAME, pack, strlen(pack));
}

/* Whether a slot is one of that block, whatever part of it. */
static bool is_of(const uint8_t head[HEAD], const uint8_t want[HEAD])
{
    return !memcmp(head, want, AT_CRC) && !memcmp(head + AT_BLOCK, want + AT_BLOCK, AT_FROM - AT_BLOCK) &&
           !memcmp(head + AT_NAME, want + AT_NAME, HEAD - AT_NAME);
}

/* One part of a range: within a block. */
struct part {
    uint32_t block;
    uint16_t from, len;
};

static struct part part_of(uint64_t offset, size_t len)
{
    const size_t from = (size_t)(offset % METADATA_BLOCK), room = METADATA_BLOCK - from;
    return (struct part){(uint32_t)(offset / METADATA_BLOCK), (uint16_t)from, (uint16_t)(len < room ? len : room)};
}

static bool is_cacheable(const struct metadata_cache *m, const char *pack, uint64_t offset, size_t len)
{
    return !atomic_load_explicit(&m->dropped, memory_order_relaxed) && strlen(pack) <= BLOB_NAME_MAX &&
           offset + len < UINT32_MAX;
}

/* slot[0..SLOT) is what a slot of the block has: its number; -1: none does. */
static int find(const struct metadata_cache *m, const char *pack, const struct part *p, uint8_t slot[SLOT])
{
    uint8_t want[HEAD];
    const uint64_t set = set_of(m, pack, p->block);
    head_make(want, pack, p->block);
    for (unsigned way = 0; way < WAYS; way++) {
        if (pread(m->fd, slot, HEAD, slot_at(set, way)) != HEAD || !is_of(slot, want))
            continue;
        const size_t from = get_le16(slot + AT_FROM), len = get_le16(slot + AT_LEN);
        if (from + len <= METADATA_BLOCK && len > 0 &&
            pread(m->fd, slot + HEAD, len, slot_at(set, way) + HEAD) == (ssize_t)len &&
            crc_of(slot, slot + HEAD, len) == get_le64(slot + AT_CRC))
            return (int)way;
    }
    return -1;
}

bool metadata_cache_get(struct metadata_cache *m, const char *pack, uint64_t offset, void *dst, size_t len)
{
    uint8_t slot[SLOT], *to = dst;
    if (!is_cacheable(m, pack, offset, len))
        return false;
    while (len > 0) {
        const struct part p = part_of(offset, len);
        if (find(m, pack, &p, slot) < 0)
            return false;
        const size_t from = get_le16(slot + AT_FROM), n = get_le16(slot + AT_LEN);
        if (p.from < from || p.from + p.len > from + n)
            return false;
        memcpy(to, slot + HEAD + (p.from - from), p.len);
        to += p.len;
        offset += p.len;
        len -= p.len;
    }
    return true;
}

/* The slot of the block, else an empty one, else any. */
static unsigned way_for(struct metadata_cache *m, uint64_t set, const uint8_t want[HEAD])
{
    uint8_t head[HEAD];
    unsigned ret = WAYS;
    for (unsigned way = 0; way < WAYS; way++) {
        const bool there = pread(m->fd, head, HEAD, slot_at(set, way)) == HEAD && !memcmp(head, magic, sizeof magic);
        if (there && is_of(head, want))
            return way;
        if (!there && ret == WAYS)
            ret = way;
    }
    return ret < WAYS ? ret : atomic_fetch_add(&m->turn, 1) % WAYS;
}

void metadata_cache_put(struct metadata_cache *m, const char *pack, uint64_t offset, const void *data, size_t len)
{
    const uint8_t *from = data;
    uint8_t slot[SLOT];
    if (!is_cacheable(m, pack, offset, len))
        return;
    while (len > 0) {
        const struct part p = part_of(offset, len);
        const uint64_t set = set_of(m, pack, p.block);
        head_make(slot, pack, p.block);
        const unsigned way = way_for(m, set, slot);
        put_le16(slot + AT_FROM, p.from);
        put_le16(slot + AT_LEN, p.len);
        put_le64(slot + AT_CRC, crc_of(slot, from, p.len));
        memcpy(slot + HEAD, from, p.len);
        if (pwrite(m->fd, slot, HEAD + p.len, slot_at(set, way)) < 0) { /* a full disk: one does without */
            metadata_cache_drop(m);
            return;
        }
        from += p.len;
        offset += p.len;
        len -= p.len;
    }
}

void metadata_cache_forget(struct metadata_cache *m, const char *pack, uint64_t offset, size_t len)
{
    static const uint8_t nothing[HEAD];
    uint8_t slot[SLOT];
    if (!is_cacheable(m, pack, offset, len))
        return;
    while (len > 0) {
        const struct part p = part_of(offset, len);
        const int way = find(m, pack, &p, slot);
        if (way >= 0 && pwrite(m->fd, nothing, HEAD, slot_at(set_of(m, pack, p.block), (unsigned)way)) < 0)
            metadata_cache_drop(m);
        offset += p.len;
        len -= p.len;
    }
}

void metadata_cache_drop(struct metadata_cache *m)
{
    if (!atomic_exchange(&m->dropped, true) && ftruncate(m->fd, 0) < 0)
        log_warning("the file of metadata in the cache directory cannot be emptied: %s", strerror(errno));
}
