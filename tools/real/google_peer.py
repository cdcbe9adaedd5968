#!/usr/bin/env python3
"""google_peer.py PORT FOLDER: as much of Google Cloud's APIs as gcloud needs to create, get, list and delete things.

PORT 0 is any free one; FOLDER/port says which. Compute Engine, Vertex AI, GKE, TPU and Logging, objects in memory by path. Every
call that changes something is written to FOLDER/requests, a line each: method, path, body. FOLDER/fail holds "STATUS METHOD WORD":
a call with that method whose path has WORD is answered with that status. FOLDER/values.json holds {path: object}, which replaces
what is in memory.
"""
import json
import re
import sys
import urllib.parse
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(sys.argv[2])
SERVER = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), None)
BASE = f"http://127.0.0.1:{SERVER.server_port}/"
OBJECTS = {}
TARGETS = []  # of operation op0, op1, ...
REASONS = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ALREADY_EXISTS", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}


def error(code, message=None):
    text = message or f"{REASONS.get(code, 'ERROR')}: the test answers {code}"
    return code, {"error": {"code": code, "message": text, "status": REASONS.get(code, "ERROR"), "errors": [{"message": text, "reason": REASONS.get(code, "error")}]}}


def operation(path, target):
    """Everything is done at once. A question about an operation is answered as the call that began it was."""
    asked = re.search(r"/operations/op(\d+)", path)
    number = int(asked.group(1)) if asked else len(TARGETS)
    if asked:
        target = TARGETS[number]
    else:
        TARGETS.append(target)
    name = f"op{number}"
    scope = re.match(r"(compute/v1/projects/[^/]+/(?:zones/[^/]+|regions/[^/]+|global))", path)
    if scope:
        return 200, {"kind": "compute#operation", "name": name, "status": "DONE", "progress": 100, "operationType": "insert",
                     "targetLink": BASE + target, "selfLink": f"{BASE}{scope.group(1)}/operations/{name}",
                     **({"zone": BASE + scope.group(1)} if "/zones/" in path else {}),
                     **({"region": BASE + scope.group(1)} if "/regions/" in path else {})}
    if path.startswith("v1/projects") and "/clusters" in target:
        where = re.match(r"v1/(projects/[^/]+/(?:zones|locations)/[^/]+)", path).group(1)
        return 200, {"name": name, "status": "DONE", "selfLink": f"{BASE}v1/{where}/operations/{name}", "targetLink": BASE + target,
                     "zone": where.split("/")[-1], "operationType": "CREATE_NODE_POOL"}
    where = re.match(r"v\w+/(projects/[^/]+/locations/[^/]+)", path).group(1)
    return 200, {"name": f"{where}/operations/{name}", "done": True, "response": {"@type": "x", **OBJECTS.get(target, {})}}


def matches(item, query):
    """The filters that our commands use: name, display name, label."""
    text = query.get("filter", [""])[0]
    found = re.search(r'(?:name|displayName)\s*(?:=|eq)\s*"?\.?\*?\(?\^?([\w-]+)', text)
    label = re.search(r'labels\.lockstep-job\s*(?:=|eq)\s*"?([\w-]+)', text)
    if label:
        return item.get("labels", {}).get("lockstep-job") == label.group(1)
    return not found or found.group(1) in (item.get("name", "").split("/")[-1], item.get("displayName"))


def listing(path, query):
    items = [item for place, item in sorted(OBJECTS.items()) if re.fullmatch(re.escape(path) + r"/[^/]+", place) and matches(item, query)]
    last = path.split("/")[-1]
    names = {"customJobs": "customJobs", "queuedResources": "queuedResources", "nodePools": "nodePools", "clusters": "clusters"}
    return 200, {names.get(last, "items"): items}


def aggregated(path, query):
    kind = path.split("/")[-1]
    zones = {}
    for place, item in sorted(OBJECTS.items()):
        found = re.fullmatch(r"compute/v1/projects/[^/]+/((?:zones|regions)/[^/]+|global)/" + kind + "/[^/]+", place)
        if found and matches(item, query):
            zones.setdefault(found.group(1), {kind: []})[kind].append(item)
    return 200, {"items": zones}


def created(path, body, query):
    if path.endswith("customJobs"):
        name = path.removeprefix("v1/") + "/77"
        OBJECTS["v1/" + name] = {**body, "name": name, "state": "JOB_STATE_PENDING", "createTime": "2026-01-01T00:00:00Z"}
        return 200, OBJECTS["v1/" + name]
    # The name is in the body, in a wrapper of it (GKE) or in the query (TPU).
    inner = body.get("nodePool") or body.get("cluster") or body
    name = inner.get("name") or query.get("queuedResourceId", ["x"])[0]
    target = f"{path}/{name.split('/')[-1]}"
    if target in OBJECTS:
        return error(409)
    extra = {"instances": {"status": "RUNNING"}, "queuedResources": {"state": {"state": "ACCEPTED"}}}.get(path.split("/")[-1], {})
    scope = re.match(r"compute/v1/projects/[^/]+/zones/([^/]+)", path)
    if scope:
        extra["zone"] = BASE + scope.group(0)
    OBJECTS[target] = {**inner, **extra, "name": name if "/" in name else (target.removeprefix("v2/") if "queuedResources" in path else name), "selfLink": BASE + target}
    return operation(path, target)


