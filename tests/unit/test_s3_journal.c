/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What processes of a node tell each other of what they have put and deleted: the file, and the lists of a service that
 * lags (tests/tools/s3-faults.py). */
#include "repo/s3-journal.h"

#include "base/time.h"
#include "repo/blob-s3.h"
#include "tests/unit/s3-service.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <isa-l/crc64.h>
#include <sys/file.h>
#include <sys/stat.h>

#define PLACE "https://host/bucket/prefix/"

/* ---- the file ---- */

static char home[64], file[128], old[140];

static int home_make(void **state)
{
    (void)state;
    snprintf(home, sizeof home, "/tmp/snapferry-journal.XXXXXX");
    assert_non_null(mkdtemp(home));
    const uint64_t id = crc64_ecma_refl(0, (const uint8_t *)PLACE, strlen(PLACE));
    snprintf(file, sizeof file, "%s/recent-%016" PRIx64, home, id);
    snprintf(old, sizeof old, "%s.old", file);
    return 0;
}

static int home_remove(void **state)
{
    (void)state;
    journals_remove(home);
    return rmdir(home);
}

/* A line as another process writes it. */
static void append(int64_t time_ns, const char *kind, const char *name)
{
    char text[1000];
    const uint64_t id = crc64_ecma_refl(0, (const uint8_t *)PLACE, strlen(PLACE));
    const int len = snprintf(text, sizeof text, "%" PRId64 " 5000000000 7 %s 00000000000000ab %s", time_ns, kind, name);
    FILE *f = fopen(file, "a");
    assert_non_null(f);
    fprintf(f, "\n%016" PRIx64 " %s\n", crc64_ecma_refl(id, (const uint8_t *)text, (size_t)len), text);
    fclose(f);
}

static char known[1 << 16];
/* What a new process knows: " name+length" of what was put, " name-" of what was deleted. */
static const char *knows_at(const char *where, const char *prefix)
{
    struct s3_journal *j = s3_journal_new(home, where);
    struct s3_changes c = {.n = 0};
    assert_non_null(j);
    assert_int_equal(s3_journal_merge(j, prefix, &c), 0);
    known[0] = '\0';
    for (size_t i = 0, at = 0; i < c.n && at < sizeof known - 600; i++) {
        assert_true(c.all[i].told);
        assert_false(c.all[i].seen);
        at += (size_t)(c.all[i].deleted ? sprintf(known + at, " %s-", c.all[i].name)
                                        : sprintf(known + at, " %s+%d", c.all[i].name, (int)c.all[i].length));
    }
    s3_changes_free(&c);
    s3_journal_free(j);
    return known;
}
static const char *knows(const char *prefix)
{
    return knows_at(PLACE, prefix);
}
#define KNOWS(text) assert_string_equal(knows(""), text)

