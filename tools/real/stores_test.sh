#!/usr/bin/env bash
# stores_test.sh BUILD: data, models and checkpoints in object stores: moto (S3) and gcp-storage-emulator (Google Cloud Storage),
# also behind a proxy that answers 429 and 503, resets connections and cuts bodies short. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [[ -z ${LOCKSTEP_TEST_PYTHON:-} && -n ${LOCKSTEP_REAL_VENV:-} ]]; then
  packages=$LOCKSTEP_REAL_VENV-stores
  if [[ ! -e $packages/complete ]]; then
    echo "setting up $packages with moto and gcp-storage-emulator from PyPI"
    { python3 -m venv --clear "$packages" &&
      "$packages/bin/python" -m pip install --quiet 'moto[server]' gcp-storage-emulator boto3 pyarrow &&
      touch "$packages/complete"; } >"$work/why" 2>&1 || skip "the servers cannot be installed: $(tail -n 1 "$work/why")"
  fi
  LOCKSTEP_TEST_PYTHON=$packages/bin/python
fi
need_python moto gcp_storage_emulator boto3 pyarrow
[[ -e ${program%/*}/src/lockstep/liblockstep_stores.so ]] || skip "this build has no Arrow"

stores=$work/stores
mkdir "$stores"
"$python" "$here/stores_peer.py" serve "$stores" >"$stores/log" 2>&1 &
servers=$!
stop() { kill -TERM "$servers" 2>/dev/null; }
until_true 60 test -e "$stores/ports" || { cat "$stores"/*log; skip "the servers do not start"; }
peer() {
  local command=$1
  shift
  "$python" "$here/stores_peer.py" "$command" "$stores" "$@"
}
port_of() { "$python" -c "import json, sys; print(json.load(open('$stores/ports'))['$1'])"; }
s3_port=$(port_of s3) gs_port=$(port_of gs) proxy_port=$(port_of proxy)
export AWS_ENDPOINT_URL=http://127.0.0.1:$s3_port AWS_ACCESS_KEY_ID=tester AWS_SECRET_ACCESS_KEY=SECRETSECRET
export AWS_EC2_METADATA_DISABLED=true STORAGE_EMULATOR_HOST=http://127.0.0.1:$gs_port
export LOCKSTEP_OBJECT_CACHE=$work/cache LOCKSTEP_OBJECT_PATIENCE=20
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION GOOGLE_APPLICATION_CREDENTIALS

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
peer put s3://data/corpus/ "$files"/*.parquet || exit 1
peer put s3://data/tokens/ "$files"/tokens/*.bin || exit 1
peer put s3://data/tokenizer/ "$work"/tokenizer/* || exit 1
peer put gs://data/corpus/ "$files"/*.parquet || exit 1
peer put gs://data/tokens/ "$files"/tokens/*.bin || exit 1

through_proxy() { export AWS_ENDPOINT_URL=http://127.0.0.1:$proxy_port; }

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

streamed() {
  export LOCKSTEP_OBJECT_CACHE_GIB=0.00002
  export LOCKSTEP_OBJECT_CACHE=$PWD/cache
  as_local s3://data/tokens/ data.kind="$1" || return 1
  [[ -z $(find cache -name '*.bin') ]] || { echo "it was fetched"; find cache; return 1; }
}

# spoiled HOW COUNT: answers of the proxy are spoiled, and the bytes are right all the same.
spoiled() {
  through_proxy
  peer spoil "$1" "$2" data/tokens >/dev/null
  export LOCKSTEP_OBJECT_CACHE=$PWD/cache
  ends 0 "$program" train "$recipe" run.name=spoiled run.steps=1 run.device=cpu "${small[@]}" model.vocab=300 \
    data.path=s3://data/tokens/ --json || return 1
  local count copy
  count=$(peer spoil none 0)
  ((count >= $2)) || { echo "only $count answers were spoiled"; return 1; }
  for copy in "$files"/tokens/*.bin; do cmp "$copy" cache/s3-*/data/tokens/"${copy##*/}" || return 1; done
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

expired() {
  through_proxy
  peer spoil expired 1000 data/tokens >/dev/null
  export LOCKSTEP_OBJECT_CACHE=$PWD/cache
  refused 2 289 data.path=s3://data/tokens/
  local code=$?
  peer spoil none 0 >/dev/null
  return $code
}

busy_for_long() {
  through_proxy
  peer spoil 503 100000 data/tokens >/dev/null
  export LOCKSTEP_OBJECT_CACHE=$PWD/cache LOCKSTEP_OBJECT_PATIENCE=2
  refused 1 290 data.path=s3://data/tokens/
  local code=$?
  peer spoil none 0 >/dev/null
  return $code
}

# A bucket that goes while it is read.
vanishes() {
  peer put s3://short/tokens/ "$files"/tokens/*.bin || return 1
  export LOCKSTEP_OBJECT_CACHE=$PWD/cache
  trained first data.path=s3://short/tokens/ || return 1
  peer drop s3://short || return 1
  refused 3 288 data.path=s3://short/tokens/
}

no_store() {
  export AWS_ENDPOINT_URL=http://127.0.0.1:1 LOCKSTEP_OBJECT_PATIENCE=1
  refused 1 290 data.path=s3://data/tokens/
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

# The store takes nothing while the run goes on, and not at its end: told, and uploaded by the next one.
upload_later() {
  through_proxy
  local words=(train "$recipe" run.name=late run.steps=4 run.device=cpu "${small[@]}" model.vocab=300 checkpoint.notice=1
    checkpoint.to=s3://data/runs/late)
  peer spoil expired 100000 runs/late/checkpoints/step >/dev/null
  "$program" "${words[@]}" checkpoint.every=2 >says 2>&1 &
  local run=$!
  until_true 60 grep -q "not uploaded" says || return 1
  kill -KILL $run
  wait $run
  says "LS0289" || return 1
  peer spoil none 0 >/dev/null
  ends 0 "$program" "${words[@]}" checkpoint.every=2 || return 1
  says "uploaded to s3://data/runs/late" || return 1
  peer list s3://data/runs/late/ | grep -q step-00000004/manifest.json
}

# Killed while it uploads: what the store has then is whole or no checkpoint.
killed_while_uploading() {
  through_proxy
  local keys=(run.name=kill run.steps=4 run.device=cpu "${small[@]}" model.vocab=300 checkpoint.every=2
    checkpoint.to=s3://data/runs/kill)
  trained alone run.steps=4 || return 1
  peer spoil slow 4 optimizer >/dev/null
  "$program" train "$recipe" "${keys[@]}" >says 2>&1 &
  local run=$!
  until_true 60 grep -q "saved runs/kill" says || return 1
  kill -KILL $run
  wait $run
  peer spoil none 0 >/dev/null
  rm -rf runs
  ends 0 "$program" train "$recipe" "${keys[@]}" --json || return 1
  [[ $(hash_of says) == "$(cat alone)" ]]
}

row "tokenize reads Parquet from S3, by a pattern" same_ids 's3://data/corpus/*.parquet' "$work/tokenizer"
row "tokenize reads Parquet and the tokenizer from S3" same_ids s3://data/corpus/ s3://data/tokenizer/
row "tokenize reads Parquet from Google Cloud Storage" same_ids 'gs://data/corpus/*.parquet' "$work/tokenizer"
row "training on tokens in S3 gives the same bits" as_local s3://data/tokens/
row "training on tokens in Google Cloud Storage gives the same bits" as_local gs://data/tokens/
row "two ranks share the cache" as_local s3://data/tokens/ --nproc 2
row "tokens that are larger than the cache are streamed" streamed tokens
row "their kind is found by their names" streamed auto
row "the endpoint in the URI" as_local "s3://data/tokens/?endpoint_override=127.0.0.1:$s3_port&scheme=http"
for how in 429 503 reset truncate; do row "answers spoiled: $how" spoiled $how 3; done
row "expired credentials" expired
row "a store that is busy for too long" busy_for_long
row "a store that is not there" no_store
row "a bucket that vanishes" vanishes
row "no such bucket" refused 3 288 data.path=s3://nowhere/tokens/
row "no such object" refused 3 288 data.path=s3://data/nothing.bin
row "a password in the URI" refused 2 286 data.path=s3://KEY:SECRETSECRET@data/tokens/
row "checkpoints to S3, and back on an empty disk" to_store s3://data
row "checkpoints to Google Cloud Storage, and back" to_store gs://data
row "an upload that fails is told, and done by the next run" upload_later
row "killed while it uploads" killed_while_uploading
finish
