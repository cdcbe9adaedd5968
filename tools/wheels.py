#!/usr/bin/env python3
"""Fetch and unpack the wheels that wheels.lock pins, with nothing but Python's standard library.

    wheels.py missing SET...   bytes to download and bytes on disk that are still missing
    wheels.py fetch SET...     download, verify and unpack what is missing

Sets are cpu (LibTorch and the two CUDA libraries that libtorch_cpu.so links), cuda (what
libtorch_cuda.so needs on top), nvcc (a CUDA compiler), arrow (Arrow's and Parquet's C++ libraries) and flash
(FlashAttention and its compiler, which the Python that runs this must be able to import). A download goes on where it was
interrupted, is used only when its SHA-256 is the pinned one, and is unpacked into a folder of its
own before it reaches the site folder; the stamp that makes it count is written last.

pip is not needed, but its settings are honoured: index-url, find-links and cert from PIP_*
variables or pip.conf, and the usual proxy variables.
"""
import argparse
import configparser
import errno
import fnmatch
import hashlib
import http.client
import os
import platform
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from html.parser import HTMLParser
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"
CHUNK = 1 << 20
ATTEMPTS = int(os.environ.get("LOCKSTEP_ATTEMPTS", 5))

# What C++ needs of the torch wheel: the rest is Python. The value is what each set unpacks.
TORCH_FILES = {
    "cpu": ["torch/include/*", "torch/share/cmake/*", "torch/version.py", "torch-*.dist-info/*",
            "torch/lib/libtorch_cpu.so", "torch/lib/libc10.so", "torch/lib/libtorch.so",
            "torch/lib/libgomp*", "torch/lib/libgfortran*", "torch/lib/libarm_compute*", "torch/lib/libnvpl_*"],
    "cuda": ["torch/lib/libtorch_cuda*.so", "torch/lib/libc10_cuda.so", "torch/lib/libtorch_nvshmem.so",
             "torch/lib/libcaffe2_nvrtc.so"],
}
# Of this one the headers: they land in site/include.
FRONTEND = "nvidia-cudnn-frontend"
FRONTEND_FILES = ["include/*", "nvidia_cudnn_frontend-*.dist-info/*"]
# And of this one three libraries and their headers. The last came later than the others: a folder without it is not complete.
ARROW = "pyarrow"
ARROW_NEWEST = "pyarrow/libarrow_s3.so.*"
ARROW_FILES = ["pyarrow/libarrow.so.*", "pyarrow/libparquet.so.*", ARROW_NEWEST, "pyarrow/include/arrow/*", "pyarrow/include/parquet/*",
               "pyarrow-*.dist-info/*"]


class Refusal(Exception):
    """Stops with one sentence and a code of the error catalogue."""

    def __init__(self, code, sentence):
        super().__init__(f"{sentence} [{code}]")


class Wheel:
    """One row of wheels.lock."""

    def __init__(self, row):
        self.set, self.arch, self.name, self.version, self.file, size, disk, self.sha256 = row.split()
        self.size, self.disk = int(size), int(disk)

    def wants(self, member):
        """Whether this set unpacks that file of the wheel."""
        patterns = {"torch": TORCH_FILES.get(self.set), FRONTEND: FRONTEND_FILES, ARROW: ARROW_FILES}.get(self.name)
        if patterns is None:
            return True
        return any(fnmatch.fnmatchcase(member, pattern) for pattern in patterns)

    def imports_here(self):
        """Whether this Python can import what the wheel holds; of the other sets we take no Python."""
        return self.set != "flash" or "-py3-none-" in self.file or f"-{PYTHON}-{PYTHON}-" in self.file


def read_lock(path, sets, arch):
    """The alternatives for each wheel wanted: torch has one for each Python, and any of them will do."""
    wanted = {}
    for row in path.read_text().splitlines():
        if row and not row.startswith("#"):
            wheel = Wheel(row)
            if wheel.set in sets and wheel.arch == arch:
                wanted.setdefault((wheel.set, wheel.name), []).append(wheel)
    if not wanted:
        raise Refusal("LS0707", f"no LibTorch wheel for {arch}; only x86_64 and aarch64 Linux are supported")
    fitting = {key: [wheel for wheel in wheels if wheel.imports_here()] for key, wheels in wanted.items()}
    if not all(fitting.values()):
        raise Refusal("LS0707", f"FlashAttention's compiler has no wheels for this Python ({PYTHON})")
    return fitting


# ---- pip's settings -------------------------------------------------------------------------------------

def pip_setting(name):
    """A setting as pip would see it: the environment, then the user's, then the machine's pip.conf."""
    value = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    if value is not None:
        return value
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    files = [os.environ.get("PIP_CONFIG_FILE", ""), config / "pip/pip.conf", Path.home() / ".pip/pip.conf", "/etc/pip.conf"]
    for file in filter(None, files):
        parser = configparser.RawConfigParser()
        try:
            parser.read(file)
        except (OSError, configparser.Error, UnicodeError):
            continue
        if parser.has_option("global", name):
            return parser.get("global", name)
    return ""


