// Libraries that the program uses without being linked to them.
//
// LibTorch's CPU half takes a quarter of a second to load, and most commands never call it: CPU products,
// Gloo and blocks made of torch::nn::Module do. They load it when they are first asked for.
#pragma once

#include <string>

namespace lockstep::device {

// What multiplies matrices on CUDA: "cublasLt 13.1.0", for the numerics record. Empty before the plugin is
// loaded.
std::string product_library();

// The folder "torch" whose lib/ holds libtorch_cpu.so: of the one that is loaded, or else of the one that
// would be. Empty when there is none.
std::string torch_folder();

// ConfigError 406 where the PyTorch in that folder is of another series than the one that this program is
// built for. What tells its version is missing in bundles, which hold the right one.
constexpr const char* kTorchSeries = "2.11.";
void require_torch_series(const std::string& folder);

// A file beside the library that holds this function, loaded once and kept; likewise a library by its name
// alone, which is looked for where LibTorch lies. ConfigError 406 when it cannot be loaded, or LibTorch is
// another one.
std::string path_beside(const std::string& file);
void* load_library(const std::string& path_or_name);
void* find_in_library(void* library, const std::string& name, const char* symbol);  // ConfigError 406

}  // namespace lockstep::device
