/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_movers.c - real movers on real repositories: start, work, cancel, crash, hang, adoption (MS-18..39, 47..56) */
#include "tests/unit/movers-job.h"

#include "daemon/protocol/mover-files.h"

#include <dirent.h>
#include <openssl/evp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static void same_bytes(int a, int b, size_t len)
{
    uint8_t *x = malloc(MIB), *y = malloc(MIB);
    for (size_t at = 0; at < len; at += MIB) {
        size_t n = len - at < MIB ? len - at : MIB;
        assert_int_equal(pread(a, x, n, (off_t)at), n);
        assert_int_equal(pread(b, y, n, (off_t)at), n);
        assert_memory_equal(x, y, n);
    }
    free(x);
    free(y);
}

/* ---- work ---- */

static json_t *volume_json(struct rig *r, const char *id)
{
    struct err e = ERR_INIT;
    struct snapshot s;
    struct dir_entry d = {0};
    uint8_t *text = NULL;
    struct repo *repo = open_repo(r);
    assert_ok(snapshot_find(repo, id, NULL, &s, &e), &e);
    assert_string_equal(s.source.user, "snapferry");
    assert_string_equal(s.source.host, "node");
    assert_string_equal(s.source.path, "/vg0/db1");
    assert_string_equal(text_of(s.tags, "tag:backup"), "nightly-1");
    assert_ok(dir_lookup(repo, &s.root, "volume.json", &d, &e), &e);
    int64_t n = object_get(repo, &d.obj, &text, 65536, &e);
    assert_ok(n, &e);
    json_t *j = json_loadb((char *)text, (size_t)n, 0, NULL);
    free(text);
    dir_entry_clear(&d);
    snapshot_clear(&s);
    repo_free(repo);
    return j;
}

static void test_backup_and_restore(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 24 * MIB + 512;
    int src = make_file(&r, "image", len, 1);
    run(&r, "up-nightly-1.vol-1", "backup", backup_job(&r, "up-nightly-1.vol-1", len), src);
    assert_outcome(&r, MOVER_OK);
    assert_int_equal(r.ready, 1);
    assert_int_equal(r.started, 1);
    assert_int_equal(WEXITSTATUS(r.status), 0);
    assert_true(r.cpu_seconds > 0);
    assert_true(r.memory_peak > 0);
    /* MS-32 */
    assert_int_equal(number_of(r.result, "totalBytes"), len);
    assert_int_equal(number_of(r.result, "incrementalBytes"), len);
    assert_true(number_of(r.result, "uploadedBytes") > 0);
    assert_true(number_of(r.result, "readBytes") >= (json_int_t)len);
    assert_true(json_array_size(json_object_get(r.result, "stages")) > 3);
    assert_true(json_is_false(json_object_get(r.result, "emptySnapshot")));
    assert_true(json_is_false(json_object_get(r.result, "partial")));
    assert_int_equal(strlen(text_of(r.result, "snapshotID")), 32);
    assert_true(strlen(text_of(r.result, "objectID")) > 30);
    char id[33];
    snprintf(id, sizeof id, "%s", text_of(r.result, "snapshotID"));
    json_t *v = volume_json(&r, id);
    assert_string_equal(text_of(v, "driver"), "reflink");
    assert_string_equal(text_of(v, "storageClass"), "gold");
    assert_string_equal(text_of(v, "mechanism"), "native");
    assert_string_equal(text_of(json_object_get(v, "native"), "alias"), "3f9a");
    assert_true(json_is_true(json_object_get(v, "crashConsistent")));
    assert_string_equal(text_of(v, "operation"), "up-nightly-1.vol-1");
    json_decref(v);

    /* Through a descriptor of an empty file; read back and compared. */
    char path[192];
    snprintf(path, sizeof path, "%s/target", r.dir);
    int dst = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    json_t *j = base_job(&r, "down-r1.vol-1", "restore");
    json_object_set_new(j, "snapshot", json_string(id));
    json_object_set_new(j, "size", json_integer((json_int_t)len));
    json_object_set_new(j, "target", json_string("/srv/target"));
    json_object_set_new(j, "verify", json_true());
    run(&r, "down-r1.vol-1", "restore", json_incref(j), dst);
    assert_outcome(&r, MOVER_OK);
    assert_int_equal(number_of(r.result, "totalBytes"), len);
    assert_int_equal(number_of(r.result, "verifiedBytes"), len);
    same_bytes(src, dst, len);

    /* It is not empty any more: nobody allowed to overwrite it. */
    run(&r, "down-r1.vol-1", "restore", json_incref(j), dst);
    assert_outcome(&r, MOVER_FAILED);
    assert_int_equal(r.err.cls, ERR_TARGET);
    json_object_set_new(j, "overwrite", json_true());
    assert_int_equal(pwrite(dst, "garbage", 7, 4096), 7);
    run(&r, "down-r1.vol-1", "restore", json_incref(j), dst);
    assert_outcome(&r, MOVER_OK);
    same_bytes(src, dst, len);
    /* A read-only descriptor cannot be a target. */
    int ro = open(path, O_RDONLY | O_CLOEXEC);
    run(&r, "down-r1.vol-1", "restore", json_incref(j), ro);
    assert_outcome(&r, MOVER_FAILED);
    assert_int_equal(r.err.cls, ERR_TARGET);
    json_decref(j);
    close(ro);
    close(src);
    close(dst);
    rig_free(&r);
}

