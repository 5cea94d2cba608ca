/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which native snapshots stay, which go, and why: RS-05..10, RS-16..18, RS-24, RS-28..30, decisions on move-data = no.
 */
#include "tests/unit/records.h"

#include "base/time.h"
#include "daemon/decide/decide.h"
#include "rows.h"

#include <limits.h>

#define DAY (86400 * (int64_t)1000000000)
#define NOW (20000 * DAY)

static struct native_rules rules(unsigned retain)
{
    return (struct native_rules){.retain = retain,
                                 .keep_parent = true,
                                 .max_per_volume = 64,
                                 .snapshot_only_keep = 3,
                                 .pool_used_ratio = -1,
                                 .pool_high_water = 0.85,
                                 .now_ns = NOW};
}

static struct native_facts fact(unsigned seq)
{
    struct native_facts f = {.seq = seq, .created_ns = NOW - 100 * DAY + seq * DAY, .effective_retain = UINT_MAX};
    snprintf(f.alias, sizeof f.alias, "%08u-0000-4000-8000-000000000000", seq);
    snprintf(f.backup, sizeof f.backup, "B%u", seq);
    snprintf(f.repository, sizeof f.repository, "main");
    return f;
}
static struct native_facts moved(unsigned seq)
{
    struct native_facts f = fact(seq);
    f.moved = true;
    return f;
}
static struct native_facts alone(unsigned seq)
{
    struct native_facts f = fact(seq);
    f.snapshot_only = true;
    return f;
}
static struct native_facts failed(unsigned seq)
{
    struct native_facts f = fact(seq);
    f.failed = true;
    return f;
}

/* Plans, and answers with '-' for each that goes and '+' for each that stays, in the order of the array. */
static struct native_verdict verdict;
static const char *plan(const struct native_rules *r, struct native_facts *f, size_t n)
{
    static char text[64];
    natives_plan(r, f, n, &verdict);
    for (size_t i = 0; i < n; i++) {
        text[i] = f[i].prune ? '-' : '+';
        assert_int_equal(
            strncmp(f[i].why, f[i].prune ? (f[i].missing ? "removed" : "due for") : "kept: ", f[i].prune ? 7 : 6), 0);
    }
    text[n] = '\0';
    return text;
}

/* ---- the number ---- */

/* RS-05, RS-06, RS-07 */
static void the_newest_stay(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(1), moved(2), moved(3), moved(4), moved(5)};
    struct native_rules r = rules(3);
    assert_string_equal(plan(&r, f, 5), "--+++");
    assert_string_equal(f[4].why, "kept: 1 of 3 retained; pruned after 3 newer backups");
    assert_string_equal(f[3].why, "kept: 2 of 3 retained; pruned after 2 newer backups");
    assert_string_equal(f[2].why, "kept: 3 of 3 retained; pruned after 1 newer backup");
    assert_string_equal(f[1].why,
                        "due for pruning: its backup B2 is complete in repository main, and 3 newer ones are retained");
    assert_true(verdict.may_create && !verdict.over_high_water);
    assert_string_equal(verdict.why, "3 kept, 2 pruned");
    r = rules(0);
    assert_string_equal(plan(&r, f, 5), "-----");
    assert_string_equal(f[4].why,
                        "due for pruning: its backup B5 is complete in repository main, and snapshots-to-retain is 0");
    r = rules(UINT_MAX);
    assert_string_equal(plan(&r, f, 5), "+++++");
}

/* RS-07: wall-clock jumps must not reorder. */
static void age_is_by_sequence(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(3), moved(1), moved(2)};
    f[0].created_ns = 5;       /* the newest, taken after the clock went back */
    f[1].created_ns = NOW * 2; /* the oldest, taken while it was far ahead */
    struct native_rules r = rules(2);
    assert_string_equal(plan(&r, f, 3), "+-+");
}

/* Nothing newer will take its place: it stays, and goes on request, if its data is safe. */
static void of_a_volume_that_is_gone(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(1), moved(2), moved(3), moved(4), moved(5)};
    struct native_rules r = rules(3);
    r.ended = "its volume is gone";
    f[4].cbt_parent = r.keep_parent = true;
    assert_string_equal(plan(&r, f, 5), "--+++");
    assert_string_equal(f[3].why, "kept: 2 of 3 retained; its volume is gone: only `native prune --gone` removes it");
    r.prune_ended = true;
    f[1].in_use = f[2].hold = true;
    f[3].moved = false;
    assert_string_equal(plan(&r, f, 5), "-+++-");
    assert_string_equal(f[4].why,
                        "due for pruning: its backup B5 is complete in repository main, and its volume is gone");
}

