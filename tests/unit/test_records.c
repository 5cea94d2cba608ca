/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Records: rows, transactions, walking, intents, counters, lock, read-only view, prune (MS-11, MS-62, E-04). */
#include "tests/unit/records.h"

#include <sys/stat.h>

static void a_row_comes_back_as_it_was_written(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(backup_clear)
    struct backup a = make_backup("nightly-1", BACKUP_QUEUED, "{\"x\":[1,2.5,\"\\u00fc\"],\"n\":null}");
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    str_set(&a.parent, "p");
    str_set(&a.volume_id, "v");
    a.wake_ns = -5;
    assert_ok(backup_add(r, &a, &e), &e);
    assert_true(a.seq > 0 && a.generation == 1 && a.created_ns > 0 && a.updated_ns == a.created_ns);
    for (int i = 0; i < 2; i++) {
        backup_clear(&b);
        assert_ok(backup_get(r, "nightly-1", &b, &e), &e);
        assert_true(fields_equal(&backup_fields, &a, &b));
        assert_string_equal(b.parent, "p");
        assert_string_equal(b.volume_id, "v");
        assert_int_equal(b.state, BACKUP_QUEUED);
        assert_true(b.seq == a.seq && b.generation == 1 && b.wake_ns == -5 && b.created_ns == a.created_ns);
        r = reopen(r);
    }
    assert_int_equal(operation_get(r, "nightly-1", &op, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_NOT_FOUND);
    assert_int_equal(backup_add(r, &a, &e), -EEXIST);
    assert_int_equal(e.cls, ERR_EXISTS);
    assert_int_equal(records_write_errors(r), 0);
    done(r);
}

/* A row that is finished is only on disk, and is found, saved and deleted there. */
static void finished_rows_leave_the_memory(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(operation_clear) struct operation a = make_operation("a", OP_RUNNING, "{\"newer\":[1]}"), b = ROW_INIT;
    assert_ok(operation_add(r, &a, &e), &e);
    const struct operation *seen = operation_peek(r, "a");
    assert_non_null(seen);
    assert_int_equal(seen->state, OP_RUNNING);
    assert_null(operation_peek(r, "b"));
    a.state = OP_COMPLETED;
    assert_ok(records_begin(r, &e), &e);
    assert_ok(operation_save(r, &a, &e), &e);
    assert_null(operation_peek(r, "a"));
    assert_ok(operation_get(r, "a", &b, &e), &e); /* not yet on disk as it is now */
    assert_int_equal(b.state, OP_COMPLETED);
    assert_int_equal(count_operation(r, &(struct operation_filter){.state = OP_COMPLETED}), 1);
    assert_ok(records_commit(r, &e), &e);
    assert_int_equal(r->image.ids[ROW_OPERATION].n, 0);
    operation_clear(&b);
    assert_ok(operation_get(r, "a", &b, &e), &e);
    assert_true(fields_equal(&operation_fields, &a, &b));
    assert_int_equal(operation_add(r, &a, &e), -EEXIST);
    b.lost = true;
    assert_ok(operation_save(r, &b, &e), &e);
    assert_int_equal(operation_save(r, &a, &e), -ESTALE);
    b.state = OP_RUNNING;
    assert_int_equal(operation_save(r, &b, &e), -EINVAL);
    assert_int_equal(r->image.ids[ROW_OPERATION].n, 0);
    assert_ok(records_begin(r, &e), &e);
    assert_ok(operation_delete(r, "a", &e), &e);
    assert_int_equal(count_operation(r, NULL), 0);
    operation_clear(&a);
    assert_int_equal(operation_get(r, "a", &a, &e), -ENOENT);
    records_rollback(r);
    assert_int_equal(count_operation(r, NULL), 1);
    assert_ok(operation_delete(r, "a", &e), &e);
    r = reopen(r);
    assert_int_equal(count_operation(r, NULL), 0);
    done(r);
}

static void a_stale_copy_is_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(operation_clear) struct operation a = make_operation("x", OP_QUEUED, NULL), b = ROW_INIT;
    assert_ok(operation_add(r, &a, &e), &e);
    operation_copy(&b, &a);
    assert_ok(operation_save(r, &a, &e), &e);
    assert_int_equal(a.generation, 2);
    assert_int_equal(operation_save(r, &b, &e), -ESTALE);
    /* The same id made anew is another row, whatever its generation. */
    assert_ok(operation_delete(r, "x", &e), &e);
    assert_int_equal(operation_delete(r, "x", &e), -ENOENT);
    assert_int_equal(operation_save(r, &b, &e), -ENOENT);
    CLEANUP(operation_clear) struct operation c = make_operation("x", OP_QUEUED, NULL);
    assert_ok(operation_add(r, &c, &e), &e);
    assert_int_equal(c.generation, b.generation);
    assert_int_equal(operation_save(r, &b, &e), -ESTALE);
    /* Also within one transaction. */
    assert_ok(records_begin(r, &e), &e);
    assert_ok(operation_delete(r, "x", &e), &e);
    CLEANUP(operation_clear) struct operation d = make_operation("x", OP_RUNNING, NULL);
    assert_ok(operation_add(r, &d, &e), &e);
    assert_int_equal(operation_save(r, &c, &e), -ESTALE);
    assert_ok(records_commit(r, &e), &e);
    r = reopen(r);
    assert_int_equal(operation_peek(r, "x")->seq, d.seq);
    assert_int_equal(number(r, "SELECT count(*) FROM operations"), 1);
    done(r);
}

