#!/usr/bin/env bash
# see_test.sh BUILD: metrics of runs in the hands of the programs they are written for. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_python tensorboard pandas
row_limit=300
small=(model.layers=1 model.hidden=32 model.heads=2 data.seq_len=16 batch.global=4 log.every=1 checkpoint.every=10)

"$program" train "${small[@]}" run.steps=30 run.name=first log.folder="$work/runs" >"$work/train" 2>&1 || {
  cat "$work/train"
  exit 1
}

tensorboard_reads() {
  "$program" metrics "$work/runs/first" --to tensorboard --out board || return 1
  "$python" - "$work/runs/first" board/first <<'END'
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
rows = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
board = EventAccumulator(sys.argv[2], size_guidance={"scalars": 0}).Reload()
for name in ("loss", "eval_loss", "lr", "tokens_per_s"):
    ours = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    theirs = [(one.step, one.value) for one in board.Scalars(name)]
    assert [step for step, _ in ours] == [step for step, _ in theirs], (name, ours, theirs)
    assert all(abs(a - b) <= 1e-6 * abs(a) for (_, a), (_, b) in zip(ours, theirs)), name
assert "[run]" in board.Tensors("recipe/text_summary")[0].tensor_proto.string_val[0].decode()
hparams = plugin_data_pb2.HParamsPluginData.FromString(board.summary_metadata["_hparams_/session_start_info"].plugin_data.content)
assert hparams.session_start_info.hparams["model.hidden"].number_value == 32
assert hparams.session_start_info.hparams["run.exact"].bool_value is True
END
}

# A run is cut back while it is followed: what TensorBoard shows in the end is the run's own file.
restart_without_zigzag() {
  cp -r "$work/runs/first" run && rm run/events.jsonl
  "$program" metrics run --to tensorboard --out board --follow &
  local follower=$!
  until_true 30 compgen -G 'board/run/events*' >/dev/null
  sleep 1.5
  head -n 12 "$work/runs/first/metrics.jsonl" >run/metrics.jsonl
  sleep 2.5
  sed -n 13,20p "$work/runs/first/metrics.jsonl" | sed 's/"loss":[0-9.]*/"loss":1.5/' >>run/metrics.jsonl
  echo '{"event":"finished"}' >run/events.jsonl
  until_true 30 gone "$follower" || return 1
  "$python" - <<'END'
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
losses = EventAccumulator("board/run", size_guidance={"scalars": 0}).Reload().Scalars("loss")
assert [one.step for one in losses] == list(range(1, 21)), losses
assert losses[-1].value == 1.5 and losses[11].value != 1.5
END
}

pandas_reads() {
  "$program" metrics "$work/runs/first" --to csv --out first.csv || return 1
  "$python" - "$work/runs/first/metrics.jsonl" <<'END'
import json, sys
import pandas
table = pandas.read_csv("first.csv")
losses = [row["loss"] for row in map(json.loads, open(sys.argv[1])) if "loss" in row]
assert list(table["loss"].dropna()) == losses and table["step"].iloc[-1] == 30
END
}

picture_is_xml() {
  "$program" plot "$work/runs/first" --metric loss,grad_norm --smooth 0.8 --log-y --out curves.svg || return 1
  "$python" -c 'import xml.etree.ElementTree as tree; assert len(tree.parse("curves.svg").getroot().findall(".//{*}path")) > 10'
}

row "TensorBoard reads scalars, the recipe and hparams" tensorboard_reads
row "a restart while it is followed leaves no zigzag" restart_without_zigzag
row "pandas reads the CSV" pandas_reads
row "the picture is XML with its curves" picture_is_xml
finish
