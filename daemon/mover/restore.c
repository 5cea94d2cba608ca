/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * restore.c - an object of the repository onto a device or an NBD export, or into a file
 *
 * The coordinator walks the object's parts: zeros are coalesced and punched or zeroed without a fetch; the rest is
 * passed to the fetcher, whose workers write with io_uring, out of order. From time to time everything is synced and
 * the position up to which the target is complete is recorded in the cache directory: an interrupted restore resumes
 * there, also one that was interrupted while it read the target back. The record is not trusted: what is below the
 * position is compared with the target by hash, so that what a power failure took is fetched and written again.
 *
 * Crash points: restore-noted (the position is durable), restore-written (all of the target is), restore-read-back.
 */
#include "daemon/mover/export-lock.h"
#include "daemon/mover/restore-impl.h"
#include "daemon/mover/zeros.h"
#include "io/nbd-uri.h"
#include "repo/item.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define COMPARE (64u << 10)         /* granularity of differential writes, bytes */
#define CONTENT_LEN_MAX (64u << 20) /* longer contents are refused: no client writes them */
#define BUFFERS_FEW 3               /* of a worker, before the number of workers is reduced */
#define WORKERS_FAR 8               /* of a differential restore over a network, if there is memory for them */
#define WRITER_EXTRA 3              /* buffers in flight beside those that are being hashed */

/* When the contents of a buffer may be written; 0: that is not known yet. */
struct due {
    const uint8_t *buf;
    uint64_t at;
};

struct worker {
    struct restore *r;
    struct writer *writer;
    struct due *due; /* of each buffer of the writer */
    uint8_t *have;   /* differential: COMPARE bytes of present data of the target */
    uint8_t *odd;    /* buffer of an unusually long content, written immediately */
    size_t odd_cap;
    bool odd_out;
};

static void item_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* The part of an item within the wanted range. */
static void item_clip(const struct restore *r, uint64_t pos, uint64_t len, uint64_t *skip, uint64_t *n)
{
    uint64_t a = pos < r->from ? r->from : pos, b = pos + len > r->to ? r->to : pos + len;
    *skip = a - pos;
    *n = b > a ? b - a : 0;
}

/* The target is read before contents are fetched for it. */
static bool target_is_compared(const struct restore *r)
{
    return r->o->differential || r->check_below > 0;
}

static bool is_cancelled(const struct restore *r)
{
    return r->o->cancel && atomic_load(&r->o->cancel->requested);
}

/* ---- the fetcher's sink ---- */

static int worker_start(void *arg, unsigned number, void **state, struct err *e)
{
    (void)number;
    struct restore *r = arg;
    struct worker *w = calloc(1, sizeof *w);
    if (!w)
        return err_nomem(e);
    w->r = r;
    int rc = writer_new(&w->writer, r->target, r->buffers, r->max_len, e);
    if (rc >= 0 && !(w->due = calloc(r->buffers, sizeof *w->due)))
        rc = err_nomem(e);
    if (rc >= 0 && target_is_compared(r) && !(w->have = malloc(COMPARE)))
        rc = err_nomem(e);
    if (rc < 0) {
        writer_free(w->writer);
        free(w->due);
        free(w);
        return rc;
    }
    *state = w;
    return 0;
}

static void worker_end(void *state)
{
    struct worker *w = state;
    writer_free(w->writer);
    free(w->due);
    free(w->have);
    free(w->odd);
    free(w);
}

/* Of the buffer, which has its place in the table once it was used. */
static uint64_t *due_of(struct worker *w, const uint8_t *buf)
{
    unsigned i = 0;
    while (i + 1 < w->r->buffers && w->due[i].buf && w->due[i].buf != buf)
        i++;
    w->due[i].buf = buf;
    return &w->due[i].at;
}

static void buffer_return(struct worker *w, uint8_t *buf)
{
    if (buf == w->odd)
        w->odd_out = false;
    else
        writer_return(w->writer, buf);
}

static bool target_may_hold(void *restore, const struct fetch_item *it)
{
    const struct restore *r = restore;
    return r->o->differential || it->pos < r->check_below;
}

/* Differential or resumed: the target may hold the right bytes already. */
static int worker_held(void *state, const struct fetch_item *it, uint8_t *buf, struct err *e)
{
    struct worker *w = state;
    if (!target_may_hold(w->r, it))
        return 0;
    int64_t n = target_read(w->r->target, buf, it->len, it->pos, e);
    return n < 0 ? (int)n : (uint64_t)n == it->len;
}

