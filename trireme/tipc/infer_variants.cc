#include "trireme/tipc/infer_variants.h"

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/tipc/own_programs.h"

namespace trireme::tipc {
namespace {

constexpr size_t kMaxVariants = 4096;

/// A line with alternatives, and what it is called in the names of log files.
struct Axis {
  const char* line;
  const char* label;
};

/// Each variant so far, with each value of the axis.
std::vector<InferVariant> times(const std::vector<InferVariant>& variants, const ConfigText& config, const Axis& axis,
                                const Words& inference) {
  const Entry* entry = config.find(axis.line);
  if (entry == nullptr) return variants;
  const std::vector<std::string> values = alternatives(*entry);
  const std::string key = key_for(inference, axis.line, entry->key);
  if (key == "null") return variants;
  std::vector<InferVariant> all;
  for (const InferVariant& variant : variants)
    for (const std::string& written : values) {
      InferVariant next = variant;
      const std::string value = value_for(inference, axis.line, entry->key, written);
      const Words words = Flag{key, {}}.words(value);
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
  throw UsageError("{}: '{}' is none of True, False, gpu, cpu, null", entry.origin, value);
}

}  // namespace

std::vector<std::string> alternatives(const Entry& entry) {
  const std::vector<std::string> parts = entry.value.empty() ? std::vector<std::string>{""} : split(entry.value, '|');
  for (const std::string& part : parts)
    if (part.empty())
      throw UsageError("{}: an empty alternative in '{}'; write null to leave it out", entry.origin, entry.value);
  return parts;
}

std::vector<InferVariant> infer_variants(const ConfigText& config, const Words& inference) {
  const Entry& devices = config.at("infer_device");
  std::vector<InferVariant> all;
  for (const std::string& value : alternatives(devices)) {
    const bool gpu = means_gpu(devices, value);
    const Flag device{key_for(inference, "infer_device", devices.key), {}};
    std::vector<InferVariant> some{{gpu, device.words(value), gpu ? "gpu" : "cpu"}};
    const std::vector<Axis> axes =
        gpu ? std::vector<Axis>{{"tensorrt", "usetrt"}, {"precision", "precision"}, {"infer_batch_size", "batchsize"}}
            : std::vector<Axis>{{"mkldnn", "usemkldnn"},
                                {"cpu_threads", "threads"},
                                {"precision", "precision"},
                                {"infer_batch_size", "batchsize"}};
    for (const Axis& axis : axes) some = times(some, config, axis, inference);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace trireme::tipc
