#!/usr/bin/env bash
# see_test.sh BUILD: metrics of runs in the hands of the programs they are written for. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_python tensorboard pandas
row_limit=300
small=(model.layers=1 model.hidden=32 model.heads=2 data.seq_len=16 batch.global=4 log.every=1 checkpoint.every=10 log.histograms=10)

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

# Counts as the run wrote them, and in the page's own answers.
tensorboard_histograms() {
  "$program" metrics "$work/runs/first" --to tensorboard --out board || return 1
  "$python" - "$work/runs/first/histograms.jsonl" board <<'END'
import json, re, socket, subprocess, sys, time, urllib.parse, urllib.request
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
rows = [json.loads(line) for line in open(sys.argv[1])]
assert {row["step"] for row in rows} == {10, 20, 30}, rows
board = EventAccumulator(sys.argv[2] + "/first", size_guidance={"histograms": 0}).Reload()
assert set(board.Tags()["histograms"]) == {"gradient/" + row["block"] for row in rows}
for row in rows:
    found = [one.histogram_value for one in board.Histograms("gradient/" + row["block"]) if one.step == row["step"]]
    assert len(found) == 1, (row["step"], row["block"])
    assert list(found[0].bucket) == row["counts"] and found[0].num == row["count"] == sum(row["counts"])
    assert found[0].min == row["smallest"] and found[0].max == row["largest"]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
page = subprocess.Popen([sys.executable, "-m", "tensorboard.main", "--logdir", sys.argv[2], "--port", str(port), "--load_fast=false"],
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    tag = urllib.parse.quote("gradient/" + rows[0]["block"])
    for _ in range(600):
        try:
            shown = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/data/plugin/histograms/histograms?run=first&tag={tag}"))
            if len(shown) == 3: break
        except OSError:
            pass
        time.sleep(0.2)
    assert [one[1] for one in shown] == [10, 20, 30], shown
    total = sum(bucket[2] for bucket in shown[0][2])
    assert abs(total - rows[0]["count"]) < 1e-6 * total, (total, rows[0]["count"])
finally:
    page.terminate()
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

# What MLflow reads back, also after the run was cut back and went on.
mlflow_reads() {
  [[ -n ${LOCKSTEP_TEST_PYTHON:-} ]] || "$python" -m pip install --quiet mlflow-skinny >/dev/null 2>&1
  "$python" -c 'import mlflow' 2>/dev/null || { echo "not tried: no mlflow"; return 0; }
  cp -r "$work/runs/first" run
  "$program" metrics run --to mlflow && "$program" metrics run --to mlflow || return 1
  MLFLOW_ALLOW_FILE_STORE=true "$python" - <<'END'
import json
from mlflow.tracking import MlflowClient
client = MlflowClient("file:mlruns")
experiment = client.get_experiment_by_name("lockstep")
(run,) = client.search_runs([experiment.experiment_id])  # written twice, there once
rows = [json.loads(line) for line in open("run/metrics.jsonl")]
for name in ("loss", "eval_loss", "tokens_per_s"):
    ours = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    theirs = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
    assert ours == theirs, (name, ours, theirs)
assert run.info.status == "FINISHED" and run.info.run_name == "run", run.info
assert run.data.params["model.hidden"] == "32" and run.data.params["optim.name"] == "adamw", run.data.params
END
}

promtool_is_content() {
  command -v promtool >/dev/null || { echo "not tried: no promtool (package prometheus)"; return 0; }
  "$program" metrics "$work/runs/first" --to prometheus | promtool check metrics || return 1
  cp -r "$work/runs/first" first
  "$program" metrics "$work/runs/first" first --listen 0 >address &
  until_true 30 test -s address || return 1
  "$python" - "$(cat address)" <<'END' | promtool check metrics
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1]).read().decode(), end="")
END
}

# A real Prometheus comes by, and knows every name that the Grafana board asks for.
prometheus_scrapes() {
  command -v prometheus >/dev/null || { echo "not tried: no prometheus"; return 0; }
  "$program" metrics "$work/runs/first" --listen 0 >address &
  until_true 30 test -s address || return 1
  local target port
  target=$(sed -n 's|^http://\(.*\)/metrics$|\1|p' address)
  port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  printf 'global: {scrape_interval: 1s}\nscrape_configs: [{job_name: lockstep, static_configs: [{targets: ["%s"]}]}]\n' "$target" >prometheus.yml
  prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address="127.0.0.1:$port" >said 2>&1 &
  "$python" - "$port" "$work/runs/first" "$here/../../docs/grafana.json" <<'END'
import json, re, sys, time, urllib.parse, urllib.request
def ask(expression):
    try:
        url = f"http://127.0.0.1:{sys.argv[1]}/api/v1/query?query=" + urllib.parse.quote(expression)
        return json.load(urllib.request.urlopen(url))["data"]["result"]
    except OSError:
        return []
for _ in range(60):
    if (found := ask("lockstep_loss")): break
    time.sleep(0.5)
rows = [json.loads(line) for line in open(sys.argv[2] + "/metrics.jsonl")]
loss = [row["loss"] for row in rows if "loss" in row][-1]
assert found and found[0]["metric"]["run"] == "first" and float(found[0]["value"][1]) == loss, found
board = json.load(open(sys.argv[3]))
names = {name for panel in board["panels"] for target in panel["targets"] for name in re.findall(r"lockstep_\w+", target["expr"])}
missing = [name for name in names if not ask(name) and not name.startswith("lockstep_rank_")]  # ranks have ended
assert len(names) > 5 and not missing, missing
END
}

row "TensorBoard reads scalars, the recipe and hparams" tensorboard_reads
row "TensorBoard shows histograms of gradients" tensorboard_histograms
row "a restart while it is followed leaves no zigzag" restart_without_zigzag
row "pandas reads the CSV" pandas_reads
row "MLflow reads metrics and parameters, once" mlflow_reads
row "promtool finds nothing wrong, with one run and with two of a name" promtool_is_content
row "Prometheus scrapes, and has every name of the Grafana board" prometheus_scrapes
row "the picture is XML with its curves" picture_is_xml
finish
