#include "lockstep/device/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/device/cuda_facts.h"

namespace lockstep::device {
namespace {

TEST(Libraries, LibTorchIsFoundWithoutBeingLoaded) {
  ASSERT_EQ(::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD), nullptr)
      << "nothing here links it: that is what makes commands start at once";
  const std::string folder = torch_folder();
  EXPECT_TRUE(std::filesystem::exists(folder + "/lib/libtorch_cpu.so")) << folder;
  EXPECT_EQ(::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD), nullptr);
}

TEST(Libraries, WhatLiesBesideTheLibrary) {
  EXPECT_TRUE(std::filesystem::exists(path_beside("liblockstep.so")));
  EXPECT_EQ(std::filesystem::path(plugin_path()).parent_path(),
            std::filesystem::path(path_beside("liblockstep.so")).parent_path());
}

TEST(Libraries, OnesThatCannotBeLoadedAreNamed) {
  const auto refusal = [](auto call) -> std::string {
    try {
      call();
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 406);
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal([] { load_library("/nowhere/libnothing.so"); }).find("/nowhere/libnothing.so"),
            std::string::npos);
  const base::TemporaryFolder torch;
  for (const char* version : {"2.11.0", "2.11.1+cpu"}) {
    torch.write("version.py", fmt::format("__version__ = '{}'\n", version));
    EXPECT_EQ(refusal([&] { require_torch_series(torch.path()); }), "");
  }
  for (const char* version : {"2.9.1+cu128", "2.12.0", "2.1.10", "3.0"}) {
    torch.write("version.py", fmt::format("__version__ = '{}'\n", version));
    const std::string why = refusal([&] { require_torch_series(torch.path()); });
    EXPECT_NE(why.find(fmt::format("{} is PyTorch {}, and", torch.path(), version)), std::string::npos)
        << why;
  }
  void* math = load_library("libm.so.6");
  EXPECT_NE(find_in_library(math, "libm.so.6", "cos"), nullptr);
  EXPECT_NE(refusal([&] {
              find_in_library(math, "libm.so.6", "no_such_name");
            }).find("libm.so.6 does not export no_such_name"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::device
