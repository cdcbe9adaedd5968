#!/usr/bin/env python3
"""kubernetes_peer.py PORT FOLDER: as much of a Kubernetes API as kubectl needs to create, get, list and delete objects.

Discovery, objects in memory by path, label and field selectors; pods, events and the text of logs come from FOLDER/pods.json,
FOLDER/events.json and FOLDER/log. FOLDER/fail holds "STATUS REASON KIND": creating a KIND is answered with that.
"""
import json
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(sys.argv[2])
OBJECTS = {}  # path of the object: the object
KINDS = {  # group version: (plural, kind)
    "v1": [("pods", "Pod"), ("services", "Service"), ("secrets", "Secret"), ("events", "Event")],
    "batch/v1": [("jobs", "Job")],
    "jobset.x-k8s.io/v1alpha2": [("jobsets", "JobSet")],
    "kubeflow.org/v1": [("pytorchjobs", "PyTorchJob")],
    "trainer.kubeflow.org/v1alpha1": [("trainjobs", "TrainJob")],
}


def resources(version):
    verbs = ["create", "delete", "get", "list"]
    rows = [{"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": verbs}
            for plural, kind in KINDS[version]]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": rows}


def groups():
    rows = []
    for version in KINDS:
        if "/" in version:
            one = {"groupVersion": version, "version": version.split("/")[1]}
            rows.append({"name": version.split("/")[0], "versions": [one], "preferredVersion": one})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": rows}


def status(code, reason, message):
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}


class Api(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def reply(self, code, body):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        path = urllib.parse.urlparse(self.path).path.rstrip("/")
        name = path.rsplit("/", 1)[-1]
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if path == "/version":
            self.reply(200, {"major": "1", "minor": "31", "gitVersion": "v1.31.0"})
        elif path == "/api":
            self.reply(200, {"kind": "APIVersions", "versions": ["v1"]})
        elif path == "/apis":
            self.reply(200, groups())
        elif version in KINDS:
            self.reply(200, resources(version))
        elif name == "log":
            self.reply(200, (FOLDER / "log").read_text())
        elif name in ("pods", "events"):
            file = FOLDER / f"{name}.json"
            items = json.loads(file.read_text()) if file.exists() else []
            self.reply(200, {"kind": "PodList" if name == "pods" else "EventList", "apiVersion": "v1", "metadata": {}, "items": items})
        elif path in OBJECTS:
            self.reply(200, OBJECTS[path])
        else:
            self.reply(*status(404, "NotFound", f'"{name}" not found'))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = urllib.parse.urlparse(self.path).path + "/" + body["metadata"]["name"]
        fail = (FOLDER / "fail").read_text().split() if (FOLDER / "fail").exists() else None
        if fail and fail[2] == body["kind"]:
            self.reply(*status(int(fail[0]), fail[1], f"{fail[1]}: {fail[0]}"))
            return
        body["metadata"].setdefault("namespace", "default")
        OBJECTS[path] = body
        with open(FOLDER / "created", "a", encoding="utf-8") as file:
            file.write(json.dumps(body) + "\n")
        self.reply(201, body)

    def do_DELETE(self):
        path = urllib.parse.urlparse(self.path).path
        gone = OBJECTS.pop(path, None)
        self.reply(*((200, gone) if gone else status(404, "NotFound", "not found")))


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Api).serve_forever()
