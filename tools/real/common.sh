# shellcheck shell=bash
# What the tests with real schedulers and networks share.
#
#     source common.sh "$@"              BUILD: the folder with the built program
#     need srun slurm-wlm                or skip, with a word
#     row "four ranks give the same bits" same_bits srun -n4 "$program" train ...
#     finish
#
# Every row prints what it checks and how it went; a row that fails shows what was said. `skip` ends the test
# with 77, which ctest counts as skipped. Whatever a row leaves running is ended, by its number.

set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
program=$(readlink -f "${1:?usage: $0 BUILD}/lockstep")
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-real.XXXXXX")
chmod 755 "$work"
rows=0 failed=0 started=$SECONDS running=
row_limit=120  # seconds; the slowest take 20 on two cores
# A home of its own: secrets and sockets of the person who tests stay out of it.
export HOME=$work XDG_CONFIG_HOME=$work/config XDG_RUNTIME_DIR=$work/runtime
mkdir -m 700 "$XDG_CONFIG_HOME" "$XDG_RUNTIME_DIR"
unset "${!SLURM@}" "${!OMPI@}" "${!PMIX@}" "${!PET_@}" "${!LOCKSTEP_SECRET@}" RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT

# ours NAME [VARIABLE=VALUE]: the processes with that name ('' is any) which carry this test's folder in their environment:
# ours, whoever their parent is by now. One grep reads them all: a run that shall be killed does not wait for us.
ours() {
  local file pid
  grep -lzxF "XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR" /proc/[0-9]*/environ 2>/dev/null | while read -r file; do
    pid=${file#/proc/} pid=${pid%/environ}
    [[ $pid == "$$" || $pid == "$BASHPID" ]] && continue
    [[ -z $1 || $(cat "/proc/$pid/comm" 2>/dev/null) == "$1" ]] || continue
    [[ -z ${2:-} ]] || grep -qzxF "$2" "$file" 2>/dev/null || continue
    echo "$pid"
  done
}

clean_up() {
  local pid
  trap '' INT TERM
  if [[ -n $running ]]; then kill -KILL "$running" 2>/dev/null; fi
  if declare -F stop >/dev/null; then stop; fi
  for pid in $(ours ''); do kill -KILL "$pid" 2>/dev/null; done
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

skip() {
  echo "skipped: $*"
  exit 77
}

# need COMMAND PACKAGE
need() { command -v "$1" >/dev/null || skip "$1 is not here; ./dev test --real installs $2"; }

# need_python MODULE...: $python has them. LOCKSTEP_TEST_PYTHON names one; without it, LOCKSTEP_REAL_VENV names a folder where
# one is set up from PyPI (./dev test --real does that, once), and gets what else is missing.
need_python() {
  local module
  python=${LOCKSTEP_TEST_PYTHON:-}
  if [[ -z $python && -n ${LOCKSTEP_REAL_VENV:-} ]]; then
    python=$LOCKSTEP_REAL_VENV/bin/python
    if [[ ! -e $LOCKSTEP_REAL_VENV/complete ]]; then
      echo "setting up $LOCKSTEP_REAL_VENV with torch and transformers from PyPI"
      { python3 -m venv --clear "$LOCKSTEP_REAL_VENV" && "$python" -m pip install --quiet torch transformers &&
        touch "$LOCKSTEP_REAL_VENV/complete"; } >"$work/why" 2>&1 ||
        skip "torch and transformers cannot be installed: $(tail -n 1 "$work/why")"
    fi
  fi
  [[ -n $python ]] || skip "LOCKSTEP_TEST_PYTHON names no interpreter"
  for module in "$@"; do
    if [[ -z ${LOCKSTEP_TEST_PYTHON:-} ]] && ! "$python" -c "import $module" 2>/dev/null; then
      echo "adding $module from PyPI"
      "$python" -m pip install --quiet "$module" >"$work/why" 2>&1
    fi
    "$python" -c "import $module" 2>"$work/why" || skip "$python has no $module: $(tail -n 1 "$work/why")"
  done
}

# row TITLE COMMAND...: COMMAND in a folder of its own, where it leaves `says`. LOCKSTEP_ROWS=frozen runs only rows with that
# word in their titles.
row() {
  local title=$1 began=$SECONDS
  shift
  [[ $title == *"${LOCKSTEP_ROWS:-}"* ]] || return 0
  mkdir -p "$work/$((++rows))"
  (cd "$work/$rows" && "$@") >"$work/$rows/row" 2>&1 &
  running=$!
  until_true $row_limit gone "$running" >>"$work/$rows/row" || end_row
  if wait "$running"; then
    printf 'ok      %s (%d s)\n' "$title" $((SECONDS - began))
  else
    printf 'FAILED  %s (%d s)\n' "$title" $((SECONDS - began))
    sed 's/^/        | /' "$work/$rows/row"
    failed=$((failed + 1))
  fi
  running=
}

# A row that hangs: it fails, and what it has started goes.
end_row() {
  local pid
  kill -KILL "$running"
  for pid in $(ours lockstep); do kill -KILL "$pid" 2>/dev/null; done
}

finish() {
  echo "$((rows - failed)) of $rows rows hold, $((SECONDS - started)) s"
  exit $((failed > 0))
}

# ---- what rows are made of ----------------------------------------------------------------------------

# Steps of a run that a fault comes to and that ends all the same: some seconds, so that the fault comes first.
# shellcheck disable=SC2034  # the tests use it
faulty_steps=1000
recipe=$here/../../recipes/first.toml
small=(model.layers=2 model.hidden=32 data.seq_len=32 batch.global=16 log.eval_every=0 log.fingerprint=true)

# training STEPS: the words of a run that is quick, with 8 strands.
training() { words=(train "$recipe" run.name=here "run.steps=$1" "${small[@]}" --json); }

# hash_of FILE: the last params_hash that a run said.
hash_of() { grep -o '"params_hash": *"[0-9a-f]*"' "$1" | tail -n 1 | grep -o '[0-9a-f]\{32\}'; }

# expected STEPS: what one rank alone comes to.
expected() {
  local folder=$work/alone-$1
  if [[ ! -e $folder/hash ]]; then
    mkdir -p "$folder"
    training "$1"
    (cd "$folder" && "$program" "${words[@]}") >"$folder/says" 2>&1 || cat "$folder/says" >&2
    hash_of "$folder/says" >"$folder/hash"
  fi
  cat "$folder/hash"
}

# says TEXT: what the command said, in `says`, contains it.
says() {
  grep -qF -- "$1" says && return 0
  echo "it should say \"$1\"; it said:"
  cat says
  return 1
}

# ends CODE COMMAND...: ends with that code, and what it says is in `says`.
ends() {
  local wanted=$1 code=0
  shift
  "$@" >says 2>&1 || code=$?
  [[ $code == "$wanted" ]] && return 0
  echo "ended with $code, not $wanted: $*"
  cat says
  return 1
}

# has_bits STEPS: the run in `says` came to what one rank alone comes to.
has_bits() {
  local bits one
  bits=$(hash_of says) one=$(expected "$1")
  [[ -n $bits && $bits == "$one" ]] && return 0
  echo "params_hash is ${bits:-missing}, one rank gives $one"
  cat says
  return 1
}

# until_true SECONDS COMMAND...
until_true() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || { echo "in vain: $*"; return 1; }
    sleep 0.05
  done
}

# step_reached N: the run here has written so many lines.
step_reached() { [[ -e runs/here/metrics.jsonl ]] && (($(wc -l <runs/here/metrics.jsonl) >= $1)); }

# nothing_runs: no rank, launcher or guard of ours is left.
nothing_runs() {
  local pid
  until_true 10 no_lockstep && return 0
  for pid in $(ours lockstep); do echo "$pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"; done
  return 1
}
no_lockstep() { [[ -z $(ours lockstep) ]]; }

gone() { ! kill -0 "$1" 2>/dev/null; }

# with_variable VARIABLE=VALUE: the lockstep processes that have it in their environment, parents before children. The numbers
# of processes start again from the bottom on a machine that runs for long, so they say nothing.
with_variable() {
  local pid above depth
  for pid in $(ours lockstep "$1"); do
    above=$pid depth=0
    while above=$(awk '$1 == "PPid:" { print $2 }' "/proc/$above/status" 2>/dev/null) && [[ ${above:-0} -gt 1 ]]; do ((++depth)); done
    echo "$depth $pid"
  done | sort -n | awk '{ print $2 }'
}
