/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_repo.c - contents put, flushed, read; by many threads, with failures at every place. */
#include "tests/unit/repo.h"

/* ---- round trips ---- */

static const size_t lengths[] = {0, 1, 27, 4095, 70000, 300001, 2 * MIB + 13};
#define N_LENGTHS (sizeof lengths / sizeof lengths[0])

static void put_variety(struct session *s, struct content_id *ids)
{
    struct put_scratch *p = scratch_for(session_repo(s), 3 * MIB);
    uint8_t *data = malloc(3 * MIB);
    assert_non_null(data);
    for (size_t i = 0; i < N_LENGTHS; i++) {
        for (int text = 0; text < 2; text++) {
            fill(data, lengths[i], i, text);
            assert_ok(session_put_bytes(s, p, text ? 'k' : 0, data, lengths[i], ZSTD, &ids[2 * i + (size_t)text], &err),
                      &err);
        }
    }
    free(data);
    put_scratch_free(p);
}

static void read_variety(struct repo *r, const struct content_id *ids)
{
    struct content_reader *c;
    uint8_t *data = malloc(3 * MIB);
    assert_non_null(data);
    assert_ok(content_reader_new(&c, r, &err), &err);
    for (size_t i = 0; i < N_LENGTHS; i++) {
        for (int text = 0; text < 2; text++) {
            CLEANUP_FREE uint8_t *got = NULL;
            struct index_entry n;
            const struct content_id *id = &ids[2 * i + (size_t)text];
            fill(data, lengths[i], i, text);
            int64_t len = content_get(c, id, &got, 3 * MIB, &err);
            assert_ok(len, &err);
            assert_int_equal(len, lengths[i]);
            assert_memory_equal(got, data, lengths[i]);
            memset(got, 0xaa, lengths[i]);
            assert_ok(read_content(r, c, id, got, lengths[i], &err), &err);
            assert_memory_equal(got, data, lengths[i]);
            assert_ok(repo_find(r, id, &n, &err), &err);
            assert_int_equal(n.pack[0], text ? 'q' : 'p');
            assert_int_equal(n.length, lengths[i]);
            assert_int_equal(n.format_version, repo_format(r)->version);
            bool squeezed = text && lengths[i] > 4000 && repo_format(r)->index_version > 1;
            assert_int_equal(n.compression, squeezed ? ZSTD : 0);
        }
    }
    content_reader_free(c);
    free(data);
}

static void roundtrip(const struct format_create *f)
{
    struct place *p = place_new(f);
    struct content_id ids[2 * N_LENGTHS];
    struct session *s = begin(p->repo, 0);
    struct session_stats st;
    put_variety(s, ids);
    /* from packs that are still open */
    read_variety(p->repo, ids);
    assert_int_equal(count_packs(p->repo), 0);
    assert_ok(session_flush(s, &err), &err);
    assert_int_equal(session_pending(s), 0);
    read_variety(p->repo, ids);
    session_stats(s, &st);
    assert_int_equal(st.new_contents, 2 * N_LENGTHS);
    assert_int_equal(st.packs, 2);
    assert_int_equal(st.index_blobs, 1);
    session_free(s);
    assert_int_equal(count_packs(p->repo), 2);
    assert_int_equal(count_blobs(p->repo, "s"), 0);
    assert_int_equal(count_records(p->repo), 0);
    place_reopen(p);
    read_variety(p->repo, ids);
    /* all known */
    s = begin(p->repo, 0);
    put_variety(s, ids);
    session_stats(s, &st);
    assert_int_equal(st.new_contents, 0);
    assert_int_equal(st.dup_contents, 2 * N_LENGTHS);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    assert_int_equal(count_packs(p->repo), 2);
    assert_int_equal(count_leftovers(p->dir), 0);
    place_free(p);
}

static void roundtrip_formats(void **state)
{
    (void)state;
    roundtrip(&(struct format_create){.version = 1});
    roundtrip(&(struct format_create){.version = 2, .hash = "BLAKE2B-256"});
    roundtrip(&(struct format_create){.version = 3});
    roundtrip(&(struct format_create){.hash = "HMAC-SHA256", .encryption = "CHACHA20-POLY1305-HMAC-SHA256"});
    roundtrip(&(struct format_create){.hash = "HMAC-SHA224", .ecc_percent = 2});
    roundtrip(&(struct format_create){.version = 1, .hash = "BLAKE3-256"});
    roundtrip(&(struct format_create){.version = 2, .hash = "BLAKE2S-128", .ecc_percent = 20});
}

