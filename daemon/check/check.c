/* SPDX-License-Identifier: GPL-2.0-or-later */
/* check.c - a configuration against this machine: memory, users, programs, calendars, repositories */
#include "daemon/check/check.h"

#include "base/cleanup.h"
#include "base/password.h"
#include "base/s3-keys.h"
#include "daemon/check/classes.h"
#include "daemon/check/endpoint.h"
#include "base/json.h"
#include "base/time.h"
#include "proc/program-path.h"
#include "daemon/schedule/calendar.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#define MARGIN (INT64_C(64) << 20) /* of a mover beside its arena and index pages */
#define REPOSITORY_MARKER "kopia.repository.f"

/* ---- memory (E-01, MS-43) ---- */

static uint64_t mover_need(const struct cfg_mover *m)
{
    return (uint64_t)(m->memory_max ? m->memory_max : m->memory + m->index_memory + MARGIN);
}

static uint64_t machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

typedef int mover_fn(const char *who, const char *where, const struct cfg_mover *m, void *arg);

/* [mover] itself, and every class and volume whose movers need another amount. */
static int each_mover(const struct cfg *c, mover_fn *fn, void *arg)
{
    char who[4096], where[CFG_ORIGIN_MAX];
    const struct cfg_mover *common = cfg_mover(c);
    const struct cfg_class *k;
    const struct cfg_volume *v;
    cfg_where(c, "mover", "", "memory", where);
    int rc = fn("[mover]", where, common, arg);
    for (unsigned i = 0; rc >= 0 && (k = cfg_class_at(c, i)); i++) {
        struct cfg_policy p;
        if ((rc = cfg_policy_of_class(c, k->name, &p, NULL)) < 0)
            break;
        snprintf(who, sizeof who, "[storage-class \"%s\"]", k->name);
        if (mover_need(&p.limits) != mover_need(common))
            rc = fn(who, cfg_policy_where(&p, "memory"), &p.limits, arg);
        cfg_policy_clear(&p);
    }
    for (unsigned i = 0; rc >= 0 && (v = cfg_volume_at(c, i)); i++) {
        struct cfg_policy p;
        if ((rc = cfg_policy(c, cfg_named(v->name), NULL, &p, NULL)) < 0)
            break;
        snprintf(who, sizeof who, "[volume \"%.4000s\"]", v->name);
        if (mover_need(&p.limits) != mover_need(common))
            rc = fn(who, cfg_policy_where(&p, "memory"), &p.limits, arg);
        cfg_policy_clear(&p);
    }
    return rc;
}

struct memory {
    uint64_t largest;
    json_t *movers;
    struct cfg *complain_to; /* NULL: no complaints */
};

static int on_mover(const char *who, const char *where, const struct cfg_mover *m, void *arg)
{
    struct memory *x = arg;
    uint64_t need = mover_need(m);
    json_t *o = json_object();
    jset_str(o, "who", who);
    jset_int(o, "memory", m->memory);
    jset_int(o, "index_memory", m->index_memory);
    jset_int(o, "margin", (int64_t)need - m->memory - m->index_memory);
    jset_int(o, "need", (int64_t)need);
    json_array_append_new(x->movers, o);
    if (need > x->largest)
        x->largest = need;
    if (x->complain_to && need > cfg_daemon(x->complain_to)->memory_total)
        cfg_complain(
            x->complain_to, CFG_ERROR, where, "raise memory-total in [daemon], or lower the memory of the mover",
            "a mover of %s needs %llu MiB, memory-total is %llu MiB: it could never start", who,
            (unsigned long long)(need >> 20), (unsigned long long)(cfg_daemon(x->complain_to)->memory_total >> 20));
    return 0;
}

