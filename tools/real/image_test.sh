#!/usr/bin/env bash
# image_test.sh BUILD: the image of `lockstep image`, built and run by buildah where it is, on a clean Debian in place of the one
# that a registry has. Its layers are made by hand too: every instruction of the Dockerfile is carried out in a root file system,
# and the command runs there as the image would. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=tools/real/roots.sh
source "$here/roots.sh"
row_limit=900

write_it() {
  "$program" image --out "$work/image" >says && says "docker build" || return 1
  grep -q '^FROM debian:1[23]\.[0-9]*-slim$' "$work/image/Dockerfile" && grep -q '^USER 1000:1000$' "$work/image/Dockerfile"
}

# The base of FROM, then RUN and ADD; USER, WORKDIR, ENTRYPOINT and CMD are kept for the end.
assemble() {
  local root=$work/layers line rest
  cp -a "$(clean_root bookworm)" "$root" || return 1
  cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null
  while IFS= read -r line; do
    rest=${line#* }
    case $line in
      RUN\ *) chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -c "$rest" >>"$work/run.log" 2>&1 || { tail "$work/run.log"; return 1; } ;;
      ADD\ *) tar -xf "$work/image/${rest%% *}" -C "$root${rest##* }" || return 1 ;;
      FROM\ * | LABEL\ * | USER\ * | WORKDIR\ * | ENTRYPOINT\ * | CMD\ * | ENV\ * | '#'* | '') ;;
      *) echo "an instruction that nobody expected: $line" && return 1 ;;
    esac
  done <"$work/image/Dockerfile"
  du -sm "$root" | cut -f1
}

run_it() {
  local words
  words=$(sed -n 's/^ENTRYPOINT \[\(.*\)\]$/\1/p' "$work/image/Dockerfile" | tr -d '",')
  # shellcheck disable=SC2086  # several words
  in_root "$work/layers" sh -c 'cd /work && exec "$@"' - $words lockstep train run.steps=3 model.layers=1 model.hidden=32 model.heads=2 --json >says 2>&1 ||
    { cat says && return 1; }
  says '"params_hash"' || return 1
  in_root "$work/layers" sh -c 'id -u; test -w /work && ! test -w /usr/local/bin' >says && says 1000
}

# An engine with images of its own, which asks no registry: the base is there under its name.
by_an_engine() {
  local base container
  export CONTAINERS_STORAGE_CONF=$work/storage.conf BUILDAH_ISOLATION=chroot
  printf '[storage]\ndriver = "vfs"\ngraphroot = "%s"\nrunroot = "%s"\n' "$work/images" "$work/containers" >"$CONTAINERS_STORAGE_CONF"
  base=$(sed -n 's/^FROM //p' "$work/image/Dockerfile")
  container=$(buildah from scratch) && buildah add --quiet "$container" "$(clean_root bookworm)" / >/dev/null &&
    buildah commit --quiet --rm "$container" "docker.io/library/$base" >/dev/null || return 1
  mkdir bin && ln -s "$(command -v buildah)" bin/buildah
  PATH=$PWD/bin:/usr/bin:/bin ends 0 "$program" image --out built --build --tag lockstep-test && says "COMMIT lockstep-test" || return 1
  mkdir -m 777 out && container=$(buildah from lockstep-test) || return 1
  ends 0 buildah run --volume "$PWD/out:/work" "$container" -- lockstep train run.steps=3 model.layers=1 model.hidden=32 model.heads=2 --json &&
    says '"params_hash"' && [[ $(stat -c %u out/runs) == 1000 ]]
}

refused() {
  ends 2 "$program" image --for tpu-v5e --out x && says LS0753 || return 1
  ends 2 "$program" image --for nonsense --out x && says LS0753 && [[ ! -e x ]]
}

[[ $(id -u) == 0 ]] || skip "chroot needs root"
clean_root bookworm >/dev/null
row "a Dockerfile and what it adds" write_it
row "its layers, made by hand" assemble
row "runs as its user, under tini" run_it
if command -v buildah >/dev/null; then
  row "built and run by an engine (buildah)" by_an_engine
else
  echo "without buildah: the row of an engine is left out"
fi
row "devices that nothing runs on are refused" refused
finish
