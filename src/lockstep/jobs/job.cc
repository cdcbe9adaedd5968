#include "lockstep/jobs/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/client.h"

namespace lockstep::jobs {
namespace {

using base::ConfigError;

bool is_variable(const std::string& name) {
  const auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), letter);
}

std::string variable_of(const std::string& entry) {
  const std::string name = entry.substr(0, entry.find('='));
  if (entry.find('=') == std::string::npos || !is_variable(name))
    throw ConfigError(724, fmt::format("{} is no variable; write NAME=value", base::quoted(name, 40)));
  return name;
}

bool looks_secret(const std::string& name) {
  for (const char* ending : {"TOKEN", "SECRET", "PASSWORD", "_KEY", "PASSPHRASE", "CREDENTIALS"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

// The command that prints the value, where the run is.
std::string reading_command(const Secret& secret) {
  const size_t slash = secret.what.find('/');
  const bool cut = slash != std::string::npos;
  const std::string first = shell_word(secret.what.substr(0, slash)),
                    second = shell_word(cut ? secret.what.substr(slash + 1) : "");
  switch (secret.keeper) {
    case Secret::Keeper::google:
      return fmt::format("gcloud secrets versions access {} --secret={}", cut ? second : "latest", first);
    case Secret::Keeper::aws:
      return fmt::format(
          "aws secretsmanager get-secret-value --secret-id {} --query SecretString --output text",
          shell_word(secret.what));
    case Secret::Keeper::azure:
      return fmt::format("az keyvault secret show --vault-name {} --name {} --query value --output tsv",
                         first, second);
    default:
      return "cat " + shell_word(secret.what);
  }
}

}  // namespace

std::string make_id(const std::string& name) {
  std::string id;
  for (const char c : name) {
    const char low = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool plain = (low >= 'a' && low <= 'z') || (low >= '0' && low <= '9');
    if (plain) id += low;
    if (!plain && !id.empty() && id.back() != '-') id += '-';
  }
  id.resize(std::min<size_t>(id.size(), 32));  // places allow 63 letters, with what they add themselves
  if (id.empty() || !std::isalpha(static_cast<unsigned char>(id[0]))) id = "run-" + id;
  if (id.back() != '-') id += '-';
  std::random_device device;
  for (int k = 0; k < 6; ++k) id += "0123456789abcdefghjkmnpqrstvwxyz"[device() % 32];
  return id;
}

std::vector<Secret> secrets_of(const Place& place) {
  struct Prefix {
    const char* text;
    Secret::Keeper keeper;
  };
  constexpr Prefix kPrefixes[] = {{"file:", Secret::Keeper::file},
                                  {"kubernetes:", Secret::Keeper::kubernetes},
                                  {"google:", Secret::Keeper::google},
                                  {"aws:", Secret::Keeper::aws},
                                  {"azure:", Secret::Keeper::azure}};
  std::vector<Secret> secrets;
  for (const std::string& entry : place.secrets) {
    const std::string name = variable_of(entry), value = entry.substr(name.size() + 1);
    const auto* row =
        std::ranges::find_if(kPrefixes, [&](const Prefix& one) { return value.starts_with(one.text); });
    if (row == std::end(kPrefixes) || value == row->text)
      throw ConfigError(724, fmt::format("the secret {} must name where its value is kept: {}=file:PATH, "
                                         "{}=kubernetes:SECRET/KEY, {}=google:SECRET, {}=aws:SECRET or "
                                         "{}=azure:VAULT/SECRET",
                                         name, name, name, name, name, name));
    secrets.push_back({name, row->keeper, value.substr(std::string_view(row->text).size())});
    if (row->keeper == Secret::Keeper::kubernetes &&
        (place.kind != "kubernetes" || secrets.back().what.find('/') == std::string::npos))
      throw ConfigError(
          724,
          fmt::format("the secret {} is kubernetes:SECRET/KEY, for targets of kind kubernetes only", name));
    if (row->keeper == Secret::Keeper::azure && secrets.back().what.find('/') == std::string::npos)
      throw ConfigError(724, fmt::format("the secret {0} is azure:VAULT/SECRET; name the vault, too", name));
  }
  return secrets;
}

std::vector<std::pair<std::string, std::string>> variables_of(const Place& place) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& entry : place.environment) {
    const std::string name = variable_of(entry);
    if (looks_secret(name))
      throw ConfigError(724, fmt::format("{} looks like a secret, and variables are written into scripts and "
                                         "manifests; use --secret {}=file:PATH",
                                         name, name));
    all.emplace_back(name, entry.substr(name.size() + 1));
  }
  return all;
}

std::string fresh_secret() {
  std::random_device device;
  std::string text;
  for (int k = 0; k < 8; ++k) text += fmt::format("{:08x}", device());
  return text;
}

