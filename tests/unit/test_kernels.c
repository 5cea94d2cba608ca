/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_kernels.c - every SIMD kernel against its scalar twin, called directly and so without regard to the environment
 *
 * Small enough to be run by an emulator of a CPU (tests/emulated/run.sh), where AVX-512 is not at hand.
 */
#include "tests/unit/test.h"

#include "chunker/blake2b.h"
#include "chunker/blake2s.h"
#include "chunker/blake3.h"
#include "chunker/hmac.h"
#include "chunker/kernel.h"
#include "chunker/rolling.h"
#include "chunker/sha256.h"
#include "chunker/splitter.h"

#include <sys/wait.h>
#include <unistd.h>

/* The kernels of a level. */
struct level {
    enum kernel_level level;
    rolling_scan_fn *buzhash;
    blake2b_lanes_fn *blake2b;
    unsigned lanes; /* of blake2b */
    const struct blake3_kernel *blake3;
};

static struct level avx2 = {KERNEL_AVX2, buzhash_scan_avx2, blake2b_lanes_avx2, 4, &blake3_avx2};
static struct level avx512 = {KERNEL_AVX512, buzhash_scan_avx512, blake2b_lanes_avx512, 8, &blake3_avx512};

static const struct level *level_or_skip(void **state)
{
    const struct level *l = *state;
    if (l->level > kernel_cpu_level()) {
        print_message("# skip: this CPU (or system) has no %s, it is at level %s\n", kernel_level_name(l->level),
                      kernel_level_name(kernel_cpu_level()));
        skip();
    }
    return l;
}

static void fill(uint8_t *p, size_t len, uint64_t *seed)
{
    for (size_t i = 0; i < len; i += 8) {
        uint64_t r = splitmix64(seed);
        memcpy(p + i, &r, len - i < 8 ? len - i : 8);
    }
}

/* A buffer that ends with its data, so that a sanitizer sees a byte read past it; it begins anywhere. */
struct exact {
    uint8_t *mem, *data;
};

static struct exact exact_new(size_t len, uint64_t *seed)
{
    size_t shift = splitmix64(seed) % 64;
    struct exact x = {.mem = malloc(shift + len + (shift + len == 0))};
    assert_non_null(x.mem);
    x.data = x.mem + shift;
    fill(x.data, len, seed);
    return x;
}

/* ---- buzhash ---- */

static void same_scan(const struct level *l, const uint8_t *data, size_t from, size_t to, uint32_t mask)
{
    size_t want = buzhash_scan_scalar(data, from, to, mask), got = l->buzhash(data, from, to, mask);
    if (got != want)
        fail_msg("from %zu to %zu under mask %x: %zu, not %zu", from, to, mask, got, want);
}

/* Masks of few bits and of many, not only the lowest ones: each bit of the hash counts. */
static uint32_t any_mask(uint64_t *seed)
{
    uint64_t r = splitmix64(seed);
    uint32_t low = (uint32_t)((UINT64_C(1) << (r >> 8) % 33) - 1);
    switch (r % 4) {
    case 0:
        return low;
    case 1:
        return low << (r >> 16) % 32;
    case 2:
        return UINT32_C(1) << (r >> 24) % 32;
    default:
        return (uint32_t)splitmix64(seed) & (uint32_t)splitmix64(seed);
    }
}

static void buzhash_of_any_range(void **state)
{
    const struct level *l = level_or_skip(state);
    uint64_t seed = 11;
    for (int round = 0; round < 3000; round++) {
        size_t from = 64 + splitmix64(&seed) % 100, to = from + splitmix64(&seed) % (round % 8 ? 1500 : 20000);
        struct exact x = exact_new(to, &seed);
        same_scan(l, x.data, from, to, any_mask(&seed));
        /* From one hit to the next, as the splitter goes. */
        uint32_t mask = 0x3ff << splitmix64(&seed) % 22;
        for (size_t at = from, hit; (hit = buzhash_scan_scalar(x.data, at, to, mask)) != 0; at = hit + 1)
            same_scan(l, x.data, at, to, mask);
        free(x.mem);
    }
    uint8_t none[64] = {0};
    assert_int_equal(l->buzhash(none, 65, 64, 0), 0);
    assert_int_equal(l->buzhash(none, 64, 64, 0xffffffff), 64);
}

