/* SPDX-License-Identifier: GPL-2.0-or-later */
/* format.h - a directory, golden vectors and a store with faults for the tests of the format blobs. */
#ifndef SNAPFERRY_TESTS_UNIT_FORMAT_H
#define SNAPFERRY_TESTS_UNIT_FORMAT_H

#include "repo/blob-ops.h"
#include "repo/format-parse.h"
#include "tests/unit/test.h"
#include <dirent.h>
#include <jansson.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HOUR 3600000000000

static char dir[64];

static inline int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test_format.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static inline int teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static inline const char *in_dir(const char *name)
{
    static char buf[4][512];
    static unsigned turn;
    char *p = buf[turn++ % 4];
    snprintf(p, sizeof buf[0], "%s/%s", dir, name);
    return p;
}

static inline void write_bytes(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static inline unsigned files_in(const char *path)
{
    DIR *d = opendir(path);
    assert_non_null(d);
    unsigned n = 0;
    for (const struct dirent *de; (de = readdir(d));)
        n += de->d_name[0] != '.';
    closedir(d);
    return n;
}

static inline const char *text_of(const json_t *v, const char *key)
{
    const char *s = json_string_value(json_object_get(v, key));
    if (!s)
        fail_msg("no text \"%s\" in the vector", key);
    return s;
}

static inline size_t hex_of(const json_t *v, const char *key, uint8_t *out, size_t cap)
{
    const char *s = text_of(v, key);
    size_t n = strlen(s) / 2;
    assert_true(n <= cap);
    assert_int_equal(hex_decode(out, s, 2 * n), 0);
    return n;
}

static inline unsigned each_vector(const char *file, void (*fn)(json_t *v))
{
    FILE *f = fopen(fixture_path(file), "r");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0;
    unsigned n = 0;
    while (getline(&line, &cap, f) > 0) {
        json_t *v = json_loads(line, 0, NULL);
        assert_non_null(v);
        fn(v);
        json_decref(v);
        n++;
    }
    free(line);
    fclose(f);
    return n;
}

static inline struct blobs *store(enum blobs_open_mode mode)
{
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    assert_ok(blobs_open_dir(&b, dir, mode, NULL, 0, &e), &e);
    return b;
}

static inline void put(struct blobs *b, const char *name, const void *data, size_t len)
{
    struct err e = ERR_INIT;
    assert_ok(blobs_put(b, name, data, len, &e), &e);
}

static char last_log[2048];

static inline void keep_log(enum log_level lvl, const char *line, void *arg)
{
    (void)arg;
    if (lvl >= LOG_LVL_WARNING)
        snprintf(last_log, sizeof last_log, "%s", line);
}

/* ---- creating ---- */

/* The opened inner document of the repository in b, as text. */
static inline char *inner_of(struct blobs *b, const char *password)
{
    struct err e = ERR_INIT;
    uint8_t *data;
    size_t len;
    struct format_outer o;
    uint8_t key[32];
    assert_ok(blobs_get(b, "kopia.repository", 1 << 20, &data, &len, &e), &e);
    assert_ok(format_parse_outer(&o, data, len, &e), &e);
    assert_ok(format_derive_key(o.key_algo, password, o.unique_id, o.unique_id_len, key, &e), &e);
    char *out = malloc(o.sealed_len + 1);
    int64_t n = format_layer_open(key, o.unique_id, o.unique_id_len, o.sealed, o.sealed_len, (uint8_t *)out, &e);
    assert_ok(n, &e);
    out[n] = '\0';
    format_outer_clear(&o);
    free(data);
    return out;
}

/* ---- a store whose n-th put fails ---- */

struct faulty {
    struct blobs base;
    struct blobs *real;
    unsigned puts, fail_at; /* 1: the first */
    bool after;             /* the blob is there, yet the put fails */
};

static inline int faulty_put(struct blobs *b, const char *name, const void *data, size_t len, struct err *e)
{
    struct faulty *f = (struct faulty *)b;
    bool fails = ++f->puts == f->fail_at;
    if (fails && !f->after)
        return err_set(e, ERR_GENERIC, ENOSPC, "cannot write %s", name);
    int rc = blobs_put(f->real, name, data, len, e);
    return fails ? err_set(e, ERR_GENERIC, EIO, "cannot write %s", name) : rc;
}

static inline int faulty_get(struct blobs *b, const char *name, size_t max, uint8_t **ret, size_t *len, struct err *e)
{
    return blobs_get(((struct faulty *)b)->real, name, max, ret, len, e);
}

static inline int faulty_del(struct blobs *b, const char *name, struct err *e)
{
    return blobs_delete(((struct faulty *)b)->real, name, e);
}

static inline int faulty_list(struct blobs *b, const char *prefix, blob_list_fn *fn, void *arg, struct err *e)
{
    return blobs_list(((struct faulty *)b)->real, prefix, fn, arg, e);
}

static const struct blobs_ops faulty_ops = {
    .put = faulty_put, .get = faulty_get, .del = faulty_del, .list = faulty_list};

static inline int count_blobs(const struct blob_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return 0;
}

#endif
