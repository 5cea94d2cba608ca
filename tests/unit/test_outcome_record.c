/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_outcome_record.c - the record of a backup's outcome: to its document and back, bounds, and what is malformed.
 * And the results of movers and steps, which are the word of other processes, too.
 */
#include "tests/unit/test.h"

#include "base/json.h"
#include "daemon/mover/backup-records.h"
#include "daemon/protocol/backup-record.h"
#include "daemon/records/outcome-record.h"
#include "daemon/records/step-answer.h"

#include <string.h>

#define SNAPSHOT "0123456789abcdef0123456789abcdef"

/* ---- a record as the daemon writes it ---- */

static struct record_volume *add_volume(struct backup_record *r, const char *id)
{
    struct record_volume *v = reallocarray(r->volumes.v, r->volumes.n + 1, sizeof *v);
    assert_non_null(v);
    r->volumes.v = v;
    v += r->volumes.n++;
    fields_init(&record_volume_fields, v);
    str_set(&v->id, id);
    str_setf(&v->name, "/srv/%s.img", id);
    str_setf(&v->movement.operation, "up-%s.%s", r->backup, id);
    return v;
}

static void make_record(struct backup_record *r)
{
    fields_init(&backup_record_fields, r);
    r->version = RECORD_VERSION;
    str_set(&r->backup, "b1");
    str_set(&r->job, "nightly");
    str_set(&r->node, "n");
    str_set(&r->machine, SNAPSHOT);
    str_set(&r->repository, "main");
    str_set(&r->description, "before the upgrade");
    str_set(&r->started, "2026-11-20T01:00:00Z");
    str_set(&r->ended, "2026-11-20T02:00:00Z");
    r->reason = ORIGIN_TIMER;
    r->state = RECORD_STATE_FINAL;
    r->outcome = OUTCOME_PARTIALLY_FAILED;
    r->parts = 3;
    r->part = 1;
    r->counts = (struct backup_counts){.attempted = 3, .completed = 1, .failed = 1, .skipped = 1};
    r->snapshots = 1;
    struct record_volume *v = add_volume(r, "v1");
    struct record_native *n = calloc(1, sizeof *n);
    assert_non_null(n);
    fields_init(&record_native_fields, n);
    str_set(&n->alias, "3c5e9d5e-9a51-4a0e-8f5a-1f1f1f1f1f1f");
    str_set(&n->why, "its class cannot be listed");
    n->state = SEEN_UNKNOWN;
    n->size = 4096;
    v->natives = (struct list_of_structs){n, 1};
    v->moved = true;
    v->size = 4096;
    v->outcome = OUTCOME_COMPLETED;
    str_set(&v->movement.repository, "main");
    str_set(&v->movement.snapshot, SNAPSHOT);
    v->movement.phase = OUTCOME_COMPLETED;
    v->movement.size = 4096;
    v->movement.incremental = 0;
    v = add_volume(r, "v2");
    v->outcome = OUTCOME_FAILED;
    str_set(&v->failure, "No space left on device");
    str_set(&v->stage, "move");
    v = add_volume(r, "");
    str_clear(&v->movement.operation);
    v->skipped = true;
    v->outcome = OUTCOME_SKIPPED;
    str_set(&v->skipped_reason, "no storage class");
}

static json_t *made_document(void)
{
    struct backup_record r;
    make_record(&r);
    json_t *doc = backup_record_to_json(&r);
    assert_non_null(doc);
    backup_record_clear(&r);
    return doc;
}

static bool is_taken(const json_t *doc)
{
    struct backup_record r;
    const bool right = backup_record_from_json(&r, doc, "n");
    backup_record_clear(&r);
    return right;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct backup_record made, r;
    make_record(&made);
    CLEANUP_JSON json_t *doc = backup_record_to_json(&made);
    const json_t *labels = jobj(doc, "labels");
    assert_string_equal(jstr(labels, "backup"), "b1");
    assert_string_equal(jstr(labels, "node"), "n");
    assert_string_equal(jstr(labels, "machine"), SNAPSHOT);
    assert_string_equal(jstr(labels, "part"), "1");
    assert_string_equal(jstr(labels, "state"), RECORD_FINAL);
    assert_true(backup_record_from_json(&r, doc, "n"));
    assert_true(fields_equal(&backup_record_fields, &r, &made));
    CLEANUP_JSON json_t *again = backup_record_to_json(&r);
    assert_true(json_equal(doc, again));
    backup_record_clear(&r);
    backup_record_clear(&made);
}

