/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * driver_changes - lists of changes against the truth (output is TAP)
 *
 * driver_changes IMAGE SEED ROUNDS [DEFRAGMENT...]
 *
 * IMAGE is a new file on a file system whose files can share blocks. In each round it is written to at random (writes,
 * truncation, holes, allocation, zeroing, clones of parts of another file and of itself, defragmentation by a program),
 * a native snapshot is taken, and what the driver lists as changed since the one before is compared with the bytes of
 * both: each byte that differs must be in the list.
 */
#include "base/cleanup.h"
#include "io/native/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE_MAX_BYTES ((uint64_t)12 << 20)
#define BLOCK 4096

static struct err e;
static int number, failures;
static uint64_t state;

static void ok(bool good, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void ok(bool good, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("%sok %d - ", good ? "" : "not ", ++number);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
    if (!good && e.cls)
        printf("# %s: %s\n", err_class_name(e.cls), e.msg);
    failures += !good;
    e = (struct err)ERR_INIT;
    fflush(stdout);
}

static uint64_t draw(uint64_t below)
{
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % below;
}

static void write_some(int fd, uint64_t size)
{
    static uint8_t buf[300000];
    uint64_t len = draw(4) ? 1 + draw(9000) : 1 + draw(sizeof buf), at = draw(size);
    if (draw(2))
        at -= at % BLOCK;
    if (len > size - at)
        len = size - at;
    const uint8_t byte = (uint8_t)draw(256);
    for (uint64_t i = 0; i < len; i++)
        buf[i] = (uint8_t)(byte + i / 7 * 13);
    if (pwrite(fd, buf, len, (off_t)at) < 0)
        perror("# pwrite");
}

static void allocate(int fd, int mode, uint64_t size)
{
    const uint64_t at = draw(size), len = 1 + draw(200000);
    if (fallocate(fd, mode | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)(len < size - at ? len : size - at)) < 0 &&
        errno != EOPNOTSUPP)
        perror("# fallocate");
}

static void clone_some(int fd, int other, uint64_t size)
{
    const uint64_t blocks = size / BLOCK;
    if (blocks < 8)
        return;
    const uint64_t n = 1 + draw(blocks / 4), from = draw(blocks - n) * BLOCK, to = draw(blocks - n) * BLOCK;
    const int src = draw(2) ? other : fd;
    struct file_clone_range r = {.src_fd = src, .src_offset = from, .src_length = n * BLOCK, .dest_offset = to};
    struct stat st;
    if (fstat(src, &st) < 0 || from + n * BLOCK > (uint64_t)st.st_size)
        return;
    if (src == fd && from < to + n * BLOCK && to < from + n * BLOCK)
        return;
    if (ioctl(fd, FICLONERANGE, &r) < 0)
        perror("# FICLONERANGE");
}

static void change(int fd, int other)
{
    struct stat st;
    fstat(fd, &st);
    const uint64_t size = (uint64_t)st.st_size;
    switch (draw(12)) {
    case 0:
        if (ftruncate(fd, (off_t)(1 + draw(SIZE_MAX_BYTES))) < 0)
            perror("# ftruncate");
        break;
    case 1: /* by less than a block, there and back */
        if (ftruncate(fd, (off_t)(1 + size - (size > 700 ? draw(700) : 0))) < 0 ||
            (draw(2) && ftruncate(fd, st.st_size) < 0))
            perror("# ftruncate");
        break;
    case 2:
        allocate(fd, FALLOC_FL_PUNCH_HOLE, size);
        break;
    case 3:
        allocate(fd, 0, size);
        break;
    case 4:
        allocate(fd, FALLOC_FL_ZERO_RANGE, size);
        break;
    case 5:
        clone_some(fd, other, size);
        break;
    case 6:
        fsync(fd);
        break;
    default:
        write_some(fd, size);
    }
}

static int take(const struct driver_class *c, const char *path, uint64_t seq, struct native *ret)
{
    const struct driver *d = driver_by_name(c->driver);
    struct volume v;
    struct native_tag t = {.created_ns = 1700000000000000000 + (int64_t)seq, .seq = seq};
    int rc = d->resolve(c, path, &v, &e);
    if (rc < 0)
        return rc;
    alias_new(t.alias);
    snprintf(t.volume_id, sizeof t.volume_id, "%s", v.id);
    snprintf(t.volume_name, sizeof t.volume_name, "%s", v.name);
    return d->snapshot(c, &v, &t, ret, &e);
}

static uint8_t *contents(const struct native *n)
{
    uint8_t *p = malloc(n->size + 1);
    CLEANUP_CLOSE int fd = open(n->handle, O_RDONLY | O_CLOEXEC);
    uint64_t at = 0;
    for (ssize_t got; p && fd >= 0 && at < n->size && (got = pread(fd, p + at, n->size - at, (off_t)at)) > 0;)
        at += (uint64_t)got;
    return p && at == n->size ? p : NULL;
}

