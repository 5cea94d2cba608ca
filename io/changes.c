/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/changes.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define POSITION_MAX ((uint64_t)INT64_MAX)
#define LINE_MAX_CHARS 200
#define ZEROS_MAX (CHANGES_MAX / 4)

/* `zeros` are not in `list` until it is finished: it always has room for them. They are never enlarged. */
struct changes {
    struct change *list, *zeros;
    size_t n, room;
    size_t sorted;     /* the first so many are in order and apart */
    uint64_t distance; /* ranges with gaps up to this are merged */
    size_t n_zeros, zeros_room;
    bool finished;
};

int changes_new(struct changes **ret, struct err *e)
{
    struct changes *c = calloc(1, sizeof *c);
    if (!c)
        return err_nomem(e);
    *ret = c;
    return 0;
}

void changes_free(struct changes *c)
{
    if (!c)
        return;
    free(c->list);
    free(c->zeros);
    free(c);
}

static int by_start(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* Merges sorted ranges that overlap or are not more than `distance` apart: how many are left. */
static size_t ranges_merge(struct change *list, size_t count, uint64_t distance)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const struct change x = list[i];
        struct change *last = n ? &list[n - 1] : NULL;
        if (!last || x.start - last->start > last->len + distance)
            list[n++] = x;
        else if (x.start + x.len > last->start + last->len)
            last->len = x.start + x.len - last->start;
    }
    return n;
}

static void list_merge(struct changes *c)
{
    if (c->sorted < c->n)
        qsort(c->list, c->n, sizeof *c->list, by_start);
    c->n = c->sorted = ranges_merge(c->list, c->n, c->distance);
}

static int array_double(struct change **list, size_t *room, struct err *e)
{
    const size_t more = *room ? 2 * *room : 256;
    struct change *p = realloc(*list, more * sizeof *p);
    if (!p)
        return err_nomem(e);
    *list = p;
    *room = more;
    return 0;
}

/* Makes room for one more, and for the zeros. */
static int list_grow(struct changes *c, struct err *e)
{
    int rc = 0;
    while (rc == 0 && c->n + c->n_zeros >= c->room && c->room < CHANGES_MAX)
        rc = array_double(&c->list, &c->room, e);
    if (rc < 0 || c->n + c->n_zeros < c->room)
        return rc;
    /* Full: a quarter is freed, so that not every further range sorts the list. */
    list_merge(c);
    while (c->n + c->n_zeros > CHANGES_MAX / 4 * 3) {
        c->distance = c->distance ? 2 * c->distance : 4096;
        list_merge(c);
    }
    return 0;
}

static int position_check(uint64_t start, uint64_t len, struct err *e)
{
    if (start <= POSITION_MAX && len <= POSITION_MAX - start)
        return 0;
    return err_set(e, ERR_USAGE, EINVAL, "changed range of %" PRIu64 " bytes at %" PRIu64 " ends beyond 2^63 bytes",
                   len, start);
}

/* Whether the last range has become one with this one. */
static bool joins_last(struct change *last, uint64_t start, uint64_t len, uint64_t distance)
{
    if (start < last->start || start - last->start > last->len + distance)
        return false;
    if (start + len > last->start + last->len)
        last->len = start + len - last->start;
    return true;
}

int changes_add(struct changes *c, uint64_t start, uint64_t len, struct err *e)
{
    if (len == 0)
        return 0;
    int rc = position_check(start, len, e);
    if (rc < 0)
        return rc;
    if (c->finished) /* which of its ranges are zeros can no longer be told from the others */
        c->n_zeros = 0;
    c->finished = false;
    if (c->n && joins_last(&c->list[c->n - 1], start, len, c->distance))
        return 0;
    rc = list_grow(c, e);
    if (rc < 0)
        return rc;
    const bool in_order = c->sorted == c->n && (c->n == 0 || start > c->list[c->n - 1].start + c->list[c->n - 1].len);
    c->list[c->n++] = (struct change){start, len};
    if (in_order)
        c->sorted = c->n;
    return 0;
}

