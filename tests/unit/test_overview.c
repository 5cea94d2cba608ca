/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What status keeps of all rows agrees with a walk over all of them, whatever is written in whatever order, and a
 * change costs a look at what it concerns, however many rows there are (AO-53). */
#include "tests/unit/cfgdir.h"

#include "base/json.h"
#include "base/ranked.h"
#include "base/time.h"
#include "daemon/answers/answers.h"
#include "rows.h"

#define NOW INT64_C(1800000000000000000)
#define HOUR (3600 * NS_PER_S)
#define VOLUMES 40
#define OPS 60

static uint64_t seed = 88172645463325252u;
static unsigned any(unsigned below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed % below);
}

/* ---- the ordered set ---- */

struct member {
    int before; /* of the node: found by RANKED_OF() */
    struct ranked_node node;
    unsigned key;
    bool there;
};
static bool lower(const struct ranked_node *a, const struct ranked_node *b)
{
    return RANKED_OF(a, struct member, node)->key < RANKED_OF(b, struct member, node)->key;
}

static void members_know_their_place(void **state)
{
    (void)state;
    enum { N = 300 };
    static struct member m[N];
    struct ranked r = RANKED_INIT(lower);
    for (unsigned i = 0; i < N; i++)
        m[i].key = 2 * i + 1;
    for (unsigned round = 0; round < 5000; round++) {
        struct member *x = &m[any(N)];
        if (x->there)
            ranked_remove(&r, &x->node);
        else
            ranked_add(&r, &x->node);
        x->there = !x->there;
        if (round % 50)
            continue;
        size_t n = 0;
        for (unsigned i = 0; i < N; i++) {
            const struct member like = {.key = 2 * i + 1}, between = {.key = 2 * i};
            assert_int_equal(ranked_place(&r, &like.node), n);
            assert_int_equal(ranked_place(&r, &between.node), n);
            assert_ptr_equal(ranked_find(&r, &like.node), m[i].there ? &m[i].node : NULL);
            assert_null(ranked_find(&r, &between.node));
            if (m[i].there)
                assert_ptr_equal(ranked_at(&r, n++), &m[i].node);
        }
        assert_int_equal(ranked_n(&r), n);
        assert_null(ranked_at(&r, n));
    }
}

/* ---- the overview ---- */

struct fixture {
    struct records *records;
    struct cfg *cfg;
    struct answer_facts facts;
    struct overview *overview;
};

static void open_it(struct fixture *x)
{
    static unsigned n;
    char dir[128];
    struct err e = ERR_INIT;
    struct records_news news;
    memset(x, 0, sizeof *x);
    x->cfg = cfgdir_load("[daemon]\nnode-name = nas1\nslots = 3\n[metrics]\nlisten =\n"
                         "[repository \"main\"]\ntype = filesystem\npath = /srv/r\npassword-file = /etc/p\n"
                         "[storage-class \"gold\"]\ndriver = reflink\nmatch = /srv/*.img\n"
                         "[storage-class \"lead\"]\ndriver = reflink\nmatch = /lead/*.img\n"
                         "[job \"nightly\"]\nvolumes = class:gold\non-calendar = daily\n"
                         "[job \"fives\"]\nvolumes = /srv/*5.img\non-calendar = hourly\n"
                         "[volume \"/srv/00003.img\"]\nexclude = yes\n"
                         "[volume \"/srv/00004.img\"]\nretain-max-age = 10h\n");
    assert_int_equal(cfg_errors(x->cfg), 0);
    snprintf(dir, sizeof dir, "%s/overview%u", cfgdir, n++);
    assert_ok(records_open(&x->records, dir, &news, &e), &e);
    answer_facts_offline(&x->facts, x->records, x->cfg, NULL, NOW);
    x->facts.down = "the daemon is not running";
    x->facts.down_hint = "start it";
}

static void watch(struct fixture *x)
{
    x->overview = overview_new(x->records);
    assert_non_null(x->overview);
    overview_configure(x->overview, x->cfg, &x->facts.jobs);
    assert_int_equal(rows_watch(x->records, overview_row, x->overview), 0);
    overview_work(x->overview, SIZE_MAX, x->facts.now_ns);
}

static void close_it(struct fixture *x)
{
    if (x->overview)
        rows_unwatch(x->records, x->overview);
    overview_free(x->overview);
    answer_facts_clear(&x->facts);
    records_close(x->records);
    cfg_free(x->cfg);
}

