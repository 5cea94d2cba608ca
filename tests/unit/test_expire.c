/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_expire.c - policies and what goes by them (CF-43, E-11): golden policies and histories, pins, the last good
 * copy, deleting by name, clocks, documents that cannot be read
 */
#include "base/time.h"
#include "tests/unit/testrepo.h"

#include "repo/expire.h"
#include "repo/gojson.h"

#include <time.h>
#include <unistd.h>

#define DAY (86400 * NS_PER_S)
#define BASE (INT64_C(1767225600) * NS_PER_S) /* 2026-01-01 */

struct world {
    struct testrepo t;
    struct manifest_batch *b;
};

static void world_new(struct world *w)
{
    struct err e = ERR_INIT;
    testrepo_new(&w->t, "FIXED-128K", NULL);
    assert_ok(manifest_batch_new(&w->b, &e), &e);
}

static void world_free(struct world *w)
{
    manifest_batch_free(w->b);
    testrepo_free(&w->t);
}

static void flush(struct world *w)
{
    struct err e = ERR_INIT;
    assert_ok(manifest_batch_put(w->b, w->t.s, w->t.p, &e), &e);
    testrepo_flush(&w->t);
}

static struct snapshot_source source(const char *text)
{
    struct snapshot_source s;
    struct err e = ERR_INIT;
    assert_ok(snapshot_source_parse(&s, text, &e), &e);
    return s;
}

/* A snapshot manifest as other clients write it; `data` may be changed before it is added. */
static json_t *document(const struct snapshot_source *s, int64_t start, int64_t end, const char *incomplete)
{
    char t0[TIME_TEXT], t1[TIME_TEXT];
    json_t *v = json_pack("{s:s, s:{s:s, s:s, s:s}, s:s, s:s, s:s, s:{s:i}, s:{s:s, s:s, s:s, s:s}}", "id", "",
                          "source", "host", s->host, "userName", s->user, "path", s->path, "description", "",
                          "startTime", time_text(start, t0), "endTime", time_text(end, t1), "stats", "totalSize", 5,
                          "rootEntry", "name", "v", "type", "d", "mode", "0755", "obj", "kab");
    assert_non_null(v);
    if (incomplete)
        json_object_set_new(v, "incomplete", json_string(incomplete));
    return v;
}

static void add(struct world *w, const struct snapshot_source *s, json_t *data, char id[33])
{
    struct err e = ERR_INIT;
    json_t *labels = json_pack("{s:s, s:s, s:s, s:s}", "type", "snapshot", "hostname", s->host, "username", s->user,
                               "path", s->path);
    assert_ok(manifest_batch_add(w->b, labels, data, id, &e), &e);
    json_decref(labels);
    json_decref(data);
}

static void add_day(struct world *w, const struct snapshot_source *s, int day, char id[33])
{
    add(w, s, document(s, BASE + day * DAY, BASE + day * DAY + NS_PER_S, NULL), id);
}

static void add_policy(struct world *w, const char *type, const char *user, const char *host, const char *path,
                       json_t *data)
{
    struct err e = ERR_INIT;
    json_t *labels = json_pack("{s:s, s:s}", "type", "policy", "policyType", type);
    if (user)
        json_object_set_new(labels, "username", json_string(user));
    if (host)
        json_object_set_new(labels, "hostname", json_string(host));
    if (path)
        json_object_set_new(labels, "path", json_string(path));
    assert_ok(manifest_batch_add(w->b, labels, data, NULL, &e), &e);
    json_decref(labels);
    json_decref(data);
}

static int count_one(struct snapshot *s, void *arg)
{
    (void)s;
    ++*(unsigned *)arg;
    return 0;
}

static unsigned count(struct world *w, const struct snapshot_source *only)
{
    struct err e = ERR_INIT;
    unsigned n = 0;
    assert_ok(snapshots_each(w->t.r, only, false, count_one, &n, NULL, &e), &e);
    return n;
}

static bool exists(struct world *w, const char *id)
{
    struct err e = ERR_INIT;
    struct snapshot s;
    int rc = snapshot_find(w->t.r, id, NULL, &s, &e);
    if (rc == 0)
        snapshot_clear(&s);
    else
        assert_int_equal(e.cls, ERR_NOT_FOUND);
    return rc == 0;
}

