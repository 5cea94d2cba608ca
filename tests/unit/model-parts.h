/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * model-parts.h - backups that are asked for by requests in parts, as the daemon submits them; include it behind
 * model-requests.h in one file
 *
 * What happens between two parts is up to the turn of the model: steps and movers end, something is counted, the
 * daemon dies or is to stop. However it ends, a request is recorded as a whole or not at all, and its end is told once.
 */
#ifndef SNAPFERRY_TESTS_UNIT_MODEL_PARTS_H
#define SNAPFERRY_TESTS_UNIT_MODEL_PARTS_H

#include "tests/unit/model-requests.h"

#define REQUESTS_MAX 4
#define INSIDE "model_inside_total"
#define OUTSIDE "model_outside_total"

struct model_request {
    bool waits;
    char id[64];
    unsigned first, n, at, refuse_at; /* refuse_at: its part that is refused; 0: none */
};
static struct {
    struct model_request v[REQUESTS_MAX];
    double inside, outside; /* counted by those that are recorded, and between parts */
    uint64_t accepted, refused, pauses;
} asked;

static const char rule_parts[] = "AO-53: a request is recorded as a whole";

static double counter_of(const char *name)
{
    double v = 0;
    return records_counter_get(m.records, name, NULL, &v) ? v : 0;
}

/* ---- the request ---- */

static int write_in_parts(struct decide *d, void *arg, struct err *e)
{
    struct model_request *q = arg;
    char volume[16], name[64];
    if (!request_goes_on(d))
        q->at = 0;
    const unsigned v = (q->first + q->at) % VOLUMES;
    snprintf(volume, sizeof volume, "v%u", v);
    snprintf(name, sizeof name, "/srv/%c/%u.img", "abcd"[v % 4], v);
    add_operation(m.cfg[m.cfg_now], q->id, volume, name, v % 2 ? "pool1" : "pool0", "");
    records_counter_add(m.records, INSIDE, NULL, 1, NULL);
    if (++q->at == q->refuse_at)
        return err_set(e, ERR_USAGE, 0, "part %u is refused", q->at);
    if (q->at < q->n)
        return 1;
    CLEANUP(backup_clear) struct backup b;
    backup_init(&b);
    str_set(&b.id, q->id);
    b.state = BACKUP_QUEUED;
    b.kind = KIND_BACKUP;
    for (unsigned i = 0; i < q->n; i++) {
        snprintf(volume, sizeof volume, "v%u", (q->first + i) % VOLUMES);
        strs_add(&b.volume_ids, volume);
    }
    return backup_add(m.records, &b, e);
}

static int count_row(const struct operation *op, void *arg)
{
    (void)op;
    ++*(unsigned *)arg;
    return 0;
}

static bool is_recorded(const struct model_request *q)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    const struct operation_filter f = {.parent = q->id};
    unsigned rows = 0;
    const bool there = backup_get(m.records, q->id, &b, NULL) == 0;
    operation_each(m.records, &f, count_row, &rows, NULL);
    if (rows != (there ? q->n : 0))
        violated(rule_parts, "%s is %srecorded, with %u operations of %u", q->id, there ? "" : "not ", rows, q->n);
    return there;
}

static void asked_in_parts(const struct err *e, void *arg)
{
    struct model_request *q = arg;
    if (!q->waits)
        violated(rule_parts, "the end of %s is told twice", q->id);
    if (is_recorded(q) == (e->cls != ERR_NONE) || (!e->cls && q->refuse_at))
        violated(rule_parts, "%s is told to be %s", q->id, e->cls ? e->msg : "recorded");
    q->waits = false;
    asked.inside += e->cls ? 0 : q->n;
    e->cls ? asked.refused++ : asked.accepted++;
    trace("%s: %s", q->id, e->cls ? e->msg : "recorded");
}

static void submit_in_parts(void)
{
    struct model_request *q = asked.v;
    while (q < asked.v + REQUESTS_MAX && q->waits)
        q++;
    if (q == asked.v + REQUESTS_MAX)
        return;
    *q = (struct model_request){.waits = true, .first = pick(VOLUMES), .n = 1 + pick(4)};
    q->refuse_at = one_in(5) ? 1 + pick(q->n) : 0;
    snprintf(q->id, sizeof q->id, "b%llu", (unsigned long long)++m.serial);
    trace("backup %s of %u volumes from %u, in parts", q->id, q->n, q->first);
    if (request_post(&m.d, &(struct request){write_in_parts, asked_in_parts, q}) < 0)
        violated("the model", "no memory for a request");
}

/* ---- what the turn plays and checks ---- */

static void between_parts(void)
{
    asked.pauses++;
    if (!pick(2))
        return;
    records_counter_add(m.records, OUTSIDE, NULL, 1, NULL);
    asked.outside++;
}

/* When no transaction is open. */
static void rules_of_parts(void)
{
    if (counter_of(INSIDE) != asked.inside)
        violated(rule_parts, "%g parts are counted, and %g are recorded", counter_of(INSIDE), asked.inside);
    if (counter_of(OUTSIDE) != asked.outside)
        violated("MS-21", "%g of %g events between parts are counted", counter_of(OUTSIDE), asked.outside);
    for (struct model_request *q = asked.v; q < asked.v + REQUESTS_MAX; q++)
        if (q->waits && is_recorded(q))
            violated(rule_parts, "%s is recorded, and nobody was told", q->id);
}

/* Who has asked a daemon that dies is not told. */
static void parts_die(void)
{
    for (struct model_request *q = asked.v; q < asked.v + REQUESTS_MAX; q++) {
        if (q->waits && is_recorded(q))
            asked.inside += q->n;
        q->waits = false;
    }
    asked.outside = counter_of(OUTSIDE); /* what no commit has taken along is lost with its memory */
}

static void parts_new(void)
{
    memset(asked.v, 0, sizeof asked.v);
    asked.inside = asked.outside = 0;
}

#endif
