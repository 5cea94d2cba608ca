/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The S3 store against a service that misbehaves (tests/tools/s3-faults.py): what is repeated, what is not, what is
 * said.
 */
#include "tests/unit/s3-store.h"

#include "repo/s3-xml.h"

static char seen[8192];
static int see(const struct blob_info *i, void *arg)
{
    (void)arg;
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), " %s:%d", i->name, (int)i->length);
    return 0;
}
static const char *list(const char *prefix)
{
    seen[0] = '\0';
    OK(blobs_list(b, prefix, see, NULL, &e));
    return seen;
}

static uint64_t retried(void)
{
    struct blob_request_stats s;
    blobs_request_stats(b, &s);
    return s.retries;
}

static void every_operation(void **state)
{
    (void)state;
    uint8_t *data, two[2];
    size_t len;
    struct blob_info i;
    struct blob_writer *w;
    OK(blobs_put(b, "p1", "0123456789", 10, &e));
    OK(blobs_put(b, "p1", "abcdefghij", 10, &e)); /* replaces */
    OK(blobs_put(b, "empty", "", 0, &e));
    OK(blobs_get(b, "p1", 10, &data, &len, &e));
    assert_int_equal(len, 10);
    assert_string_equal((char *)data, "abcdefghij");
    free(data);
    OK(blobs_get(b, "empty", 10, &data, &len, &e));
    assert_int_equal(len, 0);
    free(data);
    OK(blobs_read(b, "p1", 8, two, 2, &e));
    assert_memory_equal(two, "ij", 2);
    OK(blobs_stat(b, "p1", &i, &e));
    assert_int_equal(i.length, 10);
    assert_true(i.mtime_ns > now_ns() - 60 * NS_PER_S && i.mtime_ns < now_ns() + 60 * NS_PER_S);
    OK(blob_writer_new(&w, b, "q1", &e));
    OK(blob_writer_write(w, 3, "def", 3, &e));
    OK(blob_writer_write(w, 0, "abc", 3, &e));
    OK(blob_writer_read(w, 2, two, 2, &e));
    assert_memory_equal(two, "cd", 2);
    assert_string_equal(list("q"), ""); /* not before the commit */
    OK(blob_writer_commit(w, 5, &e));
    OK(blobs_get(b, "q1", 10, &data, &len, &e));
    assert_string_equal((char *)data, "abcde");
    free(data);
    OK(blob_writer_new(&w, b, "q2", &e));
    blob_writer_abort(w);
    assert_string_equal(list(""), " empty:0 p1:10 q1:5");
    FAILS(blobs_get(b, "p1", 9, &data, &len, &e), ERR_DAMAGE, "more than the expected 9 bytes");
    FAILS(blobs_read(b, "p1", 9, two, 2, &e), ERR_DAMAGE, "shorter than 11 bytes");
    FAILS(blobs_read(b, "p1", 10, two, 2, &e), ERR_DAMAGE, "shorter than 12 bytes");
    assert_int_equal(blobs_read(b, "p9", 0, two, 2, &e), -ENOENT);
    assert_int_equal(blobs_get(b, "p9", 9, &data, &len, &e), -ENOENT);
    assert_int_equal(blobs_stat(b, "p9", &i, &e), -ENOENT);
    OK(blobs_delete(b, "p1", &e));
    OK(blobs_delete(b, "p1", &e));
    OK(blobs_delete(b, "q1", &e));
    OK(blobs_delete(b, "empty", &e));
    assert_string_equal(list(""), "");
}

/* Files of packs are used again: nothing of the blob before may be in the next one. */
static void a_pack_has_nothing_of_the_one_before(void **state)
{
    (void)state;
    static char old[200000];
    struct blob_writer *w;
    uint8_t *data;
    size_t len;
    memset(old, 'X', sizeof old);
    for (unsigned n = 0; n < 8; n++) { /* more than are kept */
        struct blob_writer *many[8];
        for (unsigned i = 0; i <= n; i++) {
            OK(blob_writer_new(&many[i], b, "p-old", &e));
            OK(blob_writer_write(many[i], 0, old, sizeof old, &e));
        }
        for (unsigned i = 0; i < n; i++)
            blob_writer_abort(many[i]);
        OK(blob_writer_commit(many[n], sizeof old, &e));
    }
    OK(blob_writer_new(&w, b, "p-new", &e));
    OK(blob_writer_write(w, 150000, "end", 3, &e));
    OK(blob_writer_write(w, 70000, "middle", 6, &e));
    OK(blob_writer_commit(w, 150003, &e));
    OK(blobs_get(b, "p-new", sizeof old, &data, &len, &e));
    assert_int_equal(len, 150003);
    assert_null(memchr(data, 'X', len));
    assert_memory_equal(data + 70000, "middle", 6);
    assert_memory_equal(data + 150000, "end", 3);
    free(data);
    OK(blob_writer_new(&w, b, "p-new", &e));
    OK(blob_writer_write(w, 0, "abc", 3, &e));
    FAILS(blob_writer_commit(w, 4, &e), ERR_GENERIC, "cannot read a temporary file");
    OK(blobs_delete(b, "p-old", &e));
    OK(blobs_delete(b, "p-new", &e));
}

