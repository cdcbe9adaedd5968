// What the cache knows about a copy: a small hidden file beside it, which is its lock as well.
//
// "size changed version": a copy without a record, or with another, is none. The record is emptied before a
// copy is replaced and written after it stands, so that being killed in between costs only a second fetch.
#pragma once

#include <string>

#include "lockstep/store/store.h"

namespace lockstep::store {

class Record {
 public:
  static std::string path_for(const std::string& copy);  // "/cache/a/.b.bin.object" for "/cache/a/b.bin"
  static bool is_record(const std::string& path);
  static std::string copy_of(const std::string& record_path);
  // Whether the copy is of this object, without waiting for who may be fetching it.
  static bool fits(const std::string& copy, const Object& object);

  explicit Record(const std::string& copy);  // waits for the lock; IoError 292
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  void clear();
  void write(const Object& object);
  void touch();  // it was used now

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace lockstep::store
