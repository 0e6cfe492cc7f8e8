#include "trireme/tipc/case.h"

#include <algorithm>
#include <filesystem>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/tipc/infer_variants.h"
#include "trireme/tipc/own_programs.h"

namespace trireme::tipc {
namespace {

constexpr const char* kNull = "null";
constexpr int64_t kMaxCount = 100'000'000;

bool is_null(const std::string& value) {
  return value.empty() || value == kNull;
}

std::string text_of(const ConfigText& config, const char* name) {
  const Entry& entry = config.at(name);
  if (is_null(entry.value)) throw UsageError("{}: it needs a value", entry.origin);
  return entry.value;
}

Words command_of(const Entry& entry) {
  if (is_null(entry.value)) return {};
  const auto words = split_words(entry.value);
  if (!words) throw UsageError("{}: a quote is not closed in: {}", entry.origin, entry.value);
  return *words;
}

Flag flag_of(const ConfigText& config, const char* name) {
  const Entry* entry = config.find(name);
  return entry == nullptr ? Flag{.key = kNull} : Flag{entry->key, entry->value};
}

ModeNumber mode_number(const Entry& entry) {
  ModeNumber number{.key = entry.key, .origin = entry.origin};
  if (is_null(entry.value)) return number;
  for (const std::string& part : alternatives(entry)) {
    const size_t equals = part.find('=');
    const std::string value = equals == std::string::npos ? part : part.substr(equals + 1);
    if (!parse_int(value, 1, kMaxCount))
      throw UsageError("{}: '{}' is not a whole number from 1; it is like 8, or lite_train_lite_infer=2|…",
                       entry.origin, value);
    if (equals == std::string::npos && part != entry.value)
      throw UsageError(
          "{}: '{}' is for every mode and cannot have others beside it; write one number, or "
          "lite_train_lite_infer=2|whole_train_whole_infer=120",
          entry.origin, part);
    if (equals == std::string::npos)
      number.any = value;
    else if (!number.by_mode.emplace(parse_mode(part.substr(0, equals), entry.origin), value).second)
      throw UsageError("{}: {} is there twice", entry.origin, part.substr(0, equals));
  }
  return number;
}

// --- trainers

bool same_trainer(std::string_view a, std::string_view b) {
  const auto plain = [](std::string_view name) { return name == "normal_train" ? "norm_train" : name; };
  return plain(a) == plain(b);
}

std::vector<const Entry*> train_lines(const ConfigText& config) {
  std::vector<const Entry*> lines;
  for (const Entry& entry : config.entries)
    if (entry.name == "norm_train" || entry.name.starts_with("train_command")) lines.push_back(&entry);
  return lines;
}

const Entry& train_line(const ConfigText& config, const Entry& trainer, const std::string& name) {
  std::vector<std::string> known;
  for (const Entry* line : train_lines(config)) {
    if (same_trainer(line->key, name)) return *line;
    if (line->key != kNull) known.push_back(line->key);
  }
  throw UsageError("{}: '{}' has no line of its own; there are {}", trainer.origin, name, join(known, ", "));
}

/// Words that begin with '-' are added to norm_train's, as PaddleClas' to_static_train.
Words train_command(const ConfigText& config, const Entry& line) {
  Words words = command_of(line);
  if (words.empty()) throw UsageError("{}: no command, but {} asks for it", line.origin, config.at("trainer").origin);
  if (!words[0].starts_with("-")) return words;
  const Entry* base = config.find("norm_train");
  if (base == nullptr || is_null(base->value) || base == &line)
    throw UsageError("{}: a program is missing before {}", line.origin, words[0]);
  Words all = command_of(*base);
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

/// Pruned, quantised and distilled models have lines of their own in the long format.
const Entry& export_line(const ConfigText& config, std::string_view trainer) {
  const Entry* own = trainer == "pact_train" || trainer == "quant_train" ? config.find("quant_export")
                     : trainer == "fpgm_train"                           ? config.find("fpgm_export")
                     : trainer == "distill_train"                        ? config.find("distill_export")
                                                                         : nullptr;
  return own == nullptr ? config.at("norm_export") : *own;
}

/// Without a command on its own line a model is exported by norm_export's, as far as that is known to do: what `trireme
/// train` leaves of a distillation are the student's weights.
void read_export(const ConfigText& config, Trainer& trainer) {
  const Entry& line = export_line(config, trainer.name);
  const bool other = is_null(line.value);
  trainer.export_command = command_of(other ? config.at("norm_export") : line);
  if (other && own_program(trainer.export_command) != "export") trainer.no_export = line.name + " is null";
}

std::vector<Trainer> trainers_of(const ConfigText& config) {
  std::vector<Trainer> trainers;
  const Entry& list = config.at("trainer");
  for (const std::string& name : alternatives(list)) {
    if (std::any_of(trainers.begin(), trainers.end(), [&](const Trainer& t) { return same_trainer(t.name, name); }))
      throw UsageError("{}: {} is there twice", list.origin, name);
    check_name_part(list, name);
    trainers.push_back({.name = name, .command = train_command(config, train_line(config, list, name))});
    read_export(config, trainers.back());
  }
  return trainers;
}

// --- devices

std::vector<Placement> placements_of(const ConfigText& config) {
  std::vector<Placement> placements;
  const Entry& list = config.at("gpu_list");
  for (const std::string& part : alternatives(list)) {
    const Placement placement = parse_placement(part, list.origin);
    if (std::find(placements.begin(), placements.end(), placement) != placements.end())
      throw UsageError("{}: '{}' is there twice", list.origin, part);
    placements.push_back(placement);
  }
  return placements;
}

/// What the line says follows from gpu_list; only its key is of use.
std::string device_key_of(const ConfigText& config) {
  const Entry& entry = config.at("train_device");
  for (const std::string& value : alternatives(entry))
    if (value != "cpu" && value != "gpu" && value != "True" && value != "False" && value != kNull)
      throw UsageError("{}: '{}' is not one of cpu, gpu, True, False, null; gpu_list says which device is taken",
                       entry.origin, value);
  return is_null(entry.value) ? kNull : entry.key;
}

// --- the other sections

std::vector<std::string> autocasts_of(const ConfigText& config) {
  const Entry* entry = config.find("autocast");
  if (entry == nullptr) return {kNull};
  std::vector<std::string> values = distinct_alternatives(*entry);
  for (const std::string& value : values)
    if (value != kNull && value != "amp" && value != "fp16" && value != "O1" && value != "O2")
      throw UsageError("{}: '{}' is not one of null, amp (level O1), fp16 (level O2)", entry->origin, value);
  return values;
}

std::string data_folder_of(const ConfigText& config) {
  if (const Entry* path = config.find("data_path")) return is_null(path->value) ? "./lite_data" : path->value;
  const std::string& images = config.at("train_infer_img_dir").value;
  if (is_null(images)) return "./lite_data";
  const std::filesystem::path folder = std::filesystem::path(images + "/.").lexically_normal();  // ends in a slash
  const std::string parent = folder.parent_path().parent_path().string();
  return parent.empty() ? "." : parent;
}

std::vector<GivenModel> given_models_of(const ConfigText& config) {
  std::vector<GivenModel> models;
  const Entry& list = config.at("infer_model");
  const Entry& exports = config.at("infer_export");
  if (is_null(list.value)) return models;
  Words command = command_of(exports);
  if (exports.value == "True") command = command_of(config.at("norm_export"));
  if (exports.value == "False") command.clear();
  for (const std::string& path : distinct_alternatives(list)) models.push_back({path, command});
  return models;
}

/// The original's keys, some of which mean nothing here.
void check_benchmark_key(const Entry& entry) {
  static const std::vector<std::string> known = {"batch_size",  "fp_items",           "epoch", "model_type",
                                                 "num_workers", "--profiler_options", "flags", kNull};
  if (std::find(known.begin(), known.end(), entry.key) != known.end()) return;
  const auto near = closest(entry.key, known);
  throw UsageError(
      "{}: the section train_benchmark_params has no such key{}; it has batch_size, fp_items, epoch, flags",
      entry.origin, near ? fmt::format(" (did you mean {}?)", *near) : "");
}

void check_count(const Entry& entry, const std::string& value) {
  if (!parse_int(value, 1, kMaxCount)) throw UsageError("{}: '{}' is not a whole number from 1", entry.origin, value);
}

std::vector<std::pair<std::string, std::string>> assignments_in(const Entry& entry) {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const std::string& flag : split(entry.value, ';')) {
    const size_t equals = flag.find('=');
    if (equals == std::string::npos || equals == 0) throw UsageError("{}: '{}' is not NAME=VALUE", entry.origin, flag);
    variables.emplace_back(flag.substr(0, equals), flag.substr(equals + 1));
  }
  return variables;
}

std::optional<BenchmarkCase> benchmark_of(const ConfigText& config) {
  if (config.benchmark.empty()) return std::nullopt;
  for (const Entry& entry : config.benchmark) check_benchmark_key(entry);
  const auto find = [&](std::string_view key) -> const Entry& {
    for (const Entry& entry : config.benchmark)
      if (entry.key == key && !is_null(entry.value)) return entry;
    throw UsageError("{}:{}: the section train_benchmark_params has no {}", config.file, config.benchmark[0].line, key);
  };
  const Entry &sizes = find("batch_size"), &precisions = find("fp_items"), &epochs = find("epoch");
  BenchmarkCase benchmark{.batch_sizes = distinct_alternatives(sizes),
                          .fp_items = distinct_alternatives(precisions),
                          .epochs = epochs.value,
                          .batch_origin = sizes.origin,
                          .fp_origin = precisions.origin};
  for (const std::string& size : benchmark.batch_sizes) check_count(sizes, size);
  check_count(epochs, epochs.value);
  for (const std::string& item : benchmark.fp_items)
    if (item != "fp32" && item != "fp16" && item != "bf16")
      throw UsageError("{}: '{}' is not one of fp32, fp16, bf16", precisions.origin, item);
  for (const Entry& entry : config.benchmark)
    if (entry.key == "flags" && !is_null(entry.value)) benchmark.environment = assignments_in(entry);
  return benchmark;
}

void read_inference(const ConfigText& config, Case& test) {
  test.inference = command_of(config.at("inference"));
  test.infer_variants = infer_variants(config, test.inference);
  test.model_dir = flag_of(config, "model_dir");
  const auto flag_for_inference = [&](const char* name) {
    const Flag flag = flag_of(config, name);
    return Flag{key_for(test.inference, name, flag.key), flag.value};
  };
  const Flag image = flag_for_inference("image");
  const Entry* trained = config.find("train_infer_img_dir");
  const bool own_images = trained != nullptr && !is_null(trained->value);
  test.infer_words = image.words();
  test.train_infer_words = own_images ? flag_words(image.key, trained->value) : image.words();
  for (const char* name : {"save_log_path", "benchmark", "extra_infer"})
    for (Words* words : {&test.infer_words, &test.train_infer_words}) append(*words, flag_for_inference(name).words());
}

/// A chain removes what an earlier one left under this name, so it must lie in the chain's own folder.
std::string train_model_name_of(const ConfigText& config) {
  const std::string name = text_of(config, "train_model_name");
  const std::filesystem::path path(name);
  const bool wanders =
      std::any_of(path.begin(), path.end(), [](const auto& part) { return part == ".." || part == "."; });
  if (path.is_absolute() || wanders)
    throw UsageError("{}: '{}' must be a name inside the output folder, without '.', '..' and a '/' in front",
                     config.at("train_model_name").origin, name);
  return name;
}

/// It becomes the name of a folder.
std::string model_name_of(const ConfigText& config) {
  const std::string name = text_of(config, "model_name");
  if (name.find('/') != std::string::npos || name.starts_with("."))
    throw UsageError("{}: '{}' cannot be the name of a folder", config.at("model_name").origin, name);
  return name;
}

}  // namespace

Words flag_words(const std::string& key, const std::string& value) {
  if (is_null(key) || is_null(value)) return {};
  Words words = split_words(key).value_or(Words{key});
  if (words.empty()) return {};
  words.back() += "=" + value;
  return words;
}

std::string ModeNumber::at(Mode mode) const {
  if (by_mode.empty() && any.empty()) return "";
  const auto own = by_mode.find(mode);
  if (own != by_mode.end()) return own->second;
  if (!any.empty()) return any;
  const auto lite = by_mode.find(Mode::lite_train_lite_infer);
  if (mode == Mode::lite_train_whole_infer && lite != by_mode.end()) return lite->second;  // the same training
  std::vector<std::string> known;
  for (const auto& [name, value] : by_mode) known.push_back(to_string(name));
  throw UsageError("{}: no number for the mode {}, only for {}", origin, to_string(mode), join(known, ", "));
}

Case make_case(const ConfigText& config) {
  Case test;
  test.model_name = model_name_of(config);
  test.python = config.at("python").value;
  test.long_names = config.find("autocast") != nullptr;
  test.placements = placements_of(config);
  test.device_key = device_key_of(config);
  test.autocast_key = flag_of(config, "autocast").key;
  test.autocasts = autocasts_of(config);
  test.epochs = mode_number(config.at("epochs"));
  test.output_dir = flag_of(config, "output_dir");
  test.batch_size = mode_number(config.at("train_batch_size"));
  test.pretrained = flag_of(config, "pretrained");
  test.train_model_name = train_model_name_of(config);
  test.data_folder = data_folder_of(config);
  test.extra_train = flag_of(config, "extra_train");
  test.trainers = trainers_of(config);
  test.eval = command_of(config.at("eval"));
  test.extra_eval = flag_of(config, "extra_eval");
  test.save_inference_dir = flag_of(config, "save_inference_dir");
  test.export_weights = flag_of(config, "export_weights");
  test.given_models = given_models_of(config);
  read_inference(config, test);
  test.benchmark = benchmark_of(config);
  return test;
}

}  // namespace trireme::tipc
