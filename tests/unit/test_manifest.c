/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/time.h"
#include "tests/unit/testrepo.h"

#include "repo/gojson.h"
#include "repo/manifest.h"

/* ---- collections made by hand ---- */

static void put_collection(struct testrepo *t, const char *text)
{
    struct err e = ERR_INIT;
    uint8_t *gz CLEANUP_FREE = NULL;
    struct content_id id;
    int64_t n = gzip_compress(text, strlen(text), &gz, &e);
    assert_ok(n, &e);
    assert_ok(session_put_bytes(t->s, t->p, 'm', gz, (size_t)n, 0x1101, &id, &e), &e);
}

/* "id=data id=data ..." of the live manifests, sorted; ids cut to their first digit. */
static int gather(const struct manifest *m, void *arg)
{
    json_t *out = arg;
    char key[2] = {m->id[0], '\0'};
    assert_int_equal(strlen(m->id), 32);
    assert_true(json_is_object(m->labels));
    assert_null(json_object_get(out, key)); /* each only once */
    json_object_set(out, key, m->data);
    return 0;
}

static void expect_live(struct testrepo *t, const char *type, const char *want)
{
    struct err e = ERR_INIT;
    json_t *out = json_object();
    testrepo_flush(t);
    assert_ok(manifests_each(t->r, type, gather, out, &e), &e);
    json_t *sorted = go_sorted_map(out);
    char *text CLEANUP_FREE = json_go_text(sorted, false, NULL);
    assert_string_equal(text, want);
    json_decref(out);
    json_decref(sorted);
}

#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define C "cccccccccccccccccccccccccccccccc"
#define ENTRY(id, time, data)                                                                                          \
    "{\"id\":\"" id "\",\"labels\":{\"type\":\"t\"},\"modified\":\"" time "\",\"data\":" data "}"
#define T1 "2026-01-01T00:00:00Z"
#define T2 "2026-01-01T00:00:00.000000001Z"
#define T3 "2026-01-01T01:00:00.000000002+01:00"
#define DELETED(id, time) "{\"id\":\"" id "\",\"labels\":null,\"modified\":\"" time "\",\"deleted\":true,\"data\":null}"

static void test_merge(void **state)
{
    (void)state;
    struct testrepo t;
    testrepo_new(&t, "FIXED-128K", NULL);
    expect_live(&t, NULL, "{}");
    put_collection(&t, "{\"entries\":[" ENTRY(A, T2, "1") "," ENTRY(B, T1, "{\"x\":[]}") "]}\n");
    expect_live(&t, NULL, "{\"a\":1,\"b\":{\"x\":[]}}");
    put_collection(&t, "{\"entries\":[" ENTRY(A, T1, "0") "]}"); /* older: changes nothing */
    expect_live(&t, NULL, "{\"a\":1,\"b\":{\"x\":[]}}");
    put_collection(&t, "{\"entries\":[" ENTRY(A, T3, "2") "," DELETED(B, T2) "," DELETED(C, T1) "]}");
    expect_live(&t, NULL, "{\"a\":2}");
    put_collection(&t, "{\"entries\":[" ENTRY(B, T1, "7") "]}"); /* older than its tombstone */
    expect_live(&t, NULL, "{\"a\":2}");
    put_collection(&t, "{\"entries\":[" ENTRY(B, T3, "8") "]}"); /* newer */
    expect_live(&t, "t", "{\"a\":2,\"b\":8}");
    expect_live(&t, "other", "{}");
    put_collection(&t, "{\"entries\":null}");
    put_collection(&t, "{}");
    put_collection(&t, "{\"Entries\":[{\"ID\":\"" C "\",\"LABELS\":{\"type\":\"u\"},\"Modified\":\"" T2
                       "\",\"extra\":{\"id\":1},\"Data\":\"x\"}]}");
    expect_live(&t, "u", "{\"c\":\"x\"}");
    /* A document that no C program can hold is still a manifest. */
    put_collection(&t, "{\"entries\":[" ENTRY(C, T3, "{\"n\":99999999999999999999}") "]}");
    expect_live(&t, "t", "{\"a\":2,\"b\":8,\"c\":null}");
    testrepo_free(&t);
}