static void test_empty_volume(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    int src = make_file(&r, "image", 0, 1);
    run(&r, "up-1", "backup", backup_job(&r, "up-1", 0), src);
    assert_outcome(&r, MOVER_OK);
    assert_true(json_is_true(json_object_get(r.result, "emptySnapshot"))); /* MS-35 */
    assert_int_equal(ftruncate(src, 8 * MIB), 0);
    run(&r, "up-1", "backup", backup_job(&r, "up-1", 8 * MIB), src);
    assert_outcome(&r, MOVER_OK);
    assert_true(json_is_true(json_object_get(r.result, "emptySnapshot")));
    assert_int_equal(number_of(r.result, "holeBytes"), 8 * MIB);
    close(src);
    rig_free(&r);
}

/* ---- errors and their class (MS-33) ---- */

static void test_result_codes(void **state)
{
    struct rig r;
    struct err e = ERR_INIT;
    (void)state;
    rig_new(&r, NULL);
    int src = make_file(&r, "image", 2 * MIB, 1);
    /* The repository may come back. */
    run(&r, "up-1", "backup", backup_job(&r, "up-1", 2 * MIB), src);
    assert_outcome(&r, MOVER_TRANSIENT);
    assert_int_equal(r.err.cls, ERR_NO_REPO);
    assert_int_equal(WEXITSTATUS(r.status), 3);
    make_repo(&r);
    /* A password does not get better. */
    rig_forget(&r);
    json_t *j = backup_job(&r, "up-1", 2 * MIB);
    assert_ok(rig_start(&r, "up-1", "backup", j, src, "wrong", &e), &e);
    rig_until(&r, &r.ended, 1, 30);
    assert_outcome(&r, MOVER_FAILED);
    assert_int_equal(r.err.cls, ERR_PASSWORD);
    assert_int_equal(WEXITSTATUS(r.status), 1);
    json_decref(j);
    /* The source is not what it was. */
    run(&r, "up-1", "backup", backup_job(&r, "up-1", 4 * MIB), src);
    assert_outcome(&r, MOVER_SOURCE_LOST);
    assert_int_equal(WEXITSTATUS(r.status), 4);
    close(src);
    rig_free(&r);
}

static void test_bad_jobs(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    int src = make_file(&r, "image", 2 * MIB, 1);
    static const struct {
        const char *member, *value, *says;
    } bad[] = {
        {"protocol", "7", "protocol"},
        {"operation", "\"up-2\"", "operation"},
        {"kind", "\"format-disk\"", "kind"},
        {"node", "null", "node"},
        {"repository", "{\"type\":\"sftp\",\"path\":\"/x\"}", "filesystem"},
        {"repository", "{\"type\":\"s3\",\"path\":\"/x\"}", "endpoint"},
        {"repository", "{\"type\":\"s3\",\"endpoint\":\"x\",\"bucket\":\"b\",\"ca\":1}", "repository.ca"},
        {"repository", "{\"path\":\"relative\"}", "absolute"},
        {"memory", "\"a lot\"", "memory"},
        {"memory", "-1", "memory"},
        {"workers", "100000", "workers"},
        {"source", "[]", "source"},
        {"source", "{\"name\":\"\"}", "empty"},
        {"description", "\"a\\nb\"", "control"},
        {"tags", "{\"a\":1}", "tags"},
        {"keep", "{\"daily\":\"x\"}", "daily"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *j = backup_job(&r, "up-1", 2 * MIB);
        json_object_set_new(j, bad[i].member, json_loads(bad[i].value, JSON_DECODE_ANY, NULL));
        run(&r, "up-1", "backup", j, src);
        assert_outcome(&r, MOVER_NEVER_STARTED);
        assert_says(&r, bad[i].says);
        assert_int_equal(r.ready, 0);
        assert_int_equal(r.err.cls, ERR_USAGE);
    }
    static const struct {
        const char *value, *says;
    } copies[] = {
        {"null", "copy"},
        {"{\"path\":\"relative\"}", "absolute"},
        {"{\"type\":\"sftp\"}", "copy.type"},
        {"{\"type\":\"s3\",\"endpoint\":\"x\",\"bucket\":\"b\",\"ca\":1}", "copy.ca"},
    };
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        json_t *j = base_job(&r, "copy-1", "copy");
        json_object_set_new(j, "copy", json_loads(copies[i].value, JSON_DECODE_ANY, NULL));
        run(&r, "copy-1", "copy", j, -1);
        assert_outcome(&r, MOVER_NEVER_STARTED);
        assert_says(&r, copies[i].says);
    }
    /* What nobody knows is said, and does nothing. */
    json_t *j = backup_job(&r, "up-1", 2 * MIB);
    json_object_set_new(j, "colour", json_string("red"));
    run(&r, "up-1", "backup", j, src);
    assert_outcome(&r, MOVER_OK);
    assert_string_equal(json_string_value(json_array_get(json_object_get(r.result, "ignoredMembers"), 0)), "colour");
    close(src);
    rig_free(&r);
}

