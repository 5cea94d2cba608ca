/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/test.h"

#include "chunker/blake3.h"
#include "chunker/hash.h"
#include "chunker/kernel.h"
#include "tests/unit/levels.h"

#include <openssl/evp.h>

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>

static void free_hasher(struct hasher **h)
{
    hasher_freep(h);
}

static struct hasher *make(const char *name, const void *key, size_t len)
{
    struct err e = ERR_INIT;
    struct hasher *h = NULL;
    assert_ok(hasher_new(&h, name, key, len, &e), &e);
    return h;
}

static void expect(const char *name, const void *key, size_t key_len, const void *data, size_t len, const char *want)
{
    CLEANUP(free_hasher) struct hasher *h = make(name, key, key_len);
    uint8_t out[HASH_MAX];
    char hex[2 * HASH_MAX + 1];
    hasher_digest(h, data, len, out);
    assert_string_equal(hex_encode(hex, out, hasher_size(h)), want);
    struct hash_job jobs[3] = {{.data = data, .len = len}, {.data = data, .len = len}, {.data = data, .len = len}};
    hasher_digest_many(h, jobs, 3);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(jobs[i].out, out, hasher_size(h));
}

static void digests_are_those_of_kopia(void **state)
{
    (void)state;
    CLEANUP_FCLOSE FILE *f = fopen(fixture_path("vectors/hash.jsonl"), "r");
    assert_non_null(f);
    size_t digests = 0, errors = 0;
    for (json_t *j; (j = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL));) {
        const char *name = json_string_value(json_object_get(j, "hash"));
        const char *key_hex = json_string_value(json_object_get(j, "keyHex"));
        const char *want = json_string_value(json_object_get(j, "digest"));
        assert_true(name && key_hex);
        uint8_t key[512];
        size_t key_len = strlen(key_hex) / 2;
        assert_true(key_len <= sizeof key);
        assert_int_equal(hex_decode(key, key_hex, 2 * key_len), 0);
        if (want) {
            size_t len;
            CLEANUP_FREE uint8_t *data = recipe_expand(json_string_value(json_object_get(j, "input")), &len);
            expect(name, key, key_len, data, len, want);
            digests++;
        } else {
            struct err e = ERR_INIT;
            struct hasher *h = NULL;
            assert_int_equal(hasher_new(&h, name, key, key_len, &e), -EINVAL);
            assert_int_equal(e.cls, ERR_FORMAT);
            assert_non_null(strstr(e.msg, name));
            assert_null(h);
            errors++;
        }
        json_decref(j);
    }
    assert_int_equal(digests, 577);
    assert_int_equal(errors, 13);
}

#define FOX "The quick brown fox jumps over the lazy dog"

