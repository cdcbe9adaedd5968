#!/usr/bin/env bash
# dash_bench.sh BUILD: how long the dashboard takes to open, in a real browser: 50 runs of 2,000 steps, one of a million, and
# 10,000 runs; and what looking costs. Prints a line each; nothing fails because a machine is slow.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need chromium chromium
need_python playwright axe_playwright_python

# runs FOLDER RUNS STEPS
runs() {
  python3 - "$@" <<'END_OF_PYTHON'
import math, os, random, sys
folder, runs, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
line = '{{"data_wait_ms":0.01,"grad_norm":{0:.6f},"loss":{1:.9f},"loss_hex":"0x1.2p+1","lr":0.001,"mem_gib":1.5,"mfu":null,"step":{2},"step_ms":12.5,"time":"2026-01-02T04:49:46.492Z","tokens":{3},"tokens_per_s":12345.6}}\n'
for run in range(runs):
    os.makedirs(f"{folder}/run-{run:05d}")
    with open(f"{folder}/run-{run:05d}/metrics.jsonl", "w") as out:
        for step in range(1, steps + 1):
            loss = 2 + 3 / math.sqrt(step) + random.random() / 10
            out.write(line.format(loss / 2, loss, step, step * 512))
    with open(f"{folder}/run-{run:05d}/config.toml", "w") as out:
        out.write(f'[run]\nsteps = {steps}\n[model]\nfamily = "gpt2"\n[optim]\nlr = {random.random():.3g}\n')
END_OF_PYTHON
}

for shape in "50 2000 50" "1 1000000 1" "10000 10 200"; do
  read -r many steps listed <<<"$shape"
  runs "$work/runs-$many" "$many" "$steps"
  "$program" dash "$work/runs-$many" --port 0 >"$work/address-$many" 2>/dev/null &
  dash=$!
  until_true 30 test -s "$work/address-$many"
  sleep 2
  printf '%s runs of %s steps: ' "$many" "$steps"
  "$python" "$here/dash_peer.py" time "$(head -n 1 "$work/address-$many")" "$listed"
  kill -TERM "$dash"
  wait "$dash"
done

# What looking takes from the machine that trains: processor time of the dashboard with an open page, and of an exporter that is
# asked every five seconds. The browser itself is not counted: it is usually elsewhere.
seconds=30
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
"$program" train model.layers=2 model.hidden=64 model.heads=4 data.seq_len=64 batch.global=16 log.every=1 log.folder="$work/live" \
  run.name=live run.steps=1000000 --quiet >"$work/said" 2>&1 &
run=$!
until_true 60 test -s "$work/live/live/metrics.jsonl"
"$program" dash "$work/live" --port 0 >"$work/page" 2>/dev/null &
dash=$!
"$program" metrics "$work/live/live" --listen 0 >"$work/exporter" 2>/dev/null &
exporter=$!
until_true 30 test -s "$work/page"
"$python" "$here/dash_peer.py" look "$(head -n 1 "$work/page")" $((seconds + 5)) &
sleep 4
before=$(ticks "$dash") asked_before=$(ticks "$exporter") rows_before=$(wc -l <"$work/live/live/metrics.jsonl")
for ((i = 0; i < seconds / 5; ++i)); do
  curl -s "$(cat "$work/exporter")" >"$work/answer"
  sleep 5
done
hertz=$(getconf CLK_TCK) rows=$(($(wc -l <"$work/live/live/metrics.jsonl") - rows_before))
awk -v dash=$(($(ticks "$dash") - before)) -v exporter=$(($(ticks "$exporter") - asked_before)) -v all=$((seconds * hertz)) -v rows=$rows 'BEGIN {
  printf "while a run logged %d steps in a page: dash %.2f %% of one core, metrics --listen %.2f %%\n", rows, 100 * dash / all, 100 * exporter / all }'
kill -TERM "$run" "$dash" "$exporter"
wait
