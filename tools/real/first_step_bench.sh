#!/usr/bin/env bash
# first_step_bench.sh BUILD [WAY...]: minutes and megabytes from nothing to the first step, for each way to install Lockstep and
# for PyTorch with a nanoGPT-like script. Each way begins with an empty folder, and downloads come from PyPI unless pip has
# another index. Ways: wheel, bundle, image, torch. Cloning is not among them: it is `time ./lockstep train` in a fresh clone.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=tools/real/roots.sh
source "$here/roots.sh"
build=$(dirname "$program")
ways=("${@:2}")
((${#ways[@]})) || ways=(bundle image wheel torch)
same=(run.steps=1 log.eval_every=0)

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }
megabytes() { du -sm --apparent-size "$@" | awk '{ all += $1 } END { print all }'; }
table_row() { printf '| %-34s | %9s | %8s | %11s | %10s |\n' "$@"; }

# The sizes of what pip would download.
downloads() { "$work/pip/bin/pip" download --quiet --no-cache-dir --dest "$work/downloads" "$@" >/dev/null 2>&1 && megabytes "$work/downloads"; rm -rf "$work/downloads"; }

wheel() {
  local began python=$work/wheel/bin torch=("torch==2.11.0" "nvidia-cuda-runtime==13.0.96" "nvidia-cuda-cupti==13.0.85") fetched seconds
  python3 "$here/../wheel.py" --build "$build" --out "$work/dist" >/dev/null || return 1
  fetched=$(($(downloads --no-deps "${torch[@]}") + $(megabytes "$work"/dist/*.whl)))
  began=$(now)
  python3 -m venv "$work/wheel" && "$python/pip" install --quiet --no-cache-dir --no-deps "$work"/dist/*.whl "${torch[@]}" || return 1
  seconds=$(since "$began") began=$(now)
  (cd "$work" && "$python/lockstep" train "${same[@]}" run.name=wheel -q) || return 1
  table_row "pip install, for a CPU" "$fetched" "$(megabytes "$work/wheel")" "$seconds" "$(since "$began")"
}

bundle() {
  local began seconds
  "$program" bundle --out "$work/lockstep.tar.zst" >/dev/null || return 1
  began=$(now)
  mkdir "$work/bundle" && tar -xf "$work/lockstep.tar.zst" -C "$work/bundle" || return 1
  seconds=$(since "$began") began=$(now)
  # shellcheck disable=SC2211  # one folder, whose name has the version
  (cd "$work" && "$work"/bundle/lockstep-*/bin/lockstep train "${same[@]}" run.name=bundle -q) || return 1
  table_row "bundle" "$(megabytes "$work/lockstep.tar.zst")" "$(megabytes "$work/bundle")" "$seconds" "$(since "$began")"
}

# What an engine would pull: Debian's base and the layers above it, made by hand.
image() {
  local root began seconds base
  [[ $(id -u) == 0 ]] || return 0
  root=$(clean_root bookworm) || return 0
  base=$(megabytes "$root")
  "$program" image --out "$work/image" >/dev/null || return 1
  began=$(now)
  cp -a "$root" "$work/layers" && mkdir -p "$work/layers/opt" "$work/layers/home/guest" && tar -xf "$work"/image/*.tar.gz -C "$work/layers/opt" || return 1
  chown 1000 "$work/layers/home/guest"
  seconds=$(since "$began") began=$(now)
  in_root "$work/layers" sh -c "cd && exec /opt/lockstep-*/bin/lockstep train ${same[*]} -q" || return 1
  table_row "image (base of $base MB)" "$(megabytes "$work"/image/*.tar.gz)" "$(megabytes "$work/layers")" "$seconds" "$(since "$began")"
}

# The smallest thing that trains the same model.
torch() {
  local began seconds fetched
  fetched=$(downloads torch==2.11.0 numpy)
  began=$(now)
  python3 -m venv "$work/torch" && "$work/torch/bin/pip" install --quiet --no-cache-dir torch==2.11.0 numpy || return 1
  seconds=$(since "$began")
  cat >"$work/step.py" <<'END'
import torch
from torch import nn
torch.manual_seed(1)
hidden, heads, layers, length, vocab, batch = 128, 4, 4, 64, 128, 64
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, hidden), nn.Embedding(length, hidden)
        layer = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers, self.norm = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), nn.LayerNorm(hidden)
    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.norm(self.layers(self.tokens(x) + self.places(torch.arange(length)), mask, is_causal=True)) @ self.tokens.weight.T
net = Net()
adam = torch.optim.AdamW(net.parameters(), 1e-3)
x = torch.randint(vocab, (batch, length + 1))
loss = nn.functional.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
loss.backward()
adam.step()
print(float(loss))
END
  began=$(now)
  "$work/torch/bin/python" "$work/step.py" >"$work/first" || return 1
  began=$(now)  # the second start: the first reads five gigabytes of files for the first time
  "$work/torch/bin/python" "$work/step.py" >"$work/first" || return 1
  table_row "PyTorch and a nanoGPT-like script" "$fetched" "$(megabytes "$work/torch")" "$seconds" "$(since "$began")"
}

python3 -m venv "$work/pip"
table_row way "MB to get" "MB on disk" "s to install" "s to step 1"
table_row --- ---: ---: ---: ---:
for way in "${ways[@]}"; do "$way" || echo "$way: failed"; done
