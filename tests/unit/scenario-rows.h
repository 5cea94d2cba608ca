/* SPDX-License-Identifier: GPL-2.0-or-later */
/* scenario-rows.h - commands of scenarios that make rows and ask questions; include it behind scenario.h in one file of
 * a program */
#ifndef SNAPFERRY_TESTS_UNIT_SCENARIO_ROWS_H
#define SNAPFERRY_TESTS_UNIT_SCENARIO_ROWS_H

#include "daemon/decide/judge.h"
#include "tests/unit/model-requests.h"
#include "tests/unit/rows.h"
#include "tests/unit/scenario.h"

/* ---- rows as they are needed ---- */

static enum row_kind kind_named(const char *name)
{
    static const char *const kinds[ROW_KINDS] = {"backup", "operation", "native", "volume", "job"};
    for (int k = 0; k < ROW_KINDS; k++)
        if (!strcmp(kinds[k], name))
            return (enum row_kind)k;
    wrong("%s is no kind of row", name);
}

/* add KIND ID STATE {...}: with members parent, volume_id beside those of the row; policy=NAME: as that volume has it
 */
static void cmd_add(void)
{
    const enum row_kind k = kind_named(word(1));
    json_t *doc = json_word();
    doc = doc ? doc : json_object();
    char parent[200], volume_id[200];
    const char *of = option("policy");
    snprintf(parent, sizeof parent, "%s", jstr(doc, "parent"));
    snprintf(volume_id, sizeof volume_id, "%s", jstr(doc, "volume_id"));
    json_object_del(doc, "parent");
    json_object_del(doc, "volume_id");
    if (of) {
        struct cfg_policy p = {.effective = NULL};
        struct policy policy;
        cfg_policy(m.d.world.cfg, cfg_named(of), NULL, &p, NULL);
        policy_from_cfg(&policy, &p);
        cfg_policy_clear(&p);
        json_object_set_new(doc, "policy", fields_to_json(&policy_fields, &policy));
        policy_clear(&policy);
    }
    if (row_add_doc(m.records, k, word(2), parent, volume_id, word(3), doc, NULL) < 0)
        wrong("%s cannot be added", word(2));
    if (k == ROW_NATIVE && !has_word("absent"))
        json_object_set_new(m.natives, word(2), json_pack("{s:s,s:s}", "volume", volume_id, "operation", ""));
    forget_changed();
}

/* set KIND ID [state=S] {...}; job repository:NAME is the row of a repository */
static void cmd_set(void)
{
    const enum row_kind k = kind_named(word(1));
    json_t *doc = json_word();
    char id[200];
    if (strncmp(word(2), "repository:", 11) == 0)
        snprintf(id, sizeof id, "[repository %.100s]", word(2) + 11);
    else
        snprintf(id, sizeof id, "%.190s", word(2));
    if (row_update_doc(m.records, k, id, option("state"), doc ? doc : json_object()) < 0)
        wrong("%s cannot be changed", id);
    forget_changed();
}

static void cmd_drop(void)
{
    if (row_delete(m.records, kind_named(word(1)), word(2), NULL) < 0)
        wrong("%s cannot be removed", word(2));
    forget_changed();
}

/* lost SNAPSHOT: the repository can no longer read it */
static void cmd_lost(void)
{
    json_t *s = json_object_get(m.snapshots, word(1));
    if (!s)
        wrong("the repository has no %s", word(1));
    jset_bool(s, "readable", false);
}

static void cmd_kept(void)
{
    json_t *s = json_object_get(m.snapshots, word(1));
    if (!s)
        wrong("the repository has no %s", word(1));
    jset_bool(s, "kept", true);
}

/* ---- questions ---- */

static void cmd_show(void)
{
    union any_row r;
    const enum row_kind k = kind_named(word(1));
    if (row_get(m.records, k, word(2), &r, NULL) < 0) {
        out_line("there is none");
    } else {
        struct row_text row = row_text(k, &r);
        json_t *doc = row_doc(&row), *v;
        for (unsigned i = 3; i < cmd.n; i++) {
            char *text = value_text((v = json_object_get(doc, cmd.word[i])));
            out_line("%s: %s", cmd.word[i], v ? text : "none");
            free(text);
        }
        if (cmd.n == 3)
            out_line("%s", jstr(doc, ""));
        json_decref(doc);
        row_text_free(&row);
    }
    row_clear(row_types[k].fields, &r);
}

