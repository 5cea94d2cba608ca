/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_restore_source.c - what a restore reads, for all that may be asked and be there (RS-22, RS-26) */
#include "tests/unit/test.h"

#include "daemon/decide/decide.h"

#include <string.h>

#define GONE "native snapshot a1 is not there any more"

struct question {
    bool usable, in_repository, stored, part, lost;
    enum restore_from asked, answer;
    const char *why; /* in the reason, or in the refusal */
};

static void ask(const struct question *q)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    CLEANUP(request_args_clear) struct request_args req;
    const struct native_offer native = {q->usable, q->usable ? "" : GONE};
    char why[RESTORE_WHY] = "";
    struct err e = ERR_INIT;
    operation_init(&op);
    CLEANUP_JSON json_t *nothing = json_object();
    assert_int_equal(request_args_load(&req, nothing, &e), 0);
    CLEANUP_JSON json_t *volume = json_pack("{s:s}", "name", "/srv/vm/a.img");
    volume_desc_take(&op.volume, volume_desc_from_json(volume));
    str_set(&op.parent, "b1");
    op.state = q->in_repository || q->stored ? OP_COMPLETED : OP_FAILED;
    if (q->in_repository)
        str_set(&op.result.snapshot, "s1");
    if (q->stored)
        json_take(&op.result.stored, json_pack("{s:s}", "plugin", "tape"));
    op.lost = q->lost;
    req.from = q->asked;
    req.verify = q->part;
    const enum restore_from from = restore_source(&op, &req, &native, why, &e);
    if (from != q->answer || !strstr(from == FROM_NONE ? e.msg : why, q->why))
        fail_msg("native %d, repository %d, stored %d, a part %d, asked %d: %d, \"%s\" \"%s\"", q->usable,
                 q->in_repository, q->stored, q->part, (int)q->asked, (int)from, why, e.msg);
    assert_int_equal(e.cls != ERR_NONE, from == FROM_NONE);
    assert_int_equal(e.hint[0] != '\0', from == FROM_NONE && e.cls == ERR_NOT_FOUND);
}

static void what_is_read(void **state)
{
    static const struct question all[] = {
        {true, true, .answer = FROM_NATIVE, .why = "exists and is healthy"},
        {true, false, .answer = FROM_NATIVE, .why = "exists and is healthy"},
        {true, true, .asked = FROM_NATIVE, .answer = FROM_NATIVE, .why = "--from native was given"},
        {true, true, .asked = FROM_REPOSITORY, .answer = FROM_REPOSITORY, .why = "--from repository was given"},
        {true, true, .part = true, .answer = FROM_REPOSITORY, .why = "--verify is done with the repository's contents"},
        {false, true, .answer = FROM_REPOSITORY, .why = GONE},
        {false, true, .asked = FROM_REPOSITORY, .answer = FROM_REPOSITORY, .why = "--from repository was given"},
        /* what has expired is looked for, and that it has is said */
        {false, true, .lost = true, .answer = FROM_REPOSITORY, .why = GONE "; its snapshot is no longer in the"},
        {false, true, .lost = true, .part = true, .answer = FROM_REPOSITORY, .why = "contents; its snapshot is no lo"},
        {true, true, .lost = true, .answer = FROM_NATIVE, .why = "exists and is healthy"},
        /* nothing takes the place of what was asked for */
        {false, true, .asked = FROM_NATIVE, .why = "cannot be restored from its native snapshot: " GONE},
        {true, false, .asked = FROM_REPOSITORY, .why = "/srv/vm/a.img of backup b1 was Failed"},
        {true, false, .part = true, .why = "cannot be restored"},
        {false, false, .why = "cannot be restored: " GONE},
        /* what a plugin stored */
        {false, false, .stored = true, .answer = FROM_REPOSITORY, .why = GONE},
        {true, false, .stored = true, .answer = FROM_NATIVE, .why = "exists and is healthy"},
        {true, false, .stored = true, .part = true, .why = "as a whole: --verify is not possible"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ask(&all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
