#!/usr/bin/env python3
"""Tests wheels.py against a package index of its own: resuming, damage, a full disk, no network."""
import errno
import hashlib
import http.server
import os
import sys
import tempfile
import threading
import unittest
import zipfile
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from unittest import mock

import wheels

FILE = "torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl"


class Index(http.server.BaseHTTPRequestHandler):
    """Serves one wheel; `faults` are played one a request: cut the answer short, damage it, refuse ranges."""

    wheel, faults, requests = b"", [], []

    def do_GET(self):
        if not self.path.endswith(".whl"):
            return self.answer(200, f'<a href="../files/{FILE}#sha256=x">{FILE}</a>'.encode())
        wanted = self.headers.get("Range", "")
        self.requests.append(wanted)
        fault = self.faults.pop(0) if self.faults else ""
        start = int(wanted[6:-1]) if wanted and fault != "no ranges" else 0
        body = self.wheel[start:]
        if fault == "damage":
            body = bytes([body[0] ^ 1]) + body[1:]
        self.answer(206 if start else 200, body, len(body) // 2 if fault == "cut" else len(body))
        return None

    def answer(self, status, body, sent=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:sent])

    def log_message(self, *_):
        pass


class WheelsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.deps = Path(self.folder.name) / "de ps"
        self.deps.mkdir()
        self.lock = Path(self.folder.name) / "lock"
        self.make_wheel({"torch/version.py": "v", "torch/lib/libtorch_cpu.so": "cpu" * 9999,
                         "torch/lib/libtorch_cuda.so": "cuda", "torch/nn/module.py": "python"})
        Index.faults, Index.requests = [], []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        settings = {"PIP_INDEX_URL": f"http://127.0.0.1:{self.server.server_port}/simple", "PIP_FIND_LINKS": "",
                    "LOCKSTEP_RETRY_S": "0", "no_proxy": "*"}
        self.environment = mock.patch.dict(os.environ, settings)
        self.environment.start()

    def tearDown(self):
        self.environment.stop()
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()

    def make_wheel(self, members):
        path = Path(self.folder.name) / "wheel"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in members.items():
                info = zipfile.ZipInfo(name)
                info.external_attr = (0o755 if name.endswith("nvcc") else 0o644) << 16
                archive.writestr(info, text)
        Index.wheel = path.read_bytes()
        sha256 = hashlib.sha256(Index.wheel).hexdigest()
        rows = [f"{s} x86_64 torch 2.11.0 {FILE} {len(Index.wheel)} 5 {sha256}" for s in ("cpu", "cuda")]
        self.lock.write_text("# a comment\n" + "\n".join(rows) + "\n")

    def run_tool(self, *arguments):
        """Exit status and messages of one run."""
        command = ["wheels.py", *arguments, "--deps", str(self.deps), "--lock", str(self.lock), "--arch", "x86_64"]
        errors = StringIO()
        with mock.patch.object(sys, "argv", command), redirect_stderr(errors), mock.patch("builtins.print") as out:
            status = wheels.main()
        printed = " ".join(str(a) for call in out.call_args_list for a in call.args)
        return status, printed + errors.getvalue()

    def site(self):
        root = self.deps / "site"
        return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())

    def test_unpacks_only_what_the_set_needs_and_only_once(self):
        self.assertEqual(self.run_tool("fetch", "cpu")[0], 0)
        self.assertEqual(self.site(), ["torch/lib/libtorch_cpu.so", "torch/version.py"])
        self.assertEqual(self.run_tool("missing", "cpu"), (0, "0 0"))
        self.assertEqual(self.run_tool("fetch", "cpu")[0], 0)
        self.assertEqual(len(Index.requests), 1)
        self.assertEqual(self.run_tool("missing", "cpu", "cuda"), (0, f"{len(Index.wheel)} 5"))
        self.assertEqual(self.run_tool("fetch", "cpu", "cuda")[0], 0)
        self.assertIn("torch/lib/libtorch_cuda.so", self.site())
        self.assertFalse((self.deps / "wheels").exists())

    def test_survives_a_bad_line(self):
        half = len(Index.wheel) // 2
        for faults, requests in [(["cut"], ["", f"bytes={half}-"]), (["damage"], ["", ""]),
                                 (["cut", "no ranges"], ["", f"bytes={half}-"])]:
            with self.subTest(faults=faults):
                Index.faults, Index.requests = list(faults), []
                self.assertEqual(self.run_tool("fetch", "cpu")[0], 0)
                self.assertEqual(Index.requests, requests)
                self.assertIn("torch/version.py", self.site())
                for stamp in (self.deps / "stamps").iterdir():
                    stamp.unlink()

    def test_gives_up_with_a_sentence_and_keeps_what_came(self):
        Index.faults = ["cut"] * wheels.ATTEMPTS
        status, said = self.run_tool("fetch", "cpu")
        self.assertEqual(status, 1)
        self.assertIn("[LS0702]", said)
        self.assertTrue((self.deps / "wheels" / (FILE + ".part")).stat().st_size > 0)
        self.assertEqual(self.site(), [])
        self.assertEqual(self.run_tool("fetch", "cpu")[0], 0)
        self.assertTrue(Index.requests[-1].startswith("bytes="))

    def test_says_there_is_no_network(self):
        with mock.patch.dict(os.environ, {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}):
            status, said = self.run_tool("fetch", "cpu")
        self.assertEqual(status, 1)
        self.assertIn("check the network or the proxy", said)

    def test_always_damaged_is_never_used(self):
        Index.faults = ["damage"] * wheels.ATTEMPTS
        status, said = self.run_tool("fetch", "cpu")
        self.assertEqual((status, self.site()), (1, []))
        self.assertIn("pinned SHA-256", said)

    def test_full_disk_leaves_no_half_file(self):
        full = OSError(errno.ENOSPC, "No space left on device")
        with mock.patch("zipfile.ZipFile.extract", side_effect=full):
            status, said = self.run_tool("fetch", "cpu")
        self.assertEqual((status, self.site()), (1, []))
        self.assertIn("is full", said)
        self.assertEqual(self.run_tool("fetch", "cpu")[0], 0)

    def test_a_hostile_name_stays_inside(self):
        self.make_wheel({"../../torch/version.py": "out", "torch/version.py": "in"})
        with mock.patch.object(wheels.Wheel, "wants", lambda *_: True):
            self.run_tool("fetch", "cpu")
        self.assertFalse((Path(self.folder.name) / "torch").exists())

    def test_takes_a_wheel_from_a_folder_of_wheels(self):
        links = Path(self.folder.name) / "links"
        links.mkdir()
        (links / FILE).write_bytes(Index.wheel)
        with mock.patch.dict(os.environ, {"PIP_FIND_LINKS": str(links), "PIP_INDEX_URL": "http://127.0.0.1:9/"}):
            self.assertEqual(self.run_tool("fetch", "cpu")[0], 0)
        self.assertTrue((links / FILE).exists())

    def test_a_compiler_works_from_the_site_folder(self):
        self.make_wheel({"nvidia/cu13/bin/nvcc": "#!", "nvidia/cu13/lib/libcudart.so.13": "library"})
        with mock.patch.object(wheels.Wheel, "wants", lambda *_: True):
            self.assertEqual(self.run_tool("fetch", "cpu")[0], 0)
        self.assertTrue(os.access(self.deps / "site/nvidia/cu13/bin/nvcc", os.X_OK))
        self.assertEqual((self.deps / "site/nvidia/cu13/lib64/libcudart.so").read_text(), "library")

    def test_a_compiler_in_python_is_taken_for_this_python_alone(self):
        """Of the other sets any wheel will do: there we take no Python."""
        with mock.patch.object(wheels, "PYTHON", "cp312"):
            for name, expected in {"cuda_bindings-13.5.0-cp312-cp312-manylinux_2_28_x86_64.whl": True,
                                   "cuda_bindings-13.5.0-cp311-cp311-manylinux_2_28_x86_64.whl": False,
                                   "numpy-2.4.6-cp312-cp312t-manylinux_2_28_x86_64.whl": False,
                                   "einops-0.8.2-py3-none-any.whl": True}.items():
                with self.subTest(name=name):
                    row = f"x86_64 package 1 {name} 9 9 {'0' * 64}"
                    self.assertEqual(wheels.Wheel(f"flash {row}").imports_here(), expected)
                    self.assertTrue(wheels.Wheel(f"cuda {row}").imports_here())
        with mock.patch.object(wheels, "PYTHON", "cp27"), self.assertRaisesRegex(wheels.Refusal, "this Python .cp27."):
            wheels.read_lock(wheels.TOOLS / "wheels.lock", ["flash"], "x86_64")

    def test_the_lock_is_whole(self):
        lock = wheels.TOOLS / "wheels.lock"
        for arch in ("x86_64", "aarch64"):
            wanted = wheels.read_lock(lock, ["cpu", "cuda", "nvcc"], arch)
            self.assertEqual(len(wanted), 1 + 2 + 1 + 14 + 4)
            for alternatives in wanted.values():
                for wheel in alternatives:
                    self.assertRegex(wheel.sha256, "^[0-9a-f]{64}$")
                    self.assertGreater(wheel.size, 1000)
        with self.assertRaises(wheels.Refusal):
            wheels.read_lock(lock, ["cpu"], "riscv64")


if __name__ == "__main__":
    unittest.main()