static void cmd_why(void)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    char why[1024];
    if (operation_get(m.records, word(1), &op, NULL) < 0)
        wrong("there is no %s", word(1));
    operation_waits_for(&m.d, &op, why, sizeof why);
    if (!why[0])
        natives_asked(&m.d, &op, why, sizeof why);
    out_line("%s", why[0] ? why : "it does not wait");
}

static void cmd_position(void)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    char by[192];
    if (backup_get(m.records, word(1), &b, NULL) < 0)
        wrong("there is no %s", word(1));
    const unsigned at = backup_position(&m.d, &b, by);
    out_line("place %u%s%s", at, by[0] ? ", behind " : "", by);
}

static void cmd_counters(void)
{
    show_counters(true);
}

/* counter NAME {LABELS} VALUE: as an earlier version left it */
static void cmd_counter(void)
{
    CLEANUP_JSON json_t *labels = need_json();
    records_begin(m.records, NULL);
    if (records_counter_add(m.records, word(1), labels, atof(word(3)), NULL) < 0 || records_commit(m.records, NULL) < 0)
        wrong("%s cannot be counted", word(1));
}

static void cmd_migrate(void)
{
    records_begin(m.records, NULL);
    count_migrate(m.records);
    records_commit(m.records, NULL);
}

static void cmd_begun(void)
{
    count_backup_begun(&m.d, word(1), has_word("restore"));
}

static void cmd_start_failed(void)
{
    count_start_failed(&m.d, word(1));
}

static void cmd_intents(void)
{
    json_decref(intents_seen);
    intents_seen = json_object();
    show_intents();
}

static void show_members(const json_t *doc)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)doc, key, v)
    {
        char *text = value_text(v);
        out_line("%s %s", key, text);
        free(text);
    }
}

/* What an operation of the volume would take along. */
static void cmd_policy(void)
{
    struct cfg_policy p = {.effective = NULL};
    struct policy policy;
    struct err e = ERR_INIT;
    if (cfg_policy(m.d.world.cfg, cfg_named(word(1)), option("job"), &p, &e) < 0)
        wrong("%s", e.msg);
    policy_from_cfg(&policy, &p);
    cfg_policy_clear(&p);
    CLEANUP_JSON json_t *doc = fields_to_json(&policy_fields, &policy), *job = json_object();
    limits_job(job, &policy);
    show_members(doc);
    out_line("of a job:");
    show_members(job);
    policy_clear(&policy);
}

/* limits OPERATION: the rates that the configuration has for it by now. */
static void cmd_limits(void)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct mover_limits l;
    if (operation_read(&m.d, word(1), &op) < 0)
        wrong("there is no %s", word(1));
    const int rc = limits_of(m.d.world.cfg, &op, &l);
    if (rc < 0)
        out_line("as it has them");
    else
        out_line("read %lld, write %lld, times \"%s\"", (long long)l.read_limit, (long long)l.write_limit,
                 l.limit_times);
    fields_clear(&mover_limits_fields, &l);
}

/* native-policy ALIAS [job]: by which it is kept; job: also by the numbers of its job. */
static void cmd_native_policy(void)
{
    const struct native_row *n = native_row_peek(m.records, word(1));
    if (!n)
        wrong("there is no %s", word(1));
    CLEANUP(policy_unrefp) const struct policy *policy = native_policy(m.records, m.d.world.cfg, n, has_word("job"));
    out_line("repository %s, snapshots-to-retain %lld%s", policy->repository, (long long)policy->snapshots_to_retain,
             policy->job_retain ? " of its job" : "");
}

/* ---- what is kept for inspection ---- */

static void cmd_release(void)
{
    if (!release_kept(word(1)))
        wrong("%s is not kept for inspection", word(1));
}