/* Every length, and in it the only hit at every place: a window of zeros. */
static void buzhash_of_every_place(void **state)
{
    const struct level *l = level_or_skip(state);
    uint64_t seed = 12;
    enum { LEN = 64 + 1100 };
    uint8_t data[LEN];
    for (size_t hit = 64; hit <= LEN; hit++) {
        fill(data, LEN, &seed);
        for (size_t i = 0; i < LEN; i++)
            data[i] |= 1;
        memset(data + hit - 64, (int)(splitmix64(&seed) & 0xfe), 64); /* all other bytes are odd */
        assert_int_equal(l->buzhash(data, 64, LEN, 0xffffffff), hit);
        assert_int_equal(l->buzhash(data, hit, hit + (LEN - hit) / 2, 0xffffffff), hit);
        assert_int_equal(l->buzhash(data, 64, hit - 1, 0xffffffff), 0);
        if (hit < LEN)
            assert_int_equal(l->buzhash(data, hit + 1, LEN, 0xffffffff), 0);
    }
}

/* Each byte value in each place of a window, so each entry of the table under each rotation. */
static void buzhash_of_every_byte(void **state)
{
    const struct level *l = level_or_skip(state);
    uint64_t seed = 13;
    enum { LEN = 64 + 2048 };
    uint8_t data[LEN];
    for (unsigned value = 0; value < 256; value++) {
        memset(data, (int)(value ^ 0x55), LEN);
        for (size_t i = 64 + value % 16; i < LEN; i += 65)
            data[i] = (uint8_t)value;
        for (unsigned bit = 0; bit < 32; bit++)
            for (size_t from = 64 + splitmix64(&seed) % 64; from < LEN; from += 1 + splitmix64(&seed) % 900)
                same_scan(l, data, from, LEN, UINT32_C(1) << bit);
        fill(data, LEN, &seed);
        same_scan(l, data, 64 + value, LEN, 0xfff);
    }
}

/* ---- BLAKE2b ---- */

struct batch {
    struct hash_job *jobs;
    size_t n, next;
};

static struct hash_job *next_job(void *arg, unsigned active)
{
    (void)active;
    struct batch *b = arg;
    return b->next < b->n ? &b->jobs[b->next++] : NULL;
}

static void job_done(void *arg, struct hash_job *job)
{
    (void)arg;
    (void)job;
}

/* Messages of any lengths: ends of blocks among them, from `around` behind one on; in each fiftieth round some that are
 * longer than what a lane does before it asks for company. */
struct messages {
    struct hash_job jobs[40];
    struct exact mem[40];
    struct batch batch;
    struct hash_feed feed;
    size_t n;
};

static void messages_make(struct messages *m, int round, size_t block, size_t around, uint64_t *seed)
{
    m->n = (size_t)round % 41;
    for (size_t i = 0; i < m->n; i++) {
        size_t len = splitmix64(seed) % (1U << splitmix64(seed) % 13);
        if (splitmix64(seed) % 4 == 0)
            len = block * (splitmix64(seed) % 9) + around + splitmix64(seed) % 14;
        if (round % 50 == 49 && i % 9 == 0)
            len = 200000 + splitmix64(seed) % 300000;
        m->mem[i] = exact_new(len, seed);
        m->jobs[i] = (struct hash_job){.data = len ? m->mem[i].data : NULL, .len = len};
    }
    m->batch = (struct batch){.jobs = m->jobs, .n = m->n};
    m->feed = (struct hash_feed){.next = next_job, .done = job_done, .arg = &m->batch};
}

static void messages_free(struct messages *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->mem[i].mem);
}

