/* SPDX-License-Identifier: GPL-2.0-or-later */
/* movers-job.h - jobs for tests of movers, and what is expected of their ends */
#ifndef SNAPFERRY_TESTS_UNIT_MOVERS_JOB_H
#define SNAPFERRY_TESTS_UNIT_MOVERS_JOB_H

#include "tests/unit/movers-rig.h"

#define MIB (1u << 20)

static inline void make_repo(struct rig *r)
{
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    struct repo *repo = NULL;
    const struct format_create c = {.unique_id = test_unique_id}; /* its key is derived once in a process (keys.c) */
    assert_ok(blobs_open_dir(&b, r->repo, BLOBS_CREATE, NULL, 0, &e), &e);
    assert_ok(format_create(b, &c, RIG_PASSWORD, &e), &e);
    const struct repo_opts o = {.cache_dir = r->cache};
    assert_ok(repo_open(&repo, b, RIG_PASSWORD, &o, &e), &e);
    assert_ok(manifests_initialise(repo, "snapferry-maintenance@node", "", &e), &e);
    repo_free(repo);
}

static inline struct repo *open_repo(struct rig *r)
{
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    struct repo *repo = NULL;
    char cache[192];
    snprintf(cache, sizeof cache, "%s/cache-of-test", r->dir);
    const struct repo_opts o = {.cache_dir = cache};
    assert_ok(blobs_open_dir(&b, r->repo, BLOBS_OPEN, NULL, 0, &e), &e);
    assert_ok(repo_open(&repo, b, RIG_PASSWORD, &o, &e), &e);
    return repo;
}

/* A file of `len` bytes that compresses, slowly. */
static inline int make_file(struct rig *r, const char *name, size_t len, uint64_t seed)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    uint8_t *buf = malloc(MIB);
    for (size_t at = 0; at < len; at += MIB) {
        size_t n = len - at < MIB ? len - at : MIB;
        for (size_t i = 0; i < n; i += 8) {
            uint64_t w = splitmix64(&seed) & 0x0f1f0f0f1f0f0f1fu;
            memcpy(buf + i, &w, n - i < 8 ? n - i : 8);
        }
        assert_int_equal(pwrite(fd, buf, n, (off_t)at), n);
    }
    free(buf);
    return fd;
}

static inline json_t *base_job(struct rig *r, const char *operation, const char *kind)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:s, s:{s:s, s:s, s:s}, s:s, s:I, s:i}", "protocol", 1, "operation",
                     operation, "kind", kind, "backup", "nightly-1", "node", "node", "repository", "name", "main",
                     "type", "filesystem", "path", r->repo, "cache_dir", r->cache, "memory", (json_int_t)96 * MIB,
                     "workers", 1);
}

static inline json_t *backup_job(struct rig *r, const char *operation, uint64_t size)
{
    json_t *j = base_job(r, operation, "backup");
    json_object_set_new(j, "source",
                        json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:b, s:I, s:{s:s, s:I, s:s}}", "name", "vg0/db1",
                                  "id", "vol-1", "class", "gold", "driver", "reflink", "crash_consistent", 1,
                                  "mechanism", "native", "block", 0, "size", (json_int_t)size, "native", "alias",
                                  "3f9a", "created_ns", (json_int_t)12345, "handle", "/x/y"));
    json_object_set_new(j, "as", json_string("snapferry@node:/vol-1"));
    json_object_set_new(
        j, "tags", json_pack("{s:s, s:s, s:s}", "backup", "nightly-1", "operation", operation, "volume-id", "vol-1"));
    return j;
}

/* Slow enough to be met while it works, on any machine: 5 MiB/s at most, and none of it for nothing. */
static inline json_t *slow_job(struct rig *r, const char *operation, uint64_t size)
{
    json_t *j = backup_job(r, operation, size);
    json_object_set_new(j, "compression", json_string("zstd-best-compression"));
    json_object_set_new(j, "read_limit", json_integer(5 * MIB));
    return j;
}

/* What was seen of movers that have ended is forgotten: a test that waits for this one's end waits for no other's. */
static inline void start(struct rig *r, const char *operation, const char *kind, json_t *job, int fd)
{
    struct err e = ERR_INIT;
    assert_non_null(job);
    if (movers_count(r->m) == 0)
        rig_forget(r);
    assert_ok(rig_start(r, operation, kind, job, fd, RIG_PASSWORD, &e), &e);
    json_decref(job);
}

static inline void run(struct rig *r, const char *operation, const char *kind, json_t *job, int fd)
{
    start(r, operation, kind, job, fd);
    rig_until(r, &r->ended, 1, 30);
}

#define assert_outcome(r, want)                                                                                        \
    do {                                                                                                               \
        if ((r)->outcome != (want))                                                                                    \
            fail_msg("outcome %s, not %s: %s", mover_outcome_name((r)->outcome), mover_outcome_name(want),             \
                     (r)->err.msg);                                                                                    \
    } while (0)
#define assert_says(r, text)                                                                                           \
    do {                                                                                                               \
        if (!strstr((r)->err.msg, text))                                                                               \
            fail_msg("\"%s\" is not in: %s", text, (r)->err.msg);                                                      \
    } while (0)

static inline const char *text_of(const json_t *j, const char *name)
{
    const char *s = json_string_value(json_object_get(j, name));
    return s ? s : "";
}
static inline json_int_t number_of(const json_t *j, const char *name)
{
    return json_integer_value(json_object_get(j, name));
}

#endif
