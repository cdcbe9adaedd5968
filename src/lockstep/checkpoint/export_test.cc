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
  EXPECT_EQ(export_model(Opened(first), second, {}, companions_of(Opened(first))).companions,
            (std::vector<std::string>{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                      "generation_config.json"}));
  EXPECT_EQ(base::read_file(second + "/chat_template.jinja"), "chat_template.jinja");
  EXPECT_FALSE(fs::exists(second + "/notes.txt"));
}

// A run that began from a run that began from a folder of somebody else's: what a text ends with, and how to
// generate, is written there alone.
TEST(Export, WhatTheFirstModelSaysOfItsTokensIsKept) {
  base::TemporaryFolder run;
  Tensors memory;
  run.write("model/config.json", R"({"model_type": "gpt2", "eos_token_id": [2, 7], "pad_token_id": 300})");
  run.write("model/generation_config.json", "{}");
  const auto began_from = [&](const std::string& folder, const char* name) {
    Contents contents = contents_of(memory, 1);
    contents.facts.recipe_toml = "[model]\nfrom = \"" + folder + "\"\n";
    contents.facts.config_json = R"({"model_type": "gpt2", "vocab_size": 300, "eos_token_id": null})";
    save(run.path() + "/" + name, contents, 1);
    return run.path() + "/" + name;
  };
  const std::string first = run.path() + "/model", target = run.path() + "/out";
  export_model(Opened(save(run.path() + "/plain", contents_of(memory, 1), 1)), run.path() + "/weights", {});
  fs::copy(run.path() + "/weights/model.safetensors", first + "/model.safetensors");
  const std::string second = began_from(began_from(first, "one"), "two");
  const Opened opened(list(second).front());
  EXPECT_EQ(export_model(opened, target, {}, companions_of(opened)).companions,
            (std::vector<std::string>{"generation_config.json"}));
  const nlohmann::json config = nlohmann::json::parse(base::read_file(target + "/config.json"));
  EXPECT_EQ(config["eos_token_id"], (nlohmann::json{2, 7}));
  EXPECT_FALSE(config.contains("pad_token_id")) << "the model has no such token";

  fs::remove_all(run.path() + "/one");
  EXPECT_TRUE(companions_of(opened).files.empty()) << "a run that is gone is no reason to export nothing";
  const std::string circle = began_from(run.path() + "/circle", "circle");
  EXPECT_TRUE(companions_of(Opened(list(circle).front())).files.empty());
}

}  // namespace
}  // namespace lockstep::checkpoint
