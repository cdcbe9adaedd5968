// Arrow's memory, up to a limit: sizes in a file's headers are promises, and a wrong one must not take the
// machine's memory. Beyond the limit Arrow gets an error, which becomes a sentence.
#pragma once

#include <arrow/memory_pool.h>
#include <arrow/status.h>

#include <atomic>
#include <string>

namespace lockstep::data {

class LimitedPool final : public arrow::MemoryPool {
 public:
  explicit LimitedPool(int64_t most) : most_(most), pool_(arrow::default_memory_pool()) {}

  arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t** out) override {
    ARROW_RETURN_NOT_OK(reserve(size));
    const arrow::Status status = pool_->Allocate(size, alignment, out);
    if (!status.ok()) used_ -= size;
    return status;
  }
  arrow::Status Reallocate(int64_t old_size, int64_t new_size, int64_t alignment, uint8_t** out) override {
    ARROW_RETURN_NOT_OK(reserve(new_size - old_size));
    const arrow::Status status = pool_->Reallocate(old_size, new_size, alignment, out);
    if (!status.ok()) used_ -= new_size - old_size;
    return status;
  }
  void Free(uint8_t* buffer, int64_t size, int64_t alignment) override {
    pool_->Free(buffer, size, alignment);
    used_ -= size;
  }
  int64_t bytes_allocated() const override { return used_; }
  int64_t total_bytes_allocated() const override { return pool_->total_bytes_allocated(); }
  int64_t num_allocations() const override { return pool_->num_allocations(); }
  std::string backend_name() const override { return pool_->backend_name(); }

 private:
  arrow::Status reserve(int64_t more) {
    if (more > most_ || used_.fetch_add(more) + more > most_) {
      if (more <= most_) used_ -= more;
      return arrow::Status::OutOfMemory("more than ", most_ >> 30,
                                        " GiB at once; write it with smaller row groups or batches");
    }
    return arrow::Status::OK();
  }

  const int64_t most_;
  arrow::MemoryPool* pool_;
  std::atomic<int64_t> used_{0};
};

}  // namespace lockstep::data
