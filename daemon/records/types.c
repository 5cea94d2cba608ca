/* SPDX-License-Identifier: GPL-2.0-or-later */
/* types.c - the tables of types.h: what each member is called on disk and on the wire */
#include "daemon/records/types.h"

#include "daemon/records/driver-kind.h"
#include "daemon/records/table-impl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

NAMES(op_kind, "", "backup", "restore", "verify", "admin", "delete", "maintain", "copy");
NAMES(op_state, "", "Queued", "Snapshotting", "Exposing", "Starting", "Running", "Retrying", "Cancelling", "CleaningUp",
      "Completed", "PartiallyFailed", "Failed", "Canceled", "Skipped");
NAMES(backup_state, "", "Queued", "Snapshotting", "Moving", "Finalizing", "Deleting", "Completed", "PartiallyFailed",
      "Failed", "Canceled", "Skipped");
NAMES(native_state, "", "creating", "present", "removing", "missing");
NAMES(known_state, "", "known", "gone");
NAMES(outcome, "", "Completed", "PartiallyFailed", "Failed", "Canceled", "Skipped");
NAMES(op_stage, "", "begin", "pool", "prune", "hook", "snapshot", "post", "snapped");
NAMES(origin, "", "request", "timer");
NAMES(restore_from, "", "native", "repository");
NAMES(target_state, "", "untouched", "incomplete", "complete", "unknown");
NAMES(op_reason, "", "prepare-timeout");
NAMES(full_reason, "", "forced", "periodic", "writable", "no-parent", "parent-lost", "parent-other", "parent-unfit",
      "unsupported", "uncertain", "busy", "failed", "timeout", "mismatch", "distrusted");
NAMES(record_state, "", "provisional", "final");
NAMES(seen_state, "", "present", "missing", "unknown");
_Static_assert(COUNT(op_kind_words) == KINDS && COUNT(op_state_words) == OP_STATES &&
                   COUNT(backup_state_words) == BACKUP_STATES && COUNT(native_state_words) == NATIVE_STATES &&
                   COUNT(known_state_words) == VOL_STATES && COUNT(outcome_words) == OUTCOMES &&
                   COUNT(op_stage_words) == STAGES && COUNT(origin_words) == ORIGINS &&
                   COUNT(record_state_words) == RECORD_STATES && COUNT(seen_state_words) == SEEN_STATES &&
                   COUNT(restore_from_words) == FROMS && COUNT(target_state_words) == TARGET_STATES &&
                   COUNT(op_reason_words) == REASONS && COUNT(full_reason_words) == FULL_REASONS,
               "each value has a word");

enum op_state op_state_of(enum outcome o)
{
    return o == OUTCOME_NONE ? OP_FAILED : (enum op_state)(OP_COMPLETED + (o - OUTCOME_COMPLETED));
}

enum backup_state backup_state_of(enum outcome o)
{
    return o == OUTCOME_NONE ? BACKUP_FAILED : (enum backup_state)(BACKUP_COMPLETED + (o - OUTCOME_COMPLETED));
}

bool state_terminal(const char *state)
{
    return !strcmp(state, STATE_UNKNOWN) || op_state_terminal((enum op_state)enum_value(&op_state_names, state));
}

/* ---- tables ---- */

#define S struct op_error
static const struct field_desc op_error_table[] = {
    FIELD(code, "code", FIELD_ERR, .about = "exit code of snapferry(8); its word is in \"class\""),
    STR(stage, .about = "what was being done: snapshot, expose, start, move, ..."),
    STR(message, ALWAYS),
    STR(hint, ALWAYS, .about = "what to do about it"),
    FIELD(sys, "errno", FIELD_INT, ALWAYS),
    TIME(at_ns),
    INT(attempt, ALWAYS),
};
TABLE(op_error, "error", .keep_text = false);
#undef S

#define S struct mover_limits
#define TEXT_FIELD(name, size) STR(name, ALWAYS),
#define NUMBER_FIELD(name, u) INT(name, ALWAYS, .unit = u),
#define JOB_FIELD(name, u, least, most) NUMBER_FIELD(name, u)
#define LIST_FIELD(name) FIELD(name, #name, FIELD_STRS, ALWAYS),
static const struct field_desc mover_limits_table[] = {MOVER_LIMITS(TEXT_FIELD, NUMBER_FIELD, JOB_FIELD, LIST_FIELD)};
TABLE(mover_limits, "limits", .keep_text = false);
#undef TEXT_FIELD
#undef NUMBER_FIELD
#undef JOB_FIELD
#undef LIST_FIELD
#undef S

#define S struct policy_keep
#define KEEP(member) FIELD(member, #member, FIELD_INT, .unset = -1)
static const struct field_desc policy_keep_table[] = {KEEP(latest), KEEP(hourly),  KEEP(daily),
                                                      KEEP(weekly), KEEP(monthly), KEEP(annual)};
TABLE(policy_keep, "keep", .keep_text = false);
#undef KEEP
#undef S

