#include "trireme/config/write.h"

#include "trireme/core/durable.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/deploy/bundle/description.h"

namespace trireme::bundle {
namespace {

namespace fs = std::filesystem;
using config::Kind;
using config::Value;
using config::ValuePtr;

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

ValuePtr output_section(const Output& output) {
  return map({{"name", word(output.name)},
              {"activation", scalar(to_string(output.activation))},
              {"class_num", number(output.class_num)}});
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
  const std::string text = to_yaml(description);
  parse(text, file.string());  // what read() would refuse is refused here
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw SystemError(failed.value(), "cannot make the folder {}", folder.string());
  write_file_atomically(file, text);
  return description;
}

}  // namespace trireme::bundle
