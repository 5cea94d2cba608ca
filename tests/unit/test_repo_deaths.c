/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_repo_deaths.c - sessions that die at every place, and what the next one adopts of them. */
#include "tests/unit/repo.h"

#include "repo/marker.h"

/* ---- deaths ---- */

#define RUN_CONTENTS 35 /* of 1 MiB: three packs of 10 and one of 5 */

/* Runs a backup's worth of puts in a child that dies at `point`. Returns false if it lived. */
static bool die_at(struct place *p, const char *point)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct err e = ERR_INIT;
        struct session *s;
        setenv("SNAPFERRY_CRASH_AT", point, 1);
        if (session_new(&s, p->repo, NULL, &e) < 0 || put_range(s, 0, RUN_CONTENTS, MIB, &e) < 0 ||
            session_flush(s, &e) < 0)
            _exit(1);
        session_free(s);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return false;
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    return true;
}

/* A snapshot that was never flushed does not appear because its pack happened to be finished: what it refers to may be
 * missing. Packs with manifests are finished after all others. */
static void manifests_of_the_dead_stay_dead(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct err e = ERR_INIT;
        struct session *s;
        CLEANUP(put_scratch_freep) struct put_scratch *scratch = NULL;
        setenv("SNAPFERRY_CRASH_AT", "pack-renamed:2", 1);
        if (session_new(&s, p->repo, NULL, &e) < 0 || put_scratch_new(&scratch, p->repo, 0, 4096, &e) < 0 ||
            session_put_bytes(s, scratch, 'm', "a manifest", 10, 0, NULL, &e) < 0 ||
            session_put_bytes(s, scratch, 'x', "an index document", 17, 0, NULL, &e) < 0 ||
            session_put_bytes(s, scratch, 0, "data", 4, 0, NULL, &e) < 0 || session_flush(s, &e) < 0)
            _exit(1);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(count_packs(p->repo), 2);

    const struct hasher *h = sealer_hasher(repo_sealer(p->repo));
    struct content_id data = {.len = (uint8_t)hasher_size(h)}, document = {.prefix = 'x', .len = data.len},
                      manifest = {.prefix = 'm', .len = data.len};
    hasher_digest(h, "data", 4, data.hash);
    hasher_digest(h, "an index document", 17, document.hash);
    hasher_digest(h, "a manifest", 10, manifest.hash);
    struct session *s = begin(p->repo, 0);
    assert_ok(session_flush(s, &err), &err);
    struct index_entry n;
    assert_ok(repo_find(p->repo, &data, &n, &err), &err);
    assert_ok(repo_find(p->repo, &document, &n, &err), &err);
    assert_int_equal(repo_find(p->repo, &manifest, &n, &err), -ENOENT);
    session_free(s);
    place_free(p);
}

static void death_at(const char *point, unsigned most_again)
{
    struct place *p = place_new(NULL);
    assert_true(die_at(p, point));
    assert_ok(index_set_refresh(repo_index(p->repo), &err), &err);
    unsigned there = count_packs(p->repo);
    p->c.packs = 0;
    struct session *s = begin(p->repo, 0);
    struct session_stats st;
    int fresh = put_range(s, 0, RUN_CONTENTS, MIB, &err);
    assert_ok(fresh, &err);
    assert_true((unsigned)fresh <= most_again);
    /* Adopted contents can be read before they are published. */
    assert_ok(read_range(p->repo, 0, RUN_CONTENTS, MIB, &err), &err);
    assert_ok(session_flush(s, &err), &err);
    session_stats(s, &st);
    session_free(s);
    /* Blobs put: no more packs than the one that was lost. */
    assert_int_equal(p->c.packs, (fresh + 9) / 10);
    assert_int_equal(count_packs(p->repo), there + p->c.packs);
    assert_int_equal(count_blobs(p->repo, "s"), 0);
    assert_int_equal(count_records(p->repo), 0);
    print_message("%s: %u packs were there, %llu adopted, %u written again\n", point, there,
                  (unsigned long long)st.adopted_packs, p->c.packs);
    /* Nothing is left to adopt. */
    s = begin(p->repo, 0);
    session_stats(s, &st);
    assert_int_equal(st.adopted_packs, 0);
    assert_int_equal(put_range(s, 0, RUN_CONTENTS, MIB, &err), 0);
    session_free(s);
    place_reopen(p);
    assert_ok(read_range(p->repo, 0, RUN_CONTENTS, MIB, &err), &err);
    place_free(p);
}

