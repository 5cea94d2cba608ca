/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_blob.c - the directory store: paths, all-or-nothing puts, listing, owners, full disks, crashes. */
#include "repo/blob-ops.h"
#include "repo/blob-reader.h"
#include "repo/blob.h"
#include "repo/shards.h"
#include "tests/unit/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PACK "p00112233445566778899aabbccddeeff-s0123456789abcdef147"

static char dir[64];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test_blob.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static const char *in_dir(const char *name)
{
    static char buf[4][512];
    static unsigned turn;
    char *p = buf[turn++ % 4];
    snprintf(p, sizeof buf[0], "%s/%s", dir, name);
    return p;
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static char *read_file(const char *path)
{
    static char buf[4096];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    buf[fread(buf, 1, sizeof buf - 1, f)] = '\0';
    fclose(f);
    return buf;
}

static struct blobs *open_store(enum blobs_open_mode mode)
{
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    assert_ok(blobs_open_dir(&b, dir, mode, NULL, 0, &e), &e);
    return b;
}

struct names {
    char text[8192];
    unsigned n;
};

static int collect(const struct blob_info *info, void *arg)
{
    struct names *l = arg;
    size_t at = strlen(l->text);
    snprintf(l->text + at, sizeof l->text - at, "%s:%llu ", info->name, (unsigned long long)info->length);
    l->n++;
    return 0;
}

static struct names list(struct blobs *b, const char *prefix)
{
    struct err e = ERR_INIT;
    struct names l = {.n = 0};
    assert_ok(blobs_list(b, prefix, collect, &l, &e), &e);
    return l;
}

static unsigned count_files(const char *pattern)
{
    char cmd[256];
    snprintf(cmd, sizeof cmd, "find %s -name '%s' -type f | wc -l", dir, pattern);
    FILE *f = popen(cmd, "r");
    assert_non_null(f);
    unsigned n = 0;
    assert_int_equal(fscanf(f, "%u", &n), 1);
    pclose(f);
    return n;
}

/* ---- paths ---- */

/* Where a blob lies for a .shards document. */
static int shards_path(const char *doc, const char *name, char path[1024], struct err *e)
{
    CLEANUP(shards_freep) struct shards *s = NULL;
    int rc = shards_parse(&s, doc, strlen(doc), e);
    return rc < 0 ? rc : shards_locate(s, name, path);
}

static void golden_paths(void **state)
{
    (void)state;
    FILE *f = fopen(fixture_path("vectors/shard-path.jsonl"), "r");
    assert_non_null(f);
    static char line[65536];
    unsigned n = 0;
    while (fgets(line, sizeof line, f)) {
        json_t *v = json_loads(line, 0, NULL);
        assert_non_null(v);
        char *doc = json_dumps(json_object_get(v, "shards"), 0);
        char path[1024];
        struct err e = ERR_INIT;
        assert_ok(shards_path(doc, json_string_value(json_object_get(v, "blob")), path, &e), &e);
        assert_string_equal(path, json_string_value(json_object_get(v, "path")));
        free(doc);
        json_decref(v);
        n++;
    }
    fclose(f);
    assert_int_equal(n, 171);
}

static void documented_paths(void **state)
{
    (void)state;
    static const char mixed[] = "{\"default\":[3,2,1],\"overrides\":[{\"prefix\":\"p\",\"shards\":[2,2]},"
                                "{\"prefix\":\"x\",\"shards\":[1,1,1]}],\"maxNonShardedLength\":2}";
    static const char three[] = "{\"default\":[3,3],\"maxNonShardedLength\":0}";
    static const char deep[] = "{\"default\":[1,1,1,1,1,1],\"maxNonShardedLength\":0}";
    static const struct {
        const char *doc, *name, *path;
    } known[] = {
        {mixed, "defaultsharded", "def/au/l/tsharded.f"},
        {mixed, "phello", "ph/el/lo.f"},
        {mixed, "pgoodbye", "pg/oo/dbye.f"},
        {mixed, "xhello", "x/h/e/llo.f"},
        {mixed, "xbye", "x/b/y/e.f"},
        {mixed, "xo", "xo.f"},
        {three, "fo", "fo.f"},
        {three, "foo", "foo.f"},
        {three, "foob", "foo/b.f"},
        {three, "foobar", "foo/bar.f"},
        {three, "foobar2", "foo/bar/2.f"},
        {deep, "kopia.blobcfg", "k/o/p/i/a/blobcfg.f"},
        {"{\"Default\":[1],\"MAXNONSHARDEDLENGTH\":0,\"new\":{}}", "abc", "a/bc.f"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char path[1024];
        struct err e = ERR_INIT;
        assert_ok(shards_path(known[i].doc, known[i].name, path, &e), &e);
        assert_string_equal(path, known[i].path);
    }
}

static void bad_shards(void **state)
{
    (void)state;
    static const char *const docs[] = {
        "",
        "{",
        "{\"default\":[1,3],",
        "[]",
        "7",
        "{\"default\":7}",
        "{\"default\":[-1]}",
        "{\"default\":[\"1\"]}",
        "{\"default\":[1.5]}",
        "{\"default\":[1],\"maxNonShardedLength\":\"20\"}",
        "{\"default\":[99999999999]}",
        "{\"overrides\":[7]}",
        "{\"overrides\":{}}",
        "{\"overrides\":[{\"prefix\":1}]}",
        "{\"default\":[1]} x",
    };
    char path[1024];
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof docs / sizeof docs[0]; i++)
        assert_int_equal(shards_path(docs[i], "pabc", path, &e), -EINVAL);
    assert_int_equal(shards_path("{\"default\":[2,2],\"maxNonShardedLength\":0}", "ab..cd", path, &e), -EINVAL);
    assert_int_equal(shards_path("{}", "a/b", path, &e), -EINVAL);
    /* The longest name with a shard for each character still fits. */
    char doc[2048] = "{\"maxNonShardedLength\":0,\"default\":[1", name[257];
    for (int i = 0; i < 255; i++)
        strcat(doc, ",1");
    strcat(doc, "]}");
    memset(name, 'a', 256);
    name[255] = '\0';
    assert_ok(shards_path(doc, name, path, &e), &e);
    assert_int_equal(strlen(path), 255 + 254 + 2);
    name[255] = 'a';
    name[256] = '\0';
    assert_int_equal(shards_path(doc, name, path, &e), -EINVAL);
}

/* ---- opening ---- */

static void create_and_open(void **state)
{
    (void)state;
    struct blobs *b = open_store(BLOBS_CREATE);
    assert_string_equal(blobs_location(b), dir);
    assert_string_equal(read_file(in_dir(".shards")), "{\"default\":[1,3],\"maxNonShardedLength\":20}\n");
    struct err e = ERR_INIT;
    assert_ok(blobs_put(b, PACK, "abc", 3, &e), &e);
    struct stat st;
    assert_int_equal(stat(in_dir("p/001/12233445566778899aabbccddeeff-s0123456789abcdef147.f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(stat(in_dir("p/001"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(in_dir("p"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    blobs_free(b);

    b = NULL;
    assert_int_equal(blobs_open_dir(&b, dir, BLOBS_CREATE, NULL, 0, &e), -ENOTEMPTY);
    assert_int_equal(e.cls, ERR_EXISTS);
    assert_null(b);
    b = open_store(BLOBS_OPEN);
    struct blob_info info;
    assert_ok(blobs_stat(b, PACK, &info, &e), &e);
    assert_int_equal(info.length, 3);
    assert_true(info.mtime_ns > 1600000000000000000);
    blobs_free(b);
}

static void create_below_missing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    const char *deep = in_dir("a/b//c/");
    assert_int_equal(blobs_open_dir(&b, deep, BLOBS_OPEN, NULL, 0, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_NO_REPO);
    static const int flat[1] = {0};
    assert_ok(blobs_open_dir(&b, deep, BLOBS_CREATE, flat, 0, &e), &e);
    assert_ok(blobs_put(b, PACK, "x", 1, &e), &e);
    blobs_free(b);
    assert_int_equal(access(in_dir("a/b/c/" PACK ".f"), F_OK), 0);
    assert_string_equal(read_file(in_dir("a/b/c/.shards")), "{\"default\":[],\"maxNonShardedLength\":20}\n");
}

static void create_where_something_is(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    assert_int_equal(mkdir(in_dir("lost+found"), 0700), 0);
    assert_ok(blobs_open_dir(&b, dir, BLOBS_CREATE, NULL, 0, &e), &e);
    blobs_free(b);
    /* Interrupted before the first blob: it can be made again, also with other shards. */
    static const int three[] = {3, 3};
    assert_ok(blobs_open_dir(&b, dir, BLOBS_CREATE, three, 2, &e), &e);
    blobs_free(b);
    assert_string_equal(read_file(in_dir(".shards")), "{\"default\":[3,3],\"maxNonShardedLength\":20}\n");
    write_file(in_dir("notes.txt"), "x");
    assert_true(blobs_open_dir(&b, dir, BLOBS_CREATE, NULL, 0, &e) < 0);
    assert_int_equal(e.cls, ERR_EXISTS);
    assert_non_null(strstr(e.msg, "notes.txt"));
    assert_true(e.hint[0] != '\0');
    /* A file instead of a directory. */
    assert_true(blobs_open_dir(&b, in_dir("notes.txt"), BLOBS_OPEN, NULL, 0, &e) < 0);
    assert_int_equal(e.cls, ERR_NO_REPO);
    assert_true(blobs_open_dir(&b, "", BLOBS_OPEN, NULL, 0, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
}

static void shards_damaged_or_missing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    write_file(in_dir(".shards"), "{\"default\":[1,3],\n");
    assert_int_equal(blobs_open_dir(&b, dir, BLOBS_OPEN, NULL, 0, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_non_null(strstr(e.msg, in_dir(".shards")));

    assert_int_equal(unlink(in_dir(".shards")), 0);
    b = open_store(BLOBS_OPEN);
    assert_ok(blobs_put(b, PACK, "x", 1, &e), &e);
    assert_int_equal(access(in_dir("p00/112/233445566778899aabbccddeeff-s0123456789abcdef147.f"), F_OK), 0);
    assert_int_equal(access(in_dir(".shards"), F_OK), -1);
    assert_ok(blobs_put(b, "kopia.repository", "x", 1, &e), &e);
    blobs_free(b);
    b = open_store(BLOBS_OPEN);
    blobs_free(b);
    /* Directories of one letter: it was [1,3], and whatever we wrote would be lost to others. */
    assert_int_equal(mkdir(in_dir("q"), 0700), 0);
    assert_int_equal(blobs_open_dir(&b, dir, BLOBS_OPEN, NULL, 0, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_true(e.hint[0] != '\0');
}

/* ---- operations ---- */

/* A name that is taken stays what it is. */
static void moved(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = open_store(BLOBS_CREATE);
    struct blob_info info;
    char out[8] = "";
    assert_ok(blobs_put(b, PACK, "0123", 4, &e), &e);
    assert_ok(blobs_put(b, "damaged-2-" PACK, "other", 5, &e), &e);
    assert_int_equal(blobs_move(b, PACK, "damaged-2-" PACK, &e), -EEXIST);
    assert_ok(blobs_move(b, PACK, "damaged-" PACK, &e), &e);
    assert_int_equal(blobs_stat(b, PACK, &info, &e), -ENOENT);
    assert_ok(blobs_read(b, "damaged-" PACK, 0, out, 4, &e), &e);
    assert_string_equal(out, "0123");
    assert_ok(blobs_stat(b, "damaged-2-" PACK, &info, &e), &e);
    assert_int_equal(info.length, 5);
    assert_int_equal(blobs_move(b, PACK, "damaged-3-" PACK, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_int_equal(blobs_move(b, PACK, "../x", &e), -EINVAL);
    blobs_free(b);
}

static void put_get_delete(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = open_store(BLOBS_CREATE);
    assert_ok(blobs_put(b, PACK, "0123456789", 10, &e), &e);
    char out[16] = "";
    assert_ok(blobs_read(b, PACK, 3, out, 4, &e), &e);
    assert_string_equal(out, "3456");
    assert_ok(blobs_read(b, PACK, 10, out, 0, &e), &e);
    assert_int_equal(blobs_read(b, PACK, 7, out, 4, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_non_null(strstr(e.msg, PACK));
    assert_int_equal(blobs_read(b, PACK, UINT64_MAX - 1, out, 4, &e), -EBADMSG);
    assert_int_equal(blobs_read(b, PACK, INT64_MAX - 1, out, 1, &e), -EBADMSG);

    uint8_t *data = NULL;
    size_t len = 0;
    assert_ok(blobs_get(b, PACK, 10, &data, &len, &e), &e);
    assert_int_equal(len, 10);
    assert_string_equal((char *)data, "0123456789");
    free(data);
    assert_int_equal(blobs_get(b, PACK, 9, &data, &len, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);

    assert_ok(blobs_put(b, PACK, "new", 3, &e), &e);
    assert_ok(blobs_get(b, PACK, SIZE_MAX, &data, &len, &e), &e);
    assert_string_equal((char *)data, "new");
    free(data);
    assert_ok(blobs_put(b, PACK, NULL, 0, &e), &e);
    assert_ok(blobs_get(b, PACK, 0, &data, &len, &e), &e);
    assert_int_equal(len, 0);
    free(data);

    assert_ok(blobs_delete(b, PACK, &e), &e);
    assert_ok(blobs_delete(b, PACK, &e), &e);
    assert_ok(blobs_delete(b, "x0000000000000000000000000000000000", &e), &e);
    struct blob_info info;
    assert_int_equal(blobs_stat(b, PACK, &info, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_non_null(strstr(e.msg, PACK));
    assert_non_null(strstr(e.msg, dir));
    assert_int_equal(blobs_read(b, PACK, 0, out, 1, &e), -ENOENT);
    assert_int_equal(blobs_get(b, PACK, 9, &data, &len, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_DAMAGE);

    struct blob_stats st;
    blobs_stats(b, &st);
    assert_int_equal(st.puts, 3);
    assert_int_equal(st.put_bytes, 13);
    assert_int_equal(st.gets, 5);
    assert_int_equal(st.get_bytes, 4 + 10 + 3);
    assert_int_equal(st.deletes, 3);
    assert_int_equal(count_files("*.tmp.*"), 0);
    blobs_free(b);
}

static void names_that_lead_elsewhere(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = open_store(BLOBS_CREATE);
    char longest[260];
    memset(longest, 'a', sizeof longest);
    longest[256] = '\0';
    const char *const bad[] = {"", ".", "..", "../x", "a/b", "/etc/passwd", ".shards", "p..x", longest};
    uint8_t *data;
    size_t len;
    struct blob_writer *w;
    struct blob_info info;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(blobs_put(b, bad[i], "x", 1, &e), -EINVAL);
        assert_int_equal(blobs_get(b, bad[i], 9, &data, &len, &e), -EINVAL);
        assert_int_equal(blobs_read(b, bad[i], 0, &len, 1, &e), -EINVAL);
        assert_int_equal(blobs_stat(b, bad[i], &info, &e), -EINVAL);
        assert_int_equal(blobs_delete(b, bad[i], &e), -EINVAL);
        assert_int_equal(blob_writer_new(&w, b, bad[i], &e), -EINVAL);
    }
    blobs_free(b);
}

static int stop_at_once(const struct blob_info *info, void *arg)
{
    (void)info;
    return ++*(int *)arg == 2 ? 77 : 0;
}

static void refuses_list(struct blobs *b, const char *prefix, const char *message)
{
    struct err e = ERR_INIT;
    struct names l = {.n = 0};
    assert_true(blobs_list(b, prefix, collect, &l, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_non_null(strstr(e.msg, message));
}

static void listing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = open_store(BLOBS_CREATE);
    assert_int_equal(list(b, "").n, 0);
    assert_ok(blobs_put(b, "kopia.repository", "abc", 3, &e), &e);
    assert_ok(blobs_put(b, PACK, "12", 2, &e), &e);
    assert_ok(blobs_put(b, "xn0_58eaf8d71406a03bf4aa3825ae5a63dd-s0123456789abcdef144-c1", "1", 1, &e), &e);
    assert_ok(blobs_put(b, "xe0", "", 0, &e), &e);
    /* What is no blob. */
    write_file(in_dir("README"), "x");
    write_file(in_dir("p/123.tmp.00112233445566aa"), "x");
    write_file(in_dir("kopia.repository.f.tmp.0123456789abcdef"), "x");
    write_file(in_dir(".f"), "x");
    write_file(in_dir("p/zzz.F"), "x");
    assert_int_equal(mkdir(in_dir("lost+found"), 0), 0);
    assert_int_equal(mkdir(in_dir(".snapshot"), 0700), 0);
    write_file(in_dir(".snapshot/pold.f"), "x");
    assert_int_equal(mkdir(in_dir("emptydir"), 0700), 0);
    assert_int_equal(symlink("/", in_dir("link")), 0);

    assert_int_equal(list(b, "").n, 4);
    assert_string_equal(list(b, "p").text, PACK ":2 ");
    assert_string_equal(list(b, PACK).text, PACK ":2 ");
    assert_int_equal(list(b, PACK "x").n, 0);
    assert_int_equal(list(b, "x").n, 2);
    assert_string_equal(list(b, "xe").text, "xe0:0 ");
    assert_string_equal(list(b, "xn0_58").text, "xn0_58eaf8d71406a03bf4aa3825ae5a63dd-s0123456789abcdef144-c1:1 ");
    assert_int_equal(list(b, "q").n, 0);
    assert_string_equal(list(b, "kopia.").text, "kopia.repository:3 ");
    int calls = 0;
    assert_int_equal(blobs_list(b, "", stop_at_once, &calls, &e), 77);
    assert_int_equal(calls, 2);

    /* With the name of a blob: packs count as missing, of others a list would not be complete. */
    assert_int_equal(symlink("/etc/passwd", in_dir("plink.f")), 0);
    assert_int_equal(mkfifo(in_dir("pfifo.f"), 0600), 0);
    assert_string_equal(list(b, "p").text, PACK ":2 ");
    refuses_list(b, "", "is not a regular file");
    assert_int_equal(unlink(in_dir("plink.f")), 0);
    assert_int_equal(unlink(in_dir("pfifo.f")), 0);
    assert_int_equal(list(b, "").n, 4);
    assert_int_equal(mkdir(in_dir("xdir.f"), 0700), 0);
    refuses_list(b, "x", "blob xdir of");
    assert_string_equal(list(b, "kopia.").text, "kopia.repository:3 ");
    assert_int_equal(rmdir(in_dir("xdir.f")), 0);
    assert_int_equal(mkfifo(in_dir("x/n1_"), 0600), 0);
    refuses_list(b, "xn", "\"xn1_\", where blobs");
    assert_int_equal(unlink(in_dir("x/n1_")), 0);
    assert_int_equal(symlink("/", in_dir("n")), 0);
    refuses_list(b, "n", "is no directory");
    assert_int_equal(list(b, "x").n, 2);
    assert_int_equal(unlink(in_dir("n")), 0);

    /* A subtree that cannot hold the prefix is not entered; one that can and cannot be read is an error. */
    assert_int_equal(chmod(in_dir("p"), 0), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct names l = {.n = 0};
        if (geteuid() == 0 && (chmod(dir, 0755) < 0 || setgid(65534) < 0 || setuid(65534) < 0))
            _exit(1);
        if (blobs_list(b, "kopia.", collect, &l, &e) != 0 || l.n != 1)
            _exit(2);
        _exit(blobs_list(b, "p", collect, &l, &e) == -EACCES && e.cls == ERR_PERMISSION ? 0 : 3);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(chmod(in_dir("p"), 0700), 0);
    blobs_free(b);
}

/* One-letter shards make the dot of kopia.blobcfg disappear: stock clients list it without, and so do we. */
static void deep_shards(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    write_file(in_dir(".shards"), "{\"default\":[1,1,1,1,1,1],\"maxNonShardedLength\":0}\n");
    struct blobs *b = open_store(BLOBS_OPEN);
    assert_ok(blobs_put(b, "kopia.blobcfg", "x", 1, &e), &e);
    assert_int_equal(access(in_dir("k/o/p/i/a/blobcfg.f"), F_OK), 0);
    assert_string_equal(list(b, "").text, "kopiablobcfg:1 ");
    char out;
    assert_ok(blobs_read(b, "kopia.blobcfg", 0, &out, 1, &e), &e);
    blobs_free(b);
}

static void writer(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = open_store(BLOBS_CREATE);
    struct blob_writer *w = NULL;
    assert_ok(blob_writer_new(&w, b, PACK, &e), &e);
    static uint8_t piece[3 << 20];
    for (unsigned i = 0; i < 4; i++) {
        memset(piece, 'a' + (int)i, sizeof piece);
        assert_ok(blob_writer_write(w, (uint64_t)(3 - i) * sizeof piece, piece, sizeof piece, &e), &e);
    }
    uint8_t got[2];
    assert_ok(blob_writer_read(w, sizeof piece - 1, got, 2, &e), &e);
    assert_memory_equal(got, "dc", 2);
    assert_int_equal(blob_writer_read(w, 4 * sizeof piece - 1, got, 2, &e), -EINVAL);
    assert_int_equal(list(b, "").n, 0);
    assert_int_equal(count_files("*.tmp.????????????????"), 1);
    assert_ok(blob_writer_commit(w, 2 * sizeof piece + 5, &e), &e);
    struct blob_info info;
    assert_ok(blobs_stat(b, PACK, &info, &e), &e);
    assert_int_equal(info.length, 2 * sizeof piece + 5);
    assert_ok(blobs_read(b, PACK, 2 * sizeof piece - 1, got, 2, &e), &e);
    assert_memory_equal(got, "cb", 2);

    assert_ok(blob_writer_new(&w, b, "q" PACK, &e), &e);
    assert_ok(blob_writer_write(w, 0, piece, 5, &e), &e);
    assert_int_equal(blob_writer_write(w, UINT64_MAX, piece, 5, &e), -EFBIG);
    blob_writer_abort(w);
    blob_writer_abort(NULL);
    assert_int_equal(list(b, "q").n, 0);
    assert_int_equal(count_files("*.tmp.*"), 0);
    struct blob_stats st;
    blobs_stats(b, &st);
    assert_int_equal(st.puts, 1);
    assert_int_equal(st.put_bytes, 2 * sizeof piece + 5);
    blobs_free(b);
}

/* ---- faults ---- */

/* A small file system of its own, where we may mount one. */
static void full_disk(void **state)
{
    (void)state;
    if (geteuid() != 0 || mount("tmpfs", dir, "tmpfs", 0, "size=256k") < 0) {
        print_message("no tmpfs can be mounted here (not root?): the full disk is not tested\n");
        skip();
    }
    struct err e = ERR_INIT;
    struct blobs *b = open_store(BLOBS_CREATE);
    static char big[1 << 20];
    int rc = blobs_put(b, PACK, big, sizeof big, &e);
    assert_int_equal(rc, -ENOSPC);
    assert_int_equal(e.cls, ERR_NO_SPACE);
    assert_non_null(strstr(e.msg, PACK));
    assert_non_null(strstr(e.msg, dir));
    assert_true(e.hint[0] != '\0');
    struct blob_writer *w;
    assert_ok(blob_writer_new(&w, b, PACK, &e), &e);
    assert_int_equal(blob_writer_write(w, 0, big, sizeof big, &e), -ENOSPC);
    blob_writer_abort(w);
    assert_int_equal(list(b, "").n, 0);
    assert_int_equal(count_files("*.tmp.*"), 0);
    /* What fits still goes in. */
    assert_ok(blobs_put(b, PACK, "x", 1, &e), &e);
    assert_int_equal(mount("tmpfs", dir, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=256k"), 0);
    assert_int_equal(blobs_put(b, PACK, "y", 1, &e), -EROFS);
    assert_int_equal(e.cls, ERR_PERMISSION);
    assert_int_equal(blobs_delete(b, PACK, &e), -EROFS);
    assert_int_equal(blob_writer_new(&w, b, PACK, &e), -EROFS);
    char out;
    assert_ok(blobs_read(b, PACK, 0, &out, 1, &e), &e);
    assert_int_equal(out, 'x');
    blobs_free(b);
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
}

static void no_permission(void **state)
{
    (void)state;
    struct blobs *b = open_store(BLOBS_CREATE);
    assert_int_equal(chmod(dir, 0555), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct err e = ERR_INIT;
        if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
            _exit(1);
        if (blobs_put(b, PACK, "x", 1, &e) != -EACCES || e.cls != ERR_PERMISSION || !e.hint[0])
            _exit(2);
        struct blobs *other;
        if (blobs_open_dir(&other, in_dir("new"), BLOBS_CREATE, NULL, 0, &e) != -EACCES || e.cls != ERR_PERMISSION)
            _exit(3);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(chmod(dir, 0700), 0);
    blobs_free(b);
}

/* What root writes belongs to the owner of the repository's directory. */
static void owner_of_what_root_writes(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("not root: ownership is not tested\n");
        skip();
    }
    assert_int_equal(chown(dir, 12345, 23456), 0);
    struct err e = ERR_INIT;
    struct blobs *b = open_store(BLOBS_CREATE);
    assert_ok(blobs_put(b, PACK, "x", 1, &e), &e);
    struct blob_writer *w;
    assert_ok(blob_writer_new(&w, b, "q" PACK, &e), &e);
    assert_ok(blob_writer_write(w, 0, "abc", 3, &e), &e);
    assert_ok(blob_writer_commit(w, 3, &e), &e);
    blobs_free(b);
    char cmd[256];
    snprintf(cmd, sizeof cmd, "test $(find %s | wc -l) = 8 && test $(find %s -uid 12345 -gid 23456 | wc -l) = 8", dir,
             dir);
    assert_int_equal(system(cmd), 0);
}

/* A writer killed at any time leaves whole blobs and invisible temporary files. */
static void killed_while_putting(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = open_store(BLOBS_CREATE);
    static uint8_t data[300000];
    unsigned seen = 0;
    uint64_t rng = 5;
    _Atomic unsigned *put = mmap(NULL, sizeof *put, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(put != MAP_FAILED);
    for (unsigned round = 0; round < 40; round++) {
        atomic_store(put, 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            for (unsigned i = 0;; i++) {
                char name[64];
                snprintf(name, sizeof name, "p%08x%08x-s0123456789abcdef", round, i % 50);
                memset(data, (int)i, sizeof data);
                data[0] = (uint8_t)~i;
                if (i % 2) {
                    if (blobs_put(b, name, data, sizeof data, &e) < 0)
                        _exit(1);
                } else {
                    struct blob_writer *w;
                    if (blob_writer_new(&w, b, name, &e) < 0 || blob_writer_write(w, 1, data + 1, 299999, &e) < 0 ||
                        blob_writer_write(w, 0, data, 1, &e) < 0 || blob_writer_commit(w, sizeof data, &e) < 0)
                        _exit(2);
                }
                atomic_fetch_add(put, 1);
            }
        }
        /* Every other one has put one, however slow the machine. */
        for (unsigned i = 0; round % 2 && i < 60000 && atomic_load(put) == 0; i++)
            usleep(1000);
        usleep((unsigned)(splitmix64(&rng) % 15000));
        assert_int_equal(kill(pid, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        for (unsigned i = 0; i < 50; i++) {
            char name[64];
            snprintf(name, sizeof name, "p%08x%08x-s0123456789abcdef", round, i);
            uint8_t *got;
            size_t len;
            int rc = blobs_get(b, name, SIZE_MAX, &got, &len, &e);
            if (rc == -ENOENT)
                continue;
            assert_ok(rc, &e);
            assert_int_equal(len, sizeof data);
            assert_int_equal(got[0], (uint8_t)~got[1]);
            for (size_t k = 2; k < len; k++)
                if (got[k] != got[1])
                    fail_msg("%s is torn at %zu", name, k);
            free(got);
            seen++;
        }
    }
    assert_true(seen > 0);
    assert_int_equal(list(b, "p").n, seen);
    munmap((void *)(uintptr_t)put, sizeof *put);
    blobs_free(b);
}

/* ---- many threads ---- */

struct crew {
    struct blobs *b;
    struct blob_writer *w;
    unsigned id;
    int failed;
};

static int check_listed(const struct blob_info *info, void *arg)
{
    struct crew *c = arg;
    if (info->length != 5000)
        c->failed = 1;
    return 0;
}

static void *work(void *arg)
{
    struct crew *c = arg;
    struct err e = ERR_INIT;
    uint8_t data[5000];
    char name[64];
    for (unsigned i = 0; i < 40; i++) {
        /* Half of the names are shared by all threads. */
        snprintf(name, sizeof name, "p%08x%016x", i % 10, i % 2 ? 0 : c->id);
        memset(data, (int)(c->id + i), sizeof data);
        if (blobs_put(c->b, name, data, sizeof data, &e) < 0)
            c->failed = 2;
        uint8_t *got;
        size_t len;
        if (blobs_get(c->b, name, 5000, &got, &len, &e) < 0) {
            c->failed = 3;
            break;
        }
        if (len != 5000 || memcmp(got, got + 1, 4999) != 0)
            c->failed = 4;
        free(got);
        if (i % 8 == 0 && blobs_list(c->b, "p", check_listed, c, &e) != 0)
            c->failed = 5;
        memset(data, (int)c->id, sizeof data);
        if (blob_writer_write(c->w, (uint64_t)(i * 4 + c->id) * 5000, data, sizeof data, &e) < 0)
            c->failed = 6;
    }
    return NULL;
}

static void concurrent(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = open_store(BLOBS_CREATE);
    struct blob_writer *w;
    assert_ok(blob_writer_new(&w, b, "q" PACK, &e), &e);
    struct crew crew[4];
    pthread_t t[4];
    for (unsigned i = 0; i < 4; i++) {
        crew[i] = (struct crew){.b = b, .w = w, .id = i};
        assert_int_equal(pthread_create(&t[i], NULL, work, &crew[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(crew[i].failed, 0);
    }
    assert_ok(blob_writer_commit(w, 160 * 5000, &e), &e);
    uint8_t *got;
    size_t len;
    assert_ok(blobs_get(b, "q" PACK, SIZE_MAX, &got, &len, &e), &e);
    assert_int_equal(len, 160 * 5000);
    for (size_t i = 0; i < len; i++)
        if (got[i] != i / 5000 % 4)
            fail_msg("byte %zu is %u", i, got[i]);
    free(got);
    assert_int_equal(count_files("*.tmp.*"), 0);
    blobs_free(b);
}

static uint64_t requests(const struct blob_request_stats *s, enum blob_request q)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < BLOB_CODES; i++)
        n += s->of[q].codes[i];
    return n;
}

static int count_one(const struct blob_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return 1; /* ends the walk: no error of the store */
}

static void requests_are_counted(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = open_store(BLOBS_CREATE);
    struct blob_request_stats s;
    struct blob_writer *w;
    struct blob_info info;
    char buf[8];
    unsigned n = 0;
    assert_ok(blobs_put(b, PACK, "12345", 5, &e), &e);
    assert_ok(blob_writer_new(&w, b, "q" PACK, &e), &e);
    assert_ok(blob_writer_write(w, 0, "abc", 3, &e), &e);
    assert_ok(blob_writer_commit(w, 3, &e), &e);
    assert_ok(blobs_read(b, PACK, 0, buf, 5, &e), &e);
    assert_true(blobs_read(b, PACK, 3, buf, 5, NULL) < 0); /* too short */
    assert_int_equal(blobs_stat(b, "none", &info, NULL), -ENOENT);
    assert_int_equal(blobs_put(b, "a/b", "x", 1, NULL), -EINVAL); /* asked wrongly: never got there */
    assert_int_equal(blobs_list(b, "", count_one, &n, &e), 1);
    assert_ok(blobs_delete(b, PACK, &e), &e);
    blobs_request_stats(b, &s);
    assert_int_equal(s.of[BLOB_REQUEST_PUT].codes[BLOB_OK], 2);
    assert_int_equal(requests(&s, BLOB_REQUEST_PUT), 2);
    assert_int_equal(s.of[BLOB_REQUEST_GET].codes[BLOB_OK], 1);
    assert_int_equal(s.of[BLOB_REQUEST_GET].codes[BLOB_DAMAGE], 1);
    assert_int_equal(s.of[BLOB_REQUEST_STAT].codes[BLOB_NOT_FOUND], 1);
    assert_int_equal(s.of[BLOB_REQUEST_LIST].codes[BLOB_OK], 1);
    assert_int_equal(s.of[BLOB_REQUEST_DELETE].codes[BLOB_OK], 1);
    for (unsigned q = 0; q < BLOB_REQUESTS; q++) {
        uint64_t took = 0;
        for (unsigned i = 0; i <= BLOB_BOUNDS; i++)
            took += s.of[q].took[i];
        assert_int_equal(took, requests(&s, (enum blob_request)q)); /* each has taken some time, once */
        assert_true(s.of[q].ns > 0);
    }
    assert_int_equal(s.retries, 0);
    blobs_free(b);
}

/* A store of objects opens no blob as a file: a reader of runs reads by name then, and says what is missing. */
static void reader_without_files(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b CLEANUP(blobs_freep) = open_store(BLOBS_CREATE);
    struct blobs_ops without = *b->ops;
    without.open_file = NULL;
    b->ops = &without;
    assert_ok(blobs_put(b, "p0123", "0123456789", 10, &e), &e);
    assert_int_equal(blobs_open_file(b, "p0123", &e), -EOPNOTSUPP);
    assert_string_not_equal(e.msg, "");

    struct blob_reader r;
    struct blob_stats stats;
    char got[6] = "";
    e = (struct err)ERR_INIT;
    blob_reader_init(&r, b);
    blob_reader_ahead(&r, "p0123", 0, 10);
    assert_ok(blob_reader_read(&r, "p0123", 0, got, 5, &e), &e);
    assert_string_equal(got, "01234");
    assert_ok(blob_reader_read(&r, "p0123", 5, got, 5, &e), &e);
    assert_string_equal(got, "56789");
    blobs_stats(b, &stats);
    assert_int_equal(stats.gets, 2);
    assert_int_equal(stats.get_bytes, 10);
    assert_int_equal(blob_reader_read(&r, "p0123", 8, got, 5, &e), -EBADMSG);
    e = (struct err)ERR_INIT;
    assert_int_equal(blob_reader_read(&r, "p4567", 0, got, 5, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_DAMAGE);
    blob_reader_clear(&r);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_paths),
        cmocka_unit_test(documented_paths),
        cmocka_unit_test(bad_shards),
        T(create_and_open),
        T(create_below_missing),
        T(create_where_something_is),
        T(shards_damaged_or_missing),
        T(put_get_delete),
        T(moved),
        T(names_that_lead_elsewhere),
        T(requests_are_counted),
        T(listing),
        T(deep_shards),
        T(writer),
        T(full_disk),
        T(no_permission),
        T(owner_of_what_root_writes),
        T(killed_while_putting),
        T(concurrent),
        T(reader_without_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