static int count(const struct manifest *m, bool deleted, void *arg)
{
    (void)deleted;
    assert_non_null(m->labels);
    assert_non_null(m->data);
    ++*(unsigned *)arg;
    return 0;
}

static int parse_gz(const char *text, size_t len, unsigned *n)
{
    struct err e = ERR_INIT;
    uint8_t *gz CLEANUP_FREE = NULL;
    int64_t gz_len = gzip_compress(text, len, &gz, &e);
    assert_ok(gz_len, &e);
    *n = 0;
    int rc = manifest_collection_parse(gz, (size_t)gz_len, count, n, &e);
    if (rc < 0)
        assert_int_equal(e.cls, ERR_DAMAGE);
    return rc;
}

static void test_damage(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "x",
        "{\"entries\":[5]}",
        "{\"entries\":[{\"id\":5}]}",
        "{\"entries\":[{\"id\":\"" A "\",\"modified\":\"yesterday\"}]}",
        "{\"entries\":[{\"id\":\"" A "\",\"modified\":5}]}",
        "{\"entries\":[{\"id\":\"" A "\",\"deleted\":1}]}",
        "{\"entries\":[{\"id\":\"" A "\",\"labels\":[]}]}",
        "{\"entries\":[{\"id\":\"" A "\",\"labels\":{\"type\":5}}]}",
        "{\"entries\":[" ENTRY(A, T1, "1") "],\"more\":1}",
        "{\"entries\":[" ENTRY(A, T1, "1"),
        "{\"entries\":[{\"id\":\"" A "\",\"data\":}]}",
    };
    unsigned n;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (parse_gz(bad[i], strlen(bad[i]), &n) >= 0)
            fail_msg("accepted: %s", bad[i]);
    }
    static const char good[] = "{\"entries\":[" ENTRY(A, T1, "{\"k\":[1,\"<\"]}") "," DELETED(B, T2) "]}\n";
    assert_int_equal(parse_gz(good, sizeof good - 1, &n), 0);
    assert_int_equal(n, 2);
    for (size_t i = 0; i < sizeof good - 2; i++)
        assert_true(parse_gz(good, i, &n) < 0);
    char copy[sizeof good];
    for (size_t i = 0; i < (sizeof good - 1) * 8; i++) {
        memcpy(copy, good, sizeof good);
        copy[i / 8] = (char)(copy[i / 8] ^ 1 << i % 8);
        parse_gz(copy, sizeof good - 1, &n);
    }
    /* The same to the compressed form, and several members in a row, as gzip allows. */
    struct err e = ERR_INIT;
    uint8_t *gz CLEANUP_FREE = NULL, both[1000];
    int64_t len = gzip_compress(good, sizeof good - 1, &gz, &e);
    assert_ok(len, &e);
    for (int64_t i = 0; i < len; i++) {
        uint8_t *cut CLEANUP_FREE = malloc((size_t)i + 1);
        memcpy(cut, gz, (size_t)i);
        assert_true(manifest_collection_parse(cut, (size_t)i, count, &n, &e) < 0);
    }
    for (int64_t i = 0; i < len * 8; i++) {
        gz[i / 8] = (uint8_t)(gz[i / 8] ^ 1 << i % 8);
        manifest_collection_parse(gz, (size_t)len, count, &n, &e);
        gz[i / 8] = (uint8_t)(gz[i / 8] ^ 1 << i % 8);
    }
    uint8_t *head CLEANUP_FREE = NULL, *tail CLEANUP_FREE = NULL;
    int64_t h = gzip_compress(good, 20, &head, &e), r = gzip_compress(good + 20, sizeof good - 21, &tail, &e);
    memcpy(both, head, (size_t)h);
    memcpy(both + h, tail, (size_t)r);
    n = 0;
    assert_ok(manifest_collection_parse(both, (size_t)(h + r), count, &n, &e), &e);
    assert_int_equal(n, 2);
}

