/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_verify.c - verifications that are interrupted and go on (E-12), and packs that a list lacks (CF-53)
 */
#include "daemon/mover/mover.h"
#include "daemon/mover/verify-notes.h"
#include "daemon/mover/verify-packs.h"

#include "base/time.h"
#include "tests/unit/backup.h"
#include "tests/unit/wrapped_store.h"

#include <dirent.h>

#define IMAGE (96 * MIB)
#define AHEAD (24 * MIB) /* what one worker has read and not verified yet when it is interrupted, at most */

/* ---- a repository behind a store that a test controls ---- */

struct behind {
    struct wrap_control control;
    struct mover_cancel cancel;
    struct repo *repo;
    unsigned damages;
    char kind[32];
    int64_t anew_ns;
};

static struct repo *open_behind(const char *name, struct wrap_control *c)
{
    struct err e = ERR_INIT;
    struct blobs *b;
    struct repo *r;
    struct repo_opts o = {.cache_dir = path_of("cache"), .username = "snapferry", .hostname = "test"};
    assert_ok(blobs_open_dir(&b, path_of(name), BLOBS_OPEN, NULL, 0, &e), &e);
    assert_ok(repo_open(&r, wrap_store_new(b, c), "secret", &o, &e), &e);
    return r;
}

static void back_up(const char *name, const char *volume, size_t len, uint64_t seed)
{
    struct repo *CLEANUP(repo_freep) r = open_repo(name);
    struct image m = {malloc(len), len};
    assert_non_null(m.p);
    fill_random(m.p, len, seed);
    struct backup_opts o = opts_for(volume);
    check_image(r, &m, &o, false);
    free(m.p);
}

/* A new repository with an image of random data in it. */
static struct behind *behind_new(const char *name)
{
    struct behind *x = calloc(1, sizeof *x);
    assert_non_null(x);
    x->control = (struct wrap_control)WRAP_INIT;
    repo_free(new_repo(name, NULL));
    back_up(name, "v", IMAGE, 1);
    x->repo = open_behind(name, &x->control);
    return x;
}

static void behind_free(struct behind **x)
{
    repo_free((*x)->repo);
    free(*x);
}

static void note_damage(const struct verify_damage *d, void *arg)
{
    struct behind *x = arg;
    x->damages++;
    snprintf(x->kind, sizeof x->kind, "%s", d->kind);
}

#define AT_ONCE 1
/* Ends when `most` bytes of packs were read by it; 0: no limit. */
static int verify(struct behind *x, double percent, uint64_t most, struct verify_result *ret, struct err *e)
{
    struct verify_opts o = {.limits = {.workers = 1},
                            .read_percent = percent,
                            .read_from = -1,
                            .resume = true,
                            .anew_ns = x->anew_ns,
                            .cancel = &x->cancel,
                            .on_damage = note_damage,
                            .on_damage_arg = x};
    *e = (struct err)ERR_INIT;
    x->damages = 0;
    x->cancel.requested = most == AT_ONCE;
    x->control.pack_bytes = 0;
    x->control.flag = most ? &x->cancel.requested : NULL;
    x->control.flag_at = most;
    return verify_run(x->repo, NULL, 0, &o, ret, e);
}

/* Interrupted after about that much; the bytes of packs that it has read. */
static uint64_t interrupted(struct behind *x, double percent, uint64_t most)
{
    struct verify_result v;
    struct err e;
    assert_int_equal(verify(x, percent, most, &v, &e), -ECANCELED);
    assert_int_equal(e.cls, ERR_INTERRUPTED);
    return x->control.pack_bytes;
}

/* The file of notes, "": there is none. */
static const char *notes_path(struct behind *x)
{
    static char path[4600];
    DIR *d = opendir(repo_cache_dir(x->repo));
    assert_non_null(d);
    path[0] = '\0';
    for (const struct dirent *f; (f = readdir(d));)
        if (!strncmp(f->d_name, "verify-", 7))
            snprintf(path, sizeof path, "%s/%s", repo_cache_dir(x->repo), f->d_name);
    closedir(d);
    return path;
}

/* Packs are read in the order of their names. */
static int find_first(const struct blob_info *i, void *arg)
{
    struct blob_info *first = arg;
    if (!first->name[0] || strcmp(i->name, first->name) < 0)
        *first = *i;
    return 0;
}

