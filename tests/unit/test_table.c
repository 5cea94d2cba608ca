/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Index documents: the same ids as stock clients make for the same parts, at any time, in bounded memory. */
#include "tests/unit/testrepo.h"

#include "chunker/splitter.h"
#include "repo/object.h"

#include <malloc.h>
#include <openssl/evp.h>

static struct object_id parse_id(const char *text)
{
    struct object_id id;
    assert_int_equal(object_id_parse(&id, text, strlen(text)), 0);
    return id;
}

static void assert_id(const struct object_id *id, const char *want)
{
    char text[OBJECT_ID_TEXT];
    assert_string_equal(object_id_text(id, text), want);
}

/* ---- golden objects ---- */

struct golden {
    struct testrepo t;
    struct object_table *table;
    char id[OBJECT_ID_TEXT]; /* of the object whose parts are being added */
    unsigned parts, objects;
};

static void finish_object(struct golden *g)
{
    struct err e = ERR_INIT;
    struct object_id id;
    if (!g->table)
        return;
    assert_ok(object_table_finish(g->table, &id, &e), &e);
    assert_id(&id, g->id);
    object_table_free(g->table);
    g->table = NULL;
    g->objects++;
}

/* chunks.tsv: object of the tree, indirect object read, level, start, length, part. */
static void add_chunk(char **f, void *arg)
{
    struct golden *g = arg;
    struct err e = ERR_INIT;
    if (strcmp(f[1], g->id) != 0) {
        finish_object(g);
        snprintf(g->id, sizeof g->id, "%s", f[1]);
        assert_ok(object_table_new(&g->table, g->t.s, strchr(f[1], 'k') ? 'k' : 0, &e), &e);
    }
    struct object_id part = parse_id(f[5]);
    assert_ok(object_table_add(g->table, strtoull(f[4], NULL, 10), &part, 1, &e), &e);
    if (g->parts++ % 37 == 0) { /* a checkpoint disturbs nothing */
        struct object_id id;
        assert_ok(object_table_checkpoint(g->table, &id, &e), &e);
    }
}

static void test_golden(void **state)
{
    (void)state;
    static const char *const names[] = {
        "indirect-two-levels",
        "splitter-fixed-128k",
        "sections",
        "big-directory",
        "splitter-fixed-4m",
        "splitter-fixed-8m",
        "splitter-dynamic-128k-buzhash",
        "v1-compressed",
        "splitter-dynamic-128k-rabinkarp",
        "compress-metadata",
        "incomplete-checkpoint",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct golden g = {.id = ""};
        char file[256];
        snprintf(file, sizeof file, "%s.expected.json", names[i]);
        json_t *x = json_load_file(golden_path(file), 0, NULL);
        assert_non_null(x);
        const json_t *inner = json_object_get(json_object_get(x, "format"), "inner");
        if (json_object_get(inner, "format"))
            inner = json_object_get(inner, "format");
        assert_string_equal(json_string_value(json_object_get(inner, "hash")), "BLAKE2B-256-128");
        const char *b64 = json_string_value(json_object_get(inner, "secret"));
        uint8_t secret[36];
        assert_int_equal(EVP_DecodeBlock(secret, (const uint8_t *)b64, (int)strlen(b64)), 33);
        testrepo_new(&g.t, json_string_value(json_object_get(inner, "splitter")), secret);
        assert_true(testrepo_tsv(names[i], "chunks.tsv", add_chunk, &g) > 1);
        finish_object(&g);
        assert_true(g.objects > 0);
        testrepo_free(&g.t);
        json_decref(x);
    }
}

/* ---- against the plainest possible writer ---- */

struct run {
    uint64_t len, count;
    struct object_id id;
};

/* The document as text, written as an object. */
static struct object_id reference(struct testrepo *t, const struct run *runs, size_t n, char prefix)
{
    struct err e = ERR_INIT;
    char *text = NULL, id[OBJECT_ID_TEXT];
    size_t len = 0;
    uint64_t start = 0, parts = 0;
    FILE *f = open_memstream(&text, &len);
    fputs("{\"stream\":\"kopia:indirect\",\"entries\":[", f);
    for (size_t i = 0; i < n; i++) {
        for (uint64_t k = 0; k < runs[i].count; k++) {
            fputs(parts++ ? ",{" : "{", f);
            if (start)
                fprintf(f, "\"s\":%llu,", (unsigned long long)start);
            if (runs[i].len)
                fprintf(f, "\"l\":%llu,", (unsigned long long)runs[i].len);
            fprintf(f, "\"o\":\"%s\"}", object_id_text(&runs[i].id, id));
            start += runs[i].len;
        }
    }
    fputs("]}\n", f);
    fclose(f);
    struct object_id ret;
    assert_ok(object_put(t->s, t->p, prefix ? prefix : 'x', text, len, 0x1101, &ret, &e), &e);
    free(text);
    ret.indirection++;
    return parts == 1 ? runs[0].id : ret;
}

