/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_movers_link.c - malformed messages to a mover that works: it works on, with its limits (test_link.c) */
#include "tests/unit/malformed-limits.h"
#include "tests/unit/movers-job.h"

#include <dirent.h>
#include <sys/socket.h>

/* The daemon's end of the mover's connection, another one than `old`; -1: there is none now. */
static int socket_to(pid_t pid, ino_t old, ino_t *is)
{
    int ret = -1;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    for (const struct dirent *f; ret < 0 && (f = readdir(d));) {
        const int fd = atoi(f->d_name);
        struct ucred peer;
        struct stat st;
        socklen_t len = sizeof peer;
        if (fd > 2 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino != old &&
            getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.pid == pid) {
            *is = st.st_ino;
            ret = fd;
        }
    }
    closedir(d);
    return ret;
}

/* What it has closed takes no message more: `old` is the connection that a message has broken. Which has taken it. */
static ino_t to_mover(struct rig *r, const char *text, ino_t old)
{
    ino_t is = 0;
    int fd = -1;
    for (int i = 0; i < 600 && (fd = socket_to(r->id.pid, old, &is)) < 0; i++)
        rig_for(r, 0.05);
    assert_true(fd >= 0);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT), strlen(text));
    return is;
}

static unsigned lines_of_log(const struct rig *r, const char *line)
{
    char dir[128], path[512], text[65536];
    unsigned n = 0;
    snprintf(dir, sizeof dir, "%s/state/logs", r->dir);
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *f; (f = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
        FILE *file = f->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (file && fgets(text, sizeof text, file))
            n += strstr(text, line) != NULL;
        if (file)
            fclose(file);
    }
    closedir(d);
    return n;
}

static void until_lines(struct rig *r, const char *line, unsigned n)
{
    for (int i = 0; i < 600 && lines_of_log(r, line) < n && !r->ended; i++)
        rig_for(r, 0.05);
    assert_int_equal(lines_of_log(r, line), n);
}

static void a_backup_keeps_its_limits(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, NULL);
    make_repo(&r);
    const size_t len = 64 * MIB;
    int src = make_file(&r, "image", len, 1);
    json_t *job = backup_job(&r, "up-1", len);
    json_object_set_new(job, "read_limit", json_integer(THROTTLE_MIN)); /* four minutes */
    start(&r, "up-1", "backup", job, src);
    while (number_of(r.last, "read") == 0 && !r.ended)
        rig_until(&r, &r.progress, r.progress + 1, 30);
    ino_t broken = 0;
    for (unsigned i = 0; i < N(ignored) || i < N(refused); i++) {
        if (i < N(ignored)) {
            to_mover(&r, ignored[i], broken);
            until_lines(&r, IGNORED, i + 1);
        }
        if (i < N(refused)) {
            broken = to_mover(&r, refused[i], broken);
            until_lines(&r, AGAIN, i + 1);
        }
    }
    const json_int_t before = number_of(r.last, "read");
    rig_until(&r, &r.progress, r.progress + 3, 30);
    assert_int_equal(r.ended, 0);
    assert_true(number_of(r.last, "read") - before < (json_int_t)len / 2); /* neither 3 MiB/s nor none */
    assert_true(number_of(r.last, "read") < (json_int_t)len);
    /* It still follows. */
    r.limits.read_limit = 0;
    movers_limit(r.m, "up-1", &r.limits);
    rig_until(&r, &r.ended, 1, 60);
    assert_outcome(&r, MOVER_OK);
    close(src);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backup_keeps_its_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