/* MS-62: terminal states are absorbing; RS-23: a finished backup may be Deleting, and then only go. */
static void terminal_states_are_absorbing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    for (enum outcome o = OUTCOME_COMPLETED; o < OUTCOMES; o++) {
        CLEANUP(operation_clear) struct operation op = make_operation(outcome_name(o), OP_RUNNING, NULL);
        CLEANUP(backup_clear) struct backup b = make_backup(outcome_name(o), BACKUP_MOVING, NULL);
        assert_ok(operation_add(r, &op, &e), &e);
        assert_ok(backup_add(r, &b, &e), &e);
        op.state = op_state_of(o);
        b.state = backup_state_of(o);
        assert_true(op_state_terminal(op.state) && backup_state_terminal(b.state));
        assert_ok(operation_save(r, &op, &e), &e);
        assert_ok(backup_save(r, &b, &e), &e);
        str_set(&op.why, "later");
        assert_ok(operation_save(r, &op, &e), &e);
        op.state = OP_RUNNING;
        assert_int_equal(operation_save(r, &op, &e), -EINVAL);
        op.state = o == OUTCOME_FAILED ? OP_COMPLETED : OP_FAILED;
        assert_int_equal(operation_save(r, &op, &e), -EINVAL);
        b.state = BACKUP_MOVING;
        assert_int_equal(backup_save(r, &b, &e), -EINVAL);
        b.state = o == OUTCOME_FAILED ? BACKUP_COMPLETED : BACKUP_FAILED;
        assert_int_equal(backup_save(r, &b, &e), -EINVAL);
        b.state = BACKUP_DELETING;
        assert_ok(backup_save(r, &b, &e), &e);
        assert_non_null(backup_peek(r, b.id));
        b.state = BACKUP_COMPLETED;
        assert_int_equal(backup_save(r, &b, &e), -EINVAL);
    }
    assert_false(backup_state_terminal(BACKUP_DELETING));
    assert_false(op_state_terminal(OP_NONE));
    done(r);
}

static void bad_rows_are_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(backup_clear) struct backup a = make_backup("", BACKUP_QUEUED, NULL);
    assert_int_equal(backup_add(r, &a, &e), -EINVAL);
    str_set(&a.id, "a");
    char *big = malloc(17u << 20);
    memset(big, 'x', (17u << 20) - 1);
    big[(17u << 20) - 1] = '\0';
    str_set(&a.description, big);
    free(big);
    assert_int_equal(backup_add(r, &a, &e), -E2BIG);
    assert_int_equal(count_backup(r, NULL), 0);
    done(r);
}

/* What could not be set for lack of memory is not saved as if it had been. */
static void a_row_that_lacks_something_is_not_saved(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(backup_clear) struct backup a = make_backup("a", BACKUP_QUEUED, NULL);
    strings_set_nomem();
    assert_int_equal(backup_add(r, &a, &e), -ENOMEM);
    assert_ok(backup_add(r, &a, &e), &e);
    done(r);
}

/* ---- walking ---- */

struct seen {
    char text[512];
    struct records *r;
    int rc;
};
static int note(const struct operation *op, void *arg)
{
    struct seen *s = arg;
    strcat(s->text, op->id);
    strcat(s->text, " ");
    return s->rc;
}
static const char *walk(struct records *r, struct operation_filter f)
{
    static struct seen s;
    struct err e = ERR_INIT;
    s = (struct seen){.r = r};
    assert_ok(operation_each(r, &f, note, &s, &e), &e);
    return s.text;
}

