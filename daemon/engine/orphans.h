/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * orphans.h - what has the tag of this node on the storage and is in no record
 *
 * Each sweep of the storage lists them (sweep.c). Those whose grace is over are removed; the others sooner if somebody
 * asks for it. Why one could not be removed is kept until it is gone.
 */
#ifndef SNAPFERRY_DAEMON_ENGINE_ORPHANS_H
#define SNAPFERRY_DAEMON_ENGINE_ORPHANS_H

#include "daemon/engine/engine-impl.h"

enum orphan_kind { ORPHAN_NATIVE, ORPHAN_BOOKMARK, ORPHAN_INTERMEDIATE, ORPHAN_KINDS };

struct orphan {
    enum orphan_kind kind;
    char *alias, *klass;
    char *volume, *handle; /* "": not known */
    int64_t created_ns;    /* 0: nobody can need it any more, no grace */
    bool made;             /* an intent names it: it is being made, or undone already */
    bool stale;            /* its class has not answered since: it is not known whether it is still so */
    json_t *request;       /* what step_remove(), or step_undo() of an intermediate, is given */
    char *error, *hint;    /* "": it was not tried, or is not there any more */
};

/* What follows replaces the list; the errors are taken over. */
void orphans_begin(struct engine *g);
/* Copies the texts, takes `request` over. */
void orphans_add(struct engine *g, const struct orphan *x, json_t *request);
/* A class that has not answered: what was listed of it stays in the list. */
void orphans_unswept(struct engine *g, const char *klass, const char *why);
/* All are added: those that are due are removed, and who asked for a release is served. */
void orphans_listed(struct engine *g);
/* The storage could not be swept. */
void orphans_not_listed(struct engine *g, const struct err *why);
/* Whether somebody waits for a look at the storage. */
bool orphans_asked(const struct engine *g);
/* A look begins: it serves all who wait. */
void orphans_looking(struct engine *g);
/* The daemon stops: who waits is refused. */
void orphans_stop(struct engine *g, const struct err *why);
void orphans_free(struct engine *g);

unsigned orphans_count(const struct engine *g, enum orphan_kind k);
const char *orphan_kind_name(enum orphan_kind k); /* "native snapshot", "bookmark", "intermediate" */
/* For answers: of malloc(), its texts valid until the next event. NULL: there are none. */
struct answer_orphan;
struct answer_orphan *orphans_for_answers(const struct engine *g, unsigned *n);

/* engine_native_release(), before the look at the storage that it waits for. Replies at once, and returns false, if
 * the request is refused. */
bool orphans_ask(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);

#endif