/* The service refuses what does not have the sums of its request. */
static void pieces_in_any_order_have_their_sums(void **state)
{
    (void)state;
    static const struct {
        unsigned at[4]; /* of pieces of four bytes, "0000", "1111" and so on; 99: none */
        unsigned len;
        const char *want;
    } cases[] = {
        {{0, 4, 8, 12}, 16, "0000111122223333"},
        {{12, 8, 4, 0}, 16, "3333222211110000"},
        {{0, 8, 4, 12}, 16, "0000222211113333"},
        {{4, 0, 8, 99}, 12, "111100002222"},
        {{0, 4, 0, 99}, 8, "22221111"},
        {{0, 4, 2, 99}, 8, "00222211"}, /* written over */
        {{0, 4, 8, 99}, 6, "000011"},
        {{8, 0, 99, 99}, 10, "1111....00"},
        {{0, 99, 99, 99}, 0, ""},
        {{99, 99, 99, 99}, 0, ""},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct blob_writer *w;
        uint8_t *data;
        size_t len;
        char want[17];
        OK(blob_writer_new(&w, b, "p-pieces", &e));
        for (unsigned i = 0; i < 4 && cases[c].at[i] != 99; i++) {
            char piece[5];
            snprintf(piece, sizeof piece, "%u%u%u%u", i, i, i, i);
            OK(blob_writer_write(w, cases[c].at[i], piece, 4, &e));
        }
        const uint64_t retries = retried();
        OK(blob_writer_commit(w, cases[c].len, &e));
        assert_int_equal(retried(), retries); /* sums that are wrong are tried again, and may be right then */
        OK(blobs_get(b, "p-pieces", 100, &data, &len, &e));
        assert_int_equal(len, cases[c].len);
        snprintf(want, sizeof want, "%s", cases[c].want);
        for (char *p = want; *p; p++) /* a hole */
            *p = *p == '.' ? '\0' : *p;
        assert_memory_equal(data, want, len);
        free(data);
    }
    OK(blobs_delete(b, "p-pieces", &e));
}

/* Each fault three times, then the request is answered: the fourth is the last that may be made. */
static void what_passes_is_repeated(void **state)
{
    (void)state;
    static const char *const kinds[] = {"slowdown", "internal", "gateway", "reset", "garbage"};
    uint8_t *data;
    size_t len;
    struct blob_info info;
    struct blob_request_stats before, after;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        blobs_request_stats(b, &before);
        ask("_fault/%s/3", kinds[i]);
        OK(blobs_put(b, "p1", "0123456789", 10, &e));
        ask("_fault/%s/3", kinds[i]);
        OK(blobs_get(b, "p1", 10, &data, &len, &e));
        assert_int_equal(len, 10);
        free(data);
        ask("_fault/%s/3", kinds[i]);
        OK(blobs_stat(b, "p1", &info, &e));
        ask("_fault/%s/3", kinds[i]);
        assert_string_equal(list("p"), " p1:10");
        ask("_fault/%s/3", kinds[i]);
        OK(blobs_delete(b, "p1", &e));
        blobs_request_stats(b, &after);
        /* libcurl itself repeats what a kept connection loses before an answer. */
        assert_in_range(after.retries - before.retries, !strcmp(kinds[i], "reset") ? 5 : 15, 15);
    }
    ask("_fault/lost-answer/1");
    OK(blobs_put(b, "p1", "0123456789", 10, &e));
    ask("_fault/digest/2");
    OK(blobs_put(b, "p1", "0123456789", 10, &e));
}

static void said_once(const char *message, const char *what)
{
    const char *at = strstr(message, what);
    assert_true(at && !strstr(at + 1, what));
}

static void but_not_without_end(void **state)
{
    (void)state;
    ask("_fault/slowdown/1000");
    ask("_requests");
    FAILS(blobs_put(b, "p1", "x", 1, &e), ERR_GENERIC, "status 503: of SlowDown");
    assert_int_equal(ask("_requests"), 4);
    assert_non_null(strstr(e.hint, "overloaded"));
    /* What does not pass is asked once. */
    ask("_fault/denied/1000");
    FAILS(blobs_put(b, "p1", "x", 1, &e), ERR_PERMISSION, "denies it (AccessDenied)");
    assert_int_equal(ask("_requests"), 1);
    said_once(e.msg, "http://");
    ask("_fault/quota/1000");
    FAILS(blobs_put(b, "p1", "x", 1, &e), ERR_NO_SPACE, "of QuotaExceeded");
    said_once(e.msg, "http://");
}

