#!/usr/bin/env bash
# Tests the decisions of bootstrap.sh on machines that do not exist: nvidia-smi, apt-get, sudo, cmake and
# the rest are fakes in a PATH of their own. Run by ctest, or by hand: tools/bootstrap_test.sh
# shellcheck disable=SC2016  # scripts for the sandbox are quoted on purpose
set -euo pipefail

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sandbox=$(mktemp -d)
trap 'rm -rf "$sandbox"' EXIT
failures=0 checks=0
unset RANK LOCAL_RANK LOCKSTEP_RANK OMPI_COMM_WORLD_RANK PMI_RANK LOCKSTEP_TORCH LOCKSTEP_REBUILD LOCKSTEP_JOBS
real=(awk bash cat chmod cp date df dirname env flock git grep head id kill ls mkdir mv nproc python3 readlink rm
  sed sh sha256sum sleep sort tail timeout touch tr uname)

# ---- the sandbox: a checkout with a space in its name, and a PATH of fakes ----------------------------

fresh_sandbox() {
  rm -rf "${sandbox:?}"/*
  bin=$sandbox/bin root="$sandbox/check out"
  mkdir -p "$bin" "$root/tools"
  local tool
  for tool in "${real[@]}"; do ln -s "$(command -v "$tool")" "$bin/$tool"; done
  cp "$tools"/{bootstrap.sh,bootstrap_gpu.sh,bootstrap_flash.sh,wheels.py,wheels.lock} "$root/tools/"
  cp "$tools/../lockstep" "$root/"
  git -C "$root" init -q
  git -C "$root" -c user.name=test -c user.email=test@localhost commit -q --allow-empty -m first
  fake_torch "$sandbox/torch" 2.11.0+cu130
  for tool in g++ ccache mold; do fake $tool 'exit 0'; done
  fake cmake 'mkdir -p "'"$root"'/build"; echo "cmake $*" >>"'"$sandbox"'/calls"'
  fake ninja 'echo "ninja $*" >>"'"$sandbox"'/calls"
    printf "#!/bin/sh\necho ran \"\$@\"\n" >"$2/lockstep"; chmod +x "$2/lockstep"'
}

# fake NAME BODY
fake() {
  rm -f "$bin/$1"
  printf '#!/bin/bash\n%s\n' "$2" >"$bin/$1"
  chmod +x "$bin/$1"
}

fake_torch() {
  mkdir -p "$1/lib"
  touch "$1/lib/libtorch_cpu.so"
  printf "__version__ = '%s'\n" "$2" >"$1/version.py"
}

# inside SCRIPT: runs it with bootstrap.sh sourced and only the fakes in reach; fills `output`, `status`.
inside() {
  status=0
  output=$(env PATH="$bin" root="$root" "$bin/bash" -c "
    set -euo pipefail
    source \"\$root/tools/bootstrap.sh\"
    build_packages=() cuda_folders=() gpu_device=/nowhere
    $1" 2>&1 </dev/null) || status=$?
}

# launch ARGUMENT...: runs ./lockstep of the sandbox, with packages that are all there.
launch() {
  sed -i 's/^build_packages=($/build_packages=()\nignored=(/; s/^cuda_folders=.*/cuda_folders=()/; s/^gpu_device=.*/gpu_device=\/nowhere/' \
    "$root/tools/bootstrap.sh"
  status=0
  output=$(env PATH="$bin" "$root/lockstep" "$@" 2>&1 </dev/null) || status=$?
}

# expect NAME STATUS PHRASE
expect() {
  checks=$((checks + 1))
  if [[ $status == "$2" && $output == *"$3"* ]]; then return 0; fi
  failures=$((failures + 1))
  printf 'FAILED %s: wanted exit %s with "%s"; got exit %s with:\n%s\n' "$1" "$2" "$3" "$status" "$output"
}

# ---- the tables ---------------------------------------------------------------------------------------

