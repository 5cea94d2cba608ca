/* SPDX-License-Identifier: GPL-2.0-or-later */
/* listener.c - the socket of the metrics, updated with the configuration */
#include "daemon/metrics/listener.h"

#include "base/cleanup.h"
#include "daemon/metrics/http.h"

#include <errno.h>
#include <grp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BACKLOG 128

struct listener {
    struct exchange *exchange;
    char address[160]; /* as configured, "": none */
    int fd;            /* -1: not bound */
    bool unlink;       /* the socket's file was created here */
    char group[64];    /* of that file */
    struct http *http; /* NULL: not served */
    struct err error;
};

/* ---- the socket ---- */

/* A socket's file without a listener belongs to a daemon that no longer runs. */
static int remove_stale(const struct sockaddr_un *a, struct err *e)
{
    struct stat st;
    if (lstat(a->sun_path, &st) < 0)
        return 0;
    if (!S_ISSOCK(st.st_mode))
        return err_plain(e, ERR_EXISTS, EEXIST, "%s is there and is no socket", a->sun_path);
    CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (connect(fd, (const struct sockaddr *)a, sizeof *a) == 0 || errno == EAGAIN))
        return err_set(e, ERR_BUSY, EADDRINUSE, "another process listens on %s", a->sun_path);
    if (unlink(a->sun_path) < 0 && errno != ENOENT)
        return err_set(e, ERR_GENERIC, errno, "cannot remove the old socket %s", a->sun_path);
    return 0;
}

static int set_group(const char *path, const char *group, struct err *e)
{
    char buf[16384];
    struct group g, *found = NULL;
    if (!group[0])
        return 0;
    if (getgrnam_r(group, &g, buf, sizeof buf, &found) != 0 || !found)
        return err_plain(e, ERR_USAGE, ENOENT, "there is no group %s for the socket %s", group, path);
    if (lchown(path, (uid_t)-1, g.gr_gid) < 0 || chmod(path, 0660) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot give %s to group %s", path, group);
    return 0;
}

static int bind_socket(struct listener *l, const char *group, struct err *e)
{
    struct sockaddr_storage a;
    const struct sockaddr_un *un = (const struct sockaddr_un *)&a;
    socklen_t len;
    char why[160];
    int rc = cfg_parse_listen(l->address, &a, &len, why, sizeof why), one = 1;
    if (rc < 0)
        return err_set(e, ERR_USAGE, EINVAL, "%s is no address: %s", l->address, why);
    const bool local = a.ss_family == AF_UNIX;
    if (local && (rc = remove_stale(un, e)) < 0)
        return rc;
    CLEANUP_CLOSE int fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        err_set(e, ERR_GENERIC, errno, "no socket can be made for %s", l->address);
        return err_hint(e, "does the unit's RestrictAddressFamilies= allow it?");
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    mode_t old = umask(0177);
    rc = bind(fd, (struct sockaddr *)&a, len);
    int sys = errno;
    umask(old);
    if (rc < 0) {
        err_set(e, ERR_GENERIC, sys, "metrics cannot be served at %s", l->address);
        return err_hint(e, sys == EADDRINUSE ? "another program has it: set listen in [metrics] to another port"
                                             : "retried; `listen` in [metrics] sets the address");
    }
    l->unlink = local;
    if (local && (rc = set_group(un->sun_path, group, e)) < 0)
        return rc;
    if (listen(fd, BACKLOG) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot listen at %s", l->address);
    l->fd = take_fd(&fd);
    return 0;
}

static void close_socket(struct listener *l)
{
    http_stop(l->http);
    l->http = NULL;
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    if (l->unlink)
        unlink(l->address + strlen("unix:"));
    l->unlink = false;
}

/* ---- in step with the configuration ---- */

static int closed_by_cfg(const struct listener *l, const struct cfg_metrics *c, struct err *e)
{
    err_plain(e, ERR_USAGE, EPERM, "metrics are not served at %s: %s", l->address, c->closed);
    return err_hint(e, "use a reverse proxy, see snapferry-metrics(7), and remove the key from [metrics]");
}

static int serve(struct listener *l, const struct cfg_metrics *c, struct err *e)
{
    int rc = 0;
    if (c->closed[0])
        return closed_by_cfg(l, c, e);
    if (l->unlink && strcmp(l->group, c->unix_group) != 0)
        rc = set_group(l->address + strlen("unix:"), c->unix_group[0] ? c->unix_group : "root", e);
    if (rc == 0 && l->fd < 0)
        rc = bind_socket(l, c->unix_group, e);
    if (rc == 0)
        snprintf(l->group, sizeof l->group, "%s", c->unix_group);
    return rc == 0 && !l->http ? http_start(&l->http, l->exchange, l->fd, e) : rc;
}

bool listener_apply(struct listener *l, const struct cfg_metrics *c)
{
    const char *address = c->listen && c->listen[0] ? c->listen[0] : "";
    struct err e = ERR_INIT;
    if (strcmp(l->address, address) != 0 || c->closed[0]) {
        if (l->http)
            log_info("metrics are no longer served at %s", l->address);
        close_socket(l);
        snprintf(l->address, sizeof l->address, "%s", address);
    }
    const bool served = l->http != NULL;
    const int rc = address[0] ? serve(l, c, &e) : 0;
    if (rc < 0 && l->fd < 0)
        close_socket(l); /* a socket's file without its socket */
    if (rc < 0 && strcmp(l->error.msg, e.msg) != 0)
        log_warning("%s%s%s", e.msg, e.hint[0] ? "; " : "", e.hint);
    if (l->http && (!served || l->error.cls))
        log_info("metrics are served at %s", l->address);
    l->error = e;
    return rc == 0 || c->closed[0];
}

const char *listener_address(const struct listener *l)
{
    return l->address;
}

const struct err *listener_error(const struct listener *l)
{
    return l->error.cls ? &l->error : NULL;
}

int listener_new(struct listener **ret, struct exchange *x, struct err *e)
{
    struct listener *l = calloc(1, sizeof *l);
    if (!l)
        return err_nomem(e);
    l->exchange = x;
    l->fd = -1;
    *ret = l;
    return 0;
}

void listener_free(struct listener *l)
{
    if (!l)
        return;
    close_socket(l);
    free(l);
}
