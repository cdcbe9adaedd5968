// Machines that are reached by ssh, and nothing else: a lab's, a rented VM, a GPU box. Two calls per host:
// one carries the rendezvous secret (on standard input, never as an argument), one the scripts, and starts
// the agent, which outlives the connection.
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"

namespace lockstep::jobs {
namespace {

struct Host {
  std::string name;  // with user@
  std::string port;  // empty: ssh's own choice
  std::string bare() const { return name.substr(name.find('@') + 1); }
  // ssh itself takes no brackets around an IPv6 address; rsync and the rendezvous need them.
  std::string for_ssh() const {
    std::string plain;
    for (const char c : name) {
      if (c != '[' && c != ']') plain += c;
    }
    return plain;
  }
};

// [USER@]HOST[:PORT]; an IPv6 address in brackets.
Host parse_host(const std::string& text) {
  Host host{text, ""};
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos && text.back() != ']') {
    host = {text.substr(0, colon), text.substr(colon + 1)};
    if (host.port.empty() || host.port.size() > 5 ||
        host.port.find_first_not_of("0123456789") != std::string::npos)
      throw base::ConfigError(
          721, fmt::format("{} is not a host; write HOST, USER@HOST or HOST:PORT", base::quoted(text)));
  }
  if (host.name.empty() || host.name[0] == '-' || host.bare().empty() ||
      host.name.find_first_of(" \t'\"$`;&|<>()") != std::string::npos)
    throw base::ConfigError(
        721, fmt::format("{} is not a host; write HOST, USER@HOST or HOST:PORT", base::quoted(text)));
  const std::string bare = host.bare();
  if (bare.find(':') != std::string::npos && !(bare.starts_with('[') && bare.ends_with(']')))
    throw base::ConfigError(
        721, fmt::format("{} is not a host; write an IPv6 address in brackets: [fe80::1] or [fe80::1]:22",
                         base::quoted(text)));
  return host;
}

std::vector<std::string> ssh_words(const Place& place, const Host& host) {
  std::vector<std::string> words = {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"};
  words.insert(words.end(), place.options.begin(), place.options.end());
  if (!host.port.empty()) words.insert(words.end(), {"-p", host.port});
  return words;
}

Command on_host(const Place& place, const Host& host, const std::string& line,
                const std::string& input = "") {
  std::vector<std::string> words = ssh_words(place, host);
  words.insert(words.end(), {host.for_ssh(), "cd && " + line});  // paths are below the home there
  return {.words = words, .input = input, .patience_s = 45};
}

// The job's folder on a host, below its home.
std::string folder_of(const std::string& job, int64_t node) {
  return fmt::format(".lockstep/jobs/{}/{}", job, node);
}
// One file, as `lockstep bundle` writes it; otherwise a folder.
bool is_archive(const std::string& bundle) {
  return bundle.ends_with(".tar.zst") || bundle.ends_with(".tar.gz") || bundle.ends_with(".tar");
}
// Where the bundle lies there, unpacked; and the archive that it was unpacked from.
std::string bundle_of(const Place& place) {
  std::string name(base::trimmed(place.bundle.substr(place.bundle.find_last_of('/') + 1)));
  if (is_archive(name)) name = name.substr(0, name.find(".tar"));
  return fmt::format(".lockstep/bundles/{}", name);
}
std::string archive_of(const Place& place) {
  return fmt::format(".lockstep/bundles/{}", place.bundle.substr(place.bundle.find_last_of('/') + 1));
}
// Once for each archive: rsync keeps its time, and what was unpacked before is younger.
std::string unpack_line(const Place& place) {
  return fmt::format(
      "test {0}/.unpacked -nt {1} || {{ rm -rf {0} && mkdir -p {0} && tar -xf {1} -C {0} "
      "--strip-components=1 && "
      "touch {0}/.unpacked; }}",
      shell_word(bundle_of(place)), shell_word(archive_of(place)));
}
std::string label_of(const std::string& host) { return "agent on " + host; }

// lockstep train, as node `node` of all.
std::string node_line(const Job& job, int64_t node) {
  const Place& place = job.place;
  std::string flags =
      rendezvous_flags(job, std::to_string(node), parse_host(place.hosts.front()).bare(), place.port);
  if (!flags.empty()) flags += " --rdzv-secret-file \"$here/secret\"";
  return train_line(job, "\"$here/recipe.toml\"", flags);
}

// The scripts of a host. They begin with here="$HOME/...", the job's folder there.
constexpr const char* kAgentBegin = R"sh(exec </dev/null >>"$here/log" 2>&1
echo $$ >"$here/pid"
stop=$here/stop
)sh";
// A process number may be another's by now: the agent's command line names the job.
constexpr const char* kFind = R"sh(pid=$(cat "$here/pid" 2>/dev/null) || exit 0
tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$here/agent.sh" && echo "$pid"
exit 0
)sh";
constexpr const char* kState = R"sh(if [ -n "$(sh "$here/find.sh")" ]; then echo running
elif [ -e "$here/ended" ]; then echo "ended $(cat "$here/ended")"
else echo lost
fi
)sh";
constexpr const char* kStop = R"sh(touch "$here/stop"
pid=$(sh "$here/find.sh")
[ -z "$pid" ] || kill -TERM "$pid"
)sh";
constexpr const char* kStart =
    R"sh(linger=$(loginctl show-user "$(id -un)" --property=Linger --value 2>/dev/null || :)