int changes_add_zeros(struct changes *c, uint64_t start, uint64_t len, struct err *e)
{
    if (len == 0)
        return 0;
    int rc = position_check(start, len, e);
    if (rc < 0)
        return rc;
    if (c->finished || c->n_zeros == ZEROS_MAX)
        return changes_add(c, start, len, e);
    if (c->n_zeros && joins_last(&c->zeros[c->n_zeros - 1], start, len, 0))
        return 0;
    if (c->n_zeros == c->zeros_room)
        rc = array_double(&c->zeros, &c->zeros_room, e);
    if (rc == 0)
        rc = list_grow(c, e);
    if (rc == 0)
        c->zeros[c->n_zeros++] = (struct change){start, len};
    return rc;
}

/* What is listed as changed in another way, too, is not known to be zeros: of such a range only what precedes it is. */
static void zeros_cut(struct changes *c, size_t n_others)
{
    const struct change *others = c->list;
    size_t n = 0, at = 0;
    qsort(c->zeros, c->n_zeros, sizeof *c->zeros, by_start);
    c->n_zeros = ranges_merge(c->zeros, c->n_zeros, 0);
    for (size_t i = 0; i < c->n_zeros; i++) {
        struct change z = c->zeros[i];
        while (at < n_others && others[at].start + others[at].len <= z.start)
            at++;
        if (at < n_others && others[at].start < z.start + z.len)
            z.len = others[at].start > z.start ? others[at].start - z.start : 0;
        if (z.len)
            c->zeros[n++] = z;
    }
    c->n_zeros = n;
}

void changes_finish(struct changes *c)
{
    list_merge(c);
    if (!c->finished && c->n_zeros) {
        const size_t others = c->n;
        memcpy(c->list + others, c->zeros, c->n_zeros * sizeof *c->zeros);
        c->n += c->n_zeros;
        zeros_cut(c, others);
        list_merge(c);
    }
    c->finished = true;
}

size_t changes_count(const struct changes *c)
{
    return c->n;
}

static uint64_t lengths(const struct change *list, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += list[i].len;
    return sum;
}

uint64_t changes_bytes(const struct changes *c)
{
    return lengths(c->list, c->n);
}

uint64_t changes_zero_bytes(const struct changes *c)
{
    return lengths(c->zeros, c->n_zeros);
}

size_t changes_memory(const struct changes *c)
{
    return (c->room + c->zeros_room) * sizeof *c->list;
}

/* Whether the ranges up to number `i`, including it, end at or before `pos`. */
static bool ends_before(const struct change *list, size_t n, size_t i, uint64_t pos)
{
    return i < n && list[i].start + list[i].len <= pos;
}

static bool range_after(const struct change *list, size_t n, size_t *cursor, uint64_t pos, struct change *ret)
{
    /* Doubling steps, then halving ones: the time for skipping many ranges is logarithmic. */
    size_t step = 1;
    while (ends_before(list, n, *cursor + step - 1, pos)) {
        *cursor += step;
        step *= 2;
    }
    for (; step; step /= 2)
        if (ends_before(list, n, *cursor + step - 1, pos))
            *cursor += step;
    if (*cursor >= n)
        return false;
    *ret = list[*cursor];
    return true;
}

bool changes_after(const struct changes *c, size_t *cursor, uint64_t pos, struct change *ret)
{
    return range_after(c->list, c->n, cursor, pos, ret);
}

bool changes_part_after(const struct changes *c, struct changes_cursor *cursor, uint64_t pos, struct change *ret,
                        bool *zeros)
{
    struct change z;
    *zeros = false;
    if (!range_after(c->list, c->n, &cursor->list, pos, ret))
        return false;
    if (pos > ret->start) {
        ret->len -= pos - ret->start;
        ret->start = pos;
    }
    if (!range_after(c->zeros, c->n_zeros, &cursor->zeros, ret->start, &z) || z.start >= ret->start + ret->len)
        return true;
    *zeros = z.start <= ret->start;
    ret->len = (*zeros ? z.start + z.len : z.start) - ret->start;
    return true;
}

