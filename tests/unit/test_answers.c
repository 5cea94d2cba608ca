/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Answers from records and facts: the same with and without a daemon; pages; thousands of rows (AO-21, AO-53). */
#include "tests/unit/cfgdir.h"

#include "base/json.h"
#include "base/time.h"
#include "daemon/answers/answers.h"
#include "daemon/records/names.h"
#include "answers-source.h"
#include "rows.h"

#define DAY (24 * 3600 * NS_PER_S)

struct fixture {
    struct records *records;
    struct cfg *cfg;
    struct answer_facts facts;
};

static void open_with(struct fixture *x, const char *more)
{
    static unsigned n;
    CLEANUP_FREE char *ini = NULL;
    char dir[128];
    struct err e = ERR_INIT;
    struct records_news news;
    assert_true(asprintf(&ini,
                         "[daemon]\nnode-name = nas1\nslots = 3\n[metrics]\nlisten =\n"
                         "[repository \"main\"]\ntype = filesystem\npath = /srv/r\npassword-file = /etc/p\n"
                         "[storage-class \"gold\"]\ndriver = reflink\nmatch = /srv/*.img\n"
                         "[job \"nightly\"]\nvolumes = class:gold\non-calendar = daily\n%s",
                         more) > 0);
    memset(x, 0, sizeof *x);
    x->cfg = cfgdir_load(ini);
    assert_int_equal(cfg_errors(x->cfg), 0);
    snprintf(dir, sizeof dir, "%s/state%u", cfgdir, n++);
    assert_ok(records_open(&x->records, dir, &news, &e), &e);
    answer_facts_offline(&x->facts, x->records, x->cfg, NULL, NOW);
    x->facts.down = "the daemon is not running";
    x->facts.down_hint = "start it";
}

static void close_it(struct fixture *x)
{
    answer_facts_clear(&x->facts);
    records_close(x->records);
    cfg_free(x->cfg);
}

static void add_volume(struct fixture *x, const char *id, const char *name, const char *state, int64_t good_ns)
{
    json_t *doc = json_pack("{s:{s:s,s:s,s:I},s:s,s:I,s:s}", "volume", "name", name, "id", id, "size",
                            (json_int_t)1 << 30, "class", "gold", "last_success_ns", (json_int_t)good_ns, "last_status",
                            good_ns ? "Completed" : "Failed");
    assert_int_equal(row_add_doc(x->records, ROW_VOLUME, id, "", id, state, doc, NULL), 0);
}

static void add_native(struct fixture *x, const char *id, const char *volume, const char *name, int retain)
{
    json_t *doc =
        json_pack("{s:{s:s,s:s},s:{s:s,s:I},s:{s:i,s:b,s:b},s:b,s:b,s:s}", "volume", "name", name, "id", volume,
                  "native", "alias", id, "used", (json_int_t)4096, "policy", "snapshots_to_retain", retain, "move_data",
                  1, "prune_before", 1, "moved", 1, "moved_verified", 1, "driver", "reflink");
    assert_int_equal(row_add_doc(x->records, ROW_NATIVE, id, "", volume, "present", doc, NULL), 0);
}

static void add_operation(struct fixture *x, const char *id, const char *backup, const char *name, const char *state)
{
    json_t *doc = json_pack("{s:s,s:{s:s,s:I},s:{s:s},s:I}", "kind", "backup", "volume", "name", name, "size",
                            (json_int_t)1 << 30, "policy", "repository", "main", "completed_ns", (json_int_t)NOW);
    assert_int_equal(row_add_doc(x->records, ROW_OPERATION, id, backup, name, state, doc, NULL), 0);
}

/* Of a mover that has made no progress for so long. */
static void says_why(struct fixture *x, const struct operation *op, double s, const char *phase, const char *why)
{
    mover_of = json_pack("{s:f,s:{s:s}}", "last_life_s", s, "progress", "phase", phase);
    CLEANUP_JSON json_t *o = answer_operation(&x->facts, op);
    assert_string_equal(jstr(o, "why"), why);
    json_decref(mover_of);
    mover_of = NULL;
}

static const json_t *named(const json_t *list, const char *key, const char *value)
{
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v) if (!strcmp(jstr(v, key), value)) return v;
    return NULL;
}

static bool has_problem(const json_t *status, const char *text)
{
    size_t i;
    const json_t *p;
    json_array_foreach(jarr(status, "problems"), i, p) if (strstr(jstr(p, "text"), text)) return true;
    return false;
}

/* Volumes are judged in the same way with and without a daemon (AO-21). */
static void volumes_are_judged_offline(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "[volume \"/srv/out.img\"]\nexclude = yes\n");
    add_volume(&x, "id-good", "/srv/good.img", "known", NOW - DAY);
    add_volume(&x, "id-old", "/srv/old.img", "known", NOW - 9 * DAY);
    add_volume(&x, "id-future", "/srv/future.img", "known", NOW + 400 * DAY);
    add_volume(&x, "id-never", "/srv/never.img", "known", 0);
    add_volume(&x, "id-out", "/srv/out.img", "known", NOW - DAY);
    add_volume(&x, "id-gone", "/srv/gone.img", "gone", NOW - DAY);
    add_volume(&x, "id-other", "/other", "known", NOW - DAY);
    CLEANUP_JSON json_t *answer = answer_volumes(&x.facts, "", NULL, NULL), *text = json_array();
    size_t i;
    const json_t *v;
    json_array_foreach(jarr(answer, "volumes"), i, v)
        json_array_append_new(text, json_sprintf("%s %s", jstr(v, "id"), jstr(v, "state")));
    CLEANUP_FREE char *order = json_dumps(text, JSON_COMPACT);
    assert_string_equal(order, "[\"id-never unprotected\",\"id-old unprotected\",\"id-future unprotected\","
                               "\"id-good protected\",\"id-gone gone\",\"id-other excluded\",\"id-out excluded\"]");
    assert_null(json_object_get(answer, "unsure"));
    assert_non_null(strstr(jstr(named(jarr(answer, "volumes"), "id", "id-future"), "why"), "the clock was set back"));
    v = named(jarr(answer, "volumes"), "id", "id-good");
    assert_true(jint(v, "next_ns") > NOW && json_array_size(jarr(v, "jobs")) == 1);
    CLEANUP_JSON json_t *silver = answer_volumes(&x.facts, "silver", NULL, NULL);
    assert_int_equal(json_array_size(jarr(silver, "volumes")), 0);
    struct err e = ERR_INIT;
    assert_int_equal(answer_class_known(&x.facts, "gold", &e), 0);
    assert_true(answer_class_known(&x.facts, "silver", &e) < 0 && e.cls == ERR_NOT_FOUND);
    /* Without a configuration nothing is excluded or overdue. */
    answer_facts_clear(&x.facts);
    err_set(&e, ERR_USAGE, 0, "snapferry.ini:3: no");
    answer_facts_offline(&x.facts, x.records, NULL, &e, NOW);
    CLEANUP_JSON json_t *blind = answer_status(&x.facts);
    assert_string_equal(jstr(named(jarr(blind, "volumes"), "id", "id-old"), "state"), "protected");
    assert_string_equal(jstr(named(jarr(blind, "volumes"), "id", "id-out"), "state"), "protected");
    assert_null(strstr(jstr(named(jarr(blind, "volumes"), "id", "id-never"), "why"), "no job"));
    assert_string_equal(jstr(jobj(blind, "config"), "error"), "snapferry.ini:3: no");
    close_it(&x);
}

