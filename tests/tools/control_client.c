/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * control_client - clients of the control socket that the command would never be
 *
 * control_client SOCKET say            lines of standard input to the socket, answers to standard output until it ends
 * or nothing comes for 2 s; exit 3 if the daemon ended the connection control_client SOCKET mute N SECONDS N
 * connections that ask for status all the time and read nothing control_client SOCKET hold N SECONDS N connections that
 * say nothing control_client SOCKET half N SECONDS N connections that begin a request control_client SOCKET noise N N
 * connections of random bytes, one after the other
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define N_MAX 1024

static int dial(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
        perror(path);
        exit(1);
    }
    return fd;
}

static int say(const char *path)
{
    static char buf[1 << 16];
    int fd = dial(path);
    for (size_t n; (n = fread(buf, 1, sizeof buf, stdin)) > 0;)
        for (size_t at = 0; at < n;) {
            ssize_t w = send(fd, buf + at, n - at, MSG_NOSIGNAL);
            if (w < 0)
                return 3;
            at += (size_t)w;
        }
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 2000) > 0) {
        ssize_t r = recv(fd, buf, sizeof buf, 0);
        if (r <= 0)
            return 3;
        fwrite(buf, 1, (size_t)r, stdout);
        fflush(stdout);
    }
    return 0;
}

static int crowd(const char *path, const char *what, unsigned n, unsigned seconds)
{
    static int fds[N_MAX];
    static const char status[] = "{\"id\":1,\"verb\":\"status\"}\n", half[] = "{\"id\":1,\"ver";
    if (n > N_MAX)
        n = N_MAX;
    for (unsigned i = 0; i < n; i++) {
        fds[i] = dial(path);
        if (!strcmp(what, "half"))
            (void)!send(fds[i], half, sizeof half - 1, MSG_NOSIGNAL);
    }
    for (time_t end = time(NULL) + (time_t)seconds; time(NULL) < end;) {
        for (unsigned i = 0; i < n && !strcmp(what, "mute"); i++)
            for (int k = 0; k < 50; k++)
                (void)!send(fds[i], status, sizeof status - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return 0;
}

static int noise(const char *path, unsigned n)
{
    static uint8_t buf[1 << 15];
    uint64_t seed = 4711;
    for (unsigned i = 0; i < n; i++) {
        int fd = dial(path);
        for (size_t b = 0; b < sizeof buf; b++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            buf[b] = (uint8_t)(seed >> 56);
        }
        (void)!send(fd, buf, 1 + (seed >> 40) % sizeof buf, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[2], "say"))
        return say(argv[1]);
    if (argc == 4 && !strcmp(argv[2], "noise"))
        return noise(argv[1], (unsigned)strtoul(argv[3], NULL, 10));
    if (argc == 5)
        return crowd(argv[1], argv[2], (unsigned)strtoul(argv[3], NULL, 10), (unsigned)strtoul(argv[4], NULL, 10));
    return 2;
}
