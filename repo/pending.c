/* SPDX-License-Identifier: GPL-2.0-or-later */
/* pending.c - hash table of contents not yet indexed. */
#include "repo/pending.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct pending_entry) == 64, "one cache line a content");

static uint32_t slots_for(uint32_t cap)
{
    uint32_t n = 16;
    while (n < cap + cap / 2)
        n *= 2;
    return n;
}

int pending_init(struct pending *t, uint32_t cap, struct err *e)
{
    uint32_t n = slots_for(cap);
    /* Zeroed by the kernel page by page: unused parts take no memory. */
    *t = (struct pending){
        .entries = calloc(cap, sizeof *t->entries),
        .slots = calloc(n, sizeof *t->slots),
        .cap = cap,
        .mask = n - 1,
        .free = PENDING_NONE,
    };
    if (t->entries && t->slots)
        return 0;
    pending_clear(t);
    return err_nomem(e);
}

void pending_clear(struct pending *t)
{
    free(t->entries);
    free(t->slots);
    *t = (struct pending){0};
}

/* Hashes are keyed, so a part of one is as good as any hash of it. */
static uint32_t home_slot(const struct pending *t, const uint8_t hash[32], char prefix)
{
    uint32_t h;
    memcpy(&h, hash, sizeof h);
    return (h + (uint32_t)(uint8_t)prefix * UINT32_C(0x9e3779b1)) & t->mask;
}

static bool entry_matches(const struct pending_entry *p, const struct content_id *id)
{
    return p->prefix == id->prefix && p->len == id->len && !memcmp(p->hash, id->hash, id->len);
}

/* The slot of an id, or the empty one for it. */
static uint32_t slot_of(const struct pending *t, const struct content_id *id)
{
    uint32_t s = home_slot(t, id->hash, id->prefix);
    while (t->slots[s] != 0 && !entry_matches(&t->entries[t->slots[s] - 1], id))
        s = (s + 1) & t->mask;
    return s;
}

uint32_t pending_find(const struct pending *t, const struct content_id *id)
{
    return t->slots[slot_of(t, id)] - 1; /* 0 - 1 = PENDING_NONE */
}

uint32_t pending_add(struct pending *t, const struct content_id *id)
{
    uint32_t i = t->free;
    if (i != PENDING_NONE)
        t->free = t->entries[i].next;
    else if (t->used < t->cap)
        i = t->used++;
    else
        return PENDING_NONE;
    struct pending_entry *p = &t->entries[i];
    *p = (struct pending_entry){.prefix = id->prefix, .len = id->len, .state = PENDING_CLAIMED, .next = PENDING_NONE};
    memcpy(p->hash, id->hash, id->len);
    t->slots[slot_of(t, id)] = i + 1;
    t->count++;
    return i;
}

void pending_remove(struct pending *t, uint32_t i)
{
    struct pending_entry *p = &t->entries[i];
    uint32_t hole = home_slot(t, p->hash, p->prefix);
    while (t->slots[hole] != i + 1)
        hole = (hole + 1) & t->mask;
    /* Move back entries that could no longer be found behind an empty slot. */
    for (uint32_t s = (hole + 1) & t->mask; t->slots[s] != 0; s = (s + 1) & t->mask) {
        const struct pending_entry *q = &t->entries[t->slots[s] - 1];
        if (((s - home_slot(t, q->hash, q->prefix)) & t->mask) >= ((s - hole) & t->mask)) {
            t->slots[hole] = t->slots[s];
            hole = s;
        }
    }
    t->slots[hole] = 0;
    p->state = PENDING_FREE;
    p->next = t->free;
    t->free = i;
    t->count--;
}

void pending_id(const struct pending_entry *p, struct content_id *ret)
{
    *ret = (struct content_id){.prefix = p->prefix, .len = p->len};
    memcpy(ret->hash, p->hash, p->len);
}

int pending_cmp(const struct pending_entry *a, const struct pending_entry *b)
{
    if (a->prefix != b->prefix)
        return (uint8_t)a->prefix < (uint8_t)b->prefix ? -1 : 1;
    return memcmp(a->hash, b->hash, sizeof a->hash); /* all of one length, zeros behind */
}
