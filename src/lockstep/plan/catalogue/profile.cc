#include "lockstep/plan/catalogue/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/plan/catalogue/catalogue.h"
#include "lockstep/recipe/toml.h"

namespace lockstep::plan {

std::string profile_path() {
  return (std::filesystem::path(catalogue_path()).parent_path() / "machine.toml").string();
}

// Sums to their owners and back, each of which passes all ranks but one.
Link link_of(const AllReduced& few, const AllReduced& many, int ranks) {
  const double hops = 2.0 * (ranks - 1);
  const double latency = few.seconds / hops;
  const double moving = std::max(many.seconds - few.seconds, many.seconds / 100);
  return {.bytes_per_second = many.bytes * hops / ranks / moving, .latency_seconds = latency};
}

std::string profile_text(const Profile& profile) {
  const Machine& m = profile.machine;
  std::string text = fmt::format(
      "# This machine, measured by `lockstep bench machine`. To send it to a colleague, give \"this\" "
      "another name.\n\n"
      "[kernels.this]\n");
  const auto number = [&](const char* key, double value) {
    text += fmt::format("{} = {:.6g}\n", key, value);
  };
  const auto share = [](double value) { return std::clamp(value, 0.01, 1.0); };
  number("bf16", share(m.reached));
  number("fp8", share(m.reached_fp8));
  number("fp32", share(m.reached_fp32));
  if (m.flops_tf32 > 0) {
    number("tf32", share(m.reached_tf32));
    number("attention_fp32_forward", share(m.attention_fp32_forward));
    number("attention_fp32_backward", share(m.attention_fp32_backward));
  }
  number("memory", share(m.memory_reached));
  number("ramp_us", m.ramp_seconds * 1e6);
  number("spill", m.spill);
  number("launch_us", m.launch_seconds * 1e6);
  for (const auto& [pass, rate] :
       {std::pair("forward", m.attention_forward), {"backward", m.attention_backward}}) {
    number(fmt::format("attention_{}_64", pass).c_str(), share(rate.reached_64));
    number(fmt::format("attention_{}_128", pass).c_str(), share(rate.reached_128));
    number(fmt::format("attention_{}_length", pass).c_str(), rate.half_length);
  }
  text += "measured = true\n";
  number("error", m.error);
  const std::string from = fmt::format("source = {}\nchecked = {}\n",
                                       recipe::toml_string("lockstep bench machine, build " + profile.build),
                                       recipe::toml_string(profile.checked));
  text += from + fmt::format("\n[device.this]\ntitle = {}\nmaker = {}\nkernels = \"this\"\n",
                             recipe::toml_string(profile.device), recipe::toml_string(profile.maker));
  number("bf16_tflops", m.flops_half / 1e12);
  number("fp8_tflops", m.flops_fp8 / 1e12);
  number("fp32_tflops", m.flops_fp32 / 1e12);
  if (m.flops_tf32 > 0) number("tf32_tflops", m.flops_tf32 / 1e12);
  number("gib", static_cast<double>(m.memory_bytes) / (1 << 30));
  number("memory_gb_s", m.memory_bytes_per_second / 1e9);
  number("units", m.units);
  number("watts", std::max(1.0, m.watts));
  number("per_node", m.ranks_per_node);
  number("inside_gb_s", m.inside.bytes_per_second / 1e9);
  number("inside_us", m.inside.latency_seconds * 1e6);
  number("between_gb_s", m.between.bytes_per_second / 1e9);
  number("between_us", m.between.latency_seconds * 1e6);
  number("host_gb_s", m.host_bytes_per_second / 1e9);
  return text + fmt::format("build = {}\n", recipe::toml_string(profile.build)) + from;
}

}  // namespace lockstep::plan