static void a_stalled_server_is_given_up(void **state)
{
    (void)state;
    const int64_t from = mono_ns();
    OK(blobs_put(b, "p1", "0123456789", 10, &e));
    ask("_fault/stall/1");
    uint8_t two[2];
    OK(blobs_read(b, "p1", 0, two, 2, &e));
    assert_true(mono_ns() - from < 15 * NS_PER_S);
}

static void what_is_cut_is_read_again(void **state)
{
    (void)state;
    uint8_t *data, buffer[1000];
    size_t len;
    memset(buffer, 'x', sizeof buffer);
    OK(blobs_put(b, "p1", buffer, sizeof buffer, &e));
    ask("_fault/truncate/2");
    OK(blobs_get(b, "p1", 1000, &data, &len, &e));
    assert_int_equal(len, 1000);
    assert_memory_equal(data, buffer, 1000);
    free(data);
    ask("_fault/truncate/2");
    memset(buffer, 0, sizeof buffer);
    OK(blobs_read(b, "p1", 10, buffer, 990, &e));
    assert_int_equal(buffer[989], 'x');
    /* Another range than was asked for, or the whole object. */
    ask("_fault/shifted/1");
    OK(blobs_read(b, "p1", 10, buffer, 5, &e));
    ask("_fault/whole/100");
    FAILS(blobs_read(b, "p1", 10, buffer, 5, &e), ERR_GENERIC, "the range that was asked for");
}

static void an_etag_proves_nothing(void **state)
{
    (void)state;
    ask("_fault/etag/1");
    OK(blobs_put(b, "p1", "x", 1, &e));
}

static void what_is_to_be_kept_is_locked(void **state)
{
    (void)state;
    static const char *const locked[] = {"p1", "q1", "xn0_1", "n1", "kopia.repository", "kopia.blobcfg"},
                             *const free_[] = {"s1", "_log_1", "kopia.maintenance", "m1"};
    struct blob_writer *w;
    OK(blobs_put(b, "p1", "x", 1, &e));
    assert_int_equal(ask("_lock"), 0);
    blobs_retain(b, "COMPLIANCE", 100 * NS_PER_H);
    for (size_t i = 0; i < sizeof locked / sizeof *locked; i++) {
        OK(blobs_put(b, locked[i], "x", 1, &e));
        assert_in_range(ask("_lock"), 359900, 360010);
    }
    for (size_t i = 0; i < sizeof free_ / sizeof *free_; i++) {
        OK(blobs_put(b, free_[i], "x", 1, &e));
        assert_int_equal(ask("_lock"), 0);
    }
    OK(blob_writer_new(&w, b, "p2", &e));
    OK(blob_writer_commit(w, 0, &e));
    assert_in_range(ask("_lock"), 359900, 360010);
    blobs_retain(b, "GOVERNANCE", 200 * NS_PER_H);
    OK(blobs_extend(b, "p2", &e));
    assert_in_range(ask("_until"), 719900, 720010);
    OK(blobs_extend(b, "kopia.repository", &e));
    assert_int_equal(ask("_extended"), 2);
    assert_int_equal(blobs_extend(b, "p3", &e), -ENOENT);
    blobs_retain(b, "", 0);
    OK(blobs_extend(b, "p2", &e));
    assert_int_equal(ask("_extended"), 0);
    for (size_t i = 0; i < sizeof locked / sizeof *locked; i++)
        OK(blobs_delete(b, locked[i], &e));
    for (size_t i = 0; i < sizeof free_ / sizeof *free_; i++)
        OK(blobs_delete(b, free_[i], &e));
    OK(blobs_delete(b, "p2", &e));
}

/* What stands before the storage does not decide what is in it. */
static void not_every_404_is_a_missing_blob(void **state)
{
    (void)state;
    uint8_t two[2];
    ask("_fault/nowhere/100");
    FAILS(blobs_read(b, "p1", 0, two, 2, &e), ERR_GENERIC, "status 404");
}

static void lists_of_many_pages(void **state)
{
    (void)state;
    const struct s3_place p = {.endpoint = endpoint,
                               .bucket = "b",
                               .prefix = "many/",
                               .region = "",
                               .keys = place().keys,
                               .ca_file = "",
                               .spool = dir};
    struct blobs *other;
    OK(blobs_open_s3(&other, &p, BLOBS_CREATE, &e));
    char name[16], want[2048] = "";
    for (int i = 0; i < 25; i++) {
        snprintf(name, sizeof name, "n%02d", i);
        OK(blobs_put(other, name, "x", 1, &e));
        snprintf(want + strlen(want), sizeof want - strlen(want), " %s:1", name);
    }
    ask("_set/page/4");
    seen[0] = '\0';
    OK(blobs_list(other, "n", see, NULL, &e));
    assert_string_equal(seen, want);
    blobs_free(other);
    FAILS(blobs_open_s3(&other, &p, BLOBS_CREATE, &e), ERR_EXISTS, "not empty");
}

