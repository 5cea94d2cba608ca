/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_repair.c - the index rebuilt from packs: which entry stands, what happens between two steps, many contents.
 * e2e/repair.sh has whole repositories.
 */
#include "tests/unit/repo.h"

#include "daemon/mover/repair.h"
#include "repo/epoch-test.h"
#include "repo/tombstones.h"

#include <utime.h>

#define LEN 2000

/* ---- damage ---- */

static int add_name(const struct blob_info *info, void *arg)
{
    char(*names)[BLOB_NAME_MAX + 1] = arg;
    while (**names)
        names++;
    memcpy(*names, info->name, sizeof *names);
    return 0;
}

#define NAMES 64
static void names_of(struct repo *r, const char *prefix, char names[NAMES][BLOB_NAME_MAX + 1])
{
    memset(names, 0, NAMES * sizeof *names);
    assert_ok(blobs_list(repo_blobs(r), prefix, add_name, names, &err), &err);
}

/* All index blobs but those of `kept`. */
static void lose_index(struct repo *r, char (*kept)[BLOB_NAME_MAX + 1])
{
    char names[NAMES][BLOB_NAME_MAX + 1];
    names_of(r, "xn", names);
    for (unsigned i = 0; *names[i]; i++) {
        bool keep = false;
        for (unsigned k = 0; kept && *kept[k]; k++)
            keep |= !strcmp(kept[k], names[i]);
        if (!keep)
            assert_ok(blobs_delete(repo_blobs(r), names[i], &err), &err);
    }
}

static time_t old_time;
static int make_old(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    return flag == FTW_F ? utime(path, &(struct utimbuf){old_time, old_time}) : 0;
}

/* ---- repair ---- */

static unsigned reports[REPAIR_MANIFESTS + 1];
static void count_report(enum repair_kind kind, const char *name, const char *why, uint64_t contents, void *arg)
{
    (void)contents;
    (void)arg;
    assert_non_null(why);
    assert_true(strlen(name) > 0);
    reports[kind]++;
}

/* By a node without a cache of the index. */
static struct repo *open_damaged(struct place *p)
{
    struct blobs *b;
    struct repo *r;
    remove_tree(p->cache);
    struct repo_opts o = {.cache_dir = p->cache, .username = REPAIR_USER, .hostname = "here", .damaged = true};
    assert_ok(blobs_open_dir(&b, p->dir, BLOBS_OPEN, NULL, 0, &err), &err);
    assert_ok(repo_open(&r, b, PASSWORD, &o, &err), &err);
    return r;
}

static int repair(struct place *p, bool dry_run, struct repair_result *res, struct err *e)
{
    struct repo *r = open_damaged(p);
    const struct repair_opts o = {.dry_run = dry_run, .report = count_report};
    memset(reports, 0, sizeof reports);
    int rc = repair_run(r, &o, res, e);
    repo_free(r);
    return rc;
}

static void put_and_flush(struct repo *r, uint64_t first, unsigned n, size_t len)
{
    struct session *s = begin(r, 0);
    assert_true(put_range(s, first, n, len, &err) >= 0);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
}

static void find_content(struct repo *r, uint64_t number, size_t len, struct index_entry *ret, int expected)
{
    uint8_t data[LEN + 8];
    struct content_id id;
    fill(data, len, number, false);
    id_of(r, 0, data, len, &id);
    assert_int_equal(index_set_find(repo_index(r), &id, ret, &err), expected);
}

/* ---- tests ---- */

static void all_comes_back(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct repair_result dry, res;
    put_and_flush(p->repo, 0, 10, LEN);
    put_and_flush(p->repo, 10, 10, LEN);
    lose_index(p->repo, NULL);
    place_reopen(p);
    assert_true(read_range(p->repo, 0, 20, LEN, &err) < 0);
    assert_ok(repair(p, true, &dry, &err), &err);
    assert_int_equal(dry.contents.n, 20);
    assert_int_equal(count_blobs(p->repo, "xn"), 0);
    assert_ok(repair(p, false, &res, &err), &err);
    assert_int_equal(res.contents.n, 20);
    assert_int_equal(res.found, 2);
    assert_int_equal(reports[REPAIR_PACK], 2);
    assert_int_equal(count_blobs(p->repo, "s"), 0);
    place_reopen(p);
    assert_ok(read_range(p->repo, 0, 20, LEN, &err), &err);
    assert_ok(repair(p, false, &res, &err), &err);
    assert_int_equal(res.written, 0);
    place_free(p);
}

/* More than one batch. */
static void many_contents(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct repair_result res;
    put_and_flush(p->repo, 0, 70000, 24);
    const unsigned packs = count_packs(p->repo);
    lose_index(p->repo, NULL);
    assert_ok(repair(p, false, &res, &err), &err);
    assert_int_equal(res.contents.n, 70000);
    assert_int_equal(res.read, packs);
    assert_int_equal(res.written, 2);
    place_reopen(p);
    assert_ok(read_range(p->repo, 0, 200, 24, &err), &err);
    assert_ok(read_range(p->repo, 69000, 1000, 24, &err), &err);
    place_free(p);
}

