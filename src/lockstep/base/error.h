// The three kinds of errors: the user's, the world's, ours.
//
// Every error carries a short stable number, printed as LS0107, that `lockstep explain LS0107`
// expands with causes and remedies (base/error_catalogue.cc). The message is one sentence that
// names the thing at fault and the remedy. Errors are caught once, at the command's edge, which
// exits with exit_code().
//
//     throw base::ConfigError(102, "model.heads = 3 does not divide model.hidden = 128; try 2 or 4");
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep::base {

class Error : public std::runtime_error {
 public:
  Error(int number, int exit_code, const std::string& sentence);
  int number() const { return number_; }
  int exit_code() const { return exit_code_; }

 private:
  int number_, exit_code_;
};

// The user's: usage, recipe, environment. Nothing was started.
struct ConfigError : Error {
  ConfigError(int number, const std::string& sentence) : Error(number, 2, sentence) {}
};

// Data or a checkpoint that cannot be used. Names file and offset.
struct DataError : Error {
  DataError(int number, const std::string& sentence) : Error(number, 3, sentence) {}
};

// The world's: a disk, a device, a peer. May be retried.
struct IoError : Error {
  IoError(int number, const std::string& sentence) : Error(number, 1, sentence) {}
};
struct CommError : Error {
  CommError(int number, const std::string& sentence) : Error(number, 1, sentence) {}
};

// The training run itself cannot go on: a loss that is not a number, memory that does not suffice.
struct RunError : Error {
  RunError(int number, const std::string& sentence) : Error(number, 1, sentence) {}
};

// Ours: a broken assertion, with a stack. A bug in Lockstep.
struct Bug : std::logic_error {
  using std::logic_error::logic_error;
};
[[noreturn]] void throw_bug(const char* file, int line, const char* condition, const std::string& detail);

// "LS0107".
std::string code_name(int number);

}  // namespace lockstep::base

// Broken invariants only; never for input from outside.
#define LS_ASSERT(condition, ...) \
  ((condition) ? void(0)          \
               : ::lockstep::base::throw_bug(__FILE__, __LINE__, #condition, ::std::string{__VA_ARGS__}))