/* What a newer version adds is still there when this one writes the record again. */
static void unknown_members_survive(void **state)
{
    (void)state;
    CLEANUP_JSON json_t *doc = made_document();
    struct backup_record r;
    json_t *data = jobj(doc, "data"), *v = json_array_get(jarr(data, "volumes"), 0);
    jset_str(data, "compliance", "WORM");
    json_object_set_new(v, "tiers", json_pack("[i,i]", 1, 2));
    jset_bool(jobj(v, "snapshotDataMovementInfo"), "mirrored", true);
    jset_int(json_array_get(jarr(v, "nativeSnapshots"), 0), "generation", 7);
    assert_true(backup_record_from_json(&r, doc, "n"));
    CLEANUP_JSON json_t *again = backup_record_to_json(&r);
    assert_true(json_equal(jobj(again, "data"), data));
    backup_record_clear(&r);
}

/* ---- malformed ---- */

/* Sets a member by its path ("volumes.0.size"); NULL removes it. */
static void put_at(json_t *doc, const char *path, json_t *value)
{
    char name[64];
    json_t *at = doc;
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(name)) : json_object_get(at, name);
        assert_non_null(at);
    }
    if (value)
        assert_int_equal(json_object_set_new(at, path, value), 0);
    else
        assert_int_equal(json_object_del(at, path), 0);
}

static json_t *long_text(size_t n)
{
    char *text = malloc(n + 1);
    assert_non_null(text);
    memset(text, 'x', n);
    text[n] = '\0';
    json_t *s = json_string(text);
    free(text);
    return s;
}

