// Prints what the samplers yield, for sampler_test.py to compare with the peers' own. Each line of the input is a case:
//
//   paddle 10 3 2 1 0 1 7 4          order samples batch_size ranks shuffle drop_last pad seed epoch
//
// The output says for each case and rank how many batches there are, "CASE RANK has 2", and each: "CASE RANK: 0 1 2".
#include <fmt/core.h>

#include <iostream>
#include <sstream>

#include "trireme/data/order/sampler.h"

using namespace trireme;

namespace {

void dump(int number, const data::SamplerOptions& options, int64_t epoch, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    data::DistributedBatchSampler sampler(options, {rank, ranks});
    sampler.set_epoch(epoch);
    fmt::print("{} {} has {}\n", number, rank, sampler.size());
    for (const auto& batch : sampler) {
      fmt::print("{} {}:", number, rank);
      for (const int64_t sample : batch) fmt::print(" {}", sample);
      fmt::print("\n");
    }
  }
}

}  // namespace

int main() {
  std::string line;
  for (int number = 0; std::getline(std::cin, line); ++number) {
    std::istringstream words(line);
    std::string order;
    data::SamplerOptions options;
    int ranks = 1;
    int64_t epoch = 0;
    words >> order >> options.samples >> options.batch_size >> ranks >> options.shuffle >> options.drop_last >>
        options.pad >> options.seed >> epoch;
    options.order = order == "torch" ? data::Order::torch : data::Order::paddle;
    dump(number, options, epoch, ranks);
  }
}
