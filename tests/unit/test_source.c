/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/loop.h"

#include "io/source.h"

#include <inttypes.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define MIB ((uint64_t)1 << 20)
#define TIB ((uint64_t)1 << 40)

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/snapferry-source-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return loop_clean(dir);
}

static int make_sparse(const char *path, uint64_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_return_code(ftruncate(fd, (off_t)size), errno);
    return fd;
}

static void opens_files(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 511, 512, 513, 4096, 1000003};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        close(make_sparse(in_dir("file"), sizes[i]));
        CLEANUP(source_freep) struct source *s = NULL;
        assert_ok(source_open(&s, in_dir("file"), &e), &e);
        const struct source_info *n = source_info(s);
        assert_int_equal(n->size, sizes[i]);
        assert_false(n->is_block);
        assert_true(n->sector >= 512 && (n->sector & (n->sector - 1)) == 0);
        assert_true(n->depth >= 1 && n->depth <= 32);
        assert_true(n->mtime_ns > 0);
        assert_string_equal(n->id_kind, "file");
        assert_string_equal(n->id, in_dir("file"));
        assert_string_equal(n->path, in_dir("file"));
    }
}

static void id_of_a_file_is_its_real_path(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    close(make_sparse(in_dir("real"), 10));
    assert_return_code(symlink("real", in_dir("link")), errno);
    CLEANUP(source_freep) struct source *s = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/../%s/./link", dir, strrchr(dir, '/') + 1);
    assert_ok(source_open(&s, path, &e), &e);
    assert_string_equal(source_info(s)->id, in_dir("real"));
}

static void ids_have_no_odd_characters(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"a\nb", "a\\x0ab"},
                                           {"a\\x0ab", "a\\x5cx0ab"},
                                           {"tab\there", "tab\\x09here"},
                                           {"\xc3\xa4 space", "\xc3\xa4 space"},
                                           {"latin\xe4", "latin\\xe4"},
                                           {"\xc2\x85", "\\xc2\\x85"},
                                           {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
                                           {"end\xe2\x82", "end\\xe2\\x82"},
                                           {"\xe2\x82\xac", "\xe2\x82\xac"},
                                           {"del\x7f", "del\\x7f"}};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        close(make_sparse(in_dir(names[i][0]), 10));
        CLEANUP(source_freep) struct source *s = NULL;
        assert_ok(source_open(&s, in_dir(names[i][0]), &e), &e);
        assert_string_equal(source_info(s)->id, in_dir(names[i][1]));
    }
}

static void refuses_what_is_no_source(void **state)
{
    (void)state;
    struct source *s;
    struct err e = ERR_INIT;
    assert_true(source_open(&s, in_dir("nothing"), &e) < 0);
    assert_int_equal(e.cls, ERR_NOT_FOUND);
    assert_true(source_open(&s, dir, &e) < 0);
    assert_int_equal(e.cls, ERR_SOURCE);
    assert_non_null(strstr(e.msg, "a directory"));
    assert_true(source_open(&s, "/dev/null", &e) < 0);
    assert_int_equal(e.cls, ERR_SOURCE);
    assert_return_code(mkfifo(in_dir("fifo"), 0600), errno);
    alarm(10); /* opening a FIFO would block for ever */
    assert_true(source_open(&s, in_dir("fifo"), &e) < 0);
    alarm(0);
    assert_int_equal(e.cls, ERR_SOURCE);
    CLEANUP_FREE char *long_name = malloc(6000);
    assert_non_null(long_name);
    memset(long_name, 'x', 5999);
    long_name[5999] = '\0';
    assert_true(source_open(&s, long_name, &e) < 0);
    assert_int_equal(e.cls, ERR_SOURCE);
}

