#include "lockstep/run/snapshot.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::run {

using device::DType;
using device::Tensor;

namespace {

constexpr const char* kMomentNames[] = {"m", "v"};

// Whole tensors in host memory, until the checkpoint is written. Only the first rank writes it, but all give.
class HostCopies {
 public:
  HostCopies(const Parameters& parameters, bool keeps) : parameters_(parameters), keeps_(keeps) {}
  void add(std::vector<checkpoint::HostTensor>& to, std::string name, const Parameters::Named& param,
           const Parameters::Held& held) {
    std::vector<char> whole = parameters_.collect(param, held);
    if (!keeps_) return;
    memory_.push_back(std::move(whole));
    to.push_back({std::move(name), {memory_.back().data(), param.dtype, param.shape}});
  }

 private:
  const Parameters& parameters_;
  const bool keeps_;
  std::vector<std::vector<char>> memory_;
};

void load_tensor(const Parameters& parameters, const checkpoint::Opened& from, const std::string& name,
                 const Parameters::Named& param, const Parameters::Held& held) {
  std::vector<char> host(static_cast<size_t>(param.shape.numel() * device::size_of(param.dtype)));
  from.read(name, {host.data(), param.dtype, param.shape});
  parameters.restore(param, held, host.data());
}

}  // namespace

std::string save_checkpoint(Session& session, const std::string& run_folder, int64_t step, int keep) {
  const Parameters& parameters = *session.parameters;
  HostCopies copies(parameters, session.ranks->first());
  checkpoint::Contents contents;
  contents.step = step;
  for (const Parameters::Named& param : parameters.named()) {
    copies.add(contents.model, param.name, param, param.master);
    for (size_t k = 0; k < param.moments.size(); ++k) {
      copies.add(contents.optimizer, param.name + "." + kMomentNames[k], param, param.moments[k]);
    }
  }
  for (const Parameters::Named& statistic : parameters.statistics()) {
    copies.add(contents.model, statistic.name, statistic, statistic.master);
  }
  contents.config_json = huggingface_config(session.plan.recipe());
  contents.recipe_toml = base::write_toml(session.plan.recipe());
  contents.state.resize(sizeof(kernels::StepState));
  parameters.read(parameters.state(), contents.state.data());
  contents.params_hash = parameters.hash();
  return session.ranks->first() ? checkpoint::save(run_folder, contents, keep) : "";
}

namespace {

// What can fail on one rank alone: nobody else is needed here.
checkpoint::Manifest load_own(Parameters& parameters, const std::string& folder) {
  const checkpoint::Opened from(folder);
  if (!from.manifest())
    throw base::DataError(320, folder + " has no manifest.json: it is no checkpoint of a run");
  const checkpoint::Manifest& manifest = *from.manifest();
  if (manifest.state.size() != sizeof(kernels::StepState)) {
    throw base::DataError(
        321, folder + "/manifest.json: the step state has another size; another version wrote it");
  }
  for (const Parameters::Named& param : parameters.named()) {
    load_tensor(parameters, from, param.name, param, param.master);
    for (size_t k = 0; k < param.moments.size(); ++k) {
      load_tensor(parameters, from, param.name + "." + kMomentNames[k], param, param.moments[k]);
    }
  }
  for (const Parameters::Named& statistic : parameters.statistics()) {
    load_tensor(parameters, from, statistic.name, statistic, statistic.master);
  }
  parameters.write(parameters.state(), manifest.state.data());
  return manifest;
}

}  // namespace

int64_t load_checkpoint(Session& session, const std::string& folder) {
  Parameters& parameters = *session.parameters;
  checkpoint::Manifest manifest;
  std::exception_ptr error;
  try {
    manifest = load_own(parameters, folder);
  } catch (const base::Error&) {
    error = std::current_exception();
  }
  // Either all ranks go on with it or none does.
  const double failed = session.ranks->sum(std::vector<double>{error ? 1.0 : 0.0})[0];
  if (error) std::rethrow_exception(error);
  if (failed > 0)
    throw base::DataError(
        325, fmt::format("{}: {:.0f} of {} ranks could not read it", folder, failed, session.ranks->size()));
  parameters.refresh_compute();
  if (!manifest.params_hash.empty() && parameters.hash() != manifest.params_hash) {
    throw base::DataError(322, folder + ": the loaded parameters do not have the hash in manifest.json");
  }
  return manifest.step;
}

void load_weights(Parameters& parameters, const std::string& folder) {
  const checkpoint::Opened from(folder);
  for (const Parameters::Named& param : parameters.named())
    load_tensor(parameters, from, param.name, param, param.master);
  for (const Parameters::Named& statistic : parameters.statistics()) {
    load_tensor(parameters, from, statistic.name, statistic, statistic.master);
  }
  parameters.refresh_compute();
}

std::string huggingface_config(const base::Recipe& recipe) {
  const auto& m = recipe.model;
  nlohmann::json c;
  if (m.family == "gpt2") {
    c = {{"architectures", {"GPT2LMHeadModel"}},
         {"model_type", "gpt2"},
         {"activation_function", "gelu_new"},
         {"n_embd", m.hidden},
         {"n_layer", m.layers},
         {"n_head", m.heads},
         {"n_inner", m.ffn.value},
         {"n_positions", m.context.value},
         {"n_ctx", m.context.value},
         {"layer_norm_epsilon", m.norm_epsilon},
         {"embd_pdrop", m.dropout},
         {"resid_pdrop", m.dropout},
         {"attn_pdrop", 0.0}};
  } else if (m.family == "llama") {
    c = {{"architectures", {"LlamaForCausalLM"}},
         {"model_type", "llama"},
         {"hidden_act", "silu"},
         {"hidden_size", m.hidden},
         {"num_hidden_layers", m.layers},
         {"num_attention_heads", m.heads},
         {"num_key_value_heads", m.kv_heads.value},
         {"intermediate_size", m.ffn.value},
         {"max_position_embeddings", m.context.value},
         {"rms_norm_eps", m.norm_epsilon},
         {"rope_theta", m.rope_theta},
         {"attention_bias", false},
         {"mlp_bias", false}};
    if (m.rope_scaling > 0) {
      c["rope_scaling"] = {{"rope_type", "llama3"},
                           {"factor", m.rope_scaling},
                           {"low_freq_factor", m.rope_low_freq},
                           {"high_freq_factor", m.rope_high_freq},
                           {"original_max_position_embeddings", m.rope_original_context}};
    }
  } else {
    return "";
  }
  c["vocab_size"] = m.vocab.value;
  c["tie_word_embeddings"] = m.tied;
  c["torch_dtype"] = "float32";
  c["initializer_range"] = m.init_std;
  c["bos_token_id"] = nullptr;
  c["eos_token_id"] = nullptr;
  return c.dump(2) + "\n";
}

}  // namespace lockstep::run
