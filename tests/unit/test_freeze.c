/* SPDX-License-Identifier: GPL-2.0-or-later */
/* File systems that are frozen for a snapshot: what is on the device then, and that they thaw whatever happens. */
#include "io/native/freeze.h"
#include "tests/unit/loop.h"

#include <errno.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>

static char dir[64], dev[2][64];

/* Who writes to it would wait and could not be killed: it is asked whether it can be frozen. */
static bool is_frozen(int k)
{
    char point[80];
    snprintf(point, sizeof point, "%s/m%d", dir, k);
    CLEANUP_CLOSE int fd = open(point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    if (ioctl(fd, FIFREEZE, 0) < 0)
        return errno == EBUSY;
    assert_return_code(ioctl(fd, FITHAW, 0), errno);
    return false;
}

static bool touched(int k)
{
    return !is_frozen(k) && shell("touch %s/m%d/file && sync -f %s/m%d/file", dir, k, dir, k);
}

/* What the journal of ext4 has is not where it belongs yet: not so once it is frozen. */
static bool is_clean(int k)
{
    return !shell("blockdev --flushbufs %s; dumpe2fs -h %s 2>/dev/null | grep -q needs_recovery", dev[k], dev[k]);
}

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/snapferry-freeze.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return loop_clean(dir);
}

static void two_file_systems(const char *fs)
{
    need_loop();
    char tool[64];
    snprintf(tool, sizeof tool, "mkfs.%s", fs);
    need_tool(tool);
    for (int k = 0; k < 2; k++) {
        char image[100];
        snprintf(image, sizeof image, "%s/%s%d", dir, fs, k);
        loop_make(dev[k], sizeof dev[k], image, 320ull << 20, "");
        assert_true(shell("mkfs.%s -q %s && mkdir -p %s/m%d && mount %s %s/m%d", fs, dev[k], dir, k, dev[k], dir, k));
        assert_true(touched(k));
    }
}

/* A process that was killed may take a moment to leave it. */
static void unmount(int k)
{
    assert_true(shell("for i in 1 2 3 4 5 6 7 8 9; do umount -q %s/m%d && exit 0; sleep 1; done; umount %s/m%d", dir, k,
                      dir, k));
}

static void end(void)
{
    for (int k = 0; k < 2; k++) {
        unmount(k);
        loop_drop(dev[k]);
    }
}

static void all_are_frozen(void **state)
{
    (void)state;
    two_file_systems("ext4");
    need_tool("dumpe2fs");
    const char *const paths[] = {dev[0], "/dev/nosuch", dev[1], dev[0]};
    assert_true(!is_clean(0) && !is_clean(1)); /* else this test sees nothing */
    struct frozen *f = freeze_devices(paths, 4, NULL);
    assert_non_null(f);
    const bool clean = is_clean(0) && is_clean(1), frozen = is_frozen(0) && is_frozen(1);
    frozen_thaw(f);
    assert_true(clean && frozen);
    assert_true(touched(0) && touched(1));
    frozen_thaw(NULL);
    end();
    assert_null(freeze_devices(paths, 4, NULL)); /* nothing is mounted */
}

/* Whatever device is above it, and wherever it is mounted. */
static void btrfs_by_a_subvolume(void **state)
{
    (void)state;
    two_file_systems("btrfs");
    assert_true(shell("btrfs subvolume create %s/m0/sub >/dev/null && umount %s/m0 && mount -o subvol=sub %s %s/m0",
                      dir, dir, dev[0], dir));
    const char *const paths[] = {dev[0]};
    struct frozen *f = freeze_devices(paths, 1, NULL);
    assert_non_null(f);
    const bool frozen = is_frozen(0), other = is_frozen(1);
    frozen_thaw(f);
    assert_true(frozen && !other && touched(0));
    end();
}

