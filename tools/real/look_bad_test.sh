#!/usr/bin/env bash
# look_bad_test.sh BUILD: run folders that are not as they should be, a disk that does not answer, ports that are taken, browsers
# without a token: top, why, plot, metrics, attach and the dashboard show what there is or refuse in a sentence. Exit 77: skipped.
# shellcheck disable=SC2015  # a || b after a chain is what rows mean
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need python3 python3
need curl curl

"$program" train model.layers=1 model.hidden=32 model.heads=2 data.seq_len=16 batch.global=4 log.every=1 checkpoint.every=0 run.steps=12 \
  run.name=good log.folder="$work/good" >"$work/train" 2>&1 || { cat "$work/train"; exit 1; }
good=$work/good/good

# spoiled FOLDER: a copy of the run in each state that a crash, another version or a bad disk leaves it in.
spoiled() {
  python3 - "$good" "$1" <<'END'
import os, re, shutil, sys
good, folder = sys.argv[1:]
text = lambda name: open(f"{good}/{name}").read()
def run(name, **files):
    shutil.copytree(good, f"{folder}/{name}")
    for file, content in files.items():
        path = f"{folder}/{name}/{file.replace('__', '.')}"
        if content is None: os.unlink(path)
        else: open(path, "wb").write(content if isinstance(content, bytes) else content.encode())
half = lambda name: text(name)[:len(text(name)) // 2]
run("half", metrics__jsonl=half("metrics.jsonl"), config__toml=half("config.toml"), events__jsonl=half("events.jsonl"), record__json=half("record.json"))
run("empty", metrics__jsonl="", events__jsonl="", config__toml="", record__json="")
run("started", metrics__jsonl=None, events__jsonl=None)
run("newer", config__toml="[future]\nkey = 1\n" + text("config.toml").replace("steps", "paces"), record__json='{"format": 99}',
    metrics__jsonl='{"version": 9, "pace": 3}\n' + text("metrics.jsonl").replace('"loss"', '"losses"'))
for name in os.listdir(f"{folder}/newer/trace"): open(f"{folder}/newer/trace/{name}", "wb").write(b"\x07" * 5000)
rows = text("metrics.jsonl").splitlines(keepends=True)
spoil = lambda row: re.sub(r'"loss":[^,]*', '"loss":"nan"', row)
run("nan", metrics__jsonl="".join(rows[:4] + [spoil(row) for row in rows[4:]]))
run("all_nan", metrics__jsonl="".join(spoil(row) for row in rows))
run("noise", metrics__jsonl=os.urandom(3000) + b"\n", events__jsonl=os.urandom(3000), config__toml=os.urandom(3000), record__json=os.urandom(3000))
END
}

# Every command on every one: an answer or a sentence with a number, in a moment; no crash, and nothing that is no text.
shown_or_refused() {
  spoiled "$PWD" || return 1
  local run word code
  for run in half empty started newer nan all_nan noise; do
    for word in "top --once" "top --json" why "why --json" plot "plot --out $run.svg" metrics "metrics --json" "metrics --to csv" \
      "metrics --to tensorboard --out board" "metrics --to prometheus" "replay --step 3 --where" audit profile; do
      code=0
      # shellcheck disable=SC2086  # words
      timeout 30 "$program" ${word%% *} "$run" ${word#"${word%% *}"} >says 2>&1 || code=$?
      [[ $code == [012] && -s says ]] || { echo "$word of $run ended with $code:"; cat says; return 1; }
      [[ $code == 0 ]] || says "[LS" || { echo "$word of $run"; return 1; }
      ! grep -qi "exception\|terminate\|what()" says || { cat says; return 1; }
    done
  done
  ends 0 "$program" metrics nan && says "loss             nan" && ends 0 "$program" top nan --once && says "loss nan" &&
    ends 0 "$program" plot nan && says "last" && ends 2 "$program" plot all_nan && says "only nan" &&
    ends 2 "$program" plot empty && says "no metrics yet" && ends 2 "$program" top started --once && says LS0760 &&
    ends 0 "$program" metrics noise && says "left out: "
}

# dash FOLDER: in the background; its address is in $address, its token in $token.
dash() {
  "$program" dash "$1" --port 0 --json >page 2>page-says &
  dash=$!
  until_true 30 test -s page || { cat page-says; return 1; }
  address=$(sed -n 's/.*"url": *"\([^"?]*\).*/\1/p' page) token=$(sed -n 's/.*"token": *"\([^"]*\)".*/\1/p' page)
  address=${address%/}
}
ask() { curl --silent --max-time "${2:-20}" --header "Authorization: Bearer $token" "$address$1"; }

dashboard_shows_them() {
  spoiled "$PWD/runs" && dash runs && until_true 30 lists 7 || return 1
  local run question
  for run in half empty started newer nan all_nan noise; do
    for question in "/api/run?run=$run" "/api/series?run=$run&metric=loss" "/api/timeline?run=$run" "/api/compare?run=$run&run=half"; do
      ask "$question" >says && python3 -c 'import json, sys; json.loads(open("says").read(), parse_constant=sys.exit)' || { echo "$question"; cat says; return 1; }
    done
  done
  ask /api/runs >says && says '"loss":"nan"' && ask "/api/run?run=nan" >says && says '"loss":"nan"' || return 1
  kill -TERM "$dash" && wait "$dash"
}
lists() { [[ $(ask /api/runs | grep -o '"about"' | wc -l) == "$1" ]]; }

without_the_token() {
  mkdir runs && cp -r "$good" runs/first && dash runs || return 1
  local path
  for path in / /api/runs /api/live "/api/run?run=first" /main.js; do
    [[ $(curl --silent --output says --write-out '%{http_code}' "$address$path") == 401 ]] && says token || { echo "$path"; return 1; }
    [[ $(curl --silent --output says --write-out '%{http_code}' --header "Authorization: Bearer ${token/[0-9a-f]/x}" "$address$path") == 401 ]] || return 1
  done
  curl --silent "$address/?token=wrong" >says && says "This page needs a token" || return 1
  [[ $(curl --silent --output says --write-out '%{http_code}' "$address/../../etc/passwd" --path-as-is --header "Authorization: Bearer $token") == 404 ]] || return 1
  [[ $(curl --silent --output says --write-out '%{http_code}' "$address/api/run?run=../../../etc" --header "Authorization: Bearer $token") == 404 ]] || return 1
  kill -TERM "$dash" && wait "$dash"
}

port_is_taken() {
  local port
  port=$(free_port 1)
  python3 -c 'import socket, sys, time; s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen(); time.sleep(600)' "$port" &
  local taken=$!
  until_true 20 taken_now "$port" || return 1
  ends 1 "$program" dash "$good" --port "$port" || ends 2 "$program" dash "$good" --port "$port" || return 1
  says "$port" && says "[LS" || return 1
  ends 1 "$program" metrics "$good" --listen "$port" || ends 2 "$program" metrics "$good" --listen "$port" || return 1
  says "$port" && says "[LS" && kill "$taken"
}
taken_now() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

ten_thousand() {
  python3 - <<'END'
import os
line = '{{"loss":{0},"step":{1},"step_ms":12.5,"time":"2026-01-02T04:49:46.492Z","tokens":{1}}}\n'
for run in range(10000):
    os.makedirs(f"runs/run-{run:05d}")
    with open(f"runs/run-{run:05d}/metrics.jsonl", "w") as out:
        for step in range(1, 4): out.write(line.format(2 + run / 1e5, step))
END
  cp -r "$good" runs/newest
  ends 0 timeout 60 "$program" top --once && says runs/newest && ends 0 timeout 60 "$program" why newest || return 1
  ends 0 timeout 60 "$program" metrics runs/run-000* && ends 0 timeout 60 "$program" plot runs/run-0000* --out plot.svg || return 1
  dash runs && until_true 60 lists 10001 && ask "/api/run?run=run-09999" >says && says '"step":3' || return 1
  kill -TERM "$dash" && wait "$dash"
}

# A file system whose server never answers, as a dead NFS mount is: FUSE, and nobody who reads the questions.
dead_mount() {
  [[ $(id -u) == 0 && -c /dev/fuse ]] || { echo "not here: needs root and /dev/fuse"; return 0; }
  mkdir -p runs/dead && cp -r "$good" runs/alive
  # shellcheck disable=SC2016  # the shell inside expands them
  unshare --mount --fork --kill-child bash -c '
    python3 - <<END &
import ctypes, os, time
device = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"dead", b"runs/dead", b"fuse", 0, f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()):
    os._exit(9)
open("mounted", "w").close()
time.sleep(600)
END
    for k in $(seq 100); do [[ -e mounted ]] && break; sleep 0.1; done
    [[ -e mounted ]] || exit 77
    "$@"' bash "$BASH" -c "$(declare -f dead_ones ends says until_true ask dash lists); program=$program good=$good; dead_ones"
  local code=$?
  [[ $code != 77 ]] || { echo "no FUSE here"; return 0; }
  return "$code"
}
dead_ones() {
  local word
  for word in "top runs/dead --once" "top runs/dead --json" "why runs/dead" "plot runs/dead" "metrics runs/dead" "metrics runs/dead --to csv" "attach runs/dead" \
    "profile runs/dead" "replay runs/dead --step 1" "audit runs/dead" "top --once" "metrics runs/dead --listen 0"; do
    # shellcheck disable=SC2086  # words
    ends 1 timeout 25 "$program" $word && says "has not answered for" && says LS0768 || { echo "$word"; return 1; }
  done
  # The page is there all the same, and says that it waits.
  dash runs && ask / >says && says "<title>" || return 1
  curl --silent --no-buffer --max-time 15 --header "Authorization: Bearer $token" "$address/api/live" >says
  grep -q '"waiting_s":[1-9]' says || { cat says; return 1; }
  kill -KILL "$dash"
  wait "$dash"
  return 0
}

row "half-written, empty, of another version, not a number, noise: shown or refused in a sentence" shown_or_refused
row "the dashboard shows them" dashboard_shows_them
row "a browser without the token" without_the_token
row "a port that is taken" port_is_taken
row "ten thousand runs in a folder" ten_thousand
row "a disk that does not answer" dead_mount
finish
