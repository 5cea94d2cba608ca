/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Records of schema 1, as version 0.1.0 left them (fixtures/schema-1): every row, intent, counter and small value is
 * there after opening, with all of its columns and members, and again after each row was saved and the records opened
 * anew.
 */
#include "tests/unit/records.h"
#include "tests/unit/rows.h"

#include "daemon/records/records-test.h"

#include <sys/stat.h>

static json_t *expected;
static const char *const sections[ROW_KINDS] = {
    [ROW_BACKUP] = "backups", [ROW_OPERATION] = "operations", [ROW_NATIVE] = "natives", [ROW_VOLUME] = "volumes",
    [ROW_JOB] = "jobs",
};

static unsigned lost;

static void note_loss(const char *where, const char *what)
{
    if (where[0])
        print_error("%s %s\n", where, what);
    lost++;
}

/* A member with such a value may be left out: it means the same when it is not there (-1: not known). */
static bool means_nothing(const json_t *v)
{
    const double x = json_number_value(v);
    return json_is_null(v) || json_is_false(v) || (json_is_number(v) && !islessgreater(x, 0)) ||
           (json_is_number(v) && !islessgreater(x, -1)) || (json_is_string(v) && !json_string_length(v)) ||
           (json_is_array(v) && !json_array_size(v));
}

/* Whether `got` (NULL: not there) has all that `want` has; `where` is "" if nobody wants to know what is lost. */
static void compare(const json_t *want, const json_t *got, const char *where)
{
    char at[1024];
    const char *name;
    json_t *v;
    size_t i;
    if (json_is_object(want) && (!got || json_is_object(got))) {
        json_object_foreach((json_t *)(uintptr_t)want, name, v)
        {
            snprintf(at, sizeof at, "%.900s.%s", where, name);
            compare(v, json_object_get(got, name), where[0] ? at : "");
        }
    } else if (!got) {
        if (!means_nothing(want))
            note_loss(where, "is lost");
    } else if (json_is_array(want) && json_array_size(want) == json_array_size(got)) {
        json_array_foreach(want, i, v)
        {
            snprintf(at, sizeof at, "%.900s[%zu]", where, i);
            compare(v, json_array_get(got, i), where[0] ? at : "");
        }
    } else if (json_is_number(want) && json_is_number(got) && !(json_is_integer(want) && json_is_integer(got))) {
        if (islessgreater(json_number_value(want), json_number_value(got)))
            note_loss(where, "has another value");
    } else if (!json_equal(want, got) && !(json_is_true(want) && json_is_object(got))) { /* true: a hold, no more */
        note_loss(where, "has another value");
    }
}

static const json_t *expected_row(enum row_kind k, const char *id)
{
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(expected, sections[k]), i,
                       row) if (!strcmp(json_string_value(json_object_get(row, "id")), id)) return row;
    return NULL;
}
static const char *text(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}
static json_int_t number_of(const json_t *o, const char *name)
{
    return json_integer_value(json_object_get(o, name));
}

struct visit {
    enum row_kind k;
    unsigned n, saved; /* how often each was saved */
    json_t *ids;
};
static int see_row(const void *arg_row, void *arg)
{
    struct visit *v = arg;
    const struct row *row = arg_row;
    const json_t *want = expected_row(v->k, row->id);
    char where[700];
    assert_non_null(want);
    snprintf(where, sizeof where, "%s %s", sections[v->k], row->id);
    assert_string_equal(row->parent, text(want, "parent"));
    assert_string_equal(row->volume_id, text(want, "volume"));
    assert_string_equal(enum_name(row_types[v->k].states, row_state(v->k, row)), text(want, "state"));
    assert_int_equal(row->seq, number_of(want, "seq"));
    assert_int_equal(row->generation, number_of(want, "generation") + v->saved);
    assert_int_equal(row->created_ns, number_of(want, "created_ns"));
    assert_int_equal(row->wake_ns, number_of(want, "wake_ns"));
    if (!v->saved)
        assert_int_equal(row->updated_ns, number_of(want, "updated_ns"));
    json_t *doc = fields_to_json(row_types[v->k].fields, row);
    compare(json_object_get(want, "doc"), doc, where);
    json_decref(doc);
    json_array_append_new(v->ids, json_string(row->id));
    v->n++;
    return 0;
}

/* All rows of all kinds are as expected, and no others are there. */
static void see_rows(struct records *r, unsigned saved)
{
    struct err e = ERR_INIT;
    for (enum row_kind k = 0; k < ROW_KINDS; k++) {
        struct visit v = {.k = k, .saved = saved, .ids = json_array()};
        assert_ok(row_each(r, k, NULL, see_row, &v, &e), &e);
        assert_int_equal(v.n, json_array_size(json_object_get(expected, sections[k])));
        json_decref(v.ids);
    }
    assert_int_equal(lost, 0);
    assert_int_equal(r->set_aside, 0);
}