if [ "$linger" = yes ] && command -v systemd-run >/dev/null; then
  systemd-run --user --quiet --collect sh "$here/agent.sh"
else
  setsid sh "$here/agent.sh" </dev/null >/dev/null 2>&1 &
fi
for k in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  if [ -s "$here/pid" ]; then cat "$here/pid"; exit 0; fi
  sleep 0.2
done
echo "the agent did not start" >&2
exit 1
)sh";

std::string agent_script(const Job& job, int64_t node) {
  const Place& place = job.place;
  std::string text = kAgentBegin;
  const std::string folder = place.folder.empty() ? "\"$HOME/lockstep\"" : shell_word(place.folder);
  text += fmt::format("mkdir -p {0} && cd {0} || {{ echo 2 >\"$here/ended\"; exit 2; }}\n", folder);
  if (!place.bundle.empty()) {
    text += fmt::format("bundle=\"$HOME\"/{}\n", shell_word(bundle_of(place)));
    text += "export PATH=\"$bundle/bin:$bundle/build:$bundle:$PATH\"\n";
    text += "export LD_LIBRARY_PATH=\"$bundle/lib:$bundle/.deps/site/torch/lib:${LD_LIBRARY_PATH:-}\"\n";
  }
  text += environment_lines(job);
  text += fmt::format("train() {{ exec {}; }}\n", node_line(job, node));
  return text + return_loop(place, 0) + "echo \"$code\" >\"$here/ended\"\n";
}

// Run on the host, with its scripts inside: writes them and starts the agent.
std::string start_script(const Job& job, int64_t node) {
  const std::string here = fmt::format("here=\"$HOME/{}\"\n", folder_of(job.id, node));
  std::string text =
      here + "set -e\numask 077\nmkdir -p \"$here\"\nrm -f \"$here/pid\" \"$here/ended\" \"$here/stop\"\n";
  const auto add = [&](const char* name, const std::string& body) {
    text += here_document(fmt::format("\"$here/{}\"", name), body);
  };
  if (!job.recipe.empty()) add("recipe.toml", job.recipe);
  add("agent.sh", here + agent_script(job, node));
  add("find.sh", here + kFind);
  add("state.sh", here + kState);
  add("stop.sh", here + kStop);
  return text + kStart;
}

std::string first_word(const std::string& output) {
  return std::string(base::trimmed(output.substr(0, output.find('\n'))));
}

void check_hosts(const Place& place) {
  if (place.hosts.empty())
    throw base::ConfigError(
        722, "a target of kind ssh needs hosts: --hosts gpu1,gpu2, or hosts = [\"gpu1\"] in targets.toml");
  if (static_cast<size_t>(place.nodes) != place.hosts.size())
    throw base::ConfigError(722, fmt::format("{} nodes, but {} hosts; leave nodes out, or name as many hosts",
                                             place.nodes, place.hosts.size()));
}

Plan plan(const Job& job) {
  const Place& place = job.place;
  check_hosts(place);
  Plan plan;
  const std::string secret = fresh_secret();
  for (int64_t node = 0; node < place.nodes; ++node) {
    const std::string& text = place.hosts[static_cast<size_t>(node)];
    const Host host = parse_host(text);
    const std::string folder = folder_of(job.id, node), start = start_script(job, node);
    if (!place.bundle.empty()) {
      const bool archive = is_archive(place.bundle);
      plan.steps.push_back(
          {on_host(place, host, "mkdir -p " + shell_word(archive ? ".lockstep/bundles" : bundle_of(place)))});
      plan.steps.push_back(
          {{.words = {"rsync", "--archive", "--delete", "--protect-args", "--rsync-path=cd && rsync",
                      "--rsh=" + shell_line(ssh_words(place, host)), place.bundle + (archive ? "" : "/"),
                      host.name + ":" + (archive ? archive_of(place) : bundle_of(place) + "/")},
            .patience_s = 3600}});
      if (archive) {
        Command unpack = on_host(place, host, unpack_line(place));
        unpack.patience_s = 1200;
        plan.steps.push_back({unpack});
      }
    }
    if (place.nodes > 1)
      plan.steps.push_back({on_host(
          place, host, fmt::format("umask 077 && mkdir -p {0} && cat >{0}/secret", folder), secret + "\n")});
    plan.files.push_back({fmt::format("start-{}.sh", node), start});
    const auto script = [&](const char* name) {
      return on_host(place, host, fmt::format("test ! -e {0}/{1} || sh {0}/{1}", folder, name)).words;
    };
    plan.steps.push_back({.command = on_host(place, host, "sh", start),
                          .makes = {{.job = job.id,
                                     .label = label_of(text),
                                     .find = script("find.sh"),
                                     .remove = script("stop.sh")}},
                          .id_in = first_word});
  }
  return plan;
}