json_t *config_memory_json(const struct cfg *c)
{
    const struct cfg_daemon *d = cfg_daemon(c);
    struct memory x = {.movers = json_array()};
    each_mover(c, on_mover, &x);
    uint64_t all = d->slots + d->restore_reserved;
    json_t *o = json_object();
    jset_int(o, "total", (int64_t)d->memory_total);
    jset_int(o, "available", (int64_t)machine_memory());
    jset_int(o, "slots", d->slots);
    jset_int(o, "restore_reserved", d->restore_reserved);
    json_object_set_new(o, "movers", x.movers);
    jset_int(o, "largest", (int64_t)x.largest);
    jset_int(o, "together", (int64_t)(all * x.largest));
    jset_int(o, "at_once", (int64_t)(x.largest ? d->memory_total / x.largest : 0));
    return o;
}

static void check_memory(struct cfg *c)
{
    const struct cfg_daemon *d = cfg_daemon(c);
    struct memory x = {.movers = json_array(), .complain_to = c};
    char where[CFG_ORIGIN_MAX];
    each_mover(c, on_mover, &x);
    json_decref(x.movers);
    cfg_where(c, "daemon", "", "memory-total", where);
    uint64_t all = d->slots + d->restore_reserved, machine = machine_memory();
    if (x.largest && x.largest <= d->memory_total && all > d->memory_total / x.largest)
        cfg_complain(c, CFG_WARNING, where, "raise memory-total, or lower slots or the movers' memory",
                     "memory-total is %llu MiB: of %llu slots only %llu can run a mover of %llu MiB at the same time",
                     (unsigned long long)(d->memory_total >> 20), (unsigned long long)all,
                     (unsigned long long)(d->memory_total / x.largest), (unsigned long long)(x.largest >> 20));
    if (machine && d->memory_total > machine)
        cfg_complain(c, CFG_WARNING, where, NULL, "memory-total is %llu MiB, this machine has %llu MiB",
                     (unsigned long long)(d->memory_total >> 20), (unsigned long long)(machine >> 20));
}

/* ---- users ---- */

/* Looks a user up: 0, or -ENOENT with *ret undefined. */
static int find_user(const char *name, struct passwd *ret, char buf[16384])
{
    struct passwd *found = NULL;
    getpwnam_r(name, ret, buf, 16384, &found);
    return found ? 0 : -ENOENT;
}

static void check_plugin_users(struct cfg *c)
{
    const struct cfg_plugin *g;
    for (unsigned i = 0; (g = cfg_plugin_at(c, i)); i++) {
        char buf[16384], where[CFG_ORIGIN_MAX];
        struct passwd pw;
        if (!g->user[0] || find_user(g->user, &pw, buf) == 0)
            continue;
        cfg_where(c, "plugin", g->name, "user", where);
        cfg_complain(c, CFG_ERROR, where, NULL, "[plugin \"%s\"]: unknown user %s", g->name, g->user);
    }
}

/* Movers must not be able to use the control socket. */
static void check_mover_user(struct cfg *c)
{
    char buf[16384], where[CFG_ORIGIN_MAX];
    const char *user = cfg_mover(c)->user, *group = cfg_daemon(c)->socket_group;
    struct passwd pw;
    gid_t groups[64];
    int n = 64;
    cfg_where(c, "mover", "", "user", where);
    if (!user[0] || geteuid() != 0)
        return;
    if (find_user(user, &pw, buf) < 0) {
        cfg_complain(c, CFG_WARNING, where, "created by the package; or use systemd-sysusers, or useradd --system",
                     "unknown user %s of movers", user);
        return;
    }
    char group_buf[16384];
    struct group gr, *found = NULL;
    if (group[0])
        getgrnam_r(group, &gr, group_buf, sizeof group_buf, &found);
    if (!found || pw.pw_uid == 0 || getgrouplist(user, pw.pw_gid, groups, &n) < 0)
        return;
    for (int i = 0; i < n; i++)
        if (groups[i] == gr.gr_gid)
            cfg_complain(c, CFG_ERROR, where, "remove it from the group",
                         "user %s of movers is in group %s, which may use the control socket", user, group);
}

/* ---- programs ---- */

