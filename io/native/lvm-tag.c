/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lvm-tag.c - owner tags of logical volumes
 *
 * A tag of LVM has letters, digits and _+.-/=!:&# only. Ours is "snapferry+ALIAS+PIECE/PIECES+" and a piece of the
 * text of all members, joined by '+'; in a member all but letters, digits and _.-/: is written as "=HH".
 */
#include "io/native/lvm.h"

#include "base/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWNER "snapferry+"
#define EXPOSED "snapferry-exposed+"
#define INHERITED "snapferry-volume+"
#define RESERVED "snapferry-metadata+"
#define VERSION "1"
#define PIECE_MAX 900
#define BODY_MAX (LVM_TAGS_MAX * PIECE_MAX)

static const char *const kinds[] = {"native", "intermediate", "staging", "replaced"};
#define N_KINDS (sizeof kinds / sizeof *kinds)

/* ---- members ---- */

struct writer {
    char *out;
    size_t n, max;
    bool full;
};

static void put_char(struct writer *w, char c)
{
    if (w->n + 1 >= w->max) {
        w->full = true;
        return;
    }
    w->out[w->n++] = c;
    w->out[w->n] = '\0';
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("_.-/:", c));
}

static void put_member(struct writer *w, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    if (w->n)
        put_char(w, '+');
    for (; *text; text++) {
        if (is_plain(*text)) {
            put_char(w, *text);
        } else {
            put_char(w, '=');
            put_char(w, hex[(unsigned char)*text >> 4]);
            put_char(w, hex[(unsigned char)*text & 15]);
        }
    }
}

static void put_number(struct writer *w, uint64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, n);
    put_member(w, text);
}

