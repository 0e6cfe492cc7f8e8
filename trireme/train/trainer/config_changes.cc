#include "trireme/train/trainer/config_changes.h"

#include <fmt/core.h>

#include <map>
#include <set>

#include "trireme/config/document.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::trainer {
namespace {

using Keys = std::map<std::string, std::string>;

const std::set<std::string> kOfNoMatter = {
    "Global.epochs",           "Global.output_dir",     "Global.device",
    "Global.checkpoints",      "Global.print_mem_info", "Global.print_batch_step",
    "Global.log_ranks",        "Global.use_visualdl",   "Global.save_inference_dir",
    "Global.pretrained_model", "Global.save_steps",     "Global.save_minutes"};

void add(const config::Value& value, const std::string& path, Keys& keys) {
  if (kOfNoMatter.contains(path)) return;
  if (value.kind == config::Kind::scalar) keys[path] = value.text;
  for (const auto& [key, inner] : value.entries) add(*inner, config::path_join(path, key), keys);
  for (size_t i = 0; i < value.items.size(); ++i)
    add(*value.items[i], config::path_join(path, std::to_string(i)), keys);
}

Keys keys_of(const std::string& text) {
  Keys keys;
  add(*config::parse_document(text, "configuration").value(), "", keys);
  return keys;
}

std::string shown(const Keys& keys, const std::string& key) {
  const auto found = keys.find(key);
  return found == keys.end() ? "nothing" : printable(found->second);
}

std::vector<std::string> differences(const Keys& before, const Keys& now) {
  Keys all = before;
  all.insert(now.begin(), now.end());
  std::vector<std::string> changes;
  for (const auto& [key, value] : all) {
    const std::string one = shown(before, key), other = shown(now, key);
    if (one != other) changes.push_back(fmt::format("{}: {}, now {}", key, one, other));
  }
  return changes;
}

}  // namespace

std::vector<std::string> config_changes(const std::string& before, const std::string& now) try {
  if (before.empty() || now.empty()) return {};
  return differences(keys_of(before), keys_of(now));
} catch (const UsageError&) {
  return {};
}

}  // namespace trireme::trainer
