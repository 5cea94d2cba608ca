/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * faulty_vfs.h - an SQLite file layer for tests that counts syncs and fails when told
 *
 * It lies over the system's own layer and is the default one after faulty_vfs_install(), so that what is tested is the
 * shipped code. After `faults.after` more writes, syncs or truncations of files whose name ends with `faults.suffix`
 * every further one fails with `faults.code`, `faults.count` times. Each sync takes `faults.sync_ms` longer; while
 * `faults.hold` is set, one of another thread than the main one does not end.
 */
#ifndef SNAPFERRY_TESTS_UNIT_FAULTY_VFS_H
#define SNAPFERRY_TESTS_UNIT_FAULTY_VFS_H

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    unsigned long syncs, writes; /* of all files so far */
    long after, count;           /* < 0 count: off */
    int code;                    /* SQLITE_FULL, SQLITE_IOERR_WRITE, SQLITE_IOERR_FSYNC */
    unsigned sync_ms;
    atomic_bool hold;
    atomic_uint held, main_syncs; /* syncs that do not end; of the main thread, so far */
} faults = {.count = 0};

struct faulty_file {
    sqlite3_file base;
    sqlite3_file *real;
};
#define REAL(f) (((struct faulty_file *)(f))->real)

static inline int fault(void)
{
    if (faults.count <= 0)
        return SQLITE_OK;
    if (faults.after > 0) {
        faults.after--;
        return SQLITE_OK;
    }
    faults.count--;
    return faults.code;
}

static int ff_close(sqlite3_file *f)
{
    int rc = REAL(f)->pMethods->xClose(REAL(f));
    return rc;
}
static int ff_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
    return REAL(f)->pMethods->xRead(REAL(f), p, n, at);
}
static int ff_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    faults.writes++;
    int rc = fault();
    if (rc != SQLITE_OK) {
        /* A full disk takes the first half. */
        REAL(f)->pMethods->xWrite(REAL(f), p, n / 2, at);
        return rc;
    }
    return REAL(f)->pMethods->xWrite(REAL(f), p, n, at);
}
static int ff_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    int rc = fault();
    return rc != SQLITE_OK ? rc : REAL(f)->pMethods->xTruncate(REAL(f), n);
}
static int ff_sync(sqlite3_file *f, int flags)
{
    faults.syncs++;
    if (getpid() == gettid())
        faults.main_syncs++;
    else if (faults.hold) {
        faults.held++;
        while (faults.hold)
            usleep(1000);
        faults.held--;
    }
    if (faults.sync_ms)
        usleep(faults.sync_ms * 1000);
    int rc = fault();
    return rc != SQLITE_OK ? rc : REAL(f)->pMethods->xSync(REAL(f), flags);
}
static int ff_size(sqlite3_file *f, sqlite3_int64 *n)
{
    return REAL(f)->pMethods->xFileSize(REAL(f), n);
}
static int ff_lock(sqlite3_file *f, int l)
{
    return REAL(f)->pMethods->xLock(REAL(f), l);
}
static int ff_unlock(sqlite3_file *f, int l)
{
    return REAL(f)->pMethods->xUnlock(REAL(f), l);
}
static int ff_check(sqlite3_file *f, int *out)
{
    return REAL(f)->pMethods->xCheckReservedLock(REAL(f), out);
}
static int ff_control(sqlite3_file *f, int op, void *arg)
{
    return REAL(f)->pMethods->xFileControl(REAL(f), op, arg);
}
static int ff_sector(sqlite3_file *f)
{
    return REAL(f)->pMethods->xSectorSize(REAL(f));
}
static int ff_device(sqlite3_file *f)
{
    return REAL(f)->pMethods->xDeviceCharacteristics(REAL(f));
}
static int ff_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **p)
{
    return REAL(f)->pMethods->xShmMap(REAL(f), page, size, extend, p);
}
static int ff_shm_lock(sqlite3_file *f, int at, int n, int flags)
{
    return REAL(f)->pMethods->xShmLock(REAL(f), at, n, flags);
}
static void ff_shm_barrier(sqlite3_file *f)
{
    REAL(f)->pMethods->xShmBarrier(REAL(f));
}
static int ff_shm_unmap(sqlite3_file *f, int del)
{
    return REAL(f)->pMethods->xShmUnmap(REAL(f), del);
}
static const sqlite3_io_methods ff_methods = {
    .iVersion = 2,
    .xClose = ff_close,
    .xRead = ff_read,
    .xWrite = ff_write,
    .xTruncate = ff_truncate,
    .xSync = ff_sync,
    .xFileSize = ff_size,
    .xLock = ff_lock,
    .xUnlock = ff_unlock,
    .xCheckReservedLock = ff_check,
    .xFileControl = ff_control,
    .xSectorSize = ff_sector,
    .xDeviceCharacteristics = ff_device,
    .xShmMap = ff_shm_map,
    .xShmLock = ff_shm_lock,
    .xShmBarrier = ff_shm_barrier,
    .xShmUnmap = ff_shm_unmap,
};

static sqlite3_vfs faulty_vfs, *system_vfs;

static int fv_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out)
{
    struct faulty_file *x = (struct faulty_file *)f;
    (void)v;
    memset(x, 0, sizeof *x);
    x->real = (sqlite3_file *)(void *)(x + 1);
    int rc = system_vfs->xOpen(system_vfs, name, x->real, flags, out);
    if (x->real->pMethods)
        x->base.pMethods = &ff_methods;
    return rc;
}

static inline void faulty_vfs_install(void)
{
    system_vfs = sqlite3_vfs_find(NULL);
    faulty_vfs = *system_vfs;
    faulty_vfs.zName = "faulty";
    faulty_vfs.szOsFile = (int)sizeof(struct faulty_file) + system_vfs->szOsFile;
    faulty_vfs.xOpen = fv_open;
    sqlite3_vfs_register(&faulty_vfs, 1);
}

#endif
