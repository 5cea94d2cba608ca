/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_item.c - sealed items and named blobs against golden bytes; damage of every kind is noticed. */
#include "repo/item.h"
#include "tests/unit/test.h"

#include <jansson.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *text_of(const json_t *v, const char *key)
{
    const char *s = json_string_value(json_object_get(v, key));
    assert_non_null(s);
    return s;
}

static size_t hex_of(const json_t *v, const char *key, uint8_t *out, size_t cap)
{
    const char *s = text_of(v, key);
    size_t n = strlen(s) / 2;
    assert_true(n <= cap);
    assert_int_equal(hex_decode(out, s, 2 * n), 0);
    return n;
}

static size_t unhex(uint8_t *out, const char *hex)
{
    assert_int_equal(hex_decode(out, hex, strlen(hex)), 0);
    return strlen(hex) / 2;
}

/* Calls fn for each line of a vector file; returns their number. */
static unsigned each_vector(const char *file, void (*fn)(json_t *v))
{
    FILE *f = fopen(fixture_path(file), "r");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0;
    unsigned n = 0;
    while (getline(&line, &cap, f) > 0) {
        json_t *v = json_loads(line, 0, NULL);
        assert_non_null(v);
        fn(v);
        json_decref(v);
        n++;
    }
    free(line);
    fclose(f);
    return n;
}

static struct repo_format plain_format(void)
{
    struct repo_format f = {.version = 3, .index_version = 2};
    snprintf(f.hash, sizeof f.hash, "BLAKE2B-256-128");
    snprintf(f.encryption, sizeof f.encryption, "AES256-GCM-HMAC-SHA256");
    f.secret_len = f.master_key_len = 32;
    for (unsigned i = 0; i < 32; i++) {
        f.master_key[i] = (uint8_t)(0x20 + i);
        f.secret[i] = (uint8_t)(0x40 + i);
    }
    return f;
}

static struct sealer *sealer_of(const struct repo_format *f)
{
    struct err e = ERR_INIT;
    struct sealer *s = NULL;
    assert_ok(sealer_new(&s, f, &e), &e);
    return s;
}

/* ---- golden bytes ---- */

static void check_encryption(json_t *v)
{
    struct err e = ERR_INIT;
    struct repo_format f = plain_format();
    snprintf(f.encryption, sizeof f.encryption, "%s", text_of(v, "encryption"));
    f.master_key_len = hex_of(v, "masterKeyHex", f.master_key, sizeof f.master_key);
    struct sealer *s = sealer_of(&f);
    uint8_t iv[64], stored[8192], out[8192];
    size_t iv_len = hex_of(v, "ivHex", iv, sizeof iv);
    size_t n = hex_of(v, "cipherHex", stored, sizeof stored);
    int64_t len = item_open(s, iv, iv_len, stored, n, out, NULL, NULL, &e);
    if (json_object_get(v, "damage")) {
        assert_int_equal(len, -EBADMSG);
        assert_int_equal(e.cls, ERR_DAMAGE);
    } else {
        assert_ok(len, &e);
        size_t plain_len;
        uint8_t *plain = recipe_expand(text_of(v, "plain"), &plain_len);
        assert_int_equal(len, plain_len);
        assert_memory_equal(out, plain, plain_len);
        assert_int_equal(item_sealed_len(s, plain_len), n);
        assert_int_equal(item_opened_max(s, n), plain_len);
        assert_int_equal(n, plain_len + ITEM_OVERHEAD);
        /* In place. */
        assert_int_equal(item_open(s, iv, iv_len, stored, n, stored, NULL, NULL, &e), len);
        assert_memory_equal(stored, plain, plain_len);
        free(plain);
    }
    sealer_free(s);
}

static void golden_encryption(void **state)
{
    (void)state;
    assert_int_equal(each_vector("vectors/encryption.jsonl", check_encryption), 36);
}

