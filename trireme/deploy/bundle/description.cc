#include "trireme/deploy/bundle/description.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "trireme/config/check.h"
#include "trireme/config/parse.h"
#include "trireme/config/unread.h"
#include "trireme/config/write.h"
#include "trireme/core/crc32c.h"
#include "trireme/core/durable.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::bundle {
namespace {

namespace fs = std::filesystem;
using config::Kind;
using config::Node;
using config::Value;
using config::ValuePtr;

constexpr config::Limits kLimits{.bytes = size_t{16} << 20, .values = 2'000'000};  // tens of thousands of labels
constexpr int64_t kLargestSide = 1 << 16;
constexpr std::array<const char*, 3> kActivations{"softmax", "sigmoid", "none"};  // in the order of Activation
constexpr const char* kAdvice =
    "one of them is of another export, or was not copied whole: export again, or copy the whole folder again (without "
    "Files in inference.yml nothing is compared)";

constexpr std::string_view kSealTop = "# CRC-32C of the lines between this one and the last: ";
constexpr std::string_view kSealEnd = "# CRC-32C of the lines above, without the first: ";

/// Requires a text that `seal` made, whole or damaged, or one that it did not.
void check_seal(const std::string& text, const std::string& source) {
  const size_t end = text.rfind(kSealEnd);
  const bool has_top = text.starts_with(kSealTop), has_end = end != std::string::npos;
  if (!has_top && !has_end) {
    log_info("[infer] {} has no checksum, as it is of an older Trireme or written by hand: damage would go unnoticed",
             printable(source));
    return;
  }
  const size_t begin = text.find('\n') + 1;
  if (has_top && has_end && begin <= end && text == seal(text.substr(begin, end - begin))) return;
  throw UsageError(
      "{} was changed or damaged since it was exported: its checksum is wrong; export again, or copy the whole folder "
      "again (if you have edited it: remove its first and its last line)",
      printable(source));
}

/// [-1, channels, height, width]
void read_shape(const Node& node, Input& input) {
  const auto shape = node.as<std::vector<int64_t>>();
  if (shape.size() != 4)
    node.fail("expected [-1, channels, height, width], got {} number{}", shape.size(), shape.size() == 1 ? "" : "s");
  for (size_t i = 1; i < shape.size(); ++i)
    if (shape[i] < 1 || shape[i] > kLargestSide)
      node.fail("number {} is {}; must be from 1 to {}", i + 1, shape[i], kLargestSide);
  input.channels = static_cast<int>(shape[1]);
  input.height = static_cast<int>(shape[2]);
  input.width = static_cast<int>(shape[3]);
}

Input read_input(const Node& section) {
  Input input;
  input.name = section.get("name", input.name);
  read_shape(section.need<Node>("shape"), input);
  return input;
}

Activation read_activation(const Node& section) {
  const std::string name =
      config::choice(section, "activation", kActivations[0], {kActivations.begin(), kActivations.end()});
  return static_cast<Activation>(std::find(kActivations.begin(), kActivations.end(), name) - kActivations.begin());
}

Output read_output(const Node& section, size_t labels) {
  Output output;
  output.name = section.get("name", output.name);
  output.activation = read_activation(section);
  if (section.has("shapes"))
    output.shapes = section.need<std::vector<std::vector<int64_t>>>("shapes");
  else if (labels == 0 || section.has("class_num"))
    output.class_num = config::need_whole(section, "class_num", {.least = 1, .most = 1 << 30});
  else
    output.class_num = static_cast<int64_t>(labels);
  return output;
}

void read_post_process(const Node& section, Description& description) {
  const Node topk = section.section("Topk");
  description.topk = static_cast<int>(config::whole(topk, "topk", description.topk, {.least = 1, .most = 1 << 20}));
  const Node labels = topk.at("label_list");
  if (!labels.is_null()) description.labels = labels.as<std::vector<std::string>>();
}

/// A folder written by hand or by an older Trireme has none.
void read_files(const Node& section, Description& description) {
  for (const char* name : {kOnnxFile, kTorchFile}) {
    if (!section.has(name)) continue;
    const Node file = section.section(name);
    description.files[name] = {
        .bytes = static_cast<uint64_t>(config::need_whole(file, "bytes")),
        .crc32c = static_cast<uint32_t>(config::need_whole(file, "crc32c", {.most = UINT32_MAX}))};
  }
}

void check_labels(const Node& root, const Description& description) {
  const auto labels = static_cast<int64_t>(description.labels.size());
  if (labels != 0 && labels != description.output.class_num)
    root.section("PostProcess")
        .section("Topk")
        .at("label_list")
        .fail("{} labels for {} classes (Output.class_num); name each class once or none", labels,
              description.output.class_num);
}

// --- the text of inference.yml

ValuePtr scalar(std::string text) {
  auto value = std::make_shared<Value>();
  value->kind = Kind::scalar;
  value->text = std::move(text);
  return value;
}

ValuePtr number(int64_t n) {
  return scalar(std::to_string(n));
}

/// In quotes: a class may be called `no` or `1`.
ValuePtr word(const std::string& text) {
  ValuePtr value = scalar(text);
  value->quoted = true;
  return value;
}

ValuePtr list(std::vector<ValuePtr> items) {
  auto value = std::make_shared<Value>();
  value->kind = Kind::list;
  value->items = std::move(items);
  return value;
}

ValuePtr map(std::vector<std::pair<std::string, ValuePtr>> entries) {
  auto value = std::make_shared<Value>();
  value->kind = Kind::map;
  value->entries = std::move(entries);
  return value;
}

ValuePtr input_section(const Input& input) {
  return map({{"name", word(input.name)},
              {"shape", list({number(-1), number(input.channels), number(input.height), number(input.width)})}});
}

ValuePtr list_of(const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<ValuePtr> all;
  for (const std::vector<int64_t>& shape : shapes) {
    std::vector<ValuePtr> sizes;
    for (const int64_t size : shape) sizes.push_back(number(size));
    all.push_back(list(std::move(sizes)));
  }
  return list(std::move(all));
}

ValuePtr output_section(const Output& output) {
  const ValuePtr section = map({{"name", word(output.name)}, {"activation", scalar(to_string(output.activation))}});
  if (output.shapes.empty())
    section->set("class_num", number(output.class_num));
  else
    section->set("shapes", list_of(output.shapes));
  return section;
}

ValuePtr post_process(const Description& description) {
  const ValuePtr topk = map({{"topk", number(description.topk)}});
  std::vector<ValuePtr> labels;
  for (const std::string& label : description.labels) labels.push_back(word(label));
  if (!labels.empty()) topk->set("label_list", list(std::move(labels)));
  return map({{"Topk", topk}});
}

ValuePtr files_section(const std::map<std::string, FileSum>& files) {
  const ValuePtr section = map({});
  for (const auto& [name, sum] : files)
    section->set(name, map({{"bytes", number(static_cast<int64_t>(sum.bytes))}, {"crc32c", number(sum.crc32c)}}));
  return section;
}

std::map<std::string, FileSum> networks_in(const fs::path& folder) {
  std::map<std::string, FileSum> files;
  std::error_code absent;
  for (const char* name : {kOnnxFile, kTorchFile})
    if (fs::is_regular_file(folder / name, absent)) files[name] = sum_of_file(folder / name);
  return files;
}

}  // namespace

