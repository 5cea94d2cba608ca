/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_in_use.c - users of a device that only sysfs and configfs know: device mapper, RAID, targets of the kernel */
#include "tests/unit/test.h"

#include "io/blockdev.h"
#include "io/in-use.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MAJOR 4000 /* no device of this machine */

static char root[4096];

static void make(const char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A file with that text below the root, with its directories; NULL: a directory. */
static void make(const char *text, const char *fmt, ...)
{
    char path[8192];
    int n = snprintf(path, sizeof path, "%s/", root);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(path + n, sizeof path - (size_t)n, fmt, ap);
    va_end(ap);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *p = '/';
    }
    if (!text) {
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        return;
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_link(const char *to, const char *from)
{
    char path[8192], target[8192];
    snprintf(path, sizeof path, "%s/%s", root, from);
    snprintf(target, sizeof target, "%s/%s", root, to);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    make(NULL, "%s", path + strlen(root) + 1);
    *slash = '/';
    assert_int_equal(symlink(target, path), 0);
}

static void device(const char *name, unsigned number, const char *dm_uuid)
{
    char text[64], from[300], to[300];
    snprintf(text, sizeof text, "%u:%u\n", MAJOR, number);
    make(text, "sys/devices/%s/dev", name);
    make(NULL, "sys/devices/%s/slaves", name);
    make(NULL, "sys/devices/%s/holders", name);
    if (dm_uuid) {
        make(dm_uuid, "sys/devices/%s/dm/uuid", name);
        make(strrchr(name, '/') ? strrchr(name, '/') + 1 : name, "sys/devices/%s/dm/name", name);
    }
    snprintf(from, sizeof from, "sys/dev/block/%u:%u", MAJOR, number);
    snprintf(to, sizeof to, "sys/devices/%s", name);
    make_link(to, from);
}

static const char *base_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static void upon(const char *upper, const char *lower)
{
    char from[600], to[300];
    snprintf(from, sizeof from, "sys/devices/%s/slaves/%s", upper, base_of(lower));
    snprintf(to, sizeof to, "sys/devices/%s", lower);
    make_link(to, from);
    snprintf(from, sizeof from, "sys/devices/%s/holders/%s", lower, base_of(upper));
    snprintf(to, sizeof to, "sys/devices/%s", upper);
    make_link(to, from);
}

static const char *use_of(unsigned number)
{
    static char out[4096];
    const struct stat st = {.st_mode = S_IFBLK, .st_rdev = makedev(MAJOR, number)};
    out[0] = '\0';
    const enum use use = in_use(&st, out, sizeof out);
    assert_int_equal(use != USE_NONE, out[0] != '\0');
    return out;
}

static void holds(unsigned number, const char *what)
{
    if (!strstr(use_of(number), what))
        fail_msg("device %u: \"%s\", not \"%s\"", number, use_of(number), what);
}

/*
 * sda (1): sda1 (2) below md0 (4), sda2 (3) below the volume group of lv-a (5) and lv-b (6).
 * sdb (10): below linear-a (11) and linear-b (12), whose tables may overlap.
 * sdc (20): below mpath (21), partitions part1 (22) and part2 (23) of it by kpartx; part1 below crypt (24).
 */
static void setup_stacks(void)
{
    device("sda", 1, NULL);
    device("sda/sda1", 2, NULL);
    device("sda/sda2", 3, NULL);
    make("1\n", "sys/devices/sda/sda1/partition");
    make("2\n", "sys/devices/sda/sda2/partition");
    device("md0", 4, NULL);
    upon("md0", "sda/sda1");
    device("lv-a", 5, "LVM-aaaa\n");
    device("lv-b", 6, "LVM-bbbb\n");
    upon("lv-a", "sda/sda2");
    upon("lv-b", "sda/sda2");
    device("sdb", 10, NULL);
    device("linear-a", 11, "TEST-a\n");
    device("linear-b", 12, "TEST-b\n");
    upon("linear-a", "sdb");
    upon("linear-b", "sdb");
    device("sdc", 20, NULL);
    device("mpath", 21, "mpath-c\n");
    device("part1", 22, "part1-mpath-c\n");
    device("part2", 23, "part2-mpath-c\n");
    device("crypt", 24, "CRYPT-LUKS2-x\n");
    upon("mpath", "sdc");
    upon("part1", "mpath");
    upon("part2", "mpath");
    upon("crypt", "part1");
}

static void stacks_of_devices(void **arg)
{
    (void)arg;
    setup_stacks();
    /* What lies below another device. */
    holds(2, "part of /dev/md0");
    holds(3, "part of /dev/mapper/lv-");
    holds(10, "part of /dev/mapper/linear-");
    holds(20, "part of /dev/mapper/mpath");
    holds(21, "part of /dev/mapper/part");
    holds(22, "part of /dev/mapper/crypt");
    /* A disk with a partition of which that is true. */
    holds(1, "which shares its data, is part of");
    /* What lies upon a device of which something else has a part, too: no logical volumes, no partitions. */
    holds(11, "/dev/sdb, which shares its data, is also part of /dev/mapper/linear-b");
    holds(12, "/dev/sdb, which shares its data, is also part of /dev/mapper/linear-a");
    assert_string_equal(use_of(4), "");
    assert_string_equal(use_of(5), "");
    assert_string_equal(use_of(6), "");
    assert_string_equal(use_of(23), "");
    assert_string_equal(use_of(24), "");
    /* A foreign table upon a physical volume of LVM. */
    device("foreign", 7, "TEST-foreign\n");
    upon("foreign", "sda/sda2");
    holds(5, "/dev/sda2, which shares its data, is also part of /dev/mapper/foreign");
    holds(7, "which shares its data, is also part of /dev/mapper/lv-");
}

static const char *use_of_file(const char *path)
{
    static char out[4096];
    struct stat st;
    out[0] = '\0';
    assert_int_equal(stat(path, &st), 0);
    const enum use use = in_use(&st, out, sizeof out);
    assert_int_equal(use != USE_NONE, out[0] != '\0');
    return out;
}

static void targets_of_the_kernel(void **arg)
{
    (void)arg;
    char file[8192], text[9000];
    make("data", "images/a.img");
    snprintf(file, sizeof file, "%s/images/a.img", root);
    assert_string_equal(use_of_file(file), "");

    snprintf(text, sizeof text, "%s\n", file);
    make(text, "config/target/core/iblock_0/disk/udev_path");
    make("1\n", "config/target/core/iblock_0/disk/enable");
    make("0\n", "config/target/core/iblock_0/hba_info");
    assert_non_null(strstr(use_of_file(file), "exported by an iSCSI or Fibre Channel target"));
    make("0\n", "config/target/core/iblock_0/disk/enable");
    assert_string_equal(use_of_file(file), "");

    snprintf(text, sizeof text,
             "Status: ACTIVATED  Max Queue Depth: 0        TCM FILEIO ID: 0        File: %s  Size: 4\n", file);
    make(text, "config/target/core/fileio_1/disk/info");
    make("1\n", "config/target/core/fileio_1/disk/enable");
    assert_non_null(strstr(use_of_file(file), "fileio_1/disk"));
    make("0\n", "config/target/core/fileio_1/disk/enable");

    snprintf(text, sizeof text, "%s\n", file);
    make(text, "config/nvmet/subsystems/nqn.test/namespaces/1/device_path");
    make("0\n", "config/nvmet/subsystems/nqn.test/namespaces/1/enable");
    assert_string_equal(use_of_file(file), "");
    make("1\n", "config/nvmet/subsystems/nqn.test/namespaces/1/enable");
    assert_non_null(strstr(use_of_file(file), "exported by an NVMe target"));
    make("/no/such/device\n", "config/nvmet/subsystems/nqn.test/namespaces/1/device_path");
    assert_string_equal(use_of_file(file), "");
}

static int setup(void **arg)
{
    static char sys[4200], config[4200];
    const char *dir = getenv("TMPDIR");
    (void)arg;
    snprintf(root, sizeof root, "%.3000s/snapferry-in-use.XXXXXX", dir ? dir : "/tmp");
    if (!mkdtemp(root))
        return -1;
    snprintf(sys, sizeof sys, "%s/sys", root);
    snprintf(config, sizeof config, "%s/config", root);
    make(NULL, "sys/block");
    blockdev_sysfs_test(sys);
    in_use_configfs_test(config);
    return 0;
}

static int teardown(void **arg)
{
    char command[4200];
    (void)arg;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stacks_of_devices, setup, teardown),
        cmocka_unit_test_setup_teardown(targets_of_the_kernel, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
