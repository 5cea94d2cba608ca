/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_golden_index - the index of every repository that the real Kopia made: which blobs, and every content. */
#include "tests/unit/test.h"

#include "repo/format.h"
#include "repo/indexset.h"

#include <dirent.h>
#include <ftw.h>
#include <jansson.h>
#include <sys/stat.h>

struct golden {
    const char *dir; /* of all of them */
    char name[128], cache[64];
    struct blobs *b;
    struct repo_format *f;
    struct sealer *s;
};

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void open_golden(struct golden *g, const char *password)
{
    struct err e = ERR_INIT;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", g->dir, g->name);
    int r = blobs_open_dir(&g->b, path, BLOBS_OPEN, NULL, 0, &e);
    if (r == 0)
        r = format_load(&g->f, g->b, password, &e);
    if (r == 0)
        r = sealer_new(&g->s, g->f, &e);
    if (r < 0)
        fail_msg("%s: %s", g->name, e.msg);
    strcpy(g->cache, "/tmp/test_golden.XXXXXX");
    assert_non_null(mkdtemp(g->cache));
}

static void close_golden(struct golden *g)
{
    sealer_free(g->s);
    format_free(g->f);
    blobs_free(g->b);
    nftw(g->cache, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
    g->s = NULL;
    g->f = NULL;
    g->b = NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void check_blobs(const struct golden *g, json_t *doc)
{
    json_t *active = json_object_get(json_object_get(doc, "indexBlobs"), "active");
    size_t n = json_array_size(active);
    CLEANUP_FREE const char **want = calloc(n + 1, sizeof *want);
    assert_non_null(want);
    for (size_t i = 0; i < n; i++)
        want[i] = json_string_value(json_array_get(active, i));
    if (n)
        qsort(want, n, sizeof *want, by_text);
    struct err e = ERR_INIT;
    struct epoch_state st;
    if (epoch_load(&st, g->b, g->s, g->f, &e) < 0)
        fail_msg("%s: %s", g->name, e.msg);
    if (st.n_blobs != n)
        fail_msg("%s: %zu index blobs, not %zu", g->name, st.n_blobs, n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(st.blobs[i].name, want[i]) != 0)
            fail_msg("%s: index blob %s, not %s", g->name, st.blobs[i].name, want[i]);
    json_t *epoch = json_object_get(doc, "epoch");
    if (json_is_object(epoch))
        assert_int_equal(st.write_epoch, json_integer_value(json_object_get(epoch, "writeEpoch")));
    epoch_state_clear(&st);
}

struct lines {
    const struct golden *g;
    FILE *f;
    struct index_set *x;
    unsigned n;
};

static int check_content(const struct index_entry *x, void *arg)
{
    struct lines *l = arg;
    char line[1024], want[1024], id[CONTENT_ID_TEXT];
    do {
        if (!l->f || !fgets(line, sizeof line, l->f))
            fail_msg("%s: content %s is not expected", l->g->name, content_id_text(&x->id, id));
    } while (line[0] == '#');
    snprintf(want, sizeof want, "%s\t%d\t%s\t%u\t%u\t%u\t0x%x\t%u\t%lld\t", content_id_text(&x->id, id), x->deleted,
             x->pack, x->offset, x->packed, x->length, x->compression, x->format_version, (long long)x->time);
    if (strncmp(line, want, strlen(want)) != 0)
        fail_msg("%s:\nexpected %s\ngot      %s", l->g->name, line, want);
    struct err e = ERR_INIT;
    struct index_entry found;
    assert_ok(index_set_find(l->x, &x->id, &found, &e), &e);
    assert_string_equal(found.pack, x->pack);
    assert_int_equal(found.offset, x->offset);
    l->n++;
    return 0;
}

static unsigned check_contents(const struct golden *g, json_t *doc)
{
    struct index_set_opts o = {g->cache, 1 << 30, 0};
    struct lines l = {.g = g};
    struct err e = ERR_INIT;
    char path[512], rest[256];
    if (index_set_open(&l.x, g->b, g->s, g->f, &o, &e) < 0)
        fail_msg("%s: %s", g->name, e.msg);
    snprintf(path, sizeof path, "%s/%s.expected/contents.tsv", g->dir, g->name);
    l.f = fopen(path, "r");
    if (index_set_each(l.x, -1, check_content, &l, &e) < 0)
        fail_msg("%s: %s", g->name, e.msg);
    if (l.f) {
        while (fgets(rest, sizeof rest, l.f))
            if (rest[0] != '#')
                fail_msg("%s: missing: %s", g->name, rest);
        fclose(l.f);
    }
    assert_int_equal(l.n, json_integer_value(json_object_get(json_object_get(doc, "contentCounts"), "total")));
    index_set_free(l.x);
    return l.n;
}

static int expected_json(const struct dirent *d)
{
    const char *dot = strstr(d->d_name, ".expected.json");
    return dot && dot[14] == '\0' && (size_t)(dot - d->d_name) < sizeof((struct golden *)0)->name;
}

static void every_repository(void **state)
{
    (void)state;
    struct golden g = {.dir = getenv("SNAPFERRY_GOLDEN")};
    if (!g.dir)
        g.dir = "build/golden";
    struct dirent **list;
    int n = scandir(g.dir, &list, expected_json, alphasort);
    if (n <= 0)
        fail_msg("no golden repositories in %s: make %s/.done", g.dir, g.dir);
    unsigned repositories = 0, contents = 0, damaged = 0;
    for (int i = 0; i < n; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", g.dir, list[i]->d_name);
        snprintf(g.name, sizeof g.name, "%.*s", (int)(strlen(list[i]->d_name) - 14), list[i]->d_name);
        free(list[i]);
        json_t *doc = json_load_file(path, 0, NULL);
        assert_non_null(doc);
        const char *results = json_string_value(json_object_get(doc, "results"));
        const char *password = json_string_value(json_object_get(doc, "password"));
        bool flipped = strcmp(g.name, "flipped-index-byte") == 0;
        bool locked = strcmp(g.name, "upgrade-lock") == 0; /* refused before its index is of interest */
        if ((results && strcmp(results, "complete") == 0 && !locked) || flipped) {
            open_golden(&g, password);
            if (flipped) {
                struct index_set_opts o = {g.cache, 1 << 30, 0};
                struct index_set *x;
                struct err e = ERR_INIT;
                assert_int_equal(index_set_open(&x, g.b, g.s, g.f, &o, &e), -EBADMSG);
                assert_int_equal(e.cls, ERR_DAMAGE);
                assert_non_null(strstr(e.msg, "index blob xn0_"));
                damaged++;
            } else {
                check_blobs(&g, doc);
                contents += check_contents(&g, doc);
                repositories++;
            }
            close_golden(&g);
        }
        json_decref(doc);
    }
    free(list);
    print_message("%u repositories, %u contents\n", repositories, contents);
    assert_true(repositories >= 60);
    assert_int_equal(damaged, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_repository)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
