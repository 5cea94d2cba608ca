/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/test.h"

#include "base/time.h"
#include "repo/epoch-parts.h"
#include "repo/epoch-tidy.h"
#include "repo/epoch-test.h"
#include "repo/epoch.h"
#include "repo/index.h"

#include <ftw.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#define MINUTE INT64_C(60000000000)

typedef void vector_fn(json_t *v);

static unsigned each_vector(const char *name, vector_fn *fn)
{
    char path[256];
    snprintf(path, sizeof path, "vectors/%s", name);
    CLEANUP_FCLOSE FILE *f = fopen(fixture_path(path), "r");
    assert_non_null(f);
    CLEANUP_FREE char *line = NULL;
    size_t room = 0;
    unsigned n = 0;
    while (getline(&line, &room, f) > 0) {
        json_t *v = json_loads(line, 0, NULL);
        assert_non_null(v);
        fn(v);
        json_decref(v);
        n++;
    }
    return n;
}

static const char *str(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    if (!s)
        fail_msg("no member %s", key);
    return s;
}

static int64_t num(json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

static void check_chain(json_t *v)
{
    json_t *list = json_object_get(v, "ranges"), *want = json_object_get(v, "chain");
    size_t n = json_array_size(list), chain[16];
    struct epoch_range r[16];
    assert_true(n <= 16);
    for (size_t i = 0; i < n; i++) {
        json_t *pair = json_array_get(list, i);
        struct epoch_range x = {json_integer_value(json_array_get(pair, 0)),
                                json_integer_value(json_array_get(pair, 1))};
        size_t at = i;
        for (; at > 0 && r[at - 1].min > x.min; at--)
            r[at] = r[at - 1];
        r[at] = x;
    }
    int64_t links = epoch_chain(r, n, chain);
    assert_int_equal(links, json_array_size(want));
    for (int64_t i = 0; i < links; i++) {
        json_t *pair = json_array_get(want, (size_t)i);
        assert_int_equal(r[chain[i]].min, json_integer_value(json_array_get(pair, 0)));
        assert_int_equal(r[chain[i]].max, json_integer_value(json_array_get(pair, 1)));
    }
}

static void check_sets(json_t *v)
{
    json_t *list = json_object_get(v, "blobs"), *first = json_object_get(v, "first");
    const char *names[16];
    bool member[16] = {false};
    size_t n = json_array_size(list), marked = 0;
    assert_true(n <= 16);
    for (size_t i = 0; i < n; i++)
        names[i] = json_string_value(json_array_get(list, i));
    const int64_t got = epoch_first_complete(names, n, member);
    assert_int_equal(got, json_array_size(first));
    for (size_t i = 0; i < n; i++) {
        if (!member[i])
            continue;
        assert_string_equal(names[i], json_string_value(json_array_get(first, marked)));
        marked++;
    }
    assert_int_equal(marked, got);
}

static void name_vector(json_t *v)
{
    const char *kind = str(v, "kind");
    bool ok = json_is_true(json_object_get(v, "ok"));
    if (strcmp(kind, "number") == 0) {
        assert_int_equal(epoch_of_name(str(v, "blob")), ok ? num(v, "epoch") : -1);
    } else if (strcmp(kind, "range") == 0) {
        struct epoch_range r;
        assert_int_equal(epoch_range_of_name(str(v, "blob"), &r), ok);
        if (ok) {
            assert_int_equal(r.min, num(v, "min"));
            assert_int_equal(r.max, num(v, "max"));
        }
    } else if (strcmp(kind, "watermark") == 0) {
        int64_t s;
        assert_int_equal(epoch_watermark_of_name(str(v, "blob"), &s), ok);
        if (ok)
            assert_int_equal(s, num(v, "seconds"));
    } else if (strcmp(kind, "range chain") == 0) {
        check_chain(v);
    } else if (strcmp(kind, "complete sets") == 0) {
        check_sets(v);
    } else {
        fail_msg("kind %s", kind);
    }
}

static void names(void **state)
{
    (void)state;
    assert_int_equal(each_vector("epoch-names.jsonl", name_vector), 61);
}

/* ---- which blobs ------------------------------------------------------------------------------------------------ */

static void assert_blobs(const struct epoch_state *st, json_t *want, const char *what)
{
    if (st->n_blobs != json_array_size(want))
        fail_msg("%s: %zu blobs, not %zu", what, st->n_blobs, json_array_size(want));
    for (size_t i = 0; i < st->n_blobs; i++) {
        assert_string_equal(st->blobs[i].name, json_string_value(json_array_get(want, i)));
        if (i)
            assert_true(strcmp(st->blobs[i - 1].name, st->blobs[i].name) < 0);
    }
}

static void state_vector(json_t *v)
{
    json_t *list = json_object_get(v, "blobs");
    size_t n = json_array_size(list);
    CLEANUP_FREE struct blob_info *b = calloc(n + 1, sizeof *b);
    assert_non_null(b);
    uint64_t seed = 1;
    for (unsigned turn = 0; turn < 4; turn++) {
        for (size_t i = 0; i < n; i++) {
            json_t *x = json_array_get(list, i);
            snprintf(b[i].name, sizeof b[i].name, "%s", str(x, "blob"));
            b[i].length = (uint64_t)num(x, "length");
        }
        for (size_t i = n; turn && i > 1; i--) { /* the order of a listing says nothing */
            size_t k = splitmix64(&seed) % i;
            struct blob_info t = b[k];
            b[k] = b[i - 1];
            b[i - 1] = t;
        }
        struct err e = ERR_INIT;
        struct epoch_state st;
        assert_ok(epoch_select(&st, b, n, &e), &e);
        assert_int_equal(st.write_epoch, num(v, "writeEpoch"));
        json_t *w = json_object_get(v, "watermark");
        assert_int_equal(st.watermark, json_is_null(w) ? INT64_MIN : json_integer_value(w));
        assert_blobs(&st, json_object_get(v, "indexSet"), str(v, "name"));
        epoch_state_clear(&st);
    }
}

static void states(void **state)
{
    (void)state;
    assert_int_equal(each_vector("epoch-state.jsonl", state_vector), 29);
}

/* ---- what maintenance does with them ---- */

static void assert_names(const struct blob_info *b, size_t n, json_t *want, const char *what)
{
    if (n != json_array_size(want))
        fail_msg("%s: %zu blobs, not %zu", what, n, json_array_size(want));
    for (size_t i = 0; i < n; i++)
        assert_string_equal(b[i].name, json_string_value(json_array_get(want, i)));
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct blob_info *)a)->name, ((const struct blob_info *)b)->name);
}

