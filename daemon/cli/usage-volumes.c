/* SPDX-License-Identifier: GPL-2.0-or-later */
/* usage-volumes.c - `repo usage --volumes`: what each volume takes for itself, and together with others */
#include "daemon/cli/daemon.h"
#include "daemon/mover/usage.h"

#include "base/units.h"

static json_t *volumes_json(const struct usage_result *u, bool ok)
{
    json_t *j = json_pack("{s:s, s:s, s:b}", "type", "result", "verb", "repo usage", "ok", (int)ok);
    CLEANUP_JSON json_t *numbers = usage_to_json(u);
    if (!j || !numbers || json_object_update(j, numbers) < 0) {
        json_decref(j);
        return NULL;
    }
    return j;
}

/* What the numbers of a volume lack. */
static const char *partial_text(const struct usage_volume *v)
{
    static char text[200];
    snprintf(text, sizeof text, "at least: %llu object%s cannot be read, %llu content%s missing",
             (unsigned long long)v->unreadable, plural(v->unreadable), (unsigned long long)v->reach.missing,
             v->reach.missing == 1 ? " is" : "s are");
    return text;
}

static void add_row(struct table *t, const struct usage_volume *v)
{
    const enum tint tint = usage_volume_is_partial(v) ? TINT_BAD : TINT_NONE;
    table_cell(t, tint, "%s", text_bytes(v->reach.exclusive.bytes));
    table_cell(t, tint, "%s", text_bytes(v->reach.shared.bytes));
    table_cell(t, TINT_NONE, "%llu", (unsigned long long)(v->snapshots + v->incomplete));
    table_cell(t, TINT_NONE, "%s", v->size >= 0 ? text_bytes((uint64_t)v->size) : "-");
    /* The name of the volume if the daemon recorded it, else its id, as in the list of snapshots. */
    table_cell(t, TINT_NONE, "%s", v->name ? v->name : v->path);
    table_cell(t, TINT_NONE, "%s@%s:%s", v->user, v->host, v->path);
    if (usage_volume_is_partial(v))
        table_note(t, TINT_BAD, partial_text(v));
}

static void add_total(struct table *t, const struct usage_result *u)
{
    table_cell(t, TINT_NONE, "%s", text_bytes(u->reach.exclusive.bytes));
    table_cell(t, TINT_NONE, "%s", text_bytes(u->reach.shared.bytes));
    table_cell(t, TINT_NONE, "%llu", (unsigned long long)(u->snapshots + u->incomplete));
    table_cell(t, TINT_NONE, "%s", "");
    table_cell(t, TINT_NONE, "total: %zu volume%s", u->n, plural(u->n));
    table_cell(t, TINT_NONE, "%s", "");
}

static void print_sum(const char *name, uint64_t bytes, const char *what)
{
    printf("%-18s%s%s%s\n", name, text_bytes(bytes), *what ? "  " : "", what);
}

static void print_volumes(const struct usage_result *u)
{
    static const char *const heads[] = {"EXCLUSIVE", "SHARED", "SNAPSHOTS", "SIZE", "VOLUME", "SOURCE"};
    struct table *t = table_new(heads, "rrRRsS");
    for (size_t i = 0; i < u->n; i++)
        add_row(t, u->volumes[i]);
    if (u->n)
        add_total(t, u);
    table_print(t, stdout, "");
    if (!u->n)
        puts("No snapshots.");
    if (u->incomplete)
        printf("%llu of the snapshots %s incomplete.\n", (unsigned long long)u->incomplete,
               u->incomplete == 1 ? "is" : "are");
    putchar('\n');
    print_sum("Exclusive", u->reach.exclusive.bytes, "");
    print_sum("Shared", u->reach.shared.bytes, "each content once");
    print_sum("Manifests", u->manifests.bytes, "");
    print_sum("Unneeded", u->reach.unreached.bytes, u->reach.unreached.n ? "see repo usage without --volumes" : "");
    print_sum("All contents", u->total.bytes, "");
}

int cli_usage_volumes(const struct options *o, struct repo *r, struct err *e)
{
    struct mover_progress progress = {0};
    struct progress_view *view;
    CLEANUP(usage_clear) struct usage_result u = {.seconds = 0};
    int rc = progress_start(&view, o, "repo usage", &progress, e);
    if (rc < 0)
        return rc;
    rc = usage_of_volumes(r, &(struct usage_opts){.progress = &progress, .cancel = cli_cancel()}, &u, e);
    progress_stop(view);
    if (rc < 0 && !u.complete)
        return rc;
    if (o->json)
        print_json(volumes_json(&u, rc == 0));
    else
        print_volumes(&u);
    return rc;
}