Status status(const Submitted& job, Client& client) {
  const Place& place = job.place;
  Status status{State::done, base::join(place.hosts, ","), ""};
  size_t running = 0;
  std::vector<std::string> problems;
  bool saved = false;
  for (size_t node = 0; node < place.hosts.size(); ++node) {
    const std::string& name = place.hosts[node];
    const Command command =
        on_host(place, parse_host(name),
                fmt::format("sh {}/state.sh", folder_of(job.id, static_cast<int64_t>(node))));
    const Answer answer = client.run(command);
    const std::string said = first_word(answer.output);
    if (!answer.ok())
      problems.push_back(fmt::format("host {} does not answer: {}", name, answer.complaint(command)));
    else if (said == "running")
      ++running;
    else if (said == "ended 75")
      saved = true;
    else if (said == "lost")
      problems.push_back(
          fmt::format("host {} has lost its agent: it was killed, or the machine started again", name));
    else if (said != "ended 0")
      problems.push_back(
          fmt::format("host {}: {}", name,
                      said.starts_with("ended ") ? "exit code " + said.substr(6) : base::quoted(said)));
  }
  status.reason = base::join(problems, "; ");
  if (running > 0)
    status.state = State::running;
  else if (!problems.empty())
    status.state = State::failed;
  else if (saved)
    status = {State::saved, status.where, "preempted and saved; submit it again to resume"};
  return status;
}

Logs logs(const Submitted& job, const LogsOptions& options) {
  if (options.node < 0 || static_cast<size_t>(options.node) >= job.place.hosts.size())
    throw base::ConfigError(
        722, fmt::format("{} has nodes 0 to {}, not {}", job.id, job.place.hosts.size() - 1, options.node));
  const Host host = parse_host(job.place.hosts[static_cast<size_t>(options.node)]);
  return {.command =
              on_host(job.place, host,
                      fmt::format("tail -c +{} {}/log", options.from + 1, folder_of(job.id, options.node))),
          .by_offset = true};
}

std::vector<std::string> why(const Submitted& job, const Status& status, Client& client) {
  std::vector<std::string> lines;
  if (!status.reason.empty()) lines.push_back(status.reason);
  if (status.state != State::failed) return lines;
  for (size_t node = 0; node < job.place.hosts.size(); ++node) {
    const Host host = parse_host(job.place.hosts[node]);
    const Answer answer = client.run(on_host(
        job.place, host, fmt::format("tail -n 3 {}/log", folder_of(job.id, static_cast<int64_t>(node)))));
    for (const std::string& line : base::split_lines(answer.ok() ? answer.output : ""))
      lines.push_back(fmt::format("{} | {}", host.bare(), line));
  }
  return lines;
}

Command shell(const Submitted& job, int64_t node) {
  if (node < 0 || static_cast<size_t>(node) >= job.place.hosts.size())
    throw base::ConfigError(
        722, fmt::format("{} has nodes 0 to {}, not {}", job.id, job.place.hosts.size() - 1, node));
  const Host host = parse_host(job.place.hosts[static_cast<size_t>(node)]);
  std::vector<std::string> words = {"ssh"};
  words.insert(words.end(), job.place.options.begin(), job.place.options.end());
  if (!host.port.empty()) words.insert(words.end(), {"-p", host.port});
  words.push_back(host.for_ssh());
  return {words};
}

std::string too_few_gpus(const Place& place, const Answer& answer) {
  const std::optional<int64_t> found = base::parse_number<int64_t>(base::trimmed(answer.output));
  if (found && *found >= place.gpus) return "";
  return fmt::format("{} GPUs are wanted on each host, and nvidia-smi lists {}", place.gpus,
                     found.value_or(0));
}

std::vector<Check> checks(const Place& place) {
  if (place.hosts.empty()) check_hosts(place);
  std::vector<Check> all;
  for (const std::string& text : place.hosts) {
    const std::string program =
        place.bundle.empty() ? fmt::format("{} --version", shell_word(program_of(place))) : "echo reached";
    all.push_back({"login", on_host(place, parse_host(text), program)});
    if (place.gpus)
      all.push_back(
          {"GPUs", on_host(place, parse_host(text), "nvidia-smi -L 2>/dev/null | wc -l"), too_few_gpus});
  }
  return all;
}

}  // namespace

Target ssh_target() {
  return {.kind = "ssh",
          .summary = "machines that ssh reaches without a password: --hosts gpu1,gpu2",
          .client = "ssh",
          .example = "lockstep submit first.toml --to ssh --hosts gpu1,gpu2 --gpus 8",
          .shares_files = false,
          .plan = plan,
          .status = status,
          .logs = logs,
          .why = why,
          .shell = shell,
          .checks = checks};
}

}  // namespace lockstep::jobs
