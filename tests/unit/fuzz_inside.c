/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fuzz_inside.c - mutations inside the encryption: what somebody who knows the password can write
 *
 *   fuzz_inside SECONDS [SEED]
 *
 * Not one of the unit tests (make fuzz-inside, with sanitizers). Each round takes a small repository, changes something
 * in it and seals it again (a manifest, directory, indirect object or data as plain text or in its compressed form, of
 * every compressor; the entry of a content; a table of the index; the local index of a pack; a session; an epoch
 * marker; the schedule of maintenance), and a child uses all of it: lists, walks, verify, restore, expiry, records of
 * backups, a backup with the boundaries of its parent, one from a list of changes, a new session, maintenance, a
 * repair. The child may refuse whatever it likes; it must neither end by a signal or a sanitizer nor take longer than a
 * minute of CPU time; and a repository without damage must have none after its backups, none after maintenance, and
 * none after a repair. A round depends on its seed alone.
 */
#include "tests/unit/testrepo.h"

#include "base/bytes.h"
#include "daemon/mover/backup-records.h"
#include "daemon/mover/history.h"
#include "daemon/mover/maintain.h"
#include "daemon/mover/repair.h"
#include "repo/epoch.h"
#include "repo/expire.h"
#include "repo/item.h"
#include "repo/maintenance.h"
#include "repo/marker.h"
#include "repo/object.h"
#include "repo/pack.h"

#include <dirent.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#define PAYLOAD_MAX ((size_t)4 << 20)
#define TARGETS 400
#define ROUND_S 60        /* of CPU time, which a loaded machine does not shorten */
#define ROUND_WALL_S 1800 /* and by the clock: something waits for ever */
#define NOTICED 77        /* exit code of a child that found something to be wrong */
#define BROKEN 78         /* what was good is damaged after it was used */
#define MEMORY ((uint64_t)96 << 20)
#define IMAGE_BYTES ((size_t)1500000)

static uint64_t rng;
static uint64_t next(void)
{
    uint64_t z = rng += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static size_t below(size_t n)
{
    return n ? (size_t)(next() % n) : 0;
}

/* All header ids, also of compressors that are only read, and one that there is not. */
static const uint32_t compressors[] = {0,      0x1000, 0x1001, 0x1002, 0x1100, 0x1101, 0x1102, 0x1103, 0x1200, 0x1201,
                                       0x1202, 0x1203, 0x1300, 0x1301, 0x1302, 0x1400, 0x1500, 0x1501, 0x1502, 0x1777};
#define N_COMPRESSORS (sizeof compressors / sizeof *compressors)

/* ---- the repository ---- */

static const struct volume {
    const char *path, *splitter;
} volumes[] = {{"/fixed", "FIXED-128K"}, {"/dynamic", "DYNAMIC-128K-BUZHASH"}};
#define N_VOLUMES (sizeof volumes / sizeof *volumes)

/* Text, zeros, noise. */
static void image_make(const char *path)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (size_t at = 0; at < IMAGE_BYTES; at += 8) {
        uint64_t x = at / 400000 % 3 == 0 ? at / 50 : at / 400000 % 3 == 1 ? 0 : next();
        assert_int_equal(fwrite(&x, 8, 1, f), 1);
    }
    assert_int_equal(fclose(f), 0);
}

/* Random places of it. `c`: gets them; NULL: none. */
static void image_change(const char *path, struct changes *c)
{
    struct err e = ERR_INIT;
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    for (size_t n = below(4); n > 0; n--) {
        const size_t at = below(IMAGE_BYTES), len = 1 + below(5000);
        fseek(f, (long)at, SEEK_SET);
        for (size_t i = 0; i < len; i++)
            fputc((int)below(256), f);
        if (c)
            assert_ok(changes_add(c, at, len, &e), &e);
    }
    fclose(f);
}

