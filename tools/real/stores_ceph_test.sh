#!/usr/bin/env bash
# stores_ceph_test.sh BUILD: data, models and checkpoints in a real S3 server: Ceph's radosgw, a cluster of one node in a folder.
# It is stricter than moto: it checks signatures, and answers as servers in clusters do. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
for command in ceph-mon ceph-osd ceph monmaptool radosgw radosgw-admin; do need $command "ceph-mon, ceph-osd and radosgw"; done
# shellcheck source=tools/real/stores_python.sh
source "$here/stores_python.sh"
need_python boto3 pyarrow
[[ -e ${program%/*}/src/lockstep/liblockstep_stores.so ]] || skip "this build has no Arrow"
# shellcheck source=tools/real/ceph.sh
source "$here/ceph.sh"

stores=$work/stores
mkdir "$stores"
port=${LOCKSTEP_TEST_PORTS:-$((20000 + $$ % 20000))}
start_ceph "$stores" "$port" >"$stores/log" 2>&1 || { tail -n 20 "$stores"/log; skip "the cluster does not start here"; }
echo "{\"s3\": $port}" >"$stores/ports"
peer() {
  local command=$1
  shift
  "$python" "$here/stores_peer.py" "$command" "$stores" "$@"
}
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=tester AWS_SECRET_ACCESS_KEY=SECRETSECRET
export AWS_EC2_METADATA_DISABLED=true LOCKSTEP_OBJECT_CACHE=$work/cache LOCKSTEP_OBJECT_PATIENCE=60
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION
# shellcheck source=tools/real/stores_rows.sh
source "$here/stores_rows.sh"
fill s3://data || exit 1

wrong_key() {
  export LOCKSTEP_OBJECT_CACHE=$PWD/cache
  AWS_SECRET_ACCESS_KEY=SECRETSECREt refused 2 289 data.path=s3://data/tokens/
}

row "tokenize reads Parquet, by a pattern" same_ids 's3://data/corpus/*.parquet' "$work/tokenizer"
row "tokenize reads Parquet and the tokenizer" same_ids s3://data/corpus/ s3://data/tokenizer/
row "training gives the same bits" as_local s3://data/tokens/
row "tokens that are larger than the cache are streamed" streamed s3://data tokens
row "a wrong key" wrong_key
row "no such bucket" refused 3 288 data.path=s3://nowhere/tokens/
row "no such object" refused 3 288 data.path=s3://data/nothing.bin
row "checkpoints, and back on an empty disk" to_store s3://data
row "a damaged newest checkpoint gives way to the one before" damaged_newest s3://data
row "two runs with one checkpoint.to" two_runs s3://data
row "eval, generate, data show and data.mix" commands_read s3://data
finish