static void packs_are_split(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *s = begin(p->repo, 0);
    assert_int_equal(put_range(s, 0, 35, MIB, &err), 35);
    assert_ok(session_flush(s, &err), &err);
    struct packs_check c = {.repo = p->repo};
    assert_ok(blobs_list(repo_blobs(p->repo), "p", check_pack, &c, &err), &err);
    /* 10 contents of 1 MiB + 28 bytes behind the preamble close a pack of 10 MiB. */
    assert_int_equal(c.packs, 4);
    assert_int_equal(c.entries, 35);
    struct session_stats st;
    session_stats(s, &st);
    assert_int_equal(st.packs, 4);
    assert_int_equal(st.stored_bytes, 35 * (MIB + 28));
    session_free(s);
    assert_ok(read_range(p->repo, 0, 35, MIB, &err), &err);
    place_free(p);
}

/* Suspended for days: other clients may have deleted what no index has. */
static void old_packs_are_not_indexed(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *s = begin(p->repo, 0);
    assert_int_equal(put_range(s, 0, 3, MIB, &err), 3);
    session_test_age(s, 47 * NS_PER_H);
    assert_ok(session_flush(s, &err), &err);
    assert_int_equal(put_range(s, 3, 3, MIB, &err), 3);
    session_test_age(s, 49 * NS_PER_H);
    assert_true(session_flush(s, &err) < 0);
    assert_int_equal(err.cls, ERR_CLOCK);
    assert_non_null(strstr(err.msg, "49 hours ago"));
    session_free(s);
    assert_int_equal(count_blobs(p->repo, "xn"), 1);
    assert_ok(read_range(p->repo, 0, 3, MIB, &err), &err);
    err = (struct err)ERR_INIT;
    place_free(p);
}

/* Maintenance stores a content once more: the new place counts, what does not exist or is deleted is left alone. */
static void put_again(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *s = begin(p->repo, 0);
    struct put_scratch *scratch;
    struct put_result res;
    struct content_id id;
    struct index_entry first, now;
    static const char text[] = "a content that is stored twice";
    assert_ok(put_scratch_new(&scratch, p->repo, 0, 0, &err), &err);
    assert_ok(session_put_bytes(s, scratch, 0, text, sizeof text, 0, &id, &err), &err);
    assert_ok(session_flush(s, &err), &err);
    assert_ok(index_set_find(repo_index(p->repo), &id, &first, &err), &err);
    assert_ok(session_put_again(s, scratch, &id, text, sizeof text, 0, &res, &err), &err);
    assert_false(res.existed);
    assert_ok(session_flush(s, &err), &err);
    assert_ok(index_set_find(repo_index(p->repo), &id, &now, &err), &err);
    assert_string_not_equal(now.pack, first.pack);
    assert_true(now.time > first.time);
    assert_ok(session_delete_content(s, &id, &err), &err);
    assert_ok(session_flush(s, &err), &err);
    assert_ok(session_put_again(s, scratch, &id, text, sizeof text, 0, &res, &err), &err);
    assert_true(res.existed);
    id.hash[0] ^= 1;
    assert_ok(session_put_again(s, scratch, &id, text, sizeof text, 0, &res, &err), &err);
    assert_true(res.existed);
    put_scratch_free(scratch);
    session_free(s);
    place_free(p);
}

static void order_of_writes(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    p->c.n_log = 0;
    struct session *s = begin(p->repo, 0);
    assert_int_equal(put_range(s, 0, 12, MIB, &err), 12);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    /* R1: marker, packs, index, marker deleted. */
    assert_int_equal(p->c.n_log, 5);
    static const char ops[] = "PCCPD", first[] = "sppxs";
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(p->c.log[i].op, ops[i]);
        assert_int_equal(p->c.log[i].name[0], first[i]);
    }
    assert_string_equal(p->c.log[0].name, p->c.log[4].name);
    const char *session = strchr(p->c.log[0].name, '-');
    assert_non_null(session);
    assert_non_null(strstr(p->c.log[1].name, session));
    assert_non_null(strstr(p->c.log[3].name, session));
    place_free(p);
}

/* ---- many threads ---- */

struct worker {
    struct session *s;
    unsigned first, n, step;
    size_t len;
    atomic_int *fresh;
    atomic_bool *stop;
};

