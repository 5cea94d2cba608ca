/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A configuration against the machine: what check-config and a reload find that the text alone does not tell. */
#include "tests/unit/cfgdir.h"

#include "daemon/check/check.h"

#include <sys/stat.h>

/* Loads TEXT with %s replaced by the directory, checks it, and returns it. */
static struct cfg *checked(bool storage, const char *text)
{
    char out[8192], *o = out;
    for (const char *s = text; *s; s++) {
        if (*s == '@')
            o += sprintf(o, "%s", cfgdir);
        else
            *o++ = *s;
    }
    *o = '\0';
    struct cfg *c = no_error(out);
    struct err e = ERR_INIT;
    int rc = config_check(c, storage, &e);
    assert_int_equal(rc<0, cfg_errors(c)> 0);
    if (rc < 0) {
        assert_int_equal(rc, -EINVAL);
        assert_int_equal(e.cls, ERR_USAGE);
    }
    return c;
}

static void put_file(const char *name, mode_t mode, const char *text)
{
    char path[256];
    cfgdir_write(name, text);
    snprintf(path, sizeof path, "%s/%s", cfgdir, name);
    assert_int_equal(chmod(path, mode), 0);
}

#define REPO "[repository \"main\"]\npath = @/repo\npassword-file = @/pw\n"

static void drivers_that_are_not_there(void **state)
{
    (void)state;
    put_file("pw", 0600, "secret\n");
    struct cfg *c = checked(true, REPO "[storage-class \"a\"]\ndriver = rbd\nmatch = tank/*\n");
    assert_complains(c, CFG_WARNING, "snapferry.ini:4", "/snapferry-rbd: No such file");
    assert_int_equal(cfg_errors(c), 0);
    cfg_free(c);
    c = checked(false, REPO "[storage-class \"a\"]\ndriver = relfink\nmatch = /x\n");
    assert_complains(c, CFG_ERROR, "snapferry.ini:5", "unknown driver relfink; the nearest known is reflink");
    cfg_free(c);
}

/* PVC-10: what a driver cannot do is told before any snapshot is taken. */
static void abilities(void **state)
{
    (void)state;
    struct cfg *c = checked(true, REPO "[storage-class \"raw\"]\ndriver = device\nmatch = /dev/nonexistent*\n"
                                       "move-data = no\n");
    assert_complains(c, CFG_ERROR, "snapferry.ini:7", "nothing is backed up");
    cfg_free(c);
    c = checked(true, REPO "[storage-class \"raw\"]\ndriver = device\nmatch = /dev/nonexistent*\n"
                           "snapshots-to-retain = 3\nbackup-read-only = no\n");
    assert_complains(c, CFG_WARNING, "snapferry.ini:7", "does not support native snapshots");
    assert_complains(c, CFG_ERROR, "snapferry.ini:8", "cannot make a writable intermediate");
    assert_complains(c, CFG_WARNING, "snapferry.ini:6", "no volume matches at present");
    cfg_free(c);
    /* A volume's own wish, at its own line. */
    c = checked(true, REPO "[storage-class \"raw\"]\ndriver = device\nmatch = /dev/loop0\n[volume \"/dev/loop0\"]\n"
                           "backup-read-only = no\n");
    assert_complains(c, CFG_ERROR, "snapferry.ini:8", "cannot make a writable intermediate");
    assert_int_equal(cfg_errors(c), 1);
    cfg_free(c);
    /* Without a look at storage nothing is said about it. */
    c = checked(false, REPO "[storage-class \"raw\"]\ndriver = device\nmatch = /dev/nonexistent*\n"
                            "backup-read-only = no\n");
    assert_int_equal(cfg_errors(c), 0);
    cfg_free(c);
}