#define S struct policy
static const struct field_desc policy_table[] = {
    STR(repository, ALWAYS, .about = "section of the configuration"),
    STR(group, ALWAYS, .about = "volumes whose snapshots belong together"),
    BOOL(group_strict, ALWAYS),
    INT(group_max_skew_ms, ALWAYS, .unit = "ms"),
    BOOL(move_data, ALWAYS),
    INT(snapshots_to_retain, ALWAYS),
    BOOL(job_retain, ALWAYS, .about = "the number is the job's own and counts its own snapshots (RS-29)"),
    SECONDS(retain_max_age_s, ALWAYS),
    BOOL(keep_on_failure, ALWAYS),
    BOOL(prune_before, ALWAYS),
    INT(max_snapshots_per_volume, ALWAYS),
    INT(pool_high_water, ALWAYS, .unit = "percent"),
    INT(snapshot_only_keep, ALWAYS),
    SECONDS(snapshot_only_max_age_s, ALWAYS),
    STR(backup_storage_class, ALWAYS),
    BOOL(backup_read_only, ALWAYS),
    FIELD(options, "options", FIELD_OBJECT, ALWAYS, .about = "backup-option.KEY"),
    BOOL(expose_keep_on_failure, ALWAYS),
    INT(copy_limit, ALWAYS, .unit = "bytes/s"),
    SECONDS(snapshot_timeout_s, ALWAYS),
    SECONDS(prepare_timeout_s, ALWAYS),
    SECONDS(go_timeout_s, ALWAYS),
    SECONDS(stall_timeout_s, ALWAYS),
    SECONDS(max_duration_s, ALWAYS),
    SECONDS(cancel_grace_s, ALWAYS),
    SECONDS(repo_outage_max_s, ALWAYS),
    INT(retries, ALWAYS),
    SECONDS(retry_first_s, ALWAYS),
    SECONDS(retry_max_s, ALWAYS),
    STR(mover, ALWAYS, .about = "plugin:NAME; empty: built in"),
    STR(splitter, ALWAYS),
    STR(compression, ALWAYS),
    BOOL(map_bad, ALWAYS),
    BOOL(full, ALWAYS),
    BOOL(changed_blocks, .about = "changed-blocks = auto"),
    SECONDS(full_every_s, .unset = -1, .about = "0: never"),
    INT(verify_sample_ppm, .unset = -1, .unit = "millionths"),
    STRUCT(limits, mover_limits, ALWAYS),
    STR(hook_pre_backup),
    STR(hook_pre_restore),
    STR(hook_pre_snapshot, ALWAYS),
    STR(hook_post_snapshot, ALWAYS),
    STR(hook_post_backup, ALWAYS),
    STR(hook_prepare, ALWAYS),
    STR(hook_post_restore, ALWAYS),
    SECONDS(hook_timeout_s, ALWAYS),
    BOOL(hook_continue, ALWAYS),
    STRUCT(keep, policy_keep, .flags = FIELD_ALWAYS | FIELD_NULL, .about = "null: inherited"),
    INT(max_per_class, ALWAYS),
    INT(max_per_device, ALWAYS),
    INT(priority, ALWAYS),
};
TABLE(policy, "policy", .none = &policy_none, .keep_text = true);
#undef S

bool driver_is_raw(const char *driver)
{
    return driver_kind_of(driver)->raw != NULL;
}

#define S struct class_desc
static const struct field_desc class_desc_table[] = {
    STR(name, ALWAYS),
    STR(driver, ALWAYS),
    FIELD(match, "match", FIELD_STRS, ALWAYS, .about = "patterns of volume names"),
    FIELD(peers, "peers", FIELD_STRS, .about = "of the driver's other classes, \"\" after each"),
    STR(target, ALWAYS),
    STR(node, ALWAYS),
    INT(max, ALWAYS, .about = "slots of this class; 0: no own limit"),
    STR(plugin, .about = "its program"),
    STR(plugin_user),
    FIELD(options, "options", FIELD_OBJECT, ALWAYS),
    BOOL(accept_inconsistent, ALWAYS),
    BOOL(point_in_time, .about = "driver nbd: the exports are of one point in time"),
    INT(cow_percent, .unit = "percent", .about = "driver lvm: space of a COW snapshot"),
    STR(overlay_hook, ALWAYS),
};
TABLE(class_desc, "class", .none = &class_desc_none, .keep_text = true);
#undef S

#define S struct volume_desc
static const struct field_desc volume_desc_table[] = {
    STR(name, ALWAYS),
    STR(id, ALWAYS),
    STR(pool, ALWAYS, .about = "device group"),
    STR(labels, .about = "what its storage says of it, for match: KIND:VALUE ..."),
    BYTES(size, ALWAYS),
    FIELD(allocated, "allocated", FIELD_INT, .flags = FIELD_ALWAYS | FIELD_NULL, .unit = "bytes", .unset = -1),
    BYTES(sector),
    BOOL(block, ALWAYS),
    BOOL(in_use, ALWAYS),
    BOOL(same_pool),
};
TABLE(volume_desc, "volume-description", .none = &volume_desc_none, .keep_text = false);
#undef S

#define TAG                                                                                                            \
    STR(alias, ALWAYS), STR(volume_id, ALWAYS), STR(volume_name, ALWAYS), STR(backup, ALWAYS), STR(operation, ALWAYS), \
        STR(repository, ALWAYS), TIME(created_ns, ALWAYS), UINT(seq, ALWAYS)
#define S struct tag_desc
static const struct field_desc tag_desc_table[] = {TAG};
TABLE(tag_desc, "tag", .none = &tag_desc_none, .keep_text = false);
#undef S

#define S struct native_desc
static const struct field_desc native_desc_table[] = {
    TAG,
    STR(handle, ALWAYS, .about = "the driver's name for it"),
    BYTES(size, ALWAYS),
    FIELD(used, "used", FIELD_INT, .flags = FIELD_ALWAYS | FIELD_NULL, .unit = "bytes", .unset = -1,
          .about = "what it holds alone"),
    BOOL(crash_consistent, ALWAYS),
    STR(change_id, .about = "what a later one is compared with"),
};
TABLE(native_desc, "native-description", .none = &native_desc_none, .keep_text = false);
#undef S

#define S struct op_spent
#define SPENT(state, word)                                                                                             \
    {                                                                                                                  \
        .name = (word), .offset = offsetof(S, ms[state]), .type = FIELD_INT, .since = 1, .unit = "ms"                  \
    }
