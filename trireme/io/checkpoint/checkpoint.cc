#include "trireme/io/checkpoint/checkpoint.h"

#include <torch/torch.h>

#include <cstring>
#include <exception>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/preemption.h"
#include "trireme/core/text.h"
#include "trireme/io/async_writer.h"
#include "trireme/io/checkpoint/agreement.h"
#include "trireme/io/checkpoint/saving.h"
#include "trireme/io/checkpoint_folder.h"
#include "trireme/io/rng_state.h"
#include "trireme/parallel/init.h"
#include "trireme/parallel/together.h"
#include "trireme/parallel/wrapped_module.h"
#include "trireme/watch/recorder.h"

namespace trireme {
namespace {

constexpr const char* kRandom = "rng";

// Collectives of the program on its own groups cannot get between ours.
Group group_like(const Group& group) {
  return group.size() <= 1 ? Group() : duplicate(group);
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
void check_same_progress(const std::vector<std::string>& all, const Group& group) {
  for (size_t member = 1; member < all.size(); ++member)
    if (all[member] != all[0])
      throw UsageError("Checkpoint: {} saves at {}, but {} at {}; call save() on every rank, after the same step",
                       place_of(group, static_cast<int>(member)), all[member], place_of(group, 0), all[0]);
}

// Rank 0's weights are saved, so what DataParallel keeps equal must be.
void require_equal_models(const TrainingState& state, const Group& group) {
  constexpr const char* kWhen = "Checkpoint::save()";
  if (is_alone(group)) return;
  if (state.model) parallel::require_equal_where_wrapped(*state.model, group, kWhen);
  for (const auto& named : state.models) parallel::require_equal_where_wrapped(*named.model, group, kWhen);
}

struct WholeFile {
  std::string name;
  detail::WholeTensors tensors;
  std::vector<io::TensorLayout> layouts;
  std::vector<size_t> order;
};

// UsageError for a tensor that a file cannot hold.
std::vector<WholeFile> in_writing_order(const std::map<std::string, detail::WholeTensors>& all) {
  std::vector<WholeFile> files;
  for (const auto& [name, tensors] : all) {
    std::vector<io::TensorLayout> layouts = detail::layouts_of(tensors);
    std::vector<size_t> order = io::writing_order(layouts);
    files.push_back({name, tensors, std::move(layouts), std::move(order)});
  }
  return files;
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
  const watch::PhaseScope phase(watch::Phase::save);
  require_equal_models(state, group_);
  const auto place = detail::gather(fmt::format("step {} of epoch {}", progress.step, progress.epoch), group_);
  const auto random = detail::gather(pack(io::rng_state()), group_);
  const detail::WholeState whole(state);
  std::vector<WholeFile> files;
  std::optional<detail::Saving> saving;  // on the rank that writes
  together(group_, [&] {
    files = in_writing_order(detail::files_of(state, whole));
    if (!is_writer()) return;
    check_same_progress(place, group_);
    saving.emplace(parts_->folder, parts_->writer ? &*parts_->writer : nullptr, name, manifest_of(state, progress));
  });
  for (const WholeFile& file : files) {
    if (saving) saving->begin(file.name, file.layouts);
    for (const size_t i : file.order) {
      const torch::Tensor whole_tensor = file.tensors[i].make();
      if (saving) saving->write(file.layouts[i].name, whole_tensor);
    }
  }
  on_first(group_, [&] {
    saving->finish({{kRandom, by_rank(random)}});
    if (signal_ != 0 && parts_->writer) parts_->writer->wait();  // the process is about to end
  });
}

io::Manifest Checkpoint::manifest_of(const TrainingState& state, const Progress& progress) const {
  io::Manifest manifest = detail::describe(state);
  manifest.step = progress.step;
  manifest.epoch = progress.epoch;
  manifest.world_size = ranks();
  manifest.config = config_;
  return manifest;
}

Restored Checkpoint::restore(const TrainingState& state) {
  return restore_with(state, [this] { return parts_->folder.read_newest(options_.not_resumed); });
}

Restored Checkpoint::restore_from(const std::string& name, const TrainingState& state) {
  return restore_with(state, [&] { return parts_->folder.read(name); });
}

Restored Checkpoint::restore_with(const TrainingState& state,
                                  const std::function<std::optional<io::Snapshot>()>& read) {
  wait();                             // for what is being written: it is the newest
  std::optional<io::Snapshot> found;  // on rank 0
  std::vector<std::string> random;
  on_first(group_, [&] {
    found = read();
    random = take_random(found, ranks());
  });
  const std::optional<io::Snapshot> layout = detail::share_layout(found, group_);
  const std::string mine = detail::scatter(random, group_);
  if (!layout) return {};
  put_all(state, local_parts(state, found, *layout), mine);
  const io::Manifest& manifest = layout->manifest;
  if (is_writer()) log_restored(manifest, parts_->folder.path(), ranks());
  return {{.step = manifest.step, .epoch = manifest.epoch},
          manifest.name,
          manifest.config,
          static_cast<int>(manifest.world_size)};
}

// No rank but the first has more than one whole tensor at a time.
io::Snapshot Checkpoint::local_parts(const TrainingState& state, std::optional<io::Snapshot>& found,
                                     const io::Snapshot& layout) const {
  detail::LocalPart part;
  together(group_, [&] {
    detail::check_fit(state, layout);
    part = detail::local_part(state);
  });
  io::Snapshot local{.manifest = layout.manifest};
  for (const auto& [file, tensors] : layout.tensors) local.tensors[file];
  std::exception_ptr failed;  // the other ranks count on this one until all tensors have come
  detail::share_tensors(found, layout, group_, [&](const auto& file, const auto& name, const torch::Tensor& tensor) {
    if (failed) return;
    try {
      if (const auto mine = part(file, name, tensor)) local.tensors.at(file).insert(name, *mine);
    } catch (...) {
      failed = std::current_exception();
    }
  });
  together(group_, [&] {
    if (failed) std::rethrow_exception(failed);
  });
  return local;
}

// All ranks or none.
void Checkpoint::put_all(const TrainingState& state, const io::Snapshot& local, const std::string& random) {
  std::optional<io::Snapshot> before;
  const io::TensorMap random_before = io::rng_state();
  try {
    together(group_, [&] {
      before = io::copy_of(detail::take_local(state));
      detail::put_local(state, local);
      if (!random.empty()) io::set_rng_state(unpack(random));
    });
  } catch (...) {
    if (before) detail::put_local(state, *before);
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
