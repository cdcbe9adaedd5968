#!/usr/bin/env bash
# bundle_test.sh BUILD: `lockstep bundle`, unpacked elsewhere and in clean root file systems, where it trains with this
# build's bits. LOCKSTEP_TEST_SUITES="bookworm trixie" chooses them; Debian 11 has glibc 2.31. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=tools/real/roots.sh
source "$here/roots.sh"
row_limit=600
bundle=$work/lockstep.tar.zst
small=(run.steps=3 model.layers=1 model.hidden=32 model.heads=2 log.eval_every=0)

make_it() {
  "$program" bundle --out "$bundle" --json >says && says '"glibc"' || return 1
  "$program" bundle --out "$work/again.tar.zst" >/dev/null && cmp "$bundle" "$work/again.tar.zst" && rm "$work/again.tar.zst" || return 1
  grep -o '"glibc":"[0-9.]*"' says
  says '"glibc":"2.28"'  # Red Hat 8's; LibTorch's own, and none of our files wants more
}

# Nothing of this machine is named in what is run.
moved() {
  local folder="$work/a folder/elsewhere" tree
  mkdir -p "$folder" && tar -xf "$bundle" -C "$folder" || return 1
  "$program" train "${small[@]}" run.name=tree --json >tree.txt 2>/dev/null || return 1
  tree=$(hash_of tree.txt)
  env -i PATH=/usr/bin:/bin HOME="$work" LD_DEBUG=libs "$folder"/lockstep-*/bin/lockstep train "${small[@]}" run.name=moved --json >says 2>libs ||
    { tail -n 20 libs && return 1; }
  [[ -n $tree && $(hash_of says) == "$tree" ]] || { cat says && return 1; }
  if grep -E "calling init: ($(dirname "$program")|.*/\.deps/)" libs; then return 1; fi
}

# in_suite SUITE: in a clean root, as an ordinary user, on one rank and two.
in_suite() {
  local root folder tree
  root=$(clean_root "$1") || { echo "$root"; return 77; }
  folder=$root/home/guest
  rm -rf "$folder" && mkdir -p "$folder" && tar -xf "$bundle" -C "$folder" && chown -R 1000:1000 "$folder" || return 1
  "$program" train "${small[@]}" run.name=tree --json >tree.txt 2>/dev/null || return 1
  tree=$(hash_of tree.txt)
  for ranks in 1 2; do
    in_root "$root" sh -c "cd && exec lockstep-*/bin/lockstep train ${small[*]} run.name=r$ranks --nproc $ranks --json" >says 2>&1 || { cat says && return 1; }
    [[ -n $tree && $(hash_of says) == "$tree" ]] || { cat says && return 1; }
  done
  in_root "$root" sh -c "cd && exec lockstep-*/bin/lockstep doctor" | tail -n 3
  rm -rf "$folder"
}

refused() {
  ends 2 "$program" bundle --out bundle.zip && says LS0750 || return 1
  [[ -e $(dirname "$program")/src/lockstep/liblockstep_cuda.so ]] || { ends 2 "$program" bundle --cuda --out c.tar.zst && says LS0752; } || return 1
  ends 1 "$program" bundle --out nowhere/b.tar && says LS0802 && [[ ! -e c.tar.zst ]]
}

row "a bundle, twice the same bytes" make_it
row "unpacked elsewhere, it uses nothing of the build and has its bits" moved
for suite in ${LOCKSTEP_TEST_SUITES:-bookworm bullseye}; do
  (trap - EXIT; clean_root "$suite" >/dev/null) || continue  # it has said why
  row "in a clean $suite: an ordinary user, no network, one rank and two" in_suite "$suite"
done
row "what cannot be is refused" refused
finish
