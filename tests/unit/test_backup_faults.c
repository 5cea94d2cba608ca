/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_backup_faults.c - backups that are canceled or killed, sources and stores that misbehave, memory. */
#include "tests/unit/backup.h"

/* ---- cancel, checkpoints ---- */

static unsigned count_incomplete;
static int count_snapshot(struct snapshot *s, void *arg)
{
    (void)arg;
    count_incomplete += *s->incomplete ? 1 : 0;
    return 0;
}

static unsigned incomplete_ones(struct repo *r, const struct backup_opts *o)
{
    struct err e = ERR_INIT;
    count_incomplete = 0;
    unsigned bad = 0;
    assert_ok(snapshots_each(r, &o->as, false, count_snapshot, NULL, &bad, &e), &e);
    assert_int_equal(bad, 0);
    return count_incomplete;
}

static void a_canceled_run_is_resumed(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("cancel", NULL);
    struct image m = {malloc(64 * MIB), 64 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 99);
    write_image(path_of("image"), &m, false);
    struct backup_opts o = opts_for("cancel");
    o.no_uring = true;
    o.depth = 1;
    read_delay_us = 15000; /* of each read: long enough for the cancel to come in the midst of it */
    uint64_t put = 0;
    bool resumed = false;
    for (unsigned i = 1; i <= 2; i++) {
        struct canceler c = {.at = m.len / 4 * i};
        o.progress = &c.progress;
        o.cancel = &c.cancel;
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, cancel_at, &c), 0);
        struct err e = ERR_INIT;
        struct backup_result ret;
        int rc = try_backup(r, path_of("image"), &o, &ret, &e);
        atomic_store(&c.end, true);
        pthread_join(t, NULL);
        assert_int_equal(rc, -ECANCELED);
        assert_int_equal(e.cls, ERR_INTERRUPTED);
        assert_true(ret.incomplete);
        assert_true(ret.scanned >= c.at && ret.scanned <= m.len); /* what was in work is finished */
        assert_string_not_equal(ret.manifest_id, "");
        assert_int_equal(ret.hinted_chunks > 0, resumed);
        assert_int_equal(incomplete_ones(r, &o), 1);
        put += ret.new_chunks;
        resumed = true;
    }
    read_delay_us = 0;
    o.progress = NULL;
    o.cancel = NULL;
    struct backup_result ret = check_image(r, &m, &o, false);
    assert_int_equal(incomplete_ones(r, &o), 0);
    assert_int_equal(put + ret.new_chunks, ret.chunks);
    free(m.p);
}

/* Checkpoints by time: an unfinished snapshot exists while the run goes on, and none when it is done. */
static void checkpoints_are_committed_on_the_way(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("points", NULL);
    struct image m = mixed_image(3 * MIB, 4);
    struct backup_opts o = opts_for("points");
    o.checkpoint_s = 1;
    o.flush_s = 1;
    read_delay_us = 400000; /* of each read: the run takes some seconds */
    o.no_uring = true;
    o.depth = 1;
    struct backup_result ret = check_image(r, &m, &o, false);
    read_delay_us = 0;
    assert_true(ret.checkpoints >= 1);
    assert_true(ret.flushes >= 2);
    assert_int_equal(incomplete_ones(r, &o), 0);
    free(m.p);
}

/* ---- sources that misbehave ---- */