static void death_and_adoption(void **state)
{
    (void)state;
    death_at("marker-put", RUN_CONTENTS);
    death_at("pack-written", RUN_CONTENTS);
    death_at("pack-renamed", RUN_CONTENTS - 10);
    death_at("pack-renamed:4", 0);
    death_at("index-written", 0);
    death_at("marker-deleted", 0);
}

/* The promise: what is uploaded again is at most the packs being written. Finishing threads may have two in work. */
static void death_late(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    assert_true(die_at(p, "pack-renamed:3"));
    unsigned there = count_packs(p->repo);
    assert_true(there >= 3);
    p->c.packs = 0;
    struct session *s = begin(p->repo, 0);
    assert_int_equal(put_range(s, 0, RUN_CONTENTS, MIB, &err), there == 4 ? 0 : 5);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    assert_int_equal(p->c.packs, 4 - there);
    place_free(p);
}

/* Killed again and again at any time: every content goes up once, as far as packs became visible. */
static void death_at_any_time(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    uint64_t rnd = (uint64_t)now_ns();
    print_message("seed %llu\n", (unsigned long long)rnd);
    for (int death = 0; death < 12; death++) {
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            struct err e = ERR_INIT;
            struct session *s;
            bool ok = index_set_refresh(repo_index(p->repo), &e) == 0 && session_new(&s, p->repo, NULL, &e) == 0 &&
                      put_range(s, 0, 3 * RUN_CONTENTS, MIB, &e) >= 0 && session_flush(s, &e) == 0;
            _exit(ok ? 0 : 1);
        }
        usleep((useconds_t)(splitmix64(&rnd) % 120000));
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        assert_ok(index_set_refresh(repo_index(p->repo), &err), &err);
    }
    struct session *s = begin(p->repo, 0);
    assert_ok(put_range(s, 0, 3 * RUN_CONTENTS, MIB, &err), &err);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    assert_ok(read_range(p->repo, 0, 3 * RUN_CONTENTS, MIB, &err), &err);
    struct packs_check c = {.repo = p->repo};
    assert_ok(blobs_list(repo_blobs(p->repo), "p", check_pack, &c, &err), &err);
    assert_int_equal(c.entries, 3 * RUN_CONTENTS);
    assert_int_equal(count_blobs(p->repo, "s"), 0);
    assert_int_equal(count_records(p->repo), 0);
    place_free(p);
}

static void old_packs_are_left_alone(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    assert_true(die_at(p, "pack-renamed:4"));
    /* 13 hours pass */
    struct session *s;
    struct session_stats st;
    struct timespec old[2];
    clock_gettime(CLOCK_REALTIME, &old[0]);
    old[0].tv_sec -= 13 * 3600;
    old[1] = old[0];
    char path[1024];
    snprintf(path, sizeof path, "%s/p", p->dir);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        char sub[1300];
        snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        DIR *dd = opendir(sub);
        assert_non_null(dd);
        for (const struct dirent *f; (f = readdir(dd));)
            if (f->d_name[0] != '.')
                assert_int_equal(utimensat(dirfd(dd), f->d_name, old, 0), 0);
        closedir(dd);
    }
    closedir(d);
    s = begin(p->repo, 0);
    session_stats(s, &st);
    assert_int_equal(st.adopted_packs, 0);
    assert_int_equal(put_range(s, 0, RUN_CONTENTS, MIB, &err), RUN_CONTENTS);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    assert_int_equal(count_blobs(p->repo, "s"), 1); /* says whose they are, for maintenance */
    assert_int_equal(count_records(p->repo), 0);
    place_free(p);
}