static int see_intent(struct intent *i, void *arg)
{
    json_t *want;
    size_t n;
    json_array_foreach(json_object_get(expected, "intents"), n, want)
    {
        if ((uint64_t)number_of(want, "id") != i->id)
            continue;
        assert_string_equal(i->owner, text(want, "owner"));
        assert_string_equal(i->kind, text(want, "kind"));
        assert_string_equal(i->name, text(want, "name"));
        if (json_is_object(json_object_get(want, "doc"))) /* one is broken: its kind and name are enough */
            compare(json_object_get(want, "doc"), i->doc, i->name);
        ++*(unsigned *)arg;
    }
    return 0;
}

static int see_counter(const char *name, const json_t *labels, double value, void *arg)
{
    json_t *want;
    size_t n;
    json_array_foreach(json_object_get(expected, "counters"), n, want)
    {
        if (strcmp(text(want, "name"), name) || !json_equal(json_object_get(want, "labels"), labels))
            continue;
        const double was = json_number_value(json_object_get(want, "value"));
        if (value < was || value > was)
            fail_msg("%s is %.17g, it was %.17g", name, value, was);
        ++*(unsigned *)arg;
    }
    return 0;
}

static void see_the_rest(struct records *r)
{
    struct err e = ERR_INIT;
    unsigned intents = 0, counters = 0;
    assert_ok(records_intents(r, NULL, see_intent, &intents, &e), &e);
    assert_int_equal(intents, json_array_size(json_object_get(expected, "intents")));
    assert_ok(records_counters(r, see_counter, &counters, &e), &e);
    assert_int_equal(counters, json_array_size(json_object_get(expected, "counters")));
    assert_int_equal(number(r, "SELECT count(*) FROM meta WHERE key='of-a-newer-version' AND value='any text'"), 1);
    assert_int_equal(number(r, "SELECT count(*) FROM set_aside"),
                     json_array_size(json_object_get(expected, "set_aside")));
    assert_int_equal(lost, 0);
}

static struct records *open_fixture(void)
{
    char cmd[700];
    new_dir();
    snprintf(cmd, sizeof cmd, "mkdir -p %s && xz -dc %s >%s", dir, fixture_path("schema-1/records.db.xz"),
             in_dir("records.db"));
    assert_int_equal(system(cmd), 0);
    return open_again();
}

static void all_is_there_after_opening(void **state)
{
    (void)state;
    struct records *r = open_fixture();
    assert_false(news.recovered);
    see_rows(r, 0);
    see_the_rest(r);
    done(r);
}

static int save_row(const void *arg_row, void *arg)
{
    struct visit *v = arg;
    const struct row *row = arg_row;
    return json_array_append_new(v->ids, json_string(row->id));
}

static void all_is_there_after_each_was_saved(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = open_fixture();
    for (enum row_kind k = 0; k < ROW_KINDS; k++) {
        struct visit v = {.k = k, .ids = json_array()};
        json_t *id;
        size_t i;
        assert_ok(row_each(r, k, NULL, save_row, &v, &e), &e);
        assert_ok(records_begin(r, &e), &e);
        json_array_foreach(v.ids, i, id)
        {
            union any_row row;
            assert_ok(row_get(r, k, json_string_value(id), &row, &e), &e);
            assert_ok(row_save(r, k, &row, &e), &e);
            row_clear(row_types[k].fields, &row);
        }
        assert_ok(records_commit(r, &e), &e);
        json_decref(v.ids);
    }
    r = reopen(r);
    see_rows(r, 1);
    see_the_rest(r);
    done(r);
}

