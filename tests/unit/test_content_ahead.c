/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Contents that are read ahead (content-ahead.h), and snapshots that are visited while they are (tree-ahead.h): what is
 * read ahead is what would have been read, several at a time and each once; what is damaged or does not fit is left to
 * the caller; a walk finds and reports the same as one of a store of files.
 */
#include "tests/unit/testrepo.h"
#include "tests/unit/wrapped_store.h"

#include "repo/tree-ahead.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define CONTENTS 40
#define DAMAGED 20
#define MEMORY ((size_t)8 << 20)

/* ---- a store that takes its time ---- */

static atomic_uint reads, under_way, most;
static struct blobs_ops far_ops;

static int far_read(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, struct err *e)
{
    const unsigned now = atomic_fetch_add(&under_way, 1) + 1;
    unsigned seen = atomic_load(&most);
    while (seen < now && !atomic_compare_exchange_weak(&most, &seen, now))
        ;
    atomic_fetch_add(&reads, 1);
    nanosleep(&(const struct timespec){.tv_nsec = 2000000}, NULL);
    const int rc = wrap_read(b, name, offset, dst, len, e);
    atomic_fetch_sub(&under_way, 1);
    return rc;
}

static void counted_anew(void)
{
    atomic_store(&reads, 0);
    atomic_store(&most, 0);
}

/* The repository of `t` once more, as files or far away. */
static struct repo *opened(const struct testrepo *t, bool far)
{
    static struct wrap_control control = WRAP_INIT;
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    struct repo *r = NULL;
    char path[64], cache[64];
    snprintf(path, sizeof path, "%s/repo", t->dir);
    snprintf(cache, sizeof cache, "%s/cache", t->dir);
    struct repo_opts o = {.cache_dir = cache, .username = "test", .hostname = "host"};
    assert_ok(blobs_open_dir(&b, path, BLOBS_OPEN, NULL, 0, &e), &e);
    if (far) {
        b = wrap_store_new(b, &control);
        far_ops = *b->ops;
        far_ops.read = far_read;
        b->ops = &far_ops;
    }
    assert_ok(repo_open(&r, b, "test", &o, &e), &e);
    counted_anew();
    return r;
}

/* Changes a byte of a content in its pack. */
static void damage(const struct testrepo *t, struct repo *r, const struct content_id *id)
{
    struct err e = ERR_INIT;
    struct index_entry x;
    struct blobs *b = NULL;
    char path[64];
    uint8_t byte;
    assert_ok(repo_find(r, id, &x, &e), &e);
    snprintf(path, sizeof path, "%s/repo", t->dir);
    assert_ok(blobs_open_dir(&b, path, BLOBS_OPEN, NULL, 0, &e), &e);
    int ro = blobs_open_file(b, x.pack, &e);
    assert_ok(ro, &e);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ro);
    assert_int_equal(chmod(path, 0600), 0);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, x.offset + 14), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, x.offset + 14), 1);
    close(fd);
    close(ro);
    blobs_free(b);
}

/* ---- contents ---- */

struct many {
    struct testrepo t;
    struct repo *far;
    struct index_entry x[CONTENTS];
    size_t len;
};

static uint8_t *bytes_of(unsigned i, size_t len)
{
    uint8_t *p = malloc(len);
    uint64_t s = i;
    assert_non_null(p);
    for (size_t k = 0; k < len; k++)
        p[k] = (uint8_t)splitmix64(&s);
    return p;
}

static void many_new(struct many *m, size_t len)
{
    struct err e = ERR_INIT;
    struct content_id id;
    m->len = len;
    testrepo_new(&m->t, "FIXED-128K", NULL);
    for (unsigned i = 0; i < CONTENTS; i++) {
        uint8_t *p CLEANUP_FREE = bytes_of(i, len);
        assert_ok(session_put_bytes(m->t.s, m->t.p, 'k', p, len, 0, &id, &e), &e);
        m->x[i].id = id;
    }
    testrepo_flush(&m->t);
    for (unsigned i = 0; i < CONTENTS; i++) {
        id = m->x[i].id;
        assert_ok(repo_find(m->t.r, &id, &m->x[i], &e), &e);
    }
    m->far = opened(&m->t, true);
}

static void many_free(struct many *m)
{
    repo_free(m->far);
    testrepo_free(&m->t);
}

