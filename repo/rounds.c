/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rounds.c - rounds of a session: begun with a record and a marker, ended; the failure that stops a session */
#include "repo/session-impl.h"

#include "base/crash.h"

#include <stdlib.h>

/* A marker protects packs for 96 h (section 10); it is renewed long before. */
#define MARKER_RENEW_NS (12 * NS_PER_H)

void session_fail(struct session *s, const struct err *e)
{
    if (!s->failed) {
        s->failed = true;
        s->failure = *e;
        if (!s->failure.hint[0])
            err_hint(&s->failure, "data flushed before is safe; the next run uses the finished packs");
    }
    pthread_cond_broadcast(&s->changed);
}

int session_check(const struct session *s, struct err *e)
{
    if (!s->failed)
        return 0;
    if (e)
        *e = s->failure;
    return -(s->failure.sys ? s->failure.sys : EIO);
}

struct round *session_round(struct session *s, struct err *e)
{
    if (s->current)
        return s->current;
    struct round *r = calloc(1, sizeof *r);
    if (!r) {
        err_nomem(e);
        return NULL;
    }
    r->session = s;
    r->started_ns = now_ns();
    if (session_id_new(r->id, r->started_ns, e) < 0) {
        free(r);
        return NULL;
    }
    struct round **end = &s->rounds;
    while (*end)
        end = &(*end)->next;
    *end = r;
    s->current = r;
    return r;
}

static int add_marker(struct session *s, struct round *r, struct err *e)
{
    char(*all)[BLOB_NAME_MAX + 1] = realloc(r->markers, (r->n_markers + 1) * sizeof *all);
    if (!all)
        return err_nomem(e);
    r->markers = all;
    all[r->n_markers][0] = '\0';
    int64_t now = now_ns();
    int rc = marker_put(s->repo, r->id, r->started_ns, all[r->n_markers], e);
    if (rc == 0) {
        r->n_markers++;
        r->marked_ns = now;
    } else if (all[r->n_markers][0]) {
        struct err ignored = ERR_INIT; /* it may or may not exist; the first failure is the one that matters */
        blobs_delete(s->repo->blobs, all[r->n_markers], &ignored);
    }
    return rc;
}

/* With `begin_lock` held. */
static int add_record(struct session *s, struct round *r, struct err *e)
{
    return r->record ? 0 : session_record_new(&r->record, s->repo, r->id, e);
}

int round_record(struct session *s, struct round *r, struct err *e)
{
    pthread_mutex_lock(&s->begin_lock);
    const int rc = add_record(s, r, e);
    pthread_mutex_unlock(&s->begin_lock);
    return rc;
}

int round_begin(struct session *s, struct round *r, struct err *e)
{
    pthread_mutex_lock(&s->begin_lock);
    /* The record first: a marker without one would never be deleted by this node. */
    int rc = add_record(s, r, e);
    int64_t age = now_ns() - r->marked_ns;
    if (rc == 0 && (r->marked_ns == 0 || age > MARKER_RENEW_NS || age < -NS_PER_H))
        rc = add_marker(s, r, e);
    pthread_mutex_unlock(&s->begin_lock);
    return rc;
}

static void *marker_main(void *arg)
{
    struct round *r = arg;
    struct session *s = r->session;
    struct err err = ERR_INIT;
    const int rc = round_begin(s, r, &err);
    pthread_mutex_lock(&s->lock);
    if (rc < 0)
        session_fail(s, &err);
    r->marking = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

void session_mark(struct session *s)
{
    pthread_mutex_lock(&s->lock);
    struct round *r = s->current;
    /* Without a thread whoever opens the first pack does it. */
    if (r && !r->marks && r->marked_ns == 0)
        r->marking = r->marks = pthread_create(&r->marker, NULL, marker_main, r) == 0;
    pthread_mutex_unlock(&s->lock);
}

int round_marked(struct session *s, const struct round *r, struct err *e)
{
    while (r->marking)
        pthread_cond_wait(&s->changed, &s->lock);
    return r->n_markers > 0 ? 0 : session_check(s, e);
}

void round_end(struct session *s, struct round *r, bool leave)
{
    if (r->marks)
        pthread_join(r->marker, NULL);
    bool cleared = !leave;
    for (size_t i = 0; i < r->n_markers && !leave; i++) {
        struct err err = ERR_INIT;
        if (blobs_delete(s->repo->blobs, r->markers[i], &err) < 0) {
            /* Everything is stored and indexed; other clients ignore the marker after 4 days. */
            log_warning("cannot delete a session marker, retried by the next run: %s", err.msg);
            cleared = false;
        }
    }
    if (r->n_markers > 0 && cleared)
        crash_point("marker-deleted");
    session_record_end(r->record, cleared);
    free(r->markers);
    free(r);
}
