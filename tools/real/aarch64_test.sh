#!/usr/bin/env bash
# aarch64_test.sh BUILD: what `./dev wheel --for aarch64` has built, under qemu-user: its wheel, the first recipe, and the kernels'
# tests where they were built. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need qemu-aarch64 qemu-user
need aarch64-linux-gnu-objdump binutils-aarch64-linux-gnu
need patchelf patchelf
build=$here/../../build-aarch64
[[ -x $build/lockstep ]] || skip "there is no build-aarch64: ./dev wheel --for aarch64 makes it (half an hour of a processor)"
row_limit=1800
torch=$(sed -n 's/^LOCKSTEP_TORCH:[A-Z]*=//p' "$build/CMakeCache.txt")
small=(model.layers=1 model.hidden=32 model.heads=2)

# arm PROGRAM WORD...
arm() { qemu-aarch64 -L /usr/aarch64-linux-gnu "$@"; }

make_wheels() {
  local out
  for out in one two; do
    python3 -B "$here/../wheel.py" --build "$build" --out "$work/$out" || return 1
  done
  cmp "$work"/one/*.whl "$work"/two/*.whl && [[ $(ls "$work/one") == lockstep_trainer-*-py3-none-manylinux_2_28_aarch64.whl ]]
}

# As pip would have put it there, beside LibTorch.
unpack() {
  mkdir "$work/site" && python3 -m zipfile -e "$work"/one/*.whl "$work/site" && chmod +x "$work/site/lockstep/bin/lockstep" || return 1
  ln -s "$torch" "$work/site/torch" && ln -s "$(dirname "$torch")/nvidia" "$work/site/nvidia" || return 1
  ends 0 arm "$work/site/lockstep/bin/lockstep" --version && says "lockstep "
}

# The losses of another kind of processor are another rounding of the same numbers.
trains() {
  local of_arm of_x86
  ends 0 arm "$work/site/lockstep/bin/lockstep" train "$recipe" "${small[@]}" run.steps=3 run.name=arm --json && says '"params_hash"' || return 1
  of_arm=$(grep -o '"loss": *[0-9.]*' says | tail -n 1)
  ends 0 "$program" train "$recipe" "${small[@]}" run.steps=3 run.name=x86 --json || return 1
  of_x86=$(grep -o '"loss": *[0-9.]*' says | tail -n 1)
  echo "aarch64 $of_arm, here $of_x86"
  python3 -c 'import sys; a, b = (float(one.split(":")[1]) for one in sys.argv[1:]); sys.exit(not abs(a - b) < 1e-4)' "$of_arm" "$of_x86"
}

# Told to stop in the middle, it saves, goes on, and comes to the bits of a run that was left alone.
resumes() {
  local whole pid code=0 words=(train "$recipe" "${small[@]}" run.steps=60 log.every=1 --json)
  ends 0 arm "$work/site/lockstep/bin/lockstep" "${words[@]}" run.name=whole && whole=$(hash_of says) || return 1
  (exec qemu-aarch64 -L /usr/aarch64-linux-gnu "$work/site/lockstep/bin/lockstep" "${words[@]}" run.name=cut) >first 2>&1 &
  pid=$!
  until_true 300 grep -q '"step": *10,' runs/cut/metrics.jsonl && kill -TERM "$pid"
  wait "$pid" || code=$?
  [[ $code == 75 ]] || { echo "ended with $code, not 75" && cat first && return 1; }
  ends 0 arm "$work/site/lockstep/bin/lockstep" "${words[@]}" run.name=cut && [[ -n $whole && $(hash_of says) == "$whole" ]]
}

unit_tests() { ends 0 arm "$build/src/lockstep/$1" --gtest_brief=1 && says PASSED; }

row "a wheel, twice the same bytes, for glibc 2.28" make_wheels
row "unpacked, it starts" unpack
row "the first recipe trains, as here" trains
row "stopped and resumed: the same bits" resumes
for name in base_test kernels_test model_test; do
  if [[ -x $build/src/lockstep/$name ]]; then row "$name" unit_tests "$name"; fi
done
finish