static void bad_ranges_are_mapped_or_fatal(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("bad", NULL);
    struct image m = {malloc(3 * MIB), 3 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 3);
    write_image(path_of("bad.img"), &m, false);
    struct backup_opts o = opts_for("bad");
    o.no_uring = true;
    bad_from = MIB + 8192;
    bad_to = MIB + 20480;
    struct err e = ERR_INIT;
    struct backup_result ret;
    assert_true(try_backup(r, path_of("bad.img"), &o, &ret, &e) < 0);
    assert_int_equal(e.cls, ERR_SOURCE);
    assert_string_equal(ret.manifest_id, "");
    backup_result_clear(&ret);
    o.bad_read = BAD_READ_MAP;
    assert_ok(try_backup(r, path_of("bad.img"), &o, &ret, &e), &e);
    assert_int_equal(ret.n_bad, 1);
    assert_int_equal(ret.bad[0].pos, bad_from);
    assert_int_equal(ret.bad[0].len, bad_to - bad_from);
    assert_int_equal(ret.bad[0].sys, EIO);
    assert_int_equal(ret.bad_bytes, bad_to - bad_from);
    memset(m.p + bad_from, 0, bad_to - bad_from);
    assert_bytes(r, &ret.image, &m);
    struct snapshot s;
    assert_ok(snapshot_find(r, ret.manifest_id, NULL, &s, &e), &e);
    assert_int_equal(s.error_count, 1);
    struct dir_entry d;
    assert_ok(dir_lookup(r, &s.root, "volume.json", &d, &e), &e);
    uint8_t *CLEANUP_FREE doc = NULL;
    assert_ok(object_get(r, &d.obj, &doc, MIB, &e), &e);
    json_t *j = json_loads((char *)doc, 0, NULL);
    json_t *range = json_array_get(json_object_get(j, "badRanges"), 0);
    assert_int_equal(json_integer_value(json_array_get(range, 0)), bad_from);
    assert_int_equal(json_integer_value(json_array_get(range, 1)), bad_to - bad_from);
    assert_int_equal(json_integer_value(json_array_get(range, 2)), EIO);
    assert_int_equal(json_integer_value(json_object_get(j, "size")), m.len);
    json_decref(j);
    dir_entry_clear(&d);
    snapshot_clear(&s);
    backup_result_clear(&ret);
    bad_from = bad_to = 0;
    free(m.p);
}

static void many_bad_ranges_stay_a_bounded_list(void **state)
{
    (void)state;
    struct badmap *m = malloc(sizeof *m);
    assert_non_null(m);
    badmap_init(m);
    struct err e = ERR_INIT;
    struct bad_range *list;
    size_t n;
    uint64_t bytes;
    badmap_add(m, 4096, 512, EIO);
    badmap_add(m, 5120, 512, EIO);
    badmap_add(m, 4608, 512, EIO); /* fills the gap */
    badmap_add(m, 0, 512, EIO);
    badmap_add(m, 512, 512, ENODATA); /* touches, but is of another kind */
    assert_ok(badmap_copy(m, &list, &n, &bytes, &e), &e);
    assert_int_equal(n, 3);
    assert_int_equal(list[2].pos, 4096);
    assert_int_equal(list[2].len, 1536);
    assert_int_equal(bytes, 5 * 512);
    free(list);
    for (uint64_t i = 0; i < 3 * BAD_RANGES_MAX; i++)
        badmap_add(m, (1000 - i % 1000) * 65536 + i / 1000 * MIB * 1000, 512, EIO);
    assert_ok(badmap_copy(m, &list, &n, &bytes, &e), &e);
    assert_int_equal(n, BAD_RANGES_MAX);
    assert_int_equal(bytes, (5 + 3 * BAD_RANGES_MAX) * 512);
    for (size_t i = 1; i < n; i++)
        assert_true(list[i - 1].pos + list[i - 1].len <= list[i].pos);
    free(list);
    badmap_destroy(m);
    free(m);
}

struct resizer {
    struct mover_progress progress;
    const char *path;
    off_t size;
};

static void *resize_midway(void *arg)
{
    struct resizer *z = arg;
    while (atomic_load(&z->progress.read) == 0 && atomic_load(&z->progress.phase) != PHASE_DONE)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (truncate(z->path, z->size))
        z->size = -1;
    return NULL;
}

static int backup_resized(struct repo *r, const struct image *m, off_t size, struct backup_opts *o,
                          struct backup_result *ret, struct err *e)
{
    write_image(path_of("resized"), m, false);
    char path[256];
    snprintf(path, sizeof path, "%s", path_of("resized"));
    struct resizer z = {.path = path, .size = size};
    o->progress = &z.progress;
    o->no_uring = true;
    o->depth = 1;
    read_delay_us = 300000;
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, resize_midway, &z), 0);
    int rc = try_backup(r, z.path, o, ret, e);
    pthread_join(t, NULL);
    read_delay_us = 0;
    assert_int_equal(z.size, size);
    return rc;
}

static void sources_that_grow_or_shrink(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("resize", NULL);
    struct image m = mixed_image(4 * MIB, 21);
    struct backup_opts o = opts_for("resize");
    struct err e = ERR_INIT;
    struct backup_result ret;
    assert_ok(backup_resized(r, &m, (off_t)(6 * MIB), &o, &ret, &e), &e);
    assert_int_equal(ret.size, m.len);
    assert_bytes(r, &ret.image, &m);
    assert_true(backup_resized(r, &m, (off_t)(m.len - 4096), &o, &ret, &e) < 0);
    assert_int_equal(e.cls, ERR_SOURCE);
    assert_string_equal(ret.manifest_id, "");
    free(m.p);
}

