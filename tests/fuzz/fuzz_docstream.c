/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fuzz_docstream.c - documents pulled in pieces. Byte 0: low 2 bits: 0 index document, 1 directory, 2 manifest
 * collection, 3 one object in memory; the rest: how many bytes come at a time (0: all). What is found must not depend
 * on the pieces.
 */
#include "tests/fuzz/fuzz.h"

#include "repo/docstream.h"
#include "repo/gojson.h"
#include "repo/snapshot.h"

#include <errno.h>
#include <string.h>

#define MAX_ELEM 5000

struct mem {
    const uint8_t *p;
    size_t n, step;
};

static int64_t mem_read(void *arg, void *buf, size_t len, struct err *e)
{
    (void)e;
    struct mem *m = arg;
    size_t n = m->n < len ? m->n : len;
    if (m->step && n > m->step)
        n = m->step;
    memcpy(buf, m->p, n);
    m->p += n;
    m->n -= n;
    return (int64_t)n;
}

static uint64_t mix(uint64_t h, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)p[i]) * 0x100000001b3u;
    return h ^ n;
}

static void parse_entry(const char *p, size_t n)
{
    json_t *v = go_parse(p, n);
    struct dir_entry d;
    if (dir_entry_parse(&d, v) == 0) {
        /* What we print parses to what we printed. */
        json_t *again = dir_entry_to_json(&d);
        struct dir_entry d2;
        MUST(again);
        MUST(dir_entry_parse(&d2, again) == 0);
        MUST(d2.mode == d.mode && d2.mtime_ns == d.mtime_ns && d2.uid == d.uid && d2.gid == d.gid);
        MUST(object_id_equal(&d.obj, &d2.obj) && !strcmp(d.name, d2.name));
        json_decref(again);
        dir_entry_clear(&d2);
        dir_entry_clear(&d);
    }
    json_decref(v);
}

/* A digest of everything that a scan yields. */
static uint64_t scan(const uint8_t *data, size_t len, const char *stream, size_t step)
{
    struct mem m = {data, len, step};
    struct docstream *d = NULL;
    struct err e = ERR_INIT;
    const char *p;
    size_t n;
    uint64_t h = 0;
    int rc;
    MUST(docstream_new(&d, stream, MAX_ELEM, mem_read, &m, &e) == 0);
    while ((rc = docstream_next(d, &p, &n, &e)) == 1) {
        MUST(n > 0 && n <= MAX_ELEM);
        h = mix(h, p, n);
        if (stream)
            parse_entry(p, n);
    }
    MUST(rc == 0 || (rc == -EBADMSG && e.cls == ERR_DAMAGE));
    if (rc == 0 && (p = docstream_summary(d, &n)) != NULL)
        h = mix(h, p, n);
    docstream_free(d);
    return mix(h, "", (size_t)(rc != 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char *const streams[] = {"kopia:indirect", "kopia:directory", NULL};
    if (!len)
        return 0;
    unsigned kind = data[0] & 3, step = data[0] >> 2;
    data++;
    len--;
    if (kind < 3) {
        MUST(scan(data, len, streams[kind], step) == scan(data, len, streams[kind], 0));
        return 0;
    }
    struct json_cursor c = {(const char *)data, (const char *)data + len, 0};
    char key[JSON_KEY_MAX];
    const char *p;
    size_t n;
    int rc;
    while ((rc = json_cursor_next(&c, key, &p, &n)) == 1) {
        MUST(strlen(key) < JSON_KEY_MAX && n > 0);
        MUST(p >= (const char *)data && p + n <= (const char *)data + len);
    }
    MUST(rc == 0 || rc == -EINVAL);
    return 0;
}
