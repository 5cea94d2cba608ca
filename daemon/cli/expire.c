/* SPDX-License-Identifier: GPL-2.0-or-later */
/* expire.c - snapshot expire, delete, pin and unpin with -r */
#include "daemon/cli/confirm.h"
#include "base/units.h"
#include "daemon/cli/verdicts.h"
#include "repo/expire.h"
#include "repo/leftovers.h"

#include <errno.h>
#include <string.h>

static int source_option(const struct options *o, struct snapshot_source *src, bool *given, struct err *e)
{
    const char *text = o->as ? o->as : o->verb == VERB_SNAPSHOT_EXPIRE && o->n_args ? o->args[0] : NULL;
    *given = text;
    return text ? snapshot_source_parse(src, text, e) : 0;
}

/* ---- snapshot expire ---- */

struct expire_view {
    const struct options *o;
    char source[5000];         /* the current one */
    json_t *sources, *current; /* --json; current: the snapshots of that source */
};

static const struct {
    const char *name, *key;
    size_t at, origin;
} settings[] = {
#define S(name, key, field)                                                                                            \
    {                                                                                                                  \
        name, key, offsetof(struct retention_policy, field), offsetof(struct retention_origin, field)                  \
    }
    S("latest", "keepLatest", latest), S("hourly", "keepHourly", hourly),    S("daily", "keepDaily", daily),
    S("weekly", "keepWeekly", weekly), S("monthly", "keepMonthly", monthly), S("annual", "keepAnnual", annual),
#undef S
};

static int setting_value(const struct expire_verdict *v, size_t i)
{
    return *(const int *)(const void *)((const char *)v->policy + settings[i].at);
}

static const char *setting_origin(const struct expire_verdict *v, size_t i)
{
    return *(const char *const *)(const void *)((const char *)v->origin + settings[i].origin);
}

static void policy_text(const struct expire_verdict *v, char *out, size_t cap)
{
    size_t n = 0;
    *out = '\0';
    for (size_t i = 0; i < RETENTION_KINDS && n < cap; i++) {
        if (setting_value(v, i) >= 0)
            n += (size_t)snprintf(out + n, cap - n, "%s%s %d (%s)", n ? ", " : "", settings[i].name,
                                  setting_value(v, i), setting_origin(v, i));
    }
}

static json_t *policy_json(const struct expire_verdict *v)
{
    json_t *j = json_object();
    for (size_t i = 0; i < RETENTION_KINDS; i++) {
        if (setting_value(v, i) >= 0)
            json_object_set_new(j, settings[i].key,
                                json_pack("{s:i, s:s}", "value", setting_value(v, i), "from", setting_origin(v, i)));
    }
    return j;
}

static int new_source(struct expire_view *x, const struct expire_verdict *v, const char *source)
{
    snprintf(x->source, sizeof x->source, "%s", source);
    x->current = json_array();
    json_t *s = json_pack("{s:s, s:s, s:o, s:O}", "source", source, "volume", v->volume, "policy", policy_json(v),
                          "snapshots", x->current);
    json_decref(x->current); /* held by its source */
    return json_array_append_new(x->sources, s) < 0 ? -ENOMEM : 0;
}

static json_t *verdict_json(const struct expire_verdict *v)
{
    char start[TIME_TEXT];
    json_t *reasons = json_array();
    for (unsigned i = 0; i < v->n_reasons; i++)
        json_array_append_new(reasons, json_string(v->reasons[i]));
    return json_pack("{s:s, s:s, s:I, s:b, s:b, s:b, s:o, s:s}", "id", v->id, "startTime",
                     time_text(v->start_ns, start), "size", (json_int_t)v->size, "incomplete", (int)v->incomplete,
                     "pinned", (int)v->pinned, "keep", (int)v->keep, "reasons", reasons, "why", v->why);
}

static int add_verdict(const struct expire_verdict *v, void *arg)
{
    struct expire_view *x = arg;
    char source[sizeof x->source], policy[256];
    snapshot_source_text(v->source, source, sizeof source);
    if (!x->sources) {
        policy_text(v, policy, sizeof policy);
        if (x->o->explain || !x->o->quiet)
            verdict_print(
                &(struct verdict_line){source, v->volume, policy, v->id, v->why, v->start_ns, v->keep, x->o->explain},
                x->source);
        return 0;
    }
    if (strcmp(source, x->source) != 0) {
        int rc = new_source(x, v, source);
        if (rc < 0)
            return rc;
    }
    return json_array_append_new(x->current, verdict_json(v)) < 0 ? -ENOMEM : 0;
}