/* What this process has put and deleted is right, whatever lists show. */
static void lists_that_lag(void **state)
{
    (void)state;
    OK(blobs_put(b, "r1", "1", 1, &e));
    OK(blobs_put(b, "r2", "1", 1, &e));
    ask("_set/lag/1");
    OK(blobs_put(b, "r3", "333", 3, &e));
    OK(blobs_delete(b, "r1", &e));
    assert_string_equal(list("r"), " r2:1 r3:3");
    /* Deleted by another client meanwhile: asked for, and dropped. */
    const struct s3_place p = place();
    struct blobs *other;
    OK(blobs_open_s3(&other, &p, BLOBS_OPEN, &e));
    OK(blobs_delete(other, "r3", &e));
    blobs_free(other);
    assert_string_equal(list("r"), " r2:1");
    ask("_requests");
    assert_string_equal(list("r"), " r2:1");
    assert_int_equal(ask("_requests"), 1);
}

static void lists_that_are_none(void **state)
{
    (void)state;
    ask("_fault/html/100");
    FAILS(blobs_list(b, "", see, NULL, &e), ERR_GENERIC, "no list of S3");
    ask("_fault/doctype/100");
    FAILS(blobs_list(b, "", see, NULL, &e), ERR_GENERIC, "no list of S3");
}

static void the_clock_is_corrected_once(void **state)
{
    (void)state;
    ask("_set/skew/86400");
    ask("_requests");
    OK(blobs_put(b, "p1", "x", 1, &e));
    assert_int_equal(ask("_requests"), 2);
    OK(blobs_put(b, "p1", "x", 1, &e));
    assert_int_equal(ask("_requests"), 1);
}

static void keys_are_read_again(void **state)
{
    (void)state;
    char file[96];
    snprintf(file, sizeof file, "%s/keys", dir);
    FILE *f = fopen(file, "w");
    fputs("access-key = old\nsecret-key = a\n", f);
    fclose(f);
    chmod(file, 0600);
    struct s3_place p = place();
    p.keys = NULL;
    p.credentials = file;
    struct blobs *other;
    OK(blobs_open_s3(&other, &p, BLOBS_OPEN, &e));
    OK(blobs_put(other, "p1", "x", 1, &e));
    ask("_set/key/new");
    FAILS(blobs_put(other, "p1", "x", 1, &e), ERR_PERMISSION, "does not know the access-key");
    f = fopen(file, "w");
    fputs("access-key = new\nsecret-key = b\n", f);
    fclose(f);
    OK(blobs_put(other, "p1", "x", 1, &e));
    unlink(file);
    blobs_free(other);
    assert_true(blobs_open_s3(&other, &p, BLOBS_OPEN, &e) < 0);
    assert_non_null(strstr(e.msg, "credentials file"));
}

static char keys_file[96];

static void keys_write(const char *key)
{
    char new[104];
    snprintf(new, sizeof new, "%s.new", keys_file);
    FILE *f = fopen(new, "w");
    fprintf(f, "access-key = %s\nsecret-key = a\n", key);
    fclose(f);
    chmod(new, 0600);
    rename(new, keys_file);
}

struct putter {
    struct blobs *b;
    int number;
    _Atomic bool *end;
    struct err e;
};
static void *put_until(void *arg)
{
    struct putter *p = arg;
    char name[16];
    for (int i = 0; !atomic_load(p->end); i++) {
        snprintf(name, sizeof name, "k%d-%d", p->number, i % 10);
        if (blobs_put(p->b, name, "x", 1, &p->e) < 0)
            return p;
    }
    return NULL;
}

/* Each thread is refused with the old keys; the first to look finds others, and they are there for all. */
static void keys_are_replaced_under_many_threads(void **state)
{
    (void)state;
    struct putter p[8];
    pthread_t t[8];
    _Atomic bool end = false;
    snprintf(keys_file, sizeof keys_file, "%s/many-keys", dir);
    keys_write("k0");
    ask("_set/key/k0");
    struct s3_place at = place();
    at.keys = NULL;
    at.credentials = keys_file;
    at.renew_s = 30; /* read before the server knows them */
    struct blobs *other;
    OK(blobs_open_s3(&other, &at, BLOBS_OPEN, &e));
    for (int i = 0; i < 8; i++) {
        p[i] = (struct putter){other, i, &end, ERR_INIT};
        assert_int_equal(pthread_create(&t[i], NULL, put_until, &p[i]), 0);
    }
    for (int i = 1; i <= 10; i++) {
        char key[16];
        usleep(50000);
        snprintf(key, sizeof key, "k%d", i);
        keys_write(key);
        ask("_set/key/%s", key);
    }
    usleep(50000);
    atomic_store(&end, true);
    for (int i = 0; i < 8; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_string_equal(p[i].e.msg, "");
        assert_null(bad);
    }
    blobs_free(other);
    ask("_set/key/");
    unlink(keys_file);
}

