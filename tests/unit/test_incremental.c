/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Backups from a list of changes: the object must be the one that a full read makes, whatever changed (CF-09, CF-13,
 * CF-14), and a list that is wrong must be found. */
#include "io/changes.h"
#include "tests/unit/backup.h"

/* ---- lists ---- */

static struct changes *no_changes(void)
{
    struct err e = ERR_INIT;
    struct changes *c;
    assert_ok(changes_new(&c, &e), &e);
    return c;
}

static void add(struct changes *c, uint64_t start, uint64_t len)
{
    struct err e = ERR_INIT;
    assert_ok(changes_add(c, start, len, &e), &e);
}

static void lists_are_sorted_and_merged(void **state)
{
    (void)state;
    struct changes *CLEANUP(changes_freep) c = no_changes();
    add(c, 100, 10);
    add(c, 50, 20);
    add(c, 60, 20); /* overlaps */
    add(c, 110, 5); /* adjacent */
    add(c, 105, 2); /* within */
    add(c, 500, 0); /* nothing */
    add(c, 10, 1);
    changes_finish(c);
    assert_int_equal(changes_count(c), 3);
    assert_int_equal(changes_bytes(c), 1 + 30 + 15);
    static const struct {
        uint64_t pos, start, len;
    } want[] = {{0, 10, 1}, {10, 10, 1}, {11, 50, 30}, {79, 50, 30}, {80, 100, 15}, {114, 100, 15}};
    size_t cursor = 0;
    struct change x;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_true(changes_after(c, &cursor, want[i].pos, &x));
        assert_int_equal(x.start, want[i].start);
        assert_int_equal(x.len, want[i].len);
    }
    assert_false(changes_after(c, &cursor, 115, &x));
    assert_false(changes_after(c, &cursor, 1000, &x));
    struct err e = ERR_INIT;
    assert_int_equal(changes_add(c, UINT64_MAX, 1, &e), -EINVAL);
    assert_int_equal(changes_add(c, INT64_MAX, 2, &e), -EINVAL);
}

/* Held against a map of single bytes. */
static void cursors_find_what_a_map_finds(void **state)
{
    (void)state;
    uint64_t seed = 77;
    for (unsigned round = 0; round < 200; round++) {
        uint8_t map[3000] = {0};
        struct changes *CLEANUP(changes_freep) c = no_changes();
        for (unsigned n = (unsigned)(splitmix64(&seed) % 60); n; n--) {
            uint64_t start = splitmix64(&seed) % 2900, len = splitmix64(&seed) % 40;
            memset(map + start, 1, len);
            add(c, start, len);
        }
        changes_finish(c);
        size_t cursor = 0;
        for (uint64_t pos = 0; pos < sizeof map; pos += splitmix64(&seed) % 90) {
            struct change x = {sizeof map, 0};
            bool found = changes_after(c, &cursor, pos, &x);
            uint64_t at = pos;
            while (at < sizeof map && !map[at])
                at++;
            assert_int_equal(found, at < sizeof map);
            if (found) {
                assert_int_equal(x.start > pos ? x.start : pos, at);
                while (at < sizeof map && map[at])
                    at++;
                assert_int_equal(x.start + x.len, at);
            }
        }
    }
}

