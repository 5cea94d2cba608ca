/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ranked.h - an ordered set whose members know their place
 *
 * Adding, removing, finding, the member at a place and the place of a member cost O(log n). Nodes are part of what is
 * kept (RANKED_OF() gives it back), so that nothing is allocated and nothing can fail. A treap with the size of each
 * subtree: its shape depends on the order of calls only, not on a clock or the addresses.
 *
 * Not thread-safe.
 */
#ifndef SNAPFERRY_BASE_RANKED_H
#define SNAPFERRY_BASE_RANKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ranked_node {
    struct ranked_node *left, *right;
    uint32_t n, weight; /* n: of the subtree */
};
/* Whether a comes before b. Of two different members exactly one comes before the other. */
typedef bool ranked_before_fn(const struct ranked_node *a, const struct ranked_node *b);

struct ranked {
    struct ranked_node *root;
    ranked_before_fn *before;
    uint32_t random;
};
#define RANKED_INIT(BEFORE)                                                                                            \
    {                                                                                                                  \
        .before = (BEFORE), .random = 2463534242u                                                                      \
    }

/* The structure of which `node` is the member. */
#define RANKED_OF(node, type, member) ((type *)(void *)((char *)(uintptr_t)(node)-offsetof(type, member)))

/* What the order depends on must not change while it is a member. */
void ranked_add(struct ranked *r, struct ranked_node *node);
void ranked_remove(struct ranked *r, struct ranked_node *node);
/* The member that comes neither before nor after `like`; NULL: there is none. */
struct ranked_node *ranked_find(const struct ranked *r, const struct ranked_node *like);
/* From 0; NULL: there are not so many. */
struct ranked_node *ranked_at(const struct ranked *r, size_t place);
/* How many come before `node`, which need not be a member. */
size_t ranked_place(const struct ranked *r, const struct ranked_node *node);
static inline size_t ranked_n(const struct ranked *r)
{
    return r->root ? r->root->n : 0;
}

#endif
