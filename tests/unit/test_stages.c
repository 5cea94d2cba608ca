/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_stages.c - where the time of a backup is said to have gone, and which stage is blamed for it */
#include "tests/unit/test.h"

#include "daemon/mover/stages.h"

#define MS UINT64_C(1000000)

static struct stage_time stage(const struct backup_result *r, const char *name)
{
    for (unsigned i = 0; i < r->n_stages; i++)
        if (!strcmp(r->stages[i].name, name))
            return r->stages[i];
    fail_msg("there is no stage %s", name);
    return (struct stage_time){0};
}

/* A run of ten seconds on two workers in which nobody did much. */
static struct backup_result calm(struct pipeline_stats *p)
{
    *p = (struct pipeline_stats){.zero_ns = 100 * MS,
                                 .split_ns = 200 * MS,
                                 .hash_ns = 300 * MS,
                                 .compress_ns = 200 * MS,
                                 .seal_ns = 100 * MS,
                                 .busy_ns = 700 * MS,
                                 .idle_ns = 19300 * MS};
    struct backup_result r = {.seconds = 10, .workers = 2};
    r.reader = (struct reader_stats){.reads = 100, .wait_ns = 500 * MS, .full_ns = 400 * MS, .read_bytes = 1 << 20};
    return r;
}

static void each_limit_is_named(void **state)
{
    (void)state;
    struct pipeline_stats p;
    struct backup_result r = calm(&p);
    r.reader.wait_ns = 8000 * MS;
    stages_fill(&r, &p, 0.1, 0.1);
    assert_string_equal(r.bottleneck, "read");

    r = calm(&p);
    p.split_ns = 8000 * MS;
    stages_fill(&r, &p, 0.1, 0.1);
    assert_string_equal(r.bottleneck, "split");

    r = calm(&p);
    p.zero_ns = 8000 * MS;
    stages_fill(&r, &p, 0.1, 0.1);
    assert_string_equal(r.bottleneck, "zero");

    r = calm(&p);
    p.table_ns = 8000 * MS; /* documents of the table, which belong to committing */
    stages_fill(&r, &p, 0.1, 0.1);
    assert_string_equal(r.bottleneck, "commit");

    r = calm(&p);
    stages_fill(&r, &p, 9, 0.1);
    assert_string_equal(r.bottleneck, "commit");

    const struct {
        const char *name;
        uint64_t *ns;
    } of[] = {{"hash", &p.hash_ns},         {"split", &p.worker_split_ns}, {"lookup", &p.lookup_ns},
              {"compress", &p.compress_ns}, {"encrypt", &p.seal_ns},       {"write", &p.write_ns}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        r = calm(&p);
        *of[i].ns = 15000 * MS;
        p.busy_ns = 16000 * MS;
        stages_fill(&r, &p, 0.1, 0.1);
        assert_string_equal(r.bottleneck, of[i].name);
    }
}

/* Writing goes on in the background: however long it takes, it binds only if workers wait for it. */
static void background_is_not_to_blame(void **state)
{
    (void)state;
    struct pipeline_stats p;
    struct backup_result r = calm(&p);
    p.hash_ns = 12000 * MS;
    p.busy_ns = 13000 * MS;
    p.write_ns = 300 * MS;
    stages_fill(&r, &p, 0.1, 18);
    assert_string_equal(r.bottleneck, "hash");
    assert_true(stage(&r, "write").busy > 17.9);
    assert_true(stage(&r, "write").stalled > 0.29 && stage(&r, "write").stalled < 0.31);
}

static void stalls_are_told(void **state)
{
    (void)state;
    struct pipeline_stats p;
    struct backup_result r = calm(&p);
    p.wait_ns = 250 * MS;
    r.reader.full_ns = 3000 * MS;
    stages_fill(&r, &p, 2, 0);
    /* The reader stood still for three seconds for want of room, and had nothing to do while the end was committed. */
    assert_true(stage(&r, "read").stalled > 2.9 && stage(&r, "read").stalled < 3.1);
    assert_true(stage(&r, "read").busy > 4.9 && stage(&r, "read").busy < 5.1);
    /* Who looks for chunks waits for data and for workers. */
    assert_true(stage(&r, "split").stalled > 0.74 && stage(&r, "split").stalled < 0.76);
    assert_true(stage(&r, "hash").stalled > 19.2);
    assert_true(stage(&r, "commit").busy > 1.9);
    assert_int_equal(stage(&r, "read").bytes, 1 << 20);
}

static void never_negative(void **state)
{
    (void)state;
    struct pipeline_stats p = {0};
    struct backup_result r = {0};
    stages_fill(&r, &p, 0, 0);
    assert_int_equal(r.n_stages, 9);
    assert_true(r.n_stages <= STAGES_MAX);
    for (unsigned i = 0; i < r.n_stages; i++)
        assert_true(r.stages[i].busy >= 0 && r.stages[i].busy < 1e-9 && r.stages[i].stalled < 1e-9);
    assert_non_null(r.bottleneck);
    /* Clocks of different threads need not agree to the nanosecond. */
    r.seconds = 1;
    r.reader = (struct reader_stats){.reads = 1, .wait_ns = 100 * MS, .full_ns = 1100 * MS};
    stages_fill(&r, &p, 0.2, 0);
    assert_true(stage(&r, "read").busy >= 0.1);
}

static void as_json(void **state)
{
    (void)state;
    const struct stage_time s[] = {{"read", 1.5, 0.25, 4096}, {"hash", 2, 0, 8192}};
    json_t *j = stages_json(s, 2);
    assert_int_equal(json_array_size(j), 2);
    const json_t *first = json_array_get(j, 0);
    assert_string_equal(json_string_value(json_object_get(first, "name")), "read");
    assert_true(json_real_value(json_object_get(first, "busySeconds")) > 1.49);
    assert_true(json_real_value(json_object_get(first, "stalledSeconds")) > 0.24);
    assert_int_equal(json_integer_value(json_object_get(first, "bytes")), 4096);
    json_decref(j);
    j = stages_json(NULL, 0);
    assert_int_equal(json_array_size(j), 0);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_limit_is_named),
                                       cmocka_unit_test(background_is_not_to_blame), cmocka_unit_test(stalls_are_told),
                                       cmocka_unit_test(never_negative), cmocka_unit_test(as_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