/* Whether root may run it safely. `missing`: severity if it does not exist. */
static void check_program(struct cfg *c, const char *where, const char *what, const char *path,
                          enum cfg_severity missing)
{
    struct stat st;
    char why[400];
    if (stat(path, &st) < 0)
        cfg_complain(c, missing, where, NULL, "%s %s: %s", what, path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        cfg_complain(c, CFG_ERROR, where, NULL, "%s %s is not a file", what, path);
    else if (st.st_uid != 0 && (geteuid() == 0 || st.st_uid != geteuid()))
        cfg_complain(c, CFG_ERROR, where, "chown it to root", "%s %s is owned by user %u and is not run", what, path,
                     (unsigned)st.st_uid);
    else if (st.st_mode & (S_IWGRP | S_IWOTH))
        cfg_complain(c, CFG_ERROR, where, "chmod go-w it", "%s %s is writable by others and is not run", what, path);
    else if (program_replaceable(path, why, sizeof why))
        cfg_complain(c, CFG_ERROR, where, "each directory of its path must belong to root and be writable by root only",
                     "%s %s is not run: %s", what, path, why);
    else if (!(st.st_mode & S_IXUSR))
        cfg_complain(c, CFG_ERROR, where, "chmod +x it", "%s %s is not executable", what, path);
}

static void check_hooks_of(struct cfg *c, const struct cfg_policy *p, const struct cfg_policy *told)
{
    static const struct {
        const char *key;
        size_t at;
    } hooks[] = {
        {"hook-pre-backup", offsetof(struct cfg_policy, hook_pre_backup)},
        {"hook-pre-restore", offsetof(struct cfg_policy, hook_pre_restore)},
        {"hook-pre-snapshot", offsetof(struct cfg_policy, hook_pre_snapshot)},
        {"hook-post-snapshot", offsetof(struct cfg_policy, hook_post_snapshot)},
        {"hook-post-backup", offsetof(struct cfg_policy, hook_post_backup)},
        {"hook-overlay", offsetof(struct cfg_policy, hook_overlay)},
        {"hook-prepare", offsetof(struct cfg_policy, hook_prepare)},
        {"hook-post-restore", offsetof(struct cfg_policy, hook_post_restore)},
    };
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++) {
        const char *path = (const char *)p + hooks[i].at, *where = cfg_policy_where(p, hooks[i].key);
        bool again = told && !strcmp(path, (const char *)told + hooks[i].at);
        if (path[0] && where && !again)
            check_program(c, where, hooks[i].key, path, CFG_WARNING);
    }
}

static int check_hooks(struct cfg *c, struct err *e)
{
    struct cfg_policy common, p;
    const struct cfg_class *k;
    const struct cfg_volume *v;
    const struct cfg_job *j;
    int rc = cfg_policy(c, cfg_named(""), NULL, &common, e);
    if (rc < 0)
        return rc;
    check_hooks_of(c, &common, NULL);
    for (unsigned i = 0; rc >= 0 && (k = cfg_class_at(c, i)); i++)
        if ((rc = cfg_policy_of_class(c, k->name, &p, e)) >= 0) {
            check_hooks_of(c, &p, &common);
            cfg_policy_clear(&p);
        }
    for (unsigned i = 0; rc >= 0 && (j = cfg_job_at(c, i)); i++)
        if ((rc = cfg_policy(c, cfg_named(""), j->name, &p, e)) >= 0) {
            check_hooks_of(c, &p, &common);
            cfg_policy_clear(&p);
        }
    for (unsigned i = 0; rc >= 0 && (v = cfg_volume_at(c, i)); i++) {
        struct cfg_policy of_class = {.effective = NULL};
        const struct cfg_class *own = cfg_class_of(c, cfg_named(v->name));
        if (own)
            rc = cfg_policy_of_class(c, own->name, &of_class, e);
        if (rc >= 0 && (rc = cfg_policy(c, cfg_named(v->name), NULL, &p, e)) >= 0) {
            check_hooks_of(c, &p, own ? &of_class : &common);
            cfg_policy_clear(&p);
        }
        cfg_policy_clear(&of_class);
    }
    cfg_policy_clear(&common);
    return rc;
}

