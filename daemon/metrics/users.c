/* SPDX-License-Identifier: GPL-2.0-or-later */
/* users.c - the users of basic authentication: their file, and whether a password is right */
#include "daemon/metrics/users.h"

#include "base/cleanup.h"
#include "daemon/metrics/exchange.h"

#include <crypt.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define FILE_MAX 65536
#define USERS_MAX 100
#define WRONG_PER_SECOND 3
/* Of the thread's time a tenth at most goes into hashing wrong passwords, but for some that come at once. */
#define WRONG_SHARE 10
#define WRONG_DEBT_NS INT64_C(1000000000)
/* A second each on a machine of today: while it hashes, the thread serves nobody. */
#define BCRYPT_COST_MAX 14
#define SHA_ROUNDS_MAX 2000000

struct user {
    char name[64], hash[256];
    char *right; /* the password that was right last; NULL: none yet */
};

struct users {
    struct user users[USERS_MAX];
    unsigned n;
    time_t second;
    unsigned wrong;   /* within that second */
    int64_t debt_ns;  /* WRONG_SHARE times what hashing wrong ones took, less the time that went by */
    int64_t since_ns; /* of the debt */
    struct crypt_data data;
};

/* ---- small files ---- */

static int small_path(char path[4096], const char *what, const char *name, struct err *e)
{
    const char *dir = getenv("CREDENTIALS_DIRECTORY");
    if (strncmp(name, "cred:", 5) != 0) {
        snprintf(path, 4096, "%s", name);
        return 0;
    }
    if (!dir || dir[0] != '/') {
        err_set(e, ERR_USAGE, ENOENT, "cannot read %s %s: no credentials were passed to this process", what, name);
        return err_hint(e, "cred:NAME works in a systemd unit with LoadCredential=NAME:FILE; elsewhere name a file");
    }
    snprintf(path, 4096, "%s/%s", dir, name + 5);
    return 0;
}

int small_file(char **ret, const char *what, const char *name, struct err *e)
{
    char path[4096];
    struct stat st;
    int rc = small_path(path, what, name, e);
    if (rc < 0)
        return rc;
    /* A pipe with nobody at its end must not hold the daemon up. */
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot read %s %s", what, path);
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
        return err_set(e, ERR_GENERIC, EFBIG, "%s %s is no file of at most 64 KiB", what, path);
    char *text = calloc(1, FILE_MAX + 1);
    if (!text)
        return err_nomem(e);
    ssize_t n, len = 0;
    while (len < FILE_MAX && (n = read(fd, text + len, (size_t)(FILE_MAX - len))) != 0) {
        if (n < 0) {
            rc = err_set(e, ERR_GENERIC, errno, "cannot read %s %s", what, path);
            free(text);
            return rc;
        }
        len += n;
    }
    if (strlen(text) != (size_t)len) {
        small_file_free(text);
        return err_set(e, ERR_GENERIC, EINVAL, "%s %s is no text", what, path);
    }
    *ret = text;
    return 0;
}

void small_file_free(char *text)
{
    if (!text)
        return;
    explicit_bzero(text, strlen(text));
    free(text);
}

/* ---- users ---- */

static int bad_line(unsigned line, const char *why, struct err *e)
{
    err_set(e, ERR_USAGE, EINVAL, "line %u of the users file %s", line, why);
    return err_hint(e, "a line is USER:HASH, the hash as by `htpasswd -nB USER` or `openssl passwd -6`");
}

/* Those that hash with salt and cost; also what tells a hash from a password in clear. */
static bool is_usable(const char *hash)
{
    int verdict = crypt_checksalt(hash);
    return hash[0] == '$' && (verdict == CRYPT_SALT_OK || /* SHA-256 is as good as SHA-512, whatever the library says */
                              (verdict == CRYPT_SALT_METHOD_LEGACY && !strncmp(hash, "$5$", 3)));
}

static bool is_costly(const char *hash)
{
    unsigned long n;
    if (sscanf(hash, "$2%*1[abxy]$%2lu$", &n) == 1)
        return n > BCRYPT_COST_MAX;
    return sscanf(hash, "$%*1[56]$rounds=%lu$", &n) == 1 && n > SHA_ROUNDS_MAX;
}