static const char *why_of(struct fixture *x, const char *id, const char *evidence)
{
    static char text[400];
    assert_int_equal(
        row_update_doc(x->records, ROW_VOLUME, id, NULL, json_pack("{s:s}", "last_good_evidence", evidence)), 0);
    CLEANUP_JSON json_t *answer = answer_volumes(&x->facts, "", NULL, NULL);
    CLEANUP_JSON json_t *status = answer_status(&x->facts);
    const json_t *v = named(jarr(answer, "volumes"), "id", id);
    assert_true(jbool(v, "protected"));
    snprintf(text, sizeof text, "%s", jstr(v, "why"));
    assert_string_equal(jstr(named(jarr(status, "volumes"), "id", id), "why"), text);
    assert_false(has_problem(status, "/srv/good.img"));
    return text;
}

/* Protected without a word is only what was found in the repository by another process than its mover. */
static void what_protection_is_based_on(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "");
    add_volume(&x, "id-good", "/srv/good.img", "known", NOW - DAY);
    assert_string_equal(why_of(&x, "id-good", ""), "");
    assert_string_equal(why_of(&x, "id-good", "mover"), "as reported by its mover; not yet checked in the repository");
    assert_string_equal(why_of(&x, "id-good", "plugin:tape"), "as reported by plugin:tape, which stores the data");
    assert_string_equal(why_of(&x, "id-good", "native"), "by a native snapshot only; the repository has no copy");
    close_it(&x);
}

/* What to look for depends on the kind of storage. */
static void a_class_that_has_gone_as_a_whole(void **state)
{
    struct fixture x;
    (void)state;
    open_with(&x, "[storage-class \"nbd\"]\ndriver = nbd\nmatch = nbd+unix:///*?socket=/s\npoint-in-time = yes\n");
    json_t *doc = json_pack("{s:{s:s},s:s}", "volume", "name", "nbd+unix:///a?socket=/s", "class", "nbd");
    assert_int_equal(row_add_doc(x.records, ROW_VOLUME, "id-n", "", "id-n", "gone", doc, NULL), 0);
    add_volume(&x, "id-g", "/srv/g.img", "gone", NOW - DAY);
    CLEANUP_JSON json_t *answer = answer_status(&x.facts);
    CLEANUP_FREE char *text = json_dumps(jarr(answer, "problems"), JSON_COMPACT);
    assert_non_null(strstr(text, "\"is its server running? If they were removed"));
    assert_non_null(strstr(text, "\"is its file system mounted? If they were removed"));
    close_it(&x);
}

/* The list of the storage counts at once, before it is recorded: what its class no longer has is gone, what it has
 * again is there. */
static void volumes_that_have_gone_or_come(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "");
    add_volume(&x, "id-1", "/srv/1.img", "known", NOW - DAY);
    add_volume(&x, "id-2", "/srv/2.img", "known", NOW - DAY);
    add_volume(&x, "id-3", "/srv/3.img", "gone", NOW - DAY);
    static const char *const states[][3] = {{"protected", "gone", "protected"},
                                            {"protected", "protected", "protected"},
                                            {"protected", "protected", "protected"}};
    for (unsigned i = 0; i < 3; i++) {
        /* All of the class; named ones; a failure on the way. */
        CLEANUP_JSON json_t *looked =
            json_pack("[{s:{s:s},s:[{s:s,s:s,s:i},{s:s,s:s,s:i}]}]", "class", "name", "gold", "volumes", "name",
                      "/srv/1.img", "id", "id-1", "size", 77, "name", "/srv/3.img", "id", "id-3", "size", 5);
        json_t *class = json_array_get(looked, 0);
        if (i == 0)
            json_object_set_new(class, "all", json_true());
        if (i == 2)
            json_object_set_new(class, "error", json_pack("{s:s}", "message", "no such device"));
        CLEANUP_JSON json_t *answer = answer_volumes(&x.facts, "", looked, NULL);
        static const char *const ids[] = {"id-1", "id-2", "id-3"};
        for (unsigned k = 0; k < 3; k++)
            assert_string_equal(jstr(named(jarr(answer, "volumes"), "id", ids[k]), "state"), states[i][k]);
    }
    close_it(&x);
}

/* What storage was found to have comes first, what nobody could look at is from the records. */
static void volumes_that_were_looked_at(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "[storage-class \"slow\"]\ndriver = device\nmatch = /dev/*\n");
    add_volume(&x, "id-1", "/srv/1.img", "known", NOW - DAY);
    add_volume(&x, "id-2", "/srv/2.img", "known", NOW - DAY);
    CLEANUP_JSON json_t *looked = json_pack(
        "[{s:{s:s},s:[{s:s,s:s,s:i},{s:s,s:s,s:i}],s:[s]},{s:{s:s},s:{s:s}}]", "class", "name", "gold", "volumes",
        "name", "/srv/1.img", "id", "id-1", "size", 77, "name", "/srv/new.img", "id", "id-new", "size", 5, "passed",
        "/srv/x.img is no regular file", "class", "name", "slow", "error", "message", "no such device");
    CLEANUP_JSON json_t *answer = answer_volumes(&x.facts, "", looked, NULL);
    const json_t *list = jarr(answer, "volumes");
    assert_int_equal(json_array_size(list), 3);
    assert_int_equal(jint(named(list, "id", "id-1"), "size"), 77);
    assert_true(jbool(named(list, "id", "id-1"), "protected"));
    assert_string_equal(jstr(named(list, "id", "id-new"), "state"), "unprotected");
    assert_int_equal(json_array_size(jarr(answer, "unsure")), 2);
    CLEANUP_JSON json_t *failed = answer_volumes(&x.facts, "", NULL, "no processes left");
    assert_int_equal(json_array_size(jarr(failed, "volumes")), 2);
    assert_non_null(strstr(json_string_value(json_array_get(jarr(failed, "unsure"), 0)), "no processes left"));
    /* One of them, with what is recorded. */
    struct err e = ERR_INIT;
    json_t *one = NULL;
    assert_ok(answer_describe_volume(&x.facts, list, "/srv/1.img", &one, &e), &e);
    assert_string_equal(jstr(one, "kind"), "volume");
    assert_string_equal(jstr(jobj(jobj(one, "volume"), "details"), "class"), "gold");
    json_decref(one);
    assert_true(answer_describe_volume(&x.facts, list, "/srv/3.img", &one, &e) < 0 && e.cls == ERR_NOT_FOUND);
    close_it(&x);
}