/* ---- admin and verify ---- */

static json_t *answer(struct rig *r, unsigned i)
{
    return json_array_get(json_object_get(r->result, "answers"), i);
}

static void admin(struct rig *r, json_t *steps)
{
    json_t *j = base_job(r, "admin-1", "admin");
    json_object_set_new(j, "do", steps);
    run(r, "admin-1", "admin", j, -1);
}

static void test_admin(void **state)
{
    struct rig r;
    char ids[3][33];
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    int src = make_file(&r, "image", 2 * MIB, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pwrite(src, &i, sizeof i, 100), sizeof i);
        json_t *j = backup_job(&r, "up-1", 2 * MIB);
        if (i == 2)
            json_object_set_new(j, "keep", json_pack("{s:i, s:i}", "latest", 2, "daily", 0));
        run(&r, "up-1", "backup", j, src);
        assert_outcome(&r, MOVER_OK);
        snprintf(ids[i], sizeof ids[i], "%s", text_of(r.result, "snapshotID"));
    }
    assert_true(json_is_null(json_object_get(r.result, "policyError")));

    admin(&r, json_pack("[{s:s}, {s:s, s:[s, s]}, {s:s, s:b}]", "verb", "scan", "verb", "check", "snapshots", ids[0],
                        "00000000000000000000000000000001", "verb", "expire", "dry_run", 1));
    assert_outcome(&r, MOVER_OK);
    const json_t *list = json_object_get(answer(&r, 0), "snapshots");
    assert_int_equal(json_array_size(list), 3);
    assert_string_equal(text_of(json_array_get(list, 0), "id"), ids[0]);
    assert_string_equal(text_of(json_array_get(list, 0), "as"), "snapferry@node:/vg0/db1");
    assert_string_equal(text_of(json_object_get(json_array_get(list, 0), "tags"), "tag:volume-id"), "vol-1");
    const json_t *readable = json_object_get(answer(&r, 1), "readable"); /* RS-18 */
    assert_true(json_is_true(json_object_get(readable, ids[0])));
    assert_true(json_is_false(json_object_get(readable, "00000000000000000000000000000001")));
    /* The retention that came with the backup is the source's policy now. */
    const json_t *verdicts = json_object_get(answer(&r, 2), "snapshots");
    assert_int_equal(json_array_size(verdicts), 3);
    assert_int_equal(number_of(json_object_get(json_array_get(verdicts, 0), "policy"), "latest"), 2);

    /* A step that fails does not keep the others from being done; its error is the run's. */
    admin(&r, json_pack("[{s:s, s:[s]}, {s:s}, {s:s, s:s, s:{s:i}}]", "verb", "delete", "snapshots", ids[0], "verb",
                        "dance", "verb", "policy", "source", "snapferry@node:/vg0/db1", "keep", "latest", 5));
    assert_outcome(&r, MOVER_FAILED);
    assert_says(&r, "dance");
    assert_int_equal(number_of(answer(&r, 0), "deleted"), 1);
    assert_true(json_is_object(json_object_get(answer(&r, 1), "error")));
    assert_int_equal(number_of(json_object_get(answer(&r, 2), "effective"), "latest"), 5);

    admin(&r, json_pack("[{s:s, s:[{s:s, s:{s:i, s:i, s:i, s:i, s:i, s:i}}]}, {s:s}]", "verb", "expire", "sources",
                        "source", "snapferry@node:/vg0/db1", "keep", "latest", 1, "hourly", 0, "daily", 0, "weekly", 0,
                        "monthly", 0, "annual", 0, "verb", "scan"));
    assert_outcome(&r, MOVER_OK);
    assert_int_equal(number_of(answer(&r, 0), "expired"), 1);
    assert_int_equal(json_array_size(json_object_get(answer(&r, 1), "snapshots")), 1);

    json_t *j = base_job(&r, "verify-1", "verify");
    json_object_set_new(j, "read_percent", json_real(100));
    run(&r, "verify-1", "verify", j, -1);
    assert_outcome(&r, MOVER_OK);
    assert_int_equal(number_of(r.result, "snapshots"), 1);
    assert_true(number_of(r.result, "bytesRead") >= 2 * MIB);
    close(src);
    rig_free(&r);
}