struct reader {
    const char *at; /* NULL: past the last member */
    bool bad;
};

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void take_member(struct reader *r, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    if (!r->at) {
        r->bad = true;
        return;
    }
    for (; *r->at && *r->at != '+'; r->at++) {
        char c = *r->at;
        if (c == '=') {
            int high = hex_value(r->at[1]), low = high < 0 ? -1 : hex_value(r->at[2]);
            if (low < 0 || !(high | low)) {
                r->bad = true;
                return;
            }
            c = (char)(high << 4 | low);
            r->at += 2;
        }
        if (n + 1 >= size) {
            r->bad = true;
            return;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    r->at = *r->at ? r->at + 1 : NULL;
}

static uint64_t take_number(struct reader *r)
{
    char text[24], *end;
    take_member(r, text, sizeof text);
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno)
        r->bad = true;
    return n;
}

static int too_long(const char *name, struct err *e)
{
    return err_set(e, ERR_USAGE, E2BIG, "the owner tag of %.256s is too long for LVM", name);
}

/* ---- the owner tag ---- */

/* Usual and long: not written twice. */
static bool is_usual_operation(const struct native_tag *t)
{
    char usual[sizeof t->operation];
    int n = snprintf(usual, sizeof usual, "up-%s.%s", t->backup, t->volume_id);
    return n > 0 && (size_t)n < sizeof usual && strcmp(usual, t->operation) == 0;
}

int lvm_tag_write(const struct lvm_tag *t, struct lvm_tags *ret, struct err *e)
{
    CLEANUP_FREE char *body = calloc(1, BODY_MAX);
    if (!body)
        return err_nomem(e);
    struct writer w = {body, 0, BODY_MAX, false};
    const struct native_tag *n = &t->tag;
    put_member(&w, VERSION);
    put_member(&w, kinds[t->kind]);
    put_member(&w, t->node);
    put_member(&w, t->vg_uuid);
    put_member(&w, n->volume_id);
    put_member(&w, n->volume_name);
    put_member(&w, n->backup);
    if (is_usual_operation(n)) {
        put_char(&w, '+');
        put_char(&w, '!'); /* in no member as it is */
    } else {
        put_member(&w, n->operation);
    }
    put_member(&w, n->repository);
    put_number(&w, (uint64_t)n->created_ns);
    put_number(&w, n->seq);
    put_number(&w, t->size);
    if (t->kind == LVM_INTERMEDIATE) {
        put_member(&w, t->read_only ? "ro" : "rw");
        put_member(&w, t->klass);
    }
    if (t->kind == LVM_STAGING || t->kind == LVM_REPLACED) {
        put_member(&w, t->overwrite ? "over" : "new");
        put_member(&w, t->final);
    }
    if (w.full)
        return too_long(n->volume_name, e);
    ret->n = (unsigned)((w.n + PIECE_MAX - 1) / PIECE_MAX);
    for (unsigned i = 0; i < ret->n; i++)
        snprintf(ret->text[i], LVM_TAG_MAX, OWNER "%s+%u/%u+%.*s", n->alias, i + 1, ret->n, PIECE_MAX,
                 body + (size_t)i * PIECE_MAX);
    return 0;
}

int lvm_each_tag(const char *tags, lvm_each_tag_fn *fn, void *arg)
{
    char tag[LVM_TAG_MAX + 1];
    while (*tags) {
        size_t n = strcspn(tags, ",");
        if (n < sizeof tag) {
            memcpy(tag, tags, n);
            tag[n] = '\0';
            int rc = fn(tag, arg);
            if (rc != 0)
                return rc;
        }
        tags += n + (tags[n] == ',');
    }
    return 0;
}

struct gathering {
    char alias[ALIAS_LEN + 1];
    unsigned pieces, found;
    bool bad;
    char *body;
};

static int gather(const char *tag, void *arg)
{
    struct gathering *g = arg;
    char alias[ALIAS_LEN + 1];
    unsigned i, n;
    int used = 0;
    if (strncmp(tag, OWNER, sizeof OWNER - 1) != 0)
        return 0;
    tag += sizeof OWNER - 1;
    if (strlen(tag) < ALIAS_LEN + 1) {
        g->bad = true;
        return 0;
    }
    memcpy(alias, tag, ALIAS_LEN);
    alias[ALIAS_LEN] = '\0';
    if (!alias_valid(alias) || sscanf(tag + ALIAS_LEN, "+%2u/%2u+%n", &i, &n, &used) < 2 || !used || !i || i > n ||
        n > LVM_TAGS_MAX || (g->pieces && (g->pieces != n || strcmp(g->alias, alias) != 0))) {
        g->bad = true;
        return 0;
    }
    const char *piece = tag + ALIAS_LEN + used;
    const size_t len = strlen(piece);
    if (len > PIECE_MAX || (i < n && len != PIECE_MAX)) {
        g->bad = true;
        return 0;
    }
    memcpy(g->alias, alias, sizeof g->alias);
    g->pieces = n;
    g->found++;
    memcpy(g->body + (size_t)(i - 1) * PIECE_MAX, piece, len);
    return 0;
}

static int read_body(const char *body, struct lvm_tag *t)
{
    struct reader r = {body, false};
    struct native_tag *n = &t->tag;
    char word[32];
    take_member(&r, word, sizeof word);
    r.bad |= strcmp(word, VERSION) != 0;
    take_member(&r, word, sizeof word);
    size_t kind = 0;
    while (kind < N_KINDS && strcmp(kinds[kind], word) != 0)
        kind++;
    t->kind = (enum lvm_kind)kind;
    r.bad |= kind == N_KINDS;
    take_member(&r, t->node, sizeof t->node);
    take_member(&r, t->vg_uuid, sizeof t->vg_uuid);
    take_member(&r, n->volume_id, sizeof n->volume_id);
    take_member(&r, n->volume_name, sizeof n->volume_name);
    take_member(&r, n->backup, sizeof n->backup);
    take_member(&r, n->operation, sizeof n->operation);
    if (strcmp(n->operation, "!") == 0)
        snprintf(n->operation, sizeof n->operation, "up-%s.%s", n->backup, n->volume_id);
    take_member(&r, n->repository, sizeof n->repository);
    n->created_ns = (int64_t)take_number(&r);
    n->seq = take_number(&r);
    t->size = take_number(&r);
    if (t->kind == LVM_INTERMEDIATE) {
        take_member(&r, word, sizeof word);
        t->read_only = strcmp(word, "ro") == 0;
        take_member(&r, t->klass, sizeof t->klass);
    }
    if (t->kind == LVM_STAGING || t->kind == LVM_REPLACED) {
        take_member(&r, word, sizeof word);
        t->overwrite = strcmp(word, "over") == 0;
        take_member(&r, t->final, sizeof t->final);
    }
    return r.bad || !t->node[0] ? -ENODATA : 0;
}

int lvm_tag_read(const struct lvm_lv *lv, struct lvm_tag *ret)
{
    if (!strstr(lv->tags, OWNER))
        return -ENODATA;
    CLEANUP_FREE char *body = calloc(1, BODY_MAX + 1);
    struct gathering g = {.body = body};
    memset(ret, 0, sizeof *ret);
    if (!body)
        return -ENODATA;
    lvm_each_tag(lv->tags, gather, &g);
    if (g.bad || !g.pieces || g.found != g.pieces || read_body(body, ret) < 0 || strcmp(ret->vg_uuid, lv->vg_uuid) != 0)
        return -ENODATA;
    memcpy(ret->tag.alias, g.alias, sizeof ret->tag.alias);
    return 0;
}

bool lvm_is_ours(const struct lvm_lv *lv, const struct lvm_tag *t)
{
    if (t->kind == LVM_STAGING || t->kind == LVM_REPLACED)
        return strncmp(lv->name, LVM_PREFIX, sizeof LVM_PREFIX - 1) == 0;
    return true;
}

bool lvm_is_our_tag(const char *tag)
{
    return strncmp(tag, OWNER, sizeof OWNER - 1) == 0 || strncmp(tag, EXPOSED, sizeof EXPOSED - 1) == 0 ||
           strncmp(tag, INHERITED, sizeof INHERITED - 1) == 0 || strncmp(tag, RESERVED, sizeof RESERVED - 1) == 0;
}

/* ---- the other three ---- */

int lvm_exposed_write(const struct lvm_exposed *x, char ret[LVM_TAG_MAX], struct err *e)
{
    char body[LVM_TAG_MAX - sizeof EXPOSED];
    struct writer w = {body, 0, sizeof body, false};
    put_member(&w, x->alias);
    put_member(&w, x->node);
    put_number(&w, (uint64_t)x->created_ns);
    if (w.full)
        return too_long(x->alias, e);
    snprintf(ret, LVM_TAG_MAX, EXPOSED "%s", body);
    return 0;
}

bool lvm_exposed_read(const char *tag, struct lvm_exposed *ret)
{
    if (strncmp(tag, EXPOSED, sizeof EXPOSED - 1) != 0)
        return false;
    struct reader r = {tag + sizeof EXPOSED - 1, false};
    take_member(&r, ret->alias, sizeof ret->alias);
    take_member(&r, ret->node, sizeof ret->node);
    ret->created_ns = (int64_t)take_number(&r);
    return !r.bad && alias_valid(ret->alias);
}

int lvm_reserved_write(const struct lvm_reserved *x, char ret[LVM_TAG_MAX], struct err *e)
{
    char body[LVM_TAG_MAX - sizeof RESERVED - 24]; /* room for the number, too */
    char owner[sizeof x->owner.boot_id + 64];
    struct writer w = {body, 0, sizeof body, false};
    process_id_text(&x->owner, owner, sizeof owner);
    put_member(&w, x->alias);
    put_member(&w, x->node);
    put_member(&w, x->vg_uuid);
    put_number(&w, (uint64_t)x->created_ns);
    put_member(&w, owner);
    if (w.full)
        return too_long(x->alias, e);
    if (x->root)
        snprintf(ret, LVM_TAG_MAX, RESERVED "%s+%" PRIu64, body, x->root);
    else
        snprintf(ret, LVM_TAG_MAX, RESERVED "%s+-", body);
    return 0;
}

bool lvm_reserved_read(const char *tag, const char *vg_uuid, struct lvm_reserved *ret)
{
    char owner[128], root[24], *end;
    if (strncmp(tag, RESERVED, sizeof RESERVED - 1) != 0)
        return false;
    struct reader r = {tag + sizeof RESERVED - 1, false};
    take_member(&r, ret->alias, sizeof ret->alias);
    take_member(&r, ret->node, sizeof ret->node);
    take_member(&r, ret->vg_uuid, sizeof ret->vg_uuid);
    ret->created_ns = (int64_t)take_number(&r);
    take_member(&r, owner, sizeof owner);
    take_member(&r, root, sizeof root);
    errno = 0;
    ret->root = strcmp(root, "-") == 0 ? 0 : strtoull(root, &end, 10);
    if (r.at || (strcmp(root, "-") != 0 && (root[0] < '1' || root[0] > '9' || *end || errno)))
        r.bad = true;
    return !r.bad && alias_valid(ret->alias) && strcmp(ret->vg_uuid, vg_uuid) == 0 &&
           process_id_parse(&ret->owner, owner) == 0;
}

int lvm_inherited_write(const char *id, const char *vg_uuid, const char *restored, char ret[LVM_TAG_MAX], struct err *e)
{
    char body[LVM_TAG_MAX - sizeof INHERITED];
    struct writer w = {body, 0, sizeof body, false};
    put_member(&w, vg_uuid);
    put_member(&w, id);
    put_member(&w, restored);
    if (w.full)
        return too_long(id, e);
    snprintf(ret, LVM_TAG_MAX, INHERITED "%s", body);
    return 0;
}

bool lvm_inherited_read(const char *tag, const char *vg_uuid, char id[VOLUME_ID_MAX], char restored[ALIAS_LEN + 1])
{
    char uuid[64];
    if (strncmp(tag, INHERITED, sizeof INHERITED - 1) != 0)
        return false;
    struct reader r = {tag + sizeof INHERITED - 1, false};
    take_member(&r, uuid, sizeof uuid);
    take_member(&r, id, VOLUME_ID_MAX);
    take_member(&r, restored, ALIAS_LEN + 1);
    return !r.bad && id[0] && strcmp(uuid, vg_uuid) == 0;
}

struct inherited {
    const struct lvm_lv *lv;
    char id[VOLUME_ID_MAX], restored[ALIAS_LEN + 1];
    const char *by; /* NULL: any */
};

static int note_inherited(const char *tag, void *arg)
{
    struct inherited *x = arg;
    return lvm_inherited_read(tag, x->lv->vg_uuid, x->id, x->restored) && (!x->by || strcmp(x->by, x->restored) == 0);
}

void lvm_volume_id(const struct lvm_lv *lv, char ret[VOLUME_ID_MAX])
{
    struct inherited x = {.lv = lv};
    if (lvm_each_tag(lv->tags, note_inherited, &x) == 1)
        memcpy(ret, x.id, sizeof x.id);
    else
        snprintf(ret, VOLUME_ID_MAX, "lvm:%s", lv->uuid);
}

bool lvm_restored_by(const struct lvm_lv *lv, const char *alias)
{
    struct inherited x = {.lv = lv, .by = alias};
    return lvm_each_tag(lv->tags, note_inherited, &x) == 1;
}
