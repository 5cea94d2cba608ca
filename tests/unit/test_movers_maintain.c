/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_movers_maintain.c - a mover maintains a repository, or says who does (CF-35, CF-41) */
#include "tests/unit/movers-job.h"

static const char *maintained(struct rig *r, const char *member)
{
    return json_string_value(json_object_get(json_object_get(r->result, "maintenance"), member));
}

static void run_maintenance(struct rig *r, const char *id, const char *node, const char *machine, bool take_over)
{
    json_t *j = base_job(r, id, "maintain");
    json_object_set_new(j, "take_over", json_boolean(take_over));
    if (machine)
        json_object_set_new(j, "machine", json_string(machine));
    json_object_set_new(j, "node", json_string(node));
    json_object_set_new(j, "full", json_true());
    run(r, id, "maintain", j, -1);
    assert_outcome(r, MOVER_OK);
}

static void test_maintain(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    run_maintenance(&r, "maintain-1", "node", NULL, true);
    const json_t *m = json_object_get(r.result, "maintenance");
    assert_null(json_object_get(r.result, "skip"));
    assert_int_equal(number_of(m, "quickSeconds"), 3600);
    assert_int_equal(number_of(m, "fullSeconds"), 86400);
    assert_int_equal(number_of(m, "freedBytes"), 0);
    assert_true(number_of(json_object_get(json_object_get(m, "summary"), "used"), "count") > 0);
    /* Of another node, which is no failure. */
    run_maintenance(&r, "maintain-2", "elsewhere", NULL, true);
    assert_string_equal(maintained(&r, "refused"), "owner");
    assert_string_equal(maintained(&r, "owner"), "snapferry-maintenance@node");
    assert_string_equal(json_string_value(json_object_get(r.result, "skip")),
                        "maintained by snapferry-maintenance@node");
    assert_null(json_object_get(json_object_get(r.result, "maintenance"), "silentSinceNs"));
    /* The machine is noted by a run, and another one is refused, whoever owns it by name. */
    run_maintenance(&r, "maintain-3", "node", "11111111111111111111111111111111", true);
    assert_null(json_object_get(r.result, "skip"));
    run_maintenance(&r, "maintain-4", "node", "22222222222222222222222222222222", true);
    assert_string_equal(maintained(&r, "refused"), "machine");
    assert_string_equal(maintained(&r, "owner"), "snapferry-maintenance@node");
    run_maintenance(&r, "maintain-5", "node", "11111111111111111111111111111111", true);
    assert_null(json_object_get(r.result, "skip"));
    run_maintenance(&r, "maintain-6", "node", NULL, true);
    assert_null(json_object_get(r.result, "skip"));
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_maintain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
