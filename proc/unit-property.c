/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/unit-property.h"

#include <string.h>
#include <sys/socket.h>

/* Does `call` unless something failed before. */
#define TRY(p, call)                                                                                                   \
    do {                                                                                                               \
        int try_rc_ = (p)->rc < 0 ? (p)->rc : (call);                                                                  \
        (p)->rc = try_rc_ < 0 ? try_rc_ : 0;                                                                           \
    } while (0)

static void open_container(struct unit_properties *p, char type, const char *contents)
{
    TRY(p, sd_bus_message_open_container(p->m, type, contents));
}

static void close_containers(struct unit_properties *p, int n)
{
    while (n--)
        TRY(p, sd_bus_message_close_container(p->m));
}

/* (sv) with the name in it and the variant open. */
static void open_property(struct unit_properties *p, const char *name, const char *type)
{
    open_container(p, 'r', "sv");
    TRY(p, sd_bus_message_append(p->m, "s", name));
    open_container(p, 'v', type);
}

void unit_put_string(struct unit_properties *p, const char *name, const char *v)
{
    TRY(p, sd_bus_message_append(p->m, "(sv)", name, "s", v));
}
void unit_put_bool(struct unit_properties *p, const char *name, bool v)
{
    TRY(p, sd_bus_message_append(p->m, "(sv)", name, "b", (int)v));
}
void unit_put_u64(struct unit_properties *p, const char *name, uint64_t v)
{
    TRY(p, sd_bus_message_append(p->m, "(sv)", name, "t", v));
}
void unit_put_u32(struct unit_properties *p, const char *name, uint32_t v)
{
    TRY(p, sd_bus_message_append(p->m, "(sv)", name, "u", v));
}
void unit_put_i32(struct unit_properties *p, const char *name, int32_t v)
{
    TRY(p, sd_bus_message_append(p->m, "(sv)", name, "i", v));
}
void unit_put_fd(struct unit_properties *p, const char *name, int fd)
{
    TRY(p, sd_bus_message_append(p->m, "(sv)", name, "h", fd));
}
void unit_put_bandwidth(struct unit_properties *p, const char *name, const char *path, uint64_t v)
{
    TRY(p, sd_bus_message_append(p->m, "(sv)", name, "a(st)", 1, path, v));
}

void unit_put_strings(struct unit_properties *p, const char *name, const char *const *list)
{
    open_property(p, name, "as");
    TRY(p, sd_bus_message_append_strv(p->m, (char **)(uintptr_t)list));
    close_containers(p, 2);
}

void unit_put_set(struct unit_properties *p, const char *name, bool allow, const char *const *list)
{
    open_property(p, name, "(bas)");
    open_container(p, 'r', "bas");
    TRY(p, sd_bus_message_append(p->m, "b", (int)allow));
    TRY(p, sd_bus_message_append_strv(p->m, (char **)(uintptr_t)list));
    close_containers(p, 3);
}

void unit_put_bytes(struct unit_properties *p, const char *name, const uint8_t *bytes, size_t n)
{
    open_property(p, name, "ay");
    TRY(p, sd_bus_message_append_array(p->m, 'y', bytes, n));
    close_containers(p, 2);
}

/* 0.0.0.0/0 and ::/0 */
void unit_put_no_network(struct unit_properties *p)
{
    static const uint8_t any[16];
    for (int i = 0; i < 2; i++) {
        open_property(p, "IPAddressDeny", "a(iayu)");
        open_container(p, 'a', "(iayu)");
        open_container(p, 'r', "iayu");
        TRY(p, sd_bus_message_append(p->m, "i", (int32_t)(i ? AF_INET6 : AF_INET)));
        TRY(p, sd_bus_message_append_array(p->m, 'y', any, i ? 16 : 4));
        TRY(p, sd_bus_message_append(p->m, "u", 0u));
        close_containers(p, 4);
    }
}

void unit_put_log_fields(struct unit_properties *p, const char *const *fields, size_t n)
{
    open_property(p, "LogExtraFields", "aay");
    open_container(p, 'a', "ay");
    for (size_t i = 0; i < n; i++)
        TRY(p, sd_bus_message_append_array(p->m, 'y', fields[i], strlen(fields[i])));
    close_containers(p, 3);
}

void unit_put_command(struct unit_properties *p, const char *const *argv)
{
    open_property(p, "ExecStart", "a(sasb)");
    open_container(p, 'a', "(sasb)");
    open_container(p, 'r', "sasb");
    TRY(p, sd_bus_message_append(p->m, "s", argv[0]));
    TRY(p, sd_bus_message_append_strv(p->m, (char **)(uintptr_t)argv));
    TRY(p, sd_bus_message_append(p->m, "b", 0));
    close_containers(p, 4);
}
