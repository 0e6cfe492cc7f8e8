#include "trireme/tipc/infer_variants.h"

#include <algorithm>
#include <cctype>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/tipc/own_programs.h"

namespace trireme::tipc {
namespace {

constexpr size_t kMaxVariants = 4096;
constexpr int kMaxNumber = 4096;

/// A line with alternatives, and what it is called in the names of log files.
struct Axis {
  const char* line;
  const char* label;
  bool is_number = false;
};

/// What a program would refuse only after the training.
void check_value(const Entry& entry, const Axis& axis, const Words& inference, const std::string& value) {
  if (value == "null") return;
  if (axis.is_number && !parse_int(value, 1, kMaxNumber))
    throw UsageError("{}: '{}' is not a whole number from 1 to {}", entry.origin, printable(value), kMaxNumber);
  const bool own_precision = own_program(inference) == "infer" && entry.name == "precision";
  if (own_precision && value != "fp32" && value != "bf16" && value != "fp16")
    throw UsageError("{}: '{}' is not one of fp32, bf16, fp16, which `trireme infer` has", entry.origin,
                     printable(value));
  check_name_part(entry, value);
}

/// The alternatives in the program's own words.
std::vector<std::string> values_of(const Entry& entry, const Axis& axis, const Words& inference) {
  std::vector<std::string> values;
  for (const std::string& written : distinct_alternatives(entry)) {
    const std::string value = value_for(inference, axis.line, entry.key, written);
    check_value(entry, axis, inference, value);
    if (std::find(values.begin(), values.end(), value) != values.end())
      throw UsageError("{}: '{}' means {}, which is there already", entry.origin, written, value);
    values.push_back(value);
  }
  return values;
}

/// Each variant so far, with each value of the axis.
std::vector<InferVariant> times(const std::vector<InferVariant>& variants, const ConfigText& config, const Axis& axis,
                                const Words& inference) {
  const Entry* entry = config.find(axis.line);
  if (entry == nullptr) return variants;
  const std::vector<std::string> values = values_of(*entry, axis, inference);
  const std::string key = key_for(inference, axis.line, entry->key);
  if (key == "null") return variants;
  std::vector<InferVariant> all;
  for (const InferVariant& variant : variants)
    for (const std::string& value : values) {
      InferVariant next = variant;
      const Words words = flag_words(key, value);
      append(next.words, words);
      if (!words.empty()) next.name += fmt::format("_{}_{}", axis.label, value);
      all.push_back(std::move(next));
      if (all.size() > kMaxVariants)
        throw UsageError("{}: more than {} combinations of alternatives", entry->origin, kMaxVariants);
    }
  return all;
}

bool means_gpu(const Entry& entry, const std::string& value) {
  if (value == "True" || value == "gpu") return true;
  if (value == "False" || value == "cpu" || value == "null") return false;
  throw UsageError("{}: '{}' is not one of True, False, gpu, cpu, null", entry.origin, value);
}

}  // namespace

std::vector<std::string> alternatives(const Entry& entry) {
  const std::vector<std::string> parts = entry.value.empty() ? std::vector<std::string>{""} : split(entry.value, '|');
  for (const std::string& part : parts)
    if (part.empty())
      throw UsageError("{}: {}", entry.origin,
                       entry.value.empty() ? "has no value; test_tipc/README.md says what it takes"
                                           : fmt::format("an empty alternative in '{}'; remove a '|'", entry.value));
  return parts;
}

std::vector<std::string> distinct_alternatives(const Entry& entry) {
  std::vector<std::string> parts = alternatives(entry);
  for (auto part = parts.begin(); part != parts.end(); ++part)
    if (std::find(parts.begin(), part, *part) != part) throw UsageError("{}: '{}' is there twice", entry.origin, *part);
  return parts;
}

void check_name_part(const Entry& entry, const std::string& value) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  if (!std::all_of(value.begin(), value.end(), fits) || value.starts_with('.'))
    throw UsageError("{}: '{}' becomes part of a file's name: letters, digits, '_', '-' and '.' may be in it",
                     entry.origin, printable(value));
}

std::vector<InferVariant> infer_variants(const ConfigText& config, const Words& inference) {
  const Entry& devices = config.at("infer_device");
  std::vector<InferVariant> all;
  for (const std::string& value : distinct_alternatives(devices)) {
    const bool gpu = means_gpu(devices, value);
    if (std::any_of(all.begin(), all.end(), [gpu](const InferVariant& other) { return other.gpu == gpu; }))
      throw UsageError("{}: '{}' means the {}, which is there already", devices.origin, value, gpu ? "GPU" : "CPU");
    const Words device = flag_words(key_for(inference, "infer_device", devices.key), value);
    std::vector<InferVariant> some{{gpu, device, gpu ? "gpu" : "cpu"}};
    const std::vector<Axis> axes = gpu ? std::vector<Axis>{{"tensorrt", "usetrt"},
                                                           {"precision", "precision"},
                                                           {"infer_batch_size", "batchsize", true}}
                                       : std::vector<Axis>{{"mkldnn", "usemkldnn"},
                                                           {"cpu_threads", "threads", true},
                                                           {"precision", "precision"},
                                                           {"infer_batch_size", "batchsize", true}};
    for (const Axis& axis : axes) some = times(some, config, axis, inference);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace trireme::tipc