static void memory(void **state)
{
    (void)state; /* MS-43, E-01 */
    struct cfg *c = checked(false, "[daemon]\nmemory-total = 700MiB\n");
    assert_complains(c, CFG_WARNING, "snapferry.ini:2", "of 3 slots only 1 can run a mover of 384 MiB");
    json_t *m = config_memory_json(c);
    assert_int_equal(json_integer_value(json_object_get(m, "largest")), 384 << 20);
    assert_int_equal(json_integer_value(json_object_get(m, "together")), 3 * (384 << 20));
    assert_int_equal(json_integer_value(json_object_get(m, "at_once")), 1);
    assert_int_equal(json_array_size(json_object_get(m, "movers")), 1);
    json_decref(m);
    cfg_free(c);
    c = checked(false, REPO "[storage-class \"a\"]\ndriver = reflink\nmatch = /x/*\nmemory = 3GiB\n"
                            "[volume \"/x/1\"]\nmemory = 96MiB\n");
    assert_complains(c, CFG_ERROR, "snapferry.ini:7", "needs 3200 MiB, memory-total is 2048 MiB");
    m = config_memory_json(c);
    assert_int_equal(json_array_size(json_object_get(m, "movers")), 3);
    json_decref(m);
    cfg_free(c);
    c = checked(false, "[daemon]\nmemory-total = 512TiB\n");
    assert_complains(c, CFG_WARNING, "snapferry.ini:2", "this machine has");
    cfg_free(c);
}

static void programs(void **state)
{
    (void)state; /* AP-21, CF-48 */
    put_file("good", 0755, "#!/bin/sh\n");
    put_file("writable", 0775, "#!/bin/sh\n");
    put_file("plain", 0644, "#!/bin/sh\n");
    struct cfg *c = checked(false, "[daemon]\nhook-pre-snapshot = @/good\nhook-post-snapshot = @/writable\n"
                                   "hook-post-backup = @/plain\nhook-prepare = @/missing\nhook-overlay = @/conf.d\n"
                                   "[plugin \"p\"]\nkind = driver\nprogram = @/missing\nuser = nobody-of-that-name\n"
                                   "[plugin \"q\"]\nkind = driver\nprogram = @/writable\nprivileged = yes\n");
    assert_complains(c, CFG_ERROR, "snapferry.ini:3", "is writable by others");
    assert_complains(c, CFG_ERROR, "snapferry.ini:4", "is not executable");
    assert_complains(c, CFG_WARNING, "snapferry.ini:5", "No such file");
    assert_complains(c, CFG_ERROR, "snapferry.ini:6", "is not a file");
    assert_complains(c, CFG_ERROR, "snapferry.ini:9", "No such file");
    assert_complains(c, CFG_ERROR, "snapferry.ini:10", "unknown user nobody-of-that-name");
    assert_complains(c, CFG_ERROR, "snapferry.ini:13", "is writable by others");
    assert_int_equal(cfg_errors(c), 6);
    cfg_free(c);
    /* A hook of a job, a class and a volume is looked at too. */
    c = checked(false, "[storage-class \"a\"]\ndriver = reflink\nmatch = /x/*\nmove-data = no\nhook-pre-snapshot = "
                       "@/plain\n[job \"j\"]\nvolumes = /x/*\nhook-post-backup = @/plain\n[volume \"/x/1\"]\n"
                       "hook-pre-snapshot = @/writable\n");
    assert_complains(c, CFG_ERROR, "snapferry.ini:5", "is not executable");
    assert_complains(c, CFG_ERROR, "snapferry.ini:8", "is not executable");
    assert_complains(c, CFG_ERROR, "snapferry.ini:10", "is writable by others");
    assert_int_equal(cfg_errors(c), 3);
    cfg_free(c);
}

static void calendars(void **state)
{
    (void)state;
    struct cfg *c = checked(false, "[job \"a\"]\nvolumes = /x\non-calendar = Mon..Fri 02:00\n"
                                   "[job \"b\"]\nvolumes = /x\non-calendar = sometimes\n"
                                   "[job \"c\"]\nvolumes = /x\non-calendar = 2001-01-01 00:00\n");
    assert_complains(c, CFG_ERROR, "snapferry.ini:6", "on-calendar");
    assert_complains(c, CFG_WARNING, "snapferry.ini:9", "has no next occurrence");
    assert_int_equal(cfg_errors(c), 1);
    cfg_free(c);
}

