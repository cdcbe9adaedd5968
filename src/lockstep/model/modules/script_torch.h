// A TorchScript module in the shape of a torch::nn::Module: the same tensors under the same names.
//
// Errors of the interpreter become one sentence with the file and line of the user's Python code, which
// TorchScript keeps beside the code.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>

namespace lockstep::model {

// Tensors that are one in Python (tied weights) are one again: files only keep that their values are shared.
std::shared_ptr<torch::nn::Module> module_of(const torch::jit::Module& script);

// `path`: the file, for errors (ConfigError 129).
std::function<at::Tensor(const at::Tensor&)> forward_of(const torch::jit::Module& script, std::string path);
std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> loss_of(const torch::jit::Method& method,
                                                                        std::string path);

// Of the last dimension of `outputs`, one value for each label, zero where it is -1.
at::Tensor cross_entropy(const at::Tensor& outputs, const at::Tensor& labels, const std::string& path);

// "mat1 and mat2 shapes cannot be multiplied (net.py, line 12, in forward: x = self.out(x))".
std::string spoken(const std::string& error);

}  // namespace lockstep::model