static void living_sessions_are_left_alone(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *a = begin(p->repo, 0), *b;
    struct session_stats st;
    assert_int_equal(put_range(a, 0, 12, MIB, &err), 12);
    while (session_stats(a, &st), st.packs < 1)
        usleep(1000);
    b = begin(p->repo, 0);
    session_stats(b, &st);
    assert_int_equal(st.adopted_packs, 0);
    session_free(b);
    assert_int_equal(count_blobs(p->repo, "s"), 1);
    /* Without a flush the finished pack stays, and the next session uses it. */
    session_free(a);
    assert_int_equal(count_blobs(p->repo, "s"), 1);
    a = begin(p->repo, 0);
    session_stats(a, &st);
    assert_int_equal(st.adopted_packs, 1);
    assert_int_equal(put_range(a, 0, 12, MIB, &err), 2);
    /* It dies too before the flush: the pack is still there for another. */
    session_free(a);
    a = begin(p->repo, 0);
    session_stats(a, &st);
    assert_int_equal(st.adopted_packs, 1);
    assert_int_equal(st.adopted_contents, 10);
    assert_int_equal(session_pending(a), 10);
    assert_ok(session_flush(a, &err), &err);
    session_free(a);
    assert_int_equal(count_blobs(p->repo, "s"), 0);
    assert_ok(read_range(p->repo, 0, 10, MIB, &err), &err);
    place_free(p);
}

static void others_sessions_are_left_alone(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    assert_true(die_at(p, "pack-renamed:4"));
    struct blobs *b;
    struct repo *r;
    struct repo_opts o = {.cache_dir = p->cache, .username = "tester", .hostname = "elsewhere"};
    assert_ok(blobs_open_dir(&b, p->dir, BLOBS_OPEN, NULL, 0, &err), &err);
    assert_ok(repo_open(&r, b, PASSWORD, &o, &err), &err);
    struct session *s = begin(r, 0);
    struct session_stats st;
    session_stats(s, &st);
    assert_int_equal(st.adopted_packs, 0);
    session_free(s);
    assert_int_equal(count_blobs(r, "s"), 1);
    repo_free(r);
    place_free(p);
}

static int note_session(const struct blob_info *info, void *arg)
{
    return session_id_of_blob(info->name, arg) ? 0 : -EINVAL;
}

/* Records are not authenticated, markers are: a record which says that the session of another node was this one's has
 * no marker deleted. Its packs may be indexed, which harms nobody. */
static void a_forged_record_deletes_no_marker(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    assert_true(die_at(p, "pack-renamed:4"));
    struct blobs *b;
    struct repo *r;
    struct repo_opts o = {.cache_dir = p->cache, .username = "tester", .hostname = "elsewhere"};
    assert_ok(blobs_open_dir(&b, p->dir, BLOBS_OPEN, NULL, 0, &err), &err);
    assert_ok(repo_open(&r, b, PASSWORD, &o, &err), &err);
    char id[SESSION_ID_TEXT], path[1024];
    assert_ok(blobs_list(repo_blobs(r), "s", note_session, id, &err), &err);
    for (unsigned forged = 0; forged < 2; forged++) {
        snprintf(path, sizeof path, "%s/sessions/%s", repo_cache_dir(r), id);
        if (forged) {
            FILE *f = fopen(path, "w");
            assert_non_null(f);
            assert_true(fputs("{\"username\":\"tester\",\"hostname\":\"elsewhere\"}", f) > 0);
            assert_int_equal(fclose(f), 0);
        }
        struct session *s = begin(r, 0);
        assert_ok(session_flush(s, &err), &err);
        session_free(s);
        assert_int_equal(count_blobs(r, "s"), 1);
        assert_int_equal(count_records(r), forged ? 0 : 1);
    }
    repo_free(r);
    place_free(p);
}

