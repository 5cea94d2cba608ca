/* SPDX-License-Identifier: GPL-2.0-or-later */
/* self-test.c - tries what a locked-down mover, or its dialer, must not be able to do, from inside */
#include "daemon/mover/agent/lockdown-dialer.h"
#include "daemon/mover/agent/lockdown.h"

#include "base/cleanup.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/bpf.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* An attempt returns what the system call returned, with its errno; NOTHING: there is nothing here to try it on. */
#define NOTHING (-1000)

static long close_made(long fd)
{
    if (fd >= 0)
        close((int)fd);
    return fd;
}

static long try_inet(void)
{
    return close_made(socket(AF_INET, SOCK_STREAM, 0));
}
static long try_inet6(void)
{
    return close_made(socket(AF_INET6, SOCK_DGRAM, 0));
}
static long try_raw(void)
{
    return close_made(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
}
/* Another host would have to connect to it. */
static long try_listen(void)
{
    const struct sockaddr_in any = {.sin_family = AF_INET};
    CLEANUP_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 || bind(fd, (const struct sockaddr *)&any, sizeof any) < 0 ? -1 : listen(fd, 1);
}
/* These have no descriptor: what is not refused is an error of another kind. */
static long try_bind(void)
{
    const struct sockaddr_in any = {.sin_family = AF_INET};
    return bind(-1, (const struct sockaddr *)&any, sizeof any);
}
/* A socket of before, and a port that listens: connect() of a mover with a dialer has an errno that is none of a
 * refusal (lockdown.c), but it does not connect. */
static int before = -1, listener = -1;
static long try_connect(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof a;
    if (getsockname(listener, (struct sockaddr *)&a, &len) < 0)
        return NOTHING;
    const long rc = connect(before, (const struct sockaddr *)&a, sizeof a);
    const int sys = errno;
    const bool connected = getpeername(before, (struct sockaddr *)&a, &len) == 0;
    errno = sys == EINPROGRESS && !connected ? EPERM : sys;
    return rc;
}
static void sockets_prepare(void)
{
    const struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    before = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener >= 0 && (bind(listener, (const struct sockaddr *)&a, sizeof a) < 0 || listen(listener, 1) < 0))
        listener = -1;
}
static long try_send_to(void)
{
    const struct sockaddr_in any = {.sin_family = AF_INET};
    return sendto(-1, "", 1, 0, (const struct sockaddr *)&any, sizeof any);
}
static long try_fast_open(void)
{
    const struct sockaddr_in any = {.sin_family = AF_INET};
    const struct msghdr m = {.msg_name = (void *)(uintptr_t)&any, .msg_namelen = sizeof any};
    return sendmsg(-1, &m, MSG_FASTOPEN);
}
static long try_socket_filter(void)
{
    return setsockopt(-1, SOL_SOCKET, SO_ATTACH_FILTER, NULL, 0);
}
static long try_unix(void)
{
    return close_made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}