static void names_missing_permission(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("SKIP: needs root, to become somebody else\n");
        skip();
    }
    close(make_sparse(in_dir("secret"), 10));
    assert_return_code(chmod(dir, 0755), errno);
    pid_t pid = fork();
    if (pid == 0) {
        struct source *s;
        struct err e = ERR_INIT;
        if (setgid(65534) || setuid(65534))
            _exit(2);
        _exit(source_open(&s, in_dir("secret"), &e) < 0 && e.cls == ERR_PERMISSION ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void takes_descriptors(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct source *s = NULL;
    int fd = make_sparse(in_dir("gone"), 4097);
    unlink(in_dir("gone"));
    assert_true(source_from_fd(&s, dup(fd), "a deleted file", NULL, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_non_null(strstr(e.hint, "--as"));
    assert_ok(source_from_fd(&s, fd, "a deleted file", "/some/id", &e), &e);
    assert_string_equal(source_info(s)->id, "/some/id");
    assert_string_equal(source_info(s)->path, "a deleted file");
    assert_int_equal(source_info(s)->size, 4097);
    assert_int_equal(source_fd(s), fd);
    source_free(s);
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* it was handed over */
}

static void knows_extents(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct extent x;
    CLEANUP_CLOSE int fd = make_sparse(in_dir("sparse"), 8 * MIB + 100);
    assert_int_equal(pwrite(fd, "data", 4, (off_t)(2 * MIB)), 4);
    CLEANUP(source_freep) struct source *s = NULL;
    assert_ok(source_open(&s, in_dir("sparse"), &e), &e);
    assert_ok(source_extent(s, 0, &x, &e), &e);
    assert_true(x.hole && x.start == 0 && x.len == 2 * MIB);
    assert_ok(source_extent(s, 1000, &x, &e), &e);
    assert_true(x.hole && x.start == 1000 && x.len == 2 * MIB - 1000);
    assert_ok(source_extent(s, 2 * MIB, &x, &e), &e);
    assert_true(!x.hole && x.len >= 4 && x.len < MIB);
    assert_ok(source_extent(s, 2 * MIB + x.len, &x, &e), &e);
    assert_true(x.hole && x.start + x.len == 8 * MIB + 100);
    assert_ok(source_extent(s, 8 * MIB + 99, &x, &e), &e);
    assert_int_equal(x.len, 1);
    assert_int_equal(source_extent(s, 8 * MIB + 100, &x, &e), -EINVAL);
    /* What is cut off is not a hole. */
    assert_return_code(ftruncate(fd, (off_t)MIB), errno);
    assert_true(source_extent(s, 4 * MIB, &x, &e) < 0);
    assert_int_equal(e.cls, ERR_SOURCE);
    assert_non_null(strstr(e.msg, "became smaller"));
    assert_true(source_extent(s, 1000, &x, &e) < 0);
}

static void notices_change(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    bool grown, changed;
    CLEANUP_CLOSE int fd = make_sparse(in_dir("live"), 10000);
    struct timespec past[2] = {{1000, 0}, {1000, 5}};
    assert_return_code(futimens(fd, past), errno);
    CLEANUP(source_freep) struct source *s = NULL;
    assert_ok(source_open(&s, in_dir("live"), &e), &e);
    assert_int_equal(source_info(s)->mtime_ns, 1000000000005);
    assert_ok(source_recheck(s, &grown, &changed, &e), &e);
    assert_true(!grown && !changed);
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    assert_ok(source_recheck(s, &grown, &changed, &e), &e);
    assert_true(!grown && changed);
    assert_return_code(ftruncate(fd, 10001), errno);
    assert_ok(source_recheck(s, &grown, &changed, &e), &e);
    assert_true(grown && changed);
    assert_return_code(ftruncate(fd, 9999), errno);
    assert_true(source_recheck(s, NULL, NULL, &e) < 0);
    assert_int_equal(e.cls, ERR_SOURCE);
    assert_non_null(strstr(e.msg, "10000"));
    assert_non_null(strstr(e.msg, "9999"));
}

static void devices_have_exact_sizes(void **state)
{
    (void)state;
    need_loop();
    struct err e = ERR_INIT;
    static const struct {
        const char *options;
        uint64_t bytes, size;
        uint32_t sector;
    } t[] = {{"", 8 * MIB, 8 * MIB, 512},
             {"", 8 * MIB + 512, 8 * MIB + 512, 512},
             {"", 8 * MIB + 700, 8 * MIB + 512, 512},
             {"--sector-size 4096", 8 * MIB, 8 * MIB, 4096},
             {"--offset 4096", 8 * MIB, 8 * MIB - 4096, 512}};
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        char dev[64];
        loop_make(dev, sizeof dev, in_dir("disk"), t[i].bytes, t[i].options);
        struct source *s = NULL;
        assert_ok(source_open(&s, dev, &e), &e);
        const struct source_info *n = source_info(s);
        assert_true(n->is_block);
        assert_int_equal(n->size, t[i].size);
        assert_int_equal(n->sector, t[i].sector);
        assert_true(n->physical >= n->sector);
        assert_int_equal(n->mtime_ns, 0);
        assert_false(n->mounted_rw);
        struct extent x;
        assert_ok(source_extent(s, 100, &x, &e), &e);
        assert_true(!x.hole && x.len == t[i].size - 100);
        char want[256];
        snprintf(want, sizeof want, "/loop%s%s", in_dir("disk"), strstr(t[i].options, "offset") ? "@4096" : "");
        assert_string_equal(n->id, want);
        assert_string_equal(n->id_kind, "loop");
        /* An operator may shrink or grow it under us. */
        bool grown;
        assert_return_code(truncate(in_dir("disk"), (off_t)(9 * MIB)), errno);
        assert_true(shell("losetup -c %s", dev));
        assert_ok(source_recheck(s, &grown, NULL, &e), &e);
        assert_true(grown);
        assert_return_code(truncate(in_dir("disk"), (off_t)(4 * MIB)), errno);
        assert_true(shell("losetup -c %s", dev));
        assert_true(source_recheck(s, NULL, NULL, &e) < 0);
        assert_int_equal(e.cls, ERR_SOURCE);
        source_free(s);
        loop_drop(dev);
    }
}

static void file_system_names_the_device(void **state)
{
    (void)state;
    need_loop();
    static const struct {
        const char *tool, *make;
    } t[] = {{"mkfs.ext4", "mkfs.ext4 -q -F -U %s %s"},
             {"mkfs.xfs", "mkfs.xfs -q -f -m uuid=%s %s"},
             {"mkfs.btrfs", "mkfs.btrfs -q -f -U %s %s"},
             {"mkswap", "mkswap -q -U %s %s"}};
    struct err e = ERR_INIT;
    unsigned made = 0;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        char dev[64], cmd[256], uuid[64], want[128];
        if (!shell("command -v %s >/dev/null", t[i].tool)) {
            print_message("not tested: %s is not installed\n", t[i].tool);
            continue;
        }
        snprintf(uuid, sizeof uuid, "6d0f4d63-0c3e-4a60-9c2e-%012x", (unsigned)getpid() * 16 + (unsigned)i);
        unlink(in_dir("fs"));
        loop_make(dev, sizeof dev, in_dir("fs"), 400 * MIB, "");
        /* Two %s each: the formats come from the table above. */
        _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wformat-nonliteral\"")
            snprintf(cmd, sizeof cmd, t[i].make, uuid, dev);
        _Pragma("GCC diagnostic pop") assert_true(shell("%s >/dev/null", cmd));
        struct source *s = NULL;
        assert_ok(source_open(&s, dev, &e), &e);
        snprintf(want, sizeof want, "/fs-uuid/%s", uuid);
        if (strncmp(source_info(s)->id, want, strlen(want)) != 0)
            fail_msg("%s: id %s, expected %s", t[i].tool, source_info(s)->id, want);
        /* Members of a btrfs have one UUID in common and one of their own. */
        assert_int_equal(source_info(s)->id[strlen(want)], strcmp(t[i].tool, "mkfs.btrfs") == 0 ? '/' : '\0');
        assert_string_equal(source_info(s)->id_kind, "fs-uuid");
        source_free(s);
        loop_drop(dev);
        made++;
    }
    assert_true(made > 0);
}

static void mounted_devices_are_noticed(void **state)
{
    (void)state;
    need_loop();
    need_tool("mkfs.ext4");
    char dev[64];
    struct err e = ERR_INIT;
    loop_make(dev, sizeof dev, in_dir("mounted"), 32 * MIB, "");
    assert_true(shell("mkfs.ext4 -q -F %s", dev));
    assert_return_code(mkdir(in_dir("mnt with space"), 0700), errno);
    for (int rw = 0; rw < 2; rw++) {
        assert_true(shell("mount -o %s %s '%s'", rw ? "rw" : "ro", dev, in_dir("mnt with space")));
        struct source *s = NULL;
        int rc = source_open(&s, dev, &e);
        bool is_rw = rc == 0 && source_info(s)->mounted_rw;
        source_free(s);
        assert_true(shell("umount '%s'", in_dir("mnt with space")));
        assert_ok(rc, &e);
        assert_int_equal(is_rw, rw);
    }
    loop_drop(dev);
}

static void partitions_have_names_of_their_own(void **state)
{
    (void)state;
    need_loop();
    need_tool("sfdisk");
    char dev[64], part[80];
    struct err e = ERR_INIT;
    loop_make(dev, sizeof dev, in_dir("parted"), 32 * MIB, "-P");
    assert_true(shell("printf 'label: gpt\\nstart=2048,size=8192,uuid=11111111-2222-3333-4444-555555555555\\n' | "
                      "sfdisk -q --no-reread %s >/dev/null && losetup -c %s && partx -u %s",
                      dev, dev, dev));
    snprintf(part, sizeof part, "%sp1", dev);
    if (access(part, R_OK) != 0) {
        loop_drop(dev);
        print_message("SKIP: no device node %s appears (no devtmpfs)\n", part);
        skip();
    }
    struct source *s = NULL;
    assert_ok(source_open(&s, part, &e), &e);
    assert_int_equal(source_info(s)->size, 8192 * 512);
    assert_string_equal(source_info(s)->id, "/partuuid/11111111-2222-3333-4444-555555555555");
    source_free(s);
    assert_ok(source_open(&s, dev, &e), &e); /* the whole: by its backing file */
    assert_string_equal(source_info(s)->id_kind, "loop");
    source_free(s);
    loop_drop(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_files),
        cmocka_unit_test(id_of_a_file_is_its_real_path),
        cmocka_unit_test(ids_have_no_odd_characters),
        cmocka_unit_test(refuses_what_is_no_source),
        cmocka_unit_test(names_missing_permission),
        cmocka_unit_test(takes_descriptors),
        cmocka_unit_test(knows_extents),
        cmocka_unit_test(notices_change),
        cmocka_unit_test(devices_have_exact_sizes),
        cmocka_unit_test(file_system_names_the_device),
        cmocka_unit_test(mounted_devices_are_noticed),
        cmocka_unit_test(partitions_have_names_of_their_own),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
