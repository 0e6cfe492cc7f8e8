#include "apps/infer_options.h"

#include "trireme/core/error.h"
#include "trireme/core/option_help.h"
#include "trireme/core/options.h"
#include "trireme/deploy/infer/options.h"

namespace trireme::apps {
namespace {

constexpr int kMaxPictures = 4096;
constexpr int kMaxDigits = 9;  // a float has no more

constexpr const char* kAbout =
    "Names the classes of pictures with a model that `trireme export` wrote. A line for each picture:\n"
    "  cat.jpg:\tclass id(s): [281, 285], score(s): [0.71, 0.12], label_name(s): ['tabby', 'Egyptian cat']\n";

constexpr const char* kExitCodes =
    "Exit code 0: every picture answered; 1: not all (what was wrong is on standard error); 2: wrong options.\n";

CommandSyntax syntax_of(InferOptions& options) {
  const auto set_image = [&](const Given& given) {
    if (!options.image.empty())
      throw UsageError("{} is there twice; it takes one file, or a folder of them", given.source);
    options.image = given.text;
  };
  CommandSyntax syntax{
      .command = "trireme infer",
      .usage = "--model-dir DIR --image FILE|DIR [options]",
      .about = kAbout,
      .notes = kExitCodes,
      .operand_advice = "--image takes one file, or a folder of them",
      .options = {{{"--model-dir"},
                   "DIR",
                   "folder with inference.yml and inference.onnx or inference.pt; required",
                   store_text(options.model_dir)},
                  {{"--image", "--img-path"},
                   "FILE|DIR",
                   "a JPEG or PNG file, or a folder of them (its subfolders are left out); required",
                   set_image},
                  {{"--batch-size"},
                   "N",
                   "pictures at a time (default: 1)",
                   store(options.batch_size, int_in(1, kMaxPictures))},
                  {{"--score-digits"},
                   "N",
                   "digits of a score behind the point, up to 9 (default: 2, as PaddleClas prints)",
                   store(options.score_digits, int_in(0, kMaxDigits))},
                  {{"--benchmark"},
                   "True|False",
                   "measure as well: times of each step, percentiles, pictures per second (default: False)",
                   store(options.benchmark, bool_value),
                   Takes::boolean}}};
  const std::vector<Option> common = infer::predictor_options(options.predictor);
  syntax.options.insert(syntax.options.end(), common.begin(), common.end());
  return syntax;
}

void need(const std::filesystem::path& value, const char* what) {
  if (value.empty()) throw UsageError("which {}? trireme infer --model-dir DIR --image FILE|DIR", what);
}

}  // namespace

InferOptions parse_infer_options(const std::vector<std::string>& words) {
  InferOptions options;
  options.help = parse_command_line(syntax_of(options), words).help;
  if (options.help) return options;
  need(options.model_dir, "model");
  need(options.image, "image");
  infer::check_predictor_options(options.predictor);
  return options;
}

std::string infer_help(std::string_view topic) {
  InferOptions defaults;
  return help_for(syntax_of(defaults), topic);
}

}  // namespace trireme::apps
