#include "trireme/tipc/commands.h"

#include <fmt/core.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/tipc/own_programs.h"

namespace trireme::tipc {
namespace {

/// The words with the interpreter before a script.
Words program(const Case& test, const Words& command) {
  Words words;
  if (command[0].ends_with(".py") && !test.python.empty() && test.python != "null")
    append(words, split_words(test.python).value_or(Words{test.python}));
  append(words, command);
  return words;
}

Words launched(const Placement& placement, const std::filesystem::path& folder) {
  Words words{"trireme", "launch"};
  append(words, placement.launch_options());
  append(words, {"--log_dir", (folder / "log").string()});
  return words;
}

/// A line's `key=value`, by the option that the program has for it.
Words told(const Words& command, const char* name, const std::string& key, const std::string& value) {
  return flag_words(key_for(command, name, key), value);
}

/// `device=gpu`, or for a key like use_gpu `use_gpu=True`. A key that is not an option is only for readers.
Words device_words(const Case& test, const Words& command, const Placement& placement) {
  const std::string key = key_for(command, "train_device", test.device_key);
  if (!key.starts_with("-")) return {};
  const bool asks_for_device = to_lower(key).ends_with("device");
  const char* value = asks_for_device ? (placement.on_cpu() ? "cpu" : "gpu") : (placement.on_cpu() ? "False" : "True");
  return flag_words(key, value);
}

/// PaddleClas' configurations have a section AMP, which a key `-o …` changes; other programs get `key=value`.
Words amp_words(const std::string& key, const std::string& value, const std::string& dtype = "") {
  if (!key.starts_with("-o ")) return flag_words(key, value);
  if (value == "null") return {"-o", "AMP.use_amp=False"};
  Words words{"-o", "AMP.use_amp=True", "-o", value == "fp16" || value == "O2" ? "AMP.level=O2" : "AMP.level=O1"};
  if (!dtype.empty()) append(words, {"-o", "AMP.dtype=" + dtype});
  return words;
}

bool chooses_precision(const Trainer& trainer) {
  const auto speaks_of_it = [](const std::string& word) { return word.find("AMP.") != std::string::npos; };
  return trainer.name == "amp_train" || std::any_of(trainer.command.begin(), trainer.command.end(), speaks_of_it);
}

/// A case without mixed precision leaves the precision alone where the training's own command sets it.
Words precision_words(const Case& test, const Trainer& trainer, const std::string& autocast) {
  if (autocast == "null" && chooses_precision(trainer)) return {};
  return amp_words(key_for(trainer.command, "autocast", test.autocast_key), autocast);
}

/// As key_for(), for what is measured: where the case has no key, `trireme train` gets the value by its own option.
std::string measured_key(const Words& command, const char* name, const std::string& key) {
  return key_for(command, name, key == "null" && own_program(command) == "train" ? "" : key);
}

Words measured_precision(const Case& test, const Words& command, const std::string& fp_item) {
  const std::string key = measured_key(command, "autocast", test.autocast_key);
  if (fp_item == "fp32") return amp_words(key, "null");
  return amp_words(key, "amp", fp_item == "bf16" ? "bfloat16" : "float16");
}

/// In the original chain's order.
Words training(const Case& test, const Words& command, const Placement& placement, const std::filesystem::path& folder,
               const std::string& epochs, const Words& precision, const Words& batch_size) {
  Words words = launched(placement, folder);
  append(words, program(test, command));
  append(words, device_words(test, command, placement));
  append(words, told(command, "output_dir", test.output_dir.key, folder.string()));
  append(words, told(command, "epochs", test.epochs.key, epochs));
  append(words, told(command, "pretrained", test.pretrained.key, test.pretrained.value));
  append(words, precision);
  append(words, batch_size);
  append(words, test.extra_train.words());
  return words;
}

/// `trireme infer` prints two digits by default, too few for `trireme tipc compare`.
Words score_words(const Words& inference) {
  const auto told = [](const std::string& word) { return word.starts_with("--score"); };
  if (own_program(inference) != "infer" || std::any_of(inference.begin(), inference.end(), told)) return {};
  return {"--score-digits=6"};
}

}  // namespace

std::string group_name(const Case& test, const Placement& placement, const std::string& autocast,
                       const Trainer& trainer) {
  std::string name = fmt::format("{}_gpus_{}", trainer.name, placement.device_text());
  if (test.long_names) return fmt::format("{}_autocast_{}_nodes_{}", name, autocast, placement.nodes());
  return placement.hosts.empty() ? name : fmt::format("{}_nodes_{}", name, placement.nodes());
}

Words train_command(const Case& test, Mode mode, const Placement& placement, const std::string& autocast,
                    const Trainer& trainer, const std::filesystem::path& folder) {
  return training(test, trainer.command, placement, folder, test.epochs.at(mode),
                  precision_words(test, trainer, autocast),
                  told(trainer.command, "train_batch_size", test.batch_size.key, test.batch_size.at(mode)));
}

Words benchmark_command(const Case& test, const Placement& placement, const std::string& fp_item,
                        const std::string& batch_size, const std::filesystem::path& folder) {
  const Words& command = test.trainers.front().command;
  const std::string batch_key = measured_key(command, "train_batch_size", test.batch_size.key);
  return training(test, command, placement, folder, test.benchmark->epochs, measured_precision(test, command, fp_item),
                  flag_words(batch_key, batch_size));
}

void check_benchmark(const Case& test) {
  const BenchmarkCase& asked = *test.benchmark;
  const Words& command = test.trainers.front().command;
  if (asked.batch_sizes.size() > 1 && measured_key(command, "train_batch_size", test.batch_size.key) == "null")
    throw UsageError(
        "{}: {} sizes, but {} cannot be given one, because the line train_batch_size has no key; write its option "
        "there, or leave one size here",
        asked.batch_origin, asked.batch_sizes.size(), command[0]);
  const std::string key = measured_key(command, "autocast", test.autocast_key);
  std::vector<std::string> low = asked.fp_items;
  std::erase(low, "fp32");
  if (!low.empty() && key == "null")
    throw UsageError(
        "{}: {} is not told of {}, as the case has no key for it; write its option on line 6 of the 51-line format "
        "(autocast), or leave fp32 only",
        asked.fp_origin, command[0], join(low, " and "));
  if (low.size() > 1 && !key.starts_with("-o "))
    throw UsageError("{}: {} would measure the same twice, as {} does not tell {} which of them; leave one of the two",
                     asked.fp_origin, join(low, " and "), key, command[0]);
}

Words eval_command(const Case& test, const Placement& placement, const std::string& weights) {
  Words words = program(test, test.eval);
  append(words, told(test.eval, "pretrained", test.pretrained.key, weights));
  append(words, device_words(test, test.eval, placement));
  append(words, test.extra_eval.words());
  return words;
}

Words export_words(const Case& test, const Words& command, const std::string& weights,
                   const std::filesystem::path& inference) {
  Words words = program(test, command);
  append(words, told(command, "export_weights", test.export_weights.key, weights));
  append(words, told(command, "save_inference_dir", test.save_inference_dir.key, inference.string()));
  return words;
}

Words infer_words(const Case& test, const InferVariant& variant, const std::filesystem::path& model,
                  const Words& more) {
  Words words = program(test, test.inference);
  append(words, variant.words);
  append(words, told(test.inference, "model_dir", test.model_dir.key, model.string()));
  append(words, score_words(test.inference));
  append(words, more);
  return words;
}

}  // namespace trireme::tipc
