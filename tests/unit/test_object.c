/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/testrepo.h"

#include "repo/object.h"
#include "repo/snapshot.h"

#include <openssl/evp.h>

/* ---- ids ---- */

static void test_ids(void **state)
{
    (void)state;
    FILE *f CLEANUP_FCLOSE = fopen(fixture_path("vectors/object-id.jsonl"), "r");
    assert_non_null(f);
    char *line CLEANUP_FREE = NULL;
    size_t cap = 0;
    unsigned good = 0, bad = 0;
    while (getline(&line, &cap, f) > 0) {
        json_t *v = json_loads(line, 0, NULL);
        const char *in = json_string_value(json_object_get(v, "input"));
        const char *printed = json_string_value(json_object_get(v, "printed"));
        /* Stock's parser lets ids without a content pass, and any number of levels: no object has such an id. */
        bool refused = !printed || !*printed || strspn(printed, "IZ") == strlen(printed) || strspn(printed, "I") > 16;
        struct object_id id;
        int rc = object_id_parse(&id, in, strlen(in));
        assert_int_equal(rc, refused ? -EINVAL : 0);
        if (rc == 0) {
            char text[OBJECT_ID_TEXT];
            struct object_id again;
            assert_string_equal(object_id_text(&id, text), printed);
            assert_int_equal(object_id_parse(&again, text, strlen(text)), 0);
            assert_true(object_id_equal(&id, &again));
            if (json_object_get(v, "compressed"))
                assert_int_equal(id.compressed, json_is_true(json_object_get(v, "compressed")));
            assert_int_equal(id.indirection > 0, json_object_get(v, "indexObject") != NULL);
            good++;
        } else {
            bad++;
        }
        json_decref(v);
    }
    assert_true(good > 20 && bad > 20);
}

/* ---- bytes ---- */

static uint8_t *noise(uint64_t seed, size_t n)
{
    uint8_t *p = malloc(n + 8);
    for (size_t i = 0; i < n; i += 8)
        put_le64(p + i, splitmix64(&seed));
    return p;
}

static void check_bytes(struct testrepo *t, const struct object_id *id, const uint8_t *data, size_t len)
{
    struct err e = ERR_INIT;
    uint8_t *all CLEANUP_FREE = NULL;
    assert_int_equal(object_get(t->r, id, &all, len, &e), (int64_t)len);
    assert_memory_equal(all, data, len);
    assert_int_equal(all[len], 0);
    if (len) {
        uint8_t *less = NULL;
        assert_int_equal(object_get(t->r, id, &less, len - 1, &e), -EFBIG);
        assert_null(less);
    }
    /* Reads of odd sizes across parts. */
    uint64_t seed = len + 1;
    for (unsigned round = 0; round < 4; round++) {
        struct object_reader *o CLEANUP(object_reader_freep) = NULL;
        assert_ok(object_reader_open(&o, t->r, id, &e), &e);
        size_t pos = 0;
        uint8_t buf[4099];
        for (;;) {
            size_t want = splitmix64(&seed) % sizeof buf + 1;
            int64_t n = object_reader_read(o, buf, want, &e);
            assert_ok(n, &e);
            if (n == 0)
                break;
            assert_true(pos + (size_t)n <= len);
            assert_memory_equal(buf, data + pos, (size_t)n);
            pos += (size_t)n;
        }
        assert_int_equal(pos, len);
        assert_int_equal(object_reader_read(o, buf, 1, &e), 0);
    }
}

static void test_put_get(void **state)
{
    (void)state;
    static const size_t lens[] = {0, 1, 5000, 131071, 131072, 131073, 262144, 1000000, 3145728};
    struct testrepo t;
    struct err e = ERR_INIT;
    testrepo_new(&t, "FIXED-128K", NULL);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        uint8_t *data CLEANUP_FREE = noise(i, lens[i]);
        struct object_id id;
        assert_ok(object_put(t.s, t.p, i % 2 ? 'k' : 0, data, lens[i], i % 3 ? 0x1101 : 0, &id, &e), &e);
        assert_int_equal(id.indirection, lens[i] > 131072);
        assert_int_equal(id.content.prefix, i % 2 ? 'k' : lens[i] > 131072 ? 'x' : 0);
        check_bytes(&t, &id, data, lens[i]);
        if (i == 5)
            testrepo_flush(&t); /* some of it from the index, some from the open session */
    }
    testrepo_free(&t);
}

/* ---- index documents made by hand ---- */

