/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * driver_call - one call of a driver, for shell tests
 *
 * driver_call [--driver D] [--name CLASS] [--match PATTERN]... [--target T] [--node N] [--accept] [--hook PROGRAM]
 *             [--cow PERCENT] [--option KEY=VALUE]... [--plugin PROGRAM] [--into-name CLASS --into-driver D
 * --into-target T] VERB ARG... Prints the JSON documents that come back, one in a line; exits with the class of the
 * error, its sentence on standard error. Verbs are below.
 */
#include "base/cleanup.h"
#include "io/native/driver.h"
#include "io/native/freeze.h"
#include "io/native/rbd.h"
#include "io/reader.h"
#include "io/source.h"
#include "io/target-nbd.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct driver_class own = {.name = "gold", .driver = "reflink", .node = "node1", .target = ""};
static struct driver_class into = {.driver = "reflink", .node = "node1", .target = ""};
static const char *match[32];
static const struct driver *d;
static struct err e = ERR_INIT;

static int show(json_t *j)
{
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    puts(text ? text : "null");
    free(text);
    return 0;
}

static json_t *parse(const char *text)
{
    json_error_t why;
    json_t *j = json_loads(text, 0, &why);
    if (!j) {
        fprintf(stderr, "%s: %s\n", text, why.text);
        exit(99);
    }
    return j;
}

static const struct driver_class *where(void)
{
    return into.name ? &into : &own;
}

static int on_volume(const struct volume *v, void *arg)
{
    (void)arg;
    return v->id[0] || v->doubt ? show(volume_to_json(v)) : 0;
}

static int on_native(const struct native *n, void *arg)
{
    (void)arg;
    return show(native_to_json(n));
}

static int on_exposure(const struct exposure *x, const struct native_tag *t, void *arg)
{
    (void)t;
    (void)arg;
    return show(exposure_to_json(x));
}

static int v_abilities(char **a)
{
    unsigned bits;
    (void)a;
    int rc = d->abilities(&own, &bits, &e);
    return rc < 0 ? rc : printf("%u\n", bits);
}

static int v_volumes(char **a)
{
    (void)a;
    return d->volumes(&own, on_volume, NULL, &e);
}

static int v_resolve(char **a)
{
    struct volume v;
    int rc = d->resolve(&own, a[0], &v, &e);
    return rc < 0 ? rc : show(volume_to_json(&v));
}

/* NAME ALIAS [ID]: resolves and takes a snapshot; an ID stands for what an earlier look had found. */
static int v_snapshot(char **a)
{
    struct volume v;
    struct native n;
    struct native_tag t = {.created_ns = 1700000000000000000, .seq = 7, .backup = "manual-1", .operation = "up-1"};
    snprintf(t.alias, sizeof t.alias, "%s", a[1]);
    snprintf(t.repository, sizeof t.repository, "main");
    int rc = d->resolve(&own, a[0], &v, &e);
    if (rc < 0)
        return rc;
    if (a[2])
        snprintf(v.id, sizeof v.id, "%s", a[2]);
    snprintf(t.volume_id, sizeof t.volume_id, "%s", v.id);
    snprintf(t.volume_name, sizeof t.volume_name, "%s", v.name);
    rc = d->snapshot(&own, &v, &t, &n, &e);
    return rc < 0 ? rc : show(native_to_json(&n));
}

static int member_resolve(struct group_member *m, const char *name, const char *alias)
{
    struct volume *v = calloc(1, sizeof *v);
    struct native_tag *t = calloc(1, sizeof *t);
    if (!v || !t || !(m->ret = calloc(1, sizeof *m->ret)))
        exit(98);
    t->created_ns = 1700000000000000000;
    t->seq = 7;
    snprintf(t->alias, sizeof t->alias, "%s", alias);
    snprintf(t->backup, sizeof t->backup, "manual-1");
    snprintf(t->operation, sizeof t->operation, "up-1");
    snprintf(t->repository, sizeof t->repository, "main");
    int rc = d->resolve(&own, name, v, &e);
    snprintf(t->volume_id, sizeof t->volume_id, "%s", v->id);
    snprintf(t->volume_name, sizeof t->volume_name, "%s", v->name);
    m->c = &own;
    m->v = v;
    m->tag = t;
    return rc;
}

/* NAME ALIAS NAME ALIAS [NAME ALIAS]...: at one instant; one that failed is a line with its reason. "apart": they have
 * no domain in common, or the storage cannot. */