/* A compaction: its inputs and the beginning of its names. */
static void assert_compaction(json_t *want, struct blob_info *in, size_t n, const char *prefix, const char *what)
{
    json_t *first = json_array_get(want, 0);
    if (!first != !n)
        fail_msg("%s: %zu blobs to compact", what, n);
    if (!n)
        return;
    qsort(in, n, sizeof *in, by_text);
    assert_names(in, n, json_object_get(first, "inputs"), what);
    assert_string_equal(prefix, str(first, "outputPrefix"));
}

/* Markers of any number can be forged: the epochs up to it are not counted through. */
static void forged_numbers(void **state)
{
    (void)state;
    const struct epoch_params p = {.enabled = true, .full_checkpoint = 7, .advance_count = 20};
    static const char *const markers[] = {"xe2147483647", "xe9223372036854775807", "xr0_9223372036854775807_x-c1"};
    for (size_t i = 0; i < sizeof markers / sizeof *markers; i++) {
        struct err e = ERR_INIT;
        struct epoch_listing l;
        struct blob_info *b = calloc(3, sizeof *b), *got = NULL;
        size_t n = 0;
        assert_non_null(b);
        snprintf(b[0].name, sizeof b[0].name, "%s", markers[i]);
        snprintf(b[1].name, sizeof b[1].name, "xn1000000007_%032x-c1", 1);
        snprintf(b[2].name, sizeof b[2].name, "xn1000000009_%032x-c1", 2);
        assert_ok(epoch_listing_make(&l, b, 3, &e), &e);
        alarm(60);
        const int64_t epoch = epoch_single_due(&l, &got, &n, &e);
        free(got);
        assert_int_equal(epoch, i < 2 ? 1000000007 : -1);
        const int64_t range = epoch_range_due(&l, &p, &got, &n, &e);
        free(got);
        assert_int_equal(n, i < 2 ? 2 : 0);
        assert_int_equal(range, i < 2 ? l.write_epoch - 2 : -1);
        assert_ok(epoch_superseded(&l, &p, &got, &n, &e), &e);
        free(got);
        alarm(0);
        epoch_listing_clear(&l);
    }
}

/* ---- many names ------------------------------------------------------------------------------------------------- */

/* The rule, word by word. */
static int64_t slow_first_complete(char (*names)[64], size_t n, bool *member)
{
    for (size_t i = 0; i < n; i++) {
        int set, other, count, unused, have = 0;
        if (sscanf(names[i], "x-s%d-c%d", &set, &count) != 2) {
            member[i] = true;
            return 1;
        }
        for (size_t k = 0; k <= i; k++)
            have += sscanf(names[k], "x-s%d-c%d", &other, &unused) == 2 && other == set;
        if (have != count)
            continue;
        for (size_t k = 0; k <= i; k++)
            member[k] = sscanf(names[k], "x-s%d-c%d", &other, &unused) == 2 && other == set;
        return have;
    }
    return 0;
}

