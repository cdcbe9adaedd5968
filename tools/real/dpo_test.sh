#!/usr/bin/env bash
# dpo_test.sh BUILD: preference tuning against a plain PyTorch implementation: the same losses, rewards and weights. Exit 77:
# skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
row_limit=300
need_python torch transformers peft

peer() { "$python" -B "$here/dpo_peer.py" "$@"; }
quietly() { "$@" >says 2>&1 || { cat says; return 1; }; }

# Made once: the model, an adapter for it, and pairs in every form.
quietly peer make "$work/base" lora || skip "$python cannot make a model: $(tail -n 1 says)"
for form in chats shared texts mixed; do quietly peer pairs "$work/$form.jsonl" $form || exit 1; done
gzip -k "$work/mixed.jsonl"

# All pairs are one batch: then the order in which they are read does not matter.
train() {  # PAIRS WORDS...
  local pairs=$1
  shift
  "$program" train run.device=cpu precision.compute=fp32 model.from="$work/base" data.path="$pairs" data.seq_len=64 \
    data.eval_fraction=0 tune.loss=dpo batch.global=24 batch.slices=4 run.steps=5 run.name=here optim.lr=0.003 \
    optim.schedule=constant optim.warmup=0 optim.clip=0 log.eval_every=0 log.fingerprint=true "$@"
}

# A line a step: loss, rewards of the chosen and the rejected answers, share of the pairs that are right.
numbers() {
  "$python" -c '
import json, sys
for line in open("runs/here/metrics.jsonl"):
    row = json.loads(line)
    print(*(f"{row[key]:.9f}" for key in ("loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies")))' >here
}

near() {
  paste "$1" "$2" | awk -v bound="$3" '
    NF != 8 { bad = 1; print "line " NR ": " $0 }
    { for (k = 1; k <= 4; k++) { d = $k - $(k + 4); if (d < 0) d = -d; if (d > bound) { bad = 1; print "line " NR ": " $0 } } }
    END { exit bad || NR == 0 }'
}

# FORM "PEER'S WORDS" OUR WORDS...: both train; numbers of every step and the weights behind the last are the same.
both() {
  local form=$1 theirs=$2
  shift 2
  # shellcheck disable=SC2086  # words
  peer train "$work/base" "$work/$form.jsonl" there-model $theirs >there 2>says || { cat says; return 1; }
  quietly train "$work/$form.jsonl" "$@" && numbers && near here there 1e-5 || return 1
  peer compare runs/here/checkpoints/step-00000005 there-model 1e-5
}

lora() {
  both mixed "adapter=$work/base-adapter" tune.method=lora tune.adapter="$work/base-adapter" "$@"
}

bits() { grep -o '"params_hash": *"[0-9a-f]*"' says | tail -n 1; }

# WORDS...: the same bits as one rank; of others, as many as a comment says.
same_bits() {
  quietly train "$work/mixed.jsonl" --json && bits >one && rm -r runs || return 1
  quietly train "$work/mixed.jsonl" --json "$@" && bits >several || return 1
  cmp one several || { cat one several; return 1; }
}

tensor_ranks() {
  peer train "$work/base" "$work/mixed.jsonl" there-model >there 2>says || { cat says; return 1; }
  quietly train "$work/mixed.jsonl" parallel.tensor=2 --nproc 2 "$@" && numbers && near here there 1e-5 || return 1
  peer compare runs/here/checkpoints/step-00000005 there-model 1e-5
}

# A run that stops and goes on has the bits of one that did not, also where its reference has to be computed again, and in
# another layout where it has not.
goes_on() {
  quietly train "$work/mixed.jsonl" --json && bits >one && cp runs/here/reference.bin kept && rm -r runs || return 1
  quietly train "$work/mixed.jsonl" run.steps=2 && cmp kept runs/here/reference.bin || return 1
  quietly train "$work/mixed.jsonl" --json --nproc 2 && bits >again && cmp one again || return 1
  cmp kept runs/here/reference.bin && rm -r runs || return 1
  quietly train "$work/mixed.jsonl" run.steps=2 && head -c 100 kept >runs/here/reference.bin || return 1
  quietly train "$work/mixed.jsonl" --json && says "computed again" && bits >again && cmp one again &&
    cmp kept runs/here/reference.bin
}

compressed() {
  quietly train "$work/mixed.jsonl" --json && bits >one && rm -r runs || return 1
  quietly train "$work/mixed.jsonl.gz" --json && bits >again && cmp one again
}

row "messages with a prompt" both chats ""
row "messages that share their beginning, another beta" both shared "beta=0.3" tune.beta=0.3
row "texts" both texts ""
row "several turns, label smoothing" both mixed "smoothing=0.2" tune.label_smoothing=0.2
row "logits in chunks" both mixed "" memory.logits_chunk=50
row "LoRA, from PEFT's adapter" lora
row "two data ranks: the same bits" same_bits --nproc 2
row "four ranks, ZeRO 3: the same bits" same_bits --nproc 4 parallel.zero=3
row "two stages: the same bits" same_bits --nproc 2 parallel.pipeline=2
row "two tensor ranks" tensor_ranks
row "two tensor ranks, logits in chunks" tensor_ranks memory.logits_chunk=50
row "a run that stops goes on with the same reference" goes_on
row "a compressed file" compressed
finish
