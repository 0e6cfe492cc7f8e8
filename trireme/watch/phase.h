// What a training does at a moment. The library notes it where it knows it (recorder.h).
#pragma once

#include <cstdint>

namespace trireme::watch {

enum class Phase : uint32_t { unknown, data, forward, backward, optimizer, evaluation, save };

/// "loading data", "in the forward pass"; "" for unknown.
const char* words_of(Phase phase);

}  // namespace trireme::watch