def local_folders():
    links = pip_setting("find-links").split()
    return [Path(link.removeprefix("file://")) for link in links if "://" not in link or link.startswith("file://")]


def open_url(url, offset=0):
    headers = {"User-Agent": "lockstep-setup", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    cert = pip_setting("cert") or os.environ.get("REQUESTS_CA_BUNDLE")
    context = ssl.create_default_context(cafile=cert if cert and os.path.exists(cert) else None)
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60, context=context)


class Links(HTMLParser):
    """The links of a package's page in the index (PEP 503)."""

    def __init__(self):
        super().__init__()
        self.hrefs = []

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.hrefs += [value for key, value in attributes if key == "href" and value]


def index_links(name):
    """File name to (address, sha256) for every file the index has of a package."""
    index = pip_setting("index-url") or "https://pypi.org/simple"
    page = f"{index.rstrip('/')}/{name}/"
    with open_url(page) as reply:
        parser = Links()
        parser.feed(reply.read().decode())
        base = reply.geturl()
    links = {}
    for href in parser.hrefs:
        url, _, fragment = urllib.parse.urljoin(base, href).partition("#")
        links[urllib.parse.unquote(url.rsplit("/", 1)[-1])] = (url, fragment.removeprefix("sha256="))
    return links


# ---- progress -------------------------------------------------------------------------------------------

class Progress:
    """Bytes on a terminal; in a pipe a line at each quarter, or only the last one where it is small."""

    def __init__(self, label, total):
        self.label, self.total, self.start, self.first = label, max(total, 1), time.monotonic(), None
        self.terminal = sys.stderr.isatty()
        self.shown = -1 if self.terminal else 0

    def at(self, done):
        if self.first is None:
            self.first = done
        quarters = 4 if self.total > 100e6 else 1
        step = int(time.monotonic() * 5) if self.terminal else done * quarters // self.total
        if step == self.shown and done < self.total:
            return
        self.shown = step
        rate = (done - self.first) / max(time.monotonic() - self.start, 0.1) / 1e6
        text = f"  {self.label}: {done / 1e6:.0f} of {self.total / 1e6:.0f} MB ({100 * done // self.total} %, {rate:.0f} MB/s)"
        end = "\n" if done >= self.total or not self.terminal else ""
        sys.stderr.write(("\r\033[K" if self.terminal else "") + text + end)
        sys.stderr.flush()


# ---- download -------------------------------------------------------------------------------------------

def digest(path):
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            sha.update(chunk)
    return sha.hexdigest()


def receive(url, part, wheel, progress):
    """One attempt to append what is missing of the wheel to the part file."""
    offset = part.stat().st_size if part.exists() else 0
    if offset >= wheel.size:
        return
    with open_url(url, offset) as reply:
        if offset and reply.status != 206:
            offset = 0  # this server cannot resume
        with open(part, "ab" if offset else "wb") as file:
            progress.at(offset)
            while chunk := reply.read(CHUNK):
                file.write(chunk)
                offset += len(chunk)
                progress.at(min(offset, wheel.size))
    if offset < wheel.size:
        raise ConnectionError(f"the connection closed at {offset} of {wheel.size} bytes")


def download(wheel, folder):
    """The verified wheel in folder; an interrupted part file is gone on with."""
    part = folder / (wheel.file + ".part")
    progress = Progress(f"{wheel.name} {wheel.version}", wheel.size)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            links = index_links(wheel.name)
            if wheel.file not in links:
                raise Refusal("LS0702", f"the package index has no {wheel.file}: check index-url in pip's settings")
            receive(links[wheel.file][0], part, wheel, progress)
            if digest(part) == wheel.sha256:
                done = folder / wheel.file
                part.replace(done)
                return done
            part.unlink()
            problem = "the bytes received do not have the pinned SHA-256"
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
            problem = getattr(error, "reason", error)
            if isinstance(problem, ssl.SSLCertVerificationError):
                raise Refusal("LS0702", f"the package index shows a certificate that is not trusted here "
                              f"({problem.verify_message}); set SSL_CERT_FILE to your network's certificates") from None
            problem = str(problem) or type(problem).__name__
        newline = "\n" if sys.stderr.isatty() else ""
        print(f"{newline}  {wheel.name}: {problem} (attempt {attempt} of {ATTEMPTS})", file=sys.stderr, flush=True)
        if attempt < ATTEMPTS:
            time.sleep(float(os.environ.get("LOCKSTEP_RETRY_S", attempt * 2)))
    raise Refusal("LS0702", f"could not download {wheel.file}: {problem}; check the network or the proxy and run the "
                  "same command again to continue")


