#include "trireme/parallel/sharded/shard_unit.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <exception>
#include <limits>
#include <utility>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"
#include "trireme/parallel/parameter_check.h"

namespace trireme::parallel {
namespace {

// What we do with parameters and shards does not count as a use of the model.
struct Quiet {
  torch::NoGradGuard no_grad;
  at::DisableRecordFunctionGuard unobserved;
};

// A tensor of the same memory that autograd does not take for a view: optimizers clear gradients in place, which it
// refuses for views.
torch::Tensor plain(const torch::Tensor& tensor) {
  return tensor.variable_data();
}

c10::DataPtr pointer_to(const torch::Tensor& memory) {
  const auto forget = [](void* tensor) { delete static_cast<torch::Tensor*>(tensor); };
  return {memory.data_ptr(), new torch::Tensor(memory), forget, memory.device()};
}

// The same memory under a storage of its own.
torch::Tensor other_storage(const torch::Tensor& memory) {
  return torch::from_blob(
      memory.data_ptr(), memory.sizes(), [memory](void*) {}, memory.options());
}

int64_t version_of(const torch::Tensor& tensor) {
  return static_cast<int64_t>(tensor.unsafeGetTensorImpl()->version_counter().current_version());
}

}  // namespace

ShardUnit::ShardUnit(UnitPlan plan, std::vector<UnitMember> members, UnitMemory memory, const UnitGroups& groups)
    : plan_(std::move(plan)), members_(std::move(members)), memory_(memory), groups_(groups) {
  const Quiet quiet;
  const torch::TensorOptions in_use = members_[0].parameter.options().requires_grad(false).dtype(members_[0].type);
  full_ = torch::zeros({plan_.shard * groups_.gather.size()}, in_use);
  if (memory_.keep_parameters) full_ = other_storage(bytes_ = full_);
  shares_memory_ = memory_.keep_parameters && in_use.type_equal(shard_options());
  shard_ = shares_memory_ ? other_storage(my_part()) : torch::zeros({plan_.shard}, shard_options());
  for (size_t i = 0; i < members_.size(); ++i) {
    torch::Tensor& parameter = members_[i].parameter;
    if (!shares_memory_) piece_of(shard_, i).copy_(cut(i, parameter));
    const torch::Tensor inside = view(full_, i);
    inside.copy_(parameter);
    parameter.set_data(inside);
  }
  reduced_ = torch::zeros({plan_.shard}, shard_options());
  for (size_t i = 0; i < members_.size(); ++i) {
    pieces_.push_back(plain(piece_of(shard_, i)));
    pieces_.back().set_requires_grad(members_[i].parameter.requires_grad());
  }
  arrived_.assign(members_.size(), false);
  for (const UnitMember& member : members_) versions_.push_back(version_of(member.parameter));
  noted_ = versions_;
  if (!memory_.keep_parameters) release();
}

// Before the parameters are converted: the shard stays as they were. Pinned memory, since it is copied to and fro.
torch::TensorOptions ShardUnit::shard_options() const {
  const torch::TensorOptions options =
      (shard_.defined() ? shard_ : members_[0].parameter).options().requires_grad(false);
  const bool offloaded = memory_.offload && !options.device().is_cpu();
  return offloaded ? options.device(torch::kCPU).pinned_memory(true) : options;
}

// In the parameter's own order in memory (channels last, say), if it has no holes.
torch::Tensor ShardUnit::view(const torch::Tensor& flat, size_t member) const {
  const torch::Tensor& parameter = members_[member].parameter;
  const int64_t offset = plan_.offsets[member];
  if (parameter.is_non_overlapping_and_dense()) return flat.as_strided(parameter.sizes(), parameter.strides(), offset);
  return flat.narrow(0, offset, plan_.lengths[member]).view(parameter.sizes());
}

torch::Tensor ShardUnit::piece_of(const torch::Tensor& shard, size_t member) const {
  const Range range = piece_range(member);
  const int64_t begin = plan_.offsets[member] + range.begin - plan_.shard * groups_.gather.rank();
  return range.length() == 0 ? shard.narrow(0, 0, 0) : shard.narrow(0, begin, range.length());
}

bool ShardUnit::is_intact(size_t member) const {
  const torch::Tensor& parameter = members_[member].parameter;
  return parameter.has_storage() && parameter.storage().unsafeGetStorageImpl() == full_storage();
}

// --- values

void ShardUnit::allocate() {
  c10::StorageImpl* storage = full_.storage().unsafeGetStorageImpl();
  if (storage->data() != nullptr) return;
  if (memory_.keep_parameters) return storage->set_data_ptr_noswap(pointer_to(bytes_));
  const auto bytes = static_cast<size_t>(full_bytes());
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

void ShardUnit::start_gather() {
  const Quiet quiet;
  if (resident_) absorb_writes();
  allocate();
  if (converts()) my_part().copy_(shard_);
  const bool from_shard = !memory_.keep_parameters && !converts();
  gather_ = all_gather_async(full_, from_shard ? shard_ : my_part(), groups_.gather);
  gathering_ = true;
}

void ShardUnit::finish_gather() {
  const Quiet quiet;
  gathering_ = false;
  std::exchange(gather_, {}).wait();
  resident_ = true;
  for (size_t i = 0; i < members_.size(); ++i) versions_[i] = version_of(members_[i].parameter);
  noted_ = versions_;
}

void ShardUnit::absorb_writes() {
  const Quiet quiet;
  const bool any = std::exchange(written_, false);
  for (size_t i = 0; i < members_.size(); ++i) {
    const int64_t version = version_of(members_[i].parameter);
    if (std::exchange(versions_[i], version) == version && !any) continue;
    pieces_[i].unsafeGetTensorImpl()->bump_version();  // MasterWeights follow it
    writes_.emplace_back(members_[i].name, checksum_of(members_[i].parameter));
    absorb_write(i);
  }
  noted_ = versions_;
}

void ShardUnit::note_write() {
  bool version_has_moved = false;  // then that tells which member was written to
  for (size_t i = 0; i < members_.size(); ++i) {
    const int64_t version = version_of(members_[i].parameter);
    if (std::exchange(noted_[i], version) != version) version_has_moved = true;
  }
  if (!version_has_moved) written_ = true;
}

void ShardUnit::absorb_write(size_t member) {
  const Range range = piece_range(member);
  if (range.length() == 0 || shares_memory_) return;
  const torch::Tensor kept = piece_of(shard_, member);
  const torch::Tensor written = full_.narrow(0, plan_.offsets[member] + range.begin, range.length()).to(kept.device());
  const torch::Tensor exact = written.to(kept.scalar_type());
  kept.copy_(converts() ? torch::where(written == kept.to(written.scalar_type()), kept, exact) : exact);
}

void ShardUnit::release() {
  if (!resident_ || (shares_memory_ && groups_.gather.size() == 1)) return;  // alone, the shard is all there is
  const Quiet quiet;
  absorb_writes();
  c10::StorageImpl* storage = full_.storage().unsafeGetStorageImpl();
  // The size stays: a read without an operator, as torch::save() does, ends the program and writes no wrong file.
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, full_.device()));
  resident_ = false;
}

