#include "trireme/data/tokens.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/fd.h"

namespace trireme::data {
namespace {

constexpr int64_t kByteValues = 256;
constexpr int64_t kTextHead = 4096;  // bytes that are looked at

int64_t bytes_each(TokenType type) {
  switch (type) {
    case TokenType::bytes:
      return 1;
    case TokenType::uint16:
      return 2;
    case TokenType::uint32:
      return 4;
  }
  throw UsageError("Tokens: TokenType {} does not exist", static_cast<int>(type));
}

TokensOptions checked(const std::filesystem::path& file, TokensOptions options) {
  const int64_t values = int64_t{1} << (8 * bytes_each(options.type));
  if (options.length < 1)
    throw UsageError("{}: sequences of {} tokens; length must be at least 1", file.string(), options.length);
  if (options.vocabulary == 0 && options.type == TokenType::bytes) options.vocabulary = kByteValues;
  if (options.vocabulary < 1 || options.vocabulary > values)
    throw UsageError("{}: vocabulary is {}; for tokens of {} byte{} it must be from 1 to {}", file.string(),
                     options.vocabulary, bytes_each(options.type), options.type == TokenType::bytes ? "" : "s", values);
  return options;
}

}  // namespace

struct Tokens::Mapping {
  explicit Mapping(std::filesystem::path path_) : path(std::move(path_)) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) throw UsageError("cannot read the tokens of {}: {}", path.string(), std::strerror(errno));
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) throw SystemError(errno, "cannot ask for the size of {}", path.string());
    if (!S_ISREG(status.st_mode)) throw UsageError("{} is not a file of tokens: not a regular file", path.string());
    if (status.st_size == 0) throw UsageError("{} is empty: there are no tokens to learn", path.string());
    size = status.st_size;
    void* const memory = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED)
      throw SystemError(errno, "cannot map the {} bytes of {} into memory", size, path.string());
    data = static_cast<const std::byte*>(memory);
  }
  ~Mapping() { ::munmap(const_cast<std::byte*>(data), static_cast<size_t>(size)); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void require_text() const {
    const std::byte* const end = data + std::min(size, kTextHead);
    if (const std::byte* const zero = std::find(data, end, std::byte{0}); zero != end)
      throw UsageError(
          "{}: byte {} is 0, so this is not a text; for a file of numbers set type to TokenType::uint16 or uint32, and "
          "the vocabulary",
          path.string(), zero - data);
  }

  std::filesystem::path path;
  int64_t size = 0;  // in bytes
  const std::byte* data = nullptr;
};

Tokens::Tokens(const std::filesystem::path& file, const TokensOptions& options)
    : options_(checked(file, options)), file_(std::make_shared<const Mapping>(file)) {
  if (options_.type == TokenType::bytes) file_->require_text();
  const int64_t each = bytes_each(options_.type);
  if (file_->size % each != 0)
    throw UsageError("{} has {} bytes, not a multiple of the {} bytes of a token; is it of another type, or cut off?",
                     file.string(), file_->size, each);
  if (size() < 1)
    throw UsageError(
        "{} has {} tokens; one sequence of {} and its last target need {}: take a longer file, or a shorter length",
        file.string(), tokens(), options_.length, options_.length + 1);
}

int64_t Tokens::tokens() const {
  return file_->size / bytes_each(options_.type);
}

int64_t Tokens::size() const {
  return (tokens() - 1) / options_.length;
}

template <typename T>
void Tokens::copy_as(int64_t first, std::span<int64_t> out) const {
  const std::byte* from = file_->data + first * static_cast<int64_t>(sizeof(T));
  for (size_t i = 0; i < out.size(); ++i, from += sizeof(T)) {
    T token;
    std::memcpy(&token, from, sizeof token);
    out[i] = static_cast<int64_t>(token);
    if (out[i] >= options_.vocabulary)
      throw UsageError("{}: token {} is {}, but the vocabulary has {}: 0 to {}", file_->path.string(),
                       first + static_cast<int64_t>(i), out[i], options_.vocabulary, options_.vocabulary - 1);
  }
}

void Tokens::copy(int64_t first, std::span<int64_t> out) const {
  switch (options_.type) {
    case TokenType::bytes:
      return copy_as<uint8_t>(first, out);
    case TokenType::uint16:
      return copy_as<uint16_t>(first, out);
    case TokenType::uint32:
      return copy_as<uint32_t>(first, out);
  }
}

Sample Tokens::get(int64_t index) const {
  const Batch one = batch({&index, 1});
  return {one.data[0], one.target[0]};
}

Batch Tokens::batch(std::span<const int64_t> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch{torch::empty({count, options_.length}, torch::kInt64),
              torch::empty({count, options_.length}, torch::kInt64)};
  std::vector<int64_t> sequence(static_cast<size_t>(options_.length) + 1);
  auto* x = batch.data.data_ptr<int64_t>();
  auto* y = batch.target.data_ptr<int64_t>();
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size(), "sequence ", index, " of a file of ", size());
    copy(index * options_.length, sequence);
    x = std::copy(sequence.begin(), sequence.end() - 1, x);
    y = std::copy(sequence.begin() + 1, sequence.end(), y);
  }
  return batch;
}

}  // namespace trireme::data
