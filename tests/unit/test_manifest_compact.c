/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Many small contents of manifests become few (CF-40): the manifests stay the same, whoever writes meanwhile. */
#include "base/time.h"
#include "tests/unit/testrepo.h"
#include "tests/unit/wrapped_store.h"

#include "repo/compress.h"
#include "repo/gojson.h"
#include "repo/manifest-compact.h"
#include "repo/manifest-parts.h"
#include "repo/tombstones.h"

#include <zlib.h>

#define LATER_NS (2 * NS_PER_H) /* so that nothing of a test is young */

/* ---- what is there ---- */

static uint64_t seed = 88172645463325252;

static uint32_t any_number(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 16);
}

static struct content_id put_text(struct testrepo *t, const char *text)
{
    struct err e = ERR_INIT;
    uint8_t *gz CLEANUP_FREE = NULL;
    struct content_id id;
    int64_t n = gzip_compress(text, strlen(text), &gz, &e);
    assert_ok(n, &e);
    assert_ok(session_put_bytes(t->s, t->p, 'm', gz, (size_t)n, 0x1101, &id, &e), &e);
    testrepo_flush(t);
    return id;
}

/* An entry of manifest number i with a document of `len` letters that do not compress well. */
static char *entry_text(char *out, size_t room, unsigned i, int64_t modified_ns, bool deleted, size_t len)
{
    char when[TIME_TEXT], id[33];
    snprintf(id, sizeof id, "%032x", i * 2654435761u);
    time_text(modified_ns, when);
    if (deleted) {
        snprintf(out, room, "{\"id\":\"%s\",\"labels\":null,\"modified\":\"%s\",\"deleted\":true,\"data\":null}", id,
                 when);
        return out;
    }
    size_t n = (size_t)snprintf(out, room, "{\"id\":\"%s\",\"labels\":{\"type\":\"t\"},\"modified\":\"%s\",\"data\":\"",
                                id, when);
    for (size_t k = 0; k < len; k++)
        out[n++] = (char)('A' + any_number() % 26 + (any_number() % 2 ? 32 : 0));
    snprintf(out + n, room - n, "\"}");
    return out;
}

static struct content_id put_entry(struct testrepo *t, unsigned i, int64_t modified_ns, bool deleted, size_t len)
{
    static char text[200000], all[200100];
    snprintf(all, sizeof all, "{\"entries\":[%s]}", entry_text(text, sizeof text, i, modified_ns, deleted, len));
    return put_text(t, all);
}

static int gather(const struct manifest *m, void *arg)
{
    char when[TIME_TEXT];
    assert_null(json_object_get(arg, m->id));
    json_object_set_new(arg, m->id, json_pack("[O, O, s]", m->labels, m->data, time_text(m->modified_ns, when)));
    return 0;
}

static json_t *live(struct testrepo *t)
{
    struct err e = ERR_INIT;
    json_t *out = json_object();
    assert_ok(index_set_refresh(repo_index(t->r), &e), &e);
    assert_ok(manifests_each(t->r, NULL, gather, out, &e), &e);
    return out;
}

static void expect_same(struct testrepo *t, json_t *want)
{
    json_t *got = live(t);
    assert_int_equal(json_object_size(got), json_object_size(want));
    assert_true(json_equal(got, want));
    json_decref(got);
    json_decref(want);
}

static size_t contents(struct testrepo *t, size_t small, size_t *n_small)
{
    struct err e = ERR_INIT;
    struct manifests *m CLEANUP(manifests_freep) = NULL;
    assert_ok(index_set_refresh(repo_index(t->r), &e), &e);
    assert_ok(manifests_list(&m, t->r, &e), &e);
    for (size_t i = 0; i < m->n_contents && n_small; i++)
        *n_small += m->contents[i].length < small;
    return m->n_contents;
}

