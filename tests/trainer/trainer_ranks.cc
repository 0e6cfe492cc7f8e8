// trainer_ranks CONFIG: two steps in fp16 with gradients that stay on their rank; in the second, rank 1's overflow.
#include <torch/torch.h>

#include <iostream>
#include <limits>

#include "trireme/core/error.h"
#include "trireme/train/trainer/make_model.h"
#include "trireme/train/trainer/make_team.h"
#include "trireme/train/trainer/updater.h"

using namespace trireme;
using namespace trireme::trainer;

namespace {

struct Step {
  bool stepped, changed;
};

Step step(const Network& net, Updater& updater, const Team& team, float factor) {
  const auto local = team.gradients(/*averaged=*/false);
  const torch::Tensor weight = net.trained()->parameters()[0];
  const torch::Tensor before = weight.detach().clone();
  updater.backward((weight * factor).sum());
  const bool stepped = updater.step(0.1);
  return {stepped, !weight.equal(before)};
}

void run(const std::string& file) {
  const config::TrainConfig config = config::load(file, {"AMP.use_amp=True", "AMP.dtype=float16"});
  Team team = make_team(config.global);
  const Network net = make_network(config.arch);
  team.share(net.trained(), net.frozen());
  Updater updater(config, net, team);
  const Step good = step(net, updater, team, 1);
  const double scale = updater.scaler().current_scale();
  const Step bad = step(net, updater, team, team.me().rank == 1 ? std::numeric_limits<float>::infinity() : 1);
  std::cout << fmt::format("rank {}: stepped {:d}, then {:d}; changed {:d}, then {:d}; scale {}, then {}\n",
                           team.me().rank, good.stepped, bad.stepped, good.changed, bad.changed, scale,
                           updater.scaler().current_scale())
            << std::flush;
}

}  // namespace

int main(int, char** argv) try { run(argv[1]); } catch (const Error& error) {
  std::cerr << error.what() << std::endl;
  return error.exit_code();
}