static const struct field_desc op_spent_table[] = {
    SPENT(OP_QUEUED, "Queued"),         SPENT(OP_SNAPSHOTTING, "Snapshotting"), SPENT(OP_EXPOSING, "Exposing"),
    SPENT(OP_STARTING, "Starting"),     SPENT(OP_RUNNING, "Running"),           SPENT(OP_RETRYING, "Retrying"),
    SPENT(OP_CANCELLING, "Cancelling"), SPENT(OP_CLEANING_UP, "CleaningUp"),
};
static TABLE(op_spent, "spent", .keep_text = false);
#undef S

#define S struct maintain_order
static const struct field_desc maintain_order_table[] = {
    FIELD(there, "", FIELD_BOOL, .flags = FIELD_THERE),
    BOOL(full, ALWAYS),
    BOOL(dry_run),
    BOOL(unsafe, .about = "without safety delays"),
    BOOL(scheduled, .about = "by the daemon itself"),
};
static TABLE(maintain_order, "maintain-order", .keep_text = false);
#undef S

#define S struct operation
static const struct field_desc operation_table[] = {
    ENUM(kind, op_kind),
    STR(job),
    STR(description),
    TIME(configured_ns, .about = "it took over a changed configuration"),
    STR(config_kept, .about = "what of it was not taken over, and why"),
    BOOL(debug),
    ENUM(stage, op_stage, .about = "how far phase 1 is"),
    SHARED(policy, "policy", policy, .about = "of the configuration, see snapferry.ini(5)"),
    SHARED(own, "own", class_desc, .about = "class of the volume; of a restore, of the target"),
    SHARED(into, "into", class_desc, .about = "class of the intermediate, where it is another"),
    SHARED(volume, "volume", volume_desc),
    BOOL(rebuilt, .about = "found in the repository by a scan"),
    BOOL(degraded, .about = "done, but with something missing"),
    STR(degraded_why, .about = "what"),
    TIME(state_since_ns),
    TIME(started_ns),
    TIME(clock_ns, .about = "by how much the clock was set since it was started"),
    TIME(ended_ns, .about = "the outcome was decided"),
    TIME(completed_ns, .about = "nothing is left to release"),
    ENUM(outcome, outcome),
    ENUM(reason, op_reason),
    STRUCT(spent_ms, op_spent),
    BOOL(queue_counted),
    BOOL(cancel),
    TIME(cancel_ns),
    TIME(cancel_deadline_ns),
    STR(cancel_reason),
    STRUCT(error, op_error),
    FIELD(attempts, "attempts", FIELD_STRUCTS, .of = &op_error_fields, .about = "errors of earlier attempts"),
    INT(attempt),
    INT(interruptions),
    INT(adoptions, .about = "by daemons that started since its mover was last heard of"),
    TIME(outage_ns, .about = "since when its repository is away"),
    STR(waiting, .about = "what it waits for"),
    STR(skip_reason),
    STR(native, .about = "alias of the snapshot that it works on"),
    SHARED(native_doc, "native_doc", native_desc),
    SHARED(tag, "tag", tag_desc),
    UINT(native_intent),
    UINT(hook_intent),
    FIELD(pool_ratio, "pool_ratio", FIELD_REAL, .unset = -1),
    BOOL(snapshot_failed),
    BOOL(snapshot_transient),
    TIME(hook_began_ns),
    INT(frozen_ms, .unit = "ms"),
    TIME(snapshot_ns),
    INT(snapshot_ms, .unit = "ms"),
    INT(group_skew_ms, .unset = -1, .unit = "ms", .about = "0 if all were at one instant"),
    INT(prune_rounds),
    INT(checks),
    STR(check_operation, .about = "asks the repository what older snapshots hold"),
    UINT(expose_intent),
    STR(expose_alias),
    TIME(expose_ns),
    FIELD(exposure, "exposure", FIELD_OBJECT, .about = "the driver's: path, size, mechanism, read_only, ..."),
    BOOL(prepared),
    TIME(prepare_deadline_ns, .about = "the first byte has to be read by then (prepare-timeout)"),
    INT(prepare_left_ms, .unit = "ms", .about = "of prepare-timeout, while it waits for its turn; 0: all of it"),
    STR(prepare_boot, .about = "boot id of the deadline"),
    BOOL(read_begun, .about = "a mover has read the first byte"),
    ENUM(full_reason, full_reason, .about = "why all data was read"),
    STR(full_why),
    STR(base, .about = "native snapshot that the list of changes refers to"),
    STR(base_snapshot, .about = "its snapshot in the repository"),
    STR(base_state, .about = "its change id"),
    INT(list_ranges, .about = "of the list of changes"),
    BYTES(list_bytes),
    TIME(moving_ns),
    TIME(running_ns),
    BOOL(first_run, .about = "running_ns is of this attempt"),
    FIELD(identity, "identity", FIELD_TEXT, .about = "of the mover's process"),
    STR(plugin_id),
    FIELD(progress, "progress", FIELD_OBJECT),
    FIELD(mover, "mover", FIELD_TEXT, .about = "how its mover ended"),
    STRUCT(result, mover_result, .about = "what its mover left (docs/mover.md)"),
    BOOL(undone),
    BOOL(releasing, .about = "it no longer counts as a user of its native snapshot"),
    INT(cleanup_tries),
    STR(cleanup_error),
    BOOL(lost, .about = "its snapshot is no longer in the repository"),
    TIME(verified_ns, .about = "when another process found its snapshot"),
    STR(unverified, .about = "what it found instead"),
    TIME(gone_ns, .about = "since when it is known that the repository does not have what was backed up"),
    STR(gone_why),
    BOOL(pre_hook_done, .about = "the pre-backup or pre-restore hook has ended"),
    BOOL(post_hook_done),
    STR(retry_of, .about = "the operation that failed, whose native snapshot is moved (RS-03)"),
    ENUM(from, restore_from),
    STR(of, .about = "the operation whose data are restored"),
    STR(why),
    STR(target_name),
    STR(snapshot),
    STR(stored_id),
    BYTES(size),
    BOOL(overwrite),
    BOOL(verify),
    BOOL(differential, .about = "only what differs from the target is written"),
    BOOL(ranged, .about = "only a range is restored"),
    BYTES(offset),
    BYTES(length, .about = "0: to the end"),
    ENUM(target_state, target_state, .about = "once it has ended"),
    BOOL(onto_itself),
    BOOL(in_place),
    BOOL(filled, .about = "the target is complete"),
    BOOL(committed, .about = "the target is in place"),
    SHARED(native_class, "native_class", class_desc),
    FIELD(stored, "stored", FIELD_JSON, .about = "what a mover plugin stored"),
    FIELD(target, "target", FIELD_OBJECT, .about = "the driver's: path, size, ..."),
    FIELD(does, "do", FIELD_ARRAY, .about = "steps of an admin operation (docs/mover.md)"),
    FIELD(aliases, "aliases", FIELD_OBJECT, .about = "of a check: snapshot id -> alias"),
    FIELD(snapshots, "snapshots", FIELD_JSON),
    FIELD(read_percent, "read_percent", FIELD_REAL, .unset = -1),
    INT(read_from_ppm, .unset = -1, .about = "of a verification by schedule: where its share begins"),
    BOOL(anew, .about = "of a verification: what an interrupted one has read is read again"),
    STRUCT(maintain, maintain_order),
    STR(deletes, .about = "the backup that goes"),
    BOOL(force),
    BOOL(even_kept),
    BOOL(begun, .about = "from here on there is no way back"),
    INT(plugins_done),
    FIELD(deletions, "deletions", FIELD_OBJECT, .about = "repository -> admin operation"),
    FIELD(records, "records", FIELD_STRS, .about = "backups whose outcome it writes into the repository (AO-16)"),
    BOOL(tried, .about = "and it has failed at least once"),
    BOOL(requested, .about = "of a check before pruning: a request waits for its answer, too"),
    INT(proved, .about = "of so many of them is noted what it found of their snapshots"),
    UINT(proved_seq, .about = "of the next one up to this operation"),
};
TABLE(operation, "operation", .keep_text = false);
#undef S