static void tables_of_the_format_agree(void **state)
{
    (void)state;
    /* Section 16.1. */
    expect("BLAKE2B-256-128", NULL, 0, "\1\2\3", 3, "11c0e79b71c3976ccd0c02d1310e2516");
    expect("BLAKE2B-256-128", NULL, 0, "\2\3\4", 3, "24ff687b6ca564bd005a99420c90a0db");
    expect("HMAC-SHA256", "key", 3, FOX, strlen(FOX),
           "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8");
    expect("HMAC-SHA256-128", "key", 3, FOX, strlen(FOX), "f7bc83f430538424b13298e6aa6fb143");
    static const char secret[] = "a-repository-testing-hmac-secret";
    uint8_t fill[100] = {0};
    expect("HMAC-SHA256", secret, 32, "", 0, "0c2d44dc80de21b71d4219623082f5dc253fe9bb54e48b0fc90e118f8e6cf419");
    expect("HMAC-SHA256", secret, 32, FOX, strlen(FOX),
           "6bbb74fef0699e516fb96252d8280c1c7f3492e12de9ec6d79c3c9c39b7b0063");
    expect("HMAC-SHA256", secret, 32, "the quick brown fox jumps over the lazy dog", strlen(FOX),
           "f65fc4107863281faaeb7087197c05ad59457362607330c665c86c852c5e5906");
    expect("HMAC-SHA256", secret, 32, fill, 100, "bfa2b4b9421671ab2b5bfa8c90ee33607784a27e452b08556509ef9bd47a37c6");
    memset(fill, 0xcd, sizeof fill);
    expect("HMAC-SHA256", secret, 32, fill, 50, "e37e93ba74e074ad1366ee2f032ee9c3a5b81ec82c140b053c1a4e6673d5d9d9");

    /* Section 16.2: secret 00..1f, of the empty string and of the sentence. */
    static const struct {
        const char *name, *empty, *fox;
    } t[] = {
        {"BLAKE2B-256", "4e51e7a913fc80137da52880fecca175bf81e117d5c68126dc2774033517ea0d",
         "5d9461aff732d77d0cc98725ea29298c914fd5193b4c08ec9e3ad6b28c3e2faf"},
        {"BLAKE2B-256-128", "4e51e7a913fc80137da52880fecca175", "5d9461aff732d77d0cc98725ea29298c"},
        {"BLAKE2S-256", "48a8997da407876b3d79c0d92325ad3b89cbb754d86ab71aee047ad345fd2c49",
         "96b9463f887ba8eb7444074245f3b2f838d6ee5a659490adcf7ae80cc97bc67f"},
        {"BLAKE2S-128", "9536f9b267655743dee97b8a670f9f53", "4e2219ec6d234a478e4ace91429bbce4"},
        {"HMAC-SHA224", "2a7430f93bb5456d155c654063c7074aa70c01936a6c0e53a9f9407f",
         "c19bf589632c1938fa9433a3fba6d063a76a89f95cbfad9724292959"},
        {"HMAC-SHA3-256", "50ab1606034383fe4b3b4bc0a341a82e40ac85e455cdfeed4cac902a7b8ccfc1",
         "147d7580b74be73a6c117f3320568ddf71834893daaa4631894ade39ca08e709"},
    };
    uint8_t key[32];
    for (unsigned i = 0; i < 32; i++)
        key[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        expect(t[i].name, key, 32, NULL, 0, t[i].empty);
        expect(t[i].name, key, 32, FOX, strlen(FOX), t[i].fox);
    }
}

static void names_and_sizes(void **state)
{
    (void)state;
    static const size_t size[] = {16, 32, 16, 32, 32, 16, 28, 32, 16, 28, 32};
    unsigned n = 0;
    uint8_t key[32] = {1};
    for (const char *name; (name = hash_name(n)); n++) {
        CLEANUP(free_hasher) struct hasher *h = make(name, key, sizeof key);
        assert_int_equal(hasher_size(h), size[n]);
        assert_true(hasher_lanes(h) >= 1);
    }
    assert_int_equal(n, 11);
    assert_string_equal(hash_name(0), "BLAKE2B-256-128");
    assert_null(hash_name(1000));
    hasher_free(NULL);
}

static void unknown_names_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    "BLAKE2B",     "BLAKE2B-256-12", "BLAKE2B-256-1280", "blake2b-256",
                                      "MD5", "HMAC-SHA512", "HMAC-RIPEMD-160"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err e = ERR_INIT;
        struct hasher *h = NULL;
        assert_int_equal(hasher_new(&h, bad[i], (const uint8_t *)"k", 1, &e), -ENOTSUP);
        assert_int_equal(e.cls, ERR_FORMAT);
        assert_null(h);
    }
}

/* OpenSSL's BLAKE2b MAC is an implementation that shares nothing with ours. */
static void blake2b_of_openssl(const uint8_t *key, size_t key_len, const uint8_t *data, size_t len, uint8_t *out)
{
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "BLAKE2BMAC", NULL);
    EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
    size_t size = 32;
    OSSL_PARAM p[2] = {OSSL_PARAM_construct_size_t("size", &size), OSSL_PARAM_construct_end()};
    assert_int_equal(EVP_MAC_init(ctx, key, key_len, p), 1);
    assert_int_equal(EVP_MAC_update(ctx, data, len), 1);
    assert_int_equal(EVP_MAC_final(ctx, out, &size, 32), 1);
    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(mac);
}

