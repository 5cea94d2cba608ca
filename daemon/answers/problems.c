/* SPDX-License-Identifier: GPL-2.0-or-later */
/* problems.c - what status lists under Problems, as far as it is not about single operations or volumes */
#include "daemon/answers/answers-impl.h"
#include "base/time.h"
#include "base/units.h"
#include "daemon/records/opaque.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *hours_words(int64_t ns, char out[24])
{
    const int64_t n = ns / NS_PER_H;
    if (n < 1) /* or a clock that was set back */
        snprintf(out, 24, "less than an hour");
    else
        snprintf(out, 24, "%" PRId64 " hour%s", n, plural((uint64_t)n));
    return out;
}

void add_problem(json_t *list, const char *severity, const char *hint, const char *fmt, ...)
{
    char text[1400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    json_t *o = json_object();
    jset_str(o, "severity", severity);
    jset_str(o, "text", text);
    put_text(o, "hint", hint);
    json_array_append_new(list, o);
}

/* What of its last backup no volume tells: that is in the repository no longer, or is all there but for a hook that
 * failed, or ranges that could not be read. */
static void add_last_problem(struct records *r, const struct job_view *j, json_t *list)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    char since[TIME_TEXT], hint[400];
    if (!j->last_backup[0] || backup_get(r, j->last_backup, &b, NULL) < 0)
        return;
    snprintf(hint, sizeof hint, "`snapferry describe %.300s` has the details", b.id);
    if (b.state == BACKUP_PARTIALLY_FAILED && !b.counts.failed && !b.counts.canceled && b.error.code)
        add_problem(list, "warning", b.error.hint[0] ? b.error.hint : hint,
                    "job \"%s\": its last backup, %s, is PartiallyFailed, though all volumes are stored: %s", j->name,
                    b.id, b.error.message);
    if (b.gone)
        add_problem(list, "error", "`snapferry verify` reads the repository; back up the volumes again",
                    "job \"%s\": of its last backup, %s, %lld volume%s not whole in the repository since %s: %s",
                    j->name, b.id, (long long)b.gone, b.gone == 1 ? " is" : "s are",
                    time_text(b.gone_ns / NS_PER_S * NS_PER_S, since), b.gone_why);
}

static void add_job_problems(struct records *r, const struct jobs_now *jobs, json_t *list)
{
    for (unsigned i = 0; i < jobs->n && json_array_size(list) < PROBLEMS_MAX; i++) {
        const struct job_view *j = &jobs->v[i];
        const size_t missing = json_array_size(j->missing);
        if (j->elsewhere)
            continue;
        add_last_problem(r, j, list);
        if (j->paused)
            continue;
        if (missing && !j->failed)
            add_problem(list, "warning",
                        missing > 1 ? "`snapferry jobs --json` lists all of them"
                                    : "bring it back, or change the volumes of the job; `snapferry volumes` lists "
                                      "what is there",
                        "job \"%s\" has left out %zu of what it names: %s", j->name, missing,
                        skipped_at(j->missing, 0).reason);
        char hint[300];
        snprintf(hint, sizeof hint, "`snapferry backup --job %.200s --wait` starts it, and shows what happens",
                 j->name);
        if (j->failed)
            add_problem(list, "error", j->failed->hint[0] ? j->failed->hint : hint,
                        "job \"%s\" could not be started: %s", j->name, j->failed->message);
    }
}

static void add_degraded(const struct records *r, const char *state_dir, json_t *list)
{
    const int sys = records_degraded_by(r);
    const char *hint = "the kernel's log (`dmesg`) has errors of its file system or device; repair it and mount it for "
                       "writing. Nothing new is started until then; if it had to be unmounted: `systemctl restart "
                       "snapferryd`";
    if (sys == ENOSPC || sys == EDQUOT || !sys)
        hint =
            "free space in the state directory; nothing new is started until then. Where a repository is on the same "
            "file system: `snapferry --config-dir DIR -r NAME maintenance --full` needs no records";
    add_problem(list, "error", hint, "the records in %s cannot be written%s%s", state_dir, sys ? ": " : "",
                sys ? strerror(sys) : "");
}

