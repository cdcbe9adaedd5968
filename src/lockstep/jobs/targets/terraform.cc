// Terraform: the instances of `gce` as a module that can be read, changed and applied by hand. Watched as
// instances of Compute Engine; `stop` destroys what the module has made.
#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/jobs/client.h"
#include "lockstep/jobs/targets/gce_machine.h"
#include "lockstep/jobs/targets/gce_watch.h"
#include "lockstep/jobs/targets/google.h"

namespace lockstep::jobs {
namespace {

// A string of HCL: quoted, with ${ and %{ kept as they are.
std::string hcl_text(const std::string& value) {
  std::string out = "\"";
  for (size_t k = 0; k < value.size(); ++k) {
    const char c = value[k];
    if (c == '"' || c == '\\') out += '\\';
    if ((c == '$' || c == '%') && k + 1 < value.size() && value[k + 1] == '{') out += c;
    out += c;
  }
  return out + "\"";
}

// name = value with the equals signs of neighbours aligned, as `terraform fmt` wants them.
std::string assignments(const std::string& indent,
                        const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t width = 0;
  for (const auto& [name, value] : rows) width = std::max(width, value.empty() ? 0 : name.size());
  std::string text;
  for (const auto& [name, value] : rows) {
    if (!value.empty()) text += fmt::format("{}{:<{}} = {}\n", indent, name, width, value);
  }
  return text;
}

std::string scheduling(const Place& place) {
  const bool spot = strategy_of(place) == "SPOT";
  std::vector<std::pair<std::string, std::string>> rows = {
      {"on_host_maintenance", "\"TERMINATE\""},
      {"automatic_restart", spot ? "false" : "true"},
      {"preemptible", spot ? "true" : ""},
      {"provisioning_model", spot ? "\"SPOT\"" : "\"STANDARD\""},
      {"instance_termination_action", spot || place.time.count ? "\"STOP\"" : ""},
  };
  std::string text = "  scheduling {\n" + assignments("    ", rows);
  if (place.time.count)
    text += fmt::format("    max_run_duration {{\n      seconds = {}\n    }}\n", place.time.count);
  return text + "  }\n";
}

std::string interfaces(const Place& place) {
  Words all = {place.network.empty() ? "default" : place.network};
  all.insert(all.end(), place.networks.begin(), place.networks.end());
  std::string text;
  for (size_t k = 0; k < all.size(); ++k) {
    const size_t slash = all[k].find('/');
    text += "  network_interface {\n" +
            assignments("    ",
                        {{"network", hcl_text(all[k].substr(0, slash))},
                         {"subnetwork", slash == std::string::npos ? "" : hcl_text(all[k].substr(slash + 1))},
                         {"nic_type", place.networks.empty() ? "" : "\"GVNIC\""}});
    if (k == 0) text += "    access_config {} # an address of its own, to reach registries and buckets\n";
    text += "  }\n";
  }
  return text;
}

std::string instance(const Job& job) {
  const Place& place = job.place;
  const BootImage image = boot_image_of(place);
  std::string text = "resource \"google_compute_instance\" \"node\" {\n";
  text += assignments("  ", {{"count", std::to_string(place.nodes)},
                             {"name", fmt::format("\"{}-${{count.index}}\"", job.id)},
                             {"machine_type", hcl_text(place.machine)},
                             {"zone", hcl_text(place.zone)}});
  text += "\n  labels = {\n" + assignments("    ", {{"lockstep-job", hcl_text(job.id)}}) + "  }\n\n";
  text += "  boot_disk {\n    initialize_params {\n" +
          assignments("      ", {{"image", hcl_text(image.project + "/" + image.family)},
                                 {"size", std::to_string(place.disk_gib ? place.disk_gib : 200)}}) +
          "    }\n  }\n";
  for (int64_t k = 0; k < place.local_ssd; ++k) text += "  scratch_disk {\n    interface = \"NVME\"\n  }\n";
  if (place.gpus)
    text += "  guest_accelerator {\n" +
            assignments("    ", {{"type", hcl_text(place.gpu_type)}, {"count", std::to_string(place.gpus)}}) +
            "  }\n";
  text += scheduling(place) + interfaces(place);
  text +=
      "  service_account {\n" +
      assignments("    ", {{"email", place.service_account.empty() ? "" : hcl_text(place.service_account)},
                           {"scopes", "[\"cloud-platform\"]"}}) +
      "  }\n";
  if (place.placement == "compact")
    text += "  resource_policies = [google_compute_resource_policy.compact.id]\n";
  text += "\n  metadata = {\n" +
          assignments("    ", {{"enable-guest-attributes", "\"TRUE\""},
                               {"install-nvidia-driver", "\"True\""},
                               {"startup-script", "file(\"${path.module}/startup.sh\")"}}) +
          "  }\n}\n";
  return text;
}

std::string module_text(const Job& job) {
  const Place& place = job.place;
  std::string text = fmt::format("# lockstep submit: {}\n", job.id);
  text += R"(terraform {
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0"
    }
  }
}

