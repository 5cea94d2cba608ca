/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mover-wire.h - messages between the daemon and a mover (docs/mover.md; internal to both)
 *
 * A SOCK_SEQPACKET Unix socket; each message is one JSON object of at most WIRE_MAX bytes with the members "type",
 * "operation" and, from the mover, "seq" (grows by at least one each time). Descriptors come with JOB, and one with
 * KEY and with CREDENTIALS.
 */
#ifndef SNAPFERRY_DAEMON_PROTOCOL_MOVER_WIRE_H
#define SNAPFERRY_DAEMON_PROTOCOL_MOVER_WIRE_H

#define MOVER_PROTOCOL 1 /* N and N-1 are accepted (MS-54) */

#define WIRE_MAX (64u << 10)
#define WIRE_FDS_MAX 8
#define WIRE_NO_FDS                                                                                                    \
    {                                                                                                                  \
        -1, -1, -1, -1, -1, -1, -1, -1                                                                                 \
    }
#define WIRE_JOB_MAX (16u << 20) /* bytes of a job document */
/* Of a message from a mover: what is in it. It is parsed in the daemon's loop. */
#define WIRE_VALUES_MAX 256
#define WIRE_DEPTH_MAX 8
/* Of a result file, in bytes and values: it is parsed beside the daemon's loop, and kept in a record. */
#define WIRE_RESULT_MAX (1u << 20)
#define WIRE_RESULT_VALUES_MAX (128u << 10)
#define WIRE_RESULT_DEPTH_MAX 64
/* Of the lists in it together: what has no room is counted, or comes on another page. */
#define WIRE_LIST_MAX (640u << 10)
#define WIRE_LIST_VALUES_MAX (96u << 10)
/* Of the file for long lists, in bytes: a memory file that can become neither longer nor shorter. A page of it is a
 * document; one with several items has no more than WIRE_LISTING_PAGE bytes of them, so that little is recorded at a
 * time. */
#define WIRE_LISTING_MAX (32u << 20)
#define WIRE_LISTING_PAGE (192u << 10)
#define OPERATION_MAX 255 /* bytes of an operation's id */

/* The kind of a mover that belongs to no operation: it opens a repository, and that is all. */
#define MOVER_KIND_LOOK "look"

/* Seconds a mover waits for JOB after it has connected. */
#define WIRE_JOB_WAIT_S 60

/* RENEW is sent at most once in so many seconds. */
#define WIRE_RENEW_S 2

/* Types of messages: from the mover ... */
#define WIRE_HELLO "HELLO"
#define WIRE_READY "READY"
#define WIRE_REFUSED "REFUSED"
#define WIRE_START "START"
#define WIRE_PROGRESS "PROGRESS"
#define WIRE_LOG "LOG"
#define WIRE_KEY "KEY"
#define WIRE_RENEW "RENEW"
#define WIRE_CANCELLING "CANCELLING"
#define WIRE_RESULT "RESULT"
#define WIRE_STOPPED "STOPPED"
/* ... and from the daemon. */
#define WIRE_JOB "JOB"
#define WIRE_GO "GO"
#define WIRE_CANCEL "CANCEL"
#define WIRE_CREDENTIALS "CREDENTIALS"
#define WIRE_LIMITS "LIMITS"

/* What a descriptor of JOB is, by its place in the message's list "fds". */
#define WIRE_FD_JOB "job"
#define WIRE_FD_RESULT "result"
#define WIRE_FD_DEVICE "device"
#define WIRE_FD_PASSWORD "password"
#define WIRE_FD_KEY "key"
#define WIRE_FD_CHANGES "changes"         /* sealed: changes_pack() */
#define WIRE_FD_LISTING "listing"         /* where long lists go: never with a device */
#define WIRE_FD_CREDENTIALS "credentials" /* sealed: the text of the file of S3 keys (base/s3-keys.h) */

#define WIRE_FD_COPY_CREDENTIALS "copy-credentials" /* likewise, of the place of a copy */

/* RENEW and CREDENTIALS: with this member, which is true, they are about the place of the copy. */
#define WIRE_OF_COPY "copy"

/* PROGRESS: its phases and, X(name) each, its counters. */
#define WIRE_PHASES "opening", "moving", "committing", "checking", "done"
#define WIRE_COUNTERS(X) X(total) X(done) X(read) X(zero) X(skipped) X(duplicate) X(fresh) X(stored) X(errors)

/* PROGRESS: a number that grows with each request to a repository, absent from movers of earlier versions. Maintenance,
 * and what comes before contents are verified or copied, change no counter for hours, and are no stall. */
#define WIRE_REQUESTS "requests"

/* Result codes, also the exit status (MS-33). */
enum result_code { RESULT_OK, RESULT_FAILED, RESULT_CANCELED, RESULT_TRANSIENT, RESULT_SOURCE_LOST, RESULT_CODES };

#endif
