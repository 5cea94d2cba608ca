/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The board agrees with a walk over all operations, whatever is written in whatever order (E-02, AO-47). */
#include "tests/unit/test.h"

#include "daemon/decide/board.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS 60
#define BACKUPS 6

static uint64_t seed;
static unsigned any(unsigned below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed % below);
}

struct fixture {
    struct board *board;
    struct operation op[OPS];
    bool there[OPS], down;
    uint64_t seq;
};

static bool is_down(const char *repository, void *arg)
{
    const struct fixture *x = arg;
    return x->down && !strcmp(repository, "away");
}

static void fill(struct fixture *x, unsigned i)
{
    struct operation *op = &x->op[i];
    struct policy policy;
    struct class_desc own;
    struct volume_desc volume;
    struct native_desc native;
    operation_init(op);
    str_setf(&op->id, "op-%u", i);
    if (i % 7)
        str_setf(&op->parent, "backup-%u", any(BACKUPS));
    op->seq = ++x->seq;
    op->kind = i % 7 == 0 ? KIND_RESTORE : i % 11 == 0 ? KIND_ADMIN : KIND_BACKUP;
    op->state = OP_QUEUED;
    policy_init(&policy);
    str_set(&policy.repository, any(3) ? "main" : "away");
    str_set(&policy.group, any(4) ? "" : "g");
    policy.priority = any(3);
    policy.limits.memory = 1000 + any(5);
    policy_take(&op->policy, policy_make(&policy));
    class_desc_init(&own);
    str_set(&own.name, any(2) ? "gold" : "lead");
    class_desc_take(&op->own, class_desc_make(&own));
    volume_desc_init(&volume);
    str_set(&volume.pool, any(3) ? "p1" : "");
    volume_desc_take(&op->volume, volume_desc_make(&volume));
    if (any(2)) {
        native_desc_init(&native);
        str_set(&native.alias, "a");
        native_desc_take(&op->native_doc, native_desc_make(&native));
    }
    x->there[i] = true;
}

static void change(struct fixture *x, unsigned i)
{
    static const enum op_state states[] = {OP_QUEUED,     OP_SNAPSHOTTING, OP_EXPOSING,    OP_STARTING,  OP_RUNNING,
                                           OP_CANCELLING, OP_RETRYING,     OP_CLEANING_UP, OP_COMPLETED, OP_FAILED};
    struct operation *op = &x->op[i];
    op->state = states[any(sizeof states / sizeof *states)];
    op->stage = (enum op_stage)any(STAGES);
    op->wake_ns = any(3) ? 0 : 1 + any(1000);
    op->cancel = any(8) == 0;
    json_take(&op->exposure, any(2) ? json_object() : NULL);
}

static bool moves(const struct operation *op)
{
    return op->state == OP_STARTING || op->state == OP_RUNNING || op->state == OP_CANCELLING;
}
static bool has_slot(const struct operation *op)
{
    return op->kind == KIND_BACKUP || op->kind == KIND_RESTORE;
}
/* Places that it has: one from when it is exposed, one more while it moves. */
static unsigned places(const struct operation *op)
{
    return !has_slot(op) ? 0 : (unsigned)(moves(op) + (moves(op) || op->state == OP_EXPOSING));
}

static void write_one(struct fixture *x)
{
    const unsigned i = any(OPS), had = x->there[i] ? places(&x->op[i]) : 0, freed = board_usage(x->board, "").freed;
    if (!x->there[i])
        fill(x, i);
    else
        change(x, i);
    const bool gone = any(20) == 0;
    assert_int_equal(board_operation(x->board, x->op[i].id, gone ? NULL : &x->op[i]), 0);
    const bool ended = gone || op_state_terminal(x->op[i].state);
    const unsigned has = ended ? 0 : places(&x->op[i]);
    assert_int_equal(board_usage(x->board, "").freed - freed, had > has ? had - has : 0);
    if (ended) {
        operation_clear(&x->op[i]);
        x->there[i] = false;
    }
}

static bool is_queued(const struct fixture *x, const struct operation *op)
{
    const bool needs = !(op->kind == KIND_RESTORE && !is_none(op->native_doc));
    return has_slot(op) && op->state == OP_QUEUED && !op->cancel &&
           (op->kind == KIND_RESTORE || !is_none(op->native_doc)) &&
           !(needs && is_down(op->policy->repository, (void *)(uintptr_t)x));
}
static bool goes_first(const struct operation *a, const struct operation *b)
{
    return a->policy->priority != b->policy->priority ? a->policy->priority > b->policy->priority : a->seq < b->seq;
}

