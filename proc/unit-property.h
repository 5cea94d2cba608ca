/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * unit-property.h - properties of a transient unit, appended to the message that starts it (unit.h)
 *
 * Names and types are those of org.freedesktop.systemd1(5). After the first one that fails the others do nothing: `rc`
 * (0 or -errno) is looked at once, at the end. Thread-safe for different messages.
 */
#ifndef SNAPFERRY_PROC_UNIT_PROPERTY_H
#define SNAPFERRY_PROC_UNIT_PROPERTY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-bus.h>

struct unit_properties {
    sd_bus_message *m;
    int rc;
};

void unit_put_string(struct unit_properties *p, const char *name, const char *v);
void unit_put_bool(struct unit_properties *p, const char *name, bool v);
void unit_put_u64(struct unit_properties *p, const char *name, uint64_t v);
void unit_put_u32(struct unit_properties *p, const char *name, uint32_t v);
void unit_put_i32(struct unit_properties *p, const char *name, int32_t v);
/* StandardInputFileDescriptor and so on. The message has a duplicate of it. */
void unit_put_fd(struct unit_properties *p, const char *name, int fd);
/* `list` is NULL-terminated. */
void unit_put_strings(struct unit_properties *p, const char *name, const char *const *list);
/* These only, or all but these: SystemCallFilter, RestrictAddressFamilies. */
void unit_put_set(struct unit_properties *p, const char *name, bool allow, const char *const *list);
void unit_put_bytes(struct unit_properties *p, const char *name, const uint8_t *bytes, size_t n);
/* A path and bytes per second: IOReadBandwidthMax. */
void unit_put_bandwidth(struct unit_properties *p, const char *name, const char *path, uint64_t v);
/* IPAddressDeny=any */
void unit_put_no_network(struct unit_properties *p);
/* LogExtraFields: "NAME=value", any bytes. */
void unit_put_log_fields(struct unit_properties *p, const char *const *fields, size_t n);
/* ExecStart: NULL-terminated, argv[0] is the program. */
void unit_put_command(struct unit_properties *p, const char *const *argv);

#endif
