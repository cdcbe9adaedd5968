// A place's own client (sbatch, kubectl, gcloud, ssh), run as a person would run it.
//
//     const Answer answer = client.run({.words = {"squeue", "--noheader"}});
//     if (!answer.ok()) throw ...(answer.complaint());
//
// The only door to the outside: tests put another Client in its place.
#pragma once

#include <string>
#include <vector>

namespace lockstep::jobs {

struct Command {
  std::vector<std::string> words;  // no shell between
  std::string input = {};          // its standard input
  int patience_s = 60;             // then it is killed, with what it has started
};

struct Answer {
  int code = 0;  // 127: there is no such program
  std::string output, error;
  bool timed_out = false;

  bool ok() const { return code == 0 && !timed_out; }
  // "sbatch says: Invalid partition specified", "kubectl did not answer within 60 s"; one line.
  std::string complaint(const Command& command) const;
};

class Client {
 public:
  virtual ~Client() = default;
  virtual Answer run(const Command& command) = 0;
  // With this process's own streams, as long as it takes; its exit code.
  virtual int attach(const Command& command) = 0;
};

class ProcessClient : public Client {
 public:
  Answer run(const Command& command) override;
  int attach(const Command& command) override;
};

bool is_in_path(const std::string& program);

// For a shell: 'it'\''s'; words that need no quotes stay as they are.
std::string shell_word(const std::string& word);
std::string shell_line(const std::vector<std::string>& words);
// The words of a line, split as a shell does it: blanks, '...' and "..." with \ inside, nothing expanded.
// ConfigError 721: no words, or a quote that is not closed.
std::vector<std::string> split_shell_words(const std::string& line);

}  // namespace lockstep::jobs
