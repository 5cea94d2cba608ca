/* SPDX-License-Identifier: GPL-2.0-or-later */
/* judge.c - whether a volume is protected, and why not */
#include "daemon/decide/judge.h"

#include "base/time.h"

#include <stdio.h>
#include <string.h>

const char *const volume_states[VOLUME_STATES] = {"protected", "unprotected", "gone", "excluded"};

const char *class_message(const char *klass, const char *message)
{
    char head[200];
    const int n = snprintf(head, sizeof head, "storage class \"%.150s\": ", klass);
    return n > 0 && !strncmp(message, head, (size_t)n) ? message + n : message;
}

const char *volume_excluded(const struct cfg *c, struct cfg_subject v, int64_t size)
{
    const struct cfg_class *k = cfg_class_of(c, v);
    if (!k)
        return "no storage class matches it any more";
    if (!cfg_class_here(c, k))
        return "its class is for other nodes (only-on-node)";
    return cfg_excluded(c, k, v, (uint64_t)size) ? "excluded by the configuration" : NULL;
}

int64_t volume_interval(const struct cfg *c, const struct jobs_now *jobs, struct cfg_subject v)
{
    const struct cfg_class *k = cfg_class_of(c, v);
    const struct cfg_job *job;
    int64_t interval = 0;
    for (unsigned i = 0; i < jobs->n; i++) {
        const struct job_view *j = &jobs->v[i];
        if (job_interval(j, interval) != interval && (job = cfg_job(c, j->name)) && cfg_job_names(job, k, v))
            interval = job_interval(j, interval);
    }
    return interval;
}

enum volume_state volume_judge(bool gone, bool excluded, int64_t good_ns, int64_t interval_s, int64_t now)
{
    if (gone)
        return VOLUME_GONE;
    if (excluded)
        return VOLUME_EXCLUDED;
    /* As the alert SnapferryBackupOverdue: a job that is late by one run and takes its time is well within. Further
     * ahead than that is no time at which it was made: the clock has been set back since. */
    const int64_t most = interval_s * 5 / 2 * NS_PER_S;
    const bool old = interval_s > 0 && (now - good_ns > most || good_ns - now > most);
    return good_ns > 0 && !old ? VOLUME_PROTECTED : VOLUME_UNPROTECTED;
}

bool volume_failed(const struct volume_row *v)
{
    const enum outcome verdict = v->last_verdict ? v->last_verdict : v->last_status;
    return verdict == OUTCOME_FAILED || verdict == OUTCOME_PARTIALLY_FAILED;
}

bool volume_unscheduled(const struct volume_row *v, bool has_job)
{
    return !has_job && v && v->unscheduled_ns > 0 && v->last_success_ns > 0 && v->last_success_ns < v->unscheduled_ns;
}

/* Protected is what another process than the mover has found in the repository. The rest is said to be something else.
 */
static const char *evidence_text(const char *evidence, char *out, size_t cap)
{
    if (!strcmp(evidence, "native"))
        return "by a native snapshot only; the repository has no copy";
    if (!strcmp(evidence, "mover"))
        return "as reported by its mover; not yet checked in the repository";
    if (!evidence[0])
        return "";
    snprintf(out, cap, "as reported by %.150s, which stores the data", evidence);
    return out;
}

void volume_why(enum volume_state s, const struct volume_row *v, const char *excluded, bool has_job, int64_t now_ns,
                char *out, size_t cap)
{
    const enum outcome status = v ? v->last_status : OUTCOME_NONE;
    const char *error = v ? v->last_error.message : "", *lost = v ? v->last_good_lost : "";
    bool good = v && v->last_success_ns > 0;
    char name[200];
    if (s == VOLUME_PROTECTED)
        snprintf(out, cap, "%s", evidence_text(v ? v->last_good_evidence : "", name, sizeof name));
    else if (s == VOLUME_GONE)
        snprintf(out, cap, "missing%s", good ? "; its backups remain" : "");
    else if (s == VOLUME_EXCLUDED)
        snprintf(out, cap, "%s", excluded ? excluded : "");
    else if (good && v->last_success_ns > now_ns)
        snprintf(out, cap,
                 "the last good backup has a time in the future: the clock was set back since, and its age is "
                 "not known%s%s",
                 error[0] ? ": " : "", error);
    else if (good)
        snprintf(out, cap, "the last good backup is older than two and a half intervals of its job%s%s",
                 error[0] ? ": " : "", error);
    else if (lost[0])
        snprintf(out, cap, "no backups are left: %s%s%s", lost, error[0] ? "; the last attempt: " : "", error);
    else if (error[0])
        snprintf(out, cap, "no successful backup: %s", error);
    else if (status == OUTCOME_CANCELED)
        snprintf(out, cap, "no successful backup: its last backup was canceled");
    else if (status != OUTCOME_NONE)
        snprintf(out, cap, "no successful backup: its last backup ended as %s", outcome_name(status));
    else
        snprintf(out, cap, "not backed up yet%s", has_job ? "" : ", and no job names it");
}
