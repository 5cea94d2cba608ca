/* SPDX-License-Identifier: GPL-2.0-or-later */
/* maintenance.c: the gates by Kopia's own answers, the schedules of golden repositories, what survives a run. */
#include "tests/unit/format.h"
#include "tests/unit/testrepo.h"

#include "repo/item.h"
#include "repo/maintenance.h"
#include "repo/marker.h"

static const char *when_text(int64_t ns, char *out)
{
    return ns == INT64_MIN ? "" : time_text(ns, out);
}

static void drop_vector(json_t *v)
{
    char text[TIME_TEXT];
    json_t *s = json_pack("{s:{s:O}}", "runs", "snapshot-gc", json_object_get(v, "snapshotGCRuns"));
    const bool full = strcmp(json_string_value(json_object_get(v, "safety")), "full") == 0;
    const char *want = json_string_value(json_object_get(v, "safeDropTime"));
    assert_non_null(s);
    assert_string_equal(
        when_text(maintenance_drop_time(s, full ? &maintenance_safety_full : &maintenance_safety_none, INT64_MAX),
                  text),
        want ? want : "");
    json_decref(s);
}

static void gate_vector(json_t *v)
{
    json_t *s = json_pack("{s:O}", "runs", json_object_get(v, "runs"));
    int64_t now;
    assert_non_null(s);
    assert_int_equal(time_parse(&now, json_string_value(json_object_get(v, "now"))), 0);
    assert_int_equal(now >= maintenance_delete_time(s, &maintenance_safety_full),
                     json_is_true(json_object_get(v, "deletePacksAllowed")));
    json_decref(s);
}

/* A run of the future has found nothing: its client's clock was wrong. */
static void future(void **state)
{
    (void)state;
    json_t *s = json_pack("{s:{s:[{s:s, s:s, s:b}, {s:s, s:s, s:b}]}}", "runs", "snapshot-gc", "start",
                          "2026-03-02T07:00:00Z", "end", "2026-03-02T07:15:00Z", "success", 1, "start",
                          "2026-03-01T07:00:00Z", "end", "2026-03-01T07:15:00Z", "success", 1);
    int64_t now, early, got;
    char text[TIME_TEXT];
    assert_int_equal(time_parse(&now, "2026-03-02T07:00:00Z"), 0);
    assert_int_equal(time_parse(&early, "2026-03-01T23:00:00Z"), 0);
    got = maintenance_drop_time(s, &maintenance_safety_full, now);
    assert_string_equal(time_text(got, text), "2026-03-01T06:00:00Z");
    assert_int_equal(maintenance_drop_time(s, &maintenance_safety_full, early), INT64_MIN);
    json_decref(s);
}

/* Further apart than a number of ns can tell: one that has ended so long ago has ended long ago. */
static void far_apart(void **state)
{
    (void)state;
    json_t *s = json_pack("{s:{s:[{s:s, s:s, s:b}, {s:s, s:s, s:b}]}}", "runs", "snapshot-gc", "start",
                          "2026-03-02T07:00:00Z", "end", "2026-03-02T07:15:00Z", "success", 1, "start",
                          "2026-03-02T06:00:00Z", "end", "1690-01-01T00:00:00Z", "success", 1);
    int64_t now;
    char text[TIME_TEXT];
    assert_int_equal(time_parse(&now, "2026-03-03T07:00:00Z"), 0);
    assert_string_equal(time_text(maintenance_drop_time(s, &maintenance_safety_full, now), text),
                        "2026-03-02T05:00:00Z");
    json_decref(s);
}

static void gates(void **state)
{
    (void)state;
    assert_int_equal(each_vector("vectors/safe-drop-time.jsonl", drop_vector), 26);
    assert_int_equal(each_vector("vectors/maintenance-gates.jsonl", gate_vector), 60);
}

