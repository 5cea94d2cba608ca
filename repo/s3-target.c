/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/s3-target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PROXY_PORT 1080 /* of libcurl, where a proxy is named without one */

/* "HOST", "HOST:PORT", "[ADDRESS]" or "[ADDRESS]:PORT", of `len` bytes. */
static bool target_parse(struct s3_target *ret, const char *text, size_t len, uint16_t port)
{
    const bool brackets = len > 0 && text[0] == '[';
    const char *end = brackets ? memchr(text, ']', len) : memchr(text, ':', len);
    if (brackets && !end)
        return false;
    const char *host = text + brackets;
    const size_t n = end ? (size_t)(end - host) : len;
    const char *rest = end ? end + brackets : text + len;
    if (n == 0 || n >= sizeof ret->host)
        return false;
    *ret = (struct s3_target){.port = port};
    memcpy(ret->host, host, n);
    if (rest == text + len)
        return true;
    char digits[8] = "";
    const size_t left = (size_t)(text + len - rest) - 1;
    if (*rest != ':' || left == 0)
        return *rest == ':';
    if (left > 5 || strspn(rest + 1, "0123456789") < left)
        return false;
    memcpy(digits, rest + 1, left);
    const unsigned long number = strtoul(digits, NULL, 10);
    ret->port = (uint16_t)number;
    return number > 0 && number <= UINT16_MAX;
}

static const char *variable(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

const char *s3_proxy_variable(const char *scheme)
{
    /* Not HTTP_PROXY: in a CGI program that is a header of a request. */
    const char *v = !strcmp(scheme, "http") ? variable("http_proxy") : variable("https_proxy");
    if (!v && strcmp(scheme, "http") != 0)
        v = variable("HTTPS_PROXY");
    if (!v)
        v = variable("all_proxy");
    return v ? v : variable("ALL_PROXY");
}

unsigned s3_targets(struct s3_target ret[S3_TARGETS_MAX], const char *scheme, const char *host)
{
    unsigned n = target_parse(&ret[0], host, strlen(host), !strcmp(scheme, "http") ? 80 : 443);
    const char *proxy = s3_proxy_variable(scheme), *rest = proxy ? strstr(proxy, "://") : NULL;
    if (!proxy)
        return n;
    const uint16_t port = rest && !strncasecmp(proxy, "https:", 6) ? 443 : PROXY_PORT;
    rest = rest ? rest + 3 : proxy;
    size_t len = strcspn(rest, "/");
    const char *user = memrchr(rest, '@', len);
    if (user) {
        len -= (size_t)(user + 1 - rest);
        rest = user + 1;
    }
    return n + target_parse(&ret[n], rest, len, port);
}

void s3_proxy_by_name(char *ret, size_t cap, const char *proxy)
{
    const char *scheme = !proxy                                ? NULL
                         : !strncasecmp(proxy, "socks5://", 9) ? "socks5h"
                         : !strncasecmp(proxy, "socks4://", 9) ? "socks4a"
                         : !strncasecmp(proxy, "socks://", 8)  ? "socks4a"
                                                               : NULL;
    if (!scheme || (size_t)snprintf(ret, cap, "%s%s", scheme, strstr(proxy, "://")) >= cap)
        ret[0] = '\0';
}