/* Who could write to the devices although something on them is frozen. */
static void whether_nobody_writes(void **state)
{
    (void)state;
    static const char *const needed[] = {"/tmp/snapferry-freeze-nosuch", NULL};
    two_file_systems("ext4");
    const char *const both[] = {dev[0], dev[1]}, *const lost[] = {dev[0], "/dev/nosuch"};
    char m1[80];
    snprintf(m1, sizeof m1, "%s/m1/repository", dir);
    const char *const unfrozen[] = {m1, NULL};
    assert_true(freeze_can_hold(both, 2, NULL) && freeze_can_hold(both, 2, needed));
    assert_false(is_frozen(0) || is_frozen(1)); /* it was only asked */
    assert_false(freeze_can_hold(both, 2, unfrozen) || freeze_can_hold(lost, 2, NULL) ||
                 freeze_can_hold(both, 0, NULL));
    struct frozen *f = freeze_devices(both, 2, NULL);
    const bool held = frozen_holds(f);
    assert_true(frozen_thaw(f) && held);
    f = freeze_devices(both, 2, unfrozen);
    const bool partly = f && !frozen_holds(f);
    assert_true(frozen_thaw(f) && partly);
    assert_false(frozen_holds(NULL));
    assert_true(shell("fsfreeze -f %s/m1", dir)); /* another program may thaw it at any time */
    f = freeze_devices(both, 2, NULL);
    const bool others = f && !frozen_holds(f);
    assert_true(frozen_thaw(f) && shell("fsfreeze -u %s/m1", dir) && others);
    f = freeze_devices(both, 2, NULL);
    assert_true(shell("fsfreeze -u %s/m1", dir));
    assert_false(frozen_thaw(f)); /* somebody has thawed it */
    assert_true(shell("mount -o remount,ro %s/m1", dir));
    assert_false(freeze_can_hold(both, 2, NULL));
    assert_true(freeze_can_hold(both, 1, NULL));
    unmount(1);
    assert_false(freeze_can_hold(both, 2, NULL)); /* a device with nothing on it */
    unmount(0);
    for (int k = 0; k < 2; k++)
        loop_drop(dev[k]);
}

/* Killed while they are frozen: they thaw at once. */
static void a_watchdog_thaws(void **state)
{
    (void)state;
    two_file_systems("ext4");
    const char *const paths[] = {dev[0], dev[1]};
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("SNAPFERRY_CRASH_AT", "frozen", 1);
        freeze_devices(paths, 2, NULL);
        _exit(1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int i = 0; i < 100 && (is_frozen(0) || is_frozen(1)); i++)
        usleep(100000);
    assert_true(touched(0) && touched(1));
    end();
}

/* Stopped while they are frozen: they thaw when the time is over, and not before. */
static void not_for_long(void **state)
{
    (void)state;
    two_file_systems("ext4");
    const char *const paths[] = {dev[0]};
    struct timespec began, now;
    freeze_limit_test(3);
    clock_gettime(CLOCK_MONOTONIC, &began);
    struct frozen *f = freeze_devices(paths, 1, NULL);
    assert_non_null(f);
    for (int i = 0; i < 600 && is_frozen(0); i++)
        usleep(100000);
    clock_gettime(CLOCK_MONOTONIC, &now);
    const bool thawed = !is_frozen(0);
    frozen_thaw(f);
    assert_true(thawed && touched(0) && now.tv_sec - began.tv_sec >= 2);
    freeze_limit_test(FREEZE_MAX_S);
    end();
}

/* What somebody else has frozen is his to thaw. */
static void frozen_by_another(void **state)
{
    (void)state;
    two_file_systems("ext4");
    need_tool("fsfreeze");
    const char *const paths[] = {dev[0], dev[1]};
    assert_true(shell("fsfreeze -f %s/m0", dir));
    struct frozen *f = freeze_devices(paths, 2, NULL);
    frozen_thaw(f);
    const bool still = is_frozen(0), other = is_frozen(1);
    assert_true(shell("fsfreeze -u %s/m0", dir));
    assert_true(f && still && !other && touched(0));
    end();
}

/* Where the daemon has its records it would wait for itself; a read-only one has nothing to write. */
static void never_frozen(void **state)
{
    (void)state;
    two_file_systems("ext4");
    char lists[200];
    const char *const paths[] = {dev[0], dev[1]};
    snprintf(lists, sizeof lists, "/nosuch:%s/m0", dir);
    setenv("STATE_DIRECTORY", lists, 1);
    assert_true(shell("mount -o remount,ro %s/m1", dir));
    struct frozen *f = freeze_devices(paths, 2, NULL);
    unsetenv("STATE_DIRECTORY");
    frozen_thaw(f);
    assert_null(f);
    const char *const repositories[] = {"/nosuch", lists, NULL};
    snprintf(lists, sizeof lists, "%s/m0/file", dir);
    f = freeze_devices(paths, 2, repositories);
    frozen_thaw(f);
    assert_null(f);
    snprintf(lists, sizeof lists, "%s/m0/repository/that/will/be", dir);
    f = freeze_devices(paths, 2, repositories);
    frozen_thaw(f);
    assert_null(f);
    assert_true(touched(0));
    end();
}

