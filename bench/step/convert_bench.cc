// Training steps of networks of libtorch's own layers, as they are and after nn::convert_batch_norm_act().
//
//   OMP_NUM_THREADS=2 convert_bench [steps]
//
// Both kinds of a network take turns in this process, begin with the same weights and see the same pictures; their losses
// must agree. Prints a Markdown table: the median of wall time and of the process's CPU time over the steps. Exit 1 when
// losses differ.
#include <sys/resource.h>
#include <trireme/trireme.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <vector>

using namespace trireme;
using namespace torch::nn;

namespace {

Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups = 1) {
  return Conv2d(Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).groups(groups).bias(false));
}

/// ResNet's bottleneck.
struct BottleneckImpl : Module {
  BottleneckImpl(int64_t in, int64_t width, int64_t stride)
      : body(convolution(in, width, 1, 1), BatchNorm2d(width), ReLU(), convolution(width, width, 3, stride),
             BatchNorm2d(width), ReLU(), convolution(width, 4 * width, 1, 1), BatchNorm2d(4 * width)) {
    register_module("body", body);
    if (stride != 1 || in != 4 * width)
      shortcut = register_module(
          "shortcut", Sequential(convolution(in, 4 * width, 1, stride), BatchNorm2d(BatchNorm2dOptions(4 * width))));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(body->forward(x) + (shortcut ? shortcut->forward(x) : x));
  }
  Sequential body, shortcut{nullptr};
};
TORCH_MODULE(Bottleneck);

/// MobileNetV2's block.
struct InvertedImpl : Module {
  InvertedImpl(int64_t in, int64_t out, int64_t stride, int64_t expansion) : adds(stride == 1 && in == out) {
    const int64_t wide = in * expansion;
    if (expansion != 1) body->extend(*Sequential(convolution(in, wide, 1, 1), BatchNorm2d(wide), ReLU6()));
    body->extend(*Sequential(convolution(wide, wide, 3, stride, wide), BatchNorm2d(wide), ReLU6(),
                             convolution(wide, out, 1, 1), BatchNorm2d(out)));
    register_module("body", body);
  }
  torch::Tensor forward(const torch::Tensor& x) { return adds ? body->forward(x) + x : body->forward(x); }
  bool adds;
  Sequential body;
};
TORCH_MODULE(Inverted);

void end(Sequential& net, int64_t channels) {
  net->extend(*Sequential(AdaptiveAvgPool2d(1), Flatten(), Linear(channels, 1000)));
}

Sequential resnet50() {
  Sequential net(convolution(3, 64, 7, 2), BatchNorm2d(64), ReLU(),
                 MaxPool2d(MaxPool2dOptions(3).stride(2).padding(1)));
  int64_t in = 64, width = 64;
  for (const int64_t blocks : {3, 4, 6, 3}) {
    for (int64_t i = 0; i < blocks; ++i, in = 4 * width)
      net->push_back(Bottleneck(in, width, i == 0 && width > 64 ? 2 : 1));
    width *= 2;
  }
  end(net, in);
  return net;
}

Sequential mobilenet_v2() {
  struct Stage {
    int64_t expansion, out, blocks, stride;
  };
  Sequential net(convolution(3, 32, 3, 2), BatchNorm2d(32), ReLU6());
  int64_t in = 32;
  for (const Stage& s : std::vector<Stage>{
           {1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}})
    for (int64_t i = 0; i < s.blocks; ++i, in = s.out)
      net->push_back(Inverted(in, s.out, i == 0 ? s.stride : 1, s.expansion));
  net->extend(*Sequential(convolution(in, 1280, 1, 1), BatchNorm2d(1280), ReLU6()));
  end(net, 1280);
  return net;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Trained {
  explicit Trained(Sequential network)
      : net(std::move(network)), sgd(net->parameters(), {.lr = 0.01, .momentum = 0.9}) {}
  void step(const torch::Tensor& x, const torch::Tensor& y) {
    const auto start = std::chrono::steady_clock::now();
    const double cpu = cpu_seconds();
    sgd.zero_grad();
    const torch::Tensor loss = torch::cross_entropy_loss(net->forward(x), y);
    loss.backward();
    sgd.step();
    losses.push_back(loss.item<double>());
    walls.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    cpus.push_back(cpu_seconds() - cpu);
  }
  Sequential net;
  optim::Momentum sgd;
  std::vector<double> losses, walls, cpus;
};

bool compare(const char* name, Sequential (*make)(), int64_t batch, int steps) {
  torch::manual_seed(1);
  Trained plain(make());
  torch::manual_seed(1);
  Trained converted(make());
  const int norms = nn::convert_batch_norm_act(*converted.net);
  const torch::Tensor x = torch::randn({batch, 3, 224, 224}).contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor y = torch::arange(batch).remainder(10);
  for (int i = 0; i < steps; ++i) {
    plain.step(x, y);
    converted.step(x, y);
  }
  for (const Trained* one : {&plain, &converted})
    std::cout << fmt::format("| {}, {} | {} | {:.0f} | {:.2f} | {:.2f} x |\n", name, batch,
                             one == &plain ? "libtorch's layers" : fmt::format("converted ({} norms)", norms),
                             1e3 * median(one->walls), median(one->cpus), median(plain.cpus) / median(one->cpus));
  return std::abs(plain.losses[0] - converted.losses[0]) < 1e-4 * plain.losses[0];
}

}  // namespace

int main(int argc, char** argv) {
  const World world = init_parallel_env();
  const int steps = argc > 1 ? std::atoi(argv[1]) : 5;
  std::cout << "| network, batch | layers | step, ms | CPU seconds a step | CPU time |\n|---|---|---:|---:|---:|\n";
  const bool first = compare("MobileNetV2", mobilenet_v2, 16, steps);
  const bool second = compare("ResNet50", resnet50, 8, steps);
  if (!first || !second) std::cerr << "the first losses differ\n";
  return first && second ? 0 : 1;
}
