#!/usr/bin/env bash
# corpora_test.sh BUILD: texts written by pyarrow, pandas, datasets and mosaicml-streaming give the tokens of the same texts as
# plain JSONL. Exit 77: skipped. LOCKSTEP_SEED=$RANDOM looks elsewhere than usual.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
seed=${LOCKSTEP_SEED:-491921532}

# The libraries, in a folder of their own.
if [[ -z ${LOCKSTEP_TEST_PYTHON:-} && -n ${LOCKSTEP_REAL_VENV:-} ]]; then
  packages=$LOCKSTEP_REAL_VENV-corpora
  if [[ ! -e $packages/complete ]]; then
    echo "setting up $packages with pyarrow, pandas and datasets from PyPI"
    { python3 -m venv --clear "$packages" &&
      "$packages/bin/python" -m pip install --quiet pyarrow pandas datasets zstandard &&
      touch "$packages/complete"; } >"$work/why" 2>&1 || skip "the libraries cannot be installed: $(tail -n 1 "$work/why")"
  fi
  LOCKSTEP_TEST_PYTHON=$packages/bin/python
fi
need_python pyarrow pandas datasets zstandard
# mosaicml-streaming brings a PyTorch of its own: used where it is, not fetched. data/corpora_test.cc has files of its making.
mds=
if "$python" -c 'import streaming' 2>/dev/null; then mds=yes; else echo "without mosaicml-streaming: no MDS folders"; fi
[[ -e ${program%/*}/src/lockstep/liblockstep_arrow.so ]] || skip "this build has no Arrow"
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1

echo "seed $seed"
files=$work/files
"$python" "$here/corpora_peer.py" "$files" "$seed" >"$work/why" 2>&1 || { cat "$work/why"; exit 1; }
"$program" tokenize --train "$files/texts.jsonl" --vocab-size 400 --special "<|endoftext|>" --out "$work/tokenizer" >/dev/null ||
  exit 1

# tokens_of PATH FIELD: the ids of its documents, one after the other, in the file `ids`.
tokens_of() {
  local file
  rm -rf out
  "$program" tokenize "$1" --tokenizer "$work/tokenizer" --field "$2" --out out >says 2>&1 || { cat says; return 1; }
  for file in out/*.bin; do tail -c +1025 "$file"; done >ids
}

# same_tokens PATH PLAIN: as many documents, and the same ids.
same_tokens() {
  tokens_of "$files/$2" text && mv ids expected || return 1
  tokens_of "$files/$1" text || return 1
  cmp ids expected
}

# same_numbers PATH FIELD: numbers that were tokens before.
same_numbers() {
  tail -c +129 "$files/tokens.npy" >expected
  tokens_of "$files/$1" "$2" || return 1
  cmp ids expected
}

# hash_with KEYS...: the parameters behind three steps on such data.
hash_with() {
  "$program" train "$recipe" run.name=here run.steps=3 run.device=cpu "${small[@]}" "$@" --json >says 2>&1 || { cat says; return 1; }
  hash_of says
  rm -rf runs
}

# trains_alike PATH [KEYS...]: on the fly, bytes and tokenizer, as on JSONL.
trains_alike() {
  local path=$files/$1 words one other
  for words in data.tokenizer=bytes "data.tokenizer=$work/tokenizer"; do
    one=$(hash_with "data.path=$files/texts.jsonl" "$words") || { echo "$one"; return 1; }
    other=$(hash_with "data.path=$path" "$words") || { echo "$other"; return 1; }
    [[ -n $one && $one == "$other" ]] || { echo "$words: $one on JSONL, $other on $1"; return 1; }
  done
}

numbers_train_alike() {
  local one other
  one=$(hash_with "data.path=$files/tokens.npy" model.vocab=300) || { echo "$one"; return 1; }
  other=$(hash_with "data.path=$files/$1" "data.field=$2" model.vocab=300) || { echo "$other"; return 1; }
  [[ -n $one && $one == "$other" ]] || { echo "$one on .npy, $other on $1"; return 1; }
}

for name in members.jsonl.gz frames.ndjson.zst pandas.parquet pandas.feather large.parquet view.parquet binary.parquet large.arrow \
  view.arrow binary.arrow dictionary.parquet dictionary.arrow saved splits ${mds:+mds mds-zstd mds-gz}; do
  row "tokenize $name" same_tokens "$name" texts.jsonl
done
for name in pandas.csv module.tsv module.csv.gz; do row "tokenize $name" same_tokens "$name" plain.jsonl; done
row "tokenize tokens of Parquet" same_numbers tokens.parquet input_ids
row "tokenize tokens of a saved dataset" same_numbers saved-tokens input_ids
if [[ -n $mds ]]; then row "tokenize tokens of MDS" same_numbers mds-tokens tokens; fi
for name in frames.ndjson.zst pandas.parquet saved ${mds:+mds-zstd}; do row "train on $name" trains_alike "$name"; done
row "train on Megatron's pair" numbers_train_alike megatron_text_document text
row "train on tokens of Parquet" numbers_train_alike tokens.parquet input_ids
if [[ -n $mds ]]; then row "train on tokens of MDS" numbers_train_alike mds-tokens tokens; fi
finish
