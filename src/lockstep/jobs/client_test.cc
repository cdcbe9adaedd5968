#include "lockstep/jobs/client.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::jobs {
namespace {

TEST(Client, SplitsAProgramAsAShellDoes) {
  EXPECT_EQ(split_shell_words(" train.py --name 'a b' \"c \\\" d\" e\\ f "),
            (std::vector<std::string>{"train.py", "--name", "a b", "c \" d", "e f"}));
  for (const char* bad : {"", "  ", "'a", "''"})
    EXPECT_THROW(split_shell_words(bad), base::ConfigError) << bad;
}

}  // namespace
}  // namespace lockstep::jobs