static struct manifest_compacted compact(struct testrepo *t, const struct manifest_compact_opts *o)
{
    struct err e = ERR_INIT;
    struct manifest_compacted done;
    struct manifest_compact_opts with = *o;
    with.now_ns = with.now_ns ? with.now_ns : now_ns() + LATER_NS;
    assert_ok(manifests_compact(t->r, &with, &done, &e), &e);
    return done;
}

/* ---- by one client ---- */

static void test_few_and_many(void **state)
{
    (void)state;
    struct testrepo t;
    const struct manifest_compact_opts o = {.thorough = true}, dry = {.dry_run = true, .thorough = true};
    testrepo_new(&t, "FIXED-128K", NULL);
    assert_int_equal(compact(&t, &o).contents, 0);
    for (unsigned i = 0; i < 15; i++)
        put_entry(&t, i, now_ns(), false, 20);
    assert_int_equal(compact(&t, &o).merged, 0);
    put_entry(&t, 3, now_ns(), true, 0);
    json_t *want = live(&t);
    assert_int_equal(json_object_size(want), 14);
    struct manifest_compacted c = compact(&t, &dry);
    assert_int_equal(c.contents, 16);
    assert_int_equal(c.merged, 16);
    assert_int_equal(c.entries, 15);
    assert_int_equal(contents(&t, 0, NULL), 16);
    c = compact(&t, &o);
    assert_int_equal(c.merged, 16);
    assert_int_equal(c.written, 1);
    assert_int_equal(c.entries, 15); /* with the tombstone */
    assert_int_equal(contents(&t, 0, NULL), 1);
    expect_same(&t, want);
    c = compact(&t, &o);
    assert_int_equal(c.merged + c.written, 0);
    testrepo_free(&t);
}

/* Random changes, with tiers of a few KiB: what is live stays so, contents stay few, and an entry is not stored again
 * for each run. */
static void test_random(void **state)
{
    (void)state;
    struct testrepo t;
    uint64_t put = 0, again = 0, dropped = 0;
    testrepo_new(&t, "FIXED-128K", NULL);
    json_t *want = json_object();
    for (unsigned round = 0; round < 700; round++) {
        const unsigned i = any_number() % 120;
        const bool deleted = any_number() % 3 == 0;
        put_entry(&t, i, now_ns(), deleted, deleted ? 0 : 10 + any_number() % 300);
        put++;
        if (round % 7)
            continue;
        json_decref(want);
        want = live(&t);
        const struct manifest_compact_opts o = {
            .thorough = any_number() % 2, .drop_tombstones = any_number() % 2, .content_bytes = 8192};
        const struct manifest_compacted c = compact(&t, &o);
        again += c.entries;
        dropped += c.dropped;
        expect_same(&t, json_incref(want));
        size_t small = 0;
        contents(&t, 8192 / 4, &small);
        assert_true(small < 16);
    }
    print_message("%llu entries put, %llu stored again, %llu tombstones left out, %zu contents\n",
                  (unsigned long long)put, (unsigned long long)again, (unsigned long long)dropped,
                  contents(&t, 0, NULL));
    assert_true(dropped > 10);
    assert_true(again < 8 * put);
    assert_true(contents(&t, 0, NULL) < 24);
    json_decref(want);
    testrepo_free(&t);
}

