/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * age_repository - lets time pass for a repository: everything in it becomes older by some hours
 *
 *   age_repository REPO PASSWORD-FILE HOURS [owner|disabled]
 *
 * Times of entries in index blobs, the deletion watermark, the history of maintenance, signs of life of sessions, and
 * the times of all files; with `owner` the parameters of maintenance, too, which makes a new pack; with `disabled`
 * their cycles are disabled as well. No client may be using it.
 */
#include "base/cleanup.h"
#include "base/password.h"
#include "base/time.h"
#include "repo/marker.h"
#include "repo/item.h"
#include "repo/maintenance.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int64_t shift_s;

static _Noreturn void die(const struct err *e)
{
    fprintf(stderr, "age_repository: %s\n", e->msg);
    exit(1);
}

struct names {
    struct blob_info *b;
    size_t n;
};

static int add_name(const struct blob_info *i, void *arg)
{
    struct names *l = arg;
    l->b = realloc(l->b, (l->n + 1) * sizeof *l->b);
    if (!l->b)
        abort();
    l->b[l->n++] = *i;
    return 0;
}

/* Bytes of a named blob in place of it, under a name of their own with the same beginning and end. */
static void replace(struct repo *r, const struct blob_info *old, const char *prefix, const void *data, size_t len)
{
    struct err e = ERR_INIT;
    const char *suffix = strchr(old->name, '-');
    char name[BLOB_NAME_MAX + 1], full[2 * BLOB_NAME_MAX];
    uint8_t *sealed;
    size_t sealed_len;
    const bool in_name = prefix[0] == 's'; /* of session markers: part of what is sealed; of indexes: in front of it */
    if (named_seal(repo_sealer(r), in_name ? prefix : "", suffix ? suffix + 1 : NULL, data, len, name, &sealed,
                   &sealed_len, &e) < 0)
        die(&e);
    snprintf(full, sizeof full, "%s%s", in_name ? "" : prefix, name);
    if (blobs_put(repo_blobs(r), full, sealed, sealed_len, &e) < 0)
        die(&e);
    struct timespec t[2] = {ns_timespec(old->mtime_ns), ns_timespec(old->mtime_ns)};
    int fd = blobs_open_file(repo_blobs(r), full, &e);
    if (fd < 0 || futimens(fd, t) < 0)
        die(&e);
    close(fd);
    free(sealed);
    if (strcmp(full, old->name) != 0 && blobs_delete(repo_blobs(r), old->name, &e) < 0)
        die(&e);
}

static void age_index(struct repo *r, const struct blob_info *b)
{
    struct err e = ERR_INIT;
    uint8_t *sealed, *plain, *out;
    size_t sealed_len, len;
    struct index_table t;
    if (blobs_get(repo_blobs(r), b->name, SIZE_MAX / 2, &sealed, &sealed_len, &e) < 0 ||
        named_open(repo_sealer(r), b->name, sealed, sealed_len, &plain, &len, &e) < 0 ||
        index_parse(&t, plain, len, &e) < 0)
        die(&e);
    struct index_entry *all = calloc(t.count + 1, sizeof *all);
    if (!all)
        abort();
    for (uint64_t i = 0; i < t.count; i++) {
        if (index_entry_at(&t, i, &all[i], &e) < 0)
            die(&e);
        all[i].time -= shift_s;
    }
    if (index_build(all, t.count, t.version, false, &out, &len, &e) < 0)
        die(&e);
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%.*s_", (int)(strrchr(b->name, '_') - b->name), b->name);
    replace(r, b, prefix, out, len);
    free(out);
    free(all);
    free(plain);
    free(sealed);
}

static void age_text(json_t *of, const char *name)
{
    int64_t ns;
    char text[TIME_TEXT];
    const char *v = json_string_value(json_object_get(of, name));
    if (v && time_parse(&ns, v) == 0)
        json_object_set_new(of, name, json_string(time_text(ns - shift_s * NS_PER_S, text)));
}

static void age_marker(struct repo *r, const struct blob_info *b)
{
    struct err e = ERR_INIT;
    uint8_t *sealed, *plain;
    size_t sealed_len, len;
    if (blobs_get(repo_blobs(r), b->name, 1 << 20, &sealed, &sealed_len, &e) < 0 ||
        named_open(repo_sealer(r), b->name, sealed, sealed_len, &plain, &len, &e) < 0)
        die(&e);
    json_t *j = json_loadb((const char *)plain, len, 0, NULL);
    age_text(j, "startTime");
    age_text(j, "checkpointTime");
    char *text = json_dumps(j, JSON_COMPACT);
    replace(r, b, "s", text, strlen(text));
    free(text);
    json_decref(j);
    free(plain);
    free(sealed);
}

