/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/agent/job.h"

#include "daemon/mover/backup-records.h"

#include "base/cleanup.h"
#include "daemon/protocol/mover-wire.h"
#include "repo/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_MAX 4095
#define CA_MAX (4u << 20) /* the system's bundle has a quarter of a MiB */

static int job_refuse(struct err *e, const char *where, const char *what)
{
    err_set(e, ERR_USAGE, EINVAL, "the job's member \"%.100s\" %s", where, what);
    return -EINVAL;
}

/* ---- members ---- */

static bool has_controls(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return true;
    return false;
}

/* A file may have any name: it is made printable where it is logged or shown. */
static int member_file_name(const json_t *o, const char *name, const char **ret, struct err *e)
{
    const json_t *v = json_object_get(o, name);
    *ret = json_string_value(v);
    if (!*ret || !**ret)
        return job_refuse(e, name, !v || json_is_null(v) ? "is missing" : *ret ? "is empty" : "is not a string");
    return json_string_length(v) > TEXT_MAX ? job_refuse(e, name, "is too long") : 0;
}

static int member_text(const json_t *o, const char *name, bool required, size_t max, const char **ret, struct err *e)
{
    const json_t *v = json_object_get(o, name);
    *ret = NULL;
    if (!v || json_is_null(v))
        return required ? job_refuse(e, name, "is missing") : 0;
    const char *s = json_string_value(v);
    if (!s)
        return job_refuse(e, name, "is not a string");
    size_t len = json_string_length(v);
    if (len > max)
        return job_refuse(e, name, "is too long");
    if (has_controls(s, len))
        return job_refuse(e, name, "has control characters");
    if (!len && required)
        return job_refuse(e, name, "is empty");
    *ret = len ? s : NULL;
    return 0;
}

static int member_path(const json_t *o, const char *name, bool required, const char **ret, struct err *e)
{
    int rc = member_text(o, name, required, TEXT_MAX, ret, e);
    return rc == 0 && *ret && **ret != '/' ? job_refuse(e, name, "is not an absolute path") : rc;
}

static int member_number(const json_t *o, const char *name, int64_t min, int64_t max, int64_t missing, int64_t *ret,
                         struct err *e)
{
    const json_t *v = json_object_get(o, name);
    *ret = missing;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_integer(v))
        return job_refuse(e, name, "is not an integer");
    if (json_integer_value(v) < min || json_integer_value(v) > max)
        return job_refuse(e, name, "is out of range");
    *ret = json_integer_value(v);
    return 0;
}

static int member_flag(const json_t *o, const char *name, bool *ret, struct err *e)
{
    const json_t *v = json_object_get(o, name);
    *ret = json_is_true(v);
    return v && !json_is_boolean(v) && !json_is_null(v) ? job_refuse(e, name, "is neither true nor false") : 0;
}

static int member_object(const json_t *o, const char *name, bool required, json_t **ret, struct err *e)
{
    json_t *v = json_object_get(o, name);
    *ret = NULL;
    if (!v || json_is_null(v))
        return required ? job_refuse(e, name, "is missing") : 0;
    if (!json_is_object(v))
        return job_refuse(e, name, "is not an object");
    *ret = v;
    return 0;
}

static bool is_manifest_id(const char *s)
{
    return s && strlen(s) == 32 && strspn(s, "0123456789abcdef") == 32;
}

int job_ids(const json_t *list, const char *where, char (**ret)[33], size_t *n, struct err *e)
{
    if (!json_is_array(list))
        return job_refuse(e, where, "is not a list");
    *n = json_array_size(list);
    *ret = calloc(*n + 1, sizeof **ret);
    if (!*ret)
        return err_nomem(e);
    for (size_t i = 0; i < *n; i++) {
        const char *id = json_string_value(json_array_get(list, i));
        if (!is_manifest_id(id)) {
            free(*ret);
            *ret = NULL;
            return job_refuse(e, where, "has an entry that is not a snapshot id (32 hex digits)");
        }
        memcpy((*ret)[i], id, 33);
    }
    return 0;
}

int job_keep_parse(struct job_keep *ret, const json_t *j, const char *where, struct err *e)
{
    struct {
        const char *name;
        int *n;
    } const members[] = {
        {"latest", &ret->latest}, {"hourly", &ret->hourly},   {"daily", &ret->daily},
        {"weekly", &ret->weekly}, {"monthly", &ret->monthly}, {"annual", &ret->annual},
    };
    if (!json_is_object(j))
        return job_refuse(e, where, "is not an object");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        int64_t v;
        int rc = member_number(j, members[i].name, -1, INT32_MAX, -1, &v, e);
        if (rc < 0)
            return err_wrap(e, "%.100s", where);
        *members[i].n = (int)v;
    }
    return 0;
}

