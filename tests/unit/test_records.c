/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Records: rows, transactions, walking, intents, counters, lock, read-only view, prune (MS-11, MS-62, E-04). */
#include "tests/unit/records.h"

#include <sys/stat.h>

static void a_row_comes_back_as_it_was_written(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    struct rec a = make_rec("nightly-1", "Queued", "{\"x\":[1,2.5,\"\\u00fc\"],\"n\":null}");
    snprintf(a.parent, sizeof a.parent, "p");
    snprintf(a.volume, sizeof a.volume, "v");
    a.wake_ns = -5;
    assert_ok(records_add(r, REC_BACKUP, &a, &e), &e);
    assert_true(a.seq > 0 && a.generation == 1 && a.created_ns > 0 && a.updated_ns == a.created_ns);
    CLEANUP(rec_clearp) struct rec b = REC_INIT;
    assert_ok(records_get(r, REC_BACKUP, "nightly-1", &b, &e), &e);
    assert_true(json_equal(a.doc, b.doc));
    assert_string_equal(b.parent, "p");
    assert_string_equal(b.volume, "v");
    assert_string_equal(b.state, "Queued");
    assert_true(b.seq == a.seq && b.generation == 1 && b.wake_ns == -5 && b.created_ns == a.created_ns);
    rec_clear(&b);
    assert_int_equal(records_get(r, REC_OPERATION, "nightly-1", &b, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_NOT_FOUND);
    assert_int_equal(records_add(r, REC_BACKUP, &a, &e), -EEXIST);
    assert_int_equal(e.cls, ERR_EXISTS);
    assert_int_equal(records_write_errors(r), 0);
    rec_clear(&a);
    done(r);
}

static void a_stale_copy_is_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    struct rec a = make_rec("x", "Queued", "{}");
    assert_ok(records_add(r, REC_OPERATION, &a, &e), &e);
    CLEANUP(rec_clearp) struct rec b = REC_INIT;
    assert_ok(rec_copy(&b, &a, &e), &e);
    assert_ok(records_save(r, REC_OPERATION, &a, &e), &e);
    assert_int_equal(a.generation, 2);
    assert_int_equal(records_save(r, REC_OPERATION, &b, &e), -ESTALE);
    /* The same id made anew is another row, whatever its generation. */
    assert_ok(records_delete(r, REC_OPERATION, "x", &e), &e);
    assert_int_equal(records_delete(r, REC_OPERATION, "x", &e), -ENOENT);
    assert_int_equal(records_save(r, REC_OPERATION, &b, &e), -ENOENT);
    CLEANUP(rec_clearp) struct rec c = make_rec("x", "Queued", "{}");
    assert_ok(records_add(r, REC_OPERATION, &c, &e), &e);
    assert_int_equal(c.generation, b.generation);
    assert_int_equal(records_save(r, REC_OPERATION, &b, &e), -ESTALE);
    rec_clear(&a);
    done(r);
}

/* MS-62: terminal states are absorbing; RS-23: a finished backup may be Deleting, and then only go. */
static void terminal_states_are_absorbing(void **state)
{
    (void)state;
    static const char *const terminal[] = {"Completed", "PartiallyFailed", "Failed", "Canceled", "Skipped"};
    struct err e = ERR_INIT;
    struct records *r = fresh();
    for (size_t i = 0; i < 5; i++) {
        assert_true(state_terminal(terminal[i]));
        for (int k = 0; k < 2; k++) {
            enum rec_kind kind = k ? REC_BACKUP : REC_OPERATION;
            CLEANUP(rec_clearp) struct rec a = make_rec(terminal[i], "Running", "{}");
            assert_ok(records_add(r, kind, &a, &e), &e);
            snprintf(a.state, sizeof a.state, "%s", terminal[i]);
            assert_ok(records_save(r, kind, &a, &e), &e);
            json_object_set_new(a.doc, "note", json_string("later"));
            assert_ok(records_save(r, kind, &a, &e), &e);
            snprintf(a.state, sizeof a.state, "Running");
            assert_int_equal(records_save(r, kind, &a, &e), -EINVAL);
            snprintf(a.state, sizeof a.state, "%s", terminal[(i + 1) % 5]);
            assert_int_equal(records_save(r, kind, &a, &e), -EINVAL);
            snprintf(a.state, sizeof a.state, "Deleting");
            if (kind == REC_OPERATION) {
                assert_int_equal(records_save(r, kind, &a, &e), -EINVAL);
                continue;
            }
            assert_ok(records_save(r, kind, &a, &e), &e);
            snprintf(a.state, sizeof a.state, "Completed");
            assert_int_equal(records_save(r, kind, &a, &e), -EINVAL);
        }
    }
    assert_false(state_terminal("Deleting"));
    assert_false(state_terminal(""));
    done(r);
}