/* The first byte that differs and is not in the list; UINT64_MAX: none. */
static uint64_t omitted(const struct native *a, const struct native *b, const struct changes *list)
{
    CLEANUP_FREE uint8_t *p = contents(a), *q = contents(b);
    const uint64_t common = a->size < b->size ? a->size : b->size;
    struct change x;
    size_t cursor = 0;
    if (!p || !q)
        return 0;
    for (uint64_t at = 0; at < b->size; at++) {
        if (at < common && p[at] == q[at])
            continue;
        if (!changes_after(list, &cursor, at, &x) || x.start > at)
            return at;
        at = x.start + x.len - 1;
    }
    return UINT64_MAX;
}

static struct changed_answer ask(const struct driver_class *c, const struct native *a, const struct native *b,
                                 struct changes **list)
{
    struct changed_answer answer = {.state = CHANGED_FAILED};
    changes_free(*list);
    *list = NULL;
    if (changes_new(list, &e) == 0 && driver_changed(c, a, b, *list, &answer, &e) < 0)
        answer.state = CHANGED_FAILED;
    return answer;
}

static void refused(const struct driver_class *c, const struct native *a, const struct native *b,
                    enum changed_state want, const char *what)
{
    struct changes *list CLEANUP(changes_freep) = NULL;
    const struct changed_answer answer = ask(c, a, b, &list);
    ok(answer.state == want && strlen(answer.why) > 10, "%s: %s", what, changed_state_name(answer.state));
    printf("# %s\n", answer.why);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 99;
    const char *path = argv[1];
    const char *const match[] = {path, NULL};
    const struct driver_class c = {.name = "gold", .driver = "reflink", .match = match, .node = "n1", .target = ""};
    const struct driver *d = driver_by_name(c.driver);
    struct changes *list CLEANUP(changes_freep) = NULL;
    struct native last, n, first;
    char other_path[4200], command[9000] = "";
    uint64_t listed = 0, all = 0;
    bool gone;
    state = strtoull(argv[2], NULL, 10);
    const unsigned rounds = (unsigned)strtoul(argv[3], NULL, 10);
    snprintf(other_path, sizeof other_path, "%s.other", path);
    for (int i = 4; i < argc; i++)
        snprintf(command + strlen(command), sizeof command - strlen(command), "%s ", argv[i]);
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CLEANUP_CLOSE int other = open(other_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || other < 0 || ftruncate(fd, SIZE_MAX_BYTES / 2) < 0 || ftruncate(other, SIZE_MAX_BYTES) < 0)
        return 98;
    for (int i = 0; i < 60; i++) {
        write_some(fd, SIZE_MAX_BYTES / 2);
        write_some(other, SIZE_MAX_BYTES);
    }
    if (take(&c, path, 1, &last) < 0) {
        ok(false, "a native snapshot");
        return 1;
    }
    ok(last.change_id[0] != 0, "it has a change id");
    first = last;
    bool right = true;
    for (unsigned r = 0; r < rounds && right; r++) {
        for (uint64_t k = draw(9); k > 0; k--)
            change(fd, other);
        if (r % 5 == 3 && command[0] && system(command) != 0)
            printf("# %s has failed\n", command);
        if (take(&c, path, r + 2, &n) < 0) {
            ok(false, "native snapshot %u", r + 2);
            return 1;
        }
        const struct changed_answer answer = ask(&c, &last, &n, &list);
        if (answer.state == CHANGED_LISTED) {
            const uint64_t at = omitted(&last, &n, list);
            if (!(right = at == UINT64_MAX))
                printf("# seed %s, round %u: the byte at %" PRIu64 " differs and is not in the list\n", argv[2], r, at);
            listed += changes_bytes(list);
        } else {
            printf("# %s: %s\n", changed_state_name(answer.state), answer.why);
            right = answer.state == CHANGED_UNCERTAIN;
            listed += n.size;
        }
        all += n.size;
        if (memcmp(&first, &last, sizeof last) != 0)
            d->remove(&c, &last, &gone, &e);
        last = n;
    }
    ok(right, "no change is omitted in %u rounds", rounds);
    printf("# listed: %" PRIu64 " of %" PRIu64 " MiB\n", listed >> 20, all >> 20);
    if (getenv("EXPECT_SMALL"))
        ok(listed < all / 2, "less than half is listed");

    struct native bad = first;
    snprintf(bad.change_id, sizeof bad.change_id, "reflink.other.1.2");
    refused(&c, &bad, &last, CHANGED_BASE_OTHER, "another file of the parent's name");
    bad = first;
    bad.change_id[0] = '\0';
    refused(&c, &bad, &last, CHANGED_UNSUPPORTED, "a parent without a change id");
    bad = first;
    snprintf(bad.tag.volume_id, sizeof bad.tag.volume_id, "reflink.x.1.2");
    refused(&c, &bad, &last, CHANGED_BASE_OTHER, "a parent of another volume");
    d->remove(&c, &first, &gone, &e);
    refused(&c, &first, &last, CHANGED_BASE_LOST, "a parent that was removed");
    d->remove(&c, &last, &gone, &e);
    printf("1..%d\n", number);
    return failures ? 1 : 0;
}
