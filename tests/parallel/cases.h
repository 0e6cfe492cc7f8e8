// What the cases of parallel_ranks share. A case is run by every rank of a world of any size; it throws when something
// is not as it should be.
#pragma once

#include <trireme/trireme.h>

#include <functional>
#include <initializer_list>
#include <source_location>
#include <string>
#include <vector>

namespace trireme::test {

struct Case {
  const char* name;
  void (*run)(const World& world);
};
std::vector<Case> training_cases();
std::vector<Case> uneven_cases();
std::vector<Case> graph_cases();
std::vector<Case> hook_cases();
std::vector<Case> batch_norm_cases();
std::vector<Case> change_cases();
std::vector<Case> apart_cases();
std::vector<Case> sharded_cases();
std::vector<Case> sharded_layers_cases();
std::vector<Case> sharded_precision_cases();
std::vector<Case> tensor_cases();
std::vector<Case> pipeline_cases();
std::vector<Case> pipeline_file_cases();
std::vector<Case> pipeline_dropout_cases();
std::vector<Case> pipeline_frozen_cases();
std::vector<Case> pipeline_refusal_cases();
std::vector<Case> gpt_cases();
std::vector<Case> gpt_file_cases();
std::vector<Case> overlap_cases();
std::vector<Case> random_cases();
std::vector<Case> replica_cases();
/// Takes long, so it is run by name.
std::vector<Case> resnet_cases();
/// These end the world or a process of it, so each is run alone.
std::vector<Case> last_cases();
/// These need a world of their own.
std::vector<Case> sharded_alone_cases();
std::vector<Case> gpt_alone_cases();
/// One saves, another world loads.
std::vector<Case> sharded_file_cases();

using Where = std::source_location;

void require(bool ok, const std::string& what, Where where = Where::current());
/// The largest difference is at most `tolerance` of the largest expected value.
void require_near(const torch::Tensor& got, const torch::Tensor& expected, double tolerance, const std::string& what,
                  Where where = Where::current());
/// The same bits on every rank.
void require_equal_everywhere(const torch::Tensor& tensor, const std::string& what, Where where = Where::current());

/// What it throws, as "UsageError: …"; "nothing" when it does not.
std::string error_of(const std::function<void()>& f);
/// It throws this kind of error, and these words are in it.
void require_error(const std::function<void()>& f, const std::string& kind, std::initializer_list<std::string> words,
                   Where where = Where::current());

/// An environment variable that a test sets for its case; it must be there.
std::string setting(const char* name);

/// All parameters one after the other, as they are now.
torch::Tensor flat(const torch::nn::Module& module);
/// This rank's share of something everyone has.
torch::Tensor share(const torch::Tensor& whole, const Group& group);
/// The same values on every rank, and others for another seed.
torch::Tensor numbers(at::IntArrayRef sizes, int seed);

/// A module with the same weights wherever it is built.
template <typename Module, typename... Args>
std::shared_ptr<Module> seeded(Args&&... args) {
  torch::manual_seed(7);
  return std::make_shared<Module>(std::forward<Args>(args)...);
}

}  // namespace trireme::test