/* More to adopt than the table holds: it is flushed in between. */
static void adoption_into_a_small_table(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    assert_true(die_at(p, "pack-renamed:4"));
    p->c.packs = 0;
    struct session *s = begin(p->repo, 16);
    struct session_stats st;
    session_stats(s, &st);
    assert_int_equal(st.adopted_contents, RUN_CONTENTS);
    assert_true(st.index_blobs >= 2);
    assert_true(session_pending(s) > 0);
    /* until everything of theirs is indexed */
    assert_int_equal(count_records(p->repo), 1);
    assert_ok(session_flush(s, &err), &err);
    assert_int_equal(count_blobs(p->repo, "s"), 0);
    session_free(s);
    assert_int_equal(count_records(p->repo), 0);
    assert_int_equal(p->c.packs, 0);
    place_reopen(p);
    assert_ok(read_range(p->repo, 0, RUN_CONTENTS, MIB, &err), &err);
    place_free(p);
}

/* Adopted contents that others have deleted or stored meanwhile. */
/* The end of a pack says where its own index is. */
static int damage_first(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    const char *name = strrchr(path, '/') + 1;
    (void)ftw;
    if (flag != FTW_F || name[0] == '.' || strstr(path, "/p/") == NULL || st->st_size < (off_t)MIB)
        return 0;
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "damaged.", 8, st->st_size - 8), 8);
    close(fd);
    return 1;
}

/* What cannot be used stays an orphan of a session that is known: it is not a pack whose index was lost. */
static void a_damaged_pack_is_left(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session_stats st;
    assert_true(die_at(p, "pack-renamed:4"));
    const unsigned there = count_packs(p->repo);
    assert_int_equal(nftw(p->dir, damage_first, 8, FTW_PHYS), 1);
    struct session *s = begin(p->repo, 0);
    session_stats(s, &st);
    assert_int_equal(st.adopted_packs, there - 1);
    assert_true(put_range(s, 0, RUN_CONTENTS, MIB, &err) > 0); /* what it had is put again */
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    assert_int_equal(count_blobs(p->repo, "s"), 1); /* of the dead one */
    place_reopen(p);
    assert_ok(read_range(p->repo, 0, RUN_CONTENTS, MIB, &err), &err);
    place_free(p);
}

static void adoption_and_the_index(void **state)
{
    (void)state;
    struct place *p = place_new(NULL);
    struct session *s;
    struct session_stats st;
    struct content_id id;
    struct index_entry n, deleted;
    uint8_t *data = malloc(MIB);
    assert_non_null(data);
    fill(data, MIB, 3, false);
    id_of(p->repo, 0, data, MIB, &id);
    free(data);
    assert_true(die_at(p, "pack-renamed:4"));
    assert_ok(session_new(&s, p->repo, &(struct session_opts){.no_adopt = true}, &err), &err);
    assert_int_equal(put_range(s, 0, 10, MIB, &err), 10);
    assert_ok(session_flush(s, &err), &err);
    assert_ok(session_delete_content(s, &id, &err), &err);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    assert_ok(repo_find(p->repo, &id, &deleted, &err), &err);
    s = begin(p->repo, 0);
    session_stats(s, &st);
    assert_int_equal(st.adopted_contents, RUN_CONTENTS - 9);
    assert_ok(session_flush(s, &err), &err);
    session_free(s);
    assert_ok(repo_find(p->repo, &id, &n, &err), &err);
    assert_false(n.deleted);
    assert_true(n.time > deleted.time);
    assert_string_not_equal(n.pack, deleted.pack);
    assert_ok(read_range(p->repo, 0, RUN_CONTENTS, MIB, &err), &err);
    place_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifests_of_the_dead_stay_dead),
        cmocka_unit_test(death_and_adoption),
        cmocka_unit_test(death_late),
        cmocka_unit_test(death_at_any_time),
        cmocka_unit_test(old_packs_are_left_alone),
        cmocka_unit_test(living_sessions_are_left_alone),
        cmocka_unit_test(others_sessions_are_left_alone),
        cmocka_unit_test(a_forged_record_deletes_no_marker),
        cmocka_unit_test(adoption_into_a_small_table),
        cmocka_unit_test(a_damaged_pack_is_left),
        cmocka_unit_test(adoption_and_the_index),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