/* ---- references that a collector took away meanwhile ---- */

static void references_are_looked_up_again(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("refs", NULL);
    struct err e = ERR_INIT;
    struct session *CLEANUP(session_freep) s = NULL;
    struct put_scratch *CLEANUP(put_scratch_freep) p = NULL;
    assert_ok(session_new(&s, r, &(struct session_opts){0}, &e), &e);
    assert_ok(put_scratch_new(&p, r, 0, 4096, &e), &e);
    struct refs *CLEANUP(refs_freep) x = NULL;
    assert_ok(refs_new(&x, repo_cache_dir(r), &e), &e);
    struct object_id image = {0};
    for (unsigned i = 0; i < 1500; i++) { /* more than one buffer */
        struct content_id id;
        assert_ok(session_put_bytes(s, p, 0, &i, sizeof i, 0, &id, &e), &e);
        assert_ok(refs_add(x, &id, &e), &e);
        image.content = id;
    }
    assert_ok(session_flush(s, &e), &e);
    assert_ok(refs_check(x, s, &image, &e), &e);
    assert_ok(session_delete_content(s, &image.content, &e), &e);
    assert_ok(session_flush(s, &e), &e);
    assert_int_equal(refs_check(x, s, &image, &e), -ESTALE);
    assert_ok(refs_clear(x, &e), &e);
    assert_ok(refs_check(x, s, &image, &e), &e); /* none is left that could be missing */
}

/* ---- memory ---- */

struct sampler {
    _Atomic bool end;
    uint64_t peak; /* KiB */
};

