/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench-pipeline.c - backups, verification and restore with a temporary repository
 *
 * The source is a new file in the page cache: the results are those of CPU, memory and the disk of the repository; the
 * device is measured by bench-device.c. The pages of the repository are dropped from the cache before they are read
 * (not on a tmpfs).
 */
#include "daemon/cli/bench.h"

#include "repo/store.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define PASSWORD "snapferry bench"
#define CHUNK ((size_t)1 << 20)

struct bench_run {
    struct bench_pipeline *p;
    const struct options *o;
    char dir[4096], repo_dir[4200], source[4200], target[4200], cache[4200];
    struct repo *repo;
    struct mover_cancel *cancel;
    struct mover_progress progress;
};

/* ---- the directory ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)where;
    if ((type == FTW_DP ? rmdir(path) : unlink(path)) < 0)
        log_warning("cannot remove %s: %s", path, strerror(errno));
    return 0;
}

static int drop_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)where;
    CLEANUP_CLOSE int fd = type == FTW_F ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd >= 0)
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

static int make_dir(struct bench_run *x, struct err *e)
{
    const struct bench_pipeline *p = x->p;
    struct statvfs fs;
    if (statvfs(x->o->dir, &fs) < 0)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_GENERIC, errno, "cannot use --dir %s",
                       text_name(x->o->dir));
    /* Source, two backups, the restored file, and a reserve. */
    uint64_t need = 4 * p->size + (64u << 20), have = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (have < need) {
        err_set(e, ERR_NO_SPACE, 0, "%s has %s free, the pipeline requires %s", text_name(x->o->dir), text_bytes(have),
                text_bytes(need));
        return err_hint(e, "use another --dir or a smaller --size: the pipeline uses 16 times as much");
    }
    if ((size_t)snprintf(x->dir, sizeof x->dir, "%s/snapferry-bench-XXXXXX", x->o->dir) >= sizeof x->dir)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "--dir is too long");
    if (!mkdtemp(x->dir)) {
        int sys = errno;
        x->dir[0] = '\0';
        return err_set(e, ERR_GENERIC, sys, "cannot create a directory in %s", text_name(x->o->dir));
    }
    snprintf(x->repo_dir, sizeof x->repo_dir, "%s/repository", x->dir);
    snprintf(x->source, sizeof x->source, "%s/source.img", x->dir);
    snprintf(x->target, sizeof x->target, "%s/target.img", x->dir);
    snprintf(x->cache, sizeof x->cache, "%s/cache", x->dir);
    return 0;
}

typedef void fill_fn(uint8_t *out, size_t len, uint64_t pos);

