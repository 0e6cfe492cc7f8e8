// One unit of a sharded model (shard_plan.h): the memory of its parameters, which may come and go, and this rank's shard,
// which stays.
//
//   ShardUnit unit(plan, members, {.keep_parameters = false}, group);
//   unit.start_gather();  …  unit.finish_gather();            // the parameters hold their values
//   unit.release();                                          // and no memory any more
//   unit.take_gradient(0);  …  unit.start_reduce();  …  unit.finish_reduce(used);
//   optimizer steps unit.pieces()
//
// The parameters of the module are views into one flat array. Without its memory they keep shape, type and identity, so
// autograd, optimizers and the module itself notice nothing; an operator that touches one needs a gather first, which
// ShardSync sees to. A piece has the memory of the shard, and the gradient that was reduced for it. Where parameters keep
// their memory the shard is a part of it, but under a storage of its own, so that uses of the two can be told apart.
//
// Thread rule: one thread at a time.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/comm/work.h"
#include "trireme/parallel/sharded/agreement.h"
#include "trireme/parallel/sharded/shard_plan.h"

namespace trireme::parallel {

struct UnitMember {
  std::string name;
  torch::Tensor parameter;
  c10::ScalarType type;  ///< in which it is gathered and computes; the shard keeps the type it had
};

/// What stays in memory between its uses, and where.
struct UnitMemory {
  bool keep_parameters = true;
  bool keep_gradients = true;
  std::optional<c10::ScalarType> reduce_type = {};  ///< of gradients on their way; default: the members' type
  bool offload = false;                             ///< shard and averages are in host memory
};

/// Two, since gradients are reduced when they come, beside the gathers.
struct UnitGroups {
  Group gather;
  Group reduce;
};

class ShardUnit {
 public:
  /// Moves the parameters into the flat array, with their values, and makes them of the members' type. All of one type,
  /// on one device.
  ShardUnit(UnitPlan plan, std::vector<UnitMember> members, UnitMemory memory, const UnitGroups& groups);
  ShardUnit(ShardUnit&&) = default;
  ShardUnit(const ShardUnit&) = delete;
  ShardUnit& operator=(const ShardUnit&) = delete;

  const std::vector<UnitMember>& members() const { return members_; }
  /// What of each member lies on this rank, of one dimension: what the optimizer steps. May be empty.
  const std::vector<torch::Tensor>& pieces() const { return pieces_; }
  Range piece_range(size_t member) const { return plan_.piece(member, groups_.gather.rank()); }
  int64_t full_bytes() const { return static_cast<int64_t>(full_.numel() * full_.element_size()); }

  /// The memory of the parameters, of the pieces, and of the pieces' gradients.
  const void* full_storage() const { return full_.storage().unsafeGetStorageImpl(); }
  const void* shard_storage() const { return shard_.storage().unsafeGetStorageImpl(); }
  const void* gradient_storage() const { return reduced_.storage().unsafeGetStorageImpl(); }
  /// Whether the parameters are still views into the flat array. torch::load() and Module::to() exchange their memory.
  bool is_intact(size_t member) const;

  // --- values

  /// Called by every rank at the same places. The values are there after finish_gather().
  void start_gather();
  void finish_gather();
  bool gathering() const { return gathering_; }
  bool resident() const { return resident_; }
  /// What an operator has written into the parameters since the gather goes into the shard. A number that was written
  /// but is what the shard's rounds to leaves the shard's digits alone.
  void absorb_writes();
  /// Called after each operator that has written to memory of the unit, maybe past the version of the parameter, as
  /// data() does.
  void note_write();
  /// What absorb_writes() has found since the last call.
  std::vector<Write> take_writes() { return std::exchange(writes_, {}); }
  /// Takes the memory from the parameters, after absorb_writes(): nothing can read old values. It is freed if parameters
  /// are not kept.
  void release();
  /// After a gather that failed: values that are not numbers, since an operator that finds no memory kills the process.
  void fill_with_nan();
  /// At the end of the wrapper, in a module that lives on: where parameters were not gathered since the last step, this
  /// rank's part has the values after it and the other ranks' parts are NaN.
  void abandon();
  /// The graph of an older forward must not be used with these values: autograd then says so.
  void bump_versions();

  // --- gradients

  /// Moves the gradient of the parameter into the unit's buffer; adds when one came before.
  void take_gradient(size_t member);
  bool has_gradient(size_t member) const { return arrived_[member]; }
  /// Every rank, for the same units in the same order. Members without a gradient give zeros.
  void start_reduce();
  bool reducing() const { return reducing_; }
  /// Waits for the averages, if the buffer is not kept, and frees it. finish_reduce() does it too.
  void free_buffer();
  /// The averages become the gradients of the pieces, added to those that are there; members that are not `used` are
  /// left out.
  void finish_reduce(const std::vector<bool>& used);
  /// A member whose piece still has an averaged gradient that is not 0, or -1. Without a gradient there is nothing to
  /// read.
  int first_with_gradient() const;

  // --- what belongs to the numbers of a member, one for one

  /// All ranks' parts in the member's shape. Called by every rank.
  torch::Tensor join(size_t member, const torch::Tensor& part) const;
  /// This rank's part.
  torch::Tensor cut(size_t member, const torch::Tensor& whole) const;

 private:
  torch::Tensor view(const torch::Tensor& flat, size_t member) const;
  torch::Tensor piece_of(const torch::Tensor& shard, size_t member) const;
  torch::Tensor in_memory_order(size_t member, const torch::TensorOptions& options) const;
  torch::Tensor my_part() const { return full_.narrow(0, plan_.shard * groups_.gather.rank(), plan_.shard); }
  torch::TensorOptions shard_options() const;
  bool converts() const { return !full_.options().type_equal(shard_.options()); }
  void allocate();
  void absorb_write(size_t member);
  void make_gradient_buffer();
  void zero_what_is_missing();
  bool has_piece_gradients() const;

  UnitPlan plan_;
  std::vector<UnitMember> members_;
  UnitMemory memory_;
  UnitGroups groups_;
  torch::Tensor bytes_;  // the memory of full_, if it is kept
  torch::Tensor full_;   // all ranks' shards
  torch::Tensor shard_;  // the memory of a part of full_ if that is kept and of the same type and device
  bool shares_memory_ = false;
  std::vector<torch::Tensor> pieces_;

  Work gather_;
  bool gathering_ = false;
  bool resident_ = true;
  std::vector<int64_t> versions_;  // of the parameters when they were gathered, or their writes absorbed
  std::vector<int64_t> noted_;     // of the parameters at the last note_write() since then
  bool written_ = false;           // members may have been written to whose version is the same
  std::vector<Write> writes_;

  torch::Tensor gradients_;    // of all members, as full_
  std::vector<bool> arrived_;  // members whose gradient is in it
  torch::Tensor reduced_;      // this rank's part of the averages: memory of the pieces' gradients
  torch::Tensor reduce_into_;  // reduced_, or a temporary: of another type, or when pieces hold gradients already
  Work reduce_;
  bool reducing_ = false;
};

}  // namespace trireme::parallel