void ShardUnit::fill_with_nan() {
  if (resident_) return;
  const Quiet quiet;
  if (std::exchange(gathering_, false)) {
    try {
      std::exchange(gather_, {}).wait();  // it must not write any more
    } catch (const std::exception&) {     // known: this is what follows from it
    }
  }
  allocate();
  if (full_.is_floating_point() && !memory_.keep_parameters) full_.fill_(std::numeric_limits<double>::quiet_NaN());
  resident_ = true;
}

void ShardUnit::abandon() {
  if (resident_ || gathering_ || !memory_.keep_parameters || !full_.is_floating_point()) return;
  const Quiet quiet;
  allocate();
  // The shard has the values after the last step; where it has its own memory, my_part() has those before it.
  const torch::Tensor mine = shares_memory_ ? my_part().clone() : shard_;
  full_.fill_(std::numeric_limits<double>::quiet_NaN());
  my_part().copy_(mine);
}

void ShardUnit::bump_versions() {
  for (size_t i = 0; i < members_.size(); ++i) {
    members_[i].parameter.unsafeGetTensorImpl()->bump_version();
    versions_[i] = version_of(members_[i].parameter);
  }
  noted_ = versions_;
}

// --- gradients

void ShardUnit::make_gradient_buffer() {
  if (gradients_.defined()) return;
  gradients_ = torch::empty_like(full_, memory_.reduce_type.value_or(full_.scalar_type()));
}