static void repositories(void **state)
{
    (void)state;
    char path[256];
    struct cfg *c = checked(true, REPO);
    assert_complains(c, CFG_WARNING, "snapferry.ini:2", "No such file or directory");
    cfg_free(c);
    snprintf(path, sizeof path, "%s/repo", cfgdir);
    assert_int_equal(mkdir(path, 0755), 0);
    c = checked(true, REPO); /* an empty mount point */
    assert_complains(c, CFG_WARNING, "snapferry.ini:2", "no repository in");
    cfg_free(c);
    cfgdir_write("repo/kopia.repository.f", "x");
    put_file("pw", 0640, "secret\n");
    c = checked(true, REPO);
    assert_false(complains(c, CFG_WARNING, "snapferry.ini:2", "no repository in"));
    assert_false(complains(c, CFG_ERROR, "snapferry.ini:3", "readable")); /* by root's group alone */
    cfg_free(c);
    put_file("pw", 0604, "secret\n");
    c = checked(true, REPO);
    assert_complains(c, CFG_ERROR, "snapferry.ini:3", "is readable by others (mode 0604)");
    cfg_free(c);
    c = checked(true, REPO "insecure-password-file = yes\n");
    assert_complains(c, CFG_WARNING, "snapferry.ini:3", "is readable by others (mode 0604)");
    assert_int_equal(cfg_errors(c), 0);
    cfg_free(c);
    put_file("pw", 0600, "");
    c = checked(false, REPO);
    assert_complains(c, CFG_ERROR, "snapferry.ini:3", "is empty");
    cfg_free(c);
    c = checked(false, "[repository \"main\"]\npath = @/repo\npassword-file = @/none\n");
    assert_complains(c, CFG_WARNING, "snapferry.ini:3", "No such file");
    cfg_free(c);
    c = checked(true, "[repository \"main\"]\npath = @/pw\npassword-file = cred:x\n");
    assert_complains(c, CFG_ERROR, "snapferry.ini:2", "is not a directory");
    cfg_free(c);
}

static void movers_must_not_command(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("SKIP: needs root to ask about users\n");
        skip();
    }
    struct cfg *c = checked(false, "[daemon]\nsocket-group = daemon\n[mover]\nuser = daemon\n");
    assert_complains(c, CFG_ERROR, "snapferry.ini:4", "is in group daemon, which may use the control socket");
    cfg_free(c);
    c = checked(false, "[mover]\nuser = nobody-of-that-name\n");
    assert_complains(c, CFG_WARNING, "snapferry.ini:2", "unknown user");
    cfg_free(c);
}

static json_t *step(int *rc)
{
    json_t *in = json_pack("{s:s}", "config_dir", cfgdir), *out = NULL;
    struct err e = ERR_INIT;
    int fd = -1;
    *rc = config_check_step(in, &out, &fd, &e);
    json_decref(in);
    return out;
}

static void a_step_answers_for_good_and_bad(void **state)
{
    (void)state;
    int rc;
    cfgdir_write("snapferry.ini", "[daemon]\nslots = 3\nsltos = 3\n[job \"j\"]\nvolumes = /x\non-calendar = never\n");
    json_t *out = step(&rc), *first;
    assert_int_equal(rc, 0);
    assert_int_equal(json_integer_value(json_object_get(out, "errors")), 2);
    first = json_array_get(json_object_get(out, "complaints"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "severity")), "error");
    assert_non_null(strstr(json_string_value(json_object_get(first, "text")), "nearest known is slots"));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(out, "memory"), "slots")), 3);
    json_decref(out);
    cfgdir_write("snapferry.ini", "[daemon]\nslots = 3\n");
    out = step(&rc);
    assert_int_equal(rc, 0);
    assert_int_equal(json_integer_value(json_object_get(out, "errors")), 0);
    assert_int_equal(strlen(json_string_value(json_object_get(out, "hash"))), 64);
    json_decref(out);
    char path[128];
    snprintf(path, sizeof path, "%s/snapferry.ini", cfgdir);
    unlink(path);
    out = step(&rc); /* there is no configuration at all: an answer too */
    assert_int_equal(rc, 0);
    assert_int_equal(json_integer_value(json_object_get(out, "errors")), 1);
    json_decref(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drivers_that_are_not_there),
        cmocka_unit_test(abilities),
        cmocka_unit_test(memory),
        cmocka_unit_test(programs),
        cmocka_unit_test(calendars),
        cmocka_unit_test(repositories),
        cmocka_unit_test(movers_must_not_command),
        cmocka_unit_test(a_step_answers_for_good_and_bad),
    };
    return cmocka_run_group_tests(tests, cfgdir_make, cfgdir_remove);
}
