#!/usr/bin/env python3
"""What stores_test.sh needs of object stores.

    stores_peer.py serve FOLDER       moto (S3), gcp-storage-emulator, azure_server.py and a proxy before moto that spoils
                                      answers; the ports are in FOLDER/ports once they answer
    stores_peer.py spoil FOLDER HOW COUNT [WORD]   the next COUNT answers about objects whose path has WORD: 429, 503, reset,
                                      truncate, expired, gone, slow; COUNT 0: none; prints how many were spoiled before
    stores_peer.py put FOLDER URI FILE...          objects, by a client that is not Arrow's
    stores_peer.py get FOLDER URI     an object's bytes
    stores_peer.py list FOLDER URI    the keys below it
    stores_peer.py drop FOLDER URI    removes a bucket with all that is in it
    stores_peer.py sas FOLDER good|expired|forged   an account's token for Azure, made by Microsoft's client
"""
import http.client
import http.server
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import azure_server

ACCOUNT, ACCOUNT_KEY = "tester", "U0VDUkVUU0VDUkVUU0VDUkVUU0VDUkVU"
PLAIN = {"aws_access_key_id": "tester", "aws_secret_access_key": "SECRETSECRET", "region_name": "us-east-1"}


class Spoiler:
    """How the next answers are spoiled: FOLDER/spoil says so, and FOLDER/spoiled counts."""

    def __init__(self, folder):
        self.folder, self.lock, self.seen, self.how, self.left, self.word, self.done = folder, threading.Lock(), 0, "", 0, "", 0

    def next(self, path):
        with self.lock:
            file = self.folder / "spoil"
            stamp = file.stat().st_mtime_ns if file.exists() else 0
            if stamp != self.seen:
                self.seen = stamp
                self.how, count, self.word = (file.read_text().split() + [""])[:3]
                self.left, self.done = int(count), 0
            if self.left <= 0 or self.word not in path:
                return ""
            self.left, self.done = self.left - 1, self.done + 1
            (self.folder / "spoiled").write_text(str(self.done))
            return self.how


def error_body(code):
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>spoiled</Message></Error>'.encode()


ANSWERS = {
    "429": (429, error_body("SlowDown")),
    "503": (503, error_body("ServiceUnavailable")),
    "expired": (400, error_body("ExpiredToken")),
    "gone": (404, error_body("NoSuchBucket")),
}


def handler(port, spoiler):
    class Proxy(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status, body, headers=()):
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            if not any(name.lower() == "content-length" for name, _ in headers):
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def reset(self):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True

        def read_body(self):
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():  # trailers
                pass
            return body

        def forward(self):
            body = self.read_body()
            how = spoiler.next(urllib.parse.unquote(self.path))
            if how in ANSWERS:
                return self.answer(*ANSWERS[how], [("Content-Type", "application/xml")])
            if how == "reset":
                return self.reset()
            if how == "slow":
                time.sleep(2)
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            sent = {k: v for k, v in self.headers.items() if k.lower() not in ("transfer-encoding", "content-length", "expect")}
            upstream.request(self.command, self.path, body, sent)
            reply = upstream.getresponse()
            data = reply.read()
            dropped = {"connection", "transfer-encoding", "server", "date"}
            headers = [(k, v) for k, v in reply.getheaders() if k.lower() not in dropped]
            if how == "truncate" and self.command == "GET" and len(data) > 1:
                self.send_response(reply.status)
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data[: len(data) // 2])
                return self.reset()
            return self.answer(reply.status, data, headers)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

        def log_message(self, *_):
            pass

    return Proxy


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):  # clients that go away are what this is about
        pass


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until_answers(port):
    for _ in range(600):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit(f"nobody answers on port {port}")