static int v_group(char **a)
{
    struct group_member m[16] = {{.c = NULL}};
    char domain[VOLUME_ID_MAX] = "", other[VOLUME_ID_MAX];
    size_t n = 0;
    int rc = d->group ? 0 : puts("apart: no group call");
    for (; rc == 0 && a[2 * n] && n < 16; n++) {
        rc = member_resolve(&m[n], a[2 * n], a[2 * n + 1]);
        if (rc == 0)
            rc = d->group_domain(&own, m[n].v, n ? other : domain, &e);
        if (rc == 0 && n && strcmp(domain, other) != 0)
            rc = puts("apart: several domains");
    }
    if (rc == 0 && !domain[0])
        rc = puts("apart: no domain");
    if (rc == 0 && (rc = d->group(m, n, &e)) == -ENOTSUP)
        rc = printf("apart: %s\n", e.msg);
    else if (rc == 0)
        for (size_t i = 0; i < n; i++)
            m[i].err.cls ? printf("failed: %s\n", m[i].err.msg) : show(native_to_json(m[i].ret));
    for (size_t i = 0; i < n; i++) {
        free((void *)m[i].v);
        free((void *)m[i].tag);
        free(m[i].ret);
    }
    return rc;
}

/* VOLUME-JSON ALIAS HINT */
static int v_find(char **a)
{
    struct volume v;
    struct native n;
    json_t *j = parse(a[0]);
    int rc = volume_from_json(&v, j, &e);
    json_decref(j);
    if (rc == 0)
        rc = d->find(&own, &v, a[1], a[2] ? a[2] : "", &n, &e);
    return rc < 0 ? rc : show(native_to_json(&n));
}

static int v_list(char **a)
{
    (void)a;
    return d->list(&own, on_native, NULL, &e);
}

static int native_arg(const char *text, struct native *n)
{
    json_t *j = parse(text);
    int rc = native_from_json(n, j, &e);
    json_decref(j);
    return rc;
}

/* The list of changes between two of these; *answer is "listed", or another one with an empty list. */
static int changes_of(char **a, struct changes **list, struct changed_answer *answer)
{
    struct native base, n;
    int rc = native_arg(a[0], &base);
    if (rc == 0)
        rc = native_arg(a[1], &n);
    if (rc == 0)
        rc = changes_new(list, &e);
    if (rc == 0)
        rc = driver_changed(&own, &base, &n, *list, answer, &e);
    if (rc == 0)
        printf("%s%s%s\n", changed_state_name(answer->state), answer->why[0] ? ": " : "", answer->why);
    return rc;
}

/* BASE-JSON NATIVE-JSON: the state of the answer and why, then "START LENGTH" of each range. */
static int v_changed(char **a)
{
    struct changed_answer answer;
    struct changes *list CLEANUP(changes_freep) = NULL;
    struct change x;
    size_t cursor = 0;
    int rc = changes_of(a, &list, &answer);
    for (uint64_t pos = 0; rc == 0 && answer.state == CHANGED_LISTED && changes_after(list, &cursor, pos, &x);
         pos = x.start + x.len)
        printf("%llu %llu\n", (unsigned long long)x.start, (unsigned long long)x.len);
    return rc;
}

/* Likewise; only what of these ranges is known to be zeros. */
static int v_zeros(char **a)
{
    struct changed_answer answer;
    struct changes *list CLEANUP(changes_freep) = NULL;
    struct change x;
    struct changes_cursor cursor = {0};
    bool zeros;
    int rc = changes_of(a, &list, &answer);
    for (uint64_t pos = 0;
         rc == 0 && answer.state == CHANGED_LISTED && changes_part_after(list, &cursor, pos, &x, &zeros);
         pos = x.start + x.len)
        if (zeros)
            printf("%llu %llu\n", (unsigned long long)x.start, (unsigned long long)x.len);
    return rc;
}

static int on_extent(uint64_t start, uint64_t len, void *arg)
{
    (void)arg;
    return printf("%llu %llu\n", (unsigned long long)start, (unsigned long long)len) < 0 ? -1 : 0;
}

/* EXPOSURE-JSON: "START LENGTH" of each extent. */
static int v_allocated(char **a)
{
    struct exposure x;
    json_t *j = parse(a[0]);
    int rc = exposure_from_json(&x, j, &e);
    json_decref(j);
    return rc < 0 ? rc : d->allocated(&own, &x, on_extent, NULL, &e);
}