static int worker_kept(void *state, const struct fetch_item *it, uint8_t *buf, struct err *e)
{
    (void)e;
    struct worker *w = state;
    struct restore *r = w->r;
    buffer_return(w, buf);
    item_add(r->o->differential ? &r->equal : &r->resumed, it->len);
    item_add(&r->progress->skipped, it->len);
    item_add(&r->progress->done, it->len);
    return 0;
}

static void worker_expect(void *state, const struct fetch_item *it)
{
    struct worker *w = state;
    if (target_may_hold(w->r, it))
        target_ahead(w->r->target, it->pos, it->len);
}

static int worker_buffer(void *state, const struct fetch_item *it, uint8_t **ret, struct err *e)
{
    struct worker *w = state;
    if (it->len <= w->r->max_len) {
        int rc = writer_buffer(w->writer, it->pos, ret, e);
        if (rc < 0)
            return rc;
        /* What is read now is written in any case: it waits for both limits at once. */
        uint64_t skip, n;
        item_clip(w->r, it->pos, it->len, &skip, &n);
        *due_of(w, *ret) = target_may_hold(w->r, it) ? 0 : throttle_reserve(w->r->writes, n);
        return rc;
    }
    /* A longer content was made with other settings than the repository's: its memory is allocated separately, one
     * at a time. */
    if (w->odd_out || it->len > CONTENT_LEN_MAX)
        return err_set(e, ERR_MEMORY, ENOMEM, "content of %llu bytes at %llu does not fit into the memory budget",
                       (unsigned long long)it->len, (unsigned long long)it->pos);
    if (w->odd_cap < it->len) {
        free(w->odd);
        w->odd_cap = 0;
        if (!(w->odd = malloc(it->len)))
            return err_nomem(e);
        w->odd_cap = it->len;
    }
    w->odd_out = true;
    *ret = w->odd;
    return 0;
}

/* Writes through a buffer of the writer, which takes at most max_len. */
static int write_odd(struct worker *w, const uint8_t *buf, uint64_t skip, uint64_t n, uint64_t pos, struct err *e)
{
    while (n) {
        uint8_t *out;
        size_t piece = n < w->r->max_len ? (size_t)n : w->r->max_len;
        int rc = writer_buffer(w->writer, pos + skip, &out, e);
        if (rc < 0)
            return rc;
        memcpy(out, buf + skip, piece);
        rc = writer_submit(w->writer, out, 0, piece, pos + skip, e);
        if (rc < 0)
            return rc;
        skip += piece;
        n -= piece;
    }
    return 0;
}

/* The first run of whole units of zeros in [from, end) of a buffer that begins at `pos`; [end, end) if there is none.
 */
static void zero_run(const struct restore *r, const uint8_t *buf, uint64_t pos, uint64_t from, uint64_t end,
                     uint64_t *run, uint64_t *run_end)
{
    const uint64_t unit = r->zero_unit, before = unit ? (pos + from) % unit : 0;
    *run = *run_end = end;
    for (uint64_t at = from + (before ? unit - before : 0); unit && at + unit <= end; at += unit) {
        const bool zero = zeros_only(buf + at, unit);
        if (zero && *run == end)
            *run = at;
        if (zero)
            *run_end = at + unit;
        else if (*run < end)
            return;
    }
}

/* Zeros among the data of [*skip, *skip + *n) are zeroed where they need take no space. The data is written through
 * another buffer, but for the last piece of it, which is left to the caller and may be empty. */
static int write_around_zeros(struct worker *w, const uint8_t *buf, uint64_t *skip, uint64_t *n, uint64_t pos,
                              struct err *e)
{
    struct restore *r = w->r;
    const uint64_t end = *skip + *n;
    uint64_t run, run_end;
    int rc = 0;
    *n = 0;
    for (uint64_t at = *skip; at < end && rc >= 0; at = run_end) {
        zero_run(r, buf, pos, at, end, &run, &run_end);
        if (run > at) {
            rc = *n ? write_odd(w, buf, *skip, *n, pos, e) : 0;
            *skip = at;
            *n = run - at;
            item_add(&r->written, *n);
        }
        if (rc >= 0 && run_end > run) {
            rc = target_zero(r->target, pos + run, run_end - run, NULL, e);
            item_add(&r->zeroed, run_end - run);
        }
    }
    return rc;
}

/* All of a piece, through other buffers. */
static int write_piece(struct worker *w, const uint8_t *buf, uint64_t skip, uint64_t n, uint64_t pos, struct err *e)
{
    throttle_wait(w->r->writes, n);
    const int rc = write_around_zeros(w, buf, &skip, &n, pos, e);
    return rc < 0 || !n ? rc : write_odd(w, buf, skip, n, pos, e);
}

