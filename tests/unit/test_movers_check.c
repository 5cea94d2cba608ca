/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_movers_check.c - what a snapshot must be before a native snapshot is pruned for it (RS-18) */
#include "tests/unit/movers-job.h"

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
                      json_pack("{s:s,s:s,s:I,s:I,s:I}", "source", "snapferry@node:/vol-1", "operation", "up-1", "size",
                                (json_int_t)(2 * MIB), "afterNs", (json_int_t)(rig_realtime_ns() - days_3), "beforeNs",
                                (json_int_t)rig_realtime_ns()),
                      &why));
    assert_null(why);
    const struct {
        json_t *expect;
        const char *why;
    } others[] = {
        {json_pack("{s:s}", "source", "snapferry@node:/vol-2"), "not of snapferry@node:/vol-2"},
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
    }
    assert_false(check(&r, "00000000000000000000000000000001", json_object(), &why));
    assert_non_null(strstr(why, "no such snapshot"));
    /* Its packs are there and long enough, and their contents are not what was stored. */
    damage_packs(&r);
    assert_false(check(&r, id, json_object(), &why));
    close(src);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_is_compared_and_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
