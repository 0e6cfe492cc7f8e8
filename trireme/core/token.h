// The job's secret and the few cryptographic tools around it. All of it is OpenSSL's work.
//
//   Token token = Token::random();
//   bool genuine = constant_time_equal(answer, hmac_sha256(token.bytes(), challenge));
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace trireme {

/// 256 random bits that every control connection of one job must prove to know.
class Token {
 public:
  static constexpr size_t kSize = 32;

  static Token random();
  /// Exactly kSize bytes, else UsageError.
  static Token from_bytes(std::string_view bytes);
  /// A file with 64 hexadecimal digits that only its owner can read. Anything else is a UsageError: a token that cannot
  /// be read is never silently replaced.
  static Token from_file(const std::filesystem::path& path);

  const std::string& bytes() const { return bytes_; }
  bool operator==(const Token&) const = default;

 private:
  explicit Token(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string bytes_;
};

/// The token of the user's jobs: from TRIREME_TOKEN_FILE if set (unreadable is an error, never passed over), else from
/// ~/.config/trireme/token if that exists, else nothing.
std::optional<Token> configured_token();

std::string random_bytes(size_t count);
std::string sha256(std::string_view bytes);
std::string hmac_sha256(std::string_view key, std::string_view message);
/// `count` bytes that are made out of `key` for one purpose, which `info` names (RFC 5869).
std::string hkdf_sha256(std::string_view key, std::string_view salt, std::string_view info, size_t count);
bool constant_time_equal(std::string_view a, std::string_view b);

/// One X25519 key agreement: send public_key(), receive the peer's, derive the same secret on both sides.
class KeyAgreement {
 public:
  KeyAgreement();
  ~KeyAgreement();
  std::string public_key() const;
  /// 32 bytes bound to both public keys. Throws PeerError when the peer's key is not one.
  std::string shared_secret(std::string_view peer_public_key) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// AES-256-GCM under one key.
/// Requires: no nonce seals twice. Thread rule: one thread at a time.
class Cipher {
 public:
  static constexpr size_t kKeySize = 32;
  static constexpr size_t kNonceSize = 12;
  static constexpr size_t kTagSize = 16;

  explicit Cipher(std::string_view key);
  Cipher(Cipher&&) noexcept;
  ~Cipher();
  /// The encrypted bytes, and kTagSize more.
  std::string seal(std::string_view nonce, std::string_view plain);
  /// Nothing when the box was changed, or sealed with another key or nonce.
  std::optional<std::string> open(std::string_view nonce, std::string_view box);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A Cipher's box with its random nonce in front; open_sealed() throws PeerError when the box was tampered with.
std::string seal(std::string_view key, std::string_view plain);
std::string open_sealed(std::string_view key, std::string_view box);

}  // namespace trireme
