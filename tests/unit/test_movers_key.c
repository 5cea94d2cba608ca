/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_movers_key.c - the key that the first mover derives is handed on to those after it (MS-58) */
#include "tests/unit/movers-job.h"

/* Whether a backup with this password derived the repository's key; -1: it failed. */
static int derives(struct rig *r, const char *password, int src)
{
    struct err e = ERR_INIT;
    json_t *job = backup_job(r, "up-1", 2 * MIB);
    rig_forget(r);
    assert_ok(rig_start(r, "up-1", "backup", job, src, password, &e), &e);
    json_decref(job);
    rig_until(r, &r->ended, 1, 30);
    const json_t *derived = json_object_get(r->result, "keyDerived");
    if (r->outcome != MOVER_OK) {
        assert_null(derived);
        return -1;
    }
    assert_true(json_is_boolean(derived));
    return json_is_true(derived);
}

static void test_key(void **state)
{
    struct rig r;
    struct err e = ERR_INIT;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    int src = make_file(&r, "image", 2 * MIB, 1);
    assert_int_equal(derives(&r, RIG_PASSWORD, src), 1);
    assert_int_equal(derives(&r, RIG_PASSWORD, src), 0);
    assert_int_equal(derives(&r, RIG_PASSWORD, src), 0);
    /* As at a reload. */
    movers_forget_keys(r.m);
    assert_int_equal(derives(&r, RIG_PASSWORD, src), 1);
    assert_int_equal(derives(&r, RIG_PASSWORD, src), 0);
    /* A wrong password does not get it, and takes it away. */
    assert_int_equal(derives(&r, "another", src), -1);
    assert_int_equal(r.err.cls, ERR_PASSWORD);
    assert_int_equal(derives(&r, RIG_PASSWORD, src), 1);
    assert_int_equal(derives(&r, RIG_PASSWORD, src), 0);
    /* The password was changed: that of before opens nothing, with or without a key. */
    struct blobs *b = NULL;
    assert_ok(blobs_open_dir(&b, r.repo, BLOBS_OPEN, NULL, 0, &e), &e);
    assert_ok(format_change_password(b, RIG_PASSWORD, "changed", NULL, &e), &e);
    blobs_free(b);
    assert_int_equal(derives(&r, RIG_PASSWORD, src), -1);
    assert_int_equal(r.err.cls, ERR_PASSWORD);
    assert_int_equal(derives(&r, "changed", src), 1);
    assert_int_equal(derives(&r, "changed", src), 0);
    /* Another repository at the same place with the same password: the key does not open it, the password does. */
    char cmd[400];
    snprintf(cmd, sizeof cmd, "rm -rf %s %s", r.repo, r.cache);
    assert_int_equal(system(cmd), 0);
    const struct format_create c = {.key_algo = "scrypt-65536-8-1"};
    struct repo *repo = NULL;
    const struct repo_opts o = {.cache_dir = r.cache};
    assert_ok(blobs_open_dir(&b, r.repo, BLOBS_CREATE, NULL, 0, &e), &e);
    assert_ok(format_create(b, &c, "changed", &e), &e);
    assert_ok(repo_open(&repo, b, "changed", &o, &e), &e);
    assert_false(repo_key_given(repo));
    assert_ok(manifests_initialise(repo, "snapferry-maintenance@node", "", &e), &e);
    repo_free(repo);
    assert_int_equal(derives(&r, "changed", src), 1);
    assert_int_equal(derives(&r, "changed", src), 0);
    /* A new daemon knows nothing. */
    movers_free(r.m);
    rig_movers(&r);
    assert_int_equal(derives(&r, "changed", src), 1);
    close(src);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
