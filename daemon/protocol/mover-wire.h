/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * movers-wire.h - what the daemon and a mover say to each other (docs/mover.md; internal to both)
 *
 * A SOCK_SEQPACKET Unix socket; each message is one JSON object of at most WIRE_MAX bytes with the members "type",
 * "operation" and, from the mover, "seq" (grows by at least one each time). Descriptors ride on JOB only.
 */
#ifndef SNAPFERRY_DAEMON_MOVERS_WIRE_H
#define SNAPFERRY_DAEMON_MOVERS_WIRE_H

#define WIRE_MAX (64u << 10)
#define WIRE_FDS_MAX 4
#define WIRE_JOB_MAX (16u << 20)    /* bytes of a job document */
#define WIRE_RESULT_MAX (64u << 20) /* bytes of a result file */
#define OPERATION_MAX 255

/* Seconds a mover waits for JOB after it has dialled. */
#define WIRE_JOB_WAIT_S 60

/* Result codes, also the exit status (MS-33). */
enum result_code { RESULT_OK, RESULT_FAILED, RESULT_CANCELED, RESULT_TRANSIENT, RESULT_SOURCE_LOST, RESULT_CODES };

#endif
