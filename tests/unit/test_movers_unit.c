/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_movers_unit.c - movers as transient units, where systemd is PID 1 (MS-01, 02, 04, 36, 44, 47, 50) */
#include "tests/unit/movers-job.h"

#include "proc/program.h"
#include "proc/systemd.h"

#include <pwd.h>
#include <sys/wait.h>

#define UNIT "snapferry-mover@up\\x2d1.service"
static const char op[] = "up-1";

static void need_systemd(void)
{
    if (!systemd_runs()) {
        print_message("SKIP: systemd is not PID 1 here\n");
        skip();
    }
}

/* In a container of our own the movers' user can be made. */
static uid_t movers_user(char *name, size_t cap)
{
    static const char line[] = "snapferry-mover:x:990:990::/:/usr/sbin/nologin\n";
    snprintf(name, cap, "nobody");
    if (!getenv("SNAPFERRY_IN_CONTAINER"))
        return 65534;
    if (!getpwnam("snapferry-mover")) {
        FILE *f = fopen("/etc/passwd", "a");
        assert_true(f && fputs(line, f) >= 0 && fclose(f) == 0);
        f = fopen("/etc/group", "a");
        assert_true(f && fputs("snapferry-mover:x:990:\n", f) >= 0 && fclose(f) == 0);
    }
    snprintf(name, cap, "snapferry-mover");
    return 990;
}

static uid_t user;

static int tree_to(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return lchown(path, user, user);
}

static int begin(struct rig *r, size_t len)
{
    need_systemd();
    rig_new(r, NULL);
    make_repo(r);
    char name[64];
    user = movers_user(name, sizeof name);
    str_set(&r->limits.user, name);
    nftw(r->repo, tree_to, 16, FTW_PHYS);
    nftw(r->cache, tree_to, 16, FTW_PHYS);
    return make_file(r, "image", len, 1);
}

static void end(struct rig *r, int fd)
{
    struct err e = ERR_INIT;
    if (!movers_has(r->m, op))
        assert_ok(movers_forget(r->m, op, NULL, NULL, &e), &e);
    rig_for(r, 0.2);
    close(fd);
    rig_free(r);
}

static char *command(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *command(const char *fmt, ...)
{
    static char out[65536];
    char cmd[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    FILE *f = popen(cmd, "r");
    size_t n = fread(out, 1, sizeof out - 1, f);
    out[n] = '\0';
    pclose(f);
    return out;
}

static void property(const char *name, const char *want)
{
    const char *got = command("systemctl show -P %s '" UNIT "'", name);
    if (strncmp(got, want, strlen(want)) != 0 || got[strlen(want)] != '\n')
        fail_msg("%s is %s not %s", name, got, want);
}

static void test_unit(void **state)
{
    struct rig r;
    (void)state;
    int src = begin(&r, 24 * MIB);
    strs_add(&r.limits.unit_properties, "LogLevelMax=6");
    strs_add(&r.limits.unit_properties, "ReadOnlyPaths=/usr /etc");
    r.limits.cpu_weight = 33;
    r.limits.cpu_quota = 150;
    r.limits.io_weight = 44;
    r.limits.tasks_max = 77;
    r.limits.nice = 3;
    str_set(&r.limits.ioclass, "idle");
    str_set(&r.limits.cpus, "0");
    r.limits.memory_max = 300 * (int64_t)MIB;
    start(&r, op, "backup", slow_job(&r, op, 24 * MIB), src);
    rig_until(&r, &r.progress, 1, 20);
    assert_string_equal(r.id.unit, UNIT);
    property("User", r.limits.user);
    property("NoNewPrivileges", "yes");
    property("CapabilityBoundingSet", "");
    property("PrivateDevices", "yes");
    property("PrivateNetwork", "yes");
    property("ProtectSystem", "strict");
    property("RestrictAddressFamilies", "AF_UNIX");
    property("MemoryMax", "314572800");
    property("TasksMax", "77");
    property("CPUWeight", "33");
    property("IOWeight", "44");
    property("CPUQuotaPerSecUSec", "1.500000s");
    property("Nice", "3");
    property("IOSchedulingClass", "3");
    property("Restart", "no");
    property("KillMode", "control-group");
    property("LogLevelMax", "6");
    property("ReadOnlyPaths", "/usr /etc");
    property("LimitCORE", "0");
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)r.id.pid);
    property("MainPID", pid);
    assert_int_equal(strtoul(strstr(command("cat /proc/%d/status", (int)r.id.pid), "Uid:\t") + 5, NULL, 10), user);
    assert_non_null(strstr(command("systemd-analyze security --no-pager '" UNIT "'"), "exposure level"));
    double exposure = 10;
    const char *level = strstr(command("systemd-analyze security --no-pager '" UNIT "'"), "exposure level");
    assert_non_null(level);
    level = strpbrk(strchr(level, ':'), "0123456789");
    exposure = strtod(level, NULL);
    print_message("exposure %.1f\n", exposure);
    if (exposure > 1.6)
        print_message("%s\n", command("systemd-analyze security --no-pager '" UNIT "' | grep ✗"));
    assert_true(exposure <= (user == 990 ? 1.6 : 2.0)); /* "nobody" should not be used, says the tool */
    rig_until(&r, &r.ended, 1, 60);
    assert_outcome(&r, MOVER_OK);
    assert_true(WIFEXITED(r.status) && WEXITSTATUS(r.status) == 0);
    assert_true(r.cpu_seconds > 0.5);
    /* The unit stays until its operation's record is durable, then it goes. */
    property("ActiveState", "active");
    property("SubState", "exited");
    struct err e = ERR_INIT;
    assert_ok(movers_forget(r.m, op, NULL, NULL, &e), &e);
    rig_for(&r, 0.5);
    property("LoadState", "not-found");
    /* MS-47 */
    const char *log = command("journalctl --no-pager -o cat OPERATION=%s VOLUME=vg0/db1 BACKUP=nightly-1", op);
    if (!strstr(log, "backup up-1 begins"))
        fail_msg("not in the journal: %s", command("journalctl --no-pager | tail -n 30"));
    assert_string_equal(command("ls '/run/systemd/units/log-extra-fields:" UNIT "' 2>/dev/null"), "");
    end(&r, src);
}

