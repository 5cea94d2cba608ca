/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/test.h"

#include "repo/beneath.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/snapferry-beneath-XXXXXX");
    assert_non_null(mkdtemp(dir));
    assert_return_code(mkdir(in_dir("root"), 0700), errno);
    assert_return_code(mkdir(in_dir("root/a"), 0700), errno);
    assert_return_code(mkdir(in_dir("root/a/b"), 0700), errno);
    assert_return_code(mkdir(in_dir("outside"), 0700), errno);
    close(open(in_dir("root/a/b/file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    close(open(in_dir("outside/file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    assert_return_code(symlink("../outside", in_dir("root/away")), errno);
    assert_return_code(symlink("a/b", in_dir("root/inside")), errno);
    assert_return_code(symlink("file", in_dir("root/a/b/link")), errno);
    assert_return_code(symlink("../outside/new", in_dir("root/dangling")), errno);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

/* openat2() fails as on a kernel that does not have it. */
static bool forbid_openat2(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0;
}

static int result(int root, const char *path, int flags)
{
    int fd = beneath_open(root, path, flags, 0600);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? fd : 0;
}

static bool refused(int rc)
{
    return rc == -ELOOP || rc == -EXDEV;
}

/* 0, or the line of what failed. */
static int checks(void)
{
#define MUST(x)                                                                                                        \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            return __LINE__ % 250 + 1;                                                                                 \
    } while (0)
    int root = open(in_dir("root"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *name;
    MUST(root >= 0);
    MUST(result(root, "a/b/file", O_RDONLY) == 0);
    MUST(result(root, "a//b/./file", O_RDONLY) == 0);
    MUST(result(root, "a/b", O_PATH | O_DIRECTORY) == 0);
    MUST(result(root, "a/b/none", O_RDONLY) == -ENOENT);
    MUST(result(root, "a/none/file", O_RDONLY) == -ENOENT);
    MUST(result(root, "a/b/file/x", O_RDONLY) == -ENOTDIR);
    /* Links: out, inside, the last one, also as O_PATH, also for what is created. */
    MUST(refused(result(root, "away/file", O_RDONLY)));
    MUST(refused(result(root, "inside/file", O_RDONLY)));
    MUST(refused(result(root, "a/b/link", O_RDONLY)));
    MUST(refused(result(root, "a/b/link", O_PATH)));
    MUST(refused(result(root, "away/new", O_WRONLY | O_CREAT | O_EXCL)));
    MUST(result(root, "dangling", O_WRONLY | O_CREAT) < 0);
    MUST(refused(result(root, "../outside/file", O_RDONLY)));
    MUST(refused(result(root, "a/../../outside/file", O_RDONLY)));
    MUST(refused(result(root, "/etc/passwd", O_RDONLY)));
    MUST(access(in_dir("outside/new"), F_OK) < 0);
    MUST(beneath_unlink(root, "away/file") < 0 && access(in_dir("outside/file"), F_OK) == 0);
    MUST(beneath_parent(root, "away/file", &name) < 0);
    /* And what is meant to work. */
    MUST(result(root, "a/b/tmp", O_WRONLY | O_CREAT | O_EXCL) == 0);
    MUST(result(root, "a/b/tmp", O_WRONLY | O_CREAT | O_EXCL) == -EEXIST);
    MUST(beneath_rename(root, "a/b/tmp", "a/b/final") == 0 && access(in_dir("root/a/b/final"), F_OK) == 0);
    MUST(beneath_unlink(root, "a/b/final") == 0 && access(in_dir("root/a/b/final"), F_OK) < 0);
    MUST(beneath_unlink(root, "a/b/final") == -ENOENT);
    int parent = beneath_parent(root, "top", &name);
    MUST(parent >= 0 && strcmp(name, "top") == 0);
    close(parent);
    close(root);
    return 0;
}

static void follows_no_links(void **state)
{
    (void)state;
    assert_int_equal(checks(), 0);
}

static void nor_without_openat2(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        if (!forbid_openat2() || syscall(SYS_openat2, -1, "", NULL, (size_t)0) != -1 || errno != ENOSYS)
            _exit(255);
        _exit(checks());
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_no_links),
        cmocka_unit_test(nor_without_openat2),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
