/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The exposition: golden texts, what is left out, and random samples read back by a reader of its own; promtool, where
 * there is one, has the last word. */
#include "tests/unit/test.h"

#include "daemon/metrics/render.h"

#include <math.h>
#include <unistd.h>

static const struct metric_family table[] = {
    {"up", METRIC_GAUGE, "", "Whether it is up.", NULL},
    {"runs_total", METRIC_COUNTER, "direction,class", "Runs \\ and\nmore.", "velero_runs_total"},
    {"metrics_dropped_samples", METRIC_GAUGE, "", "Left out.", NULL},
    {"wait_seconds", METRIC_HISTOGRAM, "direction", "Waiting, in seconds.", "velero_wait_seconds"},
    {"plain_seconds", METRIC_HISTOGRAM, "", "Waiting.", NULL},
    {"bytes", METRIC_GAUGE, "volume", "Bytes.", "velero_runs_total"},
    {NULL, METRIC_GAUGE, NULL, NULL, NULL},
};
static const char heads[] = "# HELP snapferry_up Whether it is up.\n# TYPE snapferry_up gauge\n";

static char *render(const char *json, bool compat, size_t max)
{
    json_error_t je;
    CLEANUP_FREE char *text = strdup(json);
    for (char *s = text; *s; s++)
        *s = *s == '\'' ? '"' : *s;
    json_t *samples = json_loads(text, 0, &je);
    if (!samples)
        fail_msg("%s: %s", json, je.text);
    struct metrics_options o = {compat, max};
    size_t len;
    char *out = metrics_render(table, samples, &o, &len);
    assert_non_null(out);
    assert_int_equal(strlen(out), len);
    json_decref(samples);
    return out;
}

static void has(const char *json, const char *want)
{
    CLEANUP_FREE char *out = render(json, true, 0);
    if (!strstr(out, want))
        fail_msg("no \"%s\" in:\n%s", want, out);
}

static void lacks(const char *json, const char * not, unsigned dropped)
{
    CLEANUP_FREE char *out = render(json, true, 0);
    char want[64];
    if (strstr(out, not ))
        fail_msg("\"%s\" is in:\n%s", not, out);
    snprintf(want, sizeof want, "\nsnapferry_metrics_dropped_samples %u\n", dropped);
    if (!strstr(out, want))
        fail_msg("no %s in:\n%s", want, out);
}

static void every_family_has_its_head(void **state)
{
    (void)state;
    CLEANUP_FREE char *out = render("[]", false, 0);
    assert_string_equal(out, "# HELP snapferry_up Whether it is up.\n"
                             "# TYPE snapferry_up gauge\n"
                             "# HELP snapferry_runs_total Runs \\\\ and\\nmore.\n"
                             "# TYPE snapferry_runs_total counter\n"
                             "# HELP snapferry_metrics_dropped_samples Left out.\n"
                             "# TYPE snapferry_metrics_dropped_samples gauge\n"
                             "snapferry_metrics_dropped_samples 0\n"
                             "# HELP snapferry_wait_seconds Waiting, in seconds.\n"
                             "# TYPE snapferry_wait_seconds histogram\n"
                             "# HELP snapferry_plain_seconds Waiting.\n"
                             "# TYPE snapferry_plain_seconds histogram\n"
                             "# HELP snapferry_bytes Bytes.\n"
                             "# TYPE snapferry_bytes gauge\n");
}

static void the_count_of_the_dropped_needs_no_family(void **state)
{
    (void)state;
    size_t len;
    CLEANUP_FREE char *out = metrics_render(&table[6], NULL, NULL, &len);
    assert_string_equal(out, "# HELP snapferry_metrics_dropped_samples Samples that this page had to leave out.\n"
                             "# TYPE snapferry_metrics_dropped_samples gauge\n"
                             "snapferry_metrics_dropped_samples 0\n");
}

static void numbers_are_exact(void **state)
{
    (void)state;
    static const char *const same[] = {"0",   "1",   "-5",    "9007199254740992",       "9223372036854775807",
                                       "0.5", "0.1", "1e+30", "1.7976931348623157e+308"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char json[128], want[128];
        snprintf(json, sizeof json, "[{'name':'up','value':%s}]", same[i]);
        snprintf(want, sizeof want, "\nsnapferry_up %s\n", same[i]);
        has(json, want);
    }
    has("[{'name':'up','value':1500000000.0}]", "\nsnapferry_up 1500000000\n");
    has("[{'name':'up','value':9007199254740992.0}]", "\nsnapferry_up 9007199254740992\n");
    has("[{'name':'up','value':-0.0}]", "\nsnapferry_up 0\n");
    has("[{'name':'up','value':0.30000000000000004}]", "\nsnapferry_up 0.30000000000000004\n");
}

