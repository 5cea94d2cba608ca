/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_movers_check.c - what a snapshot must be before a native snapshot is pruned for it (RS-18), or it is deleted;
 * and lists of changes that are none */
#include "tests/unit/movers-job.h"

#include "daemon/protocol/mover-wire.h"
#include "proc/descriptors.h"

#include <sys/mman.h>
#include <sys/wait.h>

static json_t *answer(struct rig *r)
{
    return json_array_get(json_object_get(r->result, "answers"), 0);
}

/* The verdict about `id`; `why` is what it says of one that is refused. */
static bool check(struct rig *r, const char *id, json_t *expect, const char **why)
{
    json_t *j = base_job(r, "admin-1", "admin");
    json_object_set_new(j, "do",
                        json_pack("[{s:s, s:[s], s:{s:o}}]", "verb", "check", "snapshots", id, "expect", id, expect));
    run(r, "admin-1", "admin", j, -1);
    assert_outcome(r, MOVER_OK);
    *why = json_string_value(json_object_get(json_object_get(answer(r), "why"), id));
    return json_is_true(json_object_get(json_object_get(answer(r), "readable"), id));
}

static const char *unfit(struct rig *r, const char *id)
{
    const char *text = json_string_value(json_object_get(json_object_get(answer(r), "unfit"), id));
    return text ? text : "";
}

/* Flips a byte in the middle of each pack of data. */
static void damage_packs(struct rig *r)
{
    char cmd[400];
    snprintf(cmd, sizeof cmd,
             "find %s -type f -size +100k | while read -r f; do s=$(stat -c %%s \"$f\"); chmod u+w \"$f\"; "
             "printf '\\125\\252\\125\\252' | dd of=\"$f\" bs=1 seek=$((s / 2)) conv=notrunc status=none; done",
             r->repo);
    assert_int_equal(system(cmd), 0);
}