static void the_next_process_knows(void **state)
{
    (void)state;
    struct s3_journal *a = s3_journal_new(home, PLACE), *b = s3_journal_new(home, PLACE);
    KNOWS("");
    s3_journal_add(a, "x2", 5, 1, false);
    s3_journal_add(b, "x1", 6, 1, false);
    s3_journal_add(a, "p1", 7, 1, false);
    s3_journal_add(b, "p1", 0, 2, true);
    s3_journal_add(a, "q1", 0, 1, true);
    s3_journal_add(b, "q1", 8, 2, false);
    KNOWS(" p1- q1+8 x1+6 x2+5");
    assert_string_equal(knows("x"), " x1+6 x2+5");
    assert_string_equal(knows("x3"), "");
    /* Its own it has already. */
    struct s3_changes c = {.n = 0};
    assert_int_equal(s3_journal_merge(a, "x", &c), 0);
    assert_int_equal(c.n, 1);
    assert_string_equal(c.all[0].name, "x1");
    s3_changes_free(&c);
    struct s3_recent r;
    s3_recent_init(&r);
    assert_int_equal(s3_recent_add(&r, "p1", 9, 3, false), 0);
    assert_int_equal(s3_recent_copy(&r, "", &c), 0);
    assert_int_equal(s3_journal_merge(a, "", &c), 0);
    assert_int_equal(c.n, 3);
    const struct s3_change *p = s3_changes_find(&c, "p1"), *q = s3_changes_find(&c, "q1");
    assert_true(p && !p->told && !p->deleted && p->length == 9);
    assert_true(q && q->told && q->length == 8 && q->mtime_ns == 2);
    s3_changes_free(&c);
    s3_recent_clear(&r);
    s3_journal_free(a);
    s3_journal_free(b);
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void each_place_has_its_own(void **state)
{
    (void)state;
    struct s3_journal *j = s3_journal_new(home, PLACE);
    s3_journal_add(j, "x1", 1, 1, false);
    s3_journal_free(j);
    assert_string_equal(knows_at("https://host/bucket/copy/", ""), "");
    /* Nor does a file that was renamed tell it anything. */
    char other[128];
    const char *elsewhere = "https://host/bucket/copy/";
    snprintf(other, sizeof other, "%s/recent-%016" PRIx64, home,
             crc64_ecma_refl(0, (const uint8_t *)elsewhere, strlen(elsewhere)));
    assert_int_equal(rename(file, other), 0);
    assert_string_equal(knows_at(elsewhere, ""), "");
    assert_int_equal(rename(other, file), 0);
    KNOWS(" x1+1");
}

static void what_is_old_is_not_believed(void **state)
{
    (void)state;
    const int64_t now = now_ns();
    append(now - 14 * NS_PER_MIN, "p", "x14");
    append(now - 16 * NS_PER_MIN, "p", "x16");
    append(now + 30 * NS_PER_S, "p", "xsoon");
    append(now + 3 * NS_PER_MIN, "p", "xlater"); /* the clock was set back */
    append(INT64_MAX, "p", "xnever");
    append(INT64_MIN, "p", "xalways");
    KNOWS(" x14+7 xsoon+7");
    /* It counts from when it was written. */
    struct s3_journal *j = s3_journal_new(home, PLACE);
    struct s3_changes c = {.n = 0};
    assert_int_equal(s3_journal_merge(j, "x14", &c), 0);
    const int64_t age = mono_ns() - c.all[0].since_ns;
    assert_true(age >= 14 * NS_PER_MIN && age < 15 * NS_PER_MIN);
    assert_int_equal(c.all[0].mtime_ns, 5000000000);
    s3_changes_free(&c);
    s3_journal_free(j);
}

static void names_lead_nowhere(void **state)
{
    (void)state;
    char longest[300];
    memset(longest, 'x', sizeof longest);
    longest[256] = '\0';
    append(now_ns(), "p", longest);
    longest[255] = '\0';
    append(now_ns(), "p", "../x");
    append(now_ns(), "p", "a/b");
    append(now_ns(), "p", ".x");
    append(now_ns(), "p", "a..b");
    append(now_ns(), "p", "");
    append(now_ns(), "p", "a b");
    append(now_ns(), "p", "a\x01");
    append(now_ns(), "p", "\xc3\xa4");
    append(now_ns(), "pp", "x");
    append(now_ns(), "", "x");
    KNOWS("");
    append(now_ns(), "d", longest);
    char want[300];
    snprintf(want, sizeof want, " %s-", longest);
    KNOWS(want);
    /* And none of them is written. */
    struct stat before, after;
    assert_int_equal(stat(file, &before), 0);
    struct s3_journal *j = s3_journal_new(home, PLACE);
    s3_journal_add(j, "a\nb", 1, 1, false);
    s3_journal_add(j, "a/b", 1, 1, false);
    s3_journal_add(j, "", 1, 1, false);
    assert_int_equal(stat(file, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    longest[0] = 'y';
    s3_journal_add(j, longest, UINT64_MAX, INT64_MIN, false);
    s3_journal_free(j);
    assert_non_null(strstr(knows("y"), longest));
}

static char bytes[4096];
static size_t whole(void)
{
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    return n;
}
static void replace(const char *data, size_t n)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void what_is_damaged_is_passed_over(void **state)
{
    (void)state;
    struct s3_journal *j = s3_journal_new(home, PLACE);
    s3_journal_add(j, "x1", 1, 1, false);
    s3_journal_add(j, "x2", 2, 1, true);
    s3_journal_add(j, "x3", 3, 1, false);
    s3_journal_free(j);
    const size_t n = whole();
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (char)(1 << bit);
            replace(bytes, n);
            bytes[i] ^= (char)(1 << bit);
            const char *k = knows("");
            if (strcmp(k, " x1+1 x2- x3+3") != 0 && strcmp(k, " x1+1 x2-") != 0 && strcmp(k, " x1+1 x3+3") != 0 &&
                strcmp(k, " x2- x3+3") != 0)
                fail_msg("byte %zu, bit %d: %s", i, bit, k);
        }
    /* Killed, or a full disk, in the middle of a record: the ones before and behind are whole. */
    for (size_t cut = 0; cut + 1 < n; cut++) {
        replace(bytes, cut);
        const size_t third = n / 3;
        char want[64];
        /* The end of its line is in the next one. */
        snprintf(want, sizeof want, "%s%s x9+9", cut + 1 >= third ? " x1+1" : "", cut + 1 >= 2 * third ? " x2-" : "");
        j = s3_journal_new(home, PLACE);
        s3_journal_add(j, "x9", 9, 1, false);
        s3_journal_free(j);
        KNOWS(want);
    }
    char noise[4096];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)(i * 2654435761u >> 13);
    replace(noise, sizeof noise);
    KNOWS("");
    memset(noise, '\n', sizeof noise);
    replace(noise, sizeof noise);
    KNOWS("");
    memset(noise, '\0', sizeof noise); /* after a loss of power */
    replace(noise, sizeof noise);
    KNOWS("");
}

static void add_one(const char *name)
{
    struct s3_journal *j = s3_journal_new(home, PLACE);
    s3_journal_add(j, name, 1, 1, false);
    s3_journal_free(j);
}

static void what_is_none_of_ours_is_begun_anew(void **state)
{
    (void)state;
    char elsewhere[128], path[300];
    struct stat st;
    snprintf(elsewhere, sizeof elsewhere, "%s/recent-elsewhere", home);
    append(now_ns(), "p", "x5");
    assert_int_equal(rename(file, elsewhere), 0);
    assert_int_equal(stat(elsewhere, &st), 0);
    const off_t size = st.st_size;
    for (int hard = 0; hard < 2; hard++) {
        assert_int_equal(hard ? link(elsewhere, file) : symlink(elsewhere, file), 0);
        KNOWS("");
        add_one("x1");
        KNOWS(" x1+1");
        assert_int_equal(stat(elsewhere, &st), 0);
        assert_int_equal(st.st_size, size);
        unlink(file);
    }
    assert_int_equal(mkfifo(file, 0600), 0);
    KNOWS("");
    add_one("x2");
    KNOWS(" x2+1");
    unlink(file);
    /* One that is too long. */
    add_one("x3");
    assert_int_equal(truncate(file, 3 * S3_JOURNAL_MAX + 1), 0);
    KNOWS("");
    add_one("x4");
    KNOWS(" x4+1");
    /* A directory cannot be: one does without. */
    unlink(file);
    unlink(old);
    assert_int_equal(mkdir(file, 0700), 0);
    add_one("x6");
    KNOWS("");
    rmdir(file);
    /* Nor where there is no directory. */
    snprintf(path, sizeof path, "%s/none", home);
    struct s3_journal *j = s3_journal_new(path, PLACE);
    struct s3_changes c = {.n = 0};
    s3_journal_add(j, "x1", 1, 1, false);
    assert_int_equal(s3_journal_merge(j, "", &c), 0);
    assert_int_equal(c.n, 0);
    s3_journal_free(j);
    assert_true(access(path, F_OK) < 0);
}

static void the_cache_is_wiped_at_will(void **state)
{
    (void)state;
    struct s3_journal *j = s3_journal_new(home, PLACE);
    s3_journal_add(j, "x1", 1, 1, false);
    unlink(file);
    KNOWS("");
    s3_journal_add(j, "x2", 1, 1, false);
    KNOWS(" x2+1");
    s3_journal_free(j);
}

static size_t count(const char *prefix)
{
    struct s3_journal *j = s3_journal_new(home, PLACE);
    struct s3_changes c = {.n = 0};
    assert_int_equal(s3_journal_merge(j, prefix, &c), 0);
    const size_t n = c.n;
    s3_changes_free(&c);
    s3_journal_free(j);
    return n;
}

static off_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) < 0 ? -1 : st.st_size;
}

