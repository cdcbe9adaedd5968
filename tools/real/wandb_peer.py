"""A stand-in for W&B's server: answers what `wandb sync` asks, and keeps the history that it is sent.

usage: wandb_peer.py ADDRESS_FILE HISTORY_FILE
"""
import gzip
import http.server
import json
import sys


def answer(query, variables):
    if "upsertBucket" in query:
        project = {"id": "p", "name": variables.get("project"), "entity": {"id": "e", "name": "me"}}
        return {"upsertBucket": {"inserted": True, "bucket": {
            "id": "b", "name": variables.get("name"), "displayName": variables.get("displayName"), "description": "",
            "config": "{}", "sweepName": None, "historyLineCount": 0, "project": project}}}
    if "createRunFiles" in query:
        return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": []}}
    if "serverInfo" in query:
        return {"serverInfo": {"cliVersionInfo": {"max_cli_version": "9.9.9"}, "features": []}}
    if "viewer" in query:
        return {"viewer": {"id": "u", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}}
    return {"QueryType": {"fields": []}, "MutationType": {"fields": []}}


class Peer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if "file_stream" in self.path:
            lines = json.loads(body).get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
            with open(sys.argv[2], "a") as history:
                history.writelines(line + "\n" for line in lines)
            return self.reply({})
        if self.path != "/graphql":
            return self.reply({})
        asked = json.loads(body)
        self.reply({"data": answer(asked["query"], asked.get("variables") or {})})

    def do_GET(self):
        self.reply({})

    def do_PUT(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.reply({})

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Peer)
with open(sys.argv[1], "w") as file:
    file.write(f"http://127.0.0.1:{server.server_port}")
server.serve_forever()