def serve(folder):
    bin_folder = Path(sys.executable).parent
    s3, gs = free_port(), free_port()
    log = open(folder / "servers.log", "wb")
    started = [
        subprocess.Popen([bin_folder / "moto_server", "-H", "127.0.0.1", "-p", str(s3)], stdout=log, stderr=log),
        subprocess.Popen([bin_folder / "gcp-storage-emulator", "start", "--host=127.0.0.1", f"--port={gs}", "--in-memory"],
                         stdout=log, stderr=log),
    ]
    spoiler = Spoiler(folder)
    proxy = QuietServer(("127.0.0.1", 0), handler(s3, spoiler))
    azure = azure_server.start(ACCOUNT, ACCOUNT_KEY, spoiler.next)

    def end(*_):
        for one in started:
            one.kill()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    until_answers(s3)
    until_answers(gs)
    ports = {"s3": s3, "gs": gs, "proxy": proxy.server_address[1], "azure": azure.port, "azure_key": ACCOUNT_KEY}
    (folder / "ports.new").write_text(json.dumps(ports))
    (folder / "ports.new").rename(folder / "ports")
    proxy.serve_forever()


def s3_client(ports):
    import boto3
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{ports['s3']}", **PLAIN)


def azure_client(ports):
    from azure.storage.blob import BlobServiceClient
    return BlobServiceClient(f"http://127.0.0.1:{ports['azure']}/{ACCOUNT}", credential={"account_name": ACCOUNT, "account_key": ACCOUNT_KEY})


def sas(kind):
    import datetime
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas
    key = ACCOUNT_KEY if kind != "forged" else ACCOUNT_KEY[::-1]
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=-1 if kind == "expired" else 1)
    return generate_account_sas(ACCOUNT, key, ResourceTypes(service=True, container=True, object=True),
                                AccountSasPermissions(read=True, list=True, write=True, delete=True), until)


def gs_request(ports, method, path, data=None):
    request = urllib.request.Request(f"http://127.0.0.1:{ports['gs']}{path}", data=data, method=method)
    request.add_header("Content-Type", "application/octet-stream" if path.startswith("/upload") else "application/json")
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.read()


def put(ports, scheme, bucket, key, files):
    for file in files:
        name = key + Path(file).name if key.endswith("/") or not key else key
        data = Path(file).read_bytes()
        if scheme == "s3":
            client = s3_client(ports)
            client.create_bucket(Bucket=bucket)
            client.put_object(Bucket=bucket, Key=name, Body=data)
            continue
        if scheme == "abfs":
            client = azure_client(ports).get_container_client(bucket)
            if not client.exists():
                client.create_container()
            client.upload_blob(name, data, overwrite=True)
            continue
        try:
            gs_request(ports, "POST", "/storage/v1/b?project=p", json.dumps({"name": bucket}).encode())
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
        quoted = urllib.parse.quote(name, safe="")
        gs_request(ports, "POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quoted}", data)


def keys_of(ports, scheme, bucket, key):
    if scheme == "abfs":
        return sorted(azure_client(ports).get_container_client(bucket).list_blob_names(name_starts_with=key))
    if scheme == "gs":
        listed = json.loads(gs_request(ports, "GET", f"/storage/v1/b/{bucket}/o?prefix={urllib.parse.quote(key)}"))
        return sorted(one["name"] for one in listed.get("items", []))
    pages = s3_client(ports).get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
    return sorted(one["Key"] for page in pages for one in page.get("Contents", []))


def main():
    command, folder, *rest = sys.argv[1:]
    folder = Path(folder)
    if command == "serve":
        return serve(folder)
    if command == "spoil":
        file, count = folder / "spoil", folder / "spoiled"
        print(count.read_text() if count.exists() else 0)
        count.unlink(missing_ok=True)
        (folder / "spoil.new").write_text(" ".join(rest))
        (folder / "spoil.new").rename(file)
        return None
    if command == "sas":
        print(sas(rest[0]))
        return None
    ports = json.loads((folder / "ports").read_text())
    scheme, _, where = rest[0].partition("://")
    bucket, _, key = where.partition("/")
    if command == "put":
        put(ports, scheme, bucket, key, rest[1:])
    elif command == "list":
        print("\n".join(keys_of(ports, scheme, bucket, key)))
    elif command == "get":
        sys.stdout.buffer.write(s3_client(ports).get_object(Bucket=bucket, Key=key)["Body"].read())
    elif command == "drop":
        client = s3_client(ports)
        for one in keys_of(ports, scheme, bucket, ""):
            client.delete_object(Bucket=bucket, Key=one)
        client.delete_bucket(Bucket=bucket)
    return None


if __name__ == "__main__":
    main()
