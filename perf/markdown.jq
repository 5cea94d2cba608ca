# SPDX-License-Identifier: GPL-2.0-or-later
# The tables of docs/performance.md.
include "summary";
def cell($digits): if . == null then "" else rounded($digits) | tostring end;
def line: "| " + join(" | ") + " |";
def head: line, (map("---") | line);
def names: {"snapferry": "snapferry", "snapferry-scalar": "without SIMD", "snapferry-blake3": "snapferry BLAKE3",
            "snapferry-fixed": "snapferry FIXED-1M", "kopia": "Kopia", "kopia-blake3": "Kopia BLAKE3",
            "kopia-fixed": "Kopia FIXED-1M", "restic": "restic", "borg": "borg", "casync": "casync"};

def machine_markdown:
    .machine as $m
    | "\($m.cpu), \($m.cpus) CPUs, level \($m.level) (\($m.flags | join(" "))), governor \($m.governor), \($m.memoryMiB / 1024 | rounded(0)) GiB;",
      "Linux \($m.kernel), \($m.os), virtualization \($m.virtualization); the hypervisor \(if $m.freeMemoryTakenBack then "takes free memory back" else "leaves free memory" end);",
      "data on \($m.dataFileSystem)\(if $m.tmpfsHuge then " (huge=\($m.tmpfsHuge))" else "" end); \($m.compiler); \($m.snapferry), source \($m.source).",
      (if (.peers // {}) == {} then empty else "Peers: \(.peers | to_entries | map("\(.key) (\(.value))") | join(", "))." end),
      "Before the start others took \($m.others.busyPercent) % of the CPUs and the hypervisor \($m.others.stolenPercent) %.",
      (.notes[]? | "Note: \(.)");

def snapferry_beside_kopia:
    (["Work", "MiB/s", "core-s/GiB", "RSS MiB", "stored MiB", "Kopia MiB/s", "core-s/GiB", "RSS MiB", "stored MiB", "ratio", "ratio of core-s"] | head),
    (.work as $w | $w[] | select(.who == "snapferry") | . as $s
     | ([$w[] | select(.group == $s.group and .work == $s.work and .who == "kopia")][0]) as $k
     | def four: [(.mibPerSecond | cell(0)), (.coreSecondsPerGiB | cell(2)), (.rssMiB | cell(0)), (.storedMiB | cell(1))];
       [$s.work] + ($s | four) + (if $k then $k | four else ["", "", "", ""] end)
       + [($s.ratios.toKopia | cell(1)), ($s.ratios.coreToKopia | cell(1))] | line);

# MiB/s of everybody (core-s/GiB), one line for each work.
def everybody:
    .work as $w | (reduce $w[] as $x ([]; if index($x.who) then . else . + [$x.who] end)) as $who
    | (["Work, MiB/s (core-s/GiB)"] + ($who | map(names[.])) | head),
      (reduce $w[] as $x ([]; if any(.[]; . == [$x.group, $x.work]) then . else . + [[$x.group, $x.work]] end) | .[]
       | . as $row
       | [$row[1]] + ($who | map(. as $one | [$w[] | select(.group == $row[0] and .work == $row[1] and .who == $one)][0]
                                 | if . then "\(.mibPerSecond | cell(0)) (\(.coreSecondsPerGiB | cell(2)))" else "" end)) | line);

def to_limits:
    (["Work", "seconds", "of memory read", "of fio read", "x scalar", "x scalar, core-s"] | head),
    (.work[] | select(.who == "snapferry")
     | [.work, (.seconds | cell(2)), (.ratios.toMemoryRead | cell(2)), (.ratios.toFio | cell(2)), (.ratios.toScalar | cell(2)),
        (.ratios.coreToScalar | cell(2))] | line),
    "", (["Limit", "jobs", "MiB/s"] | head), (.limits[] | [.limit, (.jobs // "" | tostring), (.mibPerSecond | cell(0))] | line);

def kernels_markdown:
    if .kernels == null then empty else
    (["Kernel", "level", "GB/s of one core", "x scalar", "x OpenSSL"] | head),
    (.kernels.kernels[] | [.group, .kernel, (.gbPerSecond | cell(2)), (.ratioToScalar | cell(2)), (.ratioToOpenSSL | cell(2))] | line) end;

def primitives_markdown:
    if .bench == null then empty else
    (["Group", "what", "kernel", "GB/s of one core", "all cores"] | head),
    (.bench.rows[] | select(.kernel != "arithmetic") | [.group, .name + (if (.variant // "") == "" then "" else ", " + .variant end), .kernel,
                      (.coreGBPerSecond, .allGBPerSecond | cell(2))] | line), "" end;
def index_markdown:
    if (.index // []) == [] then empty else
    (["Index of contents", "blobs", "cold s", "warm s", "hits/s", "misses/s", "mapped MiB", "heap MiB"] | head),
    (.index[] | [(.contents, .blobs | tostring), (.coldSeconds, .warmSeconds | cell(3)), (.hitsPerSecond, .missesPerSecond | cell(0)),
                 (.residentFileKiB, .residentHeapKiB | . / 1024 | cell(1))] | line) end;
def stages_markdown:
    if .reader == [] then empty else
    (["Reading", "depth", "MB/s", "core-s/GB"] | head),
    (.reader[] | [.way, (.depth | tostring), (.mb_per_s | cell(0)), (.core_s_per_gb | cell(3))] | line), "" end,
    index_markdown;

def bench_markdown:
    "Run of \(.date[0:10]): data sets of \(.parameters.sizeMiB) MiB in \(.parameters.dir), medians of \(.parameters.runs) runs.",
    "", machine_markdown, "", snapferry_beside_kopia, "", everybody, "", to_limits, "", kernels_markdown, "", primitives_markdown, stages_markdown;

# Scaling: every table has what is varied first.
def scaling_part($part; $title):
    [.scaling[] | select(.part == $part)] as $rows
    | if $rows == [] then empty else
      ([$title, "work", "seconds", "core-s", "own MiB", "mapped MiB", "stored MiB"] | head),
      ($rows[] | [.label, .work, (.seconds | cell(2)), (.coreSeconds | cell(2)), (.ownMiB, .mappedMiB, .storedMiB | cell(1))] | line),
      "" end;
def scaling_markdown:
    "Run of \(.date[0:10]), medians of \(.parameters.runs) runs.", "", machine_markdown, "",
    scaling_part("volume"; "Volume"), scaling_part("repository"; "Contents in the repository"), scaling_part("workers"; "Workers"),
    index_markdown;
