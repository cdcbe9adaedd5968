#!/usr/bin/env bash
# fuzz.sh [SECONDS] [TARGET]: libFuzzer on the readers of files from outside, a minute for each unless told otherwise.
#
# Needs clang with its sanitizers' libraries. What it finds is left in build-fuzz/TARGET/, with the words to repeat it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
seconds=${1:-60} only=${2:-}
out=$root/build-fuzz
command -v clang++ >/dev/null || { echo "clang++ is not here: install clang to fuzz" >&2 && exit 2; }
mkdir -p "$out"

sources=()
for folder in base checkpoint; do
  for file in "$root/src/lockstep/$folder"/*.cc; do
    case $file in *_test.cc | *_bench.cc | *_torch.cc | */save_*.cc | */default_recipe.cc | */recipe.cc | */schema*.cc) continue ;; esac
    sources+=("$file")
  done
done
sources+=("$root/src/lockstep/device/tensor.cc")

flags=(-std=c++20 -O1 -g "-fsanitize=fuzzer-no-link,address,undefined" -fno-sanitize-recover=undefined
  -Wno-everything "-I$root/src")
objects=()
rm -f "$out/failed"
for file in "${sources[@]}"; do
  object=$out/$(basename "$(dirname "$file")")-$(basename "$file" .cc).o
  objects+=("$object")
  [[ $object -nt $file ]] && continue
  while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n; done
  { clang++ "${flags[@]}" -c "$file" -o "$object" || touch "$out/failed"; } &
done
wait
[[ ! -e $out/failed ]]

for target in safetensors manifest pytorch; do
  [[ -z $only || $only == "$target" ]] || continue
  mkdir -p "$out/$target"
  clang++ "${flags[@]}" -fsanitize=fuzzer "$root/tools/fuzz/${target}_fuzz.cc" "${objects[@]}" -lpthread -o "$out/$target-fuzz"
  echo "+ $target for $seconds s"
  (cd "$out/$target" && "$out/$target-fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -max_len=8192 \
    -dict="$root/tools/fuzz/words.dict" -print_final_stats=1 . "$root/tools/fuzz/seeds/$target" 2>&1 | tail -n 12)
done
