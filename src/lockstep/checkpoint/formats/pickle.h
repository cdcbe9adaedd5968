// What a pickle of weights says, read as data: names, and where each tensor lies in which storage.
//
// Python runs what a pickle asks for; this reader runs nothing. It knows the few opcodes that a state_dict is
// written with and the five names that one may mention (collections.OrderedDict,
// torch._utils._rebuild_tensor, _rebuild_tensor_v2, _rebuild_parameter and the storage types of torch).
// Anything else, and anything that would take more memory than a model's list of tensors, is a DataError.
//
//     Pickle pickle(bytes, "pytorch_model.bin");
//     for (const PickledTensor& tensor : pickle.tensors()) ...
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/device/tensor.h"

namespace lockstep::checkpoint {

constexpr int64_t kMostPickle = int64_t{32} << 20;  // bytes

struct PickledStorage {
  std::string key;                     // names a file of the archive
  std::optional<device::DType> dtype;  // none: a type that nothing here can hold
  int64_t elements = 0;
};

struct PickledTensor {
  PickledStorage storage;
  int64_t offset = 0;  // in elements, like the strides
  std::vector<int64_t> shape, strides;
};

class Pickle {
 public:
  // Reads one pickle from the beginning of `bytes`; `path` is for messages. DataError 313.
  Pickle(std::string_view bytes, const std::string& path);
  size_t bytes() const { return at_; }  // that it took: another may follow

  // Of a dictionary by name; other values in it mean nothing to a model. DataError 313 for another thing.
  std::map<std::string, PickledTensor> tensors() const;
  std::vector<std::string> texts() const;  // of a list; DataError 313
  int64_t integer() const;                 // DataError 313

 private:
  using Ref = uint32_t;  // into values_: nothing here is ever nested in memory, however deep the pickle says
  struct Value {
    enum class Kind : uint8_t {
      none,
      truth,
      integer,
      real,
      text,
      tuple,
      list,
      dictionary,
      name,
      storage,
      tensor
    };
    Kind kind = Kind::none;
    int64_t integer = 0;  // of names: which; of storages and tensors: their index
    std::string text{};
    std::vector<Ref> items{};  // of dictionaries: key, value, key, value
  };

  [[noreturn]] void refuse(const std::string& why) const;
  bool step();  // one opcode; false: it was the last
  bool step_value(unsigned char code);
  bool step_container(unsigned char code);
  bool step_memo(unsigned char code);

  std::string_view take(size_t count);
  uint64_t take_number(size_t bytes);
  std::string_view take_line();
  int64_t take_long(size_t bytes);
  Ref push(Value value);
  void push_text(size_t length_bytes);
  void push_tuple(size_t count);
  Ref pop();
  std::vector<Ref> pop_to_mark();
  const Value& top() const;
  Value& changeable_top(Value::Kind kind);
  const Value& of(Ref ref) const { return values_[ref]; }

  void push_name(std::string_view module, std::string_view name);
  void push_storage();  // BINPERSID
  void call();          // REDUCE
  Value rebuilt(const std::vector<Ref>& arguments, bool second_version);
  int64_t size_of_value(Ref ref) const;
  std::vector<int64_t> sizes(Ref ref) const;
  void remember(uint64_t index);
  void recall(uint64_t index);

  std::string_view text_;
  std::string path_;
  size_t at_ = 0;
  std::vector<Value> values_;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;
  std::vector<std::optional<Ref>> memo_;
  std::vector<PickledStorage> storages_;
  std::vector<PickledTensor> tensors_;
};

}  // namespace lockstep::checkpoint
