#include "trireme/tipc/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "trireme/core/text.h"

namespace trireme::tipc {
namespace {

using Numbers = std::vector<Number>;

/// Half of the last digit that the file has. Whole numbers are not rounded.
double rounding_of(const AnswerFile& file) {
  return file.decimals == 0 ? 0 : 0.5 * std::pow(10, -file.decimals);
}

/// Of two files, and of the floats that they were printed from.
double rounding_of(const AnswerFile& expected, const AnswerFile& found) {
  constexpr double kFloatNoise = 1e-7;
  return std::max({kFloatNoise, rounding_of(expected), rounding_of(found)});
}

/// Empty: none.
std::string difference(const Numbers& expected, const Numbers& found, const Tolerance& tolerance, double rounding) {
  if (expected.size() != found.size())
    return fmt::format("{} numbers expected, {} found", expected.size(), found.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const double off = std::abs(expected[i].value - found[i].value);
    const bool whole = expected[i].whole && found[i].whole;
    const bool exact = expected[i].exact || found[i].exact || whole;
    const double allowed = exact ? 0 : tolerance.allowed(expected[i].value, rounding);
    if (!(off <= allowed))
      return fmt::format("number {}{} is {:g}, expected {:g}; off by {:.3g}, allowed {:.3g}", i + 1,
                         whole   ? " (a whole number)"
                         : exact ? " (a class id)"
                                 : "",
                         found[i].value, expected[i].value, off, allowed);
  }
  return "";
}

std::string place(const AnswerFile& file, const Answer& answer, const std::string& picture) {
  return fmt::format("{}:{}: {}", file.file, answer.line, printable(picture));
}

using Answers = std::map<std::string, Answer>;

/// Nothing when two pictures have one name.
std::optional<Answers> by_name(const Answers& by_path) {
  Answers named;
  for (const auto& [path, answer] : by_path)
    if (!named.emplace(std::filesystem::path(path).filename().string(), answer).second) return std::nullopt;
  return named;
}

/// Pictures that the other has not.
void add_lonely(const AnswerFile& file, const AnswerFile& other, std::vector<std::string>& wrong) {
  for (const auto& [picture, answer] : file.answers)
    if (!other.answers.contains(picture))
      wrong.push_back(fmt::format("{}: no answer for it in {}", place(file, answer, picture), other.file));
}

Comparison compare_keyed(const AnswerFile& expected, const AnswerFile& found, const Tolerance& tolerance) {
  Comparison result{.wrong = expected.problems};
  result.wrong.insert(result.wrong.end(), found.problems.begin(), found.problems.end());
  const double rounding = rounding_of(expected, found);
  for (const auto& [picture, answer] : found.answers) {
    const auto other = expected.answers.find(picture);
    if (other == expected.answers.end()) continue;
    ++result.pictures;
    result.numbers += answer.numbers.size();
    const std::string text = difference(other->second.numbers, answer.numbers, tolerance, rounding);
    if (!text.empty()) result.wrong.push_back(fmt::format("{}: {}", place(found, answer, picture), text));
  }
  add_lonely(expected, found, result.wrong);
  add_lonely(found, expected, result.wrong);
  return result;
}

}  // namespace

double Tolerance::allowed(double expected, double rounding) const {
  const double size = std::abs(expected);
  return std::min(atol, std::max(atol * size / kFullAtol, rounding)) + rtol * size;
}

Comparison compare(const AnswerFile& expected, const AnswerFile& found, const Tolerance& tolerance) {
  AnswerFile here = expected, there = found;
  if (auto named = by_name(expected.answers), others = by_name(found.answers); named && others) {
    here.answers = std::move(*named);
    there.answers = std::move(*others);
  }
  return compare_keyed(here, there, tolerance);
}

std::string rounding_note(const AnswerFile& file, const Tolerance& tolerance) {
  const double rounding = rounding_of(file);
  if (rounding <= tolerance.atol) return "";
  return fmt::format(
      "{}: its numbers have {} digits behind the point, so rounding alone makes them off by up to {:g}, and --atol is "
      "{:g}; print more (trireme infer --score-digits 6) or compare with --atol {:g}",
      file.file, file.decimals, rounding, tolerance.atol, 2 * rounding);
}

std::string sameness_note(const AnswerFile& file, const Tolerance& tolerance) {
  if (file.answers.size() < 2) return "";
  const Numbers& first = file.answers.begin()->second.numbers;
  for (const auto& [picture, answer] : file.answers)
    if (!difference(first, answer.numbers, tolerance, rounding_of(file, file)).empty()) return "";
  return fmt::format(
      "{}: all {} pictures have the same answer within the tolerances, so pictures that were mixed up would pass too; "
      "train longer, or compare with smaller tolerances",
      file.file, file.answers.size());
}

std::string precision_in_name(const std::string& file) {
  const std::string name = std::filesystem::path(file).filename().string();
  for (const char* precision : {"fp32", "fp16", "bf16", "int8"})
    if (name.find(precision) != std::string::npos) return precision;
  return "";
}

}  // namespace trireme::tipc