static void check_named(json_t *v)
{
    struct err e = ERR_INIT;
    struct repo_format f = plain_format();
    snprintf(f.hash, sizeof f.hash, "%s", text_of(v, "hash"));
    f.secret_len = hex_of(v, "secretHex", f.secret, sizeof f.secret);
    f.master_key_len = hex_of(v, "masterKeyHex", f.master_key, sizeof f.master_key);
    struct sealer *s = sealer_of(&f);
    uint8_t stored[8192], plain[8192];
    size_t n = hex_of(v, "cipherHex", stored, sizeof stored);
    size_t plain_len = hex_of(v, "plainHex", plain, sizeof plain);
    uint8_t *out = NULL;
    size_t len = 0;
    assert_ok(named_open(s, text_of(v, "blob"), stored, n, &out, &len, &e), &e);
    assert_int_equal(len, plain_len);
    assert_memory_equal(out, plain, len);
    free(out);
    char name[BLOB_NAME_MAX + 1];
    uint8_t *sealed = NULL;
    assert_ok(named_seal(s, text_of(v, "prefix"), text_of(v, "suffix"), plain, plain_len, name, &sealed, &len, &e), &e);
    assert_string_equal(name, text_of(v, "blob"));
    assert_int_equal(len, n);
    assert_memory_not_equal(sealed, stored, 12); /* never the same nonce */
    assert_ok(named_open(s, name, sealed, len, &out, &len, &e), &e);
    assert_memory_equal(out, plain, plain_len);
    free(out);
    free(sealed);
    sealer_free(s);
}

static void golden_named(void **state)
{
    (void)state;
    assert_int_equal(each_vector("vectors/named-blob.jsonl", check_named), 66);
}

static void check_master(json_t *v)
{
    struct err e = ERR_INIT;
    struct repo_format f = plain_format();
    uint8_t want[32], key[32];
    f.unique_id_len = hex_of(v, "uniqueIDHex", f.unique_id, sizeof f.unique_id);
    f.master_key_len = hex_of(v, "masterKeyHex", f.master_key, sizeof f.master_key);
    f.password_change = true;
    hex_of(v, "contentKeyK0", want, sizeof want);
    assert_ok(format_content_key(&f, key, &e), &e);
    assert_memory_equal(key, want, 32);
    static const char *const purposes[] = {"AES", "CHECKSUM"};
    for (int i = 0; i < 2; i++) {
        char member[32];
        snprintf(member, sizeof member, "purpose:%s", purposes[i]);
        hex_of(v, member, want, sizeof want);
        assert_ok(hkdf_sha256(f.master_key, f.master_key_len, f.unique_id, f.unique_id_len, purposes[i], key, 32, &e),
                  &e);
        assert_memory_equal(key, want, 32);
    }
}

static void golden_master_keys(void **state)
{
    (void)state;
    assert_int_equal(each_vector("vectors/master-key.jsonl", check_master), 6);
}

/* Section 16.1 of the format. */
static void known_answers(void **state)
{
    (void)state;
    static const char zeros[] = "00000000000000000000000000000000", letters[] = "aabbccddeeffgghhiijjkkllmmnnoopp",
                      fox[] = "quick brown fox jumps over the lazy dog";
    static const struct {
        const char *iv, *plain, *encryption, *hex;
    } known[] = {
        {letters, "foo", "AES256-GCM-HMAC-SHA256", "e43ba07f85a6d70c5f1102ca06cf19c597e5f91e527b21f00fb76e8bec3fd1"},
        {letters, "foo", "CHACHA20-POLY1305-HMAC-SHA256",
         "118359f3d4d589d939efbbc3168ae4c77c51bcebce6845fe6ef5d11342faa6"},
        {zeros, fox, "AES256-GCM-HMAC-SHA256",
         "eaad755a238f1daa4052db2e5ccddd934790b6cca415b3ccfd46ac5746af33d9d30f4400ffa9eb3a64fb1ce21b888c12c043bf6787d4"
         "a5c15ad10f21f6a6027ee3afe0"},
        {zeros, fox, "CHACHA20-POLY1305-HMAC-SHA256",
         "836d2ba87892711077adbdbe1452d3b2c590bbfdf6fd3387dc6810220a32ec19de862e1a4f865575e328424b5f178afac1b7eeff1149"
         "4f719d119b7ebb924d1d0846a3"},
    };
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct repo_format f = plain_format();
        memcpy(f.master_key, "01234567890123456789012345678901", 32);
        snprintf(f.encryption, sizeof f.encryption, "%s", known[i].encryption);
        struct sealer *s = sealer_of(&f);
        uint8_t stored[128], out[128];
        size_t n = unhex(stored, known[i].hex);
        int64_t len = item_open(s, (const uint8_t *)known[i].iv, 32, stored, n, out, NULL, NULL, &e);
        assert_int_equal(len, strlen(known[i].plain));
        assert_memory_equal(out, known[i].plain, strlen(known[i].plain));
        sealer_free(s);
    }
    /* Section 16.2b: stored by a stock client. */
    struct repo_format f = plain_format();
    struct sealer *s = sealer_of(&f);
    uint8_t stored[128], out[128], iv[16];
    hasher_digest(sealer_hasher(s), "hello world", 11, iv);
    size_t n = unhex(stored, "aa729c498333e6a42045d37e4de9de6eb8ba4a6c62fabd433e8fa49ed1cf861bd4589f41f2d103");
    assert_int_equal(item_open(s, iv, 16, stored, n, out, NULL, NULL, &e), 11);
    assert_memory_equal(out, "hello world", 11);
    hasher_digest(sealer_hasher(s), "", 0, iv);
    n = unhex(stored, "2e533b08dad6c32d87afa69ecc2f0de1c8c94e981a3e1dc48783a9fa");
    assert_int_equal(item_open(s, iv, 16, stored, n, out, NULL, NULL, &e), 0);
    sealer_free(s);
}