static int image_backup(struct repo *r, const char *path, const struct volume *v,
                        const struct backup_incremental *incremental, struct err *e)
{
    struct source *CLEANUP(source_freep) src = NULL;
    struct backup_result res = {0};
    struct backup_opts o = {.limits = {.memory = MEMORY, .workers = 1},
                            .splitter = v->splitter,
                            .as = {.user = "snapferry", .host = "node"},
                            .compression = 0x1101,
                            .incremental = incremental};
    snprintf(o.as.path, sizeof o.as.path, "%s", v->path);
    int rc = source_open(&src, path, e);
    if (rc == 0)
        rc = backup_run(r, src, &o, &res, e);
    backup_result_clear(&res);
    return rc;
}

/* With lists of chunks, parents, a record of a backup, an owner of maintenance and its schedule. */
static void base_backups(struct testrepo *t)
{
    struct err e = ERR_INIT;
    char path[64];
    snprintf(path, sizeof path, "%s/image", t->dir);
    rng = 4711;
    image_make(path);
    for (size_t i = 0; i < 2 * N_VOLUMES; i++) {
        assert_ok(image_backup(t->r, path, &volumes[i % N_VOLUMES], NULL, &e), &e);
        image_change(path, NULL);
    }
    json_t *records = json_pack("[{s:{s:s,s:s,s:s,s:s,s:s,s:s},s:{s:i,s:[]}}]", "labels", "type", "snapferry-backup",
                                "backup", "b", "node", "node", "machine", "0123456789abcdef0123456789abcdef", "part",
                                "0", "state", "final", "data", "version", 1, "volumes");
    assert_null(backup_record_malformed(json_object_get(json_array_get(records, 0), "labels"),
                                        json_object_get(json_array_get(records, 0), "data")));
    assert_ok(backup_records_write(t->r, records, &e), &e);
    json_decref(records);
    struct maintenance_schedule s;
    assert_ok(maintenance_load(t->r, &s, &e), &e);
    assert_ok(maintenance_note(&s, MAINT_SNAPSHOT_GC, now_ns() - NS_PER_S, now_ns(), NULL, &e), &e);
    assert_ok(maintenance_store(t->r, &s, &e), &e);
    maintenance_clear(&s);
}

static void base_make(struct testrepo *t)
{
    struct err e = ERR_INIT;
    static const uint32_t writable[] = {0,      0x1000, 0x1001, 0x1100, 0x1101, 0x1102,
                                        0x1300, 0x1301, 0x1500, 0x1501, 0x1502};
    char *text = malloc(400000), *p = text;
    for (unsigned i = 0; p < text + 399000; i++)
        p += sprintf(p, "line %u of a file that compresses, %x\n", i, i * 2654435761u);
    testrepo_new(t, "FIXED-128K", NULL);
    assert_ok(manifests_initialise(t->r, "snapferry@node", "", &e), &e);
    for (size_t i = 0; i < sizeof writable / sizeof *writable; i++) {
        CLEANUP(put_scratch_freep) struct put_scratch *s = NULL;
        CLEANUP(manifest_batch_freep) struct manifest_batch *b = NULL;
        json_t *doc = json_pack("{s:s,s:[i,i]}", "version", "1", "badRanges", 1, 2);
        struct volume_snapshot v = {.source = {.user = "snapferry", .host = "node"},
                                    .start_ns = (int64_t)(i + 1) * 1000000000000,
                                    .end_ns = (int64_t)(i + 1) * 1000000000000 + 5,
                                    .size = (uint64_t)(p - text),
                                    .volume_json = doc,
                                    .tags = json_pack("{s:s,s:s}", "backup", "b", "operation", "o")};
        char id[33];
        snprintf(v.source.path, sizeof v.source.path, "/volume-%zu", i % 3);
        snprintf(text, 12, "variant %02zu", i);
        text[10] = ' ';
        assert_ok(put_scratch_new(&s, t->r, writable[i], (size_t)4 << 20, &e), &e);
        assert_ok(object_put(t->s, s, 0, text, (size_t)(p - text), writable[i], &v.image, &e), &e);
        assert_ok(manifest_batch_new(&b, &e), &e);
        assert_ok(volume_snapshot_write(t->s, t->p, &v, b, id, &e), &e);
        assert_ok(source_policy_manual(t->r, &v.source, b, &e), &e);
        assert_ok(manifest_batch_put(b, t->s, t->p, &e), &e);
        json_decref(v.tags);
        json_decref(doc);
    }
    testrepo_flush(t);
    free(text);
    base_backups(t);
}