/* A content has a bounded size; full ones stay as they are, and are stored again when most in them is gone. */
static void test_large(void **state)
{
    (void)state;
    struct testrepo t;
    struct manifest_compact_opts o = {.content_bytes = 65536};
    testrepo_new(&t, "FIXED-128K", NULL);
    for (unsigned i = 0; i < 40; i++)
        put_entry(&t, i, now_ns(), false, i == 7 ? 190000 : 8000);
    json_t *want = live(&t);
    struct manifest_compacted c = compact(&t, &o);
    assert_int_equal(c.merged, 39); /* one is larger than any */
    assert_in_range(c.written, 3, 6);
    struct err e = ERR_INIT;
    struct manifests *m = NULL;
    assert_ok(index_set_refresh(repo_index(t.r), &e), &e);
    assert_ok(manifests_list(&m, t.r, &e), &e);
    size_t beyond = 0;
    for (size_t i = 0; i < m->n_contents; i++)
        beyond += m->contents[i].length > 2 * 65536; /* what deflate has not yet given out is beyond the limit */
    assert_int_equal(beyond, 1);
    manifests_free(m);
    expect_same(&t, want);
    for (unsigned i = 100; i < 120; i++)
        put_entry(&t, i, now_ns(), false, 20);
    want = live(&t);
    c = compact(&t, &o);
    assert_in_range(c.merged, 20, 21); /* the last one of those written before may be short */
    assert_true(c.merged_bytes < 25000);
    expect_same(&t, want);
    for (unsigned i = 0; i < 30; i++)
        put_entry(&t, i, now_ns(), true, 0);
    want = live(&t);
    compact(&t, &o);
    assert_true(contents(&t, 0, NULL) >= 5);
    o.thorough = true;
    c = compact(&t, &o);
    assert_true(c.merged >= 2);
    assert_true(contents(&t, 0, NULL) <= 5);
    expect_same(&t, want);
    assert_int_equal(compact(&t, &o).merged, 0);
    testrepo_free(&t);
}

/* A tombstone stays until no content has another entry of its manifest, and it is old. */
static void test_tombstones(void **state)
{
    (void)state;
    struct testrepo t;
    const int64_t t0 = now_ns() - 3 * NS_PER_H;
    struct manifest_compact_opts o = {.thorough = true, .drop_tombstones = true, .tombstone_age_ns = 4 * NS_PER_H};
    testrepo_new(&t, "FIXED-128K", NULL);
    put_entry(&t, 1, t0, false, 10);
    put_entry(&t, 1, t0 + 1, true, 0);
    for (unsigned i = 2; i < 16; i++)
        put_entry(&t, i, t0, false, 10);
    struct manifest_compacted c = compact(&t, &o); /* not by the run that merges both */
    assert_int_equal(c.entries, 15);
    assert_int_equal(c.dropped, 0);
    for (unsigned i = 30; i < 45; i++)
        put_entry(&t, i, t0, false, 10);
    json_t *want = live(&t);
    o.now_ns = now_ns() + 31 * NS_PER_MIN; /* too young */
    c = compact(&t, &o);
    assert_int_equal(c.merged, 16);
    assert_int_equal(c.dropped, 0);
    expect_same(&t, want);
    for (unsigned i = 50; i < 65; i++)
        put_entry(&t, i, t0, false, 10);
    want = live(&t);
    o.now_ns = 0;
    o.drop_tombstones = false;
    o.dry_run = true;
    assert_int_equal(compact(&t, &o).dropped, 0);
    o.drop_tombstones = true;
    assert_int_equal(compact(&t, &o).dropped, 1);
    o.dry_run = false;
    c = compact(&t, &o);
    assert_int_equal(c.dropped, 1);
    assert_int_equal(c.entries, 14 + 15 + 15);
    expect_same(&t, want);
    testrepo_free(&t);
}

