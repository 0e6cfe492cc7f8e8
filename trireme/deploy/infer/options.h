// The options of a command line that choose how a model is computed: the same for `trireme infer` and `trireme serve`.
//
//   CommandSyntax syntax{.command = "trireme infer", .options = predictor_options(options.predictor)};
#pragma once

#include <vector>

#include "trireme/core/options.h"
#include "trireme/deploy/infer/predictor.h"

namespace trireme::infer {

/// Rows that fill `options`, which must outlive them.
std::vector<Option> predictor_options(PredictorOptions& options);

/// Throws UsageError for options that contradict each other.
void check_predictor_options(const PredictorOptions& options);

}  // namespace trireme::infer