/* What stock clients wrote is read, and is still there when a run of ours was added. */
static void golden_schedule(const char *name)
{
    struct testrepo t;
    struct err e = ERR_INIT;
    struct maintenance_schedule s;
    struct maintenance_params p;
    json_t *x = testrepo_golden(&t, name);
    json_t *want = json_object_get(x, "maintenanceSchedule"), *params = json_object_get(x, "maintenanceParams");
    assert_ok(maintenance_load(t.r, &s, &e), &e);
    assert_int_equal(json_equal(s.doc, want), 1);
    assert_ok(maintenance_params_load(t.r, &p, &e), &e);
    assert_true(p.present);
    assert_string_equal(p.owner, json_string_value(json_object_get(params, "owner")));
    assert_int_equal(p.full_ns, NS_PER_DAY);
    assert_int_equal(p.taken_ns, INT64_MIN);

    assert_int_equal(json_object_set_new(s.doc, "later", json_pack("{s:i}", "member", 5)), 0);
    for (int i = 0; i < 60; i++)
        assert_ok(maintenance_note(&s, MAINT_SNAPSHOT_GC, i * NS_PER_DAY, i * NS_PER_DAY + 1, i % 2 ? "why" : NULL, &e),
                  &e);
    json_t *gc = json_object_get(json_object_get(s.doc, "runs"), "snapshot-gc");
    assert_int_equal(json_array_size(gc), 50);
    assert_string_equal(json_string_value(json_object_get(json_array_get(gc, 0), "error")), "why");
    assert_null(json_object_get(json_array_get(gc, 0), "success"));
    assert_true(json_is_true(json_object_get(json_array_get(gc, 1), "success")));
    assert_non_null(json_object_get(s.doc, "later"));
    assert_true(json_equal(json_object_get(json_object_get(s.doc, "runs"), "advance-epoch"),
                           json_object_get(json_object_get(want, "runs"), "advance-epoch")));
    maintenance_clear(&s);
    json_decref(x);
    testrepo_free(&t);
}

static void golden(void **state)
{
    (void)state;
    golden_schedule("gc-safety-full");
    golden_schedule("epochs-history");
}

