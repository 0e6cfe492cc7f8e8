// The command line of `trireme infer`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/deploy/infer/predictor.h"

namespace trireme::apps {

struct InferOptions {
  std::filesystem::path model_dir;
  std::filesystem::path image;
  int batch_size = 1;
  int score_digits = 2;  ///< behind the point, as PaddleClas prints them
  bool benchmark = false;
  bool help = false;
  infer::PredictorOptions predictor;
};

/// `--name value` or `--name=value`, with '-' or '_' within names. Throws UsageError: an unknown option with the
/// nearest one, a value that does not fit, one that is missing.
InferOptions parse_infer_options(const std::vector<std::string>& words);

const char* infer_help();

}  // namespace trireme::apps