static void labels_are_escaped_and_in_order(void **state)
{
    (void)state;
    has("[{'name':'runs_total','labels':{'class':'a\\\\b\\nc\\\"d','direction':'x, {y}'},'value':3}]",
        "\nsnapferry_runs_total{direction=\"x, {y}\",class=\"a\\\\b\\\\x0ac\\\"d\"} 3\n");
    /* What would act on a terminal or reorder an alert's text is written as lists have it. (Issue 13, 19) */
    has("[{'name':'bytes','labels':{'volume':'/srv/"
        "\xc3\xa4\\u0001\\u001b[31m\\u007f\\u009b\\u202e\\u2066\\u2028\xe2\x82\xac'},"
        "'value':3}]",
        "\nsnapferry_bytes{volume=\"/srv/\xc3\xa4\\\\x01\\\\x1b[31m\\\\x7f\\\\xc2\\\\x9b\\\\xe2\\\\x80\\\\xae"
        "\\\\xe2\\\\x81\\\\xa6\\\\xe2\\\\x80\\\\xa8\xe2\x82\xac\"} 3\n");
    has("[{'name':'bytes','labels':{'volume':''},'value':3}]", "\nsnapferry_bytes{volume=\"\"} 3\n");
}

static void rows_are_sorted(void **state)
{
    (void)state;
    CLEANUP_FREE char *a = render("[{'name':'bytes','labels':{'volume':'b'},'value':2},{'name':'up','value':1},"
                                  "{'name':'bytes','labels':{'volume':'a'},'value':1}]",
                                  false, 0);
    CLEANUP_FREE char *b = render("[{'name':'bytes','labels':{'volume':'a'},'value':1},"
                                  "{'name':'bytes','labels':{'volume':'b'},'value':2},{'name':'up','value':1}]",
                                  false, 0);
    assert_string_equal(a, b);
    assert_non_null(strstr(a, "snapferry_bytes{volume=\"a\"} 1\nsnapferry_bytes{volume=\"b\"} 2\n"));
}

#define WAIT(part, le, v) "{'name':'wait_seconds" part "','labels':{'direction':'d'" le "},'value':" v "}"
static void histograms_are_whole_and_in_order(void **state)
{
    (void)state;
    has("[" WAIT("_count", "", "4") "," WAIT("_bucket", ",'le':'+Inf'", "4") "," WAIT(
            "_bucket", ",'le':'10'", "3") "," WAIT("_sum", "", "40.5") "," WAIT("_bucket", ",'le':'2'", "1") "]",
        "# TYPE snapferry_wait_seconds histogram\n"
        "snapferry_wait_seconds_bucket{direction=\"d\",le=\"2\"} 1\n"
        "snapferry_wait_seconds_bucket{direction=\"d\",le=\"10\"} 3\n"
        "snapferry_wait_seconds_bucket{direction=\"d\",le=\"+Inf\"} 4\n"
        "snapferry_wait_seconds_sum{direction=\"d\"} 40.5\n"
        "snapferry_wait_seconds_count{direction=\"d\"} 4\n"
        "# HELP velero_wait_seconds Waiting, in seconds.\n"
        "# TYPE velero_wait_seconds histogram\n"
        "velero_wait_seconds_bucket{direction=\"d\",le=\"2\"} 1\n");
    has("[{'name':'plain_seconds_bucket','labels':{'le':'+Inf'},'value':0},{'name':'plain_seconds_sum','value':0},"
        "{'name':'plain_seconds_count','value':0}]",
        "\nsnapferry_plain_seconds_bucket{le=\"+Inf\"} 0\nsnapferry_plain_seconds_sum 0\n");
    /* no +Inf; a bucket less than the one before; another count; no sum */
    lacks("[" WAIT("_bucket", ",'le':'2'", "1") "," WAIT("_sum", "", "1") "," WAIT("_count", "", "1") "]",
          "wait_seconds_", 3);
    lacks("[" WAIT("_bucket", ",'le':'2'", "2") "," WAIT("_bucket", ",'le':'+Inf'",
                                                         "1") "," WAIT("_sum", "", "1") "," WAIT("_count", "", "1") "]",
          "wait_seconds_", 4);
    lacks("[" WAIT("_bucket", ",'le':'+Inf'", "1") "," WAIT("_sum", "", "1") "," WAIT("_count", "", "2") "]",
          "wait_seconds_", 3);
    lacks("[" WAIT("_bucket", ",'le':'+Inf'", "1") "," WAIT("_count", "", "1") "]", "wait_seconds_", 2);
    lacks("[" WAIT("_bucket", ",'le':'2x'", "1") "]", "wait_seconds_", 1);
    lacks("[" WAIT("_bucket", ",'le':'inf'", "1") "]", "wait_seconds_", 1);
    lacks("[" WAIT("_bucket", "", "1") "]", "wait_seconds_", 1);
    lacks("[" WAIT("", "", "1") "]", "wait_seconds{", 1);
}

