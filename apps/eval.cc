// `trireme eval -c CONFIG -o Global.pretrained_model=CHECKPOINT`
#include "apps/program.h"
#include "trireme/train/trainer/trainer.h"

namespace trireme::apps {
namespace {

constexpr const char* kAbout =
    "Measures weights on DataLoader.Eval: the losses of Loss.Eval and the metrics of Metric.Eval. Every picture\n"
    "counts once, so the numbers are the same on any number of processes.\n";

constexpr const char* kNotes =
    "The weights are those of model.safetensors. After a training with EMA, latest and epoch_N have the raw\n"
    "weights there and the averages in ema.safetensors; best_model has the better of the two, and the log says\n"
    "which.\n\n"
    "examples\n"
    "  trireme eval -c ResNet50.yaml -o Global.pretrained_model=output/ResNet50/best_model\n"
    "  trireme launch -n 2 trireme eval -c ResNet50.yaml -o Global.pretrained_model=weights.safetensors\n";

int evaluate(const Options& /*options*/, const config::TrainConfig& config) {
  trainer::evaluate(config);
  return 0;
}

}  // namespace
}  // namespace trireme::apps

int main(int argc, char** argv) {
  using namespace trireme::apps;
  return run({.name = "eval", .about = kAbout, .notes = kNotes, .run = evaluate}, argc, argv);
}