static void *put_worker(void *arg)
{
    const struct worker *w = arg;
    struct err e = ERR_INIT;
    for (unsigned i = 0; i < w->n; i += w->step) {
        int rc = put_range(w->s, w->first + i, w->step, w->len, &e);
        if (rc < 0) {
            atomic_store(w->fresh, -1000000);
            return NULL;
        }
        atomic_fetch_add(w->fresh, rc);
    }
    return NULL;
}

static void *flush_worker(void *arg)
{
    const struct worker *w = arg;
    struct err e = ERR_INIT;
    while (!atomic_load(w->stop)) {
        if (session_flush(w->s, &e) < 0)
            atomic_store(w->fresh, -1000000);
        usleep(2000);
    }
    return NULL;
}

#define THREADS 4

static void many_threads(size_t max_pending, bool flushing)
{
    struct place *p = place_new(NULL);
    struct session *s = begin(p->repo, max_pending);
    pthread_t t[THREADS], f;
    atomic_int fresh = 0;
    atomic_bool stop = false;
    struct worker all[THREADS], fw = {.s = s, .fresh = &fresh, .stop = &stop};
    for (int i = 0; i < THREADS; i++) {
        /* all the same contents, and some of their own */
        all[i] = (struct worker){.s = s, .n = 400, .step = 20, .len = 40000, .fresh = &fresh};
        assert_int_equal(pthread_create(&t[i], NULL, put_worker, &all[i]), 0);
    }
    if (flushing)
        assert_int_equal(pthread_create(&f, NULL, flush_worker, &fw), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    atomic_store(&stop, true);
    if (flushing)
        pthread_join(f, NULL);
    assert_ok(session_flush(s, &err), &err);
    assert_int_equal(fresh, 400);
    struct session_stats st;
    session_stats(s, &st);
    assert_int_equal(st.new_contents, 400);
    assert_int_equal(st.dup_contents, 3 * 400);
    session_free(s);
    assert_int_equal(count_blobs(p->repo, "s"), 0);
    assert_ok(read_range(p->repo, 0, 400, 40000, &err), &err);
    place_reopen(p);
    assert_ok(read_range(p->repo, 0, 400, 40000, &err), &err);
    place_free(p);
}

static void threads_put_the_same(void **state)
{
    (void)state;
    many_threads(0, false);
}

static void threads_put_while_flushing(void **state)
{
    (void)state;
    many_threads(0, true);
}

static void threads_with_a_small_table(void **state)
{
    (void)state;
    many_threads(16, false);
}

/* ---- deletion ---- */

static void delete_and_put_again(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *s = begin(p->repo, 0);
    struct content_id id;
    struct index_entry n, older;
    uint8_t data[1000];
    fill(data, sizeof data, 5, false);
    id_of(p->repo, 0, data, sizeof data, &id);
    assert_int_equal(put_range(s, 5, 1, sizeof data, &err), 1);
    assert_ok(session_flush(s, &err), &err);
    assert_ok(repo_find(p->repo, &id, &older, &err), &err);

    for (int flushed = 0; flushed < 2; flushed++) {
        assert_ok(session_delete_content(s, &id, &err), &err);
        assert_ok(session_delete_content(s, &id, &err), &err);
        assert_int_equal(session_has(s, &id, &err), 0);
        if (flushed)
            assert_ok(session_flush(s, &err), &err);
        assert_ok(repo_find(p->repo, &id, &n, &err), &err);
        assert_true(n.deleted);
        assert_true(n.time > older.time);
        assert_string_equal(n.pack, older.pack);
        assert_int_equal(n.offset, older.offset);
        /* deleted, not yet collected: readable, but not to be relied on */
        assert_ok(read_range(p->repo, 5, 1, sizeof data, &err), &err);
        older = n;
        assert_int_equal(put_range(s, 5, 1, sizeof data, &err), 1);
        assert_int_equal(put_range(s, 5, 1, sizeof data, &err), 0);
        assert_ok(session_flush(s, &err), &err);
        assert_ok(repo_find(p->repo, &id, &n, &err), &err);
        assert_false(n.deleted);
        assert_true(n.time > older.time);
        assert_string_not_equal(n.pack, older.pack);
        older = n;
        session_free(s);
        place_reopen(p);
        s = begin(p->repo, 0);
        assert_ok(repo_find(p->repo, &id, &n, &err), &err);
        assert_false(n.deleted);
        assert_int_equal(n.time, older.time);
    }
    /* what was never flushed */
    fill(data, sizeof data, 6, false);
    id_of(p->repo, 0, data, sizeof data, &id);
    assert_int_equal(put_range(s, 6, 1, sizeof data, &err), 1);
    assert_ok(session_delete_content(s, &id, &err), &err);
    assert_int_equal(session_has(s, &id, &err), 0);
    assert_ok(session_flush(s, &err), &err);
    assert_int_equal(session_has(s, &id, &err), 0);
    fill(data, sizeof data, 7, false);
    id_of(p->repo, 0, data, sizeof data, &id);
    assert_int_equal(session_delete_content(s, &id, &err), -ENOENT);
    session_free(s);
    place_free(p);
}

/* ---- failures ---- */

/* One run: contents put, flushed, deleted, put, flushed. */
static int eventful_run(struct session *s, struct err *e)
{
    int rc = put_range(s, 100, 12, MIB, e);
    if (rc >= 0)
        rc = session_flush(s, e);
    if (rc >= 0)
        rc = put_range(s, 200, 3, 1000, e);
    if (rc >= 0)
        rc = session_flush(s, e);
    return rc < 0 ? rc : 0;
}

static void every_failure(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *s = begin(p->repo, 0);
    assert_int_equal(put_range(s, 0, 3, 5000, &err), 3);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    unsigned failures = 0;
    for (unsigned at = 1;; at++) {
        struct err e = ERR_INIT;
        struct session_opts o = {.no_adopt = at % 2 == 0};
        pthread_mutex_lock(&p->c.lock);
        p->c.changes = 0;
        p->c.fail_at = at;
        p->c.failed = false;
        pthread_mutex_unlock(&p->c.lock);
        int rc = session_new(&s, p->repo, &o, &e);
        if (rc == 0) {
            rc = eventful_run(s, &e);
            /* It stays failed, and says the same. */
            if (rc < 0 && e.cls == ERR_NO_SPACE && strncmp(e.msg, "cannot write the index", 22) != 0) {
                struct err again = ERR_INIT;
                assert_true(session_flush(s, &again) < 0);
                assert_string_equal(again.msg, e.msg);
            }
            session_free(s);
        }
        if (rc < 0) {
            assert_true(p->c.failed);
            assert_int_equal(e.cls, ERR_NO_SPACE);
            assert_non_null(strstr(e.msg, "injected failure"));
            failures++;
        }
        assert_int_equal(count_leftovers(p->dir), 0);
        assert_ok(index_set_refresh(repo_index(p->repo), &err), &err);
        assert_ok(read_range(p->repo, 0, 3, 5000, &err), &err);
        if (!p->c.failed)
            break;
        p->c.fail_at = 0;
        /* The contents of the failed run go, so that the next one has as much to do. */
        struct session *clean = begin(p->repo, 0);
        for (unsigned i = 0; i < 15; i++) {
            uint8_t *data = malloc(MIB);
            assert_non_null(data);
            struct content_id id;
            size_t len = i < 12 ? MIB : 1000;
            fill(data, len, i < 12 ? 100 + i : 200 + i - 12, false);
            id_of(p->repo, 0, data, len, &id);
            free(data);
            if (session_has(clean, &id, &err) == 1)
                assert_ok(session_delete_content(clean, &id, &err), &err);
        }
        assert_ok(session_flush(clean, &err), &err);
        session_free(clean);
    }
    assert_true(failures > 20);
    assert_int_equal(count_blobs(p->repo, "s"), 0);
    place_reopen(p);
    assert_ok(read_range(p->repo, 0, 3, 5000, &err), &err);
    assert_ok(read_range(p->repo, 100, 12, MIB, &err), &err);
    place_free(p);
}

/* An index that could not be written is written by the next flush, and nothing waits for ever in between. */
static void flush_is_repeated(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *s = begin(p->repo, 0);
    struct content_id id;
    uint8_t data[1000];
    for (int how = 0; how < 3; how++) {
        unsigned first = 10 * (unsigned)how;
        struct err e = ERR_INIT;
        fill(data, sizeof data, first, false);
        id_of(p->repo, 0, data, sizeof data, &id);
        assert_int_equal(put_range(s, first, 3, sizeof data, &err), 3);
        assert_ok(session_flush(s, &err), &err);
        assert_ok(session_delete_content(s, &id, &err), &err);
        assert_int_equal(put_range(s, first + 3, 2, sizeof data, &err), 2);
        p->c.fail_letter = 'x';
        assert_int_equal(session_flush(s, &e), -ENOSPC);
        assert_non_null(strstr(e.hint, "safe"));
        assert_int_equal(session_pending(s), 3);
        assert_ok(read_range(p->repo, first, 5, sizeof data, &err), &err);
        assert_int_equal(count_blobs(p->repo, "s"), 1);
        if (how == 0)
            assert_ok(session_flush(s, &err), &err);
        else if (how == 1)
            assert_int_equal(put_range(s, first, 1, sizeof data, &err), 1);
        else
            assert_ok(session_delete_content(s, &id, &err), &err);
        assert_ok(session_flush(s, &err), &err);
        assert_int_equal(session_pending(s), 0);
        assert_int_equal(session_has(s, &id, &err), how == 1);
        assert_ok(read_range(p->repo, first, 5, sizeof data, &err), &err);
        assert_int_equal(count_blobs(p->repo, "s"), 0);
    }
    session_free(s);
    place_free(p);
}

/* What takes longer than 12 h without a flush has a young marker all the same. */
static void markers_are_renewed(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *s = begin(p->repo, 0);
    s->current->marked_ns -= 13 * NS_PER_H;
    assert_int_equal(put_range(s, 0, 3, 1000, &err), 3);
    assert_int_equal(count_blobs(p->repo, "s"), 2);
    assert_ok(session_flush(s, &err), &err);
    assert_int_equal(count_blobs(p->repo, "s"), 0);
    session_free(s);
    place_free(p);
}

static void no_space_left(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: a small file system can only be mounted by root\n");
        skip();
    }
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const char *dir = fresh_path("tmpfs");
        mkdir(dir, 0700);
        if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", dir, "tmpfs", 0, "size=24m") < 0)
            _exit(77);
        char repo[600];
        snprintf(repo, sizeof repo, "%s/r", dir);
        copy_small_repo(repo);
        struct repo *r = open_repo(repo, fresh_path("cache"), NULL);
        struct session *s = begin(r, 0);
        assert_int_equal(put_range(s, 0, 3, 5000, &err), 3);
        assert_ok(session_flush(s, &err), &err);
        struct err e = ERR_INIT;
        int rc = put_range(s, 100, 40, MIB, &e);
        if (rc >= 0)
            rc = session_flush(s, &e);
        if (rc != -ENOSPC || e.cls != ERR_NO_SPACE || !e.hint[0])
            _exit(2);
        session_free(s);
        if (count_leftovers(repo) != 0 || count_packs(r) < 2)
            _exit(3);
        assert_ok(read_range(r, 0, 3, 5000, &err), &err);
        repo_free(r);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("skipped: mounting is not allowed here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void clock_is_checked(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *s;
    static const int64_t minute = INT64_C(60000000000);
    for (int sign = -1; sign <= 1; sign += 2) {
        struct err e = ERR_INIT;
        p->c.shift_ns = sign * 6 * minute;
        assert_true(session_new(&s, p->repo, NULL, &e) < 0);
        assert_int_equal(e.cls, ERR_CLOCK);
        assert_non_null(strstr(e.msg, "5 minutes"));
        assert_true(e.hint[0]);
        assert_int_equal(count_blobs(p->repo, "s"), 0);
        assert_int_equal(count_records(p->repo), 0);
        p->c.shift_ns = sign * 4 * minute;
        s = begin(p->repo, 0);
        session_free(s);
        assert_int_equal(count_blobs(p->repo, "s"), 0);
    }
    place_free(p);
}

static void session_without_flush(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *s = begin(p->repo, 0);
    assert_int_equal(count_blobs(p->repo, "s"), 1);
    assert_int_equal(put_range(s, 0, 3, 5000, &err), 3);
    session_free(s);
    assert_int_equal(count_blobs(p->repo, "s"), 0);
    assert_int_equal(count_packs(p->repo), 0);
    assert_int_equal(count_records(p->repo), 0);
    assert_int_equal(count_leftovers(p->dir), 0);
    place_free(p);
}

/* ---- reading ---- */

static void damage_is_told(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *s = begin(p->repo, 0);
    struct content_id id;
    struct index_entry n;
    struct content_reader *c;
    uint8_t data[5000], got[5000];
    assert_int_equal(put_range(s, 0, 1, sizeof data, &err), 1);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    fill(data, sizeof data, 0, false);
    id_of(p->repo, 0, data, sizeof data, &id);
    assert_ok(content_reader_new(&c, p->repo, &err), &err);
    assert_ok(repo_find(p->repo, &id, &n, &err), &err);

    struct err e = ERR_INIT;
    char text[CONTENT_ID_TEXT];
    content_id_text(&id, text);
    assert_int_equal(content_read_entry(c, &n, NULL, got, 4999, false, &e), -ERANGE);
    /* the caller's bytes, and what is wrong with them */
    uint8_t stored[5028];
    assert_int_equal(n.packed, sizeof stored);
    assert_ok(blobs_read(repo_blobs(p->repo), n.pack, n.offset, stored, n.packed, &err), &err);
    memset(got, 0, sizeof got);
    assert_int_equal(content_read_entry(c, &n, stored, got, sizeof got, true, &err), 5000);
    assert_memory_equal(got, data, sizeof data);
    for (size_t i = 0; i < sizeof stored; i += 97) {
        stored[i] ^= 4;
        assert_true(content_read_entry(c, &n, stored, got, sizeof got, true, &e) < 0);
        assert_int_equal(e.cls, ERR_DAMAGE);
        assert_non_null(strstr(e.msg, text));
        assert_non_null(strstr(e.msg, n.pack));
        stored[i] ^= 4;
    }
    struct index_entry bad = n;
    bad.key_id = 1;
    assert_true(content_read_entry(c, &bad, stored, got, sizeof got, true, &e) < 0);
    assert_int_equal(e.cls, ERR_FORMAT);
    bad = n;
    bad.length--;
    assert_true(content_read_entry(c, &bad, stored, got, sizeof got, true, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    bad = n;
    bad.packed = 20;
    assert_true(content_read_entry(c, &bad, stored, got, sizeof got, true, &e) < 0);
    bad = n;
    bad.id.len = 8;
    assert_true(content_read_entry(c, &bad, stored, got, sizeof got, true, &e) < 0);
    bad = n;
    bad.compression = ZSTD;
    assert_true(content_read_entry(c, &bad, stored, got, sizeof got, true, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    /* beyond the pack's end, and no pack */
    bad = n;
    bad.offset += 1 << 20;
    assert_true(content_read_entry(c, &bad, NULL, got, sizeof got, true, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_ok(blobs_delete(repo_blobs(p->repo), n.pack, &err), &err);
    for (int i = 0; i < 20; i++) {
        assert_true(read_content(p->repo, c, &id, got, sizeof got, &e) < 0);
        assert_int_equal(e.cls, ERR_DAMAGE);
        assert_non_null(strstr(e.msg, text));
    }
    id.hash[0] ^= 1;
    assert_int_equal(read_content(p->repo, c, &id, got, sizeof got, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_DAMAGE);
    content_reader_free(c);
    place_free(p);
}

static void count_told(const struct index_entry *x, void *arg)
{
    (void)x;
    ++*(unsigned *)arg;
}

static uint64_t stored_anew(struct place *p, unsigned len)
{
    struct session_stats st;
    struct session *s = begin(p->repo, 0);
    assert_true(put_range(s, 0, 1, len, &err) >= 0);
    assert_ok(session_flush(s, &err), &err);
    session_stats(s, &st);
    session_free(s);
    return st.new_contents;
}

/* What error correction had to restore counts as missing for whoever stores it, until it is stored elsewhere. */
static void what_was_corrected_is_stored_again(void **state)
{
    (void)state;
    struct place *p = place_new(&(struct format_create){.ecc_percent = 20});
    struct content_id id;
    struct index_entry n, now;
    struct content_reader *c;
    struct err e = ERR_INIT;
    unsigned told = 0;
    uint8_t data[5000], got[5000];
    assert_int_equal(stored_anew(p, sizeof data), 1);
    assert_int_equal(stored_anew(p, sizeof data), 0);
    fill(data, sizeof data, 0, false);
    id_of(p->repo, 0, data, sizeof data, &id);
    assert_ok(content_reader_new(&c, p->repo, &err), &err);
    assert_ok(repo_find(p->repo, &id, &n, &err), &err);
    CLEANUP_FREE uint8_t *stored = malloc(n.packed);
    assert_non_null(stored);
    assert_ok(blobs_read(repo_blobs(p->repo), n.pack, n.offset, stored, n.packed, &err), &err);
    repo_on_corrected(p->repo, count_told, &told);
    assert_int_equal(content_read_entry(c, &n, stored, got, sizeof got, true, &err), 5000);
    assert_int_equal(told, 0);
    assert_false(repo_is_corrected(p->repo, &n));
    stored[n.packed / 2] ^= 4;
    memset(got, 0, sizeof got);
    assert_int_equal(content_read_entry(c, &n, stored, got, sizeof got, true, &err), 5000);
    assert_memory_equal(got, data, sizeof data);
    assert_int_equal(told, 1);
    assert_true(repo_is_corrected(p->repo, &n));
    assert_int_equal(repo_has(p->repo, &id, &err), 0);
    content_reader_free(c);
    place_reopen(p);
    assert_true(repo_is_corrected(p->repo, &n));
    assert_int_equal(stored_anew(p, sizeof data), 1);
    assert_ok(repo_find(p->repo, &id, &now, &err), &err);
    assert_string_not_equal(now.pack, n.pack);
    assert_false(repo_is_corrected(p->repo, &now));
    assert_int_equal(repo_has(p->repo, &id, &err), 1);
    assert_int_equal(stored_anew(p, sizeof data), 0);
    /* Beyond that it is damage. */
    assert_ok(content_reader_new(&c, p->repo, &err), &err);
    memset(stored, 0x55, n.packed);
    assert_true(content_read_entry(c, &n, stored, got, sizeof got, true, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_false(repo_is_corrected(p->repo, &n));
    content_reader_free(c);
    place_free(p);
}

/* R8: an entry moved, a content came, since the index was loaded. */
static void moved_contents_are_found(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *s = begin(p->repo, 0);
    struct content_id id;
    struct index_entry old;
    uint8_t data[5000];
    assert_int_equal(put_range(s, 0, 1, sizeof data, &err), 1);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    fill(data, sizeof data, 0, false);
    id_of(p->repo, 0, data, sizeof data, &id);
    struct repo *other = open_repo(p->dir, fresh_path("cache"), NULL);
    assert_ok(repo_find(other, &id, &old, &err), &err);
    s = begin(p->repo, 0);
    assert_ok(session_delete_content(s, &id, &err), &err);
    assert_ok(session_flush(s, &err), &err);
    assert_int_equal(put_range(s, 0, 2, sizeof data, &err), 2);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    assert_ok(blobs_delete(repo_blobs(p->repo), old.pack, &err), &err);
    assert_ok(read_range(other, 0, 1, sizeof data, &err), &err);
    repo_free(other);
    other = open_repo(p->dir, fresh_path("cache"), NULL);
    s = begin(p->repo, 0);
    assert_int_equal(put_range(s, 10, 2, sizeof data, &err), 2);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    assert_ok(read_range(other, 0, 2, sizeof data, &err), &err);
    assert_ok(read_range(other, 10, 2, sizeof data, &err), &err);
    repo_free(other);
    place_free(p);
}

/* R3, R10: what was loaded 15 minutes ago is looked at again. */
static void format_is_kept_fresh(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct repo *r = p->repo;
    struct blobs *b = repo_blobs(r);
    const struct repo_format *f = repo_format(r);
    struct blob_stats st;
    blobs_stats(b, &st);
    uint64_t gets = st.gets;
    assert_ok(repo_keep_fresh(r, &err), &err);
    blobs_stats(b, &st);
    assert_int_equal(st.gets, gets);
    /* not changed: read, and kept */
    atomic_store(&r->format_checked_ns, now_ns() - 16 * NS_PER_MIN);
    assert_ok(repo_keep_fresh(r, &err), &err);
    blobs_stats(b, &st);
    assert_int_equal(st.gets, gets + 1);
    assert_ptr_equal(repo_format(r), f);
    assert_true(now_ns() - atomic_load(&r->format_checked_ns) < NS_PER_MIN);
    /* a clock that was set back */
    atomic_store(&r->format_checked_ns, now_ns() + 16 * NS_PER_MIN);
    assert_ok(repo_keep_fresh(r, &err), &err);
    blobs_stats(b, &st);
    assert_int_equal(st.gets, gets + 2);

    /* an upgrade begins: everything stops */
    struct session *s = begin(r, 0);
    struct err e = ERR_INIT;
    struct upgrade_lock *lock = &((struct repo_format *)(uintptr_t)f)->lock;
    assert_int_equal(put_range(s, 0, 1, 1000, &err), 1);
    *lock = (struct upgrade_lock){.present = true, .owner = "someone", .creation_ns = now_ns()};
    assert_int_equal(put_range(s, 1, 1, 1000, &e), -EBUSY);
    assert_int_equal(e.cls, ERR_BUSY);
    assert_non_null(strstr(e.msg, "someone"));
    assert_int_equal(session_flush(s, &e), -EBUSY);
    lock->present = false;
    assert_int_equal(put_range(s, 1, 1, 1000, &err), 1);
    assert_ok(session_flush(s, &err), &err);

    /* the password was changed: the key that we have is of no use any more */
    assert_ok(format_change_password(b, PASSWORD, "another", NULL, &err), &err);
    assert_int_equal(put_range(s, 2, 1, 1000, &err), 1);
    atomic_store(&r->format_checked_ns, now_ns() - 16 * NS_PER_MIN);
    assert_true(put_range(s, 3, 1, 1000, &e) < 0);
    assert_int_equal(e.cls, ERR_PASSWORD);
    session_free(s);
    place_free(p);
}

static void bad_cache_directory(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct blobs *b;
    struct repo *r;
    char path[600];
    snprintf(path, sizeof path, "%s/kopia.repository.f/cache", p->dir);
    struct repo_opts o = {.cache_dir = path};
    struct err e = ERR_INIT;
    assert_ok(blobs_open_dir(&b, p->dir, BLOBS_OPEN, NULL, 0, &err), &err);
    assert_true(repo_open(&r, b, PASSWORD, &o, &e) < 0);
    assert_int_equal(e.cls, ERR_PERMISSION);
    assert_non_null(strstr(e.hint, "--cache-dir"));
    place_free(p);
}

/* ---- repositories made by Kopia ---- */

static int read_one(const struct index_entry *n, void *arg)
{
    struct content_reader *c = ((void **)arg)[0];
    uint8_t *buf = malloc((size_t)n->length + 1);
    assert_non_null(buf);
    /* S2 and lz4 included */
    assert_ok(content_read_entry(c, n, NULL, buf, n->length, true, &err), &err);
    free(buf);
    ++*(unsigned *)((void **)arg)[1];
    return 0;
}

static void golden_repositories(void **state)
{
    (void)state;
    static const struct {
        const char *name, *password;
        unsigned contents; /* as Kopia lists them, deleted ones included */
    } all[] = {
        {"compress-all", "compress me", 147},
        {"deleted-contents", "del", 23},
        {"ecc-2", "ecc", 20},
        {"ecc-20-damaged", "ecc", 20},
        {"enc-chacha20", "Zwölf Boxkämpfer", 18},
        {"epochs-history", "epochs", 386},
        {"create-only", "empty", 0},
    };
    const char *golden = getenv("SNAPFERRY_GOLDEN");
    if (!golden)
        golden = "build/golden";
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char path[1024];
        struct blobs *b;
        struct repo *r;
        struct content_reader *c;
        unsigned n = 0;
        snprintf(path, sizeof path, "%s/%s", golden, all[i].name);
        if (access(path, F_OK) < 0)
            fail_msg("%s is missing: run `make build/golden/.done` or set SNAPFERRY_GOLDEN", path);
        struct repo_opts o = {.cache_dir = fresh_path("cache")};
        assert_ok(blobs_open_dir(&b, path, BLOBS_OPEN, NULL, 0, &err), &err);
        assert_ok(repo_open(&r, b, all[i].password, &o, &err), &err);
        assert_ok(content_reader_new(&c, r, &err), &err);
        void *arg[2] = {c, &n};
        assert_ok(index_set_each(repo_index(r), -1, read_one, arg, &err), &err);
        assert_int_equal(n, all[i].contents);
        content_reader_free(c);
        repo_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roundtrip_formats),
        cmocka_unit_test(packs_are_split),
        cmocka_unit_test(order_of_writes),
        cmocka_unit_test(threads_put_the_same),
        cmocka_unit_test(threads_put_while_flushing),
        cmocka_unit_test(threads_with_a_small_table),
        cmocka_unit_test(delete_and_put_again),
        cmocka_unit_test(every_failure),
        cmocka_unit_test(flush_is_repeated),
        cmocka_unit_test(markers_are_renewed),
        cmocka_unit_test(no_space_left),
        cmocka_unit_test(clock_is_checked),
        cmocka_unit_test(session_without_flush),
        cmocka_unit_test(old_packs_are_not_indexed),
        cmocka_unit_test(put_again),
        cmocka_unit_test(damage_is_told),
        cmocka_unit_test(what_was_corrected_is_stored_again),
        cmocka_unit_test(moved_contents_are_found),
        cmocka_unit_test(format_is_kept_fresh),
        cmocka_unit_test(bad_cache_directory),
        cmocka_unit_test(golden_repositories),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