static struct s3_keys renewed;
static _Atomic int asked;
static int renew(struct s3_keys *ret, void *arg)
{
    assert_ptr_equal(arg, &renewed);
    *ret = renewed;
    return atomic_fetch_add(&asked, 1) == 0 ? -EAGAIN : 0; /* none yet */
}

/* Revoked first, replaced afterwards: keys that worked are waited for, those that never did are not. */
static void keys_that_are_revoked_first(void **state)
{
    (void)state;
    struct s3_keys old = {.access = "old", .secret = "a"};
    struct s3_place at = place();
    at.keys = &old;
    at.credentials = "a name";
    at.renew = renew;
    at.renew_arg = &renewed;
    at.renew_s = 60;
    renewed = (struct s3_keys){.access = "new", .secret = "b"};
    ask("_set/key/old");
    struct blobs *other;
    OK(blobs_open_s3(&other, &at, BLOBS_OPEN, &e));
    OK(blobs_put(other, "p1", "x", 1, &e));
    ask("_set/key/new");
    OK(blobs_put(other, "p1", "x", 1, &e));
    assert_int_equal(asked, 2);
    blobs_free(other);
    renewed = old;
    OK(blobs_open_s3(&other, &at, BLOBS_OPEN, &e));
    const int64_t from = mono_ns();
    FAILS(blobs_put(other, "p1", "x", 1, &e), ERR_PERMISSION, "does not know the access-key in a name");
    assert_true(mono_ns() - from < 20 * NS_PER_S);
    assert_int_equal(asked, 3);
    blobs_free(other);
    ask("_set/key/");
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        enum err_class cls;
        const char *text;
    } all[] = {{"secret", ERR_PERMISSION, "secret-key"},
               {"expired", ERR_PERMISSION, "session-token"},
               {"bucket", ERR_NO_REPO, "no bucket"},
               {"region", ERR_USAGE, "set region = eu-9"},
               {"quota", ERR_NO_SPACE, "QuotaExceeded"},
               {"full", ERR_NO_SPACE, "InsufficientStorage"},
               {"capacity", ERR_NO_SPACE, "InsufficientCapacity"},
               {"denied", ERR_PERMISSION, "the rights to"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ask("_fault/%s/100", all[i].kind);
        FAILS(blobs_put(b, "p1", "x", 1, &e), all[i].cls, all[i].text);
        FAILS(blobs_list(b, "", see, NULL, &e), all[i].cls, all[i].text);
        struct blob_info info;
        uint8_t *data = NULL;
        size_t len;
        FAILS(blobs_stat(b, "p1", &info, &e), all[i].cls, all[i].text);
        assert_int_not_equal(blobs_stat(b, "p1", &info, NULL), -ENOENT); /* no blob is missing */
        FAILS(blobs_get(b, "p1", 100, &data, &len, &e), all[i].cls, all[i].text);
        assert_int_not_equal(blobs_get(b, "p1", 100, &data, &len, NULL), -ENOENT);
    }
    struct s3_place p = place();
    struct blobs *other;
    p.endpoint = "http://127.0.0.1:1";
    OK(blobs_open_s3(&other, &p, BLOBS_OPEN, &e));
    FAILS(blobs_put(other, "p1", "x", 1, &e), ERR_GENERIC, "no connection to 127.0.0.1:1");
    blobs_free(other);
    p.endpoint = "http://no-such-host.invalid";
    OK(blobs_open_s3(&other, &p, BLOBS_OPEN, &e));
    FAILS(blobs_put(other, "p1", "x", 1, &e), ERR_GENERIC, "no-such-host.invalid has no address");
    blobs_free(other);
    char tls[64];
    snprintf(tls, sizeof tls, "https%s", endpoint + 4);
    p.endpoint = tls;
    OK(blobs_open_s3(&other, &p, BLOBS_OPEN, &e));
    FAILS(blobs_put(other, "p1", "x", 1, &e), ERR_PERMISSION, "the TLS connection");
    FAILS(blobs_put(other, "p1", "x", 1, &e), ERR_PERMISSION, "set ca-file");
    blobs_free(other);
    snprintf(tls, sizeof tls, "https://localhost%s", strrchr(endpoint, ':'));
    p.bucket = "b.dotted";
    p.virtual_host = true;
    OK(blobs_open_s3(&other, &p, BLOBS_OPEN, &e));
    FAILS(blobs_put(other, "p1", "x", 1, &e), ERR_PERMISSION, "set virtual-host = no");
    blobs_free(other);
}