static void sets_are_those_of_the_rule(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 20000; round++) {
        char names[12][64];
        const char *list[12];
        bool want[12] = {false}, got[12] = {false};
        const size_t n = (size_t)(rand() % 12);
        for (size_t i = 0; i < n; i++) {
            if (rand() % 20)
                snprintf(names[i], sizeof names[i], "x-s%d-c%d", rand() % 4, rand() % 4 + 1);
            else
                snprintf(names[i], sizeof names[i], "x");
            list[i] = names[i];
        }
        assert_int_equal(epoch_first_complete(list, n, got), slow_first_complete(names, n, want));
        assert_memory_equal(got, want, sizeof got);
    }
}

static int64_t slow_chain(const struct epoch_range *r, size_t n, size_t *chain)
{
    size_t links[16] = {0}, before[16], best = n;
    for (size_t i = 0; i < n; i++) {
        if (r[i].max < r[i].min)
            continue;
        if (r[i].min == 0) {
            links[i] = 1;
            before[i] = n;
        }
        for (size_t k = 0; k < i && r[i].min > 0; k++) {
            if (links[k] && r[k].max == r[i].min - 1 && (!links[i] || links[k] + 1 < links[i])) {
                links[i] = links[k] + 1;
                before[i] = k;
            }
        }
        if (links[i] && (best == n || r[i].max > r[best].max || (r[i].max == r[best].max && links[i] < links[best])))
            best = i;
    }
    if (best == n || r[best].max == 0)
        return 0;
    for (size_t i = best, at = links[best]; at > 0; i = before[i])
        chain[--at] = i;
    return (int64_t)links[best];
}

static int chain_by_min(const void *pa, const void *pb)
{
    const struct epoch_range *a = pa, *b = pb;
    return a->min < b->min ? -1 : a->min > b->min;
}

static void chains_are_those_of_the_rule(void **state)
{
    (void)state;
    srand(8);
    for (int round = 0; round < 20000; round++) {
        struct epoch_range r[16];
        size_t want[16], got[16];
        const size_t n = (size_t)(rand() % 16);
        for (size_t i = 0; i < n; i++) {
            r[i].min = rand() % 3 ? rand() % 12 : 0;
            r[i].max = r[i].min + rand() % 5 - 1;
        }
        qsort(r, n, sizeof *r, chain_by_min);
        const int64_t links = slow_chain(r, n, want);
        assert_int_equal(epoch_chain(r, n, got), links);
        if (links)
            assert_memory_equal(got, want, (size_t)links * sizeof *got);
    }
}

#define FORGED 200000

enum { NO_SET_COMPLETE, ONE_SET, RANGES_FROM_0, RANGES_INCOMPLETE, RANGES_CHAINED, EPOCHS, COMPACTED, FORMS };

static void forged_name(char *out, size_t cap, int form, size_t i)
{
    if (form == NO_SET_COMPLETE)
        snprintf(out, cap, "xs5_%032zx-s%zu-c9", i, i);
    else if (form == ONE_SET)
        snprintf(out, cap, "xs5_%032zx-s1-c%zu", i, FORGED + i);
    else if (form == RANGES_FROM_0)
        snprintf(out, cap, "xr0_%zu_%032zx-c1", i, i);
    else if (form == RANGES_INCOMPLETE)
        snprintf(out, cap, "xr%zu_%zu_%032zx-s%zu-c2", i, i, i, i);
    else if (form == RANGES_CHAINED)
        snprintf(out, cap, "xr%zu_%zu_%032zx-c1", i, i, i);
    else
        snprintf(out, cap, "x%c%zu_%032zx-c1", form == EPOCHS ? 'n' : 's', i, i);
}

/* Each is decided in seconds; what takes the square of their number takes hours. */
static void forged_by_the_thousand(void **state)
{
    const struct epoch_params p = {.enabled = true, .full_checkpoint = 7, .advance_count = 20};
    (void)state;
    for (int form = 0; form < FORMS; form++) {
        struct err e = ERR_INIT;
        struct epoch_state st;
        struct epoch_listing l;
        struct blob_info *b = calloc(FORGED + 1, sizeof *b), *got = NULL;
        size_t n = 0;
        assert_non_null(b);
        alarm(240);
        for (size_t i = 0; i < FORGED; i++)
            forged_name(b[i].name, sizeof b[i].name, form, i);
        snprintf(b[FORGED].name, sizeof b[FORGED].name, "xe%d", FORGED + 2);
        assert_ok(epoch_select(&st, b, FORGED + 1, &e), &e);
        epoch_state_clear(&st);
        assert_ok(epoch_listing_make(&l, b, FORGED + 1, &e), &e);
        epoch_single_due(&l, &got, &n, &e);
        free(got);
        epoch_range_due(&l, &p, &got, &n, &e);
        free(got);
        epoch_missing(&l, 0, &e);
        assert_ok(epoch_superseded(&l, &p, &got, &n, &e), &e);
        free(got);
        epoch_listing_clear(&l);
        alarm(0);
    }
}

