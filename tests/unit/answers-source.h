/* SPDX-License-Identifier: GPL-2.0-or-later */
/* answers-source.h - what a daemon would know of operations under way, for tests of answers */
#ifndef SNAPFERRY_TESTS_UNIT_ANSWERS_SOURCE_H
#define SNAPFERRY_TESTS_UNIT_ANSWERS_SOURCE_H

#include "base/time.h"
#include "daemon/answers/answers.h"

#include <stdio.h>
#include <string.h>

#define NOW INT64_C(1800000000000000000)

static bool live(const struct operation *op, struct answer_live *ret, void *arg)
{
    if (strcmp(op->id, "up-1") != 0)
        return false;
    ret->progress = arg;
    ret->progress_ns = NOW - NS_PER_S;
    ret->rate = 1000;
    ret->left_s = 7;
    ret->doing = "expose";
    ret->doing_s = 2;
    return true;
}
static json_t *mover_of;
static json_t *mover(const struct operation *op, void *arg)
{
    (void)arg;
    return strcmp(op->id, "up-1") ? NULL : mover_of ? json_incref(mover_of) : json_pack("{s:i}", "pid", 17);
}
static void waits(const struct operation *op, char *why, size_t cap, void *arg)
{
    (void)arg;
    snprintf(why, cap, "%s", op->state == OP_QUEUED ? "all 3 slots are in use" : "");
}
static unsigned position(const struct backup *b, char by[192], void *arg)
{
    (void)b;
    (void)arg;
    snprintf(by, 192, "other");
    return 4;
}
/* Of volumes that the records of the test do not have. */
static bool ended(const struct backup *b, struct board_ended *ret, void *arg)
{
    (void)b;
    (void)arg;
    *ret = (struct board_ended){
        .n = 150, .completed = 149, .failed = 1, .size = 5000, .fresh = 50, .total = 6000, .done = 5500};
    return true;
}
static bool is_new(const char *klass, void *arg)
{
    (void)arg;
    return !strcmp(klass, "gold");
}
static const struct answer_source source = {live, mover, waits, position, is_new, ended};

#endif