def grouped(path, body):
    """A managed group makes the instances that it is asked for, from its template."""
    group = re.match(r"(compute/v1/(projects/[^/]+)/(zones/[^/]+))/instanceGroupManagers/([^/]+)", path)
    template = OBJECTS[f"compute/v1/{group.group(2)}/global/instanceTemplates/{group.group(4)}"]["properties"]
    for one in body.get("instances", []):
        OBJECTS[f"{group.group(1)}/instances/{one['name']}"] = {**template, "name": one["name"], "status": "RUNNING", "zone": BASE + group.group(1)}
    return operation(path, path.rsplit("/", 1)[0])


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, method, url, data):
        parsed = urllib.parse.urlparse(url)
        path, query = parsed.path.strip("/"), urllib.parse.parse_qs(parsed.query)
        body = json.loads(data) if data else {}
        with open(FOLDER / "log", "a", encoding="utf-8") as file:
            file.write(f"{method} {path} {parsed.query}\n")
        fail = (FOLDER / "fail").read_text().split() if (FOLDER / "fail").exists() else None
        if fail and fail[1] == method and fail[2] in path:
            return error(int(fail[0]))
        if (FOLDER / "values.json").exists():
            OBJECTS.update(json.loads((FOLDER / "values.json").read_text()))
        if re.search(r"/operations/op\d+", path):
            return operation(path, path)
        if method != "GET":
            with open(FOLDER / "requests", "a", encoding="utf-8") as file:
                file.write(json.dumps({"method": method, "path": path, "query": parsed.query, "body": body}) + "\n")
        return self.changed(method, path, query, body) if method != "GET" else self.found(path, query)

    def found(self, path, query):
        if path in OBJECTS:
            return 200, OBJECTS[path]
        if "/aggregated/" in path:
            return aggregated(path, query)
        name = path.split("/")[-1]
        if "/images/family/" in path or re.search(r"/(zones|machineTypes)/[^/]+$", path):
            return 200, {"name": name, "selfLink": BASE + path, "status": "UP", "diskSizeGb": "10"}
        if re.search(r"/regions/[^/]+$", path):
            return 200, {"name": name, "quotas": [{"metric": "NVIDIA_A100_GPUS", "limit": 16.0, "usage": 12.0}]}
        if re.search(r"/services/[^/]+$", path):
            return 200, {"name": path.removeprefix("v1/"), "state": "ENABLED"}
        if name in ("listErrors", "getGuestAttributes"):
            return error(404) if name == "getGuestAttributes" else (200, {"items": []})
        collections = ("instances", "customJobs", "queuedResources", "instanceTemplates", "instanceGroupManagers", "resourcePolicies",
                       "operations", "nodePools", "clusters", "autoscalers", "instanceGroups")
        if path.split("/")[-1] in collections:
            return listing(path, query)
        return error(404, f"{path} not found")

    def changed(self, method, path, query, body):
        if method == "DELETE":
            if "/instanceGroupManagers/" in path:  # its instances go with it
                prefix = path.replace("instanceGroupManagers", "instances") + "-"
                for place in [place for place in OBJECTS if place.startswith(prefix)]:
                    del OBJECTS[place]
            return operation(path, path) if OBJECTS.pop(path, None) else error(404, f"{path} not found")
        if path.endswith(":cancel"):
            OBJECTS[path.removesuffix(":cancel")].update({"state": "JOB_STATE_CANCELLED", "endTime": "2026-01-01T00:00:01Z"})
            return 200, {}
        if path.endswith("entries:list"):
            return 200, {"entries": OBJECTS.get("log", [])}
        if path.endswith("createInstances"):
            return grouped(path, body)
        if path.split("/")[-1] in ("start", "stop"):
            OBJECTS[path.rsplit("/", 1)[0]]["status"] = "RUNNING" if path.endswith("start") else "TERMINATED"
            return operation(path, path.rsplit("/", 1)[0])
        return created(path, body, query)

    def reply(self, code, text, kind="application/json"):
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_one(self, method):
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith("/batch"):
            return self.batch(data)
        code, body = self.answer(method, self.path, data)
        self.reply(code, json.dumps(body))

    def batch(self, data):
        """Several calls in one: gcloud makes all instances of a job so."""
        parts = message_from_bytes(b"Content-Type: " + self.headers["Content-Type"].encode() + b"\r\n\r\n" + data)
        out = ""
        for part in parts.get_payload():
            head, _, rest = part.get_payload().replace("\r\n", "\n").partition("\n\n")
            method, url, _ = head.split("\n")[0].split(" ")
            code, body = self.answer(method, url, rest.strip())
            out += f"--b\r\nContent-Type: application/http\r\nContent-ID: <response-{part['Content-ID'].strip('<>')}>\r\n\r\n"
            out += f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\n\r\n{json.dumps(body)}\r\n"
        self.reply(200, out + "--b--\r\n", "multipart/mixed; boundary=b")

    def do_GET(self):
        self.handle_one("GET")

    def do_POST(self):
        self.handle_one("POST")

    def do_DELETE(self):
        self.handle_one("DELETE")


SERVER.RequestHandlerClass = Api
(FOLDER / "port").write_text(str(SERVER.server_port))
SERVER.serve_forever()