/* Facts of a running daemon are added, and nothing of them is claimed without one. */
static void facts_of_the_daemon(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "");
    CLEANUP_JSON json_t *progress =
        json_pack("{s:s,s:i,s:i,s:i}", "phase", "move", "total", 100, "done", 40, "fresh", 3);
    CLEANUP_JSON json_t *metrics = json_pack("{s:[]}", "listen");
    json_t *problems = json_pack("[{s:s, s:s, s:s}]", "severity", "warning", "text", "the port is taken", "hint", "");
    struct answer_repository down = {.name = "main", .why = "No such device", .hint = "", .since_ns = 5};
    struct backup b;
    struct operation op;
    struct err e = ERR_INIT;
    backup_init(&b);
    assert_int_equal(row_add_doc(x.records, ROW_BACKUP, "B1", "", "", "Queued", json_object(), NULL), 0);
    add_operation(&x, "up-1", "B1", "/srv/1.img", "Running");
    add_operation(&x, "up-2", "B1", "/srv/2.img", "Queued");
    assert_ok(operation_get(x.records, "up-1", &op, &e), &e);
    CLEANUP_JSON json_t *off = answer_status(&x.facts);
    assert_int_equal(json_array_size(jarr(off, "running")), 1);
    assert_null(jobj(json_array_get(jarr(off, "running"), 0), "mover"));
    assert_null(json_object_get(json_array_get(jarr(off, "queue"), 0), "why"));
    assert_null(json_object_get(json_array_get(jarr(off, "repositories"), 0), "up"));
    assert_true(has_problem(off, "the daemon is not running"));
    assert_int_equal(jint(jobj(off, "slots"), "total"), 3);
    assert_string_equal(jstr(jobj(off, "daemon"), "node"), "nas1");
    x.facts.source = &source;
    x.facts.arg = progress;
    x.facts.own = (struct answer_daemon){.version = "1",
                                         .state_dir = "/s",
                                         .news = "",
                                         .pid = 3,
                                         .stuck = 2,
                                         .steps = json_array(),
                                         .metrics = json_incref(metrics),
                                         .metrics_problems = problems};
    x.facts.daemon = &x.facts.own;
    x.facts.repositories = malloc(sizeof down);
    memcpy(x.facts.repositories, &down, sizeof down);
    x.facts.n_repositories = 1;
    CLEANUP_JSON json_t *on = answer_status(&x.facts), *one = answer_operation(&x.facts, &op);
    assert_int_equal(jint(jobj(one, "mover"), "pid"), 17);
    assert_int_equal(jint(jobj(one, "progress"), "new"), 3);
    assert_float_equal(json_number_value(json_object_get(jobj(one, "progress"), "eta_s")), 7, 1e-9);
    assert_string_equal(jstr(jobj(jobj(one, "details"), "doing"), "what"), "expose");
    says_why(&x, &op, 14, "opening", "");
    says_why(&x, &op, 40.4, "moving", "no progress for 40 s");
    says_why(&x, &op, 40.4, "opening", "no progress for 40 s: it opens repository \"main\", which may not answer");
    assert_string_equal(jstr(json_array_get(jarr(on, "queue"), 0), "why"), "all 3 slots are in use");
    assert_true(has_problem(on, "/srv/2.img waits: all 3 slots") && has_problem(on, "repository \"main\": No such"));
    assert_true(has_problem(on, "hang in the kernel") && has_problem(on, "the port is taken"));
    assert_false(has_problem(on, "not running"));
    assert_non_null(jarr(jobj(on, "metrics"), "listen"));
    assert_int_equal(json_array_size(problems), 1); /* facts are not changed */
    assert_ok(backup_get(x.records, "B1", &b, &e), &e);
    CLEANUP_JSON json_t *whole = answer_backup(&x.facts, &b, true);
    assert_int_equal(jint(whole, "position"), 4);
    assert_string_equal(jstr(whole, "blocked_by"), "other");
    assert_int_equal(json_array_size(jarr(whole, "operations")), 2);
    assert_non_null(json_object_get(json_array_get(jarr(whole, "operations"), 0), "details"));
    CLEANUP_JSON json_t *event = answer_backup_progress(&x.facts, &b);
    assert_int_equal(json_array_size(jarr(event, "operations")), 2);
    assert_null(json_object_get(json_array_get(jarr(event, "operations"), 0), "details"));
    assert_int_equal(jint(jobj(whole, "progress"), "done"), 40);
    assert_float_equal(json_number_value(json_object_get(jobj(whole, "progress"), "rate")), 1000, 1e-9);
    /* Of a large one only what is under way. */
    char volume[32];
    for (unsigned i = 0; i <= ANSWER_OPERATIONS_MAX; i++) {
        snprintf(volume, sizeof volume, "v%u", i);
        strs_add(&b.volume_ids, volume);
    }
    CLEANUP_JSON json_t *large = answer_backup_progress(&x.facts, &b);
    assert_int_equal(json_array_size(jarr(large, "operations")),
                     2); /* it runs; the other one is the first in the queue */
    assert_string_equal(jstr(json_array_get(jarr(large, "operations"), 0), "id"), "up-1");
    assert_int_equal(jint(large, "total"), 152);
    assert_int_equal(jint(large, "completed"), 149);
    assert_int_equal(jint(large, "failed"), 1);
    assert_int_equal(jint(large, "size"), 5000);
    assert_int_equal(jint(jobj(large, "progress"), "done"), 5540);
    CLEANUP_JSON json_t *all = answer_backup(&x.facts, &b, true);
    assert_int_equal(json_array_size(jarr(all, "operations")), 2);
    char line[400];
    answer_headline(&x.facts, line, sizeof line);
    assert_string_equal(line, "1 backup running, 1 queued; repository \"main\": No such device, 1 more problem");
    /* What is prepared and has no slot yet waits; what is only being prepared does not. */
    add_operation(&x, "up-3", "B1", "/srv/3.img", "Exposing");
    assert_int_equal(row_update_doc(x.records, ROW_OPERATION, "up-2", "Exposing",
                                    json_pack("{s:{s:s}}", "exposure", "path", "/srv/2.img")),
                     0);
    CLEANUP_JSON json_t *prepared = answer_status(&x.facts);
    assert_int_equal(json_array_size(jarr(prepared, "running")), 2);
    assert_int_equal(json_array_size(jarr(prepared, "queue")), 1);
    assert_string_equal(jstr(json_array_get(jarr(prepared, "queue"), 0), "id"), "up-2");
    assert_int_equal(jint(json_array_get(jarr(prepared, "queue"), 0), "position"), 1);
    assert_int_equal(jint(jobj(prepared, "slots"), "queued"), 1);
    answer_headline(&x.facts, line, sizeof line);
    assert_non_null(strstr(line, "2 backups running, 1 queued"));
    /* A prepare hook is for what can be written to: no other waits for one. */
    for (int read_only = 1; read_only >= 0; read_only--) {
        assert_int_equal(row_update_doc(x.records, ROW_OPERATION, "up-2", "Exposing",
                                        json_pack("{s:{s:s},s:{s:s,s:b}}", "policy", "hook_prepare", "/bin/fsck",
                                                  "exposure", "path", "/srv/2.img", "read_only", read_only)),
                         0);
        CLEANUP_JSON json_t *hooked = answer_status(&x.facts);
        assert_int_equal(json_array_size(jarr(hooked, "queue")), read_only);
    }
    backup_clear(&b);
    operation_clear(&op);
    close_it(&x);
}

