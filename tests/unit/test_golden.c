/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_golden.c - every repository that the real Kopia made: the contents it has, the snapshots it lists, the bytes of
 * every file; and what must be refused is refused, in the right class. The index alone is looked at by a second way.
 */
#include "tests/unit/test.h"

#include "repo/format.h"
#include "repo/indexset.h"
#include "repo/snapshot.h"

#include <dirent.h>
#include <ftw.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <sys/stat.h>

static char cache[64];

struct golden {
    char name[128];
    json_t *expected;
    struct repo *repo;
    unsigned snapshots, files;
};

static int open_golden(struct golden *g, struct err *e)
{
    const char *password = json_string_value(json_object_get(g->expected, "password"));
    struct blobs *b;
    int rc = blobs_open_dir(&b, golden_path(g->name), BLOBS_OPEN, NULL, 0, e);
    if (rc < 0)
        return rc;
    const struct repo_opts o = {.cache_dir = cache};
    return repo_open(&g->repo, b, password, &o, e);
}

/* The expected entry of a path in a snapshot. */
static json_t *expected_entry(json_t *snapshot, const char *path)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(snapshot, "entries"), i, v)
    {
        if (!strcmp(json_string_value(json_object_get(v, "path")), path))
            return v;
    }
    return NULL;
}

static void sha256_object(struct repo *r, const struct object_id *id, char hex[65], uint64_t *length)
{
    struct err e = ERR_INIT;
    CLEANUP(object_reader_freep) struct object_reader *in = NULL;
    assert_ok(object_reader_open(&in, r, id, &e), &e);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
    static uint8_t buf[1 << 20];
    *length = 0;
    for (;;) {
        int64_t n = object_reader_read(in, buf, sizeof buf, &e);
        assert_ok(n, &e);
        if (!n)
            break;
        *length += (uint64_t)n;
        EVP_DigestUpdate(ctx, buf, (size_t)n);
    }
    uint8_t md[32];
    EVP_DigestFinal_ex(ctx, md, NULL);
    EVP_MD_CTX_free(ctx);
    hex_encode(hex, md, 32);
}

struct walk {
    struct golden *g;
    json_t *snapshot;
    const char *dir;
};

static void check_entry(struct golden *g, json_t *snapshot, const char *path, const struct dir_entry *d);

static int walk_child(struct dir_entry *d, void *arg)
{
    struct walk *w = arg;
    char path[8192];
    snprintf(path, sizeof path, "%s%s%s", w->dir, *w->dir ? "/" : "", d->name);
    check_entry(w->g, w->snapshot, path, d);
    return 0;
}

static void check_entry(struct golden *g, json_t *snapshot, const char *path, const struct dir_entry *d)
{
    json_t *want = expected_entry(snapshot, path);
    if (!want)
        fail_msg("%s: entry \"%s\" is not among the expected", g->name, path);
    if (json_object_get(want, "error"))
        return;
    json_t *entry = json_object_get(want, "entry");
    char obj[OBJECT_ID_TEXT], t[TIME_TEXT];
    assert_string_equal(object_id_text(&d->obj, obj), json_string_value(json_object_get(entry, "obj")));
    assert_int_equal(d->type, json_string_value(json_object_get(entry, "type"))[0]);
    if (json_object_get(entry, "mtime"))
        assert_string_equal(time_text(d->mtime_ns, t), json_string_value(json_object_get(entry, "mtime")));
    if (json_object_get(want, "sha256")) {
        char hex[65];
        uint64_t length;
        sha256_object(g->repo, &d->obj, hex, &length);
        if (strcmp(hex, json_string_value(json_object_get(want, "sha256"))) != 0)
            fail_msg("%s: \"%s\" has other bytes than stock reads", g->name, path);
        assert_int_equal(length, json_integer_value(json_object_get(want, "length")));
        g->files++;
    }
    if (d->type == 'd') {
        struct err e = ERR_INIT;
        struct walk w = {g, snapshot, path};
        assert_ok(dir_each(g->repo, &d->obj, walk_child, &w, &e), &e);
    }
}

static int check_snapshot(struct snapshot *s, void *arg)
{
    struct golden *g = arg;
    size_t i;
    json_t *v, *want = NULL;
    json_array_foreach(json_object_get(g->expected, "snapshots"), i, v)
    {
        if (!strcmp(json_string_value(json_object_get(v, "id")), s->id))
            want = v;
    }
    if (!want)
        fail_msg("%s: snapshot %s is not among the expected", g->name, s->id);
    g->snapshots++;
    const char *incomplete = json_string_value(json_object_get(want, "incomplete"));
    assert_string_equal(s->incomplete, incomplete ? incomplete : "");
    check_entry(g, want, "", &s->root);
    return 0;
}

/* contents.tsv: deleted flag, pack, offset, lengths, ... of every existing content. */
struct contents {
    json_t *want; /* id -> line */
    unsigned n;
    const char *name;
};