static void read_mine(void *arg, size_t i, struct content_ahead_job *j)
{
    const struct many *m = arg;
    const uint8_t *p;
    const int64_t n = content_ahead_read(j, &m->x[i], &p);
    uint8_t *want CLEANUP_FREE = bytes_of((unsigned)i, m->len);
    if (n >= 0 && ((size_t)n != m->len || memcmp(p, want, m->len) != 0))
        abort(); /* not the test's thread */
}

/* How many of them were read ahead. */
static unsigned all_taken(struct many *m, size_t memory, content_ahead_fn *fn)
{
    struct content_ahead *a = content_ahead_new(m->far, memory, CONTENTS, fn, m);
    uint8_t *have CLEANUP_FREE = malloc(m->len);
    unsigned n = 0;
    assert_non_null(a);
    for (unsigned i = 0; i < CONTENTS; i++) {
        uint8_t *want CLEANUP_FREE = bytes_of(i, m->len);
        content_ahead_at(a, i);
        const int64_t len = content_ahead_take(a, &m->x[i], have);
        if (len < 0)
            continue;
        assert_int_equal(len, m->len);
        assert_memory_equal(have, want, m->len);
        n++;
    }
    content_ahead_free(a);
    return n;
}

static void several_at_a_time_each_once(void **state)
{
    (void)state;
    struct many m;
    many_new(&m, 500);
    assert_int_equal(all_taken(&m, MEMORY, read_mine), CONTENTS);
    assert_int_equal(atomic_load(&reads), CONTENTS);
    assert_in_range(atomic_load(&most), 4, 8);
    many_free(&m);
}

