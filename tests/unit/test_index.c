/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/test.h"

#include "repo/index.h"

#include <jansson.h>
#include <openssl/evp.h>

/* ---- golden vectors, one JSON document per line ------------------------------------------------------------------ */

typedef void vector_fn(json_t *v);

static void each_vector(const char *name, vector_fn *fn)
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
    assert_true(n > 0);
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
    json_t *v = json_object_get(o, key);
    if (!json_is_integer(v))
        fail_msg("no number %s", key);
    return json_integer_value(v);
}

static uint8_t *bytes(json_t *o, const char *key, size_t *len)
{
    const char *hex = str(o, key);
    *len = strlen(hex) / 2;
    uint8_t *p = malloc(*len + 1);
    assert_non_null(p);
    assert_int_equal(hex_decode(p, hex, *len * 2), 0);
    return p;
}

static struct content_id id_of(const char *text)
{
    struct content_id id;
    if (content_id_parse(&id, text, strlen(text)) < 0)
        fail_msg("bad id %s", text);
    return id;
}

/* -1: a pack name longer than any blob's. */
static int entry_of(json_t *o, struct index_entry *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->id = id_of(str(o, "id"));
    if (strlen(str(o, "pack")) > BLOB_NAME_MAX)
        return -1;
    strcpy(ret->pack, str(o, "pack"));
    ret->offset = (uint32_t)num(o, "offset");
    ret->packed = (uint32_t)num(o, "packed");
    ret->length = (uint32_t)num(o, "original");
    ret->compression = (uint32_t)num(o, "compression");
    ret->time = num(o, "time");
    ret->deleted = json_is_true(json_object_get(o, "deleted"));
    ret->format_version = (uint8_t)num(o, "formatVersion");
    ret->key_id = (uint8_t)num(o, "encryptionKeyID");
    return 0;
}

static void assert_entry_equal(const struct index_entry *a, const struct index_entry *b)
{
    assert_memory_equal(&a->id, &b->id, sizeof a->id);
    assert_string_equal(a->pack, b->pack);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->packed, b->packed);
    assert_int_equal(a->length, b->length);
    assert_int_equal(a->compression, b->compression);
    assert_int_equal(a->time, b->time);
    assert_int_equal(a->deleted, b->deleted);
    assert_int_equal(a->format_version, b->format_version);
    assert_int_equal(a->key_id, b->key_id);
}

/* ---- content ids ------------------------------------------------------------------------------------------------ */

static unsigned ids_seen;

static void content_id_vector(json_t *v)
{
    ids_seen++;
    json_t *order = json_object_get(v, "order");
    if (order) {
        for (size_t i = 0; i < json_array_size(order); i++)
            for (size_t j = 0; j < json_array_size(order); j++) {
                struct content_id a = id_of(json_string_value(json_array_get(order, i)));
                struct content_id b = id_of(json_string_value(json_array_get(order, j)));
                int c = content_id_cmp(&a, &b);
                assert_int_equal((c > 0) - (c < 0), (i > j) - (i < j));
                assert_int_equal(content_id_equal(&a, &b), i == j);
            }
        return;
    }
    const char *in = str(v, "input");
    struct content_id id = {.len = 99};
    int r = content_id_parse(&id, in, strlen(in));
    /* The empty text is no id for us: nothing stored is named so. */
    if (json_object_get(v, "error") || !*in) {
        assert_int_equal(r, -EINVAL);
        assert_int_equal(id.len, 99);
        return;
    }
    assert_int_equal(r, 0);
    char text[CONTENT_ID_TEXT], hex[2 * sizeof id.hash + 1];
    assert_string_equal(content_id_text(&id, text), str(v, "printed"));
    assert_string_equal(hex_encode(hex, id.hash, id.len), str(v, "hashHex"));
    assert_int_equal(id.prefix, str(v, "prefix")[0]);
}

static void content_ids(void **state)
{
    (void)state;
    each_vector("content-id.jsonl", content_id_vector);
    assert_int_equal(ids_seen, 31);
}

/* ---- tables ----------------------------------------------------------------------------------------------------- */