static void print_summary(const struct options *o, const char *node, const struct expire_result *r,
                          const struct blob_leftovers *left)
{
    if (o->json || o->quiet)
        return;
    print_leftovers(left->files, left->bytes, o->dry_run);
    if (!r->sources) {
        if (*node)
            printf(
                "No snapshots of node %s; --node-name names another one, --all takes those of all nodes and clients.\n",
                text_name(node));
        else
            puts("No snapshots.");
        return;
    }
    printf("%s%lu of %lu snapshot%s of %u source%s %s.\n", r->expired || o->explain ? "\n" : "",
           (unsigned long)r->expired, (unsigned long)(r->kept + r->expired), r->kept + r->expired == 1 ? "" : "s",
           r->sources, r->sources == 1 ? "" : "s", o->dry_run ? "would be deleted; nothing was changed" : "deleted");
    if (r->expired && !o->dry_run)
        printf("The space is freed by maintenance of the repository.\n");
}

static int no_verdict(const struct expire_verdict *v, void *arg)
{
    (void)v;
    (void)arg;
    return 0;
}

/* A dry run first, for the counts. */
static int confirm_expire(const struct options *o, struct repo *r, const struct expire_opts *x, struct err *e)
{
    struct expire_opts dry = *x;
    struct expire_result res = {0};
    if (!confirm_needed(o))
        return 0;
    dry.dry_run = true;
    int rc = snapshots_expire(r, &dry, no_verdict, NULL, &res, e);
    if (rc < 0 || !res.expired)
        return rc;
    return confirm(
        o, e, "%lu of %lu snapshot%s in repository %s %s expired and will be deleted (--dry-run --explain lists %s).",
        (unsigned long)res.expired, (unsigned long)(res.kept + res.expired), plural(res.kept + res.expired), o->repo,
        res.expired == 1 ? "has" : "have", res.expired == 1 ? "it" : "them");
}

int cli_snapshot_expire(const struct options *o, struct err *e)
{
    struct snapshot_source src;
    bool given;
    int rc = source_option(o, &src, &given, e);
    if (rc < 0)
        return rc;
    if (given && o->all)
        return err_set(e, ERR_USAGE, 0, "a source and --all are mutually exclusive");
    char node[256] = "";
    rc = given || o->all ? 0 : cli_node_name(o, node, e);
    if (rc < 0)
        return rc;
    CLEANUP(repo_freep) struct repo *r = NULL;
    rc = cli_open_repo(o, &r, e);
    if (rc < 0)
        return rc;
    struct expire_opts x = {.dry_run = o->dry_run};
    if (given)
        x.source = &src;
    else if (!o->all) {
        x.user = "snapferry";
        x.host = node;
    }
    rc = confirm_expire(o, r, &x, e);
    if (rc < 0)
        return rc;
    struct expire_view v = {.o = o};
    struct expire_result res = {0};
    if (o->json && !(v.sources = json_array()))
        return err_nomem(e);
    struct blob_leftovers left = {0};
    rc = snapshots_expire(r, &x, add_verdict, &v, &res, e);
    if (rc >= 0)
        rc = leftovers_remove(r, o->dry_run, &left, e);
    if (rc < 0) {
        json_decref(v.sources);
        return e->cls ? rc : err_nomem(e);
    }
    if (o->json)
        print_json(json_pack("{s:s, s:s, s:b, s:o, s:I, s:I, s:i, s:I, s:I}", "type", "result", "verb",
                             "snapshot expire", "dryRun", (int)o->dry_run, "sources", v.sources, "kept",
                             (json_int_t)res.kept, "expired", (json_int_t)res.expired, "unreadable",
                             (int)res.unreadable, "leftovers", (json_int_t)left.files, "leftoverBytes",
                             (json_int_t)left.bytes));
    print_summary(o, node, &res, &left);
    if (res.unreadable)
        return err_set(e, ERR_DAMAGE, EBADMSG, "%u snapshot manifest%s cannot be read; %s not changed", res.unreadable,
                       res.unreadable == 1 ? "" : "s", res.unreadable == 1 ? "it was" : "they were");
    return 0;
}

/* ---- snapshot delete ---- */

static void hint_force(struct err *e, int rc)
{
    if (rc == -EPERM)
        err_hint(e, "use --force to delete it anyway");
}

