// The command line of `trireme infer`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/deploy/infer/predictor.h"

namespace trireme::apps {

struct InferOptions {
  std::filesystem::path model_dir;
  std::vector<std::string> images;  ///< files, folders, patterns; "-": a picture on standard input
  std::vector<std::string> lists;   ///< files with a name a line; "-": standard input
  std::string image_root;           ///< of the names in lists
  bool recursive = false;
  bool json_lines = false;
  int batch_size = 1;
  int score_digits = 2;  ///< behind the point, as PaddleClas prints them
  bool benchmark = false;
  std::optional<std::string> help;  ///< --help: its topic; then nothing was checked
  infer::PredictorOptions predictor;
};

/// By the rules of core/options.h. Throws UsageError.
InferOptions parse_infer_options(const std::vector<std::string>& words);

/// The text for --help, or the table of docs/infer.md.
std::string infer_help(std::string_view topic);

}  // namespace trireme::apps
