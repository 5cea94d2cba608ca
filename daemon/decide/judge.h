/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * judge.h - whether a volume is protected
 *
 * There is one judgement, volume_judge(): status, the list of volumes, explain and metrics all use it. Pure: the same
 * arguments give the same answer. Any thread.
 */
#ifndef SNAPFERRY_DAEMON_DECIDE_JUDGE_H
#define SNAPFERRY_DAEMON_DECIDE_JUDGE_H

#include "cfg/cfg.h"
#include "daemon/records/records.h"
#include "daemon/schedule/schedule.h"

enum volume_state {
    VOLUME_PROTECTED,
    VOLUME_UNPROTECTED,
    VOLUME_GONE,     /* its class was listed without it: counted apart */
    VOLUME_EXCLUDED, /* the configuration does not have it backed up on this node: counted apart */
    VOLUME_STATES
};
/* "protected", "unprotected", "gone", "excluded": in answers and as label of metrics. */
extern const char *const volume_states[VOLUME_STATES];

/* A volume as the configuration sees it; strings are borrowed. */
static inline struct cfg_subject volume_subject(const struct volume_desc *v)
{
    return (struct cfg_subject){v->name, v->labels};
}

/* Why the configuration does not have a volume of this size backed up here, NULL: it does. Static text. */
const char *volume_excluded(const struct cfg *c, struct cfg_subject v, int64_t size);
/* What a driver said of a storage class, without the class at its beginning: for a text that names it already. */
const char *class_message(const char *klass, const char *message);
/* The jobs of the configuration as they are now, in its order. */
struct jobs_now {
    struct job_view *v;
    unsigned n;
};
/* Seconds between two runs of the most frequent job that has a schedule for it; 0: none. */
int64_t volume_interval(const struct cfg *c, const struct jobs_now *jobs, struct cfg_subject v);
/* The same of the jobs looked at so far (`interval_s`, 0: none yet) and one more that has it. */
static inline int64_t job_interval(const struct job_view *j, int64_t interval_s)
{
    return j->interval_s > 0 && !j->paused && (!interval_s || j->interval_s < interval_s) ? j->interval_s : interval_s;
}
/* good_ns: when its last good backup ended, 0: there is none. interval_s: volume_interval(). */
enum volume_state volume_judge(bool gone, bool excluded, int64_t good_ns, int64_t interval_s, int64_t now);
/* Whether its last backup failed, but for those that were canceled or skipped. */
bool volume_failed(const struct volume_row *v);
/* Whether no job names one any more that a job with a schedule backed up, and nobody has since. Without an interval it
 * stays protected for ever, and nothing else would say so. */
bool volume_unscheduled(const struct volume_row *v, bool has_job);
/* The same as a sentence, for a person; "" for one that is protected by a backup in a repository. `v` NULL: nothing is
 * recorded of it. */
void volume_why(enum volume_state s, const struct volume_row *v, const char *excluded, bool has_job, int64_t now_ns,
                char *out, size_t cap);

#endif