/* ---- cancel, at each point (MS-23, MS-37..39) ---- */

static void cancel(struct rig *r, const char *operation, double grace_s)
{
    struct err e = ERR_INIT;
    assert_ok(movers_cancel(r->m, operation, rig_realtime_ns() + (int64_t)(grace_s * 1e9), &e), &e);
}

static void test_cancel(void **state)
{
    struct rig r;
    struct err e = ERR_INIT;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 64 * MIB;
    int src = make_file(&r, "image", len, 1);
    /* At once, before it could say anything. */
    start(&r, "up-1", "backup", slow_job(&r, "up-1", len), src);
    cancel(&r, "up-1", 5);
    rig_until(&r, &r.ended, 1, 8);
    assert_outcome(&r, MOVER_CANCELED);
    assert_int_equal(r.started, 0);
    /* Ready, not told to go. */
    rig_forget(&r);
    r.no_go = true;
    start(&r, "up-1", "backup", slow_job(&r, "up-1", len), src);
    rig_until(&r, &r.ready, 1, 10);
    cancel(&r, "up-1", 5);
    rig_until(&r, &r.ended, 1, 8);
    assert_outcome(&r, MOVER_CANCELED);
    assert_int_equal(r.started, 0);
    r.no_go = false;
    /* At work, with a chunk that is stored: a checkpoint stays. */
    rig_forget(&r);
    r.grace_s = 30; /* the most that cancel() may grant */
    start(&r, "up-1", "backup", slow_job(&r, "up-1", len), src);
    while (number_of(r.last, "fresh") < 1 && !r.ended)
        rig_until(&r, &r.progress, r.progress + 1, 20);
    double t = rig_now();
    cancel(&r, "up-1", 30);
    rig_until(&r, &r.ended, 1, 30);
    assert_outcome(&r, MOVER_CANCELED);
    assert_true(rig_now() - t < 20);
    assert_int_equal(WEXITSTATUS(r.status), 2);
    assert_true(json_is_true(json_object_get(r.result, "incomplete")));
    assert_int_equal(strlen(text_of(r.result, "snapshotID")), 32);
    assert_ok(movers_forget(r.m, "up-1", NULL, NULL, &e), &e);
    assert_int_equal(movers_cancel(r.m, "up-1", 0, &e), -ESRCH);
    close(src);
    rig_free(&r);
}

/* A mover that does not listen is killed at its deadline, and that is a cancel all the same. */
static void test_cancel_deadline(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 64 * MIB;
    int src = make_file(&r, "image", len, 1);
    start(&r, "up-1", "backup", slow_job(&r, "up-1", len), src);
    rig_until(&r, &r.started, 1, 10);
    assert_int_equal(kill(r.id.pid, SIGSTOP), 0);
    double t = rig_now();
    cancel(&r, "up-1", 1.5);
    rig_until(&r, &r.ended, 1, 6);
    assert_outcome(&r, MOVER_CANCELED);
    assert_true(rig_now() - t > 1.2);
    assert_says(&r, "grace");
    assert_int_equal(kill(r.id.pid, 0), -1);
    close(src);
    rig_free(&r);
}

/* ---- crash, hang, duration ---- */

static void test_killed(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 64 * MIB;
    int src = make_file(&r, "image", len, 1);
    start(&r, "up-1", "backup", slow_job(&r, "up-1", len), src);
    while (number_of(r.last, "done") < 4 * MIB && !r.ended)
        rig_until(&r, &r.progress, r.progress + 1, 20);
    double t = rig_now();
    assert_int_equal(kill(r.id.pid, SIGKILL), 0);
    rig_until(&r, &r.ended, 1, 5);
    assert_true(rig_now() - t < 1); /* MS-56: the pidfd tells, not a timeout */
    assert_outcome(&r, MOVER_DIED);
    assert_says(&r, "died while running");
    assert_says(&r, "signal 9");
    assert_says(&r, "last progress: moving");
    assert_null(r.result);
    /* The next one goes on, and ends well. */
    run(&r, "up-1", "backup", backup_job(&r, "up-1", len), src);
    assert_outcome(&r, MOVER_OK);
    close(src);
    rig_free(&r);
}

static void test_hung(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 64 * MIB;
    int src = make_file(&r, "image", len, 1);
    r.stall_timeout_s = 2;
    start(&r, "up-1", "backup", slow_job(&r, "up-1", len), src);
    rig_until(&r, &r.progress, 1, 10);
    assert_int_equal(kill(r.id.pid, SIGSTOP), 0);
    rig_until(&r, &r.ended, 1, 10);
    assert_outcome(&r, MOVER_HUNG);
    assert_says(&r, "no progress for 2 s in stage");
    close(src);
    rig_free(&r);
}

static int64_t requests_of(const struct rig *r, const char *operation)
{
    json_t *j = movers_to_json(r->m, operation);
    const int64_t n = json_integer_value(json_object_get(j, "requests"));
    json_decref(j);
    return n;
}