/* Of a base that is gone its bookmark is one, until there is a newer base, or no need for any. */
static void a_bookmark_is_a_base(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(1), moved(2), moved(3)};
    struct native_rules r = rules(0);
    r.keep_parent = r.about_to_create = true;
    f[2].cbt_parent = f[2].bookmark = true;
    r.max_per_volume = 1;
    assert_string_equal(plan(&r, f, 3), "---");
    assert_true(f[2].leaves_bookmark && !f[0].leaves_bookmark);
    r = rules(2);
    r.keep_parent = true;
    f[2].missing = true;
    assert_string_equal(plan(&r, f, 3), "+++");
    assert_string_equal(f[2].why, "kept: it is gone, and its bookmark is the base of the next incremental backup");
    assert_int_equal(f[2].reasons, NATIVE_CBT_PARENT);
    assert_string_equal(verdict.why, "2 kept, 0 pruned");
    r.max_per_volume = 1; /* it takes no place, and frees none */
    assert_string_equal(plan(&r, f, 3), "-++");
    assert_false(f[2].leaves_bookmark);
    r.max_per_volume = 0;
    r.pool_used_ratio = 0.97;
    assert_string_equal(plan(&r, f, 3), "-++");
    r.pool_used_ratio = -1;
    r.ended = "its volume is gone";
    assert_string_equal(plan(&r, f, 3), "++-");
    r.ended = NULL;
    f[2].expired = true;
    assert_string_equal(plan(&r, f, 3), "++-");
    f[2].expired = false;
    r.keep_parent = false;
    assert_string_equal(plan(&r, f, 3), "++-");
    r.keep_parent = true;
    f[2].cbt_parent = false; /* there is a newer one */
    assert_string_equal(plan(&r, f, 3), "++-");
    f[2].cbt_parent = true;
    f[2].bookmark = false;
    assert_string_equal(plan(&r, f, 3), "++-");
}

/* RS-17: one place is made before the new one is taken; with prune = after it may be over for a while. */
static void prune_before_create(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(1), moved(2), moved(3)};
    struct native_rules r = rules(3);
    assert_string_equal(plan(&r, f, 3), "+++");
    r.about_to_create = true;
    assert_string_equal(plan(&r, f, 3), "-++");
    assert_string_equal(
        f[0].why, "due for pruning: its backup B1 is complete in repository main, and its place (3 of 3) is needed for "
                  "the new snapshot");
    assert_string_equal(f[2].why, "kept: 2 of 3 retained; pruned after 3 newer backups");
    r.prune_after = true;
    assert_string_equal(plan(&r, f, 3), "+++");
    r = rules(1);
    r.about_to_create = true;
    assert_string_equal(plan(&r, f, 3), "---");
    r = rules(0);
    r.about_to_create = true;
    assert_string_equal(plan(&r, f, 3), "---");
}

/* RS-18: what is not complete and readable in the repository is not pruned for a new one. */
static void an_only_copy_is_not_pruned(void **state)
{
    (void)state;
    struct native_facts f[] = {fact(1), moved(2), fact(3)};
    struct native_rules r = rules(0);
    r.about_to_create = true;
    assert_string_equal(plan(&r, f, 3), "+-+");
    assert_int_equal(f[0].reasons, NATIVE_ONLY_COPY);
    assert_string_equal(f[0].why, "kept: the only copy: its data is not known to be complete in a repository");
}

/* RS-16, RS-28: references add up; a cbt-parent takes no place, hold and use do not move the limit. */
static void reasons_are_references(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(1), moved(2), moved(3), moved(4), moved(5)};
    char text[128];
    f[0].cbt_parent = true;
    f[1].hold = true;
    f[2].in_use = true;
    f[4].cbt_parent = f[4].hold = true;
    struct native_rules r = rules(1);
    assert_string_equal(plan(&r, f, 5), "+++-+");
    assert_int_equal(f[0].reasons, NATIVE_CBT_PARENT);
    assert_int_equal(f[1].reasons, NATIVE_HOLD);
    assert_int_equal(f[2].reasons, NATIVE_IN_USE);
    assert_string_equal(f[2].why, "kept: in use by an unfinished operation");
    assert_int_equal(f[4].reasons, NATIVE_RETAINED | NATIVE_CBT_PARENT | NATIVE_HOLD);
    assert_string_equal(native_reasons_text(f[4].reasons, text, sizeof text), "retained cbt-parent hold");
    assert_string_equal(f[4].why, "kept: held; also the base of the next incremental backup; also 1 of 1 retained");
    r.ended = "its volume is gone"; /* of which there will be no next backup, as far as is known */
    assert_string_equal(plan(&r, f, 5), "+++-+");
    assert_string_equal(f[0].why, "kept: the base of incremental backups, should its volume be backed up again "
                                  "(`native prune --gone` removes it)");
    r = rules(0);
    assert_string_equal(plan(&r, f, 5), "+++-+");
    f[4].hold = f[4].cbt_parent = false;
    assert_string_equal(plan(&r, f, 5), "+++--");
    assert_string_equal(native_reasons_text(0, text, sizeof text), "");
    assert_string_equal(native_reasons_text(0x7f, text, sizeof text),
                        "retained in-use cbt-parent hold only-copy snapshot-only keep-on-failure");
    assert_string_equal(native_reasons_text(0x7f, text, 5), "reta");
}

