/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What metrics_collect() gives: facts of the records in memory, counters that count once, zeros from the start (D.3).
 */
#include "tests/unit/test.h"

#include "daemon/answers/answers.h"
#include "daemon/answers/overview.h"
#include "daemon/decide/maintain.h"
#include "daemon/decide/verification.h"
#include "daemon/metrics/collect.h"
#include "daemon/metrics/samples.h"
#include "rows.h"

#include <sys/stat.h>
#include <math.h>
#include <time.h>

struct fixture {
    char dir[64];
    struct engine g;
    struct cfg *cfg;
};

static void open_with(struct fixture *x, const char *more)
{
    char ini[2048], path[128];
    struct err e = ERR_INIT;
    struct records_news news;
    memset(x, 0, sizeof *x);
    strcpy(x->dir, "/tmp/snapferry-metrics.XXXXXX");
    assert_non_null(mkdtemp(x->dir));
    snprintf(
        ini, sizeof ini,
        "[daemon]\nnode-name = n\nslots = 3\n[metrics]\nlisten =\n"
        "[repository \"main\"]\ntype = filesystem\npath = /srv/r\npassword-file = /etc/p\n"
        "[storage-class \"c\"]\ndriver = reflink\nmatch = /srv/*.img\nrepository = main\nsnapshots-to-retain = 5\n%s",
        more);
    snprintf(path, sizeof path, "%s/snapferry.ini", x->dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(ini, f);
    fclose(f);
    if (cfg_load_dir(&x->cfg, x->dir, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(records_open(&x->g.records, x->dir, &news, &e), 0);
    x->g.cfg = x->cfg;
    x->g.d = (struct decide){.records = x->g.records, .world = {.clock = now_ns, .cfg = x->cfg}};
    assert_int_equal(decide_init(&x->g.d, &e), 0);
    x->g.reload_ok = true;
    x->g.started_ns = now_ns();
    assert_int_equal(facts_new(&x->g, &e), 0);
    x->g.overview = overview_new(x->g.records);
    assert_non_null(x->g.overview);
    assert_int_equal(rows_watch(x->g.records, overview_row, x->g.overview), 0);
    sd_event *loop = NULL;
    assert_true(sd_event_new(&loop) >= 0);
    x->g.loop = loop;
    assert_int_equal(steps_new(&x->g.steps, loop, &e), 0);
    const struct movers_opts mo = {.loop = loop,
                                   .steps = x->g.steps,
                                   .runtime_dir = x->dir,
                                   .state_dir = x->dir,
                                   .program = "/bin/true",
                                   .events = &engine_mover_events,
                                   .arg = &x->g};
    assert_int_equal(movers_new(&x->g.movers, &mo, &e), 0);
}

static void close_it(struct fixture *x)
{
    char command[128];
    volumes_free(&x->g);
    decide_free(&x->g.d);
    repositories_free(&x->g);
    facts_free(&x->g);
    rows_unwatch(x->g.records, x->g.overview);
    overview_free(x->g.overview);
    movers_free(x->g.movers);
    steps_free(x->g.steps);
    records_close(x->g.records);
    sd_event_unref(x->g.loop);
    json_decref(x->g.pools);
    cfg_free(x->cfg);
    snprintf(command, sizeof command, "rm -rf %s", x->dir);
    assert_int_equal(system(command), 0);
}

/* What was found is recorded. */
static void listed(struct fixture *x, const json_t *classes)
{
    volumes_listed(&x->g, classes);
    engine_turn(&x->g);
    engine_committed(&x->g);
    assert_false(engine_is_writing(&x->g) || requests_wait(&x->g.d));
}

/* Value of a sample: labels as "a=b,c=d". NAN: there is none; twice: a failure. */
static double value(struct fixture *x, const char *name, const char *labels)
{
    CLEANUP_JSON json_t *o = metrics_collect(&x->g);
    CLEANUP_JSON json_t *want = json_object(), *none = json_object();
    double ret = NAN;
    const json_t *s;
    size_t i;
    char copy[512], *save = NULL;
    snprintf(copy, sizeof copy, "%s", labels);
    for (char *pair = strtok_r(copy, ",", &save); pair; pair = strtok_r(NULL, ",", &save)) {
        char *eq = strchr(pair, '=');
        assert_non_null(eq);
        *eq = '\0';
        jset_str(want, pair, eq + 1);
    }
    json_array_foreach(json_object_get(o, "samples"), i, s)
    {
        const json_t *have = json_object_get(s, "labels");
        if (strcmp(jstr(s, "name"), name) || !json_equal(have ? have : none, want))
            continue;
        assert_true(isnan(ret)); /* not twice */
        ret = json_number_value(json_object_get(s, "value"));
    }
    return ret;
}
#define assert_sample(x, name, labels, want)                                                                           \
    do {                                                                                                               \
        double got_ = value(x, name, labels);                                                                          \
        if (!(got_ == (want)))                                                                                         \
            fail_msg("%s{%s} is %g, wanted %g", name, labels, got_, (double)(want));                                   \
    } while (0)
#define assert_no_sample(x, name, labels) assert_true(isnan(value(x, name, labels)))

static void put(struct fixture *x, enum row_kind k, const char *id, const char *volume, const char *state, json_t *doc)
{
    assert_non_null(doc);
    assert_int_equal(row_add_doc(x->g.records, k, id, "", volume, state, doc, NULL), 0);
}

static void operation_from(struct operation *op, json_t *doc)
{
    union any_row r;
    row_from_doc(&r, ROW_OPERATION, "", "", "", "", doc);
    *op = r.operation;
}

static json_t *operation(const char *kind, const char *volume)
{
    return json_pack("{s:s,s:{s:s},s:{s:s},s:{s:s,s:i}}", "kind", kind, "volume", "name", volume, "own", "name",
                     strcmp(kind, "backup") ? "" : "c", "policy", "repository", "main", "retries", 1);
}

static json_t *volume(const char *name, int64_t success_ns)
{
    return json_pack("{s:{s:s,s:s,s:I},s:s,s:s,s:I,s:I}", "volume", "name", name, "id", name, "size", (json_int_t)4096,
                     "class", "c", "last_status", "Completed", "last_success_ns", (json_int_t)success_ns,
                     "last_changed_bytes", (json_int_t)7);
}

/* ---- every sample fits its family; there is none twice ---- */

static void all_fit(struct fixture *x)
{
    CLEANUP_JSON json_t *o = metrics_collect(&x->g), *seen = json_object();
    const json_t *s;
    size_t i;
    json_array_foreach(json_object_get(o, "samples"), i, s)
    {
        const json_t *labels = json_object_get(s, "labels");
        const struct metric_family *f = metric_family(jstr(s, "name"));
        CLEANUP_FREE char *key = NULL;
        CLEANUP_JSON json_t *none = json_object();
        if (!f)
            fail_msg("%s is no family", jstr(s, "name"));
        key = sample_key(jstr(s, "name"), labels ? labels : none);
        if (json_object_get(seen, key))
            fail_msg("%s is there twice", key);
        json_object_set_new(seen, key, json_true());
        size_t n = f->labels[0] != '\0';
        for (const char *p = f->labels; *p; p++)
            n += *p == ',';
        if (json_object_size(labels) != n + (json_object_get(labels, "le") != NULL))
            fail_msg("%s has other labels than its family", key);
    }
    assert_true(json_object_size(seen) > 500);
}

static void zeros_from_the_start(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "[job \"j\"]\nvolumes = class:c\n");
    all_fit(&x);
    assert_sample(&x, "operations", "direction=backup,state=Queued", 0);
    assert_sample(&x, "operations", "direction=delete,state=CleaningUp", 0);
    assert_sample(&x, "operations_total", "direction=backup,class=c,result=completed,reason=", 0);
    /* The first failure of any kind is an increase. */
    const char *reason, *code;
    char labels[200];
    for (unsigned i = 0; (reason = count_reason_at(i)); i++) {
        snprintf(labels, sizeof labels, "direction=restore,class=c,result=failed,reason=%s", reason);
        assert_sample(&x, "operations_total", labels, 0);
        snprintf(labels, sizeof labels, "direction=delete,reason=%s", reason);
        assert_sample(&x, "operation_retries_total", labels, 0);
    }
    for (unsigned i = 0; (code = count_code_at(i)); i++) {
        snprintf(labels, sizeof labels, "repository=main,op=list,code=%s", code);
        assert_sample(&x, "repository_requests_total", labels, 0);
    }
    assert_sample(&x, "operations_total", "direction=restore,class=,result=failed,reason=no-space", 0);
    assert_sample(&x, "written_bytes_total", "class=", 0);
    assert_sample(&x, "backups_total", "direction=backup,schedule=j,result=failed", 0);
    assert_sample(&x, "backup_failures_total", "schedule=", 0);
    assert_sample(&x, "mover_exits_total", "direction=verify,cause=out-of-memory", 0);
    assert_sample(&x, "snapshots", "class=c,reason=held", 0);
    assert_sample(&x, "snapshot_limit", "class=c", 5);
    assert_sample(&x, "operation_duration_seconds_bucket", "direction=backup,stage=upload,le=+Inf", 0);
    assert_sample(&x, "repository_requests_total", "repository=main,op=put,code=ok", 0);
    assert_sample(&x, "orphans", "kind=native", 0);
    assert_sample(&x, "slots", "", 3);
    close_it(&x);
}

static void states_are_counted_as_they_change(void **state)
{
    (void)state;
    struct fixture x;
    struct operation op;
    struct err e = ERR_INIT;
    open_with(&x, "");
    put(&x, ROW_OPERATION, "up-1", "v", "Queued", operation("backup", "/srv/a.img"));
    assert_int_equal(operation_get(x.g.records, "up-1", &op, &e), 0);
    put(&x, ROW_OPERATION, "up-2", "w", "Running", operation("restore", "/srv/b.img"));
    assert_sample(&x, "operations", "direction=backup,state=Queued", 1);
    assert_sample(&x, "queue_length", "direction=backup", 1);
    assert_sample(&x, "slots_used", "", 1);
    assert_int_equal(operation_become(&x.g.d, &op, OP_EXPOSING), 0);
    assert_sample(&x, "operations", "direction=backup,state=Queued", 0);
    assert_sample(&x, "operations", "direction=backup,state=Exposing", 1);
    assert_sample(&x, "queue_wait_seconds_count", "direction=backup", 1);
    /* What is prepared and has no slot yet waits, as in status; it is not an Exposing that hangs. */
    op.state_since_ns = now_ns() - 7200 * NS_PER_S;
    op.exposure = json_object();
    assert_int_equal(operation_save(x.g.records, &op, &e), 0);
    assert_sample(&x, "operations", "direction=backup,state=Exposing", 0);
    assert_sample(&x, "operation_state_age_seconds", "state=Exposing", 0);
    assert_sample(&x, "operations", "direction=backup,state=Queued", 1);
    assert_sample(&x, "queue_length", "direction=backup", 1);
    assert_int_equal(overview_counts(x.g.overview).queued, 1); /* of status */
    json_decref(op.exposure);
    op.exposure = NULL;
    assert_int_equal(operation_save(x.g.records, &op, &e), 0);
    assert_sample(&x, "operations", "direction=backup,state=Exposing", 1);
    assert_sample(&x, "queue_length", "direction=backup", 0);
    /* A change is seen when it is made, and a transaction that is undone leaves no trace. */
    assert_int_equal(records_begin(x.g.records, &e), 0);
    op.state = OP_RUNNING;
    assert_int_equal(operation_save(x.g.records, &op, &e), 0);
    assert_sample(&x, "operations", "direction=backup,state=Exposing", 0);
    assert_sample(&x, "operations", "direction=backup,state=Running", 1);
    records_rollback(x.g.records);
    assert_sample(&x, "operations", "direction=backup,state=Exposing", 1);
    assert_sample(&x, "operations", "direction=backup,state=Running", 0);
    operation_clear(&op);
    assert_int_equal(operation_get(x.g.records, "up-1", &op, &e), 0);
    assert_int_equal(operation_become(&x.g.d, &op, OP_COMPLETED), 0);
    assert_sample(&x, "operations", "direction=backup,state=Exposing", 0);
    operation_clear(&op);
    all_fit(&x);
    close_it(&x);
}

static void progress_of_what_runs(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "");
    put(&x, ROW_OPERATION, "up-1", "v", "Running", operation("backup", "/srv/a.img"));
    assert_true(value(&x, "operation_last_progress_timestamp_seconds", "direction=backup,volume=/srv/a.img") > 1e9);
    assert_no_sample(&x, "operation_done_bytes", "direction=backup,volume=/srv/a.img");
    struct live *l = live_get(&x.g.d, "up-1");
    l->progress = json_pack("{s:i,s:i}", "total", 100, "done", 40);
    l->moved_ns = INT64_C(5000000000000000000);
    assert_sample(&x, "operation_expected_bytes", "direction=backup,volume=/srv/a.img", 100);
    assert_sample(&x, "operation_done_bytes", "direction=backup,volume=/srv/a.img", 40);
    assert_sample(&x, "operation_last_progress_timestamp_seconds", "direction=backup,volume=/srv/a.img", 5e9);
    live_drop(&x.g.d, "up-1");
    assert_no_sample(&x, "operation_done_bytes", "direction=backup,volume=/srv/a.img");
    close_it(&x);
}

static void volumes_come_and_go(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "[volume \"/srv/x.img\"]\nexclude = yes\n");
    put(&x, ROW_VOLUME, "id-a", "id-a", "known", volume("/srv/a.img", now_ns()));
    put(&x, ROW_VOLUME, "id-old", "id-old", "known", volume("/elsewhere/b.img", 5));
    put(&x, ROW_VOLUME, "id-x", "id-x", "known", volume("/srv/x.img", 5));
    assert_sample(&x, "volume_protected", "volume=/srv/a.img", 1);
    assert_sample(&x, "volume_size_bytes", "volume=/srv/a.img", 4096);
    assert_sample(&x, "volume_last_changed_bytes", "volume=/srv/a.img", 7);
    assert_sample(&x, "volume_last_status", "volume=/srv/a.img", 1);
    assert_no_sample(&x, "volume_protected", "volume=/elsewhere/b.img"); /* no class has it */
    assert_no_sample(&x, "volume_protected", "volume=/srv/x.img");       /* excluded */
    /* Made anew under the same name: the newer one has it. */
    json_t *again = volume("/srv/a.img", 0);
    jset_int(jobj(again, "volume"), "size", 8192);
    put(&x, ROW_VOLUME, "id-a2", "id-a2", "known", again);
    assert_sample(&x, "volume_size_bytes", "volume=/srv/a.img", 8192);
    assert_sample(&x, "volume_protected", "volume=/srv/a.img", 0);
    /* Its class lists neither any more, then the first again. */
    CLEANUP_JSON json_t *none = json_pack("[{s:{s:s},s:b,s:[]}]", "class", "name", "c", "all", 1, "volumes");
    listed(&x, none);
    assert_no_sample(&x, "volume_size_bytes", "volume=/srv/a.img");
    CLEANUP_JSON json_t *one =
        json_pack("[{s:{s:s},s:b,s:[{s:s,s:s,s:i},{s:s,s:s,s:i}]}]", "class", "name", "c", "all", 1, "volumes", "id",
                  "id-a", "name", "/srv/a.img", "size", 4096, "id", "id-new", "name", "/srv/new.img", "size", 512);
    listed(&x, one);
    assert_sample(&x, "volume_protected", "volume=/srv/new.img", 0); /* nobody has asked for it */
    assert_sample(&x, "volumes", "state=protected", 1);
    assert_sample(&x, "volumes", "state=unprotected", 1);
    assert_sample(&x, "volumes", "state=gone", 2);     /* the newer of that name, and x.img */
    assert_sample(&x, "volumes", "state=excluded", 1); /* no class has it */
    assert_sample(&x, "volume_size_bytes", "volume=/srv/a.img", 4096);
    /* A class that was not asked for everything, or did not answer, tells nothing. */
    CLEANUP_JSON json_t *some = json_pack("[{s:{s:s},s:b,s:[]}]", "class", "name", "c", "all", 0, "volumes");
    listed(&x, some);
    CLEANUP_JSON json_t *failed =
        json_pack("[{s:{s:s},s:b,s:[],s:{s:s}}]", "class", "name", "c", "all", 1, "volumes", "error", "message", "x");
    listed(&x, failed);
    assert_sample(&x, "volume_size_bytes", "volume=/srv/a.img", 4096);
    all_fit(&x);
    close_it(&x);
}

