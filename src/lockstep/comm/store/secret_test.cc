#include "lockstep/comm/store/secret.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/comm/store/store_crypto.h"

namespace lockstep::comm {
namespace {

TEST(Secret, GoesThroughTextAndBack) {
  const Secret secret = Secret::random();
  EXPECT_EQ(secret.bytes().size(), 32u);
  EXPECT_EQ(secret.to_text().size(), 64u);
  EXPECT_EQ(Secret::from_text(secret.to_text()).bytes(), secret.bytes());
  EXPECT_EQ(Secret::from_text("  " + secret.to_text() + "\n").bytes(), secret.bytes());
  EXPECT_NE(Secret::random().bytes(), secret.bytes());
}

TEST(Secret, StretchesAPassphrase) {
  const Secret one = Secret::from_text("correct horse battery staple");
  EXPECT_EQ(one.bytes().size(), 32u);
  EXPECT_EQ(Secret::from_text("correct horse battery staple\n").bytes(), one.bytes());
  EXPECT_NE(Secret::from_text("correct horse battery stapler").bytes(), one.bytes());
  // PBKDF2 with SHA-256, 200,000 rounds and the salt "lockstep run secret 1", by Python's hashlib.
  EXPECT_EQ(one.to_text(), "4e40df26d895471a3741cb2c514e722691c27e8b9a921628a26773245b4c54fd");
}

TEST(Secret, RefusesWhatIsTooShortOrTooLong) {
  for (const std::string& text : {std::string(), std::string("   \n"), std::string("hunter2"),
                                  std::string(15, 'x'), std::string(5000, 'x')}) {
    EXPECT_EQ(base::number_of_refusal([&] { Secret::from_text(text); }), 511) << text.size();
  }
}

TEST(Secret, AFileMustBeOursAlone) {
  const base::TemporaryFolder folder;
  const std::string path = folder.write("secret", std::string(64, 'a') + "\n");
  for (const auto& [mode, fine] : std::vector<std::pair<mode_t, bool>>{{0600, true},
                                                                       {0400, true},
                                                                       {0640, false},
                                                                       {0604, false},
                                                                       {0620, false},
                                                                       {0644, false},
                                                                       {0660, false}}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_EQ(base::number_of_refusal([&] { Secret::from_file(path); }), fine ? 0 : 512) << std::oct << mode;
  }
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(Secret::from_file(path).bytes(), std::string(32, '\xaa'));
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
    EXPECT_EQ(base::number_of_refusal([&] { Secret::from_file(path); }), 512);
  }
}

TEST(Secret, OtherFilesAreRefusedByName) {
  const base::TemporaryFolder folder;
  const std::string empty = folder.write("empty", " \n"), pipe = folder.path() + "/pipe";
  ASSERT_EQ(::chmod(empty.c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {folder.path() + "/absent", empty, pipe, folder.path()}) {
    EXPECT_EQ(base::number_of_refusal([&] { Secret::from_file(path); }), 512) << path;
  }
}

// Ranks inherit one descriptor: where one has read to must not matter to the next.
TEST(Secret, ADescriptorIsReadFromItsStartByEveryone) {
  const Secret secret = Secret::random();
  const int descriptor = secret_descriptor(secret);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(Secret::from_descriptor(::dup(descriptor)).bytes(), secret.bytes());
  }
  EXPECT_TRUE(::fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
  EXPECT_LT(::write(descriptor, "x", 1), 0);  // sealed
  EXPECT_EQ(Secret::from_descriptor(descriptor).bytes(), secret.bytes());
  EXPECT_LT(::fcntl(descriptor, F_GETFD), 0);  // closed
}

TEST(Secret, ADescriptorMayBeAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "0123456789abcdef", 16), 16);
  ::close(ends[1]);
  EXPECT_EQ(Secret::from_descriptor(ends[0]).bytes(), "0123456789abcdef");
}

TEST(Secret, ADescriptorWithoutASecretIsRefused) {
  const int empty = secret_descriptor(Secret());
  EXPECT_EQ(base::number_of_refusal([&] { Secret::from_descriptor(empty); }), 519);
  EXPECT_EQ(base::number_of_refusal([&] { Secret::from_descriptor(-1); }), 519);
  EXPECT_EQ(base::number_of_refusal([&] { Secret::from_descriptor(::open("/", O_RDONLY | O_CLOEXEC)); }),
            519);
}

// RFC 4231, case 2.
TEST(Crypto, HmacIsTheStandards) {
  EXPECT_EQ(Secret(hmac_sha256("Jefe", "what do ya want for nothing?")).to_text(),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

}  // namespace
}  // namespace lockstep::comm