/* ---- mutations ---- */

static void mutate(uint8_t *data, size_t *len, size_t cap)
{
    for (size_t n = 1 + below(next() & 1 ? 3 : 40); n > 0; n--) {
        size_t at = below(*len), run = 1 + below(64);
        switch (below(9)) {
        case 0:
            if (*len)
                data[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            if (*len)
                data[at] = (uint8_t)next();
            break;
        case 2:
            *len = below(*len + 1);
            break;
        case 3: /* a piece of it again */
            run = run < *len - at ? run : *len - at;
            if (*len + run <= cap) {
                memmove(data + at + run, data + at, *len - at);
                *len += run;
            }
            break;
        case 4: /* a piece less */
            run = run < *len - at ? run : *len - at;
            memmove(data + at, data + at + run, *len - at - run);
            *len -= run;
            break;
        case 5: { /* a number that matters */
            static const uint64_t numbers[] = {0,          1,          0x7f,       0xff,       0x7fff,     0xffff,
                                               0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX, 0x10000000, 0x0fffffff};
            uint8_t v[8];
            uint64_t x = numbers[below(sizeof numbers / sizeof *numbers)];
            if (next() & 1)
                put_le64(v, x);
            else
                put_be64(v, x);
            size_t bytes = (size_t)1 << below(4);
            if (at + bytes <= *len)
                memcpy(data + at, v, bytes);
            break;
        }
        case 6: { /* words of documents */
            static const char *const words[] = {"null", "-1",   "99999999999999999999", "1e400", "{}",     "[]",
                                                "\"\"", "true", "\"obj\":\"Ix",         "\"Z",   "[[[[[[", "\\u0000"};
            const char *w = words[below(sizeof words / sizeof *words)];
            if (at + strlen(w) <= *len)
                memcpy(data + at, w, strlen(w));
            break;
        }
        case 7:
            if (at + run <= *len)
                memset(data + at, (int)(next() & 1 ? 0 : 0xff), run);
            break;
        case 8: /* a digit of a document: lengths, offsets, ids */
            for (size_t i = 0; i < 2000 && at + i < *len; i++)
                if (data[at + i] >= '0' && data[at + i] <= '9') {
                    data[at + i] = (uint8_t)('0' + below(10));
                    break;
                }
            break;
        }
    }
}

struct targets {
    struct index_entry entry[TARGETS];
    size_t n;
};
static int note_target(const struct index_entry *x, void *arg)
{
    struct targets *t = arg;
    if (t->n < TARGETS)
        t->entry[t->n++] = *x;
    return 0;
}

/* A newer entry for a content. */
static void put_entry(struct repo *r, struct index_entry *x)
{
    struct err e = ERR_INIT;
    uint8_t *table = NULL;
    struct index_shard_data d = {0};
    char name[1][BLOB_NAME_MAX + 1], session[64];
    if (index_build(x, index_sort(x, 1), repo_format(r)->index_version, false, &table, &d.len, &e) < 0)
        return;
    d.data = table;
    snprintf(session, sizeof session, "s%016llx144", (unsigned long long)next());
    epoch_write_indexes(repo_blobs(r), repo_sealer(r), repo_format(r), session, &d, 1, name, &e);
    free(table);
}

/* The sealed payload of a content opened, changed, sealed again into a pack of its own. */
static void change_content(struct repo *r, const struct targets *t)
{
    struct err e = ERR_INIT;
    const struct sealer *s = repo_sealer(r);
    struct index_entry x = t->entry[below(t->n)];
    uint8_t iv[16], *stored = malloc(x.packed + 1), *plain = malloc(PAYLOAD_MAX + 64), *sealed = NULL;
    memcpy(iv, x.id.hash + x.id.len - 16, sizeof iv);
    int64_t n = blobs_read(repo_blobs(r), x.pack, x.offset, stored, x.packed, &e) < 0
                    ? -1
                    : item_open(s, iv, sizeof iv, stored, x.packed, plain, NULL, NULL, &e);
    if (n < 0)
        goto out;
    size_t len = (size_t)n;
    if (below(4) == 0) { /* by another compressor: what it reads is not what that one wrote */
        x.compression = compressors[below(N_COMPRESSORS)];
        if (len >= 4 && x.compression)
            put_be32(plain, x.compression);
    }
    const size_t head = x.compression && next() % 4 && len > 4 ? 4 : 0; /* mostly the header stays */
    size_t body = len - head;
    mutate(plain + head, &body, PAYLOAD_MAX - 4);
    len = body + head;
    if (below(6) == 0)
        x.length = (uint32_t)(next() & 1 ? next() & 0xfffffff : x.length + below(64));
    if (!x.compression && next() % 8)
        x.length = (uint32_t)len;
    sealed = malloc(item_sealed_len(s, len));
    if (item_seal(s, iv, sizeof iv, plain, len, sealed, NULL, &e) < 0)
        goto out;
    snprintf(x.pack, sizeof x.pack, "p%016llx%016llx-s0000000000000000144", (unsigned long long)next(),
             (unsigned long long)next());
    x.offset = 0;
    x.packed = (uint32_t)item_sealed_len(s, len);
    x.time += 1000;
    if (blobs_put(repo_blobs(r), x.pack, sealed, x.packed, &e) >= 0)
        put_entry(r, &x);
out:
    free(stored);
    free(plain);
    free(sealed);
}

static void change_entry(struct repo *r, const struct targets *t)
{
    struct index_entry x = t->entry[below(t->n)];
    const struct index_entry *other = &t->entry[below(t->n)];
    x.time += 1000;
    switch (below(6)) {
    case 0:
        x.offset = (uint32_t)next() & 0x3fffffff;
        break;
    case 1:
        x.packed = (uint32_t)next() & 0xfffffff;
        break;
    case 2:
        x.length = (uint32_t)next() & 0xfffffff;
        break;
    case 3:
        x.compression = compressors[below(N_COMPRESSORS)];
        break;
    case 4:
        memcpy(x.pack, other->pack, sizeof x.pack);
        x.offset = other->offset;
        x.packed = other->packed;
        break;
    case 5:
        x.deleted = true;
        break;
    }
    put_entry(r, &x);
}

struct one_blob {
    char prefix[4], name[BLOB_NAME_MAX + 1];
    size_t seen;
};
static int pick_blob(const struct blob_info *i, void *arg)
{
    struct one_blob *x = arg;
    if (below(++x->seen) == 0)
        snprintf(x->name, sizeof x->name, "%s", i->name);
    return 0;
}

/* A blob that is sealed under a name made from its bytes: an index table, a session. */
static void change_named(struct repo *r, const char *prefix)
{
    struct err e = ERR_INIT;
    struct one_blob x = {.seen = 0};
    uint8_t *stored = NULL, *plain = NULL, *sealed = NULL;
    size_t n = 0, len = 0, out = 0;
    char name[BLOB_NAME_MAX + 1];
    blobs_list(repo_blobs(r), prefix, pick_blob, &x, &e);
    if (!x.name[0] || blobs_get(repo_blobs(r), x.name, PAYLOAD_MAX, &stored, &n, &e) < 0 ||
        named_open(repo_sealer(r), x.name, stored, n, &plain, &len, &e) < 0) {
        len = below(300); /* none: one is made of noise */
        plain = malloc(len + 1);
        for (size_t i = 0; i < len; i++)
            plain[i] = (uint8_t)next();
    }
    uint8_t *room = malloc(len + 65536);
    memcpy(room, plain, len);
    const size_t cap = len + 65536;
    mutate(room, &len, cap);
    char as[8];
    snprintf(as, sizeof as, "%.*s", (int)(x.name[0] == 'x' ? 4 : 1), x.name[0] ? x.name : prefix);
    if (named_seal(repo_sealer(r), as, next() & 1 ? "s0123456789abcdef144" : "", room, len, name, &sealed, &out, &e) >=
        0)
        blobs_put(repo_blobs(r), name, sealed, out, &e);
    if (x.name[0] && next() & 1)
        blobs_delete(repo_blobs(r), x.name, &e);
    free(stored);
    free(plain);
    free(sealed);
    free(room);
}

/* What a pack says of itself; no client but a repair reads it while the index is whole. */
static void change_local(struct repo *r)
{
    struct err e = ERR_INIT;
    const struct sealer *s = repo_sealer(r);
    struct one_blob x = {.seen = 0};
    struct postamble p = {.length = 0};
    uint8_t *pack = NULL, *index = NULL, *room = NULL;
    size_t n = 0, len = 0;
    blobs_list(repo_blobs(r), below(4) ? "p" : "q", pick_blob, &x, &e);
    if (x.name[0] && blobs_get(repo_blobs(r), x.name, PAYLOAD_MAX, &pack, &n, &e) >= 0 &&
        pack_fetch_local_index(repo_blobs(r), s, x.name, n, PAYLOAD_MAX, &index, &len, &p.offset, &e) >= 0) {
        const size_t cap = len + 4096;
        uint8_t tail[128];
        room = malloc(p.offset + item_sealed_len(s, cap) + sizeof tail);
        index = realloc(index, cap);
        memcpy(room, pack, p.offset);
        mutate(index, &len, cap);
        p.iv_len = hasher_size(sealer_hasher(s));
        hasher_digest(sealer_hasher(s), index, len, p.iv);
        p.length = item_sealed_len(s, len);
        const size_t tail_len = postamble_build(&p, tail);
        memcpy(room + p.offset + p.length, tail, tail_len);
        if (item_seal(s, p.iv, p.iv_len, index, len, room + p.offset, NULL, &e) >= 0)
            blobs_put(repo_blobs(r), x.name, room, p.offset + p.length + tail_len, &e);
    }
    free(pack);
    free(index);
    free(room);
}

static void add_epochs(struct repo *r)
{
    struct err e = ERR_INIT;
    char name[BLOB_NAME_MAX + 1];
    static const char *const before[] = {"xe", "xs", "xr0_", "xw", "xn", "xd"}, *const behind[] = {"", "_0000", "_"};
    static const unsigned long long numbers[] = {
        0, 1, 2, 3, 7, 100, 2147483647ull, 4294967296ull, 9223372036854775807ull, 18446744073709551615ull};
    for (size_t n = 1 + below(4); n > 0; n--) {
        snprintf(name, sizeof name, "%s%llu%s", before[below(6)], numbers[below(10)], behind[below(3)]);
        blobs_put(repo_blobs(r), name, "x", below(2), &e);
    }
}

/* The schedule of maintenance: one of its strings or numbers is another one. */
static void change_schedule(struct repo *r)
{
    struct err e = ERR_INIT;
    struct maintenance_schedule s;
    if (maintenance_load(r, &s, &e) < 0)
        return;
    char *text = json_dumps(s.doc, JSON_COMPACT);
    size_t len = strlen(text), cap = len + 4096;
    uint8_t *room = malloc(cap);
    for (unsigned i = 0; i < 50; i++) { /* until it is a document again */
        memcpy(room, text, len);
        size_t n = len;
        mutate(room, &n, cap);
        json_t *doc = json_loadb((const char *)room, n, 0, NULL);
        if (!json_is_object(doc)) {
            json_decref(doc);
            continue;
        }
        json_decref(s.doc);
        s.doc = doc;
        maintenance_store(r, &s, &e);
        break;
    }
    free(room);
    free(text);
    maintenance_clear(&s);
}

static void change(struct testrepo *t)
{
    struct targets *x = calloc(1, sizeof *x);
    struct err e = ERR_INIT;
    index_set_each(repo_index(t->r), -1, note_target, x, &e);
    for (size_t n = 1 + below(3); n > 0 && x->n; n--)
        switch (below(13)) {
        case 11:
        case 12:
            change_local(t->r);
            break;
        case 10:
            change_schedule(t->r);
            break;
        case 0:
            change_entry(t->r, x);
            break;
        case 1:
            change_named(t->r, "x");
            break;
        case 2:
            change_named(t->r, "s");
            break;
        case 3:
            add_epochs(t->r);
            break;
        default:
            change_content(t->r, x);
            break;
        }
    free(x);
}

/* ---- reading it ---- */

struct files {
    struct repo *r;
    const char *out;
    unsigned n, depth;
};
static int read_entry(struct dir_entry *d, void *arg)
{
    struct files *f = arg;
    struct err e = ERR_INIT;
    if (++f->n > 50)
        return 1;
    json_decref(dir_entry_to_json(d));
    if (d->type == 'd' && d->obj.content.len && f->depth < 4) {
        f->depth++;
        dir_each(f->r, &d->obj, read_entry, f, &e);
        f->depth--;
    } else if (d->obj.content.len && d->size >= 0 && d->size < (1 << 24)) {
        struct restore_result res = {0};
        const struct restore_opts o = {.limits = {.memory = MEMORY, .workers = 1}, .force = true};
        restore_run(f->r, &d->obj, (uint64_t)d->size, f->out, &o, &res, &e);
    }
    return 0;
}

static int read_snapshot(struct snapshot *s, void *arg)
{
    struct files *f = arg;
    json_t *j = snapshot_to_json(s);
    char *text = j ? json_dumps(j, 0) : NULL;
    free(text);
    json_decref(j);
    if (s->root.obj.content.len) {
        struct err e = ERR_INIT;
        dir_each(f->r, &s->root.obj, read_entry, f, &e);
    }
    return 0;
}

/* ---- writing to it ---- */

struct newest {
    char id[33];
    int64_t start_ns;
    const char *path;
};
static int note_newest(struct snapshot *s, void *arg)
{
    struct newest *n = arg;
    if (strcmp(s->source.path, n->path) == 0 && (!*n->id || s->start_ns >= n->start_ns)) {
        snprintf(n->id, sizeof n->id, "%s", s->id);
        n->start_ns = s->start_ns;
    }
    return 0;
}

/* Backups of both volumes: by the boundaries of the parents, and from a list of changes. */
static void backups(struct repo *r, const char *dir, const char *image)
{
    char path[100], cmd[300];
    struct err e = ERR_INIT;
    snprintf(path, sizeof path, "%s/image", dir);
    snprintf(cmd, sizeof cmd, "cp %s %s", image, path);
    if (system(cmd) != 0)
        _exit(2);
    for (size_t i = 0; i < 2 * N_VOLUMES; i++) {
        const struct volume *v = &volumes[i / 2];
        struct newest n = {.path = v->path};
        struct snapshot_source as = {.user = "snapferry", .host = "node"};
        struct changes *CLEANUP(changes_freep) c = NULL;
        e = (struct err)ERR_INIT;
        history_find(r, &(struct history){.volume_id = "", .name = v->path}, &as, &e);
        assert_ok(changes_new(&c, &e), &e);
        image_change(path, c);
        changes_finish(c);
        e = (struct err)ERR_INIT;
        snapshots_each(r, NULL, true, note_newest, &n, NULL, &e);
        const struct backup_incremental inc = {
            .parent = n.id, .changes = c, .sample = below(2) ? 0.5 : 0, .sample_seed = 1};
        e = (struct err)ERR_INIT;
        image_backup(r, path, v, i % 2 && *n.id ? &inc : NULL, &e);
    }
}

static int record_seen(const struct manifest *m, void *arg)
{
    *(size_t *)arg += json_object_size(m->labels);
    return 0;
}

static void records_read(struct repo *r)
{
    struct err e = ERR_INIT;
    struct backup_records_counts n = {0};
    size_t labels = 0;
    unsigned removed = 0;
    backup_records_each(r, "node", 1, record_seen, &labels, &n, &e);
    e = (struct err)ERR_INIT;
    backup_records_tidy(r, "node", now_ns(), &removed, &e);
}

static void maintain(struct repo *r)
{
    const unsigned kind = (unsigned)below(4);
    const struct maintain_opts o = {.owner = "snapferry@node", .full = kind > 0, .unsafe = kind > 1};
    struct maintain_result res;
    struct err e = ERR_INIT;
    maintain_run(r, &o, &res, &e);
}

static void repair_reported(enum repair_kind kind, const char *name, const char *why, uint64_t contents, void *arg)
{
    (void)kind, (void)name, (void)why, (void)contents, (void)arg;
}

static void repair(struct repo *r)
{
    struct repair_result res;
    struct err e = ERR_INIT;
    const struct repair_opts o = {
        .missing_only = below(4) == 0, .dry_run = below(8) == 0, .report = repair_reported, .arg = NULL};
    repair_run(r, &o, &res, &e);
}

/* ---- all of it ---- */

static struct repo *work_open(const char *dir, bool repairs)
{
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    struct repo *r = NULL;
    char path[100], cache[100];
    snprintf(path, sizeof path, "%s/repo", dir);
    snprintf(cache, sizeof cache, "%s/cache2", dir);
    const struct repo_opts o = {
        .cache_dir = cache, .username = repairs ? REPAIR_USER : "snapferry", .hostname = "node", .damaged = repairs};
    if (blobs_open_dir(&b, path, BLOBS_OPEN, NULL, 0, &e) < 0)
        return NULL;
    return repo_open(&r, b, "test", &o, &e) < 0 ? NULL : r;
}

static bool is_damaged(struct repo *r, const char *when)
{
    const struct verify_opts vo = {.limits = {.memory = MEMORY, .workers = 1}, .read_percent = 100};
    struct verify_result v = {0};
    struct err e = ERR_INIT;
    if (verify_run(r, NULL, 0, &vo, &v, &e) >= 0)
        return false;
    if (when)
        printf("%s: %s\n", when, e.msg);
    return true;
}

static int cannot_read(const struct index_entry *en, void *arg)
{
    struct err e = ERR_INIT;
    CLEANUP_FREE uint8_t *data = NULL;
    return content_get_entry(arg, en, &data, (size_t)MEMORY, &e) < 0;
}

/* Contents that no snapshot needs are not verified, and a backup that has one of them trusts the index. */
static bool has_unreadable(struct repo *r)
{
    CLEANUP(content_reader_freep) struct content_reader *c = NULL;
    struct err e = ERR_INIT;
    return content_reader_new(&c, r, &e) < 0 || index_set_each(repo_index(r), -1, cannot_read, c, &e) != 0;
}

/* 0: nothing was found to be wrong; NOTICED; BROKEN. */
static int use_all(const char *dir, const char *image)
{
    struct err e = ERR_INIT;
    struct session *s = NULL;
    char out[100];
    snprintf(out, sizeof out, "%s/out", dir);
    struct repo *r = work_open(dir, false);
    if (!r && (r = work_open(dir, true))) { /* what the repair makes of it may be read */
        repair(r);
        repo_free(r);
        r = work_open(dir, false);
    }
    if (!r)
        return NOTICED;
    struct files f = {.r = r, .out = out};
    snapshots_each(r, NULL, true, read_snapshot, &f, NULL, &e);
    const bool wrong = is_damaged(r, NULL) || has_unreadable(r);
    const struct expire_opts eo = {.user = "snapferry", .host = "node", .dry_run = true};
    struct expire_result er = {0};
    e = (struct err)ERR_INIT;
    snapshots_expire(r, &eo, NULL, NULL, &er, &e);
    records_read(r);
    backups(r, dir, image);
    e = (struct err)ERR_INIT;
    if (session_new(&s, r, NULL, &e) >= 0)
        session_flush(s, &e);
    session_free(s);
    repo_free(r);
    static const char *const after[] = {"after backups", "after maintenance", "after a repair"};
    bool broken = false;
    for (unsigned stage = 0; stage < 3 && !broken && (r = work_open(dir, false)); stage++) {
        broken = !wrong && is_damaged(r, after[stage]);
        if (!stage && !broken)
            maintain(r);
        repo_free(r);
        if (stage == 1 && !broken && (r = work_open(dir, true))) {
            repair(r);
            repo_free(r);
        }
    }
    return broken ? BROKEN : wrong ? NOTICED : 0;
}

/* ---- rounds ---- */

static void no_log(enum log_level lvl, const char *line, void *arg)
{
    (void)lvl, (void)line, (void)arg;
}

static int run_child(const struct testrepo *base, const char *image, uint64_t seed, bool uses)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct testrepo work = *base;
        rng = seed;
        log_to(no_log, NULL);
        setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = ROUND_S}, NULL);
        alarm(ROUND_WALL_S);
        int found = 0;
        if (uses) {
            found = use_all(base->dir, image);
        } else {
            char path[64];
            snprintf(path, sizeof path, "%s/repo", base->dir);
            testrepo_open(&work, path, "test");
            change(&work);
        }
        fflush(NULL);
        _exit(found);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

