// Batches that no memory can hold, said in words: before the first one where that can be seen, else when it happens.
//
//   require_memory(loader, {.rows = 64, .sample_bytes = 602112});
//   try { … } catch (const std::exception& error) { if (out_of_memory(error)) throw UsageError(…); }
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "trireme/config/train_config.h"

namespace trireme::trainer {

struct BatchSize {
  int64_t rows = 0;  ///< of this rank
  int64_t sample_bytes = 0;
};

/// UsageError with file and line when the images of one batch alone need more memory than the machine has.
void require_memory(const config::DataLoader& loader, const BatchSize& batch);

/// Whether an exception of torch or of C++ says that there is not enough memory, of the machine or of a GPU.
bool out_of_memory(const std::exception& error);
/// How much was wanted, and how much there is.
std::string memory_shortage(const std::exception& error);
/// That, and what to do about it, for programs that read batches.
std::string memory_advice(const config::TrainConfig& config, const std::exception& error);

}  // namespace trireme::trainer
