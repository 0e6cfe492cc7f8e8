#include "trireme/core/token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

const unsigned char* data(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* data(std::string& bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

// A failure must never look like a result: zero bytes would be a valid proof.
void require(bool worked, const char* what) {
  if (!worked) throw Error(exit_code::kSystem, fmt::format("OpenSSL failed: {}", what));
}

using Pkey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using PkeyContext = std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)>;
using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

std::string read_private_file(const std::filesystem::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO must not hold us up
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) throw UsageError("token file {}: {}", path.string(), errno_text(errno));
  if (!S_ISREG(info.st_mode)) throw UsageError("token file {} is not a regular file", path.string());
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    throw UsageError("token file {} belongs to user {}, not to you ({}); make one of your own", path.string(),
                     info.st_uid, ::geteuid());
  if (info.st_mode & 077)
    throw UsageError("token file {} can be read by others (mode {:o}); run: chmod 600 {}", path.string(),
                     info.st_mode & 0777, path.string());
  std::string text(4096, '\0');
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return text;
}

}  // namespace

Token Token::random() {
  return Token(random_bytes(kSize));
}

Token Token::from_bytes(std::string_view bytes) {
  if (bytes.size() != kSize) throw UsageError("a job token has {} bytes, not {}", kSize, bytes.size());
  return Token(std::string(bytes));
}

Token Token::from_file(const std::filesystem::path& path) {
  const std::string text = read_private_file(path);
  const std::string_view hex = trim(text);
  if (hex.size() != 2 * kSize || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
    throw UsageError(
        "token file {} must hold {} hexadecimal digits, it holds {} characters; make one with: openssl rand -hex {}",
        path.string(), 2 * kSize, hex.size(), kSize);
  return Token(from_hex(hex));
}

std::optional<Token> configured_token() {
  if (const auto file = env::get_nonempty("TRIREME_TOKEN_FILE")) return Token::from_file(*file);
  std::filesystem::path folder;
  if (const auto config = env::get_nonempty("XDG_CONFIG_HOME"))
    folder = *config;
  else if (const auto home = env::get_nonempty("HOME"))
    folder = std::filesystem::path(*home) / ".config";
  else
    return std::nullopt;
  const auto file = folder / "trireme" / "token";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  return Token::from_file(file);
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(data(bytes), static_cast<int>(count)) != 1)
    throw Error(exit_code::kSystem, "OpenSSL returned no random bytes");
  return bytes;
}

std::string sha256(std::string_view bytes) {
  std::string digest(32, '\0');
  unsigned int length = 0;
  require(EVP_Digest(bytes.data(), bytes.size(), data(digest), &length, EVP_sha256(), nullptr) == 1, "SHA-256");
  return digest;
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  std::string digest(32, '\0');
  unsigned int length = 0;
  require(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), data(message), message.size(), data(digest),
               &length) != nullptr,
          "HMAC");
  return digest;
}

std::string hkdf_sha256(std::string_view key, std::string_view salt, std::string_view info, size_t count) {
  const PkeyContext context(EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr), &EVP_PKEY_CTX_free);
  std::string derived(count, '\0');
  size_t length = count;
  require(context && EVP_PKEY_derive_init(context.get()) == 1 &&
              EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) == 1 &&
              EVP_PKEY_CTX_set1_hkdf_salt(context.get(), data(salt), static_cast<int>(salt.size())) == 1 &&
              EVP_PKEY_CTX_set1_hkdf_key(context.get(), data(key), static_cast<int>(key.size())) == 1 &&
              EVP_PKEY_CTX_add1_hkdf_info(context.get(), data(info), static_cast<int>(info.size())) == 1 &&
              EVP_PKEY_derive(context.get(), data(derived), &length) == 1,
          "HKDF");
  return derived;
}

bool constant_time_equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

struct KeyAgreement::Impl {
  Pkey key{nullptr, &EVP_PKEY_free};
};