static struct object_id random_id(uint64_t *seed)
{
    struct object_id id = {.content = {.len = 16}};
    for (unsigned i = 0; i < 16; i++)
        id.content.hash[i] = (uint8_t)splitmix64(seed);
    id.compressed = splitmix64(seed) % 8 == 0;
    return id;
}

/* What is walked in runs is what is walked one by one, from any place on. Of what is written in runs of more than 1,000
 * most is delivered in runs. */
static void walk_in_runs(struct testrepo *t, const struct object_id *id, uint64_t *seed, bool long_runs)
{
    struct object_parts *one CLEANUP(object_parts_freep) = NULL, *many CLEANUP(object_parts_freep) = NULL;
    struct object_part a = {0}, b;
    struct err e = ERR_INIT;
    uint64_t count, parts = 0, steps = 0;
    int rc;
    assert_ok(object_parts_open(&one, t->r, id, &e), &e);
    assert_ok(object_parts_open(&many, t->r, id, &e), &e);
    while ((rc = object_parts_next_run(many, &b, &count, &e)) == 1) {
        assert_true(count > 0);
        steps++;
        for (uint64_t i = 0; i < count; i++, parts++) {
            assert_int_equal(object_parts_next(one, &a, &e), 1);
            assert_int_equal(a.start, b.start + i * b.len);
            assert_int_equal(a.len, b.len);
            assert_true(object_id_equal(&a.id, &b.id));
        }
    }
    assert_int_equal(rc, 0);
    assert_int_equal(object_parts_next(one, &a, &e), 0);
    if (long_runs)
        assert_true(steps < parts / 2);
    const uint64_t end = a.start + a.len;
    for (unsigned i = 0; i < 5 && end > 0; i++) {
        const uint64_t at = splitmix64(seed) % end;
        object_parts_free(one);
        object_parts_free(many);
        one = many = NULL;
        assert_ok(object_parts_open(&one, t->r, id, &e), &e);
        assert_ok(object_parts_open(&many, t->r, id, &e), &e);
        while ((rc = object_parts_next(one, &a, &e)) == 1 && a.start + a.len <= at)
            ;
        assert_int_equal(rc, 1);
        assert_ok(object_parts_seek(many, at, &e), &e);
        while ((rc = object_parts_next(many, &b, &e)) == 1 && b.start + b.len <= at)
            ;
        assert_int_equal(rc, 1);
        assert_true(a.start == b.start && a.len == b.len && object_id_equal(&a.id, &b.id));
    }
}

static void test_property(void **state)
{
    (void)state;
    static const char *const splitters[] = {"FIXED-128K", "DYNAMIC-128K-BUZHASH", "DYNAMIC-128K-RABINKARP",
                                            "DYNAMIC-256K-BUZHASH"};
    enum { RUNS = 4000 };
    struct run *runs CLEANUP_FREE = calloc(RUNS, sizeof *runs);
    uint64_t seed = 77;
    for (size_t i = 0; i < sizeof splitters / sizeof *splitters; i++) {
        struct testrepo t;
        struct err e = ERR_INIT;
        testrepo_new(&t, splitters[i], NULL);
        for (unsigned round = 0; round < 12; round++) {
            size_t n = round < 3 ? round + 1 : splitmix64(&seed) % RUNS + 1;
            char prefix = round % 3 == 1 ? 'k' : 0;
            struct object_table *table = NULL;
            assert_ok(object_table_new(&table, t.s, prefix, &e), &e);
            uint64_t end = 0;
            for (size_t k = 0; k < n; k++) {
                bool zero = splitmix64(&seed) % 50 == 0;
                runs[k] =
                    (struct run){.len = zero ? 0 : splitmix64(&seed) >> (splitmix64(&seed) % 20 + 36),
                                 .count = splitmix64(&seed) % 10 ? 1 : splitmix64(&seed) % (round == 5 ? 5000 : 50),
                                 .id = random_id(&seed)};
                if (round < 3)
                    runs[k].count = 1;
                assert_ok(object_table_add(table, runs[k].len, &runs[k].id, runs[k].count, &e), &e);
                end += runs[k].count;
                if (end && splitmix64(&seed) % 700 == 0) {
                    struct object_id now, want = reference(&t, runs, k + 1, prefix);
                    assert_ok(object_table_checkpoint(table, &now, &e), &e);
                    assert_true(object_id_equal(&now, &want));
                }
            }
            struct object_id got, want = reference(&t, runs, n, prefix);
            assert_ok(object_table_finish(table, &got, &e), &e);
            assert_true(object_id_equal(&got, &want));
            if (got.indirection)
                walk_in_runs(&t, &got, &seed, round == 5);
            object_table_free(table);
        }
        testrepo_free(&t);
    }
}