static int64_t appeared_ns(struct fixture *x, const char *id)
{
    const struct volume_row *v = volume_row_peek(x->g.records, id);
    assert_non_null(v);
    return v->appeared_ns;
}

/* A volume is new if it comes while all others of its class are recorded; not what the first list has, nor what comes
 * back with a file system that was away. */
static void new_volumes_are_known_as_such(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "");
    CLEANUP_JSON json_t *one = json_pack("[{s:{s:s},s:b,s:[{s:s,s:s}]}]", "class", "name", "c", "all", 1, "volumes",
                                         "id", "id-a", "name", "/srv/a.img");
    CLEANUP_JSON json_t *two =
        json_pack("[{s:{s:s},s:b,s:[{s:s,s:s},{s:s,s:s}]}]", "class", "name", "c", "all", 1, "volumes", "id", "id-a",
                  "name", "/srv/a.img", "id", "id-b", "name", "/srv/b.img");
    CLEANUP_JSON json_t *none = json_pack("[{s:{s:s},s:b,s:[]}]", "class", "name", "c", "all", 1, "volumes");
    listed(&x, one);
    assert_int_equal(appeared_ns(&x, "id-a"), 0);
    listed(&x, one);
    listed(&x, two);
    assert_int_equal(appeared_ns(&x, "id-a"), 0);
    assert_true(appeared_ns(&x, "id-b") > 0);
    listed(&x, two);
    listed(&x, none);
    assert_null(volume_row_peek(x.g.records, "id-a"));
    listed(&x, two);
    assert_int_equal(appeared_ns(&x, "id-a"), 0);
    listed(&x, none);
    listed(&x, none);
    listed(&x, one);
    assert_int_equal(appeared_ns(&x, "id-a"), 0);
    close_it(&x);
}