static void what_does_not_fit_is_left_out(void **state)
{
    (void)state;
    lacks("[{'name':'down','value':1}]", "snapferry_down", 1);
    lacks("[{'name':'up','labels':{'a':'b'},'value':1}]", "snapferry_up{", 1);
    lacks("[{'name':'bytes','value':1}]", "\nsnapferry_bytes 1", 1);
    lacks("[{'name':'bytes','labels':{'volume':'a','more':'b'},'value':1}]", "more=", 1);
    lacks("[{'name':'bytes','labels':{'volume':7},'value':1}]", "snapferry_bytes{", 1);
    lacks("[{'name':'runs_total','labels':{'class':'a','direction':'b'},'value':-1}]", "snapferry_runs_total{", 1);
    lacks("[{'name':'up','value':'1'}]", "snapferry_up 1", 1);
    lacks("[{'name':'up'}, 7, null, [], {'name':7}]", "snapferry_up 1", 5);
    lacks("[{'name':'metrics_dropped_samples','value':77}]", "77", 1);
    lacks("[{'name':'up_total','value':1},{'name':'up_bucket','labels':{'le':'1'},'value':1}]", "snapferry_up_", 2);
    /* of two the first stays */
    CLEANUP_FREE char *out =
        render("[{'name':'up','value':1},{'name':'up','value':2},{'name':'up','value':3}]", false, 0);
    assert_non_null(strstr(out, "\nsnapferry_up 1\n"));
    assert_non_null(strstr(out, "\nsnapferry_metrics_dropped_samples 2\n"));
    assert_null(strstr(out, "snapferry_up 2"));
}

static void aliases_are_said_once(void **state)
{
    (void)state;
    const char *json = "[{'name':'runs_total','labels':{'class':'a','direction':'b'},'value':1},"
                       "{'name':'bytes','labels':{'volume':'v'},'value':2}]";
    CLEANUP_FREE char *with = render(json, true, 0), *without = render(json, false, 0);
    const char *first =
        strstr(with, "# TYPE velero_runs_total counter\nvelero_runs_total{direction=\"b\",class=\"a\"} 1\n");
    assert_non_null(first);
    assert_null(strstr(first + 10, "# TYPE velero_runs_total"));
    assert_null(strstr(without, "velero"));
}

static void a_family_has_no_end(void **state)
{
    (void)state;
    CLEANUP_FREE char *out = render("[{'name':'bytes','labels':{'volume':'c'},'value':3},{'name':'bytes','labels':{"
                                    "'volume':'a'},'value':1},{'name':'bytes','labels':{'volume':'b'},'value':2},"
                                    "{'name':'up','value':1}]",
                                    false, 2);
    assert_non_null(strstr(out, "{volume=\"a\"} 1\nsnapferry_bytes{volume=\"b\"} 2\n"));
    assert_null(strstr(out, "volume=\"c\""));
    assert_non_null(strstr(out, "\nsnapferry_up 1\n"));
    assert_non_null(strstr(out, "\nsnapferry_metrics_dropped_samples 1\n"));
    /* a histogram goes as a whole */
    CLEANUP_FREE char *h = render(
        "[" WAIT("_bucket", ",'le':'+Inf'", "1") "," WAIT("_sum", "", "1") "," WAIT("_count", "", "1") "]", false, 2);
    assert_null(strstr(h, "wait_seconds_"));
    assert_non_null(strstr(h, "\nsnapferry_metrics_dropped_samples 3\n"));
}

