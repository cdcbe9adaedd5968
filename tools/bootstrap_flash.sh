# shellcheck shell=bash
# FlashAttention's kernels for Hopper, compiled here, for this machine: they are nobody's to ship (docs/dependencies.md).
# Sourced by bootstrap.sh.

# Wanted where a GPU of compute capability 9.0 is, or where the user says so.
wants_flash() {
  local request=${want_flash:-$(choice flash)}
  [[ $gpu == cuda && $request != off ]] || return 1
  [[ $request == on ]] || report_gpus | grep -q '^[^,]*, *9\.0,'
}

# What the kernels depend on, so that they are compiled once.
flash_inputs() {
  (cd "$root/tools" && cat flash/*.py ../src/lockstep/kernels/flash/flash_abi.h && grep '^flash ' wheels.lock) | sha256sum
  printf '%s\n' "${LOCKSTEP_FLASH_HEADS:-common}"
}

find_cudart() {
  local candidate
  for candidate in "$torch/../nvidia/cu13/lib" "${nvcc%/bin/nvcc}/lib64" "${nvcc%/bin/nvcc}/lib"; do
    if [[ -e $candidate/libcudart.so.13 ]]; then
      printf '%s\n' "$candidate/libcudart.so.13"
      return 0
    fi
  done
}

# Fetches the compiler, uses it and throws it away. Without these kernels attention takes cuDNN, so nothing here stops
# the set-up.
build_flash() {
  local library=$build/src/lockstep/liblockstep_flash.so made=$build/.flash_stamp tool=$deps/flash
  wants_flash || return 0
  if [[ -f $library && -f $made && $(<"$made") == "$(flash_inputs)" ]]; then return 0; fi
  if wheels fetch flash --deps "$tool" && mkdir -p "${library%/*}" &&
    run_logged "attention kernels for Hopper" flash python3 -B "$root/tools/flash/build.py" --site "$tool/site" \
      --out "$library" --cudart "$(find_cudart)" --jobs "$jobs" ${LOCKSTEP_FLASH_HEADS:+--heads "$LOCKSTEP_FLASH_HEADS"}; then
    flash_inputs >"$made"
  else
    say "lockstep: could not build the FlashAttention kernels; attention uses cuDNN. The next setup tries again."
  fi
  rm -rf "$tool"
}
