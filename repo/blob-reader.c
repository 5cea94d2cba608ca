/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/blob-reader.h"

#include "base/time.h"

#include "repo/blob-ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void blob_reader_init(struct blob_reader *r, struct blobs *b)
{
    *r = (struct blob_reader){.b = b, .file = {{.fd = -1}, {.fd = -1}}};
}

static void file_close(struct blob_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    *f = (struct blob_file){.fd = -1};
}

void blob_reader_clear(struct blob_reader *r)
{
    file_close(&r->file[0]);
    file_close(&r->file[1]);
}

/* NULL: the blob has no file, or it cannot be opened; blobs_read() reports why. */
static struct blob_file *file_of(struct blob_reader *r, const char *name)
{
    for (unsigned i = 0; i < 2; i++)
        if (r->file[i].fd >= 0 && !strcmp(r->file[i].name, name)) {
            r->last = i;
            return &r->file[i];
        }
    struct err ignored = ERR_INIT;
    int fd = blobs_open_file(r->b, name, &ignored);
    if (fd < 0)
        return NULL;
    r->last ^= 1;
    struct blob_file *f = &r->file[r->last];
    file_close(f);
    f->fd = fd;
    snprintf(f->name, sizeof f->name, "%s", name);
    return f;
}

static bool read_file(const struct blob_file *f, uint64_t offset, uint8_t *dst, size_t len)
{
    if (offset > INT64_MAX || len > INT64_MAX - offset)
        return false;
    while (len > 0) {
        ssize_t n = pread(f->fd, dst, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        dst += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return true;
}

int blob_reader_read(struct blob_reader *r, const char *name, uint64_t offset, void *dst, size_t len, struct err *e)
{
    const uint64_t since = mono_ns();
    struct blob_file *f = file_of(r, name);
    if (!f || !read_file(f, offset, dst, len)) {
        /* Read again by name: if that fails too, the store reports the error. */
        if (f)
            file_close(f);
        return blobs_read(r->b, name, offset, dst, len, e);
    }
    throttle_wait(r->b->reads, len);
    if (f->next != offset) {
        __atomic_fetch_add(&r->b->stats.gets, 1, __ATOMIC_RELAXED);
        blob_count(r->b, BLOB_REQUEST_GET, since, 0);
    } else {
        blob_activity(r->b);
    }
    __atomic_fetch_add(&r->b->stats.get_bytes, len, __ATOMIC_RELAXED);
    f->next = offset + len;
    return 0;
}

void blob_reader_ahead(struct blob_reader *r, const char *name, uint64_t offset, uint64_t len)
{
    struct blob_file *f = file_of(r, name);
    if (f && offset <= INT64_MAX && len <= INT64_MAX - offset)
        posix_fadvise(f->fd, (off_t)offset, (off_t)len, POSIX_FADV_WILLNEED);
}
