# The answers of a pretended daemon: `jq -n -f answers.jq --arg what NAME`. "now" is 2026-11-21 12:00:00 UTC everywhere.
# Numbers that do not fit a double are written as "@N@".

def now: 1795262400;
def at($s): (now + $s) * 1000000000;
def ago($s): at(-$s);
def MiB: 1048576;
def GiB: 1073741824;

def id($n): "up-nightly-20261121T020000-3f9a.\("0000000\($n)"[-8:])";

# ---- pieces ----

def daemon: {version: "0.2.0", pid: 1234, node: "nas1", started_ns: ago(266400), degraded: false, maintenance: false, stuck: 0};
def config: {ok: true, hash: "5f2b", loaded_ns: ago(7200), warnings: 0};
def unknown_repository: {name: "main", path: "/srv/backup", up: true};
def repository: unknown_repository + {free: (3481 * GiB), size: (7475 * GiB), full: false, stored: (1229 * GiB), backed_up: (15112 * GiB), added: (1230 * GiB), dedup: 12.286,
    verified: {at_ns: ago(262000), damages: 0, read_ratio: 1}};
def slots: {total: 2, used: 0, restore_reserved: 1, queued: 0};
def job: {job: "nightly", on_calendar: "*-*-* 02:00:00", next: at(46800), last: ago(36000), interval_s: 86400, last_result: {state: "Completed", ended_ns: ago(34000)}};
def natives_none: {count: 0, used: 0, next: [], text: "none"};

def quiet: {daemon: daemon, config: config, repositories: [repository], slots: slots, running: [], queue: [], volumes: [],
            jobs: [job], natives: natives_none, problems: []};

def moving($total; $done; $rate; $left): {phase: "moving", total: $total, done: $done, read: $done, zero: 0, skipped: 0,
    duplicate: 0, new: 0, stored: 0, errors: 0, seconds: 60, rate: $rate, eta_s: $left, at_ns: ago(1)};
def operation($n; $volume; $state): {id: id($n), kind: "backup", state: $state, backup: "nightly-20261121T020000-3f9a",
    volume: $volume, class: "gold", repository: "main", created_ns: ago(600 + $n), started_ns: ago(590 + $n)};

def fine($name; $age): {name: $name, id: $name, class: "gold", size: (27 * GiB), protected: true, last_success_ns: ago($age),
    last_backup: "nightly-20261121T020000-3f9a", last_state: "Completed", age_s: $age, next_ns: at(46800), jobs: ["nightly"],
    natives: 3, used: (512 * MiB)};
def bad($name; $why): {name: $name, id: $name, class: "gold", size: (27 * GiB), protected: false, why: $why, jobs: [], natives: 0,
    used: 0};
def unread($name): bad($name; "the last good backup is older than two and a half intervals of its job: cannot read /dev/vg0/db7: Input/output error") +
    {last_success_ns: ago(259200), next_ns: at(46800), jobs: ["nightly"],
     error: {class: "source", code: 19, message: "cannot read /dev/vg0/db7: Input/output error", hint: "replace the disk, or set bad-reads = map"}};