static void tidy_vector(json_t *v)
{
    const struct epoch_params p = {.enabled = true,
                                   .refresh_ns = 20 * NS_PER_MIN,
                                   .cleanup_margin_ns = 4 * NS_PER_H,
                                   .min_duration_ns = 24 * NS_PER_H,
                                   .full_checkpoint = 7,
                                   .advance_count = 20,
                                   .advance_bytes = 10 << 20};
    const char *what = str(v, "name");
    json_t *list = json_object_get(v, "blobs");
    size_t n = json_array_size(list), k = 0;
    struct blob_info *b = calloc(n + 1, sizeof *b), *got = NULL;
    assert_non_null(b);
    for (size_t i = 0; i < n; i++) {
        json_t *x = json_array_get(list, i);
        snprintf(b[i].name, sizeof b[i].name, "%s", str(x, "blob"));
        b[i].length = (uint64_t)num(x, "length");
        b[i].mtime_ns =
            (int64_t)(json_number_value(json_object_get(x, "hours")) * 3600e9 + 0.5) + INT64_C(1777593600) * NS_PER_S;
    }
    struct err e = ERR_INIT;
    struct epoch_listing l;
    char prefix[64];
    assert_ok(epoch_listing_make(&l, b, n, &e), &e);
    assert_int_equal(l.write_epoch, num(v, "writeEpoch"));
    json_t *w = json_object_get(v, "watermark");
    assert_int_equal(l.watermark, json_is_null(w) ? INT64_MIN : json_integer_value(w));
    if (epoch_advance_due(&l, &p) != json_is_array(json_object_get(v, "advance")))
        fail_msg("%s: advance", what);
    int64_t epoch = epoch_single_due(&l, &got, &k, &e);
    snprintf(prefix, sizeof prefix, "xs%lld_", (long long)epoch);
    assert_compaction(json_object_get(v, "compactSingle"), got, k, prefix, what);
    free(got);
    epoch = epoch_range_due(&l, &p, &got, &k, &e);
    snprintf(prefix, sizeof prefix, "xr%lld_%lld_", (long long)l.first, (long long)epoch);
    assert_compaction(json_object_get(v, "range"), got, k, prefix, what);
    free(got);
    assert_ok(epoch_old_markers(&l, &p, &got, &k, &e), &e);
    assert_names(got, k, json_object_get(v, "cleanupMarkersDeletes"), what);
    free(got);
    assert_ok(epoch_superseded(&l, &p, &got, &k, &e), &e);
    assert_names(got, k, json_object_get(v, "cleanupSupersededDeletes"), what);
    free(got);
    epoch_listing_clear(&l);
}

static void tidies(void **state)
{
    (void)state;
    assert_int_equal(each_vector("epoch-state.jsonl", tidy_vector), 29);
}

