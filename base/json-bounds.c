/* SPDX-License-Identifier: GPL-2.0-or-later */
/* json-bounds.c - see json-bounds.h */
#include "base/json-bounds.h"

/* The index of the quote that ends the string which begins at `i`, or `len`. */
static size_t string_end(const char *text, size_t len, size_t i)
{
    for (i++; i < len && text[i] != '"'; i++)
        i += text[i] == '\\';
    return i;
}

/* A list or an object begins at `i`: whether it has a first element. */
static bool has_elements(const char *text, size_t len, size_t i)
{
    do
        i++;
    while (i < len && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r'));
    return i < len && text[i] != ']' && text[i] != '}';
}

bool json_within(const char *text, size_t len, const struct json_bounds *b)
{
    size_t values = 1; /* each comma begins one more, and so does the beginning of a list or object that is not empty */
    unsigned depth = 0;
    for (size_t i = 0; i < len; i++) {
        switch (text[i]) {
        case '"':
            i = string_end(text, len, i);
            break;
        case '[':
        case '{':
            values += has_elements(text, len, i);
            if (++depth > b->depth)
                return false;
            break;
        case ']':
        case '}':
            depth -= depth > 0;
            break;
        case ',':
            values++;
            break;
        default:
            break;
        }
        if (values > b->values)
            return false;
    }
    return true;
}

size_t json_values(const json_t *doc)
{
    size_t n = 1, i;
    const char *key;
    json_t *v;
    if (json_is_object(doc))
        json_object_foreach((json_t *)(uintptr_t)doc, key, v) n += json_values(v);
    json_array_foreach(doc, i, v) n += json_values(v);
    return n;
}
