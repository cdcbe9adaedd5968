#include "lockstep/checkpoint/export.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/formats/widen.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using device::DType;

TEST(Export, WeightsAloneInTheTypeWanted) {
  base::TemporaryFolder run;
  Tensors memory;
  const Contents contents = contents_of(memory, 1);
  const Opened source(save(run.path(), contents, 1));
  for (const auto type : {std::optional<DType>(), std::optional(DType::bf16), std::optional(DType::f16)}) {
    const std::string target = run.path() + "/out" + (type ? device::name_of(*type) : "");
    const Exported done = export_model(source, target, type);
    EXPECT_EQ(done.tensors, 2);
    EXPECT_TRUE(fs::exists(target + "/model.safetensors"));
    EXPECT_FALSE(fs::exists(target + "/manifest.json"));
    const Opened opened(target);
    const auto config = nlohmann::json::parse(opened.config_json());
    EXPECT_EQ(config.value("torch_dtype", ""), !type ? "" : *type == DType::bf16 ? "bfloat16" : "float16");
    for (const HostTensor& one : contents.model) {
      EXPECT_EQ(opened.find(one.name).dtype, type.value_or(DType::f32));
      std::vector<float> read(static_cast<size_t>(one.tensor.numel())), expected(read.size());
      read_tensor(opened, one.name, {read.data(), DType::f32, one.tensor.shape});
      std::vector<unsigned char> half(read.size() * 4);
      narrow(one.tensor.as<float>(), one.tensor.numel(), type.value_or(DType::f32), half.data());
      widen(half.data(), type.value_or(DType::f32), one.tensor.numel(), expected.data());
      EXPECT_EQ(std::memcmp(read.data(), expected.data(), read.size() * 4), 0) << one.name;
    }
    EXPECT_NE(refusal(326, [&] { export_model(source, target, type); }).find("not an empty folder"),
              std::string::npos);
  }
}

// A folder without a manifest gives its own tokenizer; all of its files, and nothing else.
TEST(Export, TheTokenizerComesAlong) {
  base::TemporaryFolder run;
  Tensors memory;
  const std::string first = run.path() + "/first", second = run.path() + "/second";
  EXPECT_TRUE(
      export_model(Opened(save(run.path(), contents_of(memory, 1), 1)), first, {}).companions.empty());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "generation_config.json", "notes.txt"})
    run.write(std::string("first/") + name, name);
  EXPECT_EQ(export_model(Opened(first), second, {}).companions,
            (std::vector<std::string>{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                      "generation_config.json"}));
  EXPECT_EQ(base::read_file(second + "/chat_template.jinja"), "chat_template.jinja");
  EXPECT_FALSE(fs::exists(second + "/notes.txt"));
}

}  // namespace
}  // namespace lockstep::checkpoint
