#include "lockstep/jobs/targets/gce_machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/targets/google.h"

namespace lockstep::jobs {
namespace {

using base::ConfigError;
constexpr int kPause = 60;  // seconds: a machine that is taken away is off in 30

// What is done before the run, each part only where it is needed. `give_up` switches the machine off, so that
// a failed set-up costs nothing; the next start tries again.
constexpr const char* kBegin = R"sh(#!/bin/bash
# Runs at every boot. A machine that was taken away and comes back resumes its run; one that has ended does not.
mkdir -p /var/lib/lockstep
[ -e /var/lib/lockstep/ended ] && exit 0
export HOME=/root
HOSTNAME=$(hostname -s)
export HOSTNAME
tell() {
  curl --silent --request PUT --data "$1" --header 'Metadata-Flavor: Google' \
    http://metadata.google.internal/computeMetadata/v1/instance/guest-attributes/lockstep/code
}
give_up() {
  echo "lockstep: $1"
  tell 1
  shutdown -h now
  exit 1
}
)sh";

constexpr const char* kDriver = R"sh(
# NVIDIA's driver: as the image offers it, else by Google's installer, which may start the machine again.
if ! nvidia-smi >/dev/null 2>&1; then
  if [ -x /opt/deeplearning/install-driver.sh ]; then
    /opt/deeplearning/install-driver.sh
  else
    curl --fail --silent --show-error --location --retry 5 --output /var/lib/lockstep/cuda_installer.pyz \
      https://storage.googleapis.com/compute-gpu-installation-us/installer/latest/cuda_installer.pyz &&
      python3 /var/lib/lockstep/cuda_installer.pyz install_driver
  fi
  nvidia-smi || give_up "the NVIDIA driver could not be installed"
fi
)sh";

constexpr const char* kDocker = R"sh(
if ! command -v docker >/dev/null; then
  { apt-get update && apt-get install --yes docker.io; } || give_up "Docker could not be installed"
fi
)sh";

constexpr const char* kToolkit = R"sh(
# The container toolkit: without it `docker run --gpus all` fails.
if ! command -v nvidia-ctk >/dev/null; then
  keys=/usr/share/keyrings/nvidia-container-toolkit.gpg
  list=/etc/apt/sources.list.d/nvidia-container-toolkit.list
  {
    curl --fail --silent --location --retry 5 https://nvidia.github.io/libnvidia-container/gpgkey | gpg --dearmor --yes --output $keys
    echo "deb [signed-by=$keys] https://nvidia.github.io/libnvidia-container/stable/deb/\$(ARCH) /" >$list
    apt-get update && apt-get install --yes nvidia-container-toolkit
    nvidia-ctk runtime configure --runtime=docker && systemctl restart docker
  } || give_up "the NVIDIA container toolkit could not be installed"
fi
)sh";

// Google's registries ask who pulls: the machine's service account.
std::string registry_login(const std::string& image) {
  const std::string registry = image.substr(0, image.find('/'));
  if (!registry.ends_with("pkg.dev") && !registry.ends_with("gcr.io")) return "";
  return fmt::format("gcloud auth configure-docker {} --quiet || give_up {}\n", shell_word(registry),
                     shell_word("no login to " + registry + " is possible"));
}

// Empty again after every stop, so nothing is kept there but copies of objects.
constexpr const char* kLocalSsd = R"sh(
disks=$(ls /dev/disk/by-id/google-local-nvme-ssd-* 2>/dev/null | grep -v part)
if [ -n "$disks" ] && ! mountpoint --quiet /mnt/ssd; then
  mkdir -p /mnt/ssd
  # shellcheck disable=SC2086
  if [ "$(echo $disks | wc -w)" -gt 1 ]; then
    mdadm --create /dev/md0 --run --force --level=0 --raid-devices="$(echo $disks | wc -w)" $disks && disks=/dev/md0
  fi
  mkfs.ext4 -q -F $disks && mount -o discard,nobarrier $disks /mnt/ssd
fi
)sh";

