/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/nbd-uri.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTENTS_NO "&extents=no"
#define SCHEME_TCP "nbd://"
#define SCHEME_UNIX "nbd+unix://"
#define PORT_DEFAULT "10809"

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

bool nbd_uri_is(const char *text)
{
    static const char *const schemes[] = {SCHEME_TCP,     SCHEME_UNIX,    "nbds://",
                                          "nbds+unix://", "nbd+vsock://", "nbds+vsock://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (begins(text, schemes[i]))
            return true;
    return false;
}

static int refuse(struct err *e, const char *text, const char *why)
{
    err_set(e, ERR_USAGE, EINVAL, "invalid address \"%.512s\" of an NBD export: %s", text, why);
    return err_hint(e, "nbd+unix:///EXPORT?socket=PATH or nbd://HOST:PORT/EXPORT is expected");
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes the bytes before `end`. NULL, or what is wrong with them. */
static const char *unescape(char *out, size_t size, const char *s, const char *end)
{
    size_t n = 0;
    while (s < end) {
        int c = (unsigned char)*s++;
        if (c == '%') {
            const int hi = s < end ? hex_value(s[0]) : -1, lo = hi >= 0 && s + 1 < end ? hex_value(s[1]) : -1;
            if (lo < 0)
                return "a percent sign without two hexadecimal digits";
            c = hi * 16 + lo;
            s += 2;
        }
        if (c < 0x20 || c == 0x7f)
            return "a control character";
        if (n + 1 >= size)
            return "a part of it is too long";
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return NULL;
}

static const char *parse_unix(struct nbd_uri *u, const char *query)
{
    if (!query || !begins(query, "socket="))
        return "there is no ?socket=PATH";
    query += strlen("socket=");
    const char *end = strchrnul(query, '&');
    u->no_extents = strcmp(end, EXTENTS_NO) == 0;
    if (*end && !u->no_extents)
        return "only the parameters socket and then extents=no are known";
    const char *wrong = unescape(u->socket, sizeof u->socket, query, end);
    return wrong ? wrong : u->socket[0] != '/' ? "the path of the socket is not absolute" : NULL;
}

static const char *parse_host(struct nbd_uri *u, const char *s, const char *end)
{
    const char *colon = NULL;
    if (memchr(s, '@', (size_t)(end - s)))
        return "a user has no meaning here";
    if (s < end && *s == '[') {
        const char *close = memchr(s, ']', (size_t)(end - s));
        if (!close || (close + 1 < end && close[1] != ':'))
            return "the brackets of its host do not match";
        colon = close + 1 < end ? close + 1 : NULL;
        const char *wrong = unescape(u->host, sizeof u->host, s + 1, close);
        if (wrong)
            return wrong;
    } else {
        colon = memchr(s, ':', (size_t)(end - s));
        const char *wrong = unescape(u->host, sizeof u->host, s, colon ? colon : end);
        if (wrong)
            return wrong;
    }
    if (!u->host[0])
        return "there is no host";
    snprintf(u->port, sizeof u->port, "%s", PORT_DEFAULT);
    if (!colon)
        return NULL;
    char *after;
    const long port = strtol(colon + 1, &after, 10);
    if (colon[1] < '0' || colon[1] > '9' || after != end || port < 1 || port > 65535)
        return "its port is no number from 1 to 65535";
    snprintf(u->port, sizeof u->port, "%ld", port);
    return NULL;
}

int nbd_uri_parse(struct nbd_uri *ret, const char *text, struct err *e)
{
    const bool unix_socket = begins(text, SCHEME_UNIX);
    *ret = (struct nbd_uri){.socket = ""};
    if (!unix_socket && !begins(text, SCHEME_TCP)) {
        if (begins(text, "nbds"))
            return refuse(e, text, "TLS is not supported");
        return refuse(e, text, nbd_uri_is(text) ? "only Unix sockets and TCP are supported" : "unknown scheme");
    }
    if (strlen(text) >= NBD_URI_MAX / 4)
        return refuse(e, "(more than 1023 bytes)", "it is too long");
    if (strchr(text, '#'))
        return refuse(e, text, "it has a fragment");
    const char *host = text + strlen(unix_socket ? SCHEME_UNIX : SCHEME_TCP);
    const char *query = strchr(host, '?'), *end = query ? query : host + strlen(host);
    const char *slash = memchr(host, '/', (size_t)(end - host));
    const char *wrong = NULL;
    if (!slash && unix_socket)
        wrong = "there is no slash before the export";
    else if (unix_socket && slash != host)
        wrong = "an address of a Unix socket has no host: three slashes are expected";
    else
        wrong = unix_socket ? parse_unix(ret, query ? query + 1 : NULL) : parse_host(ret, host, slash ? slash : end);
    if (!wrong && query && !unix_socket)
        wrong = "parameters are not known with TCP";
    if (!wrong && slash)
        wrong = unescape(ret->export, sizeof ret->export, slash + 1, end);
    return wrong ? refuse(e, text, wrong) : 0;
}

static size_t escape(char *out, size_t n, const char *s, const char *also)
{
    for (; *s && n + 4 < NBD_URI_MAX; s++) {
        const unsigned char c = (unsigned char)*s;
        if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || strchr("-._~:", c) ||
            (also && strchr(also, c)))
            out[n++] = (char)c;
        else
            n += (size_t)snprintf(out + n, NBD_URI_MAX - n, "%%%02X", c);
    }
    out[n] = '\0';
    return n;
}

void nbd_uri_text(const struct nbd_uri *u, char out[NBD_URI_MAX])
{
    const bool v6 = strchr(u->host, ':') != NULL;
    size_t n = (size_t)snprintf(out, NBD_URI_MAX, "%s", u->socket[0] ? SCHEME_UNIX : SCHEME_TCP);
    if (!u->socket[0]) {
        n += (size_t)snprintf(out + n, NBD_URI_MAX - n, "%s", v6 ? "[" : "");
        n = escape(out, n, u->host, NULL);
        n += (size_t)snprintf(out + n, NBD_URI_MAX - n, "%s:%s", v6 ? "]" : "", u->port);
    }
    n += (size_t)snprintf(out + n, NBD_URI_MAX - n, "/");
    n = escape(out, n, u->export, NULL);
    if (u->socket[0]) {
        n += (size_t)snprintf(out + n, NBD_URI_MAX - n, "?socket=");
        n = escape(out, n, u->socket, "/");
        snprintf(out + n, NBD_URI_MAX - n, "%s", u->no_extents ? EXTENTS_NO : "");
    }
}
