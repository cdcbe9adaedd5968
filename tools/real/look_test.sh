#!/usr/bin/env bash
# look_test.sh BUILD: looking into runs as users do: replay, audit, a profile of a run in flight, messages to a webhook, GPUs
# in `top` (a stand-in for NVML), W&B's folder. Python's standard library is enough for most. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need python3 python3
row_limit=300
small=(run.device=cpu run.threads=1 model.layers=2 model.hidden=32 model.heads=2 data.seq_len=16 batch.global=8 batch.slices=4
  checkpoint.every=10 checkpoint.keep=9 log.every=1 "log.folder=$work/runs")

"$program" audit --make-key "$work/key.pem" >"$work/train" 2>&1
LOCKSTEP_CHAIN_KEY=$work/key.pem "$program" train "${small[@]}" run.steps=25 run.name=first log.chain=true --nproc 2 >>"$work/train" 2>&1 || {
  cat "$work/train"
  exit 1
}

# fields JSON KEY...: those of an object, one a line.
fields() { python3 -c 'import json, sys
one = json.loads(sys.argv[1])
for key in sys.argv[2:]: print(one[key])' "$@"; }

replay_has_the_runs_bits() {
  local step logged
  for step in 1 11 17 25; do
    logged=$(sed -n "/\"loss_hex\"/p" "$work/runs/first/metrics.jsonl" | sed -n "${step}p")
    [[ $(fields "$("$program" replay "$work/runs/first" --step "$step" --json)" loss_hex params_hash same) == \
      "$(fields "$logged" loss_hex params_hash)"$'\n'True ]] || return 1
  done
  "$program" replay "$work/runs/first" --step 17 --where | grep -q "checkpoint of step 10: 6 steps on the way" || return 1
  ! "$program" replay "$work/runs/first" --step 26 >says 2>&1 && grep -q LS0350 says
}

replay_compares() {
  # What is misspelled is refused before anything is computed.
  ! "$program" replay "$work/runs/first" --step 5 --against nosuch >says 2>&1 && grep -q LS0109 says && ! grep -q "params_hash" says || return 1
  "$program" train "${small[@]}" run.steps=12 run.name=second optim.lr=1e-3 -q || return 1
  "$program" replay "$work/runs/first" --step 5 --blocks --against "$work/runs/second" >says || return 1
  grep -q "gradient norm" says && grep -q "first different is the weights of" says
}

audit_passes_and_fails() {
  "$program" audit "$work/runs/first" --steps 3 --key "$work/key.pem.pub" --seed 4 >says || { cat says && return 1; }
  grep -q "^passed" says && grep -q "25 signatures\|28 signatures\|26 signatures" says || return 1
  cp -r "$work/runs/first" tampered
  sed -i '7s/"grad_norm":[0-9.]*/"grad_norm":0.5/' tampered/metrics.jsonl
  ! "$program" audit tampered --steps 0 >says 2>&1 && grep -q "line 7 " says && grep -q LS0338 says
}

profile_in_flight() {
  "$program" train "${small[@]}" run.steps=100000 run.name=long checkpoint.every=0 -q --nproc 2 >train 2>&1 &
  local run=$!
  until_true 60 grep -q '"step":20,' "$work/runs/long/metrics.jsonl" || return 1
  "$program" profile "$work/runs/long" --steps 3 --json >profile || return 1
  [[ $(python3 -c 'import json
one = json.load(open("profile"))
print(one["ranks"], one["last_step"] - one["first_step"] + 1, any(row["instruction"] == "update" for row in one["kinds"]))') == "2 3 True" ]] || return 1
  kill -0 $run && "$program" why "$work/runs/long" | grep -q "where the time goes" || return 1
  kill -TERM $run && wait $run
  [[ $? == 75 ]] && ! "$program" profile "$work/runs/long" >says 2>&1 && grep -q LS0765 says
}

webhook() { python3 - "$1" <<'END' &
import http.server, sys
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        open("told", "a").write(self.path + " " + text + "\n")
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
open(sys.argv[1], "w").write(f"http://127.0.0.1:{server.server_port}/services/s3cret\n")
server.serve_forever()
END
}

messages_arrive() {
  webhook hook
  until_true 20 test -s hook || return 1
  "$program" notify --to file:hook --test hello && grep -q '/services/s3cret {"text":"hello"}' told || return 1
  "$program" train "${small[@]}" run.steps=5 run.name=told -q --notify "file:$PWD/hook" || return 1
  until_true 20 grep -q "told on .*: end at step 5" told || return 1
  # Killed without a chance to say so.
  "$program" train "${small[@]}" run.steps=100000 run.name=killed -q --notify "file:$PWD/hook" &
  local run=$!
  until_true 60 test -s "$work/runs/killed/metrics.jsonl" || return 1
  kill -KILL $run
  until_true 20 grep -q "killed on .*: failure .*nothing in its log says why" told || return 1
  ! grep -rq s3cret "$work/runs" && ! "$program" train --notify http://x/s3cret >says 2>&1 && ! grep -q s3cret says && grep -q LS0766 says
}

nobody_answers() {
  echo http://127.0.0.1:9/s3cret >dead
  local began=$SECONDS
  "$program" train "${small[@]}" run.steps=5 run.name=unheard -q --notify "file:$PWD/dead" || return 1
  ((SECONDS - began < 60)) && until_true 30 grep -q "was not told" "$work/runs/unheard/logs/notify.log" &&
    ! grep -q s3cret "$work/runs/unheard/logs/notify.log"
}

# A controller as Kubeflow Trainer's: TLS by a certificate of its own, a bearer token that changes.
trainer() { python3 - "$1" <<'END' &
import http.server, ssl, sys
class Trainer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        who = self.headers.get("Authorization", "nobody")
        open("progress", "a").write(f"{self.path} {who} {text}\n")
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Trainer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("trainer.pem", "trainer.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
open(sys.argv[1], "w").write(f"https://localhost:{server.server_port}/namespaces/a/trainjobs/b/status")
server.serve_forever()
END
}

kubeflow_is_told() {
  command -v openssl >/dev/null || return 0
  local name
  for name in trainer other; do
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
      -keyout $name.key -out $name.pem 2>/dev/null || return 1
  done
  trainer address && until_true 20 test -s address || return 1
  echo "first-token" >token
  export KUBEFLOW_TRAINER_SERVER_TOKEN=$PWD/token KUBEFLOW_TRAINER_SERVER_CA_CERT=$PWD/trainer.pem
  local -x KUBEFLOW_TRAINER_SERVER_URL
  KUBEFLOW_TRAINER_SERVER_URL=$(<address)
  "$program" train "${small[@]}" run.steps=5 run.name=job -q --nproc 2 || return 1
  python3 - progress <<'END' || { cat progress "$work/runs/job/logs/notify.log"; return 1; }
import json, sys
lines = [line.split(" ", 3) for line in open(sys.argv[1])]
assert lines and all(path == "/namespaces/a/trainjobs/b/status" for path, *_ in lines), lines
assert all(token == "first-token" for _, _, token, _ in lines), lines
status = json.loads(lines[-1][3])["trainerStatus"]
assert status["progressPercentage"] == 100 and status["estimatedRemainingSeconds"] == 0, status
metrics = {metric["name"]: metric["value"] for metric in status["metrics"]}
assert metrics["step"] == "5" and float(metrics["loss"]) > 0 and status["lastUpdatedTime"].endswith("Z"), status
END
  # Another node, a controller that is not who it should be: the run is what it is.
  local reports
  reports=$(wc -l <progress)
  JOB_COMPLETION_INDEX=1 "$program" train "${small[@]}" run.steps=2 run.name=second_node -q || return 1
  KUBEFLOW_TRAINER_SERVER_CA_CERT=$PWD/other.pem "$program" train "${small[@]}" run.steps=2 run.name=forged -q || return 1
  [[ $(wc -l <progress) == "$reports" ]] && grep -q "certificate is not accepted" "$work/runs/forged/logs/notify.log" &&
    ! grep -rq first-token "$work/runs"
}

# On a terminal, ended by a key, by Ctrl-C, from outside: it is as it was.
terminal_as_it_was() {
  "$program" train "${small[@]}" run.steps=2 run.name=shown -q || return 1
  python3 - "$program" "$work/runs/shown" <<'END'
import fcntl, os, pty, signal, subprocess, sys, termios
for keys in (b"q", b"\x03", b"\x1c", "TERM", "HUP"):
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    def controlling():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    top = subprocess.Popen([sys.argv[1], "top", sys.argv[2]], stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=controlling)
    shown = b""
    while b"finished" not in shown: shown += os.read(ours, 65536)
    assert termios.tcgetattr(theirs) != before, "no keys without Enter"
    if isinstance(keys, bytes): os.write(ours, keys)
    else: top.send_signal(getattr(signal, "SIG" + keys))
    code = top.wait(20)
    assert termios.tcgetattr(theirs) == before, f"after {keys}: the terminal has changed"
    assert code == 0 if keys == b"q" else code < 0, (keys, code)
END
}

gpus_in_top() {
  [[ -e $(dirname "$program")/fake_gpu/libnvidia-ml.so.1 ]] || return 0
  export LD_LIBRARY_PATH=$(dirname "$program")/fake_gpu FAKE_GPU="NVIDIA H200"
  FAKE_GPU_NOW="42 150000000000 151000000000 650000 1400 88 36 2 79" "$program" top "$work/runs/first" --json >top || return 1
  unset LD_LIBRARY_PATH FAKE_GPU
  python3 - <<'END'
import json
gpu, = json.load(open("top"))["gpus"]
assert gpu["utilization"] == 0.42 and gpu["watts"] == 650 and gpu["clock_mhz"] == 1400 and gpu["celsius"] == 88, gpu
assert gpu["throttled"] == ["power cap", "heat"] and gpu["ecc_uncorrected"] == 2 and gpu["xids"] == [79], gpu
words = " ".join(gpu["warnings"])
assert "above 95 %" in words and "heat" in words and "XID 79" in words and "could not be corrected" in words, words
assert "below 90 %" not in words, "nothing trains"
END
}

# An independent reader of the log, with W&B's own messages where they are installed.
wandb_reads() {
  "$program" metrics "$work/runs/first" --to wandb --out wandb || return 1
  "${WANDB_PYTHON:-python3}" - "$work/runs/first/metrics.jsonl" wandb/offline-run-*/run-*.wandb <<'END'
import json, struct, sys, zlib
data = open(sys.argv[2], "rb").read()
assert data[:7] == b":W&B" + struct.pack("<HB", 0xBEE1, 0)
at, records, parts = 7, [], b""
while at < len(data):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    crc, size, kind = struct.unpack("<IHB", data[at:at + 7])
    part = data[at + 7:at + 7 + size]
    assert zlib.crc32(part, zlib.crc32(bytes([kind]))) == crc
    parts += part
    if kind in (1, 4): records.append(parts); parts = b""
    at += 7 + size
rows = {}
for line in open(sys.argv[1]): rows.setdefault(json.loads(line)["step"], {}).update(json.loads(line))
rows = list(rows.values())  # an evaluation joins its step
assert len(records) == 2 + 2 * len(rows) + 1, len(records)
try:
    from wandb.proto import wandb_internal_pb2 as messages
except ImportError:
    sys.exit()
read = [messages.Record.FromString(one) for one in records]
assert [one.num for one in read] == list(range(1, len(read) + 1))
assert read[1].run.display_name == "first" and read[1].run.project == "lockstep"
config = {item.key: json.loads(item.value_json) for item in read[1].run.config.update}
assert config["model.hidden"] == 32 and config["run.name"] == "first", config
history = [one.history for one in read if one.WhichOneof("record_type") == "history"]
for row, seen in zip(rows, history):
    values = {item.key: json.loads(item.value_json) for item in seen.item}
    assert values["_step"] == seen.step.num == row["step"]
    assert all(values[key] == row[key] for key in ("loss", "eval_loss") if key in row), (row, values)
assert read[-1].exit.exit_code == 0
END
}

row "any step again, with the bits that two ranks logged" replay_has_the_runs_bits
row "every block's numbers, and what differs first" replay_compares
row "an audit passes, and finds what was tampered with" audit_passes_and_fails
row "three steps of a run in flight are profiled" profile_in_flight
row "a webhook is told how runs end" messages_arrive
row "a webhook that does not answer holds up nobody" nobody_answers
row "Kubeflow Trainer is told the progress" kubeflow_is_told
row "top leaves the terminal as it was" terminal_as_it_was
row "GPUs in top" gpus_in_top
row "W&B's messages are in W&B's log" wandb_reads
finish
