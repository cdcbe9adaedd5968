# shellcheck shell=bash
# Root file systems without anything of ours: a clean Debian for chroot.
#
#     clean_root bookworm        prints a folder, made by debootstrap once and kept in LOCKSTEP_TEST_ROOTS if that is set
#     in_root ROOT COMMAND...    as an ordinary user there, with /proc and /dev, and no network; before that, the shell runs
#                                $before with $root, in the same namespaces: more mounts, or fewer
#     root_has ROOT PACKAGE...   installs Debian packages there, once

clean_root() {
  local suite=$1 root=${LOCKSTEP_TEST_ROOTS:-$work/roots}/$1
  if [[ ! -e $root/.complete ]]; then
    [[ $(id -u) == 0 ]] || skip "chroot needs root"
    need debootstrap debootstrap
    mkdir -p "$(dirname "$root")" && rm -rf "$root"  # what an interrupted one has left
    debootstrap --variant=minbase "$suite" "$root" >"$work/debootstrap.log" 2>&1 ||
      skip "debootstrap cannot make $suite here: $(tail -n 1 "$work/debootstrap.log")"
    touch "$root/.complete"
  fi
  echo "$root"
}

root_has() {
  local root=$1
  shift
  chroot "$root" dpkg-query -W "$@" >/dev/null 2>&1 && return 0
  cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null
  chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -c \
    'apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"' - "$@" >"$work/root_has.log" 2>&1 ||
    skip "apt cannot install $* in $root: $(tail -n 1 "$work/root_has.log")"
}

in_root() {
  local root=$1
  shift
  # Namespaces of its own: mounts go when the command ends, and only loopback is there.
  # shellcheck disable=SC2016  # the inner shell expands them
  unshare --mount --net --pid --fork --kill-child bash -c '
    root=$1; shift
    mount -t proc proc "$root/proc" && mount -t tmpfs tmpfs "$root/dev" && mkdir -p "$root/dev/shm" && mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" || exit 125
    for node in null:3 zero:5 random:8 urandom:9; do mknod -m 666 "$root/dev/${node%:*}" c 1 "${node#*:}"; done
    ip link set lo up 2>/dev/null
    eval "${before:-}" || exit 125
    exec chroot --userspec=1000:1000 "$root" /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/home/guest "$@"' \
    in_root "$root" "$@"
}