#define S struct backup_counts
static const struct field_desc backup_counts_table[] = {
    INT(attempted, ALWAYS), INT(completed, ALWAYS), INT(failed, ALWAYS), INT(canceled, ALWAYS), INT(skipped, ALWAYS)};
static TABLE(backup_counts, "counts", .keep_text = false);
#undef S

#define S struct backup_bytes
static const struct field_desc backup_bytes_table[] = {BYTES(total, ALWAYS), BYTES(incremental, ALWAYS),
                                                       BYTES(uploaded, ALWAYS)};
static TABLE(backup_bytes, "bytes", .keep_text = false);
#undef S

#define S struct native_seen
static const struct field_desc native_seen_table[] = {STR(alias), ENUM(state, seen_state), STR(why)};
TABLE(native_seen, "native snapshot seen", .keep_text = false);
#undef S

#define S struct backup
static const struct field_desc backup_table[] = {
    ENUM(kind, op_kind),
    STR(job),
    ENUM(origin, origin),
    BOOL(caught_up),
    TIME(planned_ns),
    STR(description),
    FIELD(volume_ids, "volume_ids", FIELD_STRS),
    FIELD(skipped, "skipped", FIELD_ARRAY, .about = "volume and reason"),
    BOOL(rebuilt),
    BOOL(unproven, .about = "rebuilt without a record of its outcome, which is shown as Unknown"),
    STR(blocked_by),
    INT(position),
    TIME(state_since_ns),
    TIME(started_ns),
    TIME(clock_ns, .about = "by how much the clock was set since it was started"),
    TIME(snapshots_done_ns, .about = "the point in time that can be restored (AO-42)"),
    TIME(completed_ns),
    BOOL(degraded),
    BOOL(degraded_phase, .about = "an operation has failed, others go on (AO-13)"),
    BOOL(cancel),
    TIME(cancel_ns),
    BOOL(expired, .about = "retention in the repositories was asked for"),
    STR(post_hook_operation),
    STR(deleting, .about = "the operation that deletes it"),
    ENUM(outcome, outcome, .about = "as decided in Finalizing and recorded in the repositories"),
    BOOL(disproved, .about = "since then a snapshot of it was not found in its repository"),
    INT(gone, .about = "volumes of which the repository does not have what was backed up, as was found since"),
    TIME(gone_ns, .about = "when that was found first"),
    STR(gone_why),
    INT(alone, .about = "completed volumes of which only a native snapshot was made (move-data = no)"),
    INT(lost, .about = "volumes whose snapshot is no longer in the repository"),
    TIME(lost_ns, .about = "when that was known of the last one"),
    STR(lost_why),
    BOOL(looked, .about = "its native snapshots were looked at again (AO-38)"),
    FIELD(natives_seen, "natives_seen", FIELD_STRUCTS, .of = &native_seen_fields, .about = "what was found then"),
    FIELD(recorders, "recorders", FIELD_OBJECT, .about = "repository -> operation that records it there (AO-16)"),
    STR(node, .about = "whose it is, if another node's (`scan --node`)"),
    STRUCT(counts, backup_counts),
    STRUCT(bytes, backup_bytes),
    FIELD(read_fully, "read_fully", FIELD_OBJECT, .about = "reason -> of how many volumes all data was read for it"),
    FIELD(failed_volumes, "failed_volumes", FIELD_STRS),
    FIELD(errors, "errors", FIELD_ARRAY, .about = "operation, volume and error"),
    STRUCT(error, op_error),
    ENUM(from, restore_from),
    STR(retry_of, .about = "the backup whose failed volumes it backs up again (RS-03)"),
    STR(of, .about = "restore: the backup"),
    STR(of_job),
    STR(target),
};
TABLE(backup, "backup", .keep_text = false);
#undef S