/* What this client does not understand stays as it was written. */
static void test_foreign(void **state)
{
    (void)state;
    struct testrepo t;
    struct err e = ERR_INIT;
    static const char odd[] = "{\"entries\":[{\"id\":\"other\",\"labels\":{\"type\":\"t\"},\"modified\":"
                              "\"2026-01-01T00:00:00Z\",\"data\":1}]}";
    static const char more[] = "{\"entries\":[{\"id\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\"labels\":{\"type\":\"t\"},"
                               "\"modified\":\"2026-01-01T00:00:00Z\",\"new\":[1e99],\"data\":{\"n\":1e999}}]}";
    testrepo_new(&t, "FIXED-128K", NULL);
    const struct content_id stays = put_text(&t, odd);
    put_text(&t, more);
    for (unsigned i = 0; i < 15; i++)
        put_entry(&t, i, now_ns(), false, 10);
    const struct manifest_compacted c = compact(&t, &(const struct manifest_compact_opts){.thorough = true});
    assert_int_equal(c.merged, 16);
    struct index_entry x;
    assert_ok(index_set_refresh(repo_index(t.r), &e), &e);
    assert_ok(index_set_find(repo_index(t.r), &stays, &x, &e), &e);
    assert_false(x.deleted);
    struct manifests *m = NULL;
    assert_ok(manifests_list(&m, t.r, &e), &e);
    assert_int_equal(m->n_contents, 2);
    bool found = false;
    for (size_t i = 0; i < 2; i++) {
        uint8_t *gz CLEANUP_FREE = NULL, text[100000] = {0};
        const int64_t n = manifests_get(m, &m->contents[i], NULL, &gz, &e);
        assert_ok(n, &e);
        z_stream z = {.next_in = gz, .avail_in = (uInt)n, .next_out = text, .avail_out = sizeof text - 1};
        assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
        assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
        inflateEnd(&z);
        found |= strstr((char *)text, "\"new\":[1e99],\"data\":{\"n\":1e999}}") != NULL;
    }
    assert_true(found);
    manifests_free(m);
    testrepo_free(&t);
}