test_gpu_verdict() {
  local name report code verdict
  while IFS='|' read -r name report code verdict; do
    fresh_sandbox
    fake nvidia-smi "printf '$report'; exit $code"
    inside 'gpu_verdict; echo "$gpu: $gpu_why"'
    expect "gpu verdict, $name" 0 "$verdict"
  done <<'TABLE'
H200|570.86, 9.0, NVIDIA H200\n|0|unfit: the NVIDIA driver 570.86 is older than 580
H200 with a new driver|580.65.06, 9.0, NVIDIA H200\n|0|fit: 
RTX 2080 Ti|590.1, 7.5, RTX 2080 Ti\n|0|fit: 
Blackwell|610.2, 12.0, RTX 5090\n|0|fit: 
V100|580.65, 7.0, Tesla V100-SXM2-16GB\n|0|unfit: Tesla V100-SXM2-16GB has compute capability 7.0
GTX 1060|580.65, 6.1, GTX 1060\n|0|unfit: GTX 1060 has compute capability 6.1
one of two fits|580.65, 7.0, Tesla V100\n580.65, 8.0, A100\n|0|fit: 
no driver|NVIDIA-SMI has failed\n|9|none: 
no device|No devices were found\n|0|none: 
nonsense|[N/A], [N/A], x\n|0|unfit: nvidia-smi reports driver '[N/A]'
TABLE
  fresh_sandbox
  inside 'gpu_verdict; echo "$gpu: $gpu_why"'
  expect "gpu verdict, no nvidia-smi" 0 "none: "
  inside 'gpu_device=/dev/null; gpu_verdict; echo "$gpu: $gpu_why"'
  expect "gpu verdict, a device but no nvidia-smi" 0 "unfit: an NVIDIA device is here but nvidia-smi does not answer"
  fake nvidia-smi 'if [[ $1 == *compute_cap* ]]; then echo "not a valid field"; exit 2; fi; echo 418.10'
  inside 'gpu_verdict; echo "$gpu: $gpu_why"'
  expect "gpu verdict, a driver that knows no compute_cap" 0 "unfit: the NVIDIA driver 418.10 is older"
}

test_cuda_plan() {
  local name smi nvcc request plan
  while IFS='|' read -r name smi nvcc request plan; do
    fresh_sandbox
    if [[ -n $smi ]]; then fake nvidia-smi "echo '$smi'"; fi
    if [[ -n $nvcc ]]; then fake nvcc "echo 'Cuda compilation tools, release $nvcc, V$nvcc.1'"; fi
    inside "want_cuda=$request"'; make_plan; echo "$gpu: ${wheel_sets[*]}; ${nvcc##*/}"'
    expect "plan, $name" 0 "$plan"
  done <<'TABLE'
no GPU||||none: cpu; 
no GPU but wanted||13.0|on|cuda: cpu cuda; nvcc
a GPU and no nvcc|580.1, 9.0, H200|||cuda: cpu cuda nvcc; nvcc
a GPU and nvcc 13|580.1, 9.0, H200|13.1||cuda: cpu cuda; nvcc
a GPU and nvcc 12|580.1, 9.0, H200|12.4||cuda: cpu cuda nvcc; nvcc
a GPU not wanted|580.1, 9.0, H200||off|chosen: cpu; 
an old GPU|580.1, 7.0, V100|||unfit: cpu; 
an old GPU, CUDA wanted all the same|580.1, 7.0, V100|13.0|on|cuda: cpu cuda; nvcc
TABLE
  fresh_sandbox
  inside 'remember cuda off; remember torch /nowhere; remember cuda on; want_cuda=; make_plan; echo "$gpu"; cat "$deps/choices"'
  expect "plan, a choice is remembered once and a lost torch forgotten" 0 $'cuda\ntorch /nowhere\ncuda on'
}

