/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/history.h"

#include "io/volume-id.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* How a snapshot is known to be one of the volume; a greater one counts more. */
enum kinship {
    KIN_NONE,
    KIN_PATH,   /* named after the same path, by a client that records no id */
    KIN_FORMER, /* named by an earlier version */
    KIN_ID      /* has the volume's id */
};

struct search {
    const struct history *h;
    struct snapshot_source as;
    enum kinship kin;
    int64_t start_ns;
    char path[sizeof((struct snapshot_source *)0)->path];
    bool taken; /* another volume has the name */
};

static const char *tag_of(const json_t *tags, const char *key)
{
    const char *v = json_string_value(json_object_get(tags, key));
    return v ? v : "";
}

static bool ends_with_id(const char *path, const char *id)
{
    const size_t n = strlen(path), m = strlen(id);
    return n > m + 1 && path[n - m - 1] == '@' && !strcmp(path + n - m, id);
}

static bool is_former(const struct history *h, const char *path)
{
    char id[DEVICE_ID_MAX];
    if (path[0] == '/' && !strcmp(path + 1, h->volume_id))
        return true;
    if (!h->block)
        return false;
    device_id_text(path, id);
    return !strcmp(id, h->volume_id);
}

static enum kinship kinship_of(const struct history *h, const json_t *tags, const char *path)
{
    const char *id = tag_of(tags, "tag:volume-id");
    if (!h->volume_id[0]) /* by its path alone */
        return !strcmp(tag_of(tags, "tag:volume"), h->name) ? KIN_ID : !strcmp(path, h->name) ? KIN_PATH : KIN_NONE;
    if (!strcmp(id, h->volume_id) || ends_with_id(path, h->volume_id))
        return KIN_ID;
    if (id[0])
        return KIN_NONE;
    if (is_former(h, path))
        return KIN_FORMER;
    return !h->block && !strcmp(path, h->name) ? KIN_PATH : KIN_NONE;
}

/* Labels have the tags, too. Without a tag of its volume it may be one by other means: its document decides. */
static bool may_be_kin(const char *id, const json_t *labels, void *arg)
{
    const struct search *x = arg;
    const char *path = tag_of(labels, "path");
    (void)id;
    struct snapshot_source any = x->as;
    any.path[0] = '\0';
    if (snapshot_labels_differ(labels, &any))
        return false;
    return !path[0] || !tag_of(labels, "tag:volume-id")[0] || !strcmp(path, x->h->name) ||
           kinship_of(x->h, labels, path) != KIN_NONE;
}

static int visit(struct snapshot *s, void *arg)
{
    struct search *x = arg;
    char text[sizeof x->as + 8];
    if (strcmp(s->source.user, x->as.user) != 0 || strcmp(s->source.host, x->as.host) != 0)
        return 0;
    const enum kinship kin = kinship_of(x->h, s->tags, s->source.path);
    if (kin == KIN_NONE) {
        x->taken |= !strcmp(s->source.path, x->h->name);
        return 0;
    }
    struct snapshot_source valid; /* anybody who can write the repository can write names */
    if (kin < x->kin || (kin == x->kin && s->start_ns <= x->start_ns) ||
        snapshot_source_parse(&valid, snapshot_source_text(&s->source, text, sizeof text), NULL) < 0 ||
        !snapshot_source_equal(&valid, &s->source))
        return 0;
    x->kin = kin;
    x->start_ns = s->start_ns;
    snprintf(x->path, sizeof x->path, "%s", s->source.path);
    return 0;
}

/* A name that the repository cannot hold gives way to the id, and so does the address of an NBD export: stock clients
 * make one slash of two. */
static void name_new(const struct history *h, bool taken, struct snapshot_source *as)
{
    char text[sizeof *as + 8];
    const char *slash = h->name[0] == '/' ? "" : "/", *id = h->volume_id;
    struct snapshot_source s = *as;
    int n = (h->block || taken) && id[0] ? snprintf(s.path, sizeof s.path, "%s%s@%s", slash, h->name, id)
                                         : snprintf(s.path, sizeof s.path, "%s%s", slash, h->name);
    if (n >= (int)sizeof s.path || (id[0] && strstr(s.path, "//")) ||
        snapshot_source_parse(&s, snapshot_source_text(&s, text, sizeof text), NULL) < 0)
        snprintf(s.path, sizeof s.path, "/%s", id);
    memcpy(as->path, s.path, sizeof as->path);
}

int history_find(struct repo *r, const struct history *h, struct snapshot_source *as, struct err *e)
{
    struct search x = {.h = h, .as = *as, .start_ns = INT64_MIN};
    int rc = snapshots_wanted(r, may_be_kin, visit, &x, NULL, e);
    if (rc < 0)
        return rc;
    /* A file that has another one's name is not its successor. */
    if (x.kin == KIN_NONE || (x.kin == KIN_PATH && x.taken))
        name_new(h, x.taken, as);
    else
        memcpy(as->path, x.path, sizeof as->path);
    return 0;
}