/* More ranges than a list holds: it covers all of them, and more. */
static void long_lists_become_coarse(void **state)
{
    (void)state;
    struct changes *CLEANUP(changes_freep) c = no_changes();
    const uint64_t n = SANITIZED ? CHANGES_MAX + 8 : 3 * CHANGES_MAX;
    for (uint64_t i = 0; i < n; i++)
        add(c, i * 7 % n * 100000, 4096); /* in seven passes */
    changes_finish(c);
    assert_true(changes_count(c) <= CHANGES_MAX);
    assert_true(changes_memory(c) <= CHANGES_MAX * sizeof(struct change));
    size_t cursor = 0;
    struct change x;
    for (uint64_t i = 0; i < n; i++) {
        assert_true(changes_after(c, &cursor, i * 100000, &x));
        assert_true(x.start <= i * 100000 && x.start + x.len >= i * 100000 + 4096);
    }
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void text_files(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct changes *CLEANUP(changes_freep) c = no_changes();
    const char *path = path_of("ranges");
    write_text(path, "# of vm1\n\n0 4096\n  8192\t512  \n8704 1\n20000 5");
    assert_ok(changes_read(c, path, &e), &e);
    changes_finish(c);
    assert_int_equal(changes_count(c), 3);
    assert_int_equal(changes_bytes(c), 4096 + 513 + 5);
    static const char *const wrong[] = {"1\n",
                                        "1 2 3\n",
                                        "a 2\n",
                                        "1 -2\n",
                                        "0x10 1\n",
                                        "1,2\n",
                                        "18446744073709551616 1\n",
                                        "1 18446744073709551615\n",
                                        "+1 2\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[64];
        snprintf(text, sizeof text, "0 1\n%s", wrong[i]);
        write_text(path, text);
        e = (struct err)ERR_INIT;
        assert_int_equal(changes_read(c, path, &e), -EINVAL);
        assert_int_equal(e.cls, ERR_USAGE);
        assert_non_null(strstr(e.msg, "ranges:2"));
    }
    char longer[400];
    memset(longer, ' ', sizeof longer);
    strcpy(longer + 300, "1 2\n");
    write_text(path, longer);
    assert_int_equal(changes_read(c, path, &e), -EINVAL);
    assert_int_equal(changes_read(c, path_of("none"), &e), -ENOENT);
    assert_int_equal(e.cls, ERR_NOT_FOUND);
    assert_int_equal(changes_read(c, scratch_dir, &e), -EINVAL);
    assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
    assert_int_equal(changes_read(c, path_of("fifo"), &e), -EINVAL);
    unlink(path_of("fifo"));
}

/* ---- the object ---- */

/* The ranges in which two images differ, in blocks of `grain` bytes, as change trackers report them. */
static struct changes *differences(const struct image *a, const struct image *b, size_t grain)
{
    struct changes *c = no_changes();
    for (size_t at = 0; at < b->len; at += grain) {
        size_t n = b->len - at < grain ? b->len - at : grain;
        size_t old = at < a->len ? (a->len - at < n ? a->len - at : n) : 0;
        if (old < n || memcmp(a->p + at, b->p + at, n) != 0)
            add(c, at, n);
    }
    changes_finish(c);
    return c;
}

static void free_image(struct image *m)
{
    free(m->p);
}

static struct image copy_of(const struct image *m)
{
    struct image c = {malloc(m->len + 1), m->len};
    assert_non_null(c.p);
    memcpy(c.p, m->p, m->len);
    return c;
}

/* Overwrites, as a block device changes; sometimes it grows or shrinks. */
static void rewrite(struct image *m, uint64_t *seed)
{
    for (unsigned n = (unsigned)(splitmix64(seed) % 6); n; n--) {
        size_t at = splitmix64(seed) % m->len, left = m->len - at;
        size_t len = splitmix64(seed) % (splitmix64(seed) % 3 ? 9000 : 600000) + 1;
        len = len < left ? len : left;
        if (splitmix64(seed) % 4)
            fill_random(m->p + at, len, splitmix64(seed));
        else
            memset(m->p + at, splitmix64(seed) % 2 ? 0 : 0x55, len);
    }
    uint64_t by = splitmix64(seed) % 8;
    if (by == 0) {
        size_t more = splitmix64(seed) % 500000 + 1;
        m->p = realloc(m->p, m->len + more);
        assert_non_null(m->p);
        fill_random(m->p + m->len, more, splitmix64(seed));
        if (splitmix64(seed) % 2)
            memset(m->p + m->len, 0, more);
        m->len += more;
    } else if (by == 1) {
        m->len -= splitmix64(seed) % (m->len / 2 + 1);
        m->len = m->len ? m->len : 1;
    }
}

static struct backup_result check_incremental(struct repo *r, const struct image *m, const struct backup_opts *o,
                                              const char *parent, const struct changes *c, double sample, bool sparse)
{
    const struct backup_incremental inc = {.parent = parent, .changes = c, .sample = sample, .sample_seed = 1};
    struct backup_opts with = *o;
    with.incremental = &inc;
    return check_image(r, m, &with, sparse);
}

static void what_is_read_of_changes_is_what_a_full_read_makes(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("incremental", NULL);
    static const uint64_t sections[] = {0, 1u << 20, 999999, 0, 2u << 20};
    static const char *const names[] = {SMALL, "FIXED-128K", "DYNAMIC-128K-RABINKARP", "DYNAMIC-256K-BUZHASH"};
    static const size_t grains[] = {4096, 65536, 512, 1};
    const char *env = getenv("SNAPFERRY_TEST_SECONDS");
    const int64_t until = mono_ns() + (env ? atol(env) : 10) * NS_PER_S;
    uint64_t cloned = 0, read = 0;
    unsigned rounds = 0, s = 0;
    do {
        uint64_t seed = 131 * s + 3;
        struct image m = mixed_image(splitmix64(&seed) % (8 * MIB) + 1, seed);
        char volume[32];
        snprintf(volume, sizeof volume, "i%u", s);
        struct backup_opts o = opts_for(volume);
        o.section = sections[s % 5];
        o.splitter = names[s % 4];
        o.limits.workers = 1 + s % 3;
        o.no_uring = s % 5 == 4;
        struct backup_result last = check_image(r, &m, &o, s % 2);
        for (unsigned k = 0; k < 4; k++) {
            struct image CLEANUP(free_image) old = copy_of(&m);
            rewrite(&m, &seed);
            struct changes *CLEANUP(changes_freep) c = differences(&old, &m, grains[(s + k) % 4]);
            if (k == 2) { /* more than what changed */
                add(c, splitmix64(&seed) % m.len, 70000);
                changes_finish(c);
            }
            struct backup_result b = check_incremental(r, &m, &o, last.manifest_id, c, k % 2 ? 1 : 0, (s + k) % 3);
            assert_true(b.incremental);
            assert_string_equal(b.fallback, "");
            assert_false(b.distrusted);
            assert_string_equal(b.parent_id, last.manifest_id);
            cloned += b.cloned_bytes;
            read += b.read_bytes - b.sampled_bytes;
            last = b;
            rounds++;
        }
        free(m.p);
        s++;
    } while (mono_ns() < until);
    print_message("%u backups: %llu MiB taken over, %llu MiB read\n", rounds, (unsigned long long)cloned >> 20,
                  (unsigned long long)read >> 20);
    assert_true(cloned > read / 4);
}

/* The byte before each cut changes: the cuts are gone, and the images meet later than at the end of the parent's chunk,
 * behind what is read ahead. */
static void cuts_that_vanish(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("vanish", NULL);
    struct image CLEANUP(free_image) m = {malloc(24 * MIB), 24 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 5);
    struct backup_opts o = opts_for("vanish");
    for (unsigned workers = 1; workers <= 3; workers++) {
        o.limits.workers = workers;
        struct backup_result first = check_image(r, &m, &o, false);
        struct part *CLEANUP_FREE parts = NULL;
        size_t n = naive_parts(r, &m, SMALL, (uint64_t)2 << 30, &parts);
        struct changes *CLEANUP(changes_freep) c = no_changes();
        for (size_t i = workers; i + 1 < n; i += 7) {
            const uint64_t at = parts[i].start + parts[i].len - 1;
            m.p[at] ^= 0xff;
            add(c, at, 1);
        }
        changes_finish(c);
        struct backup_result b = check_incremental(r, &m, &o, first.manifest_id, c, 0, false);
        assert_true(b.cloned_bytes > b.size / 2);
        assert_true(b.reader.read_bytes < b.read_bytes); /* some was read beyond the ranges of the reader */
    }
}

/* Little memory, long chunks, many changes: the ring must never be waited for in vain. */
static void little_memory(void **state)
{
    (void)state;
    struct format_create f = {.version = 2, .splitter = "DYNAMIC-4M-BUZHASH"};
    struct repo *CLEANUP(repo_freep) r = new_repo("little", &f);
    struct image CLEANUP(free_image) m = {malloc(160 * MIB), 160 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 6);
    memset(m.p + 60 * MIB, 0, 30 * MIB);
    struct backup_opts o = opts_for("little");
    struct backup_result last = check_image(r, &m, &o, true);
    uint64_t seed = 9;
    o.limits.memory = MEMORY_MIN;
    for (unsigned k = 0; k < (SANITIZED ? 1u : 3u); k++) {
        struct changes *CLEANUP(changes_freep) c = no_changes();
        for (unsigned i = 0; i < 3 + 20 * k; i++) {
            const size_t at = splitmix64(&seed) % (m.len - 4096);
            fill_random(m.p + at, 4096, splitmix64(&seed));
            add(c, at, 4096);
        }
        changes_finish(c);
        struct err e = ERR_INIT;
        const struct backup_incremental inc = {.parent = last.manifest_id, .changes = c, .sample = 0.2};
        struct backup_opts with = o;
        with.incremental = &inc;
        unsigned enough = 0;
        write_image(path_of("image"), &m, true);
        if (try_backup(r, path_of("image"), &with, &last, &e) == -ENOMEM) {
            assert_int_equal(sscanf(e.hint, "use --memory %uMiB", &enough), 1);
            with.limits.memory = (uint64_t)enough << 20;
        }
        last = check_image(r, &m, &with, true);
        assert_true(last.incremental);
        assert_true(last.cloned_bytes > 0);
    }
}

static void nothing_changed(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("same", NULL);
    struct image CLEANUP(free_image) m = mixed_image(9 * MIB + 5, 21);
    struct backup_opts o = opts_for("same");
    struct backup_result a = check_image(r, &m, &o, true);
    struct changes *CLEANUP(changes_freep) none = no_changes();
    changes_finish(none);
    struct backup_result b = check_incremental(r, &m, &o, a.manifest_id, none, 0, true);
    assert_true(object_id_equal(&a.image, &b.image));
    assert_int_equal(b.read_bytes, 0);
    assert_int_equal(b.cloned_bytes, b.size);
    b = check_incremental(r, &m, &o, a.manifest_id, none, 1, true);
    assert_true(b.sampled_bytes > b.size / 3);
    assert_int_equal(b.read_bytes, b.sampled_bytes);
    assert_string_equal(b.fallback, "");
}

/* Behind a change in a long range of zeros no cut is where the parent has one, and still nothing has to be read there.
 */
static void changes_in_zeros(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("zeros", NULL);
    struct image CLEANUP(free_image) m = {calloc(1, 64 * MIB), 64 * MIB};
    assert_non_null(m.p);
    struct backup_opts o = opts_for("zeros");
    struct backup_result a = check_image(r, &m, &o, false);
    fill_random(m.p + 7 * MIB + 8, 700, 1);
    fill_random(m.p + 40 * MIB + 4096, 4096, 2);
    struct changes *CLEANUP(changes_freep) c = no_changes();
    add(c, 7 * MIB, 4096);
    add(c, 40 * MIB + 4096, 4096);
    changes_finish(c);
    struct backup_result b = check_incremental(r, &m, &o, a.manifest_id, c, 0, false);
    assert_true(b.incremental);
    assert_true(b.read_bytes < 3 * MIB);
}

/* A list that omits a change: found for certain where everything is sampled, and then everything is read. */
static void a_lie_is_found(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("lie", NULL);
    struct image CLEANUP(free_image) m = {malloc(8 * MIB), 8 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 4);
    struct backup_opts o = opts_for("lie");
    struct backup_result a = check_image(r, &m, &o, false);
    m.p[5 * MIB] ^= 1;
    struct changes *CLEANUP(changes_freep) c = no_changes();
    add(c, 100, 1);
    changes_finish(c);
    struct backup_result b = check_incremental(r, &m, &o, a.manifest_id, c, 40, false); /* each chunk several times */
    assert_true(b.distrusted);
    assert_false(b.incremental);
    assert_non_null(strstr(b.fallback, "not in the list of changes"));
    assert_int_equal(b.cloned_bytes, 0);
}

/* The share decides how often: of many runs that look at a tenth of the chunks, about a tenth find one wrong chunk. */
static void lies_are_found_by_share(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("share", NULL);
    struct image CLEANUP(free_image) m = {malloc(4 * MIB), 4 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 14);
    struct backup_opts o = opts_for("share");
    struct backup_result a = check_image(r, &m, &o, false);
    m.p[3 * MIB] ^= 1;
    write_image(path_of("image"), &m, false);
    struct changes *CLEANUP(changes_freep) none = no_changes();
    add(none, 0, 1);
    changes_finish(none);
    const unsigned runs = SANITIZED ? 40 : 200;
    unsigned found = 0;
    for (unsigned i = 0; i < runs; i++) {
        const struct backup_incremental inc = {
            .parent = a.manifest_id, .changes = none, .sample = 0.1, .sample_seed = i + 1};
        struct backup_opts with = o;
        with.incremental = &inc;
        struct backup_result b = backup(r, path_of("image"), &with);
        found += b.distrusted;
        if (!b.distrusted)
            assert_true(b.incremental);
    }
    print_message("%u of %u runs with a sample of a tenth found one wrong chunk\n", found, runs);
    /* 0.1 of 4 MiB are 3 to 4 positions, a chunk has about a 25th of the bytes: 0.15 with a deviation of 0.025. */
    assert_true(found * 100 > runs * 5);
    assert_true(found * 100 < runs * 30);
}

static void expect_full(struct repo *r, const struct image *m, const struct backup_opts *o, const char *parent,
                        const char *why)
{
    struct changes *CLEANUP(changes_freep) c = no_changes();
    add(c, 1, 1);
    changes_finish(c);
    struct backup_result b = check_incremental(r, m, o, parent, c, 0, false);
    assert_false(b.incremental);
    assert_int_equal(b.cloned_bytes, 0);
    if (!strstr(b.fallback, why))
        fail_msg("\"%s\" is not in \"%s\"", why, b.fallback);
}

static void reasons_to_read_all(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("reasons", NULL);
    struct image CLEANUP(free_image) m = mixed_image(3 * MIB + 5, 22);
    struct backup_opts o = opts_for("reasons"), other = opts_for("another"), with;
    struct backup_result a = check_image(r, &m, &o, true);
    struct backup_result b = check_image(r, &m, &other, true);
    expect_full(r, &m, &o, "0123456789abcdef0123456789abcdef", "no snapshot");
    expect_full(r, &m, &o, b.manifest_id, "is not of");
    expect_full(r, &m, &o, "no id", "no snapshot");
    with = o;
    with.splitter = "FIXED-128K";
    expect_full(r, &m, &with, a.manifest_id, "was split by " SMALL);
    with = o;
    with.section = 1 * MIB;
    expect_full(r, &m, &with, a.manifest_id, "sections of another length");
    struct image CLEANUP(free_image) empty = {calloc(1, 1), 0};
    struct backup_opts nil = opts_for("empty");
    struct backup_result z = check_image(r, &empty, &nil, false);
    expect_full(r, &m, &nil, z.manifest_id, "is empty");
}

/* A backup of `m` by a list that belongs to the native snapshot `of`, or to one that is not known (NULL). */
static struct backup_result by_state(struct repo *r, const struct image *m, const struct backup_opts *o,
                                     const char *parent, const char *of, const struct changes *c)
{
    const struct backup_incremental inc = {.parent = parent, .state = of, .changes = c};
    struct backup_opts with = *o;
    with.incremental = &inc;
    return check_image(r, m, &with, false);
}

/* The list is right, but it begins with another native snapshot than the one that the parent was made of: what has
 * changed between these two is not in it. check_image() reads the result. (CF-09) */
static void a_parent_of_another_native_snapshot(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("state", NULL);
    struct image CLEANUP(free_image) m = {malloc(4 * MIB), 4 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 23);
    char longer[300];
    memset(longer, 'c', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    const struct {
        const char *made_of, *list_of;
        bool usable;
    } cases[] = {
        {"reflink.1.2.3", "reflink.1.2.3", true},
        {"reflink.1.2.3", NULL, true},
        {"reflink.1.2.3", "reflink.1.2.4", false},
        {"reflink.1.2.3", "reflink.1.2.30", false},
        {"reflink.1.2.3", "reflink.1.2.", false},
        {NULL, "reflink.1.2.3", false},
        {"", "reflink.1.2.3", false},
        {longer, longer, false}, /* too long to be compared */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct backup_opts o = opts_for("state");
        o.facts = cases[i].made_of ? json_pack("{ss}", "changeId", cases[i].made_of) : NULL;
        struct backup_result a = check_image(r, &m, &o, false);
        if (!cases[i].usable)
            m.p[3 * MIB] ^= 1; /* before the native snapshot that the list refers to was taken */
        m.p[MIB] ^= 1;
        struct changes *CLEANUP(changes_freep) c = no_changes();
        add(c, MIB, 1);
        changes_finish(c);
        struct backup_result b = by_state(r, &m, &o, a.manifest_id, cases[i].list_of, c);
        json_decref(o.facts);
        assert_int_equal(b.incremental, cases[i].usable);
        assert_int_equal(b.cloned_bytes > 0, cases[i].usable);
        assert_false(b.distrusted); /* nothing is wrong with the tracker */
        if (cases[i].usable)
            assert_string_equal(b.fallback, "");
        else if (!strstr(b.fallback, a.manifest_id) ||
                 !strstr(b.fallback, "was not made of the native snapshot that the changes refer to"))
            fail_msg("%zu: \"%s\"", i, b.fallback);
    }
}

/* Nor is the checkpoint of a canceled backup a parent, whatever its native snapshot. */
static void an_incomplete_parent(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("incomplete", NULL);
    struct image CLEANUP(free_image) m = {malloc(32 * MIB), 32 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 24);
    write_image(path_of("image"), &m, false);
    json_t *facts = json_pack("{ss}", "changeId", "reflink.1.2.3");
    struct backup_opts o = opts_for("incomplete");
    o.facts = facts;
    o.no_uring = true;
    o.depth = 1;
    struct canceler c = {.at = m.len / 4};
    struct backup_opts until = o;
    until.progress = &c.progress;
    until.cancel = &c.cancel;
    pthread_t t;
    read_delay_us = 15000;
    assert_int_equal(pthread_create(&t, NULL, cancel_at, &c), 0);
    struct err e = ERR_INIT;
    struct backup_result a;
    assert_int_equal(try_backup(r, path_of("image"), &until, &a, &e), -ECANCELED);
    atomic_store(&c.end, true);
    pthread_join(t, NULL);
    read_delay_us = 0;
    assert_true(a.incomplete);
    struct changes *CLEANUP(changes_freep) list = no_changes();
    m.p[MIB] ^= 1;
    add(list, MIB, 1);
    changes_finish(list);
    struct backup_result b = by_state(r, &m, &o, a.manifest_id, "reflink.1.2.3", list);
    json_decref(facts);
    assert_false(b.incremental);
    assert_int_equal(b.cloned_bytes, 0);
    if (!strstr(b.fallback, a.manifest_id) || !strstr(b.fallback, "is incomplete"))
        fail_msg("\"%s\"", b.fallback);
}

/* What the parent could not read is zeros there, and is read again although nothing says that it has changed. */
static void unreadable_ranges_of_the_parent(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("unreadable", NULL);
    struct image CLEANUP(free_image) m = {malloc(6 * MIB), 6 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 31);
    struct backup_opts o = opts_for("unreadable");
    o.no_uring = true;
    o.bad_read = BAD_READ_MAP;
    write_image(path_of("bad.img"), &m, false);
    bad_from = 3 * MIB;
    bad_to = 3 * MIB + 8192;
    struct backup_result a = backup(r, path_of("bad.img"), &o);
    bad_from = bad_to = 0;
    assert_true(a.bad_bytes >= 8192);
    struct changes *CLEANUP(changes_freep) none = no_changes();
    changes_finish(none);
    struct backup_result b = check_incremental(r, &m, &o, a.manifest_id, none, 0, false);
    assert_true(b.incremental);
    assert_true(b.cloned_bytes > b.size / 2);
    assert_int_equal(b.n_bad, 0);
    backup_result_clear(&a);
}

/* Reads apart from the reader's, of a source of this size, fail. */
static _Atomic uint64_t apart_size;
static _Atomic unsigned apart_failed;

ssize_t pread64(int fd, void *buf, size_t n, off64_t pos)
{
    struct stat st;
    if (apart_size && n > 4096 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == apart_size) {
        apart_failed++;
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, buf, n, (long)pos);
}

/* A read beyond the reader's ranges that fails: the whole volume is read, which does with it what it is to do. */
static void a_read_apart_that_fails(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("apart", NULL);
    struct image CLEANUP(free_image) m = {malloc(24 * MIB), 24 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 15);
    struct backup_opts o = opts_for("apart");
    o.no_uring = true;
    struct backup_result first = check_image(r, &m, &o, false);
    struct part *CLEANUP_FREE parts = NULL;
    size_t n = naive_parts(r, &m, SMALL, (uint64_t)2 << 30, &parts);
    struct changes *CLEANUP(changes_freep) c = no_changes();
    for (size_t i = 1; i + 1 < n; i += 7) {
        const uint64_t at = parts[i].start + parts[i].len - 1;
        m.p[at] ^= 0xff;
        add(c, at, 1);
    }
    changes_finish(c);
    write_image(path_of("apart.img"), &m, false);
    const struct backup_incremental inc = {.parent = first.manifest_id, .changes = c};
    struct backup_opts with = o;
    with.incremental = &inc;
    apart_failed = 0;
    apart_size = m.len;
    struct backup_result b = backup(r, path_of("apart.img"), &with);
    apart_size = 0;
    assert_true(apart_failed > 0);
    assert_false(b.incremental);
    assert_non_null(strstr(b.fallback, "cannot read"));
    assert_int_equal(b.cloned_bytes, 0);
    struct backup_result whole = check_image(r, &m, &o, false);
    assert_true(object_id_equal(&b.image, &whole.image));
    unlink(path_of("apart.img"));
}

/* The file of a pack has the pack's name without the shards' slashes. */
static char pack_tail[128], pack_path[PATH_MAX];
static int find_pack(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st, (void)f;
    if (type == FTW_F && strstr(path, pack_tail))
        snprintf(pack_path, sizeof pack_path, "%s", path);
    return 0;
}

/* Damages a content where it is stored. */
static void content_damage(struct repo *r, const char *name, const struct content_id *id)
{
    struct err e = ERR_INIT;
    struct index_entry x;
    assert_ok(repo_find(r, id, &x, &e), &e);
    snprintf(pack_tail, sizeof pack_tail, "%s", x.pack + 8);
    pack_path[0] = '\0';
    assert_int_equal(nftw(path_of(name), find_pack, 16, FTW_PHYS), 0);
    assert_true(pack_path[0]);
    uint8_t byte = 0;
    int fd = open(pack_path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && pread(fd, &byte, 1, x.offset + x.packed / 2) == 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, x.offset + x.packed / 2), 1);
    close(fd);
}

/* The list of the parent's chunks cannot be read: the whole volume is. */
static void a_chunk_list_that_is_damaged(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("list", NULL);
    struct image CLEANUP(free_image) m = {malloc(12 * MIB), 12 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 16);
    struct backup_opts o = opts_for("list");
    struct backup_result a = check_image(r, &m, &o, false);
    assert_true(a.image.indirection > 0);
    content_damage(r, "list", &a.image.content);
    struct changes *CLEANUP(changes_freep) c = no_changes();
    m.p[5 * MIB] ^= 1;
    add(c, 5 * MIB, 1);
    changes_finish(c);
    struct repo *CLEANUP(repo_freep) again = open_repo("list");
    struct backup_result b = check_incremental(again, &m, &o, a.manifest_id, c, 0, false);
    assert_false(b.incremental);
    assert_int_equal(b.cloned_bytes, 0);
    assert_true(b.fallback[0]);
}

/* Files of indexes: gathered once, removed the second time. */
static const char *index_repo;
static char index_paths[16][PATH_MAX];
static unsigned n_indexes;
static int note_index(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st, (void)f;
    const char *name = path + strlen(index_repo) + 1;
    if (type == FTW_F && (name[0] == 'n' || name[0] == 'x') && n_indexes < 16)
        snprintf(index_paths[n_indexes++], PATH_MAX, "%s", path);
    return 0;
}

/* Contents of the parent are no longer in the index: they are read and stored again, also where nothing has changed. */
static void contents_that_are_gone(void **state)
{
    (void)state;
    struct image CLEANUP(free_image) m = mixed_image(9 * MIB + 5, 41);
    struct backup_opts one = opts_for("one"), two = opts_for("two");
    struct backup_result a;
    for (unsigned changed = 0; changed < 2; changed++) {
        const char *name = changed ? "gone-changed" : "gone";
        struct repo *CLEANUP(repo_freep) r = new_repo(name, NULL);
        check_image(r, &m, &one, true);
        n_indexes = 0;
        char dir[256];
        snprintf(dir, sizeof dir, "%s", path_of(name));
        index_repo = dir;
        assert_int_equal(nftw(dir, note_index, 16, FTW_PHYS), 0);
        assert_true(n_indexes > 0);
        m.p[8 * MIB] ^= 1; /* a list of its own, most chunks are those of the other one */
        struct repo *CLEANUP(repo_freep) next = open_repo(name);
        a = check_image(next, &m, &two, true);
        assert_true(a.new_bytes < m.len / 2);
        for (unsigned i = 0; i < n_indexes; i++)
            assert_int_equal(unlink(index_paths[i]), 0);
        struct changes *CLEANUP(changes_freep) c = no_changes();
        if (changed)
            add(c, 100, 1);
        changes_finish(c);
        struct repo *CLEANUP(repo_freep) again = open_repo(name);
        struct backup_result b = check_incremental(again, &m, &two, a.manifest_id, c, 0, true);
        assert_true(object_id_equal(&a.image, &b.image));
        assert_true(b.new_bytes > m.len / 3);
    }
}

/* Packs of the repository "lost": how many there are; removed, or cut short. */
enum pack_fate { PACK_COUNT, PACK_REMOVE, PACK_CUT };
static enum pack_fate fate;
static unsigned n_packs;
static int data_pack(const char *path, const struct stat *st, int type, struct FTW *f)
{
    const char *name = path + strlen(path_of("lost"));
    (void)f;
    if (type != FTW_F || strncmp(name, "/p", 2) != 0)
        return 0;
    n_packs++;
    return fate == PACK_REMOVE ? unlink(path) : fate == PACK_CUT ? truncate(path, st->st_size / 2) : 0;
}
static void packs_meet(enum pack_fate f)
{
    fate = f;
    n_packs = 0;
    assert_int_equal(nftw(path_of("lost"), data_pack, 16, FTW_PHYS), 0);
    assert_true(n_packs > 0);
}

static void remove_lost(void)
{
    assert_int_equal(nftw(path_of("lost"), remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* The index lists contents of which nothing is stored any more: whether something has changed or not, or a full read is
 * asked for, they are read and stored again. check_image() reads all of the result. */
static void packs_that_are_gone(void **state)
{
    (void)state;
    struct image CLEANUP(free_image) m = mixed_image(9 * MIB + 5, 51);
    const struct backup_opts o = opts_for("lost");
    for (unsigned k = 0; k < 6; k++) {
        struct backup_result a, b;
        {
            struct repo *CLEANUP(repo_freep) r = new_repo("lost", NULL);
            a = check_image(r, &m, &o, true);
        }
        packs_meet(k % 2 ? PACK_CUT : PACK_REMOVE);
        struct repo *CLEANUP(repo_freep) r = open_repo("lost");
        if (k / 2 < 2) {
            struct changes *CLEANUP(changes_freep) c = no_changes();
            if (k / 2 == 1) {
                m.p[100] ^= 1;
                add(c, 100, 1);
            }
            changes_finish(c);
            b = check_incremental(r, &m, &o, a.manifest_id, c, 0, true);
        } else {
            struct backup_opts full = o;
            full.no_parent = true;
            b = check_image(r, &m, &full, true);
        }
        if (k / 2 != 1)
            assert_true(object_id_equal(&a.image, &b.image));
        assert_true(b.new_bytes > m.len / 8);
        /* And the next one takes over what is there now. */
        struct changes *CLEANUP(changes_freep) none = no_changes();
        changes_finish(none);
        struct repo *CLEANUP(repo_freep) next = open_repo("lost");
        a = check_incremental(next, &m, &o, b.manifest_id, none, 0, true);
        assert_int_equal(a.read_bytes, 0);
        assert_true(a.incremental);
        remove_lost();
    }
}

/* Deletes the contents of the parent's second half, as another client's maintenance does, while the first changed range
 * is read: the chunks behind it have not been taken over yet. */
static struct repo *mid_repo;
static struct object_id mid_image;
static uint64_t mid_from;
static unsigned mid_n;
static void delete_contents(void)
{
    struct err e = ERR_INIT;
    struct session *CLEANUP(session_freep) s = NULL;
    struct object_parts *CLEANUP(object_parts_freep) p = NULL;
    struct object_part part;
    const struct session_opts so = {.no_adopt = true};
    assert_ok(session_new(&s, mid_repo, &so, &e), &e);
    assert_ok(object_parts_open(&p, mid_repo, &mid_image, &e), &e);
    int rc;
    while ((rc = object_parts_next(p, &part, &e)) > 0)
        if (part.start > mid_from) {
            assert_ok(session_delete_content(s, &part.id.content, &e), &e);
            mid_n++;
        }
    assert_ok(rc, &e);
    assert_ok(session_flush(s, &e), &e);
}

static void contents_deleted_in_the_middle(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("middle", NULL);
    struct image CLEANUP(free_image) m = {malloc(24 * MIB), 24 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 61);
    struct backup_opts o = opts_for("middle");
    struct backup_result a = check_image(r, &m, &o, false);
    struct changes *CLEANUP(changes_freep) c = no_changes();
    m.p[MIB] ^= 1;
    add(c, MIB, 1);
    changes_finish(c);
    o.no_uring = true;
    mid_repo = r;
    mid_image = a.image;
    mid_from = 12 * MIB;
    before_first_read = delete_contents;
    struct backup_result b = check_incremental(r, &m, &o, a.manifest_id, c, 0, false);
    assert_null(before_first_read);
    assert_true(mid_n > 10);
    assert_true(b.incremental);
    assert_true(b.cloned_bytes > 8 * MIB);
    assert_true(b.cloned_bytes < 14 * MIB);
    assert_true(b.new_bytes > 11 * MIB);
    struct err e = ERR_INIT;
    struct object_parts *CLEANUP(object_parts_freep) p = NULL;
    struct object_part part;
    assert_ok(object_parts_open(&p, r, &b.image, &e), &e);
    while (object_parts_next(p, &part, &e) > 0)
        assert_int_equal(repo_has(r, &part.id.content, &e), 1);
}

/* The parent's chunk list is several contents long: all but its first is damaged. */
static void damage_rest_of_list(void)
{
    struct err e = ERR_INIT;
    struct object_id list = mid_image;
    struct object_parts *CLEANUP(object_parts_freep) p = NULL;
    struct object_part part;
    list.indirection--;
    assert_ok(object_parts_open(&p, mid_repo, &list, &e), &e);
    while (object_parts_next(p, &part, &e) > 0)
        if (part.start > 0) {
            content_damage(mid_repo, "breaks", &part.id.content);
            mid_n++;
        }
}

static void a_chunk_list_that_breaks_in_the_middle(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    struct image CLEANUP(free_image) m = {calloc(1, 700 * MIB), 700 * MIB};
    assert_non_null(m.p);
    for (unsigned i = 0; i < 100; i++)
        fill_random(m.p + i * 7 * MIB, 5000, i + 1);
    struct backup_opts o = opts_for("breaks");
    o.no_uring = true;
    for (unsigned where = 0; where < 2; where++) { /* the pipeline meets it, or the reader */
        struct repo *CLEANUP(repo_freep) r = new_repo("breaks", NULL);
        struct backup_result a = check_image(r, &m, &o, true);
        assert_true(a.image.indirection > 1);
        mid_repo = r;
        mid_image = a.image;
        mid_n = 0;
        struct changes *CLEANUP(changes_freep) c = no_changes();
        m.p[MIB] ^= 1;
        add(c, MIB, 1);
        if (where) {
            m.p[690 * MIB] ^= 1;
            add(c, 690 * MIB, 1);
        }
        changes_finish(c);
        if (where) /* the reader may look for the second range before it reads the first: not in a hook of reads */
            damage_rest_of_list();
        else
            before_first_read = damage_rest_of_list;
        struct backup_result b = check_incremental(r, &m, &o, a.manifest_id, c, 0, true);
        assert_true(mid_n > 0);
        assert_false(b.incremental);
        assert_int_equal(b.cloned_bytes, 0);
        if (!strstr(b.fallback, "chunk list of the parent"))
            fail_msg("%s", b.fallback);
        assert_int_equal(nftw(path_of("breaks"), remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_sorted_and_merged),
        cmocka_unit_test(cursors_find_what_a_map_finds),
        cmocka_unit_test(long_lists_become_coarse),
        cmocka_unit_test(text_files),
        cmocka_unit_test(a_read_apart_that_fails),
        cmocka_unit_test(a_chunk_list_that_is_damaged),
        cmocka_unit_test(contents_that_are_gone),
        cmocka_unit_test(packs_that_are_gone),
        cmocka_unit_test(contents_deleted_in_the_middle),
        cmocka_unit_test(a_chunk_list_that_breaks_in_the_middle),
        cmocka_unit_test(nothing_changed),
        cmocka_unit_test(what_is_read_of_changes_is_what_a_full_read_makes),
        cmocka_unit_test(cuts_that_vanish),
        cmocka_unit_test(little_memory),
        cmocka_unit_test(changes_in_zeros),
        cmocka_unit_test(a_lie_is_found),
        cmocka_unit_test(lies_are_found_by_share),
        cmocka_unit_test(reasons_to_read_all),
        cmocka_unit_test(a_parent_of_another_native_snapshot),
        cmocka_unit_test(an_incomplete_parent),
        cmocka_unit_test(unreadable_ranges_of_the_parent),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
