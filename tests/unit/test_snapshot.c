/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/testrepo.h"

#include "repo/gojson.h"
#include "repo/snapshot.h"

#include <unistd.h>

/* ---- sources ---- */

static void test_sources(void **state)
{
    (void)state;
    struct snapshot_source s;
    struct err e = ERR_INIT;
    char text[5000];
    assert_int_equal(snapshot_source_parse(&s, "snapferry@node:/vol/1 a:b@c", &e), 0);
    assert_string_equal(s.user, "snapferry");
    assert_string_equal(s.host, "node");
    assert_string_equal(s.path, "/vol/1 a:b@c");
    assert_string_equal(snapshot_source_text(&s, text, sizeof text), "snapferry@node:/vol/1 a:b@c");
    assert_int_equal(snapshot_source_parse(&s, "u@h:/a//", &e), 0);
    assert_string_equal(s.path, "/a");
    assert_int_equal(snapshot_source_parse(&s, "u@h:/", &e), 0);
    assert_string_equal(s.path, "/");
    static const char *const bad[] = {"",      "u",    "u@h", "u@h:",     "u@h:a",    "@h:/a",
                                      "u@:/a", "u:/a", "/a",  "u@h:/a\n", "u@h:/\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        e = (struct err)ERR_INIT;
        assert_true(snapshot_source_parse(&s, bad[i], &e) < 0);
        assert_int_equal(e.cls, ERR_USAGE);
    }
    memset(text, 'a', sizeof text);
    memcpy(text, "u@h:/", 5);
    text[5 + 4094] = '\0';
    assert_int_equal(snapshot_source_parse(&s, text, &e), 0);
    text[5 + 4094] = 'a';
    text[5 + 4095] = '\0';
    assert_true(snapshot_source_parse(&s, text, &e) < 0);
}

/* ---- what is refused ---- */

static const char manifest_text[] =
    "{\"id\":\"\",\"source\":{\"host\":\"h\",\"userName\":\"u\",\"path\":\"/vm/disk1\"},\"description\":\"d\","
    "\"startTime\":\"2026-09-01T00:00:00.5Z\",\"endTime\":\"2026-09-01T00:01:00Z\",\"stats\":{\"totalSize\":8589934592,"
    "\"excludedTotalSize\":0,\"fileCount\":1,\"cachedFiles\":0,\"nonCachedFiles\":1,\"dirCount\":1,"
    "\"excludedFileCount\":0,\"excludedDirCount\":0,\"ignoredErrorCount\":0,\"errorCount\":0},"
    "\"incomplete\":\"checkpoint\",\"rootEntry\":{\"name\":\"disk1\",\"type\":\"d\",\"mode\":\"0755\","
    "\"mtime\":\"2026-09-01T00:00:00Z\",\"obj\":\"kab\",\"summ\":{\"size\":8589934592,\"files\":1,\"symlinks\":0,"
    "\"dirs\":1,\"maxTime\":\"2026-09-01T00:00:00Z\",\"numFailed\":0}},\"tags\":{\"tag:a\":\"b\"},\"pins\":[\"p\"]}";

static int parse(json_t *data, struct snapshot *s, const char **why)
{
    struct manifest m = {.data = data, .modified_ns = 5, .id = "00112233445566778899aabbccddeeff"};
    return snapshot_parse(s, &m, why);
}

