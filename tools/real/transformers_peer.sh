# shellcheck shell=bash
# One Python with transformers for all rows of a test: importing it takes longer than most of them.
#
#     start_peer                         behind need_python
#     peer make FOLDER gpt2 tied         prints what it says; fails where it fails

start_peer() {
  export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false CUDA_VISIBLE_DEVICES=
  mkfifo "$work/requests" "$work/answers"
  "$python" "$here/transformers_peer.py" serve <"$work/requests" >"$work/answers" 2>"$work/peer-log" &
  exec {requests}>"$work/requests" {answers}<"$work/answers"
}

# peer WORDS...: prints what it says. An answer to a row that was ended is passed over.
peer() {
  local number=$BASHPID.$RANDOM answered='' code=''
  (IFS=$'\t' && printf '%s\n' "$number"$'\t'"$PWD"$'\t'"$*") >&"$requests"
  until [[ $answered == "$number" ]]; do
    read -r answered code <&"$answers" || { cat "$work/peer-log"; return 1; }
  done
  cat peer-says
  return "$code"
}
