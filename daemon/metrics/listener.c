/* SPDX-License-Identifier: GPL-2.0-or-later */
/* listener.c - the sockets that metrics are served at, kept in step with the configuration */
#include "daemon/metrics/listener.h"

#include "base/cleanup.h"
#include "daemon/metrics/http.h"
#include "daemon/metrics/users.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#define LISTENERS_MAX 16
#define BACKLOG 128
#define SOCKET_NAME "metrics"

struct listener {
    char address[160];
    bool passed, local; /* by systemd; AF_UNIX */
    int fd;             /* -1: not bound */
    bool unlink;        /* the socket's file is ours */
    struct http *http;
    bool wanted;
    char *secrets; /* certificate, key and users that are in use, one after the other */
    bool tls, users;
    char group[64];
    struct err error;
};

struct listeners {
    struct exchange *exchange;
    struct listener at[LISTENERS_MAX];
    unsigned n, n_passed; /* the first ones are the passed */
};

/* ---- sockets ---- */

static void passed_address(int fd, char *out, size_t cap)
{
    union {
        struct sockaddr_storage s;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un un;
    } a = {.s = {.ss_family = AF_UNSPEC}};
    socklen_t len = sizeof a;
    char host[64] = "";
    getsockname(fd, (struct sockaddr *)&a, &len);
    if (a.s.ss_family == AF_INET)
        snprintf(out, cap, "%s:%u", inet_ntop(AF_INET, &a.v4.sin_addr, host, sizeof host), ntohs(a.v4.sin_port));
    else if (a.s.ss_family == AF_INET6)
        snprintf(out, cap, "[%s]:%u", inet_ntop(AF_INET6, &a.v6.sin6_addr, host, sizeof host), ntohs(a.v6.sin6_port));
    else
        snprintf(out, cap, "unix:%.*s", (int)sizeof a.un.sun_path, a.un.sun_path);
}

static void find_passed(struct listeners *l)
{
    char **names = NULL;
    int n = sd_listen_fds_with_names(0, &names);
    for (int i = 0; i < n; i++) {
        int fd = SD_LISTEN_FDS_START + i;
        if (!strcmp(names[i], SOCKET_NAME) && l->n < LISTENERS_MAX && sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) > 0) {
            struct listener *p = &l->at[l->n++];
            *p = (struct listener){.passed = true, .fd = fd, .local = sd_is_socket(fd, AF_UNIX, 0, -1) > 0};
            passed_address(fd, p->address, sizeof p->address);
            fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        }
        free(names[i]);
    }
    free(names);
    l->n_passed = l->n;
}

/* A socket's file that nobody listens on is a dead daemon's. */
static int remove_stale(const struct sockaddr_un *a, struct err *e)
{
    struct stat st;
    if (lstat(a->sun_path, &st) < 0)
        return 0;
    if (!S_ISSOCK(st.st_mode))
        return err_plain(e, ERR_EXISTS, EEXIST, "%s is there and is no socket", a->sun_path);
    CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (connect(fd, (const struct sockaddr *)a, sizeof *a) == 0 || errno == EAGAIN))
        return err_set(e, ERR_BUSY, EADDRINUSE, "somebody else listens on %s", a->sun_path);
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
    l->local = a.ss_family == AF_UNIX;
    if (l->local && (rc = remove_stale(un, e)) < 0)
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
                                             : "it is tried again; `listen` in [metrics] says where");
    }
    l->unlink = l->local;
    if (l->local && (rc = set_group(un->sun_path, group, e)) < 0)
        return rc;
    if (listen(fd, BACKLOG) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot listen at %s", l->address);
    l->fd = take_fd(&fd);
    return 0;
}

static void close_listener(struct listener *l)
{
    http_stop(l->http);
    l->http = NULL;
    if (l->fd >= 0 && !l->passed) {
        close(l->fd);
        l->fd = -1;
    }
    if (l->unlink)
        unlink(l->address + strlen("unix:"));
    l->unlink = false;
    small_file_free(l->secrets);
    l->secrets = NULL;
}

/* ---- what is served behind them ---- */

struct secrets {
    char *certificate, *key, *users;
};

static void secrets_clear(struct secrets *s)
{
    small_file_free(s->certificate);
    small_file_free(s->key);
    small_file_free(s->users);
}

/* Those that the address needs: a local socket is guarded by its file's mode. */
static int read_secrets(struct secrets *s, const struct cfg_metrics *c, bool local, struct err *e)
{
    int rc = 0;
    if (!local && c->tls_key[0])
        rc = small_file(&s->certificate, "the certificate", c->tls_certificate, e);
    if (rc == 0 && s->certificate)
        rc = small_file(&s->key, "the key", c->tls_key, e);
    if (rc == 0 && !local && c->users_file[0])
        rc = small_file(&s->users, "the users file", c->users_file, e);
    return rc;
}