static void select_names(const char *const *in, const char *const *want)
{
    struct blob_info b[16] = {0};
    size_t n = 0, m = 0;
    for (; in[n]; n++)
        snprintf(b[n].name, sizeof b[n].name, "%s", in[n]);
    struct err e = ERR_INIT;
    struct epoch_state st;
    assert_ok(epoch_select(&st, b, n, &e), &e);
    for (; want[m]; m++) {
        assert_true(m < st.n_blobs);
        assert_string_equal(st.blobs[m].name, want[m]);
    }
    assert_int_equal(st.n_blobs, m);
    epoch_state_clear(&st);
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void corners(void **state)
{
    (void)state;
    /* A range 0..0 is never used, neither alone nor in front of another. */
    select_names(NAMES("xe5", "xr0_0_a-s1-c1", "xn0_b-s1-c1", "xn5_c-s2-c1"), NAMES("xn0_b-s1-c1", "xn5_c-s2-c1"));
    select_names(NAMES("xe6", "xr0_0_a-s1-c1", "xr1_3_d-s1-c1", "xn0_b-s1-c1", "xn4_e-s1-c1"),
                 NAMES("xn4_e-s1-c1", "xr1_3_d-s1-c1"));
    /* W + 1 is loaded, W + 2 not; a name that no listing of an epoch would give is no index blob. */
    select_names(NAMES("xe1", "xn2_a-s1-c1", "xn3_a-s1-c1", "xn02_a-s1-c1", "xn2", "xn"), NAMES("xn2_a-s1-c1"));
    /* An xn blob is used though its set lacks one; an xs set that lacks one is not. */
    select_names(NAMES("xe2", "xn0_a-s1-c2", "xs0_b-s2-c2"), NAMES("xn0_a-s1-c2"));
    select_names(NAMES("xe2", "xn0_a-s1-c2", "xs0_b-s2-c2", "xs0_d-s2-c2"), NAMES("xs0_b-s2-c2", "xs0_d-s2-c2"));
    /* Numbers at the end of what fits do not run over or take for ever. */
    select_names(NAMES("xe9223372036854775807", "xn9223372036854775807_a", "xn5_b", "xs9223372036854775807_q",
                       "xr0_9223372036854775807_z-s1-c2"),
                 NAMES("xn5_b", "xn9223372036854775807_a"));
    select_names(NAMES("xe3", "xr0_9223372036854775807_z-s1-c1", "xn3_a-s1-c1"),
                 NAMES("xr0_9223372036854775807_z-s1-c1"));
}

static int64_t missing(const char *const *in)
{
    struct err e = ERR_INIT;
    struct epoch_listing l;
    size_t n = 0;
    struct blob_info *b = calloc(16, sizeof *b);
    assert_non_null(b);
    for (; in[n]; n++)
        snprintf(b[n].name, sizeof b[n].name, "%s", in[n]);
    assert_ok(epoch_listing_make(&l, b, n, &e), &e);
    int64_t epoch = epoch_missing(&l, 0, &e);
    epoch_listing_clear(&l);
    return epoch;
}

/* An epoch has index blobs, or a complete set of them, or is in a range; the write epoch need not have any yet. */
static void lost_epochs(void **state)
{
    (void)state;
    assert_int_equal(missing(NAMES("xn0_a-s1-c1")), -1);
    assert_int_equal(missing(NAMES("xe1", "xn0_a-s1-c1")), -1);
    assert_int_equal(missing(NAMES("xe1", "xn1_a-s1-c1")), 0);
    assert_int_equal(missing(NAMES("xe4", "xs0_a-s1-c1", "xn1_b-s1-c1", "xs2_c-s2-c1", "xn3_d-s3-c1")), -1);
    assert_int_equal(missing(NAMES("xe4", "xs0_a-s1-c1", "xn1_b-s1-c1", "xs2_c-s2-c2", "xn3_d-s3-c1")), 2);
    assert_int_equal(missing(NAMES("xe6", "xr0_3_a-s1-c1", "xn4_b-s1-c1", "xn5_c-s2-c1")), -1);
    assert_int_equal(missing(NAMES("xe6", "xr0_3_a-s1-c2", "xn4_b-s1-c1", "xn5_c-s2-c1")), 0);
    assert_int_equal(missing(NAMES("xe6", "xr0_3_a-s1-c1", "xn4_b-s1-c1", "xn6_c-s2-c1")), 5);
    assert_int_equal(missing(NAMES("xe9223372036854775807", "xn0_a-s1-c1")), 1);
}

/* ---- in a repository -------------------------------------------------------------------------------------------- */

struct repo {
    char dir[64];
    struct blobs *b;
    struct repo_format *f;
    struct sealer *s;
};

static struct {
    int64_t now, per_list, per_put;
    unsigned lists, puts, sleeps;
    unsigned advance_after_put; /* another client puts xe<advance_to> after our n-th put; 0: never */
    int64_t advance_to, advance_until;
    unsigned advance_before_check;
    struct blobs *b;
} sim;

static int64_t sim_now(void *arg)
{
    (void)arg;
    return sim.now;
}

static void sim_sleep(void *arg, int64_t d)
{
    (void)arg;
    sim.now += d;
    sim.sleeps++;
}

static void other_client_advances(void)
{
    for (; sim.advance_to <= sim.advance_until; sim.advance_to++) {
        char name[32];
        snprintf(name, sizeof name, "xe%lld", (long long)sim.advance_to);
        assert_int_equal(blobs_put(sim.b, name, "epoch-marker", 12, NULL), 0);
    }
}

static void sim_step(void *arg, const char *step)
{
    (void)arg;
    if (strcmp(step, "listed") == 0) {
        sim.lists++;
        sim.now += sim.per_list;
    } else if (strcmp(step, "put") == 0) {
        sim.puts++;
        sim.now += sim.per_put;
        if (sim.puts == sim.advance_after_put)
            other_client_advances();
    } else if (strcmp(step, "written") == 0 && sim.advance_before_check) {
        other_client_advances();
    }
}

static const struct epoch_hooks sim_hooks = {sim_now, sim_sleep, sim_step, NULL};

static void open_repo(struct repo *r, unsigned version)
{
    struct err e = ERR_INIT;
    assert_non_null(scratch_new(r->dir, sizeof r->dir));
    assert_ok(blobs_open_dir(&r->b, r->dir, BLOBS_CREATE, NULL, 0, &e), &e);
    struct format_create c = {.version = version, .unique_id = test_unique_id};
    assert_ok(format_create(r->b, &c, "password", &e), &e);
    assert_ok(format_load(&r->f, r->b, "password", &e), &e);
    assert_ok(sealer_new(&r->s, r->f, &e), &e);
    assert_int_equal(r->f->epochs.enabled, version > 1);
    memset(&sim, 0, sizeof sim);
    sim.now = INT64_C(1800000000000000000);
    sim.b = r->b;
    epoch_set_hooks(&sim_hooks);
}

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void close_repo(struct repo *r)
{
    epoch_set_hooks(NULL);
    sealer_free(r->s);
    format_free(r->f);
    blobs_free(r->b);
    nftw(r->dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int count_one(const struct blob_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return 0;
}

static unsigned count_blobs(struct repo *r, const char *prefix)
{
    unsigned n = 0;
    struct err e = ERR_INIT;
    assert_ok(blobs_list(r->b, prefix, count_one, &n, &e), &e);
    return n;
}

static const struct index_shard_data two[2] = {{(const uint8_t *)"first", 5}, {(const uint8_t *)"second one", 10}};

static void assert_readable(struct repo *r, const char *name, const struct index_shard_data *want)
{
    struct err e = ERR_INIT;
    CLEANUP_FREE uint8_t *sealed = NULL, *text = NULL;
    size_t n, len;
    assert_ok(blobs_get(r->b, name, 1 << 20, &sealed, &n, &e), &e);
    assert_ok(named_open(r->s, name, sealed, n, &text, &len, &e), &e);
    assert_int_equal(len, want->len);
    assert_memory_equal(text, want->data, len);
}

static int write_two(struct repo *r, char (*ret)[BLOB_NAME_MAX + 1], struct err *e)
{
    return epoch_write_indexes(r->b, r->s, r->f, "s0123456789abcdef144", two, 2, ret, e);
}

static void assert_written(struct repo *r, char (*name)[BLOB_NAME_MAX + 1], int64_t epoch)
{
    char begin[32];
    snprintf(begin, sizeof begin, "xn%lld_", (long long)epoch);
    for (unsigned i = 0; i < 2; i++) {
        assert_memory_equal(name[i], begin, strlen(begin));
        assert_non_null(strstr(name[i], "-s0123456789abcdef144-c2"));
        assert_readable(r, name[i], &two[i]);
    }
    assert_int_equal(count_blobs(r, "xn"), 2);
}

static void plain_write(void **state)
{
    (void)state;
    struct repo r;
    open_repo(&r, 3);
    struct err e = ERR_INIT;
    char name[2][BLOB_NAME_MAX + 1];
    assert_ok(write_two(&r, name, &e), &e);
    assert_written(&r, name, 0);
    assert_int_equal(sim.lists, 2); /* the state before, the check after */
    struct epoch_state st;
    assert_ok(epoch_load(&st, r.b, r.s, r.f, &e), &e);
    assert_int_equal(st.n_blobs, 2);
    assert_int_equal(st.write_epoch, 0);
    assert_int_equal(st.watermark, INT64_MIN);
    assert_int_equal(st.loaded_ns, sim.now);
    assert_int_equal(st.valid_until_ns, sim.now + 20 * MINUTE);
    assert_true(st.blobs[0].length > 10);
    epoch_state_clear(&st);

    assert_ok(blobs_put(r.b, "xw1700000000", "deletion-watermark", 18, &e), &e);
    assert_ok(blobs_put(r.b, "xw1600000000", "deletion-watermark", 18, &e), &e);
    assert_ok(epoch_load(&st, r.b, r.s, r.f, &e), &e);
    assert_int_equal(st.watermark, 1700000000);
    epoch_state_clear(&st);

    assert_ok(epoch_write_indexes(r.b, r.s, r.f, NULL, two, 1, name, &e), &e);
    assert_non_null(strstr(name[0], "--c1"));
    assert_readable(&r, name[0], &two[0]);
    close_repo(&r);
}

/* Slow puts: the state expires between the shards while another client advances the epoch. */
static void epoch_advances_between_shards(void **state)
{
    (void)state;
    struct repo r;
    open_repo(&r, 3);
    struct err e = ERR_INIT;
    char name[2][BLOB_NAME_MAX + 1];
    sim.per_put = 21 * MINUTE;
    sim.advance_after_put = 1;
    sim.advance_to = sim.advance_until = 1;
    assert_ok(write_two(&r, name, &e), &e);
    assert_written(&r, name, 1); /* the shard of epoch 0 is gone: assert_written() counts */
    close_repo(&r);
}

/* The state expires, but the epoch is the same: what is written stays. */
static void same_epoch_keeps_shards(void **state)
{
    (void)state;
    struct repo r;
    open_repo(&r, 3);
    struct err e = ERR_INIT;
    char name[2][BLOB_NAME_MAX + 1];
    sim.per_put = 21 * MINUTE;
    assert_ok(write_two(&r, name, &e), &e);
    assert_written(&r, name, 0);
    assert_int_equal(sim.puts, 2);
    assert_int_equal(sim.lists, 3);
    close_repo(&r);
}

/* The state is young enough for each shard: no listing in between, even when the epoch went on by one. */
static void one_epoch_later_is_fine(void **state)
{
    (void)state;
    struct repo r;
    open_repo(&r, 3);
    struct err e = ERR_INIT;
    char name[2][BLOB_NAME_MAX + 1];
    sim.advance_before_check = 1;
    sim.advance_to = sim.advance_until = 1;
    assert_ok(write_two(&r, name, &e), &e);
    assert_written(&r, name, 0);
    struct epoch_state st;
    assert_ok(epoch_load(&st, r.b, r.s, r.f, &e), &e);
    assert_int_equal(st.n_blobs, 2);
    epoch_state_clear(&st);
    close_repo(&r);
}

static void extremely_slow_write(void **state)
{
    (void)state;
    struct repo r;
    open_repo(&r, 3);
    struct err e = ERR_INIT;
    char name[2][BLOB_NAME_MAX + 1];
    sim.advance_before_check = 1;
    sim.advance_to = 1;
    sim.advance_until = 2;
    assert_int_equal(write_two(&r, name, &e), -EAGAIN);
    assert_int_equal(e.cls, ERR_BUSY);
    assert_non_null(strstr(e.msg, "took too long"));
    assert_int_equal(count_blobs(&r, "xn"), 0);

    sim.advance_before_check = 0;
    assert_ok(write_two(&r, name, &e), &e);
    assert_written(&r, name, 2);
    close_repo(&r);
}

static int write_known(struct repo *r, const struct epoch_state *known, char (*ret)[BLOB_NAME_MAX + 1], struct err *e)
{
    sim.lists = 0;
    return epoch_write_known(known, r->b, r->s, r->f, "s0123456789abcdef144", two, 2, ret, e);
}

/* What is known saves the first listing as long as it is valid for 15 minutes more, and never the check behind. */
static void a_known_state(void **state)
{
    (void)state;
    struct repo r;
    open_repo(&r, 3);
    struct err e = ERR_INIT;
    struct epoch_state known;
    char name[2][BLOB_NAME_MAX + 1];
    assert_ok(epoch_load(&known, r.b, r.s, r.f, &e), &e);
    sim.now += 4 * MINUTE;
    assert_ok(write_known(&r, &known, name, &e), &e);
    assert_written(&r, name, 0);
    assert_int_equal(sim.lists, 1);

    sim.now += 2 * MINUTE;
    assert_ok(write_known(&r, &known, name, &e), &e);
    assert_int_equal(sim.lists, 2);

    sim.now -= 10 * MINUTE; /* the clock was set back */
    assert_ok(write_known(&r, &known, name, &e), &e);
    assert_int_equal(sim.lists, 2);
    sim.now += 8 * MINUTE;

    /* Of an epoch that is not that of now: it is still read. Of one before that: nothing stays. */
    assert_ok(blobs_put(r.b, "xe1", "epoch-marker", 12, &e), &e);
    assert_ok(write_known(&r, &known, name, &e), &e);
    assert_written(&r, name, 0);
    assert_int_equal(sim.lists, 1);
    assert_ok(blobs_put(r.b, "xe2", "epoch-marker", 12, &e), &e);
    assert_int_equal(write_known(&r, &known, name, &e), -EAGAIN);
    assert_int_equal(count_blobs(&r, "xn"), 0);
    assert_ok(write_known(&r, NULL, name, &e), &e);
    assert_written(&r, name, 2);
    epoch_state_clear(&known);
    close_repo(&r);
}

static void never_ending_slowness(void **state)
{
    (void)state;
    struct repo r;
    open_repo(&r, 3);
    struct err e = ERR_INIT;
    struct epoch_state st;
    char name[2][BLOB_NAME_MAX + 1];
    sim.per_list = 30 * MINUTE;
    assert_int_equal(epoch_load(&st, r.b, r.s, r.f, &e), -EAGAIN);
    assert_int_equal(e.cls, ERR_BUSY);
    assert_true(sim.sleeps > 5);
    assert_int_equal(write_two(&r, name, &e), -EAGAIN);
    assert_int_equal(count_blobs(&r, "xn"), 0);
    close_repo(&r);
}

static void failed_put_leaves_nothing(void **state)
{
    (void)state;
    if (geteuid() == 0) {
        /* Permissions do not bind root: a directory in the blob's way does. The name is known from a write before. */
        struct repo r;
        open_repo(&r, 3);
        struct err e = ERR_INIT;
        char name[2][BLOB_NAME_MAX + 1];
        assert_ok(write_two(&r, name, &e), &e);
        for (unsigned i = 0; i < 2; i++)
            assert_ok(blobs_delete(r.b, name[i], &e), &e);
        char path[512];
        snprintf(path, sizeof path, "%s/%c/%.3s/%s.f", r.dir, name[1][0], name[1] + 1, name[1] + 4);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_true(write_two(&r, name, &e) < 0);
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(count_blobs(&r, "xn"), 0);
        close_repo(&r);
        return;
    }
    struct repo r;
    open_repo(&r, 3);
    struct err e = ERR_INIT;
    char name[2][BLOB_NAME_MAX + 1];
    assert_int_equal(chmod(r.dir, 0500), 0);
    assert_true(write_two(&r, name, &e) < 0);
    assert_int_equal(chmod(r.dir, 0700), 0);
    assert_int_equal(count_blobs(&r, "xn"), 0);
    close_repo(&r);
}

/* ---- without epochs --------------------------------------------------------------------------------------------- */

static void put_log(struct repo *r, const char *doc)
{
    struct err e = ERR_INIT;
    char name[BLOB_NAME_MAX + 1];
    CLEANUP_FREE uint8_t *sealed = NULL;
    size_t len;
    assert_ok(named_seal(r->s, "m", "", doc, strlen(doc), name, &sealed, &len, &e), &e);
    assert_ok(blobs_put(r->b, name, sealed, len, &e), &e);
}

static void assert_active(struct repo *r, const char *const *want, size_t n)
{
    struct err e = ERR_INIT;
    struct epoch_state st;
    assert_ok(epoch_load(&st, r->b, r->s, r->f, &e), &e);
    assert_int_equal(st.n_blobs, n);
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        for (size_t k = 0; k < st.n_blobs; k++)
            found = found || strcmp(st.blobs[k].name, want[i]) == 0;
        assert_true(found);
    }
    assert_int_equal(st.watermark, INT64_MIN);
    assert_int_equal(st.write_epoch, 0);
    epoch_state_clear(&st);
}

static void without_epochs(void **state)
{
    (void)state;
    struct repo r;
    open_repo(&r, 1);
    struct err e = ERR_INIT;
    char name[2][BLOB_NAME_MAX + 1], doc[1024];
    assert_active(&r, NULL, 0);
    assert_ok(write_two(&r, name, &e), &e);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(name[i][0], 'n');
        assert_string_equal(name[i] + 33, "-s0123456789abcdef144");
        assert_readable(&r, name[i], &two[i]);
    }
    assert_ok(blobs_put(r.b,
                        "n00000000000000000000000000000000-"
                        "repository_unreadable_by_this_kopia_version_upgrade_required",
                        "no", 2, &e),
              &e);
    assert_active(&r, NAMES(name[0], name[1]), 2);

    /* A log with an output that is not there changes nothing; with all of them its inputs are out. */
    snprintf(doc, sizeof doc,
             "{\"inputMetadata\":[{\"id\":\"%s\",\"length\":1}],\"outputMetadata\":[{\"id\":\"nffff\"}]}", name[0]);
    put_log(&r, doc);
    assert_active(&r, NAMES(name[0], name[1]), 2);
    snprintf(doc, sizeof doc,
             "{\"inputMetadata\":[{\"id\":\"%s\"},{\"id\":\"n0long-gone\"}],\"outputMetadata\":[{\"id\":\"%s\"}]}",
             name[0], name[1]);
    put_log(&r, doc);
    assert_active(&r, NAMES(name[1]), 1);
    put_log(&r, "{\"inputMetadata\":null,\"outputMetadata\":[]}");
    assert_active(&r, NAMES(name[1]), 1);

    put_log(&r, "{\"inputMetadata\":[{\"ID\":3}],\"outputMetadata\":[]}");
    struct epoch_state st;
    assert_int_equal(epoch_load(&st, r.b, r.s, r.f, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_non_null(strstr(e.msg, "compaction log m"));
    close_repo(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_numbers),
        cmocka_unit_test(sets_are_those_of_the_rule),
        cmocka_unit_test(chains_are_those_of_the_rule),
        cmocka_unit_test(forged_by_the_thousand),
        cmocka_unit_test(names),
        cmocka_unit_test(states),
        cmocka_unit_test(tidies),
        cmocka_unit_test(corners),
        cmocka_unit_test(lost_epochs),
        cmocka_unit_test(plain_write),
        cmocka_unit_test(epoch_advances_between_shards),
        cmocka_unit_test(same_epoch_keeps_shards),
        cmocka_unit_test(one_epoch_later_is_fine),
        cmocka_unit_test(extremely_slow_write),
        cmocka_unit_test(a_known_state),
        cmocka_unit_test(never_ending_slowness),
        cmocka_unit_test(failed_put_leaves_nothing),
        cmocka_unit_test(without_epochs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
