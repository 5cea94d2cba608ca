/* SPDX-License-Identifier: GPL-2.0-or-later */
/* malformed-limits.h - what a daemon may send instead of LIMITS, and what a mover logs */
#ifndef SNAPFERRY_TESTS_UNIT_MALFORMED_LIMITS_H
#define SNAPFERRY_TESTS_UNIT_MALFORMED_LIMITS_H

#define IGNORED "malformed message LIMITS from the daemon ignored"
#define AGAIN "malformed message from the daemon: connecting to it again"

/* No LIMITS, though objects with that type: ignored. */
static const char *const ignored[] = {
    "{\"type\":\"LIMITS\"}",
    "{\"type\":\"LIMITS\",\"read_limit\":3145728}",
    "{\"type\":\"LIMITS\",\"write_limit\":3145728}",
    "{\"type\":\"LIMITS\",\"read_limit\":3145728,\"write_limit\":\"3145728\"}",
    "{\"type\":\"LIMITS\",\"read_limit\":\"3145728\",\"write_limit\":3145728}",
    "{\"type\":\"LIMITS\",\"read_limit\":3145728.5,\"write_limit\":3145728}",
    "{\"type\":\"LIMITS\",\"read_limit\":3145728,\"write_limit\":1e300}",
    "{\"type\":\"LIMITS\",\"read_limit\":true,\"write_limit\":3145728}",
    "{\"type\":\"LIMITS\",\"read_limit\":null,\"write_limit\":3145728}",
    "{\"type\":\"LIMITS\",\"read_limit\":[3145728],\"write_limit\":3145728}",
    "{\"type\":\"LIMITS\",\"read_limit\":3145728,\"write_limit\":{\"read_limit\":3145728}}",
    "{\"type\":\"LIMITS\",\"read_limit\":-1,\"write_limit\":3145728}",
    "{\"type\":\"LIMITS\",\"read_limit\":3145728,\"write_limit\":-9223372036854775808}",
};
/* No messages: the connection is closed, and made again. */
static const char *const refused[] = {
    "{\"type\":\"LIMITS\",\"read_limit\":3145728,\"write_lim",
    "{\"type\":\"LIMITS\",\"read_limit\":3145728,\"write_limit\":99999999999999999999}",
    "{\"type\":\"LIMITS\",\"read_limit\":3145728,\"write_limit\":3145728,\"write_limit\":3145728}",
    "{\"type\":[\"LIMITS\"],\"read_limit\":3145728,\"write_limit\":3145728}",
    "{\"read_limit\":3145728,\"write_limit\":3145728}",
    "[\"LIMITS\",3145728,3145728]",
    "\"LIMITS\"",
    "{\"type\":\"LIMITS\",\"read_limit\":3145728,\"write_limit\":3145728}{}",
    "{\"type\":\"LIMITS\xff\",\"read_limit\":3145728,\"write_limit\":3145728}",
    "\n",
};
#define N(list) (sizeof(list) / sizeof *(list))

#endif
