#!/usr/bin/env bash
# stores_test.sh BUILD: data, models and checkpoints in object stores: moto (S3), gcp-storage-emulator (Google Cloud Storage) and
# a Blob service of our own that checks Azure's signatures (azure_server.py); also behind a proxy that answers 429 and 503, resets
# connections and cuts bodies short. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# shellcheck source=tools/real/stores_python.sh
source "$here/stores_python.sh"
need_python moto gcp_storage_emulator boto3 pyarrow azure.storage.blob
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
s3_port=$(port_of s3) gs_port=$(port_of gs) proxy_port=$(port_of proxy) azure_port=$(port_of azure)
azure_key=$(port_of azure_key)
export AWS_ENDPOINT_URL=http://127.0.0.1:$s3_port AWS_ACCESS_KEY_ID=tester AWS_SECRET_ACCESS_KEY=SECRETSECRET
export AWS_EC2_METADATA_DISABLED=true STORAGE_EMULATOR_HOST=http://127.0.0.1:$gs_port
export LOCKSTEP_OBJECT_CACHE=$work/cache LOCKSTEP_OBJECT_PATIENCE=20
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION GOOGLE_APPLICATION_CREDENTIALS

# shellcheck source=tools/real/stores_rows.sh
source "$here/stores_rows.sh"
export AZURE_STORAGE_ACCOUNT=tester AZURE_STORAGE_KEY=$azure_key AZURE_STORAGE_BLOB_ENDPOINT=http://127.0.0.1:$azure_port
for bucket in s3://data gs://data abfs://data; do fill $bucket || exit 1; done

through_proxy() { export AWS_ENDPOINT_URL=http://127.0.0.1:$proxy_port; }

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
  grep -q step-00000004/manifest.json <<<"$(peer list s3://data/runs/late/)"
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

# Azure's answers, spoiled.
azure_spoiled() {
  peer spoil "$1" 3 data/tokens >/dev/null
  export LOCKSTEP_OBJECT_CACHE=$PWD/cache
  as_local abfs://data/tokens/ || return 1
  local count
  count=$(peer spoil none 0)
  ((count >= 3)) || { echo "only $count answers were spoiled"; return 1; }
}

# A signature by another key, and tokens (SAS) of all kinds.
azure_access() {
  export LOCKSTEP_OBJECT_CACHE=$PWD/cache
  AZURE_STORAGE_KEY=$(printf SECRETSECRETSECRET | base64) refused 2 289 data.path=abfs://data/tokens/ || return 1
  AZURE_STORAGE_KEY='' AZURE_STORAGE_SAS_TOKEN=$(peer sas good) as_local abfs://data/tokens/ || return 1
  rm -rf cache
  AZURE_STORAGE_KEY='' AZURE_STORAGE_SAS_TOKEN=$(peer sas expired) refused 2 289 data.path=abfs://data/tokens/ || return 1
  AZURE_STORAGE_KEY='' AZURE_STORAGE_SAS_TOKEN=$(peer sas forged) refused 2 289 data.path=abfs://data/tokens/
}

row "tokenize reads Parquet from S3, by a pattern" same_ids 's3://data/corpus/*.parquet' "$work/tokenizer"
row "tokenize reads Parquet and the tokenizer from S3" same_ids s3://data/corpus/ s3://data/tokenizer/
row "tokenize reads Parquet from Google Cloud Storage" same_ids 'gs://data/corpus/*.parquet' "$work/tokenizer"
row "training on tokens in S3 gives the same bits" as_local s3://data/tokens/
row "training on tokens in Google Cloud Storage gives the same bits" as_local gs://data/tokens/
row "tokenize reads Parquet and the tokenizer from Azure" same_ids abfs://data/corpus/ abfs://data/tokenizer/
row "training on tokens in Azure gives the same bits" as_local abfs://data/tokens/
row "the account in the URI" as_local abfs://data@tester.dfs.core.windows.net/tokens/
row "Azure: tokens that are larger than the cache are streamed" streamed abfs://data tokens
for how in 429 503 reset truncate; do row "Azure: answers spoiled: $how" azure_spoiled $how; done
row "Azure: keys and tokens" azure_access
row "Azure: no such container" refused 3 288 data.path=abfs://nowhere/tokens/
row "Azure: no such blob" refused 3 288 data.path=abfs://data/nothing.bin
row "two ranks share the cache" as_local s3://data/tokens/ --nproc 2
row "tokens that are larger than the cache are streamed" streamed s3://data tokens
row "their kind is found by their names" streamed s3://data auto
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
row "checkpoints to Azure, and back" to_store abfs://data
for store in s3 gs abfs; do
  row "$store: a damaged newest checkpoint gives way to the one before" damaged_newest $store://data
  row "$store: two runs with one checkpoint.to" two_runs $store://data
  row "$store: eval, generate, data show and data.mix" commands_read $store://data
done
row "an upload that fails is told, and done by the next run" upload_later
row "killed while it uploads" killed_while_uploading
finish