/* ---- pages ---- */

/* All pages; how many rows. Each is newer than the next. */
static unsigned all_pages(struct fixture *x, struct answer_query q, unsigned *pages)
{
    unsigned n = 0;
    char last[32] = "~";
    *pages = 0;
    for (;;) {
        json_t *page = NULL;
        struct err e = ERR_INIT;
        size_t i;
        const json_t *o;
        assert_ok(answer_list(&x->facts, ROW_OPERATION, &q, &page, &e), &e);
        json_array_foreach(jarr(page, "operations"), i, o)
        {
            if (strcmp(jstr(o, "state"), "Queued") != 0) {
                assert_true(strcmp(jstr(o, "id"), last) < 0);
                snprintf(last, sizeof last, "%s", jstr(o, "id"));
            }
            assert_null(json_object_get(o, "details"));
            n++;
        }
        ++*pages;
        q.before = (uint64_t)jint(page, "next");
        const bool more = jbool(page, "more");
        json_decref(page);
        if (!more)
            return n;
    }
}

static void pages_of_ended_rows(void **state)
{
    (void)state;
    struct fixture x;
    struct answer_query q = {.volume = "", .backup = "", .state = "", .since_ns = INT64_MIN, .limit = 100};
    unsigned pages;
    struct err e = ERR_INIT;
    json_t *none = NULL;
    open_with(&x, "");
    assert_ok(records_begin(x.records, &e), &e);
    for (unsigned i = 0; i < 2000; i++) {
        char id[32];
        snprintf(id, sizeof id, "up-%05u", i);
        add_operation(&x, id, i % 2 ? "odd" : "even", i % 100 ? "/srv/a.img" : "/srv/b.img",
                      i % 500 == 0 ? "Queued"
                      : i % 3      ? "Completed"
                                   : "Failed");
    }
    assert_ok(records_commit(x.records, &e), &e);
    assert_int_equal(all_pages(&x, q, &pages), 2000);
    assert_int_equal(pages, 20);
    q.max_bytes = 8000;
    assert_int_equal(all_pages(&x, q, &pages), 2000);
    assert_true(pages > 20);
    q = (struct answer_query){.volume = "/srv/b.img", .backup = "", .state = "", .since_ns = INT64_MIN, .limit = 7};
    assert_int_equal(all_pages(&x, q, &pages), 20);
    assert_int_equal(pages, 3);
    q = (struct answer_query){.volume = "", .backup = "odd", .state = "Failed", .since_ns = INT64_MIN};
    assert_int_equal(all_pages(&x, q, &pages), 333);
    q = (struct answer_query){.volume = "", .backup = "", .state = "Queued", .since_ns = INT64_MIN};
    assert_int_equal(all_pages(&x, q, &pages), 4);
    q.state = "";
    q.since_ns = now_ns() + DAY; /* all of them have ended before */
    assert_int_equal(all_pages(&x, q, &pages), 4);
    q.state = "Sleeping";
    assert_true(answer_list(&x.facts, ROW_OPERATION, &q, &none, &e) < 0 && e.cls == ERR_USAGE);
    e = (struct err)ERR_INIT;
    q = (struct answer_query){.volume = "", .backup = "nothing", .state = "", .since_ns = INT64_MIN};
    assert_true(answer_list(&x.facts, ROW_OPERATION, &q, &none, &e) < 0 && e.cls == ERR_NOT_FOUND);
    assert_null(none);
    close_it(&x);
}

static void add_rebuilt(struct fixture *x, const char *id, const char *job, const char *state, int64_t ended_ns,
                        bool unproven)
{
    json_t *doc = json_pack("{s:s,s:s,s:b,s:b,s:I}", "kind", "backup", "job", job, "rebuilt", 1, "unproven",
                            (int)unproven, "completed_ns", (json_int_t)ended_ns);
    assert_int_equal(row_add_doc(x->records, ROW_BACKUP, id, "", "", state, doc, NULL), 0);
}

/* The records were lost: how the last run of a job ended is known from the repository, in whatever order it came. */
static void runs_that_the_repository_knew(void **state)
{
    (void)state;
    struct fixture x;
    open_with(&x, "");
    CLEANUP_JSON json_t *never = answer_jobs(&x.facts);
    const json_t *job = json_array_get(jarr(never, "jobs"), 0);
    assert_null(json_object_get(job, "last_result"));
    const char *name = jstr(job, "job");
    add_rebuilt(&x, "b-2", name, "Failed", NOW - 2 * DAY, false);
    add_rebuilt(&x, "b-1", name, "PartiallyFailed", NOW - DAY, false);
    add_rebuilt(&x, "b-3", name, "Completed", NOW - 3 * DAY, false);
    add_rebuilt(&x, "b-0", name, "Completed", NOW - 1000, true); /* nobody recorded how it ended */
    add_rebuilt(&x, "b-other", "other", "Completed", NOW - 1000, false);
    CLEANUP_JSON json_t *now = answer_jobs(&x.facts);
    job = json_array_get(jarr(now, "jobs"), 0);
    assert_string_equal(jstr(jobj(job, "last_result"), "state"), "PartiallyFailed");
    assert_int_equal(jint(jobj(job, "last_result"), "ended_ns"), NOW - DAY);
    assert_string_equal(jstr(job, "last_backup"), "b-1");
    assert_int_equal(jint(job, "last"), NOW - DAY);
    close_it(&x);
}

static size_t count_backups(struct fixture *x, const char *state)
{
    const struct answer_query q = {.volume = "", .backup = "", .state = state, .since_ns = INT64_MIN, .limit = 10};
    CLEANUP_JSON json_t *page = NULL;
    struct err e = ERR_INIT;
    assert_ok(answer_list(&x->facts, ROW_BACKUP, &q, &page, &e), &e);
    return json_array_size(jarr(page, "backups"));
}

