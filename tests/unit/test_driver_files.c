/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Files that claim to be ours, places that are not ours, and patterns (RS-12, RS-21). */
#include "tests/unit/test.h"

#include "io/native/filecopy.h"
#include "io/native/fsinfo.h"
#include "io/native/path.h"
#include "io/native/pattern.h"
#include "io/native/reflink.h"
#include "io/native/tag.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

static char dir[64];
static const char *space; /* "trusted" or "user" */

static const char *in_dir(const char *name)
{
    static char path[6][512];
    static unsigned turn;
    char *p = path[turn++ % 6];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static int make(const char *name, mode_t mode)
{
    int fd = open(in_dir(name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_return_code(fchmod(fd, mode), errno);
    return fd;
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/snapferry-driver-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    CLEANUP_CLOSE int fd = make("probe", 0600);
    space = geteuid() == 0 && fsetxattr(fd, "trusted.snapferry.probe", "1", 1, 0) == 0 ? "trusted" : "user";
    unlink(in_dir("probe"));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static void need_tags(void)
{
    struct fs_info fs;
    struct err e = ERR_INIT;
    CLEANUP_CLOSE int fd = make("need", 0600);
    char name[64];
    snprintf(name, sizeof name, "%s.snapferry.probe", space);
    assert_ok(fs_info_path(dir, &fs, &e), &e);
    if (!fs.holds_files || fsetxattr(fd, name, "1", 1, 0) < 0) {
        print_message("SKIP: %s (%s) has no extended attributes\n", dir, fs.type);
        skip();
    }
    unlink(in_dir("need"));
}

static struct file_tag sample(enum tag_kind kind)
{
    struct file_tag t = {.kind = kind,
                         .node = "node1",
                         .size = 5,
                         .mechanism = EXPOSE_COPY,
                         .read_only = true,
                         .klass = "scratch",
                         .copied = 4,
                         .seconds = 0.5,
                         .overwrite = true,
                         .final = "/srv/a.img"};
    alias_new(t.tag.alias);
    alias_new(t.native);
    strcpy(t.tag.volume_id, "reflink.u.1.2");
    strcpy(t.tag.volume_name, "/srv/new\nline.img");
    t.tag.seq = 9;
    return t;
}

static void test_tags(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    need_tags();
    for (int k = TAG_NATIVE; k <= TAG_STAGING; k++) {
        struct file_tag t = sample((enum tag_kind)k), back;
        CLEANUP_CLOSE int fd = make("tagged", 0600);
        assert_int_equal(tag_read(fd, &back), -ENODATA);
        assert_ok(tag_write(fd, "tagged", &t, &e), &e);
        assert_int_equal(tag_read(fd, &back), 0);
        assert_memory_equal(&back.tag, &t.tag, sizeof t.tag);
        assert_int_equal(back.kind, t.kind);
        assert_int_equal(back.size, 5);
        assert_string_equal(back.node, "node1");
        if (k == TAG_INTERMEDIATE) {
            assert_true(back.mechanism == EXPOSE_COPY && back.read_only && back.copied == 4);
            assert_string_equal(back.native, t.native);
        }
        if (k == TAG_STAGING) {
            assert_true(back.overwrite);
            assert_string_equal(back.final, t.final);
        }
        assert_ok(tag_remove(fd, "tagged", &e), &e);
        assert_ok(tag_remove(fd, "tagged", &e), &e);
        assert_int_equal(tag_read(fd, &back), -ENODATA);
        unlink(in_dir("tagged"));
    }
}

/* What an attribute may say without making a file ours. */
static void test_hostile_tags(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct file_tag t = sample(TAG_NATIVE), back;
    char name[64], good[8192], object[VOLUME_ID_MAX];
    need_tags();
    snprintf(name, sizeof name, "%s.snapferry.tag", space);
    CLEANUP_CLOSE int fd = make("hostile", 0600);
    assert_ok(tag_write(fd, "hostile", &t, &e), &e);
    ssize_t n = fgetxattr(fd, name, good, sizeof good - 1);
    assert_true(n > 0);
    good[n] = '\0';
    assert_ok(file_object_id(fd, "hostile", object, &e), &e);
    for (ssize_t cut = 0; cut < n; cut++) { /* truncated anywhere */
        fsetxattr(fd, name, good, (size_t)cut, 0);
        assert_int_equal(tag_read(fd, &back), -ENODATA);
    }
    json_t *j = json_loads(good, 0, NULL), *value, *keys = json_copy(j);
    const char *key;
    json_object_foreach(keys, key, value)
    {
        json_t *wrong[] = {json_array(), json_integer(-7), json_string("x"), json_object(), json_null()};
        for (size_t i = 0; i < 5; i++) {
            json_t *bad = json_deep_copy(j);
            json_object_set_new(bad, key, wrong[i]);
            char *text = json_dumps(bad, JSON_COMPACT);
            fsetxattr(fd, name, text, strlen(text), 0);
            bool text_field = json_is_string(value) && i == 2;
            bool free_text = text_field && strcmp(key, "kind") && strcmp(key, "object") && strcmp(key, "alias");
            bool time = !strcmp(key, "created_ns") && i == 1;
            if (tag_read(fd, &back) != (free_text || time ? 0 : -ENODATA))
                fail_msg("%s = %s is taken for a tag, or not", key, text);
            free(text);
            json_decref(bad);
        }
    }
    json_decref(keys);
    json_decref(j);
    /* A copy of the file with its attributes is another file. */
    CLEANUP_CLOSE int copy = make("copy", 0600);
    fsetxattr(copy, name, good, (size_t)n, 0);
    assert_int_equal(tag_read(copy, &back), -ENODATA);
    /* Attributes that anybody may set are believed on files only that nobody else may change. */
    char user[64] = "user.snapferry.tag";
    fremovexattr(fd, name);
    if (fsetxattr(fd, user, good, (size_t)n, 0) == 0) {
        assert_int_equal(tag_read(fd, &back), 0);
        assert_return_code(fchmod(fd, 0620), errno);
        assert_int_equal(tag_read(fd, &back), -ENODATA);
    }
    unlink(in_dir("hostile"));
    unlink(in_dir("copy"));
}

static int fill_nothing(int fd, const char *path, struct file_tag *t, void *arg, struct err *e)
{
    (void)path;
    (void)t;
    if (*(int *)arg)
        return err_set(e, ERR_NO_SPACE, ENOSPC, "no room");
    return write(fd, "hello", 5) == 5 ? 0 : -EIO;
}

static int count(const struct tagged *f, void *arg)
{
    (void)f;
    ++*(int *)arg;
    return 0;
}

static void test_create(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct file_tag t = sample(TAG_NATIVE);
    struct tagged f = TAGGED_INIT;
    struct dirs d = {0};
    int bad = 1, good = 0, n = 0;
    need_tags();
    CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_CLOSE int hidden = hidden_open(fd, dir, true, &e);
    assert_ok(hidden, &e);
    assert_int_equal(tagged_create(hidden, dir, "x.native", 0400, &t, fill_nothing, &bad, &e), -ENOSPC);
    assert_ok(dirs_add(&d, dir, &e), &e);
    assert_ok(dirs_add(&d, dir, &e), &e); /* once is enough */
    assert_int_equal(d.n, 1);
    assert_ok(tagged_each(&d, "node1", TAG_NATIVE, count, &n, &e), &e);
    assert_int_equal(n, 0);
    assert_ok(tagged_create(hidden, dir, "x.native", 0400, &t, fill_nothing, &good, &e), &e);
    struct file_tag t2 = sample(TAG_NATIVE);
    assert_int_equal(tagged_create(hidden, dir, "x.native", 0400, &t2, fill_nothing, &good, &e), -EEXIST);
    assert_int_equal(e.cls, ERR_EXISTS);
    assert_ok(tagged_find(&d, "node1", TAG_NATIVE, t.tag.alias, "", &f, &e), &e);
    /* Between the look and the removal another file takes the name. */
    assert_return_code(renameat(hidden, "x.native", hidden, "y"), errno);
    CLEANUP_CLOSE int other = openat(hidden, "x.native", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(other >= 0);
    assert_int_equal(tagged_unlink(&f, &e), -EPERM);
    assert_return_code(faccessat(hidden, "x.native", F_OK, 0), errno);
    assert_return_code(unlinkat(hidden, "x.native", 0), errno);
    tagged_close(&f);
    assert_int_equal(tagged_find(&d, "node2", TAG_NATIVE, t.tag.alias, "", &f, &e), -ENOENT);
    assert_int_equal(tagged_find(&d, "node1", TAG_STAGING, t.tag.alias, "", &f, &e), -ENOENT);
    assert_ok(tagged_find(&d, "node1", TAG_NATIVE, t.tag.alias, "/nowhere/x", &f, &e), &e);
    assert_string_equal(f.name, "y");
    assert_ok(tagged_unlink(&f, &e), &e);
    assert_ok(tagged_unlink(&f, &e), &e);
    tagged_close(&f);
    dirs_free(&d);
}

/* A place of that name that is not ours is refused and never followed. */
static void test_hidden(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    assert_return_code(mkdir(in_dir("h"), 0755), errno);
    CLEANUP_CLOSE int fd = open(in_dir("h"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(hidden_open(fd, "h", false, &e), -ENOENT);
    assert_return_code(symlinkat("/tmp", fd, HIDDEN_DIR), errno);
    assert_true(hidden_open(fd, "h", true, &e) < 0);
    assert_return_code(unlinkat(fd, HIDDEN_DIR, 0), errno);
    close(openat(fd, HIDDEN_DIR, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(hidden_open(fd, "h", true, &e), -ENOTDIR);
    assert_return_code(unlinkat(fd, HIDDEN_DIR, 0), errno);
    assert_return_code(mkdirat(fd, HIDDEN_DIR, 0700), errno);
    assert_return_code(fchmodat(fd, HIDDEN_DIR, 0770, 0), errno);
    assert_int_equal(hidden_open(fd, "h", true, &e), -EPERM);
    assert_int_equal(e.cls, ERR_PERMISSION);
    assert_true(e.hint[0]);
    if (geteuid() == 0) {
        assert_return_code(fchmodat(fd, HIDDEN_DIR, 0700, 0), errno);
        assert_return_code(fchownat(fd, HIDDEN_DIR, 12, 34, 0), errno);
        assert_int_equal(hidden_open(fd, "h", true, &e), -EPERM);
        assert_return_code(fchownat(fd, HIDDEN_DIR, 0, 0, 0), errno);
    }
    assert_return_code(fchmodat(fd, HIDDEN_DIR, 0700, 0), errno);
    CLEANUP_CLOSE int ok = hidden_open(fd, "h", true, &e);
    assert_ok(ok, &e);
}

static void test_paths(void **state)
{
    (void)state;
    char d[VOLUME_NAME_MAX], out[VOLUME_NAME_MAX], big[5000];
    const char *name;
    struct err e = ERR_INIT;
    assert_ok(path_split("/a", d, &name, &e), &e);
    assert_string_equal(d, "/");
    assert_string_equal(name, "a");
    assert_ok(path_split("/a/b c/d", d, &name, &e), &e);
    assert_string_equal(d, "/a/b c");
    static const char *const bad[] = {"", "a", "a/b", "/", "/a/", "/a/.", "/a/.."};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(path_split(bad[i], d, &name, &e), -EINVAL);
    memset(big, 'a', sizeof big);
    big[0] = '/';
    big[sizeof big - 1] = '\0';
    assert_int_equal(path_split(big, d, &name, &e), -EINVAL);
    big[4090] = '\0';
    assert_int_equal(path_join(out, big, "123456", &e), -ENAMETOOLONG);
    assert_ok(path_join(out, "/", "x", &e), &e);
    assert_string_equal(out, "/x");
    assert_ok(path_join(out, "/a//", "x", &e), &e);
    assert_string_equal(out, "/a/x");
    static const char *const crooked[] = {"/a/../b", "/a/./b", "/a//b", "/..", "/.", "/a/.."};
    for (size_t i = 0; i < sizeof crooked / sizeof crooked[0]; i++)
        assert_int_equal(path_plain(crooked[i], &e), -EINVAL);
    assert_ok(path_plain("/a/..b/c./...", &e), &e);
}

/* "a.img b.img": names in the test's directory that the patterns match. */
static void expect_matches(const char *want, const char *p1, const char *p2)
{
    char one[512], two[512], got[2048] = "";
    const char *patterns[] = {one, p2 ? two : NULL, NULL};
    struct paths p;
    struct err e = ERR_INIT;
    snprintf(one, sizeof one, "%s/%s", dir, p1);
    snprintf(two, sizeof two, "%s/%s", dir, p2 ? p2 : "");
    assert_ok(pattern_paths(patterns, &p, &e), &e);
    for (size_t i = 0; i < p.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? " " : "", p.path[i] + strlen(dir) + 1);
    paths_free(&p);
    assert_string_equal(got, want);
}

static void test_patterns(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct paths p;
    static const char *const dirs[] = {"p", "p/x", "p/y", ("p/" HIDDEN_DIR), "p/deep", "p/deep/er"};
    static const char *const files[] = {"p/x/b.img",
                                        "p/x/a.img",
                                        "p/y/a.img",
                                        "p/x/a.txt",
                                        "p/c.img",
                                        "p/[odd].img",
                                        ("p/" HIDDEN_DIR "/n"),
                                        "p/deep/er/z.img",
                                        "p/.dot.img",
                                        "p/star*name.img"};
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++)
        assert_return_code(mkdir(in_dir(dirs[i]), 0700), errno);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        close(make(files[i], 0600));
    assert_return_code(symlink("x", in_dir("p/link")), errno);
    expect_matches("p/x/a.img p/x/b.img", "p/x/*.img", NULL);
    expect_matches("p/x/a.img p/x/b.img p/y/a.img", "p/*/*.img", "p/x/a*g"); /* each once; no link is followed */
    expect_matches("p/link/a.img", "p/link/a.img", NULL);                    /* unless it is named */
    expect_matches("p/x/a.img", "p/x/[a].img", "p/none/*");
    expect_matches("p/[odd].img", "p/\\[odd\\].img", NULL);
    expect_matches("p/star*name.img", "p/star\\**", NULL);
    expect_matches("p/.dot.img p/[odd].img p/c.img p/star*name.img", "p/*.img", NULL);
    expect_matches("", "p/*/n", "p/.s*/n"); /* what is ours is never matched */
    expect_matches("", "p/*.img/x", NULL);
    expect_matches("p/deep/er/z.img", "p/*/e?/*", NULL);
    const char *relative[] = {"srv/*.img", NULL};
    assert_int_equal(pattern_paths(relative, &p, &e), -EINVAL);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_ok(pattern_paths(NULL, &p, &e), &e);
    assert_int_equal(p.n, 0);
}

static void test_copy(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    uint64_t copied = 0, need = 0;
    char byte;
    CLEANUP_CLOSE int src = make("src", 0600), dst = make("dst", 0600);
    assert_int_equal(pwrite(src, "abc", 3, 3 << 20), 3);
    assert_return_code(ftruncate(src, (8 << 20) + 5), errno);
    struct filecopy c = {.src = src, .src_path = "src", .size = (8 << 20) + 5};
    assert_ok(filecopy_needs(&c, &need, &e), &e);
    assert_ok(filecopy_run(&c, dst, "dst", &copied, &e), &e);
    assert_true(copied == need && copied >= 3);
    assert_int_equal(lseek(dst, 0, SEEK_END), (8 << 20) + 5);
    assert_int_equal(pread(dst, &byte, 1, (3 << 20) + 1), 1);
    assert_int_equal(byte, 'b');
    c.size += 4096; /* a source that is shorter than it was */
    c.block = true;
    assert_true(filecopy_run(&c, dst, "dst", &copied, &e) < 0);
    assert_int_equal(e.cls, ERR_SOURCE);
    CLEANUP_CLOSE int d = open(dir, O_RDONLY | O_CLOEXEC);
    assert_int_equal(space_check(d, dir, UINT64_MAX - 5, &e), -ENOSPC);
    assert_int_equal(space_check(d, dir, (uint64_t)1 << 62, &e), -ENOSPC);
    assert_int_equal(e.cls, ERR_NO_SPACE);
    CLEANUP_CLOSE int full = open("/dev/full", O_RDWR | O_CLOEXEC);
    c.size = 4 << 20;
    assert_true(filecopy_run(&c, full, "/dev/full", &copied, &e) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tags),   cmocka_unit_test(test_hostile_tags),
                                       cmocka_unit_test(test_create), cmocka_unit_test(test_hidden),
                                       cmocka_unit_test(test_paths),  cmocka_unit_test(test_patterns),
                                       cmocka_unit_test(test_copy)};
    return cmocka_run_group_tests_name("driver files", tests, setup, teardown);
}
