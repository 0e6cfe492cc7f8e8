#include "trireme/tipc/compare.h"

#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "trireme/core/text.h"

namespace trireme::tipc {
namespace {

using Json = nlohmann::json;
using Numbers = std::vector<Number>;

void flatten(const Json& json, bool exact, Numbers& numbers) {
  if (json.is_number()) numbers.push_back({json.get<double>(), exact});
  if (json.is_array())
    for (const Json& item : json) flatten(item, exact, numbers);
}

/// "ids", "class_id", "class id(s)", but not "confidence" and "width".
bool names_ids(std::string_view name) {
  for (const std::string_view word : {"id", "ids", "id(s)"}) {
    if (!name.ends_with(word)) continue;
    const std::string_view before = name.substr(0, name.size() - word.size());
    if (before.empty() || before.ends_with('_') || before.ends_with(' ')) return true;
  }
  return false;
}

/// Ids before scores before the rest, so that an object and PaddleClas' line agree on the order.
Numbers numbers_of(const Json& json) {
  Numbers numbers;
  if (!json.is_object()) {
    flatten(json, false, numbers);
    return numbers;
  }
  const auto group = [](const std::string& name) {
    return names_ids(name) ? 0 : name.find("score") != std::string::npos ? 1 : 2;
  };
  for (int wanted = 0; wanted < 3; ++wanted)
    for (const auto& [name, value] : json.items())
      if (group(name) == wanted) flatten(value, wanted == 0, numbers);
  return numbers;
}

/// The list behind a name, like [1, 2] behind "class id(s): ".
Json list_behind(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return {};
  const size_t begin = text.find('[', at), end = text.find(']', at);
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  return Json::parse(text.substr(begin, end - begin + 1), nullptr, /*allow_exceptions=*/false);
}

std::optional<Numbers> answer_of(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    json = {{"ids", list_behind(text, "class id(s)")}, {"scores", list_behind(text, "score(s)")}};
  Numbers numbers = numbers_of(json);
  return numbers.empty() ? std::nullopt : std::optional(std::move(numbers));
}

/// Without a log's "[time] trireme INFO: " before it, the folder and the colon behind it.
std::string image_name(std::string_view text) {
  text = trim(text);
  if (text.ends_with(':')) text.remove_suffix(1);
  if (text.starts_with('[') && text.rfind(": ") != std::string_view::npos) text.remove_prefix(text.rfind(": ") + 2);
  return std::filesystem::path(text).filename().string();
}

std::string difference(const Numbers& expected, const Numbers& found, const Tolerance& tolerance) {
  if (expected.size() != found.size())
    return fmt::format("{} numbers expected, {} found", expected.size(), found.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const double off = std::abs(expected[i].value - found[i].value);
    const bool exact = expected[i].exact || found[i].exact;
    const double allowed = exact ? 0 : tolerance.atol + tolerance.rtol * std::abs(expected[i].value);
    if (!(off <= allowed))
      return fmt::format("number {}{} is {:g}, expected {:g}; off by {:.3g}, allowed {:.3g}", i + 1,
                         exact ? " (a class id)" : "", found[i].value, expected[i].value, off, allowed);
  }
  return "";
}

}  // namespace

Answers parse_answers(std::string_view text) {
  Answers answers;
  for (const std::string& line : split(text, '\n')) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos) continue;
    const std::string_view value = trim(std::string_view(line).substr(tab + 1));
    if (auto answer = answer_of(value)) answers.emplace(image_name(line.substr(0, tab)), std::move(*answer));
  }
  return answers;
}

std::vector<std::string> differences(const Answers& expected, const Answers& found, const Tolerance& tolerance) {
  std::vector<std::string> wrong;
  for (const auto& [image, numbers] : expected) {
    const auto answer = found.find(image);
    const std::string text = answer == found.end() ? "no answer" : difference(numbers, answer->second, tolerance);
    if (!text.empty()) wrong.push_back(fmt::format("{}: {}", printable(image), text));
  }
  return wrong;
}

std::string precision_in_name(const std::string& file) {
  const std::string name = std::filesystem::path(file).filename().string();
  for (const char* precision : {"fp32", "fp16", "bf16", "int8"})
    if (name.find(precision) != std::string::npos) return precision;
  return "";
}

}  // namespace trireme::tipc