static void marks_stand(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct repair_result res;
    struct index_entry x;
    struct tombstones *t;
    char before[NAMES][BLOB_NAME_MAX + 1], marks[NAMES][BLOB_NAME_MAX + 1];
    put_and_flush(p->repo, 0, 3, LEN);
    names_of(p->repo, "xn", before);
    assert_ok(index_set_refresh(repo_index(p->repo), &err), &err);
    find_content(p->repo, 1, LEN, &x, 0);
    assert_ok(tombstones_new(&t, p->repo, &err), &err);
    assert_ok(tombstones_add(t, &x, &err), &err);
    assert_ok(tombstones_flush(t, &err), &err);
    tombstones_free(t);
    /* What had the content is lost, what has the mark is not. */
    for (unsigned i = 0; *before[i]; i++)
        assert_ok(blobs_delete(repo_blobs(p->repo), before[i], &err), &err);
    names_of(p->repo, "xn", marks);
    assert_true(*marks[0] && !*marks[1]);
    assert_ok(repair(p, false, &res, &err), &err);
    assert_int_equal(res.contents.n, 2);
    place_reopen(p);
    find_content(p->repo, 1, LEN, &x, 0);
    assert_true(x.deleted);
    find_content(p->repo, 2, LEN, &x, 0);
    assert_false(x.deleted);
    place_free(p);
}

/* Stored again in another pack: the newer place is used, whether it is what was lost or what is left. */
static void flip_content(struct repo *r, const struct index_entry *x)
{
    CLEANUP_FREE uint8_t *pack = NULL;
    size_t len;
    assert_ok(blobs_get(repo_blobs(r), x->pack, 1 << 24, &pack, &len, &err), &err);
    pack[x->offset + x->packed / 2] ^= 1;
    assert_ok(blobs_put(repo_blobs(r), x->pack, pack, len, &err), &err);
}

/* Those that the index has lost, too, if they can be read: the third time they cannot. */
static void newer_places_stand(void **state)
{
    (void)state;
    for (int lost = 0; lost < 3; lost++) {
        struct place *p = place_new(NULL);
        struct repair_result res;
        struct index_entry first, again, now;
        struct content_id id;
        char names[2][NAMES][BLOB_NAME_MAX + 1];
        uint8_t data[LEN + 8];
        put_and_flush(p->repo, 0, 3, LEN);
        names_of(p->repo, "xn", names[0]);
        assert_ok(index_set_refresh(repo_index(p->repo), &err), &err);
        find_content(p->repo, 1, LEN, &first, 0);
        struct session *s = begin(p->repo, 0);
        struct put_scratch *scratch = scratch_for(p->repo, LEN);
        struct put_result put;
        fill(data, LEN, 1, false);
        id_of(p->repo, 0, data, LEN, &id);
        assert_ok(session_put_again(s, scratch, &id, data, LEN, 0, &put, &err), &err);
        assert_false(put.existed);
        assert_ok(session_flush(s, &err), &err);
        put_scratch_free(scratch);
        session_free(s);
        assert_ok(index_set_refresh(repo_index(p->repo), &err), &err);
        find_content(p->repo, 1, LEN, &again, 0);
        assert_string_not_equal(first.pack, again.pack);
        /* Of two index blobs one is lost. */
        names_of(p->repo, "xn", names[1]);
        for (unsigned i = 0; *names[1][i]; i++)
            if (!strcmp(names[1][i], names[0][0]) == !lost)
                assert_ok(blobs_delete(repo_blobs(p->repo), names[1][i], &err), &err);
        if (lost == 2)
            flip_content(p->repo, &again);
        assert_ok(repair(p, false, &res, &err), &err);
        assert_int_equal(res.contents.n, 2 - lost);
        place_reopen(p);
        find_content(p->repo, 1, LEN, &now, 0);
        assert_string_equal(now.pack, lost < 2 ? again.pack : first.pack);
        assert_int_equal(now.time, lost < 2 ? again.time : first.time);
        assert_ok(read_range(p->repo, 0, 3, LEN, &err), &err);
        place_free(p);
    }
}

/* By one that cannot be read no client could read any of the others: it is left out, and told. */
static void damaged_manifests_are_left_out(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct repair_result res;
    struct index_entry x;
    struct content_id id;
    struct put_result put;
    uint8_t data[LEN];
    put_and_flush(p->repo, 0, 3, LEN);
    struct session *s = begin(p->repo, 0);
    struct put_scratch *scratch = scratch_for(p->repo, LEN);
    fill(data, LEN, 7, false);
    id_of(p->repo, MANIFEST_PREFIX, data, LEN, &id);
    assert_ok(session_put(s, scratch, &id, data, LEN, 0, &put, &err), &err);
    assert_ok(session_flush(s, &err), &err);
    put_scratch_free(scratch);
    session_free(s);
    assert_ok(index_set_refresh(repo_index(p->repo), &err), &err);
    assert_ok(index_set_find(repo_index(p->repo), &id, &x, &err), &err);
    flip_content(p->repo, &x);
    lose_index(p->repo, NULL);
    assert_int_equal(repair(p, false, &res, &err), -EBADMSG);
    assert_non_null(strstr(err.msg, "of manifests that no index has cannot be read"));
    assert_int_equal(res.manifests, 1);
    assert_int_equal(reports[REPAIR_MANIFESTS], 1);
    assert_int_equal(res.contents.n, 3);
    place_reopen(p);
    assert_int_equal(index_set_find(repo_index(p->repo), &id, &x, &err), -ENOENT);
    assert_ok(read_range(p->repo, 0, 3, LEN, &err), &err);
    place_free(p);
}

