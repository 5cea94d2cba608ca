# SPDX-License-Identifier: GPL-2.0-or-later
# Lines for the terminal, cells parted by "|".
include "summary";
def cell($digits): if . == null then "-" else rounded($digits) | tostring end;

def machine($peers):
    "machine: \(.cpu), \(.cpus) CPUs, level \(.level) (\(.flags | join(" "))), governor \(.governor)",
    "         \(.memoryMiB) MiB, Linux \(.kernel), \(.os), virtualization \(.virtualization), huge pages \(.transparentHugePages)",
    "         free memory is \(if .freeMemoryTakenBack then "" else "not " end)taken back by the hypervisor; data on \(.dataFileSystem)"
        + (if .tmpfsHuge then ", huge=\(.tmpfsHuge)" else "" end),
    "         \(.compiler); \(.snapferry) (\(.source)); peers: "
        + ($peers | to_entries | map("\(.key): \(.value)") | if length == 0 then "none" else join("; ") end),
    "others:  \(.others.busyPercent) % of the CPUs busy before the start, \(.others.stolenPercent) % stolen";

# x: snapferry's speed as a multiple of this one's.
def work_table:
    "work|who|seconds|MiB/s|core-s/GiB|RSS MiB|stored MiB|snapferry is",
    (.[] | [.work, .who, (.seconds | cell(3)), (.mibPerSecond | cell(0)), (.coreSecondsPerGiB | cell(3)), (.rssMiB | cell(0)),
            (.storedMiB | cell(1)), (if .ratios.toSnapferry then "\(1 / .ratios.toSnapferry | cell(1)) x" else "-" end)] | join("|"));

def part_table($part):
    if $part == "memory" then
        "how|threads|GB/s", (.rates[] | "\(.how)|\(.threads)|\(.gbPerSecond)"),
        "first touch, s/GiB||\(.firstTouchSecondsPerGiB)", "the same again||\(.touchAgainSecondsPerGiB)"
    elif $part == "kernels" then
        "kernel|level|GB/s|min|max|x scalar|x OpenSSL",
        (.kernels[] | "\(.group)|\(.kernel)|\(.gbPerSecond)|\(.min)|\(.max)|\(.ratioToScalar | cell(2))|\(.ratioToOpenSSL | cell(2))")
    elif $part == "bench" then
        "group|what|kernel|GB/s, one core|all cores",
        (.rows[] | select(.kernel != "arithmetic") | "\(.group)|\(.name)\(if (.variant // "") == "" then "" else ", \(.variant)" end)|\(.kernel)|\(.coreGBPerSecond | cell(3))|\(.allGBPerSecond | cell(3))")
    elif $part == "reader" then
        "way|depth|MB/s|core-s/GB", (.[] | "\(.way)|\(.depth)|\(.mb_per_s)|\(.core_s_per_gb)")
    else
        "contents|blobs|cold s|warm s|hits/s|misses/s|mapped KiB|heap KiB",
        (.[] | "\(.contents)|\(.blobs)|\(.coldSeconds)|\(.warmSeconds)|\(.hitsPerSecond)|\(.missesPerSecond)|\(.residentFileKiB)|\(.residentHeapKiB)")
    end;

def limits_table:
    "limit|jobs|MiB/s", (.limits[] | "\(.limit)|\(.jobs // "-")|\(.mibPerSecond | cell(0))");
def to_limits_table:
    "snapferry, work||of memory read|of fio|x scalar|x scalar, core-s|x Kopia",
    (.work[] | select(.who == "snapferry")
     | "\(.work)||\(.ratios.toMemoryRead | cell(2))|\(.ratios.toFio | cell(2))|\(.ratios.toScalar | cell(1))|\(.ratios.coreToScalar | cell(1))|\(.ratios.toKopia | cell(1))");

def scaling_table($title):
    "\($title)|work|seconds|core-s|own MiB|mapped MiB|stored MiB",
    (.[] | "\(.label)|\(.work)|\(.seconds | cell(3))|\(.coreSeconds | cell(3))|\(.ownMiB | cell(1))|\(.mappedMiB | cell(1))|\(.storedMiB | cell(1))");
