/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_backup.c - volumes into a repository: the parts of every image are those of a naive cut, whatever its shape and
 * whatever the parent. */
#include "tests/unit/backup.h"

static void every_size_is_cut_right(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("sizes", NULL);
    struct splitter s;
    static const char *const names[] = {SMALL, "FIXED-128K", "DYNAMIC-128K-RABINKARP"};
    for (size_t k = 0; k < 3; k++) {
        assert_int_equal(splitter_by_name(&s, names[k]), 0);
        const size_t sizes[] = {0,         1,         511,           512,           s.min - 1,  s.min,
                                s.min + 1, s.max - 1, s.max,         s.max + 1,     10 * s.min, 10 * s.min + 1,
                                7 * s.max, MIB,       3 * MIB + 777, 5 * MIB - 4096};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            struct backup_opts o = opts_for(names[k]);
            o.splitter = names[k];
            o.limits.memory = MEMORY_MIN;
            struct image random = {calloc(1, sizes[i] + 1), sizes[i]};
            assert_non_null(random.p);
            struct backup_result ret = check_image(r, &random, &o, true); /* one hole */
            assert_true(ret.zero_chunks + 2 >= ret.chunks);
            fill_random(random.p, random.len, i + 1);
            o.section = i % 2 ? 1 * MIB : 0; /* some have an empty last section */
            check_image(r, &random, &o, false);
            free(random.p);
        }
    }
}

static void shapes_and_sections(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("shapes", NULL);
    static const uint64_t sections[] = {0, 1u << 20, 777777, 64u << 10, 100000, UINT64_MAX, 3u << 20, 5000};
    static const char *const names[] = {SMALL, "FIXED-256K", "DYNAMIC-256K-RABINKARP", "FIXED-128K"};
    unsigned rounds = SANITIZED ? 6 : 24;
    for (unsigned i = 0; i < rounds; i++) {
        struct image m = mixed_image(6 * MIB + i * 12345, 1000 + i);
        struct backup_opts o = opts_for("shapes");
        o.section = sections[i % 8];
        o.splitter = names[i / 2 % 4];
        o.limits.workers = 1 + i % 3;
        o.no_uring = i % 5 == 0;
        struct mover_progress g = {0};
        o.progress = &g;
        struct backup_result ret = check_image(r, &m, &o, i % 3 != 0);
        assert_int_equal(g.total, m.len);
        assert_int_equal(g.done, m.len);
        assert_int_equal(g.skipped, ret.hole_bytes);
        assert_int_equal(g.zero, ret.zero_bytes);
        assert_int_equal(g.duplicate + g.fresh + g.zero + g.skipped, m.len);
        assert_int_equal(g.read, ret.read_bytes);
        assert_int_equal(g.phase, PHASE_DONE);
        free(m.p);
    }
}

/* Long holes, with data at odd places: holes longer than the reader's windows, section joins inside them. */
static void holes_between_data(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("holes", NULL);
    uint64_t seed = 77;
    for (unsigned i = 0; i < (SANITIZED ? 2u : 6u); i++) {
        struct image m = {calloc(1, 48 * MIB + 4097 * i), 48 * MIB + 4097 * i};
        assert_non_null(m.p);
        for (unsigned k = 0; k < 9; k++) {
            size_t at = splitmix64(&seed) % (m.len - MIB), n = splitmix64(&seed) % (300 * KIB) + 1;
            fill_random(m.p + at, n, splitmix64(&seed));
        }
        struct backup_opts o = opts_for("holes");
        static const uint64_t sections[] = {0, 5000000, 1u << 20};
        o.section = sections[i % 3];
        struct backup_result ret = check_image(r, &m, &o, true);
        assert_true(ret.hole_bytes > 20 * MIB);
        assert_true(ret.read_bytes < 12 * MIB);
        free(m.p);
    }
}

