#include "trireme/tipc/config_text.h"

#include <algorithm>
#include <stdexcept>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::tipc {
namespace {

using Kind = LineRule::Kind;
using Lines = std::vector<std::string>;

constexpr size_t kMaxBytes = 1u << 20;
constexpr const char* kBenchmarkSection = "train_benchmark_params";

struct Place {
  const std::string& file;
  size_t line;
  std::string text() const { return fmt::format("{}:{}", file, line); }
};

// --- bytes to lines

/// printable() changes nothing but control characters and broken UTF-8.
void check_characters(const std::string& line, const Place& place) {
  if (printable(line) != line)
    throw UsageError("{}: not UTF-8 text: '{}'; save the file as UTF-8", place.text(), printable(line));
}

Lines lines_of(std::string_view text, const std::string& file) {
  text = without_byte_order_mark(text);
  if (text.size() > kMaxBytes) throw UsageError("{}: more than {} bytes: this is not a test case", file, kMaxBytes);
  Lines lines = split(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].ends_with('\r')) lines[i].pop_back();
    check_characters(lines[i], {file, i + 1});
  }
  while (!lines.empty() && trim(lines.back()).empty()) lines.pop_back();
  if (lines.empty()) throw UsageError("{}: the file is empty; test_tipc/README.md has the formats", file);
  return lines;
}

// --- one line

bool is_header(std::string_view line) {
  return line.starts_with("===");
}

/// For a key that stands on a wrong line: where it stands too.
std::string seen_before(const ConfigText& config, const std::string& key) {
  for (const Entry& entry : config.entries)
    if (entry.key == key && key != "null") return fmt::format(" (line {} has that key already)", entry.line);
  return "";
}

[[noreturn]] void refuse(const ConfigText& config, const LineRule& rule, const Place& place, std::string_view line) {
  const std::string key(line.substr(0, line.find(':')));
  throw UsageError("{}: expected {}, found {}{}; on line {} the {} format has {}: is a line missing or too many above?",
                   place.text(), expected_key(rule),
                   trim(line).empty() ? "a blank line" : fmt::format("'{}'", is_header(line) ? line : key),
                   seen_before(config, key), place.line, config.format->title,
                   *rule.name != '\0' ? rule.name : expected_key(rule));
}

Entry split_entry(std::string_view line, const Place& place, std::string_view expected) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos)
    throw UsageError("{}: '{}' has no ':'; expected {}, written key:value", place.text(), line, expected);
  Entry entry;
  entry.key = trim(line.substr(0, colon));
  entry.value = trim(line.substr(colon + 1));
  entry.line = place.line;
  entry.origin = fmt::format("{}: {}", place.text(), entry.key);
  return entry;
}

bool is_filler(std::string_view line) {
  line = trim(line);
  return !line.empty() && line.find_first_not_of('#') == std::string_view::npos;
}

void read_line(ConfigText& config, const LineRule& rule, const Place& place, std::string_view line) {
  if (rule.kind == Kind::header) {
    if (!is_header(line) || line.find(rule.keys) == std::string_view::npos) refuse(config, rule, place, line);
    return;
  }
  const bool filler = is_filler(line);
  if (rule.kind == Kind::filler ? !filler : trim(line).empty() || is_header(line)) refuse(config, rule, place, line);
  if (rule.kind == Kind::filler) return;
  if (filler && rule.kind != Kind::spare) refuse(config, rule, place, line);
  Entry entry = filler ? Entry{.key = "null", .value = "null", .origin = place.text(), .line = place.line}
                       : split_entry(line, place, expected_key(rule));
  if (!key_fits(rule, entry.key)) refuse(config, rule, place, line);
  entry.name = rule.name;
  config.entries.push_back(std::move(entry));
}

// --- what follows the fixed lines: sections by header

size_t fixed_lines(const Lines& lines) {
  const auto first_section = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return is_header(line) && line.find("benchmark_params") != std::string::npos;
  });
  return static_cast<size_t>(first_section - lines.begin());
}

void add_benchmark(ConfigText& config, Entry entry) {
  for (const Entry& other : config.benchmark)
    if (other.key == entry.key)
      throw UsageError("{}: the section {} has that key on line {} already", entry.origin, kBenchmarkSection,
                       other.line);
  entry.name = entry.key;
  config.benchmark.push_back(std::move(entry));
}

