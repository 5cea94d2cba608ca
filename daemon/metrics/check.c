/* SPDX-License-Identifier: GPL-2.0-or-later */
/* check.c - whether this machine has what [metrics] names */
#include "daemon/metrics/check.h"

#include "base/cleanup.h"
#include "daemon/metrics/users.h"

#include <errno.h>
#include <grp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define SOON (14 * 86400)

static void where_of(const struct cfg *c, const char *key, char where[CFG_ORIGIN_MAX])
{
    cfg_where(c, "metrics", "", key, where);
}

static void complain_err(struct cfg *c, const char *key, const struct err *e)
{
    char where[CFG_ORIGIN_MAX];
    where_of(c, key, where);
    cfg_complain(c, CFG_ERROR, where, e->hint, "%s: %s", key, e->msg);
}

/* Credentials are systemd's, and guarded by it; a check outside of the unit does not see them. */
static bool is_credential(const char *name)
{
    return !strncmp(name, "cred:", 5) && !getenv("CREDENTIALS_DIRECTORY");
}

/* `may_read`: others reading it is no harm. */
static void check_mode(struct cfg *c, const char *key, const char *path, bool may_read)
{
    struct stat st;
    char where[CFG_ORIGIN_MAX];
    if (*path != '/' || stat(path, &st) < 0)
        return;
    where_of(c, key, where);
    if (st.st_mode & S_IWOTH || (geteuid() == 0 && st.st_uid != 0 && st.st_mode & S_IWUSR))
        cfg_complain(c, CFG_ERROR, where, "make it root's, and chmod o-w it", "%s: others than root can change %s", key,
                     path);
    else if (!may_read && st.st_mode & S_IROTH)
        cfg_complain(c, CFG_WARNING, where, "chmod o-r it", "%s: everybody can read %s", key, path);
}

/* ---- TLS ---- */

static void check_dates(struct cfg *c, X509 *cert)
{
    char where[CFG_ORIGIN_MAX];
    time_t now = time(NULL), soon = now + SOON;
    where_of(c, "tls-certificate", where);
    if (X509_cmp_time(X509_get0_notAfter(cert), &now) < 0)
        cfg_complain(c, CFG_WARNING, where, "renew it; a reload reads it again", "tls-certificate: it has expired");
    else if (X509_cmp_time(X509_get0_notAfter(cert), &soon) < 0)
        cfg_complain(c, CFG_WARNING, where, "renew it; a reload reads it again",
                     "tls-certificate: it expires within 14 days");
    if (X509_cmp_time(X509_get0_notBefore(cert), &now) > 0)
        cfg_complain(c, CFG_WARNING, where, NULL, "tls-certificate: it is not valid yet");
}

static void check_pair(struct cfg *c, const char *cert_text, const char *key_text)
{
    BIO *a = BIO_new_mem_buf(cert_text, -1), *b = BIO_new_mem_buf(key_text, -1);
    X509 *cert = a ? PEM_read_bio_X509(a, NULL, NULL, NULL) : NULL;
    EVP_PKEY *key = b ? PEM_read_bio_PrivateKey(b, NULL, NULL, (void *)"") : NULL;
    char where[CFG_ORIGIN_MAX];
    where_of(c, cert ? "tls-key" : "tls-certificate", where);
    if (!cert)
        cfg_complain(c, CFG_ERROR, where, NULL, "tls-certificate: there is no certificate in PEM in it");
    else if (!key)
        cfg_complain(c, CFG_ERROR, where, "a key with a passphrase cannot be used",
                     "tls-key: there is no private key in PEM in it");
    else if (X509_check_private_key(cert, key) != 1)
        cfg_complain(c, CFG_ERROR, where, NULL, "tls-key: it is not the key of tls-certificate");
    if (cert)
        check_dates(c, cert);
    ERR_clear_error();
    EVP_PKEY_free(key);
    X509_free(cert);
    BIO_free(a);
    BIO_free(b);
}

static void check_tls(struct cfg *c, const struct cfg_metrics *m)
{
    struct err e = ERR_INIT;
    char *cert = NULL, *key = NULL;
    if (!m->tls_certificate[0] || !m->tls_key[0] || is_credential(m->tls_certificate) || is_credential(m->tls_key))
        return;
    if (small_file(&cert, "the certificate", m->tls_certificate, &e) < 0)
        complain_err(c, "tls-certificate", &e);
    else if (small_file(&key, "the key", m->tls_key, &e) < 0)
        complain_err(c, "tls-key", &e);
    else
        check_pair(c, cert, key);
    check_mode(c, "tls-certificate", m->tls_certificate, true);
    check_mode(c, "tls-key", m->tls_key, false);
    small_file_free(cert);
    small_file_free(key);
}

/* ---- the rest ---- */

static void check_users(struct cfg *c, const struct cfg_metrics *m)
{
    struct err e = ERR_INIT;
    struct users *u = NULL;
    char *text = NULL;
    if (!m->users_file[0] || is_credential(m->users_file))
        return;
    if (small_file(&text, "the users file", m->users_file, &e) < 0 || users_parse(&u, text, &e) < 0)
        complain_err(c, "users-file", &e);
    check_mode(c, "users-file", m->users_file, false);
    users_free(u);
    small_file_free(text);
}

static void check_group(struct cfg *c, const struct cfg_metrics *m)
{
    char buf[16384], where[CFG_ORIGIN_MAX];
    struct group g, *found = NULL;
    if (!m->unix_group[0] || (getgrnam_r(m->unix_group, &g, buf, sizeof buf, &found) == 0 && found))
        return;
    where_of(c, "unix-group", where);
    cfg_complain(c, CFG_ERROR, where, NULL, "unix-group: there is no group %s", m->unix_group);
}

/* A directory that must be there; the file in it is made by the daemon. */
static void check_directory(struct cfg *c, const char *key, const char *path)
{
    char dir[4096], where[CFG_ORIGIN_MAX];
    struct stat st;
    snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = '\0';
    if (stat(dir[0] ? dir : "/", &st) == 0 && S_ISDIR(st.st_mode))
        return;
    where_of(c, key, where);
    cfg_complain(c, CFG_WARNING, where, "it is tried again while the daemon runs", "%s: there is no directory %s", key,
                 dir);
}

void metrics_config_check(struct cfg *c)
{
    const struct cfg_metrics *m = cfg_metrics(c);
    check_tls(c, m);
    check_users(c, m);
    check_group(c, m);
    for (const char *const *w = m->listen; w && *w; w++)
        if (!strncmp(*w, "unix:/", 6))
            check_directory(c, "listen", *w + 5);
    if (m->textfile[0] == '/')
        check_directory(c, "textfile", m->textfile);
}