/* Random batches: every count of messages, lengths from nothing to many blocks, any alignment. */
static void batches_equal_single_calls(void **state)
{
    (void)state;
    uint64_t seed = 42;
    size_t total = 1 << 20;
    CLEANUP_FREE uint8_t *data = malloc(total);
    assert_non_null(data);
    for (size_t i = 0; i < total; i++)
        data[i] = (uint8_t)splitmix64(&seed);
    for (unsigned alg = 0; hash_name(alg); alg++) {
        uint8_t key[64];
        for (size_t i = 0; i < sizeof key; i++)
            key[i] = (uint8_t)splitmix64(&seed);
        size_t key_len = 1 + splitmix64(&seed) % 32;
        CLEANUP(free_hasher) struct hasher *h = make(hash_name(alg), key, key_len);
        bool blake2b = !strcmp(hash_name(alg), "BLAKE2B-256");
        for (int round = 0; round < (blake2b ? 300 : 30); round++) {
            struct hash_job jobs[80];
            size_t n = splitmix64(&seed) % (round % 2 ? 81 : 9);
            for (size_t i = 0; i < n; i++) {
                size_t len = splitmix64(&seed) % (1U << splitmix64(&seed) % 16);
                if (splitmix64(&seed) % 4 == 0)
                    len = 128 * (splitmix64(&seed) % 20); /* ends of blocks */
                jobs[i] = (struct hash_job){.data = data + splitmix64(&seed) % (total - len), .len = len};
                memset(jobs[i].out, 0xee, sizeof jobs[i].out);
            }
            hasher_digest_many(h, jobs, n);
            for (size_t i = 0; i < n; i++) {
                uint8_t want[HASH_MAX];
                memset(want, 0xee, sizeof want);
                hasher_digest(h, jobs[i].data, jobs[i].len, want);
                assert_memory_equal(jobs[i].out, want, sizeof want); /* nothing written past the digest either */
                if (!blake2b)
                    continue;
                blake2b_of_openssl(key, key_len, jobs[i].data, jobs[i].len, want);
                assert_memory_equal(jobs[i].out, want, 32);
            }
        }
    }
}

/* Messages that come in drops: now and then there is none although lanes are free. */
struct drops {
    uint64_t seed;
    const struct hasher *h;
    struct hash_job jobs[200];
    size_t n, given, ended;
    unsigned working, most;
};

static struct hash_job *next_drop(void *arg, unsigned active)
{
    struct drops *d = arg;
    assert_true(active == 0 || active == d->working);
    assert_true(d->working < hasher_lanes(d->h));
    if (d->given == d->n || (active > 0 && splitmix64(&d->seed) % 3 == 0))
        return NULL;
    if (++d->working > d->most)
        d->most = d->working;
    return &d->jobs[d->given++];
}

static void drop_done(void *arg, struct hash_job *job)
{
    struct drops *d = arg;
    uint8_t want[HASH_MAX];
    memset(want, 0xee, sizeof want);
    hasher_digest(d->h, job->data, job->len, want);
    assert_memory_equal(job->out, want, sizeof want);
    /* It is the caller's again. */
    memset(job, 0xdd, sizeof *job);
    d->working--;
    d->ended++;
}

static void a_feed_is_worked_off(void **state)
{
    (void)state;
    uint64_t seed = 7;
    size_t total = 1 << 20;
    CLEANUP_FREE uint8_t *data = malloc(total);
    CLEANUP_FREE struct drops *d = calloc(1, sizeof *d);
    assert_true(data && d);
    for (size_t i = 0; i < total; i++)
        data[i] = (uint8_t)splitmix64(&seed);
    for (unsigned alg = 0; hash_name(alg); alg++) {
        CLEANUP(free_hasher) struct hasher *h = make(hash_name(alg), (const uint8_t *)"0123456789abcdef", 16);
        *d = (struct drops){.seed = splitmix64(&seed), .h = h, .n = 200};
        for (size_t i = 0; i < d->n; i++) {
            /* Some are longer than what lanes do before they ask again. */
            size_t len = splitmix64(&seed) % (1U << (4 + splitmix64(&seed) % 15));
            if (splitmix64(&seed) % 8 == 0)
                len = 128 * (splitmix64(&seed) % 3);
            d->jobs[i] = (struct hash_job){.data = data + splitmix64(&seed) % (total - len), .len = len};
            memset(d->jobs[i].out, 0xee, sizeof d->jobs[i].out);
        }
        const struct hash_feed feed = {.next = next_drop, .done = drop_done, .arg = d};
        hasher_run(h, &feed);
        assert_int_equal(d->ended, d->n);
        assert_int_equal(d->most, hasher_lanes(h));
        d->n = d->given = d->ended = 0;
        hasher_run(h, &feed);
        assert_int_equal(d->ended, 0);
    }
}