/* Section 16.2b: the content "hi\n" with error correction, as stock clients store it. */
static void known_ecc(void **state)
{
    (void)state;
    static const struct {
        unsigned percent;
        const char *hex;
    } known[] = {
        {2, "b0c6a3b8242a77933c5449da8a07ed25cf76ed7719ad9ec30000001fb88d05af5a5b2f88faf4b8fcbdbf8a5d8f6d4ef1af19de41f2"
            "34617fd8b959c8912b70d8c62fc88c9a8317cbe596ceba1ccabd00"},
        {1, "7f0e294751ede8a3e891b452ec87aadadcfb0fbee7b63f200000001f8e8c05a7050833655d26f7e33083d7787d0db2386f3b871217"
            "c0c6693c60b5083aa44e01b642581dc573a4787151c574bf248100"},
        {7, "2a9aed2d6b5eb92c8e1b146457f2f1d2b02f5664b8dddc2e0000001f1952c3372e2f9d0a1deb10632f95268db7b291a6b60399b280"
            "6c1d499ba4ebb024b79c8560e172687bfdd78472bacd9c6c9df700"},
        {13, "d884221c0e148e7f1d5065b410db2cd45fcf25e37e61d5040000001f634a40d0703ad665306a013207a6f63244b9f1f972a5d2463"
             "480a72494cfe983439ea82801d0439994ed15fffd6316e8c76a5500"},
    };
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct repo_format f = plain_format();
        f.ecc_percent = known[i].percent;
        struct sealer *s = sealer_of(&f);
        uint8_t iv[16], stored[128], out[128], scratch[128];
        unhex(iv, "0061fe9de504e235e621d231de63963e");
        size_t n = unhex(stored, known[i].hex);
        bool repaired = true;
        assert_true(item_opened_max(s, n) >= 3 && item_opened_max(s, n) <= sizeof out);
        assert_true(item_scratch_len(s, item_opened_max(s, n)) <= sizeof scratch);
        assert_int_equal(item_sealed_len(s, 3), n);
        assert_int_equal(item_open(s, iv, 16, stored, n, out, scratch, &repaired, &e), 3);
        assert_memory_equal(out, "hi\n", 3);
        assert_false(repaired);
        stored[30] ^= 0x80;
        assert_int_equal(item_open(s, iv, 16, stored, n, out, NULL, &repaired, &e), 3);
        assert_memory_equal(out, "hi\n", 3);
        assert_true(repaired);
        for (size_t k = 0; k < n; k += 5)
            stored[k] ^= 0x55;
        assert_true(item_open(s, iv, 16, stored, n, out, scratch, &repaired, &e) < 0);
        assert_int_equal(e.cls, ERR_DAMAGE);
        sealer_free(s);
    }
}

/* ---- own items ---- */

