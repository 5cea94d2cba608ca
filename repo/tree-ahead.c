/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/tree-ahead.h"

#include "base/cleanup.h"
#include "repo/docstream.h"
#include "repo/gojson.h"

#include <stdlib.h>
#include <string.h>

#define ITEMS CONTENT_AHEAD_ITEMS
#define DEPTH_MAX 8                  /* of directories that are read ahead */
#define ENTRY_MAX ((size_t)16 << 10) /* text of an entry; all that is longer is left to the visit */

struct tree_ahead {
    struct repo *r;
    struct content_ahead *ahead;
    tree_visit_fn *visit;
    void *arg;
    size_t added, visited;
    int rc;
    struct tree {
        struct snapshot s;
        bool known;
    } trees[ITEMS]; /* those that were added and not visited yet; a job reads its own */
};

/* ---- reading ahead: whatever is unusual is left out ---- */

struct memory {
    const uint8_t *at;
    size_t left;
};

static int64_t memory_read(void *arg, void *buf, size_t len, struct err *e)
{
    (void)e;
    struct memory *m = arg;
    const size_t n = m->left < len ? m->left : len;
    memcpy(buf, m->at, n);
    m->at += n;
    m->left -= n;
    return (int64_t)n;
}

static int64_t read_content(struct repo *r, struct content_ahead_job *j, const struct content_id *id,
                            const uint8_t **ret)
{
    struct err ignored = ERR_INIT;
    struct index_entry x;
    return repo_find(r, id, &x, &ignored) < 0 ? -1 : content_ahead_read(j, &x, ret);
}

static void read_object(struct repo *r, struct content_ahead_job *j, const struct object_id *o, bool dir,
                        unsigned depth);

static bool child_of_dir(const json_t *v, struct object_id *ret, bool *dir)
{
    struct dir_entry d;
    if (dir_entry_parse(&d, v) < 0)
        return false;
    *ret = d.obj;
    *dir = d.type == 'd';
    dir_entry_clear(&d);
    return true;
}

static bool part_of_document(const json_t *v, struct object_id *ret)
{
    const char *id = "";
    return json_is_object(v) && go_string(v, "o", &id) == 0 && object_id_parse(ret, id, strlen(id)) == 0;
}

/* The objects that a directory names, or the parts of an index document. */
static void read_named(struct repo *r, struct content_ahead_job *j, struct memory *text, bool dir, unsigned depth)
{
    struct err ignored = ERR_INIT;
    struct docstream *d CLEANUP(docstream_freep) = NULL;
    const char *elem;
    size_t n;
    if (docstream_new(&d, dir ? "kopia:directory" : "kopia:indirect", ENTRY_MAX, memory_read, text, &ignored) < 0)
        return;
    while (docstream_next(d, &elem, &n, &ignored) == 1) {
        json_t *v = go_parse(elem, n);
        struct object_id o;
        const uint8_t *unused;
        bool sub;
        if (dir && child_of_dir(v, &o, &sub))
            read_object(r, j, &o, sub, depth + 1);
        else if (!dir && part_of_document(v, &o) && !o.indirection && !o.compressed)
            read_content(r, j, &o.content, &unused);
        json_decref(v);
    }
}

/* A directory that is one content, with what is below it, and the contents of an index document but for a third level:
 * the document of a document. */
static void read_object(struct repo *r, struct content_ahead_job *j, const struct object_id *o, bool dir,
                        unsigned depth)
{
    struct memory text;
    const bool direct = o->indirection == 0;
    if (!o->content.len || o->compressed || (direct && !dir) || depth > DEPTH_MAX)
        return;
    const int64_t n = read_content(r, j, &o->content, &text.at);
    text.left = n < 0 ? 0 : (size_t)n;
    if (n > 0 && (direct || o->indirection == 2))
        read_named(r, j, &text, direct, depth);
}

static void read_tree(void *arg, size_t i, struct content_ahead_job *j)
{
    struct tree_ahead *t = arg;
    const struct tree *x = &t->trees[i % ITEMS];
    if (!x->known)
        read_object(t->r, j, &x->s.root.obj, x->s.root.type == 'd', 0);
}

/* ---- visiting ---- */

int tree_ahead_new(struct tree_ahead **ret, struct repo *r, size_t memory, tree_visit_fn *visit, void *arg,
                   struct err *e)
{
    struct tree_ahead *t = calloc(1, sizeof *t);
    if (!t)
        return err_nomem(e);
    *t = (struct tree_ahead){.r = r, .visit = visit, .arg = arg};
    t->ahead = content_ahead_new(r, memory, 0, read_tree, t);
    *ret = t;
    return 0;
}

void tree_ahead_free(struct tree_ahead *t)
{
    if (!t)
        return;
    content_ahead_free(t->ahead);
    for (; t->visited < t->added; t->visited++)
        snapshot_clear(&t->trees[t->visited % ITEMS].s);
    free(t);
}

static void visit_next(struct tree_ahead *t)
{
    struct snapshot *s = &t->trees[t->visited % ITEMS].s;
    content_ahead_at(t->ahead, t->visited++);
    t->rc = t->visit(s, t->ahead, t->arg);
    snapshot_clear(s);
}

int tree_ahead_add(struct tree_ahead *t, struct snapshot *s, bool known)
{
    if (!t->ahead && t->rc == 0)
        t->rc = t->visit(s, NULL, t->arg);
    if (t->rc == 0 && t->added - t->visited == ITEMS)
        visit_next(t);
    if (t->rc || !t->ahead)
        return t->rc;
    t->trees[t->added++ % ITEMS] = (struct tree){.s = *s, .known = known};
    *s = (struct snapshot){.id = ""};
    content_ahead_more(t->ahead, t->added);
    return 0;
}

int tree_ahead_end(struct tree_ahead *t, int rc, struct err *e)
{
    const struct err before = *e;
    *e = (struct err)ERR_INIT;
    while (t->rc == 0 && t->visited < t->added)
        visit_next(t);
    if (e->cls == ERR_NONE)
        *e = before;
    return t->rc ? t->rc : rc;
}