/* Writes the runs of 64 KiB pieces that differ. The target is read again: only its hash was kept. */
static int write_differing(struct worker *w, const struct fetch_item *it, uint8_t *buf, uint64_t skip, uint64_t n,
                           struct err *e)
{
    struct restore *r = w->r;
    const uint64_t end = skip + n;
    int rc = 0;
    uint64_t from = skip; /* of the run that differs, up to `at` */
    for (uint64_t at = skip; at < end && rc >= 0;) {
        uint64_t step = end - at < COMPARE ? end - at : COMPARE;
        int64_t known = target_read(r->target, w->have, step, it->pos + at, e);
        if (known < 0) {
            rc = (int)known;
            break;
        }
        bool equal = (uint64_t)known == step && !memcmp(buf + at, w->have, step);
        at += step;
        if (equal)
            item_add(&r->equal, step);
        uint64_t to = equal ? at - step : at;
        if ((equal || at == end) && to > from)
            rc = write_piece(w, buf, from, to - from, it->pos, e);
        if (equal)
            from = at;
    }
    buffer_return(w, buf);
    return rc;
}

static int worker_done(void *state, const struct fetch_item *it, uint8_t *buf, struct err *e)
{
    struct worker *w = state;
    struct restore *r = w->r;
    uint64_t skip, n;
    item_clip(r, it->pos, it->len, &skip, &n);
    item_add(&r->fetched, it->len);
    item_add(&r->progress->read, it->len);
    item_add(&r->progress->done, n);
    int rc;
    if (r->o->differential && !it->compressed)
        return write_differing(w, it, buf, skip, n, e);
    item_add(&r->progress->stored, n);
    if (buf == w->odd) {
        rc = write_piece(w, buf, skip, n, it->pos, e);
        buffer_return(w, buf);
        return rc;
    }
    const uint64_t due = *due_of(w, buf);
    if (due)
        throttle_until(r->writes, due);
    else
        throttle_wait(r->writes, n);
    rc = write_around_zeros(w, buf, &skip, &n, it->pos, e);
    if (rc >= 0 && n)
        return writer_submit(w->writer, buf, skip, n, it->pos + skip, e);
    buffer_return(w, buf);
    return rc;
}

static int worker_failed(void *state, const struct fetch_item *it, uint8_t *buf, struct err *e)
{
    struct worker *w = state;
    if (buf)
        buffer_return(w, buf);
    err_wrap(e, "cannot restore bytes %llu to %llu of the object", (unsigned long long)it->pos,
             (unsigned long long)(it->pos + it->len - 1));
    if (!e->hint[0])
        err_hint(e, "the target is incomplete; `snapferry verify` lists all damaged files");
    return e->sys > 0 ? -e->sys : -EIO;
}

static int worker_flush(void *state, struct err *e)
{
    return writer_flush(((struct worker *)state)->writer, e);
}

/* ---- zeros ---- */

static int zeros_interrupted(const struct restore *r, uint64_t pos, struct err *e)
{
    if (!is_cancelled(r))
        return 0;
    return err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted at %llu bytes", (unsigned long long)pos);
}

/* A run of zeros may be most of a volume, and take hours. */
static void zeros_progress(struct restore *r, uint64_t len)
{
    r->result->zero_bytes += len;
    item_add(&r->progress->skipped, len);
    item_add(&r->progress->done, len);
}

/* Up to the first byte that is not zero. */
static int compare_zeros(struct restore *r, uint8_t *buf, size_t cap, uint64_t pos, uint64_t len, bool *equal,
                         struct err *e)
{
    *equal = true;
    for (uint64_t n; *equal && len; pos += n, len -= n) {
        n = len < cap ? len : cap;
        if (zeros_interrupted(r, pos, e) < 0)
            return -ECANCELED;
        const int64_t got = target_is_zero(r->target, pos, n) ? 0 : target_read(r->target, buf, (size_t)n, pos, e);
        if (got < 0)
            return (int)got;
        *equal = zeros_only(buf, (size_t)got);
    }
    return 0;
}

static int compare_and_zero(struct restore *r, uint64_t pos, uint64_t len, struct err *e)
{
    const size_t cap = 1u << 20;
    bool equal;
    CLEANUP_FREE uint8_t *buf = malloc(cap);
    if (!buf)
        return err_nomem(e);
    while (len) {
        const uint64_t step = target_compare_step(r->target, pos, len);
        int rc = compare_zeros(r, buf, cap, pos, step, &equal, e);
        if (rc == 0 && !equal)
            rc = target_zero(r->target, pos, step, NULL, e);
        if (rc < 0)
            return rc;
        if (equal)
            item_add(&r->equal, step);
        zeros_progress(r, step);
        pos += step;
        len -= step;
    }
    return 0;
}