/* A driver that does not tell what a native holds: no sample rather than 0. */
static void what_is_not_told_is_not_shown(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "");
    assert_sample(&x, "snapshot_used_bytes", "class=c", 0); /* there is none */
    put(&x, ROW_NATIVE, "alias", "v", "present",
        json_pack("{s:{s:s},s:{s:n,s:I}}", "class", "name", "c", "native", "used", "created_ns", (json_int_t)1));
    assert_no_sample(&x, "snapshot_used_bytes", "class=c");
    close_it(&x);
}

/* A cancel says nothing about how backups of the volume go. */
static void a_cancel_is_no_verdict(void **state)
{
    (void)state;
    static const char *const t[][2] = {{"Canceled", ""}, {"Canceled", "Completed"}, {"Canceled", "Failed"},
                                       {"Failed", ""},   {"Completed", ""},         {"Skipped", "Completed"}};
    static const double want[] = {NAN, 1, 0, 0, 1, 1};
    struct fixture x;
    open_with(&x, "");
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char id[16], name[32], labels[64];
        snprintf(id, sizeof id, "id-%zu", i);
        snprintf(name, sizeof name, "/srv/%zu.img", i);
        snprintf(labels, sizeof labels, "volume=%s", name);
        json_t *v = volume(name, 0);
        jset_str(v, "last_status", t[i][0]);
        if (t[i][1][0])
            jset_str(v, "last_verdict", t[i][1]);
        put(&x, ROW_VOLUME, id, id, "known", v);
        double got = value(&x, "volume_last_status", labels);
        if (isnan(want[i]) ? !isnan(got) : got != want[i])
            fail_msg("%s after %s: %g", t[i][0], t[i][1], got);
    }
    close_it(&x);
}

