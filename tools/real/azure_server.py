"""A Blob service of Azure, small and strict, for tests: no emulator of it is to be had from PyPI or Debian.

    server = azure_server.start("account", key_in_base64)     # a thread; server.port; account and path as Azurite has them
    server.spoil = lambda path: "503"                          # how to spoil the next answer about this path, "" for not

What it checks is what the service documents, so that a client that signs wrongly is refused here too:
- Shared Key ("Authorize with Shared Key", the Blob service's form since 2015-02-21) over method, headers and resource, with
  dates at most 15 minutes off; account SAS ("Create an account SAS") with its signature, times and permissions.
- Containers, block blobs in one piece or as blocks that are committed by a list, ranges, conditions, Content-MD5, lists with
  prefix, delimiter and pages. Blobs appear whole. Of the Data Lake endpoint it answers only that names have no hierarchy.
"""
import base64
import datetime
import email.utils
import hashlib
import hmac
import http.server
import socket
import struct
import threading
import time
import urllib.parse
import uuid
import xml.etree.ElementTree as trees
from xml.sax.saxutils import escape

SIGNED_HEADERS = ("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
                  "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range")
MOST_LISTED = 5000


class Refused(Exception):
    def __init__(self, status, code):
        super().__init__(code)
        self.status, self.code = status, code


def string_to_sign(account, method, path, query, headers):
    """What the signature is of. `path` as it was sent, `query` decoded pairs, `headers` with names in lower case."""
    lines = [method] + ["" if name == "content-length" and headers.get(name) == "0" else headers.get(name, "") for name in SIGNED_HEADERS]
    lines += [f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers) if name.startswith("x-ms-")]
    named = {}
    for name, value in query:
        named.setdefault(name.lower(), []).append(value)
    resource = [f"/{account}{path}"] + [f"{name}:{','.join(sorted(named[name]))}" for name in sorted(named)]
    return "\n".join(lines + resource)


def signature(key, text):
    return base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()


class Blobs:
    """Containers with their blobs: bytes, type, time and a number that is another one for each version."""

    def __init__(self):
        self.lock, self.containers, self.blocks, self.count = threading.RLock(), {}, {}, 0

    def container(self, name):
        if name not in self.containers:
            raise Refused(404, "ContainerNotFound")
        return self.containers[name]

    def blob(self, container, name):
        blobs = self.container(container)
        if name not in blobs:
            raise Refused(404, "BlobNotFound")
        return blobs[name]

    def put(self, container, name, data, headers):
        with self.lock:
            blobs = self.container(container)
            if headers.get("if-none-match") == "*" and name in blobs:
                raise Refused(409, "BlobAlreadyExists")
            self.count += 1
            metadata = {k: v for k, v in headers.items() if k.startswith("x-ms-meta-")}
            kind = headers.get("x-ms-blob-content-type") or headers.get("content-type", "application/octet-stream")
            blobs[name] = {"data": data, "type": kind, "time": time.time(), "etag": f'"0x{self.count:016X}"', "metadata": metadata}
            self.blocks.pop((container, name), None)
            return blobs[name]


