// A long text as numbers, cut into sequences for a language model: the input, and the same shifted by one as target.
//
//   data::Tokens book("book.txt", {.length = 256});                                  // its bytes: a vocabulary of 256
//   data::Tokens corpus("train.bin", {.length = 1024, .type = data::TokenType::uint16, .vocabulary = 50257});
//   data::Loader train(corpus, {.batch_size = 8, .shuffle = true}, world);           // x, y: int64, 8 x 1024
//
// Sequence i begins at token i * length, and its last target is the first input of sequence i + 1: each token but the
// first is a target once an epoch. Up to `length` tokens at the end are left out.
//
// The file is mapped into memory, not read: it may be larger than the memory, and the ranks of a host share it. Numbers
// are little-endian, one after the other, without a header. The file must not become shorter while it is used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "trireme/data/dataset.h"

namespace trireme::data {

enum class TokenType {
  bytes,  ///< a text file: each byte is a token
  uint16,
  uint32,
};

struct TokensOptions {
  int64_t length = 1024;  ///< tokens of a sequence
  TokenType type = TokenType::bytes;
  int64_t vocabulary = 0;  ///< tokens are below it; 0: 256 for bytes, and must be given for the others
};

/// A small value: copies share the mapped file.
class Tokens : public Dataset {
 public:
  using Dataset::batch;
  using Dataset::get;
  /// Throws UsageError that names the file for one that is missing, empty, shorter than one sequence and its last
  /// target, not of whole tokens, or, as text, has a zero byte near its beginning; and for options out of range.
  explicit Tokens(const std::filesystem::path& file, const TokensOptions& options = {});

  /// Sequences.
  int64_t size() const override;
  Sample get(int64_t index) const override;
  /// Both int64, sequences x length. Throws UsageError with its position for a token that is not below the vocabulary.
  Batch batch(std::span<const int64_t> indices) const override;

  int64_t vocabulary() const { return options_.vocabulary; }
  int64_t length() const { return options_.length; }
  /// Of the whole file.
  int64_t tokens() const;

 private:
  struct Mapping;

  void copy(int64_t first, std::span<int64_t> out) const;
  template <typename T>
  void copy_as(int64_t first, std::span<int64_t> out) const;

  TokensOptions options_;
  std::shared_ptr<const Mapping> file_;
};

}  // namespace trireme::data