/* One rule for status, metrics and the alert. */
static void too_old(void **state)
{
    (void)state;
    const int64_t hour = 3600 * NS_PER_S, success = 10 * hour;
    assert_int_equal(volume_judge(false, false, success, 3600, success + hour * 5 / 2), VOLUME_PROTECTED);
    assert_int_equal(volume_judge(false, false, success, 3600, success + hour * 5 / 2 + 1), VOLUME_UNPROTECTED);
    assert_int_equal(volume_judge(false, false, success, 604800, success + 400 * hour), VOLUME_PROTECTED);
    assert_int_equal(volume_judge(false, false, success, 0, success + 100000 * hour), VOLUME_PROTECTED);
    /* The clock was set back: a little, or so far that the age is not known. */
    assert_int_equal(volume_judge(false, false, success, 3600, success - hour), VOLUME_PROTECTED);
    assert_int_equal(volume_judge(false, false, success, 3600, success - hour * 5 / 2), VOLUME_PROTECTED);
    assert_int_equal(volume_judge(false, false, success, 3600, success - hour * 5 / 2 - 1), VOLUME_UNPROTECTED);
    assert_int_equal(volume_judge(false, false, success, 0, success - 9 * hour), VOLUME_PROTECTED);
}

static void natives_by_reason(void **state)
{
    (void)state;
    struct fixture x;
    struct native_row n;
    open_with(&x, "");
    for (int i = 0; i < 3; i++) {
        char id[16];
        snprintf(id, sizeof id, "alias-%d", i);
        put(&x, ROW_NATIVE, id, "v", "present",
            json_pack("{s:{s:s},s:{s:I,s:I},s:b,s:b}", "class", "name", "c", "native", "used", (json_int_t)10,
                      "created_ns", (json_int_t)(i + 1) * 1000000000, "moved", 1, "moved_verified", 1));
    }
    assert_int_equal(native_row_get(x.g.records, "alias-2", &n, NULL), 0);
    assert_sample(&x, "snapshots", "class=c,reason=retained", 3);
    assert_sample(&x, "snapshot_used_bytes", "class=c", 30);
    struct native_desc native;
    native_desc_copy(&native, n.native);
    native.used = -1; /* not known of this one */
    native_desc_take(&n.native, native_desc_make(&native));
    assert_int_equal(native_row_write(&x.g.d, &n), 0);
    assert_sample(&x, "snapshot_used_bytes", "class=c", 20);
    assert_sample(&x, "snapshot_oldest_timestamp_seconds", "class=c", 1);
    struct native_facts f[2] = {{.alias = "alias-0", .reasons = NATIVE_RETAINED | NATIVE_IN_USE},
                                {.alias = "alias-1", .prune = true}};
    facts_plan(&x.g, f, 2);
    assert_sample(&x, "snapshots", "class=c,reason=in_use", 1);
    assert_sample(&x, "snapshots", "class=c,reason=none", 1);
    assert_sample(&x, "snapshots", "class=c,reason=retained", 1);
    n.hold.held = true;
    assert_int_equal(native_row_write(&x.g.d, &n), 0);
    assert_sample(&x, "snapshots", "class=c,reason=held", 1);
    assert_int_equal(native_row_become(&x.g.d, &n, NATIVE_MISSING), 0);
    assert_sample(&x, "snapshots", "class=c,reason=held", 0);
    assert_sample(&x, "snapshots_missing", "class=c", 1);
    n.bookmark = n.cbt_parent = true; /* it is where it should be */
    assert_int_equal(native_row_write(&x.g.d, &n), 0);
    assert_sample(&x, "snapshots_missing", "class=c", 0);
    assert_sample(&x, "snapshots", "class=c,reason=cbt_parent", 0);
    native_row_clear(&n);
    assert_int_equal(native_row_delete(x.g.records, "alias-0", NULL), 0);
    assert_sample(&x, "snapshots", "class=c,reason=in_use", 0);
    close_it(&x);
}

/* ---- what is counted ---- */

static void mover_ends(struct decide *d, const struct operation *op, const struct mover_report *end)
{
    CLEANUP(mover_figures_clear) struct mover_figures f;
    assert_int_equal(mover_figures_load(&f, end->result), 0);
    count_mover_ended(d, op, end, &f);
}