static json_t *volume_doc(unsigned i, const char *status, int64_t good_ns)
{
    char name[64], id[32];
    snprintf(name, sizeof name, "/%s/%05u.img", i % 8 == 7 ? "lead" : "srv", i);
    snprintf(id, sizeof id, "v%u", i);
    return json_pack("{s:{s:s,s:s,s:I},s:s,s:I,s:s}", "volume", "name", name, "id", id, "size", (json_int_t)1 << 30,
                     "class", i % 8 == 7 ? "lead" : "gold", "last_success_ns", (json_int_t)good_ns, "last_status",
                     status);
}

static json_t *native_doc(unsigned volume, unsigned retain, int64_t age_s, int64_t created_ns)
{
    char id[32];
    snprintf(id, sizeof id, "v%u", volume);
    return json_pack("{s:{s:s,s:s},s:{s:I,s:I},s:{s:i,s:b,s:b,s:I},s:b,s:b,s:s}", "volume", "name", id, "id", id,
                     "native", "used", (json_int_t)4096, "created_ns", (json_int_t)created_ns, "policy",
                     "snapshots_to_retain", retain, "move_data", 1, "prune_before", 1, "retain_max_age_s",
                     (json_int_t)age_s, "moved", 1, "moved_verified", 1, "driver", "reflink");
}

static json_t *operation_doc(unsigned volume, int priority, const char *native, const char *trouble)
{
    char name[32];
    snprintf(name, sizeof name, "/srv/%05u.img", volume);
    return json_pack("{s:s,s:{s:s,s:I},s:{s:s,s:i},s:s,s:s}", "kind", priority == 2 ? "restore" : "backup", "volume",
                     "name", name, "size", (json_int_t)1 << 30, "policy", "repository", "main", "priority", priority,
                     "native", native, "cleanup_error", trouble);
}

/* Adds a row or changes the one there is. */
static void put(struct fixture *x, enum row_kind k, const char *id, const char *parent, const char *volume,
                const char *state, json_t *doc)
{
    if (row_peek(x->records, k, id))
        assert_true(row_update_doc(x->records, k, id, state, doc) >= 0);
    else
        assert_int_equal(row_add_doc(x->records, k, id, parent, volume, state, doc, NULL), 0);
}

static void change_volume(struct fixture *x)
{
    static const char *const outcomes[] = {"Completed", "Failed", "PartiallyFailed", "Canceled"};
    const unsigned i = any(VOLUMES);
    char id[32];
    snprintf(id, sizeof id, "v%u", i);
    if (!any(8))
        row_delete(x->records, ROW_VOLUME, id, NULL);
    else
        put(x, ROW_VOLUME, id, "", id, any(5) ? "known" : "gone",
            volume_doc(i, outcomes[any(4)], any(4) ? x->facts.now_ns - any(100) * HOUR : 0));
}

static void change_native(struct fixture *x)
{
    const unsigned i = any(3 * VOLUMES);
    char id[32], volume[32], parent[32];
    snprintf(id, sizeof id, "n%u", i);
    snprintf(volume, sizeof volume, "v%u", i % VOLUMES);
    snprintf(parent, sizeof parent, "b%u", i % 5);
    if (!any(5))
        row_delete(x->records, ROW_NATIVE, id, NULL);
    else
        put(x, ROW_NATIVE, id, parent, volume, any(6) ? "present" : "missing",
            native_doc(i % VOLUMES, any(4), any(2) ? 0 : 36000, x->facts.now_ns - any(20) * HOUR));
}

static void change_operation(struct fixture *x)
{
    static const char *const states[] = {"Queued", "Queued", "Running", "Retrying", "CleaningUp", "Snapshotting"};
    const unsigned i = any(OPS);
    char id[32], volume[32], native[32];
    snprintf(id, sizeof id, "op%u", i);
    snprintf(volume, sizeof volume, "v%u", i % VOLUMES);
    snprintf(native, sizeof native, "n%u", i % VOLUMES);
    if (!any(4))
        row_delete(x->records, ROW_OPERATION, id, NULL);
    else
        put(x, ROW_OPERATION, id, "b1", volume, states[any(6)],
            operation_doc(i % VOLUMES, (int)any(3), any(2) ? native : "", any(9) ? "" : "the device is busy"));
}