/* The repository as it was. */
static void renew(const char *work, const char *base)
{
    char cmd[400];
    snprintf(cmd, sizeof cmd, "rm -rf %s/* && cp -a %s/repo %s/repo", work, base, work);
    if (system(cmd) != 0)
        exit(2);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: fuzz_inside SECONDS [SEED]\n", stderr);
        return 2;
    }
    const double end = (double)mono_ns() / 1e9 + strtod(argv[1], NULL);
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, rounds = 0, noticed = 0;
    struct testrepo base, work = {.dir = ""};
    log_to(no_log, NULL);
    base_make(&base);
    session_free(base.s);
    base.s = NULL;
    put_scratch_free(base.p);
    base.p = NULL;
    testrepo_dir(&work);
    char image[64];
    snprintf(image, sizeof image, "%s/image", base.dir);
    for (; rounds == 0 || (double)mono_ns() / 1e9 < end; seed++, rounds++) {
        renew(work.dir, base.dir);
        int changed = run_child(&work, image, seed, false);
        int status = changed ? changed : run_child(&work, image, seed, true);
        if (WIFEXITED(status) && WEXITSTATUS(status) == NOTICED) {
            noticed++;
        } else if (status) {
            printf("seed %llu: %s %s %d; kept in %s\n", (unsigned long long)seed, changed ? "changing" : "using",
                   WIFSIGNALED(status) ? "ended by signal" : "ended with",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), work.dir);
            fflush(stdout);
            _exit(1); /* what is told after this would be leaks of this program alone */
        }
    }
    printf("fuzz_inside: %llu rounds, %llu with damage that was noticed, no complaint\n", (unsigned long long)rounds,
           (unsigned long long)noticed);
    testrepo_free(&base);
    nftw(work.dir, testrepo_rm, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