struct hand {
    struct testrepo t;
    char a[CONTENT_ID_TEXT], b[CONTENT_ID_TEXT], empty[CONTENT_ID_TEXT]; /* 3 bytes "abc", 2 bytes "de", none */
    char z[CONTENT_ID_TEXT];                                             /* a compressed payload of 1000 bytes */
};

static void put_text(struct hand *h, char prefix, const void *data, size_t len, char out[CONTENT_ID_TEXT])
{
    struct err e = ERR_INIT;
    struct content_id id;
    assert_ok(session_put_bytes(h->t.s, h->t.p, prefix, data, len, 0, &id, &e), &e);
    content_id_text(&id, out);
}

static void hand_new(struct hand *h)
{
    struct err e = ERR_INIT;
    testrepo_new(&h->t, "FIXED-128K", NULL);
    put_text(h, 0, "abc", 3, h->a);
    put_text(h, 0, "de", 2, h->b);
    put_text(h, 0, "", 0, h->empty);
    struct compressor *c CLEANUP(compressor_freep) = NULL;
    uint8_t plain[1000] = {1}, packed[1000];
    assert_ok(compressor_new(&c, &e), &e);
    int64_t n = compressor_compress(c, 0x1100, plain, sizeof plain, packed, sizeof packed, true, &e);
    assert_true(n > 0);
    put_text(h, 0, packed, (size_t)n, h->z);
}

/* Stores a document in which %a %b %e %z stand for the contents and %0..%9 for documents stored before; returns the
 * id of the object. */
static struct object_id doc_id(struct hand *h, const char *text, char docs[][OBJECT_ID_TEXT])
{
    char out[8192], cid[CONTENT_ID_TEXT], id[OBJECT_ID_TEXT];
    size_t n = 0;
    for (; *text; text++) {
        const char *s = NULL;
        if (*text == '%') {
            text++;
            s = *text == 'a'   ? h->a
                : *text == 'b' ? h->b
                : *text == 'e' ? h->empty
                : *text == 'z' ? h->z
                               : docs[*text - '0'];
        }
        n += (size_t)snprintf(out + n, sizeof out - n, "%.*s", s ? 100 : 1, s ? s : text);
        assert_true(n < sizeof out);
    }
    put_text(h, 'x', out, n, cid);
    snprintf(id, sizeof id, "I%s", cid);
    struct object_id ret;
    assert_int_equal(object_id_parse(&ret, id, strlen(id)), 0);
    return ret;
}

#define DOC(entries) "{\"stream\":\"kopia:indirect\",\"entries\":[" entries "]}\n"