static const char result_text[] =
    "{\"totalBytes\":4000,\"readBytes\":1000,\"zeroBytes\":10,\"holeBytes\":24,\"chunks\":3,\"dedupedBytes\":200,"
    "\"incrementalBytes\":800,"
    "\"uploadedBytes\":400,\"badBytes\":512,\"badRanges\":[[0,512,5]],\"reader\":{\"inflightMax\":16,\"skippedBytes\":"
    "32},"
    "\"stages\":[{\"name\":\"write\",\"busySeconds\":2.5,\"stalledSeconds\":1}],\"bottleneck\":\"write\","
    "\"repository\":{\"uploadedBytes\":450,\"downloadedBytes\":70,\"retries\":2,\"contents\":12,\"indexBlobs\":4,"
    "\"clockSkewSeconds\":-0.5,\"requests\":{\"put\":{\"codes\":{\"ok\":5,\"no-space\":1,\"invented\":9},\"seconds\":3,"
    "\"counts\":[1,2,0,0,0,0,0,0,0,0,0,0,3]},\"evil\":{\"codes\":{\"ok\":1}}}}}";

static void a_movers_result_is_counted(void **state)
{
    (void)state;
    struct fixture x;
    struct operation op;
    operation_from(&op, operation("backup", "/srv/a.img"));
    open_with(&x, "");
    CLEANUP_JSON json_t *result = json_loads(result_text, 0, NULL);
    assert_non_null(result);
    struct mover_report end = {.outcome = MOVER_OK, .result = result, .cpu_seconds = 1.5};
    mover_ends(&x.g.d, &op, &end);
    assert_sample(&x, "read_bytes_total", "class=c", 1000);
    assert_sample(&x, "skipped_bytes_total", "class=c,why=unallocated", 32); /* the reader's word */
    assert_sample(&x, "compressed_bytes_total", "class=c", 400);
    assert_sample(&x, "unreadable_bytes_total", "class=c", 512);
    assert_sample(&x, "io_errors_total", "op=read", 1);
    assert_sample(&x, "io_uring_inflight", "class=c", 16);
    assert_sample(&x, "upload_bytes_total", "repository=main", 450);
    assert_sample(&x, "repository_requests_total", "repository=main,op=put,code=no-space", 1);
    assert_no_sample(&x, "repository_requests_total", "repository=main,op=put,code=invented");
    assert_no_sample(&x, "repository_requests_total", "repository=main,op=evil,code=ok");
    assert_sample(&x, "repository_request_seconds_count", "repository=main,op=put", 6);
    assert_sample(&x, "repository_request_seconds_bucket", "repository=main,op=put,le=0.005", 3);
    assert_sample(&x, "repository_request_seconds_bucket", "repository=main,op=put,le=60", 3);
    assert_sample(&x, "repository_request_seconds_bucket", "repository=main,op=put,le=+Inf", 6);
    assert_sample(&x, "repository_clock_skew_seconds", "repository=main", -0.5);
    assert_sample(&x, "mover_cpu_seconds_total", "direction=backup", 1.5);
    assert_sample(&x, "bottleneck_total", "direction=backup,stage=write", 1);
    mover_ends(&x.g.d, &op, &end);
    assert_sample(&x, "read_bytes_total", "class=c", 2000);
    assert_sample(&x, "repository_contents", "repository=main", 12); /* not a sum */
    assert_sample(&x, "repository_backed_up_bytes_total", "repository=main", 8000);
    assert_sample(&x, "repository_added_bytes_total", "repository=main", 800);
    assert_no_sample(&x, "repository_stored_bytes", "repository=main"); /* before it was ever verified */
    struct mover_report oom = {.outcome = MOVER_OOM, .oom_kills = 1};
    mover_ends(&x.g.d, &op, &oom);
    assert_sample(&x, "mover_oom_total", "", 1);
    assert_sample(&x, "mover_exits_total", "direction=backup,cause=out-of-memory", 1);
    operation_clear(&op);
    all_fit(&x);
    close_it(&x);
}

static json_t *status_of(struct fixture *x)
{
    CLEANUP(answer_facts_clear) struct answer_facts f;
    answer_facts_offline(&f, x->g.records, x->cfg, NULL, now_ns());
    return answer_status(&f);
}

/* The first of a list of status. */
static json_t *first_of(struct fixture *x, const char *list)
{
    CLEANUP_JSON json_t *status = status_of(x);
    return json_incref(json_array_get(jarr(status, list), 0));
}

static bool has_problem(const json_t *status, const char *begin)
{
    size_t i;
    json_t *p;
    json_array_foreach(jarr(status, "problems"), i,
                       p) if (strncmp(jstr(p, "text"), begin, strlen(begin)) == 0) return true;
    return false;
}