static char *schema_of(struct records *r)
{
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(r->writer.db,
                                        "SELECT group_concat(name || ': ' || coalesce(sql, ''), char(10)) FROM"
                                        " (SELECT name, sql FROM sqlite_schema ORDER BY name)",
                                        -1, &st, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    char *ret = strdup((const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return ret;
}

/* Tables and indexes are those of a new database, and the old one is kept. */
static void it_becomes_as_a_new_one(void **state)
{
    (void)state;
    struct records *r = open_fixture();
    struct stat st;
    assert_true(news.migrated);
    assert_int_equal(stat(in_dir("records.db.v1"), &st), 0);
    CLEANUP_FREE char *migrated = schema_of(r);
    done(r);
    r = fresh();
    CLEANUP_FREE char *made = schema_of(r);
    assert_string_equal(migrated, made);
    done(r);
}

/* Each counter as it was, also for who looks at the database; a few rows have all of them. */
static void counters_are_in_few_rows(void **state)
{
    (void)state;
    struct records *r = open_fixture();
    const unsigned n = (unsigned)json_array_size(json_object_get(expected, "counters"));
    unsigned seen = 0;
    sqlite3_stmt *st;
    assert_int_equal(number(r, "SELECT count(*) FROM counter_values"), (n + COUNTERS_OF_PAGE - 1) / COUNTERS_OF_PAGE);
    assert_int_equal(sqlite3_prepare_v2(r->writer.db, "SELECT name, labels, value FROM counters", -1, &st, NULL),
                     SQLITE_OK);
    while (sqlite3_step(st) == SQLITE_ROW) {
        json_t *labels = json_loads((const char *)sqlite3_column_text(st, 1), 0, NULL);
        see_counter((const char *)sqlite3_column_text(st, 0), labels, sqlite3_column_double(st, 2), &seen);
        json_decref(labels);
    }
    sqlite3_finalize(st);
    assert_int_equal(seen, n);
    done(r);
}

/* What was made later is younger than all that the fixture has (RS-07). */
static void the_sequence_goes_on(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = open_fixture();
    CLEANUP(backup_clear) struct backup b;
    json_int_t most = 0;
    json_t *row;
    size_t i;
    for (enum row_kind k = 0; k < ROW_KINDS; k++)
        json_array_foreach(json_object_get(expected, sections[k]), i, row) most =
            number_of(row, "seq") > most ? number_of(row, "seq") : most;
    json_array_foreach(json_object_get(expected, "intents"), i, row) most =
        number_of(row, "id") > most ? number_of(row, "id") : most;
    backup_init(&b);
    str_set(&b.id, "manual-20261201T000000-0001");
    b.state = BACKUP_QUEUED;
    assert_ok(backup_add(r, &b, &e), &e);
    assert_true(b.seq > (uint64_t)most);
    done(r);
}

/* Those of one job have one policy in memory, and a volume is described once. */
static void what_is_the_same_is_shared(void **state)
{
    (void)state;
    struct records *r = open_fixture();
    size_t rows = 0;
    for (enum row_kind k = 0; k < ROW_KINDS; k++)
        rows += r->image.ids[k].n;
    assert_true(rows > 200 && shared_count() < 2 * rows);
    done(r);
    assert_int_equal(shared_count(), 0);
    assert_int_equal(str_count(), 0);
}

/* The comparison itself. */
static void losses_are_seen(void **state)
{
    (void)state;
    static const struct {
        const char *want, *got;
        bool same;
    } cases[] = {
        {"{\"a\": 1, \"b\": {\"c\": \"x\"}}", "{\"b\": {\"c\": \"x\"}, \"a\": 1, \"d\": 2}", true},
        {"{\"a\": 0, \"b\": {\"c\": \"\", \"d\": []}}", "{}", true},
        {"{\"a\": [1, {\"b\": 2.5}]}", "{\"a\": [1, {\"b\": 2.5}]}", true},
        {"{\"a\": 1}", "{}", false},
        {"{\"a\": {\"b\": {\"c\": true}}}", "{}", false},
        {"{\"a\": 9223372036854775807}", "{\"a\": 9223372036854775806}", false},
        {"{\"a\": [1, 2]}", "{\"a\": [1]}", false},
        {"{\"a\": \"x\"}", "{\"a\": 1}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *want = json_loads(cases[i].want, 0, NULL), *got = json_loads(cases[i].got, 0, NULL);
        lost = 0;
        compare(want, got, "");
        assert_int_equal(lost == 0, cases[i].same);
        json_decref(want);
        json_decref(got);
    }
    lost = 0;
}

static int setup(void **state)
{
    char cmd[300];
    snprintf(cmd, sizeof cmd, "xz -dc %s", fixture_path("schema-1/expected.json.xz"));
    FILE *f = popen(cmd, "r");
    expected = f ? json_loadf(f, JSON_ALLOW_NUL, NULL) : NULL;
    return !f || pclose(f) || !expected ? -1 : records_setup(state);
}
static int teardown(void **state)
{
    json_decref(expected);
    return records_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_seen),
        cmocka_unit_test(all_is_there_after_opening),
        cmocka_unit_test(all_is_there_after_each_was_saved),
        cmocka_unit_test(it_becomes_as_a_new_one),
        cmocka_unit_test(counters_are_in_few_rows),
        cmocka_unit_test(the_sequence_goes_on),
        cmocka_unit_test(what_is_the_same_is_shared),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
