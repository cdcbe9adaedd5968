# shellcheck shell=bash disable=SC2154
# What the tests with object stores share: the files they read, and rows that hold for any store. After common.sh, with `peer`
# and LOCKSTEP_OBJECT_CACHE set.

# What everything below reads: texts as Parquet and JSONL, a tokenizer, and token files.
files=$work/files
mkdir "$files"
"$python" - "$files" <<'PYTHON' || exit 1
import json, random, sys
import pyarrow as pa, pyarrow.parquet as pq
random.seed(7)
words = ["ship", "harbour", "light", "rope", "tide", "sail", "anchor", "fog", "bell", "north"]
texts = [" ".join(random.choices(words, k=random.randrange(5, 60))) + ".\n" for _ in range(3000)]
for i in range(3):
    part = texts[i::3]
    pq.write_table(pa.table({"text": part}), f"{sys.argv[1]}/part-{i}.parquet", row_group_size=200)
    with open(f"{sys.argv[1]}/part-{i}.jsonl", "w") as out:
        out.writelines(json.dumps({"text": text}) + "\n" for text in part)
PYTHON
"$program" tokenize --train "$files/part-0.jsonl" --vocab-size 300 --out "$work/tokenizer" >/dev/null || exit 1
"$program" tokenize "$files/*.jsonl" --tokenizer "$work/tokenizer" --out "$files/tokens" >/dev/null || exit 1

