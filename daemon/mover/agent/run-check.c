/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * run-check.c - whether snapshots exist, are what they are expected to be, and can be restored (RS-18)
 *
 * Before the daemon prunes a native snapshot, and when the outcome of a backup is recorded. The id alone proves
 * nothing: it was reported by the mover that wrote the snapshot. So source, tag, times and size are compared with the
 * daemon's record, and a part of the data is read.
 */
#include "daemon/mover/agent/agent.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "repo/snapshot.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES (64u << 20)              /* of each check, about */
#define READ_BYTES_QUICK (8u << 20)         /* the same, while a backup waits for it */
#define WHY_MAX 512                         /* reasons of an answer: it has to fit into the result */
#define WHY_BYTES 300                       /* of each, where the answer is about thousands */
#define READ_CONTENTS 16                    /* if the share is empty: a volume that is mostly zeros has few contents */
#define SKEW_NS (INT64_C(86400) * NS_PER_S) /* a clock that was corrected between snapshot and move */

struct check {
    struct repo *repo;
    json_t *readable; /* id -> bool */
    json_t *why;      /* id -> text */
    json_t *unfit;    /* id -> what is wrong with it: one of these */
    const json_t *expect;
    uint64_t bytes; /* of all that are to be read */
    bool quick;
    struct err *e;
};

#define ABSENT "absent"   /* there is no such snapshot */
#define DAMAGED "damaged" /* it cannot be restored as it was written */
#define OTHER "other"     /* it is not what was expected */

static void refuse(struct check *c, const char *id, const char *unfit, const char *why)
{
    json_t *text = json_string(why);
    json_object_set_new(c->readable, id, json_false());
    json_object_set_new(c->unfit, id, json_string(unfit));
    json_object_set_new(c->why, id, text ? text : json_string("not what was expected"));
}

/* Its data was read by an earlier check: what counts is that it is still there. */
static bool was_seen(const struct check *c, const char *id)
{
    return json_is_true(json_object_get(json_object_get(c->expect, id), "seen"));
}

/* "": it is what was expected. */
static int compare(struct check *c, struct snapshot *s, const char **unfit, char *why, size_t cap)
{
    const json_t *x = json_object_get(c->expect, s->id);
    const char *source = json_string_value(json_object_get(x, "source"));
    const char *operation = json_string_value(json_object_get(x, "operation"));
    const char *volume = json_string_value(json_object_get(x, "volume"));
    const char *of = json_string_value(json_object_get(s->tags, "tag:volume-id"));
    const char *tagged = json_string_value(json_object_get(s->tags, "tag:operation"));
    const json_int_t after = json_integer_value(json_object_get(x, "afterNs"));
    const json_int_t before = json_integer_value(json_object_get(x, "beforeNs"));
    const json_int_t size = json_integer_value(json_object_get(x, "size"));
    char text[4500], time[TIME_TEXT];
    *why = '\0';
    *unfit = OTHER;
    if (s->incomplete[0])
        snprintf(why, cap, "incomplete");
    else if (source && strcmp(snapshot_source_text(&s->source, text, sizeof text), source) != 0)
        snprintf(why, cap, "it is a snapshot of %.300s, not of %.300s", text, source);
    else if (volume && of && strcmp(of, volume) != 0)
        snprintf(why, cap, "it is a snapshot of volume %.200s, not of %.200s", of, volume);
    else if (operation && strcmp(tagged ? tagged : "", operation) != 0)
        snprintf(why, cap, "it was written by operation \"%.200s\", not by %.200s", tagged ? tagged : "", operation);
    else if ((after && s->start_ns < after - SKEW_NS) || (before && s->start_ns > before + SKEW_NS))
        snprintf(why, cap, "it was started at %s, which does not match the native snapshot",
                 time_text(s->start_ns, time));
    else if ((after && s->end_ns < after - SKEW_NS) || (before && s->end_ns > before + SKEW_NS))
        snprintf(why, cap, "it ended at %s, which does not match the backup", time_text(s->end_ns, time));
    if (*why || !x)
        return 0;
    struct dir_entry image;
    struct err e = ERR_INIT;
    int rc = dir_lookup(c->repo, &s->root, "volume.img", &image, &e);
    if (rc < 0 && e.cls != ERR_DAMAGE && e.cls != ERR_NOT_FOUND && e.cls != ERR_USAGE) {
        *c->e = e;
        return rc;
    }
    if (rc < 0) {
        *unfit = e.cls == ERR_USAGE ? OTHER : DAMAGED;
        snprintf(why, cap, "%s", e.msg);
        return 0;
    }
    if (image.type != 'f')
        snprintf(why, cap, "volume.img is not a file");
    else if (size && image.size != size)
        snprintf(why, cap, "volume.img has %" PRId64 " bytes, the volume had %" PRId64, image.size, (int64_t)size);
    else if (!was_seen(c, s->id))
        c->bytes += (uint64_t)(image.size > 0 ? image.size : 0);
    dir_entry_clear(&image);
    return 0;
}

