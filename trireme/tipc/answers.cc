#include "trireme/tipc/answers.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::tipc {
namespace {

using Json = nlohmann::json;
using Numbers = std::vector<Number>;

// --- JSON

Json json_of(std::string_view text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

enum class NumbersOf { ids, named_list, plain_list };

void flatten(const Json& json, NumbersOf kind, Numbers& numbers, int depth = 0) {
  constexpr int kMaxDepth = 16;  // answers are lists of lists at most
  if (json.is_number()) {
    numbers.push_back(
        {json.get<double>(), kind == NumbersOf::ids, kind == NumbersOf::plain_list && json.is_number_integer()});
  } else if (json.is_array() && depth < kMaxDepth) {
    for (const Json& item : json) flatten(item, kind, numbers, depth + 1);
  } else {
    throw UsageError("neither a number nor a list of numbers: {}", json.type_name());
  }
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

constexpr const char* kPicture = "image";  // of `trireme infer --format jsonl`

/// Ids before scores before the rest, so that an object and PaddleClas' line agree on the order. Names are not
/// compared.
Numbers numbers_of(const Json& json) {
  Numbers numbers;
  if (!json.is_object()) {
    flatten(json, NumbersOf::plain_list, numbers);
    return numbers;
  }
  const auto group = [](const std::string& name) {
    return names_ids(name) ? 0 : name.find("score") != std::string::npos ? 1 : name.find("label") == name.npos ? 2 : 3;
  };
  for (int wanted = 0; wanted < 3; ++wanted)
    for (const auto& [name, value] : json.items())
      if (group(name) == wanted && !(name == kPicture && value.is_string()))
        flatten(value, wanted == 0 ? NumbersOf::ids : NumbersOf::named_list, numbers);
  return numbers;
}

// --- PaddleClas' line

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

/// The list behind a word, like [1, 2] behind "class id(s): ".
Numbers take_list(std::string_view& text, std::string_view word, NumbersOf kind) {
  const std::string_view whole = text;
  const size_t end = text.find(']');
  const Json list = take(text, word) && end != std::string_view::npos ? json_of(text.substr(0, end + 1 - word.size()))
                                                                      : Json(Json::value_t::discarded);
  if (!list.is_array())
    throw UsageError("neither JSON nor 'class id(s): [numbers], score(s): [numbers]' at '{}'", printable(whole));
  text = whole.substr(end + 1);
  Numbers numbers;
  flatten(list, kind, numbers);
  return numbers;
}

Numbers printed_answer(std::string_view text) {
  Numbers numbers = take_list(text, "class id(s): ", NumbersOf::ids);
  const Numbers scores = take_list(text, ", score(s): ", NumbersOf::named_list);
  if (numbers.size() != scores.size()) throw UsageError("{} class ids, but {} scores", numbers.size(), scores.size());
  const bool labelled = take(text, ", label_name(s): [");
  if (labelled ? !text.ends_with(']') : !text.empty())
    throw UsageError("unexpected '{}' after the lists", printable(text));
  numbers.insert(numbers.end(), scores.begin(), scores.end());
  return numbers;
}

// --- a line

Numbers answer_of(std::string_view text) {
  const Json json = json_of(text);
  Numbers numbers = json.is_discarded() ? printed_answer(text) : numbers_of(json);
  if (numbers.empty()) throw UsageError("no numbers");
  return numbers;
}

/// JSON without its names and labels, which may have points too.
std::string without_strings(std::string_view json) {
  std::string rest;
  bool inside = false;
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"')
      inside = !inside;
    else if (!inside)
      rest += json[i];
    else if (json[i] == '\\')
      ++i;
  }
  return rest;
}

/// Labels apart. What has an exponent has all its digits.
int decimals_in(std::string_view answer) {
  constexpr int kAll = 17;
  size_t most = 0;
  const std::string text = without_strings(answer.substr(0, answer.find(", label_name(s): [")));
  for (size_t point = text.find('.'); point != std::string_view::npos; point = text.find('.', point + 1)) {
    const size_t end = std::min(text.find_first_not_of("0123456789", point + 1), text.size());
    if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) return kAll;
    most = std::max(most, end - point - 1);
  }
  return static_cast<int>(most);
}

/// Without a log's "[time] trireme INFO: " before it and the colon behind it.
std::string picture_path(std::string_view text) {
  text = trim(text);
  if (text.ends_with(':')) text.remove_suffix(1);
  if (text.starts_with('[') && text.rfind(": ") != std::string_view::npos) text.remove_prefix(text.rfind(": ") + 2);
  return std::string(text);
}

void read_answer(AnswerFile& file, size_t line, const std::string& picture, std::string_view text) {
  const auto problem = [&](const std::string& what) {
    file.problems.push_back(fmt::format("{}:{}: {}: {}", file.file, line, printable(picture), what));
  };
  try {
    const auto [found, added] = file.answers.emplace(picture, Answer{line, answer_of(text)});
    if (!added) problem(fmt::format("line {} has an answer for it already", found->second.line));
    file.decimals = std::max(file.decimals, decimals_in(text));
  } catch (const UsageError& error) {
    problem(error.what());
  }
}

// --- a line of `trireme infer --format jsonl`

constexpr std::string_view kJsonLine = "{\"image\":";

void read_json_line(AnswerFile& file, size_t line, std::string_view text) {
  const Json object = json_of(text);
  if (!object.is_object() || !object.at(kPicture).is_string()) {
    file.problems.push_back(fmt::format("{}:{}: not a whole line of JSON", file.file, line));
    return;
  }
  read_answer(file, line, object.at(kPicture).get<std::string>(), text);
}

}  // namespace

AnswerFile parse_answers(std::string_view text, const std::string& file) {
  constexpr std::string_view kCommand = "$ ";  // how a log of the chain begins
  AnswerFile answers{.file = file};
  size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (line.starts_with(kJsonLine)) {
      read_json_line(answers, number, line);
      continue;
    }
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || line.starts_with(kCommand)) continue;
    const std::string picture = picture_path(std::string_view(line).substr(0, tab));
    if (!picture.empty()) read_answer(answers, number, picture, trim(std::string_view(line).substr(tab + 1)));
  }
  return answers;
}

}  // namespace trireme::tipc