static int v_remove(char **a)
{
    struct native n;
    bool gone;
    int rc = native_arg(a[0], &n);
    if (rc == 0)
        rc = d->remove(&own, &n, &gone, &e);
    return rc < 0 ? rc : puts(gone ? "gone" : "removed");
}

/* NATIVE-JSON */
static int v_bookmark(char **a)
{
    struct native n;
    int rc = native_arg(a[0], &n);
    return rc < 0 ? rc : d->bookmark(&own, &n, &e);
}

static int v_unbookmark(char **a)
{
    struct native n;
    int rc = native_arg(a[0], &n);
    return rc < 0 ? rc : d->bookmark_remove(&own, &n, &e);
}

static int v_bookmarks(char **a)
{
    (void)a;
    return d->bookmarks(&own, on_native, NULL, &e);
}

/* NATIVE-JSON MECHANISM ro|rw ALIAS [RATE] */
static int v_expose(char **a)
{
    struct native n;
    struct exposure x;
    enum expose_mechanism m = EXPOSE_NATIVE;
    int rc = native_arg(a[0], &n);
    if (rc < 0)
        return rc;
    while (m < EXPOSE_COPY && strcmp(expose_mechanism_name(m), a[1]) != 0)
        m++;
    rc =
        driver_expose(&own, &n, where(), m, strcmp(a[2], "ro") == 0, a[3], a[4] ? strtoull(a[4], NULL, 10) : 0, &x, &e);
    return rc < 0 ? rc : show(exposure_to_json(&x));
}

static int exposure_arg(const char *text, struct exposure *x)
{
    json_t *j = parse(text);
    int rc = exposure_from_json(x, j, &e);
    json_decref(j);
    return rc;
}

static int v_unexpose(char **a)
{
    struct exposure x;
    int rc = exposure_arg(a[0], &x);
    return rc < 0 ? rc : driver_by_name(where()->driver)->unexpose(where(), &x, &e);
}

static int v_exposures(char **a)
{
    (void)a;
    return driver_by_name(where()->driver)->exposures(where(), on_exposure, NULL, &e);
}

static int cat_source(int fd, const struct exposure *x)
{
    struct source *s = NULL;
    const size_t part = (size_t)1 << 20;
    void *buf = aligned_alloc(4096, part + SOURCE_READ_EXTRA);
    const uint8_t *p;
    int rc = source_from_fd(&s, fd, x->path, "driver-call", &e);
    for (uint64_t at = 0; rc == 0 && at < x->size; at += part) {
        const size_t n = x->size - at < part ? (size_t)(x->size - at) : part;
        rc = source_read(s, at, n, buf, &p, &e);
        if (rc == 0)
            fwrite(p, 1, n, stdout);
    }
    source_free(s);
    free(buf);
    return rc;
}

/* EXPOSURE-JSON: copies what a mover would read to standard output. */
static int v_cat(char **a)
{
    struct exposure x;
    char buf[65536];
    ssize_t n;
    CLEANUP_CLOSE int fd = -1;
    struct stat st;
    int rc = exposure_arg(a[0], &x);
    if (rc == 0)
        rc = d->open(&own, &x, &fd, &e);
    if (rc == 0 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode))
        return cat_source(take_fd(&fd), &x);
    while (rc == 0 && (n = read(fd, buf, sizeof buf)) > 0)
        fwrite(buf, 1, (size_t)n, stdout);
    return rc;
}

/* EXPOSURE-JSON: "hole|data START LENGTH" of each extent that a mover would be told of by a server. */
static int v_extents(char **a)
{
    struct exposure x;
    struct source *s = NULL;
    struct extent t = {.start = 0};
    int fd = -1, rc = exposure_arg(a[0], &x);
    if (rc == 0)
        rc = d->open(&own, &x, &fd, &e);
    if (rc == 0)
        rc = source_from_fd(&s, fd, x.path, "driver-call", &e);
    for (uint64_t at = 0; rc == 0 && at < x.size; at = t.start + t.len)
        if ((rc = source_extent(s, at, &t, &e)) == 0)
            printf("%s %llu %llu\n", t.hole ? "hole" : "data", (unsigned long long)t.start, (unsigned long long)t.len);
    source_free(s);
    return rc;
}

