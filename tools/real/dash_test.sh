#!/usr/bin/env bash
# dash_test.sh BUILD: the dashboard in a real browser: a script clicks through it. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need chromium chromium
need_python playwright axe_playwright_python
row_limit=300
small=(model.layers=1 model.hidden=32 model.heads=2 data.seq_len=16 batch.global=8 log.every=1 --quiet)

train() { "$program" train "${small[@]}" log.folder="$work/runs" "$@" >>"$work/train" 2>&1; }
{ train run.name=first run.steps=60 && train run.name=second run.steps=60 optim.lr=3e-3 &&
  train run.name=ranks run.steps=60 --nproc 2 --profile 20:21; } || {
  cat "$work/train"
  exit 1
}

# dash ROOT: starts one; $url is its address.
dash() {
  "$program" dash "$1" --port 0 >address &
  dash_id=$!
  until_true 30 test -s address || return 1
  url=$(head -n 1 address)
}
click() { "$python" "$here/dash_peer.py" "$@"; }

clicks_through() {
  dash "$work/runs" && click all "$url" "$PWD" && kill -TERM "$dash_id" && wait "$dash_id"
}

follows_a_run() {
  "$program" train "${small[@]}" log.folder="$work/runs" run.name=live run.steps=1000000 >said 2>&1 &
  local run=$!
  until_true 60 test -s "$work/runs/live/metrics.jsonl" && dash "$work/runs" && click live "$url"
  local code=$?
  kill -TERM "$run" "$dash_id"
  wait "$run"
  rm -rf "$work/runs/live"
  return "$code"
}

damaged_runs_are_shown() {
  mkdir -p runs/{empty,torn,binary,nan,future,unreadable}
  touch runs/empty/metrics.jsonl
  head -c 500 "$work/runs/first/metrics.jsonl" >runs/torn/metrics.jsonl
  head -c 5000 /dev/urandom >runs/binary/metrics.jsonl
  head -c 5000 /dev/urandom >runs/binary/config.toml
  printf '{"step":1,"loss":null}\n{"step":2,"loss":NaN}\n{"step":3,"loss":2.5}\n{"step":4,"loss":1e999}\n' >runs/nan/metrics.jsonl
  printf '[run]\nname = "<img src=x onerror=alert(1)>"\nfrom_the_future = 1\n' >runs/future/config.toml
  cp -r "$work/runs/first" 'runs/<b>bold'
  mkdir runs/unreadable/metrics.jsonl
  dash runs && click damaged "$url"
}

without_the_token() {
  dash "$work/runs" || return 1
  click refused "${url%%\?*}" && [[ $(curl -s -o /dev/null -w '%{http_code}' "${url%%\?*}api/runs") == 401 ]] &&
    curl -sf -H "Authorization: Bearer ${url##*=}" "${url%%\?*}api/runs" | grep -q '"name":"second"'
}

a_port_that_is_taken() {
  dash "$work/runs" || return 1
  local port=${url##*:}
  ends 2 "$program" dash "$work/runs" --port "${port%%/*}" && says LS0764 &&
    ends 2 "$program" dash no-such-folder && says "is no folder" &&
    ends 2 "$program" dash "$work/runs" --host 0.0.0.0 --no-token && says "--no-token is for 127.0.0.1 only"
}

need curl curl
row "a script clicks through every view: no console errors, axe finds nothing" clicks_through
row "a run that trains is followed without reloading" follows_a_run
row "damaged runs and hostile names are shown plainly" damaged_runs_are_shown
row "a browser without the token is told what to do" without_the_token
row "a taken port, a missing folder, an open door are refused" a_port_that_is_taken
finish