static void assert_keep(const struct retention_policy *p, int latest, int hourly, int daily, int weekly, int monthly,
                        int annual)
{
    assert_int_equal(p->latest, latest);
    assert_int_equal(p->hourly, hourly);
    assert_int_equal(p->daily, daily);
    assert_int_equal(p->weekly, weekly);
    assert_int_equal(p->monthly, monthly);
    assert_int_equal(p->annual, annual);
}

/* ---- effective policies ---- */

/* A repository of stock's with policies at every level; the expected numbers are what its `policy show` prints. */
static void effective_policies_of_a_golden_repository(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        int keep[6];
    } cases[] = {
        {"backup@vault1:/srv/data/act", {3, 2, 5, 6, 1, 1}},
        {"backup@vault1:/srv/data/p", {4, 2, 5, 6, 1, 1}},
        {"backup@vault1:/srv/data/p/sub", {-1, -1, -1, -1, -1, -1}}, /* noParent */
        {"backup@vault1:/anything", {3, 2, 5, 6, 1, 1}},
        {"root@vault1:/anything", {3, 2, 5, 1, 1, 1}},
        {"other@elsewhere:/home/x", {1, 0, 0, 0, 0, 0}},
        {"other@elsewhere:/home/x/below", {1, 0, 0, 0, 0, 0}},
        {"other@elsewhere:/home/xy", {3, 2, 2, 1, 1, 1}},
    };
    struct testrepo t;
    struct err e = ERR_INIT;
    json_decref(testrepo_golden(&t, "policies"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snapshot_source s = source(cases[i].source);
        struct retention_policy p;
        assert_ok(source_policy_effective(t.r, &s, &p, &e), &e);
        const int *k = cases[i].keep;
        assert_keep(&p, k[0], k[1], k[2], k[3], k[4], k[5]);
    }
    testrepo_free(&t);
}

static int member(const json_t *retention, const char *key)
{
    const json_t *v = json_object_get(retention, key);
    return json_is_integer(v) ? (int)json_integer_value(v) : -1;
}

/* Vectors of stock: policies from the most specific one on, put at path, user, host in turn. */
static void effective_policies_of_the_vectors(void **state)
{
    (void)state;
    static const char *const types[] = {"path", "user", "host"};
    struct world w;
    struct err e = ERR_INIT;
    world_new(&w);
    json_t *cases[64];
    CLEANUP_FCLOSE FILE *f = fopen(fixture_path("vectors/policy-merge.jsonl"), "r");
    assert_non_null(f);
    CLEANUP_FREE char *line = NULL;
    size_t room = 0, n = 0;
    for (; getline(&line, &room, f) > 0 && n < 64; n++) {
        char host[16];
        cases[n] = json_loads(line, 0, NULL);
        assert_non_null(cases[n]);
        json_t *list = json_object_get(cases[n], "policiesMostSpecificFirst");
        assert_true(json_array_size(list) <= 3);
        snprintf(host, sizeof host, "h%zu", n);
        for (size_t i = 0; i < json_array_size(list); i++)
            add_policy(&w, types[i], i < 2 ? "u" : NULL, host, i < 1 ? "/v" : NULL,
                       json_incref(json_array_get(list, i)));
    }
    assert_int_equal(n, 24);
    flush(&w);
    CLEANUP(policies_freep) struct policies *all = NULL;
    assert_ok(policies_load(&all, w.t.r, &e), &e);
    for (size_t i = 0; i < n; i++) {
        char text[32];
        snprintf(text, sizeof text, "u@h%zu:/v", i);
        struct snapshot_source s = source(text);
        struct retention_policy p;
        assert_ok(policies_effective(all, &s, &p, NULL, &e), &e);
        json_t *want = json_object_get(json_object_get(cases[i], "effective"), "retention");
        assert_keep(&p, member(want, "keepLatest"), member(want, "keepHourly"), member(want, "keepDaily"),
                    member(want, "keepWeekly"), member(want, "keepMonthly"), member(want, "keepAnnual"));
        json_decref(cases[i]);
    }
    world_free(&w);
}