/* Each makes the record one that is not taken. */
static void malformed_records_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value; /* JSON; NULL: the member is missing */
    } bad[] = {
        {"data.version", "2"},
        {"data.version", "\"1\""},
        {"data.version", NULL},
        {"data.backup", "\"\""},
        {"data.backup", "7"},
        {"data.backup", "\"b2\""}, /* not that of the label */
        {"data.backup", "\"b\\u0007\""},
        {"data.backup", "\"b1\\u0000x\""},
        {"data.node", "\"other\""},
        {"data.node", NULL},
        {"data.state", "\"halfway\""}, /* unknown states */
        {"data.state", NULL},
        {"data.state", "\"provisional\""}, /* with an outcome, and another label */
        {"data.phase", "\"Perhaps\""},
        {"data.phase", NULL},
        {"data.part", "-1"},
        {"data.part", "3"}, /* of 3 */
        {"data.part", "0"}, /* the label has another one */
        {"data.part", "\"1\""},
        {"data.parts", "513"},
        {"data.parts", "0"},
        {"data.operations", "{\"attempted\": -1}"},
        {"data.operations", "{\"failed\": 100000}"},
        {"data.job", "\"a\\nb\""},
        {"data.volumes.0.size", "-1"},
        {"data.volumes.0.result", "\"Fine\""},
        {"data.volumes.0.result", "\"Failed\""}, /* and its data was moved */
        {"data.volumes.0.snapshotDataMovementInfo.operationID", "\"up-b2.v1\""},
        {"data.volumes.0.snapshotDataMovementInfo.operationID", NULL}, /* and it was not skipped */
        {"data.volumes.0.snapshotDataMovementInfo.snapshotID", "\"0123\""},
        {"data.volumes.0.snapshotDataMovementInfo.snapshotID", "\"../../../../etc/passwd0123456789ab\""},
        {"data.volumes.0.snapshotDataMovementInfo.snapshotID", "\"0123456789abcdef0123456789abcdeg\""},
        {"data.volumes.0.snapshotDataMovementInfo.size", "-4096"},
        {"data.volumes.0.nativeSnapshots", "[{\"alias\": \"a\"}, {\"alias\": \"b\"}]"},
        {"data.volumes.1.failureStage", "\"a\\u001b[2J\""},
        {"data.volumes.2.volumeName", "\"\""}, /* and no id */
        {"labels.backup", NULL},
        {"labels.part", "1"},
        {"labels.part", "\"01\""},
        {"labels.state", "\"provisional\""},
        {"labels", "[]"},
        {"data", "[]"},
        {"data", "null"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CLEANUP_JSON json_t *doc = made_document();
        assert_true(is_taken(doc));
        put_at(doc, bad[i].path,
               bad[i].value ? json_loads(bad[i].value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL);
        if (is_taken(doc))
            fail_msg("taken with %s = %s", bad[i].path, bad[i].value ? bad[i].value : "nothing");
    }
    CLEANUP_JSON json_t *doc = made_document();
    struct backup_record r;
    assert_false(backup_record_from_json(&r, doc, "other"));
    backup_record_clear(&r);
    assert_false(is_taken(NULL));
}

/* A file may have any name, and reasons have names in them. */
static void odd_names_are_taken(void **state)
{
    (void)state;
    static const char *const members[] = {"data.volumes.0.volumeName", "data.volumes.0.sourcePath",
                                          "data.volumes.1.failureReason", "data.failureReason",
                                          "data.volumes.2.skippedReason"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        CLEANUP_JSON json_t *doc = made_document();
        put_at(doc, members[i], json_string("/srv/bell\a and\nline\x1b[2J.img"));
        if (!is_taken(doc))
            fail_msg("not taken with an odd %s", members[i]);
    }
}

/* A member of the wrong type counts as missing; what is not needed may be missing. */
static void wrong_types_of_what_is_not_needed(void **state)
{
    (void)state;
    static const char *const members[] = {"data.description",    "data.job",       "data.machine",
                                          "data.startTimestamp", "data.snapshots", "data.operations",
                                          "data.repository",     "data.reason"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        CLEANUP_JSON json_t *doc = made_document();
        struct backup_record r;
        put_at(doc, members[i], json_pack("[i]", 1));
        if (!backup_record_from_json(&r, doc, "n"))
            fail_msg("%s of another type: not taken", members[i]);
        CLEANUP_JSON json_t *again = backup_record_to_json(&r);
        assert_true(json_equal(jobj(again, "data"), jobj(doc, "data"))); /* and is kept */
        backup_record_clear(&r);
    }
    /* Volumes that are none: no volumes are read. */
    CLEANUP_JSON json_t *doc = made_document();
    struct backup_record r;
    json_array_append_new(jarr(jobj(doc, "data"), "volumes"), json_integer(7));
    backup_record_from_json(&r, doc, "n");
    assert_int_equal(r.volumes.n, 0);
    backup_record_clear(&r);
}

/* Text that ends anywhere is no record, and harms nothing. */
static void truncated_documents(void **state)
{
    (void)state;
    CLEANUP_JSON json_t *doc = made_document();
    char *text = json_dumps(doc, JSON_COMPACT);
    assert_non_null(text);
    const size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        CLEANUP_JSON json_t *part = json_loadb(text, i, JSON_DISABLE_EOF_CHECK, NULL);
        assert_false(is_taken(part));
    }
    free(text);
    /* Whole JSON with less and less in it. */
    json_t *data = jobj(doc, "data");
    while (json_object_size(data)) {
        json_object_del(data, json_object_iter_key(json_object_iter(data)));
        is_taken(doc);
    }
    assert_false(is_taken(doc));
}

/* ---- bounds ---- */

