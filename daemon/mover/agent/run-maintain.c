/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * run-maintain.c - a mover's maintenance of a repository (docs/mover.md)
 *
 * Who maintains a repository is written in it. That this is another client, or that snapferry cannot maintain it, or
 * that another run is under way, or that others may be writing and the run would have no safety delays, is no failure,
 * and nothing that another attempt would find otherwise: the result has `skip`, the reason in words, and `refused`, in
 * one word.
 */
#include "daemon/mover/agent/agent.h"
#include "daemon/mover/maintain.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <string.h>

static json_t *seconds_json(int64_t ns)
{
    return json_integer((json_int_t)(ns / NS_PER_S));
}

static int refuse(struct run_context *x, json_t *m, const char *word, const char *why, const char *hint)
{
    json_object_set_new(x->result, "skip", json_string(why));
    json_object_set_new(m, "refused", json_string(word));
    json_object_set_new(m, "hint", json_string(hint));
    log_info("%s", why);
    return 0;
}

/* It has become this node's, from a snapferry that has been silent. It cannot run at once. */
static int taken_over(struct run_context *x, json_t *m, const char *from, int64_t silent_ns, const char *owner)
{
    char why[900], since[TIME_TEXT], runs[TIME_TEXT];
    time_text(silent_ns / NS_PER_S * NS_PER_S, since);
    time_text((now_ns() + MAINTAIN_TAKE_OVER_NS) / NS_PER_S * NS_PER_S, runs);
    snprintf(why, sizeof why,
             "maintenance was taken over from %s, which has not run it since %s; it can run from %s on", from, since,
             runs);
    json_object_set_new(m, "owner", json_string(owner));
    refuse(x, m, "busy", why, "the former owner is refused from now on; nothing has to be done");
    return 1;
}

/* 1: it is somebody else's, or was. */
static int check_owner(struct run_context *x, struct repo *r, json_t *m, const struct maintenance_params *p,
                       const char *owner, struct err *e)
{
    char why[640];
    int64_t silent_ns;
    const bool namesake = !strcmp(p->owner, owner);
    if (x->job->dry_run || (namesake && !maintain_of_another_machine(p, x->job->machine)))
        return 0;
    int rc = maintain_silent_since(r, p, &silent_ns, e);
    if (rc == 0 && x->job->take_over)
        rc = maintain_take_over(r, p, silent_ns, owner, x->job->machine, e);
    if (rc)
        return rc < 0 ? rc : taken_over(x, m, p->owner, silent_ns, owner);
    if (!*p->owner)
        snprintf(why, sizeof why, "not maintained: no client owns its maintenance");
    else
        snprintf(why, sizeof why, "maintained by %s%s", p->owner,
                 namesake ? " on another machine: this one has the same node name, but another machine id" : "");
    if (silent_ns != INT64_MIN)
        json_object_set_new(m, "silentSinceNs", json_integer((json_int_t)silent_ns));
    if (namesake)
        refuse(x, m, "machine", why, MAINTAIN_MACHINE_HINT);
    else
        refuse(x, m, "owner", why, "`snapferry -r REPOSITORY maintenance --take-ownership` makes this node the owner");
    return 1;
}

/* What follows from an error that is none of this run, but the state of the repository: 1. */
static int check_error(struct run_context *x, json_t *m, struct err *e)
{
    char why[sizeof e->msg + 64];
    const char *word = e->cls == ERR_FORMAT && e->sys == ENOTSUP ? "unsupported" : e->cls == ERR_BUSY ? "busy" : NULL;
    if (!word)
        return 0;
    snprintf(why, sizeof why, "%s%s", !strcmp(word, "busy") ? "" : "not maintained by snapferry: ", e->msg);
    refuse(x, m, word, why, e->hint);
    *e = (struct err)ERR_INIT;
    return 1;
}

static void put_numbers(const struct job *j, const struct maintain_result *r, json_t *m)
{
    const int64_t from_ns = maintain_back_from(r);
    json_object_set_new(m, "seconds", json_real(r->seconds));
    json_object_set_new(m, "freedBytes", json_integer(j->dry_run ? 0 : (json_int_t)r->deleted.bytes));
    json_object_set_new(m, "mergedManifests", json_integer(j->dry_run ? 0 : (json_int_t)r->manifests.merged));
    if (j->full) {
        json_object_set_new(m, "packBytes", json_integer((json_int_t)r->packs.bytes));
        json_object_set_new(m, "reclaimableBytes", json_integer((json_int_t)maintain_reclaimable(r)));
        json_object_set_new(m, "trappedBytes", json_integer((json_int_t)r->trapped));
        json_object_set_new(m, "renewed", json_integer(j->dry_run ? 0 : (json_int_t)r->renewed.n));
        json_object_set_new(m, "damaged", json_integer((json_int_t)(r->damaged + r->unreadable.n)));
        if (from_ns != INT64_MIN)
            json_object_set_new(m, "backFromNs", json_integer((json_int_t)from_ns));
    }
    json_object_set_new(m, "summary", maintain_result_json(r, j->full, j->dry_run));
}

int run_maintain(struct run_context *x, struct repo *r, struct err *e)
{
    const struct job *j = x->job;
    struct maintenance_params p;
    struct maintain_result res = {0};
    char owner[300];
    snprintf(owner, sizeof owner, MAINTAIN_OWNER "%s", j->node);
    int rc = maintain_params(r, owner, j->machine, &p, e);
    if (rc < 0)
        return rc;
    json_t *m = json_pack("{s:s, s:o, s:o, s:b, s:b}", "owner", p.owner, "quickSeconds", seconds_json(p.quick_ns),
                          "fullSeconds", seconds_json(p.full_ns), "full", (int)j->full, "dryRun", (int)j->dry_run);
    if (!m || json_object_set_new(x->result, "maintenance", m) < 0)
        return err_nomem(e);
    rc = check_owner(x, r, m, &p, owner, e);
    if (rc)
        return rc < 0 ? rc : 0;
    const struct maintain_opts o = {.owner = owner,
                                    .machine = j->machine,
                                    .full = j->full,
                                    .dry_run = j->dry_run,
                                    .unsafe = j->unsafe,
                                    .read_limit = j->limits.read_limit,
                                    .write_limit = j->limits.write_limit,
                                    .progress = x->progress,
                                    .cancel = x->cancel};
    rc = maintain_run(r, &o, &res, e);
    if (rc < 0 && check_error(x, m, e))
        return 0;
    put_numbers(j, &res, m);
    return rc;
}