/* The same secret: other repositories make the same ids. Splitters of the default's size work in the least memory. */
static void default_splitter(void **state)
{
    (void)state;
    struct format_create c = {.splitter = "DYNAMIC-4M-BUZHASH"};
    struct repo *CLEANUP(repo_freep) r = new_repo("default", &c);
    struct image m = mixed_image((SANITIZED ? 24 : 90) * MIB + 4321, 5);
    fill_random(m.p + MIB, 20 * MIB, 6);
    struct backup_opts o = opts_for("default");
    o.limits.memory = MEMORY_MIN;
    o.compression = 0x1101;
    struct backup_result a = check_image(r, &m, &o, true);
    fill_random(m.p + 9 * MIB, 100, 8);
    struct backup_result b = check_image(r, &m, &o, true);
    assert_false(object_id_equal(&a.image, &b.image));
    assert_true(b.hinted_chunks > 0);
    assert_true(b.new_bytes <= 16 * MIB);
    struct repo *CLEANUP(repo_freep) fresh = new_repo("default2", &c);
    struct backup_result again = check_image(fresh, &m, &o, false);
    assert_true(object_id_equal(&b.image, &again.image));
    free(m.p);
}

/* Every other hash, cipher, format version. */
static void variations(void **state)
{
    (void)state;
    static const struct format_create list[] = {
        {.version = 1, .hash = "BLAKE3-256"},
        {.version = 2, .hash = "HMAC-SHA256", .encryption = "CHACHA20-POLY1305-HMAC-SHA256", .ecc_percent = 5},
        {.version = 3, .hash = "BLAKE2S-256", .splitter = "FIXED-128K"},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "var%zu", i);
        struct repo *CLEANUP(repo_freep) r = new_repo(name, &list[i]);
        struct image m = mixed_image(4 * MIB + 17, 50 + i);
        struct backup_opts o = opts_for("v");
        o.compression = 0x1101;
        check_image(r, &m, &o, true);
        struct backup_result second = check_image(r, &m, &o, true);
        assert_int_equal(second.new_bytes, 0);
        free(m.p);
    }
}

/* ---- parents ---- */

/* Changes an image as volumes and files change. */
static void mutate(struct image *m, uint64_t *seed)
{
    unsigned n = (unsigned)(splitmix64(seed) % 4);
    for (unsigned i = 0; i <= n; i++) {
        size_t at = m->len ? splitmix64(seed) % m->len : 0, left = m->len - at;
        size_t len = splitmix64(seed) % (splitmix64(seed) % 3 ? 5000 : 700000);
        len = len < left ? len : left;
        switch (splitmix64(seed) % 8) {
        case 0:
        case 1: /* overwrite */
            fill_random(m->p + at, len, splitmix64(seed));
            break;
        case 2: /* zeros */
            memset(m->p + at, 0, len);
            break;
        case 3: /* delete: all behind moves */
            memmove(m->p + at, m->p + at + len, left - len);
            m->len -= len;
            break;
        case 4: /* insert, dropping what goes over the end */
            memmove(m->p + at + len, m->p + at, left - len);
            fill_random(m->p + at, len, splitmix64(seed));
            break;
        case 5: /* copy another range here */
            len = len < m->len - len ? len : 0;
            memmove(m->p + at, m->p + splitmix64(seed) % (m->len - len + 1), len);
            break;
        case 6: { /* grow: zeros or data */
            uint8_t *p = realloc(m->p, m->len + len + 1);
            assert_non_null(p);
            m->p = p;
            memset(p + m->len, 0, len);
            if (splitmix64(seed) % 2)
                fill_random(p + m->len, len, splitmix64(seed));
            m->len += len;
            break;
        }
        default: /* shrink */
            m->len -= len / 2;
        }
    }
}