static bool is_asked(const char *id, const json_t *labels, void *arg)
{
    (void)labels;
    return json_object_get(((const struct check *)arg)->readable, id);
}

static int note_existing(struct snapshot *s, void *arg)
{
    struct check *c = arg;
    const char *unfit;
    char why[800];
    int rc = compare(c, s, &unfit, why, sizeof why);
    if (rc < 0)
        return rc;
    if (*why)
        refuse(c, s->id, unfit, why);
    else
        json_object_set_new(c->readable, s->id, json_true());
    return 0;
}

static void note_damaged(const struct verify_damage *d, void *arg)
{
    struct check *c = arg;
    if (*d->snapshot && json_object_get(c->readable, d->snapshot))
        refuse(c, d->snapshot, DAMAGED, *d->why ? d->why : d->kind);
}

/* Those that are still believed readable, and are to be read. */
static size_t remaining(const struct check *c, char (*ids)[33])
{
    size_t n = 0;
    const char *id;
    json_t *v;
    json_object_foreach(c->readable, id, v) if (json_is_true(v) && !was_seen(c, id))
        snprintf(ids[n++], sizeof ids[0], "%s", id);
    return n;
}

static int verify(struct run_context *x, struct check *c, char (*ids)[33], size_t n, double percent,
                  struct verify_result *ret, struct err *e)
{
    const struct verify_opts o = {.limits = x->job->limits,
                                  .read_percent = percent,
                                  .read_from = -1,
                                  .read_least = READ_CONTENTS,
                                  .quick = c->quick,
                                  .progress = x->progress,
                                  .cancel = x->cancel,
                                  .on_damage = note_damaged,
                                  .on_damage_arg = c};
    int rc = verify_run(c->repo, ids, n, &o, ret, e);
    if (rc < 0 && e->cls == ERR_DAMAGE) {
        *e = (struct err)ERR_INIT; /* this is an answer, not a failure */
        return 0;
    }
    return rc;
}

/* Every content that the snapshots need is in the index and its pack exists and is long enough; some are read. */
static int check_data(struct run_context *x, struct check *c, struct err *e)
{
    CLEANUP_FREE char(*ids)[33] = calloc(json_object_size(c->readable) + 1, sizeof *ids);
    struct verify_result done = {0};
    if (!ids)
        return err_nomem(e);
    const size_t n = remaining(c, ids);
    if (!n)
        return 0;
    const uint64_t most = c->quick ? READ_BYTES_QUICK : READ_BYTES;
    const double percent = c->bytes > most ? 100.0 * (double)most / (double)c->bytes : 100;
    return verify(x, c, ids, n, percent, &done, e);
}