/* ---- the outcome of a backup in its repositories ---- */

#define S struct record_native
static const struct field_desc record_native_table[] = {
    FIELD(alias, "alias", FIELD_STR),
    FIELD(handle, "snapshotHandle", FIELD_STR),
    FIELD(created, "creationTimestamp", FIELD_STR),
    FIELD(state, "state", FIELD_ENUM, .names = &seen_state_names),
    FIELD(why, "reason", FIELD_STR),
    FIELD(size, "size", FIELD_INT, .unit = "bytes"),
};
TABLE(record_native, "native snapshot", .keep_text = false);
#undef S

#define S struct record_movement
static const struct field_desc record_movement_table[] = {
    FIELD(operation, "operationID", FIELD_STR),
    FIELD(repository, "repository", FIELD_STR),
    FIELD(snapshot, "snapshotID", FIELD_STR),
    FIELD(retained, "retainedSnapshot", FIELD_STR),
    FIELD(handle, "snapshotHandle", FIELD_STR),
    FIELD(phase, "phase", FIELD_ENUM, .names = &outcome_names),
    FIELD(size, "size", FIELD_INT, .unit = "bytes"),
    FIELD(incremental, "incrementalSize", FIELD_INT, .unset = -1, .unit = "bytes"),
};
static TABLE(record_movement, "snapshotDataMovementInfo", .keep_text = false);
#undef S

#define S struct record_volume
static const struct field_desc record_volume_table[] = {
    FIELD(name, "volumeName", FIELD_STR, ALWAYS),
    FIELD(id, "volumeID", FIELD_STR),
    FIELD(klass, "storageClass", FIELD_STR),
    FIELD(driver, "driver", FIELD_STR),
    FIELD(path, "sourcePath", FIELD_STR),
    FIELD(size, "size", FIELD_INT, .unit = "bytes"),
    FIELD(started, "startTimestamp", FIELD_STR),
    FIELD(ended, "completionTimestamp", FIELD_STR),
    FIELD(snapshot_at, "snapshotTimestamp", FIELD_STR),
    FIELD(moved, "snapshotDataMoved", FIELD_BOOL, ALWAYS),
    FIELD(preserved, "preserveLocalSnapshot", FIELD_BOOL, ALWAYS),
    FIELD(skipped, "skipped", FIELD_BOOL, ALWAYS),
    FIELD(degraded, "degraded", FIELD_BOOL),
    FIELD(skipped_reason, "skippedReason", FIELD_STR),
    FIELD(outcome, "result", FIELD_ENUM, .names = &outcome_names),
    FIELD(failure, "failureReason", FIELD_STR),
    FIELD(stage, "failureStage", FIELD_STR),
    FIELD(movement, "snapshotDataMovementInfo", FIELD_STRUCT, .of = &record_movement_fields),
    FIELD(natives, "nativeSnapshots", FIELD_STRUCTS, .of = &record_native_fields),
};
TABLE(record_volume, "volume of a backup record", .keep_text = false);
#undef S

#define S struct backup_record
static const struct field_desc backup_record_table[] = {
    FIELD(version, "version", FIELD_INT, ALWAYS),
    FIELD(backup, "backup", FIELD_STR, ALWAYS),
    FIELD(job, "job", FIELD_STR),
    FIELD(reason, "reason", FIELD_ENUM, .names = &origin_names, .about = "why it was begun"),
    FIELD(node, "node", FIELD_STR, ALWAYS),
    FIELD(machine, "machine", FIELD_STR, ALWAYS),
    FIELD(description, "description", FIELD_STR),
    FIELD(repository, "repository", FIELD_STR, .about = "in which it lies, by the name that the node has for it"),
    FIELD(state, "state", FIELD_ENUM, .names = &record_state_names),
    FIELD(part, "part", FIELD_INT, ALWAYS),
    FIELD(parts, "parts", FIELD_INT, ALWAYS),
    FIELD(started, "startTimestamp", FIELD_STR),
    FIELD(snapshots_done, "snapshotsTimestamp", FIELD_STR),
    FIELD(ended, "completionTimestamp", FIELD_STR),
    FIELD(outcome, "phase", FIELD_ENUM, .names = &outcome_names),
    FIELD(failure, "failureReason", FIELD_STR),
    FIELD(counts, "operations", FIELD_STRUCT, .of = &backup_counts_fields),
    FIELD(snapshots, "snapshots", FIELD_INT, ALWAYS, .about = "of this part, in a repository"),
    FIELD(volumes, "volumes", FIELD_STRUCTS, .of = &record_volume_fields),
};
TABLE(backup_record, "backup record", .keep_text = false);
#undef S

#define S struct native_hold
static const struct field_desc native_hold_table[] = {
    FIELD(held, "", FIELD_BOOL, .flags = FIELD_THERE),
    STR(note, ALWAYS),
    TIME(at_ns, ALWAYS),
};
static TABLE(native_hold, "hold", .keep_text = false);
#undef S

