/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_restore_source.c - what a restore reads and refuses, for all that may be asked and be there (RS-22, RS-26,
 * CF-51)
 */
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

/* ---- what is asked, what is there ---- */

static void req_of(struct request_args *req, const char *json)
{
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *doc = json_loads(json, 0, NULL);
    assert_non_null(doc);
    assert_int_equal(request_args_load(req, doc, &e), 0);
}

static void requests_that_contradict_themselves(void **state)
{
    static const struct {
        const char *json;
        bool named;
        const char *refused; /* NULL: it is not */
    } all[] = {
        {"{\"target\":\"/srv/out\"}", true, NULL},
        {"{\"target\":\"out\"}", false, "\"out\" must be an absolute path"},
        {"{}", false, "\"\" must be an absolute path"},
        {"{\"class_map\":{\"a\":\"b\"}}", false, NULL},
        {"{\"class_map\":{\"a\":\"b\"},\"target\":\"out\"}", false, "must be an absolute path"},
        {"{\"target\":\"/srv/../out\"}", true, "\"/srv/../out\" has \".\", \"..\" or \"//\""},
        {"{\"target\":\"/srv//out\",\"from\":\"native\"}", true, "in its path"},
        {"{\"target\":\"/./out\"}", true, "in its path"},
        {"{\"target\":\"/srv/..\",\"overwrite\":true}", true, "in its path"},
        {"{\"target\":\"/srv/..out/.o\"}", true, NULL},
        {"{\"target\":\"pool/../image\"}", true, NULL}, /* no path */
        {"{\"target\":\"/o\",\"length\":0}", true, "at least one byte"},
        {"{\"target\":\"/o\",\"length\":1}", true, NULL},
        {"{\"class_map\":{\"a\":\"b\"},\"length\":0}", false, "at least one byte"},
        {"{\"target\":\"/o\",\"new\":true}", true, NULL},
        {"{\"target\":\"/o\",\"new\":true,\"differential\":true}", true, "--new cannot be combined"},
        {"{\"target\":\"/o\",\"new\":true,\"offset\":4096}", true, "--new cannot be combined"},
        {"{\"target\":\"/o\",\"from\":\"native\"}", true, NULL},
        {"{\"target\":\"/o\",\"from\":\"native\",\"verify\":true}", true, "--verify needs the repository's copy"},
        {"{\"target\":\"/o\",\"from\":\"native\",\"differential\":true}", true, "--differential needs the"},
        {"{\"target\":\"/o\",\"from\":\"native\",\"length\":5}", true, "needs the repository's copy"},
        {"{\"target\":\"/o\",\"from\":\"repository\",\"length\":5}", true, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CLEANUP(request_args_clear) struct request_args req;
        struct err e = ERR_INIT;
        req_of(&req, all[i].json);
        const int rc = restore_refused(&req, all[i].named, &e);
        if ((rc < 0) != (all[i].refused != NULL) || (e.cls != ERR_NONE) != (rc < 0) ||
            (rc < 0 && (e.cls != ERR_USAGE || !strstr(e.msg, all[i].refused))))
            fail_msg("%s: %d, \"%s\"", all[i].json, rc, e.msg);
    }
}

static void targets_that_exist(void **state)
{
    static const struct {
        const char *json;
        bool exists, block;
        const char *refused;
    } all[] = {
        {"{}", false, false, NULL},
        {"{\"new\":true}", false, false, NULL},
        {"{}", true, false, "/o exists"},
        {"{}", true, true, NULL}, /* the driver looks whether it holds something */
        {"{\"overwrite\":true}", true, false, NULL},
        {"{\"differential\":true}", true, false, NULL},
        {"{\"offset\":0}", true, false, NULL},
        {"{\"new\":true}", true, false, "--new was given"},
        {"{\"new\":true}", true, true, "--new was given"},
        {"{\"new\":true,\"overwrite\":true}", true, false, "--new was given"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CLEANUP(request_args_clear) struct request_args req;
        const struct target_found found = {all[i].exists, all[i].block};
        struct err e = ERR_INIT;
        req_of(&req, all[i].json);
        str_set(&req.target, "/o");
        const int rc = target_found_refused(&req, &found, &e);
        if ((rc < 0) != (all[i].refused != NULL) || (rc < 0 && (e.cls != ERR_TARGET || !strstr(e.msg, all[i].refused))))
            fail_msg("%s, exists %d, block %d: %d, \"%s\"", all[i].json, all[i].exists, all[i].block, rc, e.msg);
    }
}

static void natives_that_are_recorded(void **state)
{
    (void)state;
    for (int s = 0; s < NATIVE_STATES; s++)
        for (unsigned k = 0; k < 4; k++) {
            CLEANUP(native_row_clear) struct native_row n;
            native_row_init(&n);
            n.state = (enum native_state)s;
            str_set(&n.driver, k & 1 ? "device" : "reflink");
            CLEANUP_JSON json_t *doc = json_pack("{s:s}", "alias", "a1");
            if (k & 2)
                native_desc_take(&n.native, native_desc_from_json(doc));
            const bool there = s != NATIVE_CREATING && s != NATIVE_REMOVING;
            assert_int_equal(restore_native_recorded(&n), there && k == 2);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read),
        cmocka_unit_test(requests_that_contradict_themselves),
        cmocka_unit_test(targets_that_exist),
        cmocka_unit_test(natives_that_are_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
