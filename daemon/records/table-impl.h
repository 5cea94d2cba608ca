/* SPDX-License-Identifier: GPL-2.0-or-later */
/* table-impl.h - how the tables of types.c and results.c are written: S is the struct whose fields follow */
#ifndef SNAPFERRY_DAEMON_RECORDS_TABLE_IMPL_H
#define SNAPFERRY_DAEMON_RECORDS_TABLE_IMPL_H

#include "daemon/records/fields.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define NAMES(which, ...)                                                                                              \
    static const char *const which##_words[] = {__VA_ARGS__};                                                          \
    const struct enum_names which##_names = {which##_words, COUNT(which##_words)}

#define FIELD(member, wire, t, ...)                                                                                    \
    {                                                                                                                  \
        .name = (wire), .offset = offsetof(S, member), .type = (t), .since = 1, __VA_ARGS__                            \
    }
#define STR(member, ...) FIELD(member, #member, FIELD_STR, __VA_ARGS__)
#define INT(member, ...) FIELD(member, #member, FIELD_INT, __VA_ARGS__)
#define UINT(member, ...) FIELD(member, #member, FIELD_UINT, __VA_ARGS__)
#define BOOL(member, ...) FIELD(member, #member, FIELD_BOOL, __VA_ARGS__)
#define TIME(member, ...) FIELD(member, #member, FIELD_INT, .unit = "ns", __VA_ARGS__)
#define SECONDS(member, ...) FIELD(member, #member, FIELD_INT, .unit = "s", __VA_ARGS__)
#define BYTES(member, ...) FIELD(member, #member, FIELD_INT, .unit = "bytes", __VA_ARGS__)
#define ENUM(member, which, ...) FIELD(member, #member, FIELD_ENUM, .names = &which##_names, __VA_ARGS__)
#define SHARED(member, wire, which, ...) FIELD(member, wire, FIELD_SHARED, .of = &which##_fields, __VA_ARGS__)
#define STRUCT(member, which, ...) FIELD(member, #member, FIELD_STRUCT, .of = &which##_fields, __VA_ARGS__)
#define ALWAYS .flags = FIELD_ALWAYS
#define TABLE(which, text, ...)                                                                                        \
    const struct fields which##_fields = {.name = (text),                                                              \
                                          .v = which##_table,                                                          \
                                          .n = COUNT(which##_table),                                                   \
                                          .size = sizeof(S),                                                           \
                                          .unknown = offsetof(S, unknown),                                             \
                                          .index = &(struct field_index *){NULL},                                      \
                                          .plan = &(struct field_plan){.image = (unsigned char[sizeof(S)]){0},         \
                                                                       .owned = (uint8_t[COUNT(which##_table)]){0}},   \
                                          __VA_ARGS__}

#endif