static void bad_rows_are_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    struct rec a = make_rec("", "Queued", "{}");
    assert_int_equal(records_add(r, REC_BACKUP, &a, &e), -EINVAL);
    rec_clear(&a);
    a = make_rec("a", "Queued", "[1]");
    assert_int_equal(records_add(r, REC_BACKUP, &a, &e), -EINVAL);
    rec_clear(&a);
    a = make_rec("a", "Queued", "{}");
    char *big = malloc(17u << 20);
    memset(big, 'x', (17u << 20) - 1);
    big[(17u << 20) - 1] = '\0';
    json_object_set_new(a.doc, "big", json_string(big));
    free(big);
    assert_int_equal(records_add(r, REC_BACKUP, &a, &e), -E2BIG);
    rec_clear(&a);
    assert_int_equal(count(r, REC_BACKUP, NULL), 0);
    done(r);
}

/* ---- walking ---- */

struct seen {
    char text[512];
    struct records *r;
    int rc;
};
static int note(struct rec *rec, void *arg)
{
    struct seen *s = arg;
    strcat(s->text, rec->id);
    strcat(s->text, " ");
    return s->rc;
}
static const char *walk(struct records *r, struct rec_filter f)
{
    static struct seen s;
    struct err e = ERR_INIT;
    s = (struct seen){.r = r};
    assert_ok(records_each(r, REC_OPERATION, &f, note, &s, &e), &e);
    return s.text;
}

static void filters_and_order(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    static const char *const rows[][4] = {{"a", "p1", "v1", "Queued"},
                                          {"b", "p1", "v2", "Completed"},
                                          {"c", "p2", "v1", "Running"},
                                          {"d", "p2", "v2", "Failed"},
                                          {"e", "p1", "v1", "Running"}};
    for (int i = 0; i < 5; i++) {
        CLEANUP(rec_clearp) struct rec a = make_rec(rows[i][0], rows[i][3], "{}");
        snprintf(a.parent, sizeof a.parent, "%s", rows[i][1]);
        snprintf(a.volume, sizeof a.volume, "%s", rows[i][2]);
        assert_ok(records_add(r, REC_OPERATION, &a, &e), &e);
    }
    assert_string_equal(walk(r, (struct rec_filter){.parent = NULL}), "a b c d e ");
    assert_string_equal(walk(r, (struct rec_filter){.newest_first = true, .limit = 2}), "e d ");
    assert_string_equal(walk(r, (struct rec_filter){.live = true}), "a c e ");
    assert_string_equal(walk(r, (struct rec_filter){.live = true, .newest_first = true}), "e c a ");
    assert_string_equal(walk(r, (struct rec_filter){.parent = "p1", .live = true}), "a e ");
    assert_string_equal(walk(r, (struct rec_filter){.volume = "v1", .state = "Running"}), "c e ");
    assert_string_equal(walk(r, (struct rec_filter){.state = "Completed"}), "b ");
    assert_string_equal(walk(r, (struct rec_filter){.state = "Running"}), "c e ");
    assert_string_equal(walk(r, (struct rec_filter){.state = "Completed", .live = true}), "");
    assert_int_equal(count(r, REC_OPERATION, &(struct rec_filter){.live = true}), 3);
    assert_int_equal(count(r, REC_OPERATION, &(struct rec_filter){.parent = "p2"}), 2);
    assert_int_equal(count(r, REC_OPERATION, &(struct rec_filter){.limit = 4}), 4);
    struct seen s = {.rc = 7};
    assert_int_equal(records_each(r, REC_OPERATION, NULL, note, &s, &e), 7);
    assert_string_equal(s.text, "a ");
    done(r);
}

/* While walking, rows are added, changed and deleted. */
static int meddle(struct rec *rec, void *arg)
{
    struct seen *s = arg;
    struct err e = ERR_INIT;
    note(rec, arg);
    if (strcmp(rec->id, "r01") == 0) {
        CLEANUP(rec_clearp) struct rec n = make_rec("new", "Queued", "{}");
        assert_ok(records_add(s->r, REC_OPERATION, &n, &e), &e);
        assert_ok(records_delete(s->r, REC_OPERATION, "r02", &e), &e);
        CLEANUP(rec_clearp) struct rec m = REC_INIT;
        assert_ok(records_get(s->r, REC_OPERATION, "r03", &m, &e), &e);
        snprintf(m.state, sizeof m.state, "Failed");
        assert_ok(records_save(s->r, REC_OPERATION, &m, &e), &e);
    }
    snprintf(rec->state, sizeof rec->state, "Running");
    assert_ok(records_save(s->r, REC_OPERATION, rec, &e), &e);
    return 0;
}