static int zero_in_steps(struct restore *r, uint64_t pos, uint64_t len, struct err *e)
{
    while (len) {
        const uint64_t step = target_zero_step(r->target, pos, len);
        int rc = zeros_interrupted(r, pos, e);
        if (rc >= 0)
            rc = target_zero(r->target, pos, step, NULL, e);
        if (rc < 0)
            return rc;
        zeros_progress(r, step);
        pos += step;
        len -= step;
    }
    return 0;
}

static int put_zeros(struct restore *r, uint64_t pos, uint64_t len, struct err *e)
{
    uint64_t skip, n;
    item_clip(r, pos, len, &skip, &n);
    if (!n)
        return 0;
    bool compare = r->o->differential || pos + skip + n <= r->check_below;
    return compare && target_is_block(r->target) ? compare_and_zero(r, pos + skip, n, e)
                                                 : zero_in_steps(r, pos + skip, n, e);
}

/* ---- the coordinator ---- */

static int parts_walk(struct restore *r, const struct object_id *obj, struct fetcher *f, uint64_t *length,
                      struct err *e)
{
    CLEANUP(object_parts_freep) struct object_parts *parts = NULL;
    CLEANUP(zeros_freep) struct zeros *zeros = NULL;
    int rc = object_parts_open(&parts, r->repo, obj, e);
    if (rc >= 0)
        rc = zeros_new(&zeros, CONTENT_LEN_MAX, e);
    if (rc >= 0 && r->from)
        rc = object_parts_seek(parts, r->from, e);
    uint64_t zero_at = 0, zero_len = 0;
    struct noting noting;
    noting_begin(&noting, r);
    bool after_zero = false;
    *length = 0;
    while (rc >= 0) {
        struct object_part part;
        rc = object_parts_next(parts, &part, e);
        if (rc <= 0)
            break;
        if (is_cancelled(r))
            rc = err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted at %llu bytes", (unsigned long long)part.start);
        *length = part.start + part.len;
        if (rc < 0 || part.start >= r->to)
            break;
        if (!part.len || *length <= r->from)
            continue;
        bool zero = !part.id.compressed &&
                    zeros_recognise(zeros, sealer_hasher(repo_sealer(r->repo)), &part.id.content, part.len, after_zero);
        after_zero = zero;
        if (zero && zero_len && zero_at + zero_len == part.start) {
            zero_len += part.len;
            continue;
        }
        if (zero_len) {
            rc = put_zeros(r, zero_at, zero_len, e);
            zero_len = 0;
        }
        if (rc >= 0 && zero) {
            zero_at = part.start;
            zero_len = part.len;
            continue;
        }
        if (rc >= 0)
            rc = note_if_due(&noting, r, f, part.start, e);
        struct fetch_item it = {.compressed = part.id.compressed, .pos = part.start, .len = part.len};
        if (rc >= 0) {
            rc = repo_find(r->repo, &part.id.content, &it.entry, e);
            if (rc == -ENOENT) {
                char id[CONTENT_ID_TEXT];
                rc = err_set(e, ERR_DAMAGE, ENOENT,
                             "content %s is not in the index: cannot restore bytes %llu to %llu of the object",
                             content_id_text(&part.id.content, id), (unsigned long long)part.start,
                             (unsigned long long)(*length - 1));
            }
        }
        if (rc >= 0)
            rc = fetcher_add(f, &it, e);
    }
    if (rc >= 0 && zero_len)
        rc = put_zeros(r, zero_at, zero_len, e);
    if (rc >= 0)
        rc = note_last(&noting, r, f, e);
    int drained = fetcher_drain(f, rc >= 0 ? e : NULL);
    return rc < 0 ? rc : drained;
}

/* ---- reading back ---- */

#define BACK_LANES 8

struct read_back {
    struct restore *r;
    const char *target;
    int fd;
    struct content_reader *contents;
    struct compressor *compressor;
    unsigned lanes, n;
    struct hash_job jobs[BACK_LANES];
    struct object_part parts[BACK_LANES];
    uint8_t *buf[BACK_LANES];
};

static int read_back_mismatch(const struct read_back *b, uint64_t pos, uint64_t n, struct err *e)
{
    return err_set(e, ERR_TARGET, 0, "verification failed: %s differs at bytes %llu to %llu", b->target,
                   (unsigned long long)pos, (unsigned long long)(pos + n - 1));
}

static int read_back_cancelled(struct err *e)
{
    return err_set(e, ERR_INTERRUPTED, ECANCELED,
                   "interrupted during verification: all data was restored, not all was read back");
}

