#!/usr/bin/env bash
# packages.sh BUILD: what the tests of this folder want from PyPI, once and for all of them; ctest runs it before them. What
# cannot be had is said by the test that wants it.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
[[ -n ${LOCKSTEP_REAL_VENV:-} && -z ${LOCKSTEP_TEST_PYTHON:-} ]] || { echo "nothing to set up"; exit 0; }
modules=(torch torch.distributed transformers safetensors numpy jinja2 peft pyarrow pandas datasets zstandard tensorboard
  playwright axe_playwright_python nbconvert ipykernel matplotlib jax kubernetes_validate kubeflow_trainer_api awscli ray wandb
  bitsandbytes)
for module in "${modules[@]}"; do (trap - EXIT; need_python "$module") || true; done
(trap - EXIT; need_python torch; need_extra 'moto[server]' python-hcl2 'ray[default]')
exit 0
