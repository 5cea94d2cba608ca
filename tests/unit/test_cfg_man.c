/* SPDX-License-Identifier: GPL-2.0-or-later */
/* snapferry.ini(5) against the table of keys: every key with type and default, none that does not exist, and examples
 * that the reader takes. */
#include "base/units.h"
#include "tests/unit/cfgdir.h"

#include "cfg/internal.h"

#define POD "docs/man/snapferry.ini.5.pod"
#define ITEMS_MAX 400

struct item {
    char head[64], name[64], brackets[256], example[256];
};
static char durations[1024]; /* the paragraph about their units */
static struct item items[ITEMS_MAX];
static unsigned n_items;

/* "=item B<slots> (count, default 2)" */
static void take_item(const char *line, const char *head)
{
    const char *end = strchr(line, '>'), *open = strchr(line, '(');
    assert_true(n_items < ITEMS_MAX && end);
    struct item *i = &items[n_items++];
    snprintf(i->head, sizeof i->head, "%s", head);
    snprintf(i->name, sizeof i->name, "%.*s", (int)(end - line - 8), line + 8);
    if (open)
        snprintf(i->brackets, sizeof i->brackets, "%.*s", (int)strcspn(open + 1, "\n") - 1, open + 1);
}

static int read_pod(void **state)
{
    static char paragraph[4096];
    char head[64] = "", line[512];
    FILE *f = fopen(POD, "r");
    if (!f)
        return -1;
    bool sections = false;
    while (fgets(line, sizeof line, f)) {
        if (!strncmp(line, "=head1 ", 7))
            sections = !strcmp(line, "=head1 SECTIONS\n");
        else if (!strncmp(line, "=head2 ", 7))
            snprintf(head, sizeof head, "%.*s", (int)strcspn(line + 7, "\n"), line + 7);
        else if (sections && !strncmp(line, "=item B<", 8))
            take_item(line, head);
        if (*line == '\n') {
            char *x = strstr(paragraph, "Example: C<");
            if (x && n_items && sections)
                snprintf(items[n_items - 1].example, 256, "%.*s", (int)(strrchr(x, '>') - x - 11), x + 11);
            if (strstr(paragraph, "Numbers with units"))
                snprintf(durations, sizeof durations, "%.1000s", paragraph);
            paragraph[0] = '\0';
        } else if (strlen(paragraph) + strlen(line) < sizeof paragraph) {
            strcat(paragraph, line);
            paragraph[strlen(paragraph) - 1] = ' ';
        }
    }
    fclose(f);
    return cfgdir_make(state);
}

static const struct cfg_key *key_at(unsigned i)
{
    return i < n_keys ? &key_table[i].pub : NULL;
}

static bool has_kind(const char *sections, const char *kind)
{
    char words[256], want[64];
    snprintf(words, sizeof words, " %s ", sections);
    snprintf(want, sizeof want, " %s ", kind);
    return strstr(words, want) != NULL;
}

/* Whether keys of that row belong under the head. */
static bool under(const struct cfg_key *k, const char *head)
{
    /* Those of the place of a copy are described under the repository's. */
    bool many = (strchr(k->sections, ' ') && strcmp(k->sections, "repository copy")) || !strcmp(k->name, "group");
    if (!strcmp(head, "Policy keys"))
        return many && !has_kind(k->sections, "mover");
    if (!strcmp(head, "Limits of movers"))
        return many && has_kind(k->sections, "mover");
    char kind[64];
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(head + 1, " ]"), head + 1);
    return !many && has_kind(k->sections, kind);
}

static void in_brackets(const struct cfg_key *k, char *out, size_t cap)
{
    const char *d = k->default_text;
    if (!*d)
        snprintf(out, cap, "%s", k->type);
    else if (*d == '(')
        snprintf(out, cap, "%s, default: %.*s", k->type, (int)strlen(d) - 2, d + 1);
    else
        snprintf(out, cap, "%s, default %s", k->type, d);
}

static void every_key_is_documented(void **state)
{
    (void)state;
    const struct cfg_key *k;
    for (unsigned n = 0; (k = key_at(n)); n++) {
        char want[256];
        bool found = false;
        in_brackets(k, want, sizeof want);
        for (unsigned i = 0; i < n_items; i++)
            found |= !strcmp(items[i].name, k->name) && under(k, items[i].head) && !strcmp(items[i].brackets, want);
        if (!found)
            fail_msg("no \"=item B<%s> (%s)\" in its place (%s)", k->name, want, k->sections);
        assert_true(strlen(k->text) > 10);
    }
}