# fill URI: a bucket with what the rows read.
fill() {
  peer put "$1/corpus/" "$files"/*.parquet && peer put "$1/lines/" "$files"/part-[01].jsonl && peer put "$1/tokens/" "$files"/tokens/*.bin &&
    peer put "$1/tokenizer/" "$work"/tokenizer/*
}

ids_of() { for file in "$1"/*.bin; do tail -c +1025 "$file"; done; }

# same_ids URI TOKENIZER: its tokens are those of the local files.
same_ids() {
  ends 0 "$program" tokenize "$1" --tokenizer "$2" --field text --out out || return 1
  cmp <(ids_of out) <(ids_of "$files/tokens")
}

# trained NAME KEYS...: its params_hash is in the file NAME.
trained() {
  local name=$1
  shift
  ends 0 "$program" train "$recipe" run.name="$name" run.steps=6 run.device=cpu "${small[@]}" model.vocab=300 "$@" --json ||
    return 1
  hash_of says >"$name"
  [[ -s $name ]]
}

# as_local PATH KEYS...: training on it gives the bits of training on the local files.
as_local() {
  trained local data.path="$files/tokens" || return 1
  trained there data.path="$1" "${@:2}" || return 1
  cmp local there
}

# streamed URI KIND
streamed() {
  export LOCKSTEP_OBJECT_CACHE_GIB=0.00002
  export LOCKSTEP_OBJECT_CACHE=$PWD/cache
  as_local "$1/tokens/" data.kind="$2" || return 1
  [[ -z $(find cache -name '*.bin') ]] || { echo "it was fetched"; find cache; return 1; }
}

# refused CODE NUMBER KEYS...: a sentence without secrets.
refused() {
  local code=$1 number=$2
  shift 2
  ends "$code" "$program" train "$recipe" run.name=refused run.steps=1 run.device=cpu "${small[@]}" model.vocab=300 "$@" ||
    return 1
  says "LS0$number" || return 1
  ! grep -rq SECRET says runs 2>/dev/null || { echo "a secret is told"; grep -r SECRET says runs; return 1; }
}

# to_store URI: checkpoints there, a run that goes on from an empty disk, and commands that read it.
to_store() {
  trained alone log.eval_every=0 || return 1
  keys=(checkpoint.every=2 checkpoint.keep=2 checkpoint.to="$1/runs/a")
  ends 0 "$program" train "$recipe" run.name=a run.steps=4 run.device=cpu "${small[@]}" model.vocab=300 "${keys[@]}" || return 1
  says "uploaded to $1/runs/a" || return 1
  rm -rf runs
  ends 0 "$program" train "$recipe" run.name=a run.steps=6 run.device=cpu "${small[@]}" model.vocab=300 "${keys[@]}" --json ||
    return 1
  [[ $(hash_of says) == "$(cat alone)" ]] || { cat says; echo "other bits than without the break: $(cat alone)"; return 1; }
  [[ $(peer list "$1/runs/a/checkpoints/" | grep -c manifest.json) == 2 ]] || { peer list "$1/runs/a"; return 1; }
  rm -rf runs
  ends 0 "$program" inspect "$1/runs/a" --check || return 1
  says "checkpoint of step 6" && says "all checksums and params_hash are correct" || return 1
  ends 0 "$program" export "$1/runs/a" model || return 1
  [[ -s model/config.json ]] || { ls model; return 1; }
  ends 0 "$program" train "$recipe" run.name=b run.steps=1 run.device=cpu "${small[@]}" model.vocab=300 model.from="$1/runs/a"
}

# The newest checkpoint in the store is damaged: the one before is taken, as on a disk, and commands do the same.
damaged_newest() {
  trained alone log.eval_every=0 || return 1
  local keys=(checkpoint.every=2 checkpoint.keep=3 "checkpoint.to=$1/runs/damaged" run.name=damaged)
  local words=(train "$recipe" run.device=cpu "${small[@]}" model.vocab=300 "${keys[@]}")
  ends 0 "$program" "${words[@]}" run.steps=2 || return 1  # or a newer one might take its place
  ends 0 "$program" "${words[@]}" run.steps=4 || return 1
  local weights=runs/damaged/checkpoints/step-00000004/model-00001-of-00001.safetensors
  printf 'XXXX' | dd of=$weights bs=1 seek=$(($(stat -c %s $weights) - 40)) conv=notrunc status=none
  peer put "$1/runs/damaged/checkpoints/step-00000004/" $weights || return 1
  rm -rf runs
  ends 0 "$program" "${words[@]}" run.steps=6 --json || return 1
  says "LS0305" && says "fetched the checkpoint of step 2" || return 1
  [[ $(hash_of says) == "$(cat alone)" ]] || { cat says; return 1; }
  # What an upload that was killed at its last moment leaves in Azure: an empty manifest is none.
  [[ $1 == gs:* ]] && return 0  # its emulator takes no empty object
  : >manifest.json
  peer put "$1/runs/damaged/checkpoints/step-00000008/" manifest.json || return 1
  ends 0 "$program" inspect "$1/runs/damaged" || return 1
  says "step 6"
}

# Two runs with one checkpoint.to, and one run that is started twice.
two_runs() {
  local words=(train "$recipe" run.device=cpu "${small[@]}" model.vocab=300 run.steps=2 "checkpoint.to=$1/runs/two")
  ends 0 "$program" "${words[@]}" run.name=first || return 1
  ends 2 "$program" "${words[@]}" run.name=second || return 1
  says "LS0351" && says '"first"' || return 1
  [[ ! -e runs/second/store.json && ! -e runs/second/checkpoints ]] || { ls -R runs/second; return 1; }
  ends 2 "$program" "${words[@]}" run.name=second --resume never || return 1
  ends 0 "$program" "${words[@]}" run.name=first run.steps=4 || return 1  # its own place
  rm -rf runs
  ends 0 "$program" "${words[@]}" run.name=first run.steps=6  # on a new machine
  says "fetched the checkpoint of step 4"
}

# The commands that read models and data take URIs too.
commands_read() {
  ends 0 "$program" train "$recipe" run.name=a run.steps=2 run.device=cpu "${small[@]}" "data.path=$1/tokens/" \
    "data.tokenizer=$1/tokenizer/" "checkpoint.to=$1/runs/read" || return 1
  rm -rf runs
  ends 0 "$program" eval "$1/runs/read" "data.path=$1/tokens/" --json || return 1
  ends 0 "$program" generate "$1/runs/read" --prompt "ship" --json || return 1
  echo "ship harbour" >lines
  ends 0 "$program" tokenize --ids --tokenizer "$1/tokenizer/" <lines || return 1
  cp says there
  ends 0 "$program" tokenize --ids --tokenizer "$work/tokenizer" <lines || return 1
  cmp says there || return 1
  ends 0 "$program" data show "$1/corpus/part-0.parquet" --tokenizer "$1/tokenizer/" --count 1 || return 1
  trained local "data.mix=$files/part-0.jsonl=0.7, $files/part-1.jsonl=0.3" "data.tokenizer=$work/tokenizer" || return 1
  trained there "data.mix=$1/lines/part-0.jsonl=0.7, $1/lines/part-1.jsonl=0.3" "data.tokenizer=$1/tokenizer/" || return 1
  cmp local there
}
