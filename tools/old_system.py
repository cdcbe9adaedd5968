#!/usr/bin/env python3
"""Stand-ins for the C and C++ library of an older system, to link against: what is linked with them runs there too.

    old_system.py OUT --glibc 2.28 --stdcxx 3.4.24 --cxxabi 1.3.11

A symbol of this system's libraries is in the stand-in in the newest version that the older system has; what it lacks is not there.
OUT/libstdc++.so takes what is lacking from the static library, as Red Hat's toolsets do; what libc lacks is in cmake/old_system.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

# Libraries that became part of libc in 2.34: older systems have to be told to load them.
MOVED = {"libpthread.so.0": "pthread", "libdl.so.2": "dl", "librt.so.1": "rt"}


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def number(text):
    return tuple(map(int, text.split(".")))


def symbols(library, limits):
    """name -> (version, kind, size): the newest version within the limits."""
    found = {}
    for line in run(OBJDUMP, "-T", str(library)).splitlines():
        row = re.match(r"[0-9a-f]+ (.{7}) (\S+)\s+([0-9a-f]+)\s+\(?([A-Z_]+?)_?([0-9.]+)\)?\s+(?:\.\w+ )?(\S+)$", line)
        if not row or row[2] in ("*UND*", "*ABS*") or row[4] not in limits or number(row[5]) > limits[row[4]]:
            continue
        name, version = row[6], (number(row[5]), f"{row[4]}_{row[5]}")
        if name not in found or found[name][0] < version:
            kind = "tls_object" if row[2] in (".tbss", ".tdata") else "object" if row[1].endswith("O") else "function"
            found[name] = (version, kind, int(row[3], 16))
    return {name: (version[1], kind, size) for name, (version, kind, size) in found.items()}


SECTIONS = {"function": ".text", "object": ".data", "tls_object": '.tbss,"awT",@nobits'}


def stand_in(out, soname, all_symbols):
    versions = sorted({version for version, _, _ in all_symbols.values()})
    text = []
    for place, (name, (version, kind, size)) in enumerate(sorted(all_symbols.items())):
        size = max(size, 1)
        text += [f".section {SECTIONS[kind]}", f".globl s{place}", f".type s{place}, @{kind}", f"s{place}: .skip {1 if kind == 'function' else size}",
                 f".size s{place}, {size}", f".symver s{place}, {name}@@{version}, remove"]
    source, script = out / f"{soname}.s", out / f"{soname}.map"
    source.write_text("\n".join(text) + '\n.section .note.GNU-stack,"",@progbits\n')
    script.write_text("".join(f"{version} {{}};\n" for version in versions))
    names = [f"-Wl,--version-script={script}"] if versions else []
    run(COMPILER, "-shared", "-nostdlib", "-fuse-ld=bfd", f"-Wl,-soname,{soname}", *names, "-o", str(out / soname), str(source))
    source.unlink()
    script.unlink()


def where(name):
    return Path(run(COMPILER, f"-print-file-name={name}").strip())


def script(path, text):
    path.write_text(text + "\n")


PROBE = """
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>
int main(int count, char** words) {
  std::thread thread([&] { std::cout << std::strtoull(words[0], nullptr, 10) + std::strtoll(words[0], nullptr, 10); });
  thread.join();
  return std::filesystem::exists(words[count - 1]) ? 0 : std::sscanf(words[0], "%d", &count);
}
"""


# A newer system may ask for what neither the stand-ins nor `sources` have: said here, not at the end of a long build.
def probe(out, sources):
    program = out / "probe.cc"
    program.write_text("#include <cstdio>\n" + PROBE)
    run(COMPILER, "-std=c++20", "-O2", str(program), *sources, f"-L{out}", "-Wl,--no-as-needed,--allow-shlib-undefined", "-lpthread", "-ldl",
        "-lrt", "-o", str(out / "probe"))
    run(*EMULATOR, str(out / "probe"), "/")


def main():
    global COMPILER, OBJDUMP, EMULATOR
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--objdump", default="objdump")
    parser.add_argument("--emulator", default="", help="runs what is compiled for another processor; words divided by semicolons")
    parser.add_argument("--glibc", type=number, required=True)
    parser.add_argument("--stdcxx", type=number, required=True)
    parser.add_argument("--cxxabi", type=number, required=True)
    parser.add_argument("--probe", nargs="*", default=[], help="sources that a program is linked with, to try the stand-ins")
    arguments = parser.parse_args()
    COMPILER, OBJDUMP, EMULATOR, out = arguments.compiler, arguments.objdump, list(filter(None, arguments.emulator.split(";"))), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    for soname, limits in (("libc.so.6", {"GLIBC": arguments.glibc}), ("libm.so.6", {"GLIBC": arguments.glibc}),
                           ("libstdc++.so.6", {"GLIBCXX": arguments.stdcxx, "CXXABI": arguments.cxxabi})):
        stand_in(out, soname, symbols(where(soname), limits))
    for soname, name in MOVED.items():
        stand_in(out, soname, {})
        script(out / f"lib{name}.so", f'INPUT("{out / soname}")')
    script(out / "libm.so", f'INPUT("{out / "libm.so.6"}")')
    nonshared, loader = where("libc_nonshared.a"), re.search(r"/\S*ld-linux\S*", where("libc.so").read_text())[0]
    script(out / "libc.so", f'GROUP("{out / "libc.so.6"}" "{nonshared}" AS_NEEDED("{loader}"))')
    script(out / "libstdc++.so", f'GROUP("{out / "libstdc++.so.6"}" "{where("libstdc++.a")}")')
    probe(out, arguments.probe)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit((failed.stderr or str(failed)).strip())
    except (OSError, TypeError) as failed:  # a library or a tool that is not there, a libc.so of another form
        sys.exit(str(failed))