static void round_trips(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 15, 16, 17, 100, 4096, 65537, 1000003};
    static const unsigned percents[] = {0, 1, 5, 50, 100};
    struct err e = ERR_INIT;
    for (size_t p = 0; p < sizeof percents / sizeof percents[0]; p++) {
        struct repo_format f = plain_format();
        f.ecc_percent = percents[p];
        snprintf(f.hash, sizeof f.hash, "HMAC-SHA224");
        snprintf(f.encryption, sizeof f.encryption, "%s", encryption_name((unsigned)p % 2));
        struct sealer *s = sealer_of(&f);
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            char recipe[64];
            snprintf(recipe, sizeof recipe, "prng:9:%zu", lengths[i]);
            size_t len;
            uint8_t *plain = recipe_expand(recipe, &len);
            uint8_t iv[28];
            hasher_digest(sealer_hasher(s), plain, len, iv);
            size_t n = item_sealed_len(s, len);
            uint8_t *stored = malloc(n), *out = malloc(item_opened_max(s, n) + 1),
                    *scratch = malloc(item_scratch_len(s, item_opened_max(s, n)) + 1);
            assert_true(item_opened_max(s, n) >= len);
            /* The whole hash as iv, as for local indexes of packs. */
            assert_ok(item_seal(s, iv, 28, plain, len, stored, scratch, &e), &e);
            assert_int_equal(item_open(s, iv, 28, stored, n, out, scratch, NULL, &e), len);
            assert_memory_equal(out, plain, len);
            assert_int_equal(item_open(s, iv + 12, 16, stored, n, out, scratch, NULL, &e), -EBADMSG);
            if (!f.ecc_percent) {
                assert_int_equal(item_open(s, iv, 28, stored, n, stored, NULL, NULL, &e), len);
                assert_memory_equal(stored, plain, len);
            }
            free(stored);
            free(out);
            free(scratch);
            free(plain);
        }
        sealer_free(s);
    }
}

/* ---- in pieces ---- */

/* The lengths of pieces, over and over; a length of 0 is allowed. */
static const size_t cuts[][4] = {{1, 1, 1, 1}, {7, 0, 16, 33}, {4096, 4096, 4096, 4096}, {65536, 1, 131072, 15}};

struct way {
    const struct sealer *s;
    const uint8_t *iv;
    const size_t *cut;
    bool in_place;
};

static int seal_in_pieces(const struct way *w, const uint8_t *in, size_t len, uint8_t *out, struct err *e)
{
    struct item_stream *st = NULL;
    int rc = item_seal_begin(w->s, w->iv, 16, out, &st, e);
    uint8_t *to = out + ITEM_HEAD;
    if (rc == 0 && w->in_place)
        memcpy(to, in, len);
    for (size_t at = 0, i = 0; rc == 0 && at < len; i++) {
        size_t n = w->cut[i % 4] < len - at ? w->cut[i % 4] : len - at;
        rc = item_seal_step(st, w->in_place ? to + at : in + at, n, to + at, e);
        at += n;
    }
    return rc < 0 ? rc : item_seal_end(st, to + len, e);
}

static int open_in_pieces(const struct way *w, uint8_t *in, size_t len, uint8_t *out, struct err *e)
{
    struct item_stream *st = NULL;
    int rc = item_open_begin(w->s, w->iv, 16, in, &st, e);
    uint8_t *from = in + ITEM_HEAD;
    for (size_t at = 0, i = 0; rc == 0 && at < len; i++) {
        size_t n = w->cut[i % 4] < len - at ? w->cut[i % 4] : len - at;
        rc = item_open_step(st, from + at, n, w->in_place ? from + at : out + at, e);
        at += n;
    }
    if (rc == 0 && w->in_place)
        memcpy(out, from, len);
    return rc < 0 ? rc : item_open_end(st, from + len, e);
}

