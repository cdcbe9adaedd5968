#!/usr/bin/env bash
# Takes the dashboard's pictures in docs/images again: docs/images/dash.sh (needs chromium; PYTHON names one with playwright and
# axe-playwright-python).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
program=${LOCKSTEP_PROGRAM:-$here/../../build/lockstep}
scratch=$(mktemp -d)
trap 'kill "${dash:-}" 2>/dev/null || true; rm -rf "$scratch"' EXIT
cd "$scratch"
words=(model.layers=2 model.hidden=64 model.heads=4 data.seq_len=64 batch.global=16 log.every=1 log.eval_every=50 --quiet)
"$program" train "${words[@]}" run.steps=400 run.name=first
"$program" train "${words[@]}" run.steps=400 run.name=second optim.lr=3e-3
"$program" train "${words[@]}" run.steps=300 run.name=ranks --nproc 2 --profile 20:21
"$program" dash --port 0 >address &
dash=$!
until [[ -s address ]]; do sleep 0.1; done
"${PYTHON:-python3}" "$here/../../tools/real/dash_peer.py" all "$(head -n 1 address)" "$scratch"
cp light-1280.png "$here/dash.png"
cp timeline.png "$here/dash-timeline.png"
