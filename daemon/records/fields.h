/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fields.h - structs with a table of their fields: made, copied, compared, loaded from and stored as JSON by the table
 *
 * A table names each field as it is on disk and on the wire, where it lies in the struct and what it is. Members of a
 * document that the table does not know, or whose value has another type than the table says, are kept in the struct's
 * `unknown` (those that it does not know as text, where the table has a field for the rest) and written again, so that
 * what a newer version wrote survives an older one.
 *
 * Strings are shared (strings.h). Parts that many rows have in common (a policy, a class, a volume) are shared structs:
 * immutable, counted, equal ones are one. Not thread-safe: the event loop's thread only. Lack of memory is noted as
 * strings.h says.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_FIELDS_H
#define SNAPFERRY_DAEMON_RECORDS_FIELDS_H

#include "base/err.h"
#include "daemon/records/strings.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- tables ---- */

enum field_type {
    FIELD_STR,     /* char *, shared */
    FIELD_INT,     /* int64_t */
    FIELD_UINT,    /* uint64_t, of which JSON has 63 bits */
    FIELD_BOOL,    /* bool */
    FIELD_REAL,    /* double; an integer is one too */
    FIELD_ENUM,    /* an enum: 0 is none or unknown, and has no name */
    FIELD_STRS,    /* struct strs */
    FIELD_JSON,    /* json_t *, any value but null */
    FIELD_OBJECT,  /* json_t *, an object */
    FIELD_ARRAY,   /* json_t *, an array */
    FIELD_TEXT,    /* char *, shared: the JSON text of an object that is only handed on, as small as it can be kept */
    FIELD_REST,    /* char *, shared: the text of all members that the table does not know, likewise; the last field */
    FIELD_STRUCT,  /* a struct with a table, by value */
    FIELD_STRUCTS, /* struct list_of_structs */
    FIELD_SHARED,  /* const struct X *, see below */
    FIELD_ERR,     /* enum err_class: the number as `name` ("code") and its word as "class"; reads either */
};

enum field_flag {
    FIELD_ALWAYS = 1 << 0, /* written also while it has its unset value */
    FIELD_NULL = 1 << 1,   /* the unset value is written as null */
    FIELD_TRUE = 1 << 2,   /* of a struct: `true` stands for one of which nothing is known but that it is there */
    FIELD_THERE = 1 << 3   /* a bool that is no member of its own: whether the struct is there at all */
};

struct fields;
struct field_desc {
    const char *name;
    uint16_t offset;
    uint8_t type;  /* enum field_type */
    uint8_t flags; /* enum field_flag */
    uint8_t since; /* schema that has it first */
    int8_t unset;  /* value of a number that means "not set" */
    union {
        const struct enum_names *names; /* FIELD_ENUM */
        const struct fields *of;        /* FIELD_STRUCT, FIELD_STRUCTS, FIELD_SHARED */
    };
    const char *unit;  /* "ns", "s", "bytes", ...; NULL: none */
    const char *about; /* one line for the documentation */
};

struct enum_names {
    const char *const *names; /* [0] is "" */
    unsigned n;
};
/* "" for 0 and what is no value of the enum. */
const char *enum_name(const struct enum_names *e, int v);
/* 0: no value has that name. */
int enum_value(const struct enum_names *e, const char *name);

struct field_index; /* finds fields by name; made when it is first needed */
/* Most fields of most rows are unset: what making, copying and clearing need for that. Made when it is first needed. */
struct field_plan {
    unsigned char *image; /* of the table's size: a struct of which nothing is set */
    uint8_t *owned;       /* numbers of the n fields that have something to give back; room for all */
    unsigned n;
    bool made;
};
struct fields {
    const char *name; /* in the documentation: "operation" */
    const struct field_desc *v;
    unsigned n;
    size_t size;
    size_t unknown;   /* offset of json_t *unknown */
    const void *none; /* of a shared struct: the one that stands for no other, NULL never */
    bool keep_text;   /* shared ones keep their JSON text: they are written again and again */
    struct field_index **index;
    struct field_plan *plan;
};

/* FIELD_STRUCTS: `v` points to n structs one after the other. */
struct list_of_structs {
    void *v;
    unsigned n;
};

void fields_init(const struct fields *t, void *s);
void fields_clear(const struct fields *t, void *s); /* leaves it as fields_init() does */
/* `ret` is uninitialized; on failure it is initialized and empty. */
int fields_copy(const struct fields *t, void *ret, const void *s);
bool fields_equal(const struct fields *t, const void *a, const void *b);
/* Whether anything differs from its unset value. */
bool fields_set(const struct fields *t, const void *s);
/* Into an initialized struct; what `doc` lacks is unset then. Fails for lack of memory only. */
int fields_load(const struct fields *t, void *s, const json_t *doc);
/* The same of JSON text. -EINVAL: it is no JSON object; -ENOMEM. */
int fields_read(const struct fields *t, void *s, const char *text, size_t n);
/* Compact JSON text, malloc()ed; NULL: no memory. */
char *fields_text(const struct fields *t, const void *s, size_t *len);
/* Makes and keeps the texts of what it shares with others: afterwards fields_text() of it changes nothing, so that it
 * may be called by another thread. */
int fields_share_texts(const struct fields *t, const void *s);
/* New reference; NULL: no memory. */
json_t *fields_to_json(const struct fields *t, const void *s);

/* Of a struct X with a table X_fields that is no row: X_init(&x), X_clear(&x). */
#define FIELDS_LIFE(X)                                                                                                 \
    extern const struct fields X##_fields;                                                                             \
    static inline void X##_init(struct X *x)                                                                           \
    {                                                                                                                  \
        fields_init(&X##_fields, x);                                                                                   \
    }                                                                                                                  \
    static inline void X##_clear(struct X *x)                                                                          \
    {                                                                                                                  \
        fields_clear(&X##_fields, x);                                                                                  \
    }
/* These, and X_load(&x, doc): into an initialized one, whose contents are replaced; doc NULL: there is none. It fails
 * for lack of memory only. */
#define FIELDS_DOCUMENT(X)                                                                                             \
    FIELDS_LIFE(X)                                                                                                     \
    static inline int X##_load(struct X *x, const json_t *doc)                                                         \
    {                                                                                                                  \
        return fields_load(&X##_fields, x, doc);                                                                       \
    }

/* A member that is a json_t * becomes another reference to v (NULL: none); json_take() takes the reference over. */
static inline void json_take(json_t **at, json_t *v)
{
    json_decref(*at);
    *at = v;
}
static inline void json_set(json_t **at, const json_t *v)
{
    json_take(at, json_incref((json_t *)(uintptr_t)v));
}

/* A FIELD_TEXT member becomes the text of an object; v NULL: of none. Fails for lack of memory only. */
int text_set(char **at, const json_t *v);
/* A new reference; NULL: there is none, or no memory. */
json_t *text_document(const char *text);

/* ---- shared structs ---- */

/* At the head of a struct that is shared. */
struct shared {
    uint32_t refs, hash; /* refs 0: not a shared one (yet), or the type's none */
    const struct fields *type;
    struct shared *next;
    char *text; /* keep_text: as JSON */
    size_t text_len;
};
/* The one equal to `s`, whose contents are taken over: `s` is cleared. With no memory: the type's none. */
const void *shared_make(const struct fields *t, void *s);
const void *shared_ref(const void *p);
void shared_unref(const void *p);
bool shared_is_none(const void *p);
/* The one with the contents of `doc`; what is no object is the type's none. */
const void *shared_from_json(const struct fields *t, const json_t *doc);

#endif
