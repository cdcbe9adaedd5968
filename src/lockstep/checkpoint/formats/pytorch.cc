#include "lockstep/checkpoint/formats/pytorch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/formats/pickle.h"
#include "lockstep/checkpoint/formats/zip.h"

namespace lockstep::checkpoint {
namespace {

using Entry = TensorFile::Entry;
using Tensors = std::map<std::string, PickledTensor>;
using Storages = std::map<std::string, ZipEntry>;  // by key

[[noreturn]] void refuse(const CheckedFile& file, const std::string& why) {
  throw CheckpointError(
      312,
      fmt::format("{} is not a valid PyTorch file: {}; download it again, or save the model as safetensors",
                  file.path(), why));
}

// Row by row without gaps; a dimension of one element may say anything.
bool is_dense(const PickledTensor& tensor) {
  int64_t expected = 1;
  for (size_t d = tensor.shape.size(); d-- > 0;) {
    if (tensor.shape[d] != 1 && tensor.strides[d] != expected) return false;
    expected *= tensor.shape[d];
  }
  return true;
}

// Where a tensor lies, if all of it lies in its storage.
class Placing {
 public:
  Placing(const CheckedFile& file, const Storages& storages) : file_(file), storages_(storages) {}

  Entry entry(const std::string& name, const PickledTensor& tensor) const {
    const auto storage = storages_.find(tensor.storage.key);
    if (storage == storages_.end()) bad(name, "has no data in the file");
    const device::DType type = *tensor.storage.dtype;
    const int64_t size = device::size_of(type), room = storage->second.bytes / size;
    if (tensor.storage.elements > room) bad(name, "is longer than its data in the file");
    const int64_t elements = count(name, tensor, room),
                  last = elements == 0 ? 0 : last_of(name, tensor, room);
    if (tensor.offset > room - last) bad(name, "lies outside its storage");
    const int64_t begin = storage->second.begin + tensor.offset * size;
    if (elements == 0) return {type, tensor.shape, begin, begin, {}};
    return {type, tensor.shape, begin, begin + last * size,
            is_dense(tensor) ? std::vector<int64_t>{} : tensor.strides};
  }

 private:
  [[noreturn]] void bad(const std::string& name, const char* why) const {
    refuse(file_, fmt::format("tensor {} {}", base::quoted(name), why));
  }

  // More elements than the storage has means that some stand for many: no weights do, and it could ask for
  // any amount of memory.
  int64_t count(const std::string& name, const PickledTensor& tensor, int64_t room) const {
    int64_t elements = 1;
    if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
    for (const int64_t n : tensor.shape) {
      if (__builtin_mul_overflow(elements, n, &elements) || elements > room)
        bad(name, "has more elements than its storage");
    }
    return elements;
  }

  // Behind the last element, counted from the first.
  int64_t last_of(const std::string& name, const PickledTensor& tensor, int64_t room) const {
    int64_t last = 0;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      int64_t step = 0;
      if (__builtin_mul_overflow(tensor.shape[d] - 1, tensor.strides[d], &step) ||
          __builtin_add_overflow(last, step, &last) || last >= room)
        bad(name, "lies outside its storage");
    }
    return last + 1;
  }

  const CheckedFile& file_;
  const Storages& storages_;
};

std::map<std::string, Entry> placed(const CheckedFile& file, const Tensors& tensors,
                                    const Storages& storages) {
  std::map<std::string, Entry> entries;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.storage.dtype) entries.emplace(name, Placing(file, storages).entry(name, tensor));
  }
  return entries;
}

// archive/data.pkl names the tensors, archive/data/KEY holds their bytes.
std::map<std::string, Entry> read_archive(const CheckedFile& file) {
  constexpr std::string_view kPickle = "/data.pkl";
  const std::map<std::string, ZipEntry> all = read_zip(file);
  std::string folder;
  for (const auto& [name, entry] : all) {
    if (!name.ends_with(kPickle)) continue;
    if (!folder.empty()) refuse(file, "it contains more than one data.pkl");
    folder = name.substr(0, name.size() - kPickle.size() + 1);
  }
  if (folder.empty()) refuse(file, "it contains no data.pkl");
  if (const auto order = all.find(folder + "byteorder");
      order != all.end() &&
      file.text(order->second.begin, std::min<int64_t>(order->second.bytes, 16)) != "little")
    refuse(file, "it was written on a machine with a different byte order");
  const ZipEntry& pickle = all.at(folder + "data.pkl");
  if (pickle.bytes > kMostPickle) refuse(file, "its data.pkl is longer than any state_dict");
  Storages storages;
  for (const auto& [name, entry] : all) {
    if (name.starts_with(folder + "data/")) storages[name.substr(folder.size() + 5)] = entry;
  }
  return placed(file, Pickle(file.text(pickle.begin, pickle.bytes), file.path()).tensors(), storages);
}

// Before PyTorch 1.6: a number that says so, a version, facts of the machine, the tensors, the keys of their
// storages in order, and behind these pickles each storage, after its number of elements.
constexpr char kOldMagic[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

std::map<std::string, Entry> read_old(const CheckedFile& file) {
  const std::string head = file.text(0, std::min(file.size(), kMostPickle));
  std::string_view rest = head;
  const auto next = [&] {
    Pickle pickle(rest, file.path());
    rest.remove_prefix(pickle.bytes());
    return pickle;
  };
  next();
  if (const int64_t version = next().integer(); version != 1001)
    refuse(file, fmt::format("it uses version {} of PyTorch's legacy format", version));
  next();
  const Tensors tensors = next().tensors();
  std::map<std::string, int64_t> sizes;  // bytes of an element, by the key of the storage
  for (const auto& [name, tensor] : tensors)
    if (tensor.storage.dtype) sizes[tensor.storage.key] = device::size_of(*tensor.storage.dtype);
  Storages storages;
  const std::vector<std::string> keys = next().texts();
  auto at = static_cast<int64_t>(head.size() - rest.size());
  for (const std::string& key : keys) {
    if (!sizes.contains(key)) refuse(file, "it has a storage of unknown type");
    int64_t elements = 0, bytes = 0;
    if (file.size() - at < int64_t{sizeof elements}) refuse(file, "it ends before its last storage");
    std::memcpy(&elements, file.text(at, sizeof elements).data(), sizeof elements);
    at += int64_t{sizeof elements};
    if (elements < 0 || __builtin_mul_overflow(elements, sizes[key], &bytes) || bytes > file.size() - at)
      refuse(file, "it ends before its last storage");
    storages[key] = {at, bytes};
    at += bytes;
  }
  return placed(file, tensors, storages);
}

bool is_old(const CheckedFile& file) {
  const std::string_view magic(kOldMagic, sizeof kOldMagic - 1);
  return file.size() > static_cast<int64_t>(magic.size()) &&
         file.text(0, static_cast<int64_t>(magic.size())) == magic;
}

}  // namespace

PytorchFile::PytorchFile(const std::string& path) : TensorFile(path) {
  entries_ = is_old(file_) ? read_old(file_) : read_archive(file_);
}

}  // namespace lockstep::checkpoint
