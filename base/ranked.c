/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ranked.c - see ranked.h */
#include "base/ranked.h"

static uint32_t count(const struct ranked_node *t)
{
    return t ? t->n : 0;
}

static void sum(struct ranked_node *t)
{
    t->n = count(t->left) + count(t->right) + 1;
}

/* Into those before `node` and the others. */
static void split(const struct ranked *r, struct ranked_node *t, const struct ranked_node *node,
                  struct ranked_node **less, struct ranked_node **rest)
{
    if (!t) {
        *less = *rest = NULL;
    } else if (r->before(t, node)) {
        split(r, t->right, node, &t->right, rest);
        *less = t;
        sum(t);
    } else {
        split(r, t->left, node, less, &t->left);
        *rest = t;
        sum(t);
    }
}

static struct ranked_node *join(struct ranked_node *a, struct ranked_node *b)
{
    if (!a || !b)
        return a ? a : b;
    if (a->weight > b->weight) {
        a->right = join(a->right, b);
        sum(a);
        return a;
    }
    b->left = join(a, b->left);
    sum(b);
    return b;
}

void ranked_add(struct ranked *r, struct ranked_node *node)
{
    r->random ^= r->random << 13;
    r->random ^= r->random >> 17;
    r->random ^= r->random << 5;
    *node = (struct ranked_node){.n = 1, .weight = r->random};
    struct ranked_node **at = &r->root;
    while (*at && (*at)->weight >= node->weight) {
        (*at)->n++;
        at = r->before(*at, node) ? &(*at)->right : &(*at)->left;
    }
    split(r, *at, node, &node->left, &node->right);
    sum(node);
    *at = node;
}

void ranked_remove(struct ranked *r, struct ranked_node *node)
{
    struct ranked_node **at = &r->root;
    while (*at != node) {
        (*at)->n--;
        at = r->before(*at, node) ? &(*at)->right : &(*at)->left;
    }
    *at = join(node->left, node->right);
}

struct ranked_node *ranked_find(const struct ranked *r, const struct ranked_node *like)
{
    struct ranked_node *t = r->root;
    while (t) {
        if (r->before(t, like))
            t = t->right;
        else if (r->before(like, t))
            t = t->left;
        else
            break;
    }
    return t;
}

struct ranked_node *ranked_at(const struct ranked *r, size_t place)
{
    struct ranked_node *t = r->root;
    while (t && place != count(t->left)) {
        if (place < count(t->left)) {
            t = t->left;
        } else {
            place -= count(t->left) + 1;
            t = t->right;
        }
    }
    return t;
}

size_t ranked_place(const struct ranked *r, const struct ranked_node *node)
{
    const struct ranked_node *t = r->root;
    size_t n = 0;
    while (t) {
        const bool before = r->before(t, node);
        n += before ? count(t->left) + 1 : 0;
        t = before ? t->right : t->left;
    }
    return n;
}