static void filters_and_order(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    static const struct {
        const char *id, *parent, *volume_id;
        enum op_state state;
    } rows[] = {{"a", "p1", "v1", OP_QUEUED},
                {"b", "p1", "v2", OP_COMPLETED},
                {"c", "p2", "v1", OP_RUNNING},
                {"d", "p2", "v2", OP_FAILED},
                {"e", "p1", "v1", OP_RUNNING}};
    for (int i = 0; i < 5; i++) {
        CLEANUP(operation_clear) struct operation a = make_operation(rows[i].id, rows[i].state, NULL);
        str_set(&a.parent, rows[i].parent);
        str_set(&a.volume_id, rows[i].volume_id);
        assert_ok(operation_add(r, &a, &e), &e);
    }
    for (int again = 0; again < 2; again++) {
        assert_string_equal(walk(r, (struct operation_filter){.parent = NULL}), "a b c d e ");
        assert_string_equal(walk(r, (struct operation_filter){.newest_first = true, .limit = 2}), "e d ");
        assert_string_equal(walk(r, (struct operation_filter){.live = true}), "a c e ");
        assert_string_equal(walk(r, (struct operation_filter){.live = true, .newest_first = true}), "e c a ");
        assert_string_equal(walk(r, (struct operation_filter){.parent = "p1", .live = true}), "a e ");
        assert_string_equal(walk(r, (struct operation_filter){.volume_id = "v1", .state = OP_RUNNING}), "c e ");
        assert_string_equal(walk(r, (struct operation_filter){.state = OP_COMPLETED}), "b ");
        assert_string_equal(walk(r, (struct operation_filter){.state = OP_RUNNING}), "c e ");
        assert_string_equal(walk(r, (struct operation_filter){.state = OP_COMPLETED, .live = true}), "");
        assert_int_equal(count_operation(r, &(struct operation_filter){.live = true}), 3);
        assert_int_equal(count_operation(r, &(struct operation_filter){.parent = "p2"}), 2);
        assert_int_equal(count_operation(r, &(struct operation_filter){.limit = 4}), 4);
        assert_int_equal(count_operation(r, &(struct operation_filter){.parent = "p1", .live = true}), 2);
        assert_int_equal(count_operation(r, &(struct operation_filter){.state = OP_RUNNING}), 2);
        assert_int_equal(count_operation(r, &(struct operation_filter){.state = OP_FAILED}), 1);
        assert_int_equal(count_operation(r, &(struct operation_filter){.volume_id = "v2"}), 2);
        assert_int_equal(count_operation(r, NULL), 5);
        r = reopen(r);
    }
    struct seen s = {.rc = 7};
    assert_int_equal(operation_each(r, NULL, note, &s, &e), 7);
    assert_string_equal(s.text, "a ");
    done(r);
}

/* While walking, rows are added, changed and deleted. */
static int meddle(const struct operation *op, void *arg)
{
    struct seen *s = arg;
    struct err e = ERR_INIT;
    note(op, arg);
    if (strcmp(op->id, "r01") == 0) {
        CLEANUP(operation_clear) struct operation n = make_operation("new", OP_QUEUED, NULL), m = ROW_INIT;
        assert_ok(operation_add(s->r, &n, &e), &e);
        assert_ok(operation_delete(s->r, "r02", &e), &e);
        assert_ok(operation_get(s->r, "r03", &m, &e), &e);
        m.state = OP_FAILED;
        assert_ok(operation_save(s->r, &m, &e), &e);
    }
    CLEANUP(operation_clear) struct operation own = ROW_INIT;
    operation_copy(&own, op);
    own.state = OP_RUNNING;
    assert_ok(operation_save(s->r, &own, &e), &e);
    assert_int_equal(op->state, OP_QUEUED); /* what is looked at stays as it was */
    return 0;
}

