/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/descriptors.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int memory_create(const char *what, unsigned flags, struct err *e)
{
    char name[64];
    snprintf(name, sizeof name, "snapferry-%.40s", what);
    const int fd = memfd_create(name, MFD_CLOEXEC | flags);
    return fd < 0 ? err_set(e, ERR_GENERIC, errno, "cannot create a memory file for the %s", what) : fd;
}

/* The offset of the file stays at 0: its reader shares it. */
static int memory_put(int fd, const char *what, const void *data, size_t len, size_t at, struct err *e)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(fd, (const char *)data + done, len - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(e, ERR_GENERIC, n < 0 ? errno : ENOSPC, "cannot fill the memory file for the %s", what);
        done += (size_t)n;
    }
    return 0;
}

static int memory_filled(const char *what, const void *data, size_t len, unsigned flags, struct err *e)
{
    CLEANUP_CLOSE int fd = memory_create(what, flags, e);
    const int rc = fd < 0 ? fd : memory_put(fd, what, data, len, 0, e);
    return rc < 0 ? rc : take_fd(&fd);
}

int memory_new(const char *what, struct err *e)
{
    return memory_create(what, MFD_ALLOW_SEALING, e);
}

int memory_append(int fd, const char *what, const void *data, size_t len, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot look at the memory file of the %s", what);
    return memory_put(fd, what, data, len, (size_t)st.st_size, e);
}

int memory_seal(int fd, const char *what, struct err *e)
{
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot seal the memory file of the %s", what);
    return 0;
}

int memory_shared(const char *what, size_t size, struct err *e)
{
    CLEANUP_CLOSE int fd = memory_create(what, MFD_ALLOW_SEALING, e);
    if (fd < 0)
        return fd;
    if (ftruncate(fd, (off_t)size) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot set the size of the memory file for the %s", what);
    return take_fd(&fd);
}

int memory_input(const char *what, const void *data, size_t len, struct err *e)
{
    return memory_filled(what, data, len, 0, e);
}

int memory_sealed(const char *what, const void *data, size_t len, struct err *e)
{
    CLEANUP_CLOSE int fd = memory_filled(what, data, len, MFD_ALLOW_SEALING, e);
    const int rc = fd < 0 ? fd : memory_seal(fd, what, e);
    return rc < 0 ? rc : take_fd(&fd);
}

union control {
    char buf[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
    struct cmsghdr align;
};

ssize_t descriptors_send(int socket, const void *data, size_t len, const int *fds, unsigned n, int flags)
{
    union control control;
    struct iovec iov = {(void *)(uintptr_t)data, len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n > DESCRIPTORS_MAX)
        return -EINVAL;
    if (n) {
        memset(&control, 0, sizeof control);
        m.msg_control = control.buf;
        m.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &m, MSG_NOSIGNAL | flags);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

static void take_descriptors(struct msghdr *m, int *fds, unsigned n)
{
    unsigned next = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (next < n)
                fds[next++] = fd;
            else
                close(fd);
        }
    }
}

ssize_t descriptors_receive(int socket, void *data, size_t cap, int *fds, unsigned n, int *flags)
{
    union control control;
    struct iovec iov = {data, cap};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    for (unsigned i = 0; i < n; i++)
        fds[i] = -1;
    if (n) {
        m.msg_control = control.buf;
        m.msg_controllen = CMSG_SPACE((n < DESCRIPTORS_MAX ? n : DESCRIPTORS_MAX) * sizeof(int));
    }
    ssize_t got;
    do
        got = recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    take_descriptors(&m, fds, n);
    if (flags)
        *flags = m.msg_flags;
    return got;
}