/* ---- kinds ---- */

/* With the list that comes with the job: of what changed, or of what is allocated. */
static int list_members(struct job *j, struct err *e)
{
    json_t *o, *allocated;
    int rc = member_object(j->doc, "incremental", false, &o, e);
    if (rc == 0)
        rc = member_object(j->doc, "allocated", false, &allocated, e);
    if (rc < 0 || (!o && !allocated))
        return rc;
    if (o && allocated)
        return job_refuse(e, "allocated", "excludes \"incremental\"");
    j->allocated = allocated != NULL;
    if (o) {
        rc = member_text(o, "parent", true, 32, &j->parent, e);
        if (rc == 0 && !is_manifest_id(j->parent))
            rc = job_refuse(e, "incremental.parent", "is not a snapshot id (32 hex digits)");
        if (rc == 0)
            rc = member_text(o, "change_id", true, 255, &j->parent_state, e);
    } else {
        o = allocated;
    }
    if (rc == 0)
        rc = member_text(o, "source", true, 127, &j->tracker, e);
    if (rc == 0)
        rc = member_number(o, "sample_ppm", 0, 1000000, 0, &j->sample_ppm, e);
    if (rc == 0)
        rc = member_number(o, "sample_s", 0, INT32_MAX, 0, &j->sample_s, e);
    return rc;
}

static int backup_members(struct job *j, struct err *e)
{
    json_t *source, *keep;
    const char *unused;
    int rc = member_object(j->doc, "source", true, &source, e);
    if (rc == 0)
        rc = member_file_name(source, "name", &j->source_name, e);
    if (rc == 0)
        rc = member_text(source, "address", false, TEXT_MAX, &j->source_address, e);
    if (rc == 0)
        rc = member_text(source, "id", false, TEXT_MAX, &unused, e);
    if (rc == 0)
        rc = member_number(source, "size", -1, INT64_MAX, -1, &j->source_size, e);
    if (rc == 0)
        rc = member_text(j->doc, "as", true, TEXT_MAX, &j->as, e);
    if (rc == 0)
        rc = member_text(j->doc, "splitter", false, 39, &j->splitter, e);
    if (rc == 0)
        rc = member_text(j->doc, "compression", false, 39, &j->compression, e);
    if (rc == 0)
        rc = member_text(j->doc, "description", false, 1023, &j->description, e);
    if (rc == 0)
        rc = member_flag(j->doc, "map_bad", &j->map_bad, e);
    if (rc == 0)
        rc = member_flag(j->doc, "full", &j->full, e);
    if (rc == 0)
        rc = list_members(j, e);
    if (rc == 0)
        rc = member_object(j->doc, "tags", false, &j->tags, e);
    if (rc == 0)
        rc = member_object(j->doc, "record", false, &j->record, e);
    if (rc == 0 && j->record &&
        backup_record_malformed(json_object_get(j->record, "labels"), json_object_get(j->record, "data")))
        rc = job_refuse(e, "record", "is no record of a backup");
    if (rc == 0)
        rc = member_object(j->doc, "keep", false, &keep, e);
    if (rc < 0)
        return rc;
    j->source = source;
    const char *key;
    json_t *value;
    json_object_foreach(j->tags, key, value)
    {
        if (!json_is_string(value) || json_string_length(value) > TEXT_MAX || !*key || strlen(key) > 127)
            return job_refuse(e, "tags", "has an entry that is not a short string");
    }
    j->has_keep = keep != NULL;
    return keep ? job_keep_parse(&j->keep, keep, "keep", e) : 0;
}