/* BLAKE3 by its definition, recursive and without a thought of speed. */
static uint32_t rotate(uint32_t v, unsigned n)
{
    return v >> n | v << (32 - n);
}

static void plain_g(uint32_t *v, unsigned a, unsigned b, unsigned c, unsigned d, uint32_t x, uint32_t y)
{
    v[a] += v[b] + x;
    v[d] = rotate(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = rotate(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 7);
}

static void plain_compress(uint32_t cv[8], const uint8_t block[64], uint64_t counter, uint32_t len, uint32_t flags)
{
    static const uint32_t iv[4] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a};
    static const uint8_t permutation[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
    uint32_t m[16], v[16];
    for (unsigned i = 0; i < 16; i++)
        m[i] = get_le32(block + 4 * i);
    memcpy(v, cv, 32);
    memcpy(v + 8, iv, 16);
    v[12] = (uint32_t)counter;
    v[13] = (uint32_t)(counter >> 32);
    v[14] = len;
    v[15] = flags;
    for (unsigned round = 0; round < 7; round++) {
        for (unsigned i = 0; i < 4; i++)
            plain_g(v, i, 4 + i, 8 + i, 12 + i, m[2 * i], m[2 * i + 1]);
        for (unsigned i = 0; i < 4; i++)
            plain_g(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[8 + 2 * i], m[9 + 2 * i]);
        uint32_t old[16];
        memcpy(old, m, sizeof old);
        for (unsigned i = 0; i < 16; i++)
            m[i] = old[permutation[i]];
    }
    for (unsigned i = 0; i < 8; i++)
        cv[i] = v[i] ^ v[i + 8];
}

static void plain_subtree(const uint32_t key[8], const uint8_t *data, size_t len, uint64_t counter, uint32_t root,
                          uint32_t cv[8])
{
    enum { START = 1, END = 2, PARENT = 4, KEYED = 16 };
    uint8_t block[64];
    if (len > 1024) {
        /* The left child has the largest power of two of chunks that leaves a byte to the right. */
        size_t left = 1024;
        while (2 * left < len)
            left *= 2;
        uint32_t child[2][8];
        plain_subtree(key, data, left, counter, 0, child[0]);
        plain_subtree(key, data + left, len - left, counter + left / 1024, 0, child[1]);
        for (unsigned i = 0; i < 16; i++)
            put_le32(block + 4 * i, child[i / 8][i % 8]);
        memcpy(cv, key, 32);
        plain_compress(cv, block, 0, 64, KEYED | PARENT | root);
        return;
    }
    memcpy(cv, key, 32);
    size_t pos = 0;
    do {
        size_t n = len - pos < 64 ? len - pos : 64;
        memset(block, 0, sizeof block);
        memcpy(block, data + pos, n);
        uint32_t flags = KEYED | (pos == 0 ? START : 0U) | (pos + n == len ? END | root : 0U);
        plain_compress(cv, block, counter, (uint32_t)n, flags);
        pos += n;
    } while (pos < len);
}

/* Every number of chunks around the widths of kernels and of subtrees, with whole and broken last chunks: what the
 * plain tree makes of them is worked out once for all levels. */
static const char tree_secret[] = "0123456789abcdef0123456789abcdefand what is over 32 bytes is not used";
static struct tree {
    size_t pos, len;
    uint8_t want[HASH_MAX];
} trees[2000];
static size_t n_trees;
static uint8_t *tree_data;

static void work_out_trees(void)
{
    enum { ROOT = 8 };
    static const int around[] = {-1, 0, 1, 511};
    size_t len;
    uint32_t key[8], cv[8];
    tree_data = recipe_expand("prng:77:800001", &len);
    for (unsigned i = 0; i < 8; i++)
        key[i] = get_le32((const uint8_t *)tree_secret + 4 * i);
    for (size_t chunks = 0; chunks < 780; chunks += chunks < 70 || (chunks + 6) % 256 < 10 ? 1 : 6) {
        for (size_t k = 0; k < 4; k++) {
            if (chunks == 0 && around[k] < 0)
                continue;
            struct tree *t = &trees[n_trees++];
            t->pos = chunks % 7;
            t->len = chunks * 1024 + (size_t)around[k];
            plain_subtree(key, tree_data + t->pos, t->len, 0, ROOT, cv);
            for (unsigned i = 0; i < 8; i++)
                put_le32(t->want + 4 * i, cv[i]);
        }
    }
}

static void blake3_trees_of_every_shape(void **state)
{
    (void)state;
    assert_true(n_trees > 800);
    CLEANUP(free_hasher) struct hasher *h = make("BLAKE3-256", tree_secret, strlen(tree_secret));
    for (size_t i = 0; i < n_trees; i++) {
        uint8_t out[HASH_MAX];
        hasher_digest(h, tree_data + trees[i].pos, trees[i].len, out);
        assert_memory_equal(out, trees[i].want, sizeof out);
    }
}

/* A kernel against its scalar twin: any number of nodes, any alignment, counters that carry into the upper word. */
static void blake3_kernels_equal_their_twin(void **state)
{
    (void)state;
    enum { NODES = 40 };
    uint64_t seed = 5;
    const enum kernel_level level = kernel_level("BLAKE3", KERNEL_AVX512);
    const struct blake3_kernel *kernel = level == KERNEL_AVX512 ? &blake3_avx512
                                         : level == KERNEL_AVX2 ? &blake3_avx2
                                                                : &blake3_scalar;
    static const uint64_t counters[] = {0, 1, 0xfffffff8, 0xfffffffb, 0xffffffff, 0x100000000, UINT64_MAX / 2048 - 50};
    static const uint32_t flags[] = {0, BLAKE3_KEYED_HASH, BLAKE3_DERIVE_KEY_CONTEXT, BLAKE3_DERIVE_KEY_MATERIAL};
    uint8_t want[NODES * BLAKE3_OUT + 1], got[NODES * BLAKE3_OUT + 1];
    for (size_t n = 0; n <= NODES; n++) {
        for (size_t c = 0; c < sizeof counters / sizeof counters[0]; c++) {
            /* Exactly as large as it must be, so that a sanitizer sees a byte read past it. */
            size_t shift = splitmix64(&seed) % 33;
            CLEANUP_FREE uint8_t *mem = malloc(shift + n * BLAKE3_CHUNK + 1);
            assert_non_null(mem);
            uint8_t *data = mem + shift;
            for (size_t i = 0; i < n * BLAKE3_CHUNK; i++)
                data[i] = (uint8_t)splitmix64(&seed);
            uint32_t key[8], f = flags[splitmix64(&seed) % 4];
            for (unsigned i = 0; i < 8; i++)
                key[i] = (uint32_t)splitmix64(&seed);
            memset(want, 0x5a, sizeof want);
            memset(got, 0x5a, sizeof got);
            blake3_scalar.chunks(data, n, key, counters[c], f, want);
            kernel->chunks(data, n, key, counters[c], f, got);
            assert_memory_equal(got, want, sizeof got);
            blake3_scalar.parents(data, n, key, f, want);
            kernel->parents(data, n, key, f, got);
            assert_memory_equal(got, want, sizeof got);
            kernel->parents(data, n, key, f, data); /* in place, as the tree does it */
            assert_memory_equal(data, want, n * BLAKE3_OUT);
        }
    }
}

static void *digest_in_thread(void *arg)
{
    const struct hasher *h = arg;
    static const uint8_t data[5000];
    uint8_t *out = calloc(200, HASH_MAX);
    for (size_t i = 0; out && i < 200; i++)
        hasher_digest(h, data, 25 * i, out + i * HASH_MAX);
    return out;
}

static void one_hasher_serves_many_threads(void **state)
{
    (void)state;
    for (unsigned alg = 0; hash_name(alg); alg++) {
        CLEANUP(free_hasher) struct hasher *h = make(hash_name(alg), "secret", 6);
        enum { THREADS = 6 }; /* more than an HMAC hasher has contexts on a small machine */
        pthread_t t[THREADS];
        void *got[THREADS];
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&t[i], NULL, digest_in_thread, h), 0);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(t[i], &got[i]), 0);
        for (int i = 0; i < THREADS; i++) {
            assert_non_null(got[i]);
            assert_memory_equal(got[i], got[0], 200 * HASH_MAX);
        }
        for (int i = 0; i < THREADS; i++)
            free(got[i]);
    }
}