static void walking_bears_writing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (int in_transaction = 0; in_transaction < 2; in_transaction++) {
        struct records *r = fresh();
        for (int i = 0; i < 6; i++) {
            char id[8];
            snprintf(id, sizeof id, "r%02d", i);
            CLEANUP(operation_clear) struct operation a = make_operation(id, OP_QUEUED, NULL);
            assert_ok(operation_add(r, &a, &e), &e);
        }
        struct seen s = {.r = r};
        if (in_transaction)
            assert_ok(records_begin(r, &e), &e);
        assert_ok(operation_each(r, &(struct operation_filter){.live = true}, meddle, &s, &e), &e);
        assert_string_equal(s.text, "r00 r01 r04 r05 ");
        assert_int_equal(count_operation(r, &(struct operation_filter){.state = OP_RUNNING}), 4);
        assert_int_equal(count_operation(r, &(struct operation_filter){.state = OP_FAILED}), 1);
        assert_int_equal(count_operation(r, NULL), 6);
        if (in_transaction)
            assert_ok(records_commit(r, &e), &e);
        r = reopen(r);
        assert_int_equal(count_operation(r, &(struct operation_filter){.state = OP_RUNNING}), 4);
        assert_int_equal(count_operation(r, NULL), 6);
        done(r);
    }
}

/* ---- transactions ---- */

static void transactions_are_all_or_nothing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(backup_clear)
    struct backup a = make_backup("a", BACKUP_QUEUED, NULL), b = make_backup("b", BACKUP_QUEUED, NULL);
    assert_ok(records_begin(r, &e), &e);
    assert_ok(backup_add(r, &a, &e), &e);
    assert_ok(records_begin(r, &e), &e);
    assert_ok(backup_add(r, &b, &e), &e);
    assert_ok(records_commit(r, &e), &e);
    assert_int_equal(backup_add(r, &b, &e), -EEXIST); /* a refusal does not undo the rest */
    assert_ok(records_commit(r, &e), &e);
    assert_int_equal(count_backup(r, NULL), 2);
    uint64_t last = b.seq;

    assert_ok(records_begin(r, &e), &e);
    assert_ok(backup_delete(r, "a", &e), &e);
    assert_ok(records_begin(r, &e), &e);
    assert_ok(backup_delete(r, "b", &e), &e);
    records_rollback(r);
    assert_int_equal(backup_save(r, &a, &e), -ECANCELED);
    assert_int_equal(records_commit(r, &e), -ECANCELED);
    assert_int_equal(count_backup(r, NULL), 2);
    assert_int_equal(records_commit(r, &e), -EINVAL);
    records_rollback(r);

    /* Numbers of what was undone are not given again. */
    assert_ok(records_begin(r, &e), &e);
    CLEANUP(backup_clear)
    struct backup c = make_backup("c", BACKUP_QUEUED, NULL), d = make_backup("d", BACKUP_QUEUED, NULL);
    assert_ok(backup_add(r, &c, &e), &e);
    records_rollback(r);
    assert_ok(backup_add(r, &d, &e), &e);
    assert_true(c.seq > last && d.seq > c.seq);
    done(r);
}

static void the_sequence_is_never_reused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(backup_clear) struct backup a = make_backup("a", BACKUP_QUEUED, NULL);
    CLEANUP(native_row_clear)
    struct native_row b = make_native_row("b", NATIVE_PRESENT, NULL), c = make_native_row("c", NATIVE_PRESENT, NULL);
    assert_ok(backup_add(r, &a, &e), &e);
    assert_ok(backup_delete(r, "a", &e), &e);
    r = reopen(r);
    assert_ok(native_row_add(r, &b, &e), &e);
    assert_true(b.seq > a.seq);
    /* A number that was found on storage (RS-15) is passed by. */
    assert_ok(records_seq_at_least(r, b.seq + 1000, &e), &e);
    assert_ok(records_seq_at_least(r, 5, &e), &e);
    assert_int_equal(records_seq_at_least(r, UINT64_MAX, &e), -ERANGE);
    records_abandon(r);
    r = open_again();
    assert_ok(native_row_add(r, &c, &e), &e);
    assert_true(c.seq > b.seq + 1000);
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
        CLEANUP(operation_clear) struct operation a = make_operation(id, OP_QUEUED, NULL);
        jump = at[i];
        assert_ok(operation_add(r, &a, &e), &e);
        assert_true(a.created_ns == at[i]);
        r = reopen(r);
    }
    records_clock = real;
    assert_string_equal(walk(r, (struct operation_filter){.newest_first = true}), "d c b a ");
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