static void test_documents(void **state)
{
    (void)state;
    static const struct {
        const char *text, *bytes; /* NULL: damage */
    } cases[] = {
        {DOC("{\"l\":3,\"o\":\"%a\"},{\"s\":3,\"l\":2,\"o\":\"%b\"}"), "abcde"},
        {DOC("{\"l\":3,\"o\":\"%a\"}"), "abc"},
        {DOC("{\"o\":\"%e\"}"), ""},
        {DOC("{\"l\":3,\"o\":\"%a\"},{\"s\":3,\"o\":\"%e\"},{\"s\":3,\"l\":3,\"o\":\"%a\"}"), "abcabc"},
        {DOC("{\"s\":0,\"l\":3,\"o\":\"D%a\"}"), "abc"},
        {DOC("{\"l\":3,\"o\":\"%a\"} , {\"O\":\"%b\", \"L\":2,\"S\" : 3 ,\"more\":{\"x\":[1]}}"), "abcde"},
        {DOC("{\"l\":3,\"o\":\"%0\"},{\"s\":3,\"l\":2,\"o\":\"%b\"}"), "abcde"},      /* %0: "abc" */
        {DOC("{\"l\":5,\"o\":\"%1\"},{\"s\":5,\"l\":5,\"o\":\"%1\"}"), "abcdeabcde"}, /* %1: "abcde" */
        {DOC("{\"o\":\"%1\"},{\"l\":2,\"o\":\"%b\"}"), "de"}, /* an empty part of whatever kind adds nothing */
        {"{\"entries\":[{\"l\":3,\"o\":\"%a\"}],\"stream\":\"kopia:indirect\"}", "abc"},
        {DOC(""), NULL},
        {"{\"stream\":\"kopia:indirect\",\"entries\":null}", NULL},
        {"{\"stream\":\"kopia:indirect\"}", NULL},
        {"{\"stream\":\"kopia:directory\",\"entries\":[{\"l\":3,\"o\":\"%a\"}]}", NULL},
        {"", NULL},
        {"garbage", NULL},
        {DOC("{\"l\":2,\"o\":\"%a\"}"), NULL}, /* content is longer */
        {DOC("{\"l\":4,\"o\":\"%a\"}"), NULL},
        {DOC("{\"o\":\"%a\"}"), NULL},
        {DOC("{\"s\":1,\"l\":3,\"o\":\"%a\"}"), NULL},                        /* gap at the start */
        {DOC("{\"l\":3,\"o\":\"%a\"},{\"s\":4,\"l\":2,\"o\":\"%b\"}"), NULL}, /* gap */
        {DOC("{\"l\":3,\"o\":\"%a\"},{\"s\":2,\"l\":2,\"o\":\"%b\"}"), NULL}, /* overlap */
        {DOC("{\"l\":3,\"o\":\"%a\"},{\"l\":2,\"o\":\"%b\"}"), NULL},
        {DOC("{\"l\":2,\"o\":\"%0\"}"), NULL}, /* nested object is longer */
        {DOC("{\"l\":4,\"o\":\"%0\"}"), NULL}, /* shorter */
        {DOC("{\"l\":-3,\"o\":\"%a\"}"), NULL},
        {DOC("{\"l\":3.0,\"o\":\"%a\"}"), NULL},
        {DOC("{\"l\":\"3\",\"o\":\"%a\"}"), NULL},
        {DOC("{\"l\":9223372036854775807,\"o\":\"%a\"}"), NULL},
        {DOC("{\"l\":9223372036854775808,\"o\":\"%a\"}"), NULL},
        {DOC("{\"l\":9223372036854775807,\"o\":\"%1\"},{\"s\":9223372036854775807,\"l\":3,\"o\":\"%a\"}"), NULL},
        {DOC("{\"l\":300000000,\"o\":\"%a\"}"), NULL},
        {DOC("{\"l\":03,\"o\":\"%a\"}"), NULL},
        {DOC("{\"l\":3}"), NULL},
        {DOC("{\"l\":3,\"o\":\"\"}"), NULL},
        {DOC("{\"l\":3,\"o\":null}"), NULL},
        {DOC("{\"l\":3,\"o\":5}"), NULL},
        {DOC("{\"l\":3,\"o\":\"xyz\"}"), NULL},
        {DOC("{\"l\":3,\"o\":\"I\"}"), NULL},
        {DOC("{\"l\":3,\"o\":\"30a572157ba3e8a14424acacde62ee4a\"}"), NULL}, /* no such content */
        {DOC("{\"l\":3,\"o\":\"I%a\"}"), NULL},                              /* index document is none */
        {DOC("{\"l\":3,\"o\":\"I%0\"}"), NULL},
        {DOC("5"), NULL},
        {DOC("[]"), NULL},
        {DOC("{\"l\":3,\"o\":\"%a\"},"), NULL},
        {DOC("{\"l\":1000,\"o\":\"%z\"}"), NULL}, /* the payload itself is shorter */
        {DOC("{\"l\":999,\"o\":\"Z%z\"}"), NULL},
        {DOC("{\"l\":1001,\"o\":\"Z%z\"}"), NULL},
        {DOC("{\"l\":3,\"o\":\"Z%a\"}"), NULL},
    };
    struct hand h;
    hand_new(&h);
    char docs[2][OBJECT_ID_TEXT];
    struct object_id id = doc_id(&h, DOC("{\"l\":3,\"o\":\"%a\"}"), docs);
    object_id_text(&id, docs[0]);
    id = doc_id(&h, DOC("{\"l\":3,\"o\":\"%0\"},{\"s\":3,\"l\":2,\"o\":\"%b\"}"), docs);
    object_id_text(&id, docs[1]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = ERR_INIT;
        uint8_t *p CLEANUP_FREE = NULL;
        id = doc_id(&h, cases[i].text, docs);
        int64_t n = object_get(h.t.r, &id, &p, 1000, &e);
        if (cases[i].bytes) {
            assert_ok(n, &e);
            assert_string_equal((char *)p, cases[i].bytes);
            check_bytes(&h.t, &id, p, (size_t)n);
        } else {
            if (n >= 0)
                fail_msg("accepted: %s", cases[i].text);
            assert_int_equal(e.cls, ERR_DAMAGE);
        }
    }
    testrepo_free(&h.t);
}

