/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * script_server - a control socket whose answers are written down
 *
 * script_server DIR FILE: socket DIR/control.sock. FILE is a JSON object with a member for each verb:
 *   {"answer": {...}}            that answer
 *   {"error": {...}}             that error
 *   {"events": [[SECONDS, {...}], ...], "answer": {...}}   events, each so long after the one before, then the answer
 *   {"hang": true}               nothing, ever
 *   {"close": true}              the connection is closed
 *   {"line": "text"}             that line, whatever it is
 * Other verbs get the daemon's error for a verb that it does not have. FILE is read anew for each connection. Ends with
 * SIGTERM.
 *
 * script_server DIR: the socket as it is while systemd has it and the daemon is stopped. "connected" is printed for
 * each connection, which is closed: it would have started the daemon.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void pause_for(double s)
{
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        continue;
}

static void tell(FILE *f, json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT);
    fprintf(f, "%s\n", text ? text : "{}");
    fflush(f);
    free(text);
    json_decref(line);
}

static void answer(FILE *f, const json_t *request, const json_t *script)
{
    const char *verb = json_string_value(json_object_get(request, "verb"));
    json_t *id = json_object_get(request, "id"), *event;
    const json_t *s = json_object_get(script, verb ? verb : "");
    size_t i;
    if (json_object_get(s, "hang"))
        pause_for(3600);
    if (json_object_get(s, "close"))
        exit(0);
    json_array_foreach(json_object_get(s, "events"), i, event)
    {
        pause_for(json_number_value(json_array_get(event, 0)));
        tell(f, json_pack("{s:O, s:O}", "id", id, "event", json_array_get(event, 1)));
    }
    if (json_object_get(s, "line")) {
        fprintf(f, "%s\n", json_string_value(json_object_get(s, "line")));
        fflush(f);
    } else if (json_object_get(s, "answer")) {
        tell(f, json_pack("{s:O, s:b, s:O}", "id", id, "ok", 1, "answer", json_object_get(s, "answer")));
    } else if (json_object_get(s, "error")) {
        tell(f, json_pack("{s:O, s:b, s:O}", "id", id, "ok", 0, "error", json_object_get(s, "error")));
    } else {
        char text[128];
        snprintf(text, sizeof text, "the daemon has no verb \"%.64s\"", verb ? verb : "");
        tell(f, json_pack("{s:O, s:b, s:{s:s, s:i, s:s}}", "id", id, "ok", 0, "error", "class", "usage", "code", 2,
                          "message", text));
    }
}

static void serve(int fd, const char *file)
{
    FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
    json_t *script = json_load_file(file, 0, NULL), *request;
    if (!in || !out || !script)
        exit(1);
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, in) > 0) {
        request = json_loads(line, 0, NULL);
        answer(out, request, script);
        json_decref(request);
    }
    exit(0);
}

/* As the daemon does (control_announce()). */
static void announce(const char *dir)
{
    char path[256];
    const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(path, sizeof path, "%s/daemon.lock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || fcntl(fd, F_SETLK, &whole) < 0)
        perror(path);
}

int main(int argc, char **argv)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (argc < 2 || argc > 3 ||
        (size_t)snprintf(a.sun_path, sizeof a.sun_path, "%s/control.sock", argv[1]) >= sizeof a.sun_path)
        return 2;
    signal(SIGCHLD, SIG_IGN);
    unlink(a.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 16) < 0) {
        perror(a.sun_path);
        return 1;
    }
    if (argc == 3)
        announce(argv[1]);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int c = accept(fd, NULL, NULL);
        if (c < 0)
            continue;
        if (argc == 2) {
            puts("connected");
            fflush(stdout);
        } else if (fork() == 0) {
            close(fd);
            serve(c, argv[2]);
        }
        close(c);
    }
}
