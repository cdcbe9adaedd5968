#!/usr/bin/env bash
# wandb_test.sh BUILD: the real `wandb sync` uploads what `metrics --to wandb` writes, to a stand-in for its server. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_python wandb
row_limit=300

"$program" train model.layers=1 model.hidden=32 model.heads=2 data.seq_len=16 batch.global=4 run.steps=30 run.name=first \
  log.folder="$work/runs" >"$work/train" 2>&1 || {
  cat "$work/train"
  exit 1
}

sync_accepts() {
  python3 "$here/wandb_peer.py" address history &
  until_true 20 test -s address || return 1
  "$program" metrics "$work/runs/first" --to wandb || return 1
  WANDB_BASE_URL=$(cat address) WANDB_API_KEY=$(printf 'a%.0s' {1..40}) "$python" -m wandb sync --yes wandb/offline-run-* >says 2>&1
  says "Finished syncing" || return 1
  python3 - "$work/runs/first/metrics.jsonl" history <<'END'
import json, sys
ours = [json.loads(line) for line in open(sys.argv[1])]
theirs = {}
for line in open(sys.argv[2]):
    one = json.loads(line)
    theirs.setdefault(one["_step"], {}).update(one)
for row in ours:
    for name in ("loss", "eval_loss", "lr", "grad_norm"):
        assert name not in row or theirs[row["step"]][name] == row[name], (row, theirs.get(row["step"]))
END
}

row "wandb sync uploads every step" sync_accepts
finish