static void places_that_cannot_be(void **state)
{
    (void)state;
    struct s3_place p = place();
    p.endpoint = "ftp://host";
    FAILS(s3_place_check(&p, &e), ERR_USAGE, "invalid endpoint");
    p.endpoint = "https://host/bucket";
    FAILS(s3_place_check(&p, &e), ERR_USAGE, "invalid endpoint");
    p.endpoint = "https://user@host";
    FAILS(s3_place_check(&p, &e), ERR_USAGE, "invalid endpoint");
    p.endpoint = "[::1]:9000";
    OK(s3_place_check(&p, &e));
    p.bucket = "a/b";
    FAILS(s3_place_check(&p, &e), ERR_USAGE, "bucket");
    p = place();
    p.prefix = "/x";
    FAILS(s3_place_check(&p, &e), ERR_USAGE, "prefix");
}

static void *request_stop(void *arg)
{
    (void)arg;
    usleep(300000);
    atomic_store(&stop, true);
    return NULL;
}

/* In a transfer that stalls, and in the pauses between repetitions. */
static void every_wait_ends_by_a_cancel(void **state)
{
    (void)state;
    struct s3_place p = place();
    p.stall_s = 100;
    p.pause_ms = 20000;
    struct blobs *slow;
    static const char *const kinds[] = {"stall", "slowdown"};
    OK(blobs_open_s3(&slow, &p, BLOBS_OPEN, &e));
    blobs_stop(slow, &stop);
    for (int i = 0; i < 4; i++) {
        pthread_t t;
        atomic_store(&stop, false);
        ask("_fault/%s/1", kinds[i % 2]);
        const int64_t from = mono_ns();
        assert_int_equal(pthread_create(&t, NULL, request_stop, NULL), 0);
        FAILS(i < 2 ? blobs_put(slow, "p1", "x", 1, &e) : blobs_list(slow, "", see, NULL, &e), ERR_INTERRUPTED,
              "interrupted");
        assert_true(mono_ns() - from < 5 * NS_PER_S);
        pthread_join(t, NULL);
    }
    blobs_free(slow);
}

/* What is written after a cancel ends soon, with a server that does not answer. */
static void a_hurry_is_short(void **state)
{
    (void)state;
    struct s3_place p = place();
    p.stall_s = 100;
    p.hurry_s = 1;
    p.pause_ms = 20000;
    struct blobs *slow;
    static const char *const kinds[] = {"stall", "slowdown"};
    OK(blobs_open_s3(&slow, &p, BLOBS_OPEN, &e));
    blobs_hurry(slow, &stop);
    for (int i = 0; i < 2; i++) {
        pthread_t t;
        atomic_store(&stop, false);
        ask("_fault/%s/100", kinds[i]);
        const int64_t from = mono_ns();
        assert_int_equal(pthread_create(&t, NULL, request_stop, NULL), 0);
        FAILS(blobs_put(slow, "p1", "x", 1, &e), ERR_GENERIC, i ? "SlowDown" : "does not answer");
        assert_true(mono_ns() - from < 10 * NS_PER_S);
        pthread_join(t, NULL);
    }
    /* A server that answers is written to all the same. */
    ask("_fault/none/0");
    OK(blobs_put(slow, "p1", "x", 1, &e));
    blobs_free(slow);
}

static void *many(void *arg)
{
    char name[16], got[5];
    struct err own = ERR_INIT;
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "t%d-%02d", *(int *)arg, i);
        if (blobs_put(b, name, name, 5, &own) < 0 || blobs_read(b, name, 0, got, 5, &own) < 0 || memcmp(got, name, 5) ||
            blobs_delete(b, name, &own) < 0)
            return arg;
    }
    return NULL;
}

