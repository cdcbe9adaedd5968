#include "lockstep/checkpoint/audit.h"

#include <gtest/gtest.h>

#include <functional>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

// A manifest that was written again has a right checksum of itself; that makes it no truer.
TEST(Audit, FindsWhatChecksumsDoNot) {
  const struct {
    const char* name;
    int error;  // 0: it is whole
    std::function<void(Manifest&)> change;
  } rows[] = {
      {"untouched", 0, [](Manifest&) {}},
      {"another hash", 322, [](Manifest& m) { m.params_hash[5] = m.params_hash[5] == '0' ? '1' : '0'; }},
      {"no files", 305, [](Manifest& m) { m.files.clear(); }},
      {"no weights", 305,
       [](Manifest& m) {
         std::erase_if(m.files, [](const FileSummary& f) { return f.name.starts_with("model-"); });
       }},
      {"no optimizer", 305,
       [](Manifest& m) {
         std::erase_if(m.files, [](const FileSummary& f) { return f.name.starts_with("optimizer-"); });
       }},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const base::TemporaryFolder run;
    Tensors tensors;
    Contents contents = contents_of(tensors, 3);
    contents.facts.recipe_toml = "[optim]\nname = \"adamw\"\n";
    const std::string folder = save(run.path(), contents, 1);
    Manifest manifest = read_manifest(folder);
    row.change(manifest);
    write_manifest(folder, manifest, system_disk());
    if (row.error == 0) {
      EXPECT_NO_THROW(audit(Opened(folder)));
    } else {
      refusal(row.error, [&] { audit(Opened(folder)); });
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