/* What a mover does before it has anything to count is no stall, nor is what is never counted; but a backup that reads
 * nothing is one, whatever keeps its session alive. */
static void test_requests(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 64 * MIB;
    int src = make_file(&r, "image", len, 1);
    start(&r, "up-1", "backup", slow_job(&r, "up-1", len), src);
    while (number_of(r.last, "done") == 0 && !r.ended)
        rig_until(&r, &r.progress, r.progress + 1, 10);
    const int64_t begun = requests_of(&r, "up-1");
    assert_true(begun > 0);
    rig_until(&r, &r.progress, r.progress + 2, 10);
    assert_int_equal(requests_of(&r, "up-1"), begun);
    cancel(&r, "up-1", 5);
    rig_until(&r, &r.ended, 1, 10);
    close(src);
    src = make_file(&r, "image", 16 * MIB, 2);
    run(&r, "up-2", "backup", backup_job(&r, "up-2", 16 * MIB), src);
    assert_outcome(&r, MOVER_OK);
    json_t *j = base_job(&r, "verify-1", "verify");
    json_object_set_new(j, "read_percent", json_real(100));
    json_object_set_new(j, "read_limit", json_integer(4 * MIB));
    r.progress = 0;
    start(&r, "verify-1", "verify", j, -1);
    int64_t first;
    do { /* the first report may come before the first request */
        rig_until(&r, &r.progress, r.progress + 1, 10);
    } while ((first = requests_of(&r, "verify-1")) == 0 && !r.ended);
    assert_true(first > 0);
    rig_until(&r, &r.progress, r.progress + 2, 10);
    assert_true(requests_of(&r, "verify-1") > first);
    rig_until(&r, &r.ended, 1, 30);
    assert_outcome(&r, MOVER_OK);
    close(src);
    rig_free(&r);
}

static void test_max_duration(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 128 * MIB;
    int src = make_file(&r, "image", len, 1);
    r.max_duration_s = 8; /* time for a chunk or two */
    r.grace_s = 20;
    start(&r, "up-1", "backup", slow_job(&r, "up-1", len), src);
    rig_until(&r, &r.ended, 1, 60);
    assert_outcome(&r, MOVER_FAILED);
    assert_says(&r, "max-duration");
    assert_true(json_is_true(json_object_get(r.result, "incomplete"))); /* what was done is kept */
    close(src);
    rig_free(&r);
}

static void test_no_go(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    int src = make_file(&r, "image", 2 * MIB, 1);
    r.no_go = true;
    r.go_timeout_s = 1;
    run(&r, "up-1", "backup", backup_job(&r, "up-1", 2 * MIB), src); /* MS-20 */
    assert_outcome(&r, MOVER_NEVER_STARTED);
    assert_says(&r, "waiting for GO");
    assert_int_equal(WEXITSTATUS(r.status), 3);
    /* The daemon goes away before "go": nobody is left behind. */
    rig_forget(&r);
    r.go_timeout_s = 60;
    start(&r, "up-1", "backup", backup_job(&r, "up-1", 2 * MIB), src);
    rig_until(&r, &r.ready, 1, 10);
    movers_free(r.m);
    int status;
    for (int i = 0; i < 300 && waitpid(r.id.pid, &status, WNOHANG) == 0; i++)
        usleep(10000);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
    rig_movers(&r);
    close(src);
    rig_free(&r);
}

/* ---- crash points: each ends in a named way (MS-27, MS-31) ---- */

static void test_crash_points(void **state)
{
    static const struct {
        const char *point;
        enum mover_outcome outcome;
        const char *says;
    } points[] = {
        {"mover-ready", MOVER_NEVER_STARTED, "never started"},
        {"mover-go", MOVER_NEVER_STARTED, "never started"},
        {"pack-written", MOVER_DIED, "died while running"},
        {"mover-worked", MOVER_DIED, "died while running"},
        {"result-written", MOVER_MISMATCH, "signal 9"},
        {"result-durable", MOVER_MISMATCH, "result file has code 0"},
        {"mover-told", MOVER_MISMATCH, "result mismatch"},
    };
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    int src = make_file(&r, "image", 2 * MIB, 1);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        int z = (int)i;
        assert_int_equal(pwrite(src, &z, sizeof z, 0), sizeof z);
        setenv("SNAPFERRY_CRASH_AT", points[i].point, 1);
        rig_forget(&r);
        start(&r, "up-1", "backup", backup_job(&r, "up-1", 2 * MIB), src);
        unsetenv("SNAPFERRY_CRASH_AT");
        rig_until(&r, &r.ended, 1, 20);
        assert_outcome(&r, points[i].outcome);
        assert_says(&r, points[i].says);
        assert_int_equal(WTERMSIG(r.status), SIGKILL);
    }
    run(&r, "up-1", "backup", backup_job(&r, "up-1", 2 * MIB), src);
    assert_outcome(&r, MOVER_OK);
    close(src);
    rig_free(&r);
}

