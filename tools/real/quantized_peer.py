"""quantized_peer.py BASE MERGED: MERGED holds the weights of BASE's layers as bitsandbytes rounds them to NF4.

MERGED comes from a run that trained an adapter that adds nothing (learning rate of 1e-30) beside tune.base=nf4, and was merged: what
it has are the dequantized weights themselves.
"""
import glob
import sys

import bitsandbytes.functional as functional
from safetensors.torch import load_file


def weights(folder):
    found = {}
    for file in glob.glob(f"{folder}/*.safetensors"):
        found.update(load_file(file))
    return found


base, merged = weights(sys.argv[1]), weights(sys.argv[2])
compared = 0
for name, weight in base.items():
    if weight.dim() != 2 or ".layers." not in name:
        continue
    codes, state = functional.quantize_4bit(weight.float().contiguous(), blocksize=64, quant_type="nf4", compress_statistics=False)
    theirs = functional.dequantize_4bit(codes, state)
    difference = (theirs - merged[name].float()).abs().max().item()
    rounded = (theirs - weight).abs().max().item()
    assert difference <= 1e-12 < rounded, f"{name}: {difference} off, and NF4 itself changes it by {rounded}"
    compared += 1
assert compared >= 14, compared
print(f"{compared} weights are those of bitsandbytes")