static void walking_bears_writing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    for (int i = 0; i < 6; i++) {
        char id[8];
        snprintf(id, sizeof id, "r%02d", i);
        CLEANUP(rec_clearp) struct rec a = make_rec(id, "Queued", "{}");
        assert_ok(records_add(r, REC_OPERATION, &a, &e), &e);
    }
    struct seen s = {.r = r};
    assert_ok(records_each(r, REC_OPERATION, &(struct rec_filter){.live = true}, meddle, &s, &e), &e);
    assert_string_equal(s.text, "r00 r01 r04 r05 ");
    assert_int_equal(count(r, REC_OPERATION, &(struct rec_filter){.state = "Running"}), 4);
    done(r);
}

/* ---- transactions ---- */

static void transactions_are_all_or_nothing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(rec_clearp) struct rec a = make_rec("a", "Queued", "{}"), b = make_rec("b", "Queued", "{}");
    assert_ok(records_begin(r, &e), &e);
    assert_ok(records_add(r, REC_BACKUP, &a, &e), &e);
    assert_ok(records_begin(r, &e), &e);
    assert_ok(records_add(r, REC_BACKUP, &b, &e), &e);
    assert_ok(records_commit(r, &e), &e);
    assert_int_equal(records_add(r, REC_BACKUP, &b, &e), -EEXIST); /* a refusal does not undo the rest */
    assert_ok(records_commit(r, &e), &e);
    assert_int_equal(count(r, REC_BACKUP, NULL), 2);
    uint64_t last = b.seq;

    assert_ok(records_begin(r, &e), &e);
    assert_ok(records_delete(r, REC_BACKUP, "a", &e), &e);
    assert_ok(records_begin(r, &e), &e);
    assert_ok(records_delete(r, REC_BACKUP, "b", &e), &e);
    records_rollback(r);
    assert_int_equal(records_save(r, REC_BACKUP, &a, &e), -ECANCELED);
    assert_int_equal(records_commit(r, &e), -ECANCELED);
    assert_int_equal(count(r, REC_BACKUP, NULL), 2);
    assert_int_equal(records_commit(r, &e), -EINVAL);
    records_rollback(r);

    /* Numbers of what was undone are not given again. */
    assert_ok(records_begin(r, &e), &e);
    CLEANUP(rec_clearp) struct rec c = make_rec("c", "Queued", "{}"), d = make_rec("d", "Queued", "{}");
    assert_ok(records_add(r, REC_BACKUP, &c, &e), &e);
    records_rollback(r);
    assert_ok(records_add(r, REC_BACKUP, &d, &e), &e);
    assert_true(c.seq > last && d.seq > c.seq);
    rec_clear(&b);
    rec_clear(&d);
    done(r);
}

static void the_sequence_is_never_reused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(rec_clearp) struct rec a = make_rec("a", "Queued", "{}"), b = make_rec("b", "Queued", "{}");
    assert_ok(records_add(r, REC_BACKUP, &a, &e), &e);
    assert_ok(records_delete(r, REC_BACKUP, "a", &e), &e);
    r = reopen(r);
    assert_ok(records_add(r, REC_NATIVE, &b, &e), &e);
    assert_true(b.seq > a.seq);
    /* A number that was found on storage (RS-15) is passed by. */
    assert_ok(records_seq_at_least(r, b.seq + 1000, &e), &e);
    assert_ok(records_seq_at_least(r, 5, &e), &e);
    assert_int_equal(records_seq_at_least(r, UINT64_MAX, &e), -ERANGE);
    r = reopen(r);
    rec_clear(&a);
    a = make_rec("c", "Queued", "{}");
    assert_ok(records_add(r, REC_NATIVE, &a, &e), &e);
    assert_true(a.seq > b.seq + 1000);
    rec_clear(&b);
    done(r);
}

/* The clock may jump: order is by number, and time of change is what the clock said. */
static int64_t jump;
static int64_t jumping_clock(void)
{
    return jump;
}
static void order_does_not_follow_the_clock(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    int64_t (*real)(void) = records_clock;
    records_clock = jumping_clock;
    static const int64_t at[] = {2000000000000000000, 1000000000, 1700000000000000000, -5};
    for (int i = 0; i < 4; i++) {
        char id[4] = {(char)('a' + i), 0};
        CLEANUP(rec_clearp) struct rec a = make_rec(id, "Queued", "{}");
        jump = at[i];
        assert_ok(records_add(r, REC_OPERATION, &a, &e), &e);
        assert_true(a.created_ns == at[i]);
        r = reopen(r);
    }
    records_clock = real;
    assert_string_equal(walk(r, (struct rec_filter){.newest_first = true}), "d c b a ");
    done(r);
}

