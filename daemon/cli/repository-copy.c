/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repository-copy.c - `repo sync-to`: a second place with the same repository */
#include "daemon/cli/cli.h"
#include "daemon/cli/verdicts.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "base/units.h"
#include "repo/copy.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The path that a directory has, or will have: its parent has to be there. */
static bool real_path(const char *path, char out[PATH_MAX])
{
    char parent[PATH_MAX];
    if (realpath(path, out))
        return true;
    if (snprintf(parent, sizeof parent, "%s", path) >= (int)sizeof parent)
        return false;
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/')
        parent[--n] = '\0';
    const char *slash = strrchr(parent, '/'), *last = slash ? slash + 1 : parent;
    CLEANUP_FREE char *name = strdup(last);
    snprintf(parent + (slash ? (size_t)(slash - parent) + 1 : 0), 2, "%s", slash ? "" : ".");
    if (!name || !realpath(parent, out))
        return false;
    n = strlen(out);
    return (size_t)snprintf(out + n, PATH_MAX - n, "/%s", name) < PATH_MAX - n;
}

/* One in the other would copy itself, and be taken for blobs of the other. */
static int check_apart(const char *from, const char *to, struct err *e)
{
    char a[PATH_MAX], b[PATH_MAX];
    if (strstr(from, "://") || !real_path(from, a) || !real_path(to, b))
        return 0; /* not both are directories, or the place cannot be made */
    const size_t m = strlen(a), n = strlen(b), less = m < n ? m : n;
    if (strncmp(a, b, less) != 0 || (m != n && (m < n ? b : a)[less] != '/'))
        return 0;
    return err_plain(e, ERR_USAGE, EINVAL, "cannot copy repository %s to %s: one is in the other", text_name(from),
                     text_name(to));
}

/* The place of the copy: of any form that -r takes. */
static int open_copy(const struct options *o, struct blobs **ret, struct err *e)
{
    struct options there = *o;
    struct err not_new = ERR_INIT;
    there.repo = o->args[0];
    there.at_ns = 0;
    if (o->dry_run) {
        there.verb = VERB_REPO_CREATE; /* it need not be there */
        int rc = cli_open_blobs(&there, BLOBS_OPEN, NULL, 0, ret, &not_new);
        if (rc >= 0 || not_new.cls == ERR_NO_REPO)
            return 0;
        *e = not_new;
        return rc;
    }
    there.verb = VERB_REPO_CREATE;
    int rc = cli_open_blobs(&there, BLOBS_CREATE, NULL, 0, ret, &not_new);
    if (rc >= 0)
        return rc;
    if (not_new.cls == ERR_EXISTS)
        return cli_open_blobs(&there, BLOBS_OPEN, NULL, 0, ret, e);
    *e = not_new;
    return rc;
}

static json_t *sum_json(const struct copy_sum *s)
{
    return json_pack("{s:I, s:I}", "count", (json_int_t)s->n, "bytes", (json_int_t)s->bytes);
}

static void print_copy(const struct options *o, const char *place, const struct copy_result *c, double seconds)
{
    if (o->json) {
        print_json(json_pack("{s:s, s:s, s:s, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:i, s:f}", "type", "result", "verb",
                             "repo sync-to", "copy", place, "dryRun", (int)o->dry_run, "verified",
                             (int)(o->verify && !o->dry_run), "copied", sum_json(&c->copied), "present",
                             sum_json(&c->present), "surplus", sum_json(&c->surplus), "leftovers", sum_json(&c->left),
                             "extendedLocks", sum_json(&c->extended), "rounds", (int)c->rounds, "seconds", seconds));
        return;
    }
    if (o->quiet)
        return;
    printf("%s %llu blob%s, %s, to %s", o->dry_run ? "Would copy" : "Copied", (unsigned long long)c->copied.n,
           plural(c->copied.n), text_bytes(c->copied.bytes), place);
    printf("; %llu blob%s, %s, %s there.\n", (unsigned long long)c->present.n, plural(c->present.n),
           text_bytes(c->present.bytes), c->present.n == 1 ? "was" : "were");
    if (c->surplus.n)
        printf("The copy keeps %llu blob%s, %s, that the repository does not have any more.\n",
               (unsigned long long)c->surplus.n, plural(c->surplus.n), text_bytes(c->surplus.bytes));
    if (c->extended.n)
        printf("%s the object locks of %llu blob%s, %s.\n", o->dry_run ? "Would extend" : "Extended",
               (unsigned long long)c->extended.n, plural(c->extended.n), text_bytes(c->extended.bytes));
    print_leftovers(c->left.n, c->left.bytes, o->dry_run);
}

int cli_repo_sync(const struct options *o, struct err *e)
{
    struct mover_progress progress = {0};
    struct mover_cancel *cancel = cli_cancel();
    CLEANUP(repo_freep) struct repo *r = NULL;
    CLEANUP(blobs_freep) struct blobs *to = NULL;
    struct throttle reads = mover_reads(o->read_limit, cancel), writes = mover_writes(o->write_limit, cancel);
    const double since = mono_s();
    int rc = cli_open_repo(o, &r, e);
    if (rc >= 0)
        rc = check_apart(blobs_location(repo_blobs(r)), o->args[0], e);
    if (rc >= 0)
        rc = open_copy(o, &to, e);
    if (rc < 0)
        return rc;
    const struct copy_opts opts = {.dry_run = o->dry_run,
                                   .verify = o->verify,
                                   .stop = &cancel->requested,
                                   .total = &progress.total,
                                   .done = &progress.done};
    blobs_limit(repo_blobs(r), &reads, NULL);
    blobs_stop(repo_blobs(r), &cancel->requested);
    if (to) {
        blobs_limit(to, NULL, &writes);
        blobs_stop(to, &cancel->requested);
    }
    struct progress_view *view;
    struct copy_result c;
    atomic_store(&progress.phase, PHASE_MOVING);
    rc = progress_start(&view, o, "repo sync-to", &progress, e);
    if (rc < 0)
        return rc;
    rc = repo_copy(r, to, &opts, &c, e);
    progress_stop(view);
    blobs_limit(repo_blobs(r), NULL, NULL);
    blobs_stop(repo_blobs(r), NULL);
    if (rc == -ECANCELED)
        err_hint(e, "what was copied is kept; the next run continues from there");
    if (rc < 0)
        return rc;
    print_copy(o, to ? blobs_location(to) : text_name(o->args[0]), &c, mono_s() - since);
    return 0;
}
