/* SPDX-License-Identifier: GPL-2.0-or-later */
/* listen.c - the listening socket, of systemd or bound by the daemon */
#include "daemon/control/control-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

/* A path longer than sun_path is bound through /proc/self/fd. */
static int socket_address(struct sockaddr_un *a, const char *dir, const char *path, int *dirfd, struct err *e)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) < sizeof a->sun_path) {
        memcpy(a->sun_path, path, strlen(path) + 1);
        return 0;
    }
    *dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*dirfd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot open the runtime directory %s", dir);
    snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d/control.sock", *dirfd);
    return 0;
}

/* Removes the socket of a dead daemon. */
static int remove_stale(const struct sockaddr_un *a, const char *path, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return 0;
    if (!S_ISSOCK(st.st_mode))
        return err_plain(e, ERR_EXISTS, EEXIST, "%s exists and is not a socket", path);
    CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (connect(fd, (const struct sockaddr *)a, sizeof *a) == 0 || errno == EAGAIN)) {
        err_set(e, ERR_BUSY, EADDRINUSE, "another daemon is listening on %s", path);
        return err_hint(e, "stop it, or use another --runtime-dir");
    }
    if (unlink(path) < 0 && errno != ENOENT)
        return err_set(e, ERR_GENERIC, errno, "cannot remove the old socket %s", path);
    return 0;
}

/* Access is controlled by the credentials of the peer; the mode only avoids connections in vain. */
static int give_to_group(const struct control *c, struct err *e)
{
    if (c->has_group && (lchown(c->path, (uid_t)-1, c->group) < 0 || chmod(c->path, 0660) < 0))
        return err_set(e, ERR_GENERIC, errno, "cannot change the group of %s", c->path);
    return 0;
}

static int own_socket(struct control *c, const char *dir, struct err *e)
{
    struct sockaddr_un a;
    CLEANUP_CLOSE int dirfd = -1;
    int rc = socket_address(&a, dir, c->path, &dirfd, e);
    if (rc < 0)
        return rc;
    rc = remove_stale(&a, c->path, e);
    if (rc < 0)
        return rc;
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create a socket");
    mode_t old = umask(0177);
    rc = bind(c->fd, (struct sockaddr *)&a, sizeof a);
    int sys = errno;
    umask(old);
    if (rc < 0)
        return err_set(e, ERR_GENERIC, sys, "cannot bind the control socket %s", c->path);
    c->bound = true;
    rc = give_to_group(c, e);
    if (rc < 0)
        return rc;
    if (listen(c->fd, 64) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot listen on %s", c->path);
    return 0;
}

/* The socket passed by systemd with the name "control", or -1. */
static int passed_socket(void)
{
    char **names = NULL;
    int fd = -1, n = sd_listen_fds_with_names(0, &names);
    for (int i = 0; i < n; i++) {
        if (fd < 0 && !strcmp(names[i], "control") &&
            sd_is_socket(SD_LISTEN_FDS_START + i, AF_UNIX, SOCK_STREAM, 1) > 0)
            fd = SD_LISTEN_FDS_START + i;
        free(names[i]);
    }
    free(names);
    return fd;
}

static void find_group(struct control *c, const char *group)
{
    if (!group || !*group)
        return;
    char buf[16384];
    struct group g, *found = NULL;
    if (getgrnam_r(group, &g, buf, sizeof buf, &found) == 0 && found) {
        c->has_group = true;
        c->group = g.gr_gid;
    } else {
        log_line(LOG_LVL_INFO, "control socket: no group %s, only root and the user of the daemon may connect", group);
    }
}

/* Children have no part in a lock of fcntl(), so that it ends with the daemon however it ends. No other descriptor of
 * the file may be opened by this process: closing it would end the lock. */
static int announced = -1;

/* One that was killed keeps it until it is gone. */
#define ANNOUNCE_TRIES 20
#define ANNOUNCE_PAUSE_US 50000

int control_announce(const char *runtime_dir, struct err *e)
{
    char path[4096 + 32];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(path, sizeof path, "%s/daemon.lock", runtime_dir);
    announced = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    int rc = announced < 0 || fchmod(announced, 0644) < 0 ? -1 : fcntl(announced, F_SETLK, &whole);
    for (unsigned i = 0; i < ANNOUNCE_TRIES && rc < 0 && (errno == EAGAIN || errno == EACCES) && announced >= 0; i++) {
        usleep(ANNOUNCE_PAUSE_US);
        rc = fcntl(announced, F_SETLK, &whole);
    }
    struct flock held = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (rc < 0 && announced >= 0 && fcntl(announced, F_GETLK, &held) == 0 && held.l_type != F_UNLCK) {
        err_set(e, ERR_BUSY, EBUSY, "the runtime directory %s is used by another daemon, process %ld", runtime_dir,
                (long)held.l_pid);
        return err_hint(e, "stop it, or use another --runtime-dir");
    }
    if (rc < 0)
        log_warning("%s: %s; commands that wait take the daemon for stopped", path, strerror(errno));
    return 0;
}

void control_withdraw(void)
{
    if (announced >= 0)
        close(take_fd(&announced));
}

int control_listen(struct control *c, const char *runtime_dir, const char *group, struct err *e)
{
    struct err why = ERR_INIT;
    find_group(c, group);
    int fd = passed_socket();
    if (fd < 0)
        return own_socket(c, runtime_dir, e);
    c->fd = fd;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot set up the socket passed by systemd");
    /* SocketGroup= of the unit may be another group than the configured one. */
    if (sd_is_socket_unix(fd, SOCK_STREAM, 1, c->path, 0) > 0 && give_to_group(c, &why) < 0)
        log_warning("%s", why.msg);
    return 0;
}

/* ---- a daemon that cannot start ---- */

#define REFUSED_MAX 64

static char *refusal_line(const struct err *why, bool trusted)
{
    CLEANUP_JSON json_t *error = json_pack("{s:s,s:i}", "class", err_class_name(ERR_NO_DAEMON), "code", ERR_NO_DAEMON);
    CLEANUP_JSON json_t *o = json_pack("{s:n,s:b,s:O}", "id", "ok", 0, "error", error);
    char text[sizeof why->msg + 40];
    snprintf(text, sizeof text, "the daemon cannot start%s%s", trusted ? ": " : "", trusted ? why->msg : "");
    jset_str(error, "message", text);
    jset_str(error, "hint", trusted && why->hint[0] ? why->hint : "see systemctl status snapferryd");
    return o ? json_dumps(o, JSON_COMPACT) : NULL;
}

void control_refuse(const struct err *why)
{
    int fd = passed_socket();
    if (fd < 0 || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
        return;
    for (unsigned i = 0; i < REFUSED_MAX; i++) {
        CLEANUP_CLOSE int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (peer < 0)
            return;
        struct ucred who = {.uid = (uid_t)-1};
        socklen_t len = sizeof who;
        getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &len);
        CLEANUP_FREE char *line = refusal_line(why, who.uid == 0 || who.uid == geteuid());
        size_t n = line ? strlen(line) : 0;
        if (!n)
            continue;
        line[n] = '\n'; /* replaces the NUL: sent with its length */
        (void)!send(peer, line, n + 1, MSG_NOSIGNAL);
    }
}