/* RS-10: the number a running backup was begun with holds for it; afterwards the configuration's. */
static void the_number_of_a_running_backup_is_its_own(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(1), moved(2), moved(3)};
    for (int i = 0; i < 3; i++)
        f[i].effective_retain = 2;
    f[2].running = true;
    struct native_rules r = rules(0);
    assert_string_equal(plan(&r, f, 3), "--+");
    f[2].running = false;
    assert_string_equal(plan(&r, f, 3), "---");
    r = rules(3);
    assert_string_equal(plan(&r, f, 3), "+++");
}

/* RS-29: the limit is per volume; a job's own number counts only its own. */
static void a_jobs_own_number_counts_its_own(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(1), moved(2), moved(3), moved(4), moved(5), moved(6)};
    for (int i = 0; i < 6; i += 2) {
        snprintf(f[i].job, sizeof f[i].job, "weekly");
        f[i].effective_retain = 2;
    }
    struct native_rules r = rules(1); /* of the volume: of 2, 4 and 6 */
    assert_string_equal(plan(&r, f, 6), "--+-++");
    assert_string_equal(f[2].why, "kept: 2 of 2 retained; pruned after 1 newer backup of job weekly");
    /* The job is gone, or has no number of its own: nothing newer takes their places. */
    f[2].job_ended = f[4].job_ended = true;
    assert_string_equal(plan(&r, f, 6), "--+-++");
    assert_string_equal(f[2].why,
                        "kept: 2 of 2 retained; job weekly no longer sets snapshots-to-retain for it: only `native "
                        "prune --gone` removes it");
    r.prune_ended = true;
    assert_string_equal(plan(&r, f, 6), "+----+"); /* the first one is of a job that goes on */
    assert_string_equal(f[2].why, "due for pruning: its backup B3 is complete in repository main, and job weekly no "
                                  "longer sets snapshots-to-retain for it");
    r.prune_ended = f[2].job_ended = f[4].job_ended = false;
    r.jobs_retain = true; /* what they take is no newer backup for those of the volume's number */
    assert_string_equal(plan(&r, f, 6), "--+-++");
    assert_string_equal(f[5].why, "kept: 1 of 1 retained; pruned after 1 newer backup (jobs with a snapshots-to-retain "
                                  "of their own do not count)");
    assert_string_equal(f[2].why, "kept: 2 of 2 retained; pruned after 1 newer backup of job weekly");
    r.about_to_create = true;
    assert_string_equal(plan(&r, f, 6), "--+-+-");
    /* The weekly job's own next run, with a number that changed. */
    r = rules(3);
    snprintf(r.job, sizeof r.job, "weekly");
    r.about_to_create = true;
    assert_string_equal(plan(&r, f, 6), "-+++++");
    /* Without numbers of their own, jobs share the volume's. */
    for (int i = 0; i < 6; i++)
        f[i].job[0] = '\0';
    r = rules(2);
    assert_string_equal(plan(&r, f, 6), "----++");
}

/* RS-24, and the clock: only max-age looks at it, and a clock that went back makes nothing older. */
static void max_age(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(80), moved(90), moved(99)}; /* 20, 10 and 1 days old */
    struct native_rules r = rules(3);
    r.retain_max_age_s = 14 * 86400;
    assert_string_equal(plan(&r, f, 3), "-++");
    assert_string_equal(f[1].why, "kept: 2 of 3 retained; pruned after 2 newer backups, or once it is older than 14 d");
    assert_string_equal(f[0].why,
                        "due for pruning: its backup B80 is complete in repository main, and it is older than 14 d "
                        "(retain-max-age)");
    f[0].hold = true;
    assert_string_equal(plan(&r, f, 3), "+++");
    f[0].hold = false;
    r.now_ns = 5;
    assert_string_equal(plan(&r, f, 3), "+++");
    r.now_ns = INT64_MAX;
    f[2].created_ns = INT64_MIN;
    assert_string_equal(plan(&r, f, 3), "---");
}

/* RS-24: it does not outlive its backup; RS-21: what is gone leaves the records. */
static void expired_missing_and_half_removed(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(1), moved(2), fact(3), moved(4), fact(5), fact(6), moved(7)};
    f[1].expired = true;
    f[2].missing = true;
    f[3].removing = true;
    f[4].missing = f[4].hold = true; /* maybe the pool is only away */
    f[5].missing = f[5].in_use = true;
    struct native_rules r = rules(2);
    assert_string_equal(plan(&r, f, 7), "+---+++");
    assert_string_equal(f[1].why, "due for pruning: its backup B2 was deleted or has expired");
    assert_string_equal(f[2].why, "removed from the records: no longer on the storage");
    assert_string_equal(f[3].why, "due for pruning: its removal has begun");
    assert_string_equal(f[6].why, "kept: 1 of 2 retained; pruned after 2 newer backups");
}

