/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Typed rows: every field of every table is loaded and stored as it was, whatever else a document holds. */
#include "daemon/records/records-test.h"
#include "daemon/records/request-args.h"
#include "daemon/records/states.h"
#include "daemon/records/types.h"

#include "base/json.h"
#include "test.h"

static uint64_t state = 88172645463325252u;
static uint64_t any(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : state;
}

static json_t *any_text(void)
{
    static const char *const texts[] = {
        "a",       "nightly",         "/srv/vm/a \"b\".img", "line\nfeed", "\x01\x1f\x7f",
        "\\ back", "h\xc3\xa4sslich", "\xf0\x9f\x92\xbe",    "x/y/z",      "0"};
    return any(3) ? json_string(texts[any(10)]) : json_sprintf("text %llu", (unsigned long long)any(1000));
}

static json_t *any_json(unsigned depth)
{
    json_t *j;
    switch (any(depth ? 7 : 5)) {
    case 0:
        return any_text();
    case 1:
        return json_integer((json_int_t)any(0));
    case 2:
        return json_boolean((int)any(2));
    case 3:
        return json_real((double)any(1000000) / 7);
    case 4:
        return json_integer(-(json_int_t)any(1000));
    case 5:
        j = json_array();
        for (uint64_t n = any(4); n; n--)
            json_array_append_new(j, any_json(depth - 1));
        return j;
    default:
        j = json_object();
        for (uint64_t n = any(4); n; n--)
            json_object_set_new(j, n % 2 ? "x" : "some \"name\"", any_json(depth - 1));
        return j;
    }
}

static json_t *any_object(void)
{
    json_t *j = json_object();
    json_object_set_new(j, "member", any_json(2));
    return j;
}

static json_t *any_document(const struct fields *t, bool whole);

/* A value of the field's type that is not its unset one. */
static json_t *any_value(const struct field_desc *f)
{
    json_t *j = NULL;
    switch ((enum field_type)f->type) {
    case FIELD_STR:
        return any_text();
    case FIELD_INT:
        return json_integer(any(2) ? (json_int_t)(1 + any(1000)) : (json_int_t)(1 + any(INT64_MAX - 1)));
    case FIELD_UINT:
        return json_integer((json_int_t)(1 + any(INT64_MAX - 1)));
    case FIELD_BOOL:
        return json_true();
    case FIELD_REAL:
        return json_real(0.125 + (double)any(1000000) / 3);
    case FIELD_ENUM:
        return json_string(f->names->names[1 + any(f->names->n - 1)]);
    case FIELD_ERR:
        return json_integer((json_int_t)(1 + any(25)));
    case FIELD_STRS:
        j = json_array();
        for (uint64_t n = 1 + any(5); n; n--)
            json_array_append_new(j, any_text());
        return j;
    case FIELD_JSON:
        return any_json(3);
    case FIELD_OBJECT:
    case FIELD_TEXT:
        return any_object();
    case FIELD_ARRAY:
        j = json_array();
        json_array_append_new(j, any_json(2));
        return j;
    case FIELD_STRUCT:
    case FIELD_SHARED:
        return any_document(f->of, true);
    case FIELD_STRUCTS:
        j = json_array();
        for (uint64_t n = 1 + any(4); n; n--)
            json_array_append_new(j, any_document(f->of, true));
        return j;
    case FIELD_REST:
        break;
    }
    return j;
}

static json_t *any_document(const struct fields *t, bool whole)
{
    json_t *j = json_object();
    for (unsigned i = 0; i < t->n; i++) {
        const struct field_desc *f = &t->v[i];
        if (!f->name[0] || (!whole && any(3)))
            continue;
        json_t *v = any_value(f);
        if (f->type == FIELD_ERR)
            jset_str(j, "class", err_class_name((enum err_class)json_integer_value(v)));
        json_object_set_new(j, f->name, v);
    }
    return j;
}

/* ---- the kinds ---- */