static int restore_members(struct job *j, struct err *e)
{
    int rc = member_text(j->doc, "snapshot", true, 32, &j->snapshot, e);
    if (rc == 0 && !is_manifest_id(j->snapshot))
        rc = job_refuse(e, "snapshot", "is not a snapshot id (32 hex digits)");
    if (rc == 0)
        rc = member_text(j->doc, "path", false, TEXT_MAX, &j->path, e);
    if (rc == 0)
        rc = member_file_name(j->doc, "target", &j->target_name, e);
    if (rc == 0)
        rc = member_number(j->doc, "size", -1, INT64_MAX, -1, &j->size, e);
    if (rc == 0)
        rc = member_number(j->doc, "offset", 0, INT64_MAX, -1, &j->offset, e);
    if (rc == 0)
        rc = member_number(j->doc, "length", 1, INT64_MAX, -1, &j->length, e);
    if (rc == 0)
        rc = member_flag(j->doc, "overwrite", &j->overwrite, e);
    if (rc == 0)
        rc = member_flag(j->doc, "verify", &j->verify, e);
    if (rc == 0)
        rc = member_flag(j->doc, "differential", &j->differential, e);
    if (rc == 0)
        rc = member_flag(j->doc, "allow_incomplete", &j->allow_incomplete, e);
    return rc;
}

static int verify_members(struct job *j, struct err *e)
{
    const json_t *list = json_object_get(j->doc, "snapshots"), *percent = json_object_get(j->doc, "read_percent"),
                 *from = json_object_get(j->doc, "read_from"), *anew = json_object_get(j->doc, "anew_ns");
    if (list && !json_is_null(list) && !(json_is_string(list) && !strcmp(json_string_value(list), "all"))) {
        if (!json_is_array(list))
            return job_refuse(e, "snapshots", "is neither a list nor \"all\"");
        j->snapshots = list;
    }
    j->read_percent = 100;
    if (percent && !json_is_null(percent)) {
        j->read_percent = json_number_value(percent);
        if (!json_is_number(percent) || !(j->read_percent >= 0 && j->read_percent <= 100))
            return job_refuse(e, "read_percent", "is not a number from 0 to 100");
    }
    j->read_from = -1;
    if (from && !json_is_null(from)) {
        j->read_from = json_number_value(from);
        if (!json_is_number(from) || !(j->read_from >= 0 && j->read_from < 100))
            return job_refuse(e, "read_from", "is not a number from 0 to below 100");
    }
    if (anew && !json_is_null(anew)) {
        j->anew_ns = json_integer_value(anew);
        if (!json_is_integer(anew) || j->anew_ns < 0)
            return job_refuse(e, "anew_ns", "is not a time in nanoseconds since 1970");
    }
    return 0;
}

static int admin_members(struct job *j, struct err *e)
{
    j->steps = json_object_get(j->doc, "do");
    if (!json_is_array(j->steps) || json_array_size(j->steps) > 10000)
        return job_refuse(e, "do", "is not a list of at most 10000 steps");
    for (size_t i = 0; i < json_array_size(j->steps); i++)
        if (!json_is_string(json_object_get(json_array_get(j->steps, i), "verb")))
            return job_refuse(e, "do", "has a step without a verb");
    return 0;
}

static int maintain_members(struct job *j, struct err *e)
{
    int rc = member_flag(j->doc, "full", &j->full, e);
    if (rc == 0)
        rc = member_flag(j->doc, "dry_run", &j->dry_run, e);
    if (rc == 0)
        rc = member_flag(j->doc, "unsafe", &j->unsafe, e);
    if (rc == 0)
        rc = member_flag(j->doc, "take_over", &j->take_over, e);
    return rc == 0 ? member_text(j->doc, "machine", false, 63, &j->machine, e) : rc;
}

static int job_place_read(const json_t *o, const char *name, struct job_place *ret, struct err *e);

static int copy_members(struct job *j, struct err *e)
{
    int rc = job_place_read(j->doc, "copy", &j->copy, e);
    j->remote |= rc == 0 && j->copy.remote;
    if (rc == 0)
        rc = member_flag(j->doc, "verify", &j->verify, e);
    if (rc == 0)
        rc = member_flag(j->doc, "expected", &j->expected, e);
    if (rc == 0)
        rc = member_number(j->doc, "delete_after", 0, INT32_MAX * INT64_C(2), 0, &j->delete_after_s, e);
    return rc == 0 ? member_flag(j->doc, "delete_most", &j->delete_most, e) : rc;
}

static int look_members(struct job *j, struct err *e)
{
    (void)j, (void)e;
    return 0;
}

