#!/usr/bin/env python3
"""Tests tools/flash/build.py without its compiler: which kernels are made, and the C table that names them."""
import ctypes
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "flash"))
import build  # noqa: E402


class Kernel(ctypes.Structure):
    """LockstepFlashKernel of flash_abi.h."""
    _fields_ = [("type", ctypes.c_char_p)] + [(name, ctypes.c_int32) for name in (
        "head_dim", "group", "mask", "capped", "packed", "backward", "q_tile", "kv_tile", "width")] + [
            (name, ctypes.c_void_p) for name in ("init", "load", "run")]


class Table(ctypes.Structure):
    _fields_ = [("abi", ctypes.c_int32), ("version", ctypes.c_char_p), ("count", ctypes.c_int32),
                ("kernels", ctypes.POINTER(Kernel))]


class FlashTest(unittest.TestCase):
    def test_every_kernel_is_made_once(self):
        wanted = build.variants([], ["bf16", "fp16"])
        self.assertEqual(len(wanted), len(set(map(build.name_of, wanted))))
        self.assertEqual(len(wanted), 308)  # as docs/gpu.md says
        for row in [("bf16", 128, 4, "window", False, False), ("bf16", 256, 2, "window", True, False),
                    ("bf16", 256, 2, "causal", True, False), ("fp16", 64, 8, "causal", False, False),
                    ("bf16", 64, 7, "full", False, False), ("bf16", 128, 4, "causal", False, True)]:
            for backward in (True, False):
                self.assertIn((*row, backward), wanted)

    def test_heads_of_the_user_have_every_mask(self):
        wanted = build.variants([(72, 5)], ["bf16"])
        self.assertEqual({row[1:3] for row in wanted}, {(72, 5)})
        self.assertEqual({row[3:] for row in wanted},
                         {(mask, capped, False, way) for mask in build.MASKS for capped in (True, False)
                          for way in (True, False)} | {("causal", False, True, way) for way in (True, False)})

    def test_the_table_is_what_the_plugin_reads(self):
        wanted = build.variants([(64, 3)], ["bf16"])
        rows = [(variant, (128 + i, 64, 32), f"entry_{i}") for i, variant in enumerate(wanted)]
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            build.version = lambda package: "4.0"
            build.write_table(rows, folder / "table.c")
            stubs = [f"void _mlir_{build.name_of(variant)}_cuda_{call}(void** a) {{ (void)a; }}"
                     for variant, *_ in rows for call in ("init", "load_to_device")]
            stubs += [f"void {entry}(void** a, int n) {{ (void)a; (void)n; }}" for *_, entry in rows]
            (folder / "stubs.c").write_text("\n".join(stubs))
            subprocess.run(["cc", "-Werror", "-shared", "-fPIC", "-I", str(build.SOURCE), "-o", str(folder / "t.so"),
                            str(folder / "table.c"), str(folder / "stubs.c")], check=True)
            library = ctypes.CDLL(str(folder / "t.so"))
            library.lockstep_flash_table.restype = ctypes.POINTER(Table)
            table = library.lockstep_flash_table().contents
            self.assertEqual((table.version, table.count), (b"4.0", len(rows)))
            for kernel, (variant, sizes, _) in zip(table.kernels[:table.count], rows):
                kind, dim, group, mask, capped, packed, backward = variant
                self.assertEqual((kernel.type.decode(), kernel.head_dim, kernel.group, kernel.mask, kernel.capped,
                                  kernel.packed, kernel.backward, (kernel.q_tile, kernel.kv_tile, kernel.width)),
                                 (kind, dim, group, build.MASKS.index(mask), capped, packed, backward, sizes))
                self.assertTrue(kernel.init and kernel.load and kernel.run)


if __name__ == "__main__":
    unittest.main()
