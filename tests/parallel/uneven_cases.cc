// Ranks that do not all do the same: parameters without a gradient, and batches that run out.
#include "cases.h"

namespace trireme::test {
namespace {

// Four weights; a forward uses those whose letter is in `used`.
struct Branches : torch::nn::Module {
  Branches() {
    for (const char* name : {"a", "b", "c", "d"}) register_parameter(name, torch::randn(3));
  }
  torch::Tensor weight(char name) const { return named_parameters()[std::string(1, name)]; }
  torch::Tensor forward(const torch::Tensor& x, const std::string& used) const {
    torch::Tensor sum = torch::zeros({});
    for (const char name : used) sum = sum + (weight(name) * x).tanh().sum();
    return sum;
  }
};

torch::Tensor ones() {
  return torch::ones(3);
}

void permanently_unused(const World& world) {
  DataParallel model(seeded<Branches>(), world);
  for (int step = 0; step < 4; ++step) {
    model->zero_grad();
    model(numbers({3}, world.rank() + step), "ac").backward();
    require(!model->weight('b').grad().defined() && !model->weight('d').grad().defined(), "a gradient from nowhere");
    require_equal_everywhere(model->weight('a').grad(), "a");
    require_equal_everywhere(model->weight('c').grad(), "c");
  }
  require(model.gradients().gradient_count() == (world.size() == 1 ? 0 : 2), "only a and c");
}

void used_by_one_rank_at_first(const World& world) {
  DataParallel model(seeded<Branches>(), world);
  auto alone = seeded<Branches>();
  alone->forward(ones(), "b").backward();
  const torch::Tensor whole = alone->weight('b').grad();
  model(ones(), world.rank() == 0 ? "ab" : "a").backward();
  require_near(model->weight('b').grad(), whole / world.size(), 1e-6, "the others count as zeros");
  for (int step = 0; step < 2; ++step) {
    model->zero_grad();
    model(ones(), "ab").backward();
    require_near(model->weight('b').grad(), whole, 1e-6, "used by all");
  }
}

// `later` on the last rank, "ab" elsewhere, after a step with "ab" everywhere.
void change_of_use(const World& world, const std::string& later, std::initializer_list<std::string> words) {
  if (world.size() == 1) return;
  DataParallel model(seeded<Branches>(), world);
  for (int step = 0; step < 2; ++step) model(ones(), "ab").backward();
  const bool culprit = world.rank() == world.size() - 1;
  const auto backward = [&] { model(ones(), culprit ? later : "ab").backward(); };
  require_error(backward, culprit ? "UsageError" : "PeerError", words);
  require_error(backward, "PeerError", {"an earlier backward() has failed"});
  require_error([&] { model(ones(), "ab").backward(); }, "PeerError", {"an earlier backward() has failed"});
}

void used_then_unused(const World& world) {
  change_of_use(world, "a", {"no gradient in this backward for b", "find_unused_parameters = true"});
}

void newly_used(const World& world) {
  change_of_use(world, "abd", {"parameter d", "none in the first backward", "find_unused_parameters = true"});
}

// Everyone leaves out the same one.
void unused_everywhere(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(seeded<Branches>(), world);
  model(ones(), "abc").backward();
  const std::string error = error_of([&] { model(ones(), "c").backward(); });
  require(error.find("a, b") != std::string::npos || error.find("b, a") != std::string::npos, error);
}

std::string use_of(int step, int rank) {
  const char* const plans[] = {"a", "ab", "b", "abc", "c", "ac"};
  return plans[(step * 2 + rank) % 6];
}

void find_unused(const World& world) {
  DataParallel model(seeded<Branches>(), world, {.find_unused_parameters = true});
  auto alone = seeded<Branches>();
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01);
  torch::optim::SGD ours(model->parameters(), options), theirs(alone->parameters(), options);
  for (int step = 0; step < 24; ++step) {
    model(numbers({3}, step + world.rank()), use_of(step, world.rank())).backward();
    torch::Tensor sum = torch::zeros({});
    for (int rank = 0; rank < world.size(); ++rank)
      sum = sum + alone->forward(numbers({3}, step + rank), use_of(step, rank)) / world.size();
    sum.backward();
    for (const char name : {'a', 'b', 'c', 'd'})
      require(model->weight(name).grad().defined() == alone->weight(name).grad().defined(),
              fmt::format("step {}: gradient of {}", step, name));
    for (auto* optimizer : {&ours, &theirs}) optimizer->step(), optimizer->zero_grad();
  }
  require(!model->weight('d').grad().defined(), "nobody has ever used d");
  require_near(flat(*model.module()), flat(*alone), 1e-5, "find_unused_parameters");
  require_equal_everywhere(flat(*model.module()), "find_unused_parameters");
}

// A gradient that is there already is averaged and stays, also when no backward adds to it.
void find_unused_keeps_what_is_there(const World& world) {
  DataParallel model(seeded<Branches>(), world, {.find_unused_parameters = true});
  for (int step = 0; step < 3; ++step) model(ones(), step == 1 ? "a" : "ab").backward();
  auto alone = seeded<Branches>();
  for (int step = 0; step < 3; ++step) alone->forward(ones(), step == 1 ? "a" : "ab").backward();
  require_near(model->weight('a').grad(), alone->weight('a').grad(), 1e-6, "a");
  require_near(model->weight('b').grad(), alone->weight('b').grad(), 1e-6, "b");
}

int batches_of(int rank) {
  const int counts[] = {3, 5, 0, 2};
  return counts[rank % 4];
}

void join_uneven(const World& world, bool find_unused_parameters) {
  DataParallel model(seeded<Branches>(), world, {.find_unused_parameters = find_unused_parameters});
  torch::optim::SGD ours(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int round = 0; round < 2; ++round) {
    auto before = std::make_shared<Branches>();
    for (const char name : {'a', 'b', 'c', 'd'}) before->weight(name).data().copy_(model->weight(name).data());
    torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    model->zero_grad();
    model.join([&] {
      for (int step = 0; step < batches_of(world.rank()); ++step) {
        model(numbers({3}, 10 * step + world.rank()), "abc").backward();
        sgd.step();
        sgd.zero_grad();
      }
    });
    torch::optim::SGD reference(before->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 5; ++step) {
      torch::Tensor sum = torch::zeros({});
      for (int rank = 0; rank < world.size(); ++rank)
        if (step < batches_of(rank)) sum = sum + before->forward(numbers({3}, 10 * step + rank), "abc") / world.size();
      if (!sum.requires_grad()) break;
      sum.backward();
      reference.step();
      reference.zero_grad();
    }
    require_near(flat(*model.module()), flat(*before), 1e-5, fmt::format("join, round {}", round));
    require_equal_everywhere(flat(*model.module()), "join");
  }
}

void join(const World& world) {
  join_uneven(world, false);
  join_uneven(world, true);
}

void join_without_batches(const World& world) {
  DataParallel model(seeded<Branches>(), world);
  model.join([] {});
  require(flat(*model.module()).equal(flat(*seeded<Branches>())), "nothing was trained");
}

void join_with_an_exception(const World& world) {
  DataParallel model(seeded<Branches>(), world);
  const bool culprit = world.rank() == world.size() - 1;
  const std::string error = error_of([&] {
    model.join([&] {
      for (int step = 0; step < 4 + world.rank(); ++step) {
        if (culprit && step == 2) throw std::runtime_error("out of ideas");
        model(ones(), "ab").backward();
      }
    });
  });
  if (culprit)
    require(error == "exception: out of ideas", error);
  else
    require(error.starts_with("PeerError: ") && error.find("left join() by an exception") != std::string::npos, error);
}

void join_and_static_graph(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(seeded<Branches>(), world, {.static_graph = true});
  require_error([&] { model.join([] {}); }, "UsageError", {"static_graph"});
}

}  // namespace

std::vector<Case> uneven_cases() {
  return {{"permanently_unused", permanently_unused},
          {"used_by_one_rank_at_first", used_by_one_rank_at_first},
          {"used_then_unused", used_then_unused},
          {"newly_used", newly_used},
          {"unused_everywhere", unused_everywhere},
          {"find_unused", find_unused},
          {"find_unused_keeps_what_is_there", find_unused_keeps_what_is_there},
          {"join", join},
          {"join_without_batches", join_without_batches},
          {"join_with_an_exception", join_with_an_exception},
          {"join_and_static_graph", join_and_static_graph}};
}

}  // namespace trireme::test
