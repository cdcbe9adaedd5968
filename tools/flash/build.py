#!/usr/bin/env python3
"""Compile FlashAttention-4's Hopper kernels into liblockstep_flash.so, ahead of time and without a GPU.

    build.py --site FOLDER --cudart libcudart.so.13 --out build/src/lockstep/liblockstep_flash.so [--heads 64:1,128:8]

FOLDER holds the unpacked wheels of the set `flash` (tools/wheels.lock): FlashAttention and its compiler. Kernels are
made for each type, head size, number of query heads that share a key head, mask, with a soft cap or without, and for
samples of several documents; what is not among them is computed by cuDNN or by our own kernels. Kernels that do not compile are left out, with a word.
"""
import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src/lockstep/kernels/flash"
MASKS = ["full", "causal", "window"]
# Head size, and query heads to a key head, of the models that people train: of all of them, of those with a sliding
# window (Mistral, Gemma, Phi-3), and of those with a soft cap (Gemma 2).
HEADS = [(dim, group) for dim in (64, 128) for group in range(1, 9)] + [
    (dim, group) for dim in (96, 256) for group in (1, 2, 4, 8)]
WINDOW_HEADS = [(dim, group) for dim in (64, 96, 128, 256) for group in (1, 2, 4, 8)]
CAP_HEADS = [(dim, group) for dim in (128, 256) for group in (1, 2, 4)]


def variants(heads, types):
    """(type, head size, group, mask, capped, packed, backward), the slowest to compile first. Windows, soft caps and
    packed documents are made for the first type alone."""
    plain = heads or HEADS
    rows = [(kind, *head, mask, False, False) for kind in types for head in plain for mask in ("full", "causal")]
    rows += [(types[0], *head, "window", False, False) for head in heads or WINDOW_HEADS]
    rows += [(types[0], *head, mask, True, False) for head in heads or CAP_HEADS for mask in MASKS]
    rows += [(types[0], *head, "causal", False, True) for head in plain]
    return [(*row, backward) for backward in (True, False) for row in rows]


def name_of(variant):
    type_name, dim, group, mask, capped, packed, backward = variant
    return "_".join([type_name, str(dim), str(group), mask, *["capped"] * capped, *["packed"] * packed,
                     "backward" if backward else "forward"])


def compile_one(variant, folder):
    """The row of the table, or a sentence that says why there is none."""
    import kernels
    name = name_of(variant)
    try:
        *scores, backward = variant
        compiled, sizes = (kernels.compile_backward if backward else kernels.compile_forward)(*scores)
        compiled.export_to_c(str(folder), name, function_prefix=name)
        header = (folder / f"{name}.h").read_text()
        entry = re.search(r"void (_mlir_\w+)\(void \*\*args, int32_t num_args\)", header).group(1)
        return variant, sizes, entry, ""
    except Exception as error:  # of any kind: the compiler has many
        return variant, None, "", f"{type(error).__name__}: {str(error).strip()[:300]}"


def write_table(rows, path):
    lines = ['#include "flash_abi.h"']
    for variant, _, entry in rows:
        name = name_of(variant)
        lines.append(f"void _mlir_{name}_cuda_init(void**);\nvoid _mlir_{name}_cuda_load_to_device(void**);\n"
                     f"void {entry}(void**, int32_t);")
    lines.append("static const LockstepFlashKernel kernels[] = {")
    for variant, sizes, entry in rows:
        type_name, dim, group, mask, capped, packed, backward = variant
        name = name_of(variant)
        lines.append(f'  {{"{type_name}", {dim}, {group}, {MASKS.index(mask)}, {int(capped)}, {int(packed)}, {int(backward)}, '
                     f"{', '.join(map(str, sizes))}, _mlir_{name}_cuda_init, _mlir_{name}_cuda_load_to_device, "
                     f"{entry}}},")
    lines.append("};")
    lines.append(f'static const LockstepFlashTable table = {{LOCKSTEP_FLASH_ABI, "{version("flash-attn-4")}", '
                 f"{len(rows)}, kernels}};")
    lines.append("const LockstepFlashTable* lockstep_flash_table(void) { return &table; }")
    path.write_text("\n".join(lines) + "\n")


def link(folder, rows, out, runtime, cudart):
    write_table(rows, folder / "table.c")
    (folder / "exports").write_text("{ global: lockstep_flash_table; local: *; };\n")
    objects = [str(folder / f"{name_of(variant)}.o") for variant, *_ in rows]
    temporary = out.with_suffix(".new")
    subprocess.run(
        [os.environ.get("CC", "cc"), "-O2", "-fPIC", "-shared", "-s", "-I", str(SOURCE), "-o", str(temporary),
         str(folder / "table.c"), *objects, str(runtime), str(cudart), "-Wl,-z,defs",
         f"-Wl,--version-script,{folder / 'exports'}"], check=True)
    temporary.replace(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cudart", type=Path, required=True, help="libcudart.so.13")
    parser.add_argument("--heads", help="size:group,... instead of those of common models")
    parser.add_argument("--types", default="bf16,fp16")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    heads = [tuple(map(int, pair.split(":"))) for pair in arguments.heads.split(",")] if arguments.heads else []
    sys.path[1:1] = [str(arguments.site / "nvidia_cutlass_dsl/dsl_packages"), str(arguments.site)]
    wanted = variants(heads, arguments.types.split(","))
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(arguments.jobs) as pool:
        folder = Path(folder)
        rows = []
        for i, (variant, sizes, entry, problem) in enumerate(pool.map(compile_one, wanted, [folder] * len(wanted))):
            print(f"[{i + 1}/{len(wanted)}] {name_of(variant)} {problem}", flush=True)
            if not problem:
                rows.append((variant, sizes, entry))
        if not rows:
            print("no kernel could be compiled", file=sys.stderr)
            return 1
        import cutlass
        runtime = Path(cutlass.__file__).parents[2] / "cu13/lib/libcuda_dialect_runtime_static.a"
        link(folder, rows, arguments.out, runtime, arguments.cudart)
    print(f"{arguments.out}: {len(rows)} of {len(wanted)} kernels, {arguments.out.stat().st_size / 1e6:.1f} MB, "
          f"{time.monotonic() - start:.0f} s on {platform.machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