#define S struct remove_error
static const struct field_desc remove_error_table[] = {
    STR(message),
    FIELD(cls, "class", FIELD_INT, .about = "exit code of snapferry(8)"),
    FIELD(sys, "errno", FIELD_INT),
    STR(hint),
};
static TABLE(remove_error, "remove-error", .keep_text = false);
#undef S

#define S struct native_kept
static const struct field_desc native_kept_table[] = {
    FIELD(there, "", FIELD_BOOL, .flags = FIELD_THERE),
    TIME(at_ns, ALWAYS),
    STR(operation, .about = "the one that failed"),
    STR(why, .about = "its error"),
    STR(alias, .about = "of the intermediate; none: there is only the native snapshot"),
    SHARED(into, "into", class_desc, .about = "class in which the intermediate lies"),
    FIELD(exposure, "exposure", FIELD_OBJECT, .about = "as the driver described the intermediate"),
    BOOL(released, .about = "to be removed"),
    STR(error, .about = "why the intermediate cannot be removed"),
};
TABLE(native_kept, "kept", .keep_text = false);
#undef S

#define S struct native_row
static const struct field_desc native_row_table[] = {
    SHARED(klass, "class", class_desc),
    SHARED(volume, "volume", volume_desc),
    SHARED(policy, "policy", policy),
    SHARED(native, "native", native_desc, .about = "as the driver described it"),
    STR(driver),
    STR(operation),
    STR(job),
    TIME(state_since_ns),
    FIELD(effective_retain, "effective_retain", FIELD_INT, .unset = -1,
          .about = "snapshots-to-retain when its backup was made (RS-10)"),
    BOOL(job_retain, .about = "that number is the job's own (RS-29)"),
    BOOL(snapshot_only, .about = "taken with move-data = no"),
    BOOL(moved, ALWAYS, .about = "its data is complete in the repository"),
    BOOL(moved_verified, .about = "and was readable there (RS-18)"),
    BOOL(failed, .about = "its data was not moved and will not be"),
    TIME(moved_ns),
    TIME(verified_ns),
    TIME(disproved_ns, .about = "when its snapshot was found damaged, or another"),
    TIME(full_ns, .about = "when all data was read last, for it or for what it is based on"),
    BYTES(moved_size, .about = "of the volume that were moved"),
    STR(snapshot, .about = "id in the repository"),
    STR(source, .about = "of that snapshot"),
    STRUCT(hold, native_hold, .flags = FIELD_TRUE, .about = "kept until it is released"),
    STRUCT(kept, native_kept, .about = "for inspection (expose-keep-on-failure)"),
    BOOL(cbt_parent, .about = "base of the next incremental backup (RS-28)"),
    BOOL(bookmark, .about = "its storage has a bookmark of it"),
    BOOL(expired, .about = "retention of the daemon has removed its snapshot from the repository"),
    BOOL(adopted, .about = "found on the storage"),
    STRUCT(remove_error, remove_error),
    STR(why_removed),
};
TABLE(native_row, "native", .keep_text = false);
#undef S

#define S struct volume_row
static const struct field_desc volume_row_table[] = {
    SHARED(volume, "volume", volume_desc),
    FIELD(klass, "class", FIELD_STR),
    TIME(gone_ns),
    TIME(expected_ns, .about = "since when a job with a schedule names it"),
    TIME(unscheduled_ns, .about = "since when none does any more"),
    TIME(appeared_ns, .about = "when it came to a storage class whose others had been listed before"),
    ENUM(last_status, outcome),
    ENUM(last_verdict, outcome, .about = "neither canceled nor skipped"),
    STR(half_restored, .about = "the restore that has left it incomplete"),
    STR(last_backup),
    TIME(last_end_ns),
    TIME(last_success_ns),
    TIME(last_snapshot_ns),
    FIELD(last_changed_bytes, "last_changed_bytes", FIELD_INT, .unset = -1, .unit = "bytes"),
    STR(last_good_backup),
    STR(last_good_repository),
    STR(last_good_lost, .about = "why no backups are left"),
    TIME(distrusted_ns, .about = "when a list of its changes was found to be wrong"),
    STR(source, .about = "of its snapshots in the repository"),
    STR(last_good_evidence, .about = "what shows it, if the repository was not asked: mover, plugin:NAME, native"),
    STRUCT(last_error, op_error),
};
TABLE(volume_row, "volume", .keep_text = false);
#undef S

#define S struct job_failure
static const struct field_desc job_failure_table[] = {
    FIELD(there, "", FIELD_BOOL, .flags = FIELD_THERE),
    STR(message, ALWAYS),
    STR(hint, ALWAYS),
    TIME(at_ns, ALWAYS),
};
static TABLE(job_failure, "job-failure", .keep_text = false);
#undef S

#define S struct maintain_cycle
static const struct field_desc maintain_cycle_table[] = {
    TIME(tried_ns, .about = "when the last one ended"),
    TIME(good_ns, .about = "when the last one ended that did all"),
    ENUM(outcome, outcome),
    STR(operation),
    STR(error),
};
static TABLE(maintain_cycle, "maintain-cycle", .keep_text = false);
#undef S

#define S struct maintain_memory
static const struct field_desc maintain_memory_table[] = {
    FIELD(there, "", FIELD_BOOL, .flags = FIELD_THERE),
    TIME(since_ns, ALWAYS, .about = "since when this node looks after it"),
    ENUM(refused, maintain_refusal, .about = "why this node does not maintain it"),
    STR(owner),
    STR(why),
    STR(hint),
    TIME(silent_ns, .about = "since when the owner, another one, has not run it"),
    SECONDS(quick_s, .unset = -1, .about = "interval, 0: disabled"),
    SECONDS(full_s, .unset = -1),
    STRUCT(quick, maintain_cycle),
    STRUCT(full, maintain_cycle),
    BYTES(freed, .about = "by the last full run that did all; and so on, see maintenance"),
    BYTES(packs),
    BYTES(reclaimable),
    BYTES(trapped),
    TIME(back_from_ns),
};
static TABLE(maintain_memory, "maintain-memory", .keep_text = false);
#undef S

