// One rank of the tests of data parallelism: trireme launch -n 2 parallel_ranks CASE…
//
// Without a case it runs all but the last ones, in one world. Each group of a model is a group of its own, so a case
// that breaks its group leaves the world whole.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "cases.h"

namespace trireme::test {

void require(bool ok, const std::string& what, Where where) {
  if (!ok) throw std::runtime_error(fmt::format("{}:{}: {}", where.file_name(), where.line(), what));
}

void require_near(const torch::Tensor& got, const torch::Tensor& expected, double tolerance, const std::string& what,
                  Where where) {
  require(got.defined() && expected.defined(), what + ": there is no tensor", where);
  require(got.sizes() == expected.sizes(), what + ": another shape", where);
  const double largest = expected.detach().abs().max().item<double>();
  const double difference = (got.detach() - expected.detach()).abs().max().item<double>();
  require(difference <= tolerance * largest,
          fmt::format("{}: differs by {} where the largest value is {}", what, difference, largest), where);
}

void require_equal_everywhere(const torch::Tensor& tensor, const std::string& what, Where where) {
  Tensors all;
  all_gather(all, tensor.detach());
  for (size_t rank = 0; rank < all.size(); ++rank)
    require(all[rank].equal(all[0]), fmt::format("{}: rank {} has other values than rank 0", what, rank), where);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return fmt::format("UsageError: {}", error.what());
  } catch (const PeerError& error) {
    return fmt::format("PeerError: {}", error.what());
  } catch (const std::exception& error) {
    return fmt::format("exception: {}", error.what());
  }
  return "nothing";
}

void require_error(const std::function<void()>& f, const std::string& kind, std::initializer_list<std::string> words,
                   Where where) {
  const std::string error = error_of(f);
  require(error.starts_with(kind + ": "), fmt::format("expected {}, got {}", kind, error), where);
  for (const std::string& word : words)
    require(error.find(word) != std::string::npos, fmt::format("'{}' is not in: {}", word, error), where);
}

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  require(value != nullptr, fmt::format("{} is not set", name));
  return value;
}

torch::Tensor flat(const torch::nn::Module& module) {
  Tensors parts;
  for (const torch::Tensor& parameter : module.parameters()) parts.push_back(parameter.detach().reshape(-1));
  return torch::cat(parts);
}

torch::Tensor share(const torch::Tensor& whole, const Group& group) {
  return whole.tensor_split(group.size())[static_cast<size_t>(group.rank())];
}

torch::Tensor numbers(at::IntArrayRef sizes, int seed) {
  torch::manual_seed(seed);
  return torch::randn(sizes);
}

namespace {

void run(const Case& one, const World& world) {
  const auto start = std::chrono::steady_clock::now();
  try {
    one.run(world);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (world.rank() == 0) std::cout << fmt::format("ok {} {:.1f} s", one.name, taken.count()) << std::endl;
  } catch (const std::exception& error) {
    std::cerr << fmt::format("FAILED {} on rank {} of {}: {}\n", one.name, world.rank(), world.size(), error.what());
    std::_Exit(1);  // the others may wait for this rank in a group that only its end can end
  }
}

std::vector<Case> joined(std::initializer_list<std::vector<Case>> lists) {
  std::vector<Case> all;
  for (const std::vector<Case>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

int run_all(int count, char** names) {
  const std::vector<Case> usual = joined({training_cases(),
                                          uneven_cases(),
                                          graph_cases(),
                                          hook_cases(),
                                          batch_norm_cases(),
                                          change_cases(),
                                          apart_cases(),
                                          sharded_cases(),
                                          sharded_layers_cases(),
                                          sharded_precision_cases(),
                                          tensor_cases(),
                                          pipeline_cases(),
                                          pipeline_file_cases(),
                                          pipeline_dropout_cases(),
                                          pipeline_frozen_cases(),
                                          pipeline_refusal_cases(),
                                          gpt_cases(),
                                          gpt_file_cases(),
                                          overlap_cases(),
                                          random_cases(),
                                          replica_cases()});
  const std::vector<Case> known =
      joined({usual, last_cases(), resnet_cases(), sharded_alone_cases(), sharded_file_cases(), gpt_alone_cases()});
  const World world = init_parallel_env();
  if (count == 0)
    for (const Case& one : usual) run(one, world);
  for (int i = 0; i < count; ++i) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const Case& one) { return !std::strcmp(one.name, names[i]); });
    if (found == known.end()) throw UsageError("parallel_ranks: no case {}", names[i]);
    run(*found, world);
  }
  return 0;
}

}  // namespace
}  // namespace trireme::test

int main(int argc, char** argv) try {
  return trireme::test::run_all(argc - 1, argv + 1);
} catch (const trireme::Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