test_flash() {
  local name smi request verdict
  while IFS='|' read -r name smi request verdict; do
    fresh_sandbox
    if [[ -n $smi ]]; then fake nvidia-smi "printf '$smi\\n'"; fi
    inside "gpu=cuda want_flash=$request; if wants_flash; then echo wanted; else echo left out; fi"
    expect "flash, $name" 0 "$verdict"
  done <<'TABLE'
a Hopper|580.1, 9.0, H200||wanted
a Hopper, not wanted|580.1, 9.0, H200|off|left out
the second is a Hopper|580.1, 8.0, A100\n580.1, 9.0, H100||wanted
an Ampere|580.1, 8.0, A100||left out
a Blackwell|580.1, 10.0, B200||left out
no GPU|||left out
no GPU, but wanted||on|wanted
TABLE
  fresh_sandbox
  inside "gpu=none want_flash=on; if wants_flash; then echo wanted; else echo left out; fi"
  expect "flash, a program for the CPU" 0 "left out"

  local made='gpu=cuda want_flash=on jobs=2 torch=/t nvcc=/c/bin/nvcc
    wheels() { echo "wheels $*"; mkdir -p "$deps/flash/site"; }
    run_logged() { echo "compiled: $1"; touch "$build/src/lockstep/liblockstep_flash.so"; }'
  fresh_sandbox
  mkdir -p "$root/src/lockstep/kernels/flash"
  cp -r "$tools/flash" "$root/tools/"
  cp "$tools/../src/lockstep/kernels/flash/flash_abi.h" "$root/src/lockstep/kernels/flash/"
  inside "$made; build_flash; echo; build_flash; ls \"\$deps\"; echo end"
  expect "flash, made once, and the compiler is gone" 0 $'compiled: attention kernels for Hopper\n\nend'
  inside "$made; LOCKSTEP_FLASH_HEADS=64:5 build_flash"
  expect "flash, made again for other heads" 0 "compiled: attention kernels for Hopper"
  inside "$made; build_flash; wheels() { return 1; }; LOCKSTEP_FLASH_HEADS=64:7 build_flash; echo went on"
  expect "flash, the compiler cannot be fetched" 0 $'attention uses cuDNN. The next setup tries again.\nwent on'
  inside "$made; run_logged() { return 1; }; LOCKSTEP_FLASH_HEADS=64:7 build_flash; echo went on"
  expect "flash, the compiler fails" 0 "went on"
}

test_packages() {
  local name user terminal answer code phrase
  while IFS='|' read -r name user terminal answer code phrase; do
    fresh_sandbox
    fake id "echo $user"
    fake apt-get "echo apt-get \"\$@\" >>'$sandbox/calls'"
    fake sudo 'if [[ $1 != -v ]]; then echo with sudo; "$@"; fi'
    inside "on_terminal() { $terminal; }
      mapfile -t missing < <(missing_of 'absent no-such-command' 'headers /no/such/file' 'present bash')
      may_install \"\${missing[@]}\" <<<'$answer'; install_packages \"\${missing[@]}\"; cat '$sandbox/calls'"
    expect "packages, $name" "$code" "$phrase"
  done <<'TABLE'
root|0|false||0|install -y --no-install-recommends absent headers
a user at a terminal says yes|1000|true|y|0|install -y --no-install-recommends absent headers
a user at a terminal says no|1000|true|n|2|sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends absent headers' [LS0701]
a user in a script|1000|false||2|sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends absent headers' [LS0701]
TABLE
  fresh_sandbox
  inside "may_install absent"
  expect "packages, not a Debian" 2 "missing here: absent; install them with this system's package manager"
  fake id 'echo 0'
  fake apt-get '[[ $* == *update* ]] || { echo "E: Unable to locate package absent"; exit 100; }'
  inside 'may_install absent; install_packages absent'
  expect "packages, apt-get fails" 1 "E: Unable to locate package absent"
}

test_torch() {
  local name version phrase code
  while IFS='|' read -r name version code phrase; do
    fresh_sandbox
    fake_torch "$sandbox/other" "$version"
    inside "LOCKSTEP_TORCH='$sandbox/other' make_plan; echo \"\${#wheel_sets[@]} wheels\""
    expect "torch, $name" "$code" "$phrase"
  done <<'TABLE'
the right version|2.11.0|0|0 wheels
a later patch|2.11.1+cpu|0|0 wheels
an older version|2.10.0|2|is PyTorch 2.10.0, but Lockstep needs 2.11
a version that starts alike|2.110.0|2|is PyTorch 2.110.0
no version||2|is PyTorch of unknown version
TABLE
  inside "LOCKSTEP_TORCH=/nowhere make_plan"
  expect "torch, not there" 2 "LOCKSTEP_TORCH=/nowhere contains no lib/libtorch_cpu.so"
}