static void *sample(void *arg)
{
    struct sampler *s = arg;
    while (!atomic_load(&s->end)) {
        FILE *f = fopen("/proc/self/status", "re");
        char line[256];
        unsigned long anon = 0, shmem = 0;
        while (f && fgets(line, sizeof line, f)) {
            sscanf(line, "RssAnon: %lu", &anon);
            sscanf(line, "RssShmem: %lu", &shmem);
        }
        if (f)
            fclose(f);
        if (anon + shmem > s->peak)
            s->peak = anon + shmem;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    return NULL;
}

struct usage {
    int rc;
    uint64_t peak; /* bytes */
    char msg[512];
};

/* Runs a backup in a process of its own and tells its peak of anonymous and shared memory. */
static struct usage measure(const char *repo, const char *path, const struct backup_opts *o)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct usage u = {0};
        struct sampler s = {.end = false};
        pthread_t t;
        struct err e = ERR_INIT;
        char image[256];
        snprintf(image, sizeof image, "%s", path);
        struct repo *r = open_repo(repo);
        struct source *src;
        struct backup_result ret;
        pthread_create(&t, NULL, sample, &s);
        u.rc = source_open(&src, image, &e);
        if (u.rc == 0)
            u.rc = backup_run(r, src, o, &ret, &e);
        atomic_store(&s.end, true);
        pthread_join(t, NULL);
        u.peak = s.peak << 10;
        snprintf(u.msg, sizeof u.msg, "%.400s %.100s", e.msg, e.hint);
        _exit(write(fds[1], &u, sizeof u) == sizeof u ? 0 : 1);
    }
    close(fds[1]);
    struct usage u;
    assert_int_equal(read(fds[0], &u, sizeof u), sizeof u);
    close(fds[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return u;
}

static void memory_stays_in_the_budget(void **state)
{
    (void)state;
    if (SANITIZED) {
        print_message("not measured: a sanitizer's own memory would be\n");
        skip();
    }
    struct format_create c = {.splitter = "DYNAMIC-4M-BUZHASH"};
    struct format_create big = {.version = 2, .splitter = "DYNAMIC-8M-BUZHASH", .ecc_percent = 1};
    repo_free(new_repo("memory", &c));
    repo_free(new_repo("memory8", &big));
    /* 4 TiB, nearly all of it holes. */
    int fd = open(path_of("sparse"), O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    uint8_t *p = malloc(MIB);
    assert_non_null(p);
    assert_int_equal(ftruncate(fd, (off_t)4 << 40), 0);
    uint64_t seed = 5;
    for (unsigned i = 0; i < 40; i++) {
        fill_random(p, MIB, i);
        assert_int_equal(pwrite(fd, p, MIB, (off_t)(splitmix64(&seed) % ((uint64_t)4 << 40))), MIB);
    }
    close(fd);
    /* Incompressible, more than any budget here. */
    fd = open(path_of("random"), O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    for (unsigned i = 0; i < 320; i++) {
        fill_random(p, MIB, 1000 + i);
        assert_int_equal(write(fd, p, MIB), MIB);
    }
    close(fd);
    free(p);
    static const struct {
        const char *repo, *image;
        uint64_t memory;
    } runs[] = {
        {"memory", "sparse", MEMORY_MIN}, {"memory", "sparse", MEMORY_MIN}, {"memory", "random", MEMORY_MIN},
        {"memory", "random", 200 * MIB},  {"memory8", "random", 128 * MIB}, {"memory8", "random", 0},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct backup_opts o = opts_for(i < 2 ? "sparse" : "random");
        o.limits.memory = runs[i].memory;
        o.compression = 0x1101;
        o.limits.workers = 4;
        struct usage u = measure(runs[i].repo, path_of(runs[i].image), &o);
        if (u.rc < 0)
            fail_msg("%s: %s", runs[i].image, u.msg);
        uint64_t budget = o.limits.memory ? o.limits.memory : MEMORY_DEFAULT;
        print_message("%s, budget %3llu MiB: peak %llu MiB\n", runs[i].image, (unsigned long long)budget >> 20,
                      (unsigned long long)u.peak >> 20);
        assert_true(u.peak > 4 * MIB);
        assert_true(u.peak < budget);
    }
    /* Too little is refused with the number that is enough. */
    struct repo *CLEANUP(repo_freep) r = open_repo("memory8");
    struct backup_opts o = opts_for("random");
    struct err e = ERR_INIT;
    struct backup_result ret;
    o.limits.memory = MEMORY_MIN - 1;
    assert_int_equal(try_backup(r, path_of("random"), &o, &ret, &e), -EINVAL);
    assert_int_equal(e.cls, ERR_USAGE);
    o.limits.memory = MEMORY_MIN;
    o.compression = 0x1101;
    assert_int_equal(try_backup(r, path_of("random"), &o, &ret, &e), -ENOMEM);
    assert_int_equal(e.cls, ERR_MEMORY);
    unsigned enough = 0;
    assert_int_equal(sscanf(e.hint, "use --memory %uMiB", &enough), 1);
    assert_true(enough > 96 && enough < 128);
    unlink(path_of("sparse"));
    unlink(path_of("random"));
}

/* ---- a repository that takes no more ---- */

static void a_store_that_fails_ends_the_run(void **state)
{
    (void)state;
    repo_free(new_repo("full", NULL));
    struct image m = {malloc(24 * MIB), 24 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 2);
    char path[256];
    snprintf(path, sizeof path, "%s", path_of("full.img"));
    write_image(path, &m, false);
    struct backup_opts o = opts_for("full");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* No file may get longer: packs cannot be written. */
        struct rlimit limit = {3 * MIB, 3 * MIB};
        signal(SIGXFSZ, SIG_IGN);
        struct err e = ERR_INIT;
        struct backup_result ret;
        struct source *src;
        struct repo *r = open_repo("full");
        if (setrlimit(RLIMIT_FSIZE, &limit) || source_open(&src, path, &e) < 0)
            _exit(2);
        int rc = backup_run(r, src, &o, &ret, &e);
        _exit(rc < 0 && rc != -ECANCELED && e.sys == EFBIG && !*ret.manifest_id ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    struct repo *CLEANUP(repo_freep) r = open_repo("full");
    assert_int_equal(incomplete_ones(r, &o), 0);
    struct backup_result ret = backup(r, path, &o);
    assert_bytes(r, &ret.image, &m);
    free(m.p);
}

/* ---- kill -9 ---- */

static int read_snapshot(struct snapshot *s, void *arg)
{
    struct repo *r = arg;
    struct err e = ERR_INIT;
    static const char *const names[] = {"volume.img", "volume.json"};
    for (unsigned i = 0; i < 2; i++) {
        if (i == 0 && *s->incomplete)
            continue; /* it has a longer name then; its bytes are those that the next run reuses */
        struct dir_entry d;
        assert_ok(dir_lookup(r, &s->root, names[i], &d, &e), &e);
        struct object_reader *CLEANUP(object_reader_freep) o = NULL;
        assert_ok(object_reader_open(&o, r, &d.obj, &e), &e);
        uint8_t *CLEANUP_FREE buf = malloc(MIB);
        int64_t n, all = 0;
        while ((n = object_reader_read(o, buf, MIB, &e)) > 0)
            all += n;
        assert_ok(n, &e);
        assert_int_equal(all, d.size);
        dir_entry_clear(&d);
    }
    return 0;
}

static int count_blob(const struct blob_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return 0;
}

static unsigned packs_in(struct repo *r)
{
    struct err e = ERR_INIT;
    unsigned n = 0;
    assert_ok(blobs_list(repo_blobs(r), "p", count_blob, &n, &e), &e);
    return n;
}

/* A backup in a process of its own that kills itself at a crash point. */
static void crash_at(const char *repo, const char *point, const char *path, const struct backup_opts *o)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("SNAPFERRY_CRASH_AT", point, 1);
        struct err e = ERR_INIT;
        struct backup_result ret;
        struct source *src;
        struct repo *r = open_repo(repo);
        if (source_open(&src, path, &e) == 0)
            backup_run(r, src, o, &ret, &e);
        fprintf(stderr, "still alive: %s\n", e.msg);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("the backup did not die at %s: status %x", point, status);
}

static void a_killed_run_harms_nothing_and_is_resumed(void **state)
{
    (void)state;
    static const char *const points[] = {
        "marker-put",    "chunk-stored",   "chunk-stored:200",   "pack-written:2",          "pack-renamed:3",
        "index-written", "marker-deleted", "before-final-flush", "checkpoint-manifest-put", "after-final-flush",
    };
    struct format_create c = {.pack_size = 10 << 20};
    struct image m = {malloc(44 * MIB), (SANITIZED ? 36 : 44) * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 64);
    char path[256];
    snprintf(path, sizeof path, "%s", path_of("killed"));
    write_image(path, &m, false);
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "kill%zu", i);
        struct repo *first = new_repo(name, &c);
        struct backup_opts o = opts_for("killed");
        repo_free(first);
        if (strcmp(points[i], "checkpoint-manifest-put") == 0)
            o.checkpoint_s = 1;
        read_delay_us = o.checkpoint_s ? 100000 : 0;
        o.no_uring = o.checkpoint_s != 0;
        o.depth = o.checkpoint_s ? 1 : 0;
        crash_at(name, points[i], path, &o);
        read_delay_us = 0;
        struct repo *CLEANUP(repo_freep) r = open_repo(name);
        struct err e = ERR_INIT;
        unsigned bad = 0, before = packs_in(r);
        assert_ok(snapshots_each(r, NULL, false, read_snapshot, r, &bad, &e), &e);
        assert_int_equal(bad, 0);
        o = opts_for("killed");
        struct backup_result ret = backup(r, path, &o);
        assert_bytes(r, &ret.image, &m);
        assert_ok(snapshots_each(r, NULL, false, read_snapshot, r, &bad, &e), &e);
        assert_int_equal(incomplete_ones(r, &o), 0);
        /* Finished packs are full but for their last chunk, and are not stored again. */
        uint64_t kept = (uint64_t)before * (c.pack_size - 2 * 256 * KIB);
        print_message("killed at %s: %u packs were finished, then %llu of %llu MiB new\n", points[i], before,
                      (unsigned long long)ret.new_bytes >> 20, (unsigned long long)m.len >> 20);
        assert_true(ret.new_bytes + kept <= m.len + (before ? c.pack_size : 0));
        if (strcmp(points[i], "pack-renamed:3") == 0)
            assert_true(before >= 3 && ret.adopted_packs >= 3);
    }
    free(m.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_canceled_run_is_resumed),
        cmocka_unit_test(checkpoints_are_committed_on_the_way),
        cmocka_unit_test(bad_ranges_are_mapped_or_fatal),
        cmocka_unit_test(many_bad_ranges_stay_a_bounded_list),
        cmocka_unit_test(sources_that_grow_or_shrink),
        cmocka_unit_test(references_are_looked_up_again),
        cmocka_unit_test(a_store_that_fails_ends_the_run),
        cmocka_unit_test(memory_stays_in_the_budget),
        cmocka_unit_test(a_killed_run_harms_nothing_and_is_resumed),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
