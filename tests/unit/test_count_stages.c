/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_count_stages.c - the seconds that movers spent in their stages, as counters that survive */
#include "tests/unit/records.h"

#include "daemon/engine/engine-impl.h"

struct seen {
    const char *name, *kind, *stage;
    double value;
    unsigned n;
};

static int look(const char *name, const json_t *labels, double value, void *arg)
{
    struct seen *s = arg;
    s->n++;
    if (!strcmp(name, s->name) && !strcmp(jstr(labels, "direction"), s->kind) &&
        !strcmp(jstr(labels, "stage"), s->stage))
        s->value += value;
    return 0;
}

static double counted(struct records *r, const char *name, const char *kind, const char *stage)
{
    struct err e = ERR_INIT;
    struct seen s = {.name = name, .kind = kind, .stage = stage};
    assert_ok(records_counters(r, look, &s, &e), &e);
    return s.value;
}

static unsigned counters(struct records *r)
{
    struct err e = ERR_INIT;
    struct seen s = {.name = "", .kind = "", .stage = ""};
    assert_ok(records_counters(r, look, &s, &e), &e);
    return s.n;
}

static void feed_document(struct records *r, const char *kind, const json_t *doc)
{
    CLEANUP(mover_figures_clear) struct mover_figures f;
    assert_int_equal(mover_figures_load(&f, doc), 0);
    count_stages(r, kind, &f);
}

static void feed(struct records *r, const char *kind, const char *text)
{
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    feed_document(r, kind, j);
    json_decref(j);
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

static void results_add_up(void **state)
{
    (void)state;
    struct records *r = fresh();
    feed(r, "backup",
         "{\"stages\":[{\"name\":\"read\",\"busySeconds\":1.5,\"stalledSeconds\":0.5,\"bytes\":7},"
         "{\"name\":\"hash\",\"busySeconds\":3,\"stalledSeconds\":0,\"bytes\":7}],\"bottleneck\":\"hash\"}");
    feed(r, "backup",
         "{\"stages\":[{\"name\":\"read\",\"busySeconds\":0.25,\"stalledSeconds\":1}],\"bottleneck\":\"read\"}");
    feed(r, "verify", "{\"stages\":[{\"name\":\"decrypt\",\"busySeconds\":4}],\"bottleneck\":\"decrypt\"}");
    feed(r, "backup", "{}");
    feed_document(r, "backup", NULL);
    assert_int_equal(counters(r), 7); /* none for what took no time */
    r = reopen(r);
    assert_true(near(counted(r, "stage_busy_seconds_total", "backup", "read"), 1.75));
    assert_true(near(counted(r, "stage_stall_seconds_total", "backup", "read"), 1.5));
    assert_true(near(counted(r, "stage_busy_seconds_total", "backup", "hash"), 3));
    assert_true(near(counted(r, "stage_busy_seconds_total", "verify", "decrypt"), 4));
    assert_true(near(counted(r, "stage_busy_seconds_total", "verify", "read"), 0));
    assert_true(near(counted(r, "bottleneck_total", "backup", "hash"), 1));
    assert_true(near(counted(r, "bottleneck_total", "backup", "read"), 1));
    assert_true(near(counted(r, "bottleneck_total", "verify", "decrypt"), 1));
    done(r);
}

/* The result is the word of a process that reads foreign data. */
static void nonsense_does_not_grow(void **state)
{
    (void)state;
    struct records *r = fresh();
    char text[256];
    for (unsigned i = 0; i < 200; i++) {
        snprintf(text, sizeof text,
                 "{\"stages\":[{\"name\":\"made-up-%u\",\"busySeconds\":1}],\"bottleneck\":\"made-up-%u\"}", i, i);
        feed(r, "backup", text);
    }
    assert_int_equal(counters(r), 2);
    assert_true(near(counted(r, "stage_busy_seconds_total", "backup", "other"), 200));
    static const char *const bad[] = {
        "{\"stages\":[{\"name\":\"read\",\"busySeconds\":-1,\"stalledSeconds\":1e300}],\"bottleneck\":7}",
        "{\"stages\":[{\"name\":\"read\",\"busySeconds\":\"5\",\"stalledSeconds\":null}]}",
        "{\"stages\":[{\"name\":9},7,null,\"x\",[]]}", "{\"stages\":{\"name\":\"read\",\"busySeconds\":1}}",
        "{\"stages\":\"read\",\"bottleneck\":[]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        feed(r, "backup", bad[i]);
    assert_true(near(counted(r, "stage_busy_seconds_total", "backup", "read"), 0));
    /* A list without end costs no more than a long one. */
    json_t *many = json_array();
    for (unsigned i = 0; i < 1000; i++)
        json_array_append_new(many, json_pack("{s:s,s:f}", "name", "zero", "busySeconds", 1.0));
    json_t *result = json_pack("{s:o}", "stages", many);
    feed_document(r, "backup", result);
    json_decref(result);
    assert_true(near(counted(r, "stage_busy_seconds_total", "backup", "zero"), 16));
    done(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_add_up), cmocka_unit_test(nonsense_does_not_grow)};
    return cmocka_run_group_tests(tests, records_setup, records_teardown);
}
