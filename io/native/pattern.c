/* SPDX-License-Identifier: GPL-2.0-or-later */
/* pattern.c - files that a class's patterns match */
#include "io/native/pattern.h"

#include "base/cleanup.h"
#include "io/native/path.h"
#include "io/native/tag.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MATCHES_MAX 1000000 /* a pattern that matches more is a mistake */

static bool is_plain(const char *s)
{
    return !strpbrk(s, "*?[\\");
}

struct walk {
    pattern_dir_fn *fn;
    void *arg;
    struct err *e;
};

static int walk(const struct walk *w, const char *dir, char *rest);

/* Each sub-directory that the component matches. */
static int walk_matches(const struct walk *w, const char *dir, const char *component, char *rest)
{
    CLEANUP_CLOSEDIR DIR *d = opendir(dir);
    const struct dirent *de;
    int rc = 0;
    while (rc == 0 && d && (de = readdir(d))) {
        char path[VOLUME_NAME_MAX];
        struct stat st;
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0 || strcmp(de->d_name, HIDDEN_DIR) == 0 ||
            fnmatch(component, de->d_name, FNM_PATHNAME) != 0 || path_join(path, dir, de->d_name, NULL) < 0 ||
            fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
            continue;
        rc = walk(w, path, rest);
    }
    return rc;
}

/* `rest` has no slash at its beginning; it is changed and restored. */
static int walk(const struct walk *w, const char *dir, char *rest)
{
    while (*rest == '/')
        rest++;
    char *slash = strchr(rest, '/');
    if (!slash) {
        struct stat st;
        return stat(dir, &st) == 0 && S_ISDIR(st.st_mode) ? w->fn(dir, rest, w->arg) : 0;
    }
    *slash = '\0';
    int rc;
    if (is_plain(rest)) {
        char path[VOLUME_NAME_MAX];
        rc = path_join(path, dir, rest, w->e);
        if (rc == 0)
            rc = walk(w, path, slash + 1);
    } else {
        rc = walk_matches(w, dir, rest, slash + 1);
    }
    *slash = '/';
    return rc;
}

int pattern_dirs(const char *pattern, pattern_dir_fn *fn, void *arg, struct err *e)
{
    const struct walk w = {fn, arg, e};
    if (pattern[0] != '/')
        return err_set(e, ERR_USAGE, EINVAL, "pattern \"%s\" is not an absolute path", pattern);
    CLEANUP_FREE char *copy = strdup(pattern);
    return copy ? walk(&w, "/", copy + 1) : err_nomem(e);
}

/* ---- whole paths ---- */

struct gather {
    struct paths *p;
    struct err *e;
};

static int add_path(struct gather *g, const char *dir, const char *name)
{
    char path[VOLUME_NAME_MAX];
    if (path_join(path, dir, name, NULL) < 0)
        return 0; /* longer than any name that can be recorded */
    if (g->p->n >= MATCHES_MAX)
        return err_set(g->e, ERR_USAGE, E2BIG, "patterns match more than %d files, one of them %s", MATCHES_MAX, path);
    if (g->p->n % 64 == 0) {
        void *p = reallocarray(g->p->path, g->p->n + 64, sizeof *g->p->path);
        if (!p)
            return err_nomem(g->e);
        g->p->path = p;
    }
    if (!(g->p->path[g->p->n] = strdup(path)))
        return err_nomem(g->e);
    g->p->n++;
    return 0;
}

static int match_names(const char *dir, const char *last, void *arg)
{
    struct gather *g = arg;
    if (is_plain(last)) {
        char path[VOLUME_NAME_MAX];
        struct stat st;
        return *last && path_join(path, dir, last, NULL) == 0 && lstat(path, &st) == 0 ? add_path(g, dir, last) : 0;
    }
    CLEANUP_CLOSEDIR DIR *d = opendir(dir);
    const struct dirent *de;
    int rc = 0;
    if (!d)
        log_warning("cannot search %s for volumes: %s", dir, strerror(errno));
    while (rc == 0 && d && (de = readdir(d)))
        if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0 && strcmp(de->d_name, HIDDEN_DIR) != 0 &&
            fnmatch(last, de->d_name, FNM_PATHNAME) == 0)
            rc = add_path(g, dir, de->d_name);
    return rc;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int pattern_paths(const char *const *patterns, struct paths *ret, struct err *e)
{
    struct gather g = {ret, e};
    int rc = 0;
    memset(ret, 0, sizeof *ret);
    for (size_t i = 0; rc == 0 && patterns && patterns[i]; i++)
        rc = pattern_dirs(patterns[i], match_names, &g, e);
    if (rc != 0) {
        paths_free(ret);
        return rc;
    }
    if (ret->n)
        qsort(ret->path, ret->n, sizeof *ret->path, by_text);
    size_t k = 0;
    for (size_t i = 0; i < ret->n; i++) {
        if (k && strcmp(ret->path[k - 1], ret->path[i]) == 0)
            free(ret->path[i]);
        else
            ret->path[k++] = ret->path[i];
    }
    ret->n = k;
    return 0;
}

void paths_free(struct paths *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->path[i]);
    free(p->path);
    memset(p, 0, sizeof *p);
}