static int write_source(struct bench_run *x, fill_fn *fill, struct err *e)
{
    CLEANUP_FREE uint8_t *buf = malloc(CHUNK);
    if (!buf)
        return err_nomem(e);
    CLEANUP_CLOSE int fd = open(x->source, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create %s", x->source);
    for (uint64_t pos = 0; pos < x->p->size; pos += CHUNK) {
        int rc = bench_interrupted(&x->cancel->requested, e);
        if (rc < 0)
            return rc;
        fill(buf, CHUNK, pos);
        ssize_t n = pwrite(fd, buf, CHUNK, (off_t)pos);
        if (n != (ssize_t)CHUNK)
            return err_set(e, ERR_GENERIC, n < 0 ? errno : ENOSPC, "cannot write %s", x->source);
    }
    /* Not to be written during the backup. */
    if (fsync(fd) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot write %s", x->source);
    return 0;
}

static int make_repo(struct bench_run *x, struct err *e)
{
    const struct options *o = x->o;
    const struct format_create c = {
        .hash = o->block_hash, .encryption = o->encryption, .splitter = o->splitter, .ecc_percent = o->ecc_percent};
    struct blobs *b;
    const struct store_place at = {.type = STORE_DIR, .dir = x->repo_dir};
    int rc = store_open(&b, &at, BLOBS_CREATE, NULL, 0, e);
    if (rc < 0)
        return rc;
    rc = format_create(b, &c, PASSWORD, e);
    if (rc < 0) {
        blobs_free(b);
        return rc;
    }
    const struct repo_opts ro = {.cache_dir = x->cache};
    double t = bench_wall();
    rc = repo_open(&x->repo, b, PASSWORD, &ro, e);
    if (rc < 0)
        return rc;
    x->p->open_seconds = bench_wall() - t;
    const struct repo_format *f = repo_format(x->repo);
    memcpy(x->p->hash, f->hash, sizeof x->p->hash);
    memcpy(x->p->splitter, f->splitter, sizeof x->p->splitter);
    memcpy(x->p->encryption, f->encryption, sizeof x->p->encryption);
    return 0;
}

/* ---- one move ---- */

static void move_done(struct bench_run *x, const struct bench_move *m, const struct stage_time *stages, unsigned n)
{
    struct bench_move *to = &x->p->moves[x->p->n++];
    *to = *m;
    to->n_stages = n;
    if (n)
        memcpy(to->stages, stages, n * sizeof *stages);
}

static int begin_move(struct bench_run *x, const char *what, struct progress_view **view, double *cpu, struct err *e)
{
    memset(&x->progress, 0, sizeof x->progress);
    *view = NULL;
    int rc = x->o->json ? 0 : progress_start(view, x->o, what, &x->progress, e);
    *cpu = bench_process_cpu();
    return rc;
}

static int move_backup(struct bench_run *x, const char *name, const char *volume, uint32_t compression,
                       struct object_id *image, struct err *e)
{
    struct progress_view *view;
    double cpu;
    CLEANUP(source_freep) struct source *s = NULL;
    int rc = source_open(&s, x->source, e);
    if (rc >= 0)
        rc = begin_move(x, "bench backup", &view, &cpu, e);
    if (rc < 0)
        return rc;
    struct backup_opts b = {.limits = {.memory = x->o->memory, .workers = x->o->workers},
                            .compression = compression,
                            .no_direct = true,
                            .progress = &x->progress,
                            .cancel = x->cancel};
    snprintf(b.as.user, sizeof b.as.user, "snapferry");
    snprintf(b.as.host, sizeof b.as.host, "bench");
    snprintf(b.as.path, sizeof b.as.path, "/%s", volume);
    struct backup_result r = {0};
    rc = backup_run(x->repo, s, &b, &r, e);
    progress_stop(view);
    if (rc >= 0) {
        const struct bench_move m = {.name = name,
                                     .bytes = r.size,
                                     .stored = r.stored_bytes,
                                     .seconds = r.seconds,
                                     .core_seconds = bench_process_cpu() - cpu,
                                     .bottleneck = r.bottleneck};
        move_done(x, &m, r.stages, r.n_stages);
        x->p->workers = r.workers;
        if (image)
            *image = r.image;
    }
    backup_result_clear(&r);
    return rc;
}

static int move_verify(struct bench_run *x, struct err *e)
{
    struct progress_view *view;
    double cpu;
    nftw(x->repo_dir, drop_one, 16, FTW_PHYS);
    int rc = begin_move(x, "bench verify", &view, &cpu, e);
    if (rc < 0)
        return rc;
    const struct verify_opts o = {.limits = {.memory = x->o->memory, .workers = x->o->workers},
                                  .read_percent = 100,
                                  .read_from = -1,
                                  .progress = &x->progress,
                                  .cancel = x->cancel};
    struct verify_result r = {0};
    rc = verify_run(x->repo, NULL, 0, &o, &r, e);
    progress_stop(view);
    if (rc < 0)
        return rc;
    const struct bench_move m = {.name = "verify, all data read",
                                 .bytes = r.bytes_read,
                                 .seconds = r.seconds,
                                 .core_seconds = bench_process_cpu() - cpu,
                                 .bottleneck = r.bottleneck};
    move_done(x, &m, r.stages, r.n_stages);
    return 0;
}

static int move_restore(struct bench_run *x, const struct object_id *image, struct err *e)
{
    struct progress_view *view;
    double cpu;
    nftw(x->repo_dir, drop_one, 16, FTW_PHYS);
    int rc = begin_move(x, "bench restore", &view, &cpu, e);
    if (rc < 0)
        return rc;
    const struct restore_opts o = {
        .limits = {.memory = x->o->memory, .workers = x->o->workers}, .progress = &x->progress, .cancel = x->cancel};
    struct restore_result r = {0};
    /* By a descriptor: the directory under test may belong to a repository, where a path would be refused. */
    CLEANUP_CLOSE int fd = open(x->target, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    rc = fd < 0 ? err_set(e, ERR_TARGET, errno, "cannot create %s", x->target)
                : restore_run_fd(x->repo, image, x->p->size, fd, x->target, &o, &r, e);
    progress_stop(view);
    if (rc < 0)
        return rc;
    const struct bench_move m = {.name = "restore",
                                 .bytes = r.size,
                                 .stored = r.written_bytes,
                                 .seconds = r.seconds,
                                 .core_seconds = bench_process_cpu() - cpu,
                                 .bottleneck = r.bottleneck};
    move_done(x, &m, r.stages, r.n_stages);
    return 0;
}

static int all_moves(struct bench_run *x, struct err *e)
{
    struct object_id image = {0};
    int64_t compression = compress_id_by_name(x->o->compression ? x->o->compression : "zstd-fastest", e);
    if (compression < 0)
        return (int)compression;
    int rc = write_source(x, bench_fill_random, e);
    if (rc >= 0)
        rc = make_repo(x, e);
    if (rc >= 0)
        rc = move_backup(x, "backup, new random data", "random", 0, &image, e);
    if (rc >= 0)
        rc = move_backup(x, "backup, nothing changed", "random", 0, NULL, e);
    if (rc >= 0)
        rc = move_verify(x, e);
    if (rc >= 0)
        rc = move_restore(x, &image, e);
    if (rc >= 0)
        rc = write_source(x, bench_fill_mixed, e);
    if (rc >= 0)
        rc = move_backup(x, "backup, new mixed data", "mixed", (uint32_t)compression, NULL, e);
    return rc;
}

int bench_pipeline(struct bench_pipeline *p, const struct options *o, uint64_t size, struct err *e)
{
    CLEANUP_FREE struct bench_run *x = calloc(1, sizeof *x);
    if (!x)
        return err_nomem(e);
    *x = (struct bench_run){.p = p, .o = o, .cancel = cli_cancel()};
    p->size = size / CHUNK * CHUNK;
    int rc = make_dir(x, e);
    if (rc >= 0)
        rc = all_moves(x, e);
    repo_free(x->repo);
    if (x->dir[0])
        nftw(x->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return rc;
}