static int check_content(const struct index_entry *en, void *arg)
{
    struct contents *c = arg;
    char id[CONTENT_ID_TEXT], line[800];
    content_id_text(&en->id, id);
    const char *want = json_string_value(json_object_get(c->want, id));
    if (!want)
        fail_msg("%s: content %s is not among the expected", c->name, id);
    snprintf(line, sizeof line, "%d\t%s\t%u\t%u\t%u", en->deleted, en->pack, en->offset, en->packed, en->length);
    if (strcmp(line, want) != 0)
        fail_msg("%s: content %s is %s, not %s", c->name, id, line, want);
    c->n++;
    return 0;
}

static FILE *open_contents(const char *name)
{
    char path[512], cmd[5000];
    snprintf(path, sizeof path, "%s.expected/contents.tsv", name);
    FILE *f = fopen(golden_path(path), "r");
    if (f)
        return f;
    snprintf(cmd, sizeof cmd, "xz -dc '%s.xz' 2>/dev/null", golden_path(path));
    return popen(cmd, "r");
}

static void check_contents(struct golden *g)
{
    FILE *f = open_contents(g->name);
    assert_non_null(f);
    char line[2048];
    struct contents c = {.want = json_object(), .name = g->name};
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        char *fields[6], *save;
        unsigned n = 0;
        for (char *p = strtok_r(line, "\t\n", &save); p && n < 6; p = strtok_r(NULL, "\t\n", &save))
            fields[n++] = p;
        assert_int_equal(n, 6);
        char want[1200];
        snprintf(want, sizeof want, "%s\t%s\t%s\t%s\t%s", fields[1], fields[2], fields[3], fields[4], fields[5]);
        json_object_set_new(c.want, fields[0], json_string(want));
    }
    fclose(f);
    struct err e = ERR_INIT;
    assert_ok(index_set_each(repo_index(g->repo), -1, check_content, &c, &e), &e);
    if (c.n != json_object_size(c.want))
        fail_msg("%s: %u contents, expected %zu", g->name, c.n, json_object_size(c.want));
    json_decref(c.want);
}

/* Calls fn for each golden repository whose results are `kind`. */
static unsigned each_golden(const char *kind, void (*fn)(struct golden *g))
{
    CLEANUP_CLOSEDIR DIR *d = opendir(golden_path("."));
    assert_non_null(d);
    unsigned n = 0;
    struct dirent *de;
    while ((de = readdir(d))) {
        struct golden g = {0};
        size_t len = strlen(de->d_name);
        if (len < 15 || strcmp(de->d_name + len - 14, ".expected.json") != 0)
            continue;
        snprintf(g.name, sizeof g.name, "%.*s", (int)(len - 14), de->d_name);
        g.expected = json_load_file(golden_path(de->d_name), 0, NULL);
        assert_non_null(g.expected);
        if (!strcmp(json_string_value(json_object_get(g.expected, "results")), kind)) {
            fn(&g);
            n++;
        }
        json_decref(g.expected);
    }
    return n;
}

static void read_whole(struct golden *g)
{
    struct err e = ERR_INIT;
    if (!strcmp(g->name, "upgrade-lock")) {
        assert_true(open_golden(g, &e) < 0);
        assert_int_equal(e.cls, ERR_BUSY);
        return;
    }
    int rc = open_golden(g, &e);
    if (rc < 0)
        fail_msg("%s does not open: %s", g->name, e.msg);
    check_contents(g);
    unsigned bad = 0;
    rc = snapshots_each(g->repo, NULL, true, check_snapshot, g, &bad, &e);
    if (rc < 0)
        fail_msg("%s: %s", g->name, e.msg);
    assert_int_equal(bad, 0);
    size_t want = json_array_size(json_object_get(g->expected, "snapshots"));
    if (g->snapshots != want)
        fail_msg("%s: %u snapshots, expected %zu", g->name, g->snapshots, want);
    repo_free(g->repo);
}

static void every_complete_repository_reads_as_stock_reads_it(void **state)
{
    (void)state;
    assert_true(each_golden("complete", read_whole) >= 80);
}

static void refusal(const char *name, enum err_class cls, const char *word)
{
    struct golden g = {0};
    struct err e = ERR_INIT;
    char file[256];
    snprintf(g.name, sizeof g.name, "%s", name);
    snprintf(file, sizeof file, "%s.expected.json", name);
    g.expected = json_load_file(golden_path(file), 0, NULL);
    assert_non_null(g.expected);
    int rc = open_golden(&g, &e);
    if (rc >= 0)
        fail_msg("%s opens", name);
    if (e.cls != cls || !strstr(e.msg, word))
        fail_msg("%s: class %d, \"%s\"", name, e.cls, e.msg);
    assert_true(strlen(e.msg) > 20);
    json_decref(g.expected);
}

