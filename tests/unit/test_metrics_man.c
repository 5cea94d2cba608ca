/* SPDX-License-Identifier: GPL-2.0-or-later */
/* snapferry-metrics(7) and the table of families say the same, and the table keeps the rules of Prometheus. */
#include "tests/unit/test.h"

#include "daemon/metrics/metrics.h"
#include "daemon/records/records.h"
#include "repo/blob.h"

#include <ctype.h>
#include <math.h>

static const char *const types[] = {"counter", "gauge", "histogram"};

static char *man_page(void)
{
    FILE *f = fopen("docs/man/snapferry-metrics.7.pod", "r");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    size_t n = fread(text, 1, (1 << 20) - 1, f);
    assert_true(n > 1000 && n < (1 << 20) - 1);
    fclose(f);
    return text;
}

/* "=item B<NAME> (TYPE; LABELS)", then the help and more. */
static void each_family_has_its_item(void **state)
{
    (void)state;
    char *man = man_page();
    for (const struct metric_family *f = metric_families; f->name; f++) {
        char item[400];
        snprintf(item, sizeof item, "\n=item B<snapferry_%s> (%s%s%s)\n", f->name, types[f->type],
                 f->labels[0] ? "; " : "", f->labels);
        const char *at = strstr(man, item);
        if (!at)
            fail_msg("the man page has no%s", item);
        const char *end = strstr(at + 1, "\n=");
        const char *help = strstr(at, f->help);
        if (!help || (end && help > end))
            fail_msg("the man page has another description of %s than its HELP line: %s", f->name, f->help);
        if (f->alias) {
            char alias[300];
            snprintf(alias, sizeof alias, "B<%s>", f->alias);
            const char *known = strstr(at, alias);
            if (!known || (end && known > end))
                fail_msg("the man page does not name %s as alias of %s", f->alias, f->name);
        }
        /* The use of the family must be documented, too. */
        const char *question = strstr(at, "Use:");
        if (!question || (end && question > end))
            fail_msg("the man page does not say what %s is used for", f->name);
    }
    free(man);
}

static void each_item_is_a_family(void **state)
{
    (void)state;
    char *man = man_page();
    unsigned n = 0, families = 0;
    for (char *at = man; (at = strstr(at, "=item B<snapferry_")); n++) {
        char name[200] = "", bucket[220];
        at += strlen("=item B<snapferry_");
        assert_true(sscanf(at, "%199[a-z0-9_]", name) == 1);
        snprintf(bucket, sizeof bucket, "%s_sum", name);
        if (!metric_family(name) && !metric_family(bucket))
            fail_msg("the man page has a family %s that does not exist", name);
    }
    for (const struct metric_family *f = metric_families; f->name; f++)
        families++;
    assert_int_equal(n, families);
    free(man);
}

static bool ends(const char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);
    return n > s && !strcmp(name + n - s, suffix);
}

static void legal_name(const char *name, bool alias)
{
    for (const char *p = name; *p; p++)
        if (!(islower((unsigned char)*p) || isdigit((unsigned char)*p) || *p == '_' ||
              (alias && isupper((unsigned char)*p))))
            fail_msg("\"%s\" is no name for a metric", name);
    assert_false(isdigit((unsigned char)name[0]));
    assert_null(strstr(name, "__"));
}

static void names_keep_the_rules(void **state)
{
    (void)state;
    /* Numbers of things, states and hashes have no unit. */
    static const char *const units[] = {"_seconds", "_bytes", "_ratio", "_info", "_seconds_total", "_bytes_total"};
    static const char *const wrong[] = {"_ms",     "_milliseconds", "_minutes", "_hours",     "_days",
                                        "_kb",     "_mib",          "_percent", "_count",     "_sum",
                                        "_bucket", "_gauge",        "_counter", "_histogram", "_kilobytes"};
    for (const struct metric_family *f = metric_families; f->name; f++) {
        legal_name(f->name, false);
        if (f->alias)
            legal_name(f->alias, true);
        assert_int_equal(ends(f->name, "_total"), f->type == METRIC_COUNTER);
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
            if (ends(f->name, wrong[i]))
                fail_msg("%s: %s is no suffix to have", f->name, wrong[i]);
        bool unit = false;
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            unit |= ends(f->name, units[i]);
        if (f->type == METRIC_HISTOGRAM && !ends(f->name, "_seconds"))
            fail_msg("%s: a distribution of what?", f->name);
        if (!unit && (strstr(f->help, "Bytes ") == f->help || strstr(f->help, "Seconds ") == f->help ||
                      strstr(f->help, "Unix time") == f->help))
            fail_msg("%s has no unit in its name, its help begins with one: %s", f->name, f->help);
        size_t n = strlen(f->help);
        assert_true(n > 15 && f->help[n - 1] == '.');
        assert_null(strchr(f->help, '\n'));
    }
}

static void labels_keep_the_rules(void **state)
{
    (void)state;
    static const char *const known[] = {"version", "commit",     "direction", "class",    "reason", "state",
                                        "phase",   "result",     "stage",     "schedule", "volume", "id",
                                        "driver",  "repository", "why",       "op",       "code",   "source",
                                        "kind",    "pool",       "cause",     "node",     "copy"};
    for (const struct metric_family *f = metric_families; f->name; f++) {
        char labels[200], *save = NULL;
        snprintf(labels, sizeof labels, "%s", f->labels);
        for (char *l = strtok_r(labels, ",", &save); l; l = strtok_r(NULL, ",", &save)) {
            bool found = false;
            for (size_t i = 0; i < sizeof known / sizeof *known; i++)
                found |= !strcmp(l, known[i]);
            if (!found) /* job and instance are Prometheus's own, le is the histogram's */
                fail_msg("%s: label %s", f->name, l);
        }
    }
}

static void names_are_found_once(void **state)
{
    (void)state;
    for (const struct metric_family *f = metric_families; f->name; f++) {
        char name[200];
        if (f->type != METRIC_HISTOGRAM) {
            assert_ptr_equal(metric_family(f->name), f);
            continue;
        }
        static const char *const parts[] = {"_bucket", "_sum", "_count"};
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "%s%s", f->name, parts[i]);
            assert_ptr_equal(metric_family(name), f);
        }
    }
    assert_null(metric_family("nothing"));
    assert_null(metric_family(""));
    assert_null(metric_family("operations_total_bucket"));
}

static void bounds_ascend(void **state)
{
    (void)state;
    for (int i = 1; i < HISTOGRAM_BOUNDS; i++)
        assert_true(histogram_bounds[i] > histogram_bounds[i - 1] &&
                    histogram_bounds_short[i] > histogram_bounds_short[i - 1]);
    /* A mover counts by the store's bounds, the daemon adds them up by these. */
    assert_int_equal(BLOB_BOUNDS, HISTOGRAM_BOUNDS);
    assert_memory_equal(blob_bounds, histogram_bounds_short, sizeof histogram_bounds_short);
    assert_true(histogram_bounds[0] == 1 && histogram_bounds[HISTOGRAM_BOUNDS - 1] == 86400); /* 1 s ... 24 h */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_family_has_its_item), cmocka_unit_test(each_item_is_a_family),
        cmocka_unit_test(names_keep_the_rules),     cmocka_unit_test(labels_keep_the_rules),
        cmocka_unit_test(names_are_found_once),     cmocka_unit_test(bounds_ascend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
