/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Storage classes by the prefix of blobs (.storageconfig), and session tokens, against a service that checks them. */
#include "repo/s3-class.h"

#include "tests/unit/s3-store.h"

#define OBJECT "pre/" S3_CLASS_OBJECT

static void config_put(const void *text, size_t len)
{
    char file[96], command[256];
    snprintf(file, sizeof file, "%s/config", dir);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    snprintf(command, sizeof command, "curl -sf --noproxy '*' -m 10 -T %s %s/_put/" OBJECT " >/dev/null", file,
             endpoint);
    assert_int_equal(system(command), 0);
    unlink(file);
}

static void config(const char *text)
{
    config_put(text, strlen(text));
}

/* A store that has read nothing yet. */
static struct blobs *opened(void)
{
    const struct s3_place p = place();
    struct blobs *new;
    OK(blobs_open_s3(&new, &p, BLOBS_OPEN, &e));
    return new;
}

static const char *class_of(const char *name)
{
    static char text[64];
    return ask_text(text, sizeof text, "_class/pre/%s", name);
}

static void blobs_have_the_class_of_the_first_prefix(void **state)
{
    (void)state;
    config("{\"blobOptions\": [{\"prefix\": \"p1\", \"storageClass\": \"STANDARD_IA\"},"
           " {\"prefix\": \"p\", \"storageClass\": \"GLACIER_IR\"}, {\"prefix\": \"kopia.\"},"
           " {\"storageClass\": \"ONEZONE_IA\", \"later\": 1}], \"another\": true}");
    struct blobs *s = opened();
    struct blob_writer *w;
    static const char *const names[][2] = {{"p12", "STANDARD_IA"}, {"p2", "GLACIER_IR"},    {"kopia.blobcfg", "none"},
                                           {"q1", "ONEZONE_IA"},   {"xn0_1", "ONEZONE_IA"}, {"s1", "ONEZONE_IA"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        OK(blobs_put(s, names[i][0], "x", 1, &e));
        assert_string_equal(class_of(names[i][0]), names[i][1]);
    }
    OK(blob_writer_new(&w, s, "p13", &e));
    OK(blob_writer_write(w, 0, "abc", 3, &e));
    OK(blob_writer_commit(w, 3, &e));
    assert_string_equal(class_of("p13"), "STANDARD_IA");
    OK(blobs_move(s, "p13", "p3", &e));
    assert_string_equal(class_of("p3"), "GLACIER_IR");
    blobs_retain(s, "COMPLIANCE", INT64_C(86400000000000)); /* each header there is at once, signed and in order */
    OK(blobs_put(s, "p12", "x", 1, &e));
    assert_string_equal(class_of("p12"), "STANDARD_IA");
    blobs_free(s);
    OK(blobs_put(b, "p12", "x", 1, &e)); /* opened when there was no such object */
    assert_string_equal(class_of("p12"), "none");
    config("{}");
}

static void the_object_is_read_once(void **state)
{
    (void)state;
    config("{\"blobOptions\":[{\"prefix\":\"p\",\"storageClass\":\"STANDARD_IA\"}]}");
    struct blobs *s = opened();
    ask("_requests");
    OK(blobs_prepare(s, &e));
    assert_int_equal(ask("_requests"), 1);
    OK(blobs_prepare(s, &e));
    OK(blobs_put(s, "p1", "x", 1, &e));
    OK(blobs_put(s, "p2", "x", 1, &e));
    assert_int_equal(ask("_requests"), 2);
    blobs_free(s);
    s = opened();
    OK(blobs_put(s, "p1", "x", 1, &e)); /* a put that nobody prepared */
    OK(blobs_put(s, "p2", "x", 1, &e));
    assert_int_equal(ask("_requests"), 3);
    assert_string_equal(class_of("p1"), "STANDARD_IA");
    blobs_free(s);
    config("{}");
}

/* Nothing is put where it is not known how. */
static void an_object_that_cannot_be_read(void **state)
{
    (void)state;
    struct blob_info i;
    struct blobs *s = opened();
    ask("_fault/denied/2");
    FAILS(blobs_prepare(s, &e), ERR_PERMISSION, "read the storage classes (.storageconfig)");
    FAILS(blobs_put(s, "p-unput", "x", 1, &e), ERR_PERMISSION, "denies it");
    ask("_fault/nowhere/1");
    FAILS(blobs_prepare(s, &e), ERR_GENERIC, "status 404");
    assert_int_equal(blobs_stat(s, "p-unput", &i, &e), -ENOENT);
    ask("_fault/slowdown/2");
    OK(blobs_put(s, "p-unput", "x", 1, &e)); /* an error that passed is not remembered */
    blobs_free(s);
    static char long_[70000];
    memset(long_, ' ', sizeof long_);
    config_put(long_, sizeof long_);
    s = opened();
    FAILS(blobs_prepare(s, &e), ERR_USAGE, "more than 64 KiB");
    blobs_free(s);
    config("{\"blobOptions\": [");
    s = opened();
    FAILS(blobs_put(s, "p1", "x", 1, &e), ERR_USAGE, "/b/pre/ are malformed: line 1");
    blobs_free(s);
    config("{}");
}

static int parse(const char *text)
{
    struct s3_classes *c = s3_classes_new(&e);
    assert_non_null(c);
    const int rc = s3_classes_parse(c, text, strlen(text), "s3://x", &e);
    s3_classes_free(c);
    return rc;
}

static void malformed_documents(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{}",
        " {\"blobOptions\": null}",
        "{\"blobOptions\": []}",
        "{\"blobOptions\": [{}, {\"prefix\": \"p\", \"storageClass\": null}, {\"storageClass\": \"STANDARD\"}]}",
        "{\"BlobOptions\": [{\"Prefix\": \"\", \"StorageClass\": \"a-B_9.\"}]}",
    };
    static const char *const bad[][2] = {
        {"", "line 1"},
        {"[]", "no object"},
        {"{} {}", "line 1"},
        {"{\"a\" \x1b[31m}", "'?'"}, /* nothing that a terminal obeys */
        {"{\"a\": 1, \"a\": 2}", "duplicate"},
        {"{\"blobOptions\": {}}", "is a list"},
        {"{\"blobOptions\": [1]}", "must be strings"},
        {"{\"blobOptions\": [{\"prefix\": 1, \"storageClass\": \"X\"}]}", "must be strings"},
        {"{\"blobOptions\": [{\"prefix\": \"p\", \"storageClass\": \"A\\r\\nx-evil: 1\"}]}", "other characters"},
        {"{\"blobOptions\": [{\"prefix\": \"p\", \"storageClass\": \"A B\"}]}", "other characters"},
        {"{\"blobOptions\": [{\"prefix\": \"p\", \"storageClass\": \"A\\u0000\"}]}", "line 1"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        OK(parse(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FAILS(parse(bad[i][0]), ERR_USAGE, bad[i][1]);
        assert_non_null(strstr(e.msg, ".storageconfig of s3://x"));
        assert_non_null(strstr(e.hint, "correct the object or delete it"));
    }
    char text[20000];
    snprintf(text, sizeof text, "{\"blobOptions\": [{\"prefix\": \"%0256d\", \"storageClass\": \"X\"}]}", 1);
    FAILS(parse(text), ERR_USAGE, "longer than the name of any blob");
    snprintf(text, sizeof text, "{\"blobOptions\": [{\"prefix\": \"\", \"storageClass\": \"%064d\"}]}", 1);
    FAILS(parse(text), ERR_USAGE, "too long");
    for (unsigned n = 256; n <= 257; n++) {
        size_t at = (size_t)sprintf(text, "{\"blobOptions\": [");
        for (unsigned i = 0; i < n; i++)
            at += (size_t)sprintf(text + at, "%s{\"prefix\": \"p%u\", \"storageClass\": \"X\"}", i ? "," : "", i);
        strcpy(text + at, "]}");
        if (n == 256)
            OK(parse(text));
        else
            FAILS(parse(text), ERR_USAGE, "more than 256 entries");
    }
}

/* What must be readable at any time is in no archive; packs may be. */
static void archives(void **state)
{
    (void)state;
    static const struct {
        const char *first[2], *second[2], *refused; /* NULL: none */
    } cases[] = {
        {{"p", "GLACIER"}, {"q", "STANDARD_IA"}, NULL},
        {{"p", "DEEP_ARCHIVE"}, {"z", "GLACIER"}, NULL},
        {{"", "GLACIER_IR"}, {"p", "GLACIER"}, NULL},
        {{"q", "GLACIER"}, {"p", "STANDARD"}, "\"q\" (packs of metadata)"},
        {{"q12", "DEEP_ARCHIVE"}, {"p", "STANDARD"}, "\"q\""},
        {{"xn", "glacier"}, {"p", "STANDARD"}, "\"x\" (indexes)"},
        {{"n", "GLACIER"}, {"p", "STANDARD"}, "\"n\""},
        {{"_log_", "GLACIER"}, {"p", "STANDARD"}, "\"_\""},
        {{"k", "GLACIER"}, {"p", "STANDARD"}, "\"kopia.\" (the format)"},
        {{"kopia.repository", "DEEP_ARCHIVE"}, {"p", "STANDARD"}, "\"kopia.\""},
        {{"s", "GLACIER"}, {"p", "STANDARD"}, "\"s\" (markers"},
        {{"", "GLACIER"}, {"q", "STANDARD"}, "\"q\""}, /* the first counts */
        {{"q", "STANDARD"}, {"", "GLACIER"}, "\"x\""},
        {{"q", "STANDARD"}, {"q1", "GLACIER"}, NULL}, /* never used */
        {{"q1", "STANDARD"}, {"q", "GLACIER"}, "\"q\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "{\"blobOptions\": [{\"prefix\": \"%s\", \"storageClass\": \"%s\"},"
                 " {\"prefix\": \"%s\", \"storageClass\": \"%s\"}]}",
                 cases[i].first[0], cases[i].first[1], cases[i].second[0], cases[i].second[1]);
        if (!cases[i].refused) {
            OK(parse(text));
            continue;
        }
        FAILS(parse(text), ERR_USAGE, cases[i].refused);
        assert_non_null(strstr(e.msg, "cannot be read at once"));
        assert_non_null(strstr(e.hint, "GLACIER_IR"));
    }
}

static void what_is_in_an_archive_says_so(void **state)
{
    (void)state;
    uint8_t two[2];
    config("{\"blobOptions\":[{\"prefix\":\"p\",\"storageClass\":\"GLACIER\"},"
           "{\"prefix\":\"q\",\"storageClass\":\"NONE_SUCH\"}]}");
    struct blobs *s = opened();
    OK(blobs_put(s, "p1", "abc", 3, &e));
    FAILS(blobs_read(s, "p1", 0, two, 2, &e), ERR_PERMISSION, "is in an archive");
    assert_non_null(strstr(e.hint, "RestoreObject"));
    FAILS(blobs_put(s, "q1", "abc", 3, &e), ERR_USAGE, "does not have the storage class NONE_SUCH");
    blobs_free(s);
    config("{}");
}

/* A bucket as it was is never written to: whatever somebody has put there since, it is read. */
static void the_past_needs_no_classes(void **state)
{
    (void)state;
    struct s3_place p = place();
    struct blobs *past;
    ask("_versions/Enabled");
    config("this is no JSON");
    p.at_ns = now_ns();
    OK(blobs_open_s3(&past, &p, BLOBS_OPEN, &e));
    OK(blobs_prepare(past, &e));
    blobs_free(past);
    config("{}");
}

static char keys_file[96];

static void keys_write(const char *token)
{
    char new[104];
    snprintf(new, sizeof new, "%s.new", keys_file);
    FILE *f = fopen(new, "w");
    assert_non_null(f);
    fprintf(f, "access-key = test\nsecret-key = a\n%s%s\n", *token ? "session-token = " : "", token);
    fclose(f);
    chmod(new, 0600);
    rename(new, keys_file);
}

static int listed(const struct blob_info *i, void *arg)
{
    (void)i, (void)arg;
    return 0;
}

/* The service asks for the token, and that it is signed. */
static void session_tokens_are_sent_and_renewed(void **state)
{
    (void)state;
    struct s3_place p = place();
    struct blobs *s;
    struct blob_info i;
    uint8_t two[2];
    snprintf(keys_file, sizeof keys_file, "%s/keys", dir);
    p.keys = NULL;
    p.credentials = keys_file;
    config("{\"blobOptions\":[{\"prefix\":\"p\",\"storageClass\":\"STANDARD_IA\"}]}");
    keys_write("FwoG/first+token==");
    ask("_set/token/FwoG/first+token==");
    OK(blobs_open_s3(&s, &p, BLOBS_OPEN, &e));
    OK(blobs_put(s, "p1", "ab", 2, &e));
    assert_string_equal(class_of("p1"), "STANDARD_IA");
    blobs_retain(s, "GOVERNANCE", INT64_C(86400000000000));
    OK(blobs_put(s, "p1", "ab", 2, &e)); /* with all headers there are */
    OK(blobs_read(s, "p1", 0, two, 2, &e));
    OK(blobs_stat(s, "p1", &i, &e));
    OK(blobs_extend(s, "p1", &e));
    OK(blobs_list(s, "p", listed, NULL, &e));
    /* Expired: the file still has the same one, and then another. */
    ask("_set/token/second");
    FAILS(blobs_put(s, "p1", "ab", 2, &e), ERR_PERMISSION, "ExpiredToken");
    assert_non_null(strstr(e.hint, "session-token in /"));
    assert_null(strstr(e.msg, "FwoG"));
    keys_write("second");
    ask("_requests");
    OK(blobs_read(s, "p1", 0, two, 2, &e));
    assert_int_equal(ask("_requests"), 2);
    OK(blobs_delete(s, "p1", &e));
    /* Without a token at all. */
    keys_write("");
    ask("_set/token/third");
    FAILS(blobs_put(s, "p1", "ab", 2, &e), ERR_PERMISSION, "denies it");
    blobs_free(s);
    unlink(keys_file);
    ask("_set/token/");
    config("{}");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(blobs_have_the_class_of_the_first_prefix),
        T(the_object_is_read_once),
        T(an_object_that_cannot_be_read),
        T(malformed_documents),
        T(archives),
        T(what_is_in_an_archive_says_so),
        T(session_tokens_are_sent_and_renewed),
        T(the_past_needs_no_classes),
    };
    return cmocka_run_group_tests(tests, service_start, service_end);
}
