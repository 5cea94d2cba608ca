/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Times, modes, JSON text and directory entries against what Kopia itself parses and prints. */
#include "tests/unit/test.h"

#include "repo/gojson.h"
#include "repo/snapshot.h"

#include <math.h>
#include <time.h>

typedef void vector_fn(const json_t *v);

/* Runs fn over the lines of json.jsonl of one kind; there must be at least `min` of them. */
static void each_vector(const char *kind, unsigned min, vector_fn *fn)
{
    FILE *f CLEANUP_FCLOSE = fopen(fixture_path("vectors/json.jsonl"), "r");
    assert_non_null(f);
    char *line CLEANUP_FREE = NULL;
    size_t cap = 0;
    unsigned n = 0;
    while (getline(&line, &cap, f) > 0) {
        json_t *v = json_loads(line, 0, NULL);
        assert_non_null(v);
        if (!strcmp(json_string_value(json_object_get(v, "kind")), kind)) {
            fn(v);
            n++;
        }
        json_decref(v);
    }
    assert_true(n >= min);
}

static const char *str(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

static void one_time(const json_t *v)
{
    int64_t ns;
    char text[TIME_TEXT];
    assert_int_equal(time_parse(&ns, str(v, "input")), 0);
    assert_int_equal(ns, json_integer_value(json_object_get(v, "unixNano")));
    assert_string_equal(time_text(ns, text), str(v, "printed"));
}

static void one_time_text(const json_t *v)
{
    json_t *doc = json_pack("{s:O}", "t", json_object_get(v, "json"));
    int64_t ns = 0;
    int rc = go_time(doc, "t", &ns);
    if (json_object_get(v, "error")) {
        assert_int_equal(rc, -EINVAL);
    } else {
        assert_int_equal(rc, 0);
        assert_int_equal(ns, json_integer_value(json_object_get(v, "unixNano")));
    }
    json_decref(doc);
}

static void test_times(void **state)
{
    (void)state;
    each_vector("time", 10, one_time);
    each_vector("time text", 10, one_time_text);
    int64_t ns;
    assert_int_equal(time_parse(&ns, "0001-01-01T00:00:00Z"), 0);
    assert_int_equal(ns, GO_ZERO_TIME_NS);
    assert_int_equal(time_parse(&ns, "2026-01-01T00:00:00+24:01"), 0);
    static const char *const bad[] = {
        "2026-01-01T00:00:00Zx", "2026-01-01T00:00:00+25:00", "2026-01-01T00:00:00+1:00", "2026-01-01T00:00:00.Z",
        "2026-00-01T00:00:00Z",  "2026-01-00T00:00:00Z",      "2026-01-01T00:60:00Z",     "2100-02-29T00:00:00Z",
        "26-01-01T00:00:00Z",    "2026-01-01T00:00:00z",      "2026-01-01 00:00:00Z",     "2026-01-01T00:00:00+0100",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(time_parse(&ns, bad[i]), -EINVAL);
}

/* Every time prints as text that parses to the same time; the calendar agrees with the C library's. */
static void test_time_round_trip(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (unsigned i = 0; i < 200000; i++) {
        int64_t ns = (int64_t)splitmix64(&seed), back;
        char text[TIME_TEXT], libc[TIME_TEXT];
        assert_int_equal(time_parse(&back, time_text(ns, text)), 0);
        assert_int_equal(back, ns);
        time_t sec = ns / 1000000000 - (ns % 1000000000 < 0);
        struct tm tm;
        assert_non_null(gmtime_r(&sec, &tm));
        strftime(libc, sizeof libc, "%Y-%m-%dT%H:%M:%S", &tm);
        assert_memory_equal(text, libc, 19);
    }
    char text[TIME_TEXT];
    assert_string_equal(time_text(INT64_MIN, text), "1677-09-21T00:12:43.145224192Z");
}

static void one_mode(const json_t *v)
{
    json_t *entry = json_pack("{s:O, s:s}", "mode", json_object_get(v, "json"), "obj", "");
    struct dir_entry d = {0};
    int rc = dir_entry_parse(&d, entry);
    if (json_object_get(v, "error")) {
        assert_int_equal(rc, -EINVAL);
    } else {
        int32_t value;
        assert_int_equal(rc, 0);
        assert_int_equal(go_parse_int32(str(v, "json"), &value), 0);
        assert_int_equal(value, json_integer_value(json_object_get(v, "value")));
        assert_int_equal(d.mode, go_mode_to_unix(value));
        dir_entry_clear(&d);
    }
    json_decref(entry);
}

static void test_modes(void **state)
{
    (void)state;
    each_vector("mode", 10, one_mode);
    char text[GO_MODE_TEXT];
    assert_string_equal(go_mode_text(0755, text), "0755");
    assert_string_equal(go_mode_text(01777, text), "04000777");
    assert_string_equal(go_mode_text(04755, text), "040000755");
    assert_string_equal(go_mode_text(02755, text), "020000755");
    for (uint32_t m = 0; m <= 07777; m++) {
        int32_t value;
        assert_int_equal(go_parse_int32(go_mode_text(m, text), &value), 0);
        assert_int_equal(go_mode_to_unix(value), m);
    }
    int32_t value;
    static const char *const bad[] = {"",     "-",  "+",   "0x",  "0_x1", "_1",  "1_",
                                      "1__0", "08", "0b2", "1.0", "1 ",   "0o8", "x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(go_parse_int32(bad[i], &value), -EINVAL);
    assert_int_equal(go_parse_int32("2147483648", &value), -ERANGE);
    assert_int_equal(go_parse_int32("-2147483648", &value), 0);
    assert_int_equal(go_parse_int32("99999999999999999999999999", &value), -ERANGE);
}

/* Entries as stock parses and prints them again. Ours does not carry the list of errors of a summary. */
static void one_entry(const json_t *v)
{
    json_t *doc = go_parse(str(v, "json"), strlen(str(v, "json")));
    struct dir_entry d = {0};
    int rc = dir_entry_parse(&d, doc);
    if (json_object_get(v, "error")) {
        assert_int_equal(rc, -EINVAL);
        json_decref(doc);
        return;
    }
    assert_int_equal(rc, 0);
    json_t *again = dir_entry_to_json(&d);
    json_t *want = go_parse(str(v, "printed"), strlen(str(v, "printed")));
    json_object_del(json_object_get(want, "summ"), "errors");
    if (d.type == '?') { /* such entries are never written */
        json_object_del(again, "type");
        json_object_del(want, "type");
    }
    char *a CLEANUP_FREE = json_go_text(again, false, NULL), *b CLEANUP_FREE = json_go_text(want, false, NULL);
    assert_string_equal(a, b);
    dir_entry_clear(&d);
    json_decref(doc);
    json_decref(again);
    json_decref(want);
}

static void test_entries(void **state)
{
    (void)state;
    each_vector("entry", 10, one_entry);
}

static void one_stats(const json_t *v)
{
    json_t *stats = go_parse(str(v, "json"), strlen(str(v, "json")));
    int rc = -EINVAL;
    if (stats) {
        json_t *doc = json_pack("{s:o, s:{s:s, s:s}}", "stats", stats, "rootEntry", "type", "d", "obj", "kab");
        struct manifest m = {.data = doc};
        struct snapshot s = {.id = ""};
        const char *why = "";
        rc = snapshot_parse(&s, &m, &why);
        if (rc == 0) {
            int64_t total = 0, files = 0;
            go_int(stats, "totalSize", INT64_MIN, INT64_MAX, &total);
            go_int(stats, "fileCount", INT64_MIN, INT64_MAX, &files);
            assert_int_equal(s.total_size, total);
            assert_int_equal(s.file_count, files);
            snapshot_clear(&s);
        } else {
            assert_string_equal(why, "stats");
        }
        json_decref(doc);
    }
    assert_int_equal(rc, json_object_get(v, "error") ? -EINVAL : 0);
}

static void test_stats(void **state)
{
    (void)state;
    each_vector("stats", 5, one_stats);
}

static void test_members(void **state)
{
    (void)state;
    json_t *v =
        json_loads("{\"Name\":\"a\",\"n\":5,\"t\":null,\"b\":true,\"nul\":\"a\\u0000b\"}", JSON_ALLOW_NUL, NULL);
    const char *s = "untouched";
    int64_t n = 7;
    bool b = false;
    assert_int_equal(go_string(v, "name", &s), 0);
    assert_string_equal(s, "a");
    assert_int_equal(go_string(v, "t", &s), 0);
    assert_string_equal(s, "a");
    assert_int_equal(go_string(v, "n", &s), -EINVAL);
    assert_int_equal(go_string(v, "nul", &s), -EINVAL);
    assert_int_equal(go_int(v, "N", 0, 4, &n), -EINVAL);
    assert_int_equal(go_int(v, "N", 0, 5, &n), 0);
    assert_int_equal(n, 5);
    assert_int_equal(go_bool(v, "B", &b), 0);
    assert_true(b);
    assert_int_equal(go_bool(v, "n", &b), -EINVAL);
    assert_true(go_has(v, "T"));
    assert_false(go_has(v, "x"));
    json_decref(v);
}

static void test_text(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"{\"b\":1,\"a\":[true,false,null,{}],\"c\":[]}", "{\"b\":1,\"a\":[true,false,null,{}],\"c\":[]}"},
        {"[\"<>&\\u2028\\u2029\"]", "[\"\\u003c\\u003e\\u0026\\u2028\\u2029\"]"},
        {"[\"\\u0001\\u0008\\u000c\\n\\r\\t\\u001f\\u007f\\\"\\\\/\"]",
         "[\"\\u0001\\b\\f\\n\\r\\t\\u001f\x7f\\\"\\\\/\"]"},
        {"[\"\\u00e9\\u2027\\u202a\\ud83d\\ude00\"]", "[\"\xc3\xa9\xe2\x80\xa7\xe2\x80\xaa\xf0\x9f\x98\x80\"]"},
        {"[9223372036854775807,-9223372036854775808]", "[9223372036854775807,-9223372036854775808]"},
        {"[0.0,1.5,0.1,1e21,1e20,1e-6,1e-7,-2.5e-10,123456.789]",
         "[0,1.5,0.1,1e+21,100000000000000000000,0.000001,1e-7,-2.5e-10,123456.789]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *v = go_parse(cases[i].in, strlen(cases[i].in));
        assert_non_null(v);
        size_t len;
        char *text CLEANUP_FREE = json_go_text(v, false, &len);
        assert_string_equal(text, cases[i].out);
        assert_int_equal(len, strlen(text));
        char *line CLEANUP_FREE = json_go_text(v, true, &len);
        assert_int_equal(len, strlen(text) + 1);
        assert_int_equal(line[len - 1], '\n');
        json_decref(v);
    }
    json_t *v = json_pack("{s:i, s:i, s:i}", "b", 1, "a", 2, "B", 3), *sorted = go_sorted_map(v);
    char *text CLEANUP_FREE = json_go_text(sorted, false, NULL);
    assert_string_equal(text, "{\"B\":3,\"a\":2,\"b\":1}");
    json_decref(v);
    json_decref(sorted);
    assert_int_equal(go_set(NULL, "k", NULL), -1);
}

/* Reals print as decimals that read back as the same number. */
static void test_reals(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t bits = splitmix64(&seed);
        double d;
        memcpy(&d, &bits, sizeof d);
        if (!isfinite(d))
            continue;
        json_t *v = json_real(d);
        char *text CLEANUP_FREE = json_go_text(v, false, NULL);
        assert_true(strtod(text, NULL) == d);
        json_decref(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),   cmocka_unit_test(test_time_round_trip), cmocka_unit_test(test_modes),
        cmocka_unit_test(test_entries), cmocka_unit_test(test_stats),           cmocka_unit_test(test_members),
        cmocka_unit_test(test_text),    cmocka_unit_test(test_reals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
