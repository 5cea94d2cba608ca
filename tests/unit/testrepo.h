/* SPDX-License-Identifier: GPL-2.0-or-later */
/* testrepo.h - repositories in a directory of their own, for the tests of objects, manifests and snapshots. */
#ifndef SNAPFERRY_TESTS_UNIT_TESTREPO_H
#define SNAPFERRY_TESTS_UNIT_TESTREPO_H

#include "tests/unit/test.h"

#include "repo/repo.h"

#include <ftw.h>
#include <jansson.h>

struct testrepo {
    char dir[32];
    struct repo *r;
    struct session *s; /* testrepo_new() only */
    struct put_scratch *p;
};

static inline int testrepo_rm(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void testrepo_open(struct testrepo *t, const char *repo, const char *password)
{
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    char cache[64];
    snprintf(cache, sizeof cache, "%s/cache", t->dir);
    struct repo_opts o = {.cache_dir = cache, .username = "test", .hostname = "host"};
    assert_ok(blobs_open_dir(&b, repo, BLOBS_OPEN, NULL, 0, &e), &e);
    assert_ok(repo_open(&t->r, b, password, &o, &e), &e);
}

static inline void testrepo_dir(struct testrepo *t)
{
    *t = (struct testrepo){.r = NULL};
    assert_non_null(scratch_new(t->dir, sizeof t->dir));
}

/* A new, empty repository. `secret` (32 bytes) decides the content ids; NULL: random. */
static inline void testrepo_new(struct testrepo *t, const char *splitter, const uint8_t *secret)
{
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    char repo[64];
    testrepo_dir(t);
    snprintf(repo, sizeof repo, "%s/repo", t->dir);
    /* The same id each time: its key is derived once in a process (keys.c). */
    struct format_create c = {.splitter = splitter, .unique_id = test_unique_id, .secret = secret};
    assert_ok(blobs_open_dir(&b, repo, BLOBS_CREATE, NULL, 0, &e), &e);
    assert_ok(format_create(b, &c, "test", &e), &e);
    blobs_free(b);
    testrepo_open(t, repo, "test");
    assert_ok(session_new(&t->s, t->r, NULL, &e), &e);
    assert_ok(put_scratch_new(&t->p, t->r, 0x1101, (size_t)16 << 20, &e), &e);
}

/* Puts what was written into the index, where manifests are found. */
static inline void testrepo_flush(struct testrepo *t)
{
    struct err e = ERR_INIT;
    assert_ok(session_flush(t->s, &e), &e);
}

/* A golden repository with its expected results; only read. */
static inline json_t *testrepo_golden(struct testrepo *t, const char *name)
{
    char file[256];
    snprintf(file, sizeof file, "%s.expected.json", name);
    json_t *x = json_load_file(golden_path(file), 0, NULL);
    assert_non_null(x);
    testrepo_dir(t);
    testrepo_open(t, golden_path(name), json_string_value(json_object_get(x, "password")));
    return x;
}

static inline void testrepo_free(struct testrepo *t)
{
    put_scratch_free(t->p);
    session_free(t->s);
    repo_free(t->r);
    nftw(t->dir, testrepo_rm, 16, FTW_DEPTH | FTW_PHYS);
}

/* Calls fn with the tab-separated fields of each line of an expected file (also .xz), comment lines left out. */
static inline unsigned testrepo_tsv(const char *name, const char *file, void (*fn)(char **fields, void *arg), void *arg)
{
    char path[256], cmd[4400];
    snprintf(path, sizeof path, "%s.expected/%s", name, file);
    const char *full = golden_path(path);
    snprintf(cmd, sizeof cmd, "if [ -f '%s' ]; then cat '%s'; else xz -dc '%s.xz'; fi", full, full, full);
    FILE *f = popen(cmd, "r");
    assert_non_null(f);
    char *line CLEANUP_FREE = NULL;
    size_t cap = 0;
    unsigned n = 0;
    while (getline(&line, &cap, f) > 0) {
        char *fields[16] = {NULL}, *rest = line;
        if (line[0] == '#')
            continue;
        line[strcspn(line, "\n")] = '\0';
        for (unsigned i = 0; i < 16 && rest; i++)
            fields[i] = strsep(&rest, "\t");
        fn(fields, arg);
        n++;
    }
    assert_int_equal(pclose(f), 0);
    return n;
}

#endif