static void test_cannot_execute(void **state)
{
    struct rig r;
    (void)state;
    char path[192];
    rig_new(&r, "/bin/true");
    make_repo(&r);
    /* Ends well and says nothing. */
    run(&r, "up-1", "backup", backup_job(&r, "up-1", 0), -1);
    assert_outcome(&r, MOVER_NEVER_STARTED);
    assert_says(&r, "status 0");
    rig_forget(&r);
    movers_free(r.m);
    /* Not executable when it comes to that (MS-55: phase and errno). */
    snprintf(path, sizeof path, "%s/program", r.dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    assert_int_equal(write(fd, "nonsense", 8), 8);
    close(fd);
    snprintf(r.program, sizeof r.program, "%s", path);
    rig_movers(&r);
    run(&r, "up-1", "backup", backup_job(&r, "up-1", 0), -1);
    assert_outcome(&r, MOVER_NEVER_STARTED);
    assert_says(&r, "executing the program failed: Exec format error");
    rig_free(&r);
}

/* ---- the daemon dies: the same process goes on and is adopted (MS-36, MS-50) ---- */

static struct mover_spec adopt_spec(const struct rig *r)
{
    return (struct mover_spec){.operation = "up-1",
                               .kind = "backup",
                               .device_fd = -1,
                               .limits = &r->limits,
                               .times = {.stall_timeout_s = r->stall_timeout_s, .cancel_grace_s = r->grace_s}};
}

static void test_adopt(void **state)
{
    struct rig r;
    struct err e = ERR_INIT;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 32 * MIB; /* more than six seconds */
    int src = make_file(&r, "image", len, 1);
    start(&r, "up-1", "backup", slow_job(&r, "up-1", len), src);
    rig_until(&r, &r.progress, 1, 20);
    json_t *j = mover_identity_to_json(&r.id);
    struct process_identity id, other;
    assert_ok(mover_identity_from_json(&id, j, &e), &e);
    json_decref(j);
    movers_free(r.m);
    usleep(1500000); /* nobody is there for a while */
    assert_int_equal(kill(id.pid, 0), 0);
    rig_forget(&r);
    rig_movers(&r);
    const struct mover_spec s = adopt_spec(&r);
    /* Another start time, another boot: not this process. */
    other = id;
    other.start_time++;
    assert_int_equal(movers_adopt(r.m, &other, &s, &e), -ESRCH);
    other = id;
    other.boot_id[0] ^= 1;
    assert_int_equal(movers_adopt(r.m, &other, &s, &e), -ESRCH);
    assert_int_equal(movers_count(r.m), 0);
    assert_ok(movers_adopt(r.m, &id, &s, &e), &e);
    assert_int_equal(movers_adopt(r.m, &id, &s, &e), -EEXIST);
    rig_until(&r, &r.progress, 1, 15); /* it has dialled again */
    json_t *facts = movers_to_json(r.m, "up-1");
    assert_int_equal(number_of(facts, "pid"), id.pid);
    assert_true(json_is_true(json_object_get(facts, "adopted")));
    assert_true(json_is_true(json_object_get(facts, "connected")));
    json_decref(facts);
    rig_until(&r, &r.ended, 1, 60);
    assert_outcome(&r, MOVER_OK);
    assert_int_equal(number_of(r.result, "pid"), id.pid);
    assert_ok(movers_forget(r.m, "up-1", NULL, NULL, &e), &e);
    assert_int_equal(files_in(&r, "state/results"), 0);
    close(src);
    rig_free(&r);
}

static void read_proc(pid_t pid, const char *file, char *out, size_t cap)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, out, cap - 1);
    out[n > 0 ? n : 0] = '\0';
    close(fd);
    for (ssize_t i = 0; i < n; i++)
        if (!out[i])
            out[i] = '\n';
}

/* The directories of movers in our own cgroup that are of this operation (cgroup version 2, where it can be written).
 */
