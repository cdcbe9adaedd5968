#!/usr/bin/env bash
# dpo_test.sh BUILD: preference tuning against a plain PyTorch implementation: the same losses, rewards and weights. Exit 77:
# skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
row_limit=300
need_python torch transformers peft

peer() { "$python" -B "$here/dpo_peer.py" "$@"; }
quietly() { "$@" >says 2>&1 || { cat says; return 1; }; }

# Everything that PyTorch has to do, once.
peer prepare "$work" >"$work/says" 2>&1 || { cat "$work/says"; exit 1; }
gzip -k "$work/mixed.jsonl"

# All pairs are one batch: then the order in which they are read does not matter. With AdamW's usual epsilon the sign of gradients
# that are all but zero, which rounding decides, would show in the weights.
train() {  # PAIRS WORDS...
  local pairs=$1
  shift
  "$program" train run.device=cpu precision.compute=fp32 model.from="$work/base" data.path="$pairs" data.seq_len=64 \
    data.eval_fraction=0 tune.loss=dpo batch.global=24 batch.slices=4 run.steps=5 run.name=here optim.lr=0.003 \
    optim.schedule=constant optim.warmup=0 optim.clip=0 optim.epsilon=1e-5 log.fingerprint=true "$@"
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

# NAME FORM WORDS...: the numbers of every step and the weights behind the last are those of trained/NAME.
both() {
  local name=$1 form=$2
  shift 2
  quietly train "$work/$form.jsonl" "$@" && numbers && near here "$work/trained/$name.steps" 1e-5 || return 1
  peer compare runs/here/checkpoints/step-00000005 "$work/trained/$name" 1e-5
}

bits() { grep -o '"params_hash": *"[0-9a-f]*"' says | tail -n 1; }

# WORDS...: the same bits as one rank.
same_bits() {
  quietly train "$work/mixed.jsonl" --json && bits >one && rm -r runs || return 1
  quietly train "$work/mixed.jsonl" --json "$@" && bits >several || return 1
  cmp one several || { cat one several; return 1; }
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

refused() {
  local one
  ends 2 train "$work/mixed.jsonl" tune.loss=cross_entropy && says "set tune.loss=dpo" || return 1
  ends 2 train "$work/mixed.jsonl" batch.slices=8 && says "keeps the two of a pair together" || return 1
  ends 2 train "$work/mixed.jsonl" parallel.context=2 --nproc 2 && says "parallel.context=1" || return 1
  ends 2 "$program" train run.device=cpu tune.loss=dpo && says "needs pairs" || return 1
  for one in '{"chosen": 1}' '{"prompt": "a", "chosen": "b", "rejected": "b"}'; do
    { head -n 2 "$work/mixed.jsonl"; echo "$one"; } >bad.jsonl
    ends 3 train bad.jsonl && says "bad.jsonl line 3" || return 1
  done
  quietly train "$work/mixed.jsonl" && ends 2 "$program" eval runs/here &&
    says "metrics.jsonl" && quietly "$program" generate runs/here --prompt "red" --tokens 4
}

compressed() {
  quietly train "$work/mixed.jsonl" --json && bits >one && rm -r runs || return 1
  quietly train "$work/mixed.jsonl.gz" --json && bits >again && cmp one again
}

row "messages with a prompt" both chats chats
row "messages that share their beginning, another beta" both shared shared tune.beta=0.3
row "texts" both texts texts
row "several turns, label smoothing" both smooth mixed tune.label_smoothing=0.2
row "several turns, logits in chunks" both mixed mixed memory.logits_chunk=50
row "LoRA, from PEFT's adapter" both lora mixed tune.method=lora tune.adapter="$work/base-adapter"
row "LoRA on two ranks, ZeRO 3" both lora mixed tune.method=lora tune.adapter="$work/base-adapter" parallel.zero=3 --nproc 2
row "two tensor ranks" both mixed mixed parallel.tensor=2 --nproc 2
row "two tensor ranks, sequence parallel, logits in chunks" both mixed mixed parallel.tensor=2 parallel.sequence=true \
  memory.logits_chunk=50 --nproc 2
row "two data ranks: the same bits" same_bits --nproc 2
row "four ranks, ZeRO 3: the same bits" same_bits --nproc 4 parallel.zero=3
row "two stages: the same bits" same_bits --nproc 2 parallel.pipeline=2
row "two stages of two ranks, ZeRO 2: the same bits" same_bits --nproc 4 parallel.pipeline=2 parallel.zero=2
row "a run that stops goes on with the same reference" goes_on
row "a compressed file" compressed
row "what cannot be is refused" refused
finish
