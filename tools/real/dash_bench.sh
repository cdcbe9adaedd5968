#!/usr/bin/env bash
# dash_bench.sh BUILD: how long the dashboard takes to open, in a real browser: 50 runs of 2,000 steps, one of a million, and
# 10,000 runs. Prints a line each; nothing fails because a machine is slow.
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