/* ---- large ones ---- */

static void test_large(void **state)
{
    (void)state;
    static const char *const splitters[] = {"DYNAMIC-4M-BUZHASH", "FIXED-8M", "DYNAMIC-8M-BUZHASH", "FIXED-128K"};
    for (size_t i = 0; i < sizeof splitters / sizeof *splitters; i++) {
        struct testrepo t;
        struct err e = ERR_INIT;
        struct object_table *table = NULL;
        testrepo_new(&t, splitters[i], NULL);
        const struct object_id zero = parse_id("30a572157ba3e8a14424acacde62ee4a");
        const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
        size_t most = 0;
        assert_ok(object_table_new(&table, t.s, 0, &e), &e);
        for (unsigned k = 0; k < 16; k++) { /* 1 TiB of zeros in 2 MiB chunks, with a checkpoint now and then */
            struct object_id id;
            assert_ok(object_table_add(table, 2 << 20, &zero, 32768, &e), &e);
            if (k % 5 == 0)
                assert_ok(object_table_checkpoint(table, &id, &e), &e);
            size_t used = mallinfo2().uordblks + mallinfo2().hblkhd - before;
            most = used > most ? used : most;
        }
        if (!getenv("SNAPFERRY_SANITIZED")) /* sanitizers have an allocator of their own */
            assert_true(most < object_table_memory(t.r) + (1 << 20));
        struct object_id id;
        assert_ok(object_table_finish(table, &id, &e), &e);
        object_table_free(table);

        struct object_parts *p = NULL;
        struct object_part part;
        uint64_t n = 0;
        int rc;
        assert_ok(object_parts_open(&p, t.r, &id, &e), &e);
        while ((rc = object_parts_next(p, &part, &e)) == 1) {
            assert_int_equal(part.start, n * (2 << 20));
            assert_int_equal(part.len, 2 << 20);
            n++;
        }
        assert_ok(rc, &e);
        assert_int_equal(n, 524288);
        object_parts_free(p);

        assert_ok(object_parts_open(&p, t.r, &id, &e), &e);
        assert_ok(object_parts_seek(p, ((uint64_t)500000 << 21) + 5, &e), &e);
        assert_int_equal(object_parts_next(p, &part, &e), 1);
        assert_int_equal(part.start, (uint64_t)500000 << 21);
        object_parts_free(p);
        testrepo_free(&t);
    }
}

static void test_few(void **state)
{
    (void)state;
    struct testrepo t;
    struct err e = ERR_INIT;
    struct object_table *table = NULL;
    struct object_id got, id = parse_id("Z30a572157ba3e8a14424acacde62ee4a");
    testrepo_new(&t, "FIXED-128K", NULL);
    assert_ok(object_table_new(&table, t.s, 0, &e), &e);
    assert_int_equal(object_table_finish(table, &got, &e), -EINVAL);
    assert_ok(object_table_add(table, 5, &id, 1, &e), &e);
    assert_ok(object_table_checkpoint(table, &got, &e), &e);
    assert_true(object_id_equal(&got, &id)); /* one part is the object */
    assert_int_equal(object_table_add(table, UINT64_MAX, &id, 1, &e), -EOVERFLOW);
    assert_int_equal(object_table_add(table, INT64_MAX / 2, &id, 3, &e), -EOVERFLOW);
    assert_ok(object_table_add(table, 0, &id, 1, &e), &e);
    assert_ok(object_table_finish(table, &got, &e), &e);
    uint8_t *text CLEANUP_FREE = NULL;
    assert_int_equal(got.indirection, 1);
    assert_int_equal(got.content.prefix, 'x');
    got.indirection = 0;
    assert_ok(object_get(t.r, &got, &text, 1000, &e), &e);
    assert_string_equal(
        (char *)text,
        "{\"stream\":\"kopia:indirect\",\"entries\":[{\"l\":5,\"o\":\"Z30a572157ba3e8a14424acacde62ee4a\"},"
        "{\"s\":5,\"o\":\"Z30a572157ba3e8a14424acacde62ee4a\"}]}\n");
    object_table_free(table);
    testrepo_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_property),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
