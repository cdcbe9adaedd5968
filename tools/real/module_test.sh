#!/usr/bin/env bash
# module_test.sh BUILD: modules, losses and data of Python, trained by the program (module_peer.py). Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_python torch numpy
export LOCKSTEP_PROGRAM=$program PYTHONPATH=$here/../../python
row_limit=400
peer() { "$python" -B "$here/module_peer.py" "$1"; }

row "a module's losses and weights are PyTorch's" peer same_as_pytorch
row "dropout and BatchNorm: the same bits in every layout" peer every_layout
row "stopped, failed and interrupted: it resumes with the same bits" peer resumes
row "losses of your own: several heads, regression, tied weights" peer own_losses
row "data from iterators and arrays" peer from_iterators
row "data from tables; NumPy's values; what would be read as something else is refused" peer tables
row "what cannot be trained is refused, with the line of the code" peer refusals
row "what a finished run proposes works" peer advice
row "state_dict, plan, recipes, tokenizer" peer everything_else
finish