/* ---- a maintenance that had begun before ---- */

struct deletion {
    struct place *p;
    char pack[BLOB_NAME_MAX + 1];
    unsigned markers;
};

static void delete_pack(void *arg, const char *step)
{
    struct deletion *d = arg;
    struct blobs *b;
    if (strcmp(step, "put") != 0 || !*d->pack)
        return;
    d->markers = count_blobs(d->p->repo, "s");
    assert_ok(blobs_open_dir(&b, d->p->dir, BLOBS_OPEN, NULL, 0, &err), &err);
    assert_ok(blobs_delete(b, d->pack, &err), &err);
    blobs_free(b);
    d->pack[0] = '\0';
}

static void a_pack_vanishes(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct repair_result res;
    struct index_entry x;
    struct err e = ERR_INIT;
    char path[1100];
    put_and_flush(p->repo, 0, 5, LEN);
    put_and_flush(p->repo, 5, 5, LEN);
    assert_ok(index_set_refresh(repo_index(p->repo), &err), &err);
    struct deletion d = {.p = p};
    find_content(p->repo, 7, LEN, &x, 0);
    memcpy(d.pack, x.pack, sizeof d.pack);
    old_time = time(NULL) - 3 * 86400;
    snprintf(path, sizeof path, "%s/p", p->dir);
    assert_int_equal(nftw(path, make_old, 32, FTW_PHYS), 0);
    lose_index(p->repo, NULL);
    const struct epoch_hooks hooks = {.step = delete_pack, .arg = &d};
    epoch_set_hooks(&hooks);
    int rc = repair(p, false, &res, &e);
    epoch_set_hooks(NULL);
    assert_int_equal(rc, -EBUSY);
    assert_int_equal(e.cls, ERR_BUSY);
    assert_int_equal(res.vanished, 1);
    assert_int_equal(d.markers, 3); /* of both packs, and of the repair */
    assert_int_equal(count_blobs(p->repo, "s"), 0);
    place_reopen(p);
    assert_ok(read_range(p->repo, 0, 5, LEN, &err), &err);
    for (unsigned i = 5; i < 10; i++) {
        find_content(p->repo, i, LEN, &x, 0);
        assert_true(x.deleted); /* nobody takes it for stored */
        assert_int_equal(repo_has(p->repo, &x.id, &err), 0);
    }
    put_and_flush(p->repo, 5, 5, LEN);
    assert_ok(read_range(p->repo, 0, 10, LEN, &err), &err);
    place_free(p);
}

/* The same blob twice. */
static void set_aside_twice(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct repair_result res;
    char names[NAMES][BLOB_NAME_MAX + 1];
    CLEANUP_FREE uint8_t *good = NULL;
    size_t len;
    put_and_flush(p->repo, 0, 5, LEN);
    names_of(p->repo, "xn", names);
    assert_ok(blobs_get(repo_blobs(p->repo), names[0], MIB, &good, &len, &err), &err);
    good[len / 2] ^= 1;
    assert_ok(blobs_put(repo_blobs(p->repo), names[0], good, len, &err), &err);
    assert_ok(repair(p, false, &res, &err), &err);
    assert_int_equal(res.bad, 1);
    assert_int_equal(res.aside, 1);
    assert_int_equal(reports[REPAIR_BAD_INDEX], 1);
    assert_int_equal(reports[REPAIR_ASIDE], 1);
    assert_int_equal(count_blobs(p->repo, "damaged-"), 1);
    /* The same name is damaged once more. */
    assert_ok(blobs_put(repo_blobs(p->repo), names[0], good, len, &err), &err);
    assert_ok(repair(p, false, &res, &err), &err);
    assert_int_equal(res.aside, 1);
    assert_int_equal(res.contents.n, 0);
    assert_int_equal(count_blobs(p->repo, "damaged-"), 2);
    place_reopen(p);
    assert_ok(read_range(p->repo, 0, 5, LEN, &err), &err);
    place_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_comes_back),
        cmocka_unit_test(many_contents),
        cmocka_unit_test(marks_stand),
        cmocka_unit_test(newer_places_stand),
        cmocka_unit_test(damaged_manifests_are_left_out),
        cmocka_unit_test(a_pack_vanishes),
        cmocka_unit_test(set_aside_twice),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