static int read_exactly(const struct read_back *b, uint8_t *buf, size_t len, uint64_t pos, struct err *e)
{
    if (b->fd < 0) { /* an export, by the connection that there is */
        const int64_t n = target_read(b->r->target, buf, len, pos, e);
        if (n < 0 || (size_t)n == len)
            return n < 0 ? (int)n : 0;
        return err_set(e, ERR_TARGET, 0, "%s ends at %llu", b->target, (unsigned long long)pos + (unsigned long long)n);
    }
    while (len) {
        ssize_t n = pread(b->fd, buf, len, (off_t)pos);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(e, ERR_TARGET, errno, "cannot read back %s at %llu", b->target, (unsigned long long)pos);
        if (n == 0)
            return err_set(e, ERR_TARGET, 0, "%s ends at %llu", b->target, (unsigned long long)pos);
        buf += n;
        len -= (size_t)n;
        pos += (uint64_t)n;
    }
    return 0;
}

static int check_batch(struct read_back *b, struct err *e)
{
    hasher_digest_many(sealer_hasher(repo_sealer(b->r->repo)), b->jobs, b->n);
    for (unsigned i = 0; i < b->n; i++) {
        const struct object_part *p = &b->parts[i];
        if (memcmp(b->jobs[i].out, p->id.content.hash, p->id.content.len) != 0)
            return read_back_mismatch(b, p->start, p->len, e);
    }
    b->n = 0;
    return 0;
}

static int check_zeros(struct read_back *b, uint64_t pos, uint64_t len, struct err *e)
{
    if (b->fd >= 0) {
        off_t data = lseek(b->fd, (off_t)pos, SEEK_DATA);
        if ((data < 0 && errno == ENXIO) || (data >= 0 && (uint64_t)data >= pos + len))
            return 0;
    } else if (target_is_zero(b->r->target, pos, len)) {
        return 0;
    }
    while (len) {
        if (is_cancelled(b->r))
            return read_back_cancelled(e);
        size_t step = len < b->r->max_len ? (size_t)len : b->r->max_len;
        int rc = read_exactly(b, b->buf[b->n], step, pos, e);
        if (rc < 0)
            return rc;
        if (!zeros_only(b->buf[b->n], step))
            return read_back_mismatch(b, pos, step, e);
        pos += step;
        len -= step;
    }
    return 0;
}

/* A part of which only a piece was wanted, or whose id is not the hash of its bytes: compared with the content. */
static int check_by_content(struct read_back *b, const struct object_part *p, uint64_t skip, uint64_t n, struct err *e)
{
    CLEANUP_FREE uint8_t *want = NULL;
    CLEANUP_FREE uint8_t *payload = NULL;
    CLEANUP_FREE uint8_t *have = malloc(n);
    if (!have)
        return err_nomem(e);
    int64_t len;
    if (p->id.compressed) {
        len = content_get(b->contents, &p->id.content, &payload, CONTENT_LEN_MAX, e);
        if (len >= 0 && !(want = malloc(p->len)))
            return err_nomem(e);
        if (len >= 0)
            len = compressor_expand(b->compressor, 0, payload, (size_t)len, want, p->len, e);
    } else {
        len = content_get(b->contents, &p->id.content, &want, CONTENT_LEN_MAX, e);
    }
    if (len >= 0)
        len = read_exactly(b, have, n, p->start + skip, e);
    if (len < 0)
        return (int)len;
    return memcmp(want + skip, have, n) ? read_back_mismatch(b, p->start + skip, n, e) : 0;
}

static int check_part(struct read_back *b, const struct object_part *p, struct zeros *zeros, bool after_zero,
                      bool *zero, struct err *e)
{
    uint64_t skip, n;
    item_clip(b->r, p->start, p->len, &skip, &n);
    *zero = false;
    if (!n)
        return 0;
    int rc;
    if (!p->id.compressed &&
        zeros_recognise(zeros, sealer_hasher(repo_sealer(b->r->repo)), &p->id.content, p->len, after_zero)) {
        *zero = true;
        rc = check_zeros(b, p->start + skip, n, e);
    } else if (n < p->len || p->id.compressed || p->len > b->r->max_len) {
        rc = check_by_content(b, p, skip, n, e);
    } else {
        rc = read_exactly(b, b->buf[b->n], p->len, p->start, e);
        b->jobs[b->n] = (struct hash_job){.data = b->buf[b->n], .len = p->len};
        b->parts[b->n++] = *p;
        if (rc >= 0 && b->n == b->lanes)
            rc = check_batch(b, e);
    }
    b->r->result->verified_bytes += n;
    item_add(&b->r->progress->done, n);
    return rc;
}