/* ---- random samples ---- */

static uint64_t seed = 20261121;
static unsigned rnd(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

/* Bytes that hurt, a few of them. */
static json_t *random_text(void)
{
    static const char *const pieces[] = {"\"",
                                         "\\",
                                         "\n",
                                         "\\n",
                                         "{",
                                         "}",
                                         "=",
                                         ",",
                                         " ",
                                         "#",
                                         "\t",
                                         "\xc3\xa4",
                                         "\r",
                                         "\x7f",
                                         "a",
                                         "b",
                                         "\x01",
                                         "/srv/x",
                                         "\xf0\x9f\x92\xbe",
                                         "le"};
    char text[128] = "";
    for (unsigned n = rnd(6); n; n--)
        strcat(text, pieces[rnd(sizeof pieces / sizeof *pieces)]);
    return json_string(text);
}

static json_t *random_labels(void)
{
    static const char *const names[] = {"direction", "class", "volume", "le", "direction", "class"};
    json_t *o = json_object();
    for (unsigned n = rnd(4); n; n--)
        json_object_set_new(o, names[rnd(6)], rnd(12) ? random_text() : json_integer(3));
    return o;
}

static json_t *random_sample(void)
{
    static const char *const names[] = {
        "up",           "runs_total", "bytes", "wait_seconds_bucket", "wait_seconds_sum",
        "wait_seconds", "nothing",    "runs",  "runs_total_",         "wait_seconds_count"};
    json_t *value = rnd(2) ? json_integer(rnd(1000)) : json_real((rnd(2000) - 1000.0) / (1 + rnd(7)));
    return json_pack("{s:s, s:o, s:o}", "name", names[rnd(10)], "labels", random_labels(), "value", value);
}

/* Reads name{label="value",...} number; false: it is none. Independent of what wrote it. */
static bool read_sample(const char *line, size_t n, char *family, size_t cap)
{
    const char *s = line, *end = line + n;
    char *stop;
    while (s < end && (strchr("_:", *s) || (*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9' && s > line)))
        s++;
    snprintf(family, cap, "%.*s", (int)(s - line), line);
    if (s == line)
        return false;
    if (s < end && *s == '{')
        do {
            s++;
            const char *label = s;
            while (s < end && *s >= 'a' && *s <= 'z')
                s++;
            if (s == label || s + 2 > end || s[0] != '=' || s[1] != '"')
                return false;
            for (s += 2; s < end && *s != '"'; s++)
                if (*s == '\\' && (++s == end || !strchr("\\\"n", *s)))
                    return false;
            s++;
        } while (s < end && *s == ',');
    if (s < end && *s == '}')
        s++;
    if (s >= end || *s != ' ')
        return false;
    strtod(s + 1, &stop);
    return stop == end;
}

/* Each line is a head or a sample of the family whose head was last; no line stands twice. */
static void check_text(const char *text)
{
    char family[128] = "", name[128];
    size_t lines = 0;
    assert_int_equal(text[strlen(text) - 1], '\n');
    for (const char *s = text; *s; lines++) {
        size_t n = strcspn(s, "\n");
        if (!strncmp(s, "# TYPE ", 7)) {
            snprintf(family, sizeof family, "%.*s", (int)strcspn(s + 7, " "), s + 7);
            char want[160];
            snprintf(want, sizeof want, "# TYPE %s ", family);
            assert_null(strstr(s + n, want)); /* once */
        } else if (strncmp(s, "# HELP ", 7) != 0) {
            if (!read_sample(s, n, name, sizeof name) || strncmp(name, family, strlen(family)) != 0)
                fail_msg("not a sample of %s: %.*s", family, (int)n, s);
        }
        s += n + 1;
    }
    assert_true(lines >= 13);
}

static void add_histogram(json_t *list, json_t *labels)
{
    double v = 0;
    for (unsigned b = 0; b <= 3; b++) {
        static const char *const bounds[] = {"1", "5", "15", "+Inf"};
        json_t *l = json_copy(labels);
        json_object_set_new(l, "le", json_string(bounds[b]));
        v += rnd(9);
        json_array_append_new(list, json_pack("{s:s,s:o,s:f}", "name", "wait_seconds_bucket", "labels", l, "value", v));
    }
    json_array_append_new(list,
                          json_pack("{s:s,s:O,s:f}", "name", "wait_seconds_sum", "labels", labels, "value", v * 3));
    json_array_append_new(list, json_pack("{s:s,s:o,s:f}", "name", "wait_seconds_count", "labels", labels, "value", v));
}

static json_t *random_samples(void)
{
    json_t *list = json_array();
    for (unsigned n = rnd(60); n; n--)
        json_array_append_new(list, random_sample());
    for (unsigned n = rnd(4); n; n--)
        add_histogram(list, json_pack("{s:o}", "direction", random_text()));
    return list;
}

static void promtool_takes(const char *text)
{
    /* Its opinions about names are not asked of this table: exit 3. A text that it cannot read is 1. */
    FILE *p = popen("promtool check metrics >/dev/null 2>&1", "w");
    assert_non_null(p);
    fputs(text, p);
    int rc = pclose(p);
    if (rc == 1 << 8)
        fail_msg("promtool refuses:\n%s", text);
}

static void random_samples_make_valid_texts(void **state)
{
    (void)state;
    bool promtool = system("command -v promtool >/dev/null 2>&1") == 0;
    size_t dropped = 0, kept = 0;
    for (unsigned i = 0; i < 2000; i++) {
        json_t *list = random_samples();
        struct metrics_options o = {rnd(2), rnd(3) ? 0 : 7};
        size_t len;
        CLEANUP_FREE char *out = metrics_render(table, list, &o, &len);
        assert_non_null(out);
        check_text(out);
        const char *d = strstr(out, "\nsnapferry_metrics_dropped_samples ");
        assert_non_null(d);
        size_t n = strtoul(d + 35, NULL, 10);
        assert_true(n <= json_array_size(list));
        dropped += n;
        kept += json_array_size(list) - n;
        if (promtool && i % 100 == 0)
            promtool_takes(out);
        json_decref(list);
    }
    assert_true(dropped > 1000 && kept > 1000);
    if (!promtool)
        print_message("promtool is not there: these texts were read by the test's own reader only\n");
}

/* ---- the daemon's own table ---- */

static bool label_name(const char *s, size_t n)
{
    return n && s[strspn(s, "abcdefghijklmnopqrstuvwxyz_")] == s[n] && strncmp(s, "__", 2) != 0;
}

static void the_families_are_well_formed(void **state)
{
    (void)state;
    for (const struct metric_family *f = metric_families; f->name; f++) {
        size_t n = strlen(f->name);
        bool total = n > 6 && !strcmp(f->name + n - 6, "_total");
        if (total != (f->type == METRIC_COUNTER))
            fail_msg("%s: counters and only they end with _total", f->name);
        assert_true(f->help && strlen(f->help) > 10 && f->help[strlen(f->help) - 1] == '.');
        assert_ptr_equal(metric_family(f->name), f->type == METRIC_HISTOGRAM ? metric_family(f->name) : f);
        for (const struct metric_family *x = metric_families; x < f; x++)
            if (!strcmp(x->name, f->name))
                fail_msg("%s stands twice", f->name);
        for (const char *l = f->labels; *l; l += *l == ',') {
            size_t len = strcspn(l, ",");
            if (!label_name(l, len) || (len == 2 && !memcmp(l, "le", 2)))
                fail_msg("%s: label %.*s", f->name, (int)len, l);
            l += len;
        }
    }
    size_t len;
    struct metrics_options o = {true, 0};
    CLEANUP_FREE char *out = metrics_text(NULL, &o, &len);
    check_text(out);
    assert_null(strstr(out, heads)); /* of the other table */
    if (system("command -v promtool >/dev/null 2>&1") == 0)
        promtool_takes(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_has_its_head),
        cmocka_unit_test(the_count_of_the_dropped_needs_no_family),
        cmocka_unit_test(numbers_are_exact),
        cmocka_unit_test(labels_are_escaped_and_in_order),
        cmocka_unit_test(rows_are_sorted),
        cmocka_unit_test(histograms_are_whole_and_in_order),
        cmocka_unit_test(what_does_not_fit_is_left_out),
        cmocka_unit_test(aliases_are_said_once),
        cmocka_unit_test(a_family_has_no_end),
        cmocka_unit_test(random_samples_make_valid_texts),
        cmocka_unit_test(the_families_are_well_formed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
