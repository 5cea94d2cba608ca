/* SPDX-License-Identifier: GPL-2.0-or-later */
/* format-parse.c - the JSON documents of the format blobs, validated member by member */
#include "repo/format-parse.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "chunker/hash.h"
#include "chunker/splitter.h"
#include "repo/json-member.h"

#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PACK_SIZE_DEFAULT (20u << 20)
#define PACK_SIZE_MIN (10u << 20)
#define PACK_SIZE_MAX (120u << 20)

static const char *const encryptions[] = {"AES256-GCM-HMAC-SHA256", "CHACHA20-POLY1305-HMAC-SHA256"};
static const char *const ecc_names[] = {"REED-SOLOMON-CRC32"};

const char *encryption_name(unsigned i)
{
    return i < sizeof encryptions / sizeof encryptions[0] ? encryptions[i] : NULL;
}

const char *ecc_name(unsigned i)
{
    return i < sizeof ecc_names / sizeof ecc_names[0] ? ecc_names[i] : NULL;
}

/* ---- small pieces ---- */

static int base64_digit(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(uint8_t **ret, size_t *len, const char *text, size_t text_len)
{
    uint8_t *out = malloc(text_len / 4 * 3 + 3);
    if (!out)
        return -ENOMEM;
    size_t n = 0;
    uint32_t bits = 0;
    unsigned have = 0, padding = 0;
    for (size_t i = 0; i < text_len; i++) {
        char c = text[i];
        if (c == '\r' || c == '\n')
            continue;
        int digit = base64_digit((unsigned char)c);
        if (c == '=' && have + padding >= 2 && have + padding < 4) {
            padding++;
            continue;
        }
        if (digit < 0 || padding)
            goto invalid;
        bits = bits << 6 | (uint32_t)digit;
        if (++have < 4)
            continue;
        out[n++] = (uint8_t)(bits >> 16);
        out[n++] = (uint8_t)(bits >> 8);
        out[n++] = (uint8_t)bits;
        have = 0;
    }
    if (have + padding != 0 && have + padding != 4)
        goto invalid;
    if (have == 3) {
        out[n++] = (uint8_t)(bits >> 10);
        out[n++] = (uint8_t)(bits >> 2);
    } else if (have == 2) {
        out[n++] = (uint8_t)(bits >> 4);
    }
    *ret = out;
    *len = n;
    return 0;
invalid:
    OPENSSL_cleanse(out, n);
    free(out);
    return -EINVAL;
}

/* A byte string of at most `cap` bytes; *len keeps its value if the member is absent. */
static bool member_bytes(const json_t *obj, const char *key, uint8_t *out, size_t cap, size_t *len)
{
    const json_t *v = json_member(obj, key);
    if (!v)
        return true;
    uint8_t *bytes;
    size_t n;
    if (!json_is_string(v) || base64_decode(&bytes, &n, json_string_value(v), json_string_length(v)) < 0)
        return false;
    bool fits = n <= cap;
    if (fits) {
        memcpy(out, bytes, n);
        *len = n;
    }
    OPENSSL_cleanse(bytes, n);
    free(bytes);
    return fits;
}

/* Copies a name; one that is too long is truncated, so that it can appear in a message and is then not found. */
static bool member_name(const json_t *obj, const char *key, char *out, size_t cap)
{
    const char *text = "";
    if (!json_member_text(obj, key, &text))
        return false;
    snprintf(out, cap, "%s", text);
    return true;
}

static bool two_digits(const char *p, int *ret)
{
    if (p[0] < '0' || p[0] > '9' || p[1] < '0' || p[1] > '9')
        return false;
    *ret = (p[0] - '0') * 10 + p[1] - '0';
    return true;
}

/* RFC 3339 with an offset; years that do not fit into int64 nanoseconds become the nearest that do. */
static bool parse_time(const char *s, int64_t *ret)
{
    int century, year, month, day, hour, minute, second;
    if (strlen(s) < 20 || !two_digits(s, &century) || !two_digits(s + 2, &year) || s[4] != '-' ||
        !two_digits(s + 5, &month) || s[7] != '-' || !two_digits(s + 8, &day) || s[10] != 'T' ||
        !two_digits(s + 11, &hour) || s[13] != ':' || !two_digits(s + 14, &minute) || s[16] != ':' ||
        !two_digits(s + 17, &second))
        return false;
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    year += century * 100;
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (month < 1 || month > 12 || day < 1 || day > days[month - 1] + (leap && month == 2) || hour > 23 ||
        minute > 59 || second > 59)
        return false;
    s += 19;
    int64_t fraction = 0, unit = 100000000;
    if (*s == '.' || *s == ',') {
        if (s[1] < '0' || s[1] > '9')
            return false;
        for (s++; *s >= '0' && *s <= '9'; s++, unit /= 10)
            fraction += (*s - '0') * unit;
    }
    int64_t offset = 0;
    if (*s == '+' || *s == '-') {
        int h, m;
        if (strlen(s) != 6 || !two_digits(s + 1, &h) || s[3] != ':' || !two_digits(s + 4, &m) || h > 23 || m > 59)
            return false;
        offset = (*s == '-' ? -1 : 1) * (h * 3600 + m * 60);
    } else if (strcmp(s, "Z") != 0) {
        return false;
    }
    struct tm tm = {.tm_year = year - 1900,
                    .tm_mon = month - 1,
                    .tm_mday = day,
                    .tm_hour = hour,
                    .tm_min = minute,
                    .tm_sec = second};
    int64_t seconds = (int64_t)timegm(&tm) - offset;
    if (seconds >= INT64_MAX / NS_PER_S)
        *ret = INT64_MAX;
    else if (seconds <= INT64_MIN / NS_PER_S)
        *ret = INT64_MIN;
    else
        *ret = seconds * NS_PER_S + fraction;
    return true;
}

/* ---- the outer document ---- */

static int outer_damaged(struct err *e, const char *why)
{
    int rc = err_set(e, ERR_DAMAGE, EBADMSG, "kopia.repository is damaged: %s", why);
    err_hint(e, "restore this blob from a copy; where password change is disabled, each pack starts with a copy");
    return rc;
}

void format_outer_clear(struct format_outer *o)
{
    json_decref(o->doc);
    free(o->sealed);
    memset(o, 0, sizeof *o);
}

int format_parse_outer(struct format_outer *ret, const void *data, size_t len, struct err *e)
{
    memset(ret, 0, sizeof *ret);
    CLEANUP(format_outer_clear) struct format_outer o = {.doc = NULL};
    json_error_t je;
    o.doc = json_loadb(data, len, 0, &je);
    if (!o.doc)
        return outer_damaged(e, je.text);
    if (!json_is_object(o.doc))
        return outer_damaged(e, "not a JSON object");
    char encryption[32];
    if (!member_name(o.doc, "keyAlgo", o.key_algo, sizeof o.key_algo) ||
        !member_name(o.doc, "encryption", encryption, sizeof encryption))
        return outer_damaged(e, "algorithms are not strings");
    if (!member_bytes(o.doc, "uniqueID", o.unique_id, sizeof o.unique_id, &o.unique_id_len) || o.unique_id_len == 0)
        return outer_damaged(e, "unique id missing or not base64");
    const json_t *sealed = json_member(o.doc, "encryptedBlockFormat");
    if (!json_is_string(sealed))
        return outer_damaged(e, "sealed part missing");
    int rc = base64_decode(&o.sealed, &o.sealed_len, json_string_value(sealed), json_string_length(sealed));
    if (rc == -ENOMEM)
        return err_nomem(e);
    if (rc < 0)
        return outer_damaged(e, "sealed part not base64");
    if (strcmp(encryption, "AES256_GCM") != 0)
        return err_set(e, ERR_FORMAT, ENOTSUP,
                       "kopia.repository is sealed with unsupported \"%s\" (supported: AES256_GCM)", encryption);
    *ret = o;
    o.doc = NULL;
    o.sealed = NULL;
    return 0;
}

/* ---- the inner document ---- */

static int inner_damaged(struct err *e, const char *why)
{
    return err_set(e, ERR_DAMAGE, EBADMSG, "the format inside kopia.repository is damaged: %s", why);
}

static int unknown_name(struct err *e, const char *what, const char *name)
{
    int rc = err_set(e, ERR_FORMAT, ENOTSUP, "the repository uses the %s \"%s\", which this version does not support",
                     what, name);
    err_hint(e, "upgrade snapferry: a newer version may support it");
    return rc;
}

static bool is_listed(const char *name, const char *(*list)(unsigned))
{
    for (unsigned i = 0; list(i); i++)
        if (strcmp(list(i), name) == 0)
            return true;
    return false;
}

static int check_feature(const json_t *item, struct err *e)
{
    const char *name = "", *message = "", *url = "";
    bool warn = false;
    if (!json_is_object(item) || !json_member_text(item, "feature", &name))
        return inner_damaged(e, "a required feature has no name");
    if (strcmp(name, "index-v1") == 0 || strcmp(name, "index-v2") == 0)
        return 0;
    const json_t *otherwise = json_member(item, "ifNotUnderstood");
    if (otherwise && (!json_is_object(otherwise) || !json_member_bool(otherwise, "warn", &warn) ||
                      !json_member_text(otherwise, "message", &message) || !json_member_text(otherwise, "url", &url)))
        return inner_damaged(e, "a required feature is malformed");
    if (warn) {
        log_warning("the repository uses the feature \"%.100s\", which this version does not support%s%.200s%s%.200s",
                    name, message[0] ? ": " : "", message, url[0] ? "; see " : "", url);
        return 0;
    }
    int rc = err_set(e, ERR_FORMAT, ENOTSUP,
                     "the repository requires the feature \"%.100s\", which this version does not support%s%.300s",
                     name, message[0] ? ": " : "", message);
    if (url[0])
        err_hint(e, "upgrade snapferry: a newer version may support it; see %.300s", url);
    else
        err_hint(e, "upgrade snapferry: a newer version may support it");
    return rc;
}

static int check_features(const json_t *doc, struct err *e)
{
    const json_t *list = json_member(doc, "requiredFeatures");
    if (!list)
        return 0;
    if (!json_is_array(list))
        return inner_damaged(e, "the required features are not a list");
    int rc = 0;
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = check_feature(json_array_get(list, i), e);
    return rc;
}

static int read_epochs(struct epoch_params *ep, const json_t *doc, struct err *e)
{
    const json_t *o = json_member(doc, "epochParameters");
    if (!o)
        return 0;
    int64_t checkpoint = 0, count = 0, parallel = 0;
    if (!json_is_object(o) || !json_member_bool(o, "Enabled", &ep->enabled) ||
        !json_member_int(o, "EpochRefreshFrequency", INT64_MIN, INT64_MAX, &ep->refresh_ns) ||
        !json_member_int(o, "FullCheckpointFrequency", INT_MIN, INT_MAX, &checkpoint) ||
        !json_member_int(o, "CleanupSafetyMargin", INT64_MIN, INT64_MAX, &ep->cleanup_margin_ns) ||
        !json_member_int(o, "MinEpochDuration", INT64_MIN, INT64_MAX, &ep->min_duration_ns) ||
        !json_member_int(o, "EpochAdvanceOnCountThreshold", INT_MIN, INT_MAX, &count) ||
        !json_member_int(o, "EpochAdvanceOnTotalSizeBytesThreshold", INT64_MIN, INT64_MAX, &ep->advance_bytes) ||
        !json_member_int(o, "DeleteParallelism", INT_MIN, INT_MAX, &parallel))
        return inner_damaged(e, "the epoch parameters are malformed");
    ep->full_checkpoint = (int)checkpoint;
    ep->advance_count = (int)count;
    ep->delete_parallelism = (int)parallel;
    if (!ep->enabled)
        return 0;
    static const int64_t minute = 60000000000;
    if (ep->refresh_ns < 0 || ep->refresh_ns > ep->min_duration_ns / 3 || ep->refresh_ns > ep->cleanup_margin_ns / 3 ||
        ep->full_checkpoint <= 0 || ep->min_duration_ns < 10 * minute || ep->advance_count < 10 ||
        ep->advance_bytes < 1 << 20)
        return inner_damaged(e, "the epoch parameters are contradictory or out of range");
    return 0;
}

static int read_lock(struct upgrade_lock *l, const json_t *doc, struct err *e)
{
    const json_t *o = json_member(doc, "upgradeLock");
    if (!o)
        return 0;
    const char *created = "0001-01-01T00:00:00Z";
    if (!json_is_object(o) || !member_name(o, "ownerID", l->owner, sizeof l->owner) ||
        !json_member_text(o, "creationTime", &created) || !parse_time(created, &l->creation_ns) ||
        !json_member_int(o, "advanceNoticeDuration", INT64_MIN, INT64_MAX, &l->advance_notice_ns) ||
        !json_member_int(o, "ioDrainTimeout", INT64_MIN, INT64_MAX, &l->drain_timeout_ns) ||
        !json_member_int(o, "statusPollInterval", INT64_MIN, INT64_MAX, &l->poll_ns) ||
        !json_member_int(o, "maxPermittedClockDrift", INT64_MIN, INT64_MAX, &l->clock_drift_ns))
        return inner_damaged(e, "its upgrade lock is malformed");
    l->present = true;
    return 0;
}

static int read_algorithms(struct repo_format *f, const json_t *doc, struct err *e)
{
    char ecc[40];
    int64_t percent = 0;
    if (!member_name(doc, "hash", f->hash, sizeof f->hash) ||
        !member_name(doc, "encryption", f->encryption, sizeof f->encryption) ||
        !member_name(doc, "splitter", f->splitter, sizeof f->splitter) || !member_name(doc, "ecc", ecc, sizeof ecc) ||
        !json_member_int(doc, "eccOverheadPercent", INT_MIN, INT_MAX, &percent))
        return inner_damaged(e, "the names of its algorithms are malformed");
    if (!f->hash[0] || !f->encryption[0])
        return inner_damaged(e, "hash or encryption missing");
    if (!is_listed(f->hash, hash_name))
        return unknown_name(e, "hash", f->hash);
    if (!is_listed(f->encryption, encryption_name))
        return unknown_name(e, "encryption", f->encryption);
    if (!f->splitter[0])
        snprintf(f->splitter, sizeof f->splitter, "FIXED");
    struct splitter s;
    if (splitter_by_name(&s, f->splitter) < 0)
        return unknown_name(e, "splitter", f->splitter);
    if (!ecc[0] || percent == 0)
        return 0;
    if (!is_listed(ecc, ecc_name))
        return unknown_name(e, "error correction", ecc);
    if (percent < 1 || percent > 100 || f->index_version < 2)
        return err_set(e, ERR_FORMAT, ENOTSUP, "unsupported error correction of %lld %% with index version %u",
                       (long long)percent, f->index_version);
    f->ecc_percent = (unsigned)percent;
    return 0;
}

static int read_format(struct repo_format *f, const json_t *doc, struct err *e)
{
    int64_t version = 0, index = 0, pack = 0;
    /* The version first: a newer version may have changed anything else. */
    if (!json_member_int(doc, "version", INT64_MIN, INT64_MAX, &version))
        return inner_damaged(e, "version is not a number");
    if (version < 1 || version > 3) {
        int rc = err_set(e, ERR_FORMAT, ENOTSUP, "the repository has format version %lld, this version supports 1 to 3",
                         (long long)version);
        err_hint(e, "upgrade snapferry: a newer version may support it");
        return rc;
    }
    f->version = (unsigned)version;
    int rc = check_features(doc, e);
    if (rc < 0)
        return rc;
    if (!json_member_int(doc, "indexVersion", INT_MIN, INT_MAX, &index) ||
        !json_member_int(doc, "maxPackSize", INT64_MIN, INT64_MAX, &pack) ||
        !json_member_bool(doc, "enablePasswordChange", &f->password_change) ||
        !member_bytes(doc, "secret", f->secret, sizeof f->secret, &f->secret_len) ||
        !member_bytes(doc, "masterKey", f->master_key, sizeof f->master_key, &f->master_key_len))
        return inner_damaged(e, "a member has the wrong type or length");
    if (f->master_key_len == 0)
        return inner_damaged(e, "the master key is missing");
    if (index < 0 || index > 2)
        return err_set(e, ERR_FORMAT, ENOTSUP, "the repository has index version %lld, this version supports 1 and 2",
                       (long long)index);
    f->index_version = index ? (unsigned)index : 1;
    if (pack != 0 && (pack < PACK_SIZE_MIN || pack > PACK_SIZE_MAX))
        return inner_damaged(e, "the pack size is outside 10 to 120 MiB");
    f->max_pack_size = pack ? (uint64_t)pack : PACK_SIZE_DEFAULT;
    rc = read_algorithms(f, doc, e);
    if (rc == 0)
        rc = read_epochs(&f->epochs, doc, e);
    if (rc == 0)
        rc = read_lock(&f->lock, doc, e);
    return rc;
}

/* The library's copies of secrets must not outlive the document. */
static void wipe_strings(json_t *v)
{
    if (json_is_string(v)) {
        OPENSSL_cleanse((char *)(uintptr_t)json_string_value(v), json_string_length(v));
        return;
    }
    for (void *i = json_object_iter(v); i; i = json_object_iter_next(v, i))
        wipe_strings(json_object_iter_value(i));
}

int format_parse_inner(struct repo_format *f, const void *data, size_t len, struct err *e)
{
    json_error_t je;
    json_t *doc = json_loadb(data, len, 0, &je);
    if (!doc)
        return inner_damaged(e, "not JSON");
    const json_t *format = json_member(doc, "format");
    int rc = json_is_object(format) ? read_format(f, format, e) : inner_damaged(e, "not a format document");
    wipe_strings(doc);
    json_decref(doc);
    return rc;
}

int format_parse_blobcfg(struct repo_format *f, const void *data, size_t len, struct err *e)
{
    static const int64_t day = 86400000000000;
    json_t *doc = json_loadb(data, len, 0, NULL);
    bool ok = json_is_object(doc) && member_name(doc, "retentionMode", f->retention_mode, sizeof f->retention_mode) &&
              json_member_int(doc, "retentionPeriod", 0, INT64_MAX, &f->retention_period_ns);
    json_decref(doc);
    if (!ok)
        return err_set(e, ERR_DAMAGE, EBADMSG, "malformed document in kopia.blobcfg");
    if (!f->retention_mode[0] && f->retention_period_ns == 0)
        return 0;
    if (strcmp(f->retention_mode, "GOVERNANCE") != 0 && strcmp(f->retention_mode, "COMPLIANCE") != 0)
        return err_set(e, ERR_FORMAT, ENOTSUP, "unsupported object retention \"%s\" in kopia.blobcfg",
                       f->retention_mode);
    if (f->retention_period_ns < day)
        return err_set(e, ERR_DAMAGE, EBADMSG, "object retention of less than a day in kopia.blobcfg");
    return 0;
}