static void it_does_not_grow(void **state)
{
    (void)state;
    char name[80];
    struct s3_journal *j[2] = {s3_journal_new(home, PLACE), s3_journal_new(home, PLACE)};
    for (int i = 0; i < 60000; i++) {
        snprintf(name, sizeof name, "p%040d-s0123456789abcdef", i);
        s3_journal_add(j[i % 2], name, 1, 1, false);
    }
    assert_in_range(size_of(file), 1, S3_JOURNAL_MAX + 600);
    assert_in_range(size_of(old), S3_JOURNAL_MAX, S3_JOURNAL_MAX + 600);
    assert_true(count("") >= 6000);
    snprintf(name, sizeof name, "p%037d", 59);
    assert_int_equal(count(name), 1000); /* the last ones */
    snprintf(name, sizeof name, "p%040d", 1);
    /* Who holds the lock for ever stops the others from nothing but growth. */
    const int fd = open(file, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    for (int i = 0; i < 60000; i++)
        s3_journal_add(j[i % 2], name, 1, 1, false);
    assert_in_range(size_of(file), 2 * S3_JOURNAL_MAX, 2 * S3_JOURNAL_MAX + 600);
    close(fd);
    s3_journal_add(j[0], "xlast", 1, 1, false);
    assert_in_range(size_of(file), 1, 600);
    assert_int_equal(count("x"), 1);
    s3_journal_free(j[0]);
    s3_journal_free(j[1]);
    /* Nothing in it can be believed any more. */
    const struct timespec before[2] = {{.tv_sec = time(NULL) - 1000}, {.tv_sec = time(NULL) - 1000}};
    assert_int_equal(utimensat(AT_FDCWD, file, before, 0), 0);
    const off_t size = size_of(file);
    add_one("x2");
    assert_int_equal(size_of(old), size);
}

static void many_processes_at_once(void **state)
{
    (void)state;
    pid_t pid[4];
    char name[80];
    /* So many that the file is set aside once. */
    for (int k = 0; k < 4; k++)
        if ((pid[k] = fork()) == 0) {
            struct s3_journal *j = s3_journal_new(home, PLACE);
            for (int i = 0; i < 2500; i++) {
                snprintf(name, sizeof name, "p%d-%040d-s0123456789abcdef", k, i);
                s3_journal_add(j, name, 1, 1, false);
            }
            _exit(0);
        }
    for (int k = 0; k < 4; k++)
        waitpid(pid[k], NULL, 0);
    assert_true(size_of(old) > 0);
    assert_int_equal(count("p"), 10000);
}

/* ---- lists ---- */

static char here[80], there[80];
static struct err e;

static int nodes_make(void **state)
{
    (void)state;
    e = (struct err)ERR_INIT;
    snprintf(here, sizeof here, "%s/here", dir);
    snprintf(there, sizeof there, "%s/there", dir);
    return mkdir(here, 0700) < 0 || mkdir(there, 0700) < 0;
}

static int nodes_remove(void **state)
{
    (void)state;
    ask("_set/lag/0");
    journals_remove(here);
    journals_remove(there);
    return rmdir(here) < 0 || rmdir(there) < 0;
}

#define OK(call) assert_int_equal((call) < 0 ? (print_error("%s\n", e.msg), -1) : 0, 0)

/* A process of the node with that cache directory. */
static struct blobs *process(const char *node, const char *prefix)
{
    static struct s3_keys keys = {.access = "test", .secret = "secret-that-is-not-shown"};
    const struct s3_place p = {.endpoint = endpoint,
                               .bucket = "b",
                               .prefix = prefix,
                               .region = "",
                               .keys = &keys,
                               .ca_file = "",
                               .spool = node,
                               .pause_ms = 5};
    struct blobs *b;
    OK(blobs_open_s3(&b, &p, BLOBS_OPEN, &e));
    return b;
}

static char seen[8192];
static int see(const struct blob_info *i, void *arg)
{
    (void)arg;
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), " %s:%d", i->name, (int)i->length);
    return 0;
}
static const char *list(const char *node, const char *prefix)
{
    struct blobs *b = process(node, "pre/");
    seen[0] = '\0';
    OK(blobs_list(b, prefix, see, NULL, &e));
    blobs_free(b);
    return seen;
}
static void put(const char *node, const char *name, size_t len)
{
    struct blobs *b = process(node, "pre/");
    OK(blobs_put(b, name, "123456789", len, &e));
    blobs_free(b);
}
static void delete (const char *node, const char *name)
{
    struct blobs *b = process(node, "pre/");
    OK(blobs_delete(b, name, &e));
    blobs_free(b);
}
#define REQUESTS(n, call, want)                                                                                        \
    do {                                                                                                               \
        ask("_requests");                                                                                              \
        assert_string_equal(call, want);                                                                               \
        assert_int_equal(ask("_requests"), n);                                                                         \
    } while (0)