static void a_damaged_one_is_left_to_the_caller(void **state)
{
    (void)state;
    struct many m;
    struct err e = ERR_INIT;
    struct content_reader *c = NULL;
    uint8_t buf[500];
    many_new(&m, sizeof buf);
    damage(&m.t, m.t.r, &m.x[DAMAGED].id);
    assert_int_equal(all_taken(&m, MEMORY, read_mine), CONTENTS - 1);
    assert_int_equal(repo_has(m.far, &m.x[DAMAGED].id, &e), 1); /* nobody has met it yet */
    assert_ok(content_reader_new(&c, m.far, &e), &e);
    assert_int_equal(content_read_entry(c, &m.x[DAMAGED], NULL, buf, sizeof buf, false, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    content_reader_free(c);
    many_free(&m);
}

/* Whatever there is room for: all of it is given out again in the end, and nobody waits for ever. */
static void with_little_memory(void **state)
{
    (void)state;
    struct many m;
    many_new(&m, 100000);
    assert_int_equal(all_taken(&m, 0, read_mine), 0);
    assert_int_equal(all_taken(&m, 250000, read_mine), 0);
    assert_int_equal(atomic_load(&reads), 0);
    assert_int_equal(all_taken(&m, 500000, read_mine), CONTENTS);
    assert_in_range(atomic_load(&most), 1, 2);
    counted_anew();
    assert_int_equal(all_taken(&m, 20 * 400000, read_mine), CONTENTS);
    assert_in_range(atomic_load(&most), 4, 8);
    many_free(&m);
}

static void read_two(void *arg, size_t i, struct content_ahead_job *j)
{
    read_mine(arg, i, j);
    read_mine(arg, CONTENTS - 1, j);
}

static void what_several_need_is_read_once(void **state)
{
    (void)state;
    struct many m;
    many_new(&m, 500);
    /* It may be dropped with the item that it was read for. */
    assert_in_range(all_taken(&m, MEMORY, read_two), CONTENTS - 1, CONTENTS);
    assert_int_equal(atomic_load(&reads), CONTENTS);
    many_free(&m);
}

static void another_place_is_another_content(void **state)
{
    (void)state;
    struct many m;
    uint8_t buf[500];
    many_new(&m, sizeof buf);
    struct content_ahead *a = content_ahead_new(m.far, MEMORY, 3, read_mine, &m);
    struct index_entry moved = m.x[0];
    moved.offset++;
    content_ahead_at(a, 0);
    assert_true(content_ahead_take(a, &moved, buf) < 0);
    assert_int_equal(content_ahead_take(a, &m.x[0], buf), sizeof buf);
    assert_true(content_ahead_take(a, &m.x[0], buf) < 0); /* given out */
    content_ahead_free(a);
    many_free(&m);
}

static void left_early(void **state)
{
    (void)state;
    struct many m;
    many_new(&m, 500);
    content_ahead_free(content_ahead_new(m.far, MEMORY, CONTENTS, read_mine, &m));
    struct content_ahead *a = content_ahead_new(m.far, MEMORY, CONTENTS, read_mine, &m);
    content_ahead_at(a, 30); /* those before are dropped */
    content_ahead_free(a);
    content_ahead_free(content_ahead_new(m.far, MEMORY, 0, read_mine, &m));
    assert_null(content_ahead_new(m.t.r, MEMORY, CONTENTS, read_mine, &m)); /* files */
    content_ahead_free(NULL);
    many_free(&m);
}

static unsigned refuse_from; /* no thread can be started from this one on, by --wrap; 0: all can */

int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    if (refuse_from && --refuse_from == 0) {
        refuse_from = 1;
        return EAGAIN;
    }
    return __real_pthread_create(t, attr, fn, arg);
}

static void without_threads(void **state)
{
    (void)state;
    struct many m;
    many_new(&m, 500);
    refuse_from = 1;
    assert_int_equal(all_taken(&m, MEMORY, read_mine), 0);
    assert_int_equal(atomic_load(&reads), 0);
    refuse_from = 2;
    assert_int_equal(all_taken(&m, MEMORY, read_mine), CONTENTS);
    assert_int_equal(atomic_load(&most), 1);
    refuse_from = 0;
    many_free(&m);
}

/* ---- snapshots ---- */

#define TREES 40
#define IMAGE 300000 /* three chunks, and an index document */
#define TEXT 65536

struct forest {
    struct testrepo t;
    struct object_id roots[TREES], images[TREES];
};

static struct object_id directory(struct testrepo *t, const char *entries)
{
    struct err e = ERR_INIT;
    struct object_id id;
    char text[2000];
    const int n = snprintf(text, sizeof text,
                           "{\"stream\":\"kopia:directory\",\"entries\":[%s],\"summary\":{\"size\":0,\"files\":1,"
                           "\"symlinks\":0,\"dirs\":1,\"maxTime\":\"2026-09-01T00:00:00Z\",\"numFailed\":0}}",
                           entries);
    assert_ok(object_put(t->s, t->p, 'k', text, (size_t)n, 0, &id, &e), &e);
    return id;
}

static int entry(char *out, size_t cap, char type, const char *name, const struct object_id *o)
{
    char id[OBJECT_ID_TEXT];
    return snprintf(out, cap,
                    "{\"name\":\"%s\",\"type\":\"%c\",\"mode\":\"0644\",\"size\":5,\"mtime\":\"2026-09-01T00:00:00Z\","
                    "\"obj\":\"%s\"}",
                    name, type, object_id_text(o, id));
}

/* Each a directory with a file and a directory with the file of its predecessor; each fourth is its predecessor. */
static void forest_new(struct forest *f)
{
    struct err e = ERR_INIT;
    testrepo_new(&f->t, "FIXED-128K", NULL);
    for (unsigned i = 0; i < TREES; i++) {
        char text[1000];
        uint8_t *image CLEANUP_FREE = bytes_of(i, IMAGE);
        assert_ok(object_put(f->t.s, f->t.p, 0, image, IMAGE, 0, &f->images[i], &e), &e);
        assert_int_equal(f->images[i].indirection, 1);
        entry(text, sizeof text, 'f', "before", &f->images[i ? i - 1 : 0]);
        const struct object_id sub = directory(&f->t, text);
        int n = entry(text, sizeof text, 'f', "image", &f->images[i]);
        text[n++] = ',';
        entry(text + n, sizeof text - (size_t)n, 'd', "sub", &sub);
        f->roots[i] = i % 4 == 3 ? f->roots[i - 1] : directory(&f->t, text);
    }
    testrepo_flush(&f->t);
}

struct visits {
    struct repo *r;
    char text[TEXT]; /* what was found, in order */
    size_t n;
    struct content_ahead *ahead;
    struct err e;
};

static void found(struct visits *v, const char *what)
{
    v->n += (size_t)snprintf(v->text + v->n, sizeof v->text - v->n, "%s ", what);
    assert_true(v->n < sizeof v->text);
}

static int found_content(const struct content_id *id, void *arg, struct err *e)
{
    char text[CONTENT_ID_TEXT];
    (void)e;
    found(arg, content_id_text(id, text));
    return 0;
}

static int found_object(struct visits *v, const struct object_id *o, bool dir);

static int found_entry(struct dir_entry *d, void *arg)
{
    found(arg, d->name);
    return found_object(arg, &d->obj, d->type == 'd');
}

static int found_object(struct visits *v, const struct object_id *o, bool dir)
{
    int rc = object_contents_each(v->r, v->ahead, o, found_content, v, &v->e);
    return rc < 0 || !dir ? rc : dir_each_ahead(v->r, v->ahead, o, found_entry, v, &v->e);
}

static int visited(struct snapshot *s, struct content_ahead *ahead, void *arg)
{
    struct visits *v = arg;
    v->ahead = ahead;
    found(v, s->id);
    assert_non_null(s->tags);
    return found_object(v, &s->root.obj, s->root.type == 'd');
}

/* Visits all, of `n` of them and no more where one that is malformed follows. */
static int forest_walk(const struct forest *f, struct visits *v, bool far, unsigned n, size_t memory)
{
    struct err e = ERR_INIT;
    struct tree_ahead *t CLEANUP(tree_ahead_freep) = NULL;
    *v = (struct visits){.r = opened(&f->t, far), .e = ERR_INIT};
    assert_ok(tree_ahead_new(&t, v->r, memory, visited, v, &e), &e);
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        struct snapshot s = {.root = {.type = 'd', .obj = f->roots[i]}, .tags = json_object()};
        snprintf(s.id, sizeof s.id, "snapshot-%u", i);
        rc = tree_ahead_add(t, &s, i % 8 == 7);
        snapshot_clear(&s);
    }
    if (rc == 0 && n < TREES)
        rc = err_set(&v->e, ERR_DAMAGE, EBADMSG, "malformed");
    rc = tree_ahead_end(t, rc, &v->e);
    tree_ahead_free(take_ptr(&t));
    repo_free(v->r);
    return rc;
}

