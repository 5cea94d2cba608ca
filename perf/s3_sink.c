/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * s3_sink.c - an object store for measurements: as fast as a program of a thread for each connection can be
 *
 *   s3_sink DIR PORT-FILE [DELAY-MS]
 *
 * It answers what snapferry, stock Kopia and rclone ask of S3 for buckets that are directories below DIR: PUT, GET
 * (with a range), HEAD, DELETE, ListObjectsV2 with continuation; by path, not by host name. Objects are files, "/" in a
 * key is
 * "%2F". Nothing is verified, neither signatures nor sums: it must not be what a measurement measures, and is no
 * store for data. Each answer is sent DELAY-MS later. GET /-/counts: requests and bytes since GET /-/reset, as JSON.
 *
 * PORT-FILE gets the port of 127.0.0.1 that it listens on. It ends with SIGTERM.
 */
#include "base/cleanup.h"
#include "base/time.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEAD_MAX 32768
#define BLOCK ((size_t)1 << 20)
#define PAGE_KEYS 1000

static const char *root;
static unsigned delay_ms;

enum counted { PUTS, GETS, HEADS, LISTS, DELETES, OTHERS, BYTES_IN, BYTES_OUT, COUNTED };
static const char *const count_names[COUNTED] = {"put",    "get",   "head",    "list",
                                                 "delete", "other", "bytesIn", "bytesOut"};
static _Atomic uint64_t counts[COUNTED];

static void count(enum counted c, uint64_t n)
{
    atomic_fetch_add_explicit(&counts[c], n, memory_order_relaxed);
}

