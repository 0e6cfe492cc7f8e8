#include "trireme/parallel/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <array>
#include <functional>
#include <mutex>
#include <random>
#include <vector>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"

namespace trireme {
namespace {

uint64_t seed_of(uint64_t seed, uint64_t number) {
  std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(number),
                         static_cast<uint32_t>(number >> 32)};
  std::array<uint32_t, 2> words{};
  sequence.generate(words.begin(), words.end());
  return (uint64_t{words[0]} << 32) | words[1];
}

// Equal on two ranks when the generators of their devices are in the same state.
int64_t state_of_random(torch::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  const torch::Tensor state = generator.get_state();
  const std::string_view bytes(static_cast<const char*>(state.const_data_ptr()), state.nbytes());
  return static_cast<int64_t>(std::hash<std::string_view>()(bytes));
}

// Of the CPU and of the current GPU.
std::vector<at::Generator> generators() {
  std::vector<at::Generator> all{at::globalContext().defaultGenerator(torch::kCPU)};
  if (torch::cuda::is_available())
    all.push_back(at::globalContext().defaultGenerator(c10::impl::VirtualGuardImpl(torch::kCUDA).getDevice()));
  return all;
}

}  // namespace

struct detail::SeededRandom::Before {
  std::vector<at::Generator> generators = trireme::generators();
  std::vector<torch::Tensor> states = {};
};

detail::SeededRandom::SeededRandom(uint64_t seed, uint64_t number) : before_(std::make_unique<Before>()) {
  for (at::Generator& generator : before_->generators) {
    const std::lock_guard lock(generator.mutex());
    before_->states.push_back(generator.get_state());
    generator.set_current_seed(seed_of(seed, number));
  }
}

detail::SeededRandom::~SeededRandom() {
  for (size_t i = 0; i < before_->states.size(); ++i) {
    at::Generator& generator = before_->generators[i];
    const std::lock_guard lock(generator.mutex());
    generator.set_state(before_->states[i]);
  }
}

uint64_t detail::draw_random() {
  at::Generator generator = at::globalContext().defaultGenerator(torch::kCPU);
  const std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

void seed_along(const Group& group, uint64_t seed) {
  group.state();  // a member?
  torch::manual_seed(seed_of(seed, static_cast<uint64_t>(group.rank())));
}

void detail::require_same_random(const Group& group, torch::Device device, std::string_view consequence,
                                 std::string_view advice) {
  if (group.size() == 1) return;
  const torch::Tensor mine = torch::full({1}, state_of_random(device), torch::kLong);
  const torch::Tensor all = torch::empty({group.size()}, torch::kLong);
  all_gather(all, mine, group);
  for (int rank = 1; rank < group.size(); ++rank)
    if (all[rank].item<int64_t>() != all[0].item<int64_t>())
      throw UsageError("{}: {} and {} draw different random numbers, so {}; {}", own_place(group), place_of(group, 0),
                       place_of(group, rank), consequence, advice);
}

RankRandom::RankRandom(const Group& group) {
  if (group.size() == 1) return;
  own_ = std::make_unique<detail::SeededRandom>(detail::draw_random(), static_cast<uint64_t>(group.rank()));
}

}  // namespace trireme
