// The Python program that runs inside a Ray cluster: one bundle of GPUs and processors per node, each on a
// machine of its own, and in it an actor that runs the node's script. The rendezvous secret is made there and
// goes to the actors alone. After exit code 75 on any node all run again.
#pragma once

namespace lockstep::jobs {

constexpr const char* kRayDriver =
    R"py("""Runs one node of a Lockstep job in an actor on each machine: driver.py SETTINGS"""
import json
import os
import secrets
import signal
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


class Node:
    """Starts the launcher of its machine, and ends with it."""

    def __init__(self):
        self.process = None

    def address(self):
        return ray.util.get_node_ip_address()

    def run(self, script, variables):
        self.process = subprocess.Popen(["bash", "-c", script], env={**os.environ, **variables})
        return self.process.wait()

    def warn(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)


def reserve(settings):
    bundle = {"CPU": settings["cpus"]}
    if settings["gpus"]:
        bundle["GPU"] = settings["gpus"]
    group = placement_group([bundle] * settings["nodes"], strategy="STRICT_SPREAD" if settings["nodes"] > 1 else "PACK")
    while not ray.wait([group.ready()], timeout=30)[0]:
        print(f"lockstep: waits for {settings['nodes']} machines with {bundle} each", flush=True)
    return group, bundle


def start_nodes(settings, group, bundle):
    actor = ray.remote(num_cpus=bundle["CPU"], num_gpus=bundle.get("GPU", 0), max_concurrency=2)(Node)
    place = lambda k: PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=k)
    return [actor.options(scheduling_strategy=place(k)).remote() for k in range(settings["nodes"])]


def run_once(settings, nodes):
    first = ray.get(nodes[0].address.remote())
    shared = {"FIRST": first, "LOCKSTEP_SECRET": secrets.token_hex(32)}
    runs = [node.run.remote(settings["script"], {**shared, "NODE": str(k)}) for k, node in enumerate(nodes)]
    signal.signal(signal.SIGTERM, lambda *_: [node.warn.remote() for node in nodes])
    codes = ray.get(runs)
    return 75 if 75 in codes else max(codes)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = json.load(file)
    ray.init()
    nodes = start_nodes(settings, *reserve(settings))
    code = run_once(settings, nodes)
    for _ in range(settings["preemptions"]):
        if code != 75:
            break
        print("lockstep: preempted and saved; running again", flush=True)
        code = run_once(settings, nodes)
    if code:
        print(f"lockstep: exit code {code}", flush=True)
    sys.exit(code)


main()
)py";

}  // namespace lockstep::jobs