static void blake2b_of_any_batch(void **state)
{
    const struct level *l = level_or_skip(state);
    uint64_t seed = 21;
    for (int round = 0; round < 250; round++) {
        uint8_t key[BLAKE2B_KEY_MAX];
        fill(key, sizeof key, &seed);
        struct blake2b_key k;
        blake2b_key_init(&k, key, (size_t)round % (BLAKE2B_KEY_MAX + 1));
        struct messages m;
        messages_make(&m, round, BLAKE2B_BLOCK, 0, &seed);
        blake2b_run(&k, &m.feed, BLAKE2B_DIGEST, l->blake2b, l->lanes);
        for (size_t i = 0; i < m.n; i++) {
            uint8_t want[BLAKE2B_DIGEST];
            blake2b_digest(&k, m.jobs[i].data, m.jobs[i].len, want);
            assert_memory_equal(m.jobs[i].out, want, sizeof want);
        }
        messages_free(&m);
    }
}

/* Lanes in any state, with counters as of messages that nobody has the time for: whole blocks, then a last one. */
static void blake2b_of_any_state(void **state)
{
    const struct level *l = level_or_skip(state);
    uint64_t seed = 22;
    for (int round = 0; round < 100; round++) {
        struct blake2b_lanes lanes = {0};
        struct blake2b_key begin[BLAKE2B_LANES_MAX];
        struct exact mem[BLAKE2B_LANES_MAX];
        uint64_t step[BLAKE2B_LANES_MAX];
        size_t blocks = 1 + splitmix64(&seed) % 5;
        for (unsigned i = 0; i < l->lanes; i++) {
            step[i] = BLAKE2B_BLOCK;
            mem[i] = exact_new((blocks + 1) * BLAKE2B_BLOCK, &seed);
            lanes.block[i] = mem[i].data;
            begin[i].count = lanes.count[i] = splitmix64(&seed) >> splitmix64(&seed) % 40;
            for (unsigned w = 0; w < 8; w++)
                begin[i].h[w] = lanes.h[w][i] = splitmix64(&seed);
        }
        l->blake2b(&lanes, blocks, step);
        for (unsigned i = 0; i < l->lanes; i++) {
            assert_ptr_equal(lanes.block[i], mem[i].data + blocks * BLAKE2B_BLOCK);
            assert_true(lanes.count[i] == begin[i].count + blocks * BLAKE2B_BLOCK);
            step[i] = 1 + splitmix64(&seed) % BLAKE2B_BLOCK;
            memset(mem[i].data + blocks * BLAKE2B_BLOCK + step[i], 0, BLAKE2B_BLOCK - step[i]);
            lanes.last[i] = ~UINT64_C(0);
        }
        l->blake2b(&lanes, 1, step);
        for (unsigned i = 0; i < l->lanes; i++) {
            uint8_t want[BLAKE2B_DIGEST];
            blake2b_digest(&begin[i], mem[i].data, blocks * BLAKE2B_BLOCK + step[i], want);
            for (unsigned w = 0; w < 4; w++)
                assert_true(lanes.h[w][i] == get_le64(want + 8 * w));
            free(mem[i].mem);
        }
    }
}

/* ---- BLAKE2s ---- */

/* Batches of any lengths under any key and either digest, and long ones beside short ones. */
static void blake2s_of_any_batch(void **state)
{
    level_or_skip(state);
    uint64_t seed = 23;
    for (int round = 0; round < 250; round++) {
        uint8_t key[BLAKE2S_KEY_MAX];
        fill(key, sizeof key, &seed);
        struct blake2s_key k;
        const size_t size = round % 2 ? 32 : 16;
        blake2s_key_init(&k, size, key, (size_t)round % (BLAKE2S_KEY_MAX + 1));
        struct messages m;
        messages_make(&m, round, BLAKE2S_BLOCK, 0, &seed);
        blake2s_run(&k, &m.feed, blake2s_lanes_avx2, BLAKE2S_LANES_MAX);
        for (size_t i = 0; i < m.n; i++) {
            uint8_t want[BLAKE2S_DIGEST_MAX];
            blake2s_digest(&k, m.jobs[i].data, m.jobs[i].len, want);
            assert_memory_equal(m.jobs[i].out, want, size);
        }
        messages_free(&m);
    }
}

