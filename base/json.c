/* SPDX-License-Identifier: GPL-2.0-or-later */
/* json.c - see json.h */
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int jset_str(json_t *o, const char *key, const char *text)
{
    json_t *v = json_string(text);
    if (!v) {
        /* Not UTF-8: each byte above 0x7f is written out, so that nothing is lost and nothing refused. */
        size_t n = strlen(text);
        char *escaped = malloc(4 * n + 1), *p = escaped;
        if (!escaped)
            return -1;
        for (size_t i = 0; i < n; i++) {
            if ((unsigned char)text[i] < 0x80)
                *p++ = text[i];
            else
                p += snprintf(p, 5, "\\x%02x", (unsigned char)text[i]);
        }
        *p = '\0';
        v = json_string(escaped);
        free(escaped);
    }
    return json_object_set_new(o, key, v);
}