static void die(const char *what)
{
    fprintf(stderr, "s3_sink: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- a connection ---- */

struct peer {
    int fd;
    char *block; /* BLOCK bytes */
    char buf[HEAD_MAX];
    size_t n, at; /* read and not used: buf[at, n) */
};

struct request {
    char method[12], path[2048], query[4096];
    uint64_t length, from, to; /* of the body; of the range, inclusive */
    bool ranged, chunked, expects, closes;
    char sum[64]; /* of the body, as the client says, base64 */
};

static bool more(struct peer *p)
{
    if (p->at == p->n)
        p->at = p->n = 0;
    if (p->n == sizeof p->buf) {
        memmove(p->buf, p->buf + p->at, p->n - p->at);
        p->n -= p->at;
        p->at = 0;
    }
    const ssize_t got = p->n < sizeof p->buf ? recv(p->fd, p->buf + p->n, sizeof p->buf - p->n, 0) : 0;
    if (got <= 0)
        return false;
    p->n += (size_t)got;
    return true;
}

/* A line without its end; NULL: there is none. Valid until the next one is read. */
static char *line(struct peer *p)
{
    for (;;) {
        char *end = p->n > p->at ? memchr(p->buf + p->at, '\n', p->n - p->at) : NULL;
        if (end) {
            char *start = p->buf + p->at;
            p->at = (size_t)(end - p->buf) + 1;
            *end = '\0';
            if (end > start && end[-1] == '\r')
                end[-1] = '\0';
            return start;
        }
        if (!more(p))
            return NULL;
    }
}

static bool send_all(const struct peer *p, const void *data, size_t n, int flags)
{
    const char *s = data;
    while (n) {
        const ssize_t sent = send(p->fd, s, n, flags | MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        s += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* n bytes of the body to a file; fd -1: they are thrown away. */
static bool take_bytes(struct peer *p, uint64_t n, int fd)
{
    count(BYTES_IN, n);
    while (n) {
        const char *s = p->buf + p->at;
        size_t have = p->n - p->at;
        if (have) {
            have = have < n ? have : (size_t)n;
            p->at += have;
        } else {
            const ssize_t got = recv(p->fd, p->block, n < BLOCK ? (size_t)n : BLOCK, 0);
            if (got <= 0)
                return false;
            s = p->block;
            have = (size_t)got;
        }
        if (fd >= 0 && write(fd, s, have) != (ssize_t)have)
            return false;
        n -= have;
    }
    return true;
}

/* aws-chunked: "hex;chunk-signature=...", the bytes, an empty line; the last one has none. */
static bool take_chunks(struct peer *p, int fd)
{
    for (;;) {
        const char *head = line(p);
        if (!head)
            return false;
        const uint64_t n = strtoull(head, NULL, 16);
        if (!take_bytes(p, n, fd))
            return false;
        do {
            head = line(p);
            if (!head)
                return false;
        } while (n == 0 && *head); /* trailers */
        if (n == 0)
            return true;
    }
}

/* ---- requests ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

static void decode(char *s)
{
    char *to = s;
    for (; *s; s++) {
        const bool escaped = *s == '%' && hex(s[1]) >= 0 && hex(s[2]) >= 0;
        *to++ = escaped ? (char)(hex(s[1]) * 16 + hex(s[2])) : *s;
        s += escaped ? 2 : 0;
    }
    *to = '\0';
}

static void header(struct request *r, char *name)
{
    char *value = strchr(name, ':');
    if (!value)
        return;
    *value++ = '\0';
    value += strspn(value, " ");
    if (!strcasecmp(name, "content-length"))
        r->length = strtoull(value, NULL, 10);
    else if (!strcasecmp(name, "x-amz-content-sha256"))
        r->chunked = !strncmp(value, "STREAMING-", 10);
    else if (!strcasecmp(name, "expect"))
        r->expects = true;
    else if (!strcasecmp(name, "connection"))
        r->closes = !strcasecmp(value, "close");
    else if (!strcasecmp(name, "content-md5"))
        snprintf(r->sum, sizeof r->sum, "%s", value);
    else if (!strcasecmp(name, "range") && !strncmp(value, "bytes=", 6)) {
        char *dash;
        r->from = strtoull(value + 6, &dash, 10);
        r->to = *dash == '-' && dash[1] ? strtoull(dash + 1, NULL, 10) : UINT64_MAX;
        r->ranged = dash != value + 6;
    }
}

static bool read_request(struct peer *p, struct request *r)
{
    char target[6144], *l = line(p), *query;
    memset(r, 0, sizeof *r);
    if (!l || sscanf(l, "%11s %6143s", r->method, target) != 2)
        return false;
    while ((l = line(p)) && *l)
        header(r, l);
    if (!l)
        return false;
    query = strchr(target, '?');
    if (query)
        *query++ = '\0';
    decode(target);
    snprintf(r->query, sizeof r->query, "%s", query ? query : "");
    snprintf(r->path, sizeof r->path, "%.*s", (int)sizeof r->path - 1, target);
    return true;
}

/* The value of a parameter of the query, decoded; "" if there is none. */
static const char *parameter(const struct request *r, const char *name, char *out, size_t cap)
{
    const size_t n = strlen(name);
    *out = '\0';
    for (const char *s = r->query; s && *s; s = strchr(s, '&'), s = s ? s + 1 : NULL) {
        if (strncmp(s, name, n) != 0 || s[n] != '=')
            continue;
        snprintf(out, cap, "%.*s", (int)strcspn(s + n + 1, "&"), s + n + 1);
        decode(out);
    }
    return out;
}

/* ---- answers ---- */

static bool answer(const struct peer *p, const char *status, uint64_t length, const char *headers, bool more_follows)
{
    char text[1024];
    const int n = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: %llu\r\n%s\r\n", status,
                           (unsigned long long)length, headers);
    if (delay_ms) {
        const struct timespec t = ns_timespec((int64_t)delay_ms * NS_PER_MS);
        nanosleep(&t, NULL);
    }
    return send_all(p, text, (size_t)n, more_follows ? MSG_MORE : 0);
}

static bool answer_text(const struct peer *p, const char *status, const char *text, bool head)
{
    const size_t n = strlen(text);
    return answer(p, status, n, "Content-Type: application/xml\r\n", n && !head) && (head || send_all(p, text, n, 0));
}

static bool answer_error(const struct peer *p, const struct request *r, const char *status, const char *code)
{
    char text[256];
    snprintf(text, sizeof text, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>%s</Message></Error>", code,
             code);
    return answer_text(p, status, text, !strcmp(r->method, "HEAD"));
}

static void file_of(const char *path, char *out, size_t cap) /* "/bucket/a/b": DIR/bucket/a%2Fb */
{
    const char *key = strchr(path + 1, '/');
    const int bucket = key ? (int)(key - path) : (int)strlen(path);
    int n = snprintf(out, cap, "%s%.*s%s", root, bucket, path, key && key[1] ? "/" : "");
    for (const char *s = key && key[1] ? key + 1 : ""; *s && n >= 0 && (size_t)n + 4 < cap; s++)
        n += snprintf(out + n, cap - (size_t)n, *s == '/' ? "%%2F" : "%c", *s);
}

static void sum_to_etag(const char *sum, char *out, size_t cap)
{
    /* Of a body whose sum the client gave. Else none that looks like one. */
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    unsigned n = 0, have = 0;
    for (; *sum && *sum != '=' && n < 32 && n + 3 < cap; sum++) {
        const char *at = strchr(digits, *sum);
        bits = bits << 6 | (uint32_t)(at ? at - digits : 0);
        for (have += 6; have >= 8 && n < 32; have -= 8)
            n += (unsigned)snprintf(out + n, cap - n, "%02x", bits >> (have - 8) & 255);
    }
    if (n != 32)
        snprintf(out, cap, "unknown-1");
}

static bool put(struct peer *p, const struct request *r, const char *file)
{
    char temporary[4200], headers[128], etag[40];
    static _Atomic unsigned serial;
    count(PUTS, 1);
    snprintf(temporary, sizeof temporary, "%s/.put-%u", root, atomic_fetch_add(&serial, 1));
    if (r->expects && !send_all(p, "HTTP/1.1 100 Continue\r\n\r\n", 25, 0))
        return false;
    CLEANUP_CLOSE int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || !(r->chunked ? take_chunks(p, fd) : take_bytes(p, r->length, fd)) || rename(temporary, file) < 0)
        return false;
    sum_to_etag(r->sum, etag, sizeof etag);
    snprintf(headers, sizeof headers, "ETag: \"%s\"\r\n", etag);
    return answer(p, "200 OK", 0, headers, false);
}

static bool get(const struct peer *p, const struct request *r, const char *file)
{
    const bool head = !strcmp(r->method, "HEAD");
    char headers[384], when[64], range[96] = "";
    struct stat st;
    struct tm tm;
    count(head ? HEADS : GETS, 1);
    CLEANUP_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return answer_error(p, r, "404 Not Found", "NoSuchKey");
    const uint64_t size = (uint64_t)st.st_size;
    uint64_t from = 0, n = size;
    if (r->ranged) {
        if (r->from >= size)
            return answer_error(p, r, "416 Range Not Satisfiable", "InvalidRange");
        from = r->from;
        n = (r->to < size ? r->to + 1 : size) - from;
        snprintf(range, sizeof range, "Content-Range: bytes %llu-%llu/%llu\r\n", (unsigned long long)from,
                 (unsigned long long)(from + n - 1), (unsigned long long)size);
    }
    strftime(when, sizeof when, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&st.st_mtime, &tm));
    snprintf(headers, sizeof headers, "ETag: \"unknown-1\"\r\nAccept-Ranges: bytes\r\nLast-Modified: %s\r\n%s", when,
             range);
    if (!answer(p, r->ranged ? "206 Partial Content" : "200 OK", n, headers, !head && n > 0))
        return false;
    off_t at = (off_t)from;
    for (uint64_t left = head ? 0 : n; left;) {
        const ssize_t sent = sendfile(p->fd, fd, &at, left);
        if (sent <= 0)
            return false;
        left -= (uint64_t)sent;
        count(BYTES_OUT, (uint64_t)sent);
    }
    return true;
}

static bool remove_object(const struct peer *p, const char *file)
{
    count(DELETES, 1);
    unlink(file);
    return answer(p, "204 No Content", 0, "", false);
}

/* ---- lists ---- */

struct names {
    char **v;
    size_t n;
};

static void names_free(struct names *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->v[i]);
    free(s->v);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Keys of a bucket that begin with `prefix` and come after `after`. */
static bool names_read(struct names *s, const char *bucket, const char *prefix, const char *after)
{
    const struct dirent *d;
    CLEANUP_CLOSEDIR DIR *dir = opendir(bucket);
    while (dir && (d = readdir(dir))) {
        if (d->d_name[0] == '.')
            continue;
        char *key = strdup(d->d_name);
        char **v = (s->n & (s->n - 1)) ? s->v : realloc(s->v, (s->n ? 2 * s->n : 1) * sizeof *v);
        if (!key || !v)
            die("memory");
        s->v = v;
        decode(key);
        if (strncmp(key, prefix, strlen(prefix)) == 0 && strcmp(key, after) > 0)
            s->v[s->n++] = key;
        else
            free(key);
    }
    if (s->n)
        qsort(s->v, s->n, sizeof *s->v, by_name);
    return dir;
}

static bool list(const struct peer *p, const struct request *r, const char *bucket)
{
    char prefix[1024], after[1100], token[1100], most_text[32], path[2200], *text = NULL;
    size_t size = 0;
    CLEANUP(names_free) struct names names = {.v = NULL};
    count(LISTS, 1);
    parameter(r, "prefix", prefix, sizeof prefix);
    parameter(r, "start-after", after, sizeof after);
    parameter(r, "continuation-token", token, sizeof token);
    const unsigned long asked = strtoul(parameter(r, "max-keys", most_text, sizeof most_text), NULL, 10);
    const size_t most = asked && asked < PAGE_KEYS ? asked : PAGE_KEYS;
    if (!names_read(&names, bucket, prefix, *token ? token : after))
        return answer_error(p, r, "404 Not Found", "NoSuchBucket");
    FILE *out = open_memstream(&text, &size);
    if (!out)
        die("memory");
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
            "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>%s</Name><Prefix>%s</Prefix><MaxKeys>%zu</MaxKeys>"
            "<IsTruncated>%s</IsTruncated>",
            strrchr(bucket, '/') + 1, prefix, most, names.n > most ? "true" : "false");
    for (size_t i = 0; i < names.n && i < most; i++) {
        char file[1300], when[64], object[1200];
        struct stat st;
        struct tm tm;
        snprintf(object, sizeof object, "/b/%s", names.v[i]);
        file_of(object, path, sizeof path);
        snprintf(file, sizeof file, "%s/%s", bucket, path + strlen(root) + 3);
        if (stat(file, &st) < 0)
            continue;
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", gmtime_r(&st.st_mtime, &tm));
        fprintf(out,
                "<Contents><Key>%s</Key><LastModified>%s.%03ldZ</LastModified><ETag>\"unknown-1\"</ETag>"
                "<Size>%lld</Size><StorageClass>STANDARD</StorageClass></Contents>",
                names.v[i], when, st.st_mtim.tv_nsec / 1000000, (long long)st.st_size);
    }
    if (names.n > most)
        fprintf(out, "<NextContinuationToken>%s</NextContinuationToken>", names.v[most - 1]);
    fprintf(out, "</ListBucketResult>");
    fclose(out);
    const bool ok = answer_text(p, "200 OK", text, false);
    free(text);
    return ok;
}

/* ---- the rest ---- */

static bool counted(const struct peer *p, const struct request *r)
{
    char text[512] = "{";
    size_t n = 1;
    for (unsigned i = 0; i < COUNTED; i++) {
        const uint64_t v = strcmp(r->path, "/-/reset") ? counts[i] : atomic_exchange(&counts[i], 0);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\"%s\":%llu", i ? "," : "", count_names[i],
                              (unsigned long long)v);
    }
    snprintf(text + n, sizeof text - n, "}\n");
    return answer_text(p, "200 OK", text, false);
}