static void test_ends(void **state)
{
    struct rig r;
    struct err e = ERR_INIT;
    (void)state;
    int src = begin(&r, 24 * MIB);
    json_t *j = backup_job(&r, op, 24 * MIB);
    assert_ok(rig_start(&r, op, "backup", j, src, "wrong", &e), &e);
    json_decref(j);
    rig_until(&r, &r.ended, 1, 20);
    assert_outcome(&r, MOVER_FAILED);
    assert_int_equal(WEXITSTATUS(r.status), 1);
    /* At once again, its unit not forgotten: the new one takes its place. */
    run(&r, op, "backup", backup_job(&r, op, 24 * MIB), src);
    assert_outcome(&r, MOVER_OK);
    assert_true(json_is_true(json_object_get(r.result, "keyDerived")));
    /* The key that it derived is passed on, between units of another user (MS-58). */
    run(&r, op, "backup", backup_job(&r, op, 24 * MIB), src);
    assert_outcome(&r, MOVER_OK);
    assert_true(json_is_false(json_object_get(r.result, "keyDerived")));
    /* Killed. */
    rig_forget(&r);
    start(&r, op, "backup", slow_job(&r, op, 24 * MIB), src);
    rig_until(&r, &r.started, 1, 20);
    assert_int_equal(kill(r.id.pid, SIGKILL), 0);
    rig_until(&r, &r.ended, 1, 10);
    assert_outcome(&r, MOVER_DIED);
    assert_says(&r, "signal 9");
    assert_says(&r, UNIT);
    /* Stopped by somebody: it ends in order, with a checkpoint. */
    rig_forget(&r);
    assert_int_equal(pwrite(src, "new", 3, 20 * MIB), 3);
    j = slow_job(&r, op, 24 * MIB);
    json_object_set_new(j, "as", json_string("snapferry@node:/vol-2"));
    json_object_set_new(j, "full", json_true());
    start(&r, op, "backup", j, src);
    rig_until(&r, &r.progress, 1, 20);
    command("systemctl stop --no-block '" UNIT "'");
    rig_until(&r, &r.ended, 1, 20);
    assert_outcome(&r, MOVER_CANCELED);
    /* Hung: killed with its whole cgroup. */
    rig_forget(&r);
    r.stall_timeout_s = 2;
    int big = make_file(&r, "other", 64 * MIB, 77);
    start(&r, op, "backup", slow_job(&r, op, 64 * MIB), big);
    rig_until(&r, &r.started, 1, 20);
    assert_int_equal(kill(r.id.pid, SIGSTOP), 0);
    rig_until(&r, &r.ended, 1, 15);
    assert_outcome(&r, MOVER_HUNG);
    close(big);
    end(&r, src);
}

