#!/usr/bin/env bash
# example_test.sh BUILD SOURCE: installs a build, makes examples/own_model from the installed package and runs it.
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/log" || { cat "$work/log"; exit 1; }
cmake -S "$source/examples/own_model" -B "$work/own" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/own" >"$work/log" || { cat "$work/log"; exit 1; }

"$work/own/own_model" | tee "$work/plain"
recognised=$(sed -n 's/^\([0-9]*\)\.[0-9] % of new.*/\1/p' "$work/plain")
((recognised > 95)) || { echo "only $recognised % recognised"; exit 1; }
# Nor does the number of ranks.
"$work/prefix/bin/lockstep" launch --nproc-per-node 2 "$work/own/own_model" parallel.zero=1 >"$work/other"
cmp <(grep params_hash "$work/plain") <(grep params_hash "$work/other") || { echo "two ranks give other bits"; exit 1; }
# How it runs changes no bit of what it computes.
for how in run.threads=2 memory.recompute=full data.workers=3; do
  "$work/own/own_model" "$how" >"$work/other"
  cmp <(grep params_hash "$work/plain") <(grep params_hash "$work/other") || { echo "$how gives other bits"; exit 1; }
done
