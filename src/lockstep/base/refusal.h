// What a call is refused with, for tests: its sentence, or its number.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::base {

// The sentence. The test fails if the call throws nothing or another number.
template <class Call>
std::string refusal(int number, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.number(), number) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused, but " << code_name(number) << " was expected";
  return "";
}

// 0: it is not refused.
template <class Call>
int number_of_refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.number();
  }
  return 0;
}

}  // namespace lockstep::base
