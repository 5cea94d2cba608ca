# SPDX-License-Identifier: GPL-2.0-or-later
# How each program is driven: everyone gets the same source file, $W/v/volume.img, an empty repository, $W/repo, and no
# daemon. NAME is snapferry, snapferry-scalar (kernels without SIMD), -blake3, -fixed (other format choices), kopia,
# kopia-blake3, kopia-fixed, restic, borg, casync.
#   begin NAME COMPRESSION     makes an empty repository; COMPRESSION is yes or no
#   command_for NAME STEP      sets CMD; fails if NAME has no such thing. Steps: backup, again (all data read once
#                              more), scan (again, and every chunk boundary searched), restore (to $W/out; of
#                              peers not when SPARSE=yes: they would write the holes, or take minutes), verify
SCALAR=(SNAPFERRY_KERNEL_BUZHASH=scalar SNAPFERRY_KERNEL_RABINKARP=scalar SNAPFERRY_KERNEL_BLAKE2B=scalar
        SNAPFERRY_KERNEL_BLAKE2S=scalar SNAPFERRY_KERNEL_BLAKE3=scalar SNAPFERRY_KERNEL_AESGCM=scalar
        SNAPFERRY_KERNEL_SHA256=scalar SNAPFERRY_KERNEL_MD5=scalar)

export HOME=$W XDG_CACHE_HOME=$W/cache KOPIA_CHECK_FOR_UPDATES=false RESTIC_PASSWORD=benchmark \
    BORG_PASSPHRASE=benchmark \
    BORG_BASE_DIR=$W/cache/borg BORG_RELOCATED_REPO_ACCESS_IS_OK=yes

installed() {
    case $1 in
    snapferry*) true ;;
    kopia*) [ -n "${KOPIA:-}" ] ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

# Peers to compare with: PEERS="kopia restic borg casync" or none; those that are missing are named.
find_peers() {
    local p
    HAVE=()
    [ "${PEERS:-kopia restic borg casync}" = none ] && return
    if [ -n "${KOPIA:-}" ]; then
        KOPIA=$(realpath "$KOPIA")
        [ -f "$KOPIA" ] && [ -x "$KOPIA" ] || die "KOPIA=$KOPIA is no program"
    fi
    for p in ${PEERS:-kopia restic borg casync}; do
        if installed "$p"; then
            HAVE+=("$p")
        elif [ "$p" = kopia ]; then
            note "without kopia: give KOPIA=/path/to/kopia"
        else
            note "without $p: it is not installed"
        fi
    done
}
have() { case " ${HAVE[*]} " in *" ${1%%-*} "*) true ;; *) false ;; esac; }

peers_json() {
    local p v
    for p in "${HAVE[@]}"; do
        case $p in
        kopia) v=$("$KOPIA" --version 2>/dev/null | head -n1) ;;
        restic) v=$(restic version | head -n1) ;;
        *) v=$("$p" --version | head -n1) ;;
        esac
        jq -n --arg p "$p" --arg v "$v" '{($p): $v}'
    done | jq -s 'add // {}'
}

k() { "$KOPIA" --config-file "$W/kopia.config" --password benchmark --no-progress --log-dir "$W/log" "$@"; }
sf() { "$SNAPFERRY" -r "$W/repo" --password-file "$W/pw" "$@"; }

begin() {
    local own=()
    COMPRESS=$2
    cd "$W"
    rm -rf "$W/repo" "$W/cache" "$W/out" "$W"/kopia.config*
    mkdir -p "$W/cache"
    case $1 in
    *-blake3) own=(--block-hash BLAKE3-256-128) ;;
    snapferry-fixed) own=(--splitter FIXED-1M) ;;
    kopia-fixed) own=(--object-splitter FIXED-1M) ;;
    esac
    case $1 in
    snapferry*) sf repo create --quiet "${own[@]}" ;;
    kopia*)
        k repository create filesystem --path "$W/repo" --cache-directory "$W/cache/kopia" "${own[@]}"
        k policy set --global --compression="$([ "$2" = yes ] && echo zstd-fastest || echo none)"
        ;;
    restic) restic -r "$W/repo" init -q --repository-version 2 ;;
    borg) borg init -e repokey-blake2 "$W/repo" ;;
    casync) mkdir "$W/repo" ;;
    esac >"$W/begin" 2>&1 || { cat "$W/begin" >&2; die "$1 makes no repository"; }
}

command_for() {
    CMD=()
    "command_${1%%-*}" "$2" || return
    if [ "$1" = snapferry-scalar ]; then CMD=(env "${SCALAR[@]}" "${CMD[@]}"); fi
}

command_snapferry() {
    CMD=("$SNAPFERRY" -r "$W/repo" --password-file "$W/pw" --quiet)
    local backup=(backup "$W/v/volume.img" --as b@b:/b)
    [ "$COMPRESS" = no ] || backup+=(--compression zstd-fastest)
    case $1 in
    backup | again) CMD+=("${backup[@]}") ;;
    scan) CMD+=("${backup[@]}" --full-scan) ;;
    restore) CMD+=(restore latest "$W/out/volume.img" --as b@b:/b) ;;
    verify) CMD+=(verify) ;;
    *) return 1 ;;
    esac
}

command_kopia() {
    CMD=("$KOPIA" --config-file "$W/kopia.config" --password benchmark --no-progress --log-dir "$W/log")
    case $1 in
    backup) CMD+=(snapshot create "$W/v" --no-auto-maintenance) ;;
    again) CMD+=(snapshot create "$W/v" --no-auto-maintenance --force-hash=100) ;;
    restore)
        [ "${SPARSE:-no}" = no ] || return 1
        CMD+=(snapshot restore "$(k snapshot list --json 2>/dev/null | jq -r '.[-1].id')" "$W/out")
        ;;
    verify) CMD+=(snapshot verify --verify-files-percent=100) ;;
    *) return 1 ;;
    esac
}

command_restic() {
    CMD=(restic -r "$W/repo" --no-cache -q)
    local backup=(backup "$W/v" --compression "$([ "$COMPRESS" = yes ] && echo auto || echo off)")
    case $1 in
    backup) CMD+=("${backup[@]}") ;;
    again) CMD+=("${backup[@]}" --force) ;;
    restore) CMD+=(restore latest --target "$W/out") ;;
    verify) CMD+=(check --read-data) ;;
    *) return 1 ;;
    esac
}

# A borg archive needs a new name each time; its own chunker, or for sparse files the one that knows holes.
command_borg() {
    local chunker=()
    [ "${SPARSE:-no}" = no ] || chunker=(--sparse --chunker-params=fixed,4194304)
    case $1 in
    backup | again)
        CMD=(borg create --files-cache=disabled --compression "$([ "$COMPRESS" = yes ] && echo zstd,1 || echo none)"
             "${chunker[@]}" "$W/repo::$EPOCHREALTIME" "$W/v")
        ;;
    restore)
        [ "${SPARSE:-no}" = no ] || return 1
        CMD=(env -C "$W/out" borg extract "$W/repo::$(borg list --last 1 --format '{archive}' "$W/repo")")
        ;;
    verify) CMD=(borg check --verify-data "$W/repo") ;;
    *) return 1 ;;
    esac
}

# Always compresses, never encrypts.
command_casync() {
    case $1 in
    backup | again) CMD=(casync make --store="$W/repo/store.castr" --compression=zstd "$W/repo/v.caibx"
        "$W/v/volume.img") ;;
    restore) CMD=(casync extract --store="$W/repo/store.castr" --seed-output=no "$W/repo/v.caibx"
        "$W/out/volume.img") ;;
    *) return 1 ;;
    esac
}