def obtain(alternatives, folder):
    """A verified wheel and its file: from a find-links folder or an earlier download if there, else the index."""
    for wheel in alternatives:
        for place in [folder] + local_folders():
            file = place / wheel.file
            if file.is_file() and file.stat().st_size == wheel.size and digest(file) == wheel.sha256:
                return wheel, file
    return alternatives[0], download(alternatives[0], folder)


# ---- unpack ---------------------------------------------------------------------------------------------

def unpack(wheel, file, scratch, site):
    """Unpack into scratch, then move file by file: a full disk or an interruption leaves no torn file in site."""
    shutil.rmtree(scratch, ignore_errors=True)
    with zipfile.ZipFile(file) as archive:
        members = [m for m in archive.infolist() if not m.is_dir() and wheel.wants(m.filename)]
        progress = Progress(f"unpacking {wheel.name}", sum(m.file_size for m in members))
        done = 0
        for member in members:
            path = Path(archive.extract(member, scratch))  # checks the CRC, refuses to leave scratch
            if member.external_attr >> 16 & 0o111:
                path.chmod(0o755)
            done += member.file_size
            progress.at(done)
    for path in sorted(scratch.rglob("*")):
        if path.is_file():
            target = site / path.relative_to(scratch)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    shutil.rmtree(scratch)


class Store:
    """The .deps folder: wheels/ while downloading, site/ unpacked, stamps/ what counts as unpacked."""

    def __init__(self, root):
        self.wheels, self.site, self.stamps = root / "wheels", root / "site", root / "stamps"
        self.scratch = root / "unpack.tmp"

    def stamp(self, wheel):
        return self.stamps / f"{wheel.name}-{wheel.version}.{wheel.set}"

    def has(self, alternatives):
        """Unpacked before, from any of the alternatives."""
        if alternatives[0].name == ARROW and not any(self.site.glob(ARROW_NEWEST)):
            return False
        stamp = self.stamp(alternatives[0])
        return stamp.is_file() and stamp.read_text().split()[-1:] in [[w.sha256] for w in alternatives]

    def add(self, alternatives):
        for folder in (self.wheels, self.site, self.stamps):
            folder.mkdir(parents=True, exist_ok=True)
        wheel, file = obtain(alternatives, self.wheels)
        unpack(wheel, file, self.scratch, self.site)
        temporary = self.stamps / "new"
        temporary.write_text(f"{wheel.file} {wheel.sha256}\n")
        temporary.replace(self.stamp(wheel))

    def link_names(self):
        """The names that linkers and nvcc look for, which wheels lack: libX.so beside libX.so.N, lib64."""
        for library in self.site.glob("nvidia/*/lib/lib*.so.[0-9]*"):
            link = library.with_name(library.name.partition(".so.")[0] + ".so")
            if not link.exists():
                link.symlink_to(library.name)
        for folder in self.site.glob("nvidia/cu[0-9]*"):
            if not (folder / "lib64").exists():
                (folder / "lib64").symlink_to("lib")

    def drop_downloads(self):
        shutil.rmtree(self.wheels, ignore_errors=True)


def partial(store, wheel):
    part = store.wheels / (wheel.file + ".part")
    whole = store.wheels / wheel.file
    return whole.stat().st_size if whole.exists() else part.stat().st_size if part.exists() else 0


def missing(store, wanted):
    lacking = [alternatives for alternatives in wanted.values() if not store.has(alternatives)]
    # cpu and cuda each unpack their part of the same torch wheel: it travels once.
    files = {alternatives[0].file: alternatives[0] for alternatives in lacking}
    download_bytes = sum(max(wheel.size - partial(store, wheel), 0) for wheel in files.values())
    return lacking, download_bytes, sum(alternatives[0].disk for alternatives in lacking)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=["missing", "fetch"])
    parser.add_argument("sets", nargs="+", choices=["cpu", "cuda", "nvcc", "flash", "arrow"])
    parser.add_argument("--deps", type=Path, default=TOOLS.parent / ".deps")
    parser.add_argument("--lock", type=Path, default=TOOLS / "wheels.lock")
    parser.add_argument("--arch", default=platform.machine())
    arguments = parser.parse_args()
    try:
        store = Store(arguments.deps)
        wanted = read_lock(arguments.lock, arguments.sets, arguments.arch)
        lacking, download_bytes, disk_bytes = missing(store, wanted)
        if arguments.command == "missing":
            print(download_bytes, disk_bytes)
            return 0
        for alternatives in lacking:
            store.add(alternatives)
        store.link_names()
        store.drop_downloads()
        return 0
    except Refusal as refusal:
        print(f"lockstep: {refusal}", file=sys.stderr)
        return 1
    except zipfile.BadZipFile as error:
        print(f"lockstep: cannot unpack a wheel ({error}); run the same command again [LS0708]", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"lockstep: the disk of {arguments.deps} is full; free some space and run the same command again [LS0703]",
              file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
