/* SPDX-License-Identifier: GPL-2.0-or-later */
/* expire-node.c - snapshot delete --node with -r: all that a node has stored is deleted, because the node is gone */
#include "base/time.h"
#include "base/units.h"
#include "daemon/cli/confirm.h"
#include "daemon/mover/backup-records.h"
#include "repo/expire.h"
#include "repo/maintenance.h"

#include <errno.h>
#include <string.h>

#define USER "snapferry" /* of the sources of all nodes */
#define RECENT_NS (INT64_C(96) * 3600 * NS_PER_S)

/* A name that is another one than meant must not cost a node that is in use: neither this machine's, nor any when
 * nobody can be asked. */
static int check_name(const struct options *o, struct err *e)
{
    struct snapshot_source s;
    char text[600], own[256];
    snprintf(text, sizeof text, USER "@%.300s:/", o->node);
    if (snapshot_source_parse(&s, text, NULL) < 0 || strcmp(s.host, o->node) != 0) {
        err_set(e, ERR_USAGE, 0, "\"%s\" is not the name of a node", text_name(o->node));
        return err_hint(e, "the NAME in sources snapferry@NAME:/..., as `snapshot list --wide` shows them");
    }
    if (!o->yes && !o->dry_run && !confirm_needed(o)) {
        err_set(e, ERR_USAGE, 0,
                "--node deletes the last good copies of all volumes of %s, and there is no terminal to confirm on",
                text_name(o->node));
        return err_hint(e, "look at what --dry-run lists, and use --yes");
    }
    if (o->force)
        return 0;
    const int rc = cli_node_name(o, own, e);
    if (rc < 0)
        return err_hint(e, "cannot determine whether %s is this node without it; --force deletes it anyway",
                        text_name(o->node));
    if (strcmp(own, o->node) != 0)
        return 0;
    err_set(e, ERR_USAGE, 0, "%s is this node: nothing deleted", text_name(own));
    err_hint(e, "its daemon may be backing up; to delete all that it has stored, stop it and use --force");
    e->sys = EPERM;
    return -EPERM;
}

struct node_view {
    json_t *json;
    struct table *table;
};

static int note_source(const struct node_source *s, void *arg)
{
    struct node_view *v = arg;
    char text[4500], oldest[TIME_TEXT], newest[TIME_TEXT];
    if (v->json) {
        json_t *j = json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:I}", "source",
                              snapshot_source_text(s->source, text, sizeof text), "volume", s->volume, "snapshots",
                              (json_int_t)s->snapshots, "incomplete", (json_int_t)s->incomplete, "pinned",
                              (json_int_t)s->pinned, "oldest", time_text(s->oldest_ns, oldest), "newest",
                              time_text(s->newest_ns, newest), "size", (json_int_t)s->size);
        return json_array_append_new(v->json, j) < 0 ? -ENOMEM : 0;
    }
    if (!v->table)
        return 0;
    table_cell(v->table, TINT_NONE, "%s", *s->volume ? s->volume : s->source->path);
    table_cell(v->table, TINT_NONE, "%zu", s->snapshots);
    table_cell(v->table, TINT_NONE, "%s", text_local_time(s->oldest_ns));
    table_cell(v->table, TINT_NONE, "%s", text_local_time(s->newest_ns));
    table_cell(v->table, TINT_NONE, "%s", s->size >= 0 ? text_bytes((uint64_t)s->size) : "-");
    text[0] = '\0';
    if (s->incomplete)
        snprintf(text, sizeof text, "%zu incomplete", s->incomplete);
    if (s->pinned)
        snprintf(text + strlen(text), 64, "%s%zu pinned", *text ? ", " : "", s->pinned);
    table_cell(v->table, s->pinned ? TINT_WARN : TINT_NONE, "%s", text);
    return 0;
}

/* Maintenance that belongs to the node is done by nobody any more. */
static bool owned_by(const struct maintenance_params *p, const char *node)
{
    const char *at = strrchr(p->owner, '@');
    return p->present && at && !strcmp(at + 1, node);
}

