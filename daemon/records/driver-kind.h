/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * driver-kind.h - what is recorded and decided by the kind of storage, where its driver cannot be called
 *
 * A row for each driver that differs from the others. Drivers state the same of themselves (io/native/driver.h:
 * traits); tests/unit/test_driver.c compares both.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_DRIVER_KIND_H
#define SNAPFERRY_DAEMON_RECORDS_DRIVER_KIND_H

#include <stdbool.h>

struct driver_kind {
    const char *driver;
    const char *raw;      /* for messages: what is backed up without a snapshot ("a raw device"); NULL: it has one */
    bool has_peers;       /* it has to know the patterns of the other classes of this driver */
    bool has_cow;         /* space for copies on write is set aside for each native snapshot */
    const char *place;    /* what volumes disappear with, before its name; NULL: their file system, by its UUID */
    const char *get_back; /* and how it is brought back */
    bool has_bookmarks;   /* what changed since a native snapshot is known when that is gone */
    bool has_cluster;     /* what its volumes lie in is told by a class, also for a restore target that none selects */
};
/* One without anything for any other name. */
const struct driver_kind *driver_kind_of(const char *driver);

#endif