/* The id of an entry, whatever else of it is damaged. */
static struct content_id id_at(const struct index_table *t, uint64_t i)
{
    const uint8_t *key = index_key_at(t, i);
    struct content_id id = {.prefix = (char)key[0], .len = (uint8_t)(t->key_len - 1)};
    memcpy(id.hash, key + 1, id.len);
    return id;
}

static void check_table(const uint8_t *data, size_t len, const struct index_entry *want, size_t n)
{
    struct err e = ERR_INIT;
    struct index_table t;
    assert_ok(index_parse(&t, data, len, &e), &e);
    assert_int_equal(t.count, n);
    for (size_t i = 0; i < n; i++) {
        struct index_entry got;
        struct content_id id;
        assert_ok(index_entry_at(&t, i, &got, &e), &e);
        assert_entry_equal(&got, &want[i]);
        id = id_at(&t, i);
        assert_true(content_id_equal(&id, &want[i].id));
        memset(&got, 0xaa, sizeof got);
        assert_int_equal(index_find_traced(&t, &want[i].id, &got, NULL, &e), 1);
        assert_entry_equal(&got, &want[i]);
        assert_int_equal(index_lower_bound(&t, &want[i].id), i);
        id.hash[id.len - 1] ^= 1;
        bool there =
            (i > 0 && content_id_equal(&id, &want[i - 1].id)) || (i + 1 < n && content_id_equal(&id, &want[i + 1].id));
        assert_int_equal(index_find_traced(&t, &id, &got, NULL, &e), there);
    }
    struct index_entry got;
    assert_int_equal(index_entry_at(&t, n, &got, &e), -EBADMSG);
}

static unsigned built, refused, impossible;

