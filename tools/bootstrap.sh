# shellcheck shell=bash
# Brings a machine that has only git and python3 to a built Lockstep.
#
# Sourced by ./lockstep and ./dev, which set $root. `is_fresh` is the cheap question asked at every
# start; `set_up TARGET...` does the rest: packages, LibTorch, CUDA if it fits, build. Every stage is
# skipped when done and picks up where an interrupted one stopped. All messages go to stderr; the
# codes (LS07xx) are explained by `lockstep explain`. Exit 2: refused, nothing was changed.
#
#   LOCKSTEP_TORCH=DIR   use this PyTorch 2.11 instead of downloading it
#   LOCKSTEP_ARROW=DIR   use this pyarrow 26 for Parquet and Arrow files instead of downloading it; "off": do without
#   LOCKSTEP_REBUILD=1   rebuild before running, even where the build looks fresh
#   LOCKSTEP_JOBS=N      compile N files at once (default: cores, less where memory is short)
#   LOCKSTEP_FLASH_HEADS=128:4,64:5   compile attention for these heads only: width, query heads to a key head

: "${root:?}"
deps=$root/.deps
build=$root/build
program=$build/lockstep
stamp=$build/.lockstep_stamp
gpu_device=/dev/nvidiactl
cuda_folders=(/usr/local/cuda /usr/local/cuda-13*)

torch_series=2.11           # any 2.11.x will do
min_driver=580              # what CUDA 13 needs
min_capability=75           # compute capability 7.5
megabytes_per_second=25     # for the estimate: a common home or office line
build_core_minutes=12       # the program alone; tests add as much again

# Everything the build uses, "package probe": a probe is a command or a file that shows it is there.
build_packages=(
  "g++ g++"
  "cmake cmake"
  "ninja-build ninja"
  "ccache ccache"
  "mold mold"
  "git git"
  "ca-certificates /etc/ssl/certs/ca-certificates.crt"
  "libfmt-dev /usr/include/fmt/core.h"
  "nlohmann-json3-dev /usr/include/nlohmann/json.hpp"
  "libcli11-dev /usr/include/CLI/CLI.hpp"
  "libtomlplusplus-dev /usr/include/toml++/toml.h"
  "libssl-dev /usr/include/openssl/ssl.h"
  "libhwloc-dev /usr/include/hwloc.h"
  "libpcre2-dev /usr/include/pcre2.h"
  "zlib1g-dev /usr/include/zlib.h"
  "libzstd-dev /usr/include/zstd.h"
  "libgtest-dev /usr/include/gtest/gtest.h"
  "libbenchmark-dev /usr/include/benchmark/benchmark.h"
)

# shellcheck source=tools/bootstrap_gpu.sh
source "$root/tools/bootstrap_gpu.sh"
# shellcheck source=tools/bootstrap_flash.sh
source "$root/tools/bootstrap_flash.sh"

say() { printf '%s\n' "$*" >&2; }

# fail EXIT CODE SENTENCE
fail() {
  say "lockstep: $3 [$2]"
  exit "$1"
}

on_terminal() { [[ -t 0 && -t 2 ]]; }

# ---- is the build fresh? ------------------------------------------------------------------------------

head_commit() { git -C "$root" rev-parse HEAD 2>/dev/null || true; }

# A build is fresh when it finished, for this commit, in this folder, with a LibTorch that is still
# there. Edited sources do not count: `./dev build` is for that, and it costs nothing here.
is_fresh() {
  [[ ${LOCKSTEP_REBUILD:-0} != 1 && -x $program && -f $stamp ]] || return 1
  local built_commit built_root built_torch built_gpu commit
  { read -r built_commit; read -r built_root; read -r built_torch; read -r built_gpu; } <"$stamp" || return 1
  [[ $built_root == "$root" && -f $built_torch/lib/libtorch_cpu.so ]] || return 1
  [[ -z ${LOCKSTEP_TORCH:-} || $LOCKSTEP_TORCH -ef $built_torch ]] || return 1
  [[ $built_gpu != none || ! -e $gpu_device ]] || return 1  # a GPU has come since
  commit=$(head_commit)
  [[ -z $commit || $commit == "$built_commit" ]]
}

write_stamp() {
  printf '%s\n' "$(head_commit)" "$root" "$torch" "$gpu" >"$stamp.new"
  mv "$stamp.new" "$stamp"
}

