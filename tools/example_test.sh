#!/usr/bin/env bash
# example_test.sh BUILD SOURCE: installs a build, makes examples/own_model from the installed package and runs it.
# (What the program can do is tested in the tree: training/own_model_test.cc.)
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/log" || { cat "$work/log"; exit 1; }
cmake -S "$source/examples/own_model" -B "$work/own" -Dlockstep_DIR="$("$work/prefix/bin/lockstep" --cmake-dir)" >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/own" >"$work/log" || { cat "$work/log"; exit 1; }

cd "$work"
own/own_model | tee plain
recognised=$(sed -n 's/^\([0-9]*\)\.[0-9] % of new.*/\1/p' plain)
((recognised > 95)) || { echo "only $recognised % recognised"; exit 1; }
same() {  # same WORDS...: how it runs changes no bit of what it computes
  "$@" --run other --resume never >other.txt
  cmp <(grep params_hash plain) <(grep params_hash other.txt) || { echo "$* gives other bits"; exit 1; }
}
same own/own_model --nproc 2 parallel.zero=1
same prefix/bin/lockstep launch --nproc-per-node 2 own/own_model
for how in run.threads=2 memory.recompute=full data.workers=3; do same own/own_model "$how"; done