/* Every state in which backups are shown can be asked for, and none but those that are shown in it are listed. */
static void backups_by_the_state_shown(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *none = NULL;
    open_with(&x, "");
    add_rebuilt(&x, "b-unknown", "a", "Completed", NOW - 1, true);
    add_rebuilt(&x, "b-good", "a", "Completed", NOW - 2, false);
    add_rebuilt(&x, "b-expired", "a", "Completed", NOW - 3, false);
    for (int lost = 0; lost < 2; lost++) {
        json_t *op =
            json_pack("{s:s,s:{s:s},s:{s:s,s:b},s:b,s:I}", "kind", "backup", "volume", "name", "/srv/b.img", "policy",
                      "repository", "main", "move_data", 1, "lost", lost, "completed_ns", (json_int_t)NOW);
        assert_int_equal(row_add_doc(x.records, ROW_OPERATION, lost ? "up-2" : "up-1", lost ? "b-expired" : "b-good",
                                     "b", "Completed", op, NULL),
                         0);
    }
    json_t *deleted =
        json_pack("{s:s,s:s,s:I}", "kind", "backup", "deleting", "delete-1", "completed_ns", (json_int_t)NOW - 4);
    assert_int_equal(row_add_doc(x.records, ROW_BACKUP, "b-deleted", "", "", "Failed", deleted, NULL), 0);
    assert_int_equal(count_backups(&x, "Unknown"), 1);
    assert_int_equal(count_backups(&x, "Expired"), 1);
    assert_int_equal(count_backups(&x, "Deleting"), 1);
    assert_int_equal(count_backups(&x, "Failed"), 0);
    assert_int_equal(count_backups(&x, "Completed"), 2); /* that which has expired ended so */
    assert_int_equal(count_backups(&x, "Moving"), 0);
    const struct answer_query q = {.volume = "", .backup = "", .state = "Running", .since_ns = INT64_MIN};
    assert_true(answer_list(&x.facts, ROW_BACKUP, &q, &none, &e) < 0 && e.cls == ERR_USAGE);
    assert_non_null(strstr(e.hint, "Expired"));
    close_it(&x);
}

/* After a loss of the records it is not known whether a volume was backed up before, but one that came later is new. */
static void volumes_that_came_after_the_records(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    open_with(&x, "");
    x.facts.source = &source;
    assert_ok(records_counter_set(x.records, RECORDS_REBUILT, NULL, (double)NOW / 1e9, &e), &e);
    json_t *was = json_pack("{s:{s:s,s:s},s:s}", "volume", "name", "/srv/was.img", "id", "was", "class", "gold");
    json_t *came = json_pack("{s:{s:s,s:s},s:s,s:I}", "volume", "name", "/srv/came.img", "id", "came", "class", "gold",
                             "appeared_ns", (json_int_t)NOW);
    assert_int_equal(row_add_doc(x.records, ROW_VOLUME, "was", "", "was", "known", was, NULL), 0);
    assert_int_equal(row_add_doc(x.records, ROW_VOLUME, "came", "", "came", "known", came, NULL), 0);
    CLEANUP_JSON json_t *looked = json_pack("[{s:{s:s},s:b,s:[{s:s,s:s},{s:s,s:s},{s:s,s:s}]}]", "class", "name",
                                            "gold", "all", 1, "volumes", "id", "was", "name", "/srv/was.img", "id",
                                            "came", "name", "/srv/came.img", "id", "now", "name", "/srv/now.img");
    CLEANUP_JSON json_t *answer = answer_volumes(&x.facts, "", looked, NULL);
    const json_t *list = jarr(answer, "volumes");
    assert_string_equal(jstr(named(list, "id", "was"), "why"),
                        "no backup of it is known since the records were rebuilt");
    assert_string_equal(jstr(named(list, "id", "came"), "why"), "not backed up yet");
    assert_string_equal(jstr(named(list, "id", "now"), "why"), "not backed up yet"); /* not recorded yet */
    close_it(&x);
}

/* More of them wait than a page has: all are listed, then the ended ones, and none is twice (AO-53). */
static void pages_of_live_rows(void **state)
{
    (void)state;
    struct fixture x;
    struct answer_query q = {.volume = "", .backup = "", .state = "", .since_ns = INT64_MIN, .limit = 100};
    CLEANUP_JSON json_t *seen = json_object();
    struct err e = ERR_INIT;
    unsigned n = 0, live_pages = 0;
    bool more = true;
    open_with(&x, "");
    assert_ok(records_begin(x.records, &e), &e);
    for (unsigned i = 0; i < 1000; i++) {
        char id[32];
        snprintf(id, sizeof id, "up-%05u", i);
        add_operation(&x, id, "B", "/srv/a.img", i % 4 ? "Queued" : "Completed");
    }
    assert_ok(records_commit(x.records, &e), &e);
    while (more) {
        json_t *page = NULL;
        size_t i;
        const json_t *o;
        assert_ok(answer_list(&x.facts, ROW_OPERATION, &q, &page, &e), &e);
        assert_true(json_array_size(jarr(page, "operations")) <= 100);
        json_array_foreach(jarr(page, "operations"), i, o)
        {
            assert_null(json_object_get(seen, jstr(o, "id")));
            json_object_set_new(seen, jstr(o, "id"), json_true());
            assert_string_equal(jstr(o, "state"), n++ < 750 ? "Queued" : "Completed");
        }
        live_pages += !strcmp(jstr(json_array_get(jarr(page, "operations"), 0), "state"), "Queued");
        q.before = (uint64_t)jint(page, "next");
        more = jbool(page, "more");
        json_decref(page);
    }
    assert_int_equal(n, 1000);
    assert_int_equal(live_pages, 8);
    close_it(&x);
}

