#include "trireme/tipc/own_programs.h"

#include <filesystem>
#include <functional>
#include <map>

#include "trireme/core/text.h"

namespace trireme::tipc {
namespace {

using Table = std::map<std::string, std::string, std::less<>>;

/// Of train, eval and export: keys of a configuration, which `-o` changes.
const Table& configured() {
  static const Table table = {{"train_device", "-o Global.device"},
                              {"autocast", "-o AMP.use_amp"},
                              {"epochs", "-o Global.epochs"},
                              {"output_dir", "-o Global.output_dir"},
                              {"train_batch_size", "-o DataLoader.Train.sampler.batch_size"},
                              {"pretrained", "-o Global.pretrained_model"},
                              {"save_inference_dir", "-o Global.save_inference_dir"},
                              {"export_weights", "-o Global.pretrained_model"}};
  return table;
}

const Table& of_infer() {
  static const Table table = {
      {"infer_device", "--use-gpu"},        {"mkldnn", "null"},   {"cpu_threads", "--cpu-threads"},
      {"infer_batch_size", "--batch-size"}, {"tensorrt", "null"}, {"precision", "--precision"},
      {"model_dir", "--model-dir"},         {"image", "--image"}, {"save_log_path", "null"},
      {"benchmark", "--benchmark"}};
  return table;
}

bool is_configured(const std::string& key) {
  return key.starts_with("-o ");
}

}  // namespace

std::string own_program(const Words& command) {
  if (command.empty()) return "";
  const std::string program = std::filesystem::path(command[0]).filename().string();
  std::string name;
  if (program == "trireme" && command.size() > 1) name = command[1];
  if (program.starts_with("trireme-")) name = program.substr(8);
  return name == "train" || name == "eval" || name == "export" || name == "infer" ? name : "";
}

std::string key_for(const Words& command, std::string_view name, const std::string& key) {
  const std::string program = own_program(command);
  if (program.empty() || key == "null") return key;
  const bool infers = program == "infer";
  const Table& table = infers ? of_infer() : configured();
  const auto own = table.find(name);
  if (own == table.end()) return key;
  // In the program's own form already: a key that this table does not have is taken at its word.
  const bool fits = infers ? !is_configured(key) && key.starts_with("-") : is_configured(key);
  return fits && own->second != "null" ? key : own->second;
}

std::string value_for(const Words& command, std::string_view name, const std::string& key, const std::string& value) {
  if (own_program(command) != "infer" || name != "precision" || to_lower(key).find("fp16") == std::string::npos)
    return value;
  return value == "True" ? "fp16" : value == "False" ? "fp32" : value;
}

std::string weights_name(const Words& train_command, const std::string& name) {
  constexpr std::string_view kPaddle = ".pdparams";
  const bool ours = own_program(train_command) == "train" && name.ends_with(kPaddle);
  return ours ? name.substr(0, name.size() - kPaddle.size()) : name;
}

}  // namespace trireme::tipc