static void check_plugin_programs(struct cfg *c)
{
    const struct cfg_plugin *g;
    for (unsigned i = 0; (g = cfg_plugin_at(c, i)); i++) {
        char where[CFG_ORIGIN_MAX];
        cfg_where(c, "plugin", g->name, "program", where);
        if (g->program[0])
            check_program(c, where, "program", g->program, CFG_ERROR);
    }
}

/* ---- calendars ---- */

static void check_calendar(struct cfg *c, const char *section, const char *name, const char *key, const char *text)
{
    char where[CFG_ORIGIN_MAX];
    struct calendar *when = NULL;
    struct err why = ERR_INIT;
    if (!text[0])
        return;
    cfg_where(c, section, name, key, where);
    if (calendar_parse(&when, text, &why) < 0) {
        cfg_complain(c, CFG_ERROR, where, why.hint[0] ? why.hint : "systemd.time(7) describes calendar events",
                     "%s: %s", key, why.msg);
        return;
    }
    if (calendar_next(when, now_ns()) == INT64_MAX)
        cfg_complain(c, CFG_WARNING, where, NULL, "%s = %s has no next occurrence", key, text);
    calendar_free(when);
}

static void check_calendars(struct cfg *c)
{
    const struct cfg_job *j;
    const struct cfg_repository *r;
    const struct cfg_copy *k;
    for (unsigned i = 0; (j = cfg_job_at(c, i)); i++)
        check_calendar(c, "job", j->name, "on-calendar", j->on_calendar);
    for (unsigned i = 0; (r = cfg_repository_at(c, i)); i++) {
        check_calendar(c, "repository", r->name, "maintenance-full", r->maintenance_full);
        check_calendar(c, "repository", r->name, "verification", r->verification);
    }
    for (unsigned i = 0; (k = cfg_copy_at(c, i)); i++)
        check_calendar(c, "copy", k->name, "on-calendar", k->on_calendar);
}

/* ---- repositories ---- */