static void threads_do_not_wait_for_each_other(void **state)
{
    (void)state;
    pthread_t t[8];
    int number[8];
    void *bad;
    for (int i = 0; i < 8; i++) {
        number[i] = i;
        assert_int_equal(pthread_create(&t[i], NULL, many, &number[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    assert_string_equal(list("t"), "");
}

/* ---- documents ---- */

static int page_of(struct s3_page *p, const char *text)
{
    struct s3_parser *x = NULL;
    assert_int_equal(s3_parser_new(&x, p, NULL), 0);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < strlen(text); i++) /* in the smallest pieces */
        rc = s3_parser_feed(x, text + i, 1);
    rc = rc == 0 ? s3_parser_end(x) : rc;
    s3_parser_free(x);
    return rc;
}

static void pages(void **state)
{
    (void)state;
    struct s3_page p = {.prefix = "a+b/"};
#define TIME "<LastModified>2026-11-24T04:50:39.500Z</LastModified>"
    assert_int_equal(page_of(&p, "<ListBucketResult><Contents><Key>a%2Bb/x%2E1</Key><Size>7</Size>" TIME
                                 "</Contents><Contents><Key>a+b/y</Key><Size>8</Size>" TIME
                                 "</Contents><Contents><Key>c/z</Key><Size>-8</Size></Contents></ListBucketResult>"),
                     0);
    assert_int_equal(p.n, 2);
    assert_string_equal(p.blobs[0].name, "x.1");
    assert_int_equal(p.blobs[0].mtime_ns % NS_PER_S, 500 * NS_PER_MS);
    assert_string_equal(p.blobs[1].name, "y");
    /* A blob of unknown length or age would look lost, or old enough to be deleted. */
    static const char *const bad[] = {("<Size>-8</Size>" TIME), "<Size>8</Size>", TIME,
                                      "<Size>8</Size><LastModified>yesterday</LastModified>"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[300];
        snprintf(text, sizeof text, "<ListBucketResult><Contents><Key>a+b/w</Key>%s</Contents></ListBucketResult>",
                 bad[i]);
        assert_int_equal(page_of(&p, text), -EBADMSG);
    }
    assert_int_equal(page_of(&p, "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"), -EBADMSG);
    assert_int_equal(page_of(&p, "<ListBucketResult>"), -EBADMSG);
    assert_int_equal(page_of(&p, ""), -EBADMSG);
    char deep[2000] = "";
    for (int i = 0; i < 100; i++)
        strcat(deep, "<deep>");
    assert_int_equal(page_of(&p, deep), -EBADMSG);
    s3_page_free(&p);
    struct s3_error r;
    const char text[] = "<Error><Code>A</Code><Message>line\nbreak</Message><Region>r</Region><Mess";
    s3_error_parse(&r, text, strlen(text));
    assert_string_equal(r.code, "A");
    assert_string_equal(r.message, "line break");
    assert_string_equal(r.region, "r");
}

static int versions_of(struct s3_versions *v, const char *text)
{
    struct s3_parser *x;
    assert_int_equal(s3_versions_parser_new(&x, v, NULL), 0);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < strlen(text); i++)
        rc = s3_parser_feed(x, text + i, 1);
    rc = rc == 0 ? s3_parser_end(x) : rc;
    s3_parser_free(x);
    return rc;
}

static void pages_of_versions(void **state)
{
    (void)state;
    struct s3_versions v = {.prefix = "a+b/"};
    char status[64];
#define VERSION(key, id, size) "<Version><Key>" key "</Key>" id TIME size "</Version>"
    assert_int_equal(versions_of(&v, "<ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>a%2Bb/y"
                                     "</NextKeyMarker><NextVersionIdMarker/>" VERSION(
                                         "a%2Bb/x", "<VersionId>1</VersionId>", "<Size>7</Size>") //
                                 "<DeleteMarker><Key>a+b/y</Key><VersionId>null</VersionId>" TIME
                                 "</DeleteMarker>" VERSION("c/z", "", "") "</ListVersionsResult>"),
                     0);
    assert_int_equal(v.n, 2);
    assert_string_equal(v.all[0].blob.name, "x");
    assert_string_equal(v.all[0].id, "1");
    assert_int_equal(v.all[0].blob.length, 7);
    assert_false(v.all[0].deleted);
    assert_string_equal(v.all[1].blob.name, "y");
    assert_string_equal(v.all[1].id, "null");
    assert_true(v.all[1].deleted);
    assert_true(v.truncated);
    assert_string_equal(v.next_key, "a+b/y");
    assert_string_equal(v.next_id, "");
    /* Without an id, a time or a length it cannot be told which one counts, or read. */
    static const char *const bad[] = {VERSION("a+b/w", "", "<Size>7</Size>"),
                                      VERSION("a+b/w", "<VersionId></VersionId>", "<Size>7</Size>"),
                                      VERSION("a+b/w", "<VersionId>1</VersionId>", ""),
                                      "<Version><Key>a+b/w</Key><VersionId>1</VersionId><Size>7</Size></Version>",
                                      "<DeleteMarker><Key>a+b/w</Key><VersionId>1</VersionId></DeleteMarker>",
                                      "<IsTruncated>true</IsTruncated>"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[400];
        snprintf(text, sizeof text, "<ListVersionsResult>%s</ListVersionsResult>", bad[i]);
        assert_int_equal(versions_of(&v, text), -EBADMSG);
    }
    assert_int_equal(versions_of(&v, "<ListBucketResult></ListBucketResult>"), -EBADMSG);
    s3_versions_free(&v);
    static const char enabled[] = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
                      none[] = "<VersioningConfiguration xmlns='x'/>", other[] = "<Status>Enabled</Status>";
    assert_int_equal(s3_versioning_parse(status, enabled, sizeof enabled - 1), 0);
    assert_string_equal(status, "Enabled");
    assert_int_equal(s3_versioning_parse(status, none, sizeof none - 1), 0);
    assert_string_equal(status, "");
    assert_int_equal(s3_versioning_parse(status, other, sizeof other - 1), -EBADMSG);
}

/* The service keeps versions from here on. */
static void the_past_is_read_only(void **state)
{
    (void)state;
    struct s3_place p = place();
    uint8_t *data;
    size_t len;
    struct blob_info i;
    struct blob_writer *w;
    struct blobs *past;
    p.prefix = "past/";
    blobs_free(b);
    OK(blobs_open_s3(&b, &p, BLOBS_OPEN, &e));
    p.at_ns = now_ns();
    FAILS(blobs_open_s3(&past, &p, BLOBS_OPEN, &e), ERR_USAGE, "has no versions");
    ask("_versions/Enabled");
    OK(blobs_put(b, "p1", "then", 4, &e));
    OK(blobs_put(b, "p12", "longer name", 11, &e));
    OK(blobs_put(b, "x1", "gone then", 9, &e));
    OK(blobs_delete(b, "x1", &e));
    OK(blobs_put(b, "x2", "deleted later", 13, &e));
    usleep(2100000); /* times are whole seconds */
    p.at_ns = now_ns();
    usleep(1100000);
    OK(blobs_put(b, "p1", "overwritten", 11, &e));
    OK(blobs_put(b, "x1", "again", 5, &e));
    OK(blobs_put(b, "x3", "new", 3, &e));
    OK(blobs_delete(b, "x2", &e));
    OK(blobs_open_s3(&past, &p, BLOBS_OPEN, &e));
    assert_true(blobs_are_past(past));
    assert_non_null(strstr(blobs_location(past), "/b/past/ as of 20"));
    assert_false(blobs_lists_lag(past));
    for (int page = 1; page <= 1000; page *= 1000) {
        ask("_set/page/%d", page);
        seen[0] = '\0';
        OK(blobs_list(past, "", see, NULL, &e));
        assert_string_equal(seen, " p1:4 p12:11 x2:13");
        seen[0] = '\0';
        OK(blobs_list(past, "p1", see, NULL, &e));
        assert_string_equal(seen, " p1:4 p12:11");
    }
    OK(blobs_get(past, "p1", 100, &data, &len, &e));
    assert_int_equal(len, 4);
    assert_memory_equal(data, "then", 4);
    OK(blobs_read(past, "x2", 8, data, 4, &e));
    assert_memory_equal(data, "late", 4);
    free(data);
    FAILS(blobs_get(past, "x1", 100, &data, &len, &e), ERR_DAMAGE, "missing");
    FAILS(blobs_get(past, "x3", 100, &data, &len, &e), ERR_DAMAGE, "missing");
    FAILS(blobs_get(past, "x", 100, &data, &len, &e), ERR_DAMAGE, "missing");
    OK(blobs_stat(past, "p12", &i, &e));
    assert_int_equal(i.length, 11);
    assert_int_equal(blobs_put(past, "p1", "no", 2, &e), -EROFS);
    assert_int_equal(blobs_delete(past, "p1", &e), -EROFS);
    assert_int_equal(blob_writer_new(&w, past, "p9", &e), -EROFS);
    FAILS(blobs_put(past, "p9", "no", 2, &e), ERR_USAGE, "cannot be changed");
    blobs_free(past);
    FAILS(blobs_open_s3(&past, &p, BLOBS_CREATE, &e), ERR_USAGE, "cannot be changed");
    /* Asked for by the name alone, without a list before. */
    OK(blobs_open_s3(&past, &p, BLOBS_OPEN, &e));
    OK(blobs_stat(past, "p1", &i, &e));
    assert_int_equal(i.length, 4);
    FAILS(blobs_stat(past, "x1", &i, &e), ERR_DAMAGE, "missing");
    ask("_fault/html/9");
    FAILS(blobs_list(past, "", see, NULL, &e), ERR_GENERIC, "no list of versions");
    ask("_fault/none/0");
    blobs_free(past);
    OK(blobs_get(b, "p1", 100, &data, &len, &e));
    assert_memory_equal(data, "overwritten", 11);
    free(data);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(every_operation),
        T(pieces_in_any_order_have_their_sums),
        T(a_pack_has_nothing_of_the_one_before),
        T(what_passes_is_repeated),
        T(but_not_without_end),
        T(a_stalled_server_is_given_up),
        T(what_is_cut_is_read_again),
        T(an_etag_proves_nothing),
        T(what_is_to_be_kept_is_locked),
        T(not_every_404_is_a_missing_blob),
        T(lists_of_many_pages),
        T(lists_that_lag),
        T(lists_that_are_none),
        T(the_clock_is_corrected_once),
        T(keys_are_read_again),
        T(keys_are_replaced_under_many_threads),
        T(keys_that_are_revoked_first),
        T(what_is_wrong_is_said),
        T(places_that_cannot_be),
        T(every_wait_ends_by_a_cancel),
        T(a_hurry_is_short),
        T(threads_do_not_wait_for_each_other),
        cmocka_unit_test(pages),
        cmocka_unit_test(pages_of_versions),
        T(the_past_is_read_only),
    };
    return cmocka_run_group_tests(tests, service_start, service_end);
}