static void damaged_and_foreign_formats_are_refused_by_name(void **state)
{
    (void)state;
    refusal("wrong-password", ERR_PASSWORD, "wrong password");
    refusal("format-ciphertext-flipped", ERR_DAMAGE, "kopia.repository");
    refusal("format-json-broken", ERR_DAMAGE, "kopia.repository");
    refusal("format-missing", ERR_NO_REPO, "kopia.repository");
    refusal("format-unknown-hash", ERR_FORMAT, "hash");
    refusal("format-version-99", ERR_FORMAT, "99");
    refusal("required-feature-unknown", ERR_FORMAT, "feature");
    refusal("blobcfg-flipped", ERR_DAMAGE, "kopia.blobcfg");
    refusal("flipped-index-byte", ERR_DAMAGE, "xn0_");
    refusal("shards-garbage", ERR_DAMAGE, ".shards");
}

static int count(struct snapshot *s, void *arg)
{
    (void)s;
    (*(unsigned *)arg)++;
    return 0;
}

static void a_damaged_manifest_content_is_told(void **state)
{
    (void)state;
    struct golden g = {.name = "flipped-manifest-byte"};
    struct err e = ERR_INIT;
    g.expected = json_load_file(golden_path("flipped-manifest-byte.expected.json"), 0, NULL);
    assert_ok(open_golden(&g, &e), &e);
    unsigned n = 0, bad = 0;
    assert_true(snapshots_each(g.repo, NULL, false, count, &n, &bad, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    repo_free(g.repo);
    json_decref(g.expected);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* ---- the index alone: which blobs, and every content ---- */

struct indexed {
    const char *dir; /* of all of them */
    char name[128], cache[64];
    struct blobs *b;
    struct repo_format *f;
    struct sealer *s;
};

static void indexed_open(struct indexed *g, const char *password)
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
    assert_non_null(scratch_new(g->cache, sizeof g->cache));
}

static void indexed_close(struct indexed *g)
{
    sealer_free(g->s);
    format_free(g->f);
    blobs_free(g->b);
    nftw(g->cache, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    g->s = NULL;
    g->f = NULL;
    g->b = NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void indexed_blobs(const struct indexed *g, json_t *doc)
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
    const struct indexed *g;
    FILE *f;
    struct index_set *x;
    unsigned n;
};

static int indexed_content(const struct index_entry *x, void *arg)
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

static unsigned indexed_contents(const struct indexed *g, json_t *doc)
{
    struct index_set_opts o = {.cache_dir = g->cache, .cache_cap = 1 << 30};
    struct lines l = {.g = g};
    struct err e = ERR_INIT;
    char path[512], rest[256];
    if (index_set_open(&l.x, g->b, g->s, g->f, &o, &e) < 0)
        fail_msg("%s: %s", g->name, e.msg);
    snprintf(path, sizeof path, "%s/%s.expected/contents.tsv", g->dir, g->name);
    l.f = fopen(path, "r");
    if (index_set_each(l.x, -1, indexed_content, &l, &e) < 0)
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

static int is_expected_json(const struct dirent *d)
{
    const char *dot = strstr(d->d_name, ".expected.json");
    return dot && dot[14] == '\0' && (size_t)(dot - d->d_name) < sizeof((struct indexed *)0)->name;
}

static void every_index_has_the_blobs_and_contents_of_stock(void **state)
{
    (void)state;
    struct indexed g = {.dir = getenv("SNAPFERRY_GOLDEN")};
    if (!g.dir)
        g.dir = "build/golden";
    struct dirent **list;
    int n = scandir(g.dir, &list, is_expected_json, alphasort);
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
            indexed_open(&g, password);
            if (flipped) {
                struct index_set_opts o = {.cache_dir = g.cache, .cache_cap = 1 << 30};
                struct index_set *x;
                struct err e = ERR_INIT;
                assert_int_equal(index_set_open(&x, g.b, g.s, g.f, &o, &e), -EBADMSG);
                assert_int_equal(e.cls, ERR_DAMAGE);
                assert_non_null(strstr(e.msg, "index blob xn0_"));
                damaged++;
            } else {
                indexed_blobs(&g, doc);
                contents += indexed_contents(&g, doc);
                repositories++;
            }
            indexed_close(&g);
        }
        json_decref(doc);
    }
    free(list);
    print_message("%u repositories, %u contents\n", repositories, contents);
    assert_true(repositories >= 60);
    assert_int_equal(damaged, 1);
}

static int setup(void **state)
{
    (void)state;
    return scratch_new(cache, sizeof cache) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return nftw(cache, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_complete_repository_reads_as_stock_reads_it),
        cmocka_unit_test(damaged_and_foreign_formats_are_refused_by_name),
        cmocka_unit_test(a_damaged_manifest_content_is_told),
        cmocka_unit_test(every_index_has_the_blobs_and_contents_of_stock),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