static long try_write_file(void)
{
    return close_made(open("/dev/null", O_WRONLY | O_CLOEXEC));
}
static long try_unlink(void)
{
    return unlink("/nonexistent/file");
}
static long try_rename(void)
{
    return rename("/nonexistent/a", "/nonexistent/b");
}
static long try_list(void)
{
    return syscall(SYS_getdents64, -1, NULL, 0);
}
static bool files_limited; /* by the kernel, for the dialer */
static bool is_dialer;
static long try_other_file(void)
{
    return is_dialer && !files_limited ? NOTHING : close_made(open("/proc/self/status", O_RDONLY | O_CLOEXEC));
}
static long try_ring_enter(void)
{
    return syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0);
}
static long try_netlink(void)
{
    return close_made(socket(AF_NETLINK, SOCK_RAW, 0));
}
static long try_packet(void)
{
    return close_made(socket(AF_PACKET, SOCK_RAW, 0));
}
static long try_exec(void)
{
    char *const argv[] = {(char *)(uintptr_t) "true", NULL}, *const env[] = {NULL};
    return execve("/bin/true", argv, env);
}
static long try_exec_fd(void)
{
    char *const argv[] = {(char *)(uintptr_t) "true", NULL}, *const env[] = {NULL};
    CLEANUP_CLOSE int fd = open("/bin/true", O_RDONLY | O_CLOEXEC);
    return syscall(SYS_execveat, fd, "", argv, env, AT_EMPTY_PATH);
}
static long child_or(long pid)
{
    if (pid == 0)
        _exit(0);
    return pid;
}
static long try_fork(void)
{
    return child_or(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}
static long try_vfork(void)
{
    return syscall(SYS_fork) == 0 ? child_or(0) : -1;
}
static long try_ptrace(void)
{
    return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}
static long try_peek(void)
{
    char byte;
    struct iovec to = {&byte, 1}, from = {&byte, 1};
    return syscall(SYS_process_vm_readv, getppid(), &to, 1, &from, 1, 0);
}
static long try_mount(void)
{
    return mount("none", "/mnt", "tmpfs", 0, NULL);
}
static long try_umount(void)
{
    return umount2("/proc", MNT_DETACH);
}
static long try_unshare(void)
{
    return unshare(CLONE_NEWUSER);
}
static long try_setns(void)
{
    CLEANUP_CLOSE int fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    return setns(fd, 0);
}
static long try_chroot(void)
{
    return chroot("/");
}
static long try_bpf(void)
{
    union bpf_attr a = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    return close_made(syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof a));
}
static long try_perf(void)
{
    return close_made(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
}
static long try_setuid(void)
{
    return syscall(SYS_setresuid, 0, 0, 0);
}
static long try_setgid(void)
{
    return syscall(SYS_setresgid, 0, 0, 0);
}
static long try_setgroups(void)
{
    return setgroups(0, NULL);
}
static long try_capset(void)
{
    return syscall(SYS_capset, NULL, NULL);
}
static long try_module(void)
{
    return syscall(SYS_init_module, "", 0UL, "");
}
static long try_kexec(void)
{
    return syscall(SYS_kexec_load, 0, 0, NULL, 0);
}
static long try_reboot(void)
{
    return syscall(SYS_reboot, 0, 0, 0, NULL);
}
static long try_keyctl(void)
{
    return syscall(SYS_keyctl, 0, -3, 1);
}
static long try_settime(void)
{
    struct timespec t = {0};
    return syscall(SYS_clock_settime, CLOCK_REALTIME, &t);
}
static long try_mknod(void)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/snapferry-mover-self-test.%d", (int)getpid());
    long rc = mknod(path, S_IFBLK | 0600, makedev(7, 0));
    if (rc == 0)
        unlink(path);
    return rc;
}
static long try_kill(void)
{
    return kill(getppid(), 0);
}
static long try_userfault(void)
{
    return close_made(syscall(SYS_userfaultfd, 0));
}
static long try_raise_limit(void)
{
    const struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    return setrlimit(RLIMIT_CORE, &more);
}
static long try_dumpable(void)
{
    return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}
static long try_sethostname(void)
{
    return sethostname("x", 1);
}
static long try_terminal(void)
{
    return ioctl(0, TIOCSTI, "x");
}

/* Any block device that there is. */
static long try_device(void)
{
    CLEANUP_CLOSEDIR DIR *d = opendir("/sys/class/block");
    const struct dirent *entry;
    long rc = NOTHING;
    while (d && (entry = readdir(d))) {
        char path[300];
        struct stat st;
        snprintf(path, sizeof path, "/dev/%s", entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &st) < 0 || !S_ISBLK(st.st_mode))
            continue;
        rc = close_made(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        if (rc >= 0 || (errno != EACCES && errno != EPERM))
            break;
    }
    return rc;
}
static long try_memory(void)
{
    return access("/dev/mem", F_OK) < 0 ? NOTHING : close_made(open("/dev/mem", O_RDONLY | O_CLOEXEC));
}

static long try_ring(void)
{
    struct io_uring ring;
    int rc = io_uring_queue_init(4, &ring, 0);
    errno = rc < 0 ? -rc : 0;
    return rc;
}

/* The one ring that there is. */
static struct io_uring *prepared(void)
{
    static struct io_uring ring;
    static int rc = 1;
    if (rc > 0)
        rc = ring_take(&ring, 4, RING_READ, 0);
    return rc < 0 ? NULL : &ring;
}

