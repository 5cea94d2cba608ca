/* SPDX-License-Identifier: GPL-2.0-or-later */
/* s3-store.h - the S3 store on the service of s3-service.h, opened anew for each of its tests */
#ifndef SNAPFERRY_TESTS_S3_STORE_H
#define SNAPFERRY_TESTS_S3_STORE_H

#include "tests/unit/s3-service.h"

#include "base/time.h"
#include "repo/blob-s3.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

static struct blobs *b;
static struct err e;
static _Atomic bool stop;

static inline struct s3_place place(void)
{
    static struct s3_keys keys = {.access = "test", .secret = "secret-that-is-not-shown"};
    return (struct s3_place){.endpoint = endpoint,
                             .bucket = "b",
                             .prefix = "pre/",
                             .region = "",
                             .keys = &keys,
                             .ca_file = "",
                             .spool = dir,
                             .stall_s = 1,
                             .tries = 4,
                             .pause_ms = 5};
}

static inline char *ask_path(char *text, size_t cap, const char *path)
{
    char command[256];
    text[0] = '\0';
    snprintf(command, sizeof command, "curl -s --noproxy '*' -m 10 %s/%s", endpoint, path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, (int)cap, f));
    pclose(f);
    return text;
}

static inline char *__attribute__((format(printf, 3, 4))) ask_text(char *text, size_t cap, const char *format, ...)
{
    char path[128];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    return ask_path(text, cap, path);
}

static inline int setup(void **state)
{
    (void)state;
    const struct s3_place p = place();
    e = (struct err)ERR_INIT;
    atomic_store(&stop, false);
    const int rc = blobs_open_s3(&b, &p, BLOBS_OPEN, &e);
    return rc < 0 ? rc : blobs_prepare(b, &e); /* so that no test counts that request */
}

static inline int teardown(void **state)
{
    (void)state;
    blobs_free(b);
    ask("_fault/none/0");
    ask("_set/skew/0");
    ask("_set/lag/0");
    ask("_set/page/1000");
    ask("_set/key/");
    ask("_set/token/");
    return 0;
}

#define OK(call) assert_int_equal((call) < 0 ? (print_error("%s\n", e.msg), -1) : 0, 0)
#define FAILS(call, class, text)                                                                                       \
    do {                                                                                                               \
        e = (struct err)ERR_INIT;                                                                                      \
        assert_true((call) < 0);                                                                                       \
        assert_int_equal(e.cls, class);                                                                                \
        if (!strstr(e.msg, text) && !strstr(e.hint, text))                                                             \
            fail_msg("no \"%s\" in: %s (%s)", text, e.msg, e.hint);                                                    \
        assert_null(strstr(e.msg, "secret-that"));                                                                     \
    } while (0)

#endif
