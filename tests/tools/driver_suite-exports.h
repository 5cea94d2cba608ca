/* SPDX-License-Identifier: GPL-2.0-or-later */
/* driver_suite-exports.h - restores in place to NBD exports; a part of driver_suite.c */
#ifndef SNAPFERRY_TESTS_DRIVER_SUITE_EXPORTS_H
#define SNAPFERRY_TESTS_DRIVER_SUITE_EXPORTS_H

struct put {
    struct nbd_write w;
    sem_t end;
    int sys;
};

static void put_ended(struct nbd_write *w, int sys)
{
    struct put *p = w->arg;
    p->sys = sys;
    sem_post(&p->end);
}

static bool export_put(struct nbd_target *t, const uint8_t *buf, size_t len)
{
    struct put p = {.w = {.buf = buf, .len = len, .done = put_ended, .arg = &p}};
    sem_init(&p.end, 0, 0);
    nbd_target_write(t, &p.w);
    while (sem_wait(&p.end) < 0 && errno == EINTR)
        ;
    return p.sys == 0 && nbd_target_flush(t, &e) == 0;
}

/* Through what a mover gets: a connected socket. */
static bool export_filled(const struct restore_target *t, uint64_t seed)
{
    CLEANUP_FREE uint8_t *buf = malloc(4 * MIB);
    struct nbd_target *n = NULL;
    int fd;
    if (!buf || driver_target_open(t->path, &fd, &e) < 0 || nbd_target_open(&n, fd, t->path, t->size, NULL, &e) < 0)
        return false;
    fill(buf, 4 * MIB, seed);
    const bool good = export_put(n, buf, 4 * MIB);
    nbd_target_free(n);
    return good;
}

static bool export_holds(uint64_t seed)
{
    CLEANUP_FREE uint8_t *want = malloc(4 * MIB), *got = malloc(4 * MIB);
    int fd = -1;
    if (!want || !got || driver_target_open(name, &fd, &e) < 0)
        return false;
    fill(want, 4 * MIB, seed);
    const bool good = served(fd, name, got, 0, 4 * MIB) && memcmp(want, got, 4 * MIB) == 0;
    close(fd);
    return good;
}

static void test_target_export(void)
{
    struct volume v;
    struct restore_target t;
    char alias[ALIAS_LEN + 1];
    if (!ok(write_pattern(name, 0, 4 * MIB, 4) && d->resolve(&own, name, &v, &e) == 0, "an export with data"))
        return;
    alias_new(alias);
    refused(d->target(&own, name, v.size, alias, TARGET_NEW, &t, &e), ERR_TARGET, "is refused as a target");
    ok(d->target(&own, name, v.size, alias, TARGET_REPLACE, &t, &e) == 0 && strcmp(t.path, name) == 0 &&
           export_holds(4),
       "unless told: restored in place");
    ok(export_filled(&t, 5) && d->target_commit(&own, &t, &e) == 0 && d->target_commit(&own, &t, &e) == 0 &&
           export_holds(5),
       "written through its socket and committed, twice");
    ok(d->target_abort(&own, &t, &e) == 0 && d->target_abort(&own, &t, &e) == 0 && export_holds(5),
       "aborted, twice: nothing but what a mover writes is changed");
    refused(d->target(&own, name, v.size + 1, alias, TARGET_REPLACE, &t, &e), ERR_TARGET, "a target that is too small");
    refused(d->target(&own, absent, v.size, alias, TARGET_REPLACE, &t, &e), ERR_TARGET, "a target that is not there");
}

#endif