static void parents_change_nothing_but_the_time(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("property", NULL);
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    const char *env = getenv("SNAPFERRY_TEST_SECONDS");
    const long limit = env ? atol(env) : 10;
    static const uint64_t sections[] = {0, 1u << 20, 999999, 0, 2u << 20};
    static const char *const names[] = {SMALL, "DYNAMIC-128K-RABINKARP", SMALL, "FIXED-128K"};
    uint64_t hinted = 0, rounds = 0;
    unsigned s = 0;
    do {
        uint64_t seed = 31 * s + 7;
        struct image m = mixed_image(splitmix64(&seed) % (4 * MIB) + 1, seed);
        char volume[32];
        snprintf(volume, sizeof volume, "p%u", s);
        struct backup_opts o = opts_for(volume);
        o.section = sections[s % 5];
        o.splitter = names[s % 4];
        o.limits.workers = 1 + s % 3;
        check_image(r, &m, &o, s % 2);
        for (unsigned k = 0; k < 3; k++) {
            mutate(&m, &seed);
            struct backup_opts scan = opts_for("scan"), alone = opts_for("alone");
            scan.section = alone.section = o.section;
            scan.splitter = alone.splitter = o.splitter;
            scan.full_scan = true;
            alone.no_parent = true;
            struct backup_result a = check_image(r, &m, &o, s % 3);
            struct backup_result b = check_image(r, &m, k % 2 ? &scan : &alone, s % 2);
            assert_string_not_equal(a.parent_id, "");
            assert_true(object_id_equal(&a.image, &b.image));
            assert_int_equal(b.hinted_chunks, 0);
            assert_int_equal(b.new_bytes, 0);
            hinted += a.hinted_chunks;
            rounds++;
        }
        free(m.p);
        s++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - began.tv_sec < limit);
    print_message("%u volumes, %llu backups with a parent, %llu chunks by hint\n", s, (unsigned long long)rounds,
                  (unsigned long long)hinted);
    assert_true(hinted > rounds);
}

/* The longest chunks there are in the least memory that holds them: the ring has hardly room for two, and guesses that
 * fail have to be cut anew in it. */
static void a_ring_of_two_chunks_is_enough(void **state)
{
    (void)state;
    /* Error correction needs each sealed content whole, twice. */
    struct format_create c = {.version = 2, .splitter = "DYNAMIC-8M-BUZHASH", .ecc_percent = 1};
    struct repo *CLEANUP(repo_freep) r = new_repo("tight", &c);
    struct backup_opts o = opts_for("tight"), scan = opts_for("tight-scan");
    struct image m = {malloc(96 * MIB), 96 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 8);
    memset(m.p + 50 * MIB, 0, 21 * MIB);
    write_image(path_of("tight.img"), &m, true);
    struct err e = ERR_INIT;
    struct backup_result ret;
    unsigned enough = 0;
    o.limits.memory = MEMORY_MIN;
    o.compression = 0x1101;
    assert_int_equal(try_backup(r, path_of("tight.img"), &o, &ret, &e), -ENOMEM);
    assert_int_equal(sscanf(e.hint, "use --memory %uMiB", &enough), 1);
    o.limits.memory = scan.limits.memory = (uint64_t)enough << 20;
    scan.full_scan = true;
    uint64_t seed = 3;
    check_image(r, &m, &o, true);
    for (unsigned i = 0; i < (SANITIZED ? 1u : 3u); i++) {
        size_t at = splitmix64(&seed) % (m.len / 2), n = splitmix64(&seed) % MIB;
        memmove(m.p + at + n, m.p + at, m.len - at - n); /* all behind moves: the next guesses are wrong */
        fill_random(m.p + at, n, splitmix64(&seed));
        mutate(&m, &seed);
        struct backup_result a = check_image(r, &m, &o, true), b = check_image(r, &m, &scan, i % 2);
        assert_true(object_id_equal(&a.image, &b.image));
    }
    print_message("%u MiB were enough\n", enough);
    free(m.p);
}