struct kind {
    const struct fields *fields;
    bool row;
};
static const struct kind kinds[] = {
    {&operation_fields, true}, {&backup_fields, true},       {&native_row_fields, true},  {&volume_row_fields, true},
    {&job_run_fields, true},   {&policy_fields, false},      {&class_desc_fields, false}, {&volume_desc_fields, false},
    {&tag_desc_fields, false}, {&native_desc_fields, false}, {&op_error_fields, false},
};
#define KINDS_N (sizeof kinds / sizeof *kinds)

static void *new_struct(const struct kind *k)
{
    void *s = malloc(k->fields->size);
    if (k->row)
        row_init(k->fields, s);
    else
        fields_init(k->fields, s);
    return s;
}

static void free_struct(const struct kind *k, void *s)
{
    if (k->row)
        row_clear(k->fields, s);
    else
        fields_clear(k->fields, s);
    free(s);
}

static void same_json(const struct fields *t, const json_t *a, const json_t *b)
{
    if (json_equal(a, b))
        return;
    CLEANUP_FREE char *x = json_dumps(a, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    CLEANUP_FREE char *y = json_dumps(b, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    fail_msg("%s:\n%s\n%s", t->name, x, y);
}

static void round_trip(const struct kind *k, const json_t *doc)
{
    void *s = new_struct(k), *copy = malloc(k->fields->size), *again = new_struct(k);
    assert_int_equal(fields_load(k->fields, s, doc), 0);
    CLEANUP_JSON json_t *stored = fields_to_json(k->fields, s);
    assert_non_null(stored);
    same_json(k->fields, doc, stored);
    assert_int_equal(k->row ? row_copy(k->fields, copy, s) : fields_copy(k->fields, copy, s), 0);
    assert_true(fields_equal(k->fields, s, copy));
    assert_int_equal(fields_load(k->fields, again, stored), 0);
    assert_true(fields_equal(k->fields, s, again));
    free_struct(k, s);
    CLEANUP_JSON json_t *of_copy = fields_to_json(k->fields, copy);
    same_json(k->fields, doc, of_copy);
    free_struct(k, copy);
    free_struct(k, again);
}

static void every_field(void **arg)
{
    (void)arg;
    for (unsigned i = 0; i < 200; i++) {
        for (size_t k = 0; k < KINDS_N; k++) {
            CLEANUP_JSON json_t *doc = any_document(kinds[k].fields, true);
            round_trip(&kinds[k], doc);
        }
    }
    assert_int_equal(str_count(), 0);
    assert_int_equal(shared_count(), 0);
}

/* One at a time: the field is the only difference, and it makes one. */
static void each_field_alone(void **arg)
{
    (void)arg;
    for (size_t k = 0; k < KINDS_N; k++) {
        const struct fields *t = kinds[k].fields;
        void *none = new_struct(&kinds[k]);
        for (unsigned i = 0; i < t->n; i++) {
            const struct field_desc *f = &t->v[i];
            if (!f->name[0])
                continue;
            void *s = new_struct(&kinds[k]);
            CLEANUP_JSON json_t *v = any_value(f), *doc = json_object();
            json_object_set(doc, f->name, v);
            fields_load(t, s, doc);
            if (fields_equal(t, s, none))
                fail_msg("%s.%s makes no difference", t->name, f->name);
            CLEANUP_JSON json_t *stored = fields_to_json(t, s);
            same_json(t, v, json_object_get(stored, f->name));
            free_struct(&kinds[k], s);
        }
        free_struct(&kinds[k], none);
    }
}

/* ---- from text ---- */

static void reads_as_document(const struct kind *k, const char *text, size_t n)
{
    void *a = new_struct(k), *b = new_struct(k);
    CLEANUP_JSON json_t *doc = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    const int want = json_is_object(doc) ? fields_load(k->fields, a, doc) : -EINVAL;
    const int got = fields_read(k->fields, b, text, n);
    if (got != want || (want == 0 && !fields_equal(k->fields, a, b)))
        fail_msg("%s: %d, not %d: %.*s", k->fields->name, got, want, (int)n, text);
    free_struct(k, a);
    free_struct(k, b);
}

/* One place of it is another one, is gone, or is there twice. */
static void read_damaged(const struct kind *k, const char *text, size_t n)
{
    static const char others[] = "{}[],:\"\\0-.eE tfnu\n\x01\x80\xc3";
    CLEANUP_FREE char *damaged = malloc(n + 2);
    const size_t at = any(n);
    memcpy(damaged, text, n);
    switch (any(4)) {
    case 0:
        damaged[at] = others[any(sizeof others)];
        break;
    case 1:
        memmove(damaged + at, text + at + 1, --n - at);
        break;
    case 2:
        memmove(damaged + at + 1, text + at, n++ - at);
        break;
    default:
        n = at;
    }
    reads_as_document(k, damaged, n);
}

/* Members that stay text. */
static void add_newer(json_t *result)
{
    static const char *const names[] = {"newer", "b\303\244r \"x\"", "unknown", "{"};
    for (uint64_t n = result ? any(4) : 0; n; n--)
        json_object_set_new(result, names[n], any_json(3));
}

static void texts_are_read_as_documents(void **arg)
{
    (void)arg;
    for (unsigned i = 0; i < 300; i++) {
        for (size_t k = 0; k < KINDS_N; k++) {
            CLEANUP_JSON json_t *doc = any_document(kinds[k].fields, i % 2);
            json_object_set_new(doc, i % 3 ? "of_a_newer_version" : "an \"other\"", any_json(3));
            add_newer(json_object_get(doc, "result"));
            CLEANUP_FREE char *text = json_dumps(doc, JSON_COMPACT), *wide = json_dumps(doc, JSON_INDENT(2));
            reads_as_document(&kinds[k], text, strlen(text));
            reads_as_document(&kinds[k], wide, strlen(wide));
            for (unsigned n = 0; n < 20; n++)
                read_damaged(&kinds[k], text, strlen(text));
        }
    }
    static const char *const odd[] = {"",
                                      "{",
                                      "{}",
                                      " { } ",
                                      "{} x",
                                      "[]",
                                      "7",
                                      "{\"job\":\"a\",\"job\":\"b\"}",
                                      "{\"job\":null,\"size\":-0}",
                                      "{\"size\":9223372036854775807}",
                                      "{\"size\":9223372036854775808}",
                                      "{\"size\":-9223372036854775808}",
                                      "{\"size\":01}",
                                      "{\"size\":1.0}",
                                      "{\"size\":1e400}",
                                      "{\"j\\u006fb\":\"a\"}",
                                      "{\"job\":\"a\\u0000b\"}",
                                      "{\"job\":\"\\ud83d\\udcbe\"}",
                                      "{\"job\":\"a\",}",
                                      "{\"error\":{\"code\":3,\"class\":\"odd\",\"class\":\"two\"}}",
                                      "{\"error\":{}}",
                                      "{\"error\":true}",
                                      "{\"cancel\":trueish}",
                                      "{\"volume_ids\":[\"a\",7]}",
                                      "{\"attempts\":[{},7]}",
                                      "{\"result\":{\"x\":1,\"x\":{\"y\":[]}}}",
                                      "{\"result\":{\"x\" : -0, \"y\":1e400}}",
                                      "{\"result\":{\"x\":[01],\"y\":1.}}"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (size_t k = 0; k < KINDS_N; k++)
            reads_as_document(&kinds[k], odd[i], strlen(odd[i]));
    assert_int_equal(str_count(), 0);
    assert_int_equal(shared_count(), 0);
}

/* What many rows share is one, also when it is read again after it was written, and when its first owner is gone. */
static void shared_ones_are_read_by_their_text(void **arg)
{
    (void)arg;
    CLEANUP_JSON json_t *doc = any_document(&operation_fields, true);
    CLEANUP(operation_clear) struct operation op, again, other;
    operation_init(&op);
    operation_init(&again);
    operation_init(&other);
    assert_int_equal(fields_load(&operation_fields, &op, doc), 0);
    size_t n;
    CLEANUP_FREE char *text = fields_text(&operation_fields, &op, &n);
    assert_non_null(text);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(fields_read(&operation_fields, i % 2 ? &other : &again, text, n), 0);
        assert_ptr_equal(again.policy, op.policy);
        assert_ptr_equal(again.own, op.own);
    }
    assert_true(fields_equal(&operation_fields, &op, &again));
    operation_clear(&op);
    operation_clear(&again);
    operation_clear(&other);
    operation_init(&op);
    operation_init(&again);
    operation_init(&other);
    assert_int_equal(shared_count(), 0);
    assert_int_equal(fields_read(&operation_fields, &op, text, n), 0);
    CLEANUP_FREE char *stored = fields_text(&operation_fields, &op, NULL);
    assert_string_equal(stored, text);
}

/* A list is shared by its copies until one of them changes. */
static void lists_are_copied_when_they_change(void **arg)
{
    (void)arg;
    struct strs a = {NULL, 0}, b, c;
    assert_int_equal(strs_add(&a, "one"), 0);
    assert_int_equal(strs_add(&a, "two"), 0);
    strs_copy(&b, &a);
    strs_copy(&c, &b);
    assert_ptr_equal(a.v, c.v);
    assert_true(strs_equal(&a, &b));
    assert_int_equal(strs_add(&b, "three"), 0);
    assert_int_equal(a.n, 2);
    assert_int_equal(b.n, 3);
    assert_string_equal(b.v[1], "two");
    assert_false(strs_equal(&a, &b));
    strs_clear(&a);
    assert_string_equal(c.v[0], "one");
    assert_int_equal(strs_add(&c, "four"), 0);
    assert_string_equal(c.v[2], "four");
    strs_clear(&b);
    strs_clear(&c);
    strs_copy(&b, &a);
    assert_null(b.v);
    assert_int_equal(str_count(), 0);
}

static void unknown_members_stay(void **arg)
{
    (void)arg;
    for (unsigned i = 0; i < 200; i++) {
        for (size_t k = 0; k < KINDS_N; k++) {
            CLEANUP_JSON json_t *doc = any_document(kinds[k].fields, true);
            json_object_set_new(doc, "of_a_newer_version", any_json(3));
            if (i % 2)
                json_object_set_new(doc, "another \"one\"", any_json(1));
            if (kinds[k].fields == &operation_fields) {
                json_object_set_new(json_object_get(doc, "policy"), "newer", any_json(2));
                json_object_set_new(json_object_get(json_object_get(doc, "policy"), "limits"), "newer", any_json(2));
                json_object_set_new(json_object_get(doc, "error"), "newer", any_json(2));
                add_newer(json_object_get(doc, "result"));
            }
            round_trip(&kinds[k], doc);
        }
    }
}

static bool fits(const struct field_desc *f, const json_t *v)
{
    switch ((enum field_type)f->type) {
    case FIELD_STR:
        return json_is_string(v);
    case FIELD_INT:
    case FIELD_UINT:
    case FIELD_ERR:
        return json_is_integer(v) && (f->type == FIELD_INT || json_integer_value(v) >= 0);
    case FIELD_REAL:
        return json_is_number(v);
    case FIELD_BOOL:
        return json_is_boolean(v);
    case FIELD_JSON:
        return true;
    default:
        return false;
    }
}

/* A member of another type counts as absent, is not lost, and gives way to what is set. */
static void wrong_types(void **arg)
{
    (void)arg;
    for (size_t k = 0; k < KINDS_N; k++) {
        const struct fields *t = kinds[k].fields;
        void *none = new_struct(&kinds[k]);
        for (unsigned i = 0; i < t->n; i++) {
            const struct field_desc *f = &t->v[i];
            CLEANUP_JSON json_t *values = json_pack("[s,i,b,f,i]", "no such word", 7, 1, 2.5, -3);
            const json_t *v;
            size_t n;
            json_array_foreach(values, n, v)
            {
                if (!f->name[0] || fits(f, v) || (f->flags & FIELD_TRUE && json_is_true(v)))
                    continue;
                void *s = new_struct(&kinds[k]);
                CLEANUP_JSON json_t *doc = json_object();
                json_object_set(doc, f->name, (json_t *)(uintptr_t)v);
                assert_int_equal(fields_load(t, s, doc), 0);
                CLEANUP_JSON json_t *stored = fields_to_json(t, s);
                same_json(t, v, json_object_get(stored, f->name));
                json_t **unknown = (json_t **)(void *)((char *)s + t->unknown);
                json_object_clear(*unknown);
                json_decref(*unknown);
                *unknown = NULL;
                if (!fields_equal(t, s, none))
                    fail_msg("%s.%s of a wrong type is not absent", t->name, f->name);
                free_struct(&kinds[k], s);
            }
        }
        free_struct(&kinds[k], none);
    }
    CLEANUP(operation_clear) struct operation op;
    CLEANUP_JSON json_t *doc = json_pack("{s:s,s:i}", "cancel", "yes", "job", 3);
    operation_init(&op);
    assert_int_equal(fields_load(&operation_fields, &op, doc), 0);
    assert_false(op.cancel);
    op.cancel = true;
    CLEANUP_JSON json_t *stored = operation_to_json(&op);
    assert_true(jbool(stored, "cancel"));
    assert_int_equal(jint(stored, "job"), 3);
}

static void holds_and_errors(void **arg)
{
    (void)arg;
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    CLEANUP_JSON json_t *plain = json_pack("{s:b}", "hold", 1), *not = json_pack("{s:b}", "hold", 0),
                        *empty = json_pack("{s:{}}", "hold");
    fields_load(&native_row_fields, &n, not );
    assert_false(n.hold.held);
    fields_load(&native_row_fields, &n, empty);
    assert_true(n.hold.held);
    fields_load(&native_row_fields, &n, plain);
    assert_true(n.hold.held);
    assert_string_equal(n.hold.note, "");
    assert_int_equal(n.effective_retain, -1);
    CLEANUP(volume_row_clear) struct volume_row v;
    volume_row_init(&v);
    CLEANUP_JSON json_t *none = json_pack("{s:n}", "last_error"),
                        *old = json_pack("{s:{s:s}}", "last_error", "message", "m"),
                        *number = json_pack("{s:{s:i,s:s}}", "last_error", "class", ERR_NO_SPACE, "message", "m");
    fields_load(&volume_row_fields, &v, none);
    assert_int_equal(v.last_error.code, ERR_NONE);
    assert_null(v.unknown);
    fields_load(&volume_row_fields, &v, old); /* there, whatever it is */
    assert_int_equal(v.last_error.code, ERR_GENERIC);
    fields_load(&volume_row_fields, &v, number);
    assert_int_equal(v.last_error.code, ERR_NO_SPACE);
    CLEANUP_JSON json_t *e = op_error_to_json(&v.last_error);
    assert_string_equal(jstr(e, "class"), err_class_name(ERR_NO_SPACE));
    assert_int_equal(jint(e, "code"), ERR_NO_SPACE);
}

/* ---- sharing ---- */

static void policies_are_shared(void **arg)
{
    (void)arg;
    CLEANUP_JSON json_t *doc = any_document(&policy_fields, true), *other = json_deep_copy(doc);
    jset_int(other, "retries", jint(doc, "retries") ^ 1);
    const struct policy *a = policy_from_json(doc), *b = policy_from_json(doc), *c = policy_from_json(other);
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    assert_int_equal(c->retries, a->retries ^ 1);
    struct policy own;
    assert_int_equal(policy_copy(&own, c), 0);
    own.retries = a->retries;
    const struct policy *again = policy_make(&own);
    assert_ptr_equal(again, a);
    CLEANUP(operation_clear) struct operation op, copy;
    operation_init(&op);
    assert_true(is_none(op.policy));
    policy_set(&op.policy, a);
    assert_int_equal(operation_copy(&copy, &op), 0);
    assert_ptr_equal(copy.policy, a);
    operation_clear(&op);
    policy_unref(a);
    policy_unref(b);
    policy_unref(again);
    CLEANUP_JSON json_t *stored = policy_to_json(copy.policy);
    same_json(&policy_fields, doc, stored);
    policy_unref(c);
    operation_clear(&copy);
    assert_int_equal(shared_count(), 0);
    assert_int_equal(str_count(), 0);
    const struct policy *none = policy_from_json(NULL);
    assert_ptr_equal(none, &policy_none);
}

static void strings(void **arg)
{
    (void)arg;
    char *a = str_empty, *b = str_empty, *c = NULL;
    assert_int_equal(str_set(&a, "one"), 0);
    assert_int_equal(str_setf(&b, "%c%s", 'o', "ne"), 0);
    assert_ptr_equal(a, b);
    assert_int_equal(str_count(), 1);
    assert_int_equal(str_set(&c, a), 0); /* from NULL; and from its own text */
    assert_int_equal(str_set(&c, c), 0);
    assert_ptr_equal(a, c);
    assert_int_equal(str_set(&b, "caf\xe9 \xc3\xa9 \xed\xa0\x80"), 0);
    assert_string_equal(b, "caf\\xe9 \\xc3\\xa9 \\xed\\xa0\\x80");
    assert_int_equal(str_set(&b, "\xc3\xa9"), 0);
    assert_string_equal(b, "\xc3\xa9");
    str_clear(&a);
    str_clear(&b);
    str_set(&c, NULL);
    assert_ptr_equal(c, str_empty);
    assert_int_equal(str_count(), 0);
    CLEANUP(strs_clear) struct strs list = {NULL, 0};
    for (int i = 0; i < 3000; i++) {
        char text[20];
        snprintf(text, sizeof text, "%d", i % 1000);
        strs_add(&list, text);
    }
    assert_int_equal(str_count(), 1000);
    assert_string_equal(list.v[999], "999");
}

static void words(void **arg)
{
    (void)arg;
    assert_string_equal(op_state_name(OP_CLEANING_UP), "CleaningUp");
    assert_string_equal(op_state_name(OP_NONE), "");
    assert_string_equal(op_state_name(OP_STATES), "");
    assert_int_equal(enum_value(&native_state_names, "missing"), NATIVE_MISSING);
    assert_int_equal(enum_value(&native_state_names, "lost"), NATIVE_NONE);
    for (enum outcome o = OUTCOME_COMPLETED; o < OUTCOMES; o++) {
        assert_string_equal(outcome_name(o), op_state_name(op_state_of(o)));
        assert_string_equal(outcome_name(o), backup_state_name(backup_state_of(o)));
        assert_true(op_state_terminal(op_state_of(o)) && backup_state_terminal(backup_state_of(o)));
        assert_true(state_terminal(outcome_name(o)));
    }
    assert_false(state_terminal("Running"));
    assert_int_equal(op_state_of(OUTCOME_NONE), OP_FAILED);
    assert_int_equal(backup_state_of(OUTCOME_NONE), BACKUP_FAILED);
}

static const struct op_error *attempt_at(const struct operation *op, unsigned i)
{
    return (const struct op_error *)op->attempts.v + i;
}

static void attempts(void **arg)
{
    (void)arg;
    CLEANUP(operation_clear) struct operation op;
    struct err e = ERR_INIT, back;
    operation_init(&op);
    for (int i = 0; i < 3; i++) {
        err_set(&e, ERR_BUSY, EBUSY, "attempt %d", i);
        op_error_set(&op.error, i ? op.error.stage : "move", &e, 1000 + i, i);
        assert_int_equal(operation_attempt_add(&op), 0);
    }
    assert_int_equal(op.attempts.n, 3);
    op_error_to_err(&back, attempt_at(&op, 1));
    assert_int_equal(back.cls, ERR_BUSY);
    assert_int_equal(back.sys, EBUSY);
    assert_non_null(strstr(back.msg, "attempt 1"));
    assert_string_equal(attempt_at(&op, 2)->stage, "move");
    CLEANUP_JSON json_t *doc = operation_to_json(&op);
    assert_int_equal(json_array_size(jarr(doc, "attempts")), 3);
}

/* What an operation, a native snapshot and a volume take in memory, beside what they share. */
static void sizes(void **arg)
{
    (void)arg;
    assert_true(sizeof(struct operation) <= 1480);
    assert_true(sizeof(struct native_row) <= 400);
    assert_true(sizeof(struct volume_row) <= 400);
}

/* ---- the documentation ---- */

static const char *type_word(const struct field_desc *f)
{
    static const char *const words[] = {
        [FIELD_STR] = "string",   [FIELD_INT] = "integer", [FIELD_UINT] = "integer",  [FIELD_BOOL] = "boolean",
        [FIELD_REAL] = "number",  [FIELD_ENUM] = "string", [FIELD_STRS] = "[string]", [FIELD_JSON] = "any",
        [FIELD_OBJECT] = "{any}", [FIELD_TEXT] = "{any}",  [FIELD_ARRAY] = "[any]",   [FIELD_ERR] = "integer"};
    static char text[80];
    if (f->type != FIELD_STRUCT && f->type != FIELD_STRUCTS && f->type != FIELD_SHARED)
        return words[f->type];
    snprintf(text, sizeof text, f->type == FIELD_STRUCTS ? "[%s]" : "%s", f->of->name);
    return text;
}

/* The line of a field: "    name: type?     unit: text: words" */
static void schema_line(const struct field_desc *f, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "    %s: %s%s", f->name, type_word(f), f->flags & FIELD_ALWAYS ? "" : "?");
    const char *sep = "";
    char text[400];
    size_t m = 0;
    text[0] = '\0';
    if (f->unit) {
        m += (size_t)snprintf(text + m, sizeof text - m, "%s", f->unit);
        sep = ": ";
    }
    if (f->about) {
        m += (size_t)snprintf(text + m, sizeof text - m, "%s%s", sep, f->about);
        sep = ": ";
    }
    for (unsigned i = 1; f->type == FIELD_ENUM && i < f->names->n; i++) {
        m += (size_t)snprintf(text + m, sizeof text - m, "%s%s", sep, f->names->names[i]);
        sep = " ";
    }
    if (m)
        snprintf(out + n, cap - n, "%*s%s", n < 36 ? (int)(36 - n) : 1, "", text);
}

static void put_schema(const struct fields *t, FILE *out)
{
    char line[600];
    fprintf(out, "%s: {\n", t->name);
    for (unsigned i = 0; i < t->n; i++) {
        if (!t->v[i].name[0])
            continue;
        schema_line(&t->v[i], line, sizeof line);
        fprintf(out, "%s\n", line);
        if (t->v[i].type == FIELD_ERR)
            fprintf(out, "    class: string                   its word\n");
    }
    fprintf(out, "}\n");
}

/* All tables, each once, those of rows first. */
static unsigned all_tables(const struct fields *list[40])
{
    unsigned n = 0;
    for (enum row_kind k = 0; k < ROW_KINDS; k++)
        list[n++] = row_types[k].fields;
    for (unsigned i = 0; i < n; i++) {
        for (unsigned f = 0; f < list[i]->n; f++) {
            const struct field_desc *d = &list[i]->v[f];
            unsigned j = 0;
            if (d->type != FIELD_STRUCT && d->type != FIELD_STRUCTS && d->type != FIELD_SHARED)
                continue;
            while (j < n && list[j] != d->of)
                j++;
            if (j == n)
                list[n++] = d->of;
        }
    }
    return n;
}

static const char *documentation(void)
{
    static char doc[200000];
    FILE *f = doc[0] ? NULL : fopen("docs/records.md", "r");
    if (f) {
        doc[fread(doc, 1, sizeof doc - 1, f)] = '\0';
        fclose(f);
    }
    assert_true(doc[0]);
    return doc;
}

static void put_words(FILE *out, const struct enum_names *names, unsigned states, uint32_t bits)
{
    for (unsigned i = 0; i < states; i++)
        if (bits & 1u << i)
            fprintf(out, " %s", enum_name(names, (int)i));
    fputc('\n', out);
}

/* docs/records.md has the tables of states as they are. */
static void the_documentation_has_every_state(void **arg)
{
    static const unsigned states[MACHINES] = {BACKUP_STATES, OP_STATES, OP_STATES, NATIVE_STATES};
    (void)arg;
    for (unsigned m = 0; m < MACHINES; m++) {
        const struct states_machine *s = &states_machines[m];
        char *text = NULL;
        size_t len;
        FILE *out = open_memstream(&text, &len);
        fprintf(out, "%s\n", s->what);
        for (size_t i = 0; i < s->n; i++) {
            fprintf(out, "    %-14s", enum_name(s->names, __builtin_ctz(s->rows[i].from)));
            put_words(out, s->names, states[m], s->rows[i].to);
        }
        fclose(out);
        if (getenv("SNAPFERRY_SHOW"))
            fputs(text, stdout);
        else if (!strstr(documentation(), text))
            fail_msg("docs/records.md lacks, or has otherwise:\n%s", text);
        free(text);
    }
}

/* What the tables say of ends is what a record obeys: nothing follows them (MS-62). */
static void no_state_follows_an_end(void **arg)
{
    (void)arg;
    for (int from = OP_COMPLETED; from < OP_STATES; from++)
        for (int to = OP_QUEUED; to < OP_STATES; to++) {
            assert_int_equal(states_allow(MACHINE_OPERATION, from, to), from == to);
            assert_int_equal(states_allow(MACHINE_DELETE, from, to), from == to);
        }
    for (int from = BACKUP_COMPLETED; from < BACKUP_STATES; from++)
        for (int to = BACKUP_QUEUED; to < BACKUP_STATES; to++)
            assert_int_equal(states_allow(MACHINE_BACKUP, from, to), from == to);
    /* Nor does an operation end before what it made is released (E-04). */
    for (int from = OP_QUEUED; from < OP_CLEANING_UP; from++)
        for (int to = OP_COMPLETED; to < OP_STATES; to++)
            assert_false(states_allow(MACHINE_OPERATION, from, to));
}

/* docs/records.md has every table as it is, but for limits of movers, which are keys (test_cfg_names.c) and documented
 * as such; SNAPFERRY_SHOW=1 prints what belongs there. */
static void the_documentation_has_every_field(void **arg)
{
    (void)arg;
    const struct fields *list[40];
    unsigned n = all_tables(list);
    for (unsigned i = 0; i < n; i++) {
        char *text = NULL;
        size_t len;
        if (list[i] == &mover_limits_fields)
            continue;
        FILE *out = open_memstream(&text, &len);
        put_schema(list[i], out);
        fclose(out);
        if (getenv("SNAPFERRY_SHOW"))
            fputs(text, stdout);
        else if (!strstr(documentation(), text))
            fail_msg("docs/records.md lacks, or has otherwise:\n%s", text);
        free(text);
    }
}

/* An argument that is refused is named, with the type that it must have or the name that was meant. */
static void refused_arguments(void **arg)
{
    (void)arg;
    static const struct {
        const char *args, *msg, *hint;
    } decoded[] = {
        {"{\"all\":1}", "argument \"all\" must be true or false", ""},
        {"{\"limit\":\"x\"}", "argument \"limit\" must be an integer", ""},
        {"{\"class_map\":[]}", "argument \"class_map\" must be an object", ""},
        {"{\"descripton\":[]}", "argument \"descripton\" is not known", "did you mean \"description\"?"},
        {"{\"qqqqqqqq\":[]}", "argument \"qqqqqqqq\" is not known", "docs/control.md"},
    };
    for (size_t i = 0; i < sizeof decoded / sizeof *decoded; i++) {
        CLEANUP(request_args_clear) struct request_args a;
        CLEANUP_JSON json_t *doc = json_loads(decoded[i].args, 0, NULL);
        struct err e = ERR_INIT;
        assert_true(request_args_load(&a, doc, &e) < 0);
        assert_string_equal(e.msg, decoded[i].msg);
        if (!strstr(e.hint, decoded[i].hint))
            fail_msg("\"%s\" is not in %s", decoded[i].hint, e.hint);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field),
        cmocka_unit_test(each_field_alone),
        cmocka_unit_test(texts_are_read_as_documents),
        cmocka_unit_test(shared_ones_are_read_by_their_text),
        cmocka_unit_test(lists_are_copied_when_they_change),
        cmocka_unit_test(unknown_members_stay),
        cmocka_unit_test(wrong_types),
        cmocka_unit_test(refused_arguments),
        cmocka_unit_test(holds_and_errors),
        cmocka_unit_test(policies_are_shared),
        cmocka_unit_test(strings),
        cmocka_unit_test(words),
        cmocka_unit_test(attempts),
        cmocka_unit_test(sizes),
        cmocka_unit_test(the_documentation_has_every_field),
        cmocka_unit_test(the_documentation_has_every_state),
        cmocka_unit_test(no_state_follows_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
