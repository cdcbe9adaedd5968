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
declare -A rows_at=()  # of a row that runs beside others, by its process: "FOLDER BEGAN TITLE"
row_limit=120  # seconds; the slowest take 20 on two cores
export LOCKSTEP_TEST_PORTS=${LOCKSTEP_TEST_PORTS:-$((10000 + RANDOM % 40 * 200))}
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
  for pid in $running "${!rows_at[@]}"; do kill -KILL "$pid" 2>/dev/null; done
  if declare -F stop >/dev/null; then stop; fi
  for XDG_RUNTIME_DIR in "$work"/runtime "$work"/*/runtime; do
    for pid in $(ours ''); do kill -KILL "$pid" 2>/dev/null; done
  done
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
# one is set up from PyPI (./dev test --real does that, once, with packages.sh), and gets what else is missing.
need_python() {
  local module
  python=${LOCKSTEP_TEST_PYTHON:-}
  if [[ -z $python && -n ${LOCKSTEP_REAL_VENV:-} ]]; then
    python=$LOCKSTEP_REAL_VENV/bin/python
    once complete set_up_python || skip "torch and transformers cannot be installed: $(tail -n 1 "$work/why")"
  fi
  [[ -n $python ]] || skip "LOCKSTEP_TEST_PYTHON names no interpreter"
  for module in "$@"; do
    once "imports-$module" has_module "$module" || skip "$python has no $module: $(tail -n 1 "$work/why")"
  done
}
set_up_python() {
  echo "setting up $LOCKSTEP_REAL_VENV with torch and transformers from PyPI"
  { python3 -m venv --clear "$LOCKSTEP_REAL_VENV" && "$python" -m pip install --quiet torch transformers; } >"$work/why" 2>&1
}
has_module() {
  "$python" -c "import $1" 2>"$work/why" && return 0
  [[ -z ${LOCKSTEP_TEST_PYTHON:-} ]] || return 1
  echo "adding $1 from PyPI"
  "$python" -m pip install --quiet "$1" >"$work/why" 2>&1
  "$python" -c "import $1" 2>"$work/why"
}

# need_extra REQUIREMENT...: what is no module of that name, such as ray[default]. Where it cannot be had, the test finds out.
need_extra() {
  local requirement
  for requirement in "$@"; do
    [[ -n ${LOCKSTEP_TEST_PYTHON:-} ]] || once "has-$requirement" add_requirement "$requirement"
  done
  return 0
}
add_requirement() { "$python" -m pip install --quiet "$1" >"$work/why" 2>&1; }

# once WORD COMMAND...: in the folder that all tests share, one test at a time, until it has succeeded; then never again. A
# Python that is somebody's own gets no marks.
once() {
  local mark=${LOCKSTEP_REAL_VENV:-}/$1 code=0
  shift
  if [[ -n ${LOCKSTEP_TEST_PYTHON:-} ]]; then "$@"; return; fi
  [[ -e $mark ]] && return 0
  mkdir -p "${LOCKSTEP_REAL_VENV%/*}"
  exec {lock}>"$LOCKSTEP_REAL_VENV.lock"
  flock "$lock"
  [[ -e $mark ]] || { "$@" && touch "$mark"; } || code=$?
  exec {lock}>&-
  return "$code"
}

# free_port MANY: so many ports in a row that nobody listens on, the first of them, out of this test's own two hundred: ctest
# runs several beside each other.
free_port() {
  local first port
  while :; do
    first=$((LOCKSTEP_TEST_PORTS + RANDOM % 170))
    for ((port = first; port < first + $1; ++port)); do
      if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then continue 2; fi
    done
    echo "$first"
    return
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

# row_beside TITLE COMMAND...: as `row`, beside up to rows_at_once - 1 others, for rows that mostly wait for a slow client.
# Its processes have a runtime folder of their own, so that `ours` finds those of this row only. `rows_done` waits for all.
rows_at_once=4
row_beside() {
  local title=$1
  shift
  [[ $title == *"${LOCKSTEP_ROWS:-}"* ]] || return 0
  until ((${#rows_at[@]} < rows_at_once)); do reap_rows && sleep 0.05; done
  mkdir -p "$work/$((++rows))"
  (
    cd "$work/$rows" && export XDG_RUNTIME_DIR=$PWD/runtime && mkdir -m 700 runtime && "$@"
  ) >"$work/$rows/row" 2>&1 &
  rows_at[$!]="$rows $SECONDS $title"
}

# Tells how those went that have ended, and ends those that hang.
reap_rows() {
  local pid folder began title
  for pid in "${!rows_at[@]}"; do
    read -r folder began title <<<"${rows_at[$pid]}"
    if ((SECONDS - began > row_limit)); then
      echo "it takes longer than $row_limit s" >>"$work/$folder/row"
      XDG_RUNTIME_DIR=$work/$folder/runtime running=$pid end_row
    fi
    gone "$pid" || continue
    if wait "$pid"; then
      printf 'ok      %s (%d s)\n' "$title" $((SECONDS - began))
    else
      printf 'FAILED  %s (%d s)\n' "$title" $((SECONDS - began))
      sed 's/^/        | /' "$work/$folder/row"
      failed=$((failed + 1))
    fi
    unset "rows_at[$pid]"
  done
}

rows_done() { while ((${#rows_at[@]} > 0)); do reap_rows && sleep 0.05; done; }

# A row that hangs: it fails, and what it has started goes.
end_row() {
  local pid
  kill -KILL "$running"
  for pid in $(ours lockstep); do kill -KILL "$pid" 2>/dev/null; done
}

finish() {
  rows_done
  echo "$((rows - failed)) of $rows rows hold, $((SECONDS - started)) s"
  exit $((failed > 0))
}

# ---- what rows are made of ----------------------------------------------------------------------------

# Steps of a run that a fault comes to and that ends all the same: some seconds, so that the fault comes first.
# shellcheck disable=SC2034  # the tests use it
faulty_steps=2000
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

# until_true SECONDS COMMAND...: on an idle machine; where other tests run beside this one, it may take three times as long.
until_true() {
  local deadline=$((SECONDS + 3 * $1))
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