static void test_damage(void **state)
{
    (void)state;
    struct testrepo t;
    struct err e = ERR_INIT;
    struct manifest_compacted c;
    testrepo_new(&t, "FIXED-128K", NULL);
    for (unsigned i = 0; i < 16; i++)
        put_entry(&t, i, now_ns(), false, 10);
    put_text(&t, "{\"entries\":[5]}");
    const struct manifest_compact_opts o = {.thorough = true, .now_ns = now_ns() + LATER_NS};
    assert_true(manifests_compact(t.r, &o, &c, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_int_equal(contents(&t, 0, NULL), 17);
    testrepo_free(&t);
}

/* ---- while others write ---- */

struct others {
    struct testrepo *t;
    unsigned calls, at; /* the call at which something happens, once */
    void (*act)(struct testrepo *t);
    int then; /* its return value */
};

static int others_act(void *arg, uint64_t bytes, struct err *e)
{
    struct others *x = arg;
    (void)e;
    assert_true(bytes > 0 || x->calls % 2 == 1);
    if (x->calls++ != x->at)
        return 1;
    if (x->act)
        x->act(x->t);
    return x->then;
}

static void delete_five(struct testrepo *t)
{
    put_entry(t, 5, now_ns(), true, 0);
}

static void add_some(struct testrepo *t)
{
    put_entry(t, 900, now_ns(), false, 100);
}

/* What a stock client does: all that stands in one content, without tombstones, and the others marked deleted. */
static void stock_compacts(struct testrepo *t)
{
    struct err e = ERR_INIT;
    struct manifests *m CLEANUP(manifests_freep) = NULL;
    struct tombstones *dead CLEANUP(tombstones_freep) = NULL;
    assert_ok(index_set_refresh(repo_index(t->r), &e), &e);
    assert_ok(manifests_list(&m, t->r, &e), &e);
    json_t *all = live(t), *entries = json_array(), *v, *doc;
    const char *id;
    json_object_foreach(all, id, v)
        json_array_append_new(entries, json_pack("{s:s, s:O, s:O, s:O}", "id", id, "labels", json_array_get(v, 0),
                                                 "modified", json_array_get(v, 2), "data", json_array_get(v, 1)));
    doc = json_pack("{s:o}", "entries", entries);
    char *text CLEANUP_FREE = json_dumps(doc, 0);
    const struct content_id mine = put_text(t, text);
    assert_ok(index_set_refresh(repo_index(t->r), &e), &e);
    assert_ok(tombstones_new(&dead, t->r, &e), &e);
    for (size_t i = 0; i < m->n_contents; i++) {
        struct index_entry x;
        manifest_place_entry(&m->contents[i], &x);
        if (!content_id_equal(&x.id, &mine))
            assert_ok(tombstones_add(dead, &x, &e), &e);
    }
    assert_ok(tombstones_flush(dead, &e), &e);
    json_decref(doc);
    json_decref(all);
}

static void stock_deletes(struct testrepo *t)
{
    delete_five(t);
    stock_compacts(t);
}

/* Another run of ours, on a machine with a cache of its own: it merges the same. */
static void ours_compacts(struct testrepo *t)
{
    const struct manifest_compacted c =
        compact(t, &(const struct manifest_compact_opts){.thorough = true, .drop_tombstones = true});
    assert_int_equal(c.merged, 20);
}

static void play(struct others *x, struct manifest_compacted *c)
{
    struct testrepo t;
    testrepo_new(&t, "FIXED-128K", NULL);
    for (unsigned i = 0; i < 20; i++)
        put_entry(&t, i, now_ns(), false, 10);
    json_t *want = live(&t);
    x->t = &t;
    *c = compact(&t, &(const struct manifest_compact_opts){
                         .thorough = true, .drop_tombstones = true, .may_write = others_act, .arg = x});
    assert_true(x->calls > x->at);
    char five[33];
    snprintf(five, sizeof five, "%032x", 5 * 2654435761u);
    json_t *got = live(&t);
    if (x->act == delete_five || x->act == stock_deletes)
        json_object_del(want, five);
    if (x->act == add_some)
        assert_int_equal(json_object_size(got), json_object_size(want) + 1);
    else
        assert_true(json_equal(got, want));
    assert_true(contents(&t, 0, NULL) <= 3);
    /* And stays so when all is merged once more, by whomever. */
    stock_compacts(&t);
    expect_same(&t, got);
    json_decref(want);
    testrepo_free(&t);
}

static void test_others(void **state)
{
    (void)state;
    struct manifest_compacted c;
    play(&(struct others){.act = add_some, .then = 1}, &c);
    assert_int_equal(c.conflicts, 0);
    assert_int_equal(c.merged, 20);
    play(&(struct others){.act = delete_five, .then = 1}, &c); /* before it writes: what it writes is taken back */
    assert_int_equal(c.conflicts, 1);
    assert_int_equal(c.merged, 21);
    play(&(struct others){.act = delete_five, .at = 1, .then = 1}, &c); /* after the check */
    assert_int_equal(c.conflicts, 0);
    play(&(struct others){.act = stock_compacts, .then = 1}, &c);
    assert_int_equal(c.conflicts, 1);
    assert_int_equal(c.merged, 0);
    play(&(struct others){.act = stock_deletes, .then = 1}, &c); /* which leaves no tombstone */
    assert_int_equal(c.conflicts, 1);
    play(&(struct others){.act = stock_deletes, .at = 1, .then = 1}, &c);
}

/* What it takes back is not what the other one has left, although that has the same manifests. */
static void test_the_same_twice(void **state)
{
    (void)state;
    struct manifest_compacted c;
    play(&(struct others){.act = ours_compacts, .then = 1}, &c);
    assert_int_equal(c.conflicts, 1);
    assert_int_equal(c.merged, 0);
}

/* The old ones are marked when what was written is listed, not before. */
static void test_lists_that_lag(void **state)
{
    (void)state;
    struct testrepo t;
    struct wrap_control control = WRAP_INIT;
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    struct manifest_compacted done;
    struct manifest_compact_opts o = {.thorough = true, .now_ns = now_ns() + LATER_NS, .listed_ns = NS_PER_S / 2};
    char cache[64], dir[64];
    testrepo_new(&t, "FIXED-128K", NULL);
    for (unsigned i = 0; i < 20; i++)
        put_entry(&t, i, now_ns(), false, 10);
    json_t *want = live(&t);
    struct repo *own = t.r;
    struct repo_opts ro = {.cache_dir = cache, .username = "test", .hostname = "host"};
    snprintf(cache, sizeof cache, "%s/cache", t.dir);
    snprintf(dir, sizeof dir, "%s/repo", t.dir);
    control.lags = true;
    assert_ok(blobs_open_dir(&b, dir, BLOBS_OPEN, NULL, 0, &e), &e);
    assert_ok(repo_open(&t.r, wrap_store_new(b, &control), "test", &ro, &e), &e);

    control.unlisted = 1000; /* not within the time given: nothing is marked, and the next run does it */
    assert_ok(manifests_compact(t.r, &o, &done, &e), &e);
    assert_in_range(control.unlisted, 990, 998);
    assert_int_equal(done.merged, 0);
    assert_int_equal(done.written, 1);
    assert_int_equal(contents(&t, 0, NULL), 21);
    expect_same(&t, json_incref(want));

    control.unlisted = 2;
    assert_ok(manifests_compact(t.r, &o, &done, &e), &e);
    assert_int_equal(control.unlisted, 0);
    assert_true(done.merged >= 20);
    assert_int_equal(contents(&t, 0, NULL), 1);
    expect_same(&t, want);
    repo_free(t.r);
    t.r = own;
    testrepo_free(&t);
}

/* Others change the same manifests at each attempt: all stays as it was. */
static int always_deletes(void *t, uint64_t bytes, struct err *e)
{
    (void)e;
    if (bytes)
        put_entry(t, 5, now_ns(), true, 0);
    return 1;
}

static void test_gives_way(void **state)
{
    (void)state;
    struct testrepo t;
    testrepo_new(&t, "FIXED-128K", NULL);
    for (unsigned i = 0; i < 20; i++)
        put_entry(&t, i, now_ns(), false, 10);
    const struct manifest_compacted c =
        compact(&t, &(const struct manifest_compact_opts){.may_write = always_deletes, .arg = &t});
    assert_int_equal(c.conflicts, 3);
    assert_int_equal(c.merged + c.written, 0);
    assert_int_equal(contents(&t, 0, NULL), 23);
    json_t *got = live(&t);
    assert_int_equal(json_object_size(got), 19);
    json_decref(got);
    testrepo_free(&t);
}

/* It ends before the marks: entries are in two contents. The next run stores nothing once more. */
static void test_ends_early(void **state)
{
    (void)state;
    struct testrepo t;
    testrepo_new(&t, "FIXED-128K", NULL);
    for (unsigned i = 0; i < 20; i++)
        put_entry(&t, i, now_ns(), false, 1000);
    json_t *want = live(&t);
    for (unsigned again = 0; again < 3; again++) {
        struct others x = {.at = 1, .then = 0};
        struct manifest_compact_opts o = {.content_bytes = 32768, .may_write = others_act, .arg = &x};
        compact(&t, &o);
        assert_int_equal(contents(&t, 0, NULL), 21);
        expect_same(&t, json_incref(want));
    }
    struct manifest_compact_opts o = {.content_bytes = 32768};
    struct manifest_compacted c = compact(&t, &o);
    assert_int_equal(c.merged, 20);
    assert_int_equal(c.written, 0);
    assert_int_equal(contents(&t, 0, NULL), 1);
    expect_same(&t, json_incref(want));
    /* At once after the other: it may still take back what it has stored, so that nothing is left out for it. */
    for (unsigned i = 0; i < 20; i++)
        put_entry(&t, 40 + i, now_ns(), false, 1000);
    json_decref(want);
    want = live(&t);
    struct others x = {.at = 1, .then = 0};
    compact(&t, &(const struct manifest_compact_opts){.content_bytes = 32768, .may_write = others_act, .arg = &x});
    o.now_ns = now_ns();
    c = compact(&t, &o);
    assert_int_equal(c.merged, 22);
    assert_int_equal(c.entries, 40);
    expect_same(&t, want);
    testrepo_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_and_many),   cmocka_unit_test(test_random),         cmocka_unit_test(test_large),
        cmocka_unit_test(test_tombstones),     cmocka_unit_test(test_foreign),        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_others),         cmocka_unit_test(test_gives_way),      cmocka_unit_test(test_ends_early),
        cmocka_unit_test(test_the_same_twice), cmocka_unit_test(test_lists_that_lag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
