/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/agent/lockdown-dialer.h"

#include "base/cleanup.h"
#include "daemon/mover/agent/lockdown-parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* ---- files ---- */

/* All rights of the first version of Landlock. */
#define RIGHTS ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1)

bool lockdown_files_limited(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) > 0;
}

static void readable_below(int rules, const char *dir)
{
    CLEANUP_CLOSE int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct landlock_path_beneath_attr below = {.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE, .parent_fd = fd};
    if (fd >= 0 && syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &below, 0) < 0)
        log_debug("the dialer cannot read below %s: %s", dir, strerror(errno));
}

/* The directory of the file that a symbolic link leads to: files there are replaced as the network changes. */
static void readable_beside(int rules, const char *link)
{
    char path[PATH_MAX];
    if (!realpath(link, path))
        return;
    *(strrchr(path, '/') + 1) = '\0';
    if (strcmp(path, "/") != 0)
        readable_below(rules, path);
}

/* What the name service reads: its configuration, its modules, and the caches of sssd. */
static void limit_files(void)
{
    static const char *const dirs[] = {"/etc", "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/var/lib/sss"};
    const struct landlock_ruleset_attr attr = {.handled_access_fs = RIGHTS};
    CLEANUP_CLOSE int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    if (rules < 0)
        return;
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        readable_below(rules, dirs[i]);
    readable_beside(rules, "/etc/resolv.conf");
    readable_beside(rules, "/etc/hosts");
    if (syscall(SYS_landlock_restrict_self, rules, 0) < 0)
        log_debug("the dialer's files are not limited: %s", strerror(errno));
}

/* ---- the filter ---- */

static const int allowed[] = {
    /* descriptors */
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(pread64),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(close),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(stat),
    SCMP_SYS(lstat),
    SCMP_SYS(statx),
    SCMP_SYS(statfs),
    SCMP_SYS(fstatfs),
    SCMP_SYS(lseek),
    SCMP_SYS(access),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(fcntl),
    SCMP_SYS(fadvise64),
    /* memory */
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(madvise),
    SCMP_SYS(mremap),
    SCMP_SYS(brk),
    SCMP_SYS(membarrier),
    /* waiting */
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(select),
    SCMP_SYS(pselect6),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    /* threads, signals, time, who we are */
    SCMP_SYS(futex),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(get_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(gettid),
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(getrandom),
    SCMP_SYS(uname),
    SCMP_SYS(sysinfo),
    /* connections */
    SCMP_SYS(connect),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendmmsg),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(recvfrom),
    SCMP_SYS(shutdown),
    SCMP_SYS(getsockopt),
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
};

static int allow_sockets(scmp_filter_ctx f)
{
    static const int families[] = {AF_INET, AF_INET6}, types[] = {SOCK_STREAM, SOCK_DGRAM};
    int rc = 0;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 2; k++)
            rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2, arg_equals(0, (scmp_datum_t)families[i]),
                                   arg_masked(1, 0xf, (scmp_datum_t)types[k]));
    /* The daemon, and name services that are asked that way. */
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, arg_equals(0, AF_UNIX));
    /* Of the resolver: errors and fragments of UDP. */
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(setsockopt), 1, arg_equals(1, IPPROTO_IP));
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(setsockopt), 1, arg_equals(1, IPPROTO_IPV6));
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, arg_masked(1, 0xffffffffu, FIONREAD));
    return rc;
}

static int allow_reading(scmp_filter_ctx f)
{
    const unsigned writes = O_ACCMODE | O_CREAT | O_TRUNC;
    int rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1, arg_masked(2, writes, O_RDONLY));
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(open), 1, arg_masked(1, writes, O_RDONLY));
    return rc;
}

int lockdown_dialer(struct err *e)
{
    bool bounding;
    int rc = lockdown_privileges(&bounding, e);
    if (rc < 0)
        return rc;
    limit_files();
    scmp_filter_ctx f = filter_new(allowed, sizeof allowed / sizeof *allowed);
    if (!f)
        return err_nomem(e);
    rc = filter_allow_self(f);
    rc |= allow_sockets(f);
    rc |= allow_reading(f);
    return filter_load(f, rc, e);
}
