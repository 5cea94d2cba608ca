/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Records: typed rows are added, saved, found, counted and walked (MS-11, MS-62, RS-23). */
#include "tests/unit/records.h"

#include "base/json.h"

static void add_operation(struct records *r, const char *id, const char *parent, enum op_state s)
{
    CLEANUP(operation_clear) struct operation op;
    struct err e = ERR_INIT;
    operation_init(&op);
    str_set(&op.id, id);
    str_set(&op.parent, parent);
    str_set(&op.volume_id, "vol");
    op.state = s;
    op.kind = KIND_BACKUP;
    assert_ok(operation_add(r, &op, &e), &e);
}

static void a_row_is_what_was_written(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(operation_clear) struct operation op, got, stale;
    operation_init(&op);
    str_set(&op.id, "up-1");
    str_set(&op.parent, "nightly-1");
    str_set(&op.volume_id, "v1");
    op.state = OP_QUEUED;
    op.kind = KIND_BACKUP;
    op.wake_ns = 7;
    str_set(&op.job, "nightly");
    struct policy p;
    policy_init(&p);
    str_set(&p.repository, "main");
    p.retries = 3;
    policy_take(&op.policy, policy_make(&p));
    assert_ok(operation_add(r, &op, &e), &e);
    assert_true(op.seq > 0 && op.generation == 1 && op.created_ns > 0);
    assert_int_equal(operation_add(r, &op, &e), -EEXIST);
    r = reopen(r);
    assert_ok(operation_get(r, "up-1", &got, &e), &e);
    assert_string_equal(got.parent, "nightly-1");
    assert_string_equal(got.volume_id, "v1");
    assert_string_equal(got.job, "nightly");
    assert_int_equal(got.state, OP_QUEUED);
    assert_int_equal(got.wake_ns, 7);
    assert_int_equal(got.seq, op.seq);
    assert_ptr_equal(got.policy, op.policy);
    assert_true(fields_equal(&operation_fields, &got, &op));
    operation_copy(&stale, &got);
    got.stage = STAGE_POST;
    assert_ok(operation_save(r, &got, &e), &e);
    assert_int_equal(got.generation, 2);
    assert_int_equal(operation_save(r, &stale, &e), -ESTALE);
    operation_clear(&op);
    assert_int_equal(operation_get(r, "up-2", &op, &e), -ENOENT);
    assert_string_equal(op.id, "");
    done(r);
}

static void terminal_states_are_absorbing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    add_operation(r, "up-1", "b", OP_FAILED);
    CLEANUP(operation_clear) struct operation op;
    assert_ok(operation_get(r, "up-1", &op, &e), &e);
    op.state = OP_QUEUED;
    assert_int_equal(operation_save(r, &op, &e), -EINVAL);
    op.state = OP_COMPLETED;
    assert_int_equal(operation_save(r, &op, &e), -EINVAL);
    op.state = OP_FAILED;
    op.lost = true;
    assert_ok(operation_save(r, &op, &e), &e);
    CLEANUP(backup_clear) struct backup b;
    backup_init(&b);
    str_set(&b.id, "b");
    b.state = BACKUP_COMPLETED;
    assert_ok(backup_add(r, &b, &e), &e);
    b.state = BACKUP_MOVING;
    assert_int_equal(backup_save(r, &b, &e), -EINVAL);
    b.state = BACKUP_DELETING;
    assert_ok(backup_save(r, &b, &e), &e);
    b.state = BACKUP_COMPLETED;
    assert_int_equal(backup_save(r, &b, &e), -EINVAL);
    done(r);
}

struct seen {
    struct records *r;
    char ids[200];
    const char *deletes;
};
static int see(const struct operation *op, void *arg)
{
    struct seen *s = arg;
    strcat(s->ids, op->id);
    if (s->deletes)
        operation_delete(s->r, s->deletes, NULL);
    s->deletes = NULL;
    assert_int_equal(op->kind, KIND_BACKUP);
    return 0;
}

static void walks(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    add_operation(r, "a", "b1", OP_QUEUED);
    add_operation(r, "b", "b2", OP_RUNNING);
    add_operation(r, "c", "b1", OP_COMPLETED);
    add_operation(r, "d", "b1", OP_QUEUED);
    static const struct {
        struct operation_filter f;
        const char *want;
    } cases[] = {
        {{.parent = NULL}, "abcd"},   {{.parent = "b1"}, "acd"},
        {{.live = true}, "abd"},      {{.parent = "b1", .live = true, .newest_first = true}, "da"},
        {{.state = OP_QUEUED}, "ad"}, {{.volume_id = "vol", .limit = 2}, "ab"},
        {{.volume_id = "none"}, ""},  {{.state = OP_COMPLETED, .live = true}, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct seen s = {.r = r};
        uint64_t n;
        assert_ok(operation_each(r, &cases[i].f, see, &s, &e), &e);
        assert_string_equal(s.ids, cases[i].want);
        assert_ok(operation_count(r, &cases[i].f, &n, &e), &e);
        if (!cases[i].f.limit)
            assert_int_equal(n, strlen(cases[i].want));
    }
    struct seen s = {.r = r, .deletes = "d"};
    assert_ok(operation_each(r, NULL, see, &s, &e), &e);
    assert_string_equal(s.ids, "abc");
    assert_ok(operation_delete(r, "a", &e), &e);
    assert_int_equal(operation_delete(r, "a", &e), -ENOENT);
    done(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_what_was_written),
        cmocka_unit_test(terminal_states_are_absorbing),
        cmocka_unit_test(walks),
    };
    return cmocka_run_group_tests(tests, records_setup, records_teardown);
}