/* What status says of a repository and a job is what was counted. */
static void repositories_and_jobs_are_answered_from_counters(void **state)
{
    (void)state;
    struct fixture x;
    struct operation op, verify;
    operation_from(&op, operation("backup", "/srv/a.img"));
    operation_from(&verify, operation("verify", ""));
    open_with(&x, "[job \"nightly\"]\nvolumes = /srv/a.img\n");
    CLEANUP_JSON json_t *unknown = NULL, *known = NULL, *last = NULL;
    CLEANUP_JSON json_t *result = json_loads(result_text, 0, NULL);
    CLEANUP_JSON json_t *sound = json_loads("{\"contents\":10,\"contentsRead\":5,\"damages\":0,"
                                            "\"repository\":{\"storedBytes\":7000}}",
                                            0, NULL);
    CLEANUP_JSON json_t *damaged = json_loads("{\"contents\":10,\"contentsRead\":10,\"damages\":2}", 0, NULL);
    struct mover_report end = {.outcome = MOVER_OK, .result = result}, good = {.outcome = MOVER_OK, .result = sound},
                        bad = {.outcome = MOVER_FAILED, .result = damaged};
    unknown = first_of(&x, "repositories");
    assert_int_equal(json_object_size(unknown), 3); /* name, path, maintenance */
    json_t *job = first_of(&x, "jobs");
    assert_null(json_object_get(job, "last_result"));
    json_decref(job);
    mover_ends(&x.g.d, &verify, &good);
    mover_ends(&x.g.d, &op, &end);
    known = first_of(&x, "repositories");
    assert_int_equal(jint(known, "stored"), 7400); /* and what was added since */
    assert_int_equal(jint(known, "backed_up"), 4000);
    assert_int_equal(jint(known, "added"), 400);
    assert_float_equal(json_number_value(json_object_get(known, "dedup")), 10, 1e-9);
    assert_int_equal(jint(jobj(known, "verified"), "damages"), 0);
    assert_float_equal(json_number_value(json_object_get(jobj(known, "verified"), "read_ratio")), 0.5, 1e-9);
    assert_true(jint(jobj(known, "verified"), "at_ns") > now_ns() - 60 * NS_PER_S);
    mover_ends(&x.g.d, &verify, &bad);
    last = first_of(&x, "repositories");
    assert_int_equal(jint(jobj(last, "verified"), "damages"), 2);
    /* The index fits into the cache, nearly, and not at all. */
    static const struct {
        json_int_t mib;
        bool warned;
    } caches[] = {{1, false}, {409, false}, {410, true}, {600, true}, {2, false}};
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
        CLEANUP_JSON json_t *of_cache = json_pack("{s:{s:I}}", "repository", "indexCacheBytes", caches[i].mib << 20);
        struct mover_report seen = {.outcome = MOVER_OK, .result = of_cache};
        mover_ends(&x.g.d, &op, &seen);
        assert_sample(&x, "repository_index_cache_bytes", "repository=main", (double)(caches[i].mib << 20));
        CLEANUP_JSON json_t *one = first_of(&x, "repositories"), *status = status_of(&x);
        assert_int_equal(jint(jobj(one, "cache"), "index"), caches[i].mib << 20);
        assert_int_equal(jint(jobj(one, "cache"), "limit"), 512 << 20);
        assert_int_equal(has_problem(status, "repository \"main\": its index takes"), caches[i].warned);
    }
    operation_clear(&op);
    operation_clear(&verify);
    struct backup b;
    backup_init(&b);
    b.kind = KIND_BACKUP;
    assert_int_equal(str_set(&b.job, "nightly"), 0);
    static const enum outcome outcomes[] = {OUTCOME_PARTIALLY_FAILED, OUTCOME_COMPLETED, OUTCOME_CANCELED,
                                            OUTCOME_FAILED};
    static const char *const names[] = {"PartiallyFailed", "Completed", "Canceled", "Failed"};
    /* Before the clock was set back: any other is newer. */
    CLEANUP_JSON json_t *failed = json_pack("{s:s,s:s}", "schedule", "nightly", "result", "failed");
    records_counter_set(x.g.records, "backup_last_end_timestamp_seconds", failed, (double)now_ns() / 1e9 + 1e8, NULL);
    for (size_t i = 0; i + 1 < sizeof outcomes / sizeof *outcomes; i++) {
        b.created_ns = now_ns();
        count_backup_ended(&x.g.d, &b, outcomes[i]);
        job = first_of(&x, "jobs");
        assert_string_equal(jstr(jobj(job, "last_result"), "state"), names[i]);
        assert_true(jint(jobj(job, "last_result"), "ended_ns") > now_ns() - 60 * NS_PER_S);
        json_decref(job);
    }
    backup_clear(&b);
    all_fit(&x);
    close_it(&x);
}

static void nonsense_of_a_mover_counts_nothing(void **state)
{
    (void)state;
    static const char *const nonsense[] = {
        "{\"readBytes\":-5,\"zeroBytes\":\"x\",\"chunks\":1e300,\"badRanges\":7,\"repository\":[],\"stages\":{}}",
        "{\"readBytes\":9223372036854775807,\"repository\":{\"requests\":{\"get\":{\"codes\":{\"ok\":-1},\"counts\":[1]"
        ","
        "\"seconds\":\"x\"}},\"uploadedBytes\":-1,\"contents\":\"many\"}}",
        "{\"repository\":{\"requests\":[1,2],\"clockSkewSeconds\":\"x\"},\"reader\":3}"};
    struct fixture x;
    struct operation op;
    operation_from(&op, operation("backup", "/srv/a.img"));
    open_with(&x, "");
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        CLEANUP_JSON json_t *result = json_loads(nonsense[i], 0, NULL);
        assert_non_null(result);
        struct mover_report end = {.outcome = MOVER_OK, .result = result, .cpu_seconds = NAN};
        mover_ends(&x.g.d, &op, &end);
    }
    assert_sample(&x, "read_bytes_total", "class=c", 0);
    assert_sample(&x, "upload_bytes_total", "repository=main", 0);
    assert_sample(&x, "repository_request_seconds_count", "repository=main,op=get", 0);
    assert_no_sample(&x, "repository_contents", "repository=main");
    operation_clear(&op);
    all_fit(&x);
    close_it(&x);
}

static void ends_are_counted_with_their_reason(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    struct operation op;
    operation_from(&op, operation("backup", "/srv/a.img"));
    open_with(&x, "");
    op.created_ns = now_ns() - 90 * NS_PER_S;
    err_set(&e, ERR_PASSWORD, 0, "wrong");
    operation_error(&x.g.d, &op, "move", &e);
    op.state = OP_CLEANING_UP;
    count_operation_ended(&x.g.d, &op, OUTCOME_FAILED);
    assert_sample(&x, "operations_total", "direction=backup,class=c,result=failed,reason=password", 1);
    assert_sample(&x, "operation_duration_seconds_bucket", "direction=backup,stage=total,le=60", 0);
    assert_sample(&x, "operation_duration_seconds_bucket", "direction=backup,stage=total,le=300", 1);
    count_operation_ended(&x.g.d, &op, OUTCOME_CANCELED);
    assert_sample(&x, "operations_total", "direction=backup,class=c,result=canceled,reason=", 1);
    assert_sample(&x, "uploads_canceled_total", "node=n", 1);
    assert_sample(&x, "uploads_failed_total", "node=n", 1);
    count_operation_ended(&x.g.d, &op, OUTCOME_SKIPPED);
    assert_sample(&x, "operations_total", "direction=backup,class=c,result=skipped,reason=", 1);
    count_retry(&x.g.d, &op);
    assert_sample(&x, "operation_retries_total", "direction=backup,reason=password", 1);
    operation_clear(&op);
    struct backup b;
    backup_init(&b);
    b.kind = KIND_BACKUP;
    b.created_ns = now_ns();
    count_backup_ended(&x.g.d, &b, OUTCOME_PARTIALLY_FAILED);
    assert_sample(&x, "backups_total", "direction=backup,schedule=,result=partially_failed", 1);
    assert_sample(&x, "backup_partial_failures_total", "schedule=", 1);
    assert_sample(&x, "backup_last_status", "schedule=", 0);
    assert_sample(&x, "backup_last_success_timestamp_seconds", "schedule=", 0);
    count_backup_ended(&x.g.d, &b, OUTCOME_COMPLETED);
    assert_sample(&x, "backup_last_status", "schedule=", 1);
    count_backup_ended(&x.g.d, &b, OUTCOME_CANCELED); /* no verdict */
    assert_sample(&x, "backup_last_status", "schedule=", 1);
    assert_true(value(&x, "backup_last_success_timestamp_seconds", "schedule=") > 1e9);
    backup_clear(&b);
    all_fit(&x);
    close_it(&x);
}