static bool of_bucket(const struct peer *p, const struct request *r, const char *dir)
{
    if (!strcmp(r->method, "PUT"))
        return mkdir(dir, 0755) == 0 || errno == EEXIST
                   ? answer(p, "200 OK", 0, "", false)
                   : answer_error(p, r, "500 Internal Server Error", "InternalError");
    if (!strcmp(r->method, "HEAD"))
        return access(dir, F_OK) == 0 ? answer(p, "200 OK", 0, "", false)
                                      : answer_error(p, r, "404 Not Found", "NoSuchBucket");
    if (strstr(r->query, "location"))
        return answer_text(p, "200 OK", "<?xml version=\"1.0\"?><LocationConstraint/>", false);
    if (strstr(r->query, "object-lock"))
        return answer_error(p, r, "404 Not Found", "ObjectLockConfigurationNotFoundError");
    if (strstr(r->query, "versioning"))
        return answer_text(p, "200 OK", "<?xml version=\"1.0\"?><VersioningConfiguration/>", false);
    return list(p, r, dir);
}

static bool serve(struct peer *p)
{
    struct request r;
    char file[4096];
    if (!read_request(p, &r))
        return false;
    if (!strncmp(r.path, "/-/", 3))
        return counted(p, &r) && !r.closes;
    if (r.path[0] != '/' || !r.path[1] || strstr(r.path, ".."))
        return answer_error(p, &r, "400 Bad Request", "InvalidURI") && false;
    file_of(r.path, file, sizeof file);
    const char *key = strchr(r.path + 1, '/');
    const bool object = key && key[1];
    bool ok;
    if (object && !strcmp(r.method, "PUT"))
        return put(p, &r, file) && !r.closes;
    if (!take_bytes(p, r.length, -1))
        return false;
    if (!object)
        ok = of_bucket(p, &r, file);
    else if (!strcmp(r.method, "DELETE"))
        ok = remove_object(p, file);
    else if (!strcmp(r.method, "GET") || !strcmp(r.method, "HEAD"))
        ok = get(p, &r, file);
    else
        ok = answer_error(p, &r, "501 Not Implemented", "NotImplemented");
    return ok && !r.closes;
}

static void *connection(void *arg)
{
    struct peer *p = arg;
    while (serve(p))
        ;
    close(p->fd);
    free(p->block);
    free(p);
    return NULL;
}

static int listen_on(const char *port_file)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 128) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        die("cannot listen on 127.0.0.1");
    FILE *f = fopen(port_file, "we");
    if (!f || fprintf(f, "%u\n", ntohs(a.sin_port)) < 0 || fclose(f) != 0)
        die(port_file);
    return fd;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: s3_sink DIR PORT-FILE [DELAY-MS]\n");
        return 2;
    }
    root = argv[1];
    delay_ms = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
    signal(SIGPIPE, SIG_IGN);
    const int fd = listen_on(argv[2]), on = 1;
    for (;;) {
        pthread_t t;
        struct peer *p = calloc(1, sizeof *p);
        if (!p || !(p->block = malloc(BLOCK)))
            die("memory");
        p->fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (p->fd < 0)
            die("accept");
        setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (pthread_create(&t, NULL, connection, p) != 0)
            die("pthread_create");
        pthread_detach(t);
    }
}
