// Weights as torch.save wrote them: pytorch_model.bin, the format before safetensors.
//
// The file is a ZIP archive with a pickle that names tensors and a file of bytes for each storage; before
// PyTorch 1.6, pickles and then the storages one behind the other. Both are read as data (pickle.h): whatever
// the file asks for, nothing is run. Views, and names that share a storage, are read as what they are.
#pragma once

#include <string>

#include "lockstep/checkpoint/formats/tensor_file.h"

namespace lockstep::checkpoint {

constexpr const char* kPytorchName = "pytorch_model.bin";
constexpr const char* kPytorchIndexName = "pytorch_model.bin.index.json";

class PytorchFile : public TensorFile {
 public:
  explicit PytorchFile(const std::string& path);  // DataError 312, 313
};

}  // namespace lockstep::checkpoint