static void a_snapshot_is_compared_and_read(void **state)
{
    struct rig r;
    const char *why;
    char id[33];
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    int src = make_file(&r, "image", 2 * MIB, 1);
    run(&r, "up-1", "backup", backup_job(&r, "up-1", 2 * MIB), src);
    assert_outcome(&r, MOVER_OK);
    snprintf(id, sizeof id, "%s", text_of(r.result, "snapshotID"));
    const int64_t days_3 = 3 * 86400 * INT64_C(1000000000);
    assert_true(check(&r, id,
                      json_pack("{s:s,s:s,s:s,s:I,s:I,s:I}", "source", "snapferry@node:/vg0/db1", "volume", "vol-1",
                                "operation", "up-1", "size", (json_int_t)(2 * MIB), "afterNs",
                                (json_int_t)(rig_realtime_ns() - days_3), "beforeNs", (json_int_t)rig_realtime_ns()),
                      &why));
    assert_null(why);
    assert_string_equal(unfit(&r, id), "");
    const struct {
        json_t *expect;
        const char *why;
    } others[] = {
        {json_pack("{s:s}", "source", "snapferry@node:/vol-2"), "not of snapferry@node:/vol-2"},
        {json_pack("{s:s}", "volume", "vol-2"), "of volume vol-1, not of vol-2"},
        {json_pack("{s:s}", "operation", "up-2"), "written by operation \"up-1\", not by up-2"},
        {json_pack("{s:I}", "size", (json_int_t)(3 * MIB)), "volume.img has 2097152 bytes"},
        {json_pack("{s:I}", "beforeNs", (json_int_t)(rig_realtime_ns() - days_3)), "does not match the native"},
        {json_pack("{s:I}", "afterNs", (json_int_t)(rig_realtime_ns() + days_3)), "does not match the native"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(check(&r, id, others[i].expect, &why));
        assert_non_null(why);
        if (!strstr(why, others[i].why))
            fail_msg("\"%s\" is not in \"%s\"", others[i].why, why);
        assert_string_equal(unfit(&r, id), "other");
    }
    assert_false(check(&r, "00000000000000000000000000000001", json_object(), &why));
    assert_non_null(strstr(why, "no such snapshot"));
    assert_string_equal(unfit(&r, "00000000000000000000000000000001"), "absent");
    /* Its packs are there and long enough, and their contents are not what was stored. */
    damage_packs(&r);
    assert_false(check(&r, id, json_object(), &why));
    assert_string_equal(unfit(&r, id), "damaged");
    close(src);
    rig_free(&r);
}

/* The same by the numbers of the questions, which is shorter: for thousands of them. */
static void a_check_answers_by_number(void **state)
{
    struct rig r;
    char id[33], other[33];
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    int src = make_file(&r, "image", 2 * MIB, 1);
    run(&r, "up-1", "backup", backup_job(&r, "up-1", 2 * MIB), src);
    assert_outcome(&r, MOVER_OK);
    snprintf(id, sizeof id, "%s", text_of(r.result, "snapshotID"));
    run(&r, "up-2", "backup", backup_job(&r, "up-2", 2 * MIB), src);
    assert_outcome(&r, MOVER_OK);
    snprintf(other, sizeof other, "%s", text_of(r.result, "snapshotID"));
    json_t *j = base_job(&r, "admin-1", "admin");
    json_object_set_new(j, "do",
                        json_pack("[{s:s,s:b,s:b,s:[s,s,s],s:{s:{s:s,s:i},s:{s:s,s:i},s:{s:i}}}]", "verb", "check",
                                  "quick", 1, "numbers", 1, "snapshots", id, other, "00000000000000000000000000000001",
                                  "expect", id, "operation", "up-1", "of", 17, other, "operation", "up-3", "of", 9,
                                  "00000000000000000000000000000001", "of", 5));
    run(&r, "admin-1", "admin", j, -1);
    assert_outcome(&r, MOVER_OK);
    const json_t *a = answer(&r), *proven = json_object_get(a, "proven"), *refused = json_object_get(a, "refused");
    assert_null(json_object_get(a, "readable"));
    assert_int_equal(json_array_size(proven), 1);
    assert_int_equal(json_integer_value(json_array_get(proven, 0)), 17);
    assert_int_equal(json_object_size(refused), 2);
    assert_non_null(strstr(text_of(refused, "9"), "by operation \"up-2\", not by up-3"));
    assert_string_equal(text_of(refused, "5"), "there is no such snapshot");
    close(src);
    rig_free(&r);
}

/* One list of a scan: how many snapshots, how many were passed over, where the next begins. With a file for lists its
 * pages are read from there. */
static size_t scan(struct rig *r, const char *after, json_int_t *unreadable, char next[64], char ids[][33])
{
    json_t *j = base_job(r, "admin-1", "admin");
    json_object_set_new(j, "do", json_pack("[{s:s, s:s}]", "verb", "scan", "after", after));
    run(r, "admin-1", "admin", j, -1);
    assert_outcome(r, MOVER_OK);
    const json_t *list = json_object_get(answer(r), "snapshots"), *pages = json_object_get(answer(r), "pages");
    const size_t n_pages = r->listing_fd ? json_array_size(pages) : 1;
    size_t n = 0;
    off_t at = 0;
    *unreadable = number_of(answer(r), "unreadable");
    snprintf(next, 64, "%s", text_of(answer(r), "next"));
    assert_int_equal(json_is_array(pages), r->listing_fd > 0);
    assert_int_equal(json_is_array(list), r->listing_fd == 0);
    for (size_t k = 0; k < n_pages; k++) {
        json_t *page = json_object();
        if (r->listing_fd) {
            const size_t len = (size_t)json_integer_value(json_array_get(pages, k));
            char *text = malloc(len);
            assert_int_equal(pread(r->listing_fd, text, len, at), len);
            json_decref(page);
            page = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
            assert_non_null(page);
            list = json_object_get(page, "snapshots");
            assert_true(json_array_size(list) > 0);
            assert_true(len < WIRE_LISTING_PAGE + 64 || json_array_size(list) == 1);
            at += (off_t)len;
            free(text);
        }
        for (size_t i = 0; i < json_array_size(list); i++)
            snprintf(ids[n++], 33, "%s", text_of(json_array_get(list, i), "id"));
        json_decref(page);
    }
    return n;
}

/* Large manifests make pages, not a result that is too large for the daemon; one of them alone is passed over. */
static void a_scan_comes_in_pages(void **state)
{
    static const char *const large[] = {"volume", "class", "job", "native", "size", "volume-id", "backup", "operation"};
    struct rig r;
    enum { N = 24, ROOM = 300000 };
    char ids[2 * N][33], others[2 * N][33], next[64], end[64];
    char text[4081];
    json_int_t bad;
    struct err e = ERR_INIT;
    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    rig_new(&r, NULL);
    make_repo(&r);
    int src = make_file(&r, "image", 4096, 1);
    for (int i = 0; i <= N; i++) {
        json_t *j = backup_job(&r, "up-1", 4096);
        for (size_t k = 0; k < (i == N ? 8 : 7); k++)
            json_object_set_new(json_object_get(j, "tags"), large[k], json_string(text));
        if (i == N)
            json_object_set_new(json_object_get(j, "tags"), "group", json_string(text));
        run(&r, "up-1", "backup", j, src);
        assert_outcome(&r, MOVER_OK);
    }
    const size_t first = scan(&r, "", &bad, next, ids);
    assert_true(first > 0 && first < N);
    assert_string_not_equal(next, "");
    assert_int_equal(first + scan(&r, next, &bad, end, ids + first), N);
    assert_int_equal(bad, 1);
    assert_string_equal(end, "");
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(ids[i], ids[k]);
    /* Into a file all of them at once, on several pages, in the same order. */
    r.listing_fd = memory_shared("list", WIRE_LISTING_MAX, &e);
    assert_true(r.listing_fd > 0);
    assert_int_equal(scan(&r, "", &bad, next, others), N);
    assert_string_equal(next, "");
    assert_int_equal(bad, 1);
    assert_memory_equal(ids, others, N * sizeof *ids);
    assert_true(json_array_size(json_object_get(answer(&r), "pages")) > 1);
    close(r.listing_fd);
    /* A file that has no room for all: as many as there is room for, then the others. */
    r.listing_fd = memory_shared("list", ROOM, &e);
    size_t n = 0, lists = 0;
    memset(others, 0, sizeof others);
    next[0] = '\0';
    do {
        const size_t got = scan(&r, next, &bad, next, others + n);
        assert_true(got > 0 && got < N);
        n += got;
    } while (++lists < 10 && *next);
    assert_int_equal(n, N);
    assert_int_equal(lists, 3);
    assert_memory_equal(ids, others, N * sizeof *ids);
    close(r.listing_fd);
    r.listing_fd = 0;
    close(src);
    rig_free(&r);
}

static json_int_t deleted(struct rig *r, const char *id, const char *operation, size_t *foreign)
{
    json_t *j = base_job(r, "admin-1", "admin");
    json_object_set_new(j, "do",
                        json_pack("[{s:s, s:[s], s:{s:s}, s:b}]", "verb", "delete", "snapshots", id, "operations", id,
                                  operation, "last_good", 1));
    run(r, "admin-1", "admin", j, -1);
    assert_outcome(r, MOVER_OK);
    *foreign = json_array_size(json_object_get(answer(r), "foreign"));
    return number_of(answer(r), "deleted");
}

/* RS-23: a mover that has reported the snapshot of another operation does not get it deleted with its own backup. */
static void what_another_operation_wrote_is_not_deleted(void **state)
{
    struct rig r;
    const char *why;
    char id[33];
    size_t foreign;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    int src = make_file(&r, "image", 4096, 1);
    run(&r, "up-1", "backup", backup_job(&r, "up-1", 4096), src);
    assert_outcome(&r, MOVER_OK);
    snprintf(id, sizeof id, "%s", text_of(r.result, "snapshotID"));
    assert_int_equal(deleted(&r, id, "up-2", &foreign), 0);
    assert_int_equal(foreign, 1);
    assert_true(check(&r, id, json_object(), &why));
    assert_int_equal(deleted(&r, id, "up-1", &foreign), 1);
    assert_int_equal(foreign, 0);
    assert_false(check(&r, id, json_object(), &why));
    /* Both claims of one snapshot are asked for: what is gone already is no failure of the other one. */
    assert_int_equal(deleted(&r, id, "up-2", &foreign), 0);
    assert_int_equal(foreign, 0);
    close(src);
    rig_free(&r);
}

/* A list of changes that cannot be used, whatever is wrong with it: all is read, and the reason is in the result. */
static void test_unusable_lists(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 2 * MIB;
    int src = make_file(&r, "image", len, 3);
    static const struct {
        bool there, sealed, empty, endless;
        const char *why;
    } lists[] = {{false, false, false, false, "no sealed list of ranges"},
                 {true, false, false, false, "no sealed list of ranges"},
                 {true, true, true, false, "no sealed list of ranges"},
                 {true, true, false, false, "list of ranges"},
                 {true, true, false, true, "cannot map the list of"}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char name[32];
        snprintf(name, sizeof name, "up-list-%zu.vol-1", i);
        r.changes_fd = 0;
        if (lists[i].there) {
            r.changes_fd = memfd_create("changes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
            assert_true(r.changes_fd > 0);
            if (!lists[i].empty)
                assert_int_equal(pwrite(r.changes_fd, "this is no list of ranges", 25, 0), 25);
            if (lists[i].endless) /* more than the address space */
                assert_int_equal(ftruncate(r.changes_fd, INT64_C(1) << 56), 0);
            if (lists[i].sealed)
                assert_int_equal(fcntl(r.changes_fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
        }
        json_t *j = backup_job(&r, name, len);
        json_object_set_new(j, "incremental",
                            json_pack("{s:s, s:s, s:s}", "parent", "0123456789abcdef0123456789abcdef", "change_id", "x",
                                      "source", "reflink"));
        run(&r, name, "backup", j, src);
        assert_outcome(&r, MOVER_OK);
        const json_t *x = json_object_get(r.result, "incremental");
        assert_true(json_is_false(json_object_get(x, "used")));
        assert_true(json_is_true(json_object_get(x, "failed")));
        if (!strstr(text_of(x, "why"), lists[i].why))
            fail_msg("\"%s\" is not in \"%s\"", lists[i].why, text_of(x, "why"));
        assert_int_equal(number_of(r.result, "totalBytes"), len);
        if (r.changes_fd > 0)
            close(r.changes_fd);
    }
    r.changes_fd = 0;
    close(src);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unusable_lists),
        cmocka_unit_test(a_snapshot_is_compared_and_read),
        cmocka_unit_test(a_check_answers_by_number),
        cmocka_unit_test(a_scan_comes_in_pages),
        cmocka_unit_test(what_another_operation_wrote_is_not_deleted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
