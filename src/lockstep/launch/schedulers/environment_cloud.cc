// Vertex AI, Kubeflow and TPU VMs: one container or machine a node, and the process in it is the agent.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/launch/schedulers/environment_readers.h"

namespace lockstep::launch {
namespace {

using nlohmann::json;

struct HostPort {
  std::string host;
  int port = 0;  // 0: none given
};

std::optional<HostPort> parse_host(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (text.empty() || colon == 0) return std::nullopt;
  if (colon == std::string::npos) return HostPort{text, 0};
  const std::optional<int> port = parse_count(std::string_view(text).substr(colon + 1));
  if (!port || *port < 1 || *port > 65535) return std::nullopt;
  return HostPort{text.substr(0, colon), *port};
}

const json* at(const json& value, const std::string& key) {
  const auto found = value.is_object() ? value.find(key) : value.end();
  return found == value.end() || !value.is_object() ? nullptr : &*found;
}

// "min:max" or "n".
std::optional<std::pair<int, int>> parse_node_range(const std::string& text) {
  const std::vector<std::string> ends = split(text, ':');
  const std::optional<int> low = parse_count(ends.front()), high = parse_count(ends.back());
  if (ends.size() > 2 || !low || !high || *low < 1 || *low > *high) return std::nullopt;
  return std::pair(*low, *high);
}

}  // namespace

// {"cluster": {"workerpool0": ["host:2222"], "workerpool1": [...]}, "task": {"type": "workerpool1", "index":
// 0}}
std::optional<Scheduled> read_vertex(const Environment& environment, const FileReader&) {
  const Variables vertex("Vertex AI", environment);
  const std::string name = "CLUSTER_SPEC";
  if (!vertex.has(name)) return std::nullopt;
  const json spec = json::parse(vertex.text(name), nullptr, false);
  const json *cluster = at(spec, "cluster"), *task = at(spec, "task");
  const json *type = task ? at(*task, "type") : nullptr, *index = task ? at(*task, "index") : nullptr;
  if (!cluster || !type || !type->is_string() || !index || !index->is_number_integer()) {
    vertex.unreadable(name, "is not the JSON of a cluster and one of its tasks");
  }
  // Pools 2 and 3 are for parameter servers and evaluators.
  std::vector<std::string> hosts;
  int node = -1;
  for (const char* pool : {"workerpool0", "workerpool1"}) {
    const json* members = at(*cluster, pool);
    if (!members) continue;
    for (size_t i = 0; members->is_array() && i < members->size(); ++i) {
      if (!(*members)[i].is_string()) vertex.unreadable(name, "has a host that is not a string");
      if (*type == pool && *index == i) node = static_cast<int>(hosts.size());
      hosts.push_back((*members)[i]);
    }
  }
  if (node < 0) {
    vertex.contradict(fmt::format("{}'s task {} {} is neither workerpool0 nor workerpool1", name,
                                  base::quoted(type->get<std::string>()), index->dump()));
  }
  Scheduled to = one_a_node("Vertex AI", static_cast<int>(hosts.size()), node);
  for (const std::string& text : hosts) {
    const std::optional<HostPort> host = parse_host(text);
    if (!host) vertex.unreadable(name, "has " + base::quoted(text) + " instead of host:port");
    if (to.hosts.empty()) to.port = host->port;
    to.hosts.push_back(host->host);
  }
  to.first_host = to.hosts.front();
  to.job = vertex.has("CLOUD_ML_JOB_ID") ? vertex.text("CLOUD_ML_JOB_ID") : to.first_host;
  to.agreed_for = "Vertex AI " + to.job;
  return to;
}

// The operator's PET_* variables say nodes and node; older operators write RANK and WORLD_SIZE, one process a
// pod.
std::optional<Scheduled> read_kubeflow(const Environment& environment, const FileReader&) {
  const Variables pod("Kubeflow", environment);
  const bool elastic = pod.has("PET_RDZV_ENDPOINT");
  const bool newer = pod.has("PET_NNODES");
  const bool older = pod.has("MASTER_ADDR") && pod.has("RANK") && pod.has("WORLD_SIZE");
  // LOCAL_RANK: some launcher in this pod has already dealt ranks.
  if (!pod.has("KUBERNETES_SERVICE_HOST") || pod.has("LOCAL_RANK") || !(newer || older)) return std::nullopt;

  Scheduled to;
  std::string host_name, port_name;
  if (elastic) {
    const std::optional<std::pair<int, int>> range = parse_node_range(pod.text("PET_NNODES"));
    const std::optional<HostPort> host = parse_host(pod.text("PET_RDZV_ENDPOINT"));
    if (!range) pod.unreadable("PET_NNODES", "is neither a number of nodes nor min:max");
    if (!host) pod.unreadable("PET_RDZV_ENDPOINT", "is not host:port");
    to = one_a_node("Kubeflow", range->second, -1);
    to.fewest_nodes = range->first;
    to.task = 0;
    to.first_host = host->host;
    to.port = host->port;
    to.job = pod.has("PET_RDZV_ID") ? pod.text("PET_RDZV_ID") : host->host;
  } else {
    const std::string node = newer ? "PET_NODE_RANK" : "RANK", nodes = newer ? "PET_NNODES" : "WORLD_SIZE";
    const std::string host = pod.has("PET_MASTER_ADDR") ? "PET_MASTER_ADDR" : "MASTER_ADDR";
    const std::string port = pod.has("PET_MASTER_PORT") ? "PET_MASTER_PORT" : "MASTER_PORT";
    pod.require({node, nodes, host, port});
    pod.require_below(node, nodes);
    to = one_a_node("Kubeflow", pod.number(nodes), pod.number(node));
    to.first_host = pod.text(host);
    to.port = pod.number(port);
    if (to.port < 1 || to.port > 65535) pod.unreadable(port, "is not a port");
    // Older operators tell the master that it is "localhost", where nobody else could reach it.
    if (to.first_host == "localhost" && to.nodes > 1 && pod.has("HOSTNAME"))
      to.first_host = pod.text("HOSTNAME");
    to.job = to.node == 0 ? to.first_host : pod.text(host);
  }
  to.agreed_for = "Kubeflow " + to.job;
  to.ranks_per_node = pod.text("PET_NPROC_PER_NODE");
  to.gpus = pod.text("CUDA_VISIBLE_DEVICES");
  return to;
}

// One worker a host of a slice; with several slices (MEGASCALE_*), slice after slice.
std::optional<Scheduled> read_tpu(const Environment& environment, const FileReader&) {
  const Variables tpu("TPU VM", environment);
  const std::string id = "TPU_WORKER_ID", names = "TPU_WORKER_HOSTNAMES";
  if (tpu.first_of({id, names}).empty()) return std::nullopt;
  tpu.require({id, names});
  const std::vector<std::string> hosts = split(tpu.text(names), ',');
  for (const std::string& host : hosts) {
    if (host.empty()) tpu.unreadable(names, "has an empty name");
  }
  const int workers = static_cast<int>(hosts.size()), worker = tpu.number(id);
  if (worker >= workers) {
    tpu.contradict(fmt::format("{}, but {} lists {} hosts", tpu.shown(id), tpu.shown(names), workers));
  }
  const std::string slices_name = "MEGASCALE_NUM_SLICES", slice_name = "MEGASCALE_SLICE_ID";
  int slices = 1, slice = 0;
  if (tpu.has(slices_name) || tpu.has(slice_name)) {
    tpu.require({slices_name, slice_name, "MEGASCALE_COORDINATOR_ADDRESS"});
    tpu.require_below(slice_name, slices_name);
    slices = tpu.number(slices_name);
    if (slices > 65536 / workers + 1) tpu.unreadable(slices_name, "is larger than any cluster");
    slice = tpu.number(slice_name);
  }
  Scheduled to = one_a_node("TPU VM", slices * workers, slice * workers + worker);
  if (slices == 1) {
    to.hosts = hosts;
    to.first_host = hosts.front();
  } else {
    const std::optional<HostPort> host = parse_host(tpu.text("MEGASCALE_COORDINATOR_ADDRESS"));
    if (!host) tpu.unreadable("MEGASCALE_COORDINATOR_ADDRESS", "is not host:port");
    to.first_host = host->host;
  }
  to.job = tpu.has("JOBSET_NAME") ? tpu.text("JOBSET_NAME") : to.first_host;
  to.agreed_for = "TPU VM " + to.job;
  return to;
}

}  // namespace lockstep::launch