const char* to_string(Activation activation) {
  return kActivations.at(static_cast<size_t>(activation));
}

Description parse(const std::string& text, const std::string& source) {
  const Node root(config::parse_yaml(text, source, 1, kLimits), "");
  if (!root.is_map()) throw UsageError("{}: expected sections Global, Input, Output, …, got {}", source, root.shown());
  Description description;
  description.model_name = root.section("Global").get<std::string>("model_name", "");
  description.input = read_input(root.need_section("Input"));
  read_post_process(root.section("PostProcess"), description);
  description.output = read_output(root.section("Output"), description.labels.size());
  check_labels(root, description);
  read_files(root.section("Files"), description);
  description.transform_ops = root.section("PreProcess").at("transform_ops");
  config::warn_unread(root);
  return description;
}

Description read(const fs::path& folder) {
  const fs::path file = folder / kDescriptionFile;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw UsageError("there is no folder {}; name one that `trireme export` has written", printable(folder.string()));
  const auto text = read_file(file, kLimits.bytes);
  if (!text)
    throw UsageError("cannot read {}: {}; `trireme export` writes it beside the network", printable(file.string()),
                     errno_text(errno));
  check_seal(*text, file.string());
  return parse(*text, file.string());
}

std::string seal(const std::string& text) {
  const uint32_t sum = crc32c(text);
  return fmt::format("{}{:08x}\n{}{}{:08x}\n", kSealTop, sum, text, kSealEnd, sum);
}

std::string to_yaml(const Description& description) {
  const ValuePtr root = map({{"Global", map({{"model_name", word(description.model_name)}})},
                             {"Input", input_section(description.input)},
                             {"Output", output_section(description.output)}});
  if (!description.transform_ops.is_null())
    root->set("PreProcess", map({{"transform_ops", description.transform_ops.value()}}));
  root->set("PostProcess", post_process(description));
  if (!description.files.empty()) root->set("Files", files_section(description.files));
  return config::write_yaml(*root);
}

Description write(const fs::path& folder, Description description) {
  const fs::path file = folder / kDescriptionFile;
  description.files = networks_in(folder);
  const std::string text = seal(to_yaml(description));
  parse(text, file.string());  // what read() would refuse is refused here
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw SystemError(failed.value(), "cannot make the folder {}", folder.string());
  write_file_atomically(file, text);
  return description;
}

void check_network(const fs::path& folder, const std::string& name, const Description& description) {
  const auto known = description.files.find(name);
  if (known == description.files.end()) return;
  try {
    check_sum(folder / name, known->second, kDescriptionFile);
  } catch (const UsageError& error) {
    throw UsageError("{}; {}", error.what(), kAdvice);
  }
}

}  // namespace trireme::bundle
