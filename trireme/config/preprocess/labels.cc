#include "trireme/config/preprocess/labels.h"

#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme::preprocess {
namespace {

constexpr int64_t kMaxClasses = 1 << 24;

struct Line {
  int number;                 // in the file, from 1
  std::optional<int64_t> id;  // what it begins with, when that is a class id
  std::string text;           // the whole
  std::string name;           // behind the id
};

Line parse_line(int number, std::string_view text) {
  const size_t end = text.find_first_of(" \t");
  const auto id = parse_int(text.substr(0, end), 0, kMaxClasses);
  const std::string_view rest = end == std::string_view::npos ? std::string_view() : trim(text.substr(end));
  return {number, id, std::string(text), std::string(rest)};
}

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  int number = 0;
  for (const std::string& line : split(without_byte_order_mark(text), '\n')) {
    ++number;
    if (!trim(line).empty()) lines.push_back(parse_line(number, trim(line)));
  }
  return lines;
}

void put(std::vector<std::optional<std::string>>& labels, const Line& line, const std::string& source) {
  if (!line.id)
    throw UsageError("{}:{}: '{}' does not begin with a class id, as other lines do", source, line.number,
                     printable(line.text));
  if (*line.id >= static_cast<int64_t>(labels.size()))
    throw UsageError("{}:{}: class {}, but there are {} lines; ids go from 0 to {}", source, line.number, *line.id,
                     labels.size(), labels.size() - 1);
  auto& label = labels[static_cast<size_t>(*line.id)];
  if (label) throw UsageError("{}:{}: class {} is named twice, first '{}'", source, line.number, *line.id, *label);
  if (line.name.empty())
    throw UsageError("{0}:{1}: class {2} has no name; write one behind the number: {2} name", source, line.number,
                     *line.id);
  label = line.name;
}

std::vector<std::string> by_id(const std::vector<Line>& lines, const std::string& source) {
  std::vector<std::optional<std::string>> labels(lines.size());
  for (const Line& line : lines) put(labels, line, source);
  std::vector<std::string> names;
  for (auto& label : labels) names.push_back(std::move(*label));  // as many lines as ids, none twice: all are there
  return names;
}

std::vector<std::string> in_order(const std::vector<Line>& lines) {
  std::vector<std::string> names;
  for (const Line& line : lines) names.push_back(line.text);
  return names;
}

}  // namespace

std::vector<std::string> parse_labels(std::string_view text, const std::string& source) {
  const std::vector<Line> lines = lines_of(text);
  if (lines.empty()) throw UsageError("{}: no labels in it; expected a line `0 name` for each class", source);
  return lines.front().id ? by_id(lines, source) : in_order(lines);
}

std::vector<std::string> read_labels(const std::filesystem::path& file) {
  const auto text = read_file(file);
  if (!text) throw UsageError("cannot read the labels in {}", file.string());
  return parse_labels(*text, file.string());
}

}  // namespace trireme::preprocess
