/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Devices of one identity are found among those of all classes, and each device is opened a number of times that does
 * not depend on how many there are. */
#include "tests/unit/test.h"

#include "io/source.h"

/* The driver itself, with its opening of devices counted. */
static unsigned looks;
static int counted_open(struct source **ret, const char *path, struct err *e)
{
    looks++;
    return source_open(ret, path, e);
}
#define source_open counted_open
#define driver_device driver_device_counted
#include "io/native/device.c"

#include <linux/loop.h>

#define DEVICES 6
static char device[DEVICES][32];
static int held[DEVICES];

static void attach(unsigned i, const char *uuid)
{
    char file[PATH_MAX], command[PATH_MAX + 100];
    snprintf(file, sizeof file, "%s/snapferry-device-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    int backing = mkostemp(file, O_CLOEXEC), control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    assert_true(backing >= 0 && ftruncate(backing, 1 << 20) == 0);
    snprintf(command, sizeof command, "mkswap -U %s %s >/dev/null 2>&1", uuid, file);
    assert_int_equal(system(command), 0);
    assert_int_equal(unlink(file), 0);
    for (unsigned tries = 0;; tries++) {
        const int n = ioctl(control, LOOP_CTL_GET_FREE);
        assert_true(n >= 0 && tries < 100);
        snprintf(device[i], sizeof device[i], "/dev/loop%d", n);
        held[i] = open(device[i], O_RDWR | O_CLOEXEC);
        if (held[i] >= 0 && ioctl(held[i], LOOP_SET_FD, backing) == 0)
            break;
        close(held[i]);
        usleep(10000);
    }
    /* Detached when its last descriptor is closed, also if this program dies. */
    struct loop_info64 info = {.lo_flags = LO_FLAGS_AUTOCLEAR};
    assert_int_equal(ioctl(held[i], LOOP_SET_STATUS64, &info), 0);
    close(backing);
    close(control);
}

static int count_volume(const struct volume *v, void *arg)
{
    unsigned *n = arg;
    ++n[v->doubt ? 1 : 0];
    return 0;
}

static void twins_of_all_classes(void **state)
{
    (void)state;
    if (geteuid() != 0 || access("/dev/loop-control", F_OK) != 0)
        skip();
    static const char *const uuid[DEVICES] = {
        "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222",
        "33333333-3333-4333-8333-333333333333", "11111111-1111-4111-8111-111111111111",
        "55555555-5555-4555-8555-555555555555", "66666666-6666-4666-8666-666666666666"};
    for (unsigned i = 0; i < DEVICES; i++)
        attach(i, uuid[i]);
    /* Four in the class itself, one of them twice by name; two in others, which also match one of the class. */
    const char *match[] = {device[0], device[1], device[2], device[3], device[1], NULL};
    const char *peers[] = {device[4], device[1], "", device[5], "", NULL};
    struct driver_class c = {.name = "raw", .driver = "device", .match = match, .peers = peers};
    struct err e = ERR_INIT;
    unsigned n[2] = {0, 0}; /* those that are told apart, and those that are not */
    looks = 0;
    assert_ok(driver_device_counted.volumes(&c, count_volume, n, &e), &e);
    assert_int_equal(n[0], 2); /* the first and the fourth are twins */
    assert_int_equal(n[1], 2);
    assert_true(looks <= 2 * DEVICES);

    struct volume v;
    looks = 0;
    assert_int_equal(driver_device_counted.resolve(&c, device[3], &v, &e), -ENOTUNIQ);
    assert_non_null(strstr(e.msg, device[0]));
    assert_non_null(strstr(e.msg, "have the same identity"));
    assert_true(looks <= DEVICES + 1);
    assert_ok(driver_device_counted.resolve(&c, device[1], &v, &e), &e);

    /* A twin in another class only. */
    const char *first[] = {device[0], NULL}, *others[] = {device[1], device[3], "", NULL};
    c.match = first;
    c.peers = others;
    e = (struct err)ERR_INIT;
    assert_int_equal(driver_device_counted.resolve(&c, device[0], &v, &e), -ENOTUNIQ);
    n[0] = n[1] = 0;
    assert_ok(driver_device_counted.volumes(&c, count_volume, n, &e), &e);
    assert_int_equal(n[0], 0);
    assert_int_equal(n[1], 1);
    c.peers = NULL;
    e = (struct err)ERR_INIT;
    assert_ok(driver_device_counted.resolve(&c, device[0], &v, &e), &e);
    for (unsigned i = 0; i < DEVICES; i++)
        close(held[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(twins_of_all_classes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