struct long_message {
    const struct hasher *h;
    const uint8_t *data;
    size_t len;
    uint8_t out[HASH_MAX];
};

static void *digest_long(void *arg)
{
    struct long_message *m = arg;
    for (int i = 0; i < 3; i++)
        hasher_digest(m->h, m->data, m->len, m->out);
    return NULL;
}

/* An HMAC hasher has a context for each CPU; who comes later waits for one. The messages are long enough for threads to
 * lose the CPU in the middle of one. */
static void more_threads_than_contexts_wait(void **state)
{
    (void)state;
    enum { THREADS_MAX = 80 };
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = cpus < 4 ? 16 : cpus > 64 ? THREADS_MAX : (size_t)cpus + 16;
    size_t len;
    CLEANUP_FREE uint8_t *data = recipe_expand("prng:3:2000000", &len);
    CLEANUP(free_hasher) struct hasher *h = make("HMAC-SHA3-256", "secret", 6);
    uint8_t want[HASH_MAX];
    hasher_digest(h, data, len, want);
    pthread_t t[THREADS_MAX];
    struct long_message m[THREADS_MAX];
    for (size_t i = 0; i < n; i++) {
        m[i] = (struct long_message){.h = h, .data = data, .len = len};
        assert_int_equal(pthread_create(&t[i], NULL, digest_long, &m[i]), 0);
    }
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    for (size_t i = 0; i < n; i++)
        assert_memory_equal(m[i].out, want, HASH_MAX);
}

