# SPDX-License-Identifier: GPL-2.0-or-later
# The JSON file of one run of run.sh.
include "summary";
($records | limits($memory[0])) as $limits
| {schema: 1, kind: "bench", date: $date, seconds: $seconds,
   parameters: {sizeMiB: $size, runs: $runs, dir: $dir, quick: ($quick != "")},
   machine: $machine[0], peers: $peers[0], notes: ($notes | split("\n") | map(select(. != ""))),
   memory: $memory[0], limits: $limits, kernels: $kernels[0], bench: $bench[0], reader: ($reader[0] // []), index: ($index[0] // []),
   work: ($records | rows($limits))}
