#!/usr/bin/env bash
# Takes the picture of the README again, from a real run: docs/images/shoot.sh (needs tmux).
#
# It trains the default recipe in a scratch folder, so it takes as long as that takes. The text beside the
# picture, docs/images/run.txt, is the transcript that README.md shows.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
scratch=$(mktemp -d)
server=lockstep-$$
trap 'tmux -L "$server" kill-server 2>/dev/null || true; rm -rf "$scratch"' EXIT

ln -s "${LOCKSTEP_PROGRAM:-$here/../../build/lockstep}" "$scratch/lockstep"
tmux -L "$server" new-session -d -x 100 -y 40 -c "$scratch" \
  "env LANG=C.UTF-8 PS1='\$ ' bash --norc --noprofile"
for words in "./lockstep train" "./lockstep generate --tokens 40"; do
  sleep 1  # for the prompt
  tmux -L "$server" send-keys "$words; tmux -L $server wait-for -S ready" Enter
  tmux -L "$server" wait-for ready
done
sleep 1
# Without what this script typed behind the commands, the last prompt and empty lines at the end.
tmux -L "$server" capture-pane -e -p | sed -e "s/; tmux -L $server wait-for -S ready//" -e '/^\$ *$/d' |
  sed -e :more -e '/^\n*$/{$d;N;bmore' -e '}' >"$scratch/pane"
python3 "$here/terminal_svg.py" "lockstep train" <"$scratch/pane" >"$here/run.svg"
sed -e 's/\x1b\[[0-9;]*m//g' "$scratch/pane" >"$here/run.txt"
