#include "lockstep/checkpoint/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/companions.h"
#include "lockstep/checkpoint/formats/shards.h"
#include "lockstep/checkpoint/formats/widen.h"
#include "lockstep/checkpoint/saving/file_writer.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kElements = int64_t{1} << 22;  // at a time

void make_target(const std::string& target) {
  std::error_code error;
  if (fs::exists(target, error) && !(fs::is_directory(target, error) && fs::is_empty(target, error))) {
    throw base::ConfigError(
        326, fmt::format("{} already exists and is not an empty folder; export into a new one", target));
  }
  base::make_folders(target);
}

// The tensors as they will be written, in the order of their names in the source's files.
std::vector<Whole> wanted_of(const Opened& source, std::optional<device::DType> type) {
  std::vector<Whole> tensors;
  for (const std::string& name : source.names()) {
    Whole tensor = source.find(name);
    if (tensor.kind == Kind::moment) continue;
    if (type && can_widen(tensor.dtype)) tensor.dtype = *type;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Every element of one tensor, read as fp32 where it changes its type.
void copy_tensor(const Opened& source, const Whole& wanted, FileWriter& file, Exported& done) {
  Whole stored = source.find(wanted.name);
  const bool converts = stored.dtype != wanted.dtype || source.merges(wanted.name);
  if (converts) stored.dtype = device::DType::f32;
  const int64_t from_size = device::size_of(stored.dtype), to_size = device::size_of(wanted.dtype);
  const Piece whole = whole_piece(stored);
  std::vector<std::byte> read, written;
  for (int64_t at = 0; at < whole.count; at += kElements) {
    const int64_t count = std::min(kElements, whole.count - at);
    read.resize(static_cast<size_t>(count * from_size));
    source.read({{part_of(whole, at, count), read.data()}});
    if (!converts) {
      file.append(read);
      continue;
    }
    written.resize(static_cast<size_t>(count * to_size));
    done.overflowed +=
        narrow(reinterpret_cast<const float*>(read.data()), count, wanted.dtype, written.data());
    file.append(written);
  }
  done.bytes += wanted.bytes();
  ++done.tensors;
}

// A tokenizer may have more tokens than the model, and transformers does not open a model with such an id.
bool in_vocabulary(const nlohmann::json& id, const nlohmann::json& config) {
  if (!config.contains("vocab_size") || !config["vocab_size"].is_number_integer()) return true;
  const int64_t vocab = config["vocab_size"];
  const nlohmann::json ids = id.is_array() ? id : nlohmann::json::array({id});
  return std::all_of(ids.begin(), ids.end(), [&](const nlohmann::json& one) {
    return one.is_number_integer() && one >= 0 && one < vocab;
  });
}

// transformers loads weights in the type that config.json names, and ends a text with the token it names.
std::string config_for(const std::string& text, std::optional<device::DType> type,
                       const std::map<std::string, std::string>& tokens) {
  nlohmann::json config = nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object()) return text;
  bool changed = type.has_value();
  if (type) {
    const char* name = *type == device::DType::bf16  ? "bfloat16"
                       : *type == device::DType::f16 ? "float16"
                                                     : "float32";
    config[config.contains("dtype") ? "dtype" : "torch_dtype"] = name;
  }
  for (const auto& [key, value] : tokens) {
    if (config.contains(key) && !config[key].is_null()) continue;
    const nlohmann::json id = nlohmann::json::parse(value);
    if (!in_vocabulary(id, config)) continue;
    config[key] = id;
    changed = true;
  }
  return changed ? config.dump(2) + "\n" : text;
}

// Half an export looks like a model; what was written goes, unless all of it was.
class Unfinished {
 public:
  explicit Unfinished(std::string target) : target_(std::move(target)) {}
  ~Unfinished() {
    std::error_code ignored;
    for (const std::string& name : names_) fs::remove(fs::path(target_) / name, ignored);
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  std::string add(const std::string& name) {
    names_.push_back(name);
    return target_ + "/" + name;
  }
  void finish() { names_.clear(); }

 private:
  std::string target_;
  std::vector<std::string> names_;
};

// A run that saves whole checkpoints has no adapter_config.json: its recipe and tensors say what that would.
AdapterConfig adapter_config_of(const Opened& source) {
  if (source.adapter()) return *source.adapter();
  recipe::RecipeSource from;
  from.text = source.manifest() ? source.manifest()->recipe_toml : "";
  const recipe::Recipe recipe = recipe::read_recipe(from).recipe;
  AdapterConfig config{.rank = recipe.tune.rank,
                       .alpha = recipe.tune.alpha,
                       .dropout = recipe.tune.dropout,
                       .root = recipe.tune.scaling == "sqrt",
                       .transposed = source.keeps_inputs_first()};
  for (const std::string& name : source.names()) {
    const std::string weight = is_adapter_tensor(name) ? adapted_weight(name) : "";
    if (name.find(".lora_A.") != std::string::npos && !weight.empty())
      config.targets.push_back(weight.substr(0, weight.rfind('.')));
  }
  return config;
}

}  // namespace

bool has_adapter(const Opened& source) {
  const std::vector<std::string> names = source.names();
  return std::any_of(names.begin(), names.end(), is_adapter_tensor);
}

Exported export_adapter(const Opened& source, const std::string& target, std::optional<device::DType> type) {
  std::vector<Whole> wanted = wanted_of(source, type);
  // Beside an adapter only what was trained with it; a whole checkpoint does not tell that from the rest.
  if (!source.adapter()) std::erase_if(wanted, [](const Whole& one) { return !is_adapter_tensor(one.name); });
  const PlannedFile planned = plan_adapter_files(wanted).front();
  make_target(target);
  Unfinished written(target);
  Exported done{.files = 1};
  FileWriter file = FileWriter::create(written.add(planned.name));
  file.append(planned.header);
  for (const Whole& tensor : planned.tensors) copy_tensor(source, tensor, file, done);
  file.finish();
  write_text(written.add(kAdapterConfigName), adapter_config_text(adapter_config_of(source)));
  written.finish();
  done.has_config = true;
  return done;
}

Exported export_model(const Opened& source, const std::string& target, std::optional<device::DType> type,
                      const Companions& beside) {
  std::vector<PlannedFile> plan = plan_files(wanted_of(source, type));
  make_target(target);
  Unfinished written(target);
  Exported done;
  if (plan.size() == 1) plan[0].name = "model.safetensors";  // as transformers names a single one
  for (const PlannedFile& planned : plan) {
    FileWriter file = FileWriter::create(written.add(planned.name));
    file.append(planned.header);
    for (const Whole& tensor : planned.tensors) copy_tensor(source, tensor, file, done);
    file.finish();
    ++done.files;
  }
  if (plan.size() > 1) write_text(written.add(kIndexName), index_text(plan));
  done.has_config = !source.config_json().empty();
  if (done.has_config)
    write_text(written.add("config.json"), config_for(source.config_json(), type, beside.tokens));
  for (const Companion& one : beside.files) {
    write_text(written.add(one.name), base::read_file(one.from));
    done.companions.push_back(one.name);
  }
  written.finish();
  return done;
}

}  // namespace lockstep::checkpoint
