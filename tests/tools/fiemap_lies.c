/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fiemap_lies - a file system that tells wrongly where the data of files lie; to be preloaded (LD_PRELOAD)
 *
 * What FIEMAP tells comes from the kernel, but for a comparison of two maps (FIEMAP_FLAG_SYNC, the parent's file first,
 * the other one afterwards) while the file that FIEMAP_LIES names has one of these lines:
 *
 *   same START LENGTH    of the second file: these bytes lie where those of the parent do
 *   moved START LENGTH   the same; and when the parent's map is read again, its first extent lies elsewhere: as if its
 *                        blocks had been moved meanwhile, and their old place given to the second file
 *
 * A map has at most MAX_EXTENTS extents here, and is read at once. Each time that it lies it appends a line to
 * FIEMAP_LIES.told.
 */
#include <dlfcn.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define MAX_EXTENTS 1000

static struct fiemap_extent base[MAX_EXTENTS];
static unsigned n_base, maps;
static int base_fd = -1;

struct lie {
    bool moved;
    uint64_t start, end;
};

static bool lie_read(struct lie *l)
{
    const char *path = getenv("FIEMAP_LIES");
    unsigned long long start, len;
    char word[8];
    FILE *f = path ? fopen(path, "re") : NULL;
    const int n = f ? fscanf(f, "%7s %llu %llu", word, &start, &len) : 0;
    if (f)
        fclose(f);
    if (n != 3)
        return false;
    *l = (struct lie){strcmp(word, "moved") == 0, start, start + len};
    return true;
}

static void told(const char *what)
{
    char path[4200];
    snprintf(path, sizeof path, "%s.told", getenv("FIEMAP_LIES"));
    FILE *f = fopen(path, "ae");
    if (!f)
        abort();
    fprintf(f, "%s\n", what);
    fclose(f);
}

/* Adds what of an extent lies within [from, to). */
static void part_add(struct fiemap *p, const struct fiemap_extent *x, uint64_t from, uint64_t to)
{
    struct fiemap_extent y = *x;
    if (from < x->fe_logical)
        from = x->fe_logical;
    if (to > x->fe_logical + x->fe_length)
        to = x->fe_logical + x->fe_length;
    if (from >= to)
        return;
    if (p->fm_mapped_extents == p->fm_extent_count)
        abort();
    y.fe_logical = from;
    y.fe_physical += from - x->fe_logical;
    y.fe_length = to - from;
    y.fe_flags &= ~(uint32_t)FIEMAP_EXTENT_LAST;
    p->fm_extents[p->fm_mapped_extents++] = y;
}

static void same_as_base(struct fiemap *p, const struct lie *l)
{
    static struct fiemap_extent true_map[MAX_EXTENTS];
    const unsigned n = p->fm_mapped_extents;
    memcpy(true_map, p->fm_extents, n * sizeof *true_map);
    p->fm_mapped_extents = 0;
    for (unsigned i = 0; i < n; i++)
        part_add(p, &true_map[i], 0, l->start);
    for (unsigned i = 0; i < n_base; i++)
        part_add(p, &base[i], l->start, l->end);
    for (unsigned i = 0; i < n; i++)
        part_add(p, &true_map[i], l->end, UINT64_MAX);
    if (p->fm_mapped_extents)
        p->fm_extents[p->fm_mapped_extents - 1].fe_flags |= FIEMAP_EXTENT_LAST;
}

static void map_told(int fd, struct fiemap *p)
{
    struct lie l;
    if (!lie_read(&l))
        return;
    const unsigned n = p->fm_mapped_extents;
    if (n == 0 || n > MAX_EXTENTS || !(p->fm_extents[n - 1].fe_flags & FIEMAP_EXTENT_LAST))
        abort(); /* no map that it can lie about */
    if (maps++ == 0) {
        base_fd = fd;
        n_base = n;
        memcpy(base, p->fm_extents, n * sizeof *base);
    } else if (fd != base_fd) {
        same_as_base(p, &l);
        told("same");
    } else if (l.moved) {
        p->fm_extents[0].fe_physical += 1 << 20;
        told("moved");
    }
}

int ioctl(int fd, unsigned long request, ...)
{
    static int (*next)(int, unsigned long, ...);
    va_list ap;
    va_start(ap, request);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    if (!next)
        next = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    const int rc = next(fd, request, arg);
    struct fiemap *p = arg;
    if (rc == 0 && request == FS_IOC_FIEMAP && (p->fm_flags & FIEMAP_FLAG_SYNC) && p->fm_start == 0 &&
        p->fm_extent_count > MAX_EXTENTS)
        map_told(fd, p);
    return rc;
}
