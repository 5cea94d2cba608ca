/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/tail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_AT_ONCE (256u << 10)
#define BEHIND_MAX (8u << 20)
#define LINE_MAX_BYTES (64u << 10)
#define GIVE_BACK (1u << 20)

struct tail {
    int fd;
    off_t at, freed;
    size_t len;
    bool lost; /* the beginning was given back by an earlier reader: skip to the next line */
    char line[LINE_MAX_BYTES];
};

int tail_open(struct tail **ret, const char *path, struct err *e)
{
    struct tail *t = calloc(1, sizeof *t);
    if (!t)
        return err_nomem(e);
    t->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (t->fd < 0) {
        int sys = errno;
        free(t);
        return err_set(e, ERR_GENERIC, sys, "cannot read %s", path);
    }
    off_t data = lseek(t->fd, 0, SEEK_DATA);
    if (data > 0) {
        t->at = t->freed = data;
        t->lost = true;
    }
    *ret = t;
    return 0;
}

void tail_free(struct tail *t)
{
    if (!t)
        return;
    close(t->fd);
    free(t);
}

static int hand_on(struct tail *t, const char *text, size_t n, tail_fn *fn, void *arg)
{
    for (const char *end = text + n; text < end;) {
        const char *nl = memchr(text, '\n', (size_t)(end - text));
        size_t part = (size_t)((nl ? nl : end) - text);
        if (t->len + part > sizeof t->line)
            return -EFBIG;
        memcpy(t->line + t->len, text, part);
        t->len += part;
        text += part;
        if (!nl)
            break;
        text++;
        if (t->len && !t->lost)
            fn(t->line, t->len, arg);
        t->len = 0;
        t->lost = false;
    }
    return 0;
}

int tail_read(struct tail *t, bool last, tail_fn *fn, void *arg)
{
    struct stat st;
    char buf[16384];
    ssize_t n = 0;
    if (fstat(t->fd, &st) < 0)
        return -errno;
    if (st.st_size - t->at > (off_t)BEHIND_MAX)
        return -EFBIG;
    for (size_t done = 0; done < READ_AT_ONCE; done += (size_t)n) {
        n = pread(t->fd, buf, sizeof buf, t->at);
        if (n <= 0)
            break;
        t->at += n;
        int rc = hand_on(t, buf, (size_t)n, fn, arg);
        if (rc < 0)
            return rc;
    }
    off_t whole = t->at - (off_t)t->len - GIVE_BACK;
    whole -= whole % 4096;
    if (whole > t->freed && fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, whole) == 0)
        t->freed = whole;
    if (n > 0)
        return 1;
    if (last && t->len && !t->lost) {
        fn(t->line, t->len, arg);
        t->len = 0;
    }
    return n < 0 ? -errno : 0;
}