/* Lanes in any state, with counters up to where a lane may count: whole blocks, then a last one. */
static void blake2s_of_any_state(void **state)
{
    level_or_skip(state);
    uint64_t seed = 24;
    for (int round = 0; round < 100; round++) {
        struct blake2s_lanes lanes = {0};
        struct blake2s_key begin[BLAKE2S_LANES_MAX];
        struct exact mem[BLAKE2S_LANES_MAX];
        uint32_t step[BLAKE2S_LANES_MAX];
        size_t blocks = 1 + splitmix64(&seed) % 5;
        for (unsigned i = 0; i < BLAKE2S_LANES_MAX; i++) {
            step[i] = BLAKE2S_BLOCK;
            mem[i] = exact_new((blocks + 1) * BLAKE2S_BLOCK, &seed);
            lanes.block[i] = mem[i].data;
            lanes.count[i] = (uint32_t)(splitmix64(&seed) >> 32 >> splitmix64(&seed) % 20) % (UINT32_MAX - 400);
            begin[i] = (struct blake2s_key){.count = lanes.count[i], .digest_len = 32};
            for (unsigned w = 0; w < 8; w++)
                begin[i].h[w] = lanes.h[w][i] = (uint32_t)splitmix64(&seed);
        }
        blake2s_lanes_avx2(&lanes, blocks, step);
        for (unsigned i = 0; i < BLAKE2S_LANES_MAX; i++) {
            assert_ptr_equal(lanes.block[i], mem[i].data + blocks * BLAKE2S_BLOCK);
            assert_true(lanes.count[i] == begin[i].count + blocks * BLAKE2S_BLOCK);
            step[i] = (uint32_t)(1 + splitmix64(&seed) % BLAKE2S_BLOCK);
            memset(mem[i].data + blocks * BLAKE2S_BLOCK + step[i], 0, BLAKE2S_BLOCK - step[i]);
            lanes.last[i] = ~UINT32_C(0);
        }
        blake2s_lanes_avx2(&lanes, 1, step);
        for (unsigned i = 0; i < BLAKE2S_LANES_MAX; i++) {
            uint8_t want[BLAKE2S_DIGEST_MAX];
            blake2s_digest(&begin[i], mem[i].data, blocks * BLAKE2S_BLOCK + step[i], want);
            for (unsigned w = 0; w < 8; w++)
                assert_true(lanes.h[w][i] == get_le32(want + 4 * w));
            free(mem[i].mem);
        }
    }
}

/* ---- BLAKE3 ---- */

/* Any number of nodes, any alignment, counters that carry into the upper word, and in place, as the tree does it. */
static void blake3_of_any_nodes(void **state)
{
    const struct level *l = level_or_skip(state);
    enum { NODES = 52 };
    uint64_t seed = 31;
    static const uint64_t counters[] = {0, 0xfffffff0, 0xfffffffb, 0x100000000, UINT64_MAX / 2048 - 60};
    static const uint32_t flags[] = {0, BLAKE3_KEYED_HASH, BLAKE3_DERIVE_KEY_CONTEXT, BLAKE3_DERIVE_KEY_MATERIAL};
    uint8_t want[NODES * BLAKE3_OUT + 1], got[NODES * BLAKE3_OUT + 1];
    for (size_t n = 0; n <= NODES; n++) {
        for (size_t c = 0; c < sizeof counters / sizeof counters[0]; c++) {
            struct exact x = exact_new(n * BLAKE3_CHUNK, &seed);
            uint32_t key[8], f = flags[splitmix64(&seed) % 4];
            fill((uint8_t *)key, sizeof key, &seed);
            memset(want, 0x5a, sizeof want);
            memset(got, 0x5a, sizeof got);
            blake3_scalar.chunks(x.data, n, key, counters[c], f, want);
            l->blake3->chunks(x.data, n, key, counters[c], f, got);
            assert_memory_equal(got, want, sizeof got);
            free(x.mem);

            x = exact_new(n * BLAKE3_BLOCK, &seed);
            blake3_scalar.parents(x.data, n, key, f, want);
            l->blake3->parents(x.data, n, key, f, got);
            assert_memory_equal(got, want, sizeof got);
            l->blake3->parents(x.data, n, key, f, x.data);
            assert_memory_equal(x.data, want, n * BLAKE3_OUT);
            free(x.mem);
        }
    }
}

