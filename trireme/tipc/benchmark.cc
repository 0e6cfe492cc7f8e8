#include "trireme/tipc/benchmark.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <istream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "trireme/core/text.h"
#include "trireme/core/version.h"

namespace trireme::tipc {
namespace {

/// The word behind `name`, without a comma: "797.70" behind "ips:".
std::string word_behind(std::string_view line, std::string_view name, size_t& at) {
  at = line.rfind(name);
  if (at == std::string_view::npos) return "";
  at = line.find_first_not_of(' ', at + name.size());
  if (at == std::string_view::npos) return "";
  const size_t end = std::min(line.find_first_of(" ,\r", at), line.size());
  const std::string word(line.substr(at, end - at));
  at = end;
  return word;
}

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 ? std::optional(value) : std::nullopt;
}

std::string device_num(const Measured& what) {
  return fmt::format("N{}C{}", what.nodes, what.devices / what.nodes);
}

const Measurement& reference_for(const Measurement& one, const std::vector<Measurement>& all) {
  const Measurement* reference = &one;
  for (const Measurement& other : all)
    if (other.what.batch_size == one.what.batch_size && other.what.fp_item == one.what.fp_item &&
        other.what.device == one.what.device && other.what.devices < reference->what.devices)
      reference = &other;
  return *reference;
}

}  // namespace

std::optional<Throughput> parse_throughput(std::istream& log) {
  constexpr size_t kWarmup = 100;
  Throughput result;
  std::vector<double> all;
  for (std::string line; std::getline(log, line);) {
    if (line.find("[Eval]") != std::string::npos) continue;
    size_t at = 0;
    const auto ips = number_of(word_behind(line, " ips:", at));
    if (!ips) continue;
    all.push_back(*ips);
    result.unit = trim(std::string_view(line).substr(at, line.find(',', at) - at));
    result.loss = word_behind(line, " loss:", at);
  }
  if (all.empty()) return std::nullopt;
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size() / 2, kWarmup)));
  result.lines = all.size();
  result.ips = std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  return result;
}

std::string throughput_json(const std::string& model_name, const Measurement& measurement) {
  const Measured& what = measurement.what;
  nlohmann::ordered_json json;
  json["model_name"] = fmt::format("{}_bs{}_{}_DP", model_name, what.batch_size, what.fp_item);
  json["batch_size"] = parse_int(what.batch_size, 1, INT64_MAX).value_or(0);
  json["fp_item"] = what.fp_item;
  json["run_mode"] = "DP";
  json["run_process_type"] = what.devices == 1 ? "SingleP" : "MultiP";
  json["convergence_key"] = "loss:";
  json["convergence_value"] = measurement.throughput.loss;
  json["ips"] = measurement.total();
  json["ips_per_device"] = measurement.throughput.ips;
  json["speed_unit"] = measurement.throughput.unit;
  json["device_num"] = device_num(what);
  json["device"] = what.device;
  json["model_run_time"] = measurement.seconds;
  json["frame_name"] = "trireme";
  json["frame_version"] = kVersion;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string speedup_table(std::vector<Measurement> measurements) {
  std::stable_sort(measurements.begin(), measurements.end(),
                   [](const Measurement& a, const Measurement& b) { return a.what.devices < b.what.devices; });
  std::string text =
      "| devices | nodes | batch size | precision | samples/s | against | speed-up | efficiency |\n"
      "|---:|---:|---:|---|---:|---:|---:|---:|\n";
  for (const Measurement& one : measurements) {
    const Measurement& reference = reference_for(one, measurements);
    const double speedup = one.total() / reference.total();
    const double more = static_cast<double>(one.what.devices) / reference.what.devices;
    text += fmt::format("| {} {} | {} | {} | {} | {:.2f} | {} | {:.2f} | {:.0f} % |\n", one.what.devices,
                        one.what.device, one.what.nodes, one.what.batch_size, one.what.fp_item, one.total(),
                        reference.what.devices, speedup, 100 * speedup / more);
  }
  return text;
}

}  // namespace trireme::tipc
