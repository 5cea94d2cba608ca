/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/refs.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD 34 /* prefix, length, hash */
#define BUFFERED 512

struct refs {
    int fd;
    char dir[4096];
    uint64_t written, buffered; /* records */
    uint8_t buf[BUFFERED * RECORD];
};

int refs_new(struct refs **ret, const char *dir, struct err *e)
{
    struct refs *x = calloc(1, sizeof *x);
    if (!x)
        return err_nomem(e);
    snprintf(x->dir, sizeof x->dir, "%s", dir);
    x->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (x->fd < 0) {
        /* Not every file system has O_TMPFILE. */
        char name[sizeof x->dir + 16];
        snprintf(name, sizeof name, "%s/refs-XXXXXX", dir);
        x->fd = mkostemp(name, O_CLOEXEC);
        if (x->fd < 0) {
            int rc = err_set(e, ERR_GENERIC, errno, "cannot create a temporary file in %s", dir);
            free(x);
            return rc;
        }
        unlink(name);
    }
    *ret = x;
    return 0;
}

void refs_free(struct refs *x)
{
    if (!x)
        return;
    close(x->fd);
    free(x);
}

static int buffer_write(struct refs *x, struct err *e)
{
    size_t len = x->buffered * RECORD, done = 0;
    while (done < len) {
        ssize_t n = pwrite(x->fd, x->buf + done, len - done, (off_t)(x->written * RECORD + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(e, ERR_GENERIC, n < 0 ? errno : ENOSPC, "cannot write a temporary file in %s", x->dir);
        done += (size_t)n;
    }
    x->written += x->buffered;
    x->buffered = 0;
    return 0;
}

int refs_add(struct refs *x, const struct content_id *id, struct err *e)
{
    if (x->buffered == BUFFERED) {
        int rc = buffer_write(x, e);
        if (rc < 0)
            return rc;
    }
    uint8_t *p = x->buf + x->buffered++ * RECORD;
    p[0] = (uint8_t)id->prefix;
    p[1] = id->len;
    memcpy(p + 2, id->hash, 32);
    return 0;
}

static int batch_look_up(struct session *s, const struct content_id *id, struct err *e)
{
    int rc = session_has(s, id, e);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    char text[CONTENT_ID_TEXT];
    err_set(e, ERR_GENERIC, ESTALE,
            "content %s was deleted by repository maintenance while this backup was suspended for over 45 minutes",
            content_id_text(id, text));
    return err_hint(e, "run the backup again: data stored so far is reused");
}

/* The contents of an object's index documents: those of each level are the parts of the object that the level is. */
static int check_documents(struct session *s, const struct object_id *image, struct err *e)
{
    for (unsigned level = 0; level < image->indirection; level++) {
        struct object_id doc = *image;
        doc.indirection = (uint8_t)level;
        struct object_parts *parts CLEANUP(object_parts_freep) = NULL;
        int rc = object_parts_open(&parts, session_repo(s), &doc, e);
        if (rc < 0)
            return rc;
        struct object_part part;
        while ((rc = object_parts_next(parts, &part, e)) > 0) {
            rc = batch_look_up(s, &part.id.content, e);
            if (rc < 0)
                return rc;
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

int refs_check(struct refs *x, struct session *s, const struct object_id *image, struct err *e)
{
    int rc = buffer_write(x, e);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i < x->written; i += BUFFERED) {
        size_t n = x->written - i < BUFFERED ? (size_t)(x->written - i) : BUFFERED;
        size_t done = 0;
        while (done < n * RECORD) {
            ssize_t got = pread(x->fd, x->buf + done, n * RECORD - done, (off_t)(i * RECORD + done));
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                return err_set(e, ERR_GENERIC, got < 0 ? errno : EIO, "cannot read a temporary file in %s", x->dir);
            done += (size_t)got;
        }
        for (size_t k = 0; k < n; k++) {
            const uint8_t *p = x->buf + k * RECORD;
            struct content_id id = {.prefix = (char)p[0], .len = p[1]};
            memcpy(id.hash, p + 2, 32);
            rc = batch_look_up(s, &id, e);
            if (rc < 0)
                return rc;
        }
    }
    return check_documents(s, image, e);
}

int refs_clear(struct refs *x, struct err *e)
{
    x->written = x->buffered = 0;
    if (ftruncate(x->fd, 0) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot truncate a temporary file in %s", x->dir);
    return 0;
}