/* A restore to a target that no class matches has its own document, and no class. */
static void restores_to_anywhere_are_counted(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    struct operation op;
    operation_from(&op, operation("restore", "/srv/a.img"));
    open_with(&x, "");
    class_desc_take(&op.own, class_for_path(x.cfg, cfg_named("/elsewhere/out.raw"), "reflink"));
    CLEANUP_JSON json_t *result = json_pack("{s:i}", "writtenBytes", 4096);
    struct mover_report end = {.outcome = MOVER_OK, .result = result};
    op.created_ns = now_ns();
    mover_ends(&x.g.d, &op, &end);
    count_operation_ended(&x.g.d, &op, OUTCOME_COMPLETED);
    assert_sample(&x, "written_bytes_total", "class=", 4096);
    assert_sample(&x, "operations_total", "direction=restore,class=,result=completed,reason=", 1);
    err_set(&e, ERR_NO_SPACE, 0, "full");
    operation_error(&x.g.d, &op, "move", &e);
    count_operation_ended(&x.g.d, &op, OUTCOME_FAILED);
    assert_sample(&x, "operations_total", "direction=restore,class=,result=failed,reason=no-space", 1);
    /* What only the command line says is no reason here. */
    err_set(&e, ERR_NO_DAEMON, 0, "none");
    operation_error(&x.g.d, &op, "move", &e);
    count_operation_ended(&x.g.d, &op, OUTCOME_FAILED);
    assert_sample(&x, "operations_total", "direction=restore,class=,result=failed,reason=error", 1);
    operation_clear(&op);
    all_fit(&x);
    close_it(&x);
}

static void what_left_the_configuration_is_not_shown(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "");
    CLEANUP_JSON json_t *klass = json_pack("{s:s}", "class", "gone"), *none = json_pack("{s:s}", "class", "");
    records_counter_add(x.g.records, "read_bytes_total", klass, 5, NULL);
    records_counter_add(x.g.records, "read_bytes_total", none, 6, NULL);
    records_counter_add(x.g.records, "of_another_version_total", klass, 7, NULL);
    records_counter_add(x.g.records, "chunks_total", NULL, 8, NULL); /* without its label */
    assert_no_sample(&x, "read_bytes_total", "class=gone");
    assert_sample(&x, "read_bytes_total", "class=", 6);
    all_fit(&x);
    close_it(&x);
}

static void counters_of_earlier_versions_are_taken_over(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    struct records_news news;
    open_with(&x, "");
    CLEANUP_JSON json_t *op = json_pack("{s:s,s:s,s:s}", "kind", "backup", "class", "c", "result", "Failed"),
                        *stage = json_pack("{s:s,s:s}", "kind", "backup", "stage", "read"),
                        *exits = json_pack("{s:s,s:s}", "kind", "backup", "outcome", "died"),
                        *run = json_pack("{s:s,s:s,s:s}", "kind", "backup", "job", "", "result", "Completed");
    CLEANUP_JSON json_t *anywhere = json_pack("{s:s,s:s,s:s,s:s}", "direction", "restore", "class", CLASS_OF_TARGET,
                                              "result", "completed", "reason", ""),
                        *written = json_pack("{s:s}", "class", CLASS_OF_TARGET);
    records_counter_add(x.g.records, "operations_total", op, 4, NULL);
    records_counter_add(x.g.records, "operations_total", anywhere, 2, NULL);
    records_counter_add(x.g.records, "written_bytes_total", written, 512, NULL);
    records_counter_add(x.g.records, "stage_stalled_seconds_total", stage, 2.5, NULL);
    records_counter_add(x.g.records, "mover_exits_total", exits, 3, NULL);
    records_counter_add(x.g.records, "backups_total", run, 6, NULL);
    assert_int_equal(records_begin(x.g.records, &e), 0);
    assert_int_equal(records_commit(x.g.records, &e), 0);
    for (int i = 0; i < 2; i++) { /* the second time there is nothing left to take over */
        count_migrate(x.g.records);
        assert_int_equal(records_begin(x.g.records, &e), 0);
        assert_int_equal(records_commit(x.g.records, &e), 0);
        facts_free(&x.g);
        records_close(x.g.records);
        assert_int_equal(records_open(&x.g.records, x.dir, &news, &e), 0);
        assert_int_equal(facts_new(&x.g, &e), 0);
        assert_sample(&x, "operations_total", "direction=backup,class=c,result=failed,reason=error", 4);
        assert_sample(&x, "operations_total", "direction=restore,class=,result=completed,reason=", 2);
        assert_sample(&x, "written_bytes_total", "class=", 512);
        assert_sample(&x, "stage_stall_seconds_total", "direction=backup,stage=read", 2.5);
        assert_sample(&x, "mover_exits_total", "direction=backup,cause=died", 3);
        assert_sample(&x, "backups_total", "direction=backup,schedule=,result=completed", 6);
    }
    close_it(&x);
}

/* ---- a scrape of a large node ---- */

