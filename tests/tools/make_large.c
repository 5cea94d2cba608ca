/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * make_large.c - a snapshot of contents that no splitter makes, as somebody who has the password can write them
 *
 *   make_large REPO PASSWORD-FILE random|zeros|directory|nested MIB
 *
 * random, zeros: a file of one content (zeros: compressed). directory: one whose document is a single content. nested:
 * 24 directories in each other, each a content of its own.
 */
#include "base/cleanup.h"
#include "repo/expire.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NESTED 24

static struct session *session;
static struct put_scratch *scratch;

static int put(char prefix, const void *data, size_t len, uint32_t compression, char id[OBJECT_ID_TEXT], struct err *e)
{
    struct object_id o = {0};
    int rc = session_put_bytes(session, scratch, prefix, data, len, compression, &o.content, e);
    if (rc >= 0)
        object_id_text(&o, id);
    return rc;
}

/* A directory of `len` bytes of JSON: blanks behind its one entry. */
static int put_directory(size_t len, char type, const char *child, char id[OBJECT_ID_TEXT], struct err *e)
{
    CLEANUP_FREE char *text = malloc(len + 256);
    if (!text)
        return err_nomem(e);
    const int n =
        sprintf(text,
                "{\"stream\":\"kopia:directory\",\"entries\":[{\"name\":\"x\",\"type\":\"%c\",\"mode\":\"0755\","
                "\"mtime\":\"2026-01-01T00:00:00Z\",\"obj\":\"%s\"}",
                type, child);
    memset(text + n, ' ', len);
    memcpy(text + len, "]}\n", 3);
    return put('k', text, len + 3, 0, id, e);
}

static int make(const char *what, size_t len, char *type, char id[OBJECT_ID_TEXT], struct err *e)
{
    CLEANUP_FREE uint8_t *data = calloc(1, len + 1);
    char file[OBJECT_ID_TEXT];
    if (!data)
        return err_nomem(e);
    for (size_t at = 0; !strcmp(what, "random") && at < len; at += 1 << 20)
        if (getrandom(data + at, len - at < 1 << 20 ? len - at : 1 << 20, 0) < 0)
            return -1;
    *type = 'f';
    if (!strcmp(what, "random") || !strcmp(what, "zeros"))
        return put('\0', data, len, *what == 'z' ? 0x1101 : 0, id, e);
    int rc = put('\0', "x", 1, 0, file, e);
    *type = 'd';
    if (rc >= 0)
        rc = put_directory(len, 'f', file, id, e);
    for (unsigned i = 1; !strcmp(what, "nested") && i < NESTED && rc >= 0; i++) {
        char below[OBJECT_ID_TEXT];
        memcpy(below, id, sizeof below);
        rc = put_directory(len, 'd', below, id, e);
    }
    return rc;
}

static int save(const char *what, char type, const char *id, struct err *e)
{
    CLEANUP(manifest_batch_freep) struct manifest_batch *batch = NULL;
    char made[33], path[64], entry_type[2] = {type, '\0'};
    snprintf(path, sizeof path, "/%s", what);
    int rc = manifest_batch_new(&batch, e);
    if (rc >= 0)
        rc = manifest_batch_add(
            batch, json_pack("{s:s,s:s,s:s,s:s}", "type", "snapshot", "hostname", "h", "username", "u", "path", path),
            json_pack("{s:s,s:{s:s,s:s,s:s},s:s,s:s,s:s,s:{s:s,s:s,s:s,s:s,s:s}}", "id", "", "source", "host", "h",
                      "userName", "u", "path", path, "description", "", "startTime", "2026-01-01T00:00:00Z", "endTime",
                      "2026-01-01T00:00:01Z", "rootEntry", "name", what, "type", entry_type, "mode", "0755", "mtime",
                      "2026-01-01T00:00:00Z", "obj", id),
            made, e);
    if (rc >= 0)
        rc = manifest_batch_put(batch, session, scratch, e);
    return rc < 0 ? rc : session_flush(session, e);
}

static int run(char **argv, struct err *e)
{
    struct blobs *b = NULL;
    CLEANUP(repo_freep) struct repo *r = NULL;
    char *password = NULL, id[OBJECT_ID_TEXT], type = 'f';
    const size_t len = (size_t)atoi(argv[4]) << 20;
    int rc = password_read(&password, argv[2], false, e);
    rc = rc < 0 ? rc : blobs_open_dir(&b, argv[1], BLOBS_OPEN, NULL, 0, e);
    rc = rc < 0 ? rc : repo_open(&r, b, password, &(struct repo_opts){0}, e);
    password_free(password);
    rc = rc < 0 ? rc : session_new(&session, r, NULL, e);
    rc = rc < 0 ? rc : put_scratch_new(&scratch, r, 0x1101, len + (1 << 20), e);
    rc = rc < 0 ? rc : make(argv[3], len, &type, id, e);
    rc = rc < 0 ? rc : save(argv[3], type, id, e);
    put_scratch_free(scratch);
    session_free(session);
    return rc;
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    if (argc != 5)
        return 2;
    if (run(argv, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    return 0;
}