static void print_result(const struct options *o, const struct node_result *n, unsigned records,
                         const struct maintenance_params *p)
{
    if (o->dry_run)
        printf("%zu snapshot%s of %zu volume%s of node %s would be deleted; nothing was changed.\n", n->snapshots,
               plural(n->snapshots), n->sources, plural(n->sources), text_name(o->node));
    else
        printf("%zu snapshot%s of %zu volume%s of node %s deleted, with %zu polic%s and %u record%s of backups.\n",
               n->snapshots, plural(n->snapshots), n->sources, plural(n->sources), text_name(o->node), n->policies,
               n->policies == 1 ? "y" : "ies", records, plural(records));
    if (n->others)
        printf("%zu snapshot%s of other clients on %s %s kept.\n", n->others, plural(n->others), text_name(o->node),
               n->others == 1 ? "is" : "are");
    if (n->snapshots && n->newest_ns > now_ns() - RECENT_NS)
        printf("The newest one is of %s: if the node still runs, it stores new ones.\n", text_local_time(n->newest_ns));
    if (n->snapshots)
        puts("The space comes back with the third full maintenance from then on, a day apart each, except for data\n"
             "that other snapshots use.");
    if (owned_by(p, o->node))
        printf("Maintenance belongs to %s: nothing is freed until another node owns it. There:\n"
               "  snapferry -r %s maintenance --take-ownership\n",
               text_name(p->owner), text_name(o->repo));
}

static int print_node_json(const struct options *o, const struct node_result *n, unsigned records,
                           const struct maintenance_params *p, json_t *sources, struct err *e)
{
    json_t *j = json_pack("{s:s, s:s, s:b, s:s, s:O, s:I, s:I, s:I, s:I, s:I, s:i, s:s, s:b}", "type", "result", "verb",
                          "snapshot delete", "dryRun", (int)o->dry_run, "node", o->node, "sources", sources, "deleted",
                          (json_int_t)n->snapshots, "pinned", (json_int_t)n->pinned, "policies",
                          (json_int_t)n->policies, "records", (json_int_t)records, "others", (json_int_t)n->others,
                          "unreadable", (int)n->unreadable, "owner", p->owner, "ownerGone", (int)owned_by(p, o->node));
    if (!j)
        return err_nomem(e);
    print_json(j);
    return 0;
}

/* What there is, shown, and whether it is to be deleted. */
static int node_look(const struct options *o, struct repo *r, struct node_view *v, struct node_result *found,
                     struct err *e)
{
    const struct delete_opts dry = {.pinned = o->force, .dry_run = true};
    const int rc = snapshots_delete_node(r, USER, o->node, &dry, note_source, v, found, e);
    table_print(v->table, stdout, "");
    if (rc < 0)
        return e->cls ? rc : err_nomem(e);
    if (!found->snapshots && !found->policies) {
        err_set(e, ERR_NOT_FOUND, ENOENT, "no snapshots of node %s in repository %s", text_name(o->node), o->repo);
        return err_hint(e, "%s snapshot list --all --wide shows the sources snapferry@NODE:/... that it has",
                        cli_how(o));
    }
    return confirm(o, e,
                   "%zu snapshot%s of %zu volume%s of node %s, the last good copies among them, will be deleted "
                   "from repository %s.",
                   found->snapshots, plural(found->snapshots), found->sources, plural(found->sources), o->node,
                   o->repo);
}

int cli_snapshot_delete_node(const struct options *o, struct err *e)
{
    CLEANUP(repo_freep) struct repo *r = NULL;
    CLEANUP_JSON json_t *sources = NULL;
    struct maintenance_params p;
    struct node_result n;
    struct node_view v = {0};
    unsigned records = 0;
    int rc = check_name(o, e);
    if (rc == 0)
        rc = cli_open_repo(o, &r, e);
    if (rc == 0)
        rc = maintenance_params_load(r, &p, e);
    if (rc < 0)
        return rc;
    static const char *const heads[] = {"VOLUME", "SNAPSHOTS", "OLDEST", "NEWEST", "SIZE", ""};
    if (o->json ? !(sources = v.json = json_array()) : !o->quiet && !(v.table = table_new(heads, "srLlRe")))
        return err_nomem(e);
    rc = node_look(o, r, &v, &n, e);
    if (rc == 0 && !o->dry_run)
        rc = snapshots_delete_node(r, USER, o->node, &(struct delete_opts){.pinned = o->force}, NULL, NULL, &n, e);
    if (rc == 0 && !o->dry_run)
        rc = backup_records_forget(r, o->node, &records, e);
    if (rc == 0 && o->json)
        rc = print_node_json(o, &n, records, &p, sources, e);
    else if (rc == 0 && !o->quiet)
        print_result(o, &n, records, &p);
    if (rc == 0 && n.unreadable)
        return err_set(e, ERR_DAMAGE, EBADMSG, "%u snapshot manifest%s of %s cannot be read: not deleted", n.unreadable,
                       plural(n.unreadable), text_name(o->node));
    return rc;
}