static const struct kind {
    const char *name;
    int (*members)(struct job *j, struct err *e);
    const char *known; /* members beside those of every kind, with a space around each */
} kinds[] = {
    [JOB_BACKUP] = {"backup", backup_members,
                    " source as tags record splitter compression map_bad full description keep "
                    "incremental allocated "},
    [JOB_RESTORE] = {"restore", restore_members,
                     " snapshot path size target offset length overwrite verify differential allow_incomplete "},
    [JOB_VERIFY] = {"verify", verify_members, " snapshots read_percent read_from anew_ns "},
    [JOB_ADMIN] = {"admin", admin_members, " do "},
    [JOB_LOOK] = {MOVER_KIND_LOOK, look_members, " "},
    [JOB_MAINTAIN] = {"maintain", maintain_members, " full dry_run unsafe take_over machine "},
    [JOB_COPY] = {"copy", copy_members, " copy verify expected delete_after delete_most "},
};
#define LIMIT_NAME(name, ...) " " #name
static const char known_everywhere[] = " protocol operation kind backup volume node repository cache_dir cache_size "
                                       "debug" MOVER_JOB_LIMITS(LIMIT_NAME) " ";

const char *job_kind_name(enum job_kind k)
{
    return kinds[k].name;
}

static bool is_listed(const char *list, const char *name)
{
    char word[64];
    return snprintf(word, sizeof word, " %s ", name) < (int)sizeof word && strstr(list, word);
}

static int note_ignored(struct job *j, struct err *e)
{
    j->ignored = json_array();
    if (!j->ignored)
        return err_nomem(e);
    const char *key;
    json_t *value;
    json_object_foreach(j->doc, key, value)
    {
        if (!is_listed(known_everywhere, key) && !is_listed(kinds[j->kind].known, key) &&
            json_array_size(j->ignored) < 32)
            json_array_append_new(j->ignored, json_string(key));
    }
    return 0;
}

static int find_kind(struct job *j, struct err *e)
{
    const char *kind;
    int rc = member_text(j->doc, "kind", true, 31, &kind, e);
    for (size_t i = 0; rc == 0 && i < sizeof kinds / sizeof *kinds; i++) {
        if (!strcmp(kinds[i].name, kind)) {
            j->kind = (enum job_kind)i;
            return 0;
        }
    }
    return rc < 0 ? rc : job_refuse(e, "kind", "is none of backup, restore, verify, admin, look, maintain, copy");
}

/* Certificates have line breaks. */
static int job_authorities(const json_t *r, const char *place, const char **ret, struct err *e)
{
    char where[64];
    const json_t *v = json_object_get(r, "ca");
    *ret = json_string_value(v);
    snprintf(where, sizeof where, "%.50s.ca", place);
    return v && !*ret                            ? job_refuse(e, where, "is not a string")
           : v && json_string_length(v) > CA_MAX ? job_refuse(e, where, "is too long")
                                                 : 0;
}

static int job_bucket(const json_t *r, const char *place, struct job_s3 *s, struct err *e)
{
    int rc = member_text(r, "endpoint", true, 255, &s->endpoint, e);
    if (rc == 0)
        rc = member_text(r, "bucket", true, 127, &s->bucket, e);
    if (rc == 0)
        rc = member_text(r, "prefix", false, 191, &s->prefix, e);
    if (rc == 0)
        rc = member_text(r, "region", false, 63, &s->region, e);
    if (rc == 0)
        rc = member_flag(r, "virtual_host", &s->virtual_host, e);
    if (rc == 0)
        rc = member_number(r, "at_ns", 0, INT64_MAX, 0, &s->at_ns, e);
    int64_t puts = 0;
    if (rc == 0)
        rc = member_number(r, "parallel_puts", 0, 32, 0, &puts, e);
    s->parallel_puts = (unsigned)puts;
    if (rc == 0)
        rc = job_authorities(r, place, &s->ca, e);
    if (rc == 0 && !s->prefix)
        s->prefix = "";
    if (rc == 0 && !s->region)
        s->region = "";
    return rc;
}

static int job_place_read(const json_t *o, const char *name, struct job_place *ret, struct err *e)
{
    json_t *r;
    const char *type;
    char where[64];
    int rc = member_object(o, name, true, &r, e);
    if (rc < 0)
        return rc;
    snprintf(where, sizeof where, "%.50s.type", name);
    rc = member_text(r, "type", false, 31, &type, e);
    ret->remote = rc == 0 && type && !strcmp(type, "s3");
    if (rc == 0 && type && !ret->remote && strcmp(type, "filesystem") != 0)
        rc = job_refuse(e, where, "is neither \"filesystem\" nor \"s3\"");
    if (rc == 0)
        rc = member_text(r, "name", false, 127, &ret->name, e);
    if (rc == 0 && ret->remote)
        rc = job_bucket(r, name, &ret->s3, e);
    else if (rc == 0)
        rc = member_path(r, "path", true, &ret->path, e);
    return rc;
}