static void bounds_of_texts(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        size_t most;
    } texts[] = {{"data.job", 127},
                 {"data.description", 1023},
                 {"data.failureReason", 1023},
                 {"data.repository", 127},
                 {"data.volumes.0.volumeName", RECORD_NAME_MAX},
                 {"data.volumes.0.sourcePath", 4500},
                 {"data.volumes.0.storageClass", 255},
                 {"data.volumes.0.driver", 63},
                 {"data.volumes.1.failureReason", 1023},
                 {"data.volumes.1.failureStage", 63},
                 {"data.volumes.2.skippedReason", 1023}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CLEANUP_JSON json_t *doc = made_document();
        put_at(doc, texts[i].path, long_text(texts[i].most));
        if (!is_taken(doc))
            fail_msg("%s of %zu bytes is not taken", texts[i].path, texts[i].most);
        put_at(doc, texts[i].path, long_text(texts[i].most + 1));
        if (is_taken(doc))
            fail_msg("%s of %zu bytes is taken", texts[i].path, texts[i].most + 1);
    }
}

static void bounds_of_ids(void **state)
{
    (void)state;
    for (size_t n = RECORD_ID_MAX; n <= RECORD_ID_MAX + 1; n++) {
        struct backup_record r;
        char id[RECORD_ID_MAX + 2];
        memset(id, 'b', n);
        id[n] = '\0';
        make_record(&r);
        str_set(&r.backup, id);
        for (unsigned i = 0; i < 2; i++) {
            struct record_volume *v = (struct record_volume *)r.volumes.v + i;
            str_setf(&v->movement.operation, "up-%s.%s", id, v->id);
        }
        CLEANUP_JSON json_t *doc = backup_record_to_json(&r);
        assert_int_equal(is_taken(doc), n == RECORD_ID_MAX);
        backup_record_clear(&r);
    }
}

static void bounds_of_volumes(void **state)
{
    (void)state;
    struct backup_record r;
    char id[32];
    make_record(&r);
    for (unsigned i = r.volumes.n; i < RECORD_VOLUMES; i++) {
        snprintf(id, sizeof id, "w%u", i);
        add_volume(&r, id)->outcome = OUTCOME_CANCELED;
    }
    CLEANUP_JSON json_t *most = backup_record_to_json(&r);
    assert_true(is_taken(most));
    add_volume(&r, "one-more")->outcome = OUTCOME_CANCELED;
    CLEANUP_JSON json_t *more = backup_record_to_json(&r);
    assert_false(is_taken(more));
    backup_record_clear(&r);
}