static void age_schedule(struct repo *r)
{
    struct err e = ERR_INIT;
    struct maintenance_schedule s;
    const char *task;
    json_t *list;
    if (maintenance_load(r, &s, &e) < 0)
        die(&e);
    if (s.mtime_ns == INT64_MIN)
        return;
    json_object_foreach(json_object_get(s.doc, "runs"), task, list)
    {
        for (size_t i = 0; i < json_array_size(list); i++) {
            age_text(json_array_get(list, i), "start");
            age_text(json_array_get(list, i), "end");
        }
    }
    age_text(s.doc, "nextFullMaintenance");
    age_text(s.doc, "nextQuickMaintenance");
    if (maintenance_store(r, &s, &e) < 0)
        die(&e);
    maintenance_clear(&s);
}

/* ---- the parameters of maintenance ---- */

static int64_t clock_shift_s;

/* Called by the clock of the program itself: a manifest has the time at which it was added. */
int clock_gettime(clockid_t id, struct timespec *t)
{
    const int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (rc == 0 && id == CLOCK_REALTIME)
        t->tv_sec -= clock_shift_s;
    return rc;
}

struct params {
    json_t *doc;
    char id[33];
    int64_t modified_ns;
};

static int params_find(const struct manifest *m, void *arg)
{
    struct params *p = arg;
    if (p->doc)
        abort(); /* one of a test that has no race */
    p->doc = json_deep_copy(m->data);
    p->modified_ns = m->modified_ns;
    memcpy(p->id, m->id, sizeof p->id);
    return 0;
}

static void age_params(struct repo *r, bool disabled)
{
    struct err e = ERR_INIT;
    struct params p = {.doc = NULL};
    struct manifest_batch *b = NULL;
    struct session *s = NULL;
    struct put_scratch *scratch = NULL;
    json_t *type = json_pack("{s:s}", "type", "maintenance");
    if (manifests_each(r, "maintenance", params_find, &p, &e) < 0 || manifest_batch_new(&b, &e) < 0)
        die(&e);
    age_text(p.doc, "snapferryTaken");
    if (disabled) {
        json_object_set_new(json_object_get(p.doc, "quick"), "enabled", json_false());
        json_object_set_new(json_object_get(p.doc, "full"), "enabled", json_false());
    }
    if (manifest_batch_delete(b, p.id, &e) < 0)
        die(&e);
    clock_shift_s = (now_ns() - p.modified_ns) / NS_PER_S + shift_s;
    if (manifest_batch_add(b, type, p.doc, NULL, &e) < 0)
        die(&e);
    clock_shift_s = 0;
    if (session_new(&s, r, NULL, &e) < 0 || put_scratch_new(&scratch, r, 0x1101, 1 << 20, &e) < 0 ||
        manifest_batch_put(b, s, scratch, &e) < 0 || session_flush(s, &e) < 0)
        die(&e);
    put_scratch_free(scratch);
    session_free(s);
    manifest_batch_free(b);
    json_decref(type);
    json_decref(p.doc);
}

static int age_file(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)f;
    struct timespec t[2] = {st->st_atim, st->st_mtim};
    t[0].tv_sec -= shift_s;
    t[1].tv_sec -= shift_s;
    return type == FTW_F ? utimensat(AT_FDCWD, path, t, 0) : 0;
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct blobs *b;
    struct repo *r;
    char *password;
    const bool params = argc == 5 && (!strcmp(argv[4], "owner") || !strcmp(argv[4], "disabled"));
    if (argc != 4 && !params)
        return 2;
    shift_s = atoll(argv[3]) * 3600;
    if (password_read(&password, argv[2], false, &e) < 0 || blobs_open_dir(&b, argv[1], BLOBS_OPEN, NULL, 0, &e) < 0 ||
        repo_open(&r, b, password, &(struct repo_opts){0}, &e) < 0)
        die(&e);
    if (params)
        age_params(r, argv[4][0] == 'd');
    struct names l = {0};
    if (blobs_list(repo_blobs(r), "x", add_name, &l, &e) < 0 || blobs_list(repo_blobs(r), "s", add_name, &l, &e) < 0)
        die(&e);
    age_schedule(r);
    for (size_t i = 0; i < l.n; i++) {
        const char *name = l.b[i].name;
        int64_t s;
        if (name[0] == 's') {
            age_marker(r, &l.b[i]);
        } else if (name[1] == 'n' || name[1] == 's' || name[1] == 'r') {
            age_index(r, &l.b[i]);
        } else if (name[1] == 'w' && (s = atoll(name + 2)) > 0) {
            char aged[64];
            snprintf(aged, sizeof aged, "xw%" PRId64, s - shift_s);
            if (blobs_put(repo_blobs(r), aged, "deletion-watermark", 18, &e) < 0 ||
                blobs_delete(repo_blobs(r), name, &e) < 0)
                die(&e);
        }
    }
    free(l.b);
    repo_free(r);
    password_free(password);
    return nftw(argv[1], age_file, 16, FTW_PHYS) < 0;
}
