// Open MPI and PBS: launchers that start tasks on hosts of a list.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text.h"
#include "lockstep/launch/schedulers/environment_readers.h"

namespace lockstep::launch {
namespace {

using Names = std::vector<std::string>;

// Lines of $PBS_NODEFILE: a host for each slot.
std::optional<Names> slots_of_nodefile(const Variables& pbs, const FileReader& read) {
  const std::optional<std::string> text = read(pbs.text("PBS_NODEFILE"));
  if (!text) return std::nullopt;
  Names slots;
  for (const std::string& line : base::split_lines(*text)) {
    if (!base::trimmed(line).empty()) slots.emplace_back(base::trimmed(line));
  }
  return slots;
}

Names without_repetition(const Names& names) {
  Names once;
  for (const std::string& name : names) {
    if (std::find(once.begin(), once.end(), name) == once.end()) once.push_back(name);
  }
  return once;
}

// Where mpirun's first node is: its allocation's first, or else the host that mpirun itself runs on.
std::string first_host_of_mpi(const Variables& mpi, const FileReader& read) {
  if (mpi.has("SLURM_JOB_NODELIST")) {
    if (const auto hosts = expand_node_list(mpi.text("SLURM_JOB_NODELIST"))) return hosts->front();
  }
  if (mpi.has("PBS_NODEFILE")) {
    const std::optional<Names> slots = slots_of_nodefile(mpi, read);
    if (slots && !slots->empty()) return slots->front();
  }
  // "613220352.0;tcp://10.0.0.1,192.168.1.1:54065"
  const std::string uri = mpi.text("OMPI_MCA_orte_hnp_uri");
  const size_t begin = uri.find("tcp://");
  if (begin == std::string::npos) return "";
  const size_t end = uri.find_first_of(",:", begin + 6);
  return uri.substr(begin + 6, end - begin - 6);
}

}  // namespace

std::optional<Scheduled> read_open_mpi(const Environment& environment, const FileReader& read) {
  const Variables mpi("Open MPI", environment);
  const std::string rank = "OMPI_COMM_WORLD_RANK", size = "OMPI_COMM_WORLD_SIZE";
  const std::string local_rank = "OMPI_COMM_WORLD_LOCAL_RANK", local_size = "OMPI_COMM_WORLD_LOCAL_SIZE";
  if (mpi.first_of({rank, size, local_rank, local_size}).empty()) return std::nullopt;
  mpi.require({rank, size, local_rank, local_size});
  mpi.require_below(rank, size);
  mpi.require_below(local_rank, local_size);
  Scheduled to;
  to.scheduler = "Open MPI";
  to.task = mpi.number(rank);
  to.tasks = mpi.number(size);
  to.local_task = mpi.number(local_rank);
  to.node_tasks = mpi.number(local_size);
  if (to.node_tasks > to.tasks) {
    mpi.contradict(fmt::format("{} is above {}", mpi.shown(local_size), mpi.shown(size)));
  }
  // Which node this is, mpirun does not say; how many there are, it says for its whole allocation.
  const int even = (to.tasks + to.node_tasks - 1) / to.node_tasks;
  to.nodes = std::max(even > 1 ? 2 : 1, std::min(even, mpi.number_or("OMPI_MCA_orte_num_nodes", even)));
  to.fewest_nodes = to.nodes;
  to.node = to.nodes == 1 ? 0 : -1;
  to.kind = to.tasks > to.nodes ? TaskKind::one_a_rank : TaskKind::one_a_node;
  to.first_host = to.nodes == 1 ? "localhost" : first_host_of_mpi(mpi, read);
  const std::string job = mpi.first_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  if (job.empty()) mpi.require({"PMIX_NAMESPACE"});
  to.job = mpi.text(job);
  to.agreed_for = "Open MPI " + to.job;
  to.gpus = mpi.text("CUDA_VISIBLE_DEVICES");
  return to;
}

// The script of a PBS job is a shell like any other (its task number is 1); pbsdsh starts tasks on all nodes.
std::optional<Scheduled> read_pbs(const Environment& environment, const FileReader& read) {
  const Variables pbs("PBS", environment);
  const bool by_slot = pbs.has("PBS_VNODENUM");  // Torque's pbsdsh; PBS Professional's starts one a node
  if (!pbs.has("PBS_JOBID") || (!by_slot && pbs.number_or("PBS_TASKNUM", 1) <= 1)) return std::nullopt;
  pbs.require({"PBS_JOBID", "PBS_NODEFILE", by_slot ? "PBS_VNODENUM" : "PBS_NODENUM"});
  const std::optional<Names> slots = slots_of_nodefile(pbs, read);
  if (!slots || slots->empty()) {
    pbs.unreadable("PBS_NODEFILE",
                   "is not a readable file of host names on this node: copy it to a shared folder in the job "
                   "script and set PBS_NODEFILE to the copy");
  }
  Scheduled to;
  to.scheduler = "PBS";
  to.job = pbs.text("PBS_JOBID");
  to.hosts = without_repetition(*slots);
  to.first_host = to.hosts.front();
  to.nodes = to.fewest_nodes = static_cast<int>(to.hosts.size());
  const std::string where = by_slot ? "PBS_VNODENUM" : "PBS_NODENUM";
  to.tasks = by_slot ? static_cast<int>(slots->size()) : to.nodes;
  to.task = pbs.number(where);
  if (to.task >= to.tasks) {
    pbs.contradict(
        fmt::format("{}, but {} has {} entries", pbs.shown(where), pbs.shown("PBS_NODEFILE"), to.tasks));
  }
  const std::string& host =
      by_slot ? (*slots)[static_cast<size_t>(to.task)] : to.hosts[static_cast<size_t>(to.task)];
  to.node = static_cast<int>(std::find(to.hosts.begin(), to.hosts.end(), host) - to.hosts.begin());
  if (by_slot) {
    to.node_tasks = static_cast<int>(std::count(slots->begin(), slots->end(), host));
    to.local_task = static_cast<int>(std::count(slots->begin(), slots->begin() + to.task, host));
  }
  to.kind = to.tasks > to.nodes ? TaskKind::one_a_rank : TaskKind::one_a_node;
  to.agreed_for = "PBS " + to.job;
  to.gpus = pbs.text("CUDA_VISIBLE_DEVICES");
  return to;
}

}  // namespace lockstep::launch