static void put_answer(const struct check *c, char (*ids)[33], size_t n, json_t *answer)
{
    json_t *of = json_object();
    unsigned whys = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *asked = json_object_get(json_object_get(c->expect, ids[i]), "of");
        const char *why = json_string_value(json_object_get(c->why, ids[i]));
        if (json_is_integer(asked))
            json_object_set(of, ids[i], asked);
        if (json_is_true(json_object_get(c->readable, ids[i]))) {
            json_object_del(c->why, ids[i]);
            json_object_del(c->unfit, ids[i]);
        } else if (whys++ >= WHY_MAX) {
            log_warning("snapshot %s: %s", ids[i], why ? why : "not what was expected");
            json_object_del(c->why, ids[i]);
        }
    }
    json_object_set_new(answer, "readable", c->readable);
    json_object_set_new(answer, "why", c->why);
    json_object_set_new(answer, "unfit", c->unfit);
    if (json_object_size(of))
        json_object_set(answer, "of", of);
    json_decref(of);
}

/* ---- an answer by the numbers of the questions: 65,536 of them fit into a result ---- */

static int by_number(const void *a, const void *b)
{
    const json_int_t x = *(const json_int_t *)a, y = *(const json_int_t *)b;
    return (x > y) - (x < y);
}

static void put_refused(const struct check *c, const char *id, json_int_t number, unsigned *whys, json_t *refused)
{
    const char *why = json_string_value(json_object_get(c->why, id));
    char key[24], text[WHY_BYTES + 1];
    snprintf(key, sizeof key, "%" JSON_INTEGER_FORMAT, number);
    snprintf(text, sizeof text, "%s", why ? why : "not what was expected");
    if ((*whys)++ >= WHY_MAX) {
        log_warning("snapshot %s: %s", id, text);
        text[0] = '\0';
    }
    json_t *v = json_string(text);
    json_object_set_new(refused, key, v ? v : json_string("")); /* it was cut in the middle of a character */
}

static int put_numbers(const struct check *c, char (*ids)[33], size_t n, json_t *answer, struct err *e)
{
    CLEANUP_FREE json_int_t *numbers = calloc(n + 1, sizeof *numbers);
    json_t *proven = json_array(), *refused = json_object();
    unsigned whys = 0;
    size_t found = 0;
    for (size_t i = 0; numbers && i < n; i++) {
        const json_t *of = json_object_get(json_object_get(c->expect, ids[i]), "of");
        if (!json_is_integer(of))
            continue;
        if (json_is_true(json_object_get(c->readable, ids[i])))
            numbers[found++] = json_integer_value(of);
        else
            put_refused(c, ids[i], json_integer_value(of), &whys, refused);
    }
    if (numbers)
        qsort(numbers, found, sizeof *numbers, by_number);
    for (size_t i = 0; i < found; i++)
        json_array_append_new(proven, json_integer(numbers[i]));
    json_object_set_new(answer, "proven", proven);
    json_object_set_new(answer, "refused", refused);
    return numbers ? 0 : err_nomem(e);
}

int admin_check(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e)
{
    CLEANUP_FREE char(*ids)[33] = NULL;
    size_t n;
    int rc = job_ids(json_object_get(step, "snapshots"), "do.snapshots", &ids, &n, e);
    if (rc < 0)
        return rc;
    struct check c = {.repo = r,
                      .readable = json_object(),
                      .why = json_object(),
                      .unfit = json_object(),
                      .expect = json_object_get(step, "expect"),
                      .quick = json_is_true(json_object_get(step, "quick")),
                      .e = e};
    for (size_t i = 0; i < n; i++)
        refuse(&c, ids[i], ABSENT, "there is no such snapshot");
    rc = snapshots_wanted(r, is_asked, note_existing, &c, NULL, e);
    if (rc >= 0)
        rc = check_data(x, &c, e);
    if (rc >= 0 && !json_is_true(json_object_get(step, "numbers"))) {
        put_answer(&c, ids, n, answer);
        return 0;
    }
    if (rc >= 0)
        rc = put_numbers(&c, ids, n, answer, e);
    json_decref(c.readable);
    json_decref(c.why);
    json_decref(c.unfit);
    return rc;
}