static void nothing_else_is_documented(void **state)
{
    (void)state;
    assert_true(n_items > 100);
    for (unsigned i = 0; i < n_items; i++) {
        const struct cfg_key *k;
        bool found = false;
        for (unsigned n = 0; (k = key_at(n)); n++)
            found |= !strcmp(items[i].name, k->name) && under(k, items[i].head);
        if (!found)
            fail_msg("%s under %s is no key", items[i].name, items[i].head);
        for (unsigned n = 0; n < i; n++)
            if (!strcmp(items[i].name, items[n].name) && !strcmp(items[i].head, items[n].head))
                fail_msg("%s stands twice under %s", items[i].name, items[i].head);
    }
}

/* Each example as a line of a section where it may stand: names may lead nowhere, the form must be right. */
static void examples_are_taken(void **state)
{
    (void)state;
    for (unsigned i = 0; i < n_items; i++) {
        const struct item *x = &items[i];
        char text[512], kind[64], where[128];
        if (!x->example[0])
            fail_msg("%s under %s has no example", x->name, x->head);
        snprintf(kind, sizeof kind, "%.*s", (int)strcspn(x->head + 1, " ]"), x->head + 1);
        if (x->head[0] != '[') {
            const struct cfg_key *k;
            for (unsigned n = 0; (k = key_at(n)); n++)
                if (!strcmp(k->name, x->name) && under(k, x->head)) /* the last kind takes names */
                    snprintf(kind, sizeof kind, "%s",
                             strrchr(k->sections, ' ') ? strrchr(k->sections, ' ') + 1 : "volume");
        }
        bool plain = !strcmp(kind, "daemon") || !strcmp(kind, "mover") || !strcmp(kind, "metrics");
        snprintf(text, sizeof text, "[%s%s]\n%s\n", kind, plain ? "" : " \"x\"", x->example);
        struct cfg *c = cfgdir_load(text);
        snprintf(where, sizeof where, "%s/snapferry.ini:2", cfgdir);
        const struct cfg_complaint *p;
        for (unsigned n = 0; (p = cfg_complaint_at(c, n)); n++)
            if (p->severity == CFG_ERROR && !strcmp(p->where, where) && !strstr(p->text, "no ["))
                fail_msg("%s: %s", x->example, p->text);
        cfg_free(c);
    }
}

static void units_are_those_that_are_read(void **state)
{
    (void)state;
    char want[32];
    unsigned n = 0, documented = 0;
    const char *end = strchr(durations, ':'), *at = durations;
    assert_non_null(end);
    for (; n < n_duration_units; n++) {
        snprintf(want, sizeof want, "C<%s>", duration_units[n].name);
        const char *found = strstr(durations, want);
        if (!found || found > end)
            fail_msg("the unit %s is not documented", want);
    }
    while ((at = strstr(at, "C<")) && at++ < end)
        documented++;
    assert_int_equal(documented, n);
}

/* "=item B<tls-certificate>, B<tls-key> of C<[metrics]>" under REMOVED KEYS, with the version. */
static void removed_keys_are_documented(void **state)
{
    (void)state;
    char *pod = NULL;
    size_t cap = 0;
    FILE *f = fopen(POD, "r");
    assert_non_null(f);
    assert_true(getdelim(&pod, &cap, '\0', f) > 0);
    fclose(f);
    const char *begin = strstr(pod, "=head1 REMOVED KEYS\n"), *end = begin ? strstr(begin + 1, "\n=head1 ") : NULL;
    assert_non_null(end);
    for (unsigned i = 0; i < n_removed_keys; i++) {
        const struct removed_key *r = &removed_keys[i];
        char name[80], since[40], kind[80];
        snprintf(name, sizeof name, "B<%s>", r->key.pub.name);
        snprintf(since, sizeof since, "Removed in %s.", r->since);
        snprintf(kind, sizeof kind, "C<[%s]>", r->key.pub.sections);
        const char *at = strstr(begin, name), *told = at ? strstr(at, since) : NULL, *of = at ? strstr(at, kind) : NULL;
        if (!at || at > end || !told || told > end || !of || of > told)
            fail_msg("no \"=item B<%s> of C<[%s]>\" with \"%s\" under REMOVED KEYS", r->key.pub.name,
                     r->key.pub.sections, since);
        for (unsigned n = 0; key_at(n); n++)
            if (!strcmp(key_at(n)->name, r->key.pub.name) && !strcmp(key_at(n)->sections, r->key.pub.sections))
                fail_msg("%s is a key and was removed", r->key.pub.name);
    }
    free(pod);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_documented),       cmocka_unit_test(nothing_else_is_documented),
        cmocka_unit_test(removed_keys_are_documented),   cmocka_unit_test(examples_are_taken),
        cmocka_unit_test(units_are_those_that_are_read),
    };
    return cmocka_run_group_tests(tests, read_pod, cfgdir_remove);
}
