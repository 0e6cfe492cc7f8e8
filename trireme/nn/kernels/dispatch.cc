#include "trireme/nn/kernels/dispatch.h"

#include <hwy/targets.h>

#include <string>

#include "trireme/core/env.h"
#include "trireme/core/error.h"

namespace trireme::nn::kernels {

void choose_vectors() {
  const std::string wish = env::get_nonempty("TRIREME_SIMD").value_or("widest");
  if (wish == "avx2") {
    hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
  } else if (wish == "sse") {
    hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL | HWY_AVX2);
  } else if (wish != "widest") {
    throw UsageError("TRIREME_SIMD is '{}'; it must be avx2 or sse, or unset for the widest vectors there are", wish);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

const char* vectors_in_use() {
  return hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets());
}

}  // namespace trireme::nn::kernels
