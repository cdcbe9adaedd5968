// The run's secret: what a process must know to be let in to the store.
//
// It never stands in arguments. The launcher hands it to its own ranks through an inherited descriptor
// (LOCKSTEP_SECRET_FD); between nodes it comes from --rdzv-secret-file, LOCKSTEP_SECRET, or a 0600 file in
// the user's config folder ($XDG_CONFIG_HOME/lockstep/secret), which shared homes give every node.
#pragma once

#include <string>

namespace lockstep::comm {

class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}
  static Secret random();  // 32 bytes from the kernel
  // 64 hex digits, or a passphrase, which is stretched; ConfigError 511 if too short.
  static Secret from_text(const std::string& text);
  // ConfigError 512 when the file is not ours alone (other owner, group or world may read it), absent or
  // empty.
  static Secret from_file(const std::string& path);
  static Secret from_descriptor(int descriptor);  // reads all of it and closes it; ConfigError 519
  std::string to_text() const;                    // hex
  const std::string& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }

 private:
  std::string bytes_;
};

// A descriptor (memfd, not close-on-exec after fork by the launcher's doing) from which a child reads the
// secret.
int secret_descriptor(const Secret& secret);

}  // namespace lockstep::comm