/* Of a large backup that has ended the failed operations come first, and no more are read than are shown (AO-53). */
static void large_backups_are_read_in_part(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    struct backup b;
    char id[NAME_ID_MAX];
    open_with(&x, "");
    assert_ok(records_begin(x.records, &e), &e);
    CLEANUP_JSON json_t *volumes = json_array();
    for (unsigned i = 0; i < 2000; i++) {
        snprintf(id, sizeof id, "up-%05u", i);
        add_operation(&x, id, "B", "/srv/a.img", i % 400 == 399 ? "Failed" : "Completed");
        json_array_append_new(volumes, json_string(id));
    }
    assert_int_equal(row_add_doc(x.records, ROW_BACKUP, "B", "", "", "PartiallyFailed",
                                 json_pack("{s:s,s:O,s:{s:i,s:i,s:i},s:{s:i,s:i}}", "kind", "backup", "volume_ids",
                                           volumes, "counts", "attempted", 2000, "completed", 1995, "failed", 5,
                                           "bytes", "total", 7000, "incremental", 70),
                                 NULL),
                     0);
    assert_ok(records_commit(x.records, &e), &e);
    assert_ok(backup_get(x.records, "B", &b, &e), &e);
    assert_int_equal(b.volume_ids.n, 2000);
    CLEANUP_JSON json_t *whole = answer_backup_progress(&x.facts, &b), *line = answer_backup(&x.facts, &b, false);
    const json_t *operations = jarr(whole, "operations");
    assert_int_equal(json_array_size(operations), ANSWER_OPERATIONS_MAX);
    for (unsigned i = 0; i < 6; i++)
        assert_string_equal(jstr(json_array_get(operations, i), "state"), i < 5 ? "Failed" : "Completed");
    assert_int_equal(json_array_size(jarr(line, "volumes")), 20);
    /* As described, too: how many of each list are left out is told, and native snapshots that are gone come first. */
    for (unsigned i = 0; i < ANSWER_OPERATIONS_MAX + 50; i++) {
        snprintf(id, sizeof id, "alias-%u", i);
        assert_int_equal(backup_note_seen(&b, id, i % 50 == 49 ? SEEN_MISSING : SEEN_PRESENT, ""), 0);
        assert_int_equal(strs_add(&b.failed_volumes, id), 0);
    }
    backup_seen_end(&b);
    CLEANUP_JSON json_t *described = answer_backup(&x.facts, &b, true);
    operations = jarr(described, "operations");
    assert_int_equal(json_array_size(operations), ANSWER_OPERATIONS_MAX);
    assert_string_equal(jstr(json_array_get(operations, 4), "state"), "Failed");
    assert_non_null(jobj(json_array_get(operations, 4), "details"));
    assert_int_equal(jint(jobj(described, "omitted"), "operations"), 2000 - ANSWER_OPERATIONS_MAX);
    assert_int_equal(json_array_size(jarr(described, "natives_seen")), ANSWER_OPERATIONS_MAX);
    assert_int_equal(jint(jobj(described, "omitted"), "natives_seen"), 50);
    for (unsigned i = 0; i < 4; i++)
        assert_string_equal(jstr(json_array_get(jarr(described, "natives_seen"), i), "state"),
                            i < 3 ? "missing" : "present");
    assert_int_equal(json_array_size(jarr(jobj(described, "details"), "failed_volumes")), ANSWER_OPERATIONS_MAX);
    assert_int_equal(jint(jobj(jobj(described, "details"), "omitted"), "failed_volumes"), 50);
    for (unsigned i = 0; i < 2; i++) {
        const json_t *o = i ? line : whole;
        assert_int_equal(jint(o, "total"), 2000);
        assert_int_equal(jint(o, "completed"), 1995);
        assert_int_equal(jint(o, "failed"), 5);
        assert_int_equal(jint(o, "size"), 7000);
        assert_int_equal(jint(o, "new"), 70);
    }
    backup_clear(&b);
    close_it(&x);
}

/* One operation of a large backup may have expired and be missing too: it is not counted twice (RS-26). */
static void what_is_left_of_a_large_backup(void **state)
{
    (void)state;
    enum { ALL = 30 };
    for (unsigned both = 0; both < 2; both++) {
        struct fixture x;
        struct err e = ERR_INIT;
        CLEANUP(backup_clear) struct backup b = ROW_INIT;
        open_with(&x, "");
        assert_ok(records_begin(x.records, &e), &e);
        /* All but the last have expired; the first one or the last one is missing. */
        for (unsigned i = 0; i < ALL; i++) {
            char id[NAME_ID_MAX];
            snprintf(id, sizeof id, "up-%u", i);
            json_t *doc = json_pack("{s:s,s:{s:s,s:s},s:{s:s,s:b},s:b,s:I}", "kind", "backup", "volume", "name", "/v",
                                    "id", id, "policy", "repository", "main", "move_data", 1, "lost", i < ALL - 1,
                                    "gone_ns", (json_int_t)(i == (both ? 0 : ALL - 1) ? NOW : 0));
            assert_int_equal(row_add_doc(x.records, ROW_OPERATION, id, "B", "/v", "Completed", doc, NULL), 0);
        }
        assert_int_equal(
            row_add_doc(x.records, ROW_BACKUP, "B", "", "", "Completed",
                        json_pack("{s:s,s:i,s:I,s:i,s:{s:i,s:i}}", "kind", "backup", "lost", ALL - 1, "lost_ns",
                                  (json_int_t)NOW, "gone", 1, "counts", "attempted", ALL, "completed", ALL),
                        NULL),
            0);
        assert_ok(records_commit(x.records, &e), &e);
        assert_ok(backup_get(x.records, "B", &b, &e), &e);
        assert_int_equal(b.lost, ALL - 1);
        assert_int_equal(b.gone, 1);
        CLEANUP_JSON json_t *line = answer_backup(&x.facts, &b, false);
        assert_int_equal(jint(line, "lost"), ALL - 1);
        assert_int_equal(jbool(line, "expired"), !both);
        close_it(&x);
    }
}

/* A name that is no whole id is looked for by the index of ids: rows that cannot be meant are not read. */
static int count_row(const void *row, void *arg)
{
    (void)row;
    ++*(unsigned *)arg;
    return 0;
}

static void names_do_not_read_all(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    enum row_kind k;
    char id[NAME_ID_MAX];
    unsigned n = 0;
    open_with(&x, "");
    assert_ok(records_begin(x.records, &e), &e);
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(id, sizeof id, "up-%04u.db%u", i, i % 2);
        add_operation(&x, id, "B", "/srv/a.img", i == 7 ? "Queued" : "Completed");
    }
    assert_ok(records_commit(x.records, &e), &e);
    assert_int_equal(row_each_part(x.records, ROW_OPERATION, "up-00", "", 1000, count_row, &n, &e), 0);
    assert_int_equal(n, 100); /* with the one that has not ended */
    n = 0;
    assert_int_equal(row_each_part(x.records, ROW_OPERATION, "up-", "db1", 20, count_row, &n, &e), 0);
    assert_int_equal(n, 21);
    n = 0;
    assert_int_equal(row_each_part(x.records, ROW_OPERATION, "/srv/", "", 20, count_row, &n, &e), 0);
    assert_int_equal(n, 0);
    assert_ok(name_find(x.records, "up-2999", NAME_OPERATION, &k, id, &e), &e);
    assert_string_equal(id, "up-2999.db1");
    assert_ok(name_find(x.records,
                        "up-0\xe2\x80\xa6"
                        "007.db1",
                        NAME_OPERATION, &k, id, &e),
              &e);
    assert_string_equal(id, "up-0007.db1");
    assert_true(name_find(x.records, "up-299", NAME_OPERATION, &k, id, &e) < 0 && e.cls == ERR_USAGE);
    assert_non_null(strstr(e.msg, "may mean 10 things"));
    assert_non_null(strstr(e.hint, "up-2999.db1, up-2998.db0"));
    e = (struct err)ERR_INIT;
    assert_true(name_find(x.records, "up-1", NAME_OPERATION, &k, id, &e) < 0 && e.cls == ERR_USAGE);
    assert_non_null(strstr(e.msg, "may mean more than 50 things"));
    e = (struct err)ERR_INIT;
    assert_true(name_find(x.records, "up-9", NAME_OPERATION, &k, id, &e) < 0 && e.cls == ERR_NOT_FOUND);
    close_it(&x);
}