static void check_pieces(const struct way *w, const uint8_t *plain, size_t len)
{
    struct err e = ERR_INIT;
    size_t n = item_sealed_len(w->s, len);
    assert_int_equal(n, ITEM_HEAD + len + ITEM_TAIL);
    uint8_t *stored = malloc(n), *out = malloc(len + 1);
    /* Pieces make what the whole opens, and the other way round. */
    assert_ok(seal_in_pieces(w, plain, len, stored, &e), &e);
    assert_int_equal(item_open(w->s, w->iv, 16, stored, n, out, NULL, NULL, &e), len);
    assert_memory_equal(out, plain, len);
    assert_ok(item_seal(w->s, w->iv, 16, plain, len, stored, NULL, &e), &e);
    memset(out, 0, len);
    assert_ok(open_in_pieces(&(struct way){w->s, w->iv, w->cut, false}, stored, len, out, &e), &e);
    assert_memory_equal(out, plain, len);
    /* Nonce, text and tag count. */
    size_t places[] = {0, ITEM_HEAD - 1, ITEM_HEAD, ITEM_HEAD + len / 2, ITEM_HEAD + len, n - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        stored[places[i]] ^= 0x10;
        assert_int_equal(open_in_pieces(&(struct way){w->s, w->iv, w->cut, false}, stored, len, out, &e), -EBADMSG);
        assert_int_equal(e.cls, ERR_DAMAGE);
        stored[places[i]] ^= 0x10;
    }
    uint8_t other[16];
    memcpy(other, w->iv, 16);
    other[15] ^= 1;
    assert_int_equal(open_in_pieces(&(struct way){w->s, other, w->cut, false}, stored, len, out, &e), -EBADMSG);
    assert_ok(open_in_pieces(w, stored, len, out, &e), &e);
    assert_memory_equal(out, plain, len);
    free(stored);
    free(out);
}

static void pieces_are_the_whole(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 15, 16, 17, 65537, 300001};
    for (unsigned c = 0; c < 2; c++) {
        struct repo_format f = plain_format();
        snprintf(f.encryption, sizeof f.encryption, "%s", encryption_name(c));
        struct sealer *s = sealer_of(&f);
        assert_true(item_in_pieces(s));
        size_t longest;
        uint8_t *plain = recipe_expand("prng:21:300001", &longest);
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            uint8_t iv[16];
            hasher_digest(sealer_hasher(s), plain, lengths[i], iv);
            for (size_t k = lengths[i] > 65537; k < sizeof cuts / sizeof cuts[0]; k++) /* not bytewise through all */
                for (unsigned in_place = 0; in_place < 2; in_place++)
                    check_pieces(&(struct way){s, iv, cuts[k], in_place}, plain, lengths[i]);
        }
        free(plain);
        sealer_free(s);
    }
}

/* Streams that are open at the same time, and given up, do not disturb each other. */
static void pieces_side_by_side(void **state)
{
    (void)state;
    struct repo_format f = plain_format();
    struct sealer *s = sealer_of(&f);
    struct err e = ERR_INIT;
    enum { N = 5, LEN = 1000 };
    static uint8_t plain[N][LEN], stored[N][LEN + ITEM_OVERHEAD], out[LEN];
    uint8_t iv[N][16] = {{0}};
    for (unsigned round = 0; round < 3; round++) {
        struct item_stream *st[N];
        for (unsigned i = 0; i < N; i++) {
            memset(plain[i], (int)(i + round), LEN);
            iv[i][0] = (uint8_t)i;
            assert_ok(item_seal_begin(s, iv[i], 16, stored[i], &st[i], &e), &e);
        }
        for (size_t at = 0; at < LEN; at += 100)
            for (unsigned i = 0; i < N; i++)
                assert_ok(item_seal_step(st[i], plain[i] + at, 100, stored[i] + ITEM_HEAD + at, &e), &e);
        item_stream_free(st[round]);
        for (unsigned i = 0; i < N; i++)
            if (i != round)
                assert_ok(item_seal_end(st[i], stored[i] + ITEM_HEAD + LEN, &e), &e);
        for (unsigned i = 0; i < N; i++) {
            int64_t rc = item_open(s, iv[i], 16, stored[i], sizeof stored[i], out, NULL, NULL, &e);
            assert_int_equal(rc, i == round ? -EBADMSG : LEN);
            if (i != round)
                assert_memory_equal(out, plain[i], LEN);
        }
    }
    item_stream_free(NULL);
    sealer_free(s);
}