/* ---- counters ---- */

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
    assert_string_equal(text, "ops{gold}=3.5 bytes{}=1e+15 ");
    assert_ok(records_counter_add(r, "ops", gold, 1, &e), &e);
    /* They go with the next commit: nothing is lost by a crash after it. */
    CLEANUP(backup_clear) struct backup b = make_backup("b", BACKUP_QUEUED, NULL);
    assert_ok(backup_add(r, &b, &e), &e);
    records_abandon(r);
    r = open_again();
    text[0] = '\0';
    assert_ok(records_counters(r, sum_counters, text, &e), &e);
    assert_string_equal(text, "ops{gold}=4.5 bytes{}=1e+15 ");
    /* A write that was undone does not lose them. */
    assert_ok(records_counter_add(r, "ops", gold, 1, &e), &e);
    assert_ok(records_begin(r, &e), &e);
    records_rollback(r);
    assert_ok(records_flush(r, &e), &e);
    records_abandon(r);
    r = open_again();
    text[0] = '\0';
    assert_ok(records_counters(r, sum_counters, text, &e), &e);
    assert_string_equal(text, "ops{gold}=5.5 bytes{}=1e+15 ");
    json_decref(gold);
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

static void spoil(struct records *r)
{
    static const char *const bad[] = {"{\"a\":", "[1]", "", "{\"a\":1}trailing", "\xff\xfe", "nul"};
    char sql[800];
    for (int i = 0; i < 6; i++) {
        snprintf(sql, sizeof sql, "UPDATE operations SET doc='%s' WHERE id='r%d'", bad[i], i);
        exec(r, sql);
    }
    exec(r, "UPDATE operations SET state='Dreaming' WHERE id='r6'");
}

/* Of rows that are live all are met at start, of finished ones when they are read. */
static void a_document_that_is_none_is_set_aside(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (int live = 0; live < 2; live++) {
        struct records *r = fresh();
        for (int i = 0; i < 8; i++) {
            char id[8];
            snprintf(id, sizeof id, "r%d", i);
            CLEANUP(operation_clear) struct operation a = make_operation(id, live ? OP_QUEUED : OP_FAILED, NULL);
            assert_ok(operation_add(r, &a, &e), &e);
        }
        uint64_t intent;
        assert_ok(records_intent_add(r, "o", "native", "alias", json_object(), &intent, &e), &e);
        spoil(r);
        exec(r, "UPDATE intents SET doc='{{'");
        logged = 0;
        r = reopen(r);
        assert_int_equal(logged, live ? 7 : 1); /* of a finished one the state is looked at, too */
        CLEANUP(operation_clear) struct operation a = ROW_INIT;
        if (!live) {
            assert_int_equal(operation_get(r, "r0", &a, &e), -EBADMSG);
            assert_int_equal(e.cls, ERR_DAMAGE);
        }
        assert_int_equal(operation_get(r, "r0", &a, &e), -ENOENT);
        assert_string_equal(walk(r, (struct operation_filter){.parent = NULL}), "r7 ");
        assert_int_equal(logged, 7);
        assert_int_equal(r->set_aside, 7);
        assert_int_equal(number(r, "SELECT count(*) FROM set_aside"), 7);
        assert_int_equal(number(r, "SELECT count(*) FROM set_aside WHERE doc='[1]' AND kind='operations'"), 1);
        assert_int_equal(count_operation(r, NULL), 1);
        /* An intent is kept: its name is enough. */
        struct seen s = {.r = r};
        assert_ok(records_intents(r, "o", note_intent, &s, &e), &e);
        assert_string_equal(s.text, "native/alias= ");
        done(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_comes_back_as_it_was_written),
        cmocka_unit_test(finished_rows_leave_the_memory),
        cmocka_unit_test(a_stale_copy_is_refused),
        cmocka_unit_test(terminal_states_are_absorbing),
        cmocka_unit_test(bad_rows_are_refused),
        cmocka_unit_test(a_row_that_lacks_something_is_not_saved),
        cmocka_unit_test(filters_and_order),
        cmocka_unit_test(walking_bears_writing),
        cmocka_unit_test(transactions_are_all_or_nothing),
        cmocka_unit_test(the_sequence_is_never_reused),
        cmocka_unit_test(order_does_not_follow_the_clock),
        cmocka_unit_test(intents_survive_until_resolved),
        cmocka_unit_test(counters_survive),
        cmocka_unit_test(one_process_and_private_files),
        cmocka_unit_test(a_document_that_is_none_is_set_aside),
    };
    return cmocka_run_group_tests_name("records", tests, records_setup, records_teardown);
}