static void test_refused_units(void **state)
{
    struct rig r;
    struct err e = ERR_INIT;
    (void)state;
    int src = begin(&r, 2 * MIB);
    json_t *j = backup_job(&r, op, 2 * MIB);
    strs_add(&r.limits.unit_properties, "ExecStartPre=/bin/sh");
    assert_true(rig_start(&r, op, "backup", j, src, RIG_PASSWORD, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_non_null(strstr(e.msg, "ExecStartPre=/bin/sh"));
    assert_int_equal(movers_count(r.m), 0);
    json_decref(j);
    strs_clear(&r.limits.unit_properties);
    str_set(&r.limits.slice, "no slice");
    run(&r, op, "backup", backup_job(&r, op, 2 * MIB), src);
    assert_outcome(&r, MOVER_NEVER_STARTED);
    assert_says(&r, "systemd rejected its unit");
    end(&r, src);
}

static void test_adopt(void **state)
{
    struct rig r;
    struct err e = ERR_INIT;
    (void)state;
    int src = begin(&r, 32 * MIB);
    const struct mover_spec s = {
        .operation = op, .kind = "backup", .device_fd = -1, .times = {.stall_timeout_s = 60, .cancel_grace_s = 5}};
    start(&r, op, "backup", slow_job(&r, op, 32 * MIB), src);
    rig_until(&r, &r.started, 1, 20);
    struct process_identity id = r.id, other;
    movers_free(r.m);
    rig_forget(&r);
    rig_movers(&r);
    other = id;
    snprintf(other.unit, sizeof other.unit, "snapferry-mover@other.service");
    assert_int_equal(movers_adopt(r.m, &other, &s, &e), -ESRCH);
    assert_ok(movers_adopt(r.m, &id, &s, &e), &e);
    rig_until(&r, &r.progress, 1, 15);
    rig_until(&r, &r.ended, 1, 60);
    assert_outcome(&r, MOVER_OK);
    assert_int_equal(number_of(r.result, "pid"), id.pid);
    assert_true(WIFEXITED(r.status)); /* no child of ours: the unit tells */
    assert_ok(movers_forget(r.m, op, NULL, NULL, &e), &e);
    /* Dead before anybody could adopt it: the unit remembers how. */
    rig_forget(&r);
    int big = make_file(&r, "other", 64 * MIB, 77);
    start(&r, op, "backup", slow_job(&r, op, 64 * MIB), big);
    rig_until(&r, &r.started, 1, 20);
    id = r.id;
    movers_free(r.m);
    assert_int_equal(kill(id.pid, SIGKILL), 0);
    for (int i = 0; i < 500 && kill(id.pid, 0) == 0; i++)
        usleep(20000); /* until systemd has noticed */
    rig_movers(&r);
    assert_int_equal(movers_adopt(r.m, &id, &s, &e), -ESRCH);
    rig_forget(&r);
    assert_ok(movers_result(r.m, op, &e), &e);
    rig_until(&r, &r.ended, 1, 10);
    assert_int_equal(r.outcome, MOVER_DIED);
    assert_true(WIFSIGNALED(r.status));
    assert_int_equal(WTERMSIG(r.status), SIGKILL);
    /* Its unit is a stray until it is forgotten. */
    CLEANUP(movers_listed_clear) struct movers_listed all;
    movers_listed_init(&all);
    const struct mover_listed *left = rig_listed(&r, op, &all);
    assert_non_null(left);
    assert_int_equal(left->processes.n, 0); /* a unit without a process */
    assert_int_equal(movers_end_stray(r.m, left, &e), 0);
    for (int i = 0; i < 50 && (left = rig_listed(&r, op, &all)); i++)
        rig_for(&r, 0.2);
    assert_null(left);
    /* One that runs. */
    start(&r, op, "backup", slow_job(&r, op, 64 * MIB), big);
    rig_until(&r, &r.started, 1, 20);
    movers_free(r.m);
    rig_movers(&r);
    left = rig_listed(&r, op, &all);
    assert_non_null(left);
    assert_int_equal(left->processes.n, 1);
    assert_int_equal(movers_end_stray(r.m, left, &e), 1);
    /* Its unit has failed, and goes when it is found once more. */
    rig_for(&r, 1);
    for (int i = 0; i < 20 && (left = rig_listed(&r, op, &all)); i++) {
        assert_int_equal(left->processes.n, 0);
        assert_int_equal(movers_end_stray(r.m, left, &e), 0);
        rig_for(&r, 0.5);
    }
    assert_null(left);
    close(big);
    end(&r, src);
}

/* Its own limit takes it, and nobody else (MS-03). */
static void test_oom(void **state)
{
    struct rig r;
    (void)state;
    int src = begin(&r, 64 * MIB);
    r.limits.memory_max = 12 * MIB;
    start(&r, op, "backup", slow_job(&r, op, 64 * MIB), src);
    rig_until(&r, &r.ready, 1, 20);
    if (!strstr(command("cat /sys/fs/cgroup/cgroup.controllers"), "memory")) {
        movers_cancel(r.m, op, 0, NULL);
        rig_until(&r, &r.ended, 1, 10);
        end(&r, src);
        print_message("SKIP: no memory controller in this container\n");
        skip();
    }
    rig_until(&r, &r.ended, 1, 30);
    assert_outcome(&r, MOVER_OOM);
    assert_says(&r, "memory limit of 12.0 MiB");
    end(&r, src);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unit),  cmocka_unit_test(test_ends), cmocka_unit_test(test_refused_units),
        cmocka_unit_test(test_adopt), cmocka_unit_test(test_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