/* RS-03 */
static void failed_ones(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(1), failed(2), moved(3), failed(4), failed(5)};
    struct native_rules r = rules(3);
    assert_string_equal(plan(&r, f, 5), "+-+--");
    assert_string_equal(f[1].why, "due for pruning: its backup failed or was canceled, and keep-on-failure is off");
    r.keep_on_failure = true; /* bounded by the same limit, together */
    assert_string_equal(plan(&r, f, 5), "--+++");
    r = rules(0); /* at least one place for it */
    r.keep_on_failure = true;
    assert_string_equal(plan(&r, f, 5), "----+");
    r.about_to_create = true; /* nothing newer is safe: it stays until something is */
    assert_string_equal(plan(&r, f, 5), "----+");
    f[4].moved = true;
    f[4].failed = false;
    assert_string_equal(plan(&r, f, 5), "-----");
}

/* ---- snapshots without a backup (move-data = no) ---- */

static void snapshot_only_has_its_own_limits(void **state)
{
    (void)state;
    struct native_facts f[] = {alone(60), alone(70), alone(80), alone(90)};
    struct native_rules r = rules(0);
    r.snapshot_only = true;
    assert_string_equal(plan(&r, f, 4), "-+++");
    assert_string_equal(f[0].why, "due for pruning: snapshot-only-keep is 3, and 3 newer ones are kept");
    assert_string_equal(f[3].why, "kept: 1 of 3 snapshots without a backup (snapshot-only-keep)");
    r.about_to_create = true;
    assert_string_equal(plan(&r, f, 4), "--++");
    r.about_to_create = false;
    r.snapshot_only_max_age_s = 15 * 86400;
    assert_string_equal(plan(&r, f, 4), "---+");
    /* The only copy stays whatever the limits say. */
    r.snapshot_only_max_age_s = 86400;
    r.about_to_create = true;
    assert_string_equal(plan(&r, f, 4), "---+");
    assert_int_equal(f[3].reasons, NATIVE_ONLY_COPY);
    r.snapshot_only_max_age_s = 0;
    r.snapshot_only_keep = 1;
    assert_string_equal(plan(&r, f, 4), "---+");
    r.snapshot_only_keep = 0;
    assert_string_equal(plan(&r, f, 4), "---+");
    assert_string_equal(f[3].why, "kept: the only copy of the volume: there is no newer one, and no backup of it");
    /* Once a newer one has been moved it is not the only copy. */
    f[2] = alone(80);
    f[3] = moved(90);
    assert_string_equal(plan(&r, f, 4), "----");
    /* The sole one says both. */
    r.snapshot_only_keep = 3;
    assert_string_equal(plan(&r, f, 1), "+");
    assert_int_equal(f[0].reasons, NATIVE_ONLY_COPY | NATIVE_SNAPSHOT_ONLY);
}

/* ---- the pool and the storage ---- */

/* RS-30 and decisions 4 */
static void over_the_high_water_mark(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(1), moved(2), moved(3), moved(4), fact(5)};
    struct native_rules r = rules(4);
    f[0].hold = true;
    r.pool_used_ratio = 0.849;
    assert_string_equal(plan(&r, f, 5), "+++++");
    assert_false(verdict.over_high_water);
    r.pool_used_ratio = 0.85;
    assert_string_equal(plan(&r, f, 5), "+-+++");
    assert_string_equal(f[1].why,
                        "due for pruning: its backup B2 is complete in repository main, and the pool is 85 % full "
                        "(pool-high-water is 85 %)");
    assert_true(verdict.over_high_water && verdict.may_create);
    /* One at a time, until only what may not go is left. */
    struct native_facts g[] = {f[0], f[2], f[3], f[4]};
    assert_string_equal(plan(&r, g, 4), "+-++");
    struct native_facts h[] = {f[0], f[4]};
    assert_string_equal(plan(&r, h, 2), "++");
    assert_true(verdict.over_high_water && verdict.may_create);
    /* What the limit takes anyway comes first. */
    r.retain = 3;
    f[0].hold = false;
    assert_string_equal(plan(&r, f, 5), "-++++");
    r.pool_used_ratio = -1;
    assert_string_equal(plan(&r, f, 5), "-++++");
    assert_false(verdict.over_high_water);
}

/* RS-30: first what is only kept for the next incremental backup: without it all is read once, and what is retained was
 * asked for. */
static void over_the_mark_a_parent_goes_first(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(1), moved(2), moved(3), moved(4)};
    struct native_rules r = rules(3);
    f[0].cbt_parent = f[0].bookmark = true;
    r.pool_used_ratio = 0.849;
    assert_string_equal(plan(&r, f, 4), "++++");
    assert_int_equal(f[0].reasons, NATIVE_CBT_PARENT);
    r.pool_used_ratio = 0.9;
    assert_string_equal(plan(&r, f, 4), "-+++");
    assert_true(f[0].for_pool && f[0].leaves_bookmark);
    assert_string_equal(f[0].why,
                        "due for pruning: its backup B1 is complete in repository main, and the pool is 90 % full "
                        "(pool-high-water is 85 %)");
    assert_true(verdict.may_create);
    f[0].missing = true; /* its bookmark takes no room */
    assert_string_equal(plan(&r, f, 4), "+-++");
    /* One that is held is not pruned, nor one that is in use; the next one is. */
    f[0].missing = false;
    f[0].hold = true;
    assert_string_equal(plan(&r, f, 4), "+-++");
    f[0].hold = false;
    f[0].in_use = true;
    assert_string_equal(plan(&r, f, 4), "+-++");
    /* One that is retained as well goes last. */
    struct native_facts g[] = {moved(2), moved(3), moved(4)};
    g[2].cbt_parent = true;
    assert_string_equal(plan(&r, g, 3), "-++");
    assert_string_equal(plan(&r, g + 1, 2), "-+");
    assert_string_equal(plan(&r, g + 2, 1), "-");
    g[0].cbt_parent = true;
    g[2].cbt_parent = false;
    assert_string_equal(plan(&r, g, 3), "+-+");
}