/* NAME SIZE ALIAS keep|overwrite|update|patch */
static int v_target(char **a)
{
    static const char *const uses[] = {"keep", "overwrite", "update", "patch"};
    struct restore_target t;
    unsigned use = 0;
    while (use < 3 && strcmp(uses[use], a[3]) != 0)
        use++;
    int rc = d->target(&own, a[0], strtoull(a[1], NULL, 10), a[2], (enum target_use)use, &t, &e);
    return rc < 0 ? rc : show(target_to_json(&t));
}

static int target_arg(const char *text, struct restore_target *t)
{
    json_t *j = parse(text);
    int rc = target_from_json(t, j, &e);
    json_decref(j);
    return rc;
}

struct pouring {
    struct nbd_write w;
    sem_t done;
    int sys;
};

static void poured(struct nbd_write *w, int sys)
{
    struct pouring *p = w->arg;
    p->sys = sys;
    sem_post(&p->done);
}

static int pour_part(struct nbd_target *t, const uint8_t *buf, size_t len, uint64_t pos)
{
    struct pouring p = {.w = {.buf = buf, .len = len, .pos = pos, .done = poured, .arg = &p}};
    sem_init(&p.done, 0, 0);
    nbd_target_write(t, &p.w);
    sem_wait(&p.done);
    return p.sys ? err_set(&e, ERR_TARGET, p.sys, "cannot write at %llu", (unsigned long long)pos) : 0;
}

/* TARGET-JSON: writes standard input to what a mover would get, at the positions that it has. */
static int v_pour(char **a)
{
    enum { PART = 300000 }; /* no multiple of anything */
    static uint8_t buf[PART];
    struct restore_target t;
    struct nbd_target *to = NULL;
    int fd = -1, rc = target_arg(a[0], &t);
    if (rc == 0)
        rc = d->target_open(&own, &t, &fd, &e);
    if (rc == 0)
        rc = nbd_target_open(&to, fd, t.path, t.size, NULL, &e);
    size_t n;
    uint64_t pos = 0, zero = 0, written; /* zero: bytes before `pos` that are to be zeros */
    for (; rc == 0 && (n = fread(buf, 1, PART, stdin)) > 0; pos += n) {
        if (zeros_only(buf, n)) {
            zero += n;
            continue;
        }
        rc = zero ? nbd_target_zero(to, pos - zero, zero, &written, &e) : 0;
        if (rc == 0)
            rc = pour_part(to, buf, n, pos);
        zero = 0;
    }
    if (rc == 0 && zero)
        rc = nbd_target_zero(to, pos - zero, zero, &written, &e);
    if (rc == 0)
        rc = nbd_target_flush(to, &e);
    nbd_target_free(to);
    return rc;
}

static int v_commit(char **a)
{
    struct restore_target t;
    int rc = target_arg(a[0], &t);
    return rc < 0 ? rc : d->target_commit(&own, &t, &e);
}

static int v_abort(char **a)
{
    struct restore_target t;
    int rc = target_arg(a[0], &t);
    return rc < 0 ? rc : d->target_abort(&own, &t, &e);
}

/* NATIVE-JSON TARGET-JSON */
static int v_fill(char **a)
{
    struct restore_target t;
    struct native n;
    int rc = native_arg(a[0], &n);
    if (rc == 0)
        rc = target_arg(a[1], &t);
    return rc < 0 ? rc : d->target_from_native(&own, &n, &t, &(struct fill){.rate = 0}, &e);
}

static int v_pool(char **a)
{
    struct pool_usage u;
    struct volume v;
    int rc = a[0] ? d->resolve(&own, a[0], &v, &e) : 0;
    if (rc == 0)
        rc = d->pool(&own, a[0] ? &v : NULL, &u, &e);
    return rc < 0 ? rc
                  : show(json_pack("{s:s, s:I, s:I, s:f}", "name", u.name, "size", (json_int_t)u.size, "free",
                                   (json_int_t)u.free, "used", u.used_ratio));
}

/* NAME ro|rw: what expose_choose() says. */
static int v_choose(char **a)
{
    struct volume v;
    struct expose_request q = {.own = &own, .into = into.name ? &into : NULL, .read_only = strcmp(a[1], "ro") == 0};
    enum expose_mechanism m;
    int rc = d->resolve(&own, a[0], &v, &e);
    if (rc == 0)
        rc = d->abilities(&own, &q.own_abilities, &e);
    if (rc == 0)
        rc = driver_by_name(where()->driver)->abilities(where(), &q.into_abilities, &e);
    q.same_pool = rc == 0 && expose_same_pool(&own, &v, where());
    if (rc == 0)
        rc = expose_choose(&q, &m, &e);
    return rc < 0 ? rc : puts(expose_mechanism_name(m));
}

