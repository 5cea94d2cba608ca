/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fuzz_gojson.c - byte 0: low 2 bits: 0 times, 1 modes and object ids, 2 snapshot manifests, 3 any JSON, printed again.
 */
#include "tests/fuzz/fuzz.h"

#include "repo/gojson.h"
#include "repo/snapshot.h"

#include <string.h>

static void times(const char *text)
{
    int64_t ns, again;
    char out[TIME_TEXT];
    if (time_parse(&ns, text) == 0) {
        MUST(time_parse(&again, time_text(ns, out)) == 0);
        MUST(again == ns);
    }
}

static void scalars(const char *text)
{
    int32_t v;
    struct object_id id, again;
    if (go_parse_int32(text, &v) == 0) {
        char out[GO_MODE_TEXT];
        uint32_t mode = go_mode_to_unix(v);
        MUST(go_parse_int32(go_mode_text(mode, out), &v) == 0);
        MUST(go_mode_to_unix(v) == mode);
    }
    if (object_id_parse(&id, text, strlen(text)) == 0) {
        char out[OBJECT_ID_TEXT];
        object_id_text(&id, out);
        MUST(object_id_parse(&again, out, strlen(out)) == 0);
        MUST(object_id_equal(&id, &again));
    }
}

static void manifest(const char *text, size_t len)
{
    struct manifest m = {.id = "00112233445566778899aabbccddeeff", .data = go_parse(text, len)};
    struct snapshot s;
    const char *why = NULL;
    if (m.data && snapshot_parse(&s, &m, &why) == 0) {
        json_t *out = snapshot_to_json(&s);
        MUST(out && s.root.obj.content.len);
        /* What we print as a snapshot is one by our own rules. */
        struct manifest again = {.data = out};
        struct snapshot s2;
        MUST(snapshot_parse(&s2, &again, NULL) == 0);
        MUST(s2.start_ns == s.start_ns && s2.total_size == s.total_size);
        MUST(snapshot_source_equal(&s.source, &s2.source));
        snapshot_clear(&s2);
        json_decref(out);
        snapshot_clear(&s);
    } else if (m.data) {
        MUST(why);
    }
    json_decref(m.data);
}

/* Reals lose their point on the way ("1.0" is printed as 1, 1e20 as an integer that nobody can hold). */
static bool has_real(const json_t *v)
{
    const char *k;
    json_t *x;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)v, k, x)
    {
        if (has_real(x))
            return true;
    }
    json_array_foreach(v, i, x)
    {
        if (has_real(x))
            return true;
    }
    return json_is_real(v);
}

static void any(const char *text, size_t len)
{
    json_t *v = go_parse(text, len);
    if (!v)
        return;
    size_t n;
    char *out = json_go_text(v, false, &n);
    MUST(out && strlen(out) == n);
    if (!has_real(v)) {
        json_t *again = go_parse(out, n);
        MUST(again);
        char *twice = json_go_text(again, false, NULL);
        MUST(twice && !strcmp(out, twice));
        free(twice);
        json_decref(again);
    }
    json_decref(go_sorted_map(v));
    free(out);
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (!len)
        return 0;
    char *text = malloc(len); /* the bytes behind the first, as a C string */
    MUST(text);
    memcpy(text, data + 1, len - 1);
    text[len - 1] = '\0';
    switch (data[0] & 3) {
    case 0:
        times(text);
        break;
    case 1:
        scalars(text);
        break;
    case 2:
        manifest(text, len - 1);
        break;
    default:
        any(text, len - 1);
    }
    free(text);
    return 0;
}
