/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/agent/lockdown.h"

#include "daemon/mover/agent/lockdown-parts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/securebits.h>
#include <sched.h>
#include <seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- capabilities ---- */

static int drop_capabilities(bool *bounding, struct err *e)
{
    /* Without CAP_SETPCAP the set remains, which no_new_privs makes meaningless: no capability can be gained from
     * it. */
    *bounding = true;
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1 && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            *bounding = false;
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    prctl(PR_SET_SECUREBITS,
          SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED |
              SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED,
          0, 0, 0);
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3] = {{0}};
    /* A unit's filter refuses the call for processes without capabilities: only the remaining set counts. */
    int sys = syscall(SYS_capset, &h, d) < 0 ? errno : 0;
    if (syscall(SYS_capget, &h, d) < 0 || d[0].permitted || d[1].permitted || d[0].effective || d[1].effective ||
        d[0].inheritable || d[1].inheritable)
        return err_set(e, ERR_PERMISSION, sys, "capabilities could not be dropped");
    return 0;
}

/* ---- seccomp ---- */

/* Lets through as they are. */
static const int allowed[] = {
    /* descriptors and files */
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(preadv),
    SCMP_SYS(pwritev),
    SCMP_SYS(preadv2),
    SCMP_SYS(pwritev2),
    SCMP_SYS(open),
    SCMP_SYS(openat),
    SCMP_SYS(openat2),
    SCMP_SYS(close),
    SCMP_SYS(close_range),
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
    SCMP_SYS(getcwd),
    SCMP_SYS(getdents64),
    SCMP_SYS(fcntl),
    SCMP_SYS(flock),
    SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),
    SCMP_SYS(sync_file_range),
    SCMP_SYS(fallocate),
    SCMP_SYS(ftruncate),
    SCMP_SYS(fadvise64),
    SCMP_SYS(readahead),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(link),
    SCMP_SYS(linkat),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(mkdir),
    SCMP_SYS(mkdirat),
    SCMP_SYS(rmdir),
    SCMP_SYS(chmod),
    SCMP_SYS(fchmod),
    SCMP_SYS(fchmodat),
    SCMP_SYS(chown),
    SCMP_SYS(fchown),
    SCMP_SYS(lchown),
    SCMP_SYS(fchownat),
    SCMP_SYS(utimensat),
    SCMP_SYS(dup),
    SCMP_SYS(dup3),
    SCMP_SYS(pipe2),
    SCMP_SYS(copy_file_range),
    SCMP_SYS(umask),
    /* memory */
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(madvise),
    SCMP_SYS(mremap),
    SCMP_SYS(msync),
    SCMP_SYS(mincore),
    SCMP_SYS(brk),
    SCMP_SYS(mlock),
    SCMP_SYS(mlock2),
    SCMP_SYS(munlock),
    SCMP_SYS(memfd_create),
    SCMP_SYS(membarrier),
    /* io_uring, waiting */
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(select),
    SCMP_SYS(pselect6),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(eventfd2),
    SCMP_SYS(timerfd_create),
    SCMP_SYS(timerfd_settime),
    /* threads, signals, time, who we are */
    SCMP_SYS(futex),
    SCMP_SYS(futex_waitv),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(get_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(set_tid_address),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(gettid),
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(getgroups),
    SCMP_SYS(capget),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(getcpu),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigtimedwait),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(pause),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(getrandom),
    SCMP_SYS(uname),
    SCMP_SYS(sysinfo),
    SCMP_SYS(getrusage),
    SCMP_SYS(times),
    SCMP_SYS(getrlimit),
    /* sockets that are connected; what makes and connects them, and what may send with an address, below */
    SCMP_SYS(recvmsg),
    SCMP_SYS(recvfrom),
    SCMP_SYS(shutdown),
    SCMP_SYS(getsockopt),
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
};

/* Allowed requests on block devices and files; all others (loop, device-mapper, terminals, raw SCSI) are refused. */
static const unsigned long requests[] = {
    BLKGETSIZE64,     BLKSSZGET, BLKPBSZGET, BLKROGET, BLKDISCARD, BLKZEROOUT,
    BLKDISCARDZEROES, BLKIOMIN,  BLKIOOPT,   FIONREAD, FIONBIO,
};

/* A mover of a directory connects to the daemon again by itself; it has no network (PrivateNetwork). */
static int allow_daemon(scmp_filter_ctx f)
{
    int rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, arg_equals(0, AF_UNIX));
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(connect), 0);
    return rc;
}

/*
 * The sockets of the network are those that the dialer hands over: none can be made, and none can be connected to
 * another place. connect() is refused with EINPROGRESS: some versions of libcurl (7.88) connect a socket once more that
 * they were told is connected, and look then whether it is. Pairs of Unix sockets are for answers of the dialer and for
 * threads of libcurl.
 */
