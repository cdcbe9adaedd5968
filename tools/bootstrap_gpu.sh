# shellcheck shell=bash
# Which GPU this machine has and whether CUDA 13 fits it. Sourced by bootstrap.sh.

# Sets gpu to none, unfit or fit, and gpu_why to one sentence where it is unfit.
gpu_verdict() {
  local report driver capability name
  gpu=none gpu_why=
  report=$(report_gpus)
  if [[ -z $report ]]; then
    if [[ -e $gpu_device ]]; then
      gpu=unfit gpu_why="an NVIDIA device is here but nvidia-smi does not answer: training uses the CPU; ./lockstep setup --cuda adds CUDA all the same"
    fi
    return 0
  fi
  while IFS=, read -r driver capability name; do
    judge_gpu "${driver// /}" "${capability// /}" "${name# }"
    [[ $gpu != fit ]] || return 0
  done <<<"$report"
}

# A line "driver, compute capability, name" for each GPU; nothing without a driver that answers.
report_gpus() {
  local report
  command -v nvidia-smi >/dev/null || return 0
  if report=$(ask_smi driver_version,compute_cap,name); then
    [[ $report == "No devices"* ]] || printf '%s\n' "$report"
  elif report=$(ask_smi driver_version); then  # too old to know compute_cap
    printf '%s, 0.0, this GPU\n' "${report%%$'\n'*}"
  fi
}

ask_smi() { timeout 30 nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null; }

judge_gpu() {
  local driver=$1 capability=$2 name=$3
  gpu=unfit
  if ! [[ $driver =~ ^[0-9]+(\.[0-9]+)*$ && $capability =~ ^[0-9]+\.[0-9]+$ ]]; then
    gpu_why="nvidia-smi reports driver '$driver' and compute capability '$capability', which cannot be read: training uses the CPU"
  elif ((${driver%%.*} < min_driver)); then
    gpu_why="the NVIDIA driver $driver is older than $min_driver, which CUDA 13 needs: training uses the CPU until the driver is updated"
  elif ((${capability//./} < min_capability)); then
    gpu_why="$name has compute capability $capability and CUDA 13 needs 7.5 or newer: training uses the CPU"
  else
    gpu=fit gpu_why=
  fi
}

# The nvcc 13.x of this machine, or nothing.
find_nvcc() {
  local candidate
  for candidate in "$(command -v nvcc || true)" "${cuda_folders[@]/%//bin/nvcc}"; do
    if [[ -x $candidate && $("$candidate" --version 2>/dev/null) == *"release 13."* ]]; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
}