test_start() {
  local name change code phrase
  while IFS='|' read -r name change code phrase; do
    fresh_sandbox
    LOCKSTEP_TORCH=$sandbox/torch launch train 'a b'
    : >"$sandbox/calls"
    (eval "$change")
    launch train 'a b'
    output+=" calls: $(grep -c ninja "$sandbox/calls" || true)"
    expect "start, $name" "$code" "$phrase"
  done <<'TABLE'
nothing changed|true|0|ran train a b calls: 0
an edited source|touch "$root/tools/new.cc"|0|ran train a b calls: 0
another commit|git -C "$root" -c user.name=t -c user.email=t@t commit -q --allow-empty -m next|0|ran train a b calls: 1
no program|rm "$root/build/lockstep"|0|ran train a b calls: 1
an unfinished build|rm "$root/build/.lockstep_stamp"|0|ran train a b calls: 1
a torn stamp|echo x >"$root/build/.lockstep_stamp"|0|ran train a b calls: 1
the build fails|rm "$root/build/.lockstep_stamp"; fake ninja 'echo "x.cc:1: error: no"; exit 1'|1|x.cc:1: error: no
the disk is full while building|rm "$root/build/.lockstep_stamp"; fake ninja 'echo "No space left on device"; exit 1'|1|is full; free some space
the disk is full before|rm "$root/build/.lockstep_stamp"; fake df 'printf "h\nfs 100 90 10 x\n"'|2|GB free, but setup needs
TABLE
}

test_ranks() {
  local variable
  for variable in RANK LOCAL_RANK LOCKSTEP_RANK; do
    fresh_sandbox
    export "$variable=3"
    launch train
    expect "rank, $variable and no build" 2 "this is a rank ($variable=3)"
    unset "$variable"
    LOCKSTEP_TORCH=$sandbox/torch launch train
    export "$variable=0"
    launch train
    expect "rank, $variable and a build" 0 "ran train"
    unset "$variable"
  done
}

test_failed_build_is_not_used() {
  fresh_sandbox
  fake ninja 'mkdir -p "$2"; echo "#!/bin/sh" >"$2/lockstep"; chmod +x "$2/lockstep"; exit 1'
  LOCKSTEP_TORCH=$sandbox/torch launch train
  expect "failed build, first" 1 "[LS0706]"
  LOCKSTEP_TORCH=$sandbox/torch launch train
  expect "failed build, again" 1 "[LS0706]"
  fresh_sandbox
  LOCKSTEP_TORCH=$sandbox/torch launch train
  fake ninja 'exit 1'
  LOCKSTEP_REBUILD=1 launch train
  expect "failed rebuild, first" 1 "[LS0706]"
  launch train
  expect "failed rebuild, the old program is not run as if it were new" 1 "[LS0706]"
}

test_options() {
  fresh_sandbox
  launch setup --frob
  expect "options, unknown" 2 "setup: unknown option --frob"
  launch setup --help
  expect "options, help" 0 "usage: ./lockstep setup"
}

test_lock() {
  fresh_sandbox
  mkdir -p "$root/.deps"
  printf 'process 77 on elsewhere' >"$root/.deps/lock.holder"
  flock "$root/.deps/lock" sleep 1 &
  sleep 0.3
  inside 'take_lock; echo got it; free_lock; [[ ! -e $deps/lock.holder ]]'
  expect "lock, held by another" 0 "another setup is running here (process 77 on elsewhere); waiting for it."
  expect "lock, taken afterwards" 0 "got it"
  wait
}

for test in $(compgen -A function test_); do
  "$test"
done
printf '%d checks, %d failed\n' "$checks" "$failures"
((failures == 0))