static void read_back_clear(struct read_back *b)
{
    if (b->fd >= 0)
        close(b->fd);
    for (unsigned i = 0; i < BACK_LANES; i++)
        free(b->buf[i]);
    content_reader_free(b->contents);
    compressor_free(b->compressor);
}

/* The page cache is dropped first, so that data is read from the device where possible. */
static int read_back(struct restore *r, const struct object_id *obj, const struct place *to, bool export, struct err *e)
{
    atomic_store(&r->progress->phase, PHASE_CHECKING);
    atomic_store(&r->progress->done, 0);
    atomic_store(&r->progress->skipped, 0);
    atomic_store(&r->progress->taken_in, 0);
    CLEANUP(object_parts_freep) struct object_parts *parts = NULL;
    CLEANUP(zeros_freep) struct zeros *zeros = NULL;
    CLEANUP(read_back_clear) struct read_back b = {.r = r, .target = to->name};
    b.fd = export ? -1 : to->fd >= 0 ? fcntl(to->fd, F_DUPFD_CLOEXEC, 3) : open(to->name, O_RDONLY | O_CLOEXEC);
    if (b.fd < 0 && !export)
        return err_set(e, ERR_TARGET, errno, "cannot reopen %s for verification", to->name);
    if (!export)
        posix_fadvise(b.fd, 0, 0, POSIX_FADV_DONTNEED);
    b.lanes = r->buffers < BACK_LANES ? r->buffers : BACK_LANES;
    for (unsigned i = 0; i < b.lanes; i++)
        if (!(b.buf[i] = malloc(r->max_len)))
            return err_nomem(e);
    int rc = object_parts_open(&parts, r->repo, obj, e);
    if (rc >= 0)
        rc = zeros_new(&zeros, CONTENT_LEN_MAX, e);
    if (rc >= 0 && r->from)
        rc = object_parts_seek(parts, r->from, e);
    if (rc >= 0)
        rc = content_reader_new(&b.contents, r->repo, e);
    if (rc >= 0)
        rc = compressor_new(&b.compressor, e);
    bool zero = false;
    uint64_t end = 0;
    while (rc >= 0) {
        struct object_part part;
        rc = object_parts_next(parts, &part, e);
        if (rc <= 0 || part.start >= r->to)
            break;
        end = part.start + part.len;
        if (is_cancelled(r))
            rc = read_back_cancelled(e);
        else
            rc = check_part(&b, &part, zeros, zero, &zero, e);
    }
    if (rc >= 0)
        rc = check_batch(&b, e);
    /* The object of a checkpoint is shorter than its file: the rest is zeros. */
    if (rc >= 0 && end < r->to && !r->o->ranged)
        rc = check_zeros(&b, end, r->to - end, e);
    return rc;
}

/* ---- the whole ---- */

