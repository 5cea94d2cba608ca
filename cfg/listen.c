/* SPDX-License-Identifier: GPL-2.0-or-later */
/* listen.c - addresses to listen on, as text */
#include "cfg/cfg.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define WHY(...) (snprintf(why, cap, __VA_ARGS__), -EINVAL)

static int parse_unix(const char *path, struct sockaddr_storage *ret, socklen_t *len, char *why, size_t cap)
{
    struct sockaddr_un *u = (struct sockaddr_un *)ret;
    if (*path != '/')
        return WHY("unix: needs an absolute path");
    if (strlen(path) >= sizeof u->sun_path)
        return WHY("path of a socket longer than %zu characters", sizeof u->sun_path - 1);
    u->sun_family = AF_UNIX;
    memcpy(u->sun_path, path, strlen(path) + 1);
    *len = sizeof *u;
    return 0;
}

static int parse_port(const char *text, in_port_t *ret)
{
    size_t n = strspn(text, "0123456789");
    unsigned long v = n && n <= 5 && !text[n] ? strtoul(text, NULL, 10) : 0;
    *ret = htons((uint16_t)v);
    return v && v <= 65535 ? 0 : -EINVAL;
}

int cfg_parse_listen(const char *word, struct sockaddr_storage *ret, socklen_t *len, char *why, size_t cap)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
    char host[64];
    in_port_t port;
    memset(ret, 0, sizeof *ret);
    if (!strncmp(word, "unix:", 5))
        return parse_unix(word + 5, ret, len, why, cap);
    const char *colon = strrchr(word, ':');
    if (!colon)
        return WHY("ADDRESS:PORT, [ADDRESS6]:PORT or unix:PATH expected");
    if (parse_port(colon + 1, &port) < 0)
        return WHY("port out of range (1 to 65535)");
    size_t n = (size_t)(colon - word);
    bool bracket = n > 2 && word[0] == '[' && word[n - 1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(bracket ? n - 2 : n), word + bracket);
    if (n >= sizeof host)
        return WHY("address too long");
    if (bracket && inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = port;
        *len = sizeof *v6;
        return 0;
    }
    if (!bracket && inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = port;
        *len = sizeof *v4;
        return 0;
    }
    return WHY("a numeric address such as 127.0.0.1, 0.0.0.0 or [::1] expected; names are not resolved");
}