static void index_vector(json_t *v)
{
    json_t *list = json_object_get(v, "entries");
    size_t n = json_array_size(list);
    CLEANUP_FREE struct index_entry *x = calloc(n, sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        if (entry_of(json_array_get(list, i), &x[i]) < 0) {
            impossible++;
            return;
        }
    struct err e = ERR_INIT;
    n = index_sort(x, n);
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len = 0;
    int r = index_build(x, n, (unsigned)num(v, "version"), false, &data, &len, &e);
    if (json_object_get(v, "error")) {
        assert_int_equal(r, -ERANGE);
        assert_int_equal(e.cls, ERR_GENERIC);
        assert_null(data);
        refused++;
        return;
    }
    size_t want_len;
    CLEANUP_FREE uint8_t *want = bytes(v, "indexHex", &want_len);
    /* Version 1 has no length of its own, stock writes such entries anyway: we refuse, and read them. */
    bool lossy = false;
    for (size_t i = 0; i < n && num(v, "version") == 1; i++) {
        lossy = lossy || x[i].length != x[i].packed - 28;
        x[i].length = x[i].packed - 28;
    }
    if (lossy)
        assert_int_equal(r, -ERANGE);
    else
        assert_ok(r, &e);
    if (!lossy) {
        assert_int_equal(len, want_len);
        assert_memory_equal(data, want, len);
    }
    check_table(want, want_len, x, n);
    built++;
}

static void golden_tables(void **state)
{
    (void)state;
    each_vector("index.jsonl", index_vector);
    assert_int_equal(built, 17);
    assert_int_equal(refused, 6);
    assert_int_equal(impossible, 2);
}

static void hex_of_sha256(const void *data, size_t len, char out[65])
{
    uint8_t md[32];
    assert_int_equal(EVP_Digest(data, len, md, NULL, EVP_sha256(), NULL), 1);
    hex_encode(out, md, sizeof md);
}

static unsigned large_tables;

static void large_vector(json_t *v)
{
    if (json_object_get(v, "ids")) /* about shards of an index, which this writes as one */
        return;
    size_t n = (size_t)num(v, "entries"), packs = (size_t)num(v, "packs");
    uint64_t seed = (uint64_t)num(v, "seed");
    CLEANUP_FREE struct index_entry *x = calloc(n, sizeof *x);
    CLEANUP_FREE char *names = malloc(packs * 33);
    assert_non_null(x);
    assert_non_null(names);
    for (size_t i = 0; i < n; i++) {
        x[i].id.len = 16;
        put_le64(x[i].id.hash, splitmix64(&seed));
        put_le64(x[i].id.hash + 8, splitmix64(&seed));
        snprintf(x[i].pack, sizeof x[i].pack, "p%032zx-s0123456789abcdef147", i % packs);
        x[i].offset = (uint32_t)i;
        x[i].packed = i % 1000 + 28;
        x[i].length = i % 1000;
        x[i].time = 1700000000 + (int64_t)i;
        x[i].format_version = 3;
    }
    struct err e = ERR_INIT;
    n = index_sort(x, n);
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len = 0;
    assert_ok(index_build(x, n, (unsigned)num(v, "version"), false, &data, &len, &e), &e);
    assert_int_equal(len, num(v, "length"));
    char hex[65];
    hex_of_sha256(data, len, hex);
    assert_string_equal(hex, str(v, "sha256"));
    assert_int_equal(get_be16(data + 2), num(v, "entrySize"));
    check_table(data, len, x, n);
    large_tables++;
}

static void golden_large_tables(void **state)
{
    (void)state;
    each_vector("index-large.jsonl", large_vector);
    assert_int_equal(large_tables, 4);
}

static void merge_vector(json_t *v)
{
    struct index_entry a, b, winner;
    entry_of(json_object_get(v, "a"), &a);
    entry_of(json_object_get(v, "b"), &b);
    entry_of(json_object_get(v, "winner"), &winner);
    assert_int_equal(index_entry_wins(&a, &b), json_is_true(json_object_get(v, "aGreaterThanB")));
    struct index_entry both[2] = {a, b};
    assert_int_equal(index_sort(both, 2), 1);
    assert_entry_equal(&both[0], &winner);
    struct index_entry swapped[2] = {b, a};
    assert_int_equal(index_sort(swapped, 2), 1);
    assert_entry_equal(&swapped[0], &winner);
}

static void golden_merges(void **state)
{
    (void)state;
    each_vector("index-merge.jsonl", merge_vector);
}

/* The worked examples of section 16.2: an entry of several formats, and the same two in version 1. */
static void worked_examples(void **state)
{
    (void)state;
    static const char v2[] =
        "02110011000000020000000202000000000030a572157ba3e8a14424acacde62ee4a6a9615800000002000000b000027"
        "0000006bf0f1f2f3f4f5f6f7f8f9fafbfcfdfeff6a961581800000200001f40000e4000101360000006b36000000a100"
        "00000003000000110103007030303131323233333434353536363737383839396161626263636464656566662d733031"
        "32333435363738396162636465663134347166666565646463636262616139393838373736363535343433333232313130"
        "302d7330313233343536373839616263646566313434";
    static const char v1[] =
        "01110014000000020030a572157ba3e8a14424acacde62ee4a00006a96158001360000005200000020000000276bf0f1"
        "f2f3f4f5f6f7f8f9fafbfcfdfeff00006a96158101360000008880000020000000e47030303131323233333434353536"
        "363737383839396161626263636464656566662d73303132333435363738396162636465663134347166666565646463"
        "636262616139393838373736363535343433333232313130302d7330313233343536373839616263646566313434";
    struct index_entry x[2] = {
        {.pack = "p00112233445566778899aabbccddeeff-s0123456789abcdef144",
         .offset = 32,
         .packed = 39,
         .length = 11,
         .time = 1788220800,
         .format_version = 3},
        {.pack = "qffeeddccbbaa99887766554433221100-s0123456789abcdef144",
         .offset = 32,
         .packed = 228,
         .length = 500,
         .compression = 0x1101,
         .time = 1788220801,
         .deleted = true,
         .format_version = 3},
    };
    x[0].id = id_of("30a572157ba3e8a14424acacde62ee4a");
    x[1].id = id_of("kf0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
    struct err e = ERR_INIT;
    uint8_t want[512];
    for (unsigned version = 2; version >= 1; version--) {
        const char *hex = version == 2 ? v2 : v1;
        CLEANUP_FREE uint8_t *data = NULL;
        size_t len;
        if (version == 1) {
            x[0].format_version = x[1].format_version = 1;
            x[1].compression = 0;
            x[1].length = 200;
        }
        assert_ok(index_build(x, 2, version, false, &data, &len, &e), &e);
        assert_int_equal(len, strlen(hex) / 2);
        assert_int_equal(hex_decode(want, hex, 2 * len), 0);
        assert_memory_equal(data, want, len);
        check_table(data, len, x, 2);

        CLEANUP_FREE uint8_t *local = NULL;
        size_t local_len;
        assert_ok(index_build(x, 2, version, true, &local, &local_len, &e), &e);
        assert_int_equal(local_len, len + 32);
        assert_memory_equal(local, want, len);
        check_table(local, local_len, x, 2);
    }
}

static void base_time_and_wide_entries(void **state)
{
    (void)state;
    /* One entry of 18 bytes with the only format, pack number 0, base time 1000: what stock reads but never writes. */
    uint8_t t[17 + 17 + 18 + 5 + 6 + 2] = {2, 17, 0, 18, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 3, 0xe8};
    uint8_t *p = t + 17;
    memset(p, 0x42, 17);
    p[0] = 0;
    p += 17;
    put_be32(p, 5);
    put_be32(p + 4, 0xffffffff);
    memcpy(p + 8, "\1\2\3\4\5\6", 6);
    p += 18;
    p[0] = 2;
    put_be32(p + 1, sizeof t - 2);
    put_be32(p + 5, 0x1100);
    p[9] = 2;
    memcpy(t + sizeof t - 2, "pp", 2);
    struct err e = ERR_INIT;
    struct index_table table;
    struct index_entry got;
    assert_ok(index_parse(&table, t, sizeof t, &e), &e);
    assert_ok(index_entry_at(&table, 0, &got, &e), &e);
    assert_int_equal(got.time, 1005);
    assert_true(got.deleted);
    assert_int_equal(got.offset, 0x7fffffff);
    assert_int_equal(got.length, 0x010203);
    assert_int_equal(got.packed, 0x040506);
    assert_int_equal(got.compression, 0x1100);
    assert_int_equal(got.format_version, 2);
    assert_string_equal(got.pack, "pp");

    static const uint8_t empty[] = {1, 255, 0, 20, 0, 0, 0, 0};
    assert_ok(index_parse(&table, empty, sizeof empty, &e), &e);
    assert_int_equal(table.count, 0);
    assert_int_equal(index_find_traced(&table, &got.id, &got, NULL, &e), 0);
    assert_int_equal(index_lower_bound(&table, &got.id), 0);
}

static int walk(const uint8_t *data, size_t len)
{
    struct index_table t;
    struct index_entry x;
    struct err e = ERR_INIT;
    if (index_parse(&t, data, len, &e) < 0) {
        assert_int_equal(e.cls, ERR_DAMAGE);
        return -1;
    }
    for (uint64_t i = 0; i < t.count; i++) {
        struct content_id id = id_at(&t, i);
        if (index_entry_at(&t, i, &x, &e) < 0)
            assert_int_equal(e.cls, ERR_DAMAGE);
        index_find_traced(&t, &id, &x, NULL, &e);
        assert_true(index_lower_bound(&t, &id) <= t.count);
    }
    return 0;
}

static size_t sample(struct index_entry *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        memset(&x[i], 0, sizeof x[i]);
        x[i].id.len = 16;
        put_le64(x[i].id.hash, splitmix64(&seed));
        put_le64(x[i].id.hash + 8, splitmix64(&seed));
        x[i].id.prefix = i % 7 == 0 ? "kmx"[i / 7 % 3] : 0;
        snprintf(x[i].pack, sizeof x[i].pack, "p%016zx", i / 3);
        x[i].packed = 28 + (uint32_t)i;
        x[i].length = (uint32_t)i;
        x[i].time = 1000 + (int64_t)i;
        x[i].format_version = (uint8_t)(1 + i % 2);
    }
    return index_sort(x, n);
}

static void damage(void **state)
{
    (void)state;
    struct index_entry x[12];
    size_t n = sample(x, 12, 7);
    struct err e = ERR_INIT;
    for (unsigned version = 1; version <= 2; version++) {
        CLEANUP_FREE uint8_t *data = NULL;
        size_t len;
        assert_ok(index_build(x, n, version, false, &data, &len, &e), &e);
        for (size_t cut = 0; cut < len; cut++) {
            CLEANUP_FREE uint8_t *part = malloc(cut + 1); /* exact, so that a sanitizer sees any byte too many */
            assert_non_null(part);
            uint8_t *exact = realloc(take_ptr(&part), cut ? cut : 1);
            memcpy(exact, data, cut);
            struct index_table t;
            size_t names = len - 8;
            if (index_parse(&t, exact, cut, &e) == 0) {
                struct index_entry got;
                int bad = 0;
                for (uint64_t i = 0; i < t.count; i++)
                    bad += index_entry_at(&t, i, &got, &e) < 0;
                assert_true(bad > 0 || cut > names);
            }
            walk(exact, cut);
            free(exact);
        }
        for (size_t bit = 0; bit < len * 8; bit++) {
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
            walk(data, len);
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        /* The largest numbers in every field of the header and of every record. */
        for (size_t at = 0; at + 4 <= len; at++) {
            uint8_t keep[4];
            memcpy(keep, data + at, 4);
            memset(data + at, 0xff, 4);
            walk(data, len);
            memcpy(data + at, keep, 4);
        }
    }
}

static void unsorted_keys(void **state)
{
    (void)state;
    enum { N = 3000 };
    CLEANUP_FREE struct index_entry *x = calloc(N, sizeof *x);
    assert_non_null(x);
    size_t n = sample(x, N, 9);
    struct err e = ERR_INIT;
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    assert_ok(index_build(x, n, 2, false, &data, &len, &e), &e);
    struct index_table t;
    assert_ok(index_parse(&t, data, len, &e), &e);
    uint64_t seed = 10;
    uint8_t *records = data + 17;
    size_t size = t.key_len + t.entry_len;
    for (unsigned i = 0; i < 2000; i++) {
        uint8_t tmp[64];
        size_t a = splitmix64(&seed) % n, b = splitmix64(&seed) % n;
        memcpy(tmp, records + a * size, size);
        memmove(records + a * size, records + b * size, size);
        memcpy(records + b * size, tmp, size);
    }
    walk(data, len);
    memset(records, 0, n * size / 2);
    walk(data, len);
}

/* A search must not read much more than a few places of a large table, whatever prefixes there are. */
static void search_reads_little(void **state)
{
    (void)state;
    enum { N = 100000 };
    CLEANUP_FREE struct index_entry *x = calloc(N, sizeof *x);
    assert_non_null(x);
    size_t n = sample(x, N, 11), reads = 0;
    struct err e = ERR_INIT;
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    assert_ok(index_build(x, n, 2, false, &data, &len, &e), &e);
    struct index_table t;
    assert_ok(index_parse(&t, data, len, &e), &e);
    for (size_t i = 0; i < n; i++) {
        struct index_trace tr = {.n = 0};
        struct index_entry got;
        assert_int_equal(index_find_traced(&t, &x[i].id, &got, &tr, &e), 1);
        assert_true(tr.n < INDEX_TRACE_MAX);
        reads += tr.n;
    }
    if (reads / n > 18)
        fail_msg("%zu places read per look-up", reads / n);
}

static void build_limits(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    uint8_t *data = NULL;
    size_t len;
    struct index_entry x[2];
    sample(x, 2, 3);
    assert_int_equal(index_build(x, 0, 2, false, &data, &len, &e), -ERANGE);
    assert_int_equal(index_build(x, 2, 3, false, &data, &len, &e), -ERANGE);
    struct index_entry swapped[2] = {x[1], x[0]};
    assert_int_equal(index_build(swapped, 2, 2, false, &data, &len, &e), -ERANGE);
    struct index_entry twice[2] = {x[0], x[0]};
    assert_int_equal(index_build(twice, 2, 2, false, &data, &len, &e), -ERANGE);
    x[0].time = INT64_C(1) << 32;
    assert_int_equal(index_build(x, 2, 2, false, &data, &len, &e), -ERANGE);
    x[0].time = 1;
    x[0].length++;
    assert_int_equal(index_build(x, 2, 1, false, &data, &len, &e), -ERANGE);
    assert_non_null(strstr(e.msg, "length"));
    assert_int_equal(index_sort(x, 0), 0);

    enum { N = 256 };
    struct index_entry *many = calloc(N, sizeof *many);
    assert_non_null(many);
    sample(many, N, 4);
    for (unsigned i = 0; i < N; i++)
        many[i].compression = i;
    assert_int_equal(index_build(many, N, 2, false, &data, &len, &e), -ERANGE);
    assert_ok(index_build(many, N - 1, 2, false, &data, &len, &e), &e);
    check_table(data, len, many, N - 1);
    free(data);
    free(many);
}

/* ---- postamble -------------------------------------------------------------------------------------------------- */

static unsigned postambles, tails;

static void postamble_vector(json_t *v)
{
    size_t len;
    if (json_object_get(v, "tailHex")) {
        CLEANUP_FREE uint8_t *tail = bytes(v, "tailHex", &len);
        struct postamble p;
        int r = postamble_parse(&p, tail, len, 1 << 20);
        assert_int_equal(r, json_is_true(json_object_get(v, "found")) ? 0 : -ENOENT);
        tails++;
        return;
    }
    CLEANUP_FREE uint8_t *want = bytes(v, "postambleHex", &len);
    struct postamble p = {.offset = (uint64_t)num(v, "localIndexOffset"),
                          .length = (uint64_t)num(v, "localIndexLength")},
                     q;
    CLEANUP_FREE uint8_t *iv = bytes(v, "ivHex", &p.iv_len);
    assert_true(p.iv_len <= sizeof p.iv);
    memcpy(p.iv, iv, p.iv_len);
    uint8_t out[128];
    assert_int_equal(postamble_build(&p, out), len);
    assert_memory_equal(out, want, len);

    memset(&q, 0xaa, sizeof q);
    uint64_t end = p.offset + p.length;
    assert_int_equal(postamble_parse(&q, want, len, end), 0);
    assert_int_equal(q.iv_len, p.iv_len);
    assert_memory_equal(q.iv, p.iv, p.iv_len);
    assert_int_equal(q.offset, p.offset);
    assert_int_equal(q.length, p.length);
    if (end)
        assert_int_equal(postamble_parse(&q, want, len, end - 1), -ENOENT);
    for (size_t cut = 1; cut <= len; cut++)
        assert_int_equal(postamble_parse(&q, want + cut, len - cut, end), -ENOENT);
    for (size_t bit = 0; bit < len * 8; bit++) {
        want[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(postamble_parse(&q, want, len, end), -ENOENT);
        want[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    postambles++;
}

static void golden_postambles(void **state)
{
    (void)state;
    each_vector("postamble.jsonl", postamble_vector);
    assert_true(postambles > 20);
    assert_int_equal(postambles + tails, 34);

    struct postamble p = {.iv_len = 16, .offset = 4096, .length = 300};
    for (uint8_t i = 0; i < 16; i++)
        p.iv[i] = i;
    uint8_t out[128];
    char hex[257];
    hex_encode(hex, out, postamble_build(&p, out));
    assert_string_equal(hex, "0110000102030405060708090a0b0c0d0e0f8020ac0248f26e221a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_ids),
        cmocka_unit_test(golden_tables),
        cmocka_unit_test(golden_large_tables),
        cmocka_unit_test(golden_merges),
        cmocka_unit_test(worked_examples),
        cmocka_unit_test(base_time_and_wide_entries),
        cmocka_unit_test(damage),
        cmocka_unit_test(unsorted_keys),
        cmocka_unit_test(search_reads_little),
        cmocka_unit_test(build_limits),
        cmocka_unit_test(golden_postambles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
