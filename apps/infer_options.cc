#include "apps/infer_options.h"

#include <algorithm>

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

constexpr const char* kNotes =
    "Exit code 0: every picture answered; 1: not all (what was wrong is on standard error); 2: wrong options.\n"
    "\nexamples\n"
    "  trireme infer --model-dir inference --image cat.jpg\n"
    "  trireme infer --model-dir inference --image pictures --batch-size 32 --format jsonl\n";

CommandSyntax syntax_of(InferOptions& options) {
  const auto add_to = [](std::vector<std::string>& list) {
    return [&list](const Given& given) { list.push_back(given.text); };
  };
  const auto format = [&](const Given& given) {
    if (given.text != "text" && given.text != "jsonl") throw UsageError("{}: must be text or jsonl", given.shown());
    options.json_lines = given.text == "jsonl";
  };
  CommandSyntax syntax{
      .command = "trireme infer",
      .usage = "--model-dir DIR --image FILE|DIR... [options]",
      .about = kAbout,
      .notes = kNotes,
      .operand_advice = "give each file its own --image, or quote the pattern: --image '*.jpg'",
      .options = {
          {{"--model-dir"},
           "DIR",
           "folder with inference.yml and inference.onnx or inference.pt; required",
           text_into(options.model_dir)},
          {{"--image", "--img-path"},
           "FILE|DIR",
           "a JPEG or PNG file, a folder of them, a pattern like '*/*.jpg', or - for standard input; several times",
           add_to(options.images)},
          {{"--list"},
           "FILE",
           "names of such files, one a line, a label may follow; or - for standard input; several times",
           add_to(options.lists)},
          {{"--image-root"},
           "DIR",
           "folder that the names in a --list are relative to (default: the current one)",
           text_into(options.image_root)},
          {{"--recursive"},
           "True|False",
           "folders with all their subfolders (default: False)",
           into(options.recursive, bool_value),
           Takes::boolean},
          {{"--format"}, "NAME", "text, or jsonl: a JSON object a line, with the whole path (default: text)", format},
          {{"--batch-size"}, "N", "pictures at a time (default: 1)", into(options.batch_size, int_in(1, kMaxPictures))},
          {{"--score-digits"},
           "N",
           "digits of a score behind the point, up to 9 (default: 2, as PaddleClas prints)",
           into(options.score_digits, int_in(0, kMaxDigits))},
          {{"--benchmark"},
           "True|False",
           "measure as well: times of each step, percentiles, pictures per second (default: False)",
           into(options.benchmark, bool_value),
           Takes::boolean}}};
  const std::vector<Option> common = infer::predictor_options(options.predictor);
  syntax.options.insert(syntax.options.end(), common.begin(), common.end());
  return syntax;
}

void need(bool given, const char* what) {
  if (!given) throw UsageError("which {}? trireme infer --model-dir DIR --image FILE|DIR", what);
}

}  // namespace

InferOptions parse_infer_options(const std::vector<std::string>& words) {
  InferOptions options;
  options.help = parse_command_line(syntax_of(options), words).help;
  if (options.help) return options;
  need(!options.model_dir.empty(), "model");
  need(!options.images.empty() || !options.lists.empty(), "image");
  const auto from_stdin = std::count(options.images.begin(), options.images.end(), "-") +
                          std::count(options.lists.begin(), options.lists.end(), "-");
  if (from_stdin > 1) throw UsageError("standard input (-) is named {} times; it can be read once", from_stdin);
  infer::check_predictor_options(options.predictor);
  return options;
}

std::string infer_help(std::string_view topic) {
  InferOptions defaults;
  return help_for(syntax_of(defaults), topic);
}

}  // namespace trireme::apps