void require_shared_secret(const Place& place, const char* keeper) {
  const auto ours = [](const std::string& one) { return one.starts_with("LOCKSTEP_SECRET="); };
  if (place.nodes == 1 || std::ranges::any_of(place.secrets, ours)) return;
  throw ConfigError(722,
                    fmt::format("several machines share a secret, which {} does not hand out; keep one in {}",
                                place.kind, keeper));
}

int64_t ranks_of(const Place& place) {
  return place.ranks > 0 ? place.ranks : std::max<int64_t>(place.gpus, 1);
}

std::string program_of(const Place& place) { return place.program.empty() ? "lockstep" : place.program; }

std::string train_line(const Job& job, const std::string& recipe_file, const std::string& flags) {
  const bool own = job.launch.empty();
  std::vector<std::string> words = {program_of(job.place), own ? "train" : "launch"};
  std::string line = shell_line(words);
  if (own && !job.recipe.empty()) line += " " + recipe_file;
  words = own ? job.overrides : std::vector<std::string>{};
  words.insert(words.end(), {"--nproc", std::to_string(ranks_of(job.place)), "--max-restarts",
                             std::to_string(job.place.failures)});
  words.insert(words.end(), job.train.begin(), job.train.end());
  line += " " + shell_line(words);
  if (!flags.empty()) line += " " + flags;
  if (!own) line += " " + shell_line(job.launch);
  return line;
}

std::string rendezvous_flags(const Job& job, const std::string& node, const std::string& first_host,
                             int64_t port) {
  if (job.place.nodes == 1) return "";
  return fmt::format("--nnodes {} --node-rank {} --rdzv-endpoint {}:{} --rdzv-id {}", job.place.nodes, node,
                     first_host, port > 0 ? std::to_string(port) : "auto", job.id);
}

int64_t port_alone(const Place& place) { return place.port > 0 ? place.port : 29400; }

std::string environment_lines(const Job& job) {
  std::string lines;
  for (const auto& [name, value] : variables_of(job.place))
    lines += fmt::format("export {}={}\n", name, shell_word(value));
  for (const Secret& secret : secrets_of(job.place)) {
    if (secret.keeper == Secret::Keeper::kubernetes) continue;  // the manifest names it
    lines += fmt::format("{0}=$({1}) || exit 2\nexport {0}\n", secret.variable, reading_command(secret));
  }
  return lines;
}

std::string here_document(const std::string& file, const std::string& text) {
  std::string mark = "END_OF_FILE";
  while (text.find(mark) != std::string::npos) mark += "_";
  return fmt::format("cat >{} <<'{}'\n{}{}{}\n", file, mark, text, text.ends_with('\n') ? "" : "\n", mark);
}

namespace {

// Variables, folder and recipe: all but the run itself, whose line it returns.
std::string prepare(const Job& job, const std::string& flags, std::string& script) {
  script += environment_lines(job);
  if (!job.place.folder.empty())
    script += fmt::format("mkdir -p {0} && cd {0} || exit 2\n", shell_word(job.place.folder));
  const std::string file = fmt::format("/tmp/{}.toml", job.id);
  if (!job.recipe.empty()) script += here_document(file, job.recipe);
  return train_line(job, file, flags);
}

constexpr const char* kReturnLoop = R"sh(child=
trap '[ -z "${stop:-}" ] || touch "$stop"; [ -z "$child" ] || kill -TERM "$child"' TERM
again=0
while :; do
  train &
  child=$!
  wait "$child"
  code=$?
  while [ "$code" -gt 128 ] && kill -0 "$child" 2>/dev/null; do  # a signal ended the wait, not the run
    wait "$child"
    code=$?
  done
  [ "$code" = 75 ] && { [ -z "${stop:-}" ] || [ ! -e "$stop" ]; } && [ "$again" -lt "$preemptions" ] || break
  again=$((again + 1))
  echo "lockstep: preempted and saved; running again"
)sh";

}  // namespace

std::string self_contained_script(const Job& job, const std::string& flags) {
  std::string script;
  const std::string line = prepare(job, flags, script);
  return script + "exec " + line + "\n";
}

std::string return_loop(const Place& place, int pause_s) {
  std::string text = fmt::format("preemptions={}\n", place.preemptions) + kReturnLoop;
  if (pause_s > 0) text += fmt::format("  sleep {} &\n  wait $!\n", pause_s);
  return text + "done\n";
}

std::string returning_script(const Job& job, const std::string& flags, int pause_s) {
  std::string script;
  const std::string line = prepare(job, flags, script);
  return script + fmt::format("train() {{ exec {}; }}\n", line) + return_loop(job.place, pause_s) +
         "exit \"$code\"\n";
}

}  // namespace lockstep::jobs
