/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_movers_stray.c - what no daemon looks after: movers, and result files of operations that have ended */
#include "tests/unit/movers-job.h"

#include "daemon/protocol/mover-files.h"

#include <sys/wait.h>

/* What a daemon left that was killed behind the commit of an end. */
static void test_left_results(void **state)
{
    struct rig r;
    char path[4300], state_dir[128], kept[4300];
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    assert_null(movers_left_results(r.m));
    int src = make_file(&r, "image", 64 * MIB, 1);
    start(&r, "up-1", "backup", slow_job(&r, "up-1", 64 * MIB), src);
    rig_until(&r, &r.started, 1, 10);
    assert_int_equal(files_in(&r, "state/results"), 1);
    assert_null(movers_left_results(r.m)); /* it is supervised */
    snprintf(state_dir, sizeof state_dir, "%s/state", r.dir);
    static const char *const left[] = {"up-2", "up-3", "up-4"};
    for (unsigned i = 0; i < 3; i++) {
        mover_result_path(path, sizeof path, state_dir, left[i]);
        close(open(path, O_WRONLY | O_CREAT, 0600));
        if (i == 1)
            snprintf(kept, sizeof kept, "%s", path);
    }
    snprintf(path, sizeof path, "%s/results/other.json", state_dir); /* no name of ours */
    close(open(path, O_WRONLY | O_CREAT, 0600));
    struct left_results *l = movers_left_results(r.m);
    assert_non_null(l);
    left_results_keep(l, "up-3");
    assert_int_equal(left_results_remove(l), 2);
    assert_int_equal(files_in(&r, "state/results"), 3);
    assert_int_equal(access(kept, F_OK), 0);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(kill(r.id.pid, SIGKILL), 0);
    rig_until(&r, &r.ended, 1, 30);
    close(src);
    rig_free(&r);
}

static void test_stray(void **state)
{
    struct rig r;
    struct err e = ERR_INIT;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 64 * MIB;
    int src = make_file(&r, "image", len, 1);
    start(&r, "up-1", "backup", slow_job(&r, "up-1", len), src);
    rig_until(&r, &r.started, 1, 10);
    CLEANUP(movers_listed_clear) struct movers_listed all;
    movers_listed_init(&all);
    const struct mover_listed *left = rig_listed(&r, "up-1", &all);
    if (!left)
        fail_msg("it is not listed");
    assert_int_equal(left->processes.n, 1);
    assert_int_equal(movers_end_stray(r.m, left, &e), -EBUSY); /* it is watched */
    movers_free(r.m);
    rig_movers(&r);
    /* Another process by that number is none of them. */
    struct mover_process *p = left->processes.v;
    const uint64_t start_time = p->start_time;
    p->start_time = 5;
    assert_int_equal(movers_end_stray(r.m, left, &e), 0);
    assert_int_equal(kill(r.id.pid, 0), 0);
    p->start_time = start_time;
    assert_int_equal(movers_end_stray(r.m, left, &e), 1);
    assert_int_equal(waitpid(r.id.pid, NULL, 0), r.id.pid);
    assert_int_equal(files_in(&r, "state/results"), 0);
    assert_int_equal(movers_end_stray(r.m, left, &e), 0);
    assert_null(rig_listed(&r, "up-1", &all));
    close(src);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stray),
        cmocka_unit_test(test_left_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