# Thousands of ranks must not compile at once, nor wait for each other.
refuse_rank() {
  local variable
  for variable in RANK LOCAL_RANK LOCKSTEP_RANK OMPI_COMM_WORLD_RANK PMI_RANK; do
    if [[ -n ${!variable:-} ]]; then
      fail 2 LS0705 "this is a rank ($variable=${!variable}), but $root has no complete build of this commit; run ./lockstep setup there once, before starting ranks"
    fi
  done
}

# ---- progress -----------------------------------------------------------------------------------------

# Shows the last line of a log, as a percentage where ninja wrote it: every second on a
# terminal, one line each half minute elsewhere.
watch_log() {
  local label=$1 log=$2 start=$SECONDS last
  if [[ -n ${lock:-} ]]; then exec {lock}>&-; fi  # or its last sleep would hold the lock for us
  while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
    on_terminal || (((SECONDS - start) % 30 == 29)) || continue
    last=$(tail -c 400 "$log" 2>/dev/null | tr '\r' '\n' | tail -n 1)
    if [[ $last =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
      last="$((100 * BASH_REMATCH[1] / BASH_REMATCH[2])) % (${BASH_REMATCH[1]} of ${BASH_REMATCH[2]})"
    fi
    if on_terminal; then
      printf '\r\033[K  %s: %d s, %.60s' "$label" $((SECONDS - start)) "$last" >&2
    else
      printf '  %s: %d s, %.60s\n' "$label" $((SECONDS - start)) "$last" >&2
    fi
  done
}

watcher=
stop_watcher() {
  [[ -n $watcher ]] || return 0
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  watcher=
  if on_terminal; then printf '\r\033[K' >&2; fi
}

# run_logged LABEL LOG COMMAND...: output goes to .deps/log; on failure its end is shown.
run_logged() {
  local label=$1 log=$deps/log/$2.log start=$SECONDS status=0
  shift 2
  mkdir -p "$deps/log"
  : >"$log"
  on_terminal || say "  $label ..."
  watch_log "$label" "$log" &
  watcher=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  stop_watcher
  if ((status == 0)); then
    say "  $label: done in $((SECONDS - start)) s"
    return 0
  fi
  grep -A 3 -E '(error|Error)[: ]|FAILED|^E:' "$log" | head -n 16 >&2 || true
  say "  $label: failed after $((SECONDS - start)) s; see $log"
  if grep -qi 'no space left on device' "$log"; then
    fail 1 LS0703 "the disk of $root is full; free some space and run the same command again"
  fi
  return "$status"
}

# ---- Debian packages ----------------------------------------------------------------------------------

# missing_of "package probe"...: names the packages whose probe is not there.
missing_of() {
  local row probe
  for row in "$@"; do
    probe=${row#* }
    if [[ $probe == /* ]]; then
      [[ -e $probe ]] || printf '%s\n' "${row%% *}"
    else
      command -v "$probe" >/dev/null || printf '%s\n' "${row%% *}"
    fi
  done
}

# may_install PACKAGE...: whether root rights are at hand; fills `sudo`. Refuses with the line to run.
may_install() {
  local line="apt-get install -y --no-install-recommends $*" answer
  sudo=()
  if ! command -v apt-get >/dev/null; then
    fail 2 LS0701 "missing here: $*; install them with this system's package manager and run the same command again"
  fi
  [[ $(id -u) != 0 ]] || return 0
  if on_terminal && command -v sudo >/dev/null; then
    printf 'Install the missing packages with sudo? [Y/n] ' >&2
    read -r answer || answer=n
    if [[ -z $answer || $answer == [yY]* ]] && sudo -v; then
      sudo=(sudo)
      return 0
    fi
  fi
  fail 2 LS0701 "missing packages, which only root can install; run: sudo sh -c 'apt-get update && $line'"
}

# may_install has filled `sudo`.
install_packages() {
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
  run_logged "package lists" apt-update "${apt[@]}" update ||
    say "  some package lists could not be updated; trying with the existing ones"
  run_logged "packages" apt-install "${apt[@]}" install -y --no-install-recommends "$@" ||
    fail 1 LS0709 "apt-get could not install the packages; see $deps/log/apt-install.log"
}

# ---- LibTorch -----------------------------------------------------------------------------------------

torch_version() {
  if [[ -f $1/version.py ]]; then
    sed -n "s/^__version__ *[^=]*= *['\"]\([^'\"]*\)['\"].*/\1/p" "$1/version.py"
  elif [[ -f $1/build-version ]]; then
    cat "$1/build-version"
  fi
}

# A PyTorch that the user named must be one we can use.
check_torch() {
  local version
  [[ -f $1/lib/libtorch_cpu.so ]] ||
    fail 2 LS0704 "LOCKSTEP_TORCH=$1 contains no lib/libtorch_cpu.so; set it to the folder 'torch' of a PyTorch $torch_series"
  version=$(torch_version "$1")
  [[ $version == "$torch_series".* ]] ||
    fail 2 LS0704 "LOCKSTEP_TORCH=$1 is PyTorch ${version:-of unknown version}, but Lockstep needs $torch_series; unset LOCKSTEP_TORCH or use another folder"
}

# ---- the plan: what is wanted, what is missing --------------------------------------------------------

# Choices outlive the command that made them: .deps/choices keeps "cuda on" or "cuda off", and "torch DIR".
choice() { if [[ -f $deps/choices ]]; then sed -n "s/^$1 //p" "$deps/choices" | tail -n 1; fi; }

remember() {
  local rest
  mkdir -p "$deps"
  rest=$(grep -v "^$1 " "$deps/choices" 2>/dev/null || true)
  printf '%s\n' ${rest:+"$rest"} "$1 $2" >"$deps/choices.new"
  mv "$deps/choices.new" "$deps/choices"
}

# Sets torch, wheel_sets, gpu, nvcc from the machine, the options (want_cuda) and the choices.
make_plan() {
  torch=${LOCKSTEP_TORCH:-$(choice torch)}
  wheel_sets=() nvcc=
  if [[ -n $torch && (-n ${LOCKSTEP_TORCH:-} || -d $torch) ]]; then
    [[ -d $torch ]] && torch=$(cd "$torch" && pwd)
    check_torch "$torch"
  else
    torch=$deps/site/torch
    wheel_sets=(cpu)
  fi
  decide_cuda
  [[ $gpu == cuda ]] || return 0
  ((${#wheel_sets[@]} == 0)) || wheel_sets+=(cuda)
  nvcc=$(find_nvcc)
  if [[ -z $nvcc ]]; then
    wheel_sets+=(nvcc)
    nvcc=$deps/site/nvidia/cu13/bin/nvcc
  fi
}

# gpu becomes cuda, or says why not: none (no device), unfit (gpu_why told), chosen (the user's choice).
decide_cuda() {
  local request=${cuda_once:-${want_cuda:-$(choice cuda)}}
  gpu_verdict
  if [[ -n $gpu_why ]]; then say "lockstep: $gpu_why."; fi
  case $request in
    on) gpu=cuda ;;
    off) gpu=chosen ;;
    *) if [[ $gpu == fit ]]; then gpu=cuda; fi ;;
  esac
  if [[ $gpu == cuda && ${#wheel_sets[@]} == 0 && ! -f $torch/lib/libtorch_cuda.so ]]; then
    say "lockstep: $torch has no libtorch_cuda.so; training will use the CPU."
    gpu=unfit
  fi
}

wheels() { python3 "$root/tools/wheels.py" --deps "$deps" "$@"; }

# Says what is missing, how much and how long; refuses where it cannot fit.
announce() {
  local download=0 disk=0 free minutes needed
  if ((${#wheel_sets[@]})); then
    read -r download disk < <(wheels missing "${wheel_sets[@]}" arrow) || exit 1
  fi
  minutes=$(((build_core_minutes + jobs - 1) / jobs + download / 1000000 / megabytes_per_second / 60 + 1))
  say "lockstep: setting up $root; this happens once and takes about $minutes minutes."
  if ((${#missing[@]})); then say "  packages  ${missing[*]} (about 0.4 GB)"; fi
  if ((disk)); then
    say "  LibTorch  $(gigabytes "$download") GB to download, $(gigabytes "$disk") GB on disk (${wheel_sets[*]})"
  fi
  say "  build     $([[ $gpu == cuda ]] && echo "program and CUDA plugin" || echo "program for the CPU"), $jobs jobs"
  needed=$(((disk + download) / 1000 + 1000000))  # kB, with 1 GB for the build
  free=$(df -Pk "$root" | awk 'NR == 2 { print $4 }')
  if ((free < needed)); then
    fail 2 LS0703 "$root has $(gigabytes $((free * 1000))) GB free, but setup needs $(gigabytes $((needed * 1000))) GB; free some space and run the same command again"
  fi
}

gigabytes() { awk -v bytes="$1" 'BEGIN { printf "%.1f", bytes / 1e9 }'; }

# Files that see LibTorch take up to 1.5 GB to compile.
count_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ { print int($2 / 1500000) }' /proc/meminfo)
  jobs=$((memory < cores ? memory : cores))
  jobs=${LOCKSTEP_JOBS:-$((jobs < 1 ? 1 : jobs))}
}

# ---- lock ---------------------------------------------------------------------------------------------

take_lock() {
  { mkdir -p "$deps/log" && touch "$deps/lock"; } 2>/dev/null ||
    fail 2 LS0710 "cannot write to $deps; run setup as the owner of $root"
  exec {lock}<>"$deps/lock"
  if ! flock -n "$lock"; then
    say "lockstep: another setup is running here ($(cat "$deps/lock.holder" 2>/dev/null)); waiting for it."
    flock "$lock"
  fi
  printf 'process %d on %s since %(%H:%M:%S)T' $$ "$(uname -n)" -1 >"$deps/lock.holder"
}

# shellcheck disable=SC2093
free_lock() {
  rm -f "$deps/lock.holder"
  exec {lock}>&-
}

# ---- build --------------------------------------------------------------------------------------------

# configure FOLDER PRESET CMAKE_ARGUMENT...
configure() {
  local folder=$1 preset=$2 home
  shift 2
  home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$folder/CMakeCache.txt" 2>/dev/null || true)
  if [[ -n $home && $home != "$root" ]]; then
    say "  $folder was configured for $home; configuring it again"
    rm -rf "$folder"
  fi
  mkdir -p "$folder"
  run_logged "configuring ($preset)" "configure-$preset" \
    cmake -S "$root" --preset "$preset" -DLOCKSTEP_TORCH="$torch" "$@" ||
    fail 1 LS0706 "cmake could not configure $folder"
}

compile() {
  local folder=$1
  shift
  # Some service accounts have no home, and ccache gives up without one.
  if [[ -z ${CCACHE_DIR:-} && ! -w ${HOME:-/nonexistent} ]]; then export CCACHE_DISABLE=1; fi
  run_logged "building" "build-${folder##*/}" ninja -C "$folder" -j "$jobs" "$@" ||
    fail 1 LS0706 "the build in $folder failed"
}

fetch_wheels() {
  ((${#wheel_sets[@]})) || return 0
  local status=0
  wheels fetch "${wheel_sets[@]}" || status=$?
  ((status == 0)) || exit "$status"
}

# Arrow's libraries, for Parquet and Arrow files. Training does without them, so nothing here stops the set-up.
fetch_arrow() {
  [[ -z ${LOCKSTEP_ARROW:-} ]] || return 0
  LOCKSTEP_ATTEMPTS=1 wheels fetch arrow ||
    say "lockstep: could not fetch Arrow; Parquet and Arrow files will be refused. ./lockstep setup tries again."
}

cmake_arguments() {
  printf '%s\n' "-DLOCKSTEP_ARROW=${LOCKSTEP_ARROW:-}"
  if [[ $gpu == cuda ]]; then
    printf '%s\n' -DLOCKSTEP_CUDA=ON "-DCMAKE_CUDA_COMPILER=$nvcc"
    if [[ -n ${cuda_architectures:-} ]]; then printf '%s\n' "-DCMAKE_CUDA_ARCHITECTURES=$cuda_architectures"; fi
  else
    printf '%s\n' -DLOCKSTEP_CUDA=OFF
  fi
}

# prepare: everything before the build. Afterwards torch, gpu, nvcc and jobs are known and the lock is held.
prepare() {
  refuse_rank
  command -v python3 >/dev/null || fail 2 LS0701 "python3 is missing: install it and run the same command again"
  trap 'stop_watcher; if on_terminal; then say; fi; say "lockstep: stopped; run the same command again to continue."; exit 130' INT TERM
  count_jobs
  take_lock
  mapfile -t missing < <(missing_of "${build_packages[@]}")
  make_plan
  if [[ ! -f $stamp ]] || ((${#missing[@]})); then announce; fi
  if ((${#missing[@]})); then
    may_install "${missing[@]}"
    install_packages "${missing[@]}"
  fi
  if [[ -n ${want_cuda:-} ]]; then remember cuda "$want_cuda"; fi
  if [[ -n ${want_flash:-} ]]; then remember flash "$want_flash"; fi
  if [[ -n ${LOCKSTEP_TORCH:-} ]]; then remember torch "$torch"; fi
  fetch_wheels
  fetch_arrow
}

# set_up [TARGET...]: prepare, and build these targets (all of them by default).
set_up() {
  local arguments
  prepare
  rm -f "$stamp"
  mapfile -t arguments < <(cmake_arguments)
  configure "$build" release "${arguments[@]}"
  compile "$build" "$@"
  build_flash
  write_stamp
  free_lock
  trap - INT TERM
}