provider "google" {
)";
  text += assignments("  ", {{"project", place.project.empty() ? "" : hcl_text(place.project)},
                             {"region", hcl_text(region_of(place.zone))},
                             {"zone", hcl_text(place.zone)}}) +
          "}\n\n";
  if (place.placement == "compact")
    text += fmt::format(
        "resource \"google_compute_resource_policy\" \"compact\" {{\n  name   = {}\n  region = {}\n  "
        "group_placement_policy {{\n    vm_count    = {}\n    collocation = \"COLLOCATED\"\n  }}\n}}\n\n",
        hcl_text(job.id), hcl_text(region_of(place.zone)), place.nodes);
  text += instance(job);
  return text + "\noutput \"names\" {\n  value = google_compute_instance.node[*].name\n}\n";
}

std::vector<std::string> terraform(const std::string& folder, std::vector<std::string> words) {
  words.insert(words.begin(), {"terraform", "-chdir=" + folder});
  return words;
}

Plan plan(const Job& asked) {
  Job job = asked;
  job.place = gce_place(asked.place);
  Plan plan;
  plan.files = {{"main.tf", module_text(job)}, {"startup.sh", startup_script(job, Names::numbered)}};
  const std::string& folder = job.state_folder;
  plan.steps.push_back(
      {.command = {.words = terraform(folder, {"init", "-input=false", "-no-color"}), .patience_s = 600}});
  plan.steps.push_back(
      {.command = {.words = terraform(folder, {"apply", "-input=false", "-auto-approve", "-no-color"}),
                   .patience_s = 1800},
       .makes = {{.job = job.id,
                  .label = "Terraform module",
                  .find = {"sh", "-c",  // `state list` fails where nothing was ever made
                           fmt::format("test ! -e {} || {}", shell_word(folder + "/terraform.tfstate"),
                                       shell_line(terraform(folder, {"state", "list"})))},
                  .remove = terraform(folder, {"destroy", "-auto-approve", "-no-color"}),
                  .id = job.id}}});
  plan.remarks = {fmt::format("the state of the module is in {}: `lockstep stop` needs it", folder)};
  return plan;
}

std::vector<Check> checks(const Place& place) {
  std::vector<Check> all = {{"client", {{"terraform", "version"}}}};
  for (Check& check : gce_checks(place)) all.push_back(std::move(check));
  return all;
}

}  // namespace

Target terraform_target() {
  return {.kind = "terraform",
          .summary = "Compute Engine instances as a Terraform module that you keep; watched through gcloud",
          .client = "terraform",
          .example =
              "lockstep submit first.toml --to terraform --image IMAGE --gpus 1 --set machine=n1-standard-4 "
              "--set "
              "gpu_type=nvidia-tesla-t4 --set zone=us-central1-a",
          .shares_files = false,
          .time_limit = TimeLimit::ends_the_job,
          .disk_gib = 200,
          .plan = plan,
          .status = gce_status,
          .logs = gce_logs,
          .why = gce_why,
          .shell = gce_shell,
          .checks = checks};
}

}  // namespace lockstep::jobs