/* Its requests: the result of the one at the head of the queue. */
static long ring_result(struct io_uring *ring)
{
    struct io_uring_cqe *cqe;
    int rc = io_uring_submit_and_wait(ring, 1);
    if (rc >= 0)
        rc = io_uring_wait_cqe(ring, &cqe);
    if (rc >= 0) {
        rc = cqe->res;
        io_uring_cqe_seen(ring, cqe);
    }
    errno = rc < 0 ? -rc : 0;
    return rc;
}
static long try_ring_open(void)
{
    struct io_uring *ring = prepared();
    struct io_uring_sqe *q = ring ? io_uring_get_sqe(ring) : NULL;
    if (!q)
        return NOTHING;
    io_uring_prep_openat(q, AT_FDCWD, "/etc/passwd", O_RDONLY, 0);
    return ring_result(ring);
}
static long try_ring_socket(void)
{
    struct io_uring *ring = prepared();
    struct io_uring_sqe *q = ring ? io_uring_get_sqe(ring) : NULL;
    if (!q)
        return NOTHING;
    io_uring_prep_socket(q, AF_INET, SOCK_STREAM, 0, 0);
    return ring_result(ring);
}
static long try_ring_write(void)
{
    struct io_uring *ring = prepared();
    struct io_uring_sqe *q = ring ? io_uring_get_sqe(ring) : NULL;
    if (!q)
        return NOTHING;
    io_uring_prep_write(q, 1, "", 0, 0);
    return ring_result(ring);
}
static long ring_register(unsigned what, void *arg, unsigned n)
{
    struct io_uring *ring = prepared();
    return ring ? syscall(SYS_io_uring_register, ring->ring_fd, what, arg, n) : NOTHING;
}
static long try_ring_restrictions(void)
{
    struct io_uring_restriction r = {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_OPENAT};
    return ring_register(IORING_REGISTER_RESTRICTIONS, &r, 1);
}
static long try_ring_files(void)
{
    int fd = 0;
    return ring_register(IORING_REGISTER_FILES, &fd, 1);
}
static long try_ring_buffers(void)
{
    static char page[4096];
    struct iovec v = {page, sizeof page};
    return ring_register(IORING_REGISTER_BUFFERS, &v, 1);
}
static long try_ring_enable(void)
{
    return ring_register(IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}

#define LOCAL (1u << LOCKDOWN_LOCAL)
#define NETWORK (1u << LOCKDOWN_NETWORK)
#define DIALER (1u << LOCKDOWN_DIALER)

static const struct attempt {
    const char *name;
    long (*go)(void);
    unsigned allowed; /* to whom it must be possible: LOCAL, NETWORK, DIALER */
    unsigned without; /* by whom it is not tried */
} attempts[] = {
    {"open a block device", try_device, 0, 0},
    {"open /dev/mem", try_memory, 0, 0},
    {"socket(AF_INET)", try_inet, DIALER, 0},
    {"socket(AF_INET6)", try_inet6, DIALER, 0},
    {"socket(AF_INET, SOCK_RAW)", try_raw, 0, 0},
    {"listening on a port", try_listen, 0, 0},
    {"bind", try_bind, 0, 0},
    {"connect", try_connect, LOCAL | DIALER, 0},
    {"sending to an address", try_send_to, DIALER, 0},
    {"connecting by MSG_FASTOPEN", try_fast_open, DIALER, 0},
    {"a filter for a socket", try_socket_filter, 0, 0},
    {"socket(AF_UNIX)", try_unix, LOCAL | DIALER, 0},
    {"socket(AF_NETLINK)", try_netlink, 0, 0},
    {"socket(AF_PACKET)", try_packet, 0, 0},
    {"execve", try_exec, 0, 0},
    {"execveat", try_exec_fd, 0, 0},
    {"clone without CLONE_THREAD", try_fork, 0, 0},
    {"fork", try_vfork, 0, 0},
    {"ptrace", try_ptrace, 0, 0},
    {"process_vm_readv", try_peek, 0, 0},
    {"mount", try_mount, 0, 0},
    {"umount2", try_umount, 0, 0},
    {"unshare(CLONE_NEWUSER)", try_unshare, 0, 0},
    {"setns", try_setns, 0, 0},
    {"chroot", try_chroot, 0, 0},
    {"bpf", try_bpf, 0, 0},
    {"perf_event_open", try_perf, 0, 0},
    {"setresuid(0)", try_setuid, 0, 0},
    {"setresgid(0)", try_setgid, 0, 0},
    {"setgroups", try_setgroups, 0, 0},
    {"capset", try_capset, 0, 0},
    {"init_module", try_module, 0, 0},
    {"kexec_load", try_kexec, 0, 0},
    {"reboot", try_reboot, 0, 0},
    {"keyctl", try_keyctl, 0, 0},
    {"clock_settime", try_settime, 0, 0},
    {"mknod of a block device", try_mknod, 0, 0},
    {"kill of the parent", try_kill, 0, 0},
    {"userfaultfd", try_userfault, 0, 0},
    {"setrlimit", try_raise_limit, 0, 0},
    {"prctl(PR_SET_DUMPABLE)", try_dumpable, 0, 0},
    {"sethostname", try_sethostname, 0, 0},
    {"ioctl(TIOCSTI)", try_terminal, 0, 0},
    {"io_uring_setup", try_ring, 0, 0},
    {"open by io_uring", try_ring_open, 0, DIALER},
    {"socket by io_uring", try_ring_socket, 0, DIALER},
    {"write by a ring for reads", try_ring_write, 0, DIALER},
    {"other restrictions of a ring", try_ring_restrictions, 0, DIALER},
    {"files registered with a ring", try_ring_files, 0, DIALER},
    {"buffers registered with a ring", try_ring_buffers, 0, DIALER},
    {"enabling a ring", try_ring_enable, 0, DIALER},
    {"opening a file for writing", try_write_file, LOCAL | NETWORK, 0},
    {"unlink", try_unlink, LOCAL | NETWORK, 0},
    {"rename", try_rename, LOCAL | NETWORK, 0},
    {"listing a directory", try_list, LOCAL | NETWORK, 0},
    {"reading a file that is not of the name service", try_other_file, LOCAL | NETWORK, 0},
    {"io_uring_enter", try_ring_enter, LOCAL | NETWORK, 0},
};

static int become(const char *user, struct err *e)
{
    const struct passwd *pw = getpwnam(user);
    if (!pw)
        return err_set(e, ERR_USAGE, 0, "there is no user %.60s", user);
    if (setgroups(0, NULL) < 0 || setresgid(pw->pw_gid, pw->pw_gid, pw->pw_gid) < 0 ||
        setresuid(pw->pw_uid, pw->pw_uid, pw->pw_uid) < 0)
        return err_set(e, ERR_PERMISSION, errno, "cannot become user %.60s", user);
    return 0;
}

static void *nothing(void *arg)
{
    return arg;
}

/* What the work needs must still be possible. */
static int still_works(unsigned *n, enum lockdown_of what)
{
    pthread_t t;
    int bad = 0;
    bool ok = pthread_create(&t, NULL, nothing, NULL) == 0 && pthread_join(t, NULL) == 0;
    bad += !ok;
    printf("%s %u - allowed: a thread\n", ok ? "ok" : "not ok", ++*n);
    if (what == LOCKDOWN_DIALER) {
        struct addrinfo *found = NULL;
        ok = getaddrinfo("localhost", NULL, NULL, &found) == 0;
        if (ok)
            freeaddrinfo(found);
        bad += !ok;
        printf("%s %u - allowed: a name of /etc/hosts\n", ok ? "ok" : "not ok", ++*n);
        return bad;
    }
    struct io_uring *ring = prepared();
    struct io_uring_sqe *q = ring ? io_uring_get_sqe(ring) : NULL;
    if (q) {
        char byte;
        CLEANUP_CLOSE int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        io_uring_prep_read(q, zero, &byte, 1, 0);
        ok = ring_result(ring) == 1;
        bad += !ok;
        printf("%s %u - allowed: read by io_uring\n", ok ? "ok" : "not ok", ++*n);
    }
    if (what == LOCKDOWN_NETWORK) {
        int pair[2];
        ok = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0;
        bad += !ok;
        printf("%s %u - allowed: a pair of sockets\n", ok ? "ok" : "not ok", ++*n);
    }
    return bad;
}

static bool no_capabilities(FILE *f)
{
    char line[256];
    unsigned seen = 0;
    bool clear = f != NULL;
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "CapInh:", 7) && strncmp(line, "CapPrm:", 7) && strncmp(line, "CapEff:", 7) &&
            strncmp(line, "CapAmb:", 7))
            continue;
        seen++;
        if (strspn(line + 7, " \t0\n") != strlen(line + 7))
            clear = false;
    }
    return clear && seen == 4;
}

