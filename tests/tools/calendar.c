/* SPDX-License-Identifier: GPL-2.0-or-later */
/* calendar.c - prints when a calendar event comes next: calendar EVENT SECONDS-SINCE-1970 N. Exit code 2: refused. */
#include "daemon/schedule/calendar.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct calendar *c = NULL;
    struct err e = ERR_INIT;
    if (argc != 4)
        return 1;
    if (calendar_parse(&c, argv[1], &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return 2;
    }
    int64_t t = strtoll(argv[2], NULL, 10) * 1000000000;
    for (int n = atoi(argv[3]); n > 0 && t != INT64_MAX; n--) {
        t = calendar_next(c, t);
        if (t == INT64_MAX)
            puts("never");
        else
            printf("%" PRId64 ".%06" PRId64 "\n", t / 1000000000, t / 1000 % 1000000);
    }
    calendar_free(c);
    return 0;
}
