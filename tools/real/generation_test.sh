#!/usr/bin/env bash
# generation_test.sh BUILD: transformers continues texts with the same tokens, and finds the same likelihoods. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
row_limit=300

# shellcheck source=tools/real/transformers_peer.sh
source "$here/transformers_peer.sh"
need_python torch transformers
start_peer

# said COMMAND...: its lines, in the file `said`.
said() { "$program" "$@" run.device=cpu precision.compute=fp32 --json >said 2>says || { cat says; return 1; }; }

# made TYPE KEY=JSON...: a small model of this type, in fp32, in the folder `theirs`.
made() { peer make theirs "$@" >says 2>&1 || { cat says; return 1; }; }

# The most likely tokens behind prompts of several lengths, several at once and one at a time.
same_tokens() {
  local vocab=192 word batch
  for word in "$@"; do [[ $word == vocab_size=* ]] && vocab=${word#*=}; done
  made "$@" && peer prompts prompts.jsonl "$vocab" || return 1
  said generate theirs --prompts prompts.jsonl --temperature 0 --tokens 30 --batch 1 --ignore-eos && mv said alone || return 1
  said generate theirs --prompts prompts.jsonl --temperature 0 --tokens 30 --batch 3 --ignore-eos --logprobs || return 1
  peer greedy theirs alone 30 || return 1
  for batch in 1 8; do
    mv said before
    said generate theirs --prompts prompts.jsonl --temperature 0 --tokens 30 --batch "$batch" --ignore-eos --logprobs || return 1
    cmp before said || return 1
  done
}

# With what changes scores and ends.
same_tokens_with() {
  made llama 'eos_token_id=5' tie_word_embeddings=true && peer prompts prompts.jsonl 192 || return 1
  said generate theirs --prompts prompts.jsonl --temperature 0 --tokens 30 --repetition-penalty 1.4 &&
    peer greedy theirs said 30 repetition_penalty=1.4 eos_token_id=5 || return 1
  grep -q '"stop"' said || { echo "no text has ended: nothing was tested"; return 1; }
}

spoken() { made llama vocab_size=300 bos_token_id=0 eos_token_id=1 "$@" && peer words theirs; }

same_conversation() {
  spoken || return 1
  said generate theirs --chat --system 'be brief' --prompt 'Hello, dog' --prompt ' the cat é ' --temperature 0 --tokens 12 &&
    peer chat theirs said || return 1
  echo '{"messages": [{"role": "user", "content": "a bird"}, {"role": "assistant", "content": "runs"}, {"role": "user", "content": "why"}]}' >chat.jsonl
  said generate theirs --prompts chat.jsonl --temperature 0 --tokens 12 && peer chat theirs said
}

same_likelihoods() {
  spoken "$@" && peer choices choices.jsonl || return 1
  said eval theirs --choices choices.jsonl && peer likelihoods theirs choices.jsonl said ' ' || return 1
  said eval theirs --choices choices.jsonl --delimiter '' && peer likelihoods theirs choices.jsonl said ''
}

same_perplexities() {
  spoken "$@" && peer documents documents.jsonl || return 1
  said eval theirs --by-document data.path=documents.jsonl && peer perplexities theirs documents.jsonl said 64 32 || return 1
  said eval theirs --by-document data.path=documents.jsonl data.seq_len=20 --stride 13 && peer perplexities theirs documents.jsonl said 20 13
}

windows='layer_types=["sliding_attention","full_attention","sliding_attention"]'
yarn='rope_scaling={"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":16}'
longrope='rope_scaling={"rope_type":"longrope","short_factor":[1.0,1.1,1.3,1.6],"long_factor":[1.5,2.0,4.0,9.0]}'
both_ropes='rope_parameters={"full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":100000.0},"sliding_attention":{"rope_type":"default","rope_theta":500.0}}'
row "gpt2 continues as transformers does" same_tokens gpt2 n_positions=64 n_embd=64 n_layer=2 n_head=4
row "llama: grouped heads" same_tokens llama
row "llama: YaRN, tied" same_tokens llama tie_word_embeddings=true "$yarn"
row "mistral: a window, odd vocabulary" same_tokens mistral sliding_window=7 head_dim=24 vocab_size=197
row "qwen2: biases, windows in some layers" same_tokens qwen2 num_hidden_layers=3 use_sliding_window=true sliding_window=9 max_window_layers=1
row "qwen3: norms of q and k, windows by layer_types" same_tokens qwen3 head_dim=16 num_hidden_layers=3 attention_bias=true \
  use_sliding_window=true sliding_window=5 "$windows"
row "gemma2: soft caps, windows in turns" same_tokens gemma2 head_dim=24 sliding_window=6 attn_logit_softcapping=3.0 \
  final_logit_softcapping=5.0 query_pre_attn_scalar=20
row "gemma3: two kinds of rotary positions" same_tokens gemma3_text head_dim=24 num_hidden_layers=3 sliding_window=5 \
  query_pre_attn_scalar=30 final_logit_softcapping=6.0 "$windows" "$both_ropes"
row "phi: half of a head turns" same_tokens phi partial_rotary_factor=0.5
row "phi3: fused maps, a window" same_tokens phi3 sliding_window=9
row "phi3: LongRoPE, which depends on the length" same_tokens phi3 partial_rotary_factor=0.5 original_max_position_embeddings=16 "$longrope"
row "olmo2: norms behind maps" same_tokens olmo2
row "smollm3: layers without positions" same_tokens smollm3 num_hidden_layers=3 no_rope_layer_interval=2
row "gpt_neox: halves side by side" same_tokens gpt_neox rotary_pct=0.25
row "a repetition penalty and an end token" same_tokens_with
row "a conversation by the model's chat template" same_conversation
row "log-likelihoods of choices and completions" same_likelihoods
row "log-likelihoods beyond the context" same_likelihoods max_position_embeddings=12
row "perplexities of documents in overlapping windows" same_perplexities
finish