static void same_walk(const struct forest *f, unsigned n, size_t memory)
{
    static struct visits near, far;
    const int want = forest_walk(f, &near, false, n, memory);
    assert_int_equal(forest_walk(f, &far, true, n, memory), want);
    assert_string_equal(far.text, near.text);
    assert_int_equal(far.e.cls, near.e.cls);
    assert_string_equal(far.e.msg, near.e.msg);
}

static void visits_are_the_same(void **state)
{
    (void)state;
    static struct visits v;
    struct forest f;
    forest_new(&f);
    assert_int_equal(forest_walk(&f, &v, true, TREES, MEMORY), 0);
    assert_in_range(atomic_load(&most), 4, 9); /* the visit may read, too */
    same_walk(&f, TREES, MEMORY);
    same_walk(&f, TREES, 100);
    same_walk(&f, TREES, 5000);
    same_walk(&f, 25, MEMORY);
    same_walk(&f, 3, MEMORY);
    same_walk(&f, 0, MEMORY);
    testrepo_free(&f.t);
}

/* What is damaged in the middle ends the walk there, with the same words; also before one that is malformed. */
static void damage_is_met_in_its_turn(void **state)
{
    (void)state;
    static struct visits v;
    struct forest f;
    forest_new(&f);
    struct repo *files = opened(&f.t, false);
    for (unsigned i = 0; i < 2; i++) {
        damage(&f.t, files, i ? &f.roots[9].content : &f.images[22].content);
        assert_int_equal(forest_walk(&f, &v, true, TREES, MEMORY), -EBADMSG);
        assert_int_equal(v.e.cls, ERR_DAMAGE);
        assert_non_null(strstr(v.e.msg, "content "));
        assert_null(strstr(v.text, i ? "snapshot-10" : "snapshot-23"));
        assert_non_null(strstr(v.text, i ? "snapshot-9" : "snapshot-22"));
        same_walk(&f, TREES, MEMORY);
        same_walk(&f, 24, MEMORY);
        same_walk(&f, 24, 5000);
    }
    repo_free(files);
    testrepo_free(&f.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_at_a_time_each_once),
        cmocka_unit_test(a_damaged_one_is_left_to_the_caller),
        cmocka_unit_test(with_little_memory),
        cmocka_unit_test(what_several_need_is_read_once),
        cmocka_unit_test(another_place_is_another_content),
        cmocka_unit_test(left_early),
        cmocka_unit_test(without_threads),
        cmocka_unit_test(visits_are_the_same),
        cmocka_unit_test(damage_is_met_in_its_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
