/* SPDX-License-Identifier: GPL-2.0-or-later */
/* s3-service.h - tests/tools/s3-faults.py for a unit test: started, asked, ended */
#ifndef SNAPFERRY_TESTS_S3_SERVICE_H
#define SNAPFERRY_TESTS_S3_SERVICE_H

#include "tests/unit/test.h"

#include <signal.h>
#include <sys/wait.h>

static char dir[64], endpoint[64];
static pid_t server;

/* The answer of the service to a request that is none of S3. */
static inline long __attribute__((format(printf, 1, 2))) ask(const char *format, ...)
{
    char path[128], command[256], text[64] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    snprintf(command, sizeof command, "curl -s --noproxy '*' -m 10 %s/%s", endpoint, path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    pclose(f);
    return strtol(text, NULL, 10);
}

static inline int service_start(void **state)
{
    (void)state;
    char file[96], port[16] = "";
    snprintf(dir, sizeof dir, "/tmp/snapferry-s3.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/port", dir);
    server = fork();
    if (server == 0) {
        execl("/usr/bin/python3", "python3", "tests/tools/s3-faults.py", file, NULL);
        _exit(127);
    }
    FILE *f = NULL;
    for (int i = 0; i < 3000 && !(f = fopen(file, "r")); i++)
        usleep(10000);
    assert_non_null(f);
    assert_non_null(fgets(port, sizeof port, f));
    fclose(f);
    unlink(file);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%s", port);
    return 0;
}

/* What stores have written down of themselves (repo/s3-journal.h). */
static inline void journals_remove(const char *where)
{
    char path[400];
    DIR *d = opendir(where);
    for (struct dirent *x; d && (x = readdir(d));)
        if (!strncmp(x->d_name, "recent-", 7)) {
            snprintf(path, sizeof path, "%s/%s", where, x->d_name);
            if (unlink(path) < 0)
                rmdir(path);
        }
    if (d)
        closedir(d);
}

static inline int service_end(void **state)
{
    (void)state;
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    journals_remove(dir);
    return rmdir(dir); /* nothing else was left in the directory of packs */
}

#endif