/* One that has to record outcomes: of more or fewer backups, or in another repository. */
static void change_recorder(struct fixture *x)
{
    const unsigned i = any(12);
    char id[32];
    json_t *backups = json_array();
    snprintf(id, sizeof id, "record%u", i);
    for (unsigned n = any(4); n > 0; n--) {
        char backup[32];
        snprintf(backup, sizeof backup, "b%u", n);
        json_array_append_new(backups, json_string(backup));
    }
    put(x, ROW_OPERATION, id, "", "", any(2) ? "Queued" : "Retrying",
        json_pack("{s:s,s:{s:s},s:o}", "kind", "admin", "policy", "repository", any(3) ? "main" : "other", "records",
                  backups));
    if (!any(3))
        put(x, ROW_OPERATION, id, "", "", "Completed", json_object());
    if (!row_peek(x->records, ROW_OPERATION, id) || !any(6))
        row_delete(x->records, ROW_OPERATION, id, NULL); /* no row changes its end: the next one is new */
}

struct owed_walk {
    const char *repository;
    struct overview_owed sum;
};
static int see_owed(const struct operation *op, void *arg)
{
    struct owed_walk *x = arg;
    if (op_state_terminal(op->state) || !op->records.n || strcmp(op->policy->repository, x->repository) != 0)
        return 0;
    x->sum.backups += op->records.n;
    if (!x->sum.since_ns || op->created_ns < x->sum.since_ns)
        x->sum.since_ns = op->created_ns;
    return 0;
}

/* What is owed is what a walk over the operations finds. */
static unsigned assert_owed(struct fixture *x, const char *repository)
{
    struct owed_walk w = {.repository = repository};
    assert_true(operation_each(x->records, NULL, see_owed, &w, NULL) >= 0);
    const struct overview_owed kept = overview_owed(x->overview, repository);
    assert_int_equal(kept.backups, w.sum.backups);
    assert_int_equal(kept.since_ns, w.sum.since_ns);
    assert_int_equal(kept.oldest != NULL, w.sum.backups > 0);
    const struct operation *op = kept.oldest ? operation_peek(x->records, kept.oldest) : NULL;
    if (kept.oldest) {
        assert_non_null(op);
        assert_int_equal(op->created_ns, kept.since_ns);
        assert_string_equal(op->policy->repository, repository);
    }
    return (unsigned)kept.backups;
}

static void change_backup(struct fixture *x)
{
    static const char *const states[] = {"Queued", "Moving", "Deleting"};
    char id[32];
    snprintf(id, sizeof id, "b%u", any(5));
    if (!any(3))
        row_delete(x->records, ROW_BACKUP, id, NULL);
    else if (!row_peek(x->records, ROW_BACKUP, id))
        put(x, ROW_BACKUP, id, "", "", states[any(3)], json_pack("{s:s}", "kind", "backup"));
}

static char *status_text(struct fixture *x, const struct overview *o)
{
    struct answer_facts f = x->facts;
    f.overview = o;
    CLEANUP_JSON json_t *status = answer_status(&f);
    assert_non_null(status);
    const json_t *p;
    size_t i;
    json_array_foreach(jarr(status, "problems"), i, p) if (!jstr(p, "hint")[0])
        fail_msg("it is not said what to do: %s", jstr(p, "text"));
    return json_dumps(status, JSON_COMPACT | JSON_SORT_KEYS);
}

static void changes_at_random(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    open_it(&x);
    watch(&x);
    unsigned owed = 0;
    for (unsigned round = 0; round < 600; round++) {
        assert_ok(records_begin(x.records, &e), &e);
        for (unsigned i = any(12); i > 0; i--)
            (any(3)   ? any(2) ? change_native(&x) : change_volume(&x)
               : any(8) ? any(4) ? change_operation(&x) : change_recorder(&x)
                        : change_backup(&x));
        if (any(5))
            assert_ok(records_commit(x.records, &e), &e);
        else
            records_rollback(x.records);
        x.facts.now_ns += any(4) * HOUR;
        if (!any(20))
            overview_configure(x.overview, x.cfg, &x.facts.jobs);
        overview_work(x.overview, any(3) ? SIZE_MAX : any(5), x.facts.now_ns);
        owed += assert_owed(&x, "main") && assert_owed(&x, "other");
        assert_int_equal(assert_owed(&x, "none"), 0);
        if (overview_is_behind(x.overview))
            continue;
        CLEANUP_FREE char *kept = status_text(&x, x.overview), *anew = status_text(&x, NULL);
        assert_string_equal(kept, anew);
    }
    assert_true(owed > 50); /* rounds in which both owed something */
    close_it(&x);
}

