/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * make_contents - fills a repository with real packs and indexes of many tiny contents, for measurements of maintenance
 *
 *   make_contents REPO PASSWORD-FILE CONTENTS BYTES SNAPSHOTS UNNEEDED-PERCENT
 *
 * Each snapshot is a file of CONTENTS / SNAPSHOTS parts of BYTES (8 to 65536), every one a content of its own. The last
 * UNNEEDED-PERCENT of the snapshots get no manifest: nothing needs their contents. Every client can read the rest. A
 * pack has 16,384 contents at most: below 800 bytes each, packs are so short that maintenance stores their contents
 * again.
 */
#include "base/bytes.h"
#include "base/cleanup.h"
#include "repo/expire.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_MAX 65536
#define FLUSH 500000 /* contents: a session holds what it has not flushed in memory */
#define COMPRESSION 0x1101
#define SCRATCH ((size_t)4 << 20)

struct maker {
    struct repo *r;
    struct session *s;
    struct put_scratch *p;
    uint64_t made, flushed;
    size_t len; /* of a content */
    uint8_t data[PART_MAX];
};

static int put_file(struct maker *m, uint64_t parts, struct object_id *ret, struct err *e)
{
    CLEANUP(object_table_freep) struct object_table *t = NULL;
    int rc = object_table_new(&t, m->s, '\0', e);
    for (uint64_t i = 0; rc >= 0 && i < parts; i++) {
        struct object_id id = {0};
        put_le64(m->data, ++m->made);
        rc = session_put_bytes(m->s, m->p, '\0', m->data, m->len, 0, &id.content, e);
        if (rc >= 0)
            rc = object_table_add(t, m->len, &id, 1, e);
    }
    return rc < 0 ? rc : object_table_finish(t, ret, e);
}

static int put_manifest(struct maker *m, unsigned n, const struct object_id *file, uint64_t bytes, struct err *e)
{
    CLEANUP(manifest_batch_freep) struct manifest_batch *b = NULL;
    char id[33], path[32], object[OBJECT_ID_TEXT];
    object_id_text(file, object);
    snprintf(path, sizeof path, "/made/%u", n);
    int rc = manifest_batch_new(&b, e);
    if (rc >= 0)
        rc = manifest_batch_add(
            b, json_pack("{s:s,s:s,s:s,s:s}", "type", "snapshot", "hostname", "h", "username", "u", "path", path),
            json_pack("{s:s,s:{s:s,s:s,s:s},s:s,s:s,s:s,s:{s:s,s:s,s:s,s:I,s:s,s:s}}", "id", "", "source", "host", "h",
                      "userName", "u", "path", path, "description", "", "startTime", "2026-01-01T00:00:00Z", "endTime",
                      "2026-01-01T00:00:01Z", "rootEntry", "name", "made", "type", "f", "mode", "0644", "size",
                      (json_int_t)bytes, "mtime", "2026-01-01T00:00:00Z", "obj", object),
            id, e);
    return rc < 0 ? rc : manifest_batch_put(b, m->s, m->p, e);
}

static int make(struct maker *m, uint64_t contents, unsigned snapshots, unsigned unneeded, struct err *e)
{
    const unsigned needed = snapshots - (unsigned)((uint64_t)snapshots * unneeded / 100);
    const uint64_t parts = contents / snapshots;
    int rc = 0;
    for (unsigned i = 0; rc >= 0 && i < snapshots; i++) {
        struct object_id file;
        rc = put_file(m, parts, &file, e);
        if (rc >= 0 && i < needed)
            rc = put_manifest(m, i, &file, parts * m->len, e);
        if (rc >= 0 && (m->made - m->flushed >= FLUSH || i + 1 == snapshots)) {
            rc = session_flush(m->s, e);
            m->flushed = m->made;
        }
    }
    return rc;
}

static int run(char **argv, struct err *e)
{
    struct blobs *b = NULL;
    static struct maker m;
    m.len = (size_t)atoi(argv[4]);
    char *password = NULL;
    int rc = password_read(&password, argv[2], false, e);
    rc = rc < 0 ? rc : blobs_open_dir(&b, argv[1], BLOBS_OPEN, NULL, 0, e);
    rc = rc < 0 ? rc : repo_open(&m.r, b, password, &(struct repo_opts){0}, e);
    password_free(password);
    rc = rc < 0 ? rc : session_new(&m.s, m.r, NULL, e);
    rc = rc < 0 ? rc : put_scratch_new(&m.p, m.r, COMPRESSION, SCRATCH, e);
    rc = rc < 0 ? rc : make(&m, strtoull(argv[3], NULL, 10), (unsigned)atoi(argv[5]), (unsigned)atoi(argv[6]), e);
    put_scratch_free(m.p);
    session_free(m.s);
    repo_free(m.r);
    return rc;
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    if (argc != 7 || atoi(argv[4]) < 8 || atoi(argv[4]) > PART_MAX || atoi(argv[5]) < 1 ||
        strtoull(argv[3], NULL, 10) < (uint64_t)atoi(argv[5]))
        return 2;
    if (run(argv, &e) < 0) {
        fprintf(stderr, "make_contents: %s\n", e.msg);
        return 1;
    }
    return 0;
}