static void snapshot_only_is_refused_over_the_mark(void **state)
{
    (void)state;
    struct native_facts f[] = {alone(1), alone(2), alone(3)};
    struct native_rules r = rules(0);
    r.snapshot_only = r.about_to_create = true;
    r.pool_used_ratio = 0.9;
    assert_string_equal(plan(&r, f, 3), "+++"); /* nothing has to make room */
    assert_false(verdict.may_create);
    assert_true(verdict.over_high_water);
    assert_non_null(strstr(verdict.why, "90 % full"));
    r.pool_used_ratio = 0.5;
    assert_string_equal(plan(&r, f, 3), "-++");
    assert_true(verdict.may_create);
}

/* RS-08, RS-28: all reasons count into max-snapshots-per-volume. */
static void the_maximum_counts_all(void **state)
{
    (void)state;
    struct native_facts f[] = {moved(1), moved(2), moved(3), moved(4), moved(5)};
    struct native_rules r = rules(4);
    f[0].cbt_parent = f[1].hold = true;
    r.max_per_volume = 4;
    assert_string_equal(plan(&r, f, 5), "-++++"); /* the parent first */
    assert_false(verdict.may_create);
    r.about_to_create = true;
    assert_string_equal(plan(&r, f, 5), "-+-++");
    assert_true(verdict.may_create);
    assert_string_equal(
        f[2].why, "due for pruning: its backup B3 is complete in repository main, and max-snapshots-per-volume is 4");
    f[4].cbt_parent = true; /* one that is retained as well goes last */
    f[0].cbt_parent = false;
    assert_string_equal(plan(&r, f, 5), "-+-++");
    r.max_per_volume = 2;
    assert_string_equal(plan(&r, f, 5), "-+---");
    assert_true(verdict.may_create);
    f[0].cbt_parent = true;
    r.max_per_volume = 1; /* not even then */
    assert_string_equal(plan(&r, f, 5), "-+---");
    assert_false(verdict.may_create);
    assert_string_equal(verdict.why,
                        "no new snapshot: max-snapshots-per-volume is 1 and 1 are kept (0 retained, 0 in use, 1 "
                        "held, 0 the only copy, 0 without a backup, 0 for incremental backups, 0 for inspection)");
    r = rules(3);
    r.about_to_create = true;
    r.max_per_volume = 3;
    f[2].in_use = true;
    assert_string_equal(plan(&r, f, 5), "-++--");
    assert_true(verdict.may_create);
    f[0].hold = true;
    assert_string_equal(plan(&r, f, 5), "+++--");
    assert_false(verdict.may_create);
    r = rules(UINT_MAX);
    r.max_per_volume = 0;
    assert_string_equal(plan(&r, f, 5), "+++++");
    assert_true(verdict.may_create);
    /* A keep that the storage cannot hold is cut, so that the volume goes on. */
    struct native_facts g[] = {alone(1), alone(2), alone(3)};
    r = rules(0);
    r.snapshot_only = r.about_to_create = true;
    r.snapshot_only_keep = 10;
    r.max_per_volume = 3;
    assert_string_equal(plan(&r, g, 3), "-++");
    assert_true(verdict.may_create);
}

static void nothing_at_all(void **state)
{
    (void)state;
    struct native_rules r = rules(3);
    assert_string_equal(plan(&r, NULL, 0), "");
    assert_true(verdict.may_create);
    assert_string_equal(verdict.why, "0 kept, 0 pruned");
}

/* ---- invariants ---- */

/* Not as the parent of the next incremental backup: that goes at the limits, and all is read. */
static bool protected_by_reference(const struct native_facts *f)
{
    return f->in_use || f->hold;
}

/* What nothing else has: RS-18. */
static bool is_only_copy(const struct native_facts *f, size_t n, size_t i)
{
    const struct native_facts *x = &f[i];
    if (x->missing || x->removing || x->expired || x->moved)
        return false;
    if (!x->snapshot_only)
        return !x->failed;
    for (size_t k = 0; k < n; k++)
        if (f[k].seq > x->seq && !f[k].missing && !f[k].removing && !f[k].expired && (f[k].moved || f[k].snapshot_only))
            return false;
    return true;
}