/* Buffers of a worker: one for each lane of the hash and some in flight, within the budget. */
static int plan_memory(struct restore *r, uint64_t memory, struct fetch_plan *p, struct err *e)
{
    struct splitter sp = {.max = 8u << 20};
    splitter_by_name(&sp, repo_format(r->repo)->splitter);
    r->max_len = sp.max;
    /* Libraries, windows, stacks; and a piece of the index document. */
    const uint64_t fixed = (16u << 20) + r->max_len;
    /* The reader's scratch holds a content to expand; with error correction a sealed and a repaired one (and the one
     * to expand, but compressed contents are shorter). */
    const unsigned scratch = repo_reads_in_pieces(r->repo) ? 1 : 2;
    const uint64_t per_worker = scratch * (uint64_t)r->max_len + (1u << 20);
    unsigned n = p->workers ? p->workers : (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    /* These have one read each under way. */
    if (!p->workers && r->o->differential && n < WORKERS_FAR && !blobs_are_files(repo_blobs(r->repo)))
        n = WORKERS_FAR;
    unsigned lanes = hasher_lanes(sealer_hasher(repo_sealer(r->repo)));
    /* One worker less costs more than idle lanes. */
    unsigned few = lanes + 1 < BUFFERS_FEW ? lanes + 1 : BUFFERS_FEW;
    for (; n > 1; n--)
        if (fixed + n * (per_worker + few * (uint64_t)r->max_len) <= memory)
            break;
    /* Reads that wait for a network come before full lanes: without them a worker waits for each one. What is compared
     * first is read one by one. */
    p->ahead = r->o->differential ? 0
                                  : fetch_ahead_plan(r->repo, r->max_len, memory > fixed ? memory - fixed : 0,
                                                     per_worker + few * (uint64_t)r->max_len, &n);
    const uint64_t reads = p->ahead * fetch_ahead_bytes(r->repo, r->max_len);
    /* A differential restore writes pieces of one buffer through another. */
    for (r->buffers = lanes + WRITER_EXTRA; r->buffers > (r->o->differential ? 2 : 1); r->buffers--)
        if (fixed + n * (per_worker + reads + r->buffers * (uint64_t)r->max_len) <= memory)
            break;
    uint64_t need = fixed + n * (per_worker + reads + r->buffers * (uint64_t)r->max_len);
    if (need > memory && n == 1 && r->max_len > (8u << 20)) {
        const unsigned long long mib = (need + (1u << 20) - 1) >> 20;
        err_set(e, ERR_MEMORY, 0, "restoring with splitter %s needs %llu MiB of memory, the budget is %llu MiB",
                repo_format(r->repo)->splitter, mib, (unsigned long long)(memory >> 20));
        err_hint(e, "use --memory %lluMiB or more", mib);
        return -ENOMEM;
    }
    p->workers = n;
    p->batch = fetch_batch(r->repo, r->buffers - 1);
    return 0;
}

static void fill_result(struct restore *r, struct fetcher *f, double began)
{
    struct restore_result *res = r->result;
    struct fetch_stats s;
    fetcher_stats(f, &s);
    struct target_stats t;
    target_stats(r->target, &t);
    res->fetched_bytes = atomic_load(&r->fetched);
    res->written_bytes = atomic_load(&r->written);
    res->zero_bytes += atomic_load(&r->zeroed);
    res->equal_bytes = atomic_load(&r->equal);
    res->resumed_bytes = atomic_load(&r->resumed);
    res->punched_bytes = t.punched + t.zeroed_out;
    res->contents = s.contents;
    res->packs_read = s.runs;
    fetch_stages(&s, res->stages);
    res->stages[FETCH_STAGES] =
        (struct stage_time){"write", (double)t.write_ns * 1e-9, (double)t.wait_ns * 1e-9, res->written_bytes};
    res->n_stages = FETCH_STAGES + 1;
    res->bottleneck = fetch_bottleneck(res->stages, res->n_stages);
    res->seconds = mono_s() - began;
}

/* An export is a socket. */
static bool stat_place(const struct place *p, struct stat *st)
{
    if (p->fd < 0 && nbd_uri_is(p->name)) {
        *st = (struct stat){.st_mode = S_IFSOCK};
        return true;
    }
    return (p->fd >= 0 ? fstat(p->fd, st) : stat(p->name, st)) == 0;
}

static int restore_to(struct repo *repo, const struct object_id *obj, uint64_t size, const struct place *place,
                      struct throttle *reads, struct throttle *writes, const struct restore_opts *o,
                      struct restore_result *ret, struct err *e)
{
    struct mover_progress unseen = {0};
    *ret = (struct restore_result){0};
    uint64_t memory = o->limits.memory ? o->limits.memory : MEMORY_DEFAULT;
    if (memory < MEMORY_MIN)
        return err_set(e, ERR_USAGE, 0, "memory budget of %llu MiB is too small: at least %u MiB needed",
                       (unsigned long long)(memory >> 20), MEMORY_MIN >> 20);
    if (o->ranged && o->offset >= size) {
        err_set(e, ERR_USAGE, 0, "offset %llu is beyond the end: the file has %llu bytes",
                (unsigned long long)o->offset, (unsigned long long)size);
        return -EINVAL;
    }
    struct restore r = {
        .repo = repo, .o = o, .result = ret, .progress = o->progress ? o->progress : &unseen, .writes = writes};
    r.from = o->ranged ? o->offset : 0;
    r.to = o->ranged && o->length && o->length < size - o->offset ? o->offset + o->length : size;
    double began = mono_s();
    struct stat st;
    const bool exists = stat_place(place, &st), export = exists && S_ISSOCK(st.st_mode);
    CLEANUP(export_release) struct export_lock lock = {.fd = -1};
    int64_t noted = -1;
    int rc = 0;
    if (exists) {
        position_name(&r, obj, place, &st);
        if (export && (rc = export_claim(&lock, r.state_file, place->name, e)) < 0)
            return rc;
        noted = position_read(&r);
    }
    if (noted > 0 && (uint64_t)noted > r.from) {
        ret->resumed_from = r.check_below = (uint64_t)noted;
        log_info("the restore to %s resumes at %llu of %llu bytes; what is below is compared with the target",
                 place->name, (unsigned long long)r.check_below, (unsigned long long)r.to);
    }
    struct fetch_plan plan = {.workers = o->limits.workers};
    rc = plan_memory(&r, memory, &plan, e);
    if (rc < 0)
        return rc;
    const struct target_opts to = {
        /* A range is written into the present file: the rest of a longer file is not changed. */
        .size = o->ranged && exists && S_ISREG(st.st_mode) && (uint64_t)st.st_size > r.to ? (uint64_t)st.st_size : r.to,
        .force = o->force,
        .keep_contents = o->differential || o->ranged,
        .resume = o->resume || noted >= 0,
        .no_uring = o->no_uring,
        .stop = o->cancel ? &o->cancel->requested : NULL,
    };
    CLEANUP(target_freep) struct target *t = NULL;
    rc = place->fd >= 0 ? target_from_fd(&t, place->fd, place->name, &to, e) : target_open(&t, place->name, &to, e);
    if (rc < 0)
        return rc;
    r.target = t;
    r.zero_unit = r.buffers > 1 ? target_zero_unit(t) : 0; /* pieces of one buffer are written through another */
    if (stat_place(place, &st))
        position_name(&r, obj, place, &st);
    position_note(&r, r.check_below);
    ret->size = r.to - r.from;
    atomic_store(&r.progress->total, r.to - r.from);
    atomic_store(&r.progress->phase, PHASE_MOVING);
    const struct fetch_sink sink = {
        .start = worker_start,
        .end = worker_end,
        .buffer = worker_buffer,
        .held = target_is_compared(&r) ? worker_held : NULL,
        .may_hold = target_may_hold,
        .kept = worker_kept,
        .expect = worker_expect,
        .done = worker_done,
        .failed = worker_failed,
        .flush = worker_flush,
        .arg = &r,
        .usual_len = r.max_len,
    };
    CLEANUP(fetcher_freep) struct fetcher *f = NULL;
    rc = fetcher_new(&f, repo, &plan, &sink, o->cancel, e);
    uint64_t length = 0;
    reads->passed = &r.progress->taken_in; /* no thread reads yet */
    if (rc >= 0)
        rc = parts_walk(&r, obj, f, &length, e);
    if (rc >= 0 && length < r.to && !o->ranged)
        rc = put_zeros(&r, length, r.to - length, e);
    if (rc >= 0 && length > size)
        rc = err_set(e, ERR_DAMAGE, EBADMSG, "the object has at least %llu bytes, its directory entry %llu",
                     (unsigned long long)length, (unsigned long long)size);
    atomic_store(&r.progress->phase, PHASE_COMMITTING);
    if (rc >= 0)
        rc = target_finish(t, e);
    if (rc < 0) {
        if (e->cls == ERR_INTERRUPTED)
            err_hint(e, "the target is incomplete; run the same command again to resume");
        return rc;
    }
    fill_result(&r, f, began);
    fetcher_free(take_ptr(&f));
    reads->passed = NULL;
    if (o->verify) {
        /* One that is interrupted from here on compares the target by hash and reads it back. */
        position_note(&r, r.to);
        crash_point("restore-written");
        rc = read_back(&r, obj, place, export, e);
        if (rc >= 0)
            crash_point("restore-read-back");
    }
    if (rc >= 0)
        unlink(r.state_file);
    ret->seconds = mono_s() - began;
    atomic_store(&r.progress->phase, PHASE_DONE);
    return rc;
}

static int restore_limited(struct repo *repo, const struct object_id *obj, uint64_t size, const struct place *place,
                           const struct restore_opts *o, struct restore_result *ret, struct err *e)
{
    const _Atomic bool *stop = o->cancel ? &o->cancel->requested : NULL;
    struct throttle reads = mover_reads(o->limits.read_limit, o->cancel),
                    writes = mover_writes(o->limits.write_limit, o->cancel);
    blobs_limit(repo_blobs(repo), &reads, NULL);
    const _Atomic bool *before = blobs_stop(repo_blobs(repo), stop);
    int rc = restore_to(repo, obj, size, place, &reads, &writes, o, ret, e);
    blobs_limit(repo_blobs(repo), NULL, NULL);
    blobs_stop(repo_blobs(repo), before);
    return rc;
}

int restore_run(struct repo *repo, const struct object_id *obj, uint64_t size, const char *target,
                const struct restore_opts *o, struct restore_result *ret, struct err *e)
{
    const struct place to = {.name = target, .fd = -1};
    return restore_limited(repo, obj, size, &to, o, ret, e);
}

int restore_run_fd(struct repo *repo, const struct object_id *obj, uint64_t size, int fd, const char *name,
                   const struct restore_opts *o, struct restore_result *ret, struct err *e)
{
    const struct place to = {.name = name, .fd = fd};
    return restore_limited(repo, obj, size, &to, o, ret, e);
}