static int job_repository(struct job *j, struct err *e)
{
    int rc = job_place_read(j->doc, "repository", &j->repository, e);
    j->remote = j->repository.remote;
    return rc == 0 ? member_text(json_object_get(j->doc, "repository"), "unique_id", false, 2 * FORMAT_ID_MAX,
                                 &j->repository_id, e)
                   : rc;
}

/* Jobs of operations that an earlier version recorded may have less. */
static uint64_t at_least(int64_t v, int64_t least)
{
    return (uint64_t)(v > 0 && v < least ? least : v);
}

static int job_limits_read(struct job *j, struct err *e)
{
    int64_t v;
    int rc = 0;
#define LIMIT(name, unit, least, most)                                                                                 \
    if (rc == 0 && (rc = member_number(j->doc, #name, 0, most, 0, &v, e)) == 0)                                        \
        j->limits.name = at_least(v, least);
    MOVER_JOB_LIMITS(LIMIT)
    return rc;
}

static int job_check(struct job *j, const char *operation, struct err *e)
{
    int64_t protocol, cache;
    int rc = member_number(j->doc, "protocol", 0, INT32_MAX, 0, &protocol, e);
    if (rc == 0 && protocol != MOVER_PROTOCOL && protocol != MOVER_PROTOCOL - 1)
        rc = err_set(e, ERR_USAGE, EPROTO, "job has protocol %lld, this mover supports %d: of another version",
                     (long long)protocol, MOVER_PROTOCOL);
    if (rc == -EPROTO)
        return err_hint(e, "both programs must be of one version: complete the upgrade, then `systemctl restart "
                           "snapferryd`");
    if (rc == 0)
        rc = member_text(j->doc, "operation", true, OPERATION_MAX, &j->operation, e);
    if (rc == 0 && strcmp(j->operation, operation) != 0)
        rc = job_refuse(e, "operation", "is not the operation that this process was started for");
    if (rc == 0)
        rc = find_kind(j, e);
    if (rc == 0)
        rc = job_repository(j, e);
    if (rc == 0)
        rc = member_text(j->doc, "backup", false, OPERATION_MAX, &j->backup, e);
    if (rc == 0)
        rc = member_text(j->doc, "node", true, 255, &j->node, e);
    if (rc == 0)
        rc = member_path(j->doc, "cache_dir", false, &j->cache_dir, e);
    if (rc == 0)
        rc = job_limits_read(j, e);
    if (rc == 0)
        rc = member_number(j->doc, "cache_size", 0, INT64_MAX, 0, &cache, e);
    if (rc == 0)
        rc = member_flag(j->doc, "debug", &j->debug, e);
    if (rc < 0)
        return rc;
    j->cache_size = (uint64_t)cache;
    rc = kinds[j->kind].members(j, e);
    return rc < 0 ? rc : note_ignored(j, e);
}

/* ---- reading ---- */

/* Sealed, so that the document cannot change after it was checked. */
static int check_seals(int fd, size_t *size, struct err *e)
{
    const int want = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & want) != want)
        return err_set(e, ERR_USAGE, EINVAL, "the job is not in sealed memory");
    if (fstat(fd, &st) < 0 || st.st_size <= 0 || (uint64_t)st.st_size > WIRE_JOB_MAX)
        return err_set(e, ERR_USAGE, EINVAL, "the job is empty or has more than %u MiB", WIRE_JOB_MAX >> 20);
    *size = (size_t)st.st_size;
    return 0;
}

int job_read(struct job *ret, int fd, const char *operation, struct err *e)
{
    *ret = (struct job){.source_size = -1, .size = -1};
    size_t size = 0;
    int rc = check_seals(fd, &size, e);
    if (rc < 0)
        return rc;
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return err_set(e, ERR_GENERIC, errno, "cannot map the job");
    json_error_t je;
    ret->doc = json_loadb(p, size, JSON_REJECT_DUPLICATES, &je);
    munmap(p, size);
    if (!json_is_object(ret->doc))
        return err_set(e, ERR_USAGE, EINVAL, "the job is not a JSON object: %.150s",
                       ret->doc ? "another type" : je.text);
    return job_check(ret, operation, e);
}

void job_clear(struct job *j)
{
    json_decref(j->doc);
    json_decref(j->ignored);
    *j = (struct job){0};
}