static const struct {
    const char *name;
    int args;
    int (*fn)(char **a);
} verbs[] = {{"abilities", 0, v_abilities}, {"volumes", 0, v_volumes},
             {"resolve", 1, v_resolve},     {"snapshot", 2, v_snapshot},
             {"find", 2, v_find},           {"list", 0, v_list},
             {"remove", 1, v_remove},       {"expose", 4, v_expose},
             {"unexpose", 1, v_unexpose},   {"cat", 1, v_cat},
             {"extents", 1, v_extents},     {"exposures", 0, v_exposures},
             {"target", 4, v_target},       {"commit", 1, v_commit},
             {"abort", 1, v_abort},         {"fill", 2, v_fill},
             {"pool", 0, v_pool},           {"choose", 2, v_choose},
             {"changed", 2, v_changed},     {"allocated", 1, v_allocated},
             {"group", 4, v_group},         {"pour", 1, v_pour},
             {"bookmark", 1, v_bookmark},   {"unbookmark", 1, v_unbookmark},
             {"bookmarks", 0, v_bookmarks}, {"zeros", 2, v_zeros}};

static void log_stderr(enum log_level lvl, const char *line, void *arg)
{
    (void)arg;
    if (lvl >= LOG_LVL_WARNING)
        fprintf(stderr, "# %s\n", line);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"driver", 1, NULL, 'd'},      {"name", 1, NULL, 'n'},         {"match", 1, NULL, 'm'},
        {"target", 1, NULL, 't'},      {"node", 1, NULL, 'N'},         {"accept", 0, NULL, 'a'},
        {"hook", 1, NULL, 'h'},        {"plugin", 1, NULL, 'p'},       {"into-name", 1, NULL, 'I'},
        {"into-driver", 1, NULL, 'D'}, {"into-target", 1, NULL, 'T'},  {"cow", 1, NULL, 'c'},
        {"option", 1, NULL, 'o'},      {"freeze-limit", 1, NULL, 'f'}, {NULL, 0, NULL, 0}};
    int o, matches = 0;
    char *value;
    while ((o = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        switch (o) {
        case 'd':
            own.driver = optarg;
            break;
        case 'n':
            own.name = optarg;
            break;
        case 'm':
            match[matches < 31 ? matches++ : matches] = optarg;
            break;
        case 't':
            own.target = optarg;
            break;
        case 'N':
            own.node = into.node = optarg;
            break;
        case 'a':
            own.accept_inconsistent = true;
            break;
        case 'h':
            own.overlay_hook = into.overlay_hook = optarg;
            break;
        case 'c':
            own.cow_percent = (unsigned)atoi(optarg);
            break;
        case 'o':
            if (!own.options)
                own.options = json_object();
            if ((value = strchr(optarg, '=')))
                *value++ = '\0';
            json_object_set_new(own.options, optarg, json_string(value ? value : ""));
            break;
        case 'p':
            own.plugin = optarg;
            break;
        case 'f':
            freeze_limit_test((unsigned)atoi(optarg));
            break;
        case 'I':
            into.name = optarg;
            break;
        case 'D':
            into.driver = optarg;
            break;
        case 'T':
            into.target = optarg;
            break;
        default:
            return 99;
        }
    }
    own.match = match;
    if (getenv("SNAPFERRY_RBD"))
        rbd_program_test(getenv("SNAPFERRY_RBD"));
    log_to(log_stderr, NULL);
    d = driver_by_name(own.driver);
    for (size_t i = 0; d && optind < argc && i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verbs[i].name, argv[optind]) != 0 || argc - optind - 1 < verbs[i].args)
            continue;
        if (verbs[i].fn(argv + optind + 1) >= 0)
            return 0;
        fprintf(stderr, "%s%s%s%s\n", e.msg, e.hint[0] ? " (" : "", e.hint, e.hint[0] ? ")" : "");
        return e.cls ? (int)e.cls : 98;
    }
    fprintf(stderr, "unknown driver or verb, or too few arguments\n");
    return 99;
}
