// `trireme train -c CONFIG [-o KEY=VALUE …] [--resume auto]`
#include <fmt/core.h>
#include <signal.h>

#include "apps/program.h"
#include "trireme/config/document.h"
#include "trireme/core/parallel_env.h"
#include "trireme/core/shell.h"
#include "trireme/core/text.h"
#include "trireme/train/trainer/trainer.h"

namespace trireme::apps {
namespace {

constexpr const char* kAbout = "Trains an image classifier as a configuration in PaddleClas' form says.\n";

constexpr const char* kNotes =
    "examples\n"
    "  trireme train -c configs/classification/LeNet_fashion_mnist.yaml\n"
    "  trireme launch -n 2 trireme train -c ResNet50.yaml -o Global.device=cpu -o Arch.pretrained=False\n"
    "  trireme launch --gpus 0,1,2,3 trireme train -c ResNet50.yaml --resume auto\n\n"
    "Log and checkpoints (best_model, latest, epoch_N) are in <Global.output_dir>/<Arch.name>.\n";

/// The batch size that the file's learning rate is meant for; 0: the file has none.
int64_t file_batch_size(const std::string& path) {
  const config::Node sampler = config::load_document(path).section("DataLoader").section("Train").section("sampler");
  return sampler.get<int64_t>("first_bs", sampler.get<int64_t>("batch_size", 0));
}

/// 128 + signal for SIGINT and SIGTERM, as in a shell: half a training must not look complete. SIGUSR1 asks for a
/// checkpoint and exit code 0.
int exit_code(int stopped_by) {
  constexpr int kSignal = 128;
  return stopped_by == SIGINT || stopped_by == SIGTERM ? kSignal + stopped_by : 0;
}

/// The command that resumes a stopped training. The launcher's options are not known here.
std::string resume_command(const std::vector<std::string>& words) {
  std::vector<std::string> all = {ParallelEnv::from_environment().launched ? "trireme launch … trireme train"
                                                                           : "trireme train"};
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--resume")
      ++i;
    else if (!words[i].starts_with("--resume="))
      all.push_back(shell_word(words[i]));
  }
  return join(all, " ") + " --resume auto";
}

int train(const Options& options, const config::TrainConfig& config) {
  trainer::Trainer trainer(config, {.resume = options.resume,
                                    .file_batch_size = file_batch_size(options.config),
                                    .resume_command = resume_command(options.words)});
  trainer.train();
  return exit_code(trainer.stopped_by());
}

}  // namespace
}  // namespace trireme::apps

int main(int argc, char** argv) {
  using namespace trireme::apps;
  return run({.name = "train", .about = kAbout, .notes = kNotes, .trains = true, .run = train}, argc, argv);
}