static void lists_of_the_next_process(void **state)
{
    (void)state;
    put(here, "r1", 1);
    put(here, "r2", 2);
    REQUESTS(1, list(here, "r"), " r1:1 r2:2");
    ask("_set/lag/1");
    put(here, "r3", 3);
    delete (here, "r1");
    REQUESTS(4, list(here, "r"), " r2:2 r3:3"); /* of what is not there a HEAD does not say why */
    REQUESTS(2, list(here, "r3"), " r3:3");
    REQUESTS(1, list(here, "r2"), " r2:2");
    REQUESTS(1, list(there, "r"), " r1:1 r2:2");
    /* What another node has done since is so. */
    delete (there, "r3");
    put(there, "r1", 4);
    REQUESTS(4, list(here, "r"), " r1:4 r2:2");
    REQUESTS(3, list(here, "r3"), "");
    delete (there, "r1");
    ask("_set/lag/0");
    REQUESTS(3, list(here, "r"), " r2:2");
    /* Another prefix of the same bucket is another place. */
    struct blobs *b = process(here, "other/");
    ask("_requests");
    seen[0] = '\0';
    OK(blobs_list(b, "r", see, NULL, &e));
    assert_string_equal(seen, "");
    assert_int_equal(ask("_requests"), 1);
    blobs_free(b);
    delete (here, "r2");
}

