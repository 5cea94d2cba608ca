/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/s3-class.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "repo/json-member.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    char prefix[BLOB_NAME_MAX + 1], class[S3_CLASS_MAX + 1];
};

struct s3_classes {
    pthread_mutex_t lock; /* of the next */
    bool read, told;
    struct entry *all;
    size_t n;
};

struct s3_classes *s3_classes_new(struct err *e)
{
    struct s3_classes *c = calloc(1, sizeof *c);
    if (!c) {
        err_nomem(e);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

void s3_classes_free(struct s3_classes *c)
{
    if (!c)
        return;
    pthread_mutex_destroy(&c->lock);
    free(c->all);
    free(c);
}

/* ---- the document ---- */

static int malformed(const char *where, const char *why, struct err *e)
{
    err_set(e, ERR_USAGE, EINVAL, "the storage classes in " S3_CLASS_OBJECT " of %s are malformed: %s", where, why);
    return err_hint(e, "correct the object or delete it; it is as in "
                       "{\"blobOptions\": [{\"prefix\": \"p\", \"storageClass\": \"STANDARD_IA\"}]}");
}

/* Part of a header: nothing that could end it. */
static bool is_class(const char *text)
{
    return strlen(text) <= S3_CLASS_MAX &&
           text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")] == '\0';
}

/* What cannot be read at once. GLACIER_IR can. */
static bool is_archive(const char *class)
{
    return !strcasecmp(class, "GLACIER") || !strcasecmp(class, "DEEP_ARCHIVE");
}

static bool begins_with(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

/* Whether entry i decides about any of the blobs whose names begin with `kind`: an earlier one may have them all. */
static bool concerns(const struct entry *all, size_t i, const char *kind)
{
    const char *common = strlen(all[i].prefix) > strlen(kind) ? all[i].prefix : kind;
    if (!begins_with(common, all[i].prefix) || !begins_with(common, kind))
        return false;
    for (size_t j = 0; j < i; j++)
        if (begins_with(common, all[j].prefix))
            return false;
    return true;
}

/* All kinds of blobs but packs of data. */
static int check_archives(const struct entry *all, size_t n, const char *where, struct err *e)
{
    static const struct {
        const char *prefix, *what;
    } kinds[] = {{"q", "packs of metadata"},
                 {"x", "indexes"},
                 {"n", "indexes"},
                 {"kopia.", "the format"},
                 {"_", "logs"},
                 {"s", "markers of sessions"},
                 {"m", "records of indexes"},
                 {"l", "records of indexes"}};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; is_archive(all[i].class) && k < sizeof kinds / sizeof *kinds; k++) {
            if (!concerns(all, i, kinds[k].prefix))
                continue;
            err_set(e, ERR_USAGE, EINVAL,
                    S3_CLASS_OBJECT " of %s puts what begins with \"%.20s\" (%s) into the archive %s, where it cannot "
                                    "be read at once",
                    where, kinds[k].prefix, kinds[k].what, all[i].class);
            return err_hint(e, "an archive is at most for packs of data, prefix \"p\"; use GLACIER_IR or STANDARD_IA, "
                               "or correct the object");
        }
    return 0;
}

/* As stock Kopia has it: without a prefix it is for all blobs, without a class they get what the bucket has. */
static int take_entry(struct entry *to, const json_t *item, const char *where, struct err *e)
{
    const char *prefix = "", *class = "";
    if (!json_is_object(item) || !json_member_text(item, "prefix", &prefix) ||
        !json_member_text(item, "storageClass", &class))
        return malformed(where, "prefix and storageClass in an entry of blobOptions must be strings", e);
    if (strlen(prefix) > BLOB_NAME_MAX)
        return malformed(where, "a prefix is longer than the name of any blob", e);
    if (!is_class(class))
        return malformed(where, "a storageClass has other characters than letters, digits and _-., or is too long", e);
    snprintf(to->prefix, sizeof to->prefix, "%s", prefix);
    snprintf(to->class, sizeof to->class, "%s", class);
    return 0;
}

/* What the object has at the place of an error is part of the message: nothing that a terminal obeys. */
static void only_printable(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

int s3_classes_parse(struct s3_classes *c, const void *text, size_t len, const char *where, struct err *e)
{
    json_error_t why;
    if (len > S3_CLASS_BYTES_MAX)
        return malformed(where, "it has more than 64 KiB", e);
    CLEANUP_JSON json_t *doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (!doc) {
        char at[160];
        snprintf(at, sizeof at, "line %d: %.120s", why.line, why.text);
        only_printable(at);
        return malformed(where, at, e);
    }
    const json_t *options = json_member(doc, "blobOptions");
    if (!json_is_object(doc) || (options && !json_is_array(options)))
        return malformed(where, "it is no object whose member blobOptions is a list", e);
    const size_t n = json_array_size(options);
    if (n > S3_CLASS_ENTRIES_MAX)
        return malformed(where, "it has more than 256 entries", e);
    CLEANUP_FREE struct entry *all = calloc(n + 1, sizeof *all);
    if (!all)
        return err_nomem(e);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = take_entry(&all[i], json_array_get(options, i), where, e);
    if (rc == 0)
        rc = check_archives(all, n, where, e);
    if (rc < 0)
        return rc;
    free(c->all);
    c->all = take_ptr(&all);
    c->n = n;
    return 0;
}

const char *s3_classes_find(const struct s3_classes *c, const char *blob)
{
    for (size_t i = 0; i < c->n; i++)
        if (begins_with(blob, c->all[i].prefix))
            return c->all[i].class;
    return "";
}

/* ---- the object ---- */

struct answer {
    uint8_t data[S3_CLASS_BYTES_MAX];
    size_t len;
    bool too_long;
};

static int restart_answer(void *arg)
{
    ((struct answer *)arg)->len = 0;
    return 0;
}

static int sink_answer(struct s3_exchange *x, const void *data, size_t len)
{
    struct answer *a = x->arg;
    if (len > sizeof a->data - a->len) {
        a->too_long = true;
        return -EFBIG;
    }
    memcpy(a->data + a->len, data, len);
    a->len += len;
    return 0;
}

static int read_object(struct s3_store *s, struct err *e)
{
    char what[400];
    CLEANUP_FREE struct answer *a = malloc(sizeof *a);
    if (!a)
        return err_nomem(e);
    a->len = 0;
    a->too_long = false;
    snprintf(what, sizeof what, "read the storage classes (" S3_CLASS_OBJECT ") in %s", s->base.location);
    struct s3_call q = {.s = s, .method = "GET", .name = S3_CLASS_OBJECT, .query = "", .restart = restart_answer};
    q.x.sink = sink_answer;
    q.x.arg = a;
    const int rc = s3_call(&q, e);
    if (rc < 0 || s3_missing(&q))
        return rc;
    if (a->too_long)
        return malformed(s->base.location, "it has more than 64 KiB", e);
    return s3_succeeded(&q) ? s3_classes_parse(s->classes, a->data, a->len, s->base.location, e)
                            : s3_call_failed(&q, what, e);
}

static int read_locked(struct s3_store *s, struct err *e)
{
    const int rc = s->classes->read ? 0 : read_object(s, e);
    s->classes->read |= rc == 0;
    return rc;
}

int s3_classes_read(struct s3_store *s, struct err *e)
{
    pthread_mutex_lock(&s->classes->lock);
    const int rc = read_locked(s, e);
    pthread_mutex_unlock(&s->classes->lock);
    return rc;
}

/* By who writes, once: a look at the repository every few minutes does not repeat it. */
static void tell_archive(struct s3_store *s)
{
    struct s3_classes *c = s->classes;
    for (size_t i = 0; i < c->n && !c->told; i++) {
        if (!is_archive(c->all[i].class) || !concerns(c->all, i, "p"))
            continue;
        c->told = true;
        log_warning(S3_CLASS_OBJECT " of %s puts packs of data into the archive %s: nothing can be restored, verified, "
                                    "copied or rewritten by maintenance before they are restored there, which takes "
                                    "hours; with GLACIER_IR they can be read at once",
                    s->base.location, c->all[i].class);
    }
}

int s3_class_of(struct s3_store *s, const char *blob, char out[S3_CLASS_MAX + 1], struct err *e)
{
    struct s3_classes *c = s->classes;
    out[0] = '\0';
    pthread_mutex_lock(&c->lock);
    const int rc = read_locked(s, e);
    if (rc == 0)
        tell_archive(s);
    if (rc == 0)
        snprintf(out, S3_CLASS_MAX + 1, "%s", s3_classes_find(c, blob));
    pthread_mutex_unlock(&c->lock);
    return rc;
}
