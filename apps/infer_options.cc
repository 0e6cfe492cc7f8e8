#include "apps/infer_options.h"

#include <algorithm>
#include <map>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/option_values.h"
#include "trireme/core/text.h"

namespace trireme::apps {
namespace {

constexpr int kMostPictures = 4096;
constexpr int kMostThreads = 4096;
constexpr int kMostClasses = 1 << 20;
constexpr int kMostDigits = 9;  // a float has no more

using Setter = void (*)(InferOptions& options, const Given& given);

struct Option {
  Setter set;
  bool is_switch = false;  // may stand without a value, which then is True
};

const std::map<std::string, Option>& table() {
  using O = InferOptions;
  using G = const Given;
  static const Option image{[](O& o, G& g) {
    if (!o.image.empty()) throw UsageError("{} is there twice; it takes one file, or a folder of them", g.source);
    o.image = g.text;
  }};
  static const std::map<std::string, Option> options = {
      {"--model-dir", {[](O& o, G& g) { o.model_dir = g.text; }}},
      {"--image", image},
      {"--img-path", image},  // as the documents' configurations have it
      {"--batch-size", {[](O& o, G& g) { o.batch_size = int_value(g, 1, kMostPictures); }}},
      {"--use-gpu", {[](O& o, G& g) { o.predictor.use_gpu = bool_value(g); }, true}},
      {"--gpu-id", {[](O& o, G& g) { o.predictor.gpu_id = int_value(g, 0, kMostThreads); }}},
      {"--cpu-threads", {[](O& o, G& g) { o.predictor.cpu_threads = int_value(g, 0, kMostThreads); }}},
      {"--precision", {[](O& o, G& g) { o.predictor.precision = infer::parse_precision(g.text); }}},
      {"--topk", {[](O& o, G& g) { o.predictor.topk = int_value(g, 1, kMostClasses); }}},
      {"--score-digits", {[](O& o, G& g) { o.score_digits = int_value(g, 0, kMostDigits); }}},
      {"--engine", {[](O& o, G& g) { o.predictor.engine = infer::parse_engine(g.text); }}},
      {"--benchmark", {[](O& o, G& g) { o.benchmark = bool_value(g); }, true}},
      {"--help", {[](O& o, G& g) { o.help = bool_value(g); }, true}},
  };
  return options;
}

const Option& option_named(const std::string& name) {
  const auto found = table().find(name);
  if (found != table().end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, option] : table()) names.push_back(known);
  if (!name.starts_with('-'))
    throw UsageError("'{}' belongs to no option; --image takes one file, or a folder of them", printable(name));
  const auto near = closest(name, names);
  throw UsageError("trireme infer has no option '{}'{} (see: trireme infer --help)", printable(name),
                   near ? fmt::format("; did you mean '{}'?", *near) : "");
}

/// "--model_dir=x" -> "--model-dir", "x"
std::pair<std::string, std::optional<std::string>> split_word(const std::string& word) {
  const size_t equals = word.find('=');
  std::string name = word == "-h" ? "--help" : word.substr(0, equals);
  std::replace(name.begin(), name.end(), '_', '-');
  if (equals == std::string::npos) return {name, std::nullopt};
  return {name, word.substr(equals + 1)};
}

void need(const std::filesystem::path& value, const char* what) {
  if (value.empty()) throw UsageError("which {}? trireme infer --model-dir DIR --image FILE|DIR", what);
}

}  // namespace

InferOptions parse_infer_options(const std::vector<std::string>& words) {
  InferOptions options;
  for (size_t at = 0; at < words.size(); ++at) {
    auto [name, value] = split_word(words[at]);
    const Option& option = option_named(name);
    const bool more = at + 1 < words.size() && !words[at + 1].starts_with("--");
    if (!value && more) value = words[++at];
    if (!value && !option.is_switch) throw UsageError("{} needs a value (see: trireme infer --help)", name);
    option.set(options, {name, value.value_or("True")});
  }
  if (options.help) return options;
  need(options.model_dir, "model");
  need(options.image, "image");
  if (options.predictor.use_gpu && options.predictor.engine == infer::EngineKind::openvino)
    throw UsageError("--engine openvino computes on the CPU; with --use-gpu True take --engine torch");
  return options;
}

const char* infer_help() {
  return "usage: trireme infer --model-dir DIR --image FILE|DIR [options]\n\n"
         "Names the classes of pictures with a model that `trireme export` wrote. A line for each picture:\n"
         "  cat.jpg:\tclass id(s): [281, 285], score(s): [0.71, 0.12], label_name(s): ['tabby', 'Egyptian cat']\n\n"
         "  --model-dir DIR         inference.yml with inference.onnx or inference.pt\n"
         "  --image FILE|DIR        a JPEG or PNG file, or a folder of them (its subfolders are left out)\n"
         "  --batch-size N          pictures at a time (default 1)\n"
         "  --topk K                classes a picture (default: as the model says)\n"
         "  --score-digits N        digits of a score behind the point (default 2, as PaddleClas prints; at most 9)\n"
         "  --engine NAME           openvino (inference.onnx, CPU) or torch (inference.pt); default auto: openvino on "
         "the\n"
         "                          CPU, torch on a GPU\n"
         "  --use-gpu True|False    default False; --gpu-id N says which (default 0)\n"
         "  --cpu-threads N         threads that compute (default: one a core)\n"
         "  --precision P           fp32 (default), bf16 or fp16: what the network computes in\n"
         "  --benchmark True|False  measure as well: times of each step, percentiles, pictures a second\n\n"
         "Exit code 0: every picture answered; 1: not all (what was wrong is on standard error); 2: wrong options.\n";
}

}  // namespace trireme::apps