static void check_plan(const struct native_rules *r, struct native_facts *f, size_t n)
{
    unsigned retained = 0, kept = 0, removed = 0, most = r->retain;
    plan(r, f, n);
    for (size_t i = 0; i < n; i++) {
        assert_false(f[i].prune && protected_by_reference(&f[i]));
        assert_false(f[i].prune && is_only_copy(f, n, i));
        if (!f[i].missing)
            assert_int_equal(f[i].prune, f[i].reasons == 0);
        retained += !f[i].job[0] && (f[i].reasons & NATIVE_RETAINED) != 0;
        kept += !f[i].prune && !f[i].missing;
        removed += f[i].prune && !f[i].missing;
        if (!f[i].job[0] && (f[i].running || r->job[0]) && f[i].effective_retain != UINT_MAX &&
            f[i].effective_retain > most)
            most = f[i].effective_retain;
        /* By sequence: none is retained while a newer one of the same number is let go for the limit. */
        for (size_t k = 0; k < n && r->max_per_volume >= n + 1 && !verdict.over_high_water; k++)
            if (f[i].reasons & NATIVE_RETAINED && f[k].moved && f[k].seq > f[i].seq && !f[k].missing &&
                !f[k].removing && !f[k].expired && strcmp(f[k].job, f[i].job) == 0 && r->retain_max_age_s == 0 &&
                !f[i].running && !f[k].running && f[i].effective_retain == f[k].effective_retain)
                assert_true(f[k].reasons & NATIVE_RETAINED);
    }
    assert_true(retained <= most);
    if (r->max_per_volume)
        assert_int_equal(verdict.may_create,
                         kept < r->max_per_volume && !(verdict.over_high_water && r->snapshot_only));
    if (r->about_to_create && !r->prune_after && !r->snapshot_only && !r->job[0] && verdict.may_create &&
        most == r->retain)
        assert_true(retained < (r->retain ? r->retain : 1));
    (void)removed;
}

static void shuffle(struct native_facts *f, size_t n, uint64_t *seed)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = splitmix64(seed) % i;
        struct native_facts t = f[i - 1];
        f[i - 1] = f[k];
        f[k] = t;
    }
}

static const struct native_facts *by_seq(const struct native_facts *f, size_t n, uint64_t seq)
{
    for (size_t i = 0; i < n; i++)
        if (f[i].seq == seq)
            return &f[i];
    fail();
    return f;
}