/* ---- intents ---- */

static int note_intent(struct intent *i, void *arg)
{
    struct seen *s = arg;
    struct err e = ERR_INIT;
    const char *h = json_string_value(json_object_get(i->doc, "h"));
    size_t n = strlen(s->text);
    snprintf(s->text + n, sizeof s->text - n, "%s/%s=%s ", i->kind, i->name, h ? h : "");
    if (s->rc)
        assert_ok(records_intent_resolve(s->r, i->id, &e), &e);
    return 0;
}

/* E-04: names are durable before the objects; undone in the reverse order. */
static void intents_survive_until_resolved(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    uint64_t id[3];
    assert_ok(records_intent_add(r, "up-1", "native", "alias-1", json_pack("{s:s}", "h", "one"), &id[0], &e), &e);
    assert_ok(records_intent_add(r, "up-2", "unit", "u.service", NULL, &id[1], &e), &e);
    assert_ok(records_intent_add(r, "up-1", "exposure", "alias-2", NULL, &id[2], &e), &e);
    assert_ok(records_intent_update(r, id[2], json_pack("{s:s}", "h", "two"), &e), &e);
    r = reopen(r);
    struct seen s = {.r = r};
    assert_ok(records_intents(r, "up-1", note_intent, &s, &e), &e);
    assert_string_equal(s.text, "exposure/alias-2=two native/alias-1=one ");
    s = (struct seen){.r = r, .rc = 1};
    assert_ok(records_intents(r, NULL, note_intent, &s, &e), &e);
    assert_string_equal(s.text, "exposure/alias-2=two unit/u.service= native/alias-1=one ");
    assert_int_equal(records_intent_resolve(r, id[0], &e), -ENOENT);
    assert_int_equal(records_intent_update(r, id[0], json_object(), &e), -ENOENT);
    assert_int_equal(records_intent_add(r, "o", "k", "n", json_array(), NULL, &e), -EINVAL);
    char name[600];
    memset(name, 'n', sizeof name - 1);
    name[599] = '\0';
    assert_int_equal(records_intent_add(r, "o", "k", name, NULL, NULL, &e), -ENAMETOOLONG);
    done(r);
}

/* ---- counters and small values ---- */

static int sum_counters(const char *name, const json_t *labels, double v, void *arg)
{
    const char *c = json_string_value(json_object_get(labels, "class"));
    sprintf((char *)arg + strlen(arg), "%s{%s}=%g ", name, c ? c : "", v);
    return 0;
}

static void counters_survive(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    json_t *gold = json_pack("{s:s}", "class", "gold");
    assert_ok(records_counter_add(r, "ops", gold, 1, &e), &e);
    assert_ok(records_counter_add(r, "ops", gold, 2.5, &e), &e);
    assert_ok(records_counter_add(r, "bytes", NULL, 1e15, &e), &e);
    assert_int_equal(records_counter_add(r, "ops", gold, NAN, &e), -EINVAL);
    r = reopen(r);
    char text[256] = "";
    assert_ok(records_counters(r, sum_counters, text, &e), &e);
    assert_string_equal(text, "bytes{}=1e+15 ops{gold}=3.5 ");
    assert_ok(records_counter_add(r, "ops", gold, 1, &e), &e);
    /* They go with the next commit: nothing is lost by a crash after it. */
    assert_ok(records_meta_set(r, "k", "v", &e), &e);
    records_abandon(r);
    r = open_again();
    text[0] = '\0';
    assert_ok(records_counters(r, sum_counters, text, &e), &e);
    assert_string_equal(text, "bytes{}=1e+15 ops{gold}=4.5 ");
    /* A write that was undone does not lose them. */
    assert_ok(records_counter_add(r, "ops", gold, 1, &e), &e);
    assert_ok(records_begin(r, &e), &e);
    records_rollback(r);
    assert_ok(records_flush(r, &e), &e);
    records_abandon(r);
    r = open_again();
    text[0] = '\0';
    assert_ok(records_counters(r, sum_counters, text, &e), &e);
    assert_string_equal(text, "bytes{}=1e+15 ops{gold}=5.5 ");
    json_decref(gold);
    done(r);
}