static bool hangs(pid_t pid)
{
    char line[64] = "";
    for (int i = 0; i < 300 && strcmp(line, "D") != 0; i++) {
        usleep(50000);
        shell_line(line, sizeof line, "sed 's/.*) //;s/ .*//' /proc/%d/stat 2>/dev/null", (int)pid);
    }
    return strcmp(line, "D") == 0;
}

static pid_t in_child(const char *const *paths, const char *file)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    if (paths)
        _exit(freeze_devices(paths, 1, NULL) ? 1 : 0);
    static char block[8192];
    const int fd = open(file, O_WRONLY | O_DIRECT | O_CLOEXEC);
    _exit(fd < 0 || pwrite(fd, (char *)(((uintptr_t)block + 4095) & ~(uintptr_t)4095), 4096, 0) != 4096);
}

/* The storage below does not answer, a program writes, and the freeze waits for that write for longer than file systems
 * may be frozen: whether its process was killed meanwhile or not, the file system can be written to when all is well.
 */
static void a_write_that_hangs(void **state)
{
    (void)state;
    two_file_systems("ext4"); /* the storage is what is mounted at m0: a frozen one answers to nobody */
    char image[100], below[64], file[100];
    snprintf(image, sizeof image, "%s/m0/image", dir);
    snprintf(file, sizeof file, "%s/m2/file", dir);
    loop_make(below, sizeof below, image, 64ull << 20, "");
    assert_true(shell("mkfs.ext4 -q %s && mkdir -p %s/m2 && mount %s %s/m2", below, dir, below, dir));
    assert_true(
        shell("dd if=/dev/zero of=%s bs=4k count=1 status=none && sync -f %s && sync -f %s", file, file, image));
    const char *const paths[] = {below};
    freeze_limit_test(1);
    for (int killed = 0; killed < 2; killed++) {
        int status[2];
        CLEANUP_CLOSE int storage = open(image, O_RDONLY | O_CLOEXEC);
        assert_return_code(ioctl(storage, FIFREEZE, 0), errno);
        const pid_t writer = in_child(NULL, file);
        bool good = hangs(writer);
        const pid_t freezer = in_child(paths, NULL);
        good = good && hangs(freezer);
        if (killed)
            kill(freezer, SIGKILL);
        sleep(3);
        good = ioctl(storage, FITHAW, 0) == 0 && good;
        waitpid(writer, &status[0], 0);
        waitpid(freezer, &status[1], 0);
        bool frozen = true;
        for (int i = 0; i < 50 && (frozen = is_frozen(2)); i++)
            usleep(100000);
        if (frozen)
            shell("fsfreeze -u %s/m2", dir);
        assert_true(good && !frozen && status[0] == 0);
        assert_true(killed ? WIFSIGNALED(status[1]) : status[1] == 0); /* 0: it has given up */
    }
    freeze_limit_test(FREEZE_MAX_S);
    assert_true(shell("umount %s/m2", dir));
    loop_drop(below);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_are_frozen, setup, teardown),
        cmocka_unit_test_setup_teardown(btrfs_by_a_subvolume, setup, teardown),
        cmocka_unit_test_setup_teardown(whether_nobody_writes, setup, teardown),
        cmocka_unit_test_setup_teardown(a_watchdog_thaws, setup, teardown),
        cmocka_unit_test_setup_teardown(not_for_long, setup, teardown),
        cmocka_unit_test_setup_teardown(a_write_that_hangs, setup, teardown),
        cmocka_unit_test_setup_teardown(frozen_by_another, setup, teardown),
        cmocka_unit_test_setup_teardown(never_frozen, setup, teardown),
    };
    return cmocka_run_group_tests_name("freeze", tests, NULL, NULL);
}