def problem_of: {severity: "warning", text: "\(.name) is not protected: \(.why)", hint: (.error.hint // "")} | if .hint == "" then del(.hint) else . end;

# ---- names that are hard to show ----

def long: "/srv/vm/a-very-long-directory-name-that-goes-on-and-on/and-on/and-on-for-ever/image-of-the-database-server.img";
def hard_names: [
    "vg0/\u001b[31mred\u001b]0;title\u0007", "vg0/two\nlines\ttab\r", "vg0/c1\u009b31m\u0085", "vg0/日本語のボリューム名は幅が二倍になります",
    "vg0/e\u0301\u0308tude", "vg0/z\u0335\u0321\u0322\u0327\u0328\u031b\u0345\u0323\u0316\u0317\u0318\u0319algo", "vg0/\u202egnp.exe", "vg0/👍🏽-emoji-🎉",
    "vg0/zero\u200bwidth\ufeff", long, ("vg0/" + "漢" * 60), "\u0301combines-with-nothing", "vg0/'; rm -rf $HOME"];

# ---- operations in every state ----

def states: [
    operation(1; "vg0/db1"; "Running") + {progress: (moving(27 * GiB; 12 * GiB; 220000000; 73) + {zero: (2 * GiB), skipped: (3 * GiB), duplicate: (4 * GiB)})},
    operation(2; "vg0/db2"; "Running") + {progress: (moving(27 * GiB; 27 * GiB; 180000000; null) | del(.eta_s) | .phase = "committing")},
    operation(3; "vg0/db3"; "Queued") + {position: 1, why: "all slots are in use"},
    operation(4; "vg0/db4"; "Queued") + {position: 2, blocked_by: "nightly-20261121T010000-1c2d", why: "the volume is being backed up"},
    operation(5; "vg0/db5"; "Snapshotting"), operation(6; "vg0/db6"; "Exposing") + {why: "the class has as many exposed volumes as prepare-ahead allows"},
    operation(7; "vg0/db7"; "Retrying") + {attempt: 2, error: {class: "source", code: 19, message: "cannot read /dev/vg0/db7: Input/output error"}},
    operation(8; "vg0/db8"; "Cancelling"), operation(9; "vg0/db9"; "CleaningUp"),
    operation(10; "vg0/home"; "Completed") + {ended_ns: ago(30)},
    operation(11; "vg0/mail"; "Failed") + {ended_ns: ago(20), error: {class: "no-space", code: 18, message: "cannot write into the repository /srv/backup: No space left on device", hint: "make room", stage: "move"}},
    operation(12; "vg0/old"; "Canceled") + {ended_ns: ago(10)},
    operation(13; "vg0/tmp"; "Skipped") + {ended_ns: ago(5), why: "excluded by [volume \"vg0/tmp\"]"},
    {id: "verify-20261121T110000-77aa", kind: "verify", state: "Completed", repository: "main", created_ns: ago(4000), ended_ns: ago(3600), started_ns: ago(3990)},
    {id: "admin-expire-20261121T020100-5f3a", kind: "admin", does: "expire", state: "Completed", backup: "nightly-20261121T020000-3f9a", repository: "main", created_ns: ago(4100), ended_ns: ago(4090)},
    {id: "delete-20261121T020300-77cc", kind: "delete", deletes: "nightly-20261101T020000-0001", state: "Completed", created_ns: ago(4200), ended_ns: ago(4190)}];

# What a mover leaves of a backup.
def moved: {totalBytes: (27 * GiB), doneBytes: (27 * GiB), readBytes: (12 * GiB), dedupedBytes: (9 * GiB), incrementalBytes: (3 * GiB), uploadedBytes: (2 * GiB),
    seconds: 569.5, bottleneck: "read", stages: [{name: "read", busySeconds: 500.25, stalledSeconds: 0}, {name: "hash", busySeconds: 40.5, stalledSeconds: 500.5}]};

def backup($id; $state): {id: $id, kind: "backup", state: $state, job: "nightly", created_ns: ago(36000), started_ns: ago(35990), total: 4,
    completed: 4, failed: 0, size: (108 * GiB), new: (3 * GiB), volumes: ["vg0/db1", "vg0/db2", "vg0/home", "vg0/mail"]};
def backups: [
    backup("nightly-20261121T020000-3f9a"; "Moving") + {degraded: true, completed: 1, failed: 1, progress: moving(108 * GiB; 50 * GiB; 400000000; 145)},
    (backup("manual-20261121T113000-0b5e"; "Queued") + {total: 1, completed: 0, volumes: ["vg0/db1"], position: 3, why: "all slots are in use"} | del(.started_ns, .new)),
    backup("nightly-20261120T020000-77b1"; "Completed") + {created_ns: ago(122400), started_ns: ago(122390), ended_ns: ago(118800)},
    backup("nightly-20261119T020000-9c01"; "PartiallyFailed") + {created_ns: ago(208800), started_ns: ago(208790), ended_ns: ago(205200), completed: 3, failed: 1,
        error: {class: "source", code: 19, message: "vg0/mail: cannot read /dev/vg0/mail: Input/output error"}},
    backup("nightly-20261118T020000-1111"; "Failed") + {created_ns: ago(295200), ended_ns: ago(295190), completed: 0, failed: 4, new: 0, error: {class: "no-repository", code: 11, message: "/srv/backup is not mounted"}},
    (backup("restore-20261117T120000-aaaa"; "Canceled") + {kind: "restore", created_ns: ago(345600), started_ns: ago(345590), ended_ns: ago(345500), total: 1, completed: 0, failed: 1, volumes: ["vg0/db1"]} | del(.new))];

def natives: [
    {alias: "0b5e77aa-1111-2222-3333-444455556666", volume: "vg0/db1", state: "present", created_ns: ago(36000), used: (512 * MiB), reasons: "retained", why: "one of the newest 3", prune: false},
    {alias: "1c2d77aa-1111-2222-3333-444455556666", volume: "vg0/db1", state: "present", created_ns: ago(122400), used: (1024 * MiB), reasons: "retained hold", hold: true, note: "for the audit", prune: false, why: "held: for the audit"},
    {alias: "2e3f77aa-1111-2222-3333-444455556666", volume: "vg0/db1", state: "present", created_ns: ago(900000), used: 0, prune: true, why: "older than 3 newer ones"},
    {alias: "3a4b77aa-1111-2222-3333-444455556666", volume: long, state: "missing", created_ns: ago(100), why: "it is not on storage any more"},
    {alias: "3b4b77aa-1111-2222-3333-444455556666", volume: "/dev/zvol/tank/db", state: "missing", bookmark: true, created_ns: ago(200), reasons: "cbt-parent", why: "it is gone, and its bookmark is the base of the next incremental backup"},
    {alias: "4a4b77aa-1111-2222-3333-444455556666", volume: "vg0/db2", state: "creating", created_ns: ago(-86400)}];

# ---- whole answers ----

# The order of the daemon's lists.
def by_need: sort_by([if .state == "gone" then 2 elif .state == "excluded" then 3 elif .protected then 1 else 0 end,
    (.last_success_ns // 0 | if type == "string" then gsub("@"; "") | tonumber else . end), .name]);

def volumes200: [range(200) | . as $i | if $i % 67 == 3 then bad("vg\($i / 50 | floor)/db\($i)"; "not backed up yet, and no job names it") else fine("vg\($i / 50 | floor)/db\($i)"; 36000 + $i) end];

def status($what):
    if $what == "none" then quiet | .jobs = [] | .repositories = [unknown_repository]
    elif $what == "one" then quiet | .volumes = [fine("vg0/db1"; 36000)] | .natives = {count: 1, used: (512 * MiB), text: "none due for pruning"}
    elif $what == "busy" then quiet | .running = [states[0, 1, 6]] | .queue = [states[2, 3]] | .slots.used = 2 | .slots.queued = 2
        | .volumes = [fine("vg0/db1"; 36000), fine("vg0/db2"; 36100), unread("vg0/db7")]
        | .natives = {count: 9, used: (3 * GiB), next: [natives[2]], text: "2 pruned by the next backups, first 2e3f77aa of vg0/db1"}
        | .problems = [{severity: "warning", text: "vg0/db7 is tried again: cannot read /dev/vg0/db7: Input/output error"}, (unread("vg0/db7") | problem_of)]
    elif $what == "many" then quiet | .volumes = volumes200 | .running = [range(2) as $i | operation($i; "vg0/db\($i)"; "Running") + {progress: moving(27 * GiB; (12 - $i) * GiB; 220000000; 70 + $i)}]
        | .queue = [range(50) as $i | operation($i + 2; "vg0/db\($i + 2)"; "Queued") + {position: ($i + 1), why: "all slots are in use"}] | .slots.used = 2 | .slots.queued = 198
        | .natives = {count: 597, used: (300 * GiB), next: [natives[2]], text: "199 pruned by the next backups, first 2e3f77aa of vg0/db1"}
        | .problems = [.volumes[] | select(.protected | not) | problem_of]
    elif $what == "fine" then quiet | .volumes = [volumes200[] | select(.protected)]
    elif $what == "trouble" then quiet | .daemon.degraded = true | .daemon.maintenance = true
        | .config = {ok: false, hash: "5f2b", loaded_ns: ago(7200), error: "/etc/snapferry/conf.d/50-gold.ini:7: unknown key mtach; the nearest known is match"}
        | .repositories = [repository + {up: false, since_ns: ago(5400), why: "/srv/backup is not mounted: No such file or directory", verified: {at_ns: ago(262000), damages: 2, read_ratio: 0.1}}, {name: "offsite-with-a-rather-long-name-of-its-own", path: "/mnt/offsite/backups/of/all/nodes/of/the/cluster/nas1"}]
        | .volumes = [unread("vg0/db7"), bad("vg0/new"; "not backed up yet"), fine("vg0/db1"; 36000)]
        | .jobs = [job, job + {job: "hourly", paused: true, last_result: {state: "PartiallyFailed", ended_ns: ago(2000)}}, (job + {job: "weekly", next: 0, idle_because: "it is not for this node"} | del(.last_result)),
            job + {job: "monthly", failed: {message: "no volume of it exists", hint: "", at_ns: ago(3000)}}]
        | .problems = [{severity: "error", text: "records cannot be written: No space left on device", hint: "make room in /var/lib/snapferry; nothing new starts until then"},
            {severity: "error", text: "repository \"main\" cannot be reached: /srv/backup is not mounted", hint: "mount it; backups into the repository wait until it can be used"},
            {severity: "warning", text: "maintenance mode: slots = 0, nothing is started", hint: "set slots in [daemon] to let work go on"},
            (unread("vg0/db7") | problem_of)]
    elif $what == "names" then quiet | .volumes = [hard_names[] | fine(.; 36000)]
    else error("no status \($what)") end;

def jobs($what):
    if $what == "names" then [hard_names[] | job + {job: .}]
    elif $what == "states" then [
        job + {last_backup: "nightly-20261121T020000-3f9a", last_state: "Completed"},
        job + {job: "hourly", on_calendar: "Mon..Fri *-*-* *:00", next: at(30), last: ago(4000), last_state: "Running",
            last_result: {state: "PartiallyFailed", ended_ns: ago(7000)}},
        job + {job: "paused", paused: true, next: 0, idle_because: "paused", last_result: {state: "Failed", ended_ns: ago(900000)}},
        (job + {job: "elsewhere", elsewhere: true, next: 0, last: 0, idle_because: "other nodes only (only-on-node)"} | del(.last_result)),
        (job + {job: "by-hand", on_calendar: "", next: 0, last: ago(90000), idle_because: "no on-calendar"}),
        job + {job: "monthly", due: true, next: ago(300), failed: {message: "cannot fork: Resource temporarily unavailable", hint: "see dmesg", at_ns: ago(240)}},
        job + {job: "lacking", missing: [{volume: "/srv/vm/b.img", reason: "/srv/vm/b.img does not exist"}, {volume: "/srv/vm/c.img", reason: "/srv/vm/c.img does not exist"}]}]
    else status($what).jobs end;

def numbers: [
    fine("tiny"; 3) + {size: 1}, fine("zero"; 59) + {size: 0}, fine("sector"; 61) + {size: 512}, fine("huge"; 3600) + {size: "@9223372036854775807@"},
    fine("negative"; 86400) + {size: -1}, fine("future"; -10800), fine("old"; 1700000000), fine("due"; 172800) + {next_ns: ago(7200)},
    fine("soon"; 172799) + {next_ns: at(30)}, fine("tebi"; 700) + {size: 1099511627775}, fine("never"; 0) + {last_success_ns: "@-5@"}];

def volumes($what):
    if $what == "names" then [hard_names[] | fine(.; 36000)] elif $what == "numbers" then numbers
    elif $what == "many" then volumes200 else status($what).volumes end;

def described:
    {kind: "backup", backup: (backups[0] + {operations: [states[0, 1, 9, 10] | (if .state == "Completed" then .result = moved else . end) | .details = {exposure: {mechanism: "native", seconds: 1.25}}], details: {counts: {done: 3}, bytes: {incremental: 42991616, total: (108 * GiB)}, origin: "timer"},
        description: "before the upgrade of the database, which everybody has been waiting for since the summer of last year",
        error: {class: "no-space", code: 18, stage: "move", message: "cannot write into the repository /srv/backup: No space left on device", hint: "make room in /srv/backup, or let old snapshots expire: snapferry snapshot expire"}})};

def explained: {volume: "vg0/db1", class: {name: "gold", driver: "lvm-thin", origin: "/etc/snapferry/conf.d/50-gold.ini:1"}, mechanism: "native", details: (fine("vg0/db1"; 36000) + {jobs: ["nightly"]}),
    policy: {"snapshots-to-retain": {value: "5", origin: "[volume \"vg0/db1\"] /etc/snapferry/conf.d/50-gold.ini:9", scope: "volume",
                overrides: [{value: "3", origin: "[storage-class \"gold\"] /etc/snapferry/conf.d/50-gold.ini:4", scope: "storage-class"}, {value: "0", origin: "default", scope: "default"}]},
             "move-data": {value: "yes", origin: "default", scope: "default", overrides: []},
             "prune": {value: "after", origin: "[storage-class \"gold\"] /etc/snapferry/conf.d/50-gold.ini:5", scope: "storage-class", overrides: [{value: "after", origin: "default", scope: "default"}]},
             "read-limit": {value: "20MiB", origin: "[storage-class \"gold\"] /etc/snapferry/conf.d/50-gold.ini:6", scope: "storage-class", overrides: [{value: "0", origin: "default", scope: "default"}]},
             "repository": {value: "main", origin: "[daemon] /etc/snapferry/snapferry.ini:9", scope: "daemon", overrides: []}},
    text: ["Storage class \"gold\" (/etc/snapferry/conf.d/50-gold.ini:1), driver lvm-thin.", "A backup reads it through: native, read-only.",
           "Its data is moved to repository \"main\"; 3 native snapshots are then retained.", "It is protected."],
    natives: [natives[0, 1, 2]]};

# Begun in the last hour of summer time, ended in the first one of winter: the clock on the wall says the same.
def end_of_summer: {kind: "operation", operation: (operation(1; "vg0/db1"; "Completed") + {created_ns: (1792888200 * 1000000000), started_ns: (1792888200 * 1000000000), ended_ns: (1792891800 * 1000000000)})};

{status: {answer: (status($what | if . == "states" or . == "numbers" or . == "described" then "one" else . end) | .volumes |= by_need)},
 volumes: {answer: {volumes: (volumes($what | if . == "states" or . == "described" then "one" else . end) | by_need)}},
 operations: {answer: {operations: (if $what == "states" then states elif $what == "names" then [hard_names | to_entries[] | operation(.key; .value; "Running") + {progress: moving(GiB; 0.5 * GiB; 1000000; 500)}] else [] end)}},
 backups: {answer: {backups: (if $what == "states" then backups else [] end)}},
 natives: {answer: {natives: (if $what == "states" then natives elif $what == "names" then [hard_names[] | natives[0] + {volume: .}] else [] end)}},
 jobs: {answer: {jobs: jobs($what | if . == "numbers" or . == "described" then "one" else . end)}},
 describe: {answer: (if $what == "one" then end_of_summer else described end)}, explain: {answer: explained}, ping: {answer: {version: "0.0.9", pid: 1, protocol: 1}}}