/* Nothing changed: every chunk that is not zeros is proven by the parent's id, none is searched for. */
static void an_unchanged_volume_is_not_scanned(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("unchanged", NULL);
    struct image m = mixed_image(20 * MIB + 99, 12);
    struct backup_opts o = opts_for("unchanged");
    struct backup_result a = check_image(r, &m, &o, true), b = check_image(r, &m, &o, true);
    assert_true(object_id_equal(&a.image, &b.image));
    assert_string_equal(b.parent_id, a.manifest_id);
    assert_int_equal(b.new_chunks, 0);
    assert_int_equal(b.hinted_chunks, b.duplicate_chunks);
    for (unsigned i = 0; i < b.n_stages; i++) {
        if (strcmp(b.stages[i].name, "split") == 0)
            assert_int_equal(b.stages[i].bytes, 0);
        if (strcmp(b.stages[i].name, "hash") == 0)
            assert_true(b.stages[i].bytes <= b.duplicate_bytes + b.zero_bytes + MIB);
    }
    /* Another splitter: the parent is of no use, and does no harm. */
    o.splitter = "DYNAMIC-256K-BUZHASH";
    struct backup_result c = check_image(r, &m, &o, true);
    assert_int_equal(c.hinted_chunks, 0);
    o.splitter = SMALL;
    o.section = 1 * MIB; /* nor is a parent with other sections */
    c = check_image(r, &m, &o, true);
    assert_int_equal(c.hinted_chunks, 0);
    free(m.p);
}

/* ---- what is stored ---- */

static int count_entry(const struct index_entry *entry, void *arg)
{
    (void)entry;
    ++*(uint64_t *)arg;
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return memcmp(x->id.hash, y->id.hash, x->id.len);
}

/* Cuts move where bytes are inserted: what was found behind the parent's ranges there is wrong and must not be stored.
 * The repository holds the chunks of both images, the two volume.json, and nothing else. */
static void guesses_are_not_stored(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 3; workers++) {
        char name[32];
        snprintf(name, sizeof name, "guesses%u", workers);
        struct repo *CLEANUP(repo_freep) r = new_repo(name, NULL);
        struct image m = {.p = malloc(12 * MIB), .len = 12 * MIB};
        assert_non_null(m.p);
        fill_random(m.p, m.len, workers);
        struct backup_opts o = opts_for("guesses");
        o.limits.workers = workers;
        check_image(r, &m, &o, false);
        struct part *CLEANUP_FREE first = NULL, *CLEANUP_FREE second = NULL;
        size_t n = naive_parts(r, &m, repo_format(r)->splitter, (uint64_t)2 << 30, &first);
        for (size_t at = MIB; at < m.len; at += MIB) {
            memmove(m.p + at + 1000, m.p + at, m.len - at - 1000);
            fill_random(m.p + at, 1000, at + workers);
        }
        struct backup_result b = check_image(r, &m, &o, false);
        assert_true(b.hinted_chunks > 0);
        assert_true(b.new_chunks > 10);
        size_t k = naive_parts(r, &m, repo_format(r)->splitter, (uint64_t)2 << 30, &second);
        struct part *CLEANUP_FREE all = malloc((n + k) * sizeof *all);
        assert_non_null(all);
        memcpy(all, first, n * sizeof *all);
        memcpy(all + n, second, k * sizeof *all);
        qsort(all, n + k, sizeof *all, by_id);
        uint64_t distinct = 1, stored = 0;
        for (size_t i = 1; i < n + k; i++)
            distinct += by_id(&all[i - 1], &all[i]) != 0;
        struct err e = ERR_INIT;
        assert_ok(index_set_refresh(repo_index(r), &e), &e);
        assert_ok(index_set_each(repo_index(r), 0, count_entry, &stored, &e), &e);
        assert_int_equal(stored, distinct + 2);
        free(m.p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_cut_right),
        cmocka_unit_test(shapes_and_sections),
        cmocka_unit_test(holes_between_data),
        cmocka_unit_test(default_splitter),
        cmocka_unit_test(variations),
        cmocka_unit_test(an_unchanged_volume_is_not_scanned),
        cmocka_unit_test(parents_change_nothing_but_the_time),
        cmocka_unit_test(a_ring_of_two_chunks_is_enough),
        cmocka_unit_test(guesses_are_not_stored),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
