/* SPDX-License-Identifier: GPL-2.0-or-later */
/* overview-operations.c - operations that are not finished, in the orders in which they are listed */
#include "daemon/answers/overview-impl.h"
#include "daemon/records/opaque.h"

#include <stdlib.h>
#include <string.h>

#define BY_ID(node) RANKED_OF(node, struct overview_op, by_id)
#define LISTED(node) RANKED_OF(node, struct overview_op, listed)
#define TROUBLED(node) RANKED_OF(node, struct overview_op, troubled)

static bool id_before(const struct ranked_node *a, const struct ranked_node *b)
{
    return strcmp(BY_ID(a)->id, BY_ID(b)->id) < 0;
}

static bool node_older(const struct ranked_node *a, const struct ranked_node *b)
{
    return LISTED(a)->seq < LISTED(b)->seq;
}

/* Restores, then backups; the others need no slot. */
static int queue_of(const struct overview_op *o)
{
    return o->kind == KIND_RESTORE ? 0 : o->kind == KIND_BACKUP ? 1 : 2;
}

static bool runs_first(const struct ranked_node *a, const struct ranked_node *b)
{
    const struct overview_op *x = LISTED(a), *y = LISTED(b);
    if (queue_of(x) != queue_of(y))
        return queue_of(x) < queue_of(y);
    return x->priority != y->priority ? x->priority > y->priority : x->seq < y->seq;
}

static bool retried_first(const struct ranked_node *a, const struct ranked_node *b)
{
    const struct overview_op *x = TROUBLED(a), *y = TROUBLED(b);
    const bool p = x->state == OP_RETRYING, q = y->state == OP_RETRYING;
    return p != q ? p : x->seq < y->seq;
}

void overview_ops_init(struct overview_ops *x)
{
    *x = (struct overview_ops){.by_id = RANKED_INIT(id_before),
                               .queue = RANKED_INIT(runs_first),
                               .running = RANKED_INIT(node_older),
                               .troubled = RANKED_INIT(retried_first)};
}

void overview_ops_clear(struct overview_ops *x)
{
    struct ranked_node *node;
    while ((node = x->by_id.root)) {
        ranked_remove(&x->by_id, node);
        overview_owing_set(&x->debtors, BY_ID(node)->owing, NULL, NULL);
        str_clear(&BY_ID(node)->id);
        free(BY_ID(node));
    }
    overview_ops_init(x);
}

/* Adds it to the counts, n 1, or takes it out, n -1. */
static void counts_add(struct overview_counts *c, const struct overview_op *o, unsigned n)
{
    const bool moves = o->state == OP_STARTING || o->state == OP_RUNNING || o->state == OP_CANCELLING;
    *(o->waits ? &c->queued : o->state == OP_RETRYING ? &c->retrying : &c->running[o->kind]) += n;
    if (moves && (o->kind == KIND_BACKUP || o->kind == KIND_RESTORE))
        c->used += n;
}

static struct ranked *list_of(struct overview_ops *x, const struct overview_op *o)
{
    return o->waits ? &x->queue : &x->running;
}

static void op_unlist(struct overview_ops *x, struct overview_op *o)
{
    ranked_remove(list_of(x, o), &o->listed);
    if (o->is_troubled)
        ranked_remove(&x->troubled, &o->troubled);
    counts_add(&x->counts, o, -1u);
}

/* What it reads from or writes to is there, and nothing moves: it has no slot yet, or its repository is away. What
 * cannot be written to has no hook to wait for. */
static bool is_prepared(const struct operation *op)
{
    const bool hook = op->kind == KIND_BACKUP && op->policy->hook_prepare[0] && !op->prepared &&
                      !exposure_read(op->exposure).read_only;
    return op->state == OP_EXPOSING && (op->exposure || op->target) && !op->filled && !op->cancel && !hook;
}

bool operation_waits(const struct operation *op)
{
    return op->state == OP_QUEUED || is_prepared(op);
}

static void op_list(struct overview_ops *x, struct overview_op *o, const struct operation *now)
{
    o->seq = now->seq;
    o->priority = now->policy->priority;
    o->kind = now->kind;
    o->state = now->state;
    o->waits = operation_waits(now);
    o->is_troubled = now->records.n ? now->tried
                                    : now->cleanup_error[0] || now->state == OP_RETRYING ||
                                          (now->kind == KIND_DELETE && now->error.code);
    ranked_add(list_of(x, o), &o->listed);
    if (o->is_troubled)
        ranked_add(&x->troubled, &o->troubled);
    counts_add(&x->counts, o, 1);
}

static struct overview_op *find(const struct overview_ops *x, const char *id)
{
    const struct overview_op like = {.id = (char *)(uintptr_t)id};
    struct ranked_node *node = ranked_find(&x->by_id, &like.by_id);
    return node ? BY_ID(node) : NULL;
}

void overview_ops_row(struct overview_ops *x, const char *id, const struct operation *now)
{
    struct overview_op *o = find(x, id);
    const bool live = now && !op_state_terminal(now->state);
    if (o)
        op_unlist(x, o);
    if (o)
        o->owing = overview_owing_set(&x->debtors, o->owing, live ? now : NULL, &x->failed);
    if (o && !live) {
        ranked_remove(&x->by_id, &o->by_id);
        str_clear(&o->id);
        free(o);
    }
    if (!live)
        return;
    if (!o && !(o = calloc(1, sizeof *o))) {
        x->failed = true;
        return;
    }
    if (!o->id) {
        o->id = str_ref(now->id);
        ranked_add(&x->by_id, &o->by_id);
        o->owing = overview_owing_set(&x->debtors, NULL, now, &x->failed);
    }
    op_list(x, o, now);
}

unsigned overview_ops_place(const struct overview_ops *x, const struct operation *op)
{
    const struct overview_op first = {.kind = KIND_ADMIN, .priority = INT64_MAX};
    const struct overview_op *o = find(x, op->id);
    if (!o || !o->waits)
        return 0;
    /* What needs no slot does not wait for those that do. */
    const size_t others = queue_of(o) == queue_of(&first) ? ranked_place(&x->queue, &first.listed) : 0;
    return (unsigned)(ranked_place(&x->queue, &o->listed) - others) + 1;
}

const char *overview_ops_listed_at(const struct ranked *ops, size_t place)
{
    const struct ranked_node *node = ranked_at(ops, place);
    return node ? LISTED(node)->id : NULL;
}

const char *overview_ops_troubled_at(const struct overview_ops *x, size_t place)
{
    const struct ranked_node *node = ranked_at(&x->troubled, place);
    return node ? TROUBLED(node)->id : NULL;
}
