// Why a tokenizer's file cannot be used. open_tokenizer() makes a DataError of it, with the file's name
// before it.
#pragma once

#include <string>

namespace lockstep::text {

struct Fault {
  int number;            // LSxxxx
  std::string sentence;  // goes on after "FILE: "
};

}  // namespace lockstep::text