#define S struct verify_memory
static const struct field_desc verify_memory_table[] = {
    FIELD(there, "", FIELD_BOOL, .flags = FIELD_THERE),
    TIME(since_ns, .about = "since when it is verified by schedule"),
    TIME(tried_ns, .about = "when the last one by schedule ended"),
    ENUM(outcome, outcome),
    STR(operation),
    STR(error),
    TIME(done_ns, .about = "when the last one ended that was complete"),
    TIME(damaged_ns, .about = "when damage was found, the last time"),
    INT(damages, .about = "damaged or missing pieces"),
    STR(damaged_by, .about = "the operation that found it"),
    TIME(corrected_ns, .about = "when error correction had to restore something, the last time"),
    INT(corrected, .about = "contents, without those that maintenance has stored again since"),
    INT(corrected_indexes, .about = "index blobs"),
    STR(corrected_by, .about = "the operation that read them"),
    FIELD(affected, "affected", FIELD_STRS, .about = "backup operations whose snapshots a check found damaged"),
    TIME(affected_ns, .about = "when the last one was found"),
    INT(from_ppm, .about = "millionths: where the next one begins to read"),
    TIME(round_ns, .about = "when the first run of this round began"),
    TIME(all_ns, .about = "when all contents had been read, the last time"),
    TIME(all_began_ns, .about = "since when"),
};
static TABLE(verify_memory, "verify-memory", .keep_text = false);
#undef S

#define S struct copy_memory
static const struct field_desc copy_memory_table[] = {
    FIELD(there, "", FIELD_BOOL, .flags = FIELD_THERE),
    TIME(since_ns, .about = "since when it is made by schedule"),
    TIME(tried_ns, .about = "when the last one ended"),
    ENUM(outcome, outcome),
    STR(operation),
    STR(error),
    TIME(good_ns, .about = "when the last one ended that was complete"),
    STR(place, .about = "where it was made"),
    INT(copied, .about = "blobs that it copied"),
    BYTES(copied_bytes),
    INT(blobs, .about = "in the copy then"),
    BYTES(bytes),
    INT(surplus, .about = "of these, not in the repository any more"),
    BYTES(surplus_bytes),
    BYTES(deleted_bytes),
    BYTES(held_bytes, .about = "were to be deleted, and are more than half of the copy"),
    INT(lost, .about = "likewise, packs that the repository has lost"),
};
static TABLE(copy_memory, "copy-memory", .keep_text = false);
#undef S

char *copy_row_id(const char *copy, char out[MAINTAIN_ROW_MAX])
{
    snprintf(out, MAINTAIN_ROW_MAX, "[copy %s]", copy);
    return out;
}

char *maintain_row_id(const char *repository, char out[MAINTAIN_ROW_MAX])
{
    snprintf(out, MAINTAIN_ROW_MAX, "[repository %s]", repository);
    return out;
}

#define S struct job_run
static const struct field_desc job_run_table[] = {
    STR(on_calendar),
    BOOL(active),
    TIME(since_ns, .about = "since when it has this schedule"),
    TIME(last_planned_ns),
    TIME(last_run_ns),
    STR(last_backup, .about = "what its last run began"),
    STRUCT(failed, job_failure, .about = "its last start"),
    FIELD(missing, "missing", FIELD_ARRAY, .about = "volume and reason, of what its last start did not find"),
    STRUCT(maintain, maintain_memory, .about = "of the row of a repository"),
    STRUCT(verification, verify_memory, .about = "likewise"),
    STRUCT(copy, copy_memory, .about = "of the row of a copy"),
};
TABLE(job_run, "job", .keep_text = false);
#undef S

/* ---- what stands for none ---- */

#define NOTHING str_empty
#define NO_TEXT(name, ...) .name = NOTHING,
const struct policy policy_none = {
    .full_every_s = -1,
    .verify_sample_ppm = -1,
    .repository = NOTHING,
    .group = NOTHING,
    .backup_storage_class = NOTHING,
    .mover = NOTHING,
    .splitter = NOTHING,
    .compression = NOTHING,
    .limits = {MOVER_LIMITS(NO_TEXT, MOVER_LIMIT_OMIT, MOVER_LIMIT_OMIT, MOVER_LIMIT_OMIT)},
    .hook_pre_backup = NOTHING,
    .hook_pre_restore = NOTHING,
    .hook_pre_snapshot = NOTHING,
    .hook_post_snapshot = NOTHING,
    .hook_post_backup = NOTHING,
    .hook_prepare = NOTHING,
    .hook_post_restore = NOTHING,
    .keep = {.latest = -1, .hourly = -1, .daily = -1, .weekly = -1, .monthly = -1, .annual = -1},
};
const struct class_desc class_desc_none = {.name = NOTHING,
                                           .driver = NOTHING,
                                           .target = NOTHING,
                                           .node = NOTHING,
                                           .plugin = NOTHING,
                                           .plugin_user = NOTHING,
                                           .overlay_hook = NOTHING};
const struct volume_desc volume_desc_none = {
    .name = NOTHING, .id = NOTHING, .pool = NOTHING, .labels = NOTHING, .allocated = -1};
const struct tag_desc tag_desc_none = {.alias = NOTHING,
                                       .volume_id = NOTHING,
                                       .volume_name = NOTHING,
                                       .backup = NOTHING,
                                       .operation = NOTHING,
                                       .repository = NOTHING};
