# shellcheck shell=bash disable=SC2034,SC2154  # bootstrap.sh reads and sets the same variables
# A build for another processor than this one's: ./dev wheel --for aarch64.
#
# Sourced by ./dev behind bootstrap.sh. Debian's cross compiler is installed; the libraries of the other architecture are only
# unpacked, into .deps/MACHINE/sysroot, so that this system stays as it is. LibTorch and Arrow of that machine are PyPI's wheels,
# in .deps/MACHINE/site. With qemu-user here, what was built can be run: qemu-MACHINE -L /usr/MACHINE-linux-gnu PROGRAM.
: "${root:?}" "${deps:?}"

# What the build takes from Debian's libraries: headers, cmake's descriptions, static libraries.
cross_packages=(libfmt-dev libfmt9 nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libssl-dev libhwloc-dev libpcre2-dev zlib1g-dev
  libzstd-dev libgtest-dev libgmock-dev libbenchmark-dev libbenchmark1debian)
declare -A debian_architectures=([aarch64]=arm64)

# apt_of ARCHITECTURE WORD...: apt with lists of its own, which knows that architecture alone.
apt_of() {
  local architecture=$1 state=$2
  shift 2
  mkdir -p "$state/lists/partial" "$state/archives/partial"
  apt-get -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o Dir::State="$state" -o Dir::State::Lists="$state/lists" \
    -o Dir::State::status=/dev/null -o Dir::Cache="$state" -o Dir::Cache::archives="$state/archives" -o APT::Sandbox::User='' "$@"
}

# unpack_packages MACHINE: into .deps/MACHINE/sysroot, once.
unpack_packages() {
  local machine=$1 folder=$deps/$1 architecture=${debian_architectures[$1]} state file
  if [[ -f $folder/sysroot/.complete && $(<"$folder/sysroot/.complete") == "${cross_packages[*]} headers" ]]; then return 0; fi
  state=$(mktemp -d)
  rm -rf "$folder/sysroot" && mkdir -p "$folder/sysroot"
  if apt_of "$architecture" "$state" update && (cd "$state" && apt_of "$architecture" "$state" download "${cross_packages[@]}"); then
    for file in "$state"/*.deb; do dpkg-deb -x "$file" "$folder/sysroot" || { rm -rf "$state" && return 1; }; done
    # Headers of this architecture alone: the compiler looks for them in the system's own folder of that name, not in this one.
    cp -r "$folder/sysroot/usr/include/$machine-linux-gnu/." "$folder/sysroot/usr/include" || { rm -rf "$state" && return 1; }
    printf '%s\n' "${cross_packages[*]} headers" >"$folder/sysroot/.complete"
  fi
  rm -rf "$state"
  [[ -f $folder/sysroot/.complete ]]
}

# set_up_cross MACHINE TARGET...: `build` is the other machine's folder afterwards.
set_up_cross() {
  local machine=$1 folder
  shift
  [[ -n ${debian_architectures[$machine]:-} ]] ||
    fail 2 LS0711 "wheel: --for $machine: expected $(uname -m) or one of ${!debian_architectures[*]}"
  command -v python3 >/dev/null || fail 2 LS0701 "python3 is missing: install it and run the same command again"
  trap 'stop_watcher; say "lockstep: stopped; run the same command again to continue."; exit 130' INT TERM
  count_jobs
  take_lock
  mkdir -p "$deps/$machine" && folder=$(cd "$deps/$machine" && pwd -P)
  need "${build_packages[@]}" "g++-$machine-linux-gnu $machine-linux-gnu-g++" "binutils-$machine-linux-gnu $machine-linux-gnu-objdump" \
    "qemu-user qemu-$machine"
  run_logged "libraries for $machine" "packages-$machine" unpack_packages "$machine" ||
    fail 1 LS0709 "apt-get could not fetch the libraries for $machine; see $deps/log/packages-$machine.log"
  wheels fetch cpu arrow --arch "$machine" --deps "$folder" || exit $?
  torch=$folder/site/torch build=$root/build-$machine
  configure "$build" "$machine" -DLOCKSTEP_CROSS_ROOT="$folder/sysroot" -DLOCKSTEP_ARROW="$folder/site/pyarrow"
  compile "$build" "$@"
  free_lock
  trap - INT TERM
}
