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

constexpr const char* kHelp =
    "usage: trireme train -c CONFIG.yaml [-o KEY.SUB=VALUE …] [--resume auto|FOLDER]\n\n"
    "Trains an image classifier as a configuration of PaddleClas' form says.\n\n"
    "  -c, --config FILE      the configuration\n"
    "  -o, --override K=V …   changes of it; repeat at will\n"
    "      --resume auto      go on with the newest checkpoint of the output folder, or begin when there is none\n"
    "      --resume FOLDER    go on with this checkpoint\n\n"
    "examples\n"
    "  trireme train -c configs/classification/LeNet_fashion_mnist.yaml\n"
    "  trireme launch -n 2 trireme train -c ResNet50.yaml -o Global.device=cpu -o Arch.pretrained=False\n"
    "  trireme launch --gpus 0,1,2,3 trireme train -c ResNet50.yaml --resume auto\n\n"
    "Log and checkpoints (best_model, latest, epoch_N) are in <Global.output_dir>/<Arch.name>.\n";

/// The batch that the file's learning rate is for; 0: not told there.
int64_t file_batch_size(const std::string& path) {
  const config::Node sampler = config::load_document(path).section("DataLoader").section("Train").section("sampler");
  return sampler.get<int64_t>("first_bs", sampler.get<int64_t>("batch_size", 0));
}

/// As a shell tells of SIGINT and SIGTERM, so that nobody takes half a training for a whole one. SIGUSR1 asks for a
/// checkpoint and a good end.
int exit_code(int stopped_by) {
  constexpr int kSignal = 128;
  return stopped_by == SIGINT || stopped_by == SIGTERM ? kSignal + stopped_by : 0;
}

/// The command that goes on with a training that was stopped. What stood before it, a launcher's part, is not known
/// here.
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
  using trireme::apps::kHelp, trireme::apps::train;
  return trireme::apps::run({.name = "train", .help = kHelp, .trains = true, .run = train}, argc, argv);
}