static int take_user(struct users *u, const char *line, size_t n, unsigned number, struct err *e)
{
    const char *colon = memchr(line, ':', n);
    struct user *at = &u->users[u->n];
    if (!colon || colon == line)
        return bad_line(number, "has no USER: before its hash", e);
    size_t name = (size_t)(colon - line), hash = n - name - 1;
    if (name >= sizeof at->name || hash >= sizeof at->hash)
        return bad_line(number, "is too long", e);
    if (u->n == USERS_MAX)
        return bad_line(number, "is one too many: at most 100 users", e);
    memcpy(at->name, line, name);
    memcpy(at->hash, colon + 1, hash);
    if (!is_usable(at->hash))
        return bad_line(number, "has no hash that can be used", e);
    if (is_costly(at->hash))
        return bad_line(number, "has a hash that takes seconds: bcrypt's cost is 14 at most, SHA's rounds 2000000", e);
    u->n++;
    return 0;
}

int users_parse(struct users **ret, const char *text, struct err *e)
{
    struct users *u = calloc(1, sizeof *u);
    unsigned number = 0;
    int rc = u ? 0 : err_nomem(e);
    for (const char *s = text; rc == 0 && *s; s += *s == '\n') {
        size_t n = strcspn(s, "\n");
        number++;
        if (n && s[n - 1] == '\r')
            n--;
        if (n && *s != '#')
            rc = take_user(u, s, n, number, e);
        s += strcspn(s, "\n");
    }
    if (rc == 0 && !u->n)
        rc = err_set(e, ERR_USAGE, EINVAL, "the users file has no user: nobody could read the metrics");
    if (rc < 0) {
        users_free(u);
        return rc;
    }
    *ret = u;
    return 0;
}

void users_free(struct users *u)
{
    if (!u)
        return;
    for (unsigned i = 0; i < USERS_MAX; i++)
        small_file_free(u->users[i].right);
    explicit_bzero(u, sizeof *u);
    free(u);
}

/* In a time that does not tell how much of it is right. */
static bool same(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned differs = n != m;
    for (size_t i = 0; i < m; i++)
        differs |= (unsigned char)(a[n ? i % n : 0] ^ b[i]);
    return !differs;
}

static bool hashes_to(struct users *u, const char *password, const char *hash)
{
    const char *h = crypt_r(password, hash, &u->data);
    bool right = h && h[0] == '$' && same(h, hash);
    explicit_bzero(&u->data, sizeof u->data);
    return right;
}

static bool too_many(struct users *u, int64_t now)
{
    time_t second = now / 1000000000;
    if (second != u->second)
        u->wrong = 0;
    u->second = second;
    u->debt_ns = u->debt_ns > now - u->since_ns ? u->debt_ns - (now - u->since_ns) : 0;
    u->since_ns = now;
    return u->wrong >= WRONG_PER_SECOND || u->debt_ns > WRONG_DEBT_NS;
}

/*
 * A user that there is not takes as long as one that there is; where kinds of hashes are mixed, as one of them, and
 * each time as the same, so that the time does not tell which names are known. FNV-1a of the name behind the hashes,
 * which nobody outside knows.
 */
static const char *some_hash(const struct users *u, const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (unsigned i = 0; i <= u->n; i++)
        for (const char *s = i < u->n ? u->users[i].hash : name; *s; s++)
            h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return u->users[(h >> 32) % u->n].hash;
}

enum users_verdict users_check(struct users *u, const char *name, const char *password)
{
    struct user *found = NULL;
    for (unsigned i = 0; i < u->n; i++)
        if (!strcmp(u->users[i].name, name))
            found = &u->users[i];
    if (found && found->right && same(found->right, password))
        return USERS_RIGHT;
    const int64_t began = monotonic_ns();
    if (too_many(u, began))
        return USERS_TOO_MANY;
    bool right = hashes_to(u, password, found ? found->hash : some_hash(u, name)) && found;
    if (!right) {
        u->wrong++;
        u->debt_ns += WRONG_SHARE * (monotonic_ns() - began);
        return USERS_WRONG;
    }
    small_file_free(found->right);
    found->right = strdup(password);
    return USERS_RIGHT;
}