static int stop_at_once(const struct blob_info *i, void *arg)
{
    (void)i, (void)arg;
    return 7;
}

static void of_two_at_a_time(void **state)
{
    (void)state;
    struct blobs *a = process(here, "pre/"), *b = process(here, "pre/");
    OK(blobs_put(a, "s1", "1", 1, &e));
    ask("_set/lag/1");
    OK(blobs_put(a, "s2", "12", 2, &e));
    OK(blobs_put(b, "s3", "123", 3, &e));
    seen[0] = '\0';
    OK(blobs_list(b, "s", see, NULL, &e));
    assert_non_null(strstr(seen, " s1:1"));
    assert_non_null(strstr(seen, " s2:2"));
    assert_non_null(strstr(seen, " s3:3"));
    assert_int_equal(strlen(seen), 15);
    assert_int_equal(blobs_list(b, "s2", stop_at_once, NULL, &e), 7);
    /* It knows what it has done itself, whatever others tell. */
    OK(blobs_delete(b, "s3", &e));
    OK(blobs_put(a, "s3", "1", 1, &e));
    OK(blobs_delete(a, "s2", &e));
    seen[0] = '\0';
    OK(blobs_list(b, "s", see, NULL, &e));
    assert_string_equal(seen, " s1:1");
    OK(blobs_delete(a, "s1", &e));
    OK(blobs_delete(a, "s3", &e));
    blobs_free(a);
    blobs_free(b);
}

/* Where a list does not agree with what was told the server is asked, and not without end. */
static void lies_do_no_harm(void **state)
{
    (void)state;
    char place[128], name[64];
    put(there, "u1", 1);
    snprintf(place, sizeof place, "%s/b/pre/", endpoint);
    struct s3_journal *j = s3_journal_new(here, place);
    s3_journal_add(j, "u1", 0, now_ns() + NS_PER_DAY, true);
    REQUESTS(2, list(here, "u"), " u1:1");
    for (int i = 0; i < 1500; i++) {
        snprintf(name, sizeof name, "u2-%d", i);
        s3_journal_add(j, name, 1, now_ns(), false);
    }
    s3_journal_free(j);
    ask("_requests");
    assert_string_equal(list(here, "u"), " u1:1");
    assert_in_range(ask("_requests"), 1000, 2001);
    /* The last ones first: what lags is what was put just now. */
    ask("_set/lag/1");
    put(here, "u2", 2);
    assert_string_equal(list(here, "u"), " u1:1 u2:2");
    delete (there, "u1");
    delete (there, "u2");
}

int main(void)
{
#define F(f) cmocka_unit_test_setup_teardown(f, home_make, home_remove)
#define L(f) cmocka_unit_test_setup_teardown(f, nodes_make, nodes_remove)
    const struct CMUnitTest tests[] = {
        F(the_next_process_knows),
        F(each_place_has_its_own),
        F(what_is_old_is_not_believed),
        F(names_lead_nowhere),
        F(what_is_damaged_is_passed_over),
        F(what_is_none_of_ours_is_begun_anew),
        F(the_cache_is_wiped_at_will),
        F(it_does_not_grow),
        F(many_processes_at_once),
        L(lists_of_the_next_process),
        L(of_two_at_a_time),
        L(lies_do_no_harm),
    };
    return cmocka_run_group_tests(tests, service_start, service_end);
}