static void pieces_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct item_stream *st = NULL;
    uint8_t iv[16] = {0}, bytes[64] = {0};
    struct repo_format f = plain_format();
    f.ecc_percent = 5;
    struct sealer *s = sealer_of(&f);
    assert_false(item_in_pieces(s));
    assert_int_equal(item_seal_begin(s, iv, 16, bytes, &st, &e), -ENOTSUP);
    assert_int_equal(item_open_begin(s, iv, 16, bytes, &st, &e), -ENOTSUP);
    sealer_free(s);
    f.ecc_percent = 0;
    s = sealer_of(&f);
    assert_true(item_seal_begin(s, iv, 0, bytes, &st, &e) < 0);
    assert_true(item_open_begin(s, iv, 2000, bytes, &st, &e) < 0);
    assert_null(st);
    /* More than an item can have: the step fails, and the end with it. */
    assert_ok(item_seal_begin(s, iv, 16, bytes, &st, &e), &e);
    assert_int_equal(item_seal_step(st, bytes, (size_t)1 << 32, bytes, &e), -EINVAL);
    assert_true(item_seal_end(st, bytes, &e) < 0);
    assert_ok(item_open_begin(s, iv, 16, bytes, &st, &e), &e);
    assert_int_equal(item_open_step(st, bytes, SIZE_MAX, bytes, &e), -EINVAL);
    assert_true(item_open_step(st, bytes, 1, bytes, &e) < 0);
    int rc = item_open_end(st, bytes, &e);
    assert_true(rc < 0 && rc != -EBADMSG);
    /* The stream is as good as new for the next. */
    assert_ok(item_seal(s, iv, 16, "abc", 3, bytes, NULL, &e), &e);
    assert_int_equal(item_open(s, iv, 16, bytes, 3 + ITEM_OVERHEAD, bytes, NULL, NULL, &e), 3);
    sealer_free(s);
}

static void every_bit_counts(void **state)
{
    (void)state;
    struct repo_format f = plain_format();
    struct err e = ERR_INIT;
    for (unsigned c = 0; c < 2; c++) {
        snprintf(f.encryption, sizeof f.encryption, "%s", encryption_name(c));
        struct sealer *s = sealer_of(&f);
        uint8_t iv[16] = {1, 2, 3}, stored[64], out[64];
        size_t n = item_sealed_len(s, 20);
        assert_ok(item_seal(s, iv, 16, "twenty bytes of text", 20, stored, NULL, &e), &e);
        for (size_t bit = 0; bit < n * 8; bit++) {
            stored[bit / 8] ^= (uint8_t)(1u << bit % 8);
            memset(out, 'x', sizeof out);
            assert_int_equal(item_open(s, iv, 16, stored, n, out, NULL, NULL, &e), -EBADMSG);
            assert_int_equal(e.cls, ERR_DAMAGE);
            assert_int_equal(out[0], 0); /* nothing unauthenticated comes out */
            stored[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t len = 0; len < n; len++)
            assert_int_equal(item_open(s, iv, 16, stored, len, out, NULL, NULL, &e), -EBADMSG);
        assert_int_equal(item_open(s, iv, 16, stored, n, out, NULL, NULL, &e), 20);
        sealer_free(s);
    }
}

static void bad_names(void **state)
{
    (void)state;
    struct repo_format f = plain_format();
    struct sealer *s = sealer_of(&f);
    struct err e = ERR_INIT;
    static const char *const names[] = {"",
                                        "xe0",
                                        "n",
                                        "n0123456789abcdef0123456789abcde",
                                        "-",
                                        "n-0123456789abcdef0123456789abcdef",
                                        "ng123456789abcdef0123456789abcdeg-s1"};
    uint8_t *out = NULL, stored[64] = {0};
    size_t len;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(named_open(s, names[i], stored, sizeof stored, &out, &len, &e), -EBADMSG);
        assert_int_equal(e.cls, ERR_DAMAGE);
        assert_null(out);
    }
    char name[BLOB_NAME_MAX + 1], suffix[300];
    memset(suffix, 's', sizeof suffix);
    suffix[299] = '\0';
    assert_true(named_seal(s, "n", suffix, "x", 1, name, &out, &len, &e) < 0);
    assert_true(named_seal(s, "n-", "s", "x", 1, name, &out, &len, &e) < 0);
    assert_null(out);
    assert_ok(named_seal(s, "n", NULL, "x", 1, name, &out, &len, &e), &e);
    assert_int_equal(strlen(name), 33);
    free(out);
    sealer_free(s);
}