void ShardUnit::take_gradient(size_t member) {
  const Quiet quiet;
  make_gradient_buffer();
  torch::Tensor& gradient = members_[member].parameter.mutable_grad();
  const torch::Tensor place = view(gradients_, member);
  if (arrived_[member])
    place.add_(gradient);
  else
    place.copy_(gradient);
  arrived_[member] = true;
  gradient.reset();
}

void ShardUnit::zero_what_is_missing() {
  make_gradient_buffer();
  int64_t filled = 0;
  for (size_t i = 0; i < members_.size(); ++i) {
    const int64_t begin = arrived_[i] ? plan_.offsets[i] : plan_.offsets[i] + plan_.lengths[i];
    gradients_.narrow(0, filled, begin - filled).zero_();
    filled = plan_.offsets[i] + plan_.lengths[i];
  }
  gradients_.narrow(0, filled, gradients_.numel() - filled).zero_();
}

bool ShardUnit::has_piece_gradients() const {
  for (const torch::Tensor& piece : pieces_)
    if (piece.grad().defined()) return true;
  return false;
}

void ShardUnit::start_reduce() {
  const Quiet quiet;
  zero_what_is_missing();
  const bool at_once = gradients_.options().type_equal(reduced_.options()) && !has_piece_gradients();
  reduce_into_ = at_once ? reduced_ : torch::empty({plan_.shard}, gradients_.options());
  reduce_ = reduce_scatter_async(reduce_into_, gradients_, ReduceOp::avg, groups_.reduce);
  reducing_ = true;
}

void ShardUnit::free_buffer() {
  if (memory_.keep_gradients) return;
  std::exchange(reduce_, {}).wait();
  gradients_.reset();
}

void ShardUnit::finish_reduce(const std::vector<bool>& used) {
  const Quiet quiet;
  std::exchange(reduce_, {}).wait();
  free_buffer();
  reducing_ = false;
  if (!has_piece_gradients() && !reduce_into_.is_same(reduced_)) reduce_into_ = reduced_.copy_(reduce_into_);
  reduce_into_ = reduce_into_.to(reduced_.options());
  for (size_t i = 0; i < members_.size(); ++i) {
    torch::Tensor& gradient = pieces_[i].mutable_grad();
    const torch::Tensor average = plain(piece_of(reduce_into_, i));
    if (used[i] && gradient.defined())
      gradient.add_(average);
    else if (used[i])
      gradient = reduce_into_.is_same(reduced_) ? average : average.clone();
  }
  reduce_into_.reset();
  arrived_.assign(members_.size(), false);
}

int ShardUnit::first_with_gradient() const {
  const Quiet quiet;
  for (size_t i = 0; i < members_.size(); ++i) {
    const torch::Tensor& gradient = pieces_[i].grad();
    if (gradient.defined() && gradient.any().item<bool>()) return static_cast<int>(i);
  }
  return -1;
}

// --- what belongs to the numbers of a member

// A tensor of the member's shape whose memory has the member's order.
torch::Tensor ShardUnit::in_memory_order(size_t member, const torch::TensorOptions& options) const {
  const torch::Tensor& parameter = members_[member].parameter;
  if (!parameter.is_non_overlapping_and_dense()) return torch::empty(parameter.sizes(), options);
  return torch::empty_strided(parameter.sizes(), parameter.strides(), options);
}

torch::Tensor ShardUnit::join(size_t member, const torch::Tensor& part) const {
  const Quiet quiet;
  std::vector<torch::Tensor> parts;
  for (int rank = 0; rank < groups_.gather.size(); ++rank)
    parts.push_back(torch::empty({plan_.piece(member, rank).length()}, part.options().requires_grad(false)));
  all_gather(parts, part.detach(), groups_.gather);
  const torch::Tensor whole = in_memory_order(member, part.options().requires_grad(false));
  whole.as_strided({whole.numel()}, {1}).copy_(torch::cat(parts));
  return whole;
}

torch::Tensor ShardUnit::cut(size_t member, const torch::Tensor& whole) const {
  const Quiet quiet;
  if (whole.sizes() != members_[member].parameter.sizes())
    throw UsageError("parameter {} has shape {}, but its state in the checkpoint has shape {}", members_[member].name,
                     c10::str(members_[member].parameter.sizes()), c10::str(whole.sizes()));
  const torch::Tensor ordered = in_memory_order(member, whole.options()).copy_(whole);
  const Range range = piece_range(member);
  return ordered.as_strided({ordered.numel()}, {1}).narrow(0, range.begin, range.length()).clone();
}

}  // namespace trireme::parallel