static int find_last(const struct blob_info *i, void *arg)
{
    struct blob_info *last = arg;
    if (strcmp(i->name, last->name) > 0)
        *last = *i;
    return 0;
}

static struct blob_info find_pack(struct behind *x, blob_list_fn *fn)
{
    struct err e = ERR_INIT;
    struct blob_info i = {.length = 0};
    assert_ok(blobs_list(repo_blobs(x->repo), "p", fn, &i, &e), &e);
    assert_true(i.length > 4 * MIB);
    return i;
}

/* The file of a pack. */
static const char *pack_path(const char *repo, const struct blob_info *i)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/p/%.3s/%s.f", path_of(repo), i->name + 1, i->name + 4);
    return path;
}

static void flip_byte(const char *path, uint64_t pos)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)pos), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)pos), 1);
    close(fd);
}

/* ---- packs that a list lacks ---- */

static void pack_that_a_list_lacks(void **state)
{
    (void)state;
    struct behind *CLEANUP(behind_free) x = behind_new("lacks");
    struct blobs *b = repo_blobs(x->repo);
    const struct blob_info i = find_pack(x, find_first);
    struct pack_asked asked = {.length = 0};
    struct verify_result v;
    struct err e = ERR_INIT;

    /* It is there, with its length; the answer is kept. */
    memcpy(x->control.hidden, i.name, sizeof i.name);
    assert_int_equal(pack_is_there(b, i.name, i.length, &asked, &e), 1);
    assert_int_equal(pack_is_there(b, i.name, i.length + 1, &asked, &e), 0);
    assert_int_equal(asked.length, i.length);
    assert_ok(verify(x, 100, 0, &v, &e), &e);
    assert_int_equal(v.damages, 0);

    /* The store cannot say: its error, and no damage; and it is asked again. */
    static const struct {
        int sys;
        enum err_class cls;
    } fails[] = {{ETIMEDOUT, ERR_GENERIC}, {EACCES, ERR_PERMISSION}, {EIO, ERR_GENERIC}};
    for (size_t n = 0; n < sizeof fails / sizeof *fails; n++) {
        x->control.hidden_errno = fails[n].sys;
        asked = (struct pack_asked){.length = 0};
        e = (struct err)ERR_INIT;
        assert_int_equal(pack_is_there(b, i.name, 1, &asked, &e), -fails[n].sys);
        assert_non_null(strstr(e.msg, i.name));
        assert_int_equal(verify(x, 100, 0, &v, &e), -fails[n].sys);
        assert_int_equal(e.cls, fails[n].cls);
        assert_int_equal(v.damages + x->damages, 0);
        x->control.hidden_errno = 0;
        assert_int_equal(pack_is_there(b, i.name, 1, &asked, &e), 1);
    }

    /* It is not there. */
    char aside[420];
    snprintf(aside, sizeof aside, "%s.aside", pack_path("lacks", &i));
    assert_int_equal(rename(pack_path("lacks", &i), aside), 0);
    asked = (struct pack_asked){.length = 0};
    e = (struct err)ERR_INIT;
    assert_int_equal(pack_is_there(b, i.name, 1, &asked, &e), 0);
    assert_int_equal(e.cls, ERR_NONE);
    assert_int_equal(verify(x, 100, 0, &v, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_string_equal(x->kind, "missing-pack");
    assert_true(v.damages > 1);
}

/* ---- interrupted ---- */

static void it_goes_on_where_it_was(void **state)
{
    (void)state;
    struct behind *CLEANUP(behind_free) x = behind_new("goes-on");
    struct verify_result whole, v;
    struct err e;
    assert_ok(verify(x, 100, 0, &whole, &e), &e);
    const uint64_t once = x->control.pack_bytes;
    assert_true(once >= IMAGE);
    assert_int_equal(whole.resumed_contents + whole.resumed_bytes, 0);
    assert_string_equal(notes_path(x), "");

    const int64_t began = now_ns();
    uint64_t read = interrupted(x, 100, IMAGE / 2);
    assert_true(read >= IMAGE / 2);
    read += interrupted(x, 100, IMAGE / 2);
    assert_string_not_equal(notes_path(x), "");
    assert_ok(verify(x, 100, 0, &v, &e), &e);
    read += x->control.pack_bytes;
    assert_true(read < once + 2 * AHEAD);
    assert_int_equal(v.contents_read, whole.contents_read);
    assert_int_equal(v.bytes_read, whole.bytes_read);
    assert_true(v.resumed_bytes > IMAGE / 3 && v.resumed_bytes < IMAGE);
    assert_true(v.since_ns >= began && v.since_ns <= now_ns());

    /* It came to its end: the next one reads all. */
    assert_string_equal(notes_path(x), "");
    assert_ok(verify(x, 100, 0, &v, &e), &e);
    assert_int_equal(v.resumed_bytes, 0);
    assert_true(x->control.pack_bytes >= once - MIB);
}

static void the_hint_says_so(void **state)
{
    (void)state;
    struct behind *CLEANUP(behind_free) x = behind_new("hint");
    struct verify_result v;
    struct err e;
    assert_true(verify(x, 100, IMAGE / 2, &v, &e) < 0);
    assert_non_null(strstr(e.hint, "goes on"));
    assert_ok(verify(x, 100, 0, &v, &e), &e);
    /* Nothing was read: nothing to go on with. */
    assert_true(verify(x, 100, AT_ONCE, &v, &e) < 0);
    assert_null(strstr(e.hint, "goes on"));
}

/* It is no damage, and what was read until then counts. */
static void the_store_is_lost(void **state)
{
    (void)state;
    struct behind *CLEANUP(behind_free) x = behind_new("lost");
    struct verify_result v;
    struct err e;
    _Atomic bool unused = false;
    x->control.flag_errno = ETIMEDOUT;
    x->control.flag_at = IMAGE / 2;
    const struct verify_opts o = {
        .limits = {.workers = 1}, .read_percent = 100, .read_from = -1, .resume = true, .cancel = &x->cancel};
    x->control.flag = &unused;
    e = (struct err)ERR_INIT;
    assert_int_equal(verify_run(x->repo, NULL, 0, &o, &v, &e), -ETIMEDOUT);
    assert_int_equal(v.damages, 0);
    assert_non_null(strstr(e.hint, "goes on"));
    assert_true(v.bytes_read > 4 * MIB && v.bytes_read <= IMAGE / 2 + AHEAD);
    x->control.flag_errno = 0;
    assert_ok(verify(x, 100, 0, &v, &e), &e);
    assert_true(v.resumed_bytes > 4 * MIB);
}

static void damage_on_both_sides(void **state)
{
    (void)state;
    struct behind *CLEANUP(behind_free) x = behind_new("both-sides");
    struct verify_result v;
    struct err e;
    const struct blob_info first = find_pack(x, find_first), last = find_pack(x, find_last);
    flip_byte(pack_path("both-sides", &first), MIB);
    assert_int_equal(verify(x, 100, IMAGE / 2, &v, &e), -ECANCELED);
    assert_int_equal(v.damages, 1);
    flip_byte(pack_path("both-sides", &last), last.length - MIB); /* not read yet */
    assert_int_equal(verify(x, 100, 0, &v, &e), -EBADMSG);
    assert_true(v.resumed_bytes > 4 * MIB);
    assert_int_equal(v.damages, 2);
    assert_int_equal(x->damages, 2);
    assert_string_equal(x->kind, "unreadable-content");

    /* What was mended meanwhile is damaged no longer. */
    assert_int_equal(verify(x, 100, IMAGE / 2, &v, &e), -ECANCELED);
    flip_byte(pack_path("both-sides", &first), MIB);
    assert_int_equal(verify(x, 100, 0, &v, &e), -EBADMSG);
    assert_true(v.resumed_bytes > 4 * MIB);
    assert_int_equal(v.damages, 1);
}

static void what_was_stored_meanwhile(void **state)
{
    (void)state;
    struct behind *CLEANUP(behind_free) x = behind_new("meanwhile");
    struct verify_result v;
    struct err e;
    interrupted(x, 100, IMAGE / 2);
    back_up("meanwhile", "another", 6 * MIB, 2);
    repo_free(x->repo);
    x->repo = open_behind("meanwhile", &x->control);
    assert_ok(verify(x, 100, 0, &v, &e), &e);
    assert_true(v.resumed_bytes > 4 * MIB);
    assert_int_equal(v.snapshots, 2);
    assert_true(v.bytes_read >= IMAGE + 6 * MIB);
    assert_true(x->control.pack_bytes >= IMAGE + 6 * MIB - v.resumed_bytes);
    assert_true(x->control.pack_bytes < IMAGE + 8 * MIB - v.resumed_bytes);
}

static void another_choice(void **state)
{
    (void)state;
    struct behind *CLEANUP(behind_free) x = behind_new("choice");
    struct verify_result v, all;
    struct err e;
    interrupted(x, 100, IMAGE / 2);
    assert_ok(verify(x, 99, 0, &v, &e), &e);
    assert_int_equal(v.resumed_bytes, 0);
    assert_ok(verify(x, 100, 0, &all, &e), &e);
    assert_true(all.resumed_bytes > 4 * MIB);

    /* A random share: the one that was begun. */
    interrupted(x, 50, IMAGE * 3 / 8);
    assert_ok(verify(x, 50, 0, &v, &e), &e);
    assert_true(v.resumed_bytes > 2 * MIB);
    assert_true(v.contents_read < all.contents_read * 3 / 4);
}

/* A copy has the same key, names of packs, and directory in the cache. */
static void a_copy_is_another_repository(void **state)
{
    (void)state;
    struct behind *CLEANUP(behind_free) x = behind_new("original");
    struct behind *CLEANUP(behind_free) copy = calloc(1, sizeof *copy);
    struct verify_result v;
    struct err e;
    char command[1000], aside[400];
    const struct blob_info first = find_pack(x, find_first);
    assert_non_null(copy);
    copy->control = (struct wrap_control)WRAP_INIT;
    snprintf(command, sizeof command, "cp -r '%s' '%s.d'", path_of("original"), path_of("original"));
    assert_int_equal(system(command), 0);
    flip_byte(pack_path("original.d", &first), MIB);
    interrupted(x, 100, IMAGE / 2);
    copy->repo = open_behind("original.d", &copy->control);
    assert_string_equal(repo_cache_dir(copy->repo), repo_cache_dir(x->repo));
    assert_int_equal(verify(copy, 100, 0, &v, &e), -EBADMSG);
    assert_int_equal(v.resumed_bytes, 0);
    assert_int_equal(v.damages, 1);

    /* Another disk at the place of the first one. */
    snprintf(aside, sizeof aside, "%s.aside", path_of("original"));
    assert_int_equal(rename(path_of("original"), aside), 0);
    snprintf(command, sizeof command, "mv '%s.d' '%s'", path_of("original"), path_of("original"));
    assert_int_equal(system(command), 0);
    repo_free(copy->repo);
    copy->repo = open_behind("original", &copy->control);
    assert_int_equal(verify(copy, 100, 0, &v, &e), -EBADMSG);
    assert_int_equal(v.resumed_bytes, 0);
    snprintf(command, sizeof command, "rm -r '%s' && mv '%s' '%s'", path_of("original"), aside, path_of("original"));
    assert_int_equal(system(command), 0);
    assert_ok(verify(x, 100, 0, &v, &e), &e);
    assert_true(v.resumed_bytes > 4 * MIB);
}

static void read_anew(void **state)
{
    (void)state;
    struct behind *CLEANUP(behind_free) x = behind_new("anew");
    struct verify_result v;
    struct err e;
    const struct blob_info first = find_pack(x, find_first);
    interrupted(x, 100, IMAGE / 2);
    flip_byte(pack_path("anew", &first), MIB); /* it was whole when it was read */
    x->anew_ns = now_ns();
    assert_int_equal(verify(x, 100, 0, &v, &e), -EBADMSG);
    assert_int_equal(v.resumed_bytes, 0);
    assert_true(v.since_ns >= x->anew_ns);
    flip_byte(pack_path("anew", &first), MIB);

    /* The next attempt of it goes on. */
    interrupted(x, 100, IMAGE / 2);
    x->anew_ns = now_ns();
    interrupted(x, 100, IMAGE / 2);
    assert_ok(verify(x, 100, 0, &v, &e), &e);
    assert_true(v.resumed_bytes > 4 * MIB && v.resumed_bytes < IMAGE * 3 / 4);
    assert_true(v.since_ns >= x->anew_ns);
}

static void cut_old_and_forged(void **state)
{
    (void)state;
    struct behind *CLEANUP(behind_free) x = behind_new("cut");
    struct verify_result v;
    struct stat st;
    struct err e;
    interrupted(x, 100, IMAGE / 2);
    assert_int_equal(stat(notes_path(x), &st), 0);
    const off_t first = st.st_size;
    interrupted(x, 100, IMAGE / 2);
    assert_int_equal(stat(notes_path(x), &st), 0);
    assert_true(st.st_size > first);

    /* Half a block, as a power failure leaves it. */
    assert_int_equal(truncate(notes_path(x), (first + st.st_size) / 2), 0);
    interrupted(x, 100, AT_ONCE);
    assert_int_equal(stat(notes_path(x), &st), 0);
    assert_int_equal(st.st_size, first);

    /* A changed byte: nothing from there on is believed. */
    flip_byte(notes_path(x), (uint64_t)first - 1);
    assert_ok(verify(x, 100, 0, &v, &e), &e);
    assert_int_equal(v.resumed_bytes, 0);

    /* Older than it may be; and not quite. */
    interrupted(x, 100, IMAGE / 2);
    const int64_t now = now_ns();
    struct timespec times[2] = {ns_timespec(now - 7 * NS_PER_DAY + NS_PER_H),
                                ns_timespec(now - 7 * NS_PER_DAY + NS_PER_H)};
    assert_int_equal(utimensat(AT_FDCWD, notes_path(x), times, 0), 0);
    assert_true(verify(x, 100, AT_ONCE, &v, &e) < 0);
    assert_string_not_equal(notes_path(x), "");
    times[0] = times[1] = ns_timespec(now - 7 * NS_PER_DAY - NS_PER_H);
    assert_int_equal(utimensat(AT_FDCWD, notes_path(x), times, 0), 0);
    assert_ok(verify(x, 100, 0, &v, &e), &e);
    assert_int_equal(v.resumed_bytes, 0);
    assert_string_equal(notes_path(x), "");
}

/* ---- notes ---- */

static struct verify_notes *notes_open(struct repo *r, const char *choice, struct id_set **set)
{
    struct err e = ERR_INIT;
    struct verify_notes *n;
    uint64_t salt = 7;
    assert_ok(verify_notes_open(&n, r, choice, strlen(choice), 0, &salt, &e), &e);
    assert_ok(id_set_new(set, repo_cache_dir(r), verify_notes_expected(n), &e), &e);
    assert_ok(verify_notes_load(n, *set, &e), &e);
    return n;
}

/* A content counts at its place only: one that maintenance has stored in another pack is read again. */
static void notes_are_of_places(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("places", NULL);
    struct id_set *set;
    struct index_entry en = {.id = {.len = 16, .hash = {1, 2, 3}}, .pack = "p1", .offset = 9, .packed = 100};
    struct verify_notes *n = notes_open(r, "all", &set);
    verify_notes_whole(n, &en);
    assert_true(verify_notes_exist(n));
    verify_notes_close(n, false);
    id_set_free(set);

    n = notes_open(r, "all", &set);
    assert_true(verify_notes_has(n, set, &en));
    struct index_entry other = en;
    snprintf(other.pack, sizeof other.pack, "p2");
    assert_false(verify_notes_has(n, set, &other));
    other = en;
    other.offset++;
    assert_false(verify_notes_has(n, set, &other));
    other = en;
    other.id.hash[15] = 1;
    assert_false(verify_notes_has(n, set, &other));

    /* Another process that verifies the same meanwhile has none, and leaves these alone. */
    struct id_set *more;
    struct verify_notes *second = notes_open(r, "all", &more);
    assert_false(verify_notes_has(second, more, &en));
    verify_notes_whole(second, &other);
    verify_notes_close(second, true);
    id_set_free(more);
    verify_notes_close(n, false);
    id_set_free(set);
    n = notes_open(r, "all", &set);
    assert_true(verify_notes_has(n, set, &en));
    assert_false(verify_notes_has(n, set, &other));
    verify_notes_close(n, true);
    id_set_free(set);
    n = notes_open(r, "all", &set);
    assert_false(verify_notes_has(n, set, &en));
    verify_notes_close(n, true);
    id_set_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pack_that_a_list_lacks),
        cmocka_unit_test(it_goes_on_where_it_was),
        cmocka_unit_test(the_hint_says_so),
        cmocka_unit_test(the_store_is_lost),
        cmocka_unit_test(damage_on_both_sides),
        cmocka_unit_test(what_was_stored_meanwhile),
        cmocka_unit_test(another_choice),
        cmocka_unit_test(cut_old_and_forged),
        cmocka_unit_test(notes_are_of_places),
        cmocka_unit_test(a_copy_is_another_repository),
        cmocka_unit_test(read_anew),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