/* What has our tag and no record; and the first that cannot be removed. */
static void add_orphans(const struct answer_orphan *v, unsigned n, json_t *list)
{
    const struct answer_orphan *failed = NULL;
    unsigned more = 0;
    if (!n)
        return;
    add_problem(list, "warning",
                "`snapferry native list` shows them; they are removed after orphan-grace, or now: `snapferry native "
                "release`",
                "%u object%s with our tag %s on the storage that no record knows", n, plural(n), n == 1 ? "is" : "are");
    for (unsigned i = 0; i < n; i++)
        if (v[i].error[0] && !more++)
            failed = &v[i];
    if (failed)
        add_problem(list, "warning",
                    failed->hint[0] ? failed->hint
                                    : "it is tried again by each sweep, and by `snapferry native release`",
                    "%s %.40s of class \"%s\", in no record, cannot be removed%s: %s", failed->kind, failed->alias,
                    failed->klass, more > 1 ? ", nor can others" : "", failed->error);
}

void add_general_problems(const struct answer_facts *f, json_t *list)
{
    const struct answer_daemon *d = f->daemon;
    if (!d)
        add_problem(list, "error", f->down_hint, "%s", f->down);
    if (d && d->degraded)
        add_degraded(f->records, d->state_dir, list);
    if (d && d->detached)
        add_problem(list, "error",
                    "`systemctl restart snapferryd`: backups, volumes and native snapshots are found again in the "
                    "repositories and on the storage",
                    "the file of the records in %s was removed or replaced while the daemon runs: what it records is "
                    "lost when it ends",
                    d->state_dir);
    const char *holds = records_holds_failing(f->records);
    if (d && holds[0])
        add_problem(list, "warning", "it is written again with the next change of the records",
                    "the file of what is held is not up to date, and would count if the records were lost: %s", holds);
    if (d && !f->config.ok)
        add_problem(list, "error", "`snapferry check-config` lists the errors; the old configuration stays in force",
                    "the last reload was refused: %s", f->config.error);
    if (d && d->recovered)
        add_problem(list, "warning",
                    "docs/records.md lists what is rebuilt from storage and repositories, and what is not", "%s",
                    d->news);
    add_job_problems(f->records, &f->jobs, list);
    if (d)
        add_orphans(f->orphans, f->n_orphans, list);
    if (d && d->stuck)
        add_problem(list, "warning", "look at the storage below: dmesg, multipath, NFS server",
                    "%u piece%s of work %s in the kernel and cannot be ended", d->stuck, plural(d->stuck),
                    d->stuck == 1 ? "hangs" : "hang");
    if (f->cfg && cfg_daemon(f->cfg)->slots == 0)
        add_problem(list, "warning", "set slots in [daemon] to let work go on",
                    "maintenance mode: slots = 0, nothing is started");
}

void add_pool_problems(const struct answer_facts *f, json_t *list)
{
    const char *id;
    json_t *ratio;
    if (!f->pools || !f->cfg)
        return;
    json_object_foreach((json_t *)(uintptr_t)f->pools, id, ratio)
    {
        const struct volume_row *v = volume_row_peek(f->records, id);
        const double full = json_number_value(ratio) * 100;
        const unsigned limit = v ? cfg_pool_high_water(f->cfg, volume_subject(v->volume)) : 0;
        if (limit && full > limit)
            add_problem(
                list, "error", "retained native snapshots are pruned, oldest first; free space or extend the pool",
                "the storage of %s is %.0f %% full, over its high-water mark of %u %%", v->volume->name, full, limit);
    }
}

void add_look_problems(const struct answer_facts *f, json_t *list)
{
    size_t i;
    json_t *look;
    if (!f->daemon)
        return;
    json_array_foreach(f->daemon->looks, i, look) if (json_array_size(list) < PROBLEMS_MAX)
        json_array_append(list, look);
}