/* The full id of a snapshot given by a prefix or as "latest". A full id is accepted even if its manifest is damaged. */
static int full_id(const struct options *o, struct repo *r, const char *arg, char id[33], struct err *e)
{
    struct snapshot_source src;
    struct snapshot s;
    bool given;
    int rc = source_option(o, &src, &given, e);
    if (rc < 0)
        return rc;
    if (strchr(arg, '/')) {
        err_set(e, ERR_USAGE, 0, "\"%s\" is not a snapshot", text_name(arg));
        return err_hint(e, "a snapshot is a manifest id, a unique prefix of it, or \"latest\"");
    }
    rc = cli_find_snapshot(o, r, arg, given ? &src : NULL, &s, e);
    if (rc < 0 && e->cls == ERR_DAMAGE && strlen(arg) == 32) {
        *e = (struct err)ERR_INIT;
        snprintf(id, 33, "%s", arg);
        return 0;
    }
    if (rc < 0)
        return rc;
    memcpy(id, s.id, sizeof s.id);
    snapshot_clear(&s);
    return 0;
}

static int confirm_delete(const struct options *o, struct repo *r, char (*ids)[33], size_t n, struct err *e)
{
    struct snapshot s;
    struct err unreadable = ERR_INIT;
    char source[4500];
    if (!confirm_needed(o))
        return 0;
    if (n > 1)
        return confirm(o, e, "%zu snapshots will be deleted from repository %s.", n, o->repo);
    if (snapshot_find(r, ids[0], NULL, &s, &unreadable) < 0)
        return confirm(o, e, "Snapshot %s will be deleted from repository %s.", ids[0], o->repo);
    int rc = confirm(o, e, "Snapshot %s of %s (%s, %s) will be deleted from repository %s.", ids[0],
                     snapshot_source_text(&s.source, source, sizeof source), text_local_time(s.start_ns),
                     text_bytes(s.total_size > 0 ? (uint64_t)s.total_size : 0), o->repo);
    snapshot_clear(&s);
    return rc;
}

int cli_snapshot_delete(const struct options *o, struct err *e)
{
    if (o->node)
        return cli_snapshot_delete_node(o, e);
    CLEANUP(repo_freep) struct repo *r = NULL;
    size_t n = (size_t)o->n_args;
    char(*ids)[33] CLEANUP_FREE = calloc(n + 1, sizeof *ids);
    const char **list CLEANUP_FREE = calloc(n + 1, sizeof(char *));
    struct delete_result res;
    if (!ids || !list)
        return err_nomem(e);
    int rc = cli_open_repo(o, &r, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = full_id(o, r, o->args[i], ids[i], e);
        list[i] = ids[i];
    }
    if (rc == 0)
        rc = confirm_delete(o, r, ids, n, e);
    if (rc == 0)
        rc = snapshots_delete(r, list, n,
                              &(struct delete_opts){.pinned = o->force, .last_good = o->force, .dry_run = o->dry_run},
                              &res, e);
    hint_force(e, rc);
    if (rc < 0)
        return rc;
    if (o->json) {
        json_t *a = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(a, json_string(ids[i]));
        print_json(json_pack("{s:s, s:s, s:b, s:o, s:I, s:I}", "type", "result", "verb", "snapshot delete", "dryRun",
                             (int)o->dry_run, "ids", a, "deleted", (json_int_t)res.deleted, "gone",
                             (json_int_t)res.gone));
    } else if (!o->quiet) {
        printf("%zu snapshot%s %s.\n", res.deleted, res.deleted == 1 ? "" : "s",
               o->dry_run ? "would be deleted" : "deleted");
    }
    return 0;
}

/* ---- snapshot pin, unpin ---- */

int cli_snapshot_pin(const struct options *o, struct err *e)
{
    CLEANUP(repo_freep) struct repo *r = NULL;
    bool unpin = o->verb == VERB_SNAPSHOT_UNPIN;
    size_t n = (size_t)o->n_args;
    const char **names CLEANUP_FREE = calloc(n + 1, sizeof(char *));
    char id[33], fresh[33];
    if (!names)
        return err_nomem(e);
    for (size_t i = 1; i < n; i++)
        names[i - 1] = o->args[i];
    int rc = cli_open_repo(o, &r, e);
    if (rc == 0)
        rc = full_id(o, r, o->args[0], id, e);
    if (rc == 0)
        rc = snapshot_pin(r, id, unpin ? NULL : names, unpin ? names : NULL, fresh, e);
    if (rc < 0)
        return rc;
    bool changed = strcmp(id, fresh) != 0;
    if (o->json)
        print_json(json_pack("{s:s, s:s, s:s, s:s, s:b}", "type", "result", "verb",
                             unpin ? "snapshot unpin" : "snapshot pin", "old", id, "id", fresh, "changed",
                             (int)changed));
    else if (!o->quiet && changed)
        printf("%s; the new id of the snapshot is %s.\n", unpin ? "Unpinned" : "Pinned", fresh);
    else if (!o->quiet)
        printf("Nothing to do: it %s.\n", unpin ? "has no such pin" : "is already pinned");
    return 0;
}