static void origins_and_odd_documents(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    world_new(&w);
    add_policy(&w, "path", "u", "h", "/a/b", json_pack("{s:{s:i}}", "Retention", "KEEPLATEST", 1));
    add_policy(&w, "path", "u", "h", "/a", json_pack("{s:{s:i, s:i}}", "retention", "keepLatest", 2, "keepDaily", -4));
    add_policy(&w, "path", "u", "h", "/", json_pack("{s:{s:I}}", "retention", "keepHourly", (json_int_t)1 << 40));
    add_policy(&w, "user", "u", "h", NULL, json_pack("{s:{s:i, s:n}}", "retention", "keepWeekly", 5, "keepDaily"));
    add_policy(&w, "host", NULL, "h", NULL, json_pack("{s:{s:i}}", "retention", "keepMonthly", 6));
    add_policy(&w, "global", NULL, NULL, NULL, json_pack("{s:{s:i}}", "retention", "keepAnnual", 7));
    add_policy(&w, "path", "u", "bad1", "/v", json_string("x"));
    add_policy(&w, "user", "u", "bad2", NULL, json_pack("{s:{s:f}}", "retention", "keepLatest", 1.5));
    add_policy(&w, "host", NULL, "bad3", NULL, json_pack("{s:i}", "retention", 5));
    add_policy(&w, "host", NULL, "bad4", NULL, json_pack("{s:s}", "noParent", "yes"));
    add_policy(&w, "no-such-type", "u", "h", "/a/b", json_string("x"));
    flush(&w);
    CLEANUP(policies_freep) struct policies *all = NULL;
    assert_ok(policies_load(&all, w.t.r, &e), &e);
    struct snapshot_source s = source("u@h:/a/b");
    struct retention_policy p;
    struct retention_origin o;
    assert_ok(policies_effective(all, &s, &p, &o, &e), &e);
    assert_keep(&p, 1, INT32_MAX, 0, 5, 6, 7);
    assert_string_equal(o.latest, "source");
    assert_string_equal(o.daily, "path");
    assert_string_equal(o.hourly, "path");
    assert_string_equal(o.weekly, "user");
    assert_string_equal(o.monthly, "host");
    assert_string_equal(o.annual, "global");
    s = source("x@y:/z");
    assert_ok(policies_effective(all, &s, &p, &o, &e), &e);
    assert_keep(&p, 10, 48, 7, 4, 24, 7);
    assert_string_equal(o.latest, "default");
    for (int i = 1; i <= 4; i++) {
        char text[32];
        snprintf(text, sizeof text, "u@bad%d:/v", i);
        s = source(text);
        e = (struct err)ERR_INIT;
        assert_true(policies_effective(all, &s, &p, &o, &e) < 0);
        assert_int_equal(e.cls, ERR_DAMAGE);
    }
    /* Nothing goes by a policy that cannot be read. */
    s = source("u@bad2:/v");
    for (int day = 0; day < 20; day++)
        add_day(&w, &s, day, NULL);
    flush(&w);
    struct expire_result res;
    e = (struct err)ERR_INIT;
    assert_true(snapshots_expire(w.t.r, &(struct expire_opts){.source = &s}, NULL, NULL, &res, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_int_equal(count(&w, &s), 20);
    world_free(&w);
}

/* ---- writing a policy ---- */

struct seen_policies {
    unsigned n;
    char *text;
};

static int note_policy(const struct manifest *m, void *arg)
{
    struct seen_policies *p = arg;
    p->n++;
    free(p->text);
    p->text = json_go_text(m->data, false, NULL);
    return 0;
}

static void keep_is(struct world *w, const struct snapshot_source *s, const struct retention_policy *keep,
                    const char *want, bool changes)
{
    struct err e = ERR_INIT;
    struct seen_policies p = {0};
    struct manifest_batch *fresh = NULL;
    uint64_t before = session_pending(w->t.s);
    assert_ok(manifest_batch_new(&fresh, &e), &e);
    assert_ok(source_policy_keep(w->t.r, s, keep, fresh, &e), &e);
    assert_ok(manifest_batch_put(fresh, w->t.s, w->t.p, &e), &e);
    assert_int_equal(session_pending(w->t.s) != before, changes);
    testrepo_flush(&w->t);
    assert_ok(manifests_each(w->t.r, "policy", note_policy, &p, &e), &e);
    assert_int_equal(p.n, 1);
    if (!strstr(p.text, want))
        fail_msg("no %s in %s", want, p.text);
    assert_non_null(strstr(p.text, "\"scheduling\":{\"manual\":true}"));
    free(p.text);
    manifest_batch_free(fresh);
    usleep(1000);
}

static void policies_are_written_and_kept(void **state)
{
    (void)state;
    struct world w;
    world_new(&w);
    struct snapshot_source s = source("snapferry@n:/v");
    const struct retention_policy none = {-1, -1, -1, -1, -1, -1}, some = {-1, -1, 14, 8, -1, -1},
                                  other = {3, -1, 14, -1, -1, 0};
    keep_is(&w, &s, &none, "\"retention\":{},", true);
    keep_is(&w, &s, &none, "\"retention\":{},", false);
    keep_is(&w, &s, &some, "\"retention\":{\"keepDaily\":14,\"keepWeekly\":8},", true);
    keep_is(&w, &s, &some, "\"retention\":{\"keepDaily\":14,\"keepWeekly\":8},", false);
    keep_is(&w, &s, &other, "\"retention\":{\"keepLatest\":3,\"keepDaily\":14,\"keepAnnual\":0},", true);
    keep_is(&w, &s, &other, "\"retention\":{\"keepLatest\":3,\"keepDaily\":14,\"keepAnnual\":0},", false);
    /* Nobody asks any more: what is there stays. */
    keep_is(&w, &s, &none, "\"retention\":{\"keepLatest\":3,\"keepDaily\":14,\"keepAnnual\":0},", false);
    keep_is(&w, &s, NULL, "\"retention\":{\"keepLatest\":3,\"keepDaily\":14,\"keepAnnual\":0},", false);
    /* What a stock client set beside it stays, whatever its spelling. */
    add_policy(&w, "path", "snapferry", "n", "/v",
               json_pack("{s:{s:i, s:b, s:i}, s:{s:b}, s:{s:s}}", "Retention", "keeplatest", 5,
                         "ignoreIdenticalSnapshots", 1, "keepMonthly", 9, "scheduling", "manual", 1, "compression",
                         "compressorName", "zstd"));
    flush(&w);
    keep_is(&w, &s, &some,
            "{\"Retention\":{\"keepDaily\":14,\"keepWeekly\":8,\"ignoreIdenticalSnapshots\":true},"
            "\"scheduling\":{\"manual\":true},\"compression\":{\"compressorName\":\"zstd\"}}",
            true);
    struct retention_policy p;
    struct err e = ERR_INIT;
    assert_ok(source_policy_effective(w.t.r, &s, &p, &e), &e);
    assert_keep(&p, 10, 48, 14, 8, 24, 3);
    world_free(&w);
}

/* ---- expiring ---- */

static int64_t vector_time(const char *text)
{
    int64_t ns;
    return text && time_parse(&ns, text) == 0 ? ns : INT64_MIN;
}

struct history {
    json_t *want; /* reasons by manifest id */
    unsigned kept, gone;
};

static int check_verdict(const struct expire_verdict *v, void *arg)
{
    struct history *h = arg;
    json_t *want = json_object_get(h->want, v->id);
    assert_non_null(want);
    assert_int_equal(v->n_reasons, json_array_size(want));
    for (unsigned i = 0; i < v->n_reasons; i++)
        assert_string_equal(v->reasons[i], json_string_value(json_array_get(want, i)));
    assert_int_equal(v->keep, v->n_reasons > 0);
    assert_true(v->why[0]);
    h->kept += v->keep;
    h->gone += !v->keep;
    return 0;
}

static int check_left(struct snapshot *s, void *arg)
{
    struct history *h = arg;
    h->kept--;
    assert_true(json_array_size(json_object_get(h->want, s->id)) > 0);
    return 0;
}

/* The golden histories of stock, as snapshots of a repository: after it, those with a reason are left and no others. */
static void golden_histories_expire_as_stock_does(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    world_new(&w);
    struct history h = {.want = json_object()};
    json_t *zones = json_object();
    CLEANUP_FCLOSE FILE *f = fopen(fixture_path("vectors/retention.jsonl"), "r");
    assert_non_null(f);
    CLEANUP_FREE char *line = NULL;
    size_t room = 0, n = 0, all = 0;
    while (getline(&line, &room, f) > 0) {
        json_t *j = json_loads(line, 0, NULL), *list = json_object_get(j, "snapshots"), *policy;
        const char *tz = json_string_value(json_object_get(j, "timeZone"));
        char text[64];
        bool fits = json_array_size(list) > 0;
        for (size_t i = 0; i < json_array_size(list); i++)
            fits &= vector_time(json_string_value(json_object_get(json_array_get(list, i), "start"))) != INT64_MIN;
        policy = json_object_get(j, "policy");
        /* Equal times are told apart by their order of input there, by nothing that a repository has. */
        fits &= !strstr(json_string_value(json_object_get(j, "name")), "input order");
        if (fits) {
            json_t *zone = json_object_get(zones, tz);
            size_t number = zone ? (size_t)json_integer_value(zone) : json_object_size(zones);
            json_object_set_new(zones, tz, json_integer((json_int_t)number));
            snprintf(text, sizeof text, "u@z%zu:/v%zu", number, n);
            struct snapshot_source s = source(text);
            json_t *doc = json_pack("{s:O, s:b}", "retention", policy, "noParent", 1);
            add_policy(&w, "path", s.user, s.host, s.path, doc);
            for (size_t i = 0; i < json_array_size(list); i++) {
                json_t *x = json_array_get(list, i);
                int64_t start = vector_time(json_string_value(json_object_get(x, "start"))),
                        end = vector_time(json_string_value(json_object_get(x, "end")));
                char id[33];
                add(&w, &s,
                    document(&s, start, end == INT64_MIN ? start : end,
                             json_string_value(json_object_get(x, "incomplete"))),
                    id);
                json_object_set(h.want, id, json_object_get(x, "reasons"));
                all++;
            }
            n++;
            if (n % 10 == 0)
                flush(&w);
        }
        json_decref(j);
    }
    flush(&w);
    assert_true(n > 100);
    usleep(1000);
    const char *tz;
    json_t *number;
    json_object_foreach(zones, tz, number)
    {
        char host[32];
        snprintf(host, sizeof host, "z%d", (int)json_integer_value(number));
        struct expire_opts o = {.user = "u", .host = host, .tz = tz, .dry_run = true};
        struct expire_result dry, res;
        struct history again = h;
        assert_ok(snapshots_expire(w.t.r, &o, check_verdict, &again, &dry, &e), &e);
        o.dry_run = false;
        assert_ok(snapshots_expire(w.t.r, &o, check_verdict, &h, &res, &e), &e);
        assert_memory_equal(&dry, &res, sizeof res);
    }
    assert_int_equal(h.kept + h.gone, all);
    assert_true(h.gone > 100);
    assert_int_equal(count(&w, NULL), h.kept);
    assert_ok(snapshots_each(w.t.r, NULL, false, check_left, &h, NULL, &e), &e);
    assert_int_equal(h.kept, 0);
    json_decref(h.want);
    json_decref(zones);
    world_free(&w);
}

struct whys {
    unsigned n;
    char ids[16][33], why[16][256];
    bool keep[16];
    int stop_at;
};

static int note_why(const struct expire_verdict *v, void *arg)
{
    struct whys *a = arg;
    assert_true(a->n < 16);
    memcpy(a->ids[a->n], v->id, 33);
    memcpy(a->why[a->n], v->why, 256);
    a->keep[a->n] = v->keep;
    return (int)++a->n == a->stop_at ? -ECANCELED : 0;
}

static void reasons_pins_and_the_last_good_copy(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    world_new(&w);
    struct snapshot_source s = source("snapferry@n:/v"), other = source("snapferry@n:/w");
    char ids[8][33];
    json_t *pinned = document(&s, BASE - 10 * DAY, BASE - 10 * DAY + NS_PER_S, NULL);
    json_object_set_new(pinned, "pins", json_pack("[s]", "audit"));
    add(&w, &s, pinned, ids[0]);
    add_day(&w, &s, 0, ids[1]);
    add_day(&w, &s, 1, ids[2]);
    add(&w, &s, document(&s, BASE + 1 * DAY + 3600 * NS_PER_S, BASE + 1 * DAY + 3601 * NS_PER_S, NULL), ids[3]);
    add(&w, &s, document(&s, BASE + 1 * DAY + 1800 * NS_PER_S, BASE + 1 * DAY + 1801 * NS_PER_S, "checkpoint"), ids[4]);
    add(&w, &s, document(&s, BASE + 2 * DAY, BASE + 2 * DAY + NS_PER_S, "canceled"), ids[5]);
    add_day(&w, &other, 0, ids[6]);
    flush(&w);
    usleep(1000);
    const struct retention_policy keep = {-1, -1, 1, 1, -1, -1};
    struct expire_opts o = {.user = "snapferry", .host = "n", .keep = &keep, .tz = "UTC", .dry_run = true};
    struct whys a = {0};
    struct expire_result res;
    assert_ok(snapshots_expire(w.t.r, &o, note_why, &a, &res, &e), &e);
    assert_int_equal(res.sources, 2);
    assert_int_equal(res.kept, 4);
    assert_int_equal(res.expired, 3);
    assert_int_equal(count(&w, NULL), 7); /* dry */
    static const struct {
        int id;
        bool keep;
        const char *why;
    } want[] = {{5, true, "incomplete"},
                {3, true, "daily-1, weekly-1"},
                {4, false, "incomplete, and a newer or a complete one exists"},
                {2, false, "a newer snapshot is kept for the day, week"},
                {1, false, "older than 1 daily; a newer snapshot is kept for the week"},
                {0, true, "pinned"},
                {6, true, "daily-1, weekly-1"}};
    assert_int_equal(a.n, 7);
    for (unsigned i = 0; i < 7; i++) {
        assert_string_equal(a.ids[i], ids[want[i].id]);
        assert_int_equal(a.keep[i], want[i].keep);
        assert_string_equal(a.why[i], want[i].why);
    }
    /* A callback that says no: nothing goes. */
    o.dry_run = false;
    a = (struct whys){.stop_at = 3};
    assert_int_equal(snapshots_expire(w.t.r, &o, note_why, &a, &res, &e), -ECANCELED);
    assert_int_equal(count(&w, NULL), 7);
    /* One source only. */
    o = (struct expire_opts){.source = &s, .keep = &keep, .tz = "UTC"};
    assert_ok(snapshots_expire(w.t.r, &o, NULL, NULL, &res, &e), &e);
    assert_int_equal(res.expired, 3);
    assert_true(exists(&w, ids[0]) && exists(&w, ids[3]) && exists(&w, ids[5]) && exists(&w, ids[6]));
    assert_int_equal(count(&w, NULL), 4);
    /* A second time there is nothing to do. */
    assert_ok(snapshots_expire(w.t.r, &o, NULL, NULL, &res, &e), &e);
    assert_int_equal(res.expired, 0);
    /* Another repository's view of it, from disk. */
    struct testrepo second = {.dir = ""};
    char path[64];
    memcpy(second.dir, w.t.dir, sizeof second.dir);
    snprintf(path, sizeof path, "%s/repo", w.t.dir);
    testrepo_open(&second, path, "test");
    unsigned n = 0;
    assert_ok(snapshots_each(second.r, NULL, false, count_one, &n, NULL, &e), &e);
    assert_int_equal(n, 4);
    repo_free(second.r);
    world_free(&w);
}

static void explanations(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    world_new(&w);
    struct snapshot_source s = source("snapferry@n:/v");
    for (int i = 0; i < 4; i++)
        add(&w, &s, document(&s, BASE + 12 * 3600 * NS_PER_S + i * 60 * NS_PER_S, BASE + 13 * 3600 * NS_PER_S, NULL),
            NULL);
    add_day(&w, &s, -3, NULL);
    flush(&w);
    usleep(1000);
    const struct retention_policy keep = {1, 2, 2, -1, 0, 5};
    struct expire_opts o = {.keep = &keep, .tz = "UTC", .dry_run = true};
    struct whys a = {0};
    struct expire_result res;
    assert_ok(snapshots_expire(w.t.r, &o, note_why, &a, &res, &e), &e);
    assert_string_equal(a.why[0], "latest-1, hourly-1, daily-1, annual-1");
    for (int i = 1; i < 4; i++)
        assert_string_equal(a.why[i], "not among the newest 1; a newer snapshot is kept for the hour, day, year");
    assert_string_equal(a.why[4], "annual-2"); /* 2025 */
    a = (struct whys){0};
    const struct retention_policy less = {-1, 2, 2, -1, -1, -1};
    o.keep = &less;
    assert_ok(snapshots_expire(w.t.r, &o, note_why, &a, &res, &e), &e);
    assert_string_equal(a.why[1], "a newer snapshot is kept for the hour, day");
    assert_string_equal(a.why[4], "older than 2 hourly, 2 daily");
    world_free(&w);
}

/* More than one content's worth of tombstones, in one flush. */
static void many_go_at_once(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    world_new(&w);
    struct snapshot_source s = source("snapferry@n:/v");
    for (int i = 0; i < 2100; i++) {
        add_day(&w, &s, i, NULL);
        if (i % 700 == 699)
            flush(&w);
    }
    usleep(1000);
    const struct retention_policy keep = {5, -1, -1, -1, -1, -1};
    struct expire_result res;
    assert_ok(snapshots_expire(w.t.r, &(struct expire_opts){.source = &s, .keep = &keep}, NULL, NULL, &res, &e), &e);
    assert_int_equal(res.expired, 2095);
    assert_int_equal(count(&w, NULL), 5);
    world_free(&w);
}

static void a_clock_that_is_ahead(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    world_new(&w);
    struct snapshot_source s = source("snapferry@n:/v");
    char id[33], t[TIME_TEXT];
    add_day(&w, &s, 1, NULL);
    flush(&w);
    /* A collection written by another machine, two hours from now and one second from now. */
    for (int i = 0; i < 2; i++) {
        snprintf(id, sizeof id, "%032x", i + 1);
        int64_t at = now_ns() + (i ? NS_PER_S : 7200 * NS_PER_S);
        json_t *m = json_pack("{s:[{s:s, s:{s:s}, s:s, s:o}]}", "entries", "id", id, "labels", "type", "snapshot",
                              "modified", time_text(at, t), "data", document(&s, BASE, BASE + NS_PER_S, NULL));
        size_t len;
        char *text CLEANUP_FREE = json_go_text(m, true, &len);
        uint8_t *gz CLEANUP_FREE = NULL;
        int64_t n = gzip_compress(text, len, &gz, &e);
        assert_ok(n, &e);
        assert_ok(session_put_bytes(w.t.s, w.t.p, 'm', gz, (size_t)n, 0x1101, NULL, &e), &e);
        testrepo_flush(&w.t);
        json_decref(m);
        const char *ids[] = {id};
        int rc = snapshots_delete(w.t.r, ids, 1, NULL, NULL, &e);
        if (i == 0) {
            assert_true(rc < 0);
            assert_int_equal(e.cls, ERR_CLOCK);
            assert_true(exists(&w, id));
        } else { /* waited for */
            assert_ok(rc, &e);
            assert_false(exists(&w, id));
        }
    }
    world_free(&w);
}

/* ---- by name ---- */

static void deleting_by_name(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    world_new(&w);
    struct snapshot_source s = source("snapferry@n:/v");
    char ids[4][33], bad[33];
    for (int i = 0; i < 3; i++)
        add_day(&w, &s, i, ids[i]);
    json_t *broken = document(&s, BASE, BASE, NULL);
    json_object_set_new(broken, "startTime", json_integer(5));
    add(&w, &s, broken, bad);
    add_policy(&w, "global", NULL, NULL, NULL, json_object());
    flush(&w);
    usleep(1000);
    struct delete_result res;
    static const char gone[] = "00000000000000000000000000000000";
    const char *all[] = {ids[0], ids[1], ids[2], gone, ids[1]};
    assert_int_equal(snapshots_delete(w.t.r, all, 5, NULL, &res, &e), -EPERM); /* E-11 */
    assert_int_equal(e.cls, ERR_USAGE);
    assert_non_null(strstr(e.msg, ids[2]));
    assert_non_null(strstr(e.msg, "last good"));
    assert_int_equal(count(&w, NULL), 3);
    assert_ok(snapshots_delete(w.t.r, all, 5, &(struct delete_opts){.last_good = true, .dry_run = true}, &res, &e), &e);
    assert_int_equal(res.deleted, 3);
    assert_int_equal(res.gone, 1);
    assert_int_equal(count(&w, NULL), 3);

    char pinned[33];
    static const char *const pins[] = {"b", "a", NULL}, *const unpin[] = {"b", "a", "c", NULL};
    assert_ok(snapshot_pin(w.t.r, ids[0], pins, NULL, pinned, &e), &e);
    assert_string_not_equal(pinned, ids[0]);
    all[0] = pinned;
    assert_int_equal(snapshots_delete(w.t.r, all, 2, NULL, &res, &e), -EPERM);
    assert_non_null(strstr(e.msg, pinned));
    assert_int_equal(count(&w, NULL), 3);
    assert_ok(snapshot_pin(w.t.r, pinned, NULL, unpin, pinned, &e), &e);
    assert_ok(snapshots_delete(w.t.r, all, 2, NULL, &res, &e), &e);
    assert_int_equal(res.deleted, 2);
    assert_int_equal(count(&w, NULL), 1);
    assert_ok(snapshots_delete(w.t.r, all, 2, NULL, &res, &e), &e); /* again: they are gone */
    assert_int_equal(res.deleted, 0);
    assert_int_equal(res.gone, 2);
    all[0] = bad; /* what nobody can read may go */
    assert_ok(snapshots_delete(w.t.r, all, 1, NULL, &res, &e), &e);
    assert_int_equal(res.deleted, 1);
    assert_ok(snapshots_delete(w.t.r, NULL, 0, NULL, &res, &e), &e);

    all[0] = "xyz";
    assert_true(snapshots_delete(w.t.r, all, 1, NULL, &res, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    world_free(&w);
}

static int first_id(const struct manifest *m, void *arg)
{
    memcpy(arg, m->id, sizeof m->id);
    return 0;
}

static void only_snapshots_are_deleted(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    struct seen_policies p = {0};
    world_new(&w);
    add_policy(&w, "global", NULL, NULL, NULL, json_object());
    flush(&w);
    char id[33] = "";
    assert_ok(manifests_each(w.t.r, "policy", first_id, id, &e), &e);
    const char *ids[] = {id};
    assert_true(snapshots_delete(w.t.r, ids, 1, NULL, NULL, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_ok(manifests_each(w.t.r, "policy", note_policy, &p, &e), &e);
    assert_int_equal(p.n, 1);
    free(p.text);
    world_free(&w);
}

static int note_document(const struct manifest *m, void *arg)
{
    json_t **v = arg;
    json_decref(*v);
    *v = json_pack("{s:s, s:O, s:O}", "id", m->id, "labels", m->labels, "data", m->data);
    return 0;
}

static void pins_as_stock_writes_them(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    world_new(&w);
    struct snapshot_source s = source("snapferry@n:/v");
    char id[33], next[33];
    json_t *data = document(&s, BASE, BASE + NS_PER_S, NULL), *seen = NULL;
    json_object_set_new(data, "unknown member", json_integer(7));
    json_t *before = json_deep_copy(data);
    add(&w, &s, data, id);
    flush(&w);
    usleep(1000);
    static const char *const ab[] = {"beta", "alpha", "beta", NULL}, *const none[] = {"gamma", NULL};
    static const char *const empty[] = {"", NULL}, *const odd[] = {"\xff", NULL};
    assert_ok(snapshot_pin(w.t.r, id, ab, NULL, next, &e), &e);
    assert_ok(manifests_each(w.t.r, "snapshot", note_document, &seen, &e), &e);
    assert_string_equal(json_string_value(json_object_get(seen, "id")), next);
    json_t *pins = json_object_get(json_object_get(seen, "data"), "pins");
    assert_int_equal(json_array_size(pins), 2);
    assert_string_equal(json_string_value(json_array_get(pins, 0)), "alpha");
    assert_string_equal(json_string_value(json_array_get(pins, 1)), "beta");
    assert_string_equal(json_string_value(json_object_get(json_object_get(seen, "labels"), "path")), "/v");
    assert_int_equal(count(&w, NULL), 1);
    memcpy(id, next, sizeof id);
    assert_ok(snapshot_pin(w.t.r, id, ab, none, next, &e), &e); /* no change, no new id */
    assert_string_equal(id, next);
    usleep(1000);
    assert_ok(snapshot_pin(w.t.r, id, none, ab, next, &e), &e);
    usleep(1000);
    assert_ok(snapshot_pin(w.t.r, next, NULL, none, next, &e), &e);
    assert_ok(manifests_each(w.t.r, "snapshot", note_document, &seen, &e), &e);
    assert_true(json_equal(json_object_get(seen, "data"), before)); /* as if nothing had been */
    assert_int_equal(snapshot_pin(w.t.r, id, ab, NULL, next, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_NOT_FOUND);
    assert_true(snapshot_pin(w.t.r, id, empty, NULL, next, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_true(snapshot_pin(w.t.r, id, NULL, odd, next, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    json_decref(seen);
    json_decref(before);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(effective_policies_of_a_golden_repository),
        cmocka_unit_test(effective_policies_of_the_vectors),
        cmocka_unit_test(origins_and_odd_documents),
        cmocka_unit_test(policies_are_written_and_kept),
        cmocka_unit_test(golden_histories_expire_as_stock_does),
        cmocka_unit_test(reasons_pins_and_the_last_good_copy),
        cmocka_unit_test(explanations),
        cmocka_unit_test(many_go_at_once),
        cmocka_unit_test(a_clock_that_is_ahead),
        cmocka_unit_test(deleting_by_name),
        cmocka_unit_test(only_snapshots_are_deleted),
        cmocka_unit_test(pins_as_stock_writes_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