static void check_all(const struct native_rules *r, struct native_facts *f, size_t n, uint64_t *seed)
{
    struct native_facts g[16];
    check_plan(r, f, n);
    bool may = verdict.may_create;
    /* The order of the array does not matter. */
    memcpy(g, f, n * sizeof *f);
    shuffle(g, n, seed);
    check_plan(r, g, n);
    for (size_t i = 0; i < n; i++) {
        const struct native_facts *x = by_seq(f, n, g[i].seq);
        assert_true(x->prune == g[i].prune && x->reasons == g[i].reasons && strcmp(x->why, g[i].why) == 0);
    }
    /* The clock does not matter but for max-age. */
    struct native_rules c = *r;
    if (r->retain_max_age_s == 0 && r->snapshot_only_max_age_s == 0) {
        c.now_ns = (int64_t)splitmix64(seed);
        for (size_t i = 0; i < n; i++)
            g[i].created_ns = (int64_t)splitmix64(seed);
        check_plan(&c, g, n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(by_seq(f, n, g[i].seq)->prune, g[i].prune);
    }
    /* Carried out and made again it prunes nothing more, unless the pool is still too full. */
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (!f[i].prune)
            g[m++] = f[i];
    check_plan(r, g, m);
    for (size_t i = 0; i < m && !verdict.over_high_water; i++)
        assert_false(g[i].prune);
    if (may && !verdict.over_high_water)
        assert_true(verdict.may_create);
}

static struct native_facts of_sort(unsigned seq, unsigned sort)
{
    struct native_facts f = sort == 1 ? failed(seq) : sort == 2 ? alone(seq) : sort == 3 ? fact(seq) : moved(seq);
    f.hold = sort == 4;
    f.in_use = sort == 5;
    f.missing = sort == 6;
    f.expired = sort == 7;
    f.cbt_parent = sort == 8;
    return f;
}

/* Every array of up to four of nine sorts under every small set of rules. */
static void exhaustive(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (unsigned code = 0; code < 9 * 9 * 9 * 9; code++)
        for (unsigned rule = 0; rule < 32; rule++) {
            struct native_facts f[4];
            unsigned c = code;
            for (unsigned i = 0; i < 4; i++, c /= 9)
                f[i] = of_sort(i + 1, c % 9);
            struct native_rules r = rules(rule & 3);
            r.about_to_create = rule & 4;
            r.keep_on_failure = rule & 8;
            r.snapshot_only = rule & 16;
            r.snapshot_only_keep = rule & 3;
            r.max_per_volume = rule & 1 ? 3 : 64;
            check_plan(&r, f, 4);
            if (code % 7 == rule % 7)
                check_all(&r, f, 4, &seed);
        }
}

static void random_facts(void **state)
{
    (void)state;
    for (uint64_t run = 0; run < 20000; run++) {
        uint64_t seed = run;
        struct native_facts f[12];
        size_t n = splitmix64(&seed) % 13;
        for (size_t i = 0; i < n; i++) {
            uint64_t x = splitmix64(&seed);
            f[i] = fact((unsigned)i * 2 + 1);
            f[i].created_ns = NOW - (int64_t)(splitmix64(&seed) % 60) * DAY;
            f[i].moved = x & 1;
            f[i].failed = !f[i].moved && (x & 2);
            f[i].snapshot_only = (x & 0x1c) == 0;
            f[i].hold = (x & 0x1e0) == 0;
            f[i].in_use = (x & 0x1e00) == 0;
            f[i].cbt_parent = (x & 0x1e000) == 0;
            f[i].missing = (x & 0x1e0000) == 0;
            f[i].removing = (x & 0x1e00000) == 0;
            f[i].expired = (x & 0x1e000000) == 0;
            f[i].running = f[i].in_use || (x >> 32) % 8 == 0;
            f[i].effective_retain = (x >> 36) % 3 ? (unsigned)((x >> 40) % 5) : UINT_MAX;
            if ((x >> 44) % 4 == 0)
                snprintf(f[i].job, sizeof f[i].job, "%s", (x >> 48) % 2 ? "weekly" : "hourly");
        }
        shuffle(f, n, &seed);
        uint64_t y = splitmix64(&seed);
        struct native_rules r = rules((unsigned)(y % 6));
        r.about_to_create = y & 0x100;
        r.prune_after = (y & 0x600) == 0;
        r.keep_on_failure = y & 0x800;
        r.snapshot_only = (y & 0x3000) == 0;
        r.snapshot_only_keep = (unsigned)(y >> 16) % 5;
        r.retain_max_age_s = y & 0x100000 ? 0 : (int64_t)((y >> 24) % 40) * 86400;
        r.snapshot_only_max_age_s = y & 0x200000 ? 0 : (int64_t)((y >> 32) % 40) * 86400;
        r.max_per_volume = y & 0x400000 ? 64 : (unsigned)(y >> 40) % 8;
        r.pool_used_ratio = y & 0x800000 ? -1 : (double)((y >> 48) % 100) / 100;
        if ((y >> 56) % 4 == 0)
            snprintf(r.job, sizeof r.job, "weekly");
        check_all(&r, f, n, &seed);
    }
}

/* ---- facts from the records ---- */

static void add(struct records *r, enum row_kind k, const char *id, const char *parent, const char *state,
                const char *doc)
{
    assert_int_equal(row_add_doc(r, k, id, parent, "vol", state, json_loads(doc, 0, NULL), NULL), 0);
}

struct seen_volumes {
    unsigned n;
    struct records *records;
    char order[64];
};
/* As natives_gather() has them. */
static int same_facts(const struct native_row *const *rows, struct native_facts *f, size_t n, void *arg)
{
    struct seen_volumes *x = arg;
    CLEANUP_FREE struct native_facts *alone = NULL;
    size_t m;
    struct err e = ERR_INIT;
    assert_ok(natives_gather(x->records, rows[0]->volume_id, &alone, &m, &e), &e);
    assert_int_equal(n, m);
    assert_memory_equal(f, alone, n * sizeof *f);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(rows[i]->id, f[i].alias);
    strcat(strcat(x->order, rows[0]->volume_id), " ");
    return ++x->n == 3; /* ends it */
}

static void facts_of_all_volumes(void **state)
{
    (void)state;
    struct records *r = fresh();
    struct seen_volumes x = {.records = r};
    static const char *const volumes[] = {"z", "a", "z", "m", "a", "z", "q"};
    for (unsigned i = 0; i < sizeof volumes / sizeof *volumes; i++) {
        char id[16];
        snprintf(id, sizeof id, "n%u", i);
        assert_int_equal(row_add_doc(r, ROW_NATIVE, id, "", volumes[i], "present", json_object(), NULL), 0);
        if (i % 2 == 0)
            assert_int_equal(
                row_add_doc(r, ROW_OPERATION, id, "", volumes[i], "Running", json_pack("{s:s}", "native", id), NULL),
                0);
    }
    struct err e = ERR_INIT;
    assert_int_equal(natives_each(r, same_facts, &x, &e), 1);
    assert_string_equal(x.order, "z a m ");
    done(r);
}

static void facts_from_records(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    add(r, ROW_BACKUP, "B1", "", "Completed", "{}");
    add(r, ROW_BACKUP, "B2", "", "Deleting", "{}");
    add(r, ROW_BACKUP, "B3", "", "Moving", "{}");
    add(r, ROW_NATIVE, "n1", "B1", "present",
        "{\"native\":{\"seq\":7,\"created_ns\":99,\"used\":4096,\"repository\":\"main\",\"backup\":\"B1\"},\"moved\":"
        "true,"
        "\"moved_verified\":true,\"effective_retain\":3,\"job\":\"nightly\",\"hold\":{\"note\":\"x\",\"at\":1}}");
    add(r, ROW_NATIVE, "n2", "B2", "present", "{\"moved\":true,\"cbt_parent\":true}");
    add(r, ROW_NATIVE, "n3", "B3", "missing", "{\"failed\":true,\"job\":\"weekly\",\"job_retain\":true}");
    add(r, ROW_NATIVE, "n4", "gone", "removing", "{\"snapshot_only\":true,\"hold\":null,\"effective_retain\":-1}");
    add(r, ROW_NATIVE, "n5", "", "present",
        "{\"native\":[],\"moved\":\"yes\",\"effective_retain\":\"many\",\"job\":5}");
    add(r, ROW_OPERATION, "up-1", "B1", "Completed", "{\"native\":\"n1\"}");
    add(r, ROW_OPERATION, "down-1", "", "Running", "{\"native\":\"n2\"}");
    add(r, ROW_OPERATION, "up-3", "B3", "CleaningUp", "{\"native\":\"n3\",\"releasing\":true}");
    assert_int_equal(row_add_doc(r, ROW_NATIVE, "n9", "", "other", "present", json_object(), NULL), 0);
    CLEANUP_FREE struct native_facts *f = NULL;
    size_t n;
    assert_ok(natives_gather(r, "vol", &f, &n, &e), &e);
    assert_int_equal(n, 5);
    assert_string_equal(f[0].alias, "n1");
    assert_true(f[0].seq == 7 && f[0].created_ns == 99 && f[0].used == 4096 && f[0].moved && f[0].hold && !f[0].in_use);
    assert_true(!f[0].running && !f[0].expired && f[0].effective_retain == 3);
    assert_string_equal(f[0].job, ""); /* the number is not the job's own */
    assert_string_equal(f[0].backup, "B1");
    assert_string_equal(f[0].repository, "main");
    assert_true(!f[1].moved && f[1].cbt_parent && f[1].in_use && f[1].expired && f[1].seq > 7); /* not verified yet */
    assert_true(f[2].missing && f[2].failed && f[2].running && !f[2].in_use && f[2].effective_retain == UINT_MAX);
    assert_string_equal(f[2].job, "weekly");
    assert_true(f[3].removing && f[3].snapshot_only && !f[3].hold && f[3].effective_retain == UINT_MAX &&
                !f[3].running);
    assert_true(!f[4].moved && f[4].used == UINT64_MAX && f[4].effective_retain == UINT_MAX && !f[4].job[0]);
    done(r);
}

static void rules_from_a_policy(void **state)
{
    (void)state;
    struct policy p;
    policy_init(&p);
    p.move_data = p.keep_on_failure = p.prune_before = true;
    p.snapshots_to_retain = 7;
    p.retain_max_age_s = 60;
    p.max_snapshots_per_volume = 9;
    p.pool_high_water = 85;
    p.snapshot_only_keep = 4;
    p.snapshot_only_max_age_s = 70;
    struct native_rules r;
    native_rules(&r, &p, "nightly", 0.5, true, now_ns());
    assert_true(r.retain == 7 && r.retain_max_age_s == 60 && r.keep_on_failure && !r.prune_after && r.about_to_create);
    assert_true(r.max_per_volume == 9 && r.pool_high_water > 0.849 && r.pool_high_water < 0.851 && !r.snapshot_only);
    assert_true(r.snapshot_only_keep == 4 && r.snapshot_only_max_age_s == 70 && r.now_ns > 0 && !r.job[0]);
    p.move_data = p.prune_before = false;
    p.job_retain = true;
    native_rules(&r, &p, "nightly", -1, false, now_ns());
    assert_true(r.snapshot_only && r.prune_after && !r.about_to_create && r.pool_used_ratio < 0);
    assert_string_equal(r.job, "nightly");
    policy_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_stay),
        cmocka_unit_test(a_bookmark_is_a_base),
        cmocka_unit_test(of_a_volume_that_is_gone),
        cmocka_unit_test(age_is_by_sequence),
        cmocka_unit_test(prune_before_create),
        cmocka_unit_test(an_only_copy_is_not_pruned),
        cmocka_unit_test(reasons_are_references),
        cmocka_unit_test(the_number_of_a_running_backup_is_its_own),
        cmocka_unit_test(a_jobs_own_number_counts_its_own),
        cmocka_unit_test(max_age),
        cmocka_unit_test(expired_missing_and_half_removed),
        cmocka_unit_test(failed_ones),
        cmocka_unit_test(snapshot_only_has_its_own_limits),
        cmocka_unit_test(over_the_high_water_mark),
        cmocka_unit_test(over_the_mark_a_parent_goes_first),
        cmocka_unit_test(snapshot_only_is_refused_over_the_mark),
        cmocka_unit_test(the_maximum_counts_all),
        cmocka_unit_test(nothing_at_all),
        cmocka_unit_test(exhaustive),
        cmocka_unit_test(random_facts),
        cmocka_unit_test(facts_from_records),
        cmocka_unit_test(facts_of_all_volumes),
        cmocka_unit_test(rules_from_a_policy),
    };
    return cmocka_run_group_tests_name("natives", tests, records_setup, records_teardown);
}