// Waits for the whole group, then counts in the order of the names.
std::string listed_numbers(const Job& job) {
  const std::string list = shell_line(
      with_zone(job.place, {"compute", "instance-groups", "managed", "list-instances", job.id,
                            "--filter=instanceStatus=RUNNING", "--format=value(instance.basename())"}));
  return fmt::format(R"sh(
until names=$({0} | sort) && [ "$(echo "$names" | grep -c .)" -ge {1} ]; do sleep 5; done
FIRST=$(echo "$names" | head -n 1)
NODE=$(($(echo "$names" | grep -nxF "$HOSTNAME" | cut -d : -f 1) - 1))
)sh",
                     list, job.place.nodes);
}

// The run itself, inside the container or on the machine.
std::string run_script(Job job) {
  Place& place = job.place;
  place.folder = place.folder.empty() ? "/lockstep" : place.folder;
  if (place.local_ssd > 0) place.environment.push_back("LOCKSTEP_OBJECT_CACHE=/mnt/ssd/objects");
  const auto names_interface = [](const std::string& one) { return one.starts_with("NCCL_SOCKET_IFNAME="); };
  // NCCL must not take Docker's bridge for a network.
  if (place.gpus > 0 && std::ranges::none_of(place.environment, names_interface))
    place.environment.push_back("NCCL_SOCKET_IFNAME=^docker,veth,lo");
  return returning_script(job, rendezvous_flags(job, "\"$NODE\"", "\"$FIRST\"", port_alone(place)), kPause);
}

std::string start_line(const Place& place) {
  if (place.image.empty()) return "bash /var/lib/lockstep/run.sh\n";
  const std::string folder = shell_word(place.folder.empty() ? "/lockstep" : place.folder);
  return fmt::format(
      "docker run --rm --name lockstep --stop-timeout 25 {}--network host --ipc host --env HOSTNAME --env "
      "NODE "
      "--env FIRST \\\n  --volume {}:{} --volume /var/lib/lockstep:/var/lib/lockstep {}{} sh "
      "/var/lib/lockstep/run.sh\n",
      place.gpus ? "--gpus all " : "", folder, folder, place.local_ssd ? "--volume /mnt/ssd:/mnt/ssd " : "",
      shell_word(place.image));
}

}  // namespace

std::string instance_name(const std::string& job, int64_t node) { return fmt::format("{}-{}", job, node); }

Place gce_place(const Place& asked) {
  require_settings(asked, {"zone", "machine"});
  Place place = with_machine_gpus(asked);
  require_shared_secret(place);
  if (place.placement == "compact" && place.nodes == 1)
    throw ConfigError(
        722, "placement = \"compact\" puts several machines close to each other; remove it, or use --nodes");
  const std::optional<MachineGpus> machine = gpus_of_machine(place.machine);
  if (machine && !place.networks.empty() && static_cast<int64_t>(place.networks.size()) > machine->networks)
    throw ConfigError(722, fmt::format("{} takes {} more networks, and {} are named", place.machine,
                                       machine->networks, place.networks.size()));
  boot_image_of(place);
  return place;
}

BootImage boot_image_of(const Place& place) {
  if (place.boot_image.empty()) return {"ubuntu-2204-lts", "ubuntu-os-cloud"};
  const size_t at = place.boot_image.find('@');
  if (at == std::string::npos || at == 0 || at + 1 == place.boot_image.size())
    throw ConfigError(721, fmt::format("boot_image is FAMILY@PROJECT, not {}; example: {}",
                                       base::quoted(place.boot_image), find_setting("boot_image")->example));
  return {place.boot_image.substr(0, at), place.boot_image.substr(at + 1)};
}

std::string startup_script(const Job& job, Names names) {
  const Place& place = job.place;
  std::string text = kBegin;
  if (place.gpus) text += kDriver;
  if (!place.image.empty()) text += kDocker + registry_login(place.image);
  if (!place.image.empty() && place.gpus) text += kToolkit;
  if (place.local_ssd) text += kLocalSsd;
  text += names == Names::listed && place.nodes > 1
              ? listed_numbers(job)
              : fmt::format("NODE=${{HOSTNAME##*-}} FIRST={}\n", instance_name(job.id, 0));
  text +=
      "export NODE FIRST\n" + here_document("/var/lib/lockstep/run.sh", run_script(job)) + start_line(place);
  return text + R"sh(code=$?
echo "lockstep: exit code $code"
tell "$code"
[ "$code" = 75 ] || touch /var/lib/lockstep/ended
shutdown -h now
)sh";
}

}  // namespace lockstep::jobs