static void the_kernel_is_the_one_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *hash, *var;
    } t[] = {{"BLAKE2B-256", "SNAPFERRY_KERNEL_BLAKE2B"}, {"BLAKE3-256", "SNAPFERRY_KERNEL_BLAKE3"}};
    for (size_t i = 0; i < 2; i++) {
        CLEANUP(free_hasher) struct hasher *h = make(t[i].hash, "k", 1);
        const char *want = getenv(t[i].var);
        assert_non_null(want);
        assert_string_equal(hasher_kernel(h), want);
    }
    CLEANUP(free_hasher) struct hasher *h = make("HMAC-SHA3-224", "k", 1);
    assert_string_equal(hasher_kernel(h), "openssl");
    assert_int_equal(hasher_lanes(h), 1);
    /* These have a kernel at the middle level alone. */
    const bool scalar = !strcmp(getenv("SNAPFERRY_KERNEL_BLAKE2S"), "scalar");
    CLEANUP(free_hasher) struct hasher *s = make("BLAKE2S-128", "k", 1);
    assert_string_equal(hasher_kernel(s), scalar ? "scalar" : "avx2");
    assert_int_equal(hasher_lanes(s), scalar ? 1 : 8);
    const bool pairs = kernel_level("SHA256", KERNEL_AVX2) == KERNEL_AVX2;
    CLEANUP(free_hasher) struct hasher *m = make("HMAC-SHA256-128", "k", 1);
    assert_string_equal(hasher_kernel(m), pairs ? "avx2" : "openssl");
    assert_int_equal(hasher_lanes(m), pairs ? 2 : 1);
    assert_true(!scalar || !pairs);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(unknown_names_are_refused),
        cmocka_unit_test(the_kernel_is_the_one_asked_for),
        cmocka_unit_test(tables_of_the_format_agree),
        cmocka_unit_test(digests_are_those_of_kopia),
        cmocka_unit_test(batches_equal_single_calls),
        cmocka_unit_test(a_feed_is_worked_off),
        cmocka_unit_test(blake3_trees_of_every_shape),
        cmocka_unit_test(blake3_kernels_equal_their_twin),
        cmocka_unit_test(one_hasher_serves_many_threads),
        cmocka_unit_test(more_threads_than_contexts_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    const char *const kernels[] = {"BLAKE2B", "BLAKE2S", "BLAKE3", "SHA256", NULL};
    work_out_trees();
    int rc = run_at_every_level(kernels, run);
    free(tree_data);
    return rc;
}
