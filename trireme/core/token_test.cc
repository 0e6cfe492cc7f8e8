#include "trireme/core/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

constexpr const char* kHex = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";

class TokenFile : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& content, mode_t mode = 0600) {
    const auto path = folder_.path() / "token";
    write_file_atomically(path, content);
    ::chmod(path.c_str(), mode);
    return path;
  }
  void expect_refused(const std::filesystem::path& path, const std::string& word) {
    try {
      Token::from_file(path);
      FAIL() << word;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
  TempDir folder_;
};

TEST(Tokens, RandomOnesDiffer) {
  EXPECT_EQ(Token::random().bytes().size(), Token::kSize);
  EXPECT_FALSE(Token::random() == Token::random());
}

TEST(Tokens, FromBytesTakesExactlyTheSize) {
  const Token token = Token::random();
  EXPECT_EQ(Token::from_bytes(token.bytes()), token);
  EXPECT_THROW(Token::from_bytes("short"), UsageError);
  EXPECT_THROW(Token::from_bytes(std::string(33, 'x')), UsageError);
}

TEST_F(TokenFile, IsReadInEitherCaseWithANewline) {
  EXPECT_EQ(to_hex(Token::from_file(write(std::string(kHex) + "\n")).bytes()), to_lower(kHex));
}

TEST_F(TokenFile, ReadableByOthersIsRefusedWithTheCure) {
  expect_refused(write(kHex, 0640), "chmod 600");
  expect_refused(write(kHex, 0604), "chmod 600");
}

TEST_F(TokenFile, WrongContentIsRefused) {
  expect_refused(write(""), "64 hexadecimal");
  expect_refused(write("abc"), "it holds 3");
  expect_refused(write(std::string(64, 'g')), "64 hexadecimal");
  expect_refused(write(std::string(kHex) + "00"), "it holds 66");
}

TEST_F(TokenFile, MissingAndFoldersAreRefused) {
  expect_refused(folder_.path() / "none", "No such file");
  expect_refused(folder_.path(), "not a regular file");
}

// FIPS 180-2 and RFC 4231.
TEST(Hashes, KnownAnswers) {
  EXPECT_EQ(to_hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

// RFC 5869, test case 1.
TEST(Hashes, DerivedKeysAreThoseOfTheStandard) {
  const std::string key(22, '\x0b');
  EXPECT_EQ(to_hex(hkdf_sha256(key, from_hex("000102030405060708090a0b0c"), from_hex("f0f1f2f3f4f5f6f7f8f9"), 42)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
}

TEST(Hashes, ConstantTimeEqual) {
  EXPECT_TRUE(constant_time_equal("abc", "abc"));
  EXPECT_FALSE(constant_time_equal("abc", "abd"));
  EXPECT_FALSE(constant_time_equal("abc", "ab"));
  EXPECT_TRUE(constant_time_equal("", ""));
}

TEST(Hashes, RandomBytes) {
  EXPECT_EQ(random_bytes(0), "");
  EXPECT_EQ(random_bytes(7).size(), 7u);
  EXPECT_NE(random_bytes(16), random_bytes(16));
}

TEST(KeyAgreements, BothSidesGetTheSameSecret) {
  const KeyAgreement a, b, c;
  EXPECT_EQ(a.public_key().size(), 32u);
  EXPECT_EQ(a.shared_secret(b.public_key()), b.shared_secret(a.public_key()));
  EXPECT_NE(a.shared_secret(b.public_key()), a.shared_secret(c.public_key()));
  EXPECT_EQ(a.shared_secret(b.public_key()).size(), 32u);
}

TEST(KeyAgreements, NonsenseKeysAreRefused) {
  const KeyAgreement a;
  EXPECT_THROW(a.shared_secret(""), PeerError);
  EXPECT_THROW(a.shared_secret("short"), PeerError);
  EXPECT_THROW(a.shared_secret(std::string(32, '\0')), PeerError) << "the point of low order";
}

TEST(Seals, OpenGivesWhatWasSealed) {
  const std::string key = random_bytes(32);
  for (const std::string& plain : {std::string(), std::string("token"), std::string(100'000, 'x')})
    EXPECT_EQ(open_sealed(key, seal(key, plain)), plain);
  EXPECT_NE(seal(key, "same"), seal(key, "same")) << "the nonce must differ";
}

TEST(Seals, AnyChangedByteIsNoticed) {
  const std::string key = random_bytes(32);
  const std::string box = seal(key, "token");
  for (size_t i = 0; i < box.size(); ++i) {
    std::string changed = box;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_THROW(open_sealed(key, changed), PeerError) << i;
  }
}

TEST(Seals, WrongKeyAndShortBoxesAreRefused) {
  const std::string box = seal(random_bytes(32), "token");
  EXPECT_THROW(open_sealed(random_bytes(32), box), PeerError);
  EXPECT_THROW(open_sealed(random_bytes(32), ""), PeerError);
  EXPECT_THROW(open_sealed(random_bytes(32), box.substr(0, 27)), PeerError);
}

// The first and the last of the test vectors for AES-256 in the GCM specification that have no additional data.
TEST(Ciphers, KnownAnswers) {
  Cipher zero(std::string(32, '\0'));
  EXPECT_EQ(to_hex(zero.seal(std::string(12, '\0'), "")), "530f8afbc74536b9a963b4f1c4cb738b");
  EXPECT_EQ(to_hex(zero.seal(std::string(12, '\0'), std::string(16, '\0'))),
            "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919");
}

TEST(Ciphers, OpenOnlyWhatTheyHaveSealedUnderThatNonce) {
  Cipher cipher(random_bytes(32));
  const std::string nonce = random_bytes(12);
  const std::string box = cipher.seal(nonce, "plain");
  EXPECT_EQ(cipher.open(nonce, box), "plain");
  EXPECT_EQ(cipher.open(random_bytes(12), box), std::nullopt);
  EXPECT_EQ(cipher.open(nonce, box.substr(1)), std::nullopt);
  EXPECT_EQ(cipher.open(nonce, "short"), std::nullopt);
  EXPECT_EQ(cipher.open(nonce, box), "plain") << "a box that did not open leaves the cipher as it was";
}

}  // namespace
}  // namespace trireme