static void compare_one(const struct fixture *x, const struct operation *own)
{
    struct board_usage want = {0};
    unsigned in_class = 0, on_device = 0, ahead = 0;
    const char *first;
    for (unsigned i = 0; i < OPS; i++) {
        const struct operation *op = &x->op[i];
        if (!x->there[i] || op == own || !has_slot(op))
            continue;
        want.moving += moves(op);
        want.moving_restores += moves(op) && op->kind == KIND_RESTORE;
        want.memory += moves(op) ? policy_memory(op->policy) : 0;
        want.exposed += moves(op) || op->state == OP_EXPOSING;
        in_class += moves(op) && !strcmp(op->own->name, own->own->name);
        on_device += moves(op) && own->volume->pool[0] && !strcmp(op->volume->pool, own->volume->pool);
        ahead += is_queued(x, op) && (op->kind == KIND_RESTORE) == (own->kind == KIND_RESTORE) && goes_first(op, own);
    }
    const struct board_usage have = board_usage(x->board, own->id);
    assert_true(have.moving == want.moving && have.moving_restores == want.moving_restores);
    assert_true(have.memory == want.memory && have.exposed == want.exposed);
    if (has_slot(own)) {
        assert_int_equal(board_in_class(x->board, own->own->name, own->id), in_class);
        assert_int_equal(board_on_device(x->board, own->volume->pool, own->id), on_device);
        assert_int_equal(board_ahead(x->board, own, is_down, (void *)(uintptr_t)x, &first), ahead);
        assert_true((first != NULL) == (ahead > 0));
    }
}

static void compare_runs(const struct fixture *x)
{
    for (unsigned k = 0; k < BACKUPS; k++) {
        char id[32];
        unsigned live = 0, snapshotting = 0, phase_1 = 0, n;
        snprintf(id, sizeof id, "backup-%u", k);
        for (unsigned i = 0; i < OPS; i++) {
            const struct operation *op = &x->op[i];
            if (!x->there[i] || strcmp(op->parent, id) != 0)
                continue;
            live++;
            snapshotting += op->state == OP_SNAPSHOTTING && has_slot(op);
            phase_1 += op->kind == KIND_BACKUP && op->state != OP_CLEANING_UP && op->stage != STAGE_SNAPPED;
        }
        const struct board_run *r = board_run(x->board, id);
        assert_non_null(r);
        assert_int_equal(r->live, live);
        assert_int_equal(r->snapshotting, snapshotting);
        assert_int_equal(r->n_phase_1, phase_1);
        const char **ids = board_phase_1(x->board, id, OPS, &n);
        assert_non_null(ids);
        assert_int_equal(n, phase_1);
        free(ids);
        ids = board_phase_1(x->board, id, 1, &n);
        assert_true(phase_1 ? n >= 1 : n == 0); /* one group, never in part */
        free(ids);
    }
}

static void compare(const struct fixture *x)
{
    int64_t wake = 0;
    for (unsigned i = 0; i < OPS; i++) {
        if (!x->there[i])
            continue;
        compare_one(x, &x->op[i]);
        if (x->op[i].wake_ns && (!wake || x->op[i].wake_ns < wake))
            wake = x->op[i].wake_ns;
    }
    assert_int_equal(board_wake(x->board), wake);
    compare_runs(x);
}

static void close_it(struct fixture *x)
{
    for (unsigned i = 0; i < OPS; i++)
        if (x->there[i])
            operation_clear(&x->op[i]);
    board_free(x->board);
}

static void agrees_with_a_walk(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 40; round++) {
        struct fixture x = {.board = board_new()};
        seed = 88172645463325252u + round * 7919;
        assert_non_null(x.board);
        for (unsigned i = 0; i < 600; i++) {
            write_one(&x);
            x.down = any(10) < 3;
            if (i % 7 == 0)
                compare(&x);
        }
        close_it(&x);
    }
}