/* The largest that can be written is as large as its readers take it: reasons give way to names. */
static void a_record_that_would_be_too_large(void **state)
{
    (void)state;
    struct backup_record r;
    char id[256], reason[1001], name[2400];
    make_record(&r);
    memset(reason, 'r', sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (unsigned i = r.volumes.n; i < RECORD_VOLUMES; i++) {
        snprintf(id, sizeof id, "w%u", i);
        struct record_volume *v = add_volume(&r, id);
        v->outcome = OUTCOME_FAILED;
        str_set(&v->failure, reason);
        str_set(&v->name, name);
    }
    CLEANUP_JSON json_t *doc = backup_record_to_json(&r);
    assert_in_range(json_dumpb(jobj(doc, "data"), NULL, 0, JSON_COMPACT), RECORD_BYTES_MAX / 2, RECORD_BYTES_MAX);
    assert_true(is_taken(doc));
    const json_t *last = json_array_get(jarr(jobj(doc, "data"), "volumes"), RECORD_VOLUMES - 1);
    assert_string_equal(jstr(last, "volumeName"), name);
    assert_string_equal(jstr(last, "failureReason"), "");
    assert_string_equal(jstr(last, "result"), "Failed");
    backup_record_clear(&r);
}

/* ---- results of movers ---- */

static void a_result_keeps_what_it_does_not_know(void **state)
{
    (void)state;
    CLEANUP(mover_result_clear) struct mover_result r;
    CLEANUP_JSON json_t *doc =
        json_loads("{\"snapshotID\":\"s\",\"totalBytes\":0,\"incrementalBytes\":7,\"uploadedBytes\":\"many\","
                   "\"stored\":{\"a\":[1]},\"stages\":[{\"name\":\"read\",\"busySeconds\":1.5,\"bytes\":4}],"
                   "\"partial\":false,\"policyError\":null,\"packs\":3}",
                   0, NULL);
    assert_non_null(doc);
    mover_result_init(&r);
    assert_int_equal(mover_result_load(&r, doc), 0);
    assert_true(r.there);
    assert_string_equal(r.snapshot, "s");
    assert_int_equal(r.total, 0);
    assert_int_equal(r.incremental, 7);
    assert_int_equal(r.uploaded, -1); /* of another type: not reported */
    assert_int_equal(r.stages.n, 1);
    CLEANUP_JSON json_t *again = mover_result_to_json(&r);
    assert_true(json_equal(doc, again));
    assert_int_equal(mover_result_load(&r, NULL), 0);
    assert_false(r.there);
    assert_string_equal(r.snapshot, "");
    assert_null(mover_result_to_json(&r));
}

static void what_a_check_found(void **state)
{
    (void)state;
    CLEANUP(mover_result_clear) struct mover_result r;
    CLEANUP_JSON json_t *doc = json_loads("{\"answers\":[{\"readable\":{\"good\":true,\"bad\":false,\"odd\":\"yes\"},"
                                          "\"why\":{\"bad\":\"it is damaged\"}}]}",
                                          0, NULL);
    const char *why;
    mover_result_init(&r);
    assert_int_equal(mover_result_checked(&r, "good", &why), CHECKED_NONE); /* there is no result */
    assert_int_equal(mover_result_load(&r, doc), 0);
    assert_int_equal(mover_result_checked(&r, "good", &why), CHECKED_READABLE);
    assert_string_equal(why, "");
    assert_int_equal(mover_result_checked(&r, "bad", &why), CHECKED_UNREADABLE);
    assert_string_equal(why, "it is damaged");
    assert_int_equal(mover_result_checked(&r, "odd", &why), CHECKED_UNREADABLE); /* only true is true */
    assert_int_equal(mover_result_checked(&r, "other", &why), CHECKED_NONE);
}

static void checks_by_number(void **arg)
{
    (void)arg;
    CLEANUP(mover_result_clear) struct mover_result r;
    CLEANUP_JSON json_t *doc =
        json_loads("{\"answers\":[{\"verb\":\"record\"},{\"proven\":[3,7,9,12,40],"
                   "\"refused\":{\"8\":\"it is damaged\",\"9\":\"\",\"11\":7}},{\"proven\":[50,\"51\"]}]}",
                   0, NULL);
    const char *why;
    assert_non_null(doc);
    mover_result_init(&r);
    assert_int_equal(mover_result_checked_number(&r, 3, &why), CHECKED_NONE); /* there is no result */
    assert_int_equal(mover_result_load(&r, doc), 0);
    for (int64_t n = 0; n < 60; n++) {
        const bool proven = n == 3 || n == 7 || n == 12 || n == 40;
        const bool refused = n == 8 || n == 9 || n == 11; /* a refusal counts more */
        const enum checked found = mover_result_checked_number(&r, n, &why);
        /* A list with anything else in it proves nothing: 50 is not found. */
        assert_int_equal(found, proven ? CHECKED_READABLE : refused ? CHECKED_UNREADABLE : CHECKED_NONE);
        assert_string_equal(why, n == 8 ? "it is damaged" : "");
    }
}

static void figures_of_nonsense(void **state)
{
    (void)state;
    CLEANUP(mover_figures_clear) struct mover_figures f;
    CLEANUP_JSON json_t *doc =
        json_loads("{\"readBytes\":\"x\",\"reader\":3,\"repository\":{\"contents\":[],\"requests\":{\"get\":{\"codes\":"
                   "{\"ok\":-1,\"error\":5},\"counts\":[1,2],\"seconds\":\"x\"},\"put\":7}},\"badRanges\":{}}",
                   0, NULL);
    assert_non_null(doc);
    assert_int_equal(mover_figures_load(&f, doc), 0);
    assert_true(f.there);
    assert_int_equal(f.read, -1);
    assert_false(f.reader.there);
    assert_true(f.repository.there);
    assert_int_equal(f.repository.contents, -1);
    assert_int_equal(f.requests[REQUEST_GET].codes[0], -1);
    assert_int_equal(f.requests[REQUEST_GET].codes[5], 5);
    assert_false(f.requests[REQUEST_GET].has_times);
    assert_int_equal(f.requests[REQUEST_PUT].codes[0], 0);
    assert_null(f.bad_ranges);
}

/* ---- answers of steps ---- */

static void answers_of_steps(void **state)
{
    (void)state;
    CLEANUP(step_answer_clear) struct step_answer a;
    CLEANUP_JSON json_t *doc = json_loads(
        "{\"items\":[{\"alias\":\"a1\",\"gone\":true},{\"alias\":\"a2\",\"error\":{\"class\":14,\"errno\":16,"
        "\"message\":\"it is "
        "busy\",\"hint\":\"wait\"}},{\"alias\":\"a3\",\"error\":{}}],\"filled\":\"yes\",\"natives\":"
        "[{\"alias\":\"a1\",\"state\":\"present\"},{\"alias\":\"a2\",\"state\":\"somewhere\"}],\"target\":[]}",
        0, NULL);
    assert_non_null(doc);
    step_answer_init(&a);
    assert_int_equal(step_answer_load(&a, doc), 0);
    const struct step_item *item = a.items.v;
    const struct native_seen *seen = a.natives.v;
    assert_int_equal(a.items.n, 3);
    assert_true(item[0].gone);
    assert_int_equal(item[0].error.code, ERR_NONE);
    assert_int_equal(item[1].error.code, 14);
    assert_int_equal(item[1].error.sys, 16);
    assert_string_equal(item[1].error.message, "it is busy");
    assert_int_equal(item[2].error.code, ERR_GENERIC); /* an error without a class is one all the same */
    assert_ptr_equal(step_items_error(&a.items), &item[1].error);
    assert_false(a.filled);
    assert_null(a.target);
    assert_int_equal(seen[0].state, SEEN_PRESENT);
    assert_int_equal(seen[1].state, SEEN_NONE); /* a state that this version does not know */
    CLEANUP_JSON json_t *strange = json_loads("{\"items\":[1,2],\"intents\":7,\"natives\":null}", 0, NULL);
    assert_int_equal(step_answer_load(&a, strange), 0);
    assert_int_equal(a.items.n + a.intents.n + a.natives.n, 0);
    assert_null(step_items_error(&a.items));
}

/* What any node may have written, and a page of the daemon's must have room for. */
static void records_of_too_much_are_refused(void **state)
{
    json_t *labels = json_pack("{s:s,s:s,s:s,s:s,s:s}", "backup", "b1", "node", "n1", "machine",
                               "0123456789abcdef0123456789abcdef", "part", "0", "state", "final");
    json_t *data = json_pack("{s:[]}", "x");
    (void)state;
    assert_null(backup_record_malformed(labels, data));
    for (unsigned i = 0; i + 2 < RECORD_VALUES_MAX; i++)
        json_array_append_new(json_object_get(data, "x"), json_true());
    assert_null(backup_record_malformed(labels, data));
    json_array_append_new(json_object_get(data, "x"), json_true());
    assert_string_equal(backup_record_malformed(labels, data), "it is too large");
    json_array_clear(json_object_get(data, "x"));
    json_object_set_new(labels, "other", long_text(7 << 10));
    assert_null(backup_record_malformed(labels, data));
    json_object_set_new(labels, "other", long_text(8 << 10));
    assert_string_equal(backup_record_malformed(labels, data), "its labels are too large");
    json_decref(labels);
    json_decref(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(unknown_members_survive),
        cmocka_unit_test(malformed_records_are_refused),
        cmocka_unit_test(odd_names_are_taken),
        cmocka_unit_test(records_of_too_much_are_refused),
        cmocka_unit_test(wrong_types_of_what_is_not_needed),
        cmocka_unit_test(truncated_documents),
        cmocka_unit_test(bounds_of_texts),
        cmocka_unit_test(bounds_of_ids),
        cmocka_unit_test(bounds_of_volumes),
        cmocka_unit_test(a_record_that_would_be_too_large),
        cmocka_unit_test(a_result_keeps_what_it_does_not_know),
        cmocka_unit_test(what_a_check_found),
        cmocka_unit_test(checks_by_number),
        cmocka_unit_test(figures_of_nonsense),
        cmocka_unit_test(answers_of_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