static void test_compressed(void **state)
{
    (void)state;
    struct hand h;
    struct err e = ERR_INIT;
    uint8_t plain[2003] = {1}, *p = NULL;
    char text[OBJECT_ID_TEXT], docs[1][OBJECT_ID_TEXT];
    hand_new(&h);
    snprintf(text, sizeof text, "Z%s", h.z);
    struct object_id id;
    assert_int_equal(object_id_parse(&id, text, strlen(text)), 0);
    check_bytes(&h.t, &id, plain, 1000);
    memcpy(plain + 1000, "abc\1", 4);
    id = doc_id(
        &h, DOC("{\"l\":1000,\"o\":\"Z%z\"},{\"s\":1000,\"l\":3,\"o\":\"%a\"},{\"s\":1003,\"l\":1000,\"o\":\"ZD%z\"}"),
        docs);
    check_bytes(&h.t, &id, plain, sizeof plain);
    snprintf(text, sizeof text, "Z%s", h.a);
    assert_int_equal(object_id_parse(&id, text, strlen(text)), 0);
    assert_true(object_get(h.t.r, &id, &p, 1000, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    testrepo_free(&h.t);
}

/* 16 levels are read, 17 are refused, whichever way they come about. */
static void test_depth(void **state)
{
    (void)state;
    struct hand h;
    char docs[1][OBJECT_ID_TEXT];
    hand_new(&h);
    snprintf(docs[0], sizeof docs[0], "%s", h.a);
    for (unsigned level = 1; level <= 18; level++) {
        struct err e = ERR_INIT;
        uint8_t *p CLEANUP_FREE = NULL;
        struct object_id id = doc_id(&h, DOC("{\"l\":3,\"o\":\"%0\"}"), docs);
        object_id_text(&id, docs[0]);
        int64_t n = object_get(h.t.r, &id, &p, 10, &e);
        if (level <= 16) {
            assert_ok(n, &e);
            assert_string_equal((char *)p, "abc");
        } else {
            assert_int_equal(n, -EBADMSG);
            assert_int_equal(e.cls, ERR_DAMAGE);
        }
    }
    testrepo_free(&h.t);
}

/* Every truncation and every flipped bit of a document: an error or the right bytes of another document, no crash. */
static void test_broken(void **state)
{
    (void)state;
    struct hand h;
    char docs[1][OBJECT_ID_TEXT], text[512], cid[CONTENT_ID_TEXT];
    hand_new(&h);
    size_t n =
        (size_t)snprintf(text, sizeof text, DOC("{\"l\":3,\"o\":\"%s\"},{\"s\":3,\"l\":2,\"o\":\"%s\"}"), h.a, h.b);
    struct object_id id = doc_id(&h, "", docs);
    for (size_t i = 0; i < n - 2 + n * 8; i++) {
        struct err e = ERR_INIT;
        uint8_t *p CLEANUP_FREE = NULL;
        bool cut = i < n - 2;
        if (!cut)
            text[(i - (n - 2)) / 8] = (char)(text[(i - (n - 2)) / 8] ^ 1 << (i - (n - 2)) % 8);
        put_text(&h, 'x', text, cut ? i : n, cid);
        assert_int_equal(content_id_parse(&id.content, cid, strlen(cid)), 0);
        int64_t got = object_get(h.t.r, &id, &p, 1000, &e);
        if (got >= 0)
            assert_string_equal((char *)p, "abcde");
        else
            assert_int_equal(e.cls, ERR_DAMAGE);
        if (cut)
            assert_true(got < 0);
        else
            text[(i - (n - 2)) / 8] = (char)(text[(i - (n - 2)) / 8] ^ 1 << (i - (n - 2)) % 8);
    }
    testrepo_free(&h.t);
}

static void test_missing(void **state)
{
    (void)state;
    struct testrepo t;
    struct err e = ERR_INIT;
    testrepo_new(&t, "FIXED-128K", NULL);
    static const char *const ids[] = {"30a572157ba3e8a14424acacde62ee4a", "Ix30a572157ba3e8a14424acacde62ee4a",
                                      "Z30a572157ba3e8a14424acacde62ee4a"};
    for (size_t i = 0; i < 3; i++) {
        struct object_id id;
        uint8_t *p = NULL;
        assert_int_equal(object_id_parse(&id, ids[i], strlen(ids[i])), 0);
        assert_int_equal(object_get(t.r, &id, &p, 10, &e), -ENOENT);
        assert_int_equal(e.cls, ERR_DAMAGE);
    }
    struct object_id none = {0};
    struct object_parts *p = NULL;
    struct object_reader *o = NULL;
    assert_int_equal(object_parts_open(&p, t.r, &none, &e), -EBADMSG);
    assert_int_equal(object_reader_open(&o, t.r, &none, &e), -EBADMSG);
    testrepo_free(&t);
}

/* ---- golden repositories ---- */

struct chunks {
    struct testrepo *t;
    struct object_parts *p;
    char id[OBJECT_ID_TEXT];
    unsigned objects;
};

static void chunks_end(struct chunks *c)
{
    struct object_part part;
    struct err e = ERR_INIT;
    if (c->p)
        assert_int_equal(object_parts_next(c->p, &part, &e), 0);
    object_parts_free(c->p);
    c->p = NULL;
}

static void one_chunk(char **f, void *arg)
{
    struct chunks *c = arg;
    struct err e = ERR_INIT;
    struct object_part part;
    char text[OBJECT_ID_TEXT];
    if (strcmp(f[1], c->id) != 0) {
        chunks_end(c);
        snprintf(c->id, sizeof c->id, "%s", f[1]);
        struct object_id id;
        assert_int_equal(object_id_parse(&id, c->id, strlen(c->id)), 0);
        assert_ok(object_parts_open(&c->p, c->t->r, &id, &e), &e);
        c->objects++;
    }
    assert_int_equal(object_parts_next(c->p, &part, &e), 1);
    assert_int_equal(part.start, strtoull(f[3], NULL, 10));
    assert_int_equal(part.len, strtoull(f[4], NULL, 10));
    assert_string_equal(object_id_text(&part.id, text), f[5]);
}

static void sha256_of(struct repo *r, const char *object, uint64_t *len, char hex[65])
{
    struct err e = ERR_INIT;
    struct object_id id;
    struct object_reader *o CLEANUP(object_reader_freep) = NULL;
    uint8_t *buf CLEANUP_FREE = malloc(1 << 20), md[32];
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    int64_t n;
    assert_int_equal(object_id_parse(&id, object, strlen(object)), 0);
    assert_ok(object_reader_open(&o, r, &id, &e), &e);
    assert_int_equal(EVP_DigestInit_ex(sha, EVP_sha256(), NULL), 1);
    *len = 0;
    while ((n = object_reader_read(o, buf, 1 << 20, &e)) > 0) {
        EVP_DigestUpdate(sha, buf, (size_t)n);
        *len += (uint64_t)n;
    }
    assert_ok(n, &e);
    assert_int_equal(EVP_DigestFinal_ex(sha, md, NULL), 1);
    EVP_MD_CTX_free(sha);
    hex_encode(hex, md, 32);
}

/* files.tsv: snapshot, type, mode, length, sha256, object, path. */
static void one_file(char **f, void *arg)
{
    struct testrepo *t = arg;
    uint64_t len;
    char hex[65];
    sha256_of(t->r, f[5], &len, hex);
    assert_string_equal(hex, f[4]);
    assert_int_equal(len, strtoull(f[3], NULL, 10));
}

static void test_golden(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool chunks, files; /* sections: sparse files of 4 GiB, left to the slower tests */
    } repos[] = {
        {"indirect-two-levels", true, true}, {"sections", true, false},    {"v1-compressed", true, true},
        {"compress-metadata", true, true},   {"stream-names", true, true}, {"incomplete-checkpoint", true, true},
        {"big-directory", true, true},       {"v1-plain", false, true},    {"odd-names", false, true},
        {"v1-compress-all", true, true},
    };
    for (size_t i = 0; i < sizeof repos / sizeof *repos; i++) {
        struct testrepo t;
        json_t *x = testrepo_golden(&t, repos[i].name);
        if (repos[i].chunks) {
            struct chunks c = {.t = &t};
            assert_true(testrepo_tsv(repos[i].name, "chunks.tsv", one_chunk, &c) > 0);
            chunks_end(&c);
            assert_true(c.objects > 0);
        }
        if (repos[i].files)
            assert_true(testrepo_tsv(repos[i].name, "files.tsv", one_file, &t) > 0);
        json_decref(x);
        testrepo_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),        cmocka_unit_test(test_put_get), cmocka_unit_test(test_documents),
        cmocka_unit_test(test_compressed), cmocka_unit_test(test_depth),   cmocka_unit_test(test_broken),
        cmocka_unit_test(test_missing),    cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