/* Each row that was written is taken once, with its backup; one that has ended is not taken. */
static void what_was_written_is_taken(void **state)
{
    (void)state;
    struct fixture x = {.board = board_new()};
    char id[BOARD_ID_MAX];
    seed = 1;
    for (unsigned i = 0; i < OPS; i++) {
        fill(&x, i);
        assert_int_equal(board_operation(x.board, x.op[i].id, &x.op[i]), 0);
        assert_int_equal(board_operation(x.board, x.op[i].id, &x.op[i]), 0);
    }
    unsigned n = 0;
    while (board_take(x.board, id))
        n++;
    assert_int_equal(n, OPS);
    n = 0;
    while (board_take_backup(x.board, id))
        n++;
    assert_int_equal(n, BACKUPS);
    assert_false(board_is_marked(x.board));
    board_mark(x.board, "op-5");
    board_mark(x.board, "op-6");
    board_mark(x.board, "nobody");
    x.op[5].state = OP_COMPLETED;
    assert_int_equal(board_operation(x.board, "op-5", &x.op[5]), 0);
    assert_true(board_take(x.board, id));
    assert_string_equal(id, "op-6");
    assert_false(board_take(x.board, id));
    assert_true(board_take_backup(x.board, id));
    assert_string_equal(id, x.op[5].parent);
    operation_clear(&x.op[5]);
    x.there[5] = false;
    close_it(&x);
}

/* What has a deadline is marked when it comes, and not before. */
static void deadlines(void **state)
{
    (void)state;
    struct fixture x = {.board = board_new()};
    char id[BOARD_ID_MAX];
    seed = 2;
    for (unsigned i = 0; i < OPS; i++) {
        fill(&x, i);
        x.op[i].wake_ns = 1000 + (int64_t)((i * 37) % OPS);
        assert_int_equal(board_operation(x.board, x.op[i].id, &x.op[i]), 0);
    }
    while (board_take(x.board, id))
        continue;
    board_mark_due(x.board, 999);
    assert_false(board_take(x.board, id));
    unsigned n = 0;
    board_mark_due(x.board, 1009);
    while (board_take(x.board, id))
        n++;
    assert_int_equal(n, 10);
    close_it(&x);
}

/* The operations of a backup that is gone leave nothing behind. */
static void a_backup_ends(void **state)
{
    (void)state;
    struct fixture x = {.board = board_new()};
    struct backup b;
    char id[BOARD_ID_MAX];
    seed = 3;
    backup_init(&b);
    str_set(&b.id, "backup-0");
    b.state = BACKUP_MOVING;
    assert_int_equal(board_backup(x.board, b.id, &b), 0);
    fill(&x, 1);
    str_set(&x.op[1].parent, b.id);
    assert_int_equal(board_operation(x.board, x.op[1].id, &x.op[1]), 0);
    struct board_run *r = board_run(x.board, b.id);
    assert_int_equal(r->live, 1);
    r->counted = true;
    x.op[1].state = OP_FAILED;
    assert_int_equal(board_operation(x.board, x.op[1].id, &x.op[1]), 0);
    assert_true(r->live == 0 && r->failed == 1 && r->canceled == 0);
    assert_true(r->ended.n == 1 && r->ended.failed == 1 && r->ended.completed == 0 && r->ended.total == 0);
    b.state = BACKUP_FAILED;
    assert_int_equal(board_backup(x.board, b.id, &b), 0);
    assert_false(board_take_backup(x.board, id));
    assert_false(board_run(x.board, b.id)->counted); /* a new one */
    backup_clear(&b);
    close_it(&x);
}

/* What ended counts with what it has moved; an admin operation of the backup is no volume of it. */
static void sums_of_what_has_ended(void **state)
{
    (void)state;
    struct fixture x = {.board = board_new()};
    struct board_ended sum = {.n = 0};
    seed = 4;
    fill(&x, 1);
    struct operation *op = &x.op[1];
    op->state = OP_COMPLETED;
    op->result.there = true;
    op->result.total = 1000;
    op->result.incremental = 30;
    op->progress = json_pack("{s:i,s:i}", "total", 900, "done", 10);
    board_ended_add(&sum, op);
    assert_true(sum.n == 1 && sum.completed == 1 && sum.size == 1000 && sum.fresh == 30);
    assert_true(sum.total == 900 && sum.done == 900); /* all of it */
    op->state = OP_CANCELED;
    board_ended_add(&sum, op);
    assert_true(sum.n == 2 && sum.completed == 1 && sum.canceled == 1 && sum.failed == 0);
    assert_true(sum.total == 1800 && sum.done == 910);
    op->kind = KIND_ADMIN;
    board_ended_add(&sum, op);
    assert_int_equal(sum.n, 2);
    close_it(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_walk), cmocka_unit_test(what_was_written_is_taken), cmocka_unit_test(deadlines),
        cmocka_unit_test(a_backup_ends),      cmocka_unit_test(sums_of_what_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