/* The life of one operation, as its rows are written: how many volumes are looked at for it, and how long a status is.
 */
static uint64_t one_operation(unsigned volumes, size_t *bytes)
{
    struct fixture x;
    struct err e = ERR_INIT;
    open_it(&x);
    assert_ok(records_begin(x.records, &e), &e);
    for (unsigned i = 0; i < volumes; i++) {
        char id[32], native[32], op[32];
        snprintf(id, sizeof id, "v%u", i);
        snprintf(native, sizeof native, "n%u", i);
        snprintf(op, sizeof op, "op%u", i);
        put(&x, ROW_VOLUME, id, "", id, "known", volume_doc(i, "Completed", NOW - (i % 7 ? HOUR : 100 * HOUR)));
        put(&x, ROW_NATIVE, native, "", id, "present", native_doc(i, 1, 0, NOW - HOUR));
        put(&x, ROW_OPERATION, op, "", id, i % 2 ? "Queued" : "Retrying", operation_doc(i, 0, "", ""));
    }
    assert_ok(records_commit(x.records, &e), &e);
    watch(&x);
    const uint64_t before = overview_looks_test(x.overview);
    static const char *const states[] = {"Queued", "Snapshotting", "Running", "CleaningUp"};
    for (unsigned i = 0; i < 4; i++) {
        put(&x, ROW_OPERATION, "new", "", "v9", states[i], operation_doc(9, 0, i ? "n9" : "", ""));
        overview_work(x.overview, SIZE_MAX, NOW);
    }
    put(&x, ROW_VOLUME, "v9", "", "v9", "known", volume_doc(9, "Completed", NOW));
    put(&x, ROW_OPERATION, "new", "", "v9", "Completed", json_object());
    overview_work(x.overview, SIZE_MAX, NOW);
    CLEANUP_FREE char *text = status_text(&x, x.overview);
    const uint64_t looks = overview_looks_test(x.overview) - before;
    *bytes = strlen(text);
    close_it(&x);
    return looks;
}

static void one_change_costs_the_same_among_many(void **state)
{
    (void)state;
    size_t few_bytes, many_bytes;
    const uint64_t few = one_operation(200, &few_bytes), many = one_operation(5000, &many_bytes);
    print_message("# an operation costs %u looks at volumes; status has %zu bytes of 200 volumes, %zu of 5000\n",
                  (unsigned)few, few_bytes, many_bytes);
    assert_int_equal(few, many);
    assert_in_range(many, 2, 4);
    assert_in_range(many_bytes, few_bytes / 2, few_bytes + few_bytes / 4);
}

/* It is looked at in parts, and a part is as large as was asked. */
static void many_changes_are_looked_at_in_parts(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    open_it(&x);
    watch(&x);
    assert_ok(records_begin(x.records, &e), &e);
    for (unsigned i = 0; i < 1000; i++) {
        char id[32];
        snprintf(id, sizeof id, "v%u", i);
        put(&x, ROW_VOLUME, id, "", id, "known", volume_doc(i, "Completed", NOW - HOUR));
    }
    assert_ok(records_commit(x.records, &e), &e);
    const uint64_t before = overview_looks_test(x.overview);
    assert_int_equal(overview_work(x.overview, 128, NOW), 1000 - 128);
    assert_int_equal(overview_looks_test(x.overview) - before, 128);
    assert_int_equal(overview_volumes(x.overview, VOLUME_PROTECTED) + overview_volumes(x.overview, VOLUME_EXCLUDED),
                     128);
    assert_int_equal(overview_work(x.overview, SIZE_MAX, NOW), 0);
    assert_false(overview_is_behind(x.overview));
    /* Time alone: all of the hourly job, a quarter of whose numbers is of another class, and no others. */
    const uint64_t then = overview_looks_test(x.overview);
    overview_work(x.overview, SIZE_MAX, NOW + 2 * HOUR);
    assert_int_equal(overview_looks_test(x.overview) - then, 75);
    close_it(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_know_their_place),
        cmocka_unit_test(changes_at_random),
        cmocka_unit_test(one_change_costs_the_same_among_many),
        cmocka_unit_test(many_changes_are_looked_at_in_parts),
    };
    return cmocka_run_group_tests(tests, cfgdir_make, cfgdir_remove);
}