static void stored(void **state)
{
    (void)state;
    struct testrepo t;
    struct err e = ERR_INIT;
    struct maintenance_schedule a, b;
    struct maintenance_params p;
    testrepo_new(&t, NULL, NULL);
    assert_ok(maintenance_load(t.r, &a, &e), &e);
    assert_int_equal(a.mtime_ns, INT64_MIN);
    assert_ok(maintenance_load(t.r, &b, &e), &e);
    assert_ok(maintenance_note(&a, MAINT_DELETE_BLOBS, 5, 7, NULL, &e), &e);
    assert_ok(maintenance_store(t.r, &a, &e), &e);
    assert_true(a.mtime_ns > 0);
    /* Of two that run at the same time, one stops. */
    assert_int_equal(maintenance_store(t.r, &b, &e), -ESTALE);
    assert_int_equal(e.cls, ERR_BUSY);
    e = (struct err)ERR_INIT;
    assert_ok(maintenance_store(t.r, &a, &e), &e);
    maintenance_clear(&b);
    assert_ok(maintenance_load(t.r, &b, &e), &e);
    assert_true(json_equal(a.doc, b.doc));
    assert_int_equal(a.mtime_ns, b.mtime_ns);

    /* The owner. */
    assert_ok(maintenance_params_load(t.r, &p, &e), &e);
    assert_false(p.present);
    assert_ok(maintenance_take(t.r, "somebody@here", "m1", &e), &e);
    assert_ok(maintenance_take(t.r, "me@there", "", &e), &e);
    assert_ok(maintenance_params_load(t.r, &p, &e), &e);
    assert_string_equal(p.owner, "me@there");
    assert_string_equal(p.machine, ""); /* that of the former owner went with it */
    assert_int_equal(p.quick_ns, NS_PER_H);
    assert_true(p.taken_ns > now_ns() - NS_PER_MIN && p.taken_ns <= now_ns());
    assert_true(p.modified_ns >= p.taken_ns && p.modified_ns <= now_ns());
    /* Its machine is noted once; not of somebody who is not the owner any more. */
    assert_ok(maintenance_note_machine(t.r, "somebody@here", "m2", &e), &e);
    assert_ok(maintenance_params_load(t.r, &p, &e), &e);
    assert_string_equal(p.machine, "");
    assert_ok(maintenance_note_machine(t.r, "me@there", "m3", &e), &e);
    assert_ok(maintenance_note_machine(t.r, "me@there", "m4", &e), &e);
    const int64_t taken_ns = p.taken_ns;
    assert_ok(maintenance_params_load(t.r, &p, &e), &e);
    assert_string_equal(p.machine, "m3");
    assert_string_equal(p.owner, "me@there");
    assert_int_equal(p.taken_ns, taken_ns);

    /* A history that cannot be understood is an error: what may be dropped depends on it. */
    json_object_set_new(json_object_get(a.doc, "runs"), "other", json_pack("[{s:s}]", "start", "yesterday"));
    assert_ok(maintenance_store(t.r, &a, &e), &e);
    maintenance_clear(&b);
    assert_int_equal(maintenance_load(t.r, &b, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    maintenance_clear(&a);
    testrepo_free(&t);
}

/* ---- an owner that does not run it any more ---- */

#define NOW_NS (INT64_C(1800000000) * NS_PER_S)
#define H(n) ((n)*NS_PER_H)

/* When it is silent, with its only run so long ago; in ns before NOW_NS, 0: it is not. */
static int64_t silent_for(int64_t quick_ns, int64_t full_ns, int64_t run_ago, int64_t stored_ago, int64_t written_ago)
{
    char start[TIME_TEXT], end[TIME_TEXT];
    const struct maintenance_params p = {
        .quick_ns = quick_ns, .full_ns = full_ns, .modified_ns = NOW_NS - written_ago, .taken_ns = INT64_MIN};
    struct maintenance_schedule s = {.mtime_ns = stored_ago == INT64_MAX ? INT64_MIN : NOW_NS - stored_ago};
    time_text(NOW_NS - run_ago - NS_PER_MIN, start);
    time_text(NOW_NS - run_ago, end);
    s.doc = json_pack("{s:{s:[{s:s, s:s, s:s}]}}", "runs", "cleanup-logs", "start", start, "end", end, "error", "no");
    assert_non_null(s.doc);
    const int64_t since = maintenance_silent_since(&p, &s, NOW_NS);
    json_decref(s.doc);
    return since == INT64_MIN ? 0 : NOW_NS - since;
}

static void silent(void **state)
{
    (void)state;
    const int64_t ever = H(1000);
    /* The newest of run, schedule and parameters counts, and a failed run is a run. */
    assert_int_equal(silent_for(H(1), H(24), H(73), ever, ever), H(73));
    assert_int_equal(silent_for(H(1), H(24), H(72), ever, ever), 0);
    assert_int_equal(silent_for(H(1), H(24), ever, H(74), ever), H(74));
    assert_int_equal(silent_for(H(1), H(24), ever, H(71), ever), 0);
    assert_int_equal(silent_for(H(1), H(24), ever, ever, H(75)), H(75));
    assert_int_equal(silent_for(H(1), H(24), ever, ever, H(2)), 0);
    assert_int_equal(silent_for(H(1), H(24), H(80), INT64_MAX, ever), H(80)); /* no schedule yet */
    /* Cycles. */
    assert_int_equal(silent_for(0, 0, ever, ever, ever), 0);
    assert_int_equal(silent_for(H(1), 0, H(73), ever, ever), H(73));
    assert_int_equal(silent_for(0, H(24), H(73), ever, ever), H(73));
    assert_int_equal(silent_for(0, H(48), H(144), ever, ever), 0);
    assert_int_equal(silent_for(0, H(48), H(145), ever, ever), H(145));
    assert_int_equal(silent_for(H(168), H(48), H(145), ever, ever), H(145));
    assert_int_equal(silent_for(INT64_MAX, INT64_MAX, ever, ever, ever), 0);
    /* What a wrong clock has written does not keep it for ever, and two clocks may differ a little. */
    assert_int_equal(silent_for(H(1), H(24), -H(1), H(90), H(100)), H(90));
    assert_int_equal(silent_for(H(1), H(24), -NS_PER_MIN, H(90), H(100)), 0);
}

/* A session that is being written is alive, whatever its marker says and the clock is set to. */
static void alive(void **state)
{
    (void)state;
    struct testrepo t;
    struct err e = ERR_INIT;
    struct session_record *rec;
    struct session_marker *all;
    size_t n;
    char id[SESSION_ID_TEXT], name[BLOB_NAME_MAX + 1], text[256];
    uint8_t *sealed;
    size_t len;
    testrepo_new(&t, NULL, NULL);
    assert_ok(session_id_new(id, now_ns(), &e), &e);
    snprintf(text, sizeof text,
             "{\"id\":\"%s\",\"startTime\":\"2020-01-01T00:00:00Z\",\"checkpointTime\":\"2020-01-01T00:00:00Z\"}", id);
    assert_ok(named_seal(repo_sealer(t.r), "s", id, text, strlen(text), name, &sealed, &len, &e), &e);
    assert_ok(blobs_put(repo_blobs(t.r), name, sealed, len, &e), &e);
    free(sealed);
    assert_ok(session_record_new(&rec, t.r, id, &e), &e);
    for (int ended = 0; ended < 2; ended++) {
        assert_ok(markers_load(t.r, &all, &n, &e), &e);
        size_t i = 0; /* behind that of the test's own session, or before it */
        while (i < n && strcmp(all[i].id, id) != 0)
            i++;
        assert_true(i < n);
        if (ended)
            assert_true(all[i].seen_ns < INT64_C(1600000000) * NS_PER_S);
        else
            assert_true(all[i].seen_ns > now_ns() - NS_PER_MIN);
        free(all);
        if (!ended)
            session_record_end(rec, false); /* as one that was killed */
    }
    testrepo_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gates),  cmocka_unit_test(future), cmocka_unit_test(far_apart),
                                       cmocka_unit_test(golden), cmocka_unit_test(stored), cmocka_unit_test(alive),
                                       cmocka_unit_test(silent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
