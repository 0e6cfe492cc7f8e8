#include "trireme/nn/kernels/dispatch.h"

#include <cstdint>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/nn/kernels/targets.h"
// After targets.h, which chooses among them.
#include <hwy/targets.h>

namespace trireme::nn::kernels {
namespace {

/// Highway's bit of the widest vectors that are wanted; the bit of wider ones is lower.
int64_t widest_wanted() {
  const auto wish = env::get_nonempty("TRIREME_SIMD");
  if (!wish) return 1;
  if (*wish == "avx2") return HWY_AVX2;
  if (*wish == "sse") return HWY_SSE4;
  if (*wish == "portable") return HWY_STATIC_TARGET;
  throw UsageError("TRIREME_SIMD is '{}'; it must be avx2, sse or portable, or unset for the widest vectors there are",
                   *wish);
}

/// Highway's SupportedTargets() chooses the widest vectors again, whatever is disabled: so choose after each call.
int64_t chosen_targets() {
  const int64_t targets = hwy::SupportedTargets();
  hwy::GetChosenTarget().Update(targets);
  return targets & HWY_TARGETS;  // the processor may have some that are not compiled
}

}  // namespace

void choose_vectors() {
  hwy::DisableTargets(widest_wanted() - 1);
  chosen_targets();
}

const char* vectors_in_use() {
  const int64_t targets = chosen_targets();
  return hwy::TargetName(targets & -targets);
}

}  // namespace trireme::nn::kernels