static int allow_network(scmp_filter_ctx f)
{
    static const struct {
        int level, name;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE},
                   {IPPROTO_TCP, TCP_NODELAY},
                   {IPPROTO_TCP, TCP_KEEPIDLE},
                   {IPPROTO_TCP, TCP_KEEPINTVL},
                   {IPPROTO_TCP, TCP_KEEPCNT}};
    int rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1, arg_equals(0, AF_UNIX));
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        rc |=
            seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(setsockopt), 2, arg_equals(1, (scmp_datum_t)options[i].level),
                             arg_equals(2, (scmp_datum_t)options[i].name));
    rc |= seccomp_rule_add(f, SCMP_ACT_ERRNO(EINPROGRESS), SCMP_SYS(connect), 0);
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(wait4), 0); /* for the dialer */
    return rc;
}

static int allow_guarded(scmp_filter_ctx f)
{
    int rc = 0;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, arg_masked(1, 0xffffffffu, requests[i]));
    /* With an address, or with MSG_FASTOPEN, sending connects. */
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(sendto), 2, arg_equals(4, 0), arg_masked(3, MSG_FASTOPEN, 0));
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(sendmsg), 1, arg_masked(2, MSG_FASTOPEN, 0));
    return rc;
}

int filter_allow_self(scmp_filter_ctx f)
{
    static const int prctls[] = {PR_SET_NAME,     PR_GET_NAME,         PR_SET_VMA,
                                 PR_GET_DUMPABLE, PR_GET_NO_NEW_PRIVS, PR_CAPBSET_READ};
    const unsigned thread = CLONE_VM | CLONE_THREAD | CLONE_SIGHAND;
    const scmp_datum_t self = (scmp_datum_t)getpid();
    /* Only threads. clone3 has its flags in memory, where a filter cannot read them: libraries then fall back to
     * clone. */
    int rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1, arg_masked(0, thread, thread));
    rc |= seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    /* Limits may be read, of this process only. */
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 2, arg_equals(0, 0), arg_equals(2, 0));
    for (size_t i = 0; i < sizeof prctls / sizeof *prctls; i++)
        rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1, arg_equals(0, (scmp_datum_t)prctls[i]));
    /* Signals to this process: abort(), crash points. */
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(kill), 1, arg_equals(0, self));
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, arg_equals(0, self));
#ifdef SANITIZED
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(personality), 0);
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(sched_setaffinity), 0);
#endif
    return rc;
}

scmp_filter_ctx filter_new(const int *calls, size_t n)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!f)
        return NULL;
    int rc = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    rc |= seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree: few steps a call */
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, calls[i], 0);
    if (rc == 0)
        return f;
    seccomp_release(f);
    return NULL;
}

int filter_load(scmp_filter_ctx f, int rc, struct err *e)
{
    if (rc == 0)
        rc = seccomp_load(f);
    seccomp_release(f);
    return rc == 0 ? 0 : err_set(e, ERR_PERMISSION, rc < 0 ? -rc : EINVAL, "cannot set the system call filter");
}

static int load_filter(bool network, struct err *e)
{
    scmp_filter_ctx f = filter_new(allowed, sizeof allowed / sizeof *allowed);
    if (!f)
        return err_nomem(e);
    int rc = filter_allow_self(f);
    rc |= allow_guarded(f);
    rc |= network ? allow_network(f) : allow_daemon(f);
    return filter_load(f, rc, e);
}

int lockdown_privileges(bool *bounding, struct err *e)
{
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_set(e, ERR_PERMISSION, errno, "cannot set no_new_privs");
    return drop_capabilities(bounding, e);
}

int lockdown(struct lockdown *ret, uint64_t memlock_wanted, unsigned rings, enum ring_use use, bool network,
             struct err *e)
{
    *ret = (struct lockdown){0};
    struct rlimit lock;
    /* Raised as far as permitted. */
    if (getrlimit(RLIMIT_MEMLOCK, &lock) == 0) {
        if (lock.rlim_cur < memlock_wanted && lock.rlim_max > lock.rlim_cur) {
            lock.rlim_cur = lock.rlim_max < memlock_wanted ? lock.rlim_max : memlock_wanted;
            setrlimit(RLIMIT_MEMLOCK, &lock);
        }
        ret->memlock = lock.rlim_cur == RLIM_INFINITY ? UINT64_MAX : lock.rlim_cur;
    }
    const int made = rings_prepare(rings, use);
    if (made < 0)
        log_debug("no io_uring: %s", strerror(-made));
    int rc = lockdown_privileges(&ret->bounding, e);
    return rc < 0 ? rc : load_filter(network, e);
}