static bool cgroup_left(const struct rig *r, const char *operation)
{
    char line[4200] = "", path[8500], hash[33], both[256];
    uint8_t digest[EVP_MAX_MD_SIZE];
    snprintf(both, sizeof both, "%s/run\n%s", r->dir, operation);
    EVP_Digest(both, strlen(both), digest, NULL, EVP_sha256(), NULL);
    hex_encode(hash, digest, 16);
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && fgets(line, sizeof line, f) && strncmp(line, "0::", 3) != 0)
        ;
    fclose(f);
    line[strcspn(line, "\n")] = '\0';
    const char *const tops[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    for (int i = 0; i < 2 && !strncmp(line, "0::", 3); i++) {
        snprintf(path, sizeof path, "%s%s/snapferry-mover-%s", tops[i], line + 3, hash);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

/* Not our child, and it ended while nobody looked: result file and dead process suffice. */
static void test_adopt_too_late(void **state)
{
    struct rig r;
    struct err e = ERR_INIT;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 8 * MIB;
    int src = make_file(&r, "image", len, 1);
    const char *op = "up-1";
    start(&r, op, "backup", slow_job(&r, op, len), src);
    rig_until(&r, &r.started, 1, 10);
    struct process_identity id = r.id;
    char own[4096];
    read_proc(id.pid, "cgroup", own, sizeof own);
    const bool has_cgroup = strstr(own, "snapferry-mover-") != NULL;
    assert_int_equal(cgroup_left(&r, op), has_cgroup);
    movers_free(r.m);
    assert_int_equal(waitpid(id.pid, NULL, 0), id.pid);
    rig_movers(&r);
    const struct mover_spec s = adopt_spec(&r);
    assert_int_equal(movers_adopt(r.m, &id, &s, &e), -ESRCH);
    rig_forget(&r);
    assert_ok(movers_result(r.m, op, &e), &e);
    assert_true(movers_has(r.m, op));
    rig_until(&r, &r.ended, 1, 5);
    assert_int_equal(r.outcome, MOVER_OK);
    assert_true(r.looked_for);
    assert_int_equal(strlen(text_of(r.result, "snapshotID")), 32);
    assert_ok(movers_forget(r.m, op, NULL, NULL, &e), &e);
    assert_false(cgroup_left(&r, op));
    assert_ok(movers_forget(r.m, op, NULL, NULL, &e), &e);
    assert_ok(movers_result(r.m, op, &e), &e);
    rig_until(&r, &r.ended, 2, 5);
    assert_int_equal(r.outcome, MOVER_DIED);
    assert_null(r.result);
    close(src);
    rig_free(&r);
}

/* Cancel reaches a mover that another daemon has started. */
static void test_adopt_and_cancel(void **state)
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
    struct process_identity id = r.id;
    movers_free(r.m);
    rig_movers(&r);
    const struct mover_spec s = adopt_spec(&r);
    assert_ok(movers_adopt(r.m, &id, &s, &e), &e);
    cancel(&r, "up-1", 30);
    rig_until(&r, &r.ended, 1, 30);
    assert_outcome(&r, MOVER_CANCELED);
    close(src);
    rig_free(&r);
}

/* ---- what a mover is and has ---- */

static void test_process(void **state)
{
    struct rig r;
    char text[16384];
    (void)state;
    setenv("SNAPFERRY_SECRET_OF_THE_DAEMON", "x", 1);
    setenv("TZ", "UTC", 1);
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 64 * MIB;
    int src = make_file(&r, "image", len, 1);
    int leaked = open("/dev/null", O_RDONLY); /* without close-on-exec */
    r.limits.nice = 5;
    str_set(&r.limits.ioclass, "idle");
    str_set(&r.limits.cpus, "0");
    start(&r, "up-1", "backup", slow_job(&r, "up-1", len), src);
    rig_until(&r, &r.progress, 1, 10);
    read_proc(r.id.pid, "environ", text, sizeof text);
    if (geteuid() == 0)
        assert_non_null(strstr(text, "TZ=UTC")); /* MS-15: what is on the list, and nothing else */
    assert_null(strstr(text, "SECRET"));
    read_proc(r.id.pid, "cmdline", text, sizeof text);
    assert_null(strstr(text, RIG_PASSWORD));
    assert_non_null(strstr(text, "--operation\nup-1"));
    read_proc(r.id.pid, "status", text, sizeof text);
    assert_non_null(strstr(text, "NoNewPrivs:\t1"));
    assert_non_null(strstr(text, "Seccomp:\t2"));
    assert_non_null(strstr(text, "CapEff:\t0000000000000000"));
    assert_non_null(strstr(text, "CapPrm:\t0000000000000000"));
    assert_non_null(strstr(text, "Cpus_allowed_list:\t0\n"));
    if (geteuid() == 0)
        assert_non_null(strstr(text, "CapBnd:\t0000000000000000"));
    read_proc(r.id.pid, "limits", text, sizeof text);
    assert_non_null(strstr(text, "Max core file size        0                    0"));
    read_proc(r.id.pid, "stat", text, sizeof text);
    long pgrp, session, nice;
    assert_int_equal(sscanf(strrchr(text, ')'), ") %*c %*d %ld %ld %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %ld",
                            &pgrp, &session, &nice),
                     3);
    assert_int_equal(session, r.id.pid);
    assert_int_equal(nice, 5);
    snprintf(text, sizeof text, "/proc/%d/fd/%d", (int)r.id.pid, leaked);
    char target[64] = "";
    if (readlink(text, target, sizeof target - 1) > 0)
        assert_string_not_equal(target, "/dev/null");
    json_t *facts = movers_to_json(r.m, "up-1");
    assert_true(number_of(facts, "memory") > MIB);
    assert_string_equal(text_of(facts, "backend"), "fork");
    json_decref(facts);
    assert_null(movers_to_json(r.m, "up-2"));
    cancel(&r, "up-1", 20);
    rig_until(&r, &r.ended, 1, 25);
    /* What it logged lies in its file. */
    char path[4200], state_dir[96];
    snprintf(state_dir, sizeof state_dir, "%s/state", r.dir);
    assert_int_equal(mover_log_path(path, sizeof path, state_dir, "up-1"), 0);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    fclose(f);
    assert_non_null(strstr(text, "# operation up-1"));
    assert_non_null(strstr(text, "backup up-1 begins"));
    close(leaked);
    close(src);
    rig_free(&r);
}

static int tree_to(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return lchown(path, 65534, 65534);
}

/* As the user of movers: the socket lets only that user in. */
static void test_user(void **state)
{
    struct rig r;
    char path[192];
    struct stat st;
    (void)state;
    if (geteuid() != 0)
        skip(); /* changing the user needs root */
    rig_new(&r, NULL);
    make_repo(&r);
    nftw(r.repo, tree_to, 16, FTW_PHYS);
    nftw(r.cache, tree_to, 16, FTW_PHYS);
    snprintf(path, sizeof path, "%s", r.program);
    if (access("/proc/self/exe", X_OK) == 0 && stat(r.program, &st) == 0 && !(st.st_mode & S_IXOTH))
        skip();
    int src = make_file(&r, "image", 8 * MIB, 1);
    str_set(&r.limits.user, "nobody");
    run(&r, "up-1", "backup", backup_job(&r, "up-1", 8 * MIB), src);
    assert_outcome(&r, MOVER_OK);
    snprintf(path, sizeof path, "%s/run/mover-65534.sock", r.dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, 65534);
    assert_int_equal(st.st_mode & 0777, 0600);
    snprintf(path, sizeof path, "%s/run/mover.sock", r.dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* What it wrote belongs to the repository's owner. */
    snprintf(path, sizeof path, "%s/kopia.repository.f", r.repo);
    assert_int_equal(stat(path, &st), 0);
    /* It may not read the password file, the results, the logs of others. */
    snprintf(path, sizeof path, "%s/state", r.dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    close(src);
    rig_free(&r);
}

/* Somebody else on the socket is shown out. */
static void test_stranger(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof sa.sun_path, "%s/run/mover.sock", r.dir);
    for (int i = 0; i < 50; i++) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
        static const char hello[] = "{\"type\":\"HELLO\",\"operation\":\"up-1\",\"seq\":1,\"protocol\":1}";
        assert_int_equal(send(fd, hello, sizeof hello - 1, MSG_NOSIGNAL), sizeof hello - 1);
        rig_for(&r, 0.02);
        char byte;
        assert_true(recv(fd, &byte, 1, MSG_DONTWAIT) <= 0);
        assert_true(errno != EAGAIN || recv(fd, &byte, 1, MSG_DONTWAIT) == 0);
        close(fd);
    }
    assert_int_equal(r.ready, 0);
    rig_free(&r);
}

/* Two at once do not disturb each other, and a second of the same name is refused. */
static void test_two(void **state)
{
    struct rig r;
    struct err e = ERR_INIT;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    int src = make_file(&r, "image", 8 * MIB, 1);
    start(&r, "up-1", "backup", backup_job(&r, "up-1", 8 * MIB), src);
    json_t *j = backup_job(&r, "up-1", 8 * MIB);
    assert_int_equal(rig_start(&r, "up-1", "backup", j, src, RIG_PASSWORD, &e), -EEXIST);
    json_decref(j);
    j = backup_job(&r, "up-2", 8 * MIB);
    json_object_set_new(j, "as", json_string("snapferry@node:/vol-2"));
    start(&r, "up-2", "backup", j, src);
    assert_int_equal(movers_count(r.m), 2);
    assert_int_equal(movers_forget(r.m, "up-1", NULL, NULL, &e), -EBUSY);
    rig_until(&r, &r.ended, 2, 30);
    assert_outcome(&r, MOVER_OK);
    assert_int_equal(movers_count(r.m), 0);
    close(src);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backup_and_restore),
        cmocka_unit_test(test_empty_volume),
        cmocka_unit_test(test_result_codes),
        cmocka_unit_test(test_bad_jobs),
        cmocka_unit_test(test_admin),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_cancel_deadline),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_hung),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_max_duration),
        cmocka_unit_test(test_no_go),
        cmocka_unit_test(test_crash_points),
        cmocka_unit_test(test_cannot_execute),
        cmocka_unit_test(test_adopt),
        cmocka_unit_test(test_adopt_too_late),
        cmocka_unit_test(test_adopt_and_cancel),
        cmocka_unit_test(test_process),
        cmocka_unit_test(test_user),
        cmocka_unit_test(test_stranger),
        cmocka_unit_test(test_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
