/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mover-limits.h - the limits and rights of a mover, listed once
 *
 * The configuration (struct cfg_mover), the policy in a record (struct mover_limits of daemon/records/types.h, which is
 * also what a mover is started with) and the job of a mover (struct job_limits, docs/mover.md) are made from this list.
 * Names are those of the record and of the job; the key of the configuration has "-" for "_".
 *
 * A new limit takes a line here, its key in cfg/keys.c, its paragraph in snapferry.ini(5), and the code that obeys it.
 *
 *   TEXT(name, size)              a word; `size` with its NUL, in the configuration
 *   NUMBER(name, unit)            obeyed by whoever starts the mover: its unit or cgroup
 *   JOB(name, unit, least, most)  obeyed by the mover itself; 0: none, or its default; a value below `least`, of an
 *                                 earlier version, counts as `least`
 *   LIST(name)                    words
 */
#ifndef SNAPFERRY_DAEMON_PROTOCOL_MOVER_LIMITS_H
#define SNAPFERRY_DAEMON_PROTOCOL_MOVER_LIMITS_H

#include "base/throttle.h"

#include <stdint.h>

#define MOVER_LIMITS(TEXT, NUMBER, JOB, LIST)                                                                          \
    TEXT(user, 64)                                  /* "snapferry-mover"; "": the daemon's */                          \
    JOB(memory, "bytes", 0, INT64_C(1) << 44)       /* of all buffers */                                               \
    NUMBER(memory_max, "bytes")                     /* MemoryMax; 0: memory + index_memory + 64 MiB */                 \
    JOB(index_memory, "bytes", 0, INT64_C(1) << 44) /* of mapped index pages */                                        \
    JOB(workers, NULL, 0, 1024)                     /* 0: by CPU */                                                    \
    NUMBER(cpu_quota, "percent")                    /* of one CPU, 0: none */                                          \
    NUMBER(cpu_weight, NULL)                        /* 1..10000, 0: not set */                                         \
    NUMBER(io_weight, NULL)                         /* likewise */                                                     \
    NUMBER(tasks_max, NULL)                                                                                            \
    NUMBER(nice, NULL)                                   /* -20..19 */                                                 \
    TEXT(ioclass, 16)                                    /* "best-effort", "idle"; "": not set */                      \
    TEXT(cpus, 128)                                      /* list for cfg_parse_cpus(); "": any */                      \
    TEXT(slice, 64)                                      /* "": snapferry.slice */                                     \
    JOB(read_limit, "bytes/s", THROTTLE_MIN, INT64_MAX)  /* from the volume; restore: from the repository */           \
    JOB(write_limit, "bytes/s", THROTTLE_MIN, INT64_MAX) /* to the repository; restore: to the volume */               \
    TEXT(limit_times, 256)                               /* for cfg_parse_times(), when both hold; "": always */       \
    LIST(unit_properties)                                /* Name=value */

/* For kinds of limits that are not wanted. */
#define MOVER_LIMIT_OMIT(...)
/* Those that the mover itself obeys. */
#define MOVER_JOB_LIMITS(JOB) MOVER_LIMITS(MOVER_LIMIT_OMIT, MOVER_LIMIT_OMIT, JOB, MOVER_LIMIT_OMIT)

#define MOVER_JOB_LIMIT_MEMBER(name, unit, least, most) uint64_t name;
struct job_limits {
    MOVER_JOB_LIMITS(MOVER_JOB_LIMIT_MEMBER)
};
#undef MOVER_JOB_LIMIT_MEMBER

#endif