static void blake3_of_any_length(void **state)
{
    const struct level *l = level_or_skip(state);
    uint64_t seed = 32;
    for (size_t chunks = 0; chunks < 600; chunks += chunks < 70 ? 1 : 1 + splitmix64(&seed) % 60) {
        size_t len = chunks * BLAKE3_CHUNK + splitmix64(&seed) % 3 * (splitmix64(&seed) % BLAKE3_CHUNK);
        struct exact x = exact_new(len, &seed);
        uint32_t key[8];
        fill((uint8_t *)key, sizeof key, &seed);
        uint8_t want[BLAKE3_OUT], got[BLAKE3_OUT];
        blake3_digest(&blake3_scalar, key, BLAKE3_KEYED_HASH, x.data, len, want);
        blake3_digest(l->blake3, key, BLAKE3_KEYED_HASH, x.data, len, got);
        assert_memory_equal(got, want, sizeof got);
        free(x.mem);
    }
}

/* ---- SHA-256 ---- */

/* Both digests, keys of any length, batches of any lengths, ends of blocks among them, against OpenSSL; one by one too.
 */
static void hmac_sha256_of_any_batch(void **state)
{
    (void)state;
    uint64_t seed = 41;
    unsetenv("SNAPFERRY_KERNEL_SHA256");
    if (kernel_level("SHA256", KERNEL_AVX2) != KERNEL_AVX2) {
        print_message("# skip: this CPU has no SHA extensions\n");
        skip();
    }
    for (int round = 0; round < 300; round++) {
        const size_t size = round % 2 ? SHA256_DIGEST : SHA224_DIGEST;
        struct exact key = exact_new((size_t)round % 150, &seed);
        struct err e = ERR_INIT;
        struct hmac *plain;
        struct hmac_sha256 k;
        assert_ok(hmac_new(&plain, size == SHA256_DIGEST ? "SHA2-256" : "SHA2-224", key.data, (size_t)round % 150, &e),
                  &e);
        hmac_sha256_init(&k, size, key.data, (size_t)round % 150);
        struct messages m;
        messages_make(&m, round, SHA256_BLOCK, 52, &seed); /* one block of padding or two */
        hmac_sha256_run(&k, &m.feed, size);
        for (size_t i = 0; i < m.n; i++) {
            uint8_t want[SHA256_DIGEST], got[SHA256_DIGEST];
            hmac_digest(plain, m.mem[i].data, m.jobs[i].len, want, size);
            hmac_sha256_digest(&k, m.jobs[i].data, m.jobs[i].len, got, size);
            assert_memory_equal(m.jobs[i].out, want, size);
            assert_memory_equal(got, want, size);
        }
        messages_free(&m);
        hmac_free(plain);
        free(key.mem);
    }
}

/* Two states that differ, any number of blocks, any alignment: each as if it were alone. */
static void sha256_pairs_are_two(void **state)
{
    (void)state;
    uint64_t seed = 42;
    unsetenv("SNAPFERRY_KERNEL_SHA256");
    if (kernel_level("SHA256", KERNEL_AVX2) != KERNEL_AVX2) {
        print_message("# skip: this CPU has no SHA extensions\n");
        skip();
    }
    for (size_t blocks = 0; blocks < 40; blocks++) {
        struct exact x = exact_new(blocks * SHA256_BLOCK, &seed), y = exact_new(blocks * SHA256_BLOCK, &seed);
        uint32_t h[4][8];
        fill((uint8_t *)h, 2 * sizeof h[0], &seed);
        memcpy(h[2], h[0], 2 * sizeof h[0]);
        sha256_blocks_avx2(h[0], x.data, blocks);
        sha256_blocks_avx2(h[1], y.data, blocks);
        sha256_pairs_avx2(h[2], x.data, h[3], y.data, blocks);
        assert_memory_equal(h[2], h[0], 2 * sizeof h[0]);
        free(x.mem);
        free(y.mem);
    }
}

/* ---- what programs get ---- */

static void ask_for(const char *kernel, enum kernel_level level)
{
    char var[64];
    snprintf(var, sizeof var, "SNAPFERRY_KERNEL_%s", kernel);
    setenv(var, kernel_level_name(level), 1);
}