static void check_secret(struct cfg *c, const struct cfg_repository *r)
{
    char where[CFG_ORIGIN_MAX], hint[4200];
    struct stat st;
    if (r->password_file[0] != '/')
        return; /* credentials exist only when systemd starts the daemon */
    cfg_where(c, "repository", r->name, "password-file", where);
    if (stat(r->password_file, &st) < 0)
        cfg_complain(c, CFG_WARNING, where, NULL, "password-file %s: %s", r->password_file, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        cfg_complain(c, CFG_ERROR, where, NULL, "password-file %s is not a file", r->password_file);
    else if (password_exposed(-1, r->password_file, &st)) {
        snprintf(hint, sizeof hint, "chmod 600 %s%s", r->password_file,
                 r->insecure_password_file ? "" : ", or set insecure-password-file = yes");
        cfg_complain(c, r->insecure_password_file ? CFG_WARNING : CFG_ERROR, where, hint,
                     "password-file %s is readable by others (mode %04o)", r->password_file, st.st_mode & 07777u);
    } else if (!st.st_size)
        cfg_complain(c, CFG_ERROR, where, NULL, "password-file %s is empty", r->password_file);
}

/* Whether the movers' user may write there; root always may. */
static void check_owner(struct cfg *c, const char *where, const char *kind, const struct cfg_repository *r,
                        const struct stat *st)
{
    char buf[16384];
    struct passwd pw;
    const char *user = cfg_mover(c)->user;
    if (geteuid() != 0 || !user[0] || find_user(user, &pw, buf) < 0 || pw.pw_uid == 0)
        return;
    mode_t need = pw.pw_uid == st->st_uid   ? S_IWUSR | S_IXUSR
                  : pw.pw_gid == st->st_gid ? S_IWGRP | S_IXGRP
                                            : S_IWOTH | S_IXOTH;
    if ((st->st_mode & need) != need)
        cfg_complain(c, CFG_WARNING, where, "the directory and its contents should be owned by the movers' user",
                     "[%s \"%s\"]: user %s cannot write to %s", kind, r->name, user, r->path);
}

static void check_repository(struct cfg *c, const struct cfg_repository *r)
{
    char where[CFG_ORIGIN_MAX], marker[PATH_MAX + 32];
    struct stat st;
    cfg_where(c, "repository", r->name, "path", where);
    snprintf(marker, sizeof marker, "%s/" REPOSITORY_MARKER, r->path);
    if (stat(r->path, &st) < 0)
        cfg_complain(c, CFG_WARNING, where, "is its file system mounted?", "[repository \"%s\"]: %s: %s", r->name,
                     r->path, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        cfg_complain(c, CFG_ERROR, where, NULL, "[repository \"%s\"]: %s is not a directory", r->name, r->path);
    else if (access(marker, F_OK) < 0 && errno != ENOENT)
        cfg_complain(c, CFG_WARNING, where, errno == EACCES ? "run it as root" : NULL,
                     "[repository \"%s\"]: cannot search %s: %s", r->name, r->path, strerror(errno));
    else if (access(marker, F_OK) < 0)
        cfg_complain(c, CFG_WARNING, where,
                     "is its file system mounted? Create one with `snapferry -r NAME repo create`",
                     "[repository \"%s\"]: no repository in %s (no " REPOSITORY_MARKER ")", r->name, r->path);
    else
        check_owner(c, where, "repository", r, &st);
}

/* The keys of a bucket: one that is missing may come; others are wrong. */
static void check_keys(struct cfg *c, const char *kind, const struct cfg_repository *r)
{
    char where[CFG_ORIGIN_MAX];
    struct err why = ERR_INIT;
    struct stat st;
    if (r->credentials[0] != '/' || s3_keys_check(r->credentials, &why) == 0)
        return;
    cfg_where(c, kind, r->name, "credentials", where);
    cfg_complain(c, stat(r->credentials, &st) < 0 ? CFG_WARNING : CFG_ERROR, where, why.hint[0] ? why.hint : NULL,
                 "[%s \"%s\"]: %s", kind, r->name, why.msg);
}

/* Read by the daemon, which hands its text to movers. */
static void check_authorities(struct cfg *c, const char *kind, const struct cfg_repository *r)
{
    char where[CFG_ORIGIN_MAX];
    struct stat st;
    if (!r->ca_file[0])
        return;
    cfg_where(c, kind, r->name, "ca-file", where);
    if (stat(r->ca_file, &st) < 0)
        cfg_complain(c, CFG_WARNING, where, NULL, "ca-file %s: %s", r->ca_file, strerror(errno));
    else if (!S_ISREG(st.st_mode) || !st.st_size)
        cfg_complain(c, CFG_ERROR, where, NULL, "ca-file %s is not a file of certificates", r->ca_file);
}

/* The directory of a copy: the daemon does not make it, since it may be below a mount point. */
static void check_copy_dir(struct cfg *c, const struct cfg_repository *r)
{
    char where[CFG_ORIGIN_MAX];
    struct stat st;
    cfg_where(c, "copy", r->name, "path", where);
    if (stat(r->path, &st) < 0)
        cfg_complain(c, CFG_WARNING, where,
                     "is its file system mounted? A new directory has to belong to the movers' user",
                     "[copy \"%s\"]: %s: %s", r->name, r->path, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        cfg_complain(c, CFG_ERROR, where, NULL, "[copy \"%s\"]: %s is not a directory", r->name, r->path);
    else
        check_owner(c, where, "copy", r, &st);
}

static void check_copies(struct cfg *c, bool storage)
{
    const struct cfg_copy *k;
    for (unsigned i = 0; (k = cfg_copy_at(c, i)); i++) {
        if (!strcmp(k->place.type, "s3")) {
            check_keys(c, "copy", &k->place);
            check_authorities(c, "copy", &k->place);
        } else if (storage && k->place.path[0]) {
            check_copy_dir(c, &k->place);
        }
    }
}

static void check_repositories(struct cfg *c, bool storage)
{
    const struct cfg_repository *r;
    for (unsigned i = 0; (r = cfg_repository_at(c, i)); i++) {
        check_secret(c, r);
        if (!strcmp(r->type, "s3")) {
            check_keys(c, "repository", r);
            check_authorities(c, "repository", r);
        }
        if (storage && r->path[0])
            check_repository(c, r);
    }
}

/* ---- the whole ---- */

static int first_error(const struct cfg *c, struct err *e)
{
    const struct cfg_complaint *x;
    for (unsigned i = 0; (x = cfg_complaint_at(c, i)); i++) {
        if (x->severity != CFG_ERROR)
            continue;
        err_set(e, ERR_USAGE, EINVAL, "%s: %s", x->where, x->text);
        if (x->hint[0])
            err_hint(e, "%s", x->hint);
        return -EINVAL;
    }
    return cfg_errors(c) ? err_nomem(e) : 0;
}

int config_check(struct cfg *c, bool storage, struct err *e)
{
    check_memory(c);
    check_mover_user(c);
    check_plugin_users(c);
    check_plugin_programs(c);
    check_calendars(c);
    check_endpoint(c);
    check_repositories(c, storage);
    check_copies(c, storage);
    int rc = check_hooks(c, e);
    if (rc >= 0)
        rc = check_classes(c, storage, e);
    return rc < 0 ? rc : first_error(c, e);
}

static void complain_credential(struct cfg *c, const char *kind, const struct cfg_repository *r, const char *key,
                                const struct err *why)
{
    char where[CFG_ORIGIN_MAX];
    cfg_where(c, kind, r->name, key, where);
    cfg_complain(c, CFG_WARNING, where,
                 "LoadCredential= in a drop-in of snapferryd.service, then `systemctl restart snapferryd`",
                 "[%s \"%s\"]: %s", kind, r->name, why->msg);
}

static void check_key_credential(struct cfg *c, const char *kind, const struct cfg_repository *r)
{
    struct err why = ERR_INIT;
    if (!strncmp(r->credentials, "cred:", 5) && s3_keys_check(r->credentials, &why) < 0)
        complain_credential(c, kind, r, "credentials", &why);
}

/* Credentials are passed to the daemon at its start: only the daemon can check them. */
static void check_credentials(struct cfg *c)
{
    const struct cfg_repository *r;
    const struct cfg_copy *k;
    for (unsigned i = 0; (r = cfg_repository_at(c, i)); i++) {
        struct err why = ERR_INIT;
        if (!strncmp(r->password_file, "cred:", 5) && password_check(r->password_file, true, &why) < 0)
            complain_credential(c, "repository", r, "password-file", &why);
        check_key_credential(c, "repository", r);
    }
    for (unsigned i = 0; (k = cfg_copy_at(c, i)); i++)
        check_key_credential(c, "copy", &k->place);
}

int config_check_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)fd;
    CLEANUP(cfg_freep) struct cfg *c = NULL;
    const char *dir;
    if (json_unpack((json_t *)(uintptr_t)in, "{s:s}", "config_dir", &dir) < 0)
        return err_set(e, ERR_GENERIC, EINVAL, "the request to check a configuration names no directory");
    int rc = cfg_load_dir(&c, dir, e);
    if (!c)
        return rc;
    /* Drivers are not called for a configuration with errors: the values may not be the intended ones. */
    rc = config_check(c, cfg_errors(c) == 0, e);
    if (rc < 0 && rc != -EINVAL)
        return rc;
    check_credentials(c);
    CLEANUP_JSON json_t *whole = cfg_json(c);
    unsigned warnings = 0;
    const struct cfg_complaint *x;
    for (unsigned i = 0; (x = cfg_complaint_at(c, i)); i++)
        warnings += x->severity == CFG_WARNING;
    *out = json_pack("{s:i, s:i, s:s, s:O, s:o}", "errors", (int)cfg_errors(c), "warnings", (int)warnings, "hash",
                     cfg_hash(c), "complaints", json_object_get(whole, "complaints"), "memory", config_memory_json(c));
    if (!*out)
        return err_nomem(e);
    if (e)
        *e = (struct err)ERR_INIT;
    return 0;
}
