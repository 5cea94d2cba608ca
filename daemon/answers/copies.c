/* SPDX-License-Identifier: GPL-2.0-or-later */
/* copies.c - state of the copies of repositories */
#include "base/units.h"
#include "base/time.h"
#include "daemon/answers/answers-impl.h"
#include "daemon/decide/copies.h"

#include <inttypes.h>
#include <stdio.h>

static void put_made(json_t *o, const struct copy_memory *m)
{
    put_ns(o, "last_ns", m->tried_ns);
    put_text(o, "last_state", outcome_name(m->outcome));
    put_text(o, "operation", m->operation);
    put_text(o, "error", m->error);
    if (!m->good_ns)
        return;
    put_ns(o, "done_ns", m->good_ns);
    put_text(o, "done_path", m->place);
    jset_int(o, "copied", m->copied_bytes);
    jset_int(o, "blobs", m->blobs);
    jset_int(o, "bytes", m->bytes);
    jset_int(o, "surplus", m->surplus_bytes);
    if (m->deleted_bytes)
        jset_int(o, "deleted", m->deleted_bytes);
    if (m->lost)
        jset_int(o, "lost", m->lost);
    if (m->held_bytes)
        jset_int(o, "held", m->held_bytes);
}

/* What a mirror would have deleted, too. */
static void add_lost(const struct cfg_copy *k, const struct copy_memory *m, json_t *problems)
{
    if (m && m->lost)
        add_problem(problems, "error", "verify the repository; see docs/copies.md for how the copy gives them back",
                    "repository \"%s\" has lost %" PRId64 " pack%s that its index needs; copy \"%s\" has %s",
                    k->repository, m->lost, plural((uint64_t)m->lost), k->name, m->lost == 1 ? "it" : "them");
}

static void add_problems(const struct answer_facts *f, const struct cfg_copy *k, const struct copy_memory *m,
                         const struct copy_times *t, json_t *problems)
{
    const struct answer_repository *s = find_repository(f, k->repository);
    char hint[700];
    if (m && m->outcome == OUTCOME_FAILED) {
        snprintf(hint, sizeof hint, "`snapferry describe %.400s` shows the run; `snapferry copy %s --wait` repeats it",
                 m->operation, k->name);
        add_problem(problems, "error", hint, "copy \"%s\" of repository \"%s\" failed: %s", k->name, k->repository,
                    m->error);
    } else if (m && m->held_bytes) {
        snprintf(hint, sizeof hint,
                 "find out what deleted it in the repository; if that is right: `snapferry copy %s --delete-most`",
                 k->name);
        add_problem(problems, "error", hint,
                    "copy \"%s\": nothing is deleted: more than half of it is not in repository \"%s\" any more",
                    k->name, k->repository);
    } else if (t->late_ns && (!s || s->up)) {
        const bool ever = m && m->good_ns;
        snprintf(hint, sizeof hint, "`snapferry copy %s --wait` shows why", k->name);
        add_problem(problems, "warning", hint, "copy \"%s\" of repository \"%s\" is overdue: %s %s%s", k->name,
                    k->repository, ever ? "last made" : "never made, for",
                    hours_words(f->now_ns - t->late_ns, (char[24]){0}), ever ? " ago" : "");
    }
}

json_t *list_copies(const struct answer_facts *f, json_t *problems)
{
    json_t *list = json_array();
    const struct cfg_copy *k;
    for (unsigned i = 0; f->cfg && (k = cfg_copy_at(f->cfg, i)); i++) {
        const struct copy_memory *m = copy_known(f->records, k->name);
        struct copy_times t;
        char place[CFG_PLACE_MAX];
        copy_times(k, m, f->now_ns, &t);
        json_t *o = json_pack("{s:s,s:s,s:s}", "name", k->name, "repository", k->repository, "path",
                              cfg_repository_place(&k->place, place));
        put_text(o, "schedule", k->on_calendar);
        if (t.next_ns != INT64_MAX)
            put_ns(o, "next_ns", t.next_ns);
        if (m)
            put_made(o, m);
        add_problems(f, k, m, &t, problems);
        add_lost(k, m, problems);
        json_array_append_new(list, o);
    }
    return list;
}