int changes_add_within(struct changes *c, const struct changes *from, uint64_t size, struct err *e)
{
    struct changes_cursor cursor = {0};
    struct change x;
    bool zeros;
    int rc = 0;
    for (uint64_t pos = 0; rc == 0 && pos < size && changes_part_after(from, &cursor, pos, &x, &zeros);
         pos = x.start + x.len) {
        if (x.start >= size)
            break;
        const uint64_t len = x.len < size - x.start ? x.len : size - x.start;
        rc = zeros ? changes_add_zeros(c, x.start, len, e) : changes_add(c, x.start, len, e);
    }
    return rc;
}

int changes_add_all(struct changes *c, const struct changes *from, struct err *e)
{
    return changes_add_within(c, from, UINT64_MAX, e);
}

int changes_add_unknown(struct changes *c, const struct changes *from, uint64_t size, struct err *e)
{
    uint64_t pos = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->n_zeros && from->zeros[i].start < size; i++) {
        rc = changes_add(c, pos, from->zeros[i].start - pos, e);
        pos = from->zeros[i].start + from->zeros[i].len;
    }
    return rc == 0 && pos < size ? changes_add(c, pos, size - pos, e) : rc;
}

/* ---- the text form ---- */

/* One decimal number, followed by a blank or the end of the line. Returns what follows it, NULL: none. */
static const char *number_parse(const char *p, uint64_t *ret)
{
    if (*p < '0' || *p > '9')
        return NULL;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(p, &end, 10);
    if (errno || (*end && *end != ' ' && *end != '\t' && *end != '\n'))
        return NULL;
    *ret = v;
    return end + strspn(end, " \t");
}

static int line_add(struct changes *c, const char *line, const char *path, unsigned long number, struct err *e)
{
    const char *p = line + strspn(line, " \t");
    if (*p == '\n' || *p == '\0' || *p == '#')
        return 0;
    struct change x = {0};
    p = number_parse(p, &x.start);
    p = p ? number_parse(p, &x.len) : NULL;
    if (!p || (*p != '\n' && *p)) {
        err_set(e, ERR_USAGE, EINVAL, "%s:%lu: not a changed range", path, number);
        return err_hint(e, "each line is \"START LENGTH\", in bytes, for example \"1048576 4096\"");
    }
    int rc = changes_add(c, x.start, x.len, e);
    return rc < 0 ? err_wrap(e, "%s:%lu", path, number) : 0;
}

int changes_read(struct changes *c, const char *path, struct err *e)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return err_set(e,
                       errno == ENOENT   ? ERR_NOT_FOUND
                       : errno == EACCES ? ERR_PERMISSION
                                         : ERR_GENERIC,
                       errno, "cannot open the list of changed ranges %s", path);
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, EINVAL, "the list of changed ranges %s is not a regular file", path);
    FILE *f CLEANUP_FCLOSE = fdopen(fd, "re");
    if (!f)
        return err_set(e, ERR_GENERIC, errno, "cannot read the list of changed ranges %s", path);
    fd = -1;
    char line[LINE_MAX_CHARS + 2];
    for (unsigned long number = 1; fgets(line, sizeof line, f); number++) {
        const size_t len = strlen(line);
        if (len > LINE_MAX_CHARS || (len > 0 && line[len - 1] != '\n' && !feof(f)))
            return err_set(e, ERR_USAGE, EINVAL,
                           "%s:%lu: the line is longer than %d characters, or contains a NUL byte", path, number,
                           LINE_MAX_CHARS);
        int rc = line_add(c, line, path, number, e);
        if (rc < 0)
            return rc;
    }
    if (ferror(f))
        return err_set(e, ERR_GENERIC, errno ? errno : EIO, "cannot read the list of changed ranges %s", path);
    return 0;
}