/* One damaged collection makes all manifests unreadable, as for stock clients. */
static void test_damaged_repository(void **state)
{
    (void)state;
    struct testrepo t;
    struct err e = ERR_INIT;
    testrepo_new(&t, "FIXED-128K", NULL);
    put_collection(&t, "{\"entries\":[" ENTRY(A, T1, "1") "]}");
    put_collection(&t, "{\"entries\":[" ENTRY(B, T1, "1") "],\"oops\":1}");
    testrepo_flush(&t);
    json_t *out = json_object();
    assert_true(manifests_each(t.r, NULL, gather, out, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_non_null(strstr(e.msg, "manifest content m"));
    json_decref(out);
    testrepo_free(&t);
}

/* ---- batches ---- */

static int find_one(const struct manifest *m, void *arg)
{
    struct manifest *ret = arg;
    memcpy(ret->id, m->id, sizeof ret->id);
    ret->modified_ns = m->modified_ns;
    ret->labels = json_incref(m->labels);
    ret->data = json_incref(m->data);
    return 0;
}

static int count_one(const struct manifest *m, void *arg)
{
    (void)m;
    ++*(int *)arg;
    return 0;
}

static int live(struct manifests *m)
{
    struct err e = ERR_INIT;
    int n = 0;
    assert_ok(manifests_walk(m, NULL, NULL, count_one, &n, &e), &e);
    return n;
}

static void remove_packs(const struct testrepo *t)
{
    char cmd[300];
    snprintf(cmd, sizeof cmd, "find %s -path '*/q*' -name '*.f' -delete", t->dir);
    assert_int_equal(system(cmd), 0);
}

/* Labels are there, the document is not parsed. */
static bool choose_k(const struct manifest *m, void *arg)
{
    (void)arg;
    assert_null(m->data);
    return !strcmp(json_string_value(json_object_get(m->labels, "k")), "<&>");
}

static bool choose_none(const struct manifest *m, void *arg)
{
    (void)arg;
    return m->data != NULL;
}

static void test_batch(void **state)
{
    (void)state;
    struct testrepo t;
    struct err e = ERR_INIT;
    struct manifest_batch *b = NULL;
    char id[33], gone[33], second[33];
    testrepo_new(&t, "FIXED-128K", NULL);
    assert_ok(manifest_batch_new(&b, &e), &e);
    assert_ok(manifest_batch_put(b, t.s, t.p, &e), &e); /* nothing to do, nothing written */
    json_t *labels = json_pack("{s:s, s:s}", "type", "x", "k", "<&>"), *data = json_pack("{s:i}", "v", 1);
    json_t *no_type = json_pack("{s:s}", "k", "v"), *odd = json_pack("{s:s, s:i}", "type", "x", "k", 5);
    assert_int_equal(manifest_batch_add(b, no_type, data, NULL, &e), -EINVAL);
    assert_int_equal(manifest_batch_add(b, odd, data, NULL, &e), -EINVAL);
    assert_int_equal(manifest_batch_delete(b, "xyz", &e), -EINVAL);
    int64_t before = now_ns();
    assert_ok(manifest_batch_add(b, labels, data, id, &e), &e);
    json_object_set_new(data, "v", json_integer(2)); /* the batch has a copy */
    assert_ok(manifest_batch_add(b, labels, data, gone, &e), &e);
    assert_ok(manifest_batch_delete(b, gone, &e), &e);
    assert_ok(manifest_batch_put(b, t.s, t.p, &e), &e);
    testrepo_flush(&t);

    struct manifests *m = NULL;
    struct manifest got = {.id = ""};
    assert_ok(manifests_open(&m, t.r, &e), &e);
    assert_int_equal(live(m), 1);
    assert_ok(manifests_walk(m, "x", NULL, find_one, &got, &e), &e);
    assert_string_equal(got.id, id);
    assert_true(got.modified_ns >= before && got.modified_ns <= now_ns());
    assert_true(json_equal(got.labels, labels));
    assert_int_equal(json_integer_value(json_object_get(got.data, "v")), 1);
    json_decref(got.labels);
    json_decref(got.data);
    manifests_free(m);

    /* An update: a new id and a tombstone, together. */
    assert_ok(manifest_batch_add(b, labels, data, second, &e), &e);
    assert_ok(manifest_batch_delete(b, id, &e), &e);
    assert_ok(manifest_batch_delete(b, id, &e), &e); /* twice is once */
    assert_ok(manifest_batch_put(b, t.s, t.p, &e), &e);
    testrepo_flush(&t);
    assert_ok(manifests_open(&m, t.r, &e), &e);
    assert_int_equal(live(m), 1);
    got = (struct manifest){.id = ""};
    assert_ok(manifests_walk(m, NULL, NULL, find_one, &got, &e), &e);
    assert_string_equal(got.id, second);
    assert_int_equal(json_integer_value(json_object_get(got.data, "v")), 2);
    json_decref(got.labels);
    json_decref(got.data);
    int n = 0;
    assert_ok(manifests_choose(m, "x", choose_none, count_one, &n, &e), &e);
    assert_int_equal(n, 0);
    assert_ok(manifests_choose(m, "y", choose_k, count_one, &n, &e), &e);
    assert_int_equal(n, 0);
    assert_ok(manifests_choose(m, "x", choose_k, count_one, &n, &e), &e);
    assert_int_equal(n, 1);
    manifests_free(m);

    /* What was read once is not read again: without its packs it is walked all the same. */
    remove_packs(&t);
    assert_ok(manifests_open(&m, t.r, &e), &e);
    assert_int_equal(live(m), 1);
    manifests_free(m);
    manifest_batch_free(b);
    json_decref(labels);
    json_decref(data);
    json_decref(no_type);
    json_decref(odd);
    testrepo_free(&t);
}

/* Many manifests in many collections: the table grows, each is delivered once. */
static int tally(const struct manifest *m, void *arg)
{
    ++((unsigned *)arg)[json_integer_value(m->data)];
    return 0;
}

static void test_many(void **state)
{
    (void)state;
    enum { N = 3000 };
    struct testrepo t;
    struct err e = ERR_INIT;
    struct manifest_batch *b = NULL;
    json_t *labels = json_pack("{s:s}", "type", "x");
    unsigned *seen CLEANUP_FREE = calloc(N, sizeof *seen);
    testrepo_new(&t, "FIXED-128K", NULL);
    assert_ok(manifest_batch_new(&b, &e), &e);
    for (int i = 0; i < N; i++) {
        json_t *data = json_integer(i);
        assert_ok(manifest_batch_add(b, labels, data, NULL, &e), &e);
        json_decref(data);
        if (i % 700 == 0)
            assert_ok(manifest_batch_put(b, t.s, t.p, &e), &e);
    }
    assert_ok(manifest_batch_put(b, t.s, t.p, &e), &e);
    testrepo_flush(&t);
    assert_ok(manifests_each(t.r, "x", tally, seen, &e), &e);
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    manifest_batch_free(b);
    json_decref(labels);
    testrepo_free(&t);
}

static int stop_at_first(const struct manifest *m, void *arg)
{
    (void)m;
    atomic_store((_Atomic bool *)arg, true);
    return 0;
}

static int count_only(const struct manifest *m, void *arg)
{
    (void)m;
    ++*(unsigned *)arg;
    return 0;
}

/* What others wrote can be long: ids that all have the same beginning cost no more than random ones, and a cancel is
 * obeyed in the middle. */
static void test_hostile_ids(void **state)
{
    (void)state;
    enum { N = 60000 };
    struct testrepo t;
    struct err e = ERR_INIT;
    testrepo_new(&t, "FIXED-128K", NULL);
    char *text = malloc(N * 120 + 100), *p = text + sprintf(text, "{\"entries\":[");
    for (int i = 0; i < N; i++)
        p += sprintf(p,
                     "%s{\"id\":\"000000000000000000000000%08x\",\"labels\":{\"type\":\"x\"},\"modified\":\"" T1
                     "\",\"data\":1}",
                     i ? "," : "", i);
    strcpy(p, "]}");
    put_collection(&t, text);
    testrepo_flush(&t);
    unsigned n = 0;
    const clock_t began = clock(); /* of the CPU */
    assert_ok(manifests_each(t.r, "x", count_only, &n, &e), &e);
    assert_int_equal(n, N);
    if (!getenv("SNAPFERRY_SANITIZED"))
        assert_true(clock() - began < 5 * CLOCKS_PER_SEC); /* they took 20 s when the id was the hash */
    _Atomic bool stop = false;
    blobs_stop(repo_blobs(t.r), &stop);
    assert_true(manifests_each(t.r, "x", stop_at_first, &stop, &e) < 0);
    assert_int_equal(e.cls, ERR_INTERRUPTED);
    blobs_stop(repo_blobs(t.r), NULL);
    free(text);
    testrepo_free(&t);
}

/* ---- what stock wrote ---- */

static int collect(const struct manifest *m, void *arg)
{
    char text[TIME_TEXT];
    json_array_append_new((json_t *)arg, json_pack("{s:s, s:O, s:s, s:O}", "id", m->id, "labels", m->labels, "modified",
                                                   time_text(m->modified_ns, text), "data", m->data));
    return 0;
}

static int by_id(const void *a, const void *b)
{
    return strcmp(json_string_value(json_object_get(*(json_t *const *)a, "id")),
                  json_string_value(json_object_get(*(json_t *const *)b, "id")));
}

static void test_golden(void **state)
{
    (void)state;
    static const char *const names[] = {"manifests-compacted", "policies",  "users-acl",  "two-clients", "empty",
                                        "v1-compacted",        "odd-names", "create-only"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct testrepo t;
        struct err e = ERR_INIT;
        json_t *x = testrepo_golden(&t, names[i]), *got = json_array();
        const json_t *want = json_object_get(x, "manifests");
        assert_ok(manifests_each(t.r, NULL, collect, got, &e), &e);
        size_t n = json_array_size(got);
        assert_int_equal(n, json_array_size(want));
        json_t **sorted CLEANUP_FREE = calloc(n + 1, sizeof *sorted);
        for (size_t k = 0; k < n; k++)
            sorted[k] = json_array_get(got, k);
        qsort(sorted, n, sizeof *sorted, by_id);
        for (size_t k = 0; k < n; k++)
            assert_true(json_equal(sorted[k], json_array_get(want, k)));
        json_decref(got);
        json_decref(x);
        testrepo_free(&t);
    }
}

/* The manifests of a new repository are those that stock writes. */
static void test_initialise(void **state)
{
    (void)state;
    struct testrepo t, stock;
    struct err e = ERR_INIT;
    testrepo_new(&t, "FIXED-128K", NULL);
    assert_ok(manifests_initialise(t.r, "backup@vault1", "", &e), &e);
    assert_ok(index_set_refresh(repo_index(t.r), &e), &e);
    json_t *x = testrepo_golden(&stock, "empty"), *got = json_array();
    assert_ok(manifests_each(t.r, NULL, collect, got, &e), &e);
    assert_int_equal(json_array_size(got), 2);
    unsigned same = 0;
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < json_array_size(json_object_get(x, "manifests")); k++) {
            const json_t *a = json_array_get(got, i), *b = json_array_get(json_object_get(x, "manifests"), k);
            if (!json_equal(json_object_get(a, "labels"), json_object_get(b, "labels")))
                continue;
            /* Byte for byte, members in the same order. */
            char *p CLEANUP_FREE = json_go_text(json_object_get(a, "data"), false, NULL);
            char *q CLEANUP_FREE = json_go_text(json_object_get(b, "data"), false, NULL);
            assert_string_equal(p, q);
            same++;
        }
    }
    assert_int_equal(same, 2);
    json_decref(got);
    json_decref(x);
    testrepo_free(&stock);
    testrepo_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge),  cmocka_unit_test(test_damage),     cmocka_unit_test(test_damaged_repository),
        cmocka_unit_test(test_batch),  cmocka_unit_test(test_many),       cmocka_unit_test(test_hostile_ids),
        cmocka_unit_test(test_golden), cmocka_unit_test(test_initialise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