static struct hasher *hasher_at(const char *name, enum kernel_level level)
{
    struct err e = ERR_INIT;
    struct hasher *h = NULL;
    ask_for("BLAKE2B", level);
    ask_for("BLAKE3", level);
    assert_ok(kernels_check(&e), &e);
    assert_ok(hasher_new(&h, name, (const uint8_t *)"secret", 6, &e), &e);
    assert_string_equal(hasher_kernel(h), kernel_level_name(level));
    return h;
}

static void hashers_of_the_level(void **state)
{
    const struct level *l = level_or_skip(state);
    static const char *const names[] = {"BLAKE2B-256-128", "BLAKE2B-256", "BLAKE3-256", "BLAKE3-256-128"};
    uint64_t seed = 41;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct hasher *h = hasher_at(names[k], l->level), *plain = hasher_at(names[k], KERNEL_SCALAR);
        assert_int_equal(hasher_lanes(h), k < 2 ? l->lanes : 1);
        struct hash_job jobs[30];
        struct exact mem[30];
        for (size_t i = 0; i < 30; i++) {
            size_t len = splitmix64(&seed) % (i % 5 ? 3000 : 40000);
            mem[i] = exact_new(len, &seed);
            jobs[i] = (struct hash_job){.data = mem[i].data, .len = len};
        }
        hasher_digest_many(h, jobs, 30);
        for (size_t i = 0; i < 30; i++) {
            uint8_t want[HASH_MAX] = {0};
            hasher_digest(plain, jobs[i].data, jobs[i].len, want);
            assert_memory_equal(jobs[i].out, want, sizeof want);
            free(mem[i].mem);
        }
        hasher_free(h);
        hasher_free(plain);
    }
    unsetenv("SNAPFERRY_KERNEL_BLAKE2B");
    unsetenv("SNAPFERRY_KERNEL_BLAKE3");
}

/* The splitters choose once in a process, hence one for each level. Returns its exit status. */
static int split_at(const struct level *l)
{
    enum { LEN = 1 << 20 };
    uint64_t seed = 42;
    struct splitter s;
    struct exact x = exact_new(LEN, &seed);
    ask_for("BUZHASH", l->level);
    if (splitter_by_name(&s, "DYNAMIC-128K-BUZHASH") < 0 ||
        strcmp(splitter_kernel(SPLITTER_BUZHASH), kernel_level_name(l->level)) != 0)
        return 1;
    memset(x.data + LEN / 2, 0, LEN / 4);
    for (size_t pos = 0;;) {
        size_t rest = LEN - pos, cut = splitter_cut(&s, x.data + pos, rest, 0), want = 0;
        if (rest >= s.min)
            want = buzhash_scan_scalar(x.data + pos, s.min, rest < s.max ? rest : s.max - 1, s.mask);
        if (!want && rest >= s.max)
            want = s.max;
        if (cut != want)
            return 2;
        if (!cut)
            break;
        pos += cut;
    }
    free(x.mem);
    return 0;
}

static void splitters_of_the_level(void **state)
{
    const struct level *l = level_or_skip(state);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(split_at(l));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define AT(test, of_level)                                                                                             \
    {                                                                                                                  \
        .name = #test "_at_" #of_level, .test_func = test, .initial_state = &of_level                                  \
    }
#define AT_BOTH(test) AT(test, avx2), AT(test, avx512)

int main(void)
{
    const struct CMUnitTest tests[] = {
        AT_BOTH(buzhash_of_any_range),
        AT_BOTH(buzhash_of_every_place),
        AT_BOTH(buzhash_of_every_byte),
        AT_BOTH(blake2b_of_any_batch),
        AT_BOTH(blake2b_of_any_state),
        AT_BOTH(blake3_of_any_nodes),
        AT_BOTH(blake3_of_any_length),
        AT_BOTH(hashers_of_the_level),
        AT_BOTH(splitters_of_the_level),
        cmocka_unit_test_prestate(blake2s_of_any_batch, &avx2),
        cmocka_unit_test_prestate(blake2s_of_any_state, &avx2),
        cmocka_unit_test(hmac_sha256_of_any_batch),
        cmocka_unit_test(sha256_pairs_are_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
