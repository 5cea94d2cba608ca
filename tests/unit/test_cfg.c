/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/test.h"

#include "cfg/cfg.h"

#include <sys/stat.h>

static char dir[] = "/tmp/snapferry-cfg-XXXXXX";

static const char *write_file(const char *name, const char *text)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static unsigned lines_logged;
static char last_line[512];
static void keep_line(enum log_level lvl, const char *line, void *arg)
{
    (void)lvl;
    (void)arg;
    lines_logged++;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static int load(const char *text, struct cfg **c, struct err *e)
{
    lines_logged = 0;
    return cfg_load(c, write_file("snapferry.ini", text), e);
}

static void sections_and_drop_ins_are_read(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char sub[64];
    snprintf(sub, sizeof sub, "%s/conf.d", dir);
    mkdir(sub, 0755);
    write_file("conf.d/10.ini", "[repository \"main\"]\npath = /srv/b\n");
    struct cfg *c;
    assert_ok(load("[daemon]\nnode-name = nas1\n[repository \"main\"]\ntype = filesystem\npath = /srv/a ; inline\n"
                   "password-file = cred:main\n[volume \"x\"]\nanything = 1\n",
                   &c, &e),
              &e);
    const struct cfg_repository *r = cfg_repository(c, "main");
    assert_non_null(r);
    assert_string_equal(r->path, "/srv/b");
    assert_string_equal(r->password_file, "cred:main");
    assert_null(cfg_repository(c, "other"));
    assert_null(cfg_repository_at(c, 1));
    cfg_free(c);
    write_file("conf.d/10.ini", "");
}

static void every_error_has_file_and_line(void **state)
{
    (void)state;
    struct cfg *c;
    struct err e = ERR_INIT;
    assert_true(load("[repository \"a\"]\npaht = /x\npath = relative\n[repozitory \"b\"]\nx = 1\n", &c, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_non_null(strstr(e.msg, "snapferry.ini:2: unknown key paht"));
    assert_non_null(strstr(e.msg, "nearest known is path"));
    assert_non_null(strstr(e.msg, "2 more"));
    assert_int_equal(lines_logged, 3);
    assert_non_null(strstr(last_line, "snapferry.ini:4: unknown section [repozitory \"b\"]"));
}

static void what_the_parser_would_cut_is_refused(void **state)
{
    (void)state;
    struct cfg *c;
    struct err e = ERR_INIT;
    char text[600];
    snprintf(text, sizeof text, "[repository \"%0*d\"]\npath = /x\n", 60, 1);
    assert_true(load(text, &c, &e) < 0);
    assert_non_null(strstr(e.msg, "longer than 49"));
    snprintf(text, sizeof text, "[repository \"m\"]\npath = /%0*d\n", 300, 1);
    assert_true(load(text, &c, &e) < 0);
    assert_non_null(strstr(e.msg, ":2: line longer"));
    assert_true(load("[repository \"m\"]\ntype = s3\n", &c, &e) < 0);
    assert_true(load("key = before\n", &c, &e) < 0);
    assert_true(load("[repository \"m\"]\npath = /x\nnonsense\n", &c, &e) < 0);
    assert_non_null(strstr(e.msg, ":3:"));
}

static void missing_files(void **state)
{
    (void)state;
    struct cfg *c;
    struct err e = ERR_INIT;
    assert_true(cfg_load(&c, "/nonexistent/x.ini", &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
}

static int setup(void **state)
{
    (void)state;
    log_to(keep_line, NULL);
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_and_drop_ins_are_read),
        cmocka_unit_test(every_error_has_file_and_line),
        cmocka_unit_test(what_the_parser_would_cut_is_refused),
        cmocka_unit_test(missing_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