/* One line; 1: it is not as it must be. */
static int attempt_try(const struct attempt *a, enum lockdown_of what, unsigned n)
{
    errno = 0;
    const long got = a->go();
    const int sys = errno;
    const bool refused = got < 0 && (sys == EPERM || sys == EACCES), allowed = a->allowed & 1u << what;
    if (got == NOTHING) {
        printf("ok %u - refused: %s # SKIP there is none here\n", n, a->name);
        return 0;
    }
    if (allowed)
        printf("%s %u - allowed: %s\n", refused ? "not ok" : "ok", n, a->name);
    else
        printf("%s %u - refused: %s (%s)\n", refused ? "ok" : "not ok", n, a->name,
               got < 0 ? strerrorname_np(sys) : "done");
    return refused == allowed;
}

int lockdown_self_test(const char *user, enum lockdown_of what, struct err *e)
{
    struct lockdown l;
    CLEANUP_FCLOSE FILE *status = NULL;
    int rc = user ? become(user, e) : 0;
    if (rc < 0)
        return rc;
    status = fopen("/proc/self/status", "re");
    sockets_prepare();
    files_limited = lockdown_files_limited();
    is_dialer = what == LOCKDOWN_DIALER;
    rc = is_dialer ? lockdown_dialer(e) : lockdown(&l, 0, 1, RING_READ, what == LOCKDOWN_NETWORK, e);
    if (rc < 0)
        return rc;
    unsigned n = 0;
    int bad = 0;
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++)
        if (!(attempts[i].without & 1u << what))
            bad += attempt_try(&attempts[i], what, ++n);
    bool clear = no_capabilities(status);
    bad += !clear;
    printf("%s %u - no capability in any set of the process\n", clear ? "ok" : "not ok", ++n);
    bad += still_works(&n, what);
    printf("1..%u\n", n);
    fflush(stdout);
    return bad;
}