KeyAgreement::KeyAgreement() : impl_(std::make_unique<Impl>()) {
  impl_->key.reset(EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519"));
  if (!impl_->key) throw Error(exit_code::kSystem, "OpenSSL makes no X25519 key");
}

KeyAgreement::~KeyAgreement() = default;

std::string KeyAgreement::public_key() const {
  std::string key(32, '\0');
  size_t length = key.size();
  require(EVP_PKEY_get_raw_public_key(impl_->key.get(), data(key), &length) == 1, "X25519 public key");
  return key;
}

std::string KeyAgreement::shared_secret(std::string_view peer_public_key) const {
  const Pkey peer(EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, data(peer_public_key), peer_public_key.size()),
                  &EVP_PKEY_free);
  const PkeyContext context(EVP_PKEY_CTX_new(impl_->key.get(), nullptr), &EVP_PKEY_CTX_free);
  std::string secret(32, '\0');
  size_t length = secret.size();
  if (!peer || !context || EVP_PKEY_derive_init(context.get()) != 1 ||
      EVP_PKEY_derive_set_peer(context.get(), peer.get()) != 1 ||
      EVP_PKEY_derive(context.get(), data(secret), &length) != 1)
    throw PeerError("the peer sent a key that is not an X25519 public key ({} bytes)", peer_public_key.size());
  // Both sides must derive the same key in either role, so the public keys enter in sorted order.
  const std::string own = public_key();
  const std::string_view low = std::min<std::string_view>(own, peer_public_key);
  const std::string_view high = std::max<std::string_view>(own, peer_public_key);
  return hmac_sha256(secret, fmt::format("trireme job key{}{}", low, high));
}

struct Cipher::Impl {
  CipherContext context{EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free};
};

// The key is expanded here, once; each message sets its nonce only.
Cipher::Cipher(std::string_view key) : impl_(std::make_unique<Impl>()) {
  require(impl_->context && key.size() == kKeySize &&
              EVP_CipherInit_ex(impl_->context.get(), EVP_aes_256_gcm(), nullptr, data(key), nullptr, 1) == 1,
          "AES-256-GCM key");
}

Cipher::Cipher(Cipher&&) noexcept = default;
Cipher::~Cipher() = default;

std::string Cipher::seal(std::string_view nonce, std::string_view plain) {
  std::string box(plain.size() + kTagSize, '\0');
  EVP_CIPHER_CTX* context = impl_->context.get();
  int size = 0;
  require(nonce.size() == kNonceSize && EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, data(nonce)) == 1 &&
              EVP_EncryptUpdate(context, data(box), &size, data(plain), static_cast<int>(plain.size())) == 1 &&
              EVP_EncryptFinal_ex(context, data(box) + size, &size) == 1 &&
              EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, kTagSize, data(box) + plain.size()) == 1,
          "AES-256-GCM");
  return box;
}

std::optional<std::string> Cipher::open(std::string_view nonce, std::string_view box) {
  if (box.size() < kTagSize) return std::nullopt;
  const std::string_view encrypted = box.substr(0, box.size() - kTagSize);
  std::string tag(box.substr(encrypted.size()));
  const int length = static_cast<int>(encrypted.size());
  std::string plain(encrypted.size(), '\0');
  EVP_CIPHER_CTX* context = impl_->context.get();
  int size = 0;
  require(nonce.size() == kNonceSize && EVP_DecryptInit_ex(context, nullptr, nullptr, nullptr, data(nonce)) == 1 &&
              EVP_DecryptUpdate(context, data(plain), &size, data(encrypted), length) == 1 &&
              EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, kTagSize, data(tag)) == 1,
          "AES-256-GCM");
  if (EVP_DecryptFinal_ex(context, data(plain) + size, &size) != 1) return std::nullopt;
  return plain;
}

std::string seal(std::string_view key, std::string_view plain) {
  const std::string nonce = random_bytes(Cipher::kNonceSize);
  return nonce + Cipher(key).seal(nonce, plain);
}

std::string open_sealed(std::string_view key, std::string_view box) {
  if (box.size() < Cipher::kNonceSize + Cipher::kTagSize)
    throw PeerError("a sealed message has {} bytes, too few", box.size());
  auto plain = Cipher(key).open(box.substr(0, Cipher::kNonceSize), box.substr(Cipher::kNonceSize));
  if (!plain) throw PeerError("a sealed message was changed on the way, or sealed with another key");
  return *std::move(plain);
}

}  // namespace trireme
