/* SPDX-License-Identifier: GPL-2.0-or-later */
/* nearest.c - the known word nearest to a mistyped one */
#include "base/nearest.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Longer words are truncated. */
#define WORD_MAX 256

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;
    return m < c ? m : c;
}

/* Optimal string alignment: insertions, deletions, replacements and transpositions count one each. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned row[3][WORD_MAX + 1];
    size_t n = strnlen(a, WORD_MAX), m = strnlen(b, WORD_MAX);
    for (unsigned j = 0; j <= m; j++)
        row[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        unsigned *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = min3(now[j - 1] + 1, last[j] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < now[j])
                now[j] = before[j - 2] + 1;
        }
    }
    return row[n % 3][m];
}

/* The known word that needs the fewest edits, NULL if none is known. */
static const char *nearest_word(const char *word, nearest_fn *known, void *arg)
{
    const char *best = NULL, *w;
    unsigned least_edits = UINT32_MAX;
    for (unsigned i = 0; (w = known(i, arg)); i++) {
        unsigned d = edit_distance(word, w);
        if (d < least_edits) {
            least_edits = d;
            best = w;
        }
    }
    return best;
}

void nearest_listed(const char *word, const char *list, char *out, size_t cap)
{
    unsigned least_edits = UINT32_MAX;
    *out = '\0';
    for (const char *w = list; *w; w += strspn(w, " ")) {
        char one[WORD_MAX + 1];
        const size_t len = strcspn(w, " ");
        snprintf(one, sizeof one, "%.*s", (int)len, w);
        unsigned d = edit_distance(word, one);
        if (d < least_edits) {
            least_edits = d;
            snprintf(out, cap, "%s", one);
        }
        w += len;
    }
}

bool nearest_is_slip(const char *word, const char *known)
{
    size_t a = strnlen(word, WORD_MAX), b = strnlen(known, WORD_MAX), len = a > b ? a : b;
    unsigned d = edit_distance(word, known);
    return d < len && d <= (len < 6 ? 1 : len / 3);
}

const char *nearest_meant(const char *word, nearest_fn *known, void *arg)
{
    const char *near = nearest_word(word, known, arg);
    return near && nearest_is_slip(word, near) ? near : NULL;
}

int nearest_hint(struct err *e, const char *near, const char *listed)
{
    return near ? err_hint(e, "did you mean \"%.200s\"? %s", near, listed) : err_hint(e, "%s", listed);
}