static void test_parse(void **state)
{
    (void)state;
    struct snapshot s;
    const char *why = "";
    json_t *v = go_parse(manifest_text, sizeof manifest_text - 1);
    assert_int_equal(parse(v, &s, &why), 0);
    assert_string_equal(s.id, "00112233445566778899aabbccddeeff");
    assert_string_equal(s.source.path, "/vm/disk1");
    assert_string_equal(s.source.user, "u");
    assert_string_equal(s.source.host, "h");
    assert_string_equal(s.description, "d");
    assert_string_equal(s.incomplete, "checkpoint");
    assert_int_equal(s.start_ns, 1788220800500000000);
    assert_int_equal(s.end_ns, 1788220860000000000);
    assert_int_equal(s.total_size, 8589934592);
    assert_int_equal(s.file_count, 1);
    assert_string_equal(s.root.name, "disk1");
    assert_int_equal(s.root.mode, 0755);
    assert_int_equal(s.root.size, -1);
    assert_int_equal(s.root.obj.content.prefix, 'k');
    assert_true(s.root.has_summary);
    assert_int_equal(s.root.sum_files, 1);
    assert_string_equal(json_string_value(json_object_get(s.tags, "tag:a")), "b");
    assert_int_equal(json_array_size(s.pins), 1);
    json_t *out = snapshot_to_json(&s);
    assert_string_equal(json_string_value(json_object_get(out, "startTime")), "2026-09-01T00:00:00.5Z");
    assert_true(json_equal(json_object_get(out, "rootEntry"), json_object_get(v, "rootEntry")));
    json_decref(out);
    snapshot_clear(&s);
    json_decref(v);

    static const struct {
        const char *path[2], *value, *why; /* member, JSON put there */
    } bad[] = {
        {{"id"}, "5", "id"},
        {{"source"}, "5", "source"},
        {{"source", "host"}, "5", "source"},
        {{"source", "path"}, "\"a\\u0000b\"", "source"},
        {{"description"}, "[]", "description"},
        {{"startTime"}, "\"x\"", "startTime"},
        {{"startTime"}, "1", "startTime"},
        {{"endTime"}, "\"2026-09-01\"", "endTime"},
        {{"stats"}, "[]", "stats"},
        {{"stats", "fileCount"}, "2147483648", "stats"},
        {{"stats", "cachedFiles"}, "-2147483649", "stats"},
        {{"stats", "totalSize"}, "1.5", "stats"},
        {{"stats", "excludedTotalSize"}, "\"1\"", "stats"},
        {{"incomplete"}, "true", "incomplete"},
        {{"tags"}, "[]", "tags"},
        {{"tags", "x"}, "5", "tags"},
        {{"pins"}, "{}", "pins"},
        {{"pins"}, "[5]", "pins"},
        {{"rootEntry"}, "null", "rootEntry"},
        {{"rootEntry"}, "[]", "rootEntry"},
        {{"rootEntry", "mode"}, "493", "rootEntry"},
        {{"rootEntry", "mode"}, "null", "rootEntry"},
        {{"rootEntry", "obj"}, "\"\"", "rootEntry"},
        {{"rootEntry", "obj"}, "\"zz\"", "rootEntry"},
        {{"rootEntry", "uid"}, "4294967296", "rootEntry"},
        {{"rootEntry", "gid"}, "-1", "rootEntry"},
        {{"rootEntry", "mtime"}, "\"\"", "rootEntry"},
        {{"rootEntry", "summ"}, "[]", "rootEntry"},
        {{"rootEntry", "summ"}, "{\"files\":\"1\"}", "rootEntry"},
        {{"rootEntry", "summ"}, "{\"errors\":[{\"path\":5}]}", "rootEntry"},
        {{"rootEntry", "summ"}, "{\"maxTime\":5}", "rootEntry"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        v = go_parse(manifest_text, sizeof manifest_text - 1);
        json_t *x = go_parse(bad[i].value, strlen(bad[i].value));
        assert_non_null(x);
        json_t *at = bad[i].path[1] ? json_object_get(v, bad[i].path[0]) : v;
        assert_int_equal(json_object_set_new(at, bad[i].path[1] ? bad[i].path[1] : bad[i].path[0], x), 0);
        assert_int_equal(parse(v, &s, &why), -EINVAL);
        assert_string_equal(why, bad[i].why);
        json_decref(v);
    }
    v = json_string("x");
    assert_int_equal(parse(v, &s, &why), -EINVAL);
    json_decref(v);
}

/* Any flipped bit: an error, or a snapshot; no crash. */
static void test_flipped(void **state)
{
    (void)state;
    char copy[sizeof manifest_text];
    for (size_t i = 0; i < (sizeof manifest_text - 1) * 8; i++) {
        memcpy(copy, manifest_text, sizeof copy);
        copy[i / 8] = (char)(copy[i / 8] ^ 1 << i % 8);
        json_t *v = go_parse(copy, sizeof copy - 1);
        struct snapshot s;
        if (v && parse(v, &s, NULL) == 0)
            snapshot_clear(&s);
        json_decref(v);
    }
}

/* ---- writing ---- */

struct world {
    struct testrepo t;
    struct manifest_batch *b;
    struct volume_snapshot v;
    char last[33];
};

static void world_new(struct world *w)
{
    struct err e = ERR_INIT;
    *w = (struct world){.last = ""};
    testrepo_new(&w->t, "FIXED-128K", NULL);
    assert_ok(manifest_batch_new(&w->b, &e), &e);
    w->v = (struct volume_snapshot){.start_ns = 1788220800500000000,
                                    .end_ns = 1788220860000000000,
                                    .size = 5,
                                    .image_mtime_ns = 1788220800400000000,
                                    .volume_json = json_pack("{s:i, s:s}", "version", 1, "name", "<vol>")};
    assert_ok(snapshot_source_parse(&w->v.source, "snapferry@node:/vg/lv", &e), &e);
    assert_ok(object_put(w->t.s, w->t.p, 0, "bytes", 5, 0, &w->v.image, &e), &e);
}

static void world_free(struct world *w)
{
    json_decref(w->v.volume_json);
    manifest_batch_free(w->b);
    testrepo_free(&w->t);
}

static void commit(struct world *w)
{
    struct err e = ERR_INIT;
    assert_ok(volume_snapshot_write(w->t.s, w->t.p, &w->v, w->b, w->last, &e), &e);
    assert_ok(manifest_batch_put(w->b, w->t.s, w->t.p, &e), &e);
    testrepo_flush(&w->t);
}

static int keep_data(const struct manifest *m, void *arg)
{
    json_decref(*(json_t **)arg);
    *(json_t **)arg = json_pack("{s:O, s:O}", "labels", m->labels, "data", m->data);
    return 0;
}

static char *object_text(struct world *w, const struct object_id *id)
{
    struct err e = ERR_INIT;
    uint8_t *p = NULL;
    assert_ok(object_get(w->t.r, id, &p, 100000, &e), &e);
    return (char *)p;
}

static void test_write(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    world_new(&w);
    w.v.description = "first & best";
    w.v.tags = json_pack("{s:s, s:s}", "job", "nightly", "backup", "42");
    commit(&w);

    struct snapshot s;
    struct dir_entry d;
    assert_ok(snapshot_find(w.t.r, "latest", NULL, &s, &e), &e);
    assert_string_equal(s.id, w.last);
    assert_string_equal(s.root.name, "lv");

    /* The documents, byte for byte: order of members and escapes are stock's. */
    char want[2000], root[OBJECT_ID_TEXT], json_id[OBJECT_ID_TEXT], image[OBJECT_ID_TEXT];
    assert_ok(dir_lookup(w.t.r, &s.root, "volume.json", &d, &e), &e);
    char *volume_json CLEANUP_FREE = object_text(&w, &d.obj);
    assert_string_equal(volume_json, "{\"version\":1,\"name\":\"\\u003cvol\\u003e\"}\n");
    object_id_text(&d.obj, json_id);
    dir_entry_clear(&d);
    char *directory CLEANUP_FREE = object_text(&w, &s.root.obj);
    snprintf(want, sizeof want,
             "{\"stream\":\"kopia:directory\",\"entries\":[{\"name\":\"volume.img\",\"type\":\"f\",\"mode\":\"0600\","
             "\"size\":5,\"mtime\":\"2026-09-01T00:00:00.4Z\",\"obj\":\"%s\"},{\"name\":\"volume.json\",\"type\":\"f\","
             "\"mode\":\"0644\",\"size\":%zu,\"mtime\":\"2026-09-01T00:00:00.4Z\",\"obj\":\"%s\"}],\"summary\":{"
             "\"size\":%zu,"
             "\"files\":2,\"symlinks\":0,\"dirs\":1,\"maxTime\":\"2026-09-01T00:00:00.4Z\",\"numFailed\":0}}\n",
             object_id_text(&w.v.image, image), strlen(volume_json), json_id, strlen(volume_json) + 5);
    assert_string_equal(directory, want);

    json_t *m = NULL;
    assert_ok(manifests_each(w.t.r, "snapshot", keep_data, &m, &e), &e);
    char *text CLEANUP_FREE = json_go_text(m, false, NULL);
    snprintf(
        want, sizeof want,
        "{\"labels\":{\"hostname\":\"node\",\"path\":\"/vg/lv\",\"tag:backup\":\"42\",\"tag:job\":\"nightly\","
        "\"type\":\"snapshot\",\"username\":\"snapferry\"},\"data\":{\"id\":\"\",\"source\":{\"host\":\"node\","
        "\"userName\":\"snapferry\",\"path\":\"/vg/lv\"},\"description\":\"first \\u0026 best\","
        "\"startTime\":\"2026-09-01T00:00:00.5Z\",\"endTime\":\"2026-09-01T00:01:00Z\",\"stats\":{\"totalSize\":%zu,"
        "\"excludedTotalSize\":0,\"fileCount\":2,\"cachedFiles\":0,\"nonCachedFiles\":2,\"dirCount\":1,"
        "\"excludedFileCount\":0,\"excludedDirCount\":0,\"ignoredErrorCount\":0,\"errorCount\":0},"
        "\"rootEntry\":{\"name\":\"lv\",\"type\":\"d\",\"mode\":\"0755\",\"mtime\":\"2026-09-01T00:00:00.4Z\","
        "\"obj\":\"%s\",\"summ\":{\"size\":%zu,\"files\":2,\"symlinks\":0,\"dirs\":1,"
        "\"maxTime\":\"2026-09-01T00:00:00.4Z\",\"numFailed\":0}},"
        "\"tags\":{\"tag:backup\":\"42\",\"tag:job\":\"nightly\"}}}",
        strlen(volume_json) + 5, object_id_text(&s.root.obj, root), strlen(volume_json) + 5);
    assert_string_equal(text, want);
    json_decref(m);
    json_decref(w.v.tags);
    snapshot_clear(&s);
    world_free(&w);
}

static int count_entries(struct dir_entry *d, void *arg)
{
    (void)d;
    ++*(unsigned *)arg;
    return 0;
}

static void test_write_incomplete(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    struct snapshot s;
    world_new(&w);
    w.v.incomplete = "checkpoint";
    w.v.size = (uint64_t)1 << 40; /* of the whole volume, though the object is shorter */
    w.v.errors = 3;
    commit(&w);
    assert_ok(snapshot_find(w.t.r, w.last, NULL, &s, &e), &e);
    assert_string_equal(s.incomplete, "checkpoint");
    assert_int_equal(s.error_count, 3);
    assert_int_equal(s.ignored_errors, 0);
    assert_int_equal(s.root.sum_failed, 3);
    assert_string_equal(s.root.sum_incomplete, "checkpoint");
    char *text CLEANUP_FREE = object_text(&w, &s.root.obj);
    const char *name = strstr(text, "{\"name\":\".checkpointed.volume.img.");
    assert_non_null(name);
    assert_int_equal(strspn(name + 34, "0123456789abcdef"), 32);
    assert_non_null(strstr(text, "\"size\":1099511627776,"));
    assert_non_null(strstr(text, "\"numFailed\":3,\"errors\":[{\"path\":\".checkpointed.volume.img."));
    assert_non_null(strstr(text, "3 unreadable ranges"));
    unsigned n = 0;
    assert_ok(dir_each(w.t.r, &s.root.obj, count_entries, &n, &e), &e);
    assert_int_equal(n, 2);
    snapshot_clear(&s);
    assert_int_equal(snapshot_find(w.t.r, "latest", NULL, &s, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_NOT_FOUND);
    world_free(&w);
}

static void test_write_refused(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    world_new(&w);
    const struct volume_snapshot good = w.v;
    for (unsigned i = 0; i < 8; i++) {
        w.v = good;
        switch (i) {
        case 0:
            w.v.image = (struct object_id){0};
            break;
        case 1:
            w.v.size = INT64_MAX;
            break;
        case 2:
            w.v.errors = (unsigned)INT32_MAX + 1;
            break;
        case 3:
            w.v.end_ns = w.v.start_ns - 1;
            break;
        case 4:
            w.v.description = "\xff";
            break;
        case 5:
            w.v.source.user[0] = '\0';
            break;
        case 6:
            strcpy(w.v.source.path, "/a/");
            break;
        case 7:
            w.v.incomplete = "a reason that is longer than any client would give";
            break;
        }
        if (volume_snapshot_write(w.t.s, w.t.p, &w.v, w.b, w.last, &e) >= 0)
            fail_msg("case %u was written", i);
    }
    w.v = good;
    world_free(&w);
}

/* ---- finding ---- */

static int note_start(struct snapshot *s, void *arg)
{
    int64_t *a = arg; /* count, last start, order broken */
    a[0]++;
    a[2] += s->start_ns < a[1];
    a[1] = s->start_ns;
    return 0;
}

static void test_find(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    struct snapshot s;
    struct snapshot_source other;
    char ids[6][33];
    world_new(&w);
    assert_int_equal(snapshot_find(w.t.r, "latest", NULL, &s, &e), -ENOENT);
    assert_ok(snapshot_source_parse(&other, "snapferry@node:/vg/other", &e), &e);
    const struct snapshot_source first = w.v.source;
    static const struct {
        int64_t start;
        const char *incomplete;
        bool other;
    } made[] = {{30, NULL, false},
                {10, NULL, false},
                {20, "checkpoint", false},
                {40, "canceled", false},
                {50, "checkpoint", false}};
    for (size_t i = 0; i < 5; i++) {
        w.v.start_ns = made[i].start * 1000000000;
        w.v.end_ns = w.v.start_ns + 1;
        w.v.incomplete = made[i].incomplete;
        commit(&w);
        memcpy(ids[i], w.last, 33);
    }
    assert_ok(snapshot_find(w.t.r, "latest", NULL, &s, &e), &e);
    assert_string_equal(s.id, ids[0]);
    snapshot_clear(&s);
    for (size_t i = 0; i < 5; i++) {
        char part[33];
        snprintf(part, sizeof part, "%.10s", ids[i]);
        assert_ok(snapshot_find(w.t.r, part, NULL, &s, &e), &e);
        assert_string_equal(s.id, ids[i]);
        snapshot_clear(&s);
    }
    /* By the root directory, as stock clients list it. */
    char root[OBJECT_ID_TEXT], part[OBJECT_ID_TEXT];
    assert_ok(snapshot_find(w.t.r, ids[2], NULL, &s, &e), &e);
    object_id_text(&s.root.obj, root);
    snapshot_clear(&s);
    for (size_t n = strlen(root); n >= 12; n -= 10) {
        snprintf(part, sizeof part, "%.*s", (int)n, root);
        assert_ok(snapshot_find(w.t.r, part, NULL, &s, &e), &e);
        assert_string_equal(s.id, ids[2]);
        snapshot_clear(&s);
    }
    static const char *const none[] = {"xyz",
                                       "",
                                       "0123456789abcdef0123456789abcdef",
                                       "0123456789abcdef0123456789abcdef0",
                                       "k0123456789abcdef0123456789abcdef",
                                       "kxyz1"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_true(snapshot_find(w.t.r, none[i], NULL, &s, &e) < 0);
        assert_int_equal(e.cls, ERR_NOT_FOUND);
    }
    assert_true(snapshot_find(w.t.r, "abc", NULL, &s, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);

    struct snapshot complete, incomplete;
    bool has_complete, has_incomplete;
    char(*old)[33] = NULL;
    size_t n_old;
    assert_ok(snapshot_parents(w.t.r, &first, &complete, &has_complete, &incomplete, &has_incomplete, &old, &n_old, &e),
              &e);
    assert_true(has_complete && has_incomplete);
    assert_string_equal(complete.id, ids[0]);
    assert_string_equal(incomplete.id, ids[4]);
    assert_int_equal(n_old, 3);
    snapshot_clear(&complete);
    snapshot_clear(&incomplete);
    free(old);

    int64_t order[3] = {0, INT64_MIN, 0};
    unsigned bad = 9;
    assert_ok(snapshots_each(w.t.r, NULL, true, note_start, order, &bad, &e), &e);
    assert_int_equal(order[0], 5);
    assert_int_equal(order[2], 0);
    assert_int_equal(bad, 0);

    /* A second source makes "latest" ambiguous, and a complete one that is newer hides the checkpoints. */
    w.v.source = other;
    w.v.incomplete = NULL;
    commit(&w);
    assert_true(snapshot_find(w.t.r, "latest", NULL, &s, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_non_null(strstr(e.msg, "snapferry@node:/vg/other"));
    assert_non_null(strstr(e.hint, "--as"));
    assert_ok(snapshot_find(w.t.r, "latest", &first, &s, &e), &e);
    assert_string_equal(s.id, ids[0]);
    snapshot_clear(&s);
    w.v.source = first;
    w.v.start_ns = w.v.end_ns = (int64_t)60 * 1000000000;
    commit(&w);
    assert_ok(snapshot_parents(w.t.r, &first, &complete, &has_complete, &incomplete, &has_incomplete, &old, &n_old, &e),
              &e);
    assert_true(has_complete && !has_incomplete);
    assert_string_equal(complete.id, w.last);
    assert_int_equal(n_old, 3);
    snapshot_clear(&complete);
    free(old);
    order[0] = 0;
    assert_ok(snapshots_each(w.t.r, &other, false, note_start, order, NULL, &e), &e);
    assert_int_equal(order[0], 1);

    /* A root directory of two snapshots, of which a deletion, say, would have to choose one. */
    char newest[33];
    memcpy(newest, w.last, sizeof newest);
    commit(&w);
    assert_ok(snapshot_find(w.t.r, w.last, NULL, &s, &e), &e);
    object_id_text(&s.root.obj, root);
    snapshot_clear(&s);
    assert_true(snapshot_find(w.t.r, root, NULL, &s, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_non_null(strstr(e.msg, newest));
    assert_non_null(strstr(e.msg, w.last));
    world_free(&w);
}

static void put_entries(struct world *w, const char *fmt, const char *id)
{
    struct err e = ERR_INIT;
    char text[3000];
    uint8_t *gz CLEANUP_FREE = NULL;
    struct content_id cid;
    int len = snprintf(text, sizeof text,
                       "{\"entries\":[{\"id\":\"%s\",\"labels\":{\"type\":\"snapshot\"},"
                       "\"modified\":\"2026-01-01T00:00:00Z\",\"data\":%s}]}\n",
                       id, fmt);
    int64_t n = gzip_compress(text, (size_t)len, &gz, &e);
    assert_ok(n, &e);
    assert_ok(session_put_bytes(w->t.s, w->t.p, 'm', gz, (size_t)n, 0x1101, &cid, &e), &e);
}

static unsigned warnings;
static void count_warning(enum log_level lvl, const char *line, void *arg)
{
    (void)line;
    (void)arg;
    warnings += lvl == LOG_LVL_WARNING;
}

/* Documents that do not parse are told and counted; ambiguous and damaged ids are told apart from missing ones. */
static void test_bad_documents(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    struct snapshot s;
    world_new(&w);
    put_entries(&w, manifest_text, "aaaa0000000000000000000000000001");
    put_entries(&w, manifest_text, "aaaa0000000000000000000000000002");
    put_entries(&w, "{\"startTime\":5}", "bbbb0000000000000000000000000001");
    put_entries(&w, "{\"n\":99999999999999999999}", "bbbb0000000000000000000000000002");
    testrepo_flush(&w.t);
    for (unsigned sorted = 0; sorted < 2; sorted++) {
        int64_t order[3] = {0, INT64_MIN, 0};
        unsigned bad = 0;
        warnings = 0;
        log_to(count_warning, NULL);
        assert_ok(snapshots_each(w.t.r, NULL, sorted, note_start, order, &bad, &e), &e);
        log_to(NULL, NULL);
        assert_int_equal(order[0], 2);
        assert_int_equal(bad, 2);
        assert_int_equal(warnings, 1); /* one line with their number */
    }
    assert_true(snapshot_find(w.t.r, "aaaa", NULL, &s, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_non_null(strstr(e.msg, "aaaa0000000000000000000000000002"));
    assert_true(snapshot_find(w.t.r, "bbbb0000000000000000000000000001", NULL, &s, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    world_free(&w);
}

/* More snapshots than a window of the sort holds. */
static void test_many_sorted(void **state)
{
    (void)state;
    enum { N = 5000 };
    struct testrepo t;
    struct err e = ERR_INIT;
    struct manifest_batch *b = NULL;
    testrepo_new(&t, "FIXED-128K", NULL);
    assert_ok(manifest_batch_new(&b, &e), &e);
    json_t *labels = json_pack("{s:s}", "type", "snapshot");
    uint64_t seed = 3;
    for (unsigned i = 0; i < N; i++) {
        char text[TIME_TEXT];
        json_t *v = go_parse(manifest_text, sizeof manifest_text - 1);
        go_set(v, "startTime", json_string(time_text((int64_t)(splitmix64(&seed) >> 2), text)));
        assert_ok(manifest_batch_add(b, labels, v, NULL, &e), &e);
        json_decref(v);
    }
    assert_ok(manifest_batch_put(b, t.s, t.p, &e), &e);
    testrepo_flush(&t);
    int64_t order[3] = {0, INT64_MIN, 0};
    assert_ok(snapshots_each(t.r, NULL, true, note_start, order, NULL, &e), &e);
    assert_int_equal(order[0], N);
    assert_int_equal(order[2], 0);
    json_decref(labels);
    manifest_batch_free(b);
    testrepo_free(&t);
}

/* ---- directories ---- */

static struct object_id put_dir(struct world *w, const char *text)
{
    struct err e = ERR_INIT;
    struct object_id id;
    assert_ok(object_put(w->t.s, w->t.p, 'k', text, strlen(text), 0x1101, &id, &e), &e);
    return id;
}

static void expect_lookup(struct world *w, const struct dir_entry *root, const char *path, int rc, enum err_class cls,
                          const char *name)
{
    struct err e = ERR_INIT;
    struct dir_entry d = {0};
    int got = dir_lookup(w->t.r, root, path, &d, &e);
    if (got != rc)
        fail_msg("\"%s\": %d %s", path, got, e.msg);
    if (rc == 0) {
        assert_string_equal(d.name, name);
        dir_entry_clear(&d);
    } else {
        assert_int_equal(e.cls, cls);
    }
}

static void test_lookup(void **state)
{
    (void)state;
    struct world w;
    char text[2000], sub[OBJECT_ID_TEXT], file[OBJECT_ID_TEXT];
    world_new(&w);
    object_id_text(&w.v.image, file);
    snprintf(text, sizeof text,
             "{\"stream\":\"kopia:directory\",\"entries\":[{\"name\":\"x\",\"type\":\"f\",\"obj\":\"%s\"}],\"summary\":"
             "null}\n",
             file);
    struct object_id id = put_dir(&w, text);
    snprintf(text, sizeof text,
             "{\"stream\":\"kopia:directory\",\"entries\":[{\"name\":\"a\",\"type\":\"d\",\"obj\":\"%s\"},"
             "{\"name\":\"a/x\",\"type\":\"f\",\"obj\":\"%s\"},{\"name\":\"/dev/sdb\",\"type\":\"f\",\"obj\":\"%s\"},"
             "{\"name\":\"b\",\"type\":\"d\",\"obj\":\"%s\"},{\"name\":\"..\",\"type\":\"d\",\"obj\":\"%s\"},"
             "{\"name\":\"none\",\"type\":\"d\",\"obj\":\"\"}],\"summary\":null}\n",
             object_id_text(&id, sub), file, file, sub, sub);
    char root_name[] = "root";
    struct dir_entry root = {.name = root_name, .type = 'd', .obj = put_dir(&w, text)};
    expect_lookup(&w, &root, "", 0, 0, "root");
    expect_lookup(&w, &root, "a", 0, 0, "a");
    expect_lookup(&w, &root, "/a/", 0, 0, "a");
    expect_lookup(&w, &root, "a/x", 0, 0, "a/x"); /* the longest name wins */
    expect_lookup(&w, &root, "b/x", 0, 0, "x");
    expect_lookup(&w, &root, "/dev/sdb", 0, 0, "/dev/sdb");
    expect_lookup(&w, &root, "c", -ENOENT, ERR_NOT_FOUND, NULL);
    expect_lookup(&w, &root, "b/y", -ENOENT, ERR_NOT_FOUND, NULL);
    expect_lookup(&w, &root, "b/x/z", -ENOTDIR, ERR_NOT_FOUND, NULL);
    expect_lookup(&w, &root, "..", -EINVAL, ERR_USAGE, NULL);
    expect_lookup(&w, &root, "../x", -EINVAL, ERR_USAGE, NULL);
    expect_lookup(&w, &root, "a//x", -EINVAL, ERR_USAGE, NULL);
    expect_lookup(&w, &root, "a/./x", -EINVAL, ERR_USAGE, NULL);
    expect_lookup(&w, &root, "none/x", -EBADMSG, ERR_DAMAGE, NULL);

    static const char *const bad[] = {
        "",
        "{}",
        "{\"stream\":\"kopia:indirect\",\"entries\":[]}",
        "{\"stream\":\"kopia:directory\",\"entries\":[5]}",
        "{\"stream\":\"kopia:directory\",\"entries\":[{\"name\":\"a\",\"mode\":5}]}",
        "{\"stream\":\"kopia:directory\",\"entries\":[{\"name\":\"a\"}]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = ERR_INIT;
        unsigned n = 0;
        id = put_dir(&w, bad[i]);
        assert_true(dir_each(w.t.r, &id, count_entries, &n, &e) < 0);
        assert_int_equal(e.cls, ERR_DAMAGE);
    }
    world_free(&w);
}

/* ---- policy ---- */

struct policies {
    unsigned n;
    char *text;
};

static int keep_policy(const struct manifest *m, void *arg)
{
    struct policies *p = arg;
    p->n++;
    free(p->text);
    json_t *v = json_pack("[O, O]", m->labels, m->data);
    p->text = json_go_text(v, false, NULL);
    json_decref(v);
    return 0;
}

static void set_manual(struct world *w, struct policies *p)
{
    struct err e = ERR_INIT;
    assert_ok(source_policy_manual(w->t.r, &w->v.source, w->b, &e), &e);
    assert_ok(manifest_batch_put(w->b, w->t.s, w->t.p, &e), &e);
    testrepo_flush(&w->t);
    free(p->text);
    *p = (struct policies){0};
    assert_ok(manifests_each(w->t.r, "policy", keep_policy, p, &e), &e);
}

#define LABELS                                                                                                         \
    "{\"hostname\":\"node\",\"path\":\"/vg/"                                                                           \
    "lv\",\"policyType\":\"path\",\"type\":\"policy\",\"username\":\"snapferry\"}"

static void test_policy(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    struct policies p = {0};
    world_new(&w);
    for (unsigned i = 0; i < 2; i++) { /* the second time changes nothing */
        set_manual(&w, &p);
        assert_int_equal(p.n, 1);
        assert_string_equal(
            p.text, "[" LABELS ",{\"retention\":{},\"files\":{},\"errorHandling\":{},\"scheduling\":{\"manual\":true},"
                    "\"compression\":{},\"metadataCompression\":{},\"splitter\":{},\"actions\":{},"
                    "\"osSnapshots\":{\"volumeShadowCopy\":{}},\"logging\":{\"directories\":{},\"entries\":{}},"
                    "\"upload\":{}}]");
    }
    /* Somebody sets a policy (leaving a second manifest behind): what it says stays, but for its schedule. */
    json_t *labels = go_parse(LABELS, sizeof LABELS - 1);
    static const char text[] = "{\"retention\":{\"keepLatest\":3},\"scheduling\":{\"intervalSeconds\":60},\"x\":1}";
    json_t *data = go_parse(text, sizeof text - 1);
    usleep(1000);
    assert_ok(manifest_batch_add(w.b, labels, data, NULL, &e), &e);
    assert_ok(manifest_batch_put(w.b, w.t.s, w.t.p, &e), &e);
    testrepo_flush(&w.t);
    set_manual(&w, &p);
    assert_int_equal(p.n, 1);
    assert_string_equal(p.text,
                        "[" LABELS ",{\"retention\":{\"keepLatest\":3},\"scheduling\":{\"manual\":true},\"x\":1}]");
    free(p.text);
    json_decref(labels);
    json_decref(data);
    world_free(&w);
}

/* ---- what stock wrote ---- */

struct listing {
    const json_t *want;
    size_t n;
};

static int same_snapshot(struct snapshot *s, void *arg)
{
    struct listing *l = arg;
    char text[TIME_TEXT], obj[OBJECT_ID_TEXT];
    const json_t *x = json_array_get(l->want, l->n++);
    assert_string_equal(s->id, json_string_value(json_object_get(x, "id")));
    assert_string_equal(time_text(s->start_ns, text), json_string_value(json_object_get(x, "startTime")));
    assert_string_equal(object_id_text(&s->root.obj, obj), json_string_value(json_object_get(x, "root")));
    const json_t *src = json_object_get(x, "source");
    assert_string_equal(s->source.user, json_string_value(json_object_get(src, "userName")));
    assert_string_equal(s->source.host, json_string_value(json_object_get(src, "host")));
    assert_string_equal(s->source.path, json_string_value(json_object_get(src, "path")));
    return 0;
}

/* Every entry of every tree is found by its path and is what stock has. */
static void same_tree(struct repo *r, const json_t *x)
{
    struct err e = ERR_INIT;
    struct snapshot s;
    size_t i;
    json_t *v;
    assert_ok(snapshot_find(r, json_string_value(json_object_get(x, "id")), NULL, &s, &e), &e);
    json_array_foreach(json_object_get(x, "entries"), i, v)
    {
        struct dir_entry d;
        if (i % 7 != 0 && json_array_size(json_object_get(x, "entries")) > 500)
            continue;
        const char *path = json_string_value(json_object_get(v, "path"));
        int rc = dir_lookup(r, &s.root, path, &d, &e);
        if (rc < 0)
            fail_msg("\"%s\": %s", path, e.msg);
        json_t *got = dir_entry_to_json(&d), *want = json_deep_copy(json_object_get(v, "entry"));
        json_object_del(json_object_get(want, "summ"), "errors");
        if (!json_equal(got, want)) {
            char *a CLEANUP_FREE = json_go_text(got, false, NULL), *b CLEANUP_FREE = json_go_text(want, false, NULL);
            assert_string_equal(a, b);
        }
        json_decref(got);
        json_decref(want);
        dir_entry_clear(&d);
    }
    snapshot_clear(&s);
}

static void test_golden(void **state)
{
    (void)state;
    static const char *const names[] = {"odd-names",           "stream-names",  "incomplete-checkpoint",
                                        "incomplete-canceled", "two-clients",   "policies",
                                        "v1-compressed",       "big-directory", "manifests-compacted"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct testrepo t;
        struct err e = ERR_INIT;
        json_t *x = testrepo_golden(&t, names[i]);
        struct listing l = {.want = json_object_get(x, "snapshots")};
        unsigned bad = 0;
        assert_ok(snapshots_each(t.r, NULL, true, same_snapshot, &l, &bad, &e), &e);
        assert_int_equal(l.n, json_array_size(l.want));
        assert_int_equal(bad, 0);
        for (size_t k = 0; k < l.n && k < 3; k++)
            same_tree(t.r, json_array_get(l.want, k));
        json_decref(x);
        testrepo_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_write_incomplete),
        cmocka_unit_test(test_write_refused),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_bad_documents),
        cmocka_unit_test(test_many_sorted),
        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_policy),
        cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