static void small_values(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    char v[16];
    assert_int_equal(records_meta_get(r, "k", v, sizeof v, &e), -ENOENT);
    assert_ok(records_meta_set(r, "k", "one", &e), &e);
    assert_ok(records_meta_set(r, "k", "two", &e), &e);
    r = reopen(r);
    assert_ok(records_meta_get(r, "k", v, sizeof v, &e), &e);
    assert_string_equal(v, "two");
    assert_int_equal(records_meta_get(r, "k", v, 3, &e), -ERANGE);
    assert_ok(records_meta_set(r, "k", NULL, &e), &e);
    assert_int_equal(records_meta_get(r, "k", v, sizeof v, &e), -ENOENT);
    assert_int_equal(records_meta_set(r, "schema", "9", &e), -EINVAL);
    assert_int_equal(records_meta_set(r, "seq", "1", &e), -EINVAL);
    done(r);
}

/* ---- opening ---- */

/* MS-11: one writer; nobody else reads it. */
static void one_process_and_private_files(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh(), *s;
    struct stat st;
    assert_true(news.created && !news.recovered && !news.migrated);
    assert_int_equal(records_open(&s, dir, NULL, &e), -EBUSY);
    assert_int_equal(e.cls, ERR_BUSY);
    assert_non_null(strstr(e.msg, "number"));
    assert_return_code(stat(dir, &st), errno);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_return_code(stat(in_dir("records.db"), &st), errno);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_return_code(stat(in_dir("records.db-wal"), &st), errno);
    assert_int_equal(st.st_mode & 0777, 0600);
    r = reopen(r);
    assert_false(news.created);
    done(r);
}

static void a_document_that_is_none_is_set_aside(void **state)
{
    (void)state;
    static const char *const bad[] = {"{\"a\":", "[1]", "", "{\"a\":1}trailing", "\xff\xfe", "nul"};
    struct err e = ERR_INIT;
    struct records *r = fresh();
    for (int i = 0; i < 8; i++) {
        char id[8];
        snprintf(id, sizeof id, "r%d", i);
        CLEANUP(rec_clearp) struct rec a = make_rec(id, "Queued", "{}");
        assert_ok(records_add(r, REC_OPERATION, &a, &e), &e);
    }
    uint64_t intent;
    assert_ok(records_intent_add(r, "o", "native", "alias", json_object(), &intent, &e), &e);
    for (int i = 0; i < 6; i++) {
        char sql[200];
        snprintf(sql, sizeof sql, "UPDATE operations SET doc='%s' WHERE id='r%d'", bad[i], i);
        exec(r, sql);
    }
    char sql[800];
    snprintf(sql, sizeof sql, "UPDATE operations SET id='%0*d' WHERE id='r6'", 700, 1);
    exec(r, sql);
    exec(r, "UPDATE intents SET doc='{{'");
    logged = 0;
    CLEANUP(rec_clearp) struct rec a = REC_INIT;
    assert_int_equal(records_get(r, REC_OPERATION, "r0", &a, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_int_equal(records_get(r, REC_OPERATION, "r0", &a, &e), -ENOENT);
    assert_string_equal(walk(r, (struct rec_filter){.live = true}), "r7 ");
    assert_int_equal(logged, 7);
    assert_int_equal(records_set_aside(r), 7);
    assert_int_equal(number(r, "SELECT count(*) FROM set_aside"), 7);
    assert_int_equal(number(r, "SELECT count(*) FROM set_aside WHERE doc='[1]' AND kind='operations'"), 1);
    /* An intent is kept: its name is enough. */
    struct seen s = {.r = r};
    assert_ok(records_intents(r, "o", note_intent, &s, &e), &e);
    assert_string_equal(s.text, "native/alias= ");
    done(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_comes_back_as_it_was_written),
        cmocka_unit_test(a_stale_copy_is_refused),
        cmocka_unit_test(terminal_states_are_absorbing),
        cmocka_unit_test(bad_rows_are_refused),
        cmocka_unit_test(filters_and_order),
        cmocka_unit_test(walking_bears_writing),
        cmocka_unit_test(transactions_are_all_or_nothing),
        cmocka_unit_test(the_sequence_is_never_reused),
        cmocka_unit_test(order_does_not_follow_the_clock),
        cmocka_unit_test(intents_survive_until_resolved),
        cmocka_unit_test(counters_survive),
        cmocka_unit_test(small_values),
        cmocka_unit_test(one_process_and_private_files),
        cmocka_unit_test(a_document_that_is_none_is_set_aside),
    };
    return cmocka_run_group_tests_name("records", tests, records_setup, records_teardown);
}