static void bad_formats(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct sealer *s = NULL;
    struct repo_format f = plain_format();
    snprintf(f.encryption, sizeof f.encryption, "NONE");
    assert_int_equal(sealer_new(&s, &f, &e), -ENOTSUP);
    assert_int_equal(e.cls, ERR_FORMAT);
    f = plain_format();
    snprintf(f.hash, sizeof f.hash, "MD5");
    assert_int_equal(sealer_new(&s, &f, &e), -ENOTSUP);
    f = plain_format();
    f.ecc_percent = 101;
    assert_true(sealer_new(&s, &f, &e) < 0);
    assert_int_equal(e.cls, ERR_FORMAT);
    assert_null(s);
}

/* ---- nonces ---- */

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, 12);
}

static void nonces_never_repeat(void **state)
{
    (void)state;
    struct repo_format f = plain_format();
    struct sealer *s = sealer_of(&f);
    struct err e = ERR_INIT;
    enum { N = 1000 };
    static uint8_t nonces[2 * N][12];
    uint8_t iv[16] = {0}, stored[ITEM_OVERHEAD];
    /* A child of a fork in the middle of a batch draws its own. */
    assert_ok(item_seal(s, iv, 16, "", 0, stored, NULL, &e), &e);
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    for (unsigned i = 0; i < N; i++) {
        if (item_seal(s, iv, 16, "", 0, stored, NULL, &e) < 0)
            pid == 0 ? _exit(1) : fail();
        memcpy(nonces[i], stored, 12);
    }
    if (pid == 0) {
        sealer_free(s);
        _exit(write(fds[1], nonces, N * 12) == N * 12 ? 0 : 1);
    }
    size_t got = 0;
    while (got < N * 12) {
        ssize_t n = read(fds[0], &nonces[N][0] + got, N * 12 - got);
        assert_true(n > 0);
        got += (size_t)n;
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(fds[0]);
    close(fds[1]);
    qsort(nonces, 2 * N, 12, by_bytes);
    for (unsigned i = 1; i < 2 * N; i++)
        assert_memory_not_equal(nonces[i - 1], nonces[i], 12);
    sealer_free(s);
}

struct crew {
    const struct sealer *s;
    uint8_t id;
    bool mends;
    int failed;
};

static void *work(void *arg)
{
    struct crew *c = arg;
    struct err e = ERR_INIT;
    uint8_t iv[16], plain[3000], stored[8000], out[8000];
    memset(plain, c->id, sizeof plain);
    for (unsigned i = 0; i < 300; i++) {
        memset(iv, (int)i, sizeof iv);
        iv[0] = c->id;
        size_t n = item_sealed_len(c->s, sizeof plain);
        if (item_seal(c->s, iv, 16, plain, sizeof plain, stored, NULL, &e) < 0 ||
            item_open(c->s, iv, 16, stored, n, out, NULL, NULL, &e) != sizeof plain ||
            memcmp(out, plain, sizeof plain) != 0)
            c->failed = 1;
        stored[i] ^= 1;
        int64_t rc = item_open(c->s, iv, 16, stored, n, out, NULL, NULL, &e);
        if (c->mends ? rc != sizeof plain || memcmp(out, plain, sizeof plain) != 0 : rc != -EBADMSG)
            c->failed = 2;
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    for (unsigned percent = 0; percent <= 10; percent += 10) {
        struct repo_format f = plain_format();
        f.ecc_percent = percent;
        struct sealer *s = sealer_of(&f);
        struct crew crew[4];
        pthread_t t[4];
        for (unsigned i = 0; i < 4; i++) {
            crew[i] = (struct crew){.s = s, .id = (uint8_t)i, .mends = percent > 0};
            assert_int_equal(pthread_create(&t[i], NULL, work, &crew[i]), 0);
        }
        for (unsigned i = 0; i < 4; i++) {
            pthread_join(t[i], NULL);
            assert_int_equal(crew[i].failed, 0);
        }
        sealer_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_encryption),   cmocka_unit_test(golden_named),   cmocka_unit_test(golden_master_keys),
        cmocka_unit_test(known_answers),       cmocka_unit_test(known_ecc),      cmocka_unit_test(round_trips),
        cmocka_unit_test(every_bit_counts),    cmocka_unit_test(bad_names),      cmocka_unit_test(bad_formats),
        cmocka_unit_test(nonces_never_repeat), cmocka_unit_test(many_threads),   cmocka_unit_test(pieces_are_the_whole),
        cmocka_unit_test(pieces_side_by_side), cmocka_unit_test(pieces_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
