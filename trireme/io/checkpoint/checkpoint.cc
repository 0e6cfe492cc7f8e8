#include "trireme/io/checkpoint/checkpoint.h"

#include <torch/torch.h>

#include <cstring>
#include <numeric>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/preemption.h"
#include "trireme/core/text.h"
#include "trireme/io/async_writer.h"
#include "trireme/io/checkpoint/agreement.h"
#include "trireme/io/checkpoint_folder.h"
#include "trireme/io/rng_state.h"
#include "trireme/parallel/init.h"
#include "trireme/parallel/together.h"

namespace trireme {
namespace {

constexpr const char* kRandom = "rng";

// Collectives of the program on its own groups cannot get between ours.
Group group_like(const Group& group) {
  if (group.size() <= 1) return {};
  std::vector<int> ranks(static_cast<size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group.new_group(ranks);
}

const Group& member(const Group& group) {
  if (!group.is_member()) throw UsageError("Checkpoint: this process is not a member of the group it was given");
  return group;
}

const CheckpointOptions& checked(const CheckpointOptions& options) {
  if (options.every < 0)
    throw UsageError("Checkpoint: every = {} steps; it must be at least 1, or 0 for never", options.every);
  return options;
}

// The states of the random numbers of one rank as bytes: "cpu 5056\n" and the bytes, and so on.
std::string pack(const io::TensorMap& states) {
  std::string text;
  for (const auto& item : states) {
    const torch::Tensor bytes = item.value().contiguous();
    text += fmt::format("{} {}\n", item.key(), bytes.nbytes());
    text.append(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  }
  return text;
}

io::TensorMap unpack(std::string_view text) {
  io::TensorMap states;
  while (!text.empty()) {
    const size_t space = text.find(' '), end = text.find('\n');
    const auto bytes = parse_int(text.substr(space + 1, end - space - 1), 0, static_cast<int64_t>(text.size())).value();
    torch::Tensor state = torch::empty({bytes}, torch::kByte);
    std::memcpy(state.mutable_data_ptr(), text.data() + end + 1, static_cast<size_t>(bytes));
    states.insert(std::string(text.substr(0, space)), state);
    text.remove_prefix(end + 1 + static_cast<size_t>(bytes));
  }
  return states;
}

std::string prefix_of(int rank) {
  return fmt::format("rank_{}/", rank);
}

io::TensorMap by_rank(const std::vector<std::string>& random) {
  io::TensorMap all;
  for (size_t rank = 0; rank < random.size(); ++rank)
    for (const auto& item : unpack(random[rank]))
      all.insert(prefix_of(static_cast<int>(rank)) + item.key(), item.value());
  return all;
}

io::TensorMap of_rank(const io::TensorMap& all, int rank) {
  io::TensorMap states;
  const std::string prefix = prefix_of(rank);
  for (const auto& item : all)
    if (item.key().starts_with(prefix)) states.insert(item.key().substr(prefix.size()), item.value());
  return states;
}

// Taken out of the snapshot: each rank gets its own alone. Empty: not saved by as many ranks.
std::vector<std::string> take_random(std::optional<io::Snapshot>& snapshot, int ranks) {
  std::vector<std::string> random(static_cast<size_t>(ranks));
  if (!snapshot) return random;
  const auto node = snapshot->tensors.extract(kRandom);
  if (!node || snapshot->manifest.world_size != ranks) return random;
  for (int rank = 0; rank < ranks; ++rank) random[static_cast<size_t>(rank)] = pack(of_rank(node.mapped(), rank));
  return random;
}

void log_restored(const io::Manifest& manifest, const std::filesystem::path& folder, int ranks) {
  log_info("[checkpoint] resumed from {}: step {}, epoch {}", (folder / manifest.name).string(), manifest.step,
           manifest.epoch);
  if (manifest.world_size != ranks)
    log_warning(
        "[checkpoint] {} was saved by {} ranks, now there are {}: the rest of the epoch is dealt out again, and "
        "the random numbers (dropout) are not restored",
        manifest.name, manifest.world_size, ranks);
}

// Rank 0 looks at what all ranks have sent.
void check_same_progress(const std::vector<std::string>& all) {
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw UsageError(
          "Checkpoint: rank {} saves at {}, but rank 0 at {}; call save() on every rank, after the same step", rank,
          all[rank], all[0]);
}

}  // namespace

struct Checkpoint::Parts {
  io::CheckpointFolder folder;
  std::optional<io::AsyncWriter> writer = {};
  std::optional<PreemptionNotice> notice = {};
};

Checkpoint::Checkpoint(std::filesystem::path folder, const CheckpointOptions& options)
    : Checkpoint(std::move(folder), init_parallel_env(), options) {}

Checkpoint::Checkpoint(std::filesystem::path folder, const Group& group, const CheckpointOptions& options)
    : options_(checked(options)),
      group_(group_like(member(group))),
      parts_(new Parts{.folder = io::CheckpointFolder(std::move(folder), {.keep = options.keep})}) {
  if (options_.async && is_writer()) parts_->writer.emplace(parts_->folder);
}

Checkpoint::~Checkpoint() = default;

void Checkpoint::save(const TrainingState& state, const Progress& progress) {
  save_as(fmt::format("step_{:09}", progress.step), state, progress);
}

void Checkpoint::save_as(const std::string& name, const TrainingState& state, const Progress& progress) {
  const auto place = detail::gather(fmt::format("step {} of epoch {}", progress.step, progress.epoch), group_);
  const auto random = detail::gather(pack(io::rng_state()), group_);
  const detail::WholeState whole(state);
  on_first(group_, [&] {
    check_same_progress(place);
    write(name, state, whole, progress, random);
  });
}

void Checkpoint::write(const std::string& name, const TrainingState& state, const detail::WholeState& whole,
                       const Progress& progress, const std::vector<std::string>& random) {
  io::Snapshot snapshot = detail::take(state, whole);
  snapshot.manifest.step = progress.step;
  snapshot.manifest.epoch = progress.epoch;
  snapshot.manifest.world_size = ranks();
  snapshot.manifest.config = config_;
  snapshot.tensors.emplace(kRandom, by_rank(random));
  if (!parts_->writer) return parts_->folder.write(name, snapshot);
  parts_->writer->write(name, snapshot);
  if (signal_ != 0) parts_->writer->wait();  // the process is about to end
}

Restored Checkpoint::restore(const TrainingState& state) {
  return restore_with(state, [this] { return parts_->folder.read_newest(options_.not_resumed); });
}

Restored Checkpoint::restore_from(const std::string& name, const TrainingState& state) {
  return restore_with(state, [&] { return parts_->folder.read(name); });
}

Restored Checkpoint::restore_with(const TrainingState& state,
                                  const std::function<std::optional<io::Snapshot>()>& read) {
  wait();  // for what is being written: it is the newest
  std::optional<io::Snapshot> snapshot;
  std::vector<std::string> random;
  on_first(group_, [&] {
    snapshot = read();
    random = take_random(snapshot, ranks());
  });
  snapshot = detail::share(std::move(snapshot), group_);
  const std::string mine = detail::scatter(random, group_);
  if (!snapshot) return {};
  put_all(state, *snapshot, mine);
  const io::Manifest& manifest = snapshot->manifest;
  if (is_writer()) log_restored(manifest, parts_->folder.path(), ranks());
  return {{.step = manifest.step, .epoch = manifest.epoch},
          manifest.name,
          manifest.config,
          static_cast<int>(manifest.world_size)};
}

// All ranks or none.
void Checkpoint::put_all(const TrainingState& state, const io::Snapshot& snapshot, const std::string& random) {
  std::optional<io::Snapshot> before;
  const detail::WholeState whole(state);
  const io::TensorMap random_before = io::rng_state();
  try {
    together(group_, [&] {
      before = io::copy_of(detail::take(state, whole));
      detail::put(state, snapshot);
      if (!random.empty()) io::set_rng_state(unpack(random));
    });
  } catch (...) {
    if (before) detail::put(state, *before);
    io::set_rng_state(random_before);
    throw;
  }
}

bool Checkpoint::preempted() {
  if (signal_ != 0) return true;
  if (!parts_->notice) parts_->notice.emplace(options_.signals);
  signal_ = parts_->notice->signal();
  if (ranks() == 1) return signal_ != 0;
  const torch::Tensor told = torch::full({1}, signal_, torch::kInt);
  all_reduce(told, ReduceOp::max, group_);
  signal_ = told.item<int>();
  return signal_ != 0;
}

void Checkpoint::wait() {
  on_first(group_, [this] {
    if (parts_->writer) parts_->writer->wait();
  });
}

}  // namespace trireme