#define VOLUMES 1000
#define NATIVES 10

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void a_large_node(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    open_with(&x, "[job \"j\"]\nvolumes = class:c\n");
    assert_int_equal(records_begin(x.g.records, &e), 0);
    for (int v = 0; v < VOLUMES; v++) {
        char name[64], id[64];
        snprintf(name, sizeof name, "/srv/vm-%d.img", v);
        snprintf(id, sizeof id, "id-%d", v);
        put(&x, ROW_VOLUME, id, id, "known", volume(name, now_ns()));
        for (int n = 0; n < NATIVES; n++) {
            char alias[64];
            snprintf(alias, sizeof alias, "alias-%d-%d", v, n);
            put(&x, ROW_NATIVE, alias, id, "present",
                json_pack("{s:{s:s},s:{s:I},s:b,s:b}", "class", "name", "c", "native", "used", (json_int_t)10, "moved",
                          1, "moved_verified", 1));
        }
    }
    assert_int_equal(records_commit(x.g.records, &e), 0);
    double began = now_s();
    facts_free(&x.g);
    assert_int_equal(facts_new(&x.g, &e), 0);
    print_message("read at the start: %.1f ms\n", (now_s() - began) * 1e3);
    assert_sample(&x, "snapshots", "class=c,reason=retained", VOLUMES * NATIVES);
    began = now_s();
    CLEANUP_JSON json_t *o = metrics_collect(&x.g);
    double took = now_s() - began;
    print_message("%d volumes, %d native snapshots: %zu samples in %.1f ms\n", VOLUMES, VOLUMES * NATIVES,
                  json_array_size(json_object_get(o, "samples")), took * 1e3);
    assert_true(json_array_size(json_object_get(o, "samples")) > 8 * VOLUMES);
    close_it(&x);
}

/* ---- what error correction had to restore ---- */

/* An operation of all of the repository that has completed with this result. */
static void ended_with(struct fixture *x, const char *kind, void (*ended)(struct decide *, const struct operation *),
                       const char *result)
{
    CLEANUP(operation_clear) struct operation op;
    CLEANUP_JSON json_t *doc = json_loads(result, 0, NULL);
    assert_non_null(doc);
    operation_from(&op, operation(kind, ""));
    op.created_ns = now_ns();
    op.outcome = OUTCOME_COMPLETED;
    op.read_percent = 100;
    op.read_from_ppm = -1;
    op.maintain.full = true;
    assert_int_equal(mover_result_load(&op.result, doc), 0);
    ended(&x->g.d, &op);
}

static void what_was_corrected_is_told_until_it_is_stored_again(void **state)
{
    (void)state;
    static const char warning[] = "repository \"main\": a verification found 3 content", sound[] = "{\"corrected\":0}";
    struct fixture x;
    open_with(&x, "");
    assert_sample(&x, "verify_corrected", "repository=main", 0);
    ended_with(&x, "verify", verification_ended,
               "{\"damages\":0,\"corrected\":3,\"correctedPacks\":2,\"correctedIndexBlobs\":1}");
    assert_sample(&x, "verify_corrected", "repository=main", 4);
    assert_sample(&x, "verify_damages", "repository=main", 0);
    CLEANUP_JSON json_t *found = status_of(&x);
    assert_true(has_problem(found, warning));
    assert_int_equal(jint(jobj(json_array_get(jarr(found, "repositories"), 0), "verification"), "corrected"), 3);
    /* Maintenance stores contents again, but no index blobs. */
    ended_with(&x, "maintain", maintain_ended, "{\"maintenance\":{\"full\":true,\"renewed\":2}}");
    assert_sample(&x, "verify_corrected", "repository=main", 2);
    ended_with(&x, "maintain", maintain_ended, "{\"maintenance\":{\"full\":true,\"renewed\":5}}");
    assert_sample(&x, "verify_corrected", "repository=main", 1);
    ended_with(&x, "verify", verification_ended, sound);
    assert_sample(&x, "verify_corrected", "repository=main", 0);
    CLEANUP_JSON json_t *none = status_of(&x);
    assert_false(has_problem(none, "repository \"main\": a verification found"));
    close_it(&x);
}

/* ---- maintenance ---- */

static void manifests_stored_together_are_counted(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "");
    assert_sample(&x, "maintenance_merged_manifests_total", "repository=main", 0);
    ended_with(&x, "maintain", maintain_ended, "{\"maintenance\":{\"full\":true,\"mergedManifests\":23}}");
    assert_sample(&x, "maintenance_merged_manifests_total", "repository=main", 23);
    ended_with(&x, "maintain", maintain_ended, "{\"maintenance\":{\"full\":true,\"mergedManifests\":0}}");
    ended_with(&x, "maintain", maintain_ended, "{\"maintenance\":{\"full\":true}}");
    ended_with(&x, "maintain", maintain_ended, "{}");
    ended_with(&x, "maintain", maintain_ended, "{\"maintenance\":{\"full\":true,\"mergedManifests\":-5}}");
    assert_sample(&x, "maintenance_merged_manifests_total", "repository=main", 23);
    ended_with(&x, "maintain", maintain_ended, "{\"maintenance\":{\"full\":true,\"mergedManifests\":17}}");
    assert_sample(&x, "maintenance_merged_manifests_total", "repository=main", 40);
    close_it(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeros_from_the_start),
        cmocka_unit_test(states_are_counted_as_they_change),
        cmocka_unit_test(progress_of_what_runs),
        cmocka_unit_test(volumes_come_and_go),
        cmocka_unit_test(new_volumes_are_known_as_such),
        cmocka_unit_test(natives_by_reason),
        cmocka_unit_test(what_is_not_told_is_not_shown),
        cmocka_unit_test(a_cancel_is_no_verdict),
        cmocka_unit_test(too_old),
        cmocka_unit_test(a_movers_result_is_counted),
        cmocka_unit_test(repositories_and_jobs_are_answered_from_counters),
        cmocka_unit_test(what_was_corrected_is_told_until_it_is_stored_again),
        cmocka_unit_test(manifests_stored_together_are_counted),
        cmocka_unit_test(nonsense_of_a_mover_counts_nothing),
        cmocka_unit_test(ends_are_counted_with_their_reason),
        cmocka_unit_test(restores_to_anywhere_are_counted),
        cmocka_unit_test(what_left_the_configuration_is_not_shown),
        cmocka_unit_test(counters_of_earlier_versions_are_taken_over),
        cmocka_unit_test(a_large_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