def handler(server_of):
    class Service(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # headers and body leave together

        def handle_expect_100(self):
            answered = super().handle_expect_100()
            self.wfile.flush()  # the client waits for it
            return answered

        def serve(self):
            server = server_of()
            parts = urllib.parse.urlsplit(self.path)
            self.query_pairs = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
            self.query = {k.lower(): v for k, v in self.query_pairs}
            self.sent = {k.lower(): v for k, v in self.headers.items()}
            self.body = self.read_body()
            how = server.spoil(urllib.parse.unquote(self.path))
            if how == "reset":
                return self.reset()
            try:
                if how in ("429", "503"):
                    raise Refused(int(how), "ServerBusy")
                if how == "expired":
                    raise Refused(403, "AuthenticationFailed")
                self.check_access(server, parts.path)
                account, _, rest = parts.path.lstrip("/").partition("/")
                if account != server.account:
                    raise Refused(404, "ResourceNotFound")
                container, _, name = urllib.parse.unquote(rest).partition("/")
                status, headers, data = self.work(server.blobs, container, name)
            except Refused as refused:
                text = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{refused.code}</Code><Message>{refused.code}</Message></Error>'
                status, headers, data = refused.status, {"x-ms-error-code": refused.code}, b""
                if self.command != "HEAD":
                    headers["Content-Type"], data = "application/xml", text.encode()
            self.answer(status, headers, data, cut=how == "truncate" and self.command == "GET")
            return None

        def read_body(self):
            if "chunked" not in self.sent.get("transfer-encoding", ""):
                return self.rfile.read(int(self.sent.get("content-length") or 0))
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def reset(self):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True

        def answer(self, status, headers, data, cut=False):
            self.send_response(status)
            for name, value in {"x-ms-version": "2023-11-03", "x-ms-request-id": "0", **headers}.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "HEAD":
                return
            self.wfile.write(data[: len(data) // 2] if cut and len(data) > 1 else data)
            if cut:
                self.wfile.flush()
                self.reset()

        # ---- who may

        def check_access(self, server, path):
            said = self.sent.get("authorization", "")
            if said.startswith("SharedKey "):
                return self.check_shared_key(server, path, said[len("SharedKey "):])
            if "sig" in self.query:
                return self.check_sas(server)
            raise Refused(401, "NoAuthenticationInformation")

        def check_shared_key(self, server, path, said):
            account, _, given = said.partition(":")
            date = email.utils.parsedate_to_datetime(self.sent.get("x-ms-date") or self.sent.get("date") or "")
            if abs((datetime.datetime.now(datetime.timezone.utc) - date).total_seconds()) > 900 or "x-ms-version" not in self.sent:
                raise Refused(403, "AuthenticationFailed")
            text = string_to_sign(server.account, self.command, path, self.query_pairs, self.sent)
            if account != server.account or not hmac.compare_digest(signature(server.key, text), given):
                raise Refused(403, "AuthenticationFailed")

        def check_sas(self, server):
            q = {k: self.query.get(k, "") for k in ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv", "ses", "sig")}
            lines = [server.account, q["sp"], q["ss"], q["srt"], q["st"], q["se"], q["sip"], q["spr"], q["sv"]]
            lines += [q["ses"]] if q["sv"] >= "2020-12-06" else []
            if not hmac.compare_digest(signature(server.key, "\n".join(lines) + "\n"), q["sig"]):
                raise Refused(403, "AuthenticationFailed")
            until = datetime.datetime.fromisoformat(q["se"].replace("Z", "+00:00"))
            if until < datetime.datetime.now(datetime.timezone.utc) or "b" not in q["ss"]:
                raise Refused(403, "AuthenticationFailed")
            listing = self.query.get("comp") == "list"
            needed = {"GET": "l" if listing else "r", "HEAD": "r", "DELETE": "d", "PUT": "w"}[self.command]
            if needed not in q["sp"]:
                raise Refused(403, "AuthorizationPermissionMismatch")

        # ---- what is done

        def work(self, blobs, container, name):
            comp, method = self.query.get("comp", ""), self.command
            if self.query.get("action", "").lower() == "getaccesscontrol":
                with blobs.lock:
                    if container not in blobs.containers:
                        raise Refused(404, "FilesystemNotFound")
                raise Refused(400, "HierarchicalNamespaceNotEnabled")
            if not name and self.query.get("restype") == "container":
                return self.container(blobs, container, comp, method)
            if method == "PUT" and comp == "block":
                return self.put_block(blobs, container, name)
            if method == "PUT" and comp == "lease":
                return self.lease(blobs, container, name)
            if method == "PUT" and comp == "blocklist":
                return self.commit(blobs, container, name)
            if method == "PUT" and not comp:
                if self.sent.get("x-ms-blob-type") != "BlockBlob":
                    raise Refused(400, "UnsupportedHeader")
                self.check_md5()
                return self.made(blobs.put(container, name, self.body, self.sent))
            if method in ("GET", "HEAD") and not comp:
                return self.get(blobs, container, name)
            if method == "DELETE" and not comp:
                with blobs.lock:
                    blob = blobs.blob(container, name)
                    self.check_conditions(blob)
                    if blob.get("lease") != self.sent.get("x-ms-lease-id"):
                        raise Refused(412, "LeaseIdMismatchWithBlobOperation" if "x-ms-lease-id" in self.sent else "LeaseIdMissing")
                    del blobs.containers[container][name]
                return 202, {"x-ms-delete-type-permanent": "true"}, b""
            raise Refused(400, "UnsupportedQueryParameter")

        def check_md5(self):
            said = self.sent.get("content-md5")
            if said and said != base64.b64encode(hashlib.md5(self.body).digest()).decode():
                raise Refused(400, "Md5Mismatch")

        def check_conditions(self, blob):
            if self.sent.get("if-match", blob["etag"]) not in (blob["etag"], "*"):
                raise Refused(412, "ConditionNotMet")

        def made(self, blob):
            return 201, {"ETag": blob["etag"], "Last-Modified": email.utils.formatdate(blob["time"], usegmt=True),
                         "x-ms-request-server-encrypted": "true"}, b""

        def container(self, blobs, container, comp, method):
            with blobs.lock:
                if method == "PUT" and not comp:
                    if container in blobs.containers:
                        raise Refused(409, "ContainerAlreadyExists")
                    blobs.containers[container] = {}
                    return 201, self.times(), b""
                held = blobs.container(container)
                if method == "DELETE":
                    del blobs.containers[container]
                    return 202, {}, b""
                if comp == "list":
                    return 200, {"Content-Type": "application/xml"}, self.listing(container, held)
            return 200, {**self.times(), "x-ms-lease-status": "unlocked",
                         "x-ms-lease-state": "available", "x-ms-has-immutability-policy": "false", "x-ms-has-legal-hold": "false"}, b""

        @staticmethod
        def times():
            return {"ETag": '"0x1"', "Last-Modified": email.utils.formatdate(usegmt=True)}

        def listing(self, container, held):
            prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
            most, after = min(int(self.query.get("maxresults", MOST_LISTED)), MOST_LISTED), self.query.get("marker", "")
            entries = {}
            for name in sorted(held):
                if not name.startswith(prefix):
                    continue
                cut = name.find(delimiter, len(prefix)) if delimiter else -1
                entry = name[: cut + len(delimiter)] if cut >= 0 else name
                entries.setdefault(entry, None if cut >= 0 else held[name])
            names = [name for name in entries if name > after]
            rows = []
            for name in names[:most]:
                blob = entries[name]
                if blob is None:
                    rows.append(f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>")
                    continue
                changed = email.utils.formatdate(blob["time"], usegmt=True)
                rows.append(f"<Blob><Name>{escape(name)}</Name><Properties><Creation-Time>{changed}</Creation-Time><Last-Modified>{changed}"
                            f"</Last-Modified><Etag>{blob['etag'][1:-1]}</Etag><Content-Length>{len(blob['data'])}</Content-Length>"
                            f"<Content-Type>{escape(blob['type'])}</Content-Type><BlobType>BlockBlob</BlobType><AccessTier>Hot</AccessTier>"
                            "<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState><ServerEncrypted>true</ServerEncrypted>"
                            "</Properties></Blob>")
            more = names[most - 1] if len(names) > most else ""
            return (f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://127.0.0.1/" ContainerName="{container}">'
                    f"<Prefix>{escape(prefix)}</Prefix><MaxResults>{most}</MaxResults><Blobs>{''.join(rows)}</Blobs>"
                    f"<NextMarker>{escape(more)}</NextMarker></EnumerationResults>").encode()

        def lease(self, blobs, container, name):
            action = self.sent.get("x-ms-lease-action")
            with blobs.lock:
                blob = blobs.blob(container, name)
                if action == "acquire":
                    if "lease" in blob:
                        raise Refused(409, "LeaseAlreadyPresent")
                    blob["lease"] = self.sent.get("x-ms-proposed-lease-id") or str(uuid.uuid4())
                    return 201, {**self.times(), "x-ms-lease-id": blob["lease"]}, b""
                if action not in ("release", "break"):
                    raise Refused(400, "InvalidHeaderValue")
                blob.pop("lease", None)
            return 200, {**self.times(), "x-ms-lease-time": "0"}, b""

        def put_block(self, blobs, container, name):
            self.check_md5()
            with blobs.lock:
                blobs.container(container)
                blobs.blocks.setdefault((container, name), {})[self.query["blockid"]] = self.body
            return 201, {"x-ms-request-server-encrypted": "true"}, b""

        def commit(self, blobs, container, name):
            with blobs.lock:
                fresh = blobs.blocks.get((container, name), {})
                data = b""
                for one in trees.fromstring(self.body):
                    if one.tag not in ("Latest", "Uncommitted") or one.text not in fresh:
                        raise Refused(400, "InvalidBlockList")
                    data += fresh[one.text]
                return self.made(blobs.put(container, name, data, self.sent))

        def get(self, blobs, container, name):
            with blobs.lock:
                blob = blobs.blob(container, name)
            self.check_conditions(blob)
            data, size = blob["data"], len(blob["data"])
            headers = {"ETag": blob["etag"], "Last-Modified": email.utils.formatdate(blob["time"], usegmt=True), "Content-Type": blob["type"],
                       "x-ms-creation-time": email.utils.formatdate(blob["time"], usegmt=True), "x-ms-blob-type": "BlockBlob",
                       "x-ms-lease-status": "unlocked", "x-ms-lease-state": "available", "x-ms-server-encrypted": "true",
                       "Accept-Ranges": "bytes", **blob["metadata"]}
            if self.command == "HEAD":
                return 200, {**headers, "Content-Length": str(size)}, b""
            said = self.sent.get("x-ms-range") or self.sent.get("range")
            if not said:
                return 200, headers, data
            first, _, last = said.removeprefix("bytes=").partition("-")
            first, last = int(first), min(int(last), size - 1) if last else size - 1
            if first >= size:
                raise Refused(416, "InvalidRange")
            return 206, {**headers, "Content-Range": f"bytes {first}-{last}/{size}"}, data[first : last + 1]

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve

        def log_message(self, *_):
            pass

    return Service


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):  # clients that go away
        pass


def start(account, key, spoil=lambda path: ""):
    holder = []
    server = Server(("127.0.0.1", 0), handler(lambda: holder[0]))
    server.account, server.key, server.spoil, server.blobs = account, key, spoil, Blobs()
    server.port = server.server_address[1]
    holder.append(server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
