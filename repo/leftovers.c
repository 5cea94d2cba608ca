/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/leftovers.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "repo/marker.h"

#include <stdlib.h>
#include <string.h>

/* PackDeleteMinAge and SessionExpirationAge of stock clients. */
#define FILE_AGE_NS (24 * NS_PER_H)
#define SESSION_AGE_NS (96 * NS_PER_H)

struct judge {
    int64_t now_ns; /* of the storage's clock, or earlier */
    struct session {
        char id[SESSION_ID_TEXT];
        int64_t seen_ns;
    } * sessions;
    size_t n;
    struct err *e;
};

static void judge_fini(struct judge *j)
{
    free(j->sessions);
}

/* The storage's clock shows at least the time of its newest file: nothing has to be written to learn it, and a
 * repository that nobody writes to is left alone. */
static int newest(const struct blob_info *i, void *arg)
{
    struct judge *j = arg;
    if (i->mtime_ns > j->now_ns)
        j->now_ns = i->mtime_ns;
    return 0;
}

static int add_marker(const struct blob_info *i, void *arg)
{
    struct judge *j = arg;
    newest(i, arg);
    if ((j->n & (j->n - 1)) == 0) {
        void *p = realloc(j->sessions, (j->n ? 2 * j->n : 1) * sizeof *j->sessions);
        if (!p)
            return err_nomem(j->e);
        j->sessions = p;
    }
    struct session *s = &j->sessions[j->n];
    s->seen_ns = i->mtime_ns;
    j->n += session_id_of_blob(i->name, s->id);
    return 0;
}

static int is_abandoned(const struct blob_info *i, void *arg)
{
    const struct judge *j = arg;
    char id[SESSION_ID_TEXT];
    if (i->mtime_ns > j->now_ns - FILE_AGE_NS)
        return 0;
    if (!session_id_of_blob(i->name, id))
        return 1;
    for (size_t k = 0; k < j->n; k++)
        if (!strcmp(id, j->sessions[k].id) && j->sessions[k].seen_ns > j->now_ns - SESSION_AGE_NS)
            return 0;
    return 1;
}

int leftovers_remove_in(struct blobs *b, bool dry_run, struct blob_leftovers *ret, struct err *e)
{
    /* Written by each session, by maintenance, and by each run of a copy. */
    static const char *const dated[] = {"x", "n", "kopia.", "_snapferry."};
    CLEANUP(judge_fini) struct judge j = {.now_ns = INT64_MIN + SESSION_AGE_NS, .e = e};
    *ret = (struct blob_leftovers){0};
    if (!blobs_are_files(b)) /* no such files: nothing has to be listed for them */
        return 0;
    int rc = blobs_list(b, "s", add_marker, &j, e);
    for (size_t i = 0; i < sizeof dated / sizeof *dated && rc == 0; i++)
        rc = blobs_list(b, dated[i], newest, &j, e);
    if (rc < 0)
        return rc;
    /* A file with a time in the future must not make others look old. */
    if (j.now_ns > now_ns())
        j.now_ns = now_ns();
    return blobs_leftovers(b, is_abandoned, &j, dry_run, ret, e);
}

int leftovers_remove(struct repo *r, bool dry_run, struct blob_leftovers *ret, struct err *e)
{
    return leftovers_remove_in(repo_blobs(r), dry_run, ret, e);
}