/* The sweep, which cannot remove them. */
static void sweep_kept_fails(const char *why)
{
    CLEANUP_JSON json_t *list = kept_released(m.records), *answers = json_array();
    const json_t *intent;
    size_t i;
    json_array_foreach(list, i, intent) json_array_append_new(
        answers, json_pack("{s:O,s:o}", "id", json_object_get(intent, "id"), "error", answer_error(why, ERR_BUSY)));
    CLEANUP_JSON json_t *answer = json_pack("{s:O}", "intents", answers);
    records_begin(m.records, NULL);
    kept_removed(&m.d, answer);
    records_commit(m.records, NULL);
}

/* sweep-kept [dies] [why="..."] */
static void cmd_sweep_kept(void)
{
    option("why") ? sweep_kept_fails(option("why")) : sweep_kept(has_word("dies"));
}

static void cmd_class(void)
{
    CLEANUP(class_desc_unrefp)
    const struct class_desc *c =
        class_for_path(m.d.world.cfg, cfg_named(word(1)), has_word("block") ? "device" : "reflink");
    CLEANUP_JSON json_t *doc = class_desc_to_json(c);
    show_members(doc);
}

static void cmd_volume(void)
{
    CLEANUP(volume_row_clear) struct volume_row v;
    char repository[128];
    volume_row_init(&v);
    if (volume_find(&m.d, word(1), &v) < 0) {
        out_line("there is none");
        return;
    }
    volume_repository(&m.d, &v, repository, sizeof repository);
    out_line("volume %s, %s, last good backup \"%s\" in \"%s\"%s%s", v.id, known_state_name(v.state),
             v.last_good_backup, repository, v.last_good_lost[0] ? ": " : "", v.last_good_lost);
}

/* judge NAME [JOB=INTERVAL[:paused]]...: whether the volume is protected, and why not */
static void cmd_judge(void)
{
    CLEANUP(volume_row_clear) struct volume_row v;
    struct job_view jobs[WORDS_MAX];
    struct jobs_now now = {jobs, 0};
    char why[1000];
    memset(jobs, 0, sizeof jobs);
    for (unsigned i = 2; i < cmd.n; i++) {
        char *interval = strchr(cmd.word[i], '='), *paused = strstr(cmd.word[i], ":paused");
        struct job_view *j = &jobs[now.n++];
        if (!interval)
            wrong("%s is no JOB=INTERVAL", cmd.word[i]);
        *interval = '\0';
        if (paused)
            *paused = '\0';
        *j = (struct job_view){.name = cmd.word[i], .paused = paused, .interval_s = duration(interval + 1) / NS_PER_S};
    }
    volume_row_init(&v);
    const bool known = volume_find(&m.d, word(1), &v) == 0;
    const char *excluded = volume_excluded(m.d.world.cfg, cfg_named(word(1)), -1);
    const int64_t interval = volume_interval(m.d.world.cfg, &now, cfg_named(word(1)));
    const enum volume_state s = volume_judge(v.state == VOL_GONE, excluded != NULL, v.last_success_ns, interval, m.now);
    volume_why(s, known ? &v : NULL, excluded, now.n > 0, m.now, why, sizeof why);
    out_line("%s%s%s, every %lld s", volume_states[s], why[0] ? ": " : "", why, (long long)interval);
}

/* note NAME: its driver has seen it */
static void cmd_note(void)
{
    CLEANUP(volume_row_clear) struct volume_row v;
    volume_row_init(&v);
    if (volume_find(&m.d, word(1), &v) < 0)
        wrong("there is no %s", word(1));
    records_begin(m.records, NULL);
    volume_note(&m.d, v.volume, "seen", NULL, NULL);
    records_commit(m.records, NULL);
}

static void cmd_health(void)
{
    const struct repo_health *h = repository_health(&m.d, word(1));
    const char *down = repository_down(&m.d, word(1));
    out_line("%s, since @%llds%s", down ? down : "up", (long long)((h->since_ns - EPOCH_NS) / NS_PER_S),
             repository_full(h) ? ", full" : "");
}

static void cmd_found(void)
{
    volume_backup_found(&m.d, word(1));
}

#endif