/* ---- native snapshots ---- */

static const struct answer_query of_all = {.volume = ""}, of_a = {.volume = "/srv/a.img"},
                                 of_c = {.volume = "/srv/c.img"};

static void natives_are_planned_by_volume(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    json_t *list = NULL;
    open_with(&x, "");
    add_native(&x, "n1", "b", "/srv/b.img", 2);
    add_native(&x, "n2", "a", "/srv/a.img", 1);
    add_native(&x, "n3", "b", "/srv/b.img", 2);
    add_native(&x, "n4", "b", "/srv/b.img", 1);
    assert_ok(answer_natives(&x.facts, &of_all, &list, &e), &e);
    const json_t *natives = jarr(list, "natives");
    assert_int_equal(json_array_size(natives), 4);
    assert_string_equal(jstr(json_array_get(natives, 0), "alias"), "n4"); /* newest first */
    assert_string_equal(jstr(json_array_get(natives, 3), "alias"), "n1");
    assert_true(jbool(named(natives, "alias", "n1"), "prune")); /* two newer ones are kept */
    assert_false(jbool(named(natives, "alias", "n3"), "prune"));
    for (size_t i = 0; i < 4; i++) {
        CLEANUP(native_row_clear) struct native_row n;
        assert_ok(native_row_get(x.records, jstr(json_array_get(natives, i), "alias"), &n, &e), &e);
        CLEANUP_JSON json_t *one = answer_native(&x.facts, &n);
        assert_string_equal(jstr(one, "why"), jstr(json_array_get(natives, i), "why"));
    }
    assert_false(jbool(list, "more"));
    json_decref(list);
    /* The same in pages. */
    struct answer_query page = {.volume = "", .limit = 3};
    assert_ok(answer_natives(&x.facts, &page, &list, &e), &e);
    assert_int_equal(json_array_size(jarr(list, "natives")), 3);
    assert_true(jbool(list, "more"));
    page.before = (uint64_t)jint(list, "next");
    json_decref(list);
    assert_ok(answer_natives(&x.facts, &page, &list, &e), &e);
    assert_int_equal(json_array_size(jarr(list, "natives")), 1);
    assert_string_equal(jstr(json_array_get(jarr(list, "natives"), 0), "alias"), "n1");
    assert_true(jbool(json_array_get(jarr(list, "natives"), 0), "prune"));
    assert_false(jbool(list, "more"));
    json_decref(list);
    assert_ok(answer_natives(&x.facts, &of_a, &list, &e), &e);
    assert_int_equal(json_array_size(jarr(list, "natives")), 1);
    json_decref(list);
    assert_true(answer_natives(&x.facts, &of_c, &list, &e) < 0 && e.cls == ERR_NOT_FOUND);
    CLEANUP_JSON json_t *status = answer_status(&x.facts);
    const json_t *sum = jobj(status, "natives");
    assert_int_equal(jint(sum, "count"), 4);
    assert_int_equal(jint(sum, "used"), 4 * 4096);
    /* The next backup of /srv/b.img takes one of two places, that of /srv/a.img its only one. */
    assert_int_equal(json_array_size(jarr(sum, "next")), 3);
    assert_string_equal(jstr(json_array_get(jarr(sum, "next"), 0), "alias"), "n1");
    assert_string_equal(jstr(sum, "text"), "3 pruned by the next backups, first n1 of /srv/b.img");
    /* What has begun to be removed is not left for the next backup. */
    assert_int_equal(row_update_doc(x.records, ROW_NATIVE, "n1", "removing", NULL), 0);
    CLEANUP_JSON json_t *later = answer_status(&x.facts);
    assert_string_equal(jstr(jobj(later, "natives"), "text"),
                        "1 being removed; 2 pruned by the next backups, first n3 of /srv/b.img");
    assert_string_equal(jstr(json_array_get(jarr(jobj(later, "natives"), "next"), 0), "alias"), "n3");
    close_it(&x);
}

/* ---- thousands ---- */

#define MANY 10000
#define NAMED 1000 /* volumes with a section of their own, and named by a job one by one */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Nobody is to wait for a status of 10,000 volumes with a native snapshot each: the CPU times are printed. */
static void status_of_thousands(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    CLEANUP_FREE char *ini = NULL;
    size_t len;
    FILE *f = open_memstream(&ini, &len);
    assert_non_null(f);
    fputs("[job \"hourly\"]\nvolumes = /srv/*5.img\non-calendar = hourly\n"
          "[policy \"tmp\"]\nmatch = /srv/tmp*\naction = skip\n",
          f);
    for (unsigned i = 0; i < NAMED; i++)
        fprintf(f, "[volume \"/srv/%05u.img\"]\nsnapshots-to-retain = 4\n", i);
    fputs("[job \"named\"]\nvolumes =", f);
    for (unsigned i = 0; i < NAMED; i++)
        fprintf(f, "\n  /srv/%05u.img", i);
    fputs("\n", f);
    assert_int_equal(fclose(f), 0);
    open_with(&x, ini);
    assert_ok(records_begin(x.records, &e), &e);
    for (unsigned i = 0; i < MANY; i++) {
        char id[32], name[64];
        snprintf(id, sizeof id, "volume-%05u", i);
        snprintf(name, sizeof name, "/srv/%05u.img", i);
        add_volume(&x, id, name, "known", i % 10 ? NOW - DAY : 0);
        char alias[32];
        snprintf(alias, sizeof alias, "native-%05u", i);
        add_native(&x, alias, id, name, 2);
    }
    assert_ok(records_commit(x.records, &e), &e);
    double best = 1e9, dump = 1e9, natives = 1e9;
    for (unsigned i = 0; i < 5; i++) {
        const double from = seconds();
        CLEANUP_JSON json_t *status = answer_status(&x.facts);
        const double built = seconds();
        CLEANUP_FREE char *text = json_dumps(status, JSON_COMPACT);
        const double dumped = seconds();
        assert_non_null(text);
        assert_int_equal(json_array_size(jarr(status, "volumes")), ANSWER_VOLUMES_MAX);
        assert_int_equal(jint(jobj(status, "volume_counts"), "unprotected"), MANY / 10 * 2);
        assert_int_equal(jint(jobj(status, "volume_counts"), "protected"), MANY - MANY / 10 * 2);
        assert_int_equal(jint(jobj(status, "natives"), "count"), MANY);
        /* Those without a backup, by name. */
        assert_string_equal(jstr(json_array_get(jarr(status, "volumes"), 0), "name"), "/srv/00000.img");
        assert_string_equal(jstr(json_array_get(jarr(status, "volumes"), 99), "name"), "/srv/00990.img");
        assert_int_equal(json_array_size(jarr(json_array_get(jarr(status, "volumes"), 1), "jobs")), 2);
        assert_in_range(strlen(text), 1000, 100000);
        json_t *list = NULL;
        const double before = seconds();
        assert_ok(answer_natives(&x.facts, &of_all, &list, &e), &e);
        natives = seconds() - before < natives ? seconds() - before : natives;
        assert_int_equal(json_array_size(jarr(list, "natives")), MANY);
        json_decref(list);
        best = built - from < best ? built - from : best;
        dump = dumped - built < dump ? dumped - built : dump;
    }
    printf("# %u volumes with a native snapshot each: status built in %.1f ms, %.1f ms as text; natives in %.1f ms\n",
           MANY, best * 1e3, dump * 1e3, natives * 1e3);
    close_it(&x);
}

