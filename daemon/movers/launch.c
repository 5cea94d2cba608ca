/* SPDX-License-Identifier: GPL-2.0-or-later */
/* launch.c - how a mover is started: user, limits, environment; the same for both back ends */
#include "daemon/movers/builtin-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMORY_DEFAULT_BYTES (UINT64_C(256) << 20)
#define INDEX_DEFAULT_BYTES (UINT64_C(64) << 20)
#define MEMORY_EXTRA (UINT64_C(64) << 20) /* program, libraries, stacks, the cache's hot pages */
#define ENV_MAX 40

/* Environment variables passed to a mover (MS-15): locale, time zone, proxies, certificates. The last ones are for
 * tests; SNAPFERRY_KERNEL_* select kernels. */
static const char *const passed[] = {
    "LANG",         "LC_ALL",        "TZ",           "TZDIR",    "http_proxy",    "https_proxy",  "all_proxy",
    "no_proxy",     "HTTPS_PROXY",   "ALL_PROXY",    "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "SNAPFERRY_CRASH_AT",
    "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS",
};

static const char **environment(void)
{
    char **env = calloc(ENV_MAX + 1, sizeof *env);
    size_t n = 0;
    if (!env)
        return NULL;
    env[n++] = strdup("PATH=/usr/sbin:/usr/bin:/sbin:/bin");
    for (size_t i = 0; i < sizeof passed / sizeof *passed && n < ENV_MAX; i++) {
        const char *v = getenv(passed[i]);
        if (v && asprintf(&env[n], "%s=%s", passed[i], v) >= 0)
            n++;
    }
    for (char **p = environ; *p && n < ENV_MAX; p++)
        if (!strncmp(*p, "SNAPFERRY_KERNEL_", 17))
            env[n++] = strdup(*p);
    env[n] = NULL;
    return (const char **)env;
}

static int find_user(struct mover_launch *l, const char *user, struct err *e)
{
    int rc = user_find(&l->as, user, false, e);
    if (rc == -ENOENT) {
        static bool told;
        if (!told)
            log_warning("unknown user %s: movers run as the daemon's user, without capabilities", user);
        told = true;
        return 0;
    }
    if (rc < 0 || !l->as.change)
        return rc;
    l->user = strdup(user);
    return l->user ? 0 : err_nomem(e);
}

static const char *text_of(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

static bool is_local(const json_t *place)
{
    const char *type = text_of(place, "type");
    return !*type || !strcmp(type, "filesystem");
}

static int launch_describe(struct mover_launch *l, const struct mover_spec *s, struct err *e)
{
    const json_t *repo = json_object_get(s->job, "repository"), *source = json_object_get(s->job, "source"),
                 *copy = json_object_get(s->job, "copy");
    char path[4096] = "", link[64];
    if (s->device_fd >= 0) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", s->device_fd);
        ssize_t n = readlink(link, path, sizeof path - 1);
        path[n > 0 && path[0] == '/' ? n : 0] = '\0';
    }
    l->private_network = is_local(repo) && is_local(copy);
    l->writes_device = !strcmp(s->kind, "restore");
    l->repository_path = strdup(text_of(repo, "path"));
    l->copy_path = strdup(text_of(copy, "path"));
    l->device_path = strdup(path);
    l->backup = strdup(text_of(s->job, "backup"));
    l->volume = strdup(*text_of(source, "name") ? text_of(source, "name") : text_of(s->job, "target"));
    return l->repository_path && l->copy_path && l->device_path && l->backup && l->volume ? 0 : err_nomem(e);
}

/*
 * A mover of another user can neither read nor replace files of root in the cache directory, for instance those of
 * `snapferry -r`. Such movers have a subdirectory of their own.
 */
static int cache_dir_of_user(struct mover_launch *l, const char *dir, struct err *e)
{
    char *path = NULL;
    if (!l->user || !*dir) {
        l->cache_dir = strdup(dir);
        return l->cache_dir ? 0 : err_nomem(e);
    }
    if (asprintf(&path, "%s/%s", dir, l->user) < 0)
        return err_nomem(e);
    l->cache_dir = path;
    const int made = mkdir(path, 0700) < 0 && errno != EEXIST ? errno : 0;
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && (st.st_uid == l->as.uid || fchown(fd, l->as.uid, l->as.gid) == 0))
        return 0;
    err_set(e, ERR_GENERIC, made ? made : errno, "cannot create the movers' cache directory %s", path);
    return err_hint(e,
                    "its parent, cache-dir in [daemon], must be a writable directory owned by root, with free space");
}

int launch_new(struct mover_launch **ret, const struct mover_spec *s, struct err *e)
{
    CLEANUP(launch_freep) struct mover_launch *l = calloc(1, sizeof *l);
    if (!l)
        return err_nomem(e);
    fields_init(&mover_limits_fields, &l->limits);
    if ((s->limits && fields_copy(&mover_limits_fields, &l->limits, s->limits) < 0) || !(l->env = environment()))
        return err_nomem(e);
    const struct mover_limits *c = &l->limits;
    int rc = find_user(l, c->user, e);
    if (rc == 0)
        rc = launch_describe(l, s, e);
    if (rc == 0)
        rc = cache_dir_of_user(l, text_of(s->job, "cache_dir"), e);
    if (rc < 0)
        return rc;
    const uint64_t memory = c->memory ? (uint64_t)c->memory : MEMORY_DEFAULT_BYTES;
    const uint64_t index = c->index_memory ? (uint64_t)c->index_memory : INDEX_DEFAULT_BYTES;
    l->memory_max = c->memory_max ? (uint64_t)c->memory_max : memory + index + MEMORY_EXTRA;
    l->memlock = memory;
    l->stop_timeout_s = s->times.cancel_grace_s > 0 ? s->times.cancel_grace_s : 30;
    *ret = take_ptr(&l);
    return 0;
}

static void free_list(const char *const *list)
{
    for (size_t i = 0; list && list[i]; i++)
        free((char *)(uintptr_t)list[i]);
    free((void *)(uintptr_t)list);
}

void launch_free(struct mover_launch *l)
{
    if (!l)
        return;
    fields_clear(&mover_limits_fields, &l->limits);
    free_list(l->env);
    free((char *)(uintptr_t)l->user);
    free((char *)(uintptr_t)l->repository_path);
    free((char *)(uintptr_t)l->copy_path);
    free((char *)(uintptr_t)l->cache_dir);
    free((char *)(uintptr_t)l->device_path);
    free((char *)(uintptr_t)l->volume);
    free((char *)(uintptr_t)l->backup);
    free(l);
}