static char *join(const struct secrets *s)
{
    char *text = NULL;
    const char *cert = s->certificate ? s->certificate : "", *key = s->key ? s->key : "";
    return asprintf(&text, "%s\n--\n%s\n--\n%s", cert, key, s->users ? s->users : "") < 0 ? NULL : text;
}

/* The new thread listens before the old one ends: nobody is turned away. */
static int serve(struct listeners *ls, struct listener *l, const struct cfg_metrics *c, struct err *e)
{
    CLEANUP(secrets_clear) struct secrets s = {NULL, NULL, NULL};
    struct http *fresh = NULL;
    int rc = read_secrets(&s, c, l->local, e);
    if (rc < 0)
        return rc;
    char *all = join(&s);
    if (!all)
        return err_nomem(e);
    if (l->http && l->secrets && !strcmp(l->secrets, all)) {
        small_file_free(all);
        return 0;
    }
    struct http_options o = {ls->exchange, l->fd, s.certificate, s.key, s.users};
    rc = http_start(&fresh, &o, e);
    if (rc < 0) {
        small_file_free(all);
        return rc;
    }
    http_stop(l->http);
    small_file_free(l->secrets);
    l->http = fresh;
    l->secrets = all;
    l->tls = s.certificate != NULL;
    l->users = s.users != NULL;
    return 0;
}

static bool apply_one(struct listeners *ls, struct listener *l, const struct cfg_metrics *c)
{
    struct err e = ERR_INIT;
    int rc = 0;
    if (l->unlink && strcmp(l->group, c->unix_group) != 0)
        rc = set_group(l->address + strlen("unix:"), c->unix_group[0] ? c->unix_group : "root", &e);
    if (rc == 0)
        snprintf(l->group, sizeof l->group, "%s", c->unix_group);
    if (rc == 0 && l->fd < 0)
        rc = bind_socket(l, c->unix_group, &e);
    bool served = l->http != NULL;
    if (rc == 0)
        rc = serve(ls, l, c, &e);
    else if (l->fd < 0)
        close_listener(l); /* a socket's file without its socket */
    if (rc < 0 && strcmp(l->error.msg, e.msg) != 0)
        log_warning("%s%s%s", e.msg, e.hint[0] ? "; " : "", e.hint);
    if (rc == 0 && (!served || l->error.cls))
        log_info("metrics are served at %s%s%s", l->address, l->tls ? " with TLS" : "",
                 l->users ? " to those with a password" : "");
    l->error = e;
    return rc == 0;
}

static struct listener *find(struct listeners *ls, const char *address)
{
    for (unsigned i = ls->n_passed; i < ls->n; i++)
        if (!strcmp(ls->at[i].address, address))
            return &ls->at[i];
    if (ls->n == LISTENERS_MAX) {
        log_warning("[metrics]: more than %d addresses; %s is not served", LISTENERS_MAX, address);
        return NULL;
    }
    struct listener *l = &ls->at[ls->n++];
    *l = (struct listener){.fd = -1};
    snprintf(l->address, sizeof l->address, "%s", address);
    return l;
}

static void drop_unwanted(struct listeners *ls)
{
    unsigned kept = ls->n_passed;
    for (unsigned i = ls->n_passed; i < ls->n; i++) {
        if (ls->at[i].wanted) {
            ls->at[kept++] = ls->at[i];
            continue;
        }
        log_info("metrics are no longer served at %s", ls->at[i].address);
        close_listener(&ls->at[i]);
    }
    ls->n = kept;
}

unsigned listeners_apply(struct listeners *ls, const struct cfg_metrics *c)
{
    unsigned errors = 0;
    for (unsigned i = ls->n_passed; i < ls->n; i++) {
        ls->at[i].wanted = false;
        for (const char *const *w = c->listen; w && *w; w++)
            ls->at[i].wanted |= !strcmp(*w, ls->at[i].address);
    }
    drop_unwanted(ls);
    for (const char *const *w = c->listen; w && *w && !ls->n_passed; w++)
        find(ls, *w);
    for (unsigned i = 0; i < ls->n; i++)
        errors += !apply_one(ls, &ls->at[i], c);
    return errors;
}

json_t *listeners_json(const struct listeners *ls)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < ls->n; i++) {
        const struct listener *l = &ls->at[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:b, s:b, s:b, s:s?}", "address", l->address, "tls", l->tls, "users",
                                        l->users, "passed", l->passed, "error", l->error.cls ? l->error.msg : NULL));
    }
    return list;
}

int listeners_new(struct listeners **ret, struct exchange *x, struct err *e)
{
    struct listeners *l = calloc(1, sizeof *l);
    if (!l)
        return err_nomem(e);
    l->exchange = x;
    find_passed(l);
    *ret = l;
    return 0;
}

void listeners_free(struct listeners *l)
{
    if (!l)
        return;
    for (unsigned i = 0; i < l->n; i++)
        close_listener(&l->at[i]);
    free(l);
}