/* ---- an hour, and three ---- */

static bool problem_at(struct fixture *x, int64_t now_ns, const char *text)
{
    x->facts.now_ns = now_ns;
    CLEANUP_JSON json_t *status = answer_status(&x->facts);
    return has_problem(status, text);
}

static void set_up(struct fixture *x, bool up)
{
    x->facts.repositories[0].up = up;
}

/* An outcome that is not in its repository is a problem after an hour, unless that is not available. */
static void owed_outcomes_become_a_problem(void **state)
{
    (void)state;
    static const char TEXT[] = "the outcome of 2 backups is not recorded in it yet: wrong password";
    struct fixture x;
    struct operation op;
    struct err e = ERR_INIT;
    open_with(&x, "");
    json_t *doc = json_pack("{s:s,s:{s:s},s:[s,s],s:s}", "kind", "admin", "policy", "repository", "main", "records",
                            "b1", "b2", "waiting", "wrong password");
    assert_int_equal(row_add_doc(x.records, ROW_OPERATION, "record-b1", "", "", "Queued", doc, NULL), 0);
    assert_ok(operation_get(x.records, "record-b1", &op, &e), &e);
    const int64_t since = op.created_ns;
    operation_clear(&op);
    assert_false(problem_at(&x, since + NS_PER_H, TEXT));
    assert_true(problem_at(&x, since + NS_PER_H + 1, TEXT)); /* also without a daemon */
    struct answer_repository main = {.name = "main", .why = "", .hint = "", .up = true};
    x.facts.repositories = malloc(sizeof main);
    memcpy(x.facts.repositories, &main, sizeof main);
    x.facts.n_repositories = 1;
    assert_true(problem_at(&x, since + NS_PER_H + 1, TEXT));
    set_up(&x, false);
    assert_false(problem_at(&x, since + NS_PER_H + 1, TEXT));
    set_up(&x, true);
    json_t *away = json_pack("{s:b,s:s}", "tried", 1, "waiting", "repository \"main\": No such device");
    assert_int_equal(row_update_doc(x.records, ROW_OPERATION, "record-b1", "Queued", away), 0);
    assert_true(problem_at(&x, since, "of 2 backups is not recorded in repository \"main\": No such device"));
    assert_int_equal(row_update_doc(x.records, ROW_OPERATION, "record-b1", "Completed", NULL), 0);
    assert_false(problem_at(&x, since + DAY, "is not recorded"));
    close_it(&x);
}

/* A list of another node's backups that is three hours old is a problem while it could be newer. */
static void other_nodes_become_out_of_date(void **state)
{
    (void)state;
    static const char TEXT[] = "the backups of node nas2 were last listed 3 hours ago";
    static const char NEVER[] = "the backups of node nas3 could not be listed yet, for 3 hours";
    struct fixture x;
    struct err e = ERR_INIT;
    open_with(&x, "[repository \"main\"]\nother-nodes = nas2 nas3\n");
    CLEANUP_JSON json_t *nas2 = json_pack("{s:s,s:s}", "repository", "main", "node", "nas2");
    const int64_t at = NOW / NS_PER_S * NS_PER_S;
    assert_ok(records_counter_set(x.records, "other_node_scan_timestamp_seconds", nas2, (double)(at / NS_PER_S), &e),
              &e);
    assert_false(problem_at(&x, at + 3 * NS_PER_H + NS_PER_S, "were last listed")); /* nobody is there to do it */
    struct answer_repository main = {.name = "main", .why = "", .hint = "", .up = true};
    x.facts.repositories = malloc(sizeof main);
    memcpy(x.facts.repositories, &main, sizeof main);
    x.facts.n_repositories = 1;
    assert_false(problem_at(&x, at + 3 * NS_PER_H, "were last listed"));
    assert_true(problem_at(&x, at + 3 * NS_PER_H + NS_PER_S, TEXT));
    assert_false(problem_at(&x, at + 3 * NS_PER_H + NS_PER_S, "node nas3")); /* since when it is named is not known */
    CLEANUP_JSON json_t *nas3 = json_pack("{s:s,s:s}", "repository", "main", "node", "nas3");
    assert_ok(records_counter_set(x.records, "other_node_since_timestamp_seconds", nas3, (double)(at / NS_PER_S), &e),
              &e);
    assert_false(problem_at(&x, at + 3 * NS_PER_H, "node nas3"));
    assert_true(problem_at(&x, at + 3 * NS_PER_H + NS_PER_S, NEVER));
    set_up(&x, false);
    assert_false(problem_at(&x, at + 3 * NS_PER_H + NS_PER_S, "were last listed"));
    close_it(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(volumes_are_judged_offline),
        cmocka_unit_test(what_protection_is_based_on),
        cmocka_unit_test(volumes_that_were_looked_at),
        cmocka_unit_test(a_class_that_has_gone_as_a_whole),
        cmocka_unit_test(volumes_that_have_gone_or_come),
        cmocka_unit_test(facts_of_the_daemon),
        cmocka_unit_test(pages_of_ended_rows),
        cmocka_unit_test(runs_that_the_repository_knew),
        cmocka_unit_test(backups_by_the_state_shown),
        cmocka_unit_test(volumes_that_came_after_the_records),
        cmocka_unit_test(pages_of_live_rows),
        cmocka_unit_test(names_do_not_read_all),
        cmocka_unit_test(large_backups_are_read_in_part),
        cmocka_unit_test(what_is_left_of_a_large_backup),
        cmocka_unit_test(natives_are_planned_by_volume),
        cmocka_unit_test(status_of_thousands),
        cmocka_unit_test(owed_outcomes_become_a_problem),
        cmocka_unit_test(other_nodes_become_out_of_date),
    };
    return cmocka_run_group_tests(tests, cfgdir_make, cfgdir_remove);
}
