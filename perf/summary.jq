# SPDX-License-Identifier: GPL-2.0-or-later
# From single runs to medians and ratios. Input of `rows`: the records of work, in the order in which they were made.
def median: sort | if length == 0 then null
    elif length % 2 == 1 then .[(length - 1) / 2] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
def rounded($digits): if . == null then null else pow(10; $digits) as $f | . * $f | round / $f end;
def by($keys): reduce .[] as $x ({}; .[$x | [.[$keys[]]] | tojson] += [$x]) | [.[]];

# Limits that were measured beside the work, in MiB/s. $memory: what bench_memory printed, or null.
def limits($memory):
    [.[] | select(.limit)] | by(["limit", "jobs"])
    | map(.[0] + {mibPerSecond: (map(.mibPerSecond) | median | rounded(1)), runs: length}
          + if .[0].coreSecondsPerGiB then {coreSecondsPerGiB: (map(.coreSecondsPerGiB) | median | rounded(3))} else {} end)
    + [$memory // {} | .rates[]? | {limit: "memory \(.how)", jobs: .threads, mibPerSecond: (.gbPerSecond * 1e9 / 1048576 | rounded(0))}];
def limit($name): map(select(.limit == $name)) | max_by(.mibPerSecond) | .mibPerSecond;

def rows($limits):
    [[.[] | select(.work)] | by(["group", "work"])[] | by(["who"])[]]
    | map(.[0] as $first
          | {group: $first.group, work: $first.work, who: $first.who, step: $first.step, mib: $first.mib, runs: length,
             seconds: (map(.wall) | median | rounded(4)), coreSeconds: (map(.user + .sys) | median | rounded(3)),
             rssMiB: (map(.rssKiB) | median / 1024 | rounded(1)),
             storedMiB: (if $first.step == "restore" or $first.step == "verify" then null
                         else map(.storedBytes) | median / 1048576 | rounded(2) end),
             single: map({wall, user, sys, rssKiB, storedBytes})}
          | .mibPerSecond = (.mib / .seconds | rounded(1))
          | .coreSecondsPerGiB = (.coreSeconds * 1024 / .mib | rounded(3)))
    | . as $all
    | map(. as $row
          | ([$all[] | select(.group == $row.group and .work == $row.work)]) as $same
          | def of($who): [$same[] | select(.who == $who)][0];
            def faster($who): of($who) | if . == null then null else .seconds / $row.seconds | rounded(2) end;
            def cheaper($who): of($who) | if . == null or $row.coreSeconds == 0 then null
                               else .coreSeconds / $row.coreSeconds | rounded(2) end;
            .ratios = {toKopia: faster("kopia"), coreToKopia: cheaper("kopia"), toSnapferry: faster("snapferry"),
                       toScalar: faster("snapferry-scalar"), coreToScalar: cheaper("snapferry-scalar")}
            + if ($row.group | startswith("sparse")) then {toFio: null, toMemoryRead: null}
              else {toFio: (($limits | limit("fio read")) as $l | if $l then $row.mibPerSecond / $l | rounded(3) else null end),
                    toMemoryRead: (($limits | limit("memory read")) as $l | if $l then $row.mibPerSecond / $l | rounded(3) else null end)} end);

# Scaling: what is varied (x, named by label) and the work done with it.
def scaling_rows:
    [.[] | select(.part)] | by(["part", "x", "work"])
    | map(.[0] as $first
          | {part: $first.part, label: $first.label, x: $first.x, work: $first.work, runs: length,
             seconds: (map(.wall) | median | rounded(3)), coreSeconds: (map(.user + .sys) | median | rounded(3)),
             ownMiB: (map(.ownBytes) | median / 1048576 | rounded(1)), mappedMiB: (map(.mappedBytes) | median / 1048576 | rounded(1)),
             storedMiB: (map(.storedBytes) | median / 1048576 | rounded(2)),
             single: map({wall, user, sys, ownBytes, mappedBytes, storedBytes})});