void read_sections(ConfigText& config, const Lines& lines) {
  bool benchmark = false, inside = false;
  for (size_t i = config.format->lines.size(); i < lines.size(); ++i) {
    const Place place{config.file, i + 1};
    const std::string& line = lines[i];
    if (is_header(line)) {
      inside = true;
      benchmark = line.find(kBenchmarkSection) != std::string::npos;
      if (!benchmark && line.find("infer_benchmark_params") == std::string::npos)
        log_warning("[tipc] {}: the section {} is not known and not read", place.text(), line);
    } else if (!inside || trim(line).empty()) {
      throw UsageError("{}: expected a header like ====={}===== or the end, found '{}'; the {} format has {} lines",
                       place.text(), kBenchmarkSection, line, config.format->title, config.format->lines.size());
    } else if (benchmark && !is_filler(line)) {
      add_benchmark(config, split_entry(line, place, "a key of train_benchmark_params"));
    }
  }
}

// --- changes

std::vector<std::string> names_of(const ConfigText& config) {
  std::vector<std::string> names;
  for (const Entry& entry : config.entries) {
    names.push_back(entry.name);
    if (entry.key != entry.name && entry.key != "null") names.push_back(entry.key);
  }
  for (const Entry& entry : config.benchmark) names.push_back(entry.key);
  return names;
}

/// A name means one line for sure; a key may stand on several.
std::vector<Entry*> meant_by(ConfigText& config, const std::string& name) {
  std::vector<Entry*> found;
  for (Entry& entry : config.entries)
    if (entry.name == name) return {&entry};
  for (Entry& entry : config.entries)
    if (entry.key == name && name != "null") found.push_back(&entry);
  for (Entry& entry : config.benchmark)
    if (found.empty() && entry.key == name) found.push_back(&entry);
  return found;
}

Entry& the_one(ConfigText& config, const std::string& name) {
  const std::vector<Entry*> found = meant_by(config, name);
  if (found.size() == 1) return *found[0];
  if (found.empty()) {
    const auto near = closest(name, names_of(config));
    throw UsageError("--set {}: {} has no such line{}; a number replaces a whole line: --set 4=gpu_list:cpu:2",
                     printable(name), config.file, near ? fmt::format(" (did you mean {}?)", *near) : "");
  }
  throw UsageError("--set {0}: {1} has that key on lines {2} and {3}; write --set {4}=… or --set {5}=…", name,
                   config.file, found[0]->line, found[1]->line, found[0]->name, found[1]->name);
}

void replace_line(ConfigText& config, size_t line, const std::string& text) {
  const std::string what = fmt::format("--set {}", line);
  if (line > config.format->lines.size() || *config.format->lines[line - 1].name == '\0')
    throw UsageError("{}: that line of the {} format holds no key:value", what, config.format->title);
  const LineRule& rule = config.format->lines[line - 1];
  Entry entry = split_entry(text, {config.file, line}, expected_key(rule));
  if (!key_fits(rule, entry.key))
    throw UsageError("{}: expected {}, found '{}'", what, expected_key(rule), printable(entry.key));
  entry.name = rule.name;
  entry.origin = what;
  *std::find_if(config.entries.begin(), config.entries.end(), [&](const Entry& old) { return old.line == line; }) =
      std::move(entry);
}

}  // namespace

const Entry* ConfigText::find(std::string_view name) const {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

const Entry& ConfigText::at(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) throw std::logic_error(fmt::format("tipc: no line is called {}", name));
  return *entry;
}

ConfigText parse_config(std::string_view text, const std::string& file) {
  const Lines lines = lines_of(text, file);
  ConfigText config{.file = file, .format = &format_for(fixed_lines(lines))};
  const std::vector<LineRule>& rules = config.format->lines;
  for (size_t i = 0; i < std::min(rules.size(), lines.size()); ++i)
    read_line(config, rules[i], {file, i + 1}, lines[i]);
  if (lines.size() < rules.size())
    throw UsageError("{}:{}: the file ends here; expected {} on line {} (the {} format)", file, lines.size(),
                     expected_key(rules[lines.size()]), lines.size() + 1, config.format->title);
  read_sections(config, lines);
  return config;
}

ConfigText read_config(const std::string& file) {
  const auto text = read_file(file);
  if (!text) throw UsageError("cannot read the test case {}; test_tipc/configs has one folder for each model", file);
  return parse_config(*text, file);
}

void set_value(ConfigText& config, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError("--set {}: expected KEY=VALUE", printable(assignment));
  const std::string name = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  if (printable(assignment) != assignment) throw UsageError("--set {}: not UTF-8 text", printable(assignment));
  if (const auto line = parse_int(name, 1, 1000)) return replace_line(config, static_cast<size_t>(*line), value);
  Entry& entry = the_one(config, name);
  entry.value = trim(value);
  entry.origin = fmt::format("--set {}", name);
}

}  // namespace trireme::tipc
