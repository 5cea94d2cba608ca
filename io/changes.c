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

struct changes {
    struct change *list;
    size_t n, room;
    size_t sorted;     /* the first so many are in order and apart */
    uint64_t distance; /* ranges with gaps up to this are merged */
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
    free(c);
}

static int by_start(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* Sorts, and merges ranges that overlap or are not more than `distance` apart. */
static void list_merge(struct changes *c)
{
    if (c->sorted < c->n)
        qsort(c->list, c->n, sizeof *c->list, by_start);
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct change x = c->list[i];
        struct change *last = n ? &c->list[n - 1] : NULL;
        if (!last || x.start - last->start > last->len + c->distance)
            c->list[n++] = x;
        else if (x.start + x.len > last->start + last->len)
            last->len = x.start + x.len - last->start;
    }
    c->n = c->sorted = n;
}

/* Makes room for one more. */
static int list_grow(struct changes *c, struct err *e)
{
    if (c->n < c->room)
        return 0;
    if (c->room < CHANGES_MAX) {
        size_t room = c->room ? 2 * c->room : 256;
        struct change *list = realloc(c->list, room * sizeof *list);
        if (!list)
            return err_nomem(e);
        c->list = list;
        c->room = room;
        return 0;
    }
    /* Full: a quarter is freed, so that not every further range sorts the list. */
    list_merge(c);
    while (c->n > CHANGES_MAX / 4 * 3) {
        c->distance = c->distance ? 2 * c->distance : 4096;
        list_merge(c);
    }
    return 0;
}

int changes_add(struct changes *c, uint64_t start, uint64_t len, struct err *e)
{
    if (len == 0)
        return 0;
    if (start > POSITION_MAX || len > POSITION_MAX - start)
        return err_set(e, ERR_USAGE, EINVAL, "changed range of %" PRIu64 " bytes at %" PRIu64 " ends beyond 2^63 bytes",
                       len, start);
    struct change *last = c->n ? &c->list[c->n - 1] : NULL;
    if (last && start >= last->start && start - last->start <= last->len + c->distance) {
        if (start + len > last->start + last->len)
            last->len = start + len - last->start;
        return 0;
    }
    int rc = list_grow(c, e);
    if (rc < 0)
        return rc;
    const bool in_order = c->sorted == c->n && (c->n == 0 || start > c->list[c->n - 1].start + c->list[c->n - 1].len);
    c->list[c->n++] = (struct change){start, len};
    if (in_order)
        c->sorted = c->n;
    return 0;
}

void changes_finish(struct changes *c)
{
    list_merge(c);
}

size_t changes_count(const struct changes *c)
{
    return c->n;
}

uint64_t changes_bytes(const struct changes *c)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < c->n; i++)
        sum += c->list[i].len;
    return sum;
}

size_t changes_memory(const struct changes *c)
{
    return c->room * sizeof *c->list;
}

/* Whether the ranges up to number `i`, including it, end at or before `pos`. */
static bool ends_before(const struct changes *c, size_t i, uint64_t pos)
{
    return i < c->n && c->list[i].start + c->list[i].len <= pos;
}

bool changes_after(const struct changes *c, size_t *cursor, uint64_t pos, struct change *ret)
{
    /* Doubling steps, then halving ones: the time for skipping many ranges is logarithmic. */
    size_t step = 1;
    while (ends_before(c, *cursor + step - 1, pos)) {
        *cursor += step;
        step *= 2;
    }
    for (; step; step /= 2)
        if (ends_before(c, *cursor + step - 1, pos))
            *cursor += step;
    if (*cursor >= c->n)
        return false;
    *ret = c->list[*cursor];
    return true;
}

int changes_add_all(struct changes *c, const struct changes *from, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < from->n && rc == 0; i++)
        rc = changes_add(c, from->list[i].start, from->list[i].len, e);
    return rc;
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
