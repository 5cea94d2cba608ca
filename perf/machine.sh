# SPDX-License-Identifier: GPL-2.0-or-later
# What a benchmark ran on. machine_json prints one JSON object; it needs $W (where the data lies), $BUILD and lib.sh.

has_flags() {
    local flags f
    flags=" $(grep -m1 '^flags' /proc/cpuinfo | cut -d: -f2) "
    for f in "$@"; do
        case $flags in *" $f "*) ;; *) return 1 ;; esac
    done
}

# The best level that kernels of this program can use (as chunker/kernel.h defines them).
flags_level() {
    if has_flags avx512f avx512bw avx512vl avx512dq avx512vbmi; then
        echo avx512
    elif has_flags avx2 bmi2; then
        echo avx2
    else
        echo scalar
    fi
}

# Flags that matter to this program, those that are there.
flags_here() {
    local f
    for f in avx2 bmi2 avx512f avx512bw avx512vl avx512dq avx512vbmi sha_ni aes vaes pclmulqdq vpclmulqdq; do
        if has_flags $f; then printf '%s ' $f; fi
    done
}

governor() { cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor 2>/dev/null || echo none; }

# Whether the hypervisor takes back memory that is free: a balloon device (virtio id 5) with page reporting (bit 5).
free_memory_taken_back() {
    local d
    for d in /sys/bus/virtio/devices/*; do
        [ "$(cat "$d/device" 2>/dev/null)" = 0x0005 ] || continue
        if [ "$(cut -c6 "$d/features")" = 1 ]; then echo true; return; fi
    done
    echo false
}

# Shares of all CPUs that others took in a second before the benchmark: busy here, stolen by the hypervisor; percent.
others() {
    local a b
    a=$(head -n1 /proc/stat)
    sleep 1
    b=$(head -n1 /proc/stat)
    awk '{ split($0, x); if (NR == 1) for (i = 2; i < 10; i++) a[i] = x[i]
           else { for (i = 2; i < 10; i++) { d[i] = x[i] - a[i]; sum += d[i] }
                  if (!sum) sum = 1
                  printf "{\"busyPercent\":%.1f,\"stolenPercent\":%.1f}",
                      100 * (sum - d[5] - d[6] - d[9]) / sum, 100 * d[9] / sum } }' \
        <<<"$a"$'\n'"$b"
}

version_of() { "$@" 2>&1 | head -n1 || true; }

machine_json() {
    local type opts huge
    type=$(stat -f -c %T "$W") opts=$(findmnt -n -o OPTIONS -T "$W" 2>/dev/null)
    huge=$(grep -oE 'huge=[a-z_]+' <<<"$opts" || true)
    jq -n --arg cpu "$(grep -m1 'model name' /proc/cpuinfo | sed 's/.*: *//')" --arg level "$(flags_level)" \
        --arg flags "$(flags_here)" --argjson cpus "$(nproc)" --arg governor "$(governor)" \
        --argjson mib "$(($(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo) / 1024))" \
        --arg kernel "$(uname -r)" --arg fs "$type" --arg huge "${huge#huge=}" \
        --arg thp "$(sed 's/.*\[\(.*\)\].*/\1/' /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null)" \
        --arg virt "$(systemd-detect-virt --vm 2>/dev/null || true)" --argjson taken "$(free_memory_taken_back)" \
        --arg compiler "$(version_of "${CC:-gcc}" --version)" --arg os "$(. /etc/os-release && echo "$PRETTY_NAME")" \
        --arg source "$(git describe --always --dirty 2>/dev/null || echo unknown)" \
        --arg sf "$(version_of "$SNAPFERRY" --version)" --argjson others "$(others)" \
        '{cpu: $cpu, level: $level, flags: ($flags | split(" ") | map(select(. != ""))), cpus: $cpus,
          governor: $governor, memoryMiB: $mib, kernel: $kernel, os: $os, virtualization: $virt,
          freeMemoryTakenBack: $taken, transparentHugePages: $thp,
          dataFileSystem: $fs,
          tmpfsHuge: (if $fs == "tmpfs" then (if $huge == "" then "never" else $huge end) else null end),
          compiler: $compiler, snapferry: $sf, source: $source, others: $others}'
}