const struct native_desc native_desc_none = {.alias = NOTHING,
                                             .volume_id = NOTHING,
                                             .volume_name = NOTHING,
                                             .backup = NOTHING,
                                             .operation = NOTHING,
                                             .repository = NOTHING,
                                             .handle = NOTHING,
                                             .change_id = NOTHING,
                                             .used = -1};

/* ---- parts ---- */

bool policy_keeps(const struct policy_keep *k)
{
    return fields_set(&policy_keep_fields, k);
}

json_t *policy_keep_to_json(const struct policy_keep *k)
{
    return policy_keeps(k) ? fields_to_json(&policy_keep_fields, k) : json_null();
}

int op_error_set(struct op_error *ret, const char *stage, const struct err *e, int64_t at_ns, int64_t attempt)
{
    /* The stage may be that of the error which is replaced. */
    int rc = str_set(&ret->stage, stage);
    json_decref(ret->unknown);
    ret->unknown = NULL;
    ret->code = e->cls ? e->cls : ERR_GENERIC;
    ret->sys = e->sys;
    ret->at_ns = at_ns;
    ret->attempt = attempt;
    if (str_set(&ret->message, e->msg) < 0 || str_set(&ret->hint, e->hint) < 0)
        rc = strings_set_nomem();
    return rc;
}

int op_error_copy(struct op_error *ret, const struct op_error *x)
{
    struct op_error copy;
    int rc = fields_copy(&op_error_fields, &copy, x);
    op_error_clear(ret);
    *ret = copy;
    return rc;
}

void op_error_clear(struct op_error *x)
{
    fields_clear(&op_error_fields, x);
}

void native_kept_clear(struct native_kept *x)
{
    fields_clear(&native_kept_fields, x);
}

json_t *op_error_to_json(const struct op_error *x)
{
    return fields_to_json(&op_error_fields, x);
}

void op_error_to_err(struct err *ret, const struct op_error *x)
{
    *ret = (struct err)ERR_INIT;
    ret->cls = x->code;
    ret->sys = (int)x->sys;
    snprintf(ret->msg, sizeof ret->msg, "%s", x->message);
    snprintf(ret->hint, sizeof ret->hint, "%s", x->hint);
}

int operation_attempt_add(struct operation *op)
{
    struct op_error *v = reallocarray(op->attempts.v, op->attempts.n + 1, sizeof *v);
    if (!v)
        return strings_set_nomem();
    op->attempts.v = v;
    if (fields_copy(&op_error_fields, &v[op->attempts.n], &op->error) < 0)
        return strings_set_nomem();
    op->attempts.n++;
    return 0;
}

int backup_note_seen(struct backup *b, const char *alias, enum seen_state state, const char *why)
{
    struct native_seen *v = reallocarray(b->natives_seen.v, b->natives_seen.n + 1, sizeof *v);
    if (!v)
        return strings_set_nomem();
    b->natives_seen.v = v;
    v += b->natives_seen.n++;
    fields_init(&native_seen_fields, v);
    v->state = state;
    return str_set(&v->alias, alias) < 0 ? -ENOMEM : str_set(&v->why, why);
}

/* By alias: a backup may have thousands. */
static int compare_seen(const void *a, const void *b)
{
    return strcmp(((const struct native_seen *)a)->alias, ((const struct native_seen *)b)->alias);
}

void backup_seen_end(struct backup *b)
{
    if (b->natives_seen.n)
        qsort(b->natives_seen.v, b->natives_seen.n, sizeof(struct native_seen), compare_seen);
}

const struct native_seen *backup_native_seen(const struct backup *b, const char *alias)
{
    const struct native_seen key = {.alias = (char *)(uintptr_t)alias};
    return b->natives_seen.n
               ? bsearch(&key, b->natives_seen.v, b->natives_seen.n, sizeof(struct native_seen), compare_seen)
               : NULL;
}

/* ---- rows ---- */

static const char *const job_words[] = {""};
static const struct enum_names job_state_names = {job_words, 1};

const struct row_type row_types[ROW_KINDS] = {
    [ROW_BACKUP] = {"backups", &backup_fields, &backup_state_names, offsetof(struct backup, state), BACKUP_COMPLETED},
    [ROW_OPERATION] = {"operations", &operation_fields, &op_state_names, offsetof(struct operation, state),
                       OP_COMPLETED},
    [ROW_NATIVE] = {"natives", &native_row_fields, &native_state_names, offsetof(struct native_row, state), INT_MAX},
    [ROW_VOLUME] = {"volumes", &volume_row_fields, &known_state_names, offsetof(struct volume_row, state), INT_MAX},
    [ROW_JOB] = {"jobs", &job_run_fields, &job_state_names, offsetof(struct job_run, state), INT_MAX},
};

void row_init(const struct fields *t, void *row)
{
    struct row *r = row;
    fields_init(t, row);
    r->id = r->parent = r->volume_id = str_empty;
}

void row_clear(const struct fields *t, void *row)
{
    struct row *r = row;
    str_clear(&r->id);
    str_clear(&r->parent);
    str_clear(&r->volume_id);
    fields_clear(t, row); /* which zeroes all */
    r->id = r->parent = r->volume_id = str_empty;
}

int row_copy(const struct fields *t, void *ret, const void *row)
{
    const struct row *from = row;
    struct row *r = ret;
    int rc = fields_copy(t, ret, row);
    r->id = r->parent = r->volume_id = str_empty;
    if (rc < 0)
        return rc;
    r->id = str_ref(from->id);
    r->parent = str_ref(from->parent);
    r->volume_id = str_ref(from->volume_id);
    return 0;
}
